"""The algebra of a product: what combines two elements, and what reduces the combined ones over K."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ptxgen.expr.node import Node, constant, node, variable, variables
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.simplify import is_absorbed_at_zero, is_identity_at_zero
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.states import INDEX, NO_INDEX, POSITIONS, State, StateReduction

ACCUMULATOR = "accum"  #: the variable of the reduction in expressions
BEST = "best"  #: the variable of the value at the position that a reduction to positions keeps


@dataclass(frozen=True)
class Scalar:
    """A number that calls pass: a kernel parameter. ``type``: of expressions."""

    name: str
    type: str


@dataclass(frozen=True)
class Vector:
    """An array that expressions read. ``name``: of the kernel parameter; ``axis``: i, j or k, or, in steps, two of them
    as it is stored; its leading dimension is then the parameter ``step_ld_`` and the name; ``element``: the variable of
    its element."""

    name: str
    axis: str
    element: Node


@dataclass(frozen=True)
class Algebra:
    """How kernels combine two elements and join the results. ``reduce``: an operator of ``expr.operators`` that joins
    partial results, or argmin or argmax; ``identity``: of ``reduce``; ``pads_with_zero``: True if zeros that pad
    operands do not change results; ``atomic``: True if red.global can reduce; ``vectors``, ``scalars``: what steps read
    besides the operands; ``fmas``: multiply-adds of a step of a product."""

    name: str
    reduce: str
    identity: float
    pads_with_zero: bool
    atomic: bool

    vectors: tuple[Vector, ...] = ()
    scalars: tuple[Scalar, ...] = ()

    fmas: ClassVar[int] = 1

    @property
    def needs(self) -> frozenset[str]:
        """What a family must provide: instructions that compute it."""
        return frozenset((self.name,))

    @property
    def matrices(self) -> tuple[Vector, ...]:
        """The arrays along two axes that it reads besides the operands."""
        return tuple(v for v in self.vectors if len(v.axis) > 1)

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that it reads besides the operands, in the order of the kernel parameters."""
        return tuple(v.name for v in self.vectors)

    @property
    def state(self) -> StateReduction | None:
        """The reduction to positions, whose accumulators have two registers; None: it has one."""
        return None

    def held_type(self, name: str, sums: str) -> str:
        """The type in which kernels hold elements of operand ``name``. ``sums``: the type of the reduction."""
        return sums


@dataclass(frozen=True, kw_only=True)
class InnerExpression(Algebra):
    """The reduction over k of an expression. ``step``: its value at one k; ``a``, ``b``: the parts of it that operands
    A and B hold in shared memory and in registers: elements, or casts of them. Integers narrower than 32 bits are held
    in 32. The reductions argmin and argmax give the first k of the least or greatest step, ``NO_INDEX`` if there is no
    k.

    ``terms``: what a step joins to the accumulator, one after the other. ``paired``: the same reduction of two adjacent
    columns at once, on pairs of values of 16 bits (``expr.value_types.PAIRS``), whose results, extended to the type of
    this one, serve the sink as its own do; None: there is none."""

    step: Node
    a: Node
    b: Node
    terms: tuple[Node, ...]
    paired: InnerExpression | None = None

    @property
    def type(self) -> str:
        """The type of the reduction."""
        return self.step.type if self.state is None else INDEX

    @property
    def state(self) -> StateReduction | None:
        return StateReduction(self.reduce, self.step.type) if self.reduce in POSITIONS else None

    @property
    def components(self) -> tuple[Node, ...]:
        """The variables of an accumulator, each in a register: that of the result, then the best value, if there is
        one."""
        result = variable(ACCUMULATOR, self.type)
        return (result,) if self.state is None else (result, variable(BEST, self.step.type))

    @cached_property
    def next(self) -> tuple[Node, ...]:
        """The components of the accumulator after a step."""
        if self.state is None:
            return (self.reduced,)
        result, best = self.components
        value, position = self.state.added((best, result), self.step, variable("k", INDEX))
        return position, value

    def joined(self, x: State, y: State) -> State:
        """The components of two partial results of different k as those of one."""
        if self.state is None:
            return (node(self.reduce, self.type, x[0], y[0]),)
        value, position = self.state.joined((x[1], x[0]), (y[1], y[0]))
        return position, value

    def held_type(self, name: str, sums: str) -> str:
        held = type_of((self.a if name == "A" else self.b).type)
        return f"{held.name[0]}32" if held.integer and held.bits < 32 else held.name

    @property
    def identities(self) -> tuple[Node, ...]:
        """The components of the accumulator before the first step."""
        if self.state is None:
            return (constant(self.identity, self.type),)
        value, position = self.state.identity
        return position, value

    @cached_property
    def reduced(self) -> Node:
        """The accumulator after a step."""
        root = variable(ACCUMULATOR, self.type)
        for term in self.terms:
            root = node(self.reduce, self.type, root, term)
        return root


PLUS_TIMES = Algebra("plus_times", "+", 0.0, pads_with_zero=True, atomic=True)


def terms_of(step: Node, reduce: str, rewrite: bool) -> tuple[Node, ...]:
    """The parts of a step that are joined to the accumulator one after the other: those of the reduction's own operator
    where its order does not matter; with ``rewrite`` those of a sum of floats with products, which then need no
    instruction of their own: its error is relative to its terms. Products are first."""

    def parts(x: Node) -> list[Node]:
        return [z for y in x.arguments for z in parts(y)] if x.op == reduce else [x]

    terms = sorted(parts(step), key=lambda x: x.op != "*")
    if reduce in POSITIONS or len(terms) == 1:
        return (step,)
    exact = OPERATORS[reduce].idempotent or not type_of(step.type).floating
    return tuple(terms) if exact or (rewrite and reduce == "+" and terms[0].op == "*") else (step,)


def paired_expression(whole: InnerExpression, step: Node, a: Node, b: Node) -> InnerExpression:
    """The field ``paired`` of ``whole``. ``step``, ``a``, ``b``: of pairs; zeros pad it where they pad ``whole``."""
    identity = OPERATORS[whole.reduce].identity
    assert identity is not None
    return replace(
        whole,
        identity=identity(type_of(step.type)),
        step=step,
        terms=terms_of(step, whole.reduce, False),
        a=a,
        b=b,
        paired=None,
    )


def inner_expression(
    step: Node,
    reduce: str,
    a: Node,
    b: Node,
    vectors: tuple[Vector, ...] = (),
    scalars: tuple[Scalar, ...] = (),
    rewrite: bool = True,
) -> InnerExpression:
    """The algebra of ``reduce`` over ``step``, with what follows from them. ``rewrite``: as in ``terms_of``."""
    if reduce in POSITIONS:
        identity = float(NO_INDEX)
    else:
        of_operator = OPERATORS[reduce].identity
        assert of_operator is not None
        identity = of_operator(type_of(step.type))
    zeroed = set(variables(a, b, *(v.element for v in vectors if "k" in v.axis)))
    return InnerExpression(
        name="inner_expression",
        reduce=reduce,
        identity=identity,
        pads_with_zero=reduce not in POSITIONS
        and (is_identity_at_zero(step, reduce, zeroed) or is_absorbed_at_zero(step, reduce, zeroed)),
        atomic=False,
        step=step,
        terms=terms_of(step, reduce, rewrite),
        a=a,
        b=b,
        vectors=vectors,
        scalars=scalars,
    )
