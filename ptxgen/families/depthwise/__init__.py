"""Depthwise convolutions: each thread computes strips of results of one channel."""
