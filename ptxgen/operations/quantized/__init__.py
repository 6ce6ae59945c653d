"""Products of floating-point activations and quantized weights."""
