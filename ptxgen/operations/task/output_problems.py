"""The problems that calls compute for a task with several outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptxgen.errors import InputError
from ptxgen.operations.gemm.problem import CONTIGUOUS
from ptxgen.operations.task import several
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Aggregate, Output, Program, Scatter, Select, Store, Top
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.top_lists import LOOSE, listing, typical_room
from ptxgen.problem.dtypes import dtype


def problems_of(p: Task) -> dict[str, Task]:
    """Name -> problem, for the problems that a call of a task with several outputs computes; empty: the task has one
    output, which one kernel computes. The problem of an output of best values is a list of the pairs that are not
    behind a bound. Raises InputError if the outputs store matrices both by rows and by columns."""
    program, outputs = p.program, p.program.outputs
    if len(outputs) == 1:
        listed = isinstance(outputs[0], Top) and not p.keeps_best
        return {"list": _direct(p, program, outputs[0])} if listed else {}
    if len({x.axes for x in outputs if isinstance(x, Store)}) > 1:
        raise InputError(
            f"the text {p.text} stores matrices by rows and by columns; a problem has one of them: write a text for"
            " each"
        )
    stored = several.stored_output(program)
    size = p.m * p.n * dtype(program.accumulator).bytes
    if p.k < several.LEAST_K or p.batch != 1 or (stored is None and size > several.MOST_BYTES):
        return {_name(p, x): _direct(p, several.single(program, x), x) for x in outputs}
    first = {"the reduction": _direct(p, several.storing(program), None)} if stored is None else {}
    return first | {
        _name(p, x): _direct(p, several.single(program, x), x)
        if x is stored
        else Task(p.m, p.n, 0, text=_text(several.reading(program, x)), algebra=p.algebra, **_fields(p, x))
        for x in outputs
    }


def _name(p: Task, output: Output) -> str:
    return f"output {p.program.outputs.index(output) + 1}"


def _text(program: Program) -> str:
    if isinstance(program.outputs[0], Top):
        program = listing(program, LOOSE)
    return Task.text_of(roles_of(program))


def _fields(p: Task, output: Output | None) -> dict[str, Any]:
    """The fields of the problem of an output; ``output`` is None for the matrix of the reduction."""
    return {
        "deterministic": p.deterministic,
        "groups": p.groups if isinstance(output, Aggregate | Scatter) else "",
        "capacity": _capacity(p, output),
    }


def _capacity(p: Task, output: Output | None) -> int:
    """The number of elements that the lists of an output have room for; 0: the output is not a list."""
    if isinstance(output, Top):
        return typical_room(p.m * p.n)
    return p.capacity if isinstance(output, Select) else 0


def _direct(p: Task, program: Program, output: Output | None) -> Task:
    """The problem of a program that computes the reduction itself. It has one item if its output is not a matrix."""
    one = {} if isinstance(output, Store) else {"batch": 1, "stride_a": CONTIGUOUS, "stride_b": CONTIGUOUS}
    fields: dict[str, Any] = {"out": "", "ldc": 0, "stride_c": CONTIGUOUS, **one, **_fields(p, output)}
    return replace(p, text=_text(program), **fields)
