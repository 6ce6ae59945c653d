"""The launches of a plan: packing kernels, the main kernel and its parameters, auxiliary kernels over C."""
