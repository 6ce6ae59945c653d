"""The problems that calls compute in place of a join: the order of keys, the permuted arrays, and the product of the
permuted arrays."""

from __future__ import annotations

from typing import Any

from ptxgen.operations.task import joins
from ptxgen.operations.task.joins import Join, join_of
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Aggregate, Program, RowReduce, Store
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.sum_parts import NOTHING
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.operation import Part, Parts

RESULTS = "results in the order of keys"


def parts_of_join(p: Task) -> Parts | None:
    """The problems that a call on GPU arrays computes in place of a task. None: a call computes the task itself."""
    join = join_of(p.roles) if p.algebra and not p.sorted_keys and p.batch == 1 else None
    packed = all(ld == columns for ld, (_, columns) in zip((p.lda, p.ldb), p.stored, strict=False))
    output = p.program.outputs[0]
    apart = (isinstance(output, Store) and p.ldc != p.n) or (isinstance(output, Aggregate) and p.deterministic)
    extents = {"i": p.m, "j": p.n, "k": p.k}
    if join is None or not packed or apart or p.layout != p.roles.layout or not joins.pays(p.roles, extents, p.compute):
        return None
    return _Steps(p, join).parts()


class _Steps:
    """Collects the parts of a join, in the order in which calls compute them. ``memory``: name -> bytes of an array
    that one part writes and a later part reads; ``permuted``: array of the program of permuted arrays -> its name in
    ``memory``."""

    def __init__(self, p: Task, join: Join) -> None:
        self.p, self.join = p, join
        self.extents = {"i": p.m, "j": p.n, "k": p.k}
        self.steps: list[Part] = []
        self.memory, self.permuted = {NOTHING: 16}, dict[str, str]()

    def parts(self) -> Parts:
        p, join = self.p, self.join
        for axis, role in zip("ij", join.keys, strict=True):
            n, program = self.extents[axis], joins.positions(p.roles.use(role).dtype)
            self._add(f"positions of {axis}", program, (n, n), 4 * n, {joins.VALUES: role})
        moved = 0
        for x in join.program.inputs:
            if x.name in (joins.ROWS, joins.COLUMNS):
                self._indices(x.name, x.uses[0][0])
            elif x.uses:
                axes = p.roles.use(x.name).axes
                shape = tuple(self.extents[axis] for axis in axes)
                size = dtype(x.dtype).bytes * shape[0] * (*shape, 1)[1]
                given = zip((joins.POSITION, joins.OTHER), axes, strict=False)
                arrays = {name: f"positions of {axis}" for name, axis in given if axis != "k"}
                name = f"{x.name} in the order of keys"
                self._add(name, joins.permuting(x.dtype, axes), (*shape, 1)[:2], size, {joins.VALUES: x.name, **arrays})
                self.permuted[x.name] = name
                moved += size
        self._main()
        return Parts(
            tuple(self.steps), self.memory, moved, f"{len(self.steps)} kernels: order of keys, permuted arrays, join"
        )

    def _indices(self, name: str, axis: str) -> None:
        """Adds the part that puts the indices of an axis in the order of keys."""
        n = self.extents[axis]
        self._add(name, joins.inverse(), (n, 1), 4 * n, {joins.POSITION: f"positions of {axis}"})
        self.permuted[name] = name

    def _main(self) -> None:
        p, axis = self.p, self.join.scattered
        output = self.join.program.outputs[0]
        fields: dict[str, Any] = {"capacity": p.capacity, "deterministic": p.deterministic, "compute": p.compute}
        if not isinstance(p.program.outputs[0], Store):
            fields["groups"] = p.groups
        else:
            fields["groups"] = f"{p.m},{p.n}"
        roles = roles_of(self.join.program)
        problem = Task(p.m, p.n, p.k, text=Task.text_of(roles), sorted_keys=True, **fields)
        arrays = {u.role: self.permuted[u.name] for u in roles.uses} | {name: name for name in problem.outputs}
        if not axis:
            self.steps.append(Part("join", problem, arrays))
            return
        assert isinstance(output, RowReduce)
        n = self.extents[axis]
        self.memory[RESULTS] = n * problem.output.bytes
        self.steps.append(Part("join", problem, {**arrays, "C": RESULTS}))
        rows = joins.ROWS if axis == "i" else joins.COLUMNS
        if rows not in self.permuted:
            self._indices(rows, axis)
        given = {joins.VALUES: RESULTS, joins.POSITION: self.permuted[rows]}
        self._add("C", joins.permuting(problem.output.name, ("i",)), (n, 1), 0, given)

    def _add(self, name: str, program: Program, shape: tuple[int, ...], size: int, arrays: dict[str, str]) -> None:
        """Adds a part that computes a program of pairs. ``shape``: its extents; ``size``: the bytes of its result, 0:
        the result is an array of the task; ``arrays``: array of the program -> array of the task, or name in
        ``memory``."""
        roles = roles_of(program)
        m, n = shape
        stored = not isinstance(program.outputs[0], RowReduce)
        problem = Task(m, n, 0, text=Task.text_of(roles), groups=f"{m},{n}" if stored else "")
        given = {u.role: arrays[u.name] for u in roles.others}
        self.steps.append(Part(name, problem, {"A": NOTHING, "B": NOTHING, "C": name, **given}))
        if size:
            self.memory[name] = size
