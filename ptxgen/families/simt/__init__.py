"""SIMT kernels: FFMA, DFMA and HFMA2."""
