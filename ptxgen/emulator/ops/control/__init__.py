"""Branches, exits, calls and system calls."""
