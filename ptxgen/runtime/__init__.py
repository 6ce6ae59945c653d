"""Runs kernels: drivers, assembly, timing by CUDA graphs, workspaces, device tables, and checks of results."""
