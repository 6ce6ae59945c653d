"""Reduction of values into the elements of C that group keys select: runs of equal keys are reduced in registers, and
then written by atomic instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.parts.result_values import ReadArray, ResultValues
from ptxgen.codegen.parts.row_states import shuffled
from ptxgen.codegen.registers import Tile
from ptxgen.expr.instructions import literal, register_class
from ptxgen.expr.node import Node, constant, node, variable, variables
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.aggregate import Aggregate
from ptxgen.lowering.kernel_problem import KernelProblem

VALUE, ROW, COLUMN, WHEN = range(4)  #: indices of the sink's expressions: value, row key, column key, condition
_SUMS = {"f32": "f32", "f64": "f64", "s32": "u32", "u32": "u32", "s64": "u64", "u64": "u64"}
_BITS = {"&": "and", "|": "or", "^": "xor"}


@dataclass(frozen=True)
class GroupReduction(Part):
    """The part that reduces results with equal keys. ``values``: the expressions of the sink. For each result of a
    vector, a thread keeps a run: the reduced value of successive pairs with equal keys, before it is written."""

    problem: KernelProblem
    sm: int
    values: ResultValues

    @property
    def sink(self) -> Aggregate:
        sink = self.problem.sink
        assert isinstance(sink, Aggregate)
        return sink

    @property
    def type(self) -> str:
        return self.sink.value.type

    @property
    def bytes(self) -> int:
        return type_of(self.type).bits // 8

    @property
    def ptx_type(self) -> str:
        """The PTX type of a register with a value."""
        return register_class(self.type)

    @property
    def vec(self) -> int:
        return self.values.vec

    @property
    def conditional(self) -> bool:
        """True if only some pairs are reduced."""
        return self.values.guard is not None

    @cached_property
    def mirror(self) -> GroupReduction | None:
        """The reduction of the results (j, i), if they are computed from the sums of (i, j); None: they are not."""
        values = self.values.mirror
        return None if values is None else replace(self, values=values)

    @cached_property
    def run(self) -> Tile:
        return Tile("run", self.ptx_type, (self.vec,))

    @property
    def identity(self) -> str:
        identity = OPERATORS[self.sink.op].identity
        assert identity is not None
        return literal(constant(identity(type_of(self.type)), self.type))

    @property
    def declarations(self) -> list[str]:
        """The declarations of the temporary registers of ``join``."""
        used = Temporaries("g")
        self._join("%into", "%other", "", used)
        return used.declarations

    def join(self, into: str, other: str, guard: str = "") -> list[str]:
        """The instructions that reduce ``other`` into the register ``into``."""
        return self._join(into, other, guard, Temporaries("g"))

    def _join(self, into: str, other: str, guard: str, used: Temporaries) -> list[str]:
        x, y = variable("x", self.type), variable("y", self.type)
        root = node(self.sink.op, self.type, x, y)
        return statements([root], {x: into, y: other}, [into], sm=self.sm, temporaries=used, guard=guard).lines

    def take(self, q: int, guard: str) -> list[str]:
        """The instructions that set the predicates of result ``q``: ``%take{q}`` if its pair is reduced, ``%reject`` if
        a key of the pair is out of range."""
        row, column = self.values.of(ROW)[q], self.values.of(COLUMN)[q]
        lines = [
            f"setp.lt.u32 %take{q}, {row}, %group_rows;",
            f"setp.lt.and.u32 %take{q}, {column}, %group_columns, %take{q};",
            f"not.pred %reject, %take{q};",
        ]
        conditions = [guard.strip(" @")] if guard else []
        conditions += [self.values.of(WHEN)[q]] if self.conditional else []
        for p in conditions:
            lines += [f"and.pred {x}, {x}, {p};" for x in (f"%take{q}", "%reject")]
        return lines

    # ---- atomic instructions

    @property
    def atomics(self) -> list[tuple[str, str]]:
        """The atomic instructions that reduce ``%emitted`` into memory: guard, and operation with type. Empty: a
        compare-and-swap loop is used."""
        op, bits = self.sink.op, type_of(self.type).bits
        if op == "+":
            return [("%emit", f"add.{_SUMS[self.type]}")]
        if op in _BITS:
            return [("%emit", f"{_BITS[op]}.b{bits}")]
        if op in ("min", "max"):
            if not type_of(self.type).floating:
                return [("%emit", f"{op}.{self.type}")]
            # floats are ordered as integers with sign, those below zero in reverse as integers without sign
            other = "max" if op == "min" else "min"
            return [("%plus", f"{op}.s{bits}"), ("%minus", f"{other}.u{bits}")]
        return []

    @property
    def splits_sign(self) -> bool:
        """True if positive and negative values need different atomic instructions."""
        return len(self.atomics) > 1

    @property
    def nan(self) -> str:
        """The bits of the NaN that the atomic min or max of floats stores: no later value replaces them."""
        bits = type_of(self.type).bits
        word = (1 << bits - 1) - 1 if self.sink.op == "max" else (1 << bits) - 1
        return f"0x{word:X}"

    @property
    def bits_type(self) -> str:
        return f"b{8 * self.bytes}"

    # ---- in order

    def key(self, axis: str) -> Node:
        """The key that depends on an axis."""
        row, column = self.sink.keys
        return row if (axis == "j") == self.sink.transposed else column

    def extent(self, axis: str) -> str:
        """The kernel parameter with the number of groups of the axis's key."""
        return "group_rows" if (axis == "j") == self.sink.transposed else "group_columns"

    def key_vectors(self, axis: str) -> list[ReadArray]:
        """The arrays that the key of an axis reads; empty: the key is computed from the index."""
        names = variables(self.key(axis))
        return [x for x in self.values.arrays if x.axes == axis and x.element.value in names]

    def key_lines(self, axis: str, numbers: Mapping[Node, str] = MappingProxyType({})) -> list[str]:
        """The instructions that compute ``%key``, the key of an axis at ``%index``. ``numbers``: the registers of
        expressions that are equal for all results."""
        return self._key(axis, Temporaries("k"), numbers)

    def key_temporaries(self, axis: str, numbers: Mapping[Node, str] = MappingProxyType({})) -> list[str]:
        used = Temporaries("k")
        self._key(axis, used, numbers)
        return used.declarations

    def _key(self, axis: str, used: Temporaries, numbers: Mapping[Node, str]) -> list[str]:
        known = {**numbers, variable(axis, "s32"): "%index"}
        known |= {x.element: f"%{x.name}_at" for x in self.key_vectors(axis)}
        return statements([self.key(axis)], known, ["%key"], sm=self.sm, temporaries=used).lines

    def exchange(self, to: str, value: str, distance: int) -> list[str]:
        """The instructions that set ``to`` to the register ``value`` of the lane whose number differs by XOR with
        ``distance``."""
        return shuffled(self.ptx_type, to, value, "bfly", str(distance))

    @property
    def bits(self) -> int:
        return 8 * self.bytes

    @property
    def added(self) -> str:
        """The source register of the atomic instructions."""
        return "%bits" if self.splits_sign else "%emitted"

    @property
    def offsets(self) -> range:
        """The byte offset of each value of a vector."""
        return range(0, self.vec * self.bytes, self.bytes)

    @property
    def extent_of(self) -> dict[str, str]:
        """Axis -> the kernel parameter with the number of groups of its key."""
        return {axis: self.extent(axis) for axis in "ij"}

    @property
    def none_taken(self) -> list[str]:
        """The instruction that clears %taken, the bits of the pairs that are reduced; none if all pairs are."""
        return ["mov.b32 %taken, 0;"] if self.conditional else []

    @property
    def runs(self) -> str:
        """The slot that reduces the values of pairs, or stores them in order."""
        return "epilogue/ordered_values.mako" if self.sink.ordered else "epilogue/value_runs.mako"
