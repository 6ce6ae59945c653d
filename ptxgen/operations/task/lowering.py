"""Lowers tasks to kernel problems: the algebra of the step, and the sink of the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ptxgen.errors import DtypeError, InputError
from ptxgen.expr.node import Node, node, rewritten, variable, walk
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.ptx import check
from ptxgen.expr.simplify import simplified
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.lowering import aggregate as groups
from ptxgen.lowering import row_reduce as rows
from ptxgen.lowering import scatter
from ptxgen.lowering.aggregate import depends_on_order
from ptxgen.lowering.algebra import PLUS_TIMES, Algebra, InnerExpression, Scalar, Vector, inner_expression
from ptxgen.lowering.bit_products import bit_form
from ptxgen.lowering.element_groups import ElementGroups
from ptxgen.lowering.kernel_problem import KernelProblem, MirroredExtents, at_least_one
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import Elements, SelectValues, StoreValue, ValueSink
from ptxgen.lowering.states import StateReduction
from ptxgen.lowering.strided import aligned_access, matrix_product
from ptxgen.operations.task.assembling import array_of, roots_of
from ptxgen.operations.task.joined_keys import joined_keys
from ptxgen.operations.task.loop_terms import without_terms
from ptxgen.operations.task.narrow_sums import is_narrow, stores_sums, widened
from ptxgen.operations.task.paired_steps import with_paired_steps
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import (
    ACCUMULATOR,
    MEAN,
    POSITIONS,
    Aggregate,
    Distinct,
    Program,
    RowReduce,
    Scatter,
    Select,
    Store,
    Top,
)
from ptxgen.operations.task.roles import Roles, Use, with_variables
from ptxgen.problem.base import COMPUTE_MODES, SUMS
from ptxgen.problem.dtypes import dtype

NEWEST = 1000  #: a target that has every instruction
#: up to this K, reductions of rows and lists of mirrored results also have a form of all pairs: families that compute
#: no mirrored results may take less time for all pairs than others for half of them
WHOLE_K = 12
#: the axes that arrays besides A and B may have if steps read them
STEP_AXES = ("i", "j", "k", "ij", "ji", "ik", "ki", "jk", "kj")


def lower_task(p: Task) -> KernelProblem:
    """A task as a kernel problem. A task that is a plain product becomes a GEMM, whose kernels compute it.

    DtypeError: no target has instructions for a value."""
    roles, program = p.roles, p.program
    loop, whole = in_loop(roles, p.algebra)
    accumulator = loop.program.accumulator
    compute = p.compute if accumulator == program.accumulator else accumulator
    product = matrix_product(
        p.m,
        p.n,
        p.k,
        p.layout,
        p.dtype,
        compute,
        out=p.out,
        ld=(p.lda, p.ldb, p.ldc),
        aligned=(p.aligned_a, p.aligned_b, p.aligned_c),
        batch=p.batch,
        strides=(p.stride_a, p.stride_b, p.stride_c),
        deterministic=p.deterministic,
        dtype_b=roles.use("B").dtype,
    )
    algebra, sink = algebra_of(loop, p.algebra), _sink(p, program, roles, whole, accumulator)
    guard = () if sink.guard is None else (sink.guard,)
    check((*sink.expressions, *guard), NEWEST)
    rounded = accumulator == program.accumulator and isinstance(sink, StoreValue) and sink.guard is None
    plain = stores_sums(program) or (rounded and sink.roots == (variable(ACCUMULATOR, accumulator),))
    if algebra is PLUS_TIMES and whole.op == "variable" and plain and not p.mirrored:
        return product
    if algebra is not PLUS_TIMES and compute != accumulator:
        raise DtypeError(f"compute is {p.compute}; it must be {program.accumulator}: the step is no product")
    if isinstance(algebra, InnerExpression) and is_narrow(program):
        # without k, the identity is that of 16 bits
        identity = OPERATORS[algebra.reduce].identity
        assert identity is not None
        algebra = replace(algebra, identity=identity(type_of(program.accumulator)))
    if isinstance(algebra, InnerExpression) and p.k:
        values = (sink.value,) if isinstance(sink, StoreValue) else sink.roots
        algebra = with_paired_steps(algebra, [x.dtype for x in product.operands], is_narrow(program), (*values, *guard))
    types = "_".join(dict.fromkeys(x.dtype for x in product.operands))
    read = sum(p.m * p.n * dtype(x.element.type).bytes for x in sink.elements)
    moved = product.moved + read
    lowered = replace(product, name=f"task_{types}_{p.layout.lower()}", algebra=algebra, sink=sink, moved=moved)
    reshaped = isinstance(sink, groups.KeyedSink | rows.RowReduce | RowTop)
    complete = _reshaped if reshaped else _one_by_one
    if p.mirrored:
        every = replace(lowered, sink=replace(sink, mirrored=False), moved=lowered.moved - p.shared_bytes)
        half = replace(every, sink=sink, extents=MirroredExtents(p.m, p.n, p.k, p.batch))
        short = isinstance(sink, rows.RowReduce | SelectValues) and p.k <= WHOLE_K
        lowered = replace(complete(p, half), forms=(complete(p, every),) if short else ())
    else:
        lowered = complete(p, lowered)
    bits = bit_form(lowered) if p.algebra else None
    return lowered if bits is None else replace(lowered, forms=(*lowered.forms, bits))


def _one_by_one(p: Task, lowered: KernelProblem) -> KernelProblem:
    """The problem, in which elements of C are stored one by one if not all of them are stored."""
    sink = lowered.sink
    if sink.guard is None:
        return lowered
    if isinstance(sink, SelectValues):
        written = sum(dtype(x.type).bytes for x in sink.values) * p.capacity
        lowered = replace(lowered, moved=lowered.moved + written - p.output.bytes * lowered.results)
    return lowered.with_access("C", aligned=p.output.bytes, vec=1)


def _reshaped(p: Task, lowered: KernelProblem) -> KernelProblem:
    """The problem of a sink that reduces results, or stores them at keys, so that C has another shape than the results.
    InputError: the task has a batch."""
    if p.batch != 1:
        raise InputError(f"batch is {p.batch}; it must be 1 for results that are reduced, or stored at keys")
    pitch = at_least_one(p.n)
    written = sum(math.prod(x.shape) * x.dtype.bytes for x in p.result_arrays.values())
    lowered = replace(lowered, moved=lowered.moved + written - p.output.bytes * lowered.results)
    if isinstance(lowered.sink, scatter.Scatter):
        return lowered.with_access("C", ld=pitch, aligned=p.output.bytes, vec=1)
    # the width of accesses to sums
    vec = 1 if lowered.mirrored else aligned_access(16, p.n, pitch, 0, p.output.bytes)
    lowered = lowered.with_access("C", ld=pitch, vec=vec)
    one = ElementGroups.of(lowered.sink, p.m, p.n) if isinstance(lowered.sink, groups.Aggregate) else None
    if one is None:
        return lowered
    return replace(lowered, forms=(replace(lowered, sink=one, algebra=PLUS_TIMES),))


def _sink(p: Task, program: Program, roles: Roles, whole: Node, accumulator: str) -> ValueSink:
    """The sink of the output. ``whole``: as in ``value_of``; ``accumulator``: the type of the reduction in kernels."""
    output = program.outputs[0]
    if len(program.outputs) > 1:
        count = len(program.outputs)
        raise InputError(
            f"the text of the task has {count} outputs; a kernel has one, so it must have one: write a text for each"
            " (calls, and the command task, compute all)"
        )
    if isinstance(output, Top | Distinct) and not p.keeps_best:
        what = "of top or bottom" if isinstance(output, Top) else "of distinct"
        raise InputError(
            f"the output {output.name} is {what}, which has no kernel of its own: calls compute it from lists"
        )
    roots = [value_of(program, x, whole) for x in roots_of(output)]
    read = [*roots, *([] if program.when is None else [program.when])]
    vectors, scalars = _read(roles, read, ("i", "j"))
    fields: dict[str, Any] = {
        "mirrored": p.mirrored,
        "out": p.out,
        "arithmetic": accumulator,
        "elements": _elements(p, roles, read),
        "vectors": vectors,
        "scalars": scalars,
        "when": program.when,
        "ascending": _ascending(p, program),
    }
    if isinstance(output, Store):
        return StoreValue(value=roots[0], **fields)
    if isinstance(output, Select):
        fields["scalars"] = (*scalars, SelectValues.CAPACITY)
        return SelectValues(condition=roots[0], values=tuple(roots[1:]), **fields)
    if isinstance(output, Top):
        condition, best, number = roots
        if condition.op != "constant" or not condition.value:
            fields["when"] = condition if program.when is None else node("&", PRED, program.when, condition)
        return RowTop(value=best, count=int(number.value), greatest=output.greatest, **fields)
    if isinstance(output, RowReduce):
        return rows.RowReduce(value=roots[0], axis=output.axis, op=output.op, **fields)
    if isinstance(output, Scatter):
        row, column, value = roots
        return scatter.Scatter(value=value, row=row, column=column, groups=p.group_extents, **fields)
    assert isinstance(output, Aggregate)
    row, column, value = roots
    ordered = p.deterministic and depends_on_order(output.op, value.type)
    keys: dict[str, Any] = {"row": row, "column": column, "groups": p.group_extents, "ordered": ordered}
    return groups.Aggregate(value=value, op=output.op, **keys, **fields)


def _ascending(p: Task, program: Program) -> tuple[str, ...]:
    """The roles of the arrays that are sorted in ascending order (``sorted_keys``)."""
    keys = joined_keys(program.when) if p.sorted_keys else None
    return () if keys is None else tuple(array_of(str(x.value)) for x in keys)


def in_loop(roles: Roles, rewrite: bool = True) -> tuple[Roles, Node]:
    """The roles with the program of the loop over k, as kernels compute it; and the reduction of the original program,
    as an expression of the loop's reduction. ``rewrite``: True: terms without k leave the loop. Reductions in 16 bits
    are computed in 32 bits, except a sum of products that is stored as it is."""
    program = roles.program
    whole = sums = variable(ACCUMULATOR, program.accumulator)
    if is_narrow(program) and not (stores_sums(program) and algebra_of(roles) is PLUS_TIMES):
        program, whole = widened(program)
        sums = variable(ACCUMULATOR, program.accumulator)
    if rewrite:
        program, inner = without_terms(program)
        whole = rewritten(whole, lambda x: inner if x is sums else x)
    return replace(roles, program=program), whole


def as_computed(roles: Roles) -> Program:
    """The program with the step and the reduction that kernels compute."""
    program = roles.program
    exchanged, whole = in_loop(roles)
    loop = exchanged.program
    step = simplified(loop.step, relaxed=True)
    if whole.op == "variable":
        return replace(program, step=step)
    changes = {ACCUMULATOR: value_of(program, variable(ACCUMULATOR, program.accumulator), whole)}
    return replace(
        program,
        step=step,
        accumulator=loop.accumulator,
        reduction=_reduction(program),
        initial=None,
        outputs=tuple(with_variables(x, changes) for x in program.outputs),
    )


def value_of(program: Program, value: Node, whole: Node | None = None) -> Node:
    """The value as an expression of the reduction over k that kernels compute. ``whole``: the reduction of all steps,
    as an expression of the kernel's reduction; None: they are the same."""
    accumulator = program.accumulator
    sums = variable(ACCUMULATOR, accumulator)
    whole = whole or sums
    if program.reduction in POSITIONS:
        whole = StateReduction.position(whole)
    if program.reduction == MEAN:
        whole = node("/", accumulator, whole, node("cast", accumulator, variable("K", "s32")))
    if program.initial is not None:
        whole = node("+" if program.reduction == MEAN else program.reduction, accumulator, whole, program.initial)
    return value if whole is sums else rewritten(value, lambda x: whole if x is sums else x)


def _reduction(program: Program) -> str:
    return "+" if program.reduction == MEAN else program.reduction


def _is_product(program: Program, roles: Roles) -> bool:
    """True if the step is a product of elements of A and B of one type, which GEMMs sum in the type of the
    reduction."""
    sums, elements, types = program.accumulator, [], set()
    for role in "AB":
        x = _element(roles.use(role))
        types.add(x.type)
        elements.append(x if x.type == sums else node("cast", sums, x))
    a, b = elements
    modes = COMPUTE_MODES.get(types.pop(), ()) if len(types) == 1 else ()
    summed = sums in {SUMS.get(mode, mode) for mode in modes}
    return summed and program.step in (node("*", sums, a, b), node("*", sums, b, a))


def algebra_of(roles: Roles, rewrite: bool = True) -> Algebra:
    """The algebra of the step of a program: plus-times if kernels of GEMMs can sum it, else ``inner_of``. ``rewrite``:
    as in ``inner_of``."""
    program = roles.program
    return PLUS_TIMES if _reduction(program) == "+" and _is_product(program, roles) else inner_of(roles, rewrite)


def inner_of(roles: Roles, rewrite: bool = True) -> InnerExpression:
    """The algebra of a step as an inner expression, also for a sum of products. ``rewrite``: True: the step is
    simplified by laws that hold for finite numbers."""
    program = roles.program
    step = simplified(program.step, relaxed=True) if rewrite else program.step
    step, a = hold(step, _element(roles.use("A")))
    step, b = hold(step, _element(roles.use("B")))
    return inner_expression(step, _reduction(program), a, b, *_read(roles, [step], STEP_AXES), rewrite)


def _element(use: Use) -> Node:
    """The variable of an element of an operand."""
    return variable(f"{use.role}[{','.join(use.axes)}]", use.dtype)


def hold(step: Node, element: Node) -> tuple[Node, Node]:
    """The step, and the expression of an element that kernels hold in registers. The held expression is a cast to f32
    or f64 if the step reads nothing else of the element; for 16-bit floats it is the cast to f32, and the step casts
    back where it reads the element itself; otherwise it is the element."""
    users = {x for x in walk(step) if element in x.arguments}
    types = {x.type if x.op == "cast" else "" for x in users}
    narrow = element.type in ("f16", "bf16")
    held_type = "f32" if narrow else types.pop() if len(types) == 1 else ""
    if held_type not in ("f32", "f64"):
        return step, element
    held = node("cast", held_type, element)
    if not narrow:
        return step, held
    known: dict[Node, Node] = {held: held, element: node("cast", element.type, held)}

    def changed(x: Node) -> Node:
        if x not in known:
            known[x] = node(x.op, x.type, *map(changed, x.arguments), value=x.value) if x.arguments else x
        return known[x]

    return changed(step), held


def _read(roles: Roles, roots: Sequence[Node], axes: Sequence[str]) -> tuple[tuple[Vector, ...], tuple[Scalar, ...]]:
    """The arrays with one of these axes, and the scalars, that expressions read."""
    names = {x.value: x for x in walk(*roots) if x.op == "variable"}
    read = [(u, f"{u.role}[{','.join(u.axes)}]") for u in roles.others]
    vectors = tuple(
        Vector(u.role, "".join(u.axes), names[element])
        for u, element in read
        if element in names and "".join(u.axes) in axes
    )
    return vectors, tuple(Scalar(role, scalar_type) for role, _, scalar_type in roles.scalars if role in names)


def _elements(p: Task, roles: Roles, roots: Sequence[Node]) -> tuple[Elements, ...]:
    """The arrays with the shape of C that expressions read."""
    names = {x.value: x for x in walk(*roots) if x.op == "variable"}
    return tuple(
        Elements(u.role, names[element], max(p.n if u.axes == ("i", "j") else p.m, 1), "".join(u.axes))
        for u in roles.others
        if len(u.axes) == 2 and (element := f"{u.role}[{','.join(u.axes)}]") in names
    )
