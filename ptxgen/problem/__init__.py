"""What to compute: operations with their shapes, strides, dtypes and epilogues; devices; suites; float64 references.

Nothing here knows of tiles, instructions or kernels.
"""
