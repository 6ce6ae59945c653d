"""Loads of convolutions: im2col windows, weight gradients, phases of strided input gradients, rows of filter taps."""
