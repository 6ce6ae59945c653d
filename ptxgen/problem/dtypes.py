"""The registry of element types, one row for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ptxgen.errors import DtypeError

_finfo: Any = ml_dtypes.finfo  #: NumPy's finfo, for 8-bit types too


@dataclass(frozen=True)
class Dtype:
    """An element type. A new type is a new row of DTYPES.

    - ``name``: the PTX name; ``bits``: size; ``numpy``: the NumPy type.
    - ``roundoff``: unit roundoff u = eps / 2; 0 for integers.
    - ``compute``: values of ``compute`` if A and B have this type, the default first; empty if they cannot have it.
    - ``outputs``: types of C if A and B have this type, the default first.
    - ``tma``: the element type of a tensor map; ``cuda``: the value of cudaDataType_t.
    - ``mma``: the operand type of mma.sync and wgmma; ``mma_k``: products that one mma.sync instruction sums.
    - ``mma_truncation``: relative precision to which tensor cores truncate products and accumulator (25 bits on Hopper,
      13 for fp8).
    - ``promotion_k``: the most elements of K that tensor cores sum before promotion, unless ``compute`` is
      f32_fast_accum (0: all of K).
    - ``wgmma``: the values of ``compute`` that wgmma supports.
    - ``widened``: the type to which scalar instructions convert an element before multiplying, if any; ``sm``: the
      first target with that conversion, 0: all targets.
    - ``aliases``: other names that users may write, besides the name of the NumPy type.
    - ``dlpack``: the value of DLDataTypeCode.
    - ``part``: for complex types, the type of the real and of the imaginary part, which are adjacent in memory.
    """

    name: str
    bits: int
    numpy: np.dtype[np.generic]
    roundoff: float
    compute: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    tma: str = ""
    cuda: int = -1
    mma: str = ""
    mma_k: int = 1
    mma_truncation: float = 0.0
    promotion_k: int = 0
    wgmma: tuple[str, ...] = ()
    widened: str = ""
    sm: int = 0
    aliases: tuple[str, ...] = ()
    dlpack: int = 2  # kDLFloat
    part: str = ""

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def parts(self) -> int:
        """The number of real numbers (and registers) per element: 2 for a complex type, else 1."""
        return 2 if self.part else 1

    @property
    def real(self) -> str:
        """The type of the real and imaginary parts; the type itself if it is real."""
        return self.part or self.name

    @property
    def torch(self) -> str:
        """The name of the type in PyTorch."""
        return f"torch.{self.numpy.name}"

    @property
    def native_numpy(self) -> bool:
        """True if the type is built into NumPy, so that PyTorch can convert such tensors to NumPy arrays."""
        return self.numpy.isbuiltin == 1

    @property
    def integer(self) -> bool:
        return self.roundoff == 0

    @property
    def fp8(self) -> bool:
        """True if this is an 8-bit floating-point type."""
        return self.bits == 8 and not self.integer

    @property
    def int8(self) -> bool:
        """True if this is an 8-bit integer type."""
        return self.bits == 8 and self.integer

    @property
    def saturates(self) -> bool:
        """True if conversions to this type saturate to the finite range, infinities included."""
        return self.bits == 8

    @property
    def least(self) -> float:
        """The lowest finite value."""
        return float(np.iinfo(self.numpy.name).min) if self.integer else -self.largest

    @property
    def poison(self) -> complex:
        """The value that fills memory which kernels must not read: NaN, or the integer farthest from zero."""
        if not self.integer:
            return complex("nan+nanj") if self.part else float("nan")
        return self.least or self.largest

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


#: the 8-bit floating-point types; tensor cores also multiply one with the other
FLOATS_8 = ("e4m3", "e5m2")
#: the value of ``compute`` that sums fp8 products in the accumulators of tensor cores, without promotion
FAST_ACCUM = "f32_fast_accum"


def _fp8(name: str, numpy: Any, roundoff: float, cuda: int, dlpack: int) -> Dtype:
    """The row of an 8-bit floating-point type."""
    return Dtype(
        name,
        8,
        np.dtype(numpy),
        roundoff=roundoff,
        compute=("f32", FAST_ACCUM),
        outputs=("bf16", "f16", "f32", *FLOATS_8),
        tma="u8",
        cuda=cuda,
        mma=name,
        mma_k=32,
        mma_truncation=2.0**-13,
        promotion_k=128,
        wgmma=("f32", FAST_ACCUM),
        widened="f16",
        sm=89,
        dlpack=dlpack,
    )


def _complex(
    name: str, bits: int, numpy: Any, roundoff: float, part: str, cuda: int, aliases: tuple[str, ...]
) -> Dtype:
    """The row of a complex type."""
    return Dtype(
        name,
        bits,
        np.dtype(numpy),
        roundoff=roundoff,
        compute=(part,),
        outputs=(name,),
        cuda=cuda,
        aliases=aliases,
        dlpack=5,  # kDLComplex
        part=part,
    )


DTYPES = {
    d.name: d
    for d in (
        Dtype(
            "f16",
            16,
            np.dtype(np.float16),
            roundoff=2.0**-11,
            compute=("f32", "f16"),
            outputs=("f16", "f32", *FLOATS_8),
            tma="f16",
            cuda=2,
            mma="f16",
            mma_k=16,
            mma_truncation=2.0**-24,
            wgmma=("f32", "f16"),
            widened="f32",
            aliases=("fp16", "half"),
        ),
        Dtype(
            "bf16",
            16,
            np.dtype(ml_dtypes.bfloat16),
            roundoff=2.0**-8,
            compute=("f32",),
            outputs=("bf16", "f32", *FLOATS_8),
            tma="bf16",
            cuda=14,
            mma="bf16",
            mma_k=16,
            mma_truncation=2.0**-24,
            wgmma=("f32",),
            widened="f32",
            sm=80,
            dlpack=4,
        ),
        Dtype(
            "f32",
            32,
            np.dtype(np.float32),
            roundoff=2.0**-24,
            compute=("f32", "tf32", "f32_bf16x6"),
            outputs=("f32",),
            tma="f32",
            cuda=0,
            mma="tf32",
            wgmma=("tf32", "f32_bf16x6"),
            aliases=("fp32", "float", "single"),
        ),
        Dtype(
            "f64",
            64,
            np.dtype(np.float64),
            roundoff=2.0**-53,
            compute=("f64",),
            outputs=("f64",),
            tma="f64",
            cuda=1,
            mma="f64",
            aliases=("fp64", "double"),
        ),
        _complex("c64", 64, np.complex64, 2.0**-24, "f32", cuda=4, aliases=("cfloat",)),
        _complex("c128", 128, np.complex128, 2.0**-53, "f64", cuda=5, aliases=("cdouble",)),
        _fp8(FLOATS_8[0], ml_dtypes.float8_e4m3fn, 2.0**-4, cuda=28, dlpack=10),
        _fp8(FLOATS_8[1], ml_dtypes.float8_e5m2, 2.0**-3, cuda=29, dlpack=12),
        Dtype(
            "s8",
            8,
            np.dtype(np.int8),
            roundoff=0.0,
            compute=("s32",),
            outputs=("s32", "f32", "f16", "bf16", "s8"),
            tma="u8",
            cuda=3,
            mma="s8",
            wgmma=("s32",),
            widened="s32",
            aliases=("i8",),
            dlpack=0,
        ),
        Dtype("s32", 32, np.dtype(np.int32), roundoff=0.0, tma="s32", cuda=10, aliases=("i32",), dlpack=0),
        Dtype("u32", 32, np.dtype(np.uint32), roundoff=0.0, tma="u32", cuda=12, dlpack=1),
        Dtype("s16", 16, np.dtype(np.int16), roundoff=0.0, tma="u16", cuda=20, aliases=("i16",), dlpack=0),
        Dtype("u16", 16, np.dtype(np.uint16), roundoff=0.0, tma="u16", cuda=22, dlpack=1),
        Dtype("u8", 8, np.dtype(np.uint8), roundoff=0.0, tma="u8", cuda=8, dlpack=1),
    )
}

#: type ``out`` of C under a gated activation -> half of this type. Kernels store each pair of adjacent sums as one
#: element of C, so they see C as twice as many columns of half the size
HALVES = {
    name: Dtype(
        f"half_{name}",
        DTYPES[name].bits // 2,
        np.dtype(f"u{DTYPES[name].bytes // 2}"),
        DTYPES[name].roundoff,
        tma=f"u{DTYPES[name].bits // 2}",
        widened="f32",
        sm=DTYPES[name].sm,
    )
    for name in ("f16", "bf16", "f32")
}
_HALVES = {d.name: d for d in HALVES.values()}
_ALIASES = {alias: d.name for d in DTYPES.values() for alias in (d.numpy.name, *d.aliases)}
_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}
#: the names of types that arrays may have, for messages
ALLOWED = (
    ", ".join(str(d.numpy) for d in DTYPES.values() if d.compute)
    + "; int32 only for results and tasks, "
    + ", ".join(str(d.numpy) for d in DTYPES.values() if not d.compute and d.name != "s32")
    + " only for tasks"
)


def promotion_k(element: Dtype, compute: str) -> int:
    """The most elements of K that tensor cores sum before the sum is added to the total in f32; 0: all of K."""
    return element.promotion_k if compute != FAST_ACCUM else 0


def canonical(name: str) -> str:
    """The PTX name of a type written in another way: ``fp16``, ``float16``, ``half``, ``F16``, ``torch.float16``.
    Unknown words are returned in lower case."""
    word = name.lower().removeprefix("torch.").removeprefix("numpy.").removeprefix("np.")
    return _ALIASES.get(word, word)


def dtype(name: str) -> Dtype:
    """The type with this PTX name. DtypeError: no type has the name."""
    try:
        return _HALVES.get(name) or DTYPES[name]
    except (KeyError, TypeError):
        raise DtypeError(f"dtype is {name!r}; it must be one of {', '.join(DTYPES)}") from None


def from_numpy(numpy_dtype: np.dtype[np.generic], argument: str) -> Dtype:
    """The element type of a NumPy dtype. DtypeError: there is none; the message names ``argument``."""
    try:
        return _BY_NUMPY[np.dtype(numpy_dtype)]
    except (KeyError, TypeError):
        raise DtypeError(f"{argument} has dtype {numpy_dtype}; it must be one of {ALLOWED}") from None


def bits_of(value: float, element: Dtype) -> str:
    """``value`` as an exact PTX literal of type ``element``; floating-point literals are hexadecimal."""
    if element.integer:
        return str(int(value))
    word = np.array(value, element.numpy).tobytes()[::-1].hex().upper()
    return {2: f"0x{word}", 4: f"0f{word}", 8: f"0d{word}"}[element.bytes]
