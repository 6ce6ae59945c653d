"""Checks and times configurations of one problem on a device, in a child process that a crash may end."""
