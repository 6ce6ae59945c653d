"""Tensor-core kernels by mma.sync, from sm_80 on: every warp copies and multiplies."""
