"""Activations that are registered from outside the package: softplus, hard swish, and the gradient of a square root."""

from __future__ import annotations

from ptxgen.expr.node import Node, constant, node, select
from ptxgen.expr.value_types import PRED
from ptxgen.problem.epilogue_ops import (
    ACTIVATION,
    ELEMENT,
    EpilogueOp,
    EpilogueStep,
    activation,
    register,
    unregister,
)


def softplus(x: Node) -> Node:
    """log(1 + exp(x)), as log(1 + exp(-|x|)) + max(x, 0), which does not overflow."""
    zero, one = constant(0.0, x.type), constant(1.0, x.type)
    power = node("exp", x.type, node("neg", x.type, node("abs", x.type, x)))
    return node("+", x.type, node("log", x.type, node("+", x.type, one, power)), node("max", x.type, x, zero))


def hard_swish(x: Node) -> Node:
    """x · min(max(x + 3, 0), 6) / 6."""
    shifted = node("+", x.type, x, constant(3.0, x.type))
    gate = node("min", x.type, node("max", x.type, shifted, constant(0.0, x.type)), constant(6.0, x.type))
    return node("*", x.type, node("*", x.type, x, gate), constant(1 / 6, x.type))


def gated(x: Node, aux: Node) -> Node:
    """x where aux is between -1 and 1, else 0: the gradient of a clamp."""
    inside = node("<=", PRED, node("abs", x.type, aux), constant(1.0, x.type))
    return select(inside, x, constant(0.0, x.type))


OPS = (
    activation("softplus", softplus, slope=1.0, relative=2.0**-20, absolute=2.0**-20),
    activation("hard_swish", hard_swish, slope=1.5, relative=2.0**-20, absolute=2.0**-20),
    EpilogueOp("clamp_grad", ACTIVATION, (EpilogueStep(gated, "aux", ELEMENT),)),
)


def register_them() -> None:
    for op in OPS:
        register(op)


def unregister_them() -> None:
    for op in OPS:
        unregister(op.name)
