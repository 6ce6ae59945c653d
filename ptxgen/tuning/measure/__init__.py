"""Checks and times configurations of one problem on a device, in a child process, so that a crash ends only the
child."""
