"""The element types that problems are made of, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ptxgen.errors import DtypeError

_finfo: Any = ml_dtypes.finfo  #: as NumPy's, of small types too


@dataclass(frozen=True)
class Dtype:
    """An element type.

    ``bytes``: size; ``bits``: the untyped PTX type of that size; ``roundoff``: unit roundoff u = eps / 2, 0 for
    integers.
    """

    name: str
    bytes: int
    numpy: np.dtype[np.generic]
    roundoff: float

    @property
    def bits(self) -> str:
        return f"b{8 * self.bytes}"

    @property
    def integer(self) -> bool:
        return self.roundoff == 0

    @property
    def tiny(self) -> bool:
        """Whether it is a float of 8 bits."""
        return self.bytes == 1 and not self.integer

    @property
    def saturates(self) -> bool:
        """Whether a result past the largest value becomes that, infinite ones too."""
        return self.bytes == 1

    @property
    def least(self) -> float:
        """The least finite value."""
        return self.poison if self.integer else -self.largest

    @property
    def poison(self) -> float:
        """What fills memory that nobody should read or write: NaN, or the least integer."""
        return float(np.iinfo(self.numpy.name).min) if self.integer else float("nan")

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return float(np.iinfo(self.numpy.name).max if self.integer else _finfo(self.numpy).max)

    @property
    def smallest(self) -> float:
        """The smallest positive value."""
        return 1.0 if self.integer else float(_finfo(self.numpy).smallest_subnormal)

    def __str__(self) -> str:
        return self.name


DTYPES = {
    d.name: d
    for d in (
        Dtype("f16", 2, np.dtype(np.float16), 2.0**-11),
        Dtype("bf16", 2, np.dtype(ml_dtypes.bfloat16), 2.0**-8),
        Dtype("f32", 4, np.dtype(np.float32), 2.0**-24),
        Dtype("f64", 8, np.dtype(np.float64), 2.0**-53),
        Dtype("e4m3", 1, np.dtype(ml_dtypes.float8_e4m3fn), 2.0**-4),
        Dtype("e5m2", 1, np.dtype(ml_dtypes.float8_e5m2), 2.0**-3),
        Dtype("s8", 1, np.dtype(np.int8), 0.0),
        Dtype("s32", 4, np.dtype(np.int32), 0.0),
    )
}

_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}
#: what arrays may be made of, for messages
ALLOWED = ", ".join(str(d.numpy) for d in DTYPES.values() if d.name != "s32") + "; int32 is for results alone"


def dtype(name: str) -> Dtype:
    """The row called ``name``. DtypeError if there is none."""
    try:
        return DTYPES[name]
    except (KeyError, TypeError):
        raise DtypeError(f"dtype is {name!r}; it must be one of {', '.join(DTYPES)}") from None


def from_numpy(kind: np.dtype[np.generic], argument: str) -> Dtype:
    """The row of a NumPy dtype. DtypeError, naming ``argument``, if there is none."""
    try:
        return _BY_NUMPY[np.dtype(kind)]
    except (KeyError, TypeError):
        raise DtypeError(f"{argument} has dtype {kind}; it must be one of {ALLOWED}") from None


def bits_of(value: float, kind: Dtype) -> str:
    """``value`` as a PTX literal of type ``kind``: exact, and free of the printing of floats."""
    if kind.integer:
        return str(int(value))
    word = np.array(value, kind.numpy).tobytes()[::-1].hex().upper()
    return {2: f"0x{word}", 4: f"0f{word}", 8: f"0d{word}"}[kind.bytes]
