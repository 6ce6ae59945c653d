"""Kernel problems: what kernels compute, with an access mode for each operand."""
