"""The launches of a plan: packing kernels, the main kernel, auxiliary kernels over C, and their parameters."""
