"""Kernels of FFMA, DFMA and HFMA2 instructions: each thread computes a tile of C from stages in shared memory."""
