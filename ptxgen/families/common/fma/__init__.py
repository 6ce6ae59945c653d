"""Products by FFMA, DFMA and HFMA2: each thread computes a tile of C from stages in shared memory."""
