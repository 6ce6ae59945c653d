"""The operation task: matmul-like tasks, whose inner operator, index set and outputs are the user's."""
