"""Groups of products in one launch: the descriptor table, the kernel that writes the table, and tile schedulers. The
list of the tiles of a join, whose blocks loop over tiles, too."""
