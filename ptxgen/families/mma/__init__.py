"""The family mma: tensor-core kernels by mma.sync, in which every warp copies and multiplies."""
