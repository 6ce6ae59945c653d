"""PTX text to a program: tokens, syntax, and the rewriting of calls and of registers of 128 bits.

Nothing here executes.
"""
