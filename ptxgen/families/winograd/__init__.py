"""The families winograd and winograd_4x4: FMA kernels multiply 16 or 36 transformed matrices; other kernels
transform."""
