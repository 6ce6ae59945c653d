"""Where the results of a kernel go: a tile is stored to C, with an epilogue, or as the value of an expression."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from ptxgen.expr.node import Node, node, variable, variables
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import Scalar, Vector
from ptxgen.problem.base import ELEMENTWISE_OPERANDS
from ptxgen.problem.dtypes import Dtype, dtype
from ptxgen.problem.epilogue_ops import EpilogueOp, epilogue_op, split_epilogue


class Number(NamedTuple):
    """A kernel parameter that each problem has a value of. ``type``: in PTX; ``name``: of the parameter."""

    type: str
    name: str
    value: Any


class Reset(NamedTuple):
    """An array whose first ``bytes`` are set to zero before the kernels run."""

    array: str
    bytes: int


class Sink(Protocol):
    """Where the results of a kernel go. ``needs``: what a family must provide; ``template``: the slot that stores the
    results of complete sums; ``templates``: the folder that has it, None: the package's; ``scalars``: the numbers that
    it takes from calls; ``numbers``: those that follow from the problem; ``resets``: what is set to zero before each
    launch; ``shared_tile``: True if it reads the sums of a whole tile in shared memory; ``has_workspace``: True if it
    stores results in the workspace."""

    needs: ClassVar[frozenset[str]]
    template: ClassVar[str]
    templates: ClassVar[Path | None]
    shared_tile: ClassVar[bool]
    has_workspace: ClassVar[bool]

    @property
    def scalars(self) -> tuple[Scalar, ...]: ...

    @property
    def scalars_after_sums(self) -> tuple[Scalar, ...]:
        """Those that are applied after partial sums are added."""

    @property
    def linear(self) -> bool:
        """True if partial sums may be added to C one after the other."""

    @property
    def arithmetic(self) -> str:
        """The type of alpha and beta, and of what is computed of the results."""

    @property
    def stored_type(self) -> str:
        """The type of the registers that stores to C read; they round floats to 8 and 16 bits."""

    @property
    def reads_k(self) -> bool:
        """True if what it takes of results depends on the extent of k."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that it reads, or writes besides C, in the order of the kernel parameters."""

    @property
    def numbers(self) -> tuple[Number, ...]: ...

    @property
    def resets(self) -> tuple[Reset, ...]: ...


@dataclass(frozen=True)
class Elements:
    """An array with an element for each result that an expression reads. ``name``: of the kernel parameter, ``ld``: its
    leading dimension, the parameter ``ld_`` and the name; ``element``: the variable of its element; ``axes``: ij, or ji
    if it is stored by columns."""

    name: str
    element: Node
    ld: int
    axes: str = "ij"


def part_names(name: str) -> tuple[str, str]:
    """The names of the real and of the imaginary part of a number that calls pass."""
    return name, f"{name}_im"


@dataclass(frozen=True)
class StoreTile:
    """C = epilogue(alpha · sums + beta · C).

    ``out``: the type of C; ``arithmetic``: that of alpha, beta and the epilogue; ``epilogue``: operations of
    ``problem.epilogue_ops``, separated by commas. ``scalar_bias``: all rows and columns of C add the same bias;
    ``batched_bias``: each product of a batch has a bias of its own.
    """

    out: str
    arithmetic: str
    epilogue: str = ""
    scalar_bias: bool = False
    batched_bias: bool = False

    needs: ClassVar[frozenset[str]] = frozenset(("store_tile",))
    template: ClassVar[str] = "epilogue/store.mako"
    templates: ClassVar[Path | None] = None
    shared_tile: ClassVar[bool] = False
    has_workspace: ClassVar[bool] = False
    numbers: ClassVar[tuple[Number, ...]] = ()
    reads_k: ClassVar[bool] = False
    resets: ClassVar[tuple[Reset, ...]] = ()

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        return *self._number("alpha"), *self.scalars_after_sums

    @property
    def scalars_after_sums(self) -> tuple[Scalar, ...]:
        return self._number("beta")

    def _number(self, name: str) -> tuple[Scalar, ...]:
        """A number of the type ``arithmetic``: of a complex one, the real and the imaginary part."""
        number = dtype(self.arithmetic)
        return tuple(Scalar(each, number.real) for each in part_names(name)[: number.parts])

    @property
    def stored_type(self) -> str:
        return self.arithmetic

    @property
    def linear(self) -> bool:
        return not self.epilogue

    @property
    def ops(self) -> tuple[str, ...]:
        """The names of the operations of the epilogue, in order."""
        return split_epilogue(self.epilogue)

    @property
    def operations(self) -> tuple[EpilogueOp, ...]:
        """The operations of the epilogue, in order."""
        return tuple(map(epilogue_op, self.ops))

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the epilogue operands, in the order of the kernel parameters."""
        return tuple(name for op in self.operations for name in op.arrays)

    @property
    def elementwise(self) -> tuple[str, ...]:
        """The epilogue operands with the shape of C."""
        return tuple(name for name in self.arrays if name in ELEMENTWISE_OPERANDS)

    def array_dtype(self, name: str) -> Dtype:
        """The type of an epilogue operand: f32 for scales and for the bias of an 8-bit C, else the type of C."""
        wide = name.startswith("scale") or (name == "bias" and dtype(self.out).bytes == 1)
        return dtype("f32" if wide else self.out)


@dataclass(frozen=True)
class StoreGated(StoreTile):
    """C = a gated activation of alpha · sums: one element for two adjacent columns of sums. ``out``: half of an
    element (``dtypes.HALVES``)."""

    needs: ClassVar[frozenset[str]] = frozenset(("store_tile", "store_gated"))


def is_gated(epilogue: str) -> bool:
    """True if an operation makes one element of C of two sums."""
    return any(epilogue_op(name).gated for name in split_epilogue(epilogue))


@dataclass(frozen=True, kw_only=True)
class ValueSink:
    """Takes values of each result, which are expressions of the reduction, the variable ``accum``.

    ``out``: the type of C; ``arithmetic``: that of the reduction; ``elements``, ``vectors``, ``scalars``: the arrays
    and numbers that the values read; ``when``: the condition of the pairs (i, j) that are taken, None: all are;
    ``mirrored``: the reduction of (i, j) is that of (j, i), so kernels compute the pairs with i ≤ j, and take the
    values of both from it; ``ascending``: the names of vectors whose elements ascend, so that those at the corners of a
    tile bound those of its rows or columns.
    """

    out: str
    arithmetic: str
    elements: tuple[Elements, ...] = ()
    vectors: tuple[Vector, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    when: Node | None = None
    mirrored: bool = False
    ascending: tuple[str, ...] = ()

    templates: ClassVar[Path | None] = None
    resets: ClassVar[tuple[Reset, ...]] = ()
    linear: ClassVar[bool] = False
    shared_tile: ClassVar[bool] = False
    has_workspace: ClassVar[bool] = False
    ops: ClassVar[tuple[str, ...]] = ()
    operations: ClassVar[tuple[EpilogueOp, ...]] = ()
    epilogue: ClassVar[str] = ""
    elementwise: ClassVar[tuple[str, ...]] = ()
    scalar_bias: ClassVar[bool] = False
    batched_bias: ClassVar[bool] = False

    @property
    def roots(self) -> tuple[Node, ...]:
        """The expressions of the values."""
        raise NotImplementedError

    @property
    def expressions(self) -> tuple[Node, ...]:
        """All that kernels compute of results."""
        return self.roots

    @property
    def taken(self) -> Node | None:
        """The condition of the results that are taken."""
        return self.when

    @property
    def guard(self) -> Node | None:
        """The condition of the results that are computed and taken."""
        return self.guarded()

    def guarded(self, exchanged: bool = False) -> Node | None:
        """``guard``. ``exchanged``: of the results (i, j) that are taken from those of (j, i)."""
        return self._of_half(self.taken, exchanged)

    @property
    def computed(self) -> Node | None:
        """The condition of the pairs (i, j) that kernels must compute."""
        return self._of_half(self.when)

    def _of_half(self, condition: Node | None, exchanged: bool = False) -> Node | None:
        """The condition, of the pairs that are computed where results are mirrored, or of the others."""
        if not self.mirrored:
            return condition
        i, j = variable("i", "s32"), variable("j", "s32")
        half = node("<", PRED, j, i) if exchanged else node("<=", PRED, i, j)
        return half if condition is None else node("&", PRED, half, condition)

    @property
    def stored_type(self) -> str:
        return "f32" if self.out in ("f16", "bf16") else self.out

    @property
    def reads_k(self) -> bool:
        """True if values read the extent of k."""
        return "K" in variables(*self.roots, *([] if self.guard is None else [self.guard]))

    @property
    def scalars_after_sums(self) -> tuple[Scalar, ...]:
        return self.scalars

    @property
    def numbers(self) -> tuple[Number, ...]:
        return tuple(Number("u32", f"ld_{x.name}", x.ld) for x in self.elements)

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that the values read, in the order of the kernel parameters."""
        return (*(x.name for x in self.elements), *(v.name for v in self.vectors))

    def array_dtype(self, name: str) -> Dtype:
        elements = {x.name: x.element for x in self.elements} | {v.name: v.element for v in self.vectors}
        return dtype(elements[name].type)


@dataclass(frozen=True, kw_only=True)
class StoreValue(ValueSink):
    """C = value."""

    value: Node

    needs: ClassVar[frozenset[str]] = frozenset(("store_value",))
    template: ClassVar[str] = "epilogue/store_value.mako"

    @property
    def roots(self) -> tuple[Node, ...]:
        return (as_stored(self.value, self.stored_type),)


def as_stored(value: Node, stored: str) -> Node:
    """A value in the type ``stored`` of the registers that stores read. A store truncates integers to their bits, so it
    extends nothing; truth values are integers, 0 or 1."""
    if stored == value.type:
        return value
    inner = value.arguments[0] if value.op == "cast" else value
    return inner if inner.type == stored else node("cast", stored, value)


@dataclass(frozen=True, kw_only=True)
class SelectValues(ValueSink):
    """Appends the values of the results for which a condition holds to lists, in any order, and counts them.

    ``values``: the first goes to C, the others to ``lists``. The array ``count``, one integer of 64 bits, is the number
    of such results, also if it exceeds the scalar ``capacity``, the elements of each list.
    """

    condition: Node
    values: tuple[Node, ...]
    needs: ClassVar[frozenset[str]] = frozenset(("select_values",))
    template: ClassVar[str] = "epilogue/select_values.mako"
    COUNT: ClassVar[str] = "count"
    CAPACITY: ClassVar[Scalar] = Scalar("capacity", "u64")
    resets: ClassVar[tuple[Reset, ...]] = (Reset(COUNT, 8),)

    @property
    def roots(self) -> tuple[Node, ...]:
        return self.values

    @property
    def taken(self) -> Node:
        return self.condition if self.when is None else node("&", PRED, self.when, self.condition)

    @property
    def lists(self) -> tuple[str, ...]:
        return list_names(len(self.values))[1:]

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, *self.lists, self.COUNT)


def list_names(values: int) -> tuple[str, ...]:
    """The names of the lists of so many values: C, C_1, …"""
    return ("C", *(f"C_{n}" for n in range(1, values)))
