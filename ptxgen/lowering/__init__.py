"""From the problem that a user states to the GEMM that kernels compute: implicit GEMM, TMA im2col, depthwise strips and
the dgrad_phases of strided input gradients.
"""
