"""Python functions as tasks: their operands, reductions and outputs, and the functions that they may call."""
