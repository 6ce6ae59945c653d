"""The family vector_mma: tensor cores multiply row windows of a sparse matrix, as blocks of 8×1 vectors, by rows of
B."""
