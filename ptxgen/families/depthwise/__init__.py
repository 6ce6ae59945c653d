"""Kernels that slide down strips of images: filters of one channel."""
