"""The states of a reduction of rows or columns: their registers, their entries in memory, how they are joined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile
from ptxgen.expr.instructions import literal, register_class
from ptxgen.expr.node import Node, variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.states import LOGSUMEXP, State, StateReduction


@dataclass(frozen=True)
class RowStates(Part):
    """The part that reduces the results of each row or column to a state. ``vec``: results of a vector. A thread has
    one state of a row, or ``vec`` states of adjacent columns. ``exchanged``: of results (j, i) that are taken from the
    sums of (i, j)."""

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
    def of_rows(self) -> bool:
        """True if rows of the tile are reduced."""
        return (self.sink.axis == "i") != self.exchanged

    @cached_property
    def mirror(self) -> RowStates | None:
        """The states of results (j, i) that are taken from the sums of (i, j): columns of the tile if these are of
        rows. None: there are none."""
        return replace(self, exchanged=True) if self.sink.mirrored else None

    @property
    def count(self) -> int:
        """States of a thread."""
        return 1 if self.of_rows else self.vec

    # ---- registers

    def _tiles(self, name: str, count: int) -> list[Tile]:
        """A tile for each component."""
        types = self.reduction.types
        return [Tile(f"{name}{n}_", register_class(t), (count,)) for n, t in enumerate(types)]

    @cached_property
    def state(self) -> list[Tile]:
        return self._tiles("state", self.count)

    @cached_property
    def other(self) -> list[Tile]:
        """A state that is joined with another."""
        return self._tiles("other", 1)

    @property
    def declarations(self) -> list[str]:
        """The declarations of the registers of states, and of those that joining takes."""
        used = Temporaries("r")
        self._add(0, "%value", "%index", "", used)
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
        """The pair (the type of an access, offset in an entry) of each component."""
        at, components = 0, []
        for t in self.reduction.types:
            components.append((t, at))
            at += type_of(t).bits // 8
        return components

    @property
    def entry_bytes(self) -> int:
        """Bytes of a state: a power of two."""
        size = sum(type_of(t).bits // 8 for t in self.reduction.types)
        return 1 << (size - 1).bit_length()

    # ---- instructions

    def _state(self, q: int) -> dict[Node, str]:
        return {variable(f"state{n}", t): self.state[n][q] for n, t in enumerate(self.reduction.types)}

    @property
    def _other(self) -> dict[Node, str]:
        return {variable(f"other{n}", t): self.other[n][0] for n, t in enumerate(self.reduction.types)}

    def clear(self, q: int) -> list[str]:
        """The instructions that make state ``q`` that of no value."""
        return [
            f"mov.{tile.ptx_type} {tile[q]}, {literal(x)};"
            for tile, x in zip(self.state, self.reduction.identity, strict=True)
        ]

    def add(self, q: int, value: str, index: str, guard: str) -> list[str]:
        """The instructions that join state ``q`` with a value. ``index``: the register of its position, which is
        greater than that of the values before."""
        return self._add(q, value, index, guard, Temporaries("r"))

    def _add(self, q: int, value: str, index: str, guard: str, used: Temporaries) -> list[str]:
        x, i = variable("value", self.reduction.type), variable("index", "s32")
        roots = self.reduction.added(tuple(self._state(q)), x, i)
        return self._assigned(q, roots, {x: value, i: index}, guard, used)

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
        """True if exponentials are approximate: errors of those that are far below 1 do not matter beside the 1 of the
        greatest value."""
        return self.reduction.op == LOGSUMEXP

    def finish(self, result: str) -> list[str]:
        """The instructions that compute the result of the first state."""
        return self._finish(result, Temporaries("r"))

    def _finish(self, result: str, used: Temporaries) -> list[str]:
        x = self._state(0)
        root = self.reduction.finished(tuple(x))
        return statements([root], x, [result], sm=self.sm, temporaries=used).lines

    def exchange(self, distance: int, q: int = 0) -> list[str]:
        """The instructions that give ``other`` state ``q`` of the lane at a distance."""
        lines: list[str] = []
        for mine, got in zip(self.state, self.other, strict=True):
            lines += shuffled(mine.ptx_type, got[0], mine[q], "bfly", str(distance))
        return lines

    @property
    def extent(self) -> str:
        """The register of the extent that has states."""
        return "%M" if self.of_rows else "%N"

    @property
    def both(self) -> list[RowStates]:
        """These states, and those of results (j, i)."""
        return [self] if self.mirror is None else [self, self.mirror]

    @property
    def reduced(self) -> str:
        """What of the tile is reduced."""
        return "rows" if self.of_rows else "columns"

    @property
    def pair(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Row and column of a result."""
        return (("%c_col", 0), ("%c_row", 0)) if self.exchanged else (("%c_row", 0), ("%c_col", 0))

    @property
    def positions(self) -> list[str]:
        """The instruction that gives the position of each value of a vector in what is reduced."""
        return [
            f"add.u32 %position, %c_col, {q};" if self.of_rows else "mov.u32 %position, %c_row;"
            for q in range(self.vec)
        ]

    @property
    def direct_extents(self) -> list[str]:
        """The extent of the parts of results (i, j), before those of results (j, i)."""
        return [self.extent] if self.exchanged else []

    @property
    def after_empty(self) -> str:
        """What follows the states of a tile that has no value."""
        return "bra NEXT_STATES" if self.exchanged else "ret"


def shuffled(ptx_type: str, to: str, value: str, mode: str, lane: str) -> list[str]:
    """The instructions that give a register the value of another lane. ``ptx_type``: its PTX type; those of 64 bits are
    exchanged in halves, by the registers ``%half0``, ``%half1``."""
    if ptx_type in ("f64", "b64"):
        halves = [f"shfl.sync.{mode}.b32 %half{n}, %half{n}, {lane}, 31, 0xffffffff;" for n in (0, 1)]
        return [f"mov.b64 {{%half0, %half1}}, {value};", *halves, f"mov.b64 {to}, {{%half0, %half1}};"]
    return [f"shfl.sync.{mode}.b32 {to}, {value}, {lane}, 31, 0xffffffff;"]


def results_of(sink: RowReduce, m: int, n: int) -> tuple[int, int]:
    """The pair (results, values that each reduces) of a reduction of M×N values."""
    return (m, n) if sink.axis == "i" else (n, m)
