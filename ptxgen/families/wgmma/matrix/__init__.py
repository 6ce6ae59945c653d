"""The parts of kernels of plain products: loads by TMA, main loop, reductions, epilogue, tile scheduler and
parameters."""
