"""The Python interface: ``gemm``, ``conv*``, views of user arrays, and the launch cache."""
