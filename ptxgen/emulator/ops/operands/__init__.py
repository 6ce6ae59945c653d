"""Operands of instructions: registers and constants, memory operands, undefined values."""
