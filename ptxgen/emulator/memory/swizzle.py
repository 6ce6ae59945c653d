"""How tensor copies and wgmma spread rows of a tile over the banks of shared memory.

A swizzle exchanges the 16-byte granules of an address by its own higher bits: with a span of 128 bytes bits 4 to 6 are
combined with bits 7 to 9, with 64 bytes bits 4 and 5 with 7 and 8, with 32 bytes bit 4 with bit 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


#: by span in bytes: the bits that are exchanged, of a granule's number
BITS = {0: 0, 16: 0, 32: 1, 64: 3, 128: 7}


def swizzled(granules: Array, span: int, shift: int = 0) -> Array:
    """Swizzled positions of granules (16 bytes, numbered from address 0); `shift`: 128-byte rows before the pattern."""
    bits = BITS[span]
    if not bits:
        return granules
    out: Array = granules ^ (((granules >> 3) - shift) & bits)
    return out


def box(first: int, count: int, span: int, width: int = 0) -> Array:
    """Granules of a box of shared memory in the order of its data.

    `first`: number of the first; `width`: granules of a row, where rows lie apart because they are narrower than the
    span (0: they do not).
    """
    places = np.arange(count)
    if width:
        places = places // width * (span >> 4) + places % width
    return swizzled(first + places, span)
