"""Lists of products with shapes of their own, and jagged groups."""
