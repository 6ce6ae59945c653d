"""The family simt: kernels of FFMA, DFMA and HFMA2 instructions."""
