"""Operands that TMA cannot load from where they are: packing kernels, and realignment in shared memory."""
