"""Convolutions with few results per pixel: each pixel is multiplied by the taps of all filters once."""
