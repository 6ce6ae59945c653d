"""Operands that TMA cannot load in place: packing kernels, and realignment in shared memory."""
