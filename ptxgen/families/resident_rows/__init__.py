"""The family resident_rows: kernels that reduce all pairs of rows of A and columns of B for small K. A thread keeps
rows of A in registers, and the columns stream through shared memory."""
