"""Export of kernels for programs without Python: cubins, a manifest, and a C library that chooses and launches them."""
