"""Skinny kernels: one side of C is short; the operand of the long side is loaded once, directly into registers."""
