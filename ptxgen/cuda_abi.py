"""Facts of CUDA's binary interface that generated code, the drivers and the emulated device share."""

from __future__ import annotations

MAP_BYTES = 128  #: size of an encoded tensor map
MAP_ALIGNMENT = 64  #: bytes that its address is a multiple of
#: where sm_90's kernel parameters begin, in bytes past a multiple of MAP_ALIGNMENT: ptxas aligns a parameter to its
#: address, not to its offset
PARAMETERS_AT = 0x210 % MAP_ALIGNMENT
GRID_LIMIT = 65535  #: most blocks of a grid along y and z
