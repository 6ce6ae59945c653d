"""Lowering: from the user's problem to the GEMM that kernels compute. Implicit GEMM, TMA im2col, depthwise strips, and
phases of strided input gradients.
"""
