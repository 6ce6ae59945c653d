"""Groups of products in one launch: the descriptor table, the kernel that makes it, the scheduler of its tiles."""
