"""The kernel problem: extents, operands and outputs with their accesses, an algebra, and a sink."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ptxgen.lowering.algebra import PLUS_TIMES, Algebra, Scalar
from ptxgen.problem.base import accumulator_dtype
from ptxgen.problem.dtypes import Dtype, dtype

STRIDED = "strided"  #: the address mode of a matrix with a leading dimension


@dataclass(frozen=True)
class Extents:
    """The extents of a problem: integers, NumPy columns or symbols. Subclasses have those of an operation's loops."""

    @property
    def results(self) -> Any:
        """The number of elements that the kernels compute; if 0, nothing is launched."""
        raise NotImplementedError

    @property
    def flops(self) -> Any:
        raise NotImplementedError

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The extents by which the distance of two problems of an operation is measured."""
        raise NotImplementedError

    @property
    def batch(self) -> Any:
        """The number of batch items; all have one shape."""
        return 1

    @property
    def item(self) -> tuple[Any, Any]:
        """The number of results of one batch item, and the number of terms in the sum of each result."""
        return self.results, 1

    def representative(self) -> Extents:
        """The same extents for all problems that share cached candidates."""
        return self


@dataclass(frozen=True)
class GemmExtents(Extents):
    """The extents of a batch of matrix products of one shape."""

    m: Any
    n: Any
    k: Any
    batch: Any = 1

    @property
    def results(self) -> Any:
        return self.batch * self.m * self.n

    @property
    def sizes(self) -> tuple[Any, ...]:
        return self.m, self.n, self.k

    @property
    def item(self) -> tuple[Any, Any]:
        return self.m * self.n, self.k

    @property
    def reduction(self) -> Any:
        """The largest number of products in the sum of one result."""
        return self.k

    @property
    def flops(self) -> Any:
        return 2 * self.results * self.k

    @property
    def common_divisors(self) -> tuple[Any, Any, Any]:
        """The greatest common divisors of M, of N and of K over all products."""
        return self.m, self.n, self.k

    @property
    def tensor_items(self) -> Any:
        """The number of items of the tensors that TMA loads."""
        return self.batch

    def tiles(self, ml: Any, nl: Any, u: Any = 1, kg: Any = 1) -> Any:
        """The number of tiles of ``ml`` by ``nl`` in all items; integers or NumPy columns. ``u``, ``kg``: see
        ``tile_iterations``."""
        return -(-self.m // ml) * -(-self.n // nl) * self.batch

    def tile_iterations(self, ml: Any, nl: Any, u: Any, kg: Any = 1) -> tuple[Any, Any]:
        """The K iterations of a tile: the mean over tiles, and the most. ``u``: elements of K of an iteration; ``kg``:
        K slices of the longest item; all items have slices of its slice length, and each slice of a tile counts as a
        tile."""
        raise NotImplementedError


@dataclass(frozen=True)
class MirroredExtents(GemmExtents):
    """The extents of products with M = N whose results (i, j) and (j, i) have the same sum; kernels compute the pairs
    with i ≤ j."""

    @property
    def flops(self) -> Any:
        return self.batch * self.m * (self.m + 1) * self.k

    def tiles(self, ml: Any, nl: Any, u: Any = 1, kg: Any = 1) -> Any:
        """The number of tiles that have a pair with i ≤ j. The number is exact if one side of a tile is a multiple of
        the other, else approximate."""
        rows, columns = -(-self.m // ml), -(-self.n // nl)
        step = np.gcd(ml, nl)
        # below the diagonal are floor(row · ml / nl) tiles of each row of them
        below = (rows * (rows - 1) * ml - rows * (nl - step)) // (2 * nl)
        return (rows * columns - np.maximum(below, 0)) * self.batch


@dataclass(frozen=True)
class Access:
    """How kernels address an operand or an output in memory. ``capability``: the name of the access, as families
    provide it."""

    capability: ClassVar[str]

    @property
    def needs(self) -> frozenset[str]:
        """The capabilities that a family must provide to read an operand by this access."""
        return frozenset((self.capability,))

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of further arrays that a launch binds for this access, in the order of the kernel parameters."""
        return ()

    def representative(self) -> Access:
        """The access without what depends on extents: one access for all problems that share cached candidates."""
        return self


@dataclass(frozen=True)
class MatrixAccess(Access):
    """The access to a matrix of a product: A (M×K), B (N×K) or C (M×N).

    ``kmajor``: True if K (for C: N) is contiguous; ``rows``, ``columns``: extents of the stored matrix; ``ld``:
    elements from one stored row to the next; ``stride``: elements from one batch item to the next; ``aligned``:
    alignment of the address in bytes; ``vec``: elements of the widest access that is aligned in all rows and items;
    ``mode``: the address mode of kernels whose threads load elements: STRIDED, or a mode of offset tables.
    """

    kmajor: bool
    rows: Any
    columns: Any
    ld: Any
    stride: Any
    aligned: Any
    vec: Any
    mode: str = STRIDED

    def tensor(self, size: int) -> tuple[Any, Any, Any, Any]:
        """The stored matrix as four numbers: columns, rows, leading dimension in elements, bytes from one item to the
        next (0: all items have one matrix). ``size``: bytes of an element."""
        return self.columns, self.rows, self.ld, self.stride * size

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The values of the fields that all matrix accesses have."""
        return self.kmajor, self.rows, self.columns, self.ld, self.stride, self.aligned, self.vec, self.mode

    def offset(self, mn: int, size: int) -> int:
        """Bytes from the address to index ``mn`` along M or N (of C: along M). ``size``: bytes of an element."""
        return int(size * (mn * self.ld if self.kmajor else mn))

    def resized(self, mn: Any, k: Any, packed: bool) -> MatrixAccess:
        """The access to a matrix with extent ``mn`` along M or N and ``k`` along K (for C: along M and N). ``packed``:
        True if rows and items become contiguous."""
        rows, columns = (mn, k) if self.kmajor else (k, mn)
        return replace(self, rows=rows, columns=columns, ld=at_least_one(columns) if packed else self.ld)


def at_least_one(n: Any) -> Any:
    """The larger of ``n`` and 1, as a leading dimension must be positive."""
    return np.maximum(n, 1) if isinstance(n, np.ndarray) else max(n, 1)


@dataclass(frozen=True)
class Operand:
    """An operand or an output. ``name``: the kernel parameter (A, B, C); ``access``: an ``Access``; ``array``: the name
    of the call's array that is bound to it, empty: its own name; ``prepared``: the preparation that makes it from
    arrays of the call (``codegen.preparation.Preparation``), None: it is an array of the call."""

    name: str
    dtype: str
    access: Any
    array: str = field(default="", compare=False)
    prepared: Any = field(default=None, compare=False)

    @property
    def element(self) -> Dtype:
        return dtype(self.dtype)


def array_of(name: str, swapped: bool) -> str:
    """The name of the call's array for operand ``name``. ``swapped``: True if A is the second array of the call and B
    the first."""
    return {"A": "B", "B": "A"}.get(name, name) if swapped else name


@dataclass(frozen=True)
class KernelProblem:
    """What kernels compute. Rules and plans read this record. Its fields are valid because the user's problem has been
    checked.

    ``name``: the name of the kernels, as ``gemm_f32_nt``; ``extents``: an ``Extents``; ``operands``, ``outputs``:
    arrays with their accesses; ``compute``: the arithmetic of products and sums; ``sink``: where the results go, a
    ``Sink``; ``algebra``: how operands are combined; ``deterministic``: True if the order of additions must not depend
    on timing; ``moved``: lower bound of the bytes moved; ``calls``: the number of calls with the same constant
    operands, for which these may be prepared, 0: they are not.

    ``parts``: products of other extents that the same kernel computes, each in launches of its own, the largest first;
    ``extents`` are then the maxima over the parts. ``forms``: the same problem with other accesses or by another
    algorithm; a family computes the first form that needs only what it provides. ``features``: pairs (name, value) of
    the features that the operation defines.
    """

    name: str
    extents: Any
    operands: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    compute: str
    sink: Any
    algebra: Algebra = PLUS_TIMES
    deterministic: bool = False
    moved: Any = field(default=0, compare=False)
    calls: int = field(default=0, compare=False, repr=False)
    parts: tuple[KernelProblem, ...] = field(default=(), compare=False, repr=False)
    forms: tuple[KernelProblem, ...] = field(default=(), repr=False)
    features: tuple[tuple[str, float], ...] = field(default=(), compare=False, repr=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash, computed once: caches of candidates ask for it often."""
        return hash((self.name, self.extents, self.operands, self.outputs, self.compute, self.sink, self.forms))

    def operand(self, name: str) -> Operand:
        """The operand or output ``name``."""
        for x in (*self.operands, *self.outputs):
            if x.name == name:
                return x
        raise KeyError(name)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The capabilities that a family must provide to compute the problem."""
        needs = self.algebra.needs | self.sink.needs | (frozenset(("mirrored",)) if self.mirrored else frozenset())
        for x in self.operands:
            needs |= x.access.needs
        for x in self.outputs:
            needs |= {f"{need}_output" for need in x.access.needs}
        return frozenset(needs)

    def form(self, provided: Set[str]) -> KernelProblem:
        """The first form that needs only the capabilities ``provided``; the problem itself if there is none."""
        if not self.forms:
            return self
        return next((p for p in (self, *self.forms) if p.needs <= provided), self)

    def like(self, other: KernelProblem) -> KernelProblem:
        """The form that the capabilities of ``other`` select."""
        return self.form(other.needs)

    @property
    def representative(self) -> KernelProblem:
        """The problem without other forms and without what depends on extents. Problems with the same representative
        share cached candidates."""
        return replace(
            self.with_accesses(lambda x: x.representative()), extents=self.extents.representative(), forms=()
        )

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The names of all arrays that a launch binds, in the order of the kernel parameters: operands, outputs, other
        arrays."""
        return (*(x.name for x in (*self.operands, *self.outputs)), *self.other_arrays)

    @cached_property
    def other_arrays(self) -> tuple[str, ...]:
        """The names of the arrays that are neither operand nor output: those of the sink, the algebra and the
        accesses."""
        others = (name for x in (*self.operands, *self.outputs) for name in x.access.arrays)
        return (*dict.fromkeys((*self.sink.arrays, *self.algebra.arrays, *others)),)

    @cached_property
    def scalars(self) -> tuple[Scalar, ...]:
        """The numbers that a call passes, each as a kernel parameter."""
        return (*dict.fromkeys((*self.sink.scalars, *self.algebra.scalars)),)

    @property
    def bindings(self) -> dict[str, str]:
        """Name of an operand of the kernel -> name of the call's array, where the names differ."""
        return {x.name: x.array for x in (*self.operands, *self.outputs) if x.array not in ("", x.name)}

    # ---- of a product of matrices

    @property
    def m(self) -> Any:
        return self.extents.m

    @property
    def n(self) -> Any:
        return self.extents.n

    @property
    def k(self) -> Any:
        return self.extents.k

    @property
    def batch(self) -> Any:
        return self.extents.batch

    @property
    def results(self) -> Any:
        return self.extents.results

    @property
    def mirrored(self) -> bool:
        """True if the sum of (i, j) is also that of (j, i), so that kernels compute only one of them."""
        return isinstance(self.extents, MirroredExtents)

    @property
    def flops(self) -> Any:
        return sum(p.flops for p in self.parts) if self.parts else self.algebra.fmas * self.extents.flops

    @property
    def bytes(self) -> Any:
        """Lower bound of the bytes moved to and from device memory."""
        return self.moved

    @property
    def gemms(self) -> tuple[KernelProblem, ...]:
        """The matrix products that the same kernel computes, each in launches of its own."""
        return self.parts or (self,)

    @property
    def dtype(self) -> str:
        """The type of A and B."""
        return self.operands[0].dtype

    @property
    def out(self) -> str:
        """The type of C."""
        return self.outputs[0].dtype

    @cached_property
    def element(self) -> Dtype:
        return dtype(self.dtype)

    @cached_property
    def output(self) -> Dtype:
        return dtype(self.out)

    @cached_property
    def accumulator(self) -> Dtype:
        return accumulator_dtype(self.compute, self.element)

    def held_type(self, name: str) -> str:
        """The type in which scalar instructions read elements of operand ``name``."""
        return self.algebra.held_type(name, self.accumulator.name)

    @cached_property
    def layout(self) -> str:
        """N or T for A, then for B. A is stored M×K (N) or K×M (T), B is stored K×N (N) or N×K (T)."""
        a, b = self.operands
        return ("N" if a.access.kmajor else "T") + ("T" if b.access.kmajor else "N")

    @cached_property
    def vectors(self) -> tuple[Any, ...]:
        """The alignment class: the widest aligned accesses to rows of A, B and C, in elements."""
        return tuple(x.access.vec for x in (*self.operands, *self.outputs))

    @cached_property
    def offsets(self) -> tuple[Any, ...]:
        """The batch strides of A, B and C in bytes."""
        return tuple(x.access.stride * dtype(x.dtype).bytes for x in (*self.operands, *self.outputs))

    def with_extents(self, packed: str = "ABC", **extents: Any) -> KernelProblem:
        """The problem with other extents (m, n, k, batch). ``packed``: names of the operands whose rows and items
        become contiguous."""
        e = replace(self.extents, **extents)
        axes = {"A": (e.m, e.k), "B": (e.n, e.k), "C": (e.m, e.n)}
        operands, outputs = (
            tuple(replace(x, access=x.access.resized(*axes[x.name], x.name in packed)) for x in each)
            for each in (self.operands, self.outputs)
        )
        return replace(self, extents=e, operands=operands, outputs=outputs)

    def with_accesses(self, made: Callable[[Any], Access]) -> KernelProblem:
        """The problem with the access ``made(access)`` in place of each ``access``."""
        operands, outputs = (
            tuple(replace(x, access=made(x.access)) for x in each) for each in (self.operands, self.outputs)
        )
        return replace(self, operands=operands, outputs=outputs)

    def with_access(self, name: str, **fields: Any) -> KernelProblem:
        """The problem with other values for fields of the access to operand or output ``name``."""
        operands, outputs = (
            tuple(replace(x, access=replace(x.access, **fields)) if x.name == name else x for x in each)
            for each in (self.operands, self.outputs)
        )
        return replace(self, operands=operands, outputs=outputs)
