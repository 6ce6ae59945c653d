"""The logarithms of numbers and columns, for features."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.vectorized import float32


def log(x: Any) -> Any:
    """The base-2 logarithm of ``x``, or of 1e-6 if ``x`` is less. Logarithms of small integers, as most axes have, are
    read from a table."""
    many = isinstance(x, np.ndarray) and x.dtype == np.int64 and x.size > len(_LOG)
    if many and x.min() >= 0 and x.max() < len(_LOG):
        return _LOG[x]
    return np.log2(np.maximum(float32(x), np.float32(1e-6)))


_LOG = np.log2(np.maximum(np.arange(1 << 10, dtype=np.float32), np.float32(1e-6)))
