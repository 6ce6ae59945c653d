"""The states of a reduction of rows or columns: their registers, their storage in memory, and how states are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile
from ptxgen.expr.instructions import literal, register_class
from ptxgen.expr.node import Node, constant, variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.states import INDEX, LOGSUMEXP, NO_INDEX, POSITIONS, State, StateReduction


@dataclass(frozen=True)
class RowStates(Part):
    """The part that reduces the results of each row, or of each column, to a state. A thread has one state of a row, or
    ``vec`` states of adjacent columns. ``vec``: results of a vector; ``exchanged``: True for results (j, i) that are
    computed from the sums of (i, j)."""

    problem: KernelProblem
    sm: int
    vec: int
    exchanged: bool = False

    @property
    def sink(self) -> RowReduce:
        sink = self.problem.sink
        assert isinstance(sink, RowReduce)
        return sink

    @cached_property
    def reduction(self) -> StateReduction:
        return self.sink.reduction

    @property
    def output(self) -> str:
        """The name of the array with the results."""
        return "C"

    @property
    def result_bytes(self) -> int:
        """The number of bytes of a result."""
        return self.problem.output.bytes

    @property
    def mirrored(self) -> bool:
        """True if results (j, i) have states of their own, computed from the sums of (i, j)."""
        return self.sink.mirrored

    def results(self, m: int, n: int) -> tuple[int, int]:
        """The number of results, and of values per result, of a reduction of M×N values."""
        return (m, n) if self.sink.axis == "i" else (n, m)

    @property
    def of_rows(self) -> bool:
        """True if rows of the tile are reduced."""
        return (self.sink.axis == "i") != self.exchanged

    @cached_property
    def mirror(self) -> RowStates | None:
        """The states of results (j, i), if they are computed from the sums of (i, j): states of the tile's columns if
        these are of its rows, and vice versa. None: they are not."""
        return replace(self, exchanged=True) if self.mirrored else None

    @property
    def count(self) -> int:
        """The number of states of a thread."""
        return 1 if self.of_rows else self.vec

    # ---- registers

    def _tiles(self, name: str, count: int) -> list[Tile]:
        """The registers of ``count`` states: one tile for each component of a state."""
        types = self.reduction.types
        return [Tile(f"{name}{n}_", register_class(t), (count,)) for n, t in enumerate(types)]

    @cached_property
    def state(self) -> list[Tile]:
        return self._tiles("state", self.count)

    @cached_property
    def other(self) -> list[Tile]:
        """The registers of the state that is joined to another."""
        return self._tiles("other", 1)

    @property
    def declarations(self) -> list[str]:
        """The declarations of the registers of states, and of temporary registers."""
        used = Temporaries("r")
        self._add(0, "%value", "%index", "", used)
        if self.together > 1:
            self._add_together(0, ["%value"] * self.together, used)
        self._join(0, used)
        self._finish("%result", used)
        return [tile.declaration for tile in (*self.state, *self.other)] + used.declarations

    @property
    def result_type(self) -> str:
        """The PTX type of a register with the result."""
        return register_class(self.reduction.result)

    # ---- entries in memory

    @cached_property
    def components(self) -> list[tuple[str, int]]:
        """For each component of a state: the type suffix of its access, and its byte offset in a stored state."""
        at, components = 0, []
        for t in self.reduction.types:
            components.append((t, at))
            at += type_of(t).bits // 8
        return components

    @property
    def entry_bytes(self) -> int:
        """The number of bytes of a stored state, rounded up to a power of two."""
        size = sum(type_of(t).bits // 8 for t in self.reduction.types)
        return 1 << (size - 1).bit_length()

    # ---- instructions

    def _state(self, q: int) -> dict[Node, str]:
        return {variable(f"state{n}", t): self.state[n][q] for n, t in enumerate(self.reduction.types)}

    @property
    def _other(self) -> dict[Node, str]:
        return {variable(f"other{n}", t): self.other[n][0] for n, t in enumerate(self.reduction.types)}

    def clear(self, q: int) -> list[str]:
        """The instructions that set state ``q`` to the identity, the state of no value."""
        return [
            f"mov.{tile.ptx_type} {tile[q]}, {literal(x)};"
            for tile, x in zip(self.state, self.reduction.identity, strict=True)
        ]

    def add(self, q: int, value: str, index: str, guard: str) -> list[str]:
        """The instructions that add a value to state ``q``. ``index``: the register of the value's position; positions
        of successive values ascend."""
        return self._add(q, value, index, guard, Temporaries("r"))

    def _add(self, q: int, value: str, index: str, guard: str, used: Temporaries) -> list[str]:
        x, i = variable("value", self.reduction.type), variable("index", "s32")
        roots = self.reduction.added(tuple(self._state(q)), x, i)
        return self._assigned(q, roots, {x: value, i: index}, guard, used)

    @property
    def together(self) -> int:
        """The number of values that are added to a state at once; 1: one after the other."""
        return 1

    def add_together(self, q: int, values: Sequence[str]) -> list[str]:
        """The instructions that add values without positions to state ``q``."""
        return self._add_together(q, values, Temporaries("r"))

    def _add_together(self, q: int, values: Sequence[str], used: Temporaries) -> list[str]:
        return self._add_at(q, values, [constant(NO_INDEX, INDEX)] * len(values), {}, used)

    def _add_at(
        self, q: int, values: Sequence[str], positions: Sequence[Node], known: dict[Node, str], used: Temporaries
    ) -> list[str]:
        """The instructions that add values to state ``q``. ``positions``: their positions, expressions of the variables
        whose registers are ``known``."""
        each = [variable(f"value{n}", self.reduction.type) for n in range(len(values))]
        roots = self.reduction.added_all(tuple(self._state(q)), each, positions)
        return self._assigned(q, roots, {**known, **dict(zip(each, values, strict=True))}, "", used)

    def join(self, q: int) -> list[str]:
        """The instructions that join state ``q`` with ``other``."""
        return self._join(q, Temporaries("r"))

    def _join(self, q: int, used: Temporaries) -> list[str]:
        roots = self.reduction.joined(tuple(self._state(q)), tuple(self._other))
        return self._assigned(q, roots, self._other, "", used)

    def _assigned(self, q: int, roots: State, known: dict[Node, str], guard: str, used: Temporaries) -> list[str]:
        x = self._state(q)
        return statements(
            roots, {**x, **known}, list(x.values()), sm=self.sm, temporaries=used, guard=guard, fast=self.fast
        ).lines

    @property
    def fast(self) -> bool:
        """True if exponentials may be approximate: in logsumexp, the term of the greatest value is exactly 1, beside
        which the errors of other terms are small."""
        return self.reduction.op == LOGSUMEXP

    def finish(self, result: str) -> list[str]:
        """The instructions that compute the result from the thread's first state."""
        return self._finish(result, Temporaries("r"))

    def _finish(self, result: str, used: Temporaries) -> list[str]:
        x = self._state(0)
        root = self.reduction.finished(tuple(x))
        return statements([root], x, [result], sm=self.sm, temporaries=used).lines

    @property
    def moved(self) -> list[str]:
        """The instructions that add %first to the position in the thread's first state, if it has one."""
        if self.reduction.op not in POSITIONS:
            return []
        position = self.state[1][0]
        return [f"setp.ne.s32 %p, {position}, {NO_INDEX};", f"@%p add.s32 {position}, {position}, %first;"]

    def exchange(self, distance: int, q: int = 0) -> list[str]:
        """The instructions that set ``other`` to state ``q`` of the lane whose number differs by XOR with
        ``distance``."""
        lines: list[str] = []
        for mine, got in zip(self.state, self.other, strict=True):
            lines += shuffled(mine.ptx_type, got[0], mine[q], "bfly", str(distance))
        return lines

    @property
    def extent(self) -> str:
        """The register of the number of reduced rows, or columns."""
        return "%M" if self.of_rows else "%N"

    @property
    def both(self) -> list[RowStates]:
        """These states, and their ``mirror`` if there is one."""
        return [self] if self.mirror is None else [self, self.mirror]

    @property
    def reduced(self) -> str:
        """The text ``rows`` or ``columns``: what of the tile is reduced."""
        return "rows" if self.of_rows else "columns"

    @property
    def pair(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The row and the column of a result, each as a register and a constant to add."""
        return (("%c_col", 0), ("%c_row", 0)) if self.exchanged else (("%c_row", 0), ("%c_col", 0))

    @property
    def positions(self) -> list[str]:
        """For each value of a vector, the instruction that sets %position to its index in the reduced row or column."""
        return [
            f"add.u32 %position, %c_col, {q};" if self.of_rows else "mov.u32 %position, %c_row;"
            for q in range(self.vec)
        ]

    @property
    def after_empty(self) -> str:
        """The instruction that ends the work on a tile without values."""
        return "bra NEXT_STATES" if self.exchanged else "ret"


def shuffled(ptx_type: str, to: str, value: str, mode: str, lane: str) -> list[str]:
    """The instructions that set register ``to`` to the register ``value`` of another lane, by ``shfl.sync``.
    ``ptx_type``: the type of the registers; 64-bit values are exchanged in halves, through %half0 and %half1."""
    if ptx_type in ("f64", "b64"):
        halves = [f"shfl.sync.{mode}.b32 %half{n}, %half{n}, {lane}, 31, 0xffffffff;" for n in (0, 1)]
        return [f"mov.b64 {{%half0, %half1}}, {value};", *halves, f"mov.b64 {to}, {{%half0, %half1}};"]
    return [f"shfl.sync.{mode}.b32 {to}, {value}, {lane}, 31, 0xffffffff;"]
