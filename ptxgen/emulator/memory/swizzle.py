"""The swizzles of tensor copies and wgmma, which avoid bank conflicts in shared memory.

A swizzle permutes the 16-byte chunks of a span. It combines address bits by exclusive or: with a span of 128 bytes
bits 4 to 6 with bits 7 to 9, with 64 bytes bits 4 and 5 with bits 7 and 8, with 32 bytes bit 4 with bit 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


#: span in bytes -> mask of the bits of a chunk number that the swizzle changes
BITS = {0: 0, 16: 0, 32: 1, 64: 3, 128: 7}


def swizzled(chunks: Array, span: int, shift: int = 0) -> Array:
    """The swizzled numbers of chunks, which count from address 0; ``shift``: the 128-byte row in which the pattern
    begins."""
    bits = BITS[span]
    if not bits:
        return chunks
    out: Array = chunks ^ (((chunks >> 3) - shift) & bits)
    return out


def box(first: int, count: int, span: int, width: int = 0) -> Array:
    """The numbers of the chunks of a box in shared memory, in the order of its data.

    ``first``: the first chunk; ``width``: chunks of a row if rows are narrower than the span and their pitch is the
    span, else 0.
    """
    numbers = np.arange(count)
    if width:
        numbers = numbers // width * (span >> 4) + numbers % width
    return swizzled(first + numbers, span)
