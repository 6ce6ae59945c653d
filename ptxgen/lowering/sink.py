"""Sinks: where the results of a kernel go. A tile is stored to C with an epilogue, or as the values of an
expression."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from ptxgen.expr.node import Node, node, variable, variables
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import Scalar, Vector
from ptxgen.problem.base import ELEMENTWISE_OPERANDS
from ptxgen.problem.dtypes import Dtype, dtype
from ptxgen.problem.epilogue_ops import STORED, EpilogueOp, epilogue_op, split_epilogue


class Number(NamedTuple):
    """A kernel parameter whose value follows from the problem. ``type``: the PTX type; ``name``: the parameter's
    name."""

    type: str
    name: str
    value: Any


class Reset(NamedTuple):
    """An array whose first ``bytes`` bytes are set to zero before the kernels run."""

    array: str
    bytes: int


class Sink(Protocol):
    """Where the results of a kernel go.

    ``needs``: the capabilities that a family must provide; ``template``: the template file that stores the results of
    complete sums; ``templates``: the folder with this file, None: the package's; ``scalars``: the numbers that a call
    passes; ``numbers``: the parameters whose values follow from the problem; ``resets``: arrays that are set to zero
    before each launch; ``shared_tile``: True if the template reads the sums of a whole tile in shared memory;
    ``has_workspace``: True if results are stored in the workspace.
    """

    template: ClassVar[str]
    templates: ClassVar[Path | None]
    shared_tile: ClassVar[bool]
    has_workspace: ClassVar[bool]

    @property
    def needs(self) -> frozenset[str]: ...

    @property
    def scalars(self) -> tuple[Scalar, ...]: ...

    @property
    def scalars_after_sums(self) -> tuple[Scalar, ...]:
        """The scalars that are applied after partial sums have been added."""

    @property
    def linear(self) -> bool:
        """True if partial sums may be added to C one after the other."""

    @property
    def arithmetic(self) -> str:
        """The type of alpha and beta, and of the expressions computed from results."""

    @property
    def stored_type(self) -> str:
        """The type of the registers that are stored to C; the store rounds floats to 8 and 16 bits."""

    @property
    def reads_k(self) -> bool:
        """True if the stored values depend on the extent of k."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that the sink reads, and of those that it writes besides C, in the order of the
        kernel parameters."""

    @property
    def numbers(self) -> tuple[Number, ...]: ...

    @property
    def resets(self) -> tuple[Reset, ...]: ...


@dataclass(frozen=True)
class Elements:
    """An array that expressions read, with one element for each result. ``name``: the kernel parameter with its
    address; ``element``: the variable that stands for the element; ``ld``: the leading dimension, the value of the
    parameter ``ld_`` + name; ``axes``: ij, or ji if the array is stored by columns."""

    name: str
    element: Node
    ld: int
    axes: str = "ij"


def part_names(name: str) -> tuple[str, str]:
    """The names of the two parameters of a complex number: its real and its imaginary part."""
    return name, f"{name}_im"


@dataclass(frozen=True)
class StoreTile:
    """The sink C = epilogue(alpha · sums + beta · C).

    ``out``: the type of C; ``arithmetic``: the type of alpha, beta and the epilogue; ``epilogue``: operations of
    ``problem.epilogue_ops``, separated by commas; ``scalar_bias``: True if the bias is one number for all of C;
    ``batched_bias``: True if each product of a batch has a bias of its own; ``rows``: the rows of C, for sums of A.
    """

    out: str
    arithmetic: str
    epilogue: str = ""
    scalar_bias: bool = False
    batched_bias: bool = False
    rows: Any = 0

    template: ClassVar[str] = "epilogue/store.mako"
    templates: ClassVar[Path | None] = None
    shared_tile: ClassVar[bool] = False
    numbers: ClassVar[tuple[Number, ...]] = ()
    reads_k: ClassVar[bool] = False

    @property
    def needs(self) -> frozenset[str]:
        more = {"store_sums": bool(self.stored), "sum_columns": self.sums_columns, "sum_a": self.sums_a}
        return frozenset(("store_tile", *(name for name, needed in more.items() if needed)))

    @property
    def sums_a(self) -> bool:
        """True if the elements of each row of A are added."""
        return any(op.sums_a for op in self.operations)

    @property
    def resets(self) -> tuple[Reset, ...]:
        """The sums of A, to which blocks add."""
        return (Reset("a_sums", self.rows * dtype(self.arithmetic).bytes),) if self.sums_a else ()

    @property
    def sums_columns(self) -> bool:
        """True if the elements of each column of C are added."""
        return any(op.sums for op in self.operations)

    @property
    def has_workspace(self) -> bool:
        """True if blocks store the sums of their columns in the workspace."""
        return self.sums_columns

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        return *self._number("alpha"), *self.scalars_after_sums

    @property
    def scalars_after_sums(self) -> tuple[Scalar, ...]:
        return self._number("beta")

    def _number(self, name: str) -> tuple[Scalar, ...]:
        """The parameters of a number of type ``arithmetic``; a complex number has two, its parts."""
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
        """The names of the epilogue operands that have the shape of C."""
        return tuple(name for name in self.arrays if name in ELEMENTWISE_OPERANDS)

    @property
    def stored(self) -> tuple[str, ...]:
        """The names of the arrays to which sums are stored beside C."""
        return tuple(step.array for op in self.operations for step in op.steps if step.spans == STORED)

    @property
    def array_out(self) -> str:
        """The type of the elements of C in the array."""
        return self.out

    def array_dtype(self, name: str) -> Dtype:
        """The type of an epilogue operand: f32 for scales and for the bias of an 8-bit C, that of the arithmetic for
        sums of columns and of A, else the type of C."""
        if name in ("column_sums", "a_sums"):
            return dtype(self.arithmetic)
        out = dtype(self.array_out)
        wide = name.startswith("scale") or (name == "bias" and out.bytes == 1)
        return dtype("f32") if wide else out


@dataclass(frozen=True)
class StoreGated(StoreTile):
    """The sink C = gated activation(alpha · sums): each element of C is made from two adjacent columns of sums.
    ``out``: the type of half an element of C (``dtypes.HALVES``)."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"store_gated"}

    @property
    def array_out(self) -> str:
        return self.out.removeprefix("half_")


def is_gated(epilogue: str) -> bool:
    """True if an operation of the epilogue makes one element of C from two sums."""
    return any(epilogue_op(name).gated for name in split_epilogue(epilogue))


@dataclass(frozen=True, kw_only=True)
class ValueSink:
    """A sink that computes values of each result. The values are expressions; their variable ``accum`` is the reduction
    of a pair (i, j).

    ``out``: the type of C; ``arithmetic``: the type of the reduction; ``elements``, ``vectors``, ``scalars``: the
    arrays and numbers that the values read; ``when``: the condition of the pairs (i, j) in the index set, None: all
    pairs; ``mirrored``: True if the reduction of (i, j) is also that of (j, i), so that kernels reduce the pairs with i
    ≤ j and compute the values of both pairs; ``ascending``: names of vectors whose elements ascend, so that their
    elements at the corners of a tile bound those of its rows or columns.
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
    stored: ClassVar[tuple[str, ...]] = ()
    scalar_bias: ClassVar[bool] = False
    batched_bias: ClassVar[bool] = False

    @property
    def roots(self) -> tuple[Node, ...]:
        """The expressions of the values."""
        raise NotImplementedError

    @property
    def expressions(self) -> tuple[Node, ...]:
        """All expressions that kernels compute from results."""
        return self.roots

    @property
    def taken(self) -> Node | None:
        """The condition of the pairs whose values the sink takes. None: all pairs."""
        return self.when

    @property
    def guard(self) -> Node | None:
        """The condition of the pairs that are both computed and taken. None: all pairs."""
        return self.guarded()

    def guarded(self, exchanged: bool = False) -> Node | None:
        """The condition ``guard``; ``exchanged``: the condition for pairs (i, j) whose reduction is that of (j, i)."""
        return self._of_half(self.taken, exchanged)

    @property
    def computed(self) -> Node | None:
        """The condition of the pairs whose reduction kernels must compute. None: all pairs."""
        return self._of_half(self.when)

    def _of_half(self, condition: Node | None, exchanged: bool = False) -> Node | None:
        """``condition``, and, if results are mirrored, i ≤ j; ``exchanged``: the other half, j < i."""
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
        """True if the values or the guard read the extent of k."""
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
    """The sink C = value, where the value is an expression of each result."""

    value: Node

    needs: ClassVar[frozenset[str]] = frozenset(("store_value",))
    template: ClassVar[str] = "epilogue/store_value.mako"

    @property
    def roots(self) -> tuple[Node, ...]:
        return (as_stored(self.value, self.stored_type),)


def as_stored(value: Node, stored: str) -> Node:
    """``value`` converted to ``stored``, the type of the stored registers. Integers are not extended first, because the
    store truncates them to their bits; truth values become the integers 0 and 1."""
    if stored == value.type:
        return value
    inner = value.arguments[0] if value.op == "cast" else value
    return inner if inner.type == stored else node("cast", stored, value)


@dataclass(frozen=True, kw_only=True)
class SelectValues(ValueSink):
    """The sink that appends the values of selected results to lists, in any order, and counts these results.
    ``condition``: selects the results.

    ``values``: the first value goes to the list C, the others to ``lists``. The array ``count``, one 64-bit integer, is
    the number of selected results. It may exceed the scalar ``capacity``, the number of elements of each list.
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
    """The names of ``values`` lists: C, C_1, …"""
    return ("C", *(f"C_{n}" for n in range(1, values)))
