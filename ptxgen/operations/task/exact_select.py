"""The launches of exact lists of pairs by a threshold of f32 sums: tensor cores list candidates, and a kernel computes
the sums of the candidates in f32.

The launches, in their order: copies of operands that are not K-major; the sums of weighted squares of the rows of A and
of the columns of B; the list of candidates; the sums of the candidates. No launch waits for the host. If there are more
candidates than the list has room for, the last launch computes nothing, and the caller must compute all pairs with the
f32 kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ptxgen.codegen.listed_pairs import PAIRS, ROOM
from ptxgen.codegen.nearest_pairs import NearestPairs
from ptxgen.codegen.pair_products import PairProducts
from ptxgen.codegen.render import render_pairs
from ptxgen.codegen.source import Source
from ptxgen.lowering.lower import lower
from ptxgen.lowering.sink import SelectValues
from ptxgen.operations.task import exact_filter
from ptxgen.operations.task.exact_filter import BOUNDS, candidates_of
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.symmetry import joined
from ptxgen.operations.task.vector_values import separated
from ptxgen.problem.device import Device
from ptxgen.runtime.driver import Driver, Kernel

#: a function that launches a problem: its arguments are the addresses of the arrays, in order, and a stream
Launch = Callable[[tuple[int, ...], int], object]
COUNT = PAIRS[2]


@dataclass(frozen=True)
class Stage:
    """One launch of an exact filter, which computes a task. ``arrays``: the names, in ``ExactSelect``, of its arrays;
    ``scalars``: its numbers, or the names of numbers of the original task."""

    problem: Task
    arrays: tuple[str, ...]
    scalars: Mapping[str, Any]

    def numbers(self, scalars: Mapping[str, float]) -> dict[str, float]:
        """The numbers of the stage. ``scalars``: those of the original task."""
        return {name: scalars[x] if isinstance(x, str) else x for name, x in self.scalars.items()}


@dataclass(frozen=True)
class Operands:
    """The operands of a task as the stages of a filter read them, and the stages up to the list of candidates.
    ``kmajor``: the task with K-major operands; ``names``: role -> name of the array; ``stages``, ``scratch``: as in
    ``ExactSelect``."""

    kmajor: Task
    names: dict[str, str]
    stages: list[Stage]
    scratch: dict[str, int]

    @classmethod
    def of(cls, p: Task) -> Operands:
        # one array has two names: candidates are of any pairs
        p = replace(p, text=canonical(p.roles.program), compute="f32")
        stages, names, scratch = list[Stage](), dict[str, str](), dict[str, int]()
        for role, letter, rows in (("A", "N", p.m), ("B", "T", p.n)):
            names[role] = role
            if p.layout["AB".index(role)] != letter:
                names[role] = f"{role}_rows"
                scratch[names[role]] = rows * p.k
                stages.append(stage_of(exact_filter.transposed(), rows, p.k, {"X": role, "C": names[role]}))
        aligned = [16 if names[role] != role else at for role, at in zip("AB", (p.aligned_a, p.aligned_b), strict=True)]
        fields: dict[str, Any] = {"lda": p.k, "ldb": p.k, "aligned_a": aligned[0], "aligned_b": aligned[1]}
        return cls(replace(p, layout="NT", **fields), names, stages, scratch)

    def add_bounds(self, program: Program, roundings: int) -> None:
        """Adds the stages that compute the arrays of bounds that a program reads. ``roundings``: the number of
        roundings of an f32 sum."""
        p = self.kmajor
        weights = exact_filter.weights(p.k, roundings, exact_filter.is_distance(p.roles.program))
        for name, bounds in BOUNDS.items():
            if name not in self.scratch and any(x.name == name for x in program.inputs):
                self.scratch[name] = rows = p.m if bounds.role == "A" else p.n
                arrays = {"X": self.names[bounds.role], "C": name}
                self.stages.append(stage_of(bounds.program, rows, p.k, arrays, weights))

    def add_vector_values(self, *programs: Program) -> list[Program]:
        """Adds the stages that compute values of vectors alone, and returns the programs that read them."""
        made, values = separated(programs)
        inputs = {x.name: x for program in programs for x in program.inputs}
        for x in values:
            self.scratch[x.name] = rows = self.kmajor.m if x.axis == "i" else self.kmajor.n
            program = x.program(list(inputs.values()))
            names = {each.name: self.names.get(each.name, each.name) for each in program.inputs}
            arrays = {**names, "X": next(names[each.name] for each in program.inputs if each.uses), "C": x.name}
            numbers = {each.name: each.name for each in program.inputs if not each.uses}
            self.stages.append(stage_of(program, rows, 1, arrays, numbers))
        return made

    def add_candidates(self, program: Program, room: int) -> None:
        """Adds the stage that lists candidates, with room for ``room`` of them."""
        self.scratch.update({PAIRS[0]: room, PAIRS[1]: room, COUNT: 2})
        at = {"C": PAIRS[0], "C_1": PAIRS[1], SelectValues.COUNT: COUNT}
        self.add_product(program, at, {SelectValues.CAPACITY.name: room}, self.names, capacity=room)

    def add_product(
        self,
        program: Program,
        results: Mapping[str, str],
        numbers: Mapping[str, Any],
        names: Mapping[str, str],
        **fields: Any,
    ) -> None:
        """Adds the stage of a program whose products are computed in tf32. ``results``: role -> array of each result;
        ``numbers``: the numbers that the stage passes; ``names``: other names of arrays; ``fields``: fields of the
        problem that differ from ``kmajor``."""
        p, roles = self.kmajor, roles_of(program)
        own = {"n": p.n, "lda": p.lda, "ldb": p.ldb, "aligned_a": p.aligned_a, "aligned_b": p.aligned_b, **fields}
        q = Task(m=p.m, k=p.k, layout="NT", dtype="f32", compute="tf32", text=Task.text_of(roles), **own)
        at = {**results, **{u.role: names.get(u.name, u.name) for u in roles.uses}}
        scalars = {role: name for role, name, _ in roles.scalars}
        self.stages.append(Stage(q, tuple(at[name] for name in q.arrays), {**scalars, **numbers}))


@dataclass(frozen=True)
class ExactSelect:
    """The launches of an exact filter for a task that lists pairs. ``stages``: the launches up to the list of
    candidates; ``pairs``: the kernel of the candidates; ``renamed``: role -> array for arrays with other names;
    ``scratch``: name -> number of 4-byte elements of each further array."""

    problem: Task
    stages: tuple[Stage, ...]
    pairs: PairProducts | NearestPairs
    renamed: Mapping[str, str]
    scratch: Mapping[str, int]

    @classmethod
    def of(cls, p: Task, d: Device) -> ExactSelect | None:
        """The launches of a task; None: they do not pay, or the task is not one that a filter computes."""
        if not p.selected or p.compute not in exact_filter.COMPUTED or not p.algebra or p.batch != 1:
            return None
        if not exact_filter.pays(p, d):
            return None
        program = candidates_of(p.roles)
        if program is None:
            return None
        program = joined(program, False) if p.mirrored else program
        made = Operands.of(p)
        pairs = PairProducts(lower(made.kmajor), d)
        made.add_bounds(program, pairs.roundings(p.k))
        (program,) = made.add_vector_values(program)
        made.add_candidates(program, exact_filter.room(p))
        return cls(made.kmajor, tuple(made.stages), pairs, made.names, made.scratch)

    @property
    def room(self) -> int:
        """The most candidates."""
        return self.scratch[PAIRS[0]]

    @cached_property
    def source(self) -> Source:
        """The kernel that computes the sums of candidates."""
        return render_pairs(self.pairs)

    def launch(
        self,
        driver: Driver,
        kernel: Kernel,
        make_launch: Callable[[Task, Mapping[str, float]], Launch],
        addresses: Mapping[str, int],
        scalars: Mapping[str, float],
        stream: int = 0,
    ) -> None:
        """Queues the launches. ``kernel``: the loaded kernel of ``source``; ``make_launch``: returns the launch of a
        problem with given numbers; ``addresses``: the addresses of the arrays of the task and of ``scratch``;
        ``scalars``: the numbers of the task."""
        for stage in self.stages:
            launch = make_launch(stage.problem, stage.numbers(scalars))
            launch(tuple(addresses[name] for name in stage.arrays), stream)
        self.launch_pairs(driver, kernel, addresses, scalars, stream)

    def launch_pairs(
        self,
        driver: Driver,
        kernel: Kernel,
        addresses: Mapping[str, int],
        scalars: Mapping[str, float],
        stream: int = 0,
    ) -> None:
        """Queues the launches that follow the stages. The arguments are those of ``launch``."""
        values = {**scalars, **addresses, **{role: addresses[name] for role, name in self.renamed.items()}}
        values[ROOM.name] = self.room
        for step in self.pairs.steps(lower(self.problem), self.room):
            driver.launch(kernel, step, step.pack(values), stream)


def stage_of(
    program: Program, m: int, n: int, arrays: Mapping[str, str], numbers: Mapping[str, Any] | None = None
) -> Stage:
    """The stage of a program with M×N results and no steps over k: its operands have no elements. ``arrays``: name in
    the program -> array; ``numbers``: the values of its scalars, or the names of numbers of the original task."""
    roles = roles_of(program)
    p = Task(m, n, 0, "NN", "f32", text=Task.text_of(roles))
    at = {"A": arrays["X"], "B": arrays["X"], "C": arrays["C"]} | {u.role: arrays[u.name] for u in roles.others}
    scalars = {role: numbers[name] for role, name, _ in roles.scalars} if numbers else {}
    return Stage(p, tuple(at[name] for name in p.arrays), scalars)
