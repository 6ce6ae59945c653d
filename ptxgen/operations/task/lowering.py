"""Lowers tasks to what kernels compute: the algebra of the step, the sink of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ptxgen.errors import InputError
from ptxgen.expr.node import Node, node, rewritten, variable, walk
from ptxgen.expr.simplify import simplified
from ptxgen.lowering import aggregate as groups
from ptxgen.lowering import row_reduce as rows
from ptxgen.lowering.aggregate import depends_on_order
from ptxgen.lowering.algebra import PLUS_TIMES, Algebra, Scalar, Vector, inner_expression
from ptxgen.lowering.kernel_problem import KernelProblem, at_least_one
from ptxgen.lowering.sink import Elements, SelectValues, StoreValue, ValueSink
from ptxgen.lowering.strided import aligned_access, matrix_product
from ptxgen.operations.task.assembling import roots_of
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import ACCUMULATOR, MEAN, Aggregate, Program, RowReduce, Select, Store
from ptxgen.operations.task.roles import Roles, Use
from ptxgen.problem.dtypes import dtype

#: axes of arrays besides A and B that steps read
STEP_AXES = ("i", "j", "k", "ij", "ji", "ik", "ki", "jk", "kj")


def lower_task(p: Task) -> KernelProblem:
    """A task as a kernel problem. One that is a plain product is a GEMM, whose kernels compute it."""
    roles, program = p.roles, p.program
    product = matrix_product(
        p.m,
        p.n,
        p.k,
        p.layout,
        p.dtype,
        p.compute,
        out=p.out,
        ld=(p.lda, p.ldb, p.ldc),
        aligned=(p.aligned_a, p.aligned_b, p.aligned_c),
        batch=p.batch,
        strides=(p.stride_a, p.stride_b, p.stride_c),
        deterministic=p.deterministic,
    )
    algebra, sink = algebra_of(roles), _sink(p, program, roles)
    sums, plain = variable(ACCUMULATOR, program.accumulator), isinstance(sink, StoreValue) and sink.guard is None
    if algebra is PLUS_TIMES and plain and sink.roots == (sums,):
        return product
    found = replace(product, name=f"task_{p.dtype}_{p.layout.lower()}", algebra=algebra, sink=sink)
    if isinstance(sink, groups.Aggregate | rows.RowReduce):
        return _reduced(p, found)
    if sink.guard is None:
        return found
    if isinstance(sink, SelectValues):
        written = sum(dtype(x.type).bytes for x in sink.values) * p.capacity
        found = replace(found, moved=found.moved + written - p.output.bytes * found.results)
    return found.with_access("C", aligned=p.output.bytes, vec=1)  # results are stored one by one


def _reduced(p: Task, found: KernelProblem) -> KernelProblem:
    """The problem of a sink that reduces results: C has another shape than they. InputError: it is batched."""
    if p.batch != 1:
        raise InputError(f"batch is {p.batch}; it must be 1 for results that are reduced")
    pitch = at_least_one(p.n)
    # the width of accesses to sums
    return found.with_access("C", ld=pitch, vec=aligned_access(16, p.n, pitch, 0, p.output.bytes))


def _sink(p: Task, program: Program, roles: Roles) -> ValueSink:
    """The sink of the output."""
    output = program.outputs[0]
    if len(program.outputs) > 1 or (isinstance(output, Store) and output.axes != ("i", "j")):
        raise InputError(f"the outputs of {p.text} are not supported yet")
    roots = [_value(program, x) for x in roots_of(output)]
    read = [*roots, *([] if program.when is None else [program.when])]
    vectors, scalars = _read(roles, read, ("i", "j"))
    fields: dict[str, Any] = {
        "out": p.out,
        "arithmetic": program.accumulator,
        "elements": _elements(p, roles, read),
        "vectors": vectors,
        "scalars": scalars,
        "when": program.when,
    }
    if isinstance(output, Store):
        return StoreValue(value=roots[0], **fields)
    if isinstance(output, Select):
        fields["scalars"] = (*scalars, SelectValues.CAPACITY)
        return SelectValues(condition=roots[0], values=tuple(roots[1:]), **fields)
    if isinstance(output, RowReduce):
        return rows.RowReduce(value=roots[0], axis=output.axis, op=output.op, **fields)
    assert isinstance(output, Aggregate)
    row, column, value = roots
    ordered = p.deterministic and depends_on_order(output.op, value.type)
    keys: dict[str, Any] = {"row": row, "column": column, "groups": p.group_extents, "ordered": ordered}
    return groups.Aggregate(value=value, op=output.op, **keys, **fields)


def _value(program: Program, value: Node) -> Node:
    """The value as an expression of the reduction over k as kernels compute it."""
    kind = program.accumulator
    sums = variable(ACCUMULATOR, kind)
    whole = sums
    if program.reduction == MEAN:
        whole = node("/", kind, whole, node("cast", kind, variable("K", "s32")))
    if program.initial is not None:
        whole = node("+" if program.reduction == MEAN else program.reduction, kind, whole, program.initial)
    return value if whole is sums else rewritten(value, lambda x: whole if x is sums else x)


def _reduction(program: Program) -> str:
    return "+" if program.reduction == MEAN else program.reduction


def _leaf(program: Program, use: Use) -> Node:
    """The part of the step that a register of an operand holds: the element, in the type of the reduction."""
    element = variable(f"{use.role}[{','.join(use.axes)}]", use.dtype)
    wide = node("cast", program.accumulator, element)
    return element if use.dtype == program.accumulator else wide


def algebra_of(roles: Roles) -> Algebra:
    """The algebra of the step of a program."""
    program = roles.program
    a, b = (_leaf(program, roles.use(role)) for role in "AB")
    if _reduction(program) == "+" and program.step in (node("*", a.type, a, b), node("*", a.type, b, a)):
        return PLUS_TIMES
    step = simplified(program.step, relaxed=True)
    return inner_expression(step, _reduction(program), a, b, *_read(roles, [step], STEP_AXES))


def _read(roles: Roles, roots: Sequence[Node], axes: Sequence[str]) -> tuple[tuple[Vector, ...], tuple[Scalar, ...]]:
    """The arrays along these axes, and the scalars, that expressions read."""
    names = {x.value: x for x in walk(*roots) if x.op == "variable"}
    read = [(u, f"{u.role}[{','.join(u.axes)}]") for u in roles.others]
    vectors = tuple(
        Vector(u.role, "".join(u.axes), names[element])
        for u, element in read
        if element in names and "".join(u.axes) in axes
    )
    return vectors, tuple(Scalar(role, kind) for role, _, kind in roles.scalars if role in names)


def _elements(p: Task, roles: Roles, roots: Sequence[Node]) -> tuple[Elements, ...]:
    """The arrays with the shape of C that expressions read."""
    names = {x.value: x for x in walk(*roots) if x.op == "variable"}
    return tuple(
        Elements(u.role, names[element], max(p.n if u.axes == ("i", "j") else p.m, 1), "".join(u.axes))
        for u in roles.others
        if len(u.axes) == 2 and (element := f"{u.role}[{','.join(u.axes)}]") in names
    )
