"""The operation spmm: C = A·B of a sparse matrix A in CSR and a dense matrix B."""
