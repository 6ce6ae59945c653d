"""Kernels that reduce the elements of one array in groups of rows or columns: each lane of a warp has a copy of the
groups in shared memory."""
