"""Programs with one array on both sides, whose reduction is the same for (i, j) and for (j, i).

Kernels of such programs compute the reductions for i ≤ j, and the values for (i, j) and (j, i) from one reduction.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ptxgen.expr.node import Node, node, rewritten, substituted, variable, walk
from ptxgen.expr.simplify import cast, key, simplified
from ptxgen.operations.task.assembling import array_of, axes_of
from ptxgen.operations.task.loop_terms import without_terms
from ptxgen.operations.task.program import ACCUMULATOR, Aggregate, Input, Program, RowReduce, Select, Store
from ptxgen.operations.task.roles import Roles, exchanged_name, roles_of, with_variables

_NOWHERE = "?"  #: replaces an element whose array has no use with the exchanged axes


def one_array(roles: Roles) -> Program:
    """The program with the names of ``roles`` in which arrays that are one array have one name, that of the first."""
    first = {u.name: u.role for u in reversed(roles.uses)}
    changes = {_element(u.role, u.axes): variable(_element(first[u.name], u.axes), u.dtype) for u in roles.uses}
    arrays = {role: [u for u in roles.uses if first[u.name] == role] for role in first.values()}
    inputs = (
        *(Input(u.role, u.dtype, tuple(v.axes for v in arrays[u.role])) for u in roles.uses if u.role in arrays),
        *(x for x in roles.program.inputs if not x.uses),
    )
    outputs = tuple(with_variables(x, changes) for x in roles.program.outputs)
    program: Program = with_variables(replace(roles.program, inputs=inputs, outputs=outputs), changes)
    return program


@lru_cache(maxsize=256)
def joined(program: Program, transposed: bool) -> Program:
    """The program in which the array of A is also the array of B (``transposed``: with its axes in the other order), if
    kernels then compute half of the pairs; else ``program`` itself."""
    roles = roles_of(program)
    a, b = roles.use("A"), roles.use("B")
    if roles.exchanged or roles.one_array or any(u.name == b.name for u in roles.others):
        return program
    axes = b.axes[::-1] if transposed else b.axes
    changes = {_element(b.name, b.axes): variable(_element(a.name, axes), b.dtype)}
    inputs = tuple(
        replace(x, uses=(*x.uses, axes)) if x.name == a.name else x for x in program.inputs if x.name != b.name
    )
    outputs = tuple(with_variables(x, changes) for x in program.outputs)
    joint: Program = with_variables(replace(program, inputs=inputs, outputs=outputs), changes)
    return joint if computes_half(roles_of(joint)) else program


@lru_cache(maxsize=256)
def is_symmetric(roles: Roles) -> bool:
    """True if A and B are one array, and neither the reduction of the loop over k nor the set of computed pairs changes
    when i and j are exchanged."""
    if not roles.one_array or roles.use("A").axes.index("k") != roles.use("B").axes.index("k"):
        return False
    step = without_terms(roles.program)[0].step
    return all(_is_invariant(x, roles) for x in (step, roles.program.when) if x is not None)


@lru_cache(maxsize=256)
def computes_half(roles: Roles) -> bool:
    """True if kernels may compute only the pairs with i ≤ j. A matrix product has the kernels of GEMMs, which compute
    all pairs."""
    outputs = roles.program.outputs
    stored = len(outputs) == 1 and isinstance(outputs[0], Store | Select | RowReduce | Aggregate)
    return stored and is_symmetric(roles) and not _is_gemm(roles)


def _is_gemm(roles: Roles) -> bool:
    """True if the program is a matrix product: it stores the sums of products of an element of A and an element of
    B."""
    program, output = roles.program, roles.program.outputs[0]
    if not isinstance(output, Store) or program.reduction != "+" or program.step.op != "*":
        return False
    if program.initial is not None or program.when is not None:
        return False
    value = output.value.arguments[0] if output.value.op == "cast" else output.value
    elements = (variable(_element(u.role, u.axes), u.dtype) for u in map(roles.use, "AB"))
    a, b = (cast(x, program.accumulator) for x in elements)
    return value is variable(ACCUMULATOR, program.accumulator) and program.step.arguments in ((a, b), (b, a))


def _is_invariant(x: Node, roles: Roles) -> bool:
    """True if the value of an expression does not change when i and j are exchanged, for M = N."""
    names = {u.role: u.name for u in roles.uses}
    role_of = {(u.name, u.axes): u.role for u in roles.uses}
    changes = {}
    for y in walk(x):
        if y.op != "variable":
            continue
        other = exchanged_name(y.value)
        if axes := axes_of(other):
            other = _element(role_of.get((names[array_of(y.value)], axes), _NOWHERE), axes)
        changes[y.value] = variable(other, y.type)
    return simplified(rewritten(substituted(x, changes), _even)) is simplified(rewritten(x, _even))


def _even(x: Node) -> Node:
    """The expression ``x``; if it is the magnitude or the square of a difference, the operands of the difference are
    put in a fixed order."""
    inner = x.arguments[0] if x.op == "abs" or (x.op == "*" and x.arguments[0] is x.arguments[1]) else x
    if inner is x or inner.op != "-":
        return x
    difference = node("-", inner.type, *sorted(inner.arguments, key=lambda y: key(y, {})))
    return node(x.op, x.type, *[difference] * len(x.arguments))


def _element(name: str, axes: tuple[str, ...]) -> str:
    return f"{name}[{','.join(axes)}]"
