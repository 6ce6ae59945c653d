"""The values that a sink computes from each result: expressions of the result and of elements of other arrays."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile, load_type
from ptxgen.expr.index_sets import INDEX, possible
from ptxgen.expr.instructions import literal, register_class
from ptxgen.expr.node import Node, constant, variable, variables
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.lowering.algebra import ACCUMULATOR, Vector
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import ValueSink
from ptxgen.problem.dtypes import dtype


@dataclass(frozen=True)
class ReadArray:
    """An array that the sink's expressions read. ``axes``: its axes as stored: i, j, ij or ji; ``element``: the
    variable of an element; ``tile``: its registers: one for each result of a vector, or a single one if the axis is
    i."""

    name: str
    axes: str
    element: Node
    vec: int

    @property
    def pitched(self) -> bool:
        """True if the array has a leading dimension."""
        return len(self.axes) > 1

    @property
    def bytes(self) -> int:
        return dtype(self.element.type).bytes

    @property
    def access(self) -> str:
        """The type suffix of a load of an element."""
        return load_type(self.element.type)

    @property
    def ptx_type(self) -> str:
        """The PTX type of a register with an element."""
        return register_class(self.element.type)

    @property
    def zero(self) -> str:
        return literal(constant(0, self.element.type))

    @property
    def offsets(self) -> range:
        """The byte offset of each element of a row."""
        return range(0, self.bytes << 16, self.bytes)

    @cached_property
    def tile(self) -> Tile:
        return Tile(f"{self.name}_at", self.ptx_type, (1 if self.axes == "i" else self.vec,))

    def register(self, q: int) -> str:
        """The register of the element of result ``q`` of a vector."""
        return self.tile[0 if self.axes == "i" else q]


@dataclass(frozen=True)
class ResultValues(Part):
    """The part that computes the expressions of a ``ValueSink`` for a vector of results.

    ``vec``: results of a vector; ``roots``: the expressions; the last one is the condition of accepted results, if
    there is one; ``rows``, ``columns``: extents of the block's tile; ``values``: False leaves out the values;
    ``guards``: False leaves out the condition; ``preinitialises``: True if registers are set before guarded loads write
    them, as in ``CAccess``; ``exchanged``: True for results (j, i) that are computed from the sums of (i, j);
    ``chosen``: the indices of the values; default: all; ``skips``: True if blocks skip tiles without an accepted
    result."""

    problem: KernelProblem
    sm: int
    vec: int
    rows: int
    columns: int
    values: bool = True
    guards: bool = True
    preinitialises: bool = False
    exchanged: bool = False
    chosen: tuple[int, ...] = ()
    skips: bool = True

    @property
    def sink(self) -> ValueSink:
        sink = self.problem.sink
        assert isinstance(sink, ValueSink)
        return sink

    @cached_property
    def read(self) -> list[ReadArray]:
        """The arrays that the values read."""
        vectors = [ReadArray(v.name, v.axis, v.element, self.vec) for v in self.sink.vectors]
        arrays = [*(ReadArray(x.name, x.axes, x.element, self.vec) for x in self.sink.elements), *vectors]
        return [x for x in arrays if x.element.value in variables(*self.roots)]

    @property
    def arrays(self) -> list[ReadArray]:
        """The arrays that are loaded for each vector of results."""
        return self.read

    @property
    def held(self) -> Sequence[ReadArray]:
        """The arrays whose elements are in registers before values are computed."""
        return ()

    @property
    def preinitialised(self) -> list[tuple[str, str, str]]:
        """The registers that are set to zero before guarded loads write them: type, name and literal of zero."""
        if not self.preinitialises:
            return []
        rows = [(x.tile.ptx_type, r, x.element.type) for x in self.arrays for r in x.tile.all]
        return [(ptx_type, r, literal(constant(0, element))) for ptx_type, r, element in rows]

    @property
    def roots(self) -> tuple[Node, ...]:
        values, guard = self.sink.roots if self.values else (), self.guard if self.guards else None
        if self.chosen:
            values = tuple(values[n] for n in self.chosen)
        return values if guard is None else (*values, guard)

    @property
    def guard(self) -> Node | None:
        """The condition of accepted results; None: all results are accepted."""
        return self.sink.guarded(self.exchanged)

    @cached_property
    def mirror(self) -> ResultValues | None:
        """The part for results (j, i), if they are computed from the sums of (i, j); None: they are not."""
        return replace(self, exchanged=True) if self.sink.mirrored else None

    @cached_property
    def condition(self) -> ResultValues:
        """The part that computes only the condition of accepted results."""
        return replace(self, values=False)

    @cached_property
    def taken(self) -> ResultValues:
        """The part that computes only the values of accepted results."""
        return replace(self, guards=False)

    def holds(self, q: int, guard: str) -> str:
        """The instruction that sets %holds if result ``q`` of a vector is accepted. ``guard``: the guard of the bounds,
        as ``@%in_bounds``, or empty."""
        terms = self.conditions(q, guard)
        return f"and.pred %holds, {', '.join(terms)};" if len(terms) > 1 else f"mov.pred %holds, {terms[0]};"

    def conditions(self, q: int, guard: str) -> list[str]:
        """The predicates that are all true if result ``q`` of a vector is accepted. ``guard``: as in ``holds``."""
        terms = [guard.strip().removeprefix("@")] if guard else []
        return terms if self.guard is None else [*terms, self.tiles[-1][q]]

    @cached_property
    def tiles(self) -> list[Tile]:
        """The registers of the values of a vector, one tile for each expression."""
        return [Tile(f"value{n}_", register_class(x.type), (self.vec,)) for n, x in enumerate(self.roots)]

    def of(self, number: int) -> list[str]:
        """The registers of the values of the expression with index ``number``."""
        return self.tiles[number].all

    @cached_property
    def indices(self) -> list[str]:
        """The indices, of i and j, that the expressions read."""
        return [name for name in variables(*self.roots) if name in ("i", "j")]

    # ---- expressions of scalars and extents alone

    @cached_property
    def fixed(self) -> list[tuple[str, str, Node]]:
        """The expressions that are equal for all results, and computed once (in ``setup``): type, register,
        expression."""
        guards = (self.sink.guarded(exchanged) for exchanged in (False, True))
        arrays = [x.element.value for x in self.sink.elements] + [v.element.value for v in self.sink.vectors]
        varying = {ACCUMULATOR, "i", "j", *arrays}
        fixed: dict[Node, None] = {}
        for root in (*self.sink.roots, *(x for x in guards if x is not None)):
            _fixed(root, varying, fixed)
        return [(register_class(x.type), f"%fixed{n}", x) for n, x in enumerate(fixed)]

    @property
    def fixed_temporaries(self) -> list[str]:
        used = Temporaries("f")
        self._fixed_lines(used)
        return used.declarations

    @property
    def fixed_lines(self) -> list[str]:
        return self._fixed_lines(Temporaries("f"))

    def _fixed_lines(self, used: Temporaries) -> list[str]:
        roots, results = [x for _, _, x in self.fixed], [r for _, r, _ in self.fixed]
        return statements(roots, self._numbers, results, sm=self.sm, temporaries=used).lines

    @property
    def _numbers(self) -> dict[Node, str]:
        """The registers of scalars and extents."""
        scalars = {variable(s.name, s.type): f"%{s.name}" for s in self.sink.scalars}
        return scalars | {variable(name, "s32"): f"%{name}" for name in ("M", "N", "K")}

    @cached_property
    def known(self) -> dict[Node, str]:
        """The registers of scalars, extents, and the expressions in ``fixed``."""
        return self._numbers | {x: r for _, r, x in self.fixed}

    # ---- tiles without a result that is taken

    @cached_property
    def reachable(self) -> Node | None:
        """The condition that a tile may have an accepted result. It reads the indices of the tile's corners, the
        elements of ascending vectors there, and the extents. None: every tile may have one, or none is skipped."""
        when = self.sink.computed
        if when is None or not self.skips:
            return None
        ranges = {name: (variable(f"first_{name}", INDEX), variable(f"last_{name}", INDEX)) for name in ("i", "j")}
        ranges |= {name: (variable(name, INDEX),) * 2 for name in ("M", "N", "K")}
        ranges |= {v.element.value: _ends(v) for v in self.sink.vectors if v.name in self.sink.ascending}
        return possible(when, ranges)

    @cached_property
    def corner_keys(self) -> list[ReadArray]:
        """The ascending vectors that ``reachable`` reads at the corners of a tile."""
        read = () if self.reachable is None else variables(self.reachable)
        ends = [v for v in self.sink.vectors if _ends(v)[0].value in read or _ends(v)[1].value in read]
        return [ReadArray(v.name, v.axis, v.element, 1) for v in ends]

    @property
    def reach_lines(self) -> list[str]:
        """The instructions that set %reachable, with the declarations of their registers."""
        assert self.reachable is not None
        names = [f"{end}_{name}" for end in ("first", "last") for name in ("i", "j")] + ["M", "N", "K"]
        used = Temporaries("r")
        known = {variable(name, INDEX): f"%{name}" for name in names}
        known |= {x: f"%{x.value}" for v in self.sink.vectors for x in _ends(v)}
        lines = statements([self.reachable], known, ["%reachable"], sm=self.sm, temporaries=used).lines
        return [*used.declarations, *lines]

    # ---- lines

    @property
    def temporaries(self) -> list[str]:
        """The declarations of the temporary registers of ``lines``."""
        used = Temporaries("v")
        self._lines(["%sum"] * self.vec, used)
        return used.declarations

    def lines(self, sums: Sequence[str]) -> list[str]:
        """The instructions that compute the values of a vector from its sums."""
        return self._lines(sums, Temporaries("v"))

    def _lines(self, sums: Sequence[str], used: Temporaries) -> list[str]:
        out: list[str] = []
        accumulator = variable(ACCUMULATOR, self.sink.arithmetic)
        for q, r in enumerate(sums):
            known = {accumulator: r, variable("i", "s32"): "%index_i", variable("j", "s32"): f"%index_j{q}"}
            known |= self.known
            known |= {x.element: x.register(q) for x in (*self.arrays, *self.held)}
            results = [tile[q] for tile in self.tiles]
            out += statements(self.roots, known, results, sm=self.sm, temporaries=used).lines
        return out

    @property
    def both(self) -> list[ResultValues]:
        """This part, and its ``mirror`` if there is one."""
        return [self] if self.mirror is None else [self, self.mirror]


def _ends(v: Vector) -> tuple[Node, Node]:
    """The variables of the first and the last element of an ascending vector in a tile."""
    return variable(f"first_{v.name}", v.element.type), variable(f"last_{v.name}", v.element.type)


def _fixed(x: Node, varying: Set[str], fixed: dict[Node, None], added: bool = False) -> None:
    """Adds to ``fixed`` the largest subexpressions of ``x`` that read no variable of ``varying``. ``added``: True if
    ``x`` is a term of a sum or difference; a product is then part of a fused multiply-add, and stays in the sum."""
    if not x.arguments:
        return
    names = variables(x)
    if not varying & {*names} and not (added and x.op == "*"):
        if names:
            fixed[x] = None
        return
    for y in x.arguments:
        _fixed(y, varying, fixed, x.op in ("+", "-"))
