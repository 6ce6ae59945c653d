"""Axes, configurations and their text forms, and rules: what a kernel family declares."""
