"""C = A·B of a sparse matrix A in CSR and a matrix B."""
