"""Counts the instructions that an expression takes on a target, by pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ptxgen.expr.instructions import row_of
from ptxgen.expr.node import Node
from ptxgen.expr.ptx import contracted, ordered
from ptxgen.expr.value_types import type_of

#: operators whose instructions can take the absolute value of an operand by a modifier, and those whose instructions
#: can negate an operand by one
_MODIFY = {"+", "-", "*", "min", "max", "fmin", "fmax", "<", "<=", "==", "!=", "sqrt", "rsqrt"}
_NEGATE = {*_MODIFY, "fma"}
#: comparisons of f32, whose result one instruction can write as the number 0 or 1
_COMPARE = {"<", "<=", "==", "!="}
#: operators of 32-bit integers that one instruction computes together: logic of three operands, and, from target 90 on,
#: a sum and its minimum or maximum with a third operand
_LOGIC, _SUM_AND_EXTREME = {"&", "|", "^"}, 90


def instructions_by_pipe(
    roots: Sequence[Node],
    sm: int,
    registers: Mapping[Node, str] | None = None,
    contract: bool = True,
    fast: bool = False,
) -> Counter[str]:
    """The number of instructions of each pipe (``instructions.PIPES``) that compute ``roots``; common subexpressions
    count once. Constants are in registers; the sign and the absolute value of floats are modifiers of operands where
    the machine has them. ``registers``, ``contract``, ``fast``: as in ``ptx.statements``. DtypeError: the target lacks
    an instruction."""
    held = registers or {}
    changed = contracted(roots, held, contract)
    order = ordered(changed, held)
    users: dict[Node, list[str]] = {}
    for x in order:
        for y in x.arguments:
            users.setdefault(y, []).append(x.op)
    count: Counter[str] = Counter()
    absorbing: set[Node] = set()
    for x in order:
        if not x.arguments:
            continue
        absorbed = next((y for y in x.arguments if y not in held and _fused(y, x, sm) and y not in absorbing), None)
        if absorbed is not None and len(users[absorbed]) == 1 and absorbed not in changed:
            absorbing.add(x)
            count.subtract(dict(row_of(absorbed, sm, fast).pipes))
        free = {"neg": _NEGATE, "abs": _MODIFY}.get(x.op)
        if free and type_of(x.type).floating and x not in changed and set(users.get(x, ())) <= free:
            continue
        count.update(dict(row_of(x, sm, fast).pipes))
    return +count


def _fused(x: Node, user: Node, sm: int) -> bool:
    """True if one instruction computes ``user`` and its operand ``x``."""
    t = type_of(user.type)
    if user.op == "cast" and user.type == "f32" and x.op in _COMPARE:
        return x.arguments[0].type == "f32"
    if not t.integer or t.bits > 32 or x.type != user.type:
        return False
    if user.op in _LOGIC:
        return x.op in _LOGIC
    return sm >= _SUM_AND_EXTREME and user.op in ("min", "max") and x.op == "+"
