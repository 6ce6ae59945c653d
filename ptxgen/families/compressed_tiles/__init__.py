"""Products of sparse matrices in compressed tiles and matrices of few columns, which read A once."""
