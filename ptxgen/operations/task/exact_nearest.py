"""The least or greatest f32 sum of each row: tensor cores bound the sums and list candidates, and f32 sums of the
candidates decide.

The launches, in their order: the preparation of operands and bounds (``exact_select``); a limit for each row, which for
least sums is the least upper end of the sums of sampled columns; the list of the pairs whose lower end is not above the
limit; the f32 sum of each candidate, added in the order of k, of which the best of a row is kept. For greatest sums,
ends are exchanged. The best pair of a row and all that equal it are candidates: docs/adr/exact-select.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ptxgen.codegen.nearest_pairs import GREATEST, RECORD_BYTES, RECORDS, NearestPairs
from ptxgen.expr.node import Node, constant, node, select, variable, variables
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.lowering.lower import lower
from ptxgen.lowering.states import POSITIONS
from ptxgen.operations.task import exact_filter
from ptxgen.operations.task.assembling import array_of
from ptxgen.operations.task.exact_filter import BOUNDS, LEAST_PAIRS
from ptxgen.operations.task.exact_select import ExactSelect, Operands, stage_of
from ptxgen.operations.task.lowering import algebra_of
from ptxgen.operations.task.problem import Task, read_again
from ptxgen.operations.task.program import ACCUMULATOR, Input, Program, RowReduce, Select
from ptxgen.operations.task.roles import Roles
from ptxgen.problem.device import Device

LIMITS = "row_limits"
SAMPLED = 8  #: one column in so many is sampled; so many candidates per row are expected, besides close ones
LEAST_SAMPLE = 32  #: the least number of sampled columns
ROOM = 64  #: the average number of candidates per row for which there is room


@dataclass(frozen=True)
class Nearest:
    """The programs that find the best pair of each row. ``limits``: the program that reduces one end of the sums in a
    row to a limit; ``candidates``: the program that lists the pairs whose other end does not miss the limit in
    ``LIMITS``."""

    limits: Program
    candidates: Program


@lru_cache(maxsize=256)
def nearest_of(roles: Roles) -> Nearest | None:
    """The programs that filter a program; None: the program does not reduce rows of f32 sums of products, or of squares
    of differences, by min, max, argmin or argmax."""
    program = roles.program
    output = program.outputs[0]
    if len(program.outputs) > 1 or not isinstance(output, RowReduce) or output.axis != "i":
        return None
    if output.op not in (*POSITIONS, "min", "max") or program.when is not None or program.initial is not None:
        return None
    if program.reduction != "+" or any(roles.use(role).dtype != "f32" for role in "AB"):
        return None
    distance = exact_filter.is_distance(program)
    if program.accumulator != "f32" or (algebra_of(roles) is not PLUS_TIMES and not distance):
        return None
    ends = (exact_filter.distance_ends if distance else exact_filter.products_ends)(output.value)
    if ends is None or not _of_vectors(program, output.value):
        return None
    if distance:
        program = replace(program, step=node("*", "f32", *program.step.arguments[0].arguments))
    least, greatest = ends
    limit = variable(f"{LIMITS}[i]", "f32")
    index = tuple(variable(axis, "s32") for axis in "ij")
    if output.op in GREATEST:
        limited, behind = RowReduce("C", least, "i", "max"), node("<", PRED, greatest, limit)
    else:
        limited, behind = RowReduce("C", greatest, "i", "min"), node("<", PRED, limit, least)
    listed = Select("C", index[0], node("not", PRED, behind), index)
    return Nearest(_reading(program, limited, limited.value), _reading(program, listed, listed.condition))


def _of_vectors(program: Program, value: Node) -> bool:
    """True if a value reads scalars, and f32 vectors of rows or of columns, but no index or extent: its columns may be
    sampled."""
    vectors = {x.name: x for x in program.inputs if x.name not in ("A", "B")}
    names = {array_of(x) for x in variables(value)} - {ACCUMULATOR}
    known = names <= vectors.keys()
    return known and all(vectors[n].uses in ((), (("i",),), (("j",),)) and vectors[n].dtype == "f32" for n in names)


def _reading(program: Program, output: RowReduce | Select, value: Node) -> Program:
    """The program with the output ``output``, and with the arrays that ``value``, its value, reads."""
    read = {array_of(x) for x in variables(value)}
    bounds = [Input(name, "f32", (("i" if x.role == "A" else "j",),)) for name, x in BOUNDS.items() if name in read]
    limits = [Input(LIMITS, "f32", (("i",),))] if LIMITS in read else []
    own = (x for x in program.inputs if x.name in {"A", "B", *read})
    inputs = (*own, *bounds, *limits)
    return read_again(replace(program, inputs=inputs, outputs=(output,)))


def sample() -> Program:
    """The program that returns the first element of each row of an array X."""
    x = Input("X", "f32", (("i", "j"),))
    inputs, step = exact_filter.without_steps(x)
    first = node("==", PRED, variable("j", "s32"), constant(0, "s32"))
    value = select(first, x.variable(("i", "j")), constant(float("inf"), "f32"))
    return Program(inputs, step, "+", "f32", (RowReduce("C", value, "i", "min"),))


class ExactNearest(ExactSelect):
    """The launches of an exact filter for a task that reduces rows."""

    @classmethod
    def of(cls, p: Task, d: Device) -> ExactNearest | None:
        """The launches of a task; None: they do not pay, or the task is not one that a filter computes."""
        known = p.algebra and p.compute in exact_filter.COMPUTED and p.batch == 1
        programs = nearest_of(p.roles) if known else None
        if programs is None or not exact_filter.pays(p, d):
            return None
        made = Operands.of(p)
        pairs = NearestPairs(lower(made.kmajor), d)
        for program in (programs.limits, programs.candidates):
            made.add_bounds(program, pairs.roundings(p.k))
        limits, candidates = made.add_vector_values(programs.limits, programs.candidates)
        step = max(1, min(SAMPLED, p.n // LEAST_SAMPLE))
        names = dict(made.names)
        for x in limits.inputs if step > 1 else ():
            if x.uses == (("j",),):  # an array of every step-th column
                names[x.name] = f"sampled_{x.name}"
                made.scratch[names[x.name]] = p.n // step
                arrays = {"X": x.name, "C": names[x.name]}
                made.stages.append(stage_of(sample(), p.n // step, step, arrays))
        made.scratch[LIMITS] = p.m
        made.add_product(limits, {"C": LIMITS}, {}, names, n=p.n // step, ldb=step * p.k)
        made.add_candidates(candidates, min(p.m * p.n, max(LEAST_PAIRS, ROOM * p.m)))
        made.scratch[RECORDS] = p.m * (RECORD_BYTES // 4)
        return cls(made.kmajor, tuple(made.stages), pairs, made.names, made.scratch)
