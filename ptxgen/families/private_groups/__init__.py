"""The family private_groups: kernels that reduce the elements of one array in groups of rows or columns. Each lane of a
warp has a copy of the groups in shared memory."""
