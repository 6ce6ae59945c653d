"""What Python programs call: ``gemm``, ``conv*``, the arrays that they take, and the cache of launches."""
