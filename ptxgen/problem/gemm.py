"""What to compute: shapes, strides, types. Never a tile.

Layouts are in row-major (NumPy) terms. First letter: A, N = stored M×K, T = stored K×M. Second letter: B,
N = stored K×N, T = stored N×K. C is stored M×N.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from ptxgen.arguments import integer, shown, word
from ptxgen.errors import ShapeError
from ptxgen.problem.base import EXTENT_LIMIT, MEMORY_LIMIT, ProblemBase

LAYOUTS = ("NN", "NT", "TN", "TT")
STRIDE_LIMIT = 1 << 40
PACKED = -1  #: a stride between items that follows from the item
#: the strides between items
STRIDES = ("stride_a", "stride_b", "stride_c")


@dataclass(frozen=True)
class Gemm(ProblemBase):
    """C[M,N] = alpha · op(A)[M,K] · op(B)[K,N] + beta · C.

    ``lda``, ``ldb``, ``ldc``: elements from one stored row to the next, 0 = packed. ``aligned_a`` (b, c): bytes,
    a power of two up to 16, that the start of the operand is a multiple of. ``deterministic``: the sum's order
    must not depend on timing. ``dtype``: of A and B; ``out``: of C. ``epilogue``: what follows, of EPILOGUE, with
    commas between (``bias_column,relu``): the product is multiplied by f32 ``scale_a`` and ``scale_b`` (one number
    each, or with ``scale_rows`` one a row of A and one a column of B); ``beta·C`` is added, then ``bias`` (one a row
    of C, or one a column) and ``residual`` (M×N, strides and alignment of C), both of C's dtype (a bias
    to 8 bits: f32); then the activation. Products of s8 are summed in s32; f32 follows unless C is s32. Results in 8
    bits are rounded to the nearest and clamped to what is finite; of e4m3 and e5m2 NaN stays.

    ``batch``: how many such products; ``stride_a`` (b, c): elements from one item's operand to the next item's, PACKED
    = one behind the other; 0 = all items share it, which C must not. Items share bias and scales; a residual has C's
    strides.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """

    m: int
    n: int
    k: int
    layout: str = "NN"
    dtype: str = "f32"
    compute: str = ""
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    aligned_a: int = 16
    aligned_b: int = 16
    aligned_c: int = 16
    deterministic: bool = False
    out: str = ""
    epilogue: str = ""
    batch: int = 1
    stride_a: int = PACKED
    stride_b: int = PACKED
    stride_c: int = PACKED

    operation = "gemm"
    SHAPE = ("m", "n", "k")
    SHAPED = "M,N,K"
    PARAMETERS = "M, N, K, leading dimensions"

    def __post_init__(self) -> None:
        self._settle_integers(("m", "n", "k", "lda", "ldb", "ldc", "aligned_a", "aligned_b", "aligned_c", "batch"))
        self._settle_words()
        word("layout", self.layout, LAYOUTS, ShapeError)
        self._settle_types()
        for name, columns in (("lda", self.columns_a), ("ldb", self.columns_b), ("ldc", self.n)):
            value = getattr(self, name)
            if value == 0:
                object.__setattr__(self, name, max(columns, 1))
            elif not columns <= value < EXTENT_LIMIT:
                raise ShapeError(f"{name} is {value}; it must be from {columns}, a row's length, to {EXTENT_LIMIT - 1}")
        for name in ("aligned_a", "aligned_b", "aligned_c"):
            self._settle_alignment(name, self.output if name == "aligned_c" else self.element)
        self._settle_items()
        self._settle_epilogue()

    def _settle_items(self) -> None:
        """Refuses strides between items that cannot be. A lone item's, and what is packed anyway, become PACKED."""
        for name, packed in zip(STRIDES, self._packed, strict=True):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value != PACKED:
                value = integer(name, value, 0, STRIDE_LIMIT - 1)
            same = self.batch == 1 or value in (PACKED, packed)
            object.__setattr__(self, name, PACKED if same else value)
        if self.batch > 1 and self.m and self.n:
            # rows of an item between those of others, or whole items one behind the other
            (near, count), (far, _) = sorted([(self.ldc, self.m), (self.strides[2], self.batch)])
            if near < self.n or (self.m > 1 and far < (count - 1) * near + self.n):
                raise ShapeError(
                    f"stride_c is {self.strides[2]}; {self.batch} items of {self.m} rows of {self.n}, ldc"
                    f" {self.ldc}, would share elements of C"
                )
        self._require_memory()

    def _require_memory(self) -> None:
        """ShapeError: an operand spans more memory than a GPU addresses."""
        rows, sizes = (self.rows_a, self.rows_b, self.m), (self.element.bytes, self.element.bytes, self.output.bytes)
        spans = zip("abc", rows, (self.lda, self.ldb, self.ldc), self.strides, sizes, strict=True)
        for name, count, ld, stride, size in spans:
            span = (count * ld + max(self.batch - 1, 0) * stride) * size
            if span > MEMORY_LIMIT:
                raise ShapeError(
                    f"{name} spans {span} bytes, {count} rows of {ld} elements in {self.batch} items; it"
                    f" must span at most {MEMORY_LIMIT}, what a GPU addresses"
                )

    @property
    def computes(self) -> list[str]:
        types = f"{self.dtype}, summed in {self.compute}"
        return [f"{self.operation}: C = alpha A B + beta C, layout {self.layout} (row-major), {types}"]

    @property
    def columns_a(self) -> int:
        """Length of a stored row of A."""
        return self.k if self.layout[0] == "N" else self.m

    @property
    def columns_b(self) -> int:
        return self.n if self.layout[1] == "N" else self.k

    @property
    def rows_a(self) -> int:
        """How many rows A is stored in."""
        return self.m if self.layout[0] == "N" else self.k

    @property
    def rows_b(self) -> int:
        return self.k if self.layout[1] == "N" else self.n

    @property
    def _packed(self) -> tuple[int, int, int]:
        return self.rows_a * self.lda, self.rows_b * self.ldb, self.m * self.ldc

    @property
    def strides(self) -> tuple[int, int, int]:
        """Elements from the A, B and C of one item to those of the next."""
        given = (self.stride_a, self.stride_b, self.stride_c)
        a, b, c = (p if s == PACKED else s for s, p in zip(given, self._packed, strict=True))
        return a, b, c

    @property
    def offsets(self) -> tuple[int, int, int]:
        """Bytes from the A, B and C of one item to those of the next."""
        (a, b, c), size = self.strides, self.element.bytes
        return a * size, b * size, c * self.output.bytes

    @property
    def results(self) -> int:
        """Elements of C, of all items."""
        return self.batch * self.m * self.n

    @property
    def reduction(self) -> int:
        """The products that are summed for one element of C."""
        return self.k

    @property
    def flops(self) -> int:
        return 2 * self.results * self.k

    @property
    def bytes(self) -> int:
        """The fewest bytes that must move: A and B read once, C written once."""
        a, b = (self.batch if stride else min(self.batch, 1) for stride in self.strides[:2])
        return self.element.bytes * (a * self.m + b * self.n) * self.k + self.output.bytes * self.results

    @property
    def vectors(self) -> tuple[int, int, int]:
        """Alignment class: the widest accesses, in elements, that fit every row of A, B and C."""

        a, b, c = self.offsets if self.batch > 1 else (0, 0, 0)

        def widest(aligned: int, columns: int, ld: int, offset: int, size: int) -> int:
            return math.gcd(16, aligned, columns * size, ld * size, offset) // size or 1

        return (
            widest(self.aligned_a, self.columns_a, self.lda, a, self.element.bytes),
            widest(self.aligned_b, self.columns_b, self.ldb, b, self.element.bytes),
            widest(self.aligned_c, self.n, self.ldc, c, self.output.bytes),
        )

    def shape(self) -> str:
        return f"{self.m},{self.n},{self.k}"

    @classmethod
    def read_shape(cls, text: str) -> dict[str, Any]:
        return dict(zip(cls.SHAPE, parse_shape(text), strict=True))

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of A, B and C as stored, without what strides pad: of a batch with the items first, 1 where all share
        one."""
        a, b = (self.rows_a, self.columns_a), (self.rows_b, self.columns_b)
        if self.batch == 1:
            return a, b, (self.m, self.n)
        own = [self.batch if stride else min(self.batch, 1) for stride in self.strides[:2]]
        return (own[0], *a), (own[1], *b), (self.batch, self.m, self.n)

    @property
    def spread(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """What the epilogue reads: its shape as stored, and its shape beside C."""
        rows, along = "scale_rows" in self.stages, "bias_row" in self.stages
        known = {
            "scale_a": ((self.m,), (-1, 1)) if rows else ((1,), (1,)),
            "scale_b": ((self.n,), (1, -1)) if rows else ((1,), (1,)),
            "bias": ((self.m,), (-1, 1)) if along else ((self.n,), (1, -1)),
            "residual": (self.stored[2],) * 2 if self.batch != 1 else ((self.m, self.ldc),) * 2,
        }
        return {name: known[name] for name in self.reads}


_SHAPE = re.compile(r"[0-9]{1,99},[0-9]{1,99},[0-9]{1,99}")


def parse_shape(text: str) -> tuple[int, int, int]:
    """``"M,N,K"`` as integers. ShapeError if it is anything else."""
    plain = text.replace(" ", "")
    if not _SHAPE.fullmatch(plain):
        raise ShapeError(
            f"shape is {shown(text)}; it must be M,N,K: three integers from 0 to {EXTENT_LIMIT - 1}, as 2560,16,2560"
        )
    m, n, k = (int(x) for x in plain.split(","))
    return m, n, k
