"""Streaming kernels: one side of C is thin, and the matrix of the other side is read once, straight into registers."""
