"""The operation grouped: lists of products, each with its own shape, and jagged groups."""
