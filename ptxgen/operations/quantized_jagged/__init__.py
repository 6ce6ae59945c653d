"""The operation quantized_jagged: rows of activations times the quantized weights of their expert."""
