"""The operation task: computations like matrix products, whose inner operator, index set and outputs the user
defines."""
