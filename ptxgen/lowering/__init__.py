"""Kernel problems: what kernels compute, with an access for each operand."""
