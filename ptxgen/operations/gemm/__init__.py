"""C = A·B, one product or a batch of them."""
