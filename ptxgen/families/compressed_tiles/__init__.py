"""The family compressed_tiles: products of a sparse matrix in compressed tiles and a matrix of few columns. A is read
once."""
