"""Expressions of data: inner operators, epilogues and activations, printed as PTX, NumPy and C."""
