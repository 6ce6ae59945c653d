"""The instructions: one module for each group, and what builds a step from the operands of an instruction."""
