"""The operation gemm: C = A·B, one matrix product or a batch."""
