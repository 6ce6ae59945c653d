"""Winograd convolutions: FMA kernels that multiply 16 transformed matrices, and the kernels that transform."""
