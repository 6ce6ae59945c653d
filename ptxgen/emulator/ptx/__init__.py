"""PTX text to a program: tokens, syntax, and the rewriting of calls and of 128-bit registers.

The package executes no instruction.
"""
