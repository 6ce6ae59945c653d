"""Groups of products in one launch: the descriptor table, the kernel that writes the table, and tile schedulers."""
