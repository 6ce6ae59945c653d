"""The problem type of matrix products: shapes, strides, types, epilogue.

Layouts are in row-major (NumPy) terms. First letter: A, N = stored M×K, T = stored K×M. Second letter: B, N = stored
K×N, T = stored N×K. C is stored M×N. Complex operands may be conjugated: C is stored like T, R like N.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, ClassVar

from ptxgen.arguments import integer, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.base import ELEMENTWISE_OPERANDS, EXTENT_LIMIT, MEMORY_LIMIT, ProblemBase, described
from ptxgen.problem.block_scales import SCALINGS, Scaling
from ptxgen.problem.dtypes import promotion_k
from ptxgen.problem.epilogue_ops import WRITING

LAYOUTS = ("NN", "NT", "TN", "TT")
#: letter of a layout -> the letter for the conjugated operand
CONJUGATED = {"N": "R", "T": "C", "R": "N", "C": "T"}
COMPLEX_LAYOUTS = tuple(a + b for a in "NTCR" for b in "NTCR")
STRIDE_LIMIT = 1 << 40
CONTIGUOUS = -1  #: the value of a batch stride that means: no elements are between the items of the batch
THIN = 64  #: a GEMM with an extent up to this is thin
_ORDERS = str.maketrans("CR", "TN")
#: the fields with batch strides
STRIDES = ("stride_a", "stride_b", "stride_c")


@dataclass(frozen=True)
class Gemm(ProblemBase):
    """C[M,N] = alpha · op(A)[M,K] · op(B)[K,N] + beta · C.

    ``lda``, ``ldb``, ``ldc``: leading dimensions in elements, 0 = contiguous. ``aligned_a``, ``aligned_b``,
    ``aligned_c``: the alignment of the operand's address in bytes, a power of two up to 16. ``deterministic``: the
    order of summation must not depend on timing. ``dtype``: the type of A and B; ``dtype_b``: the type of B if A has
    one 8-bit float and B the other; ``out``: the type of C.

    ``epilogue``: operations after the product, separated by commas (``bias_column,relu``). The product is multiplied by
    the f32 scales ``scale_a`` and ``scale_b``: one number each, or, with ``scale_rows``, one for each row of A and one
    for each column of B. Then ``beta·C`` is added, then the bias (one element for each row or each column of C) and
    ``residual`` (M×N, with the strides and alignment of C); both have C's type (f32 for the bias of an 8-bit C). Then
    the activation is applied. ``relu_grad``, the gradient of ReLU, gives 0 where ``aux`` is at most 0, and the sum
    elsewhere, also where ``aux`` is NaN; ``aux`` is M×N, with the strides, alignment and type of C. An activation may
    be an expression of ``x``, the sum, and ``aux``, in the language of tasks; ``epilogue`` then has its canonical text.
    A gated activation, ``swiglu``, ``geglu`` or an expression of ``x`` and ``up``, makes an element of C from two sums:
    ``x`` belongs to an even column of B, ``up`` to the next column. C is then M×N/2, of f16, bf16 or f32, and beta is
    0; scales and a bias may precede a gated activation. ``store_sums``, before the activation, stores the sums to
    ``sums`` (M×N), which has the type and alignment of C, and its strides, or twice its leading dimension with a gated
    activation. ``sum_columns``, the last operation, adds the elements of each column of C, before they are rounded, and
    stores the sums to ``column_sums`` (N elements of f32, of f64 for f64), in an order that does not depend on timing.
    ``sum_a`` adds the elements of each row of op(A) along K, and stores the sums to ``a_sums`` (M elements of the same
    type); A has no 8-bit floats, and blocks with different parts of K add to them in any order. Products of s8 are
    summed in s32; the epilogue computes in f32 unless C is s32. 8-bit results are rounded to nearest and saturated to
    finite values; fp8 keeps NaN.

    ``block_a``, ``block_b``: the blocks of op(A) and of op(B), of fp8, that have one f32 scale each: 1x128, one row of
    op(A) (one column of op(B)) by 128 of K, or 128x128, in every layout. The scales, ``scale_a`` and ``scale_b``, are
    arrays of rows of blocks by blocks of K; with a t at the end (1x128t), they are stored transposed. The sum of the
    products of each 128 of K is multiplied by the product of its two scales, rounded to f32, before it is added to the
    total. Where the product of two scales is infinite or NaN, the results are infinite or NaN. Each item of a batch has
    its own scales, one item after the other, unless the items share the operand.

    ``batch``: the number of items; ``stride_a``, ``stride_b``, ``stride_c``: elements from the operand of one item to
    that of the next; CONTIGUOUS: no elements are between items; 0: all items use the same operand (not for C). All
    items use the same bias and scales; a residual and ``aux`` have the strides of C.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """

    m: int = field(metadata=described(c="rows of C"))
    n: int = field(metadata=described(c="columns of C"))
    k: int = field(metadata=described(c="length of the sums"))
    layout: str = field(
        default="NN",
        metadata=described(
            "NN, NT, TN or TT (T: stored transposed); of complex matrices also C, T conjugated, and R, N conjugated",
            words=COMPLEX_LAYOUTS,
        ),
    )
    dtype: str = "f32"
    compute: str = ""
    lda: int = field(
        default=0,
        metadata=described(
            "Leading dimension of A in elements. [default: contiguous rows]",
            c="elements from one stored row of A to the next; 0: contiguous",
        ),
    )
    ldb: int = field(
        default=0, metadata=described("Leading dimension of B. [default: contiguous rows]", c="the same of B")
    )
    ldc: int = field(
        default=0, metadata=described("Leading dimension of C. [default: contiguous rows]", c="the same of C")
    )
    aligned_a: int = field(default=16, metadata=described("Alignment of the address of A in bytes. [default: 16]"))
    aligned_b: int = field(default=16, metadata=described("Alignment of B. [default: 16]"))
    aligned_c: int = field(default=16, metadata=described("Alignment of C. [default: 16]"))
    deterministic: bool = False
    out: str = ""
    epilogue: str = ""
    batch: int = field(
        default=1,
        metadata=described("Number of products in a batch. [default: 1]", c="items of the batch; 0 and 1: one product"),
    )
    stride_a: int = field(
        default=CONTIGUOUS,
        metadata=described(
            "Elements between consecutive matrices A; 0: one A for the batch. [default: contiguous]",
            c="elements from A of one item to that of the next; -1: contiguous; 0: one A for all",
        ),
    )
    stride_b: int = field(
        default=CONTIGUOUS,
        metadata=described("Elements between consecutive matrices B. [default: contiguous]", c="the same of B"),
    )
    stride_c: int = field(
        default=CONTIGUOUS,
        metadata=described(
            "Elements between consecutive matrices C; not 0. [default: contiguous]", c="the same of C, not 0"
        ),
    )

    block_a: str = field(
        default="",
        metadata=described(
            "Blocks of A, rows x K, with an f32 scale each: 1x128 or 128x128; 1x128t, 128x128t: the scales are stored"
            " transposed. [default: no scales]"
        ),
    )
    block_b: str = field(default="", metadata=described("Blocks of B, columns of C x K, likewise."))
    dtype_b: str = field(
        default="",
        metadata=described("Type of B, if it is another 8-bit float than that of A. [default: the type of A]", "DTYPE"),
    )

    operation = "gemm"
    GATED = True
    WRITES: ClassVar[tuple[str, ...]] = WRITING
    COMPLEX = True
    SHAPE = ("m", "n", "k")
    SHAPE_FORM = "M,N,K"
    CODE_OPTIONS = (*ProblemBase.CODE_OPTIONS, "block_a", "block_b", "dtype_b")
    RUNTIME_PARAMETERS = "M, N, K, leading dimensions"
    STEPS = "addresses, leading dimensions and batch strides"

    def __post_init__(self) -> None:
        self._normalize_integers(("m", "n", "k", "lda", "ldb", "ldc", "aligned_a", "aligned_b", "aligned_c", "batch"))
        self._check_words_and_flags()
        self._normalize_dtypes()
        self._normalize_second_dtype()
        self._normalize_layout("layout", COMPLEX_LAYOUTS if self.element.part else LAYOUTS)
        self._normalize_epilogue()
        check_blocks(self, self.block_a, self.block_b)
        if self.gated and self.n % 2:
            raise ShapeError(f"n is {self.n}; with a gated activation it must be even: a gate and a value in turn")
        for name in ("sum_columns", "sum_a"):
            if name in self.epilogue_ops and self.batch != 1:
                raise InputError(f"epilogue is {self.epilogue!r}; with {name} batch must be 1")
        if self.sums_a and self.element.bytes == 1:
            raise DtypeError(
                f"epilogue is {self.epilogue!r} and A is {self.dtype}; with sum_a it must be 16 bits or wider"
            )
        for name, columns in (("lda", self.columns_a), ("ldb", self.columns_b), ("ldc", self.columns_c)):
            value = getattr(self, name)
            if value == 0:
                object.__setattr__(self, name, max(columns, 1))
            elif not columns <= value < EXTENT_LIMIT:
                raise ShapeError(f"{name} is {value}; it must be from {columns}, a row's length, to {EXTENT_LIMIT - 1}")
        for name in ("aligned_a", "aligned_b", "aligned_c"):
            self._check_alignment(name, self.types["abc".index(name[-1])])
        self._normalize_batch_strides()

    @property
    def scalings(self) -> dict[str, Scaling]:
        """The blocks of A and of B that have scales, by operand; empty if there are no scales."""
        return scalings_of(self.block_a, self.block_b)

    @property
    def scale_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for (name, s), extent, stride in zip(self.scalings.items(), (self.m, self.n), self.strides[:2], strict=False):
            items = () if self.batch == 1 else (self.batch if stride else min(self.batch, 1),)
            shapes[f"scale_{name.lower()}"] = (*items, *s.stored(extent, self.k))
        return shapes

    def _normalize_batch_strides(self) -> None:
        """Sets strides without effect, and strides equal to those of contiguous items, to CONTIGUOUS. ShapeError: items
        overlap in C."""
        for name, contiguous in zip(STRIDES, self._contiguous, strict=True):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value != CONTIGUOUS:
                value = integer(name, value, 0, STRIDE_LIMIT - 1)
            same = self.batch == 1 or value in (CONTIGUOUS, contiguous)
            object.__setattr__(self, name, CONTIGUOUS if same else value)
        if self.batch > 1 and self.m and self.n:
            # rows of different items may be interleaved, or items may follow each other
            (near, count), (far, _) = sorted([(self.ldc, self.m), (self.strides[2], self.batch)])
            if near < self.columns_c or (self.m > 1 and far < (count - 1) * near + self.columns_c):
                raise ShapeError(
                    f"stride_c is {self.strides[2]}; {self.batch} items of {self.m} rows of {self.columns_c} with ldc"
                    f" {self.ldc} would overlap in C"
                )
        self._require_memory()

    def _require_memory(self) -> None:
        """Raises ShapeError if an operand spans more memory than a GPU can address."""
        rows, sizes = (self.rows_a, self.rows_b, self.m), (x.bytes for x in self.types)
        spans = zip("abc", rows, (self.lda, self.ldb, self.ldc), self.strides, sizes, strict=True)
        for name, count, ld, stride, size in spans:
            span = (count * ld + max(self.batch - 1, 0) * stride) * size
            if span > MEMORY_LIMIT:
                raise ShapeError(
                    f"{name} spans {span} bytes, {count} rows of {ld} elements in {self.batch} items; it"
                    f" must span at most {MEMORY_LIMIT}, the address space of a GPU"
                )

    @property
    def problem_class(self) -> str:
        """``batch``, ``thin gemm`` (an extent is at most THIN) or ``gemm``."""
        if self.batch > 1:
            return "batch"
        return "thin gemm" if min(self.m, self.n, self.k) <= THIN else "gemm"

    @property
    def description(self) -> list[str]:
        types = f"{' and '.join(dict.fromkeys((self.dtype, self.dtype_b or self.dtype)))}, summed in {self.compute}"
        if self.block_a:
            types += f", scales of blocks of {self.block_a} of A and {self.block_b} of B"
        return [f"{self.operation}: C = alpha A B + beta C, layout {self.layout} (row-major), {types}"]

    @property
    def orders(self) -> str:
        """How A and B are stored, N or T: the layout without conjugation."""
        return self.layout.translate(_ORDERS)

    @property
    def conjugates(self) -> tuple[bool, bool]:
        """For A and for B: True if its elements are conjugated."""
        return self.layout[0] in "CR", self.layout[1] in "CR"

    @property
    def columns_a(self) -> int:
        """The length of a stored row of A."""
        return self.k if self.orders[0] == "N" else self.m

    @property
    def columns_b(self) -> int:
        return self.n if self.orders[1] == "N" else self.k

    @property
    def columns_c(self) -> int:
        """The number of columns of C: N, or N/2 with a gated activation."""
        return self.n // 2 if self.gated else self.n

    @property
    def ld_sums(self) -> int:
        """The leading dimension of the array to which ``store_sums`` stores the sums: that of C, or twice as much with
        a gated activation, so that both arrays have the same gaps."""
        return self.ldc * (2 if self.gated else 1)

    @property
    def stride_sums(self) -> int:
        """The batch stride of this array."""
        return self.strides[2] * (2 if self.gated else 1)

    @property
    def stores_sums(self) -> bool:
        """True if the kernel stores the sums beside C."""
        return "store_sums" in self.epilogue_ops

    @property
    def sums_columns(self) -> bool:
        """True if the kernel computes the sums of the columns of C."""
        return "sum_columns" in self.epilogue_ops

    @property
    def sums_a(self) -> bool:
        """True if the kernel computes the sums of the rows of op(A)."""
        return "sum_a" in self.epilogue_ops

    def of_sums(self) -> Gemm:
        """The product whose C are the sums that ``store_sums`` stores."""
        before = self.epilogue_ops[: self.epilogue_ops.index("store_sums")]
        return replace(self, epilogue=",".join(before), ldc=self.ld_sums, stride_c=self.stride_sums)

    @property
    def rows_a(self) -> int:
        """The number of stored rows of A."""
        return self.m if self.orders[0] == "N" else self.k

    @property
    def rows_b(self) -> int:
        return self.k if self.orders[1] == "N" else self.n

    @property
    def _contiguous(self) -> tuple[int, int, int]:
        return self.rows_a * self.lda, self.rows_b * self.ldb, self.m * self.ldc

    @property
    def strides(self) -> tuple[int, int, int]:
        """The batch strides of A, B and C in elements."""
        given = (self.stride_a, self.stride_b, self.stride_c)
        a, b, c = (p if s == CONTIGUOUS else s for s, p in zip(given, self._contiguous, strict=True))
        return a, b, c

    @property
    def offsets(self) -> tuple[int, int, int]:
        """The batch strides of A, B and C in bytes."""
        a, b, c = (n * x.bytes for n, x in zip(self.strides, self.types, strict=True))
        return a, b, c

    @property
    def results(self) -> int:
        """The number of sums in the whole batch: batch · M · N."""
        return self.batch * self.m * self.n

    @property
    def reduction(self) -> int:
        """The number of products in the sum of one element of C."""
        return self.k

    @property
    def flops(self) -> int:
        return 2 * self.results * self.k * self.element.parts**2

    @property
    def bytes(self) -> int:
        """A lower bound of the bytes moved: A and B are read once, C is written once."""
        a, b = (
            x.bytes * (self.batch if stride else min(self.batch, 1))
            for x, stride in zip(self.types[:2], self.strides[:2], strict=True)
        )
        scales = 4 * sum(math.prod(shape) for shape in self.scale_shapes.values())
        results = self.output.bytes * self.batch * self.m * (self.columns_c + self.n * self.stores_sums)
        return (a * self.m + b * self.n) * self.k + scales + results

    @property
    def vectors(self) -> tuple[int, int, int]:
        """The alignment class: the widest aligned accesses to every row of A, B and C, in elements."""

        a, b, c = self.offsets if self.batch > 1 else (0, 0, 0)
        sizes = [x.bytes for x in self.types]

        def widest(aligned: int, columns: int, ld: int, offset: int, size: int) -> int:
            bits = 16 | aligned | columns * size | ld * size | offset
            return (bits & -bits) // size  # the lowest bit is the greatest power of two that divides all

        return (
            widest(self.aligned_a, self.columns_a, self.lda, a, sizes[0]),
            widest(self.aligned_b, self.columns_b, self.ldb, b, sizes[1]),
            widest(self.aligned_c, self.columns_c, self.ldc, c, sizes[2]),
        )

    def shape(self) -> str:
        return f"{self.m},{self.n},{self.k}"

    @classmethod
    def read_shape(cls, text: str) -> dict[str, Any]:
        return dict(zip(cls.SHAPE, parse_shape(text), strict=True))

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of A, B and C as stored, without padding between rows. The first extent of a batched operand is
        the batch, or 1 if its batch stride is 0."""
        a, b = (self.rows_a, self.columns_a), (self.rows_b, self.columns_b)
        if self.batch == 1:
            return a, b, (self.m, self.columns_c)
        own = [self.batch if stride else min(self.batch, 1) for stride in self.strides[:2]]
        return (own[0], *a), (own[1], *b), (self.batch, self.m, self.columns_c)

    @property
    def broadcast_shapes(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        rows, row_bias = "scale_rows" in self.epilogue_ops, "bias_row" in self.epilogue_ops
        whole = self.stored[2] if self.batch != 1 else (self.m, self.ldc)
        known: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
            "scale_a": ((self.m,), (-1, 1)) if rows else ((1,), (1,)),
            "scale_b": ((self.n,), (1, -1)) if rows else ((1,), (1,)),
            "bias": ((self.m,), (-1, 1)) if row_bias else ((self.n,), (1, -1)),
        }
        known |= dict.fromkeys(ELEMENTWISE_OPERANDS, (whole, whole))
        known["sums"] = ((self.m, self.ld_sums) if self.batch == 1 else (self.batch, self.m, self.n),) * 2
        known["column_sums"] = ((self.n,), (1, -1))
        known["a_sums"] = ((self.m,), (-1, 1))
        return {name: known[name] for name in self.epilogue_operands}


_SHAPE = re.compile(r"[0-9]{1,99},[0-9]{1,99},[0-9]{1,99}")


def parse_shape(text: str) -> tuple[int, int, int]:
    """The integers of the text ``M,N,K``. ShapeError: the text has another form."""
    plain = text.replace(" ", "")
    if not _SHAPE.fullmatch(plain):
        raise ShapeError(
            f"shape is {shown(text)}; it must be M,N,K (for example 2560,16,2560), three integers from 0 to"
            f" {EXTENT_LIMIT - 1}"
        )
    m, n, k = (int(x) for x in plain.split(","))
    return m, n, k


def scalings_of(block_a: str, block_b: str) -> dict[str, Scaling]:
    """The blocks of A and of B that have scales, by operand; empty if there are no scales."""
    return {"A": SCALINGS[block_a], "B": SCALINGS[block_b]} if block_a else {}


def check_blocks(p: ProblemBase, block_a: str, block_b: str) -> None:
    """Checks the blocks with scales. InputError, DtypeError: a block is unknown, only one operand has scales, the
    arithmetic has no promotion, or the epilogue has scales, too."""
    if not (block_a or block_b):
        return
    for name, block in (("block_a", block_a), ("block_b", block_b)):
        word(name, block, tuple(SCALINGS))
    if not promotion_k(p.element, p.compute) or p.output.fp8:
        raise DtypeError(
            f"block_a is {block_a} with dtype {p.dtype}, compute {p.compute} and out {p.out}; scales of blocks take"
            " 8-bit floats, summed in f32, with a result of bf16, f16 or f32"
        )
    if scales := [op for op in p.epilogue_ops if op in ("scale", "scale_rows")]:
        raise InputError(f"epilogue has {scales[0]}; with scales of blocks it must have none")
