"""The operation quantized_gemm: products of floating-point activations and quantized weights."""
