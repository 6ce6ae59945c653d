"""Problems: operations with shapes, strides, dtypes and epilogues; devices; suites; float64 references.

This package does not depend on tiles, instructions or kernels.
"""
