"""Vendor libraries, the baselines of operations. They are timed in the same run as the kernels of ptxgen."""
