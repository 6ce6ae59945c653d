"""Convolutions of one to three axes, and their gradients."""
