"""The family shared_slab: a block keeps a slab of columns of B in shared memory and multiplies it by many rows of a
sparse matrix."""
