"""Constants of CUDA's binary interface, for generated code, drivers and the emulated device."""

from __future__ import annotations

MAP_BYTES = 128  #: size of an encoded tensor map in bytes
MAP_ALIGNMENT = 64  #: required alignment of the address of a tensor map in bytes
#: offset of the first kernel parameter of sm_90 from a multiple of MAP_ALIGNMENT, in bytes. ptxas aligns the address of
#: a parameter, not its offset
PARAMETERS_AT = 0x210 % MAP_ALIGNMENT
GRID_LIMIT = 65535  #: upper limit of the grid extents y and z
#: CUtensorMapDataType by dtype
MAP_TYPES = {"u8": 0, "s32": 3, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 11}
#: CUtensorMapSwizzle by the span of the pattern in bytes
MAP_SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
