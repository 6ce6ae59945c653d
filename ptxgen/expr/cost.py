"""Instructions that an expression takes on a target, by pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ptxgen.expr.instructions import row_of
from ptxgen.expr.node import Node
from ptxgen.expr.ptx import contracted, ordered
from ptxgen.expr.value_types import type_of

#: operators whose instructions negate an operand for nothing, and those that take its absolute value, too
_MODIFY = {"+", "-", "*", "min", "max", "fmin", "fmax", "<", "<=", "==", "!=", "sqrt", "rsqrt"}
_NEGATE = {*_MODIFY, "fma"}


def instructions_by_pipe(
    roots: Sequence[Node],
    sm: int,
    registers: Mapping[Node, str] | None = None,
    contract: bool = True,
    fast: bool = False,
) -> Counter[str]:
    """The instructions of each pipe (``instructions.PIPES``) that compute ``roots``, common expressions once. Constants
    are in registers; the sign and the absolute value of floats are modifiers of operands where the machine has them.
    ``registers``, ``contract``, ``fast``: as in ``ptx.statements``. DtypeError: the target lacks an instruction."""
    held = registers or {}
    changed = contracted(roots, held, contract)
    order = ordered(changed, held)
    users: dict[Node, list[str]] = {}
    for x in order:
        for y in x.arguments:
            users.setdefault(y, []).append(x.op)
    count: Counter[str] = Counter()
    for x in order:
        if not x.arguments:
            continue
        free = {"neg": _NEGATE, "abs": _MODIFY}.get(x.op)
        if free and type_of(x.type).floating and x not in changed and set(users.get(x, ())) <= free:
            continue
        count.update(dict(row_of(x, sm, fast).pipes))
    return count
