"""The problem type of grouped matrix products: many GEMMs of different shapes in one launch."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ptxgen.arguments import integer, plain, shown, word
from ptxgen.errors import InputError, ShapeError
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm, check_blocks, scalings_of
from ptxgen.problem.base import ELEMENTWISE_OPERANDS, EXTENT_LIMIT, MEMORY_LIMIT, ProblemBase, described
from ptxgen.problem.block_scales import DEPTH, Scaling
from ptxgen.problem.epilogue_ops import STORE

Ints = NDArray[np.int64]

MAX_ITEMS = 1 << 16
ITEM_ALIGNMENT = 16  #: bytes; the items of a list are stored at multiples of this
TYPICAL_ITEMS, TYPICAL_MULTIPLE = 16, 256  #: limits of ``typical``: different items; kept divisors
#: values of ``jagged``: the axis whose extent differs between items; "": all extents may differ
JAGGED = ("", "m", "k")


@dataclass(frozen=True)
class GroupedGemm(ProblemBase):
    """C_i[M_i,N_i] = alpha_i · op(A_i)[M_i,K_i] · op(B_i)[K_i,N_i] + beta_i · C_i for every item i, in one launch.

    ``items``: (M, N, K) of each item. ``ld``: the leading dimensions ``lda:ldb:ldc`` of each item in elements,
    separated by commas, or one such text for all items; empty: contiguous. ``aligned_a``, ``aligned_b``, ``aligned_c``:
    the alignment in bytes of every item's operand. The other fields are those of ``Gemm``; each item has its own
    epilogue operands. With a gated activation C_i has N_i/2 columns. ``sums``, to which ``store_sums`` stores the sums,
    has the strides of C, or twice its leading dimensions with a gated activation.

    ``jagged``: the axis along which items are parts of one array, whose sizes are on the device. ``m``: items are
    ranges of rows of A and C (B is E×K×N for E items); ``k``: items are ranges of columns of A and rows of B (C is
    E×M×N); the other extents are the same in all items. One kernel serves all sizes; the sizes in ``items`` serve
    selection and timing. ``block_a``, ``block_b``: as in ``Gemm``. With ``m``, the scales of A, like A, are one array
    with the rows of all items. With ``k``, so are the scales of A and of B: the first block of an item
    begins at the first column of the item, and its scales follow those of the item before. ``scale_blocks``: the number
    of blocks along K of these arrays; 0: that of the items.

    ShapeError, DtypeError, InputError: an argument breaks a rule; the message names the item.
    """

    items: tuple[tuple[int, int, int], ...]
    layout: str = "NN"
    dtype: str = "f32"
    compute: str = ""
    ld: str = field(
        default="",
        metadata=described(
            "grouped: leading dimensions of all items, or of each, separated by commas. [default: contiguous]",
            "LDA:LDB:LDC",
        ),
    )
    aligned_a: int = 16
    aligned_b: int = 16
    aligned_c: int = 16
    deterministic: bool = False
    out: str = ""
    epilogue: str = ""
    jagged: str = field(
        default="",
        metadata=described("grouped: m or k, the axis along which items are parts of one array. [default: none]"),
    )
    block_a: str = field(
        default="", metadata=described("Blocks of A with scales: 1x128 or 1x128t; not jagged also 128x128, 128x128t.")
    )
    block_b: str = field(
        default="", metadata=described("Blocks of B with scales: likewise; of jagged=m also 128x128, 128x128t.")
    )
    scale_blocks: int = 0
    dtype_b: str = field(
        default="",
        metadata=described("Type of B, if it is another 8-bit float than that of A. [default: the type of A]", "DTYPE"),
    )

    operation = "grouped"
    GATED = True
    WRITES: ClassVar[tuple[str, ...]] = (STORE,)
    SHAPE = ("items",)
    SHAPE_FORM = "M,N,K+M,N,K+..."
    CODE_OPTIONS: ClassVar[tuple[str, ...]] = ("compute", "out", "epilogue", "jagged", "block_a", "block_b", "dtype_b")
    RUNTIME_PARAMETERS = "the items, their M, N, K, leading dimensions and addresses"
    STEPS = "addresses and leading dimensions of all items"

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", as_items(self.items))
        self._check_words_and_flags()
        self._normalize_layout("layout", LAYOUTS)
        word("jagged", self.jagged, JAGGED)
        self._normalize_dtypes()
        self._normalize_second_dtype()
        self._normalize_epilogue()
        check_blocks(self, self.block_a, self.block_b)
        for i, (_, n, _) in enumerate(self.items if self.gated else ()):
            if n % 2:
                raise ShapeError(
                    f"n of item {i} is {n}; with a gated activation it must be even: a gate and a value in turn"
                )
        self._normalize_integers(("aligned_a", "aligned_b", "aligned_c", "scale_blocks"))
        self._check_blocks()
        for name, element in zip(("aligned_a", "aligned_b", "aligned_c"), self.types, strict=True):
            self._check_alignment(name, element)
        self._normalize_leading_dimensions()
        self._check_jagged()
        size = max(self.element.bytes, self.output.bytes)
        if self.sizes and max(self.sizes) * size > MEMORY_LIMIT:
            raise ShapeError(f"items span {max(self.sizes) * size} bytes; they must span at most {MEMORY_LIMIT}")

    def _check_blocks(self) -> None:
        """Raises InputError if items have no scales of such blocks, and ShapeError if they have too few."""
        if self.scale_blocks and not (self.block_a and self.jagged == "k"):
            raise InputError(f"scale_blocks is {self.scale_blocks}; it must be 0 without scales of blocks and jagged=k")
        if not self.block_a:
            return
        if self.jagged and self.scalings["A"].rows > 1:
            raise InputError(
                f"block_a is {self.block_a} with jagged={self.jagged}; it must be 1x128 or 1x128t, because blocks of"
                " several rows may belong to several items"
            )
        if self.jagged == "k" and self.scalings["B"].rows > 1:
            raise InputError(f"block_b is {self.block_b} with jagged=k; it must be 1x128 or 1x128t")
        least = int(self.first_blocks[-1])
        if self.scale_blocks and self.scale_blocks < least:
            raise ShapeError(
                f"scale_blocks is {self.scale_blocks}; it must be at least {least}, the blocks of all items"
            )

    def _normalize_leading_dimensions(self) -> None:
        """Sets ``ld`` to its shortest form. ShapeError: a leading dimension is less than a row of its item."""
        given = read_leading_dimensions(self.ld, len(self.items))
        if given is not None:
            too_small = (given != 0) & (given < self.columns)
            if too_small.any():
                i, x = (int(v) for v in np.argwhere(too_small)[0])
                raise ShapeError(
                    f"ld{'abc'[x]} of item {i} is {given[i, x]}; it must be at least {self.columns[i, x]}, a row's"
                    " length"
                )
            packed = np.maximum(self.columns, 1)
            given = np.where(given == 0, packed, given)
            text = "" if np.array_equal(given, packed) else write_leading_dimensions(given)
            object.__setattr__(self, "ld", text)

    def _check_jagged(self) -> None:
        """Raises ShapeError if the items of a jagged problem differ in an extent other than the jagged one, or in a
        leading dimension."""
        if not self.jagged or not self.items:
            return
        fixed = [axis for axis in range(3) if "mnk"[axis] != self.jagged]
        for i, item in enumerate(self.items):
            for axis in fixed:
                if item[axis] != self.items[0][axis]:
                    raise ShapeError(
                        f"{'mnk'[axis]} of item {i} is {item[axis]}; with jagged={self.jagged} it must be"
                        f" {self.items[0][axis]}, that of item 0"
                    )

    # ---- items

    @cached_property
    def extents(self) -> Ints:
        """M, N and K of each item, one row per item."""
        return np.array(self.items, np.int64).reshape(-1, 3)

    @cached_property
    def rows(self) -> Ints:
        """The number of stored rows of A, B and C of each item."""
        m, n, k = self.extents.T
        return np.stack([m if self.layout[0] == "N" else k, k if self.layout[1] == "N" else n, m], axis=1)

    @cached_property
    def columns(self) -> Ints:
        """The lengths of stored rows of A, B and C of each item."""
        m, n, k = self.extents.T
        columns_c = n // 2 if self.gated else n
        return np.stack([k if self.layout[0] == "N" else m, n if self.layout[1] == "N" else k, columns_c], axis=1)

    @property
    def kernel_columns(self) -> Ints:
        return self.columns * self._kernel_elements

    @property
    def kernel_lds(self) -> Ints:
        return self.lds * self._kernel_elements

    @property
    def _kernel_elements(self) -> Ints:
        """The number of elements that kernels see in an element of A, of B and of C: each element of C is two halves
        with a gated activation (``dtypes.HALVES``), else one."""
        return np.array([1, 1, 2 if self.gated else 1], np.int64)

    @cached_property
    def lds(self) -> Ints:
        """The leading dimensions of A, B and C of each item. All items of a jagged array have the leading dimension of
        the whole array."""
        given = read_leading_dimensions(self.ld, len(self.items))
        if given is not None:
            return given
        lds = np.maximum(self.columns, 1)
        for x in range(3):
            if self._jagged_columns(x):
                lds[:, x] = max(int(self.columns[:, x].sum()), 1)
        return lds

    def _jagged_columns(self, x: int) -> bool:
        """True if items are ranges of the columns of operand ``x`` as stored."""
        if self.jagged == "m":
            return x == 0 and self.layout[0] == "T"
        return self.jagged == "k" and ((x == 0 and self.layout[0] == "N") or (x == 1 and self.layout[1] == "T"))

    def _jagged_rows(self, x: int) -> bool:
        """True if items are ranges of the rows of operand ``x`` as stored."""
        if self.jagged == "m":
            return x == 2 or (x == 0 and self.layout[0] == "N")
        return self.jagged == "k" and ((x == 0 and self.layout[0] == "T") or (x == 1 and self.layout[1] == "N"))

    @cached_property
    def starts(self) -> Ints:
        """The index of the first element of A, B and C of each item, in the arrays that hold all items."""
        return self._starts_and_sizes[0]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of elements of the arrays that hold A, B and C of all items."""
        return self._starts_and_sizes[1]

    @cached_property
    def _starts_and_sizes(self) -> tuple[Ints, tuple[int, int, int]]:
        starts, sizes = np.zeros((len(self.items), 3), np.int64), [0, 0, 0]
        for x in range(3):
            if self._jagged_columns(x):
                lengths = self.columns[:, x]
            else:
                lengths = self.rows[:, x] * self.lds[:, x]
                if not self.jagged:
                    unit = ITEM_ALIGNMENT // (self.output if x == 2 else self.element).bytes
                    lengths = -(-lengths // unit) * unit
            ends = np.cumsum(lengths)
            starts[:, x] = ends - lengths
            if len(ends):
                whole = self._jagged_columns(x)
                sizes[x] = int(self.rows[0, x] * self.lds[0, x]) if whole else int(ends[-1])
        return starts, (sizes[0], sizes[1], sizes[2])

    def steps(self, name: str) -> tuple[int, int]:
        """Two steps of an array of a jagged problem, of which one is zero: the bytes from one item to the next, and the
        bytes per index along the jagged axis. ``name``: a, b, c or an operand of the epilogue."""
        if name == "sums":
            return self.of_sums().steps("c")
        x = "abc".index(name) if name in "abc" else 2
        size = self.types[x].bytes
        rows, ld = int(self.rows[:, x].max(initial=0)), int(self.lds[:, x].max(initial=1))
        if name in ("a", "b", "c", *ELEMENTWISE_OPERANDS):
            if self._jagged_rows(x):
                return 0, ld * size
            return (0, size) if self._jagged_columns(x) else (rows * ld * size, 0)
        size = self.epilogue_operand_dtype(name).bytes
        length = self.epilogue_length(name)
        return (0, size) if length == self.jagged else (self._common_extent(length) * size, 0)

    def epilogue_length(self, name: str) -> str:
        """The length of an item's epilogue operand that is not elementwise: ``m``, ``n`` or ``1``."""
        if name.startswith("scale") and "scale_rows" not in self.epilogue_ops:
            return "1"
        return "m" if name == "scale_a" or (name == "bias" and "bias_row" in self.epilogue_ops) else "n"

    def _common_extent(self, axis: str) -> int:
        return 1 if axis == "1" else int(self.extents[:, "mnk".index(axis)].max(initial=0))

    @property
    def stores_sums(self) -> bool:
        """True if the kernel stores the sums beside C."""
        return "store_sums" in self.epilogue_ops

    def of_sums(self) -> GroupedGemm:
        """The products whose C are the sums that ``store_sums`` stores."""
        before = self.epilogue_ops[: self.epilogue_ops.index("store_sums")]
        # a row has as many sums as kernels see elements of C
        ld = write_leading_dimensions(self.kernel_lds) if self.ld else ""
        return replace(self, epilogue=",".join(before), ld=ld)

    @property
    def offsets(self) -> Ints:
        """The ends of the items along the jagged axis, as for ``torch._grouped_mm``."""
        return np.cumsum(self.extents[:, "mnk".index(self.jagged)])

    def item(self, i: int) -> Gemm:
        """Item ``i`` as a GEMM."""
        m, n, k = self.items[i]
        lda, ldb, ldc = (int(v) for v in self.lds[i])
        return Gemm(
            m,
            n,
            k,
            self.layout,
            self.dtype,
            self.compute,
            lda,
            ldb,
            ldc,
            self.aligned_a,
            self.aligned_b,
            self.aligned_c,
            self.deterministic,
            self.out,
            self.epilogue,
            block_a=self.block_a,
            block_b=self.block_b,
            dtype_b=self.dtype_b,
        )

    # ---- the whole group

    @property
    def problem_class(self) -> str:
        """``jagged`` if items are parts of one array, else ``grouped``."""
        return "jagged" if self.jagged else "grouped"

    @property
    def description(self) -> list[str]:
        types = f"{' and '.join(dict.fromkeys((self.dtype, self.dtype_b or self.dtype)))}, summed in {self.compute}"
        return [f"{self.operation}: C = alpha A B + beta C per item, layout {self.layout} (row-major), {types}"]

    @property
    def command_options(self) -> str:
        """The options that describe the problem with its first item alone, which select the same kernel."""
        return super().command_options if len(self.items) < 2 else self.first_items(1).command_options

    def first_items(self, count: int) -> GroupedGemm:
        """The problem without the items after the first ``count``."""
        ld = write_leading_dimensions(self.lds[:count]) if self.ld else ""
        return replace(self, items=self.items[:count], ld=ld)

    @property
    def scalings(self) -> dict[str, Scaling]:
        """The blocks of A and of B that have scales, by operand; empty if there are no scales."""
        return scalings_of(self.block_a, self.block_b)

    @property
    def scale_shapes(self) -> dict[str, tuple[int, ...]]:
        if not self.scalings:
            return {}
        m, n, k = (int(x) for x in self.extents.max(axis=0, initial=0))
        a, b = self.scalings["A"], self.scalings["B"]
        if self.jagged == "k":
            blocks = self.scale_blocks or int(self.first_blocks[-1])
            return {"scale_a": a.ordered(m, blocks), "scale_b": b.ordered(n, blocks)}
        if self.jagged == "m":
            return {
                "scale_a": a.stored(int(self.extents[:, 0].sum()), k),
                "scale_b": (len(self.items), *b.stored(n, k)),
            }
        return {name: (self.epilogue_sizes(name)[1],) for name in ("scale_a", "scale_b")}

    def item_scale_shape(self, i: int, name: str) -> tuple[int, int]:
        """The stored shape of the block scales of operand ``name`` of item ``i`` of a list."""
        m, n, k = self.items[i]
        return self.scalings[name].stored(m if name == "A" else n, k)

    @cached_property
    def first_blocks(self) -> Ints:
        """The number of blocks of K of the items before each item, and of all items."""
        return np.concatenate([[0], np.cumsum(-(-self.extents[:, 2] // DEPTH))])

    @property
    def item_arrays(self) -> tuple[str, ...]:
        """The arrays besides A, B, C and those of the epilogue whose first axis is the item."""
        return ("scale_b",) if self.scalings and self.jagged == "m" else ()

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, "offsets") if self.jagged else super().arrays

    def typical(self) -> GroupedGemm:
        """A group with the same alignment class and about the same distribution of extents, by which one problem
        represents many in selection. Items are sorted; extents are rounded to three significant bits, and keep their
        common power-of-two divisors."""
        extents = self.extents[(self.extents > 0).all(axis=1)]
        if not len(extents):
            return self
        common = np.gcd.reduce(extents, axis=0)
        units = np.minimum(common & -common, TYPICAL_MULTIPLE)
        if self.jagged:
            units["mk".index(self.jagged) * 2] = 1
        ranks = np.linspace(0, len(extents) - 1, min(len(extents), TYPICAL_ITEMS)).round().astype(int)
        ordered = extents[np.lexsort(extents.T)]
        chosen = np.stack([_rounded(ordered[ranks, x], int(units[x])) for x in range(3)], axis=1)
        if self.jagged:
            fixed = [x for x in range(3) if "mnk"[x] != self.jagged]
            chosen[:, fixed] = extents[0, fixed]
        repeats = _rounded(np.array([max(1, len(extents) // len(chosen))]), 1)[0]
        a, b, c = (x * element.bytes for x, element in zip(self.vectors, self.types, strict=True))
        items = tuple((m, n, k) for m, n, k in np.repeat(chosen, repeats, axis=0).tolist())
        return replace(self, items=items, ld="", aligned_a=a, aligned_b=b, aligned_c=c, scale_blocks=0)

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of the one-dimensional arrays that hold A, B and C of all items."""
        a, b, c = self.sizes
        return (a,), (b,), (c,)

    @property
    def results(self) -> int:
        """The number of sums of all items: Σ M · N."""
        return int((self.extents[:, 0] * self.extents[:, 1]).sum())

    @property
    def reduction(self) -> int:
        """The largest K."""
        return int(self.extents[:, 2].max(initial=0))

    @property
    def flops(self) -> int:
        return 2 * int(self.extents.prod(axis=1).sum())

    @property
    def bytes(self) -> int:
        """A lower bound of the bytes moved: every A and B is read once, every C is written once."""
        m, n, k = self.extents[(self.extents > 0).all(axis=1)].T
        scales = 4 * sum(math.prod(shape) for shape in self.scale_shapes.values())
        written = self.output.bytes * (self.results // (2 if self.gated else 1) + self.results * self.stores_sums)
        return self.element.bytes * int((m * k + k * n).sum()) + scales + written

    @property
    def vectors(self) -> tuple[int, int, int]:
        """The alignment class: the widest aligned accesses to every row of A, B and C of every item, in elements."""
        out = []
        for x, (aligned, element) in enumerate(
            zip((self.aligned_a, self.aligned_b, self.aligned_c), self.types, strict=True)
        ):
            axes = [0, 1] if x == 2 else [0, 1, 2]  # C is stored where K is 0, too
            used = (self.extents[:, axes] > 0).all(axis=1) if not self.jagged else slice(None)
            steps = [self.lds[used, x]] if self._jagged_columns(x) else [self.lds[used, x], self.columns[used, x]]
            step = 1 if self._jagged_columns(x) else 0
            extent = math.gcd(step, *(int(np.gcd.reduce(s)) for s in steps if len(s)))
            out.append(math.gcd(16, aligned, extent * element.bytes) // element.bytes or 1)
        return out[0], out[1], out[2]

    @property
    def broadcast_shapes(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """The shapes of the epilogue operands. Each array holds the operands of all items, one after the other."""
        return {name: ((self.epilogue_sizes(name)[1],),) * 2 for name in self.epilogue_operands}

    def epilogue_sizes(self, name: str) -> tuple[Ints, int]:
        """The index of each item's first element, and the number of elements, in an array that holds an epilogue
        operand, or the block scales, of all items."""
        if name == "sums":
            return self.of_sums().epilogue_sizes("residual")
        if name in ELEMENTWISE_OPERANDS:
            return self.starts[:, 2], self.sizes[2]
        if self.scalings and name.startswith("scale"):
            counts = [math.prod(self.item_scale_shape(i, name[-1].upper())) for i in range(len(self.items))]
            ends = np.cumsum(np.array(counts, np.int64))
            return ends - counts, int(ends[-1]) if counts else 0
        length = self.epilogue_length(name)
        ones = np.ones(len(self.items), np.int64)
        lengths = ones if length == "1" else self.extents[:, "mnk".index(length)]
        ends = np.cumsum(lengths)
        return ends - lengths, int(ends[-1]) if len(ends) else 0

    # ---- text form

    def shape(self) -> str:
        """The text of the items: ``M,N,K`` for one, ``8xM,N,K`` for eight equal ones, joined by +."""
        runs = ((len(list(same)), item) for item, same in groupby(self.items))
        return "+".join((f"{n}x" if n > 1 else "") + ",".join(map(str, item)) for n, item in runs) or "0x1,1,1"

    @classmethod
    def read_shape(cls, text: str) -> dict[str, Any]:
        items: list[tuple[int, ...]] = []
        for part in text.replace(" ", "").split("+"):
            item = _ITEM.fullmatch(part)
            if item is None:
                raise ShapeError(
                    f"shape has {shown(part)}; it must be M,N,K of each item, separated by +, or 8xM,N,K for eight"
                    " items"
                )
            count = int(item["count"] or 1)
            if len(items) + count > MAX_ITEMS:
                raise ShapeError(f"shape has more than {MAX_ITEMS} items")
            items += [tuple(int(x) for x in item["item"].split(","))] * count
        return {"items": tuple(items)}


def _rounded(values: Ints, unit: int) -> Ints:
    """Positive ``values`` rounded up to three significant bits, then to an odd multiple of ``unit``, a power of two, so
    that no larger power of two divides the result."""
    step = 1 << np.maximum(np.floor(np.log2(np.maximum(values, 1))).astype(np.int64) - 2, 0)
    rounded: Ints = (-(-(-(-values // step) * step) // unit) | 1) * unit
    return rounded


_ITEM = re.compile(r"(?:(?P<count>[0-9]{1,5})x)?(?P<item>[0-9]{1,10},[0-9]{1,10},[0-9]{1,10})")
_LD = re.compile(r"[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}")


def as_items(given: Any) -> tuple[tuple[int, int, int], ...]:
    """``given`` as a tuple of (M, N, K). ShapeError: it is not a list of such items."""
    items = plain(given)
    if not isinstance(items, tuple):
        raise ShapeError(f"items is {shown(given)}; it must be a list of (M, N, K)")
    if len(items) > MAX_ITEMS:
        raise ShapeError(f"items has {len(items)} elements; it must have at most {MAX_ITEMS}")
    out = []
    for i, item in enumerate(items):
        if not isinstance(item, tuple) or len(item) != 3:
            raise ShapeError(f"item {i} is {shown(item)}; it must be (M, N, K)")
        m, n, k = (integer(f"{name} of item {i}", x, 0, EXTENT_LIMIT - 1) for name, x in zip("mnk", item, strict=True))
        out.append((m, n, k))
    return tuple(out)


def read_leading_dimensions(text: str, count: int) -> Ints | None:
    """The leading dimensions that ``text`` gives ``count`` items, one row per item; None: rows are contiguous.
    InputError: the text has another form.
    """
    if not text:
        return None
    words = text.split(",")
    if len(words) == 1:
        words *= count
    wrong = next((w for w in words if not _LD.fullmatch(w)), None)
    if wrong is not None or len(words) != count:
        raise InputError(
            f"ld is {shown(text)}; it must be lda:ldb:ldc of each of {count} items, separated by commas, or one for all"
        )
    return np.array([[int(x) for x in w.split(":")] for w in words], np.int64).reshape(-1, 3)


def write_leading_dimensions(lds: Ints | Sequence[Sequence[int]]) -> str:
    """The text of leading dimensions, which ``read_leading_dimensions`` reads."""
    words = [":".join(map(str, row)) for row in np.asarray(lds).tolist()]
    return words[0] if len(set(words)) == 1 else ",".join(words)
