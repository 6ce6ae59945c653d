"""Float64 references of results, error bounds, and test inputs.

The error of a sum of K products in arithmetic of unit roundoff u is about √K·u·Σ|a||b| (probabilistic; Higham & Mary,
SIAM J. Sci. Comput. 41, 2019) and at most K·u·Σ|a||b|. Tensor cores truncate the products of one instruction and the
accumulator to a few bits below the largest of them. These errors have one sign and grow with the number of
instructions that add to one accumulator; an accumulator whose sum is added to the total in f32 starts again from zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.node import Node, variables
from ptxgen.expr.rounding import with_errors
from ptxgen.problem.base import ProblemBase as Problem
from ptxgen.problem.block_scales import DEPTH
from ptxgen.problem.dtypes import Dtype, dtype, promotion_k
from ptxgen.problem.epilogue_ops import ACTIVATION, ELEMENT, OPERAND, SCALE, STORE, SUM, EpilogueOp, epilogue_op
from ptxgen.problem.operation import operation_of

Array = np.ndarray[Any, Any]

FACTOR = 4.0  #: the constant c of ``Reference.tolerance``; the largest error of a correct kernel corresponds to c = 1.4
INPUTS = ("integers", "normal", "scaled", "positive")
#: the most distinct random values of an operand; larger operands repeat them. The number is prime, so that rows do not
#: repeat at any leading dimension
DISTINCT_VALUES = 1_048_573

#: for compute="tf32": products that one instruction sums, precision to which it truncates them, roundoff of inputs
TF32 = (8, 2.0**-24, 2.0**-11)
#: number of products of one instruction that together lose as much as the last bit of the final sum. A product loses
#: half a bit of an accumulator that is half of the final sum, both on average
TERMS = 4


def wide(x: Array) -> Array:
    """``x`` in float64, or in complex128."""
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def magnitudes(x: Array) -> Array:
    """The absolute values of ``x``. For real numbers they overwrite ``x``."""
    return np.abs(x) if np.iscomplexobj(x) else np.abs(x, out=x)


def parts_of(x: Array) -> Array:
    """Complex numbers as alternating real and imaginary parts along the last axis; real numbers unchanged."""
    return np.stack([x.real, x.imag], axis=-1).reshape(*x.shape[:-1], -1) if np.iscomplexobj(x) else x


def operands(p: Problem, seed: int = 0, inputs: str = "normal") -> dict[str, Array]:
    """Makes A, B and C with their stored shapes, contiguous, in the problem's types.

    ``inputs``: ``integers``: every partial sum is exact; ``normal``: normally distributed; ``scaled``: rows of A and
    columns of B differ by factors up to 2^±6 (8-bit types: 2^±2); ``positive``: no two products cancel, so errors of
    rounding toward zero add up (as ``normal`` if sums are in f16, because such sums would stop growing); ``extreme``:
    as ``normal``, for block scales that are extreme.
    """
    return dict(random_operands(p, seed, inputs))


def random_operands(p: Problem, seed: int = 0, inputs: str = "normal") -> Iterator[tuple[str, Array]]:
    """Yields (name, array) of A, B and C one after the other, for callers that do not keep all of them."""
    rng = np.random.default_rng(seed)
    for n, (name, shape) in enumerate(zip("ABC", p.stored, strict=True)):
        element = p.types[n]
        values, *imaginary = (_random_values(p, rng, inputs, n, shape) for _ in range(element.parts))
        yield name, np.resize(_as(values + 1j * imaginary[0] if imaginary else values, element), shape)


def _random_values(p: Problem, rng: np.random.Generator, inputs: str, n: int, shape: tuple[int, ...]) -> Array:
    """Values for operand number ``n`` (0: A, 1: B, 2: C), or for its real or imaginary part. They may be fewer than the
    operand's elements, but at least DISTINCT_VALUES then; the caller repeats them."""
    k = p.reduction
    if inputs == "integers":
        values = rng.integers(-3, 4, shape).astype(np.float64)
        types = [p.accumulator] if p.output.saturates else [p.output, p.accumulator]
        exact = min(1 / max(t.roundoff, 2.0**-31) for t in types)
        if exact < 2**24:  # keep Σ|a||b| well below the largest exact integer of sums and C
            values = np.sign(values) * (rng.random(shape) < min(1.0, (exact / 8 / max(k, 1)) ** 0.5))
    else:
        values = rng.standard_normal(min(math.prod(shape), DISTINCT_VALUES))
        if inputs == "positive" and p.accumulator.bytes > 2:
            values = np.abs(values)
            if p.element.bytes == 2:  # f16 and its sums overflow above 65504
                values /= max(1.0, k) ** 0.25
        if inputs == "scaled":
            values = np.resize(values, shape)
            exponent = 2 if p.element.bytes == 1 else 6
            # the axes to scale: rows of A, columns of B, images
            scaled_axes = {2: (n == 1,), 3: (0, 1 + (n == 1))}.get(len(shape), (0,))
            scale_shape = tuple(extent if i in scaled_axes else 1 for i, extent in enumerate(shape))
            values *= np.exp2(rng.integers(-exponent, exponent + 1, scale_shape))
            if p.element.bytes <= 2:  # f16 and its sums overflow above 65504
                values /= (8 if exponent == 6 else 1) * max(1.0, k**0.5) ** 0.5
    return values


def _as(values: Array, element: Dtype) -> Array:
    """``values`` converted to the type ``element``. For an integer type, values that are not all integers are scaled by
    40 and rounded to 8 bits."""
    if element.integer and not np.array_equal(values, np.rint(values)):
        values = np.clip(np.rint(values * 40), -127, 127)
    return values.astype(element.numpy)


@dataclass(frozen=True)
class Reference:
    """The reference result of a problem. ``exact``: the result in float64; ``scale``: |alpha|·Σ|a||b| + |beta||c| of
    each element; ``variables``: values of the variables of an activation whose error bound follows from its expression.
    With scales of blocks or of weights, ``scale`` is infinite where sums are infinite or NaN, as the kernel decides."""

    problem: Problem
    exact: Array
    scale: Array
    variables: Mapping[str, Array] = field(default_factory=dict)

    def part(self, at: tuple[slice, ...]) -> Reference:
        """The reference of the region ``at`` of the result."""
        variables = {name: x[at] for name, x in self.variables.items()}
        return Reference(self.problem, self.exact[at], self.scale[slices_of_sums(self.problem, at)], variables)

    @property
    def rounded(self) -> Array:
        """``exact`` rounded to the type of C. Complex values are unchanged."""
        output = self.problem.output
        if output.part:
            return self.exact
        with np.errstate(over="ignore"):
            return np.rint(self.exact) if output.integer else self.exact.astype(output.numpy).astype(np.float64)

    def tolerance(self, stored: bool = True) -> Array:
        """The allowed error of each element: c(√K·u_sum·scale + u_out·|exact|), where c√K is limited to K + 4, plus the
        errors of truncation in tensor cores and of underflow. Integer results must be exact. ``stored``: False: of
        elements before they are rounded to the type of C."""
        p = self.problem
        if p.epilogue_dtype.integer:
            return np.zeros_like(self.scale)
        u_sum, u_out = (p.epilogue_dtype if p.accumulator.integer else p.accumulator).roundoff, p.output.roundoff
        k = p.reduction * p.accumulator.parts  # terms of a part of a sum
        steps = min(FACTOR * max(k, 1) ** 0.5, k + 4.0)
        allowed = steps * u_sum + self._truncation_error()
        smallest = (
            0.125 if p.output.integer else max(p.output.smallest, p.epilogue_dtype.smallest)
        )  # half of the smallest value: the rounding error of underflow
        absolute = 0.0
        operations = [epilogue_op(name) for name in p.epilogue_ops]
        finer = p.epilogue_dtype.roundoff / dtype("f32").roundoff  # bounds of approximations are those of f32
        for op in operations:
            if op.slope is not None:
                allowed = op.slope * allowed + finer * op.relative
                absolute = op.slope * absolute + finer * op.absolute
        result: Array = allowed * self.scale + absolute
        if not p.accumulator.integer:  # every sum is a multiple of the smallest positive number
            result += steps * p.accumulator.smallest / 2
        for op in operations:
            if op.slope is None:
                result = self._error_of(op, result)
        if not stored:
            return result + 4 * p.epilogue_dtype.smallest
        return result + FACTOR * u_out * np.abs(self.exact) + 4 * smallest

    def _error_of(self, op: EpilogueOp, error: Array) -> Array:
        """The error of an activation whose argument has the error ``error``: the error of its own instructions plus the
        propagated error."""
        values = dict(self.variables)
        for step in op.steps:
            root = step.expression(self.problem.epilogue_dtype.name)
            errors = _pairs(self.problem, error) if op.gated else {"x": error}
            own, passed = (with_errors([root], values, given)[0] for given in ({}, errors))
            exact = evaluate(step.expression("f64"), values)  # of numbers that are not rounded to the type
            error = FACTOR * own[1] + passed[1] + np.abs(np.where(np.isfinite(exact), exact - own[0], 0.0))
            values["x"] = exact
        return np.where(np.isnan(error), np.inf, error)

    def _truncation_error(self) -> float:
        """The errors of products and of truncation in tensor cores, relative to ``scale``."""
        p = self.problem
        products, precision, roundoff = (
            TF32 if p.compute == "tf32" else (p.element.mma_k, p.element.mma_truncation, 0.0)
        )
        summed = min(p.reduction, promotion_k(p.element, p.compute) or p.reduction)
        return products / TERMS * precision * -(-summed // products) + 2 * roundoff + p.product_roundoff


def reference(
    p: Problem, arrays: Mapping[str, Array], alpha: complex = 1.0, beta: complex = 0.0, box: Any = None
) -> Reference:
    """Computes alpha·(product of A and B) + beta·C in float64, followed by the epilogue.

    ``arrays``: the problem's arrays by name; C is not read if beta is 0. ``box``: the region of the result to compute,
    None: all; with a region, ``arrays`` has that region of C.
    """
    operation = operation_of(p)
    at = slices_of_sums(p, operation.slices(p, box))
    epilogue = {
        name: _broadcast_region(arrays[name].reshape(p.broadcast_shapes[name][1]), at).astype(np.float64)
        for name in p.epilogue_operands
        if name not in p.outputs
    }
    with np.errstate(all="ignore"):
        exact, scale = operation.product(p, arrays, box)
        exact, scale = alpha * exact, abs(alpha) * scale
        operations = [epilogue_op(name) for name in p.epilogue_ops]
        for op in operations:
            if op.place == SCALE:
                exact, scale = _applied(p, op, exact, scale, epilogue)
        if beta != 0:
            term = beta * wide(arrays["C"])
            exact, scale = exact + term, scale + np.abs(term)
        variables: dict[str, Array] = {}
        for op in operations:
            if op.gated:
                variables = _pairs(p, exact)
            elif op.slope is None:
                variables = {"x": exact, **({"operand": _at_rows(epilogue["aux"], exact)} if op.arrays else {})}
            if op.place not in (SCALE, STORE, SUM, OPERAND):
                exact, scale = _applied(p, op, exact, scale, epilogue)
        if p.output.saturates and not p.epilogue_dtype.integer:
            exact = np.clip(exact, p.output.least, p.output.largest)
    return Reference(p, exact, scale, variables)


def _pairs(p: Problem, sums: Array) -> dict[str, Array]:
    """The variables of a gated activation: ``x``, every other element of ``sums`` along the axis of pairs, and
    ``operand``, the elements between them."""
    last = np.moveaxis(sums, p.pair_axis, -1)
    return {name: np.moveaxis(last[..., n::2], -1, p.pair_axis) for n, name in enumerate(("x", "operand"))}


def slices_of_sums(p: Problem, at: tuple[slice, ...]) -> tuple[slice, ...]:
    """The slices of the sums from which a gated activation makes the region ``at`` of the result; ``at`` without such
    an activation."""
    if not (p.gated and at):
        return at
    slices = list(at)
    pairs = slices[p.pair_axis]
    slices[p.pair_axis] = slice(2 * pairs.start, 2 * pairs.stop)
    return tuple(slices)


def _at_rows(operand: Array, result: Array) -> Array:
    """An elementwise operand without the elements between its rows, so that it has the columns of ``result``."""
    return operand[..., : result.shape[-1]]


def _broadcast_region(x: Array, at: tuple[slice, ...]) -> Array:
    """The part of an epilogue operand that broadcasts against the region ``at`` of the result."""
    return x[tuple(s if n > 1 else slice(None) for n, s in zip(x.shape, at, strict=False))]


def _applied(
    p: Problem, op: EpilogueOp, exact: Array, scale: Array, arrays: Mapping[str, Array]
) -> tuple[Array, Array]:
    """Applies an epilogue operation to ``exact``, and to ``scale``, the magnitudes that errors are relative to. The
    magnitude after an activation of the sum alone is that of its argument; other operations add and multiply
    magnitudes."""
    if op.gated:
        return np.asarray(evaluate(op.steps[0].expression("f64"), _pairs(p, exact))), scale
    for step in op.steps:
        values = {"x": exact}
        magnitudes: dict[str, Any] = {"x": scale}
        if step.array:
            operand = arrays[step.array]
            operand = _at_rows(operand, exact) if step.spans == ELEMENT else operand
            values["operand"], magnitudes["operand"] = operand, np.abs(operand)
        root = step.expression("f64")
        exact = np.asarray(evaluate(root, values))
        if op.slope is not None and (op.place != ACTIVATION or step.array):
            scale = np.broadcast_to(_magnitude(root, values, magnitudes), exact.shape)
    return exact, scale


def _magnitude(root: Node, values: Mapping[str, Any], magnitudes: Mapping[str, Any]) -> Any:
    """A bound on the absolute value of an expression, from those of its variables. A select has the bound of the
    selected branch; if its condition depends on the sum, which has an error, it has the larger bound."""
    if root.op == "constant":
        return abs(root.value)
    if root.op == "variable":
        return magnitudes[root.value]
    if root.op == "select":
        condition, *branches = root.arguments
        yes, no = (_magnitude(x, values, magnitudes) for x in branches)
        return np.maximum(yes, no) if "x" in variables(condition) else np.where(evaluate(condition, values), yes, no)
    parts = [_magnitude(x, values, magnitudes) for x in root.arguments]
    if root.op == "*":
        return parts[0] * parts[1]
    if root.op == "fma":
        return parts[0] * parts[1] + parts[2]
    return sum(parts[1:], parts[0])


#: block scales of the inputs ``extreme``, among others from 0.25 to 0.5; products of two of them overflow and underflow
EXTREME_SCALES = (0.0, np.inf, -np.inf, np.nan, 2.0**-149, 1e-40, -1e-20, 1e-30, 1e30)


def _block_scales(rng: np.random.Generator, shape: tuple[int, ...], inputs: str, blocks: int) -> Array:
    """Random block scales, ``blocks`` of them along K. ``inputs``: ``integers``: ±1 or ±2, so that sums stay exact;
    ``scaled``: powers of two that differ by up to 2^8; ``extreme``: four in ten sums have a scale that is
    extreme; others: from 0.25 to 0.5. Signs are random, but for ``positive``."""
    if inputs == "integers":
        scales = np.exp2(rng.integers(0, 2, shape))
    elif inputs == "scaled":
        scales = np.exp2(rng.integers(-5, 4, shape))
    else:
        scales = rng.uniform(0.25, 0.5, shape)
    if inputs != "positive":
        scales *= rng.choice((-1, 1), shape)
    if inputs == "extreme" and scales.size:
        extreme = rng.random(shape) < 0.5 / (2 * max(blocks, 1))
        if scales.size > blocks:  # a single row of extreme scales would leave no finite result
            extreme.flat[rng.integers(extreme.size)] = True
        scales = np.where(extreme, rng.choice(EXTREME_SCALES, shape), scales)
    return scales.astype(np.float32)


def epilogue_arrays(p: Problem, seed: int = 0, inputs: str = "normal") -> dict[str, Array]:
    """Makes the epilogue operands and the block scales. Epilogue scales are powers of two. The residual and ``aux``
    have the stored rows of C."""
    rng = np.random.default_rng([seed, 1])
    blocks = -(-p.reduction // DEPTH)
    out = {name: _block_scales(rng, shape, inputs, blocks) for name, shape in p.scale_shapes.items()}
    for name in p.epilogue_operands:
        shape = p.broadcast_shapes[name][0]
        if name.startswith("scale"):
            low = -7 if p.element.int8 and inputs != "integers" else -2  # sums of full-range s8 products are large
            out[name] = np.exp2(rng.integers(low, low + 4, shape)).astype(np.float32)
        else:
            values = rng.integers(-3, 4, shape) if inputs == "integers" else rng.standard_normal(shape)
            out[name] = _as(values, p.epilogue_operand_dtype(name))
    return out


@dataclass(frozen=True)
class Deviation:
    """How a result differs from its reference. ``ratio``: the largest error over its tolerance (correct: at most 1;
    infinite if only one of the two is NaN); ``where``: the index of the element with this ratio; ``worst``: the largest
    error over u_sum·√K·scale."""

    ratio: float
    where: tuple[int, ...]
    worst: float

    @property
    def ok(self) -> bool:
        return self.ratio <= 1.0

    def __str__(self) -> str:
        if self.ratio == 0:
            return "exact"
        return f"worst error {self.ratio:.3g} of the tolerance, at {list(self.where)}"


def compare(result: Array, ref: Reference) -> Deviation:
    """Compares a result with its reference. Infinities and NaN must agree element by element."""
    p = ref.problem
    if result.size == 0:
        return Deviation(0.0, (0, 0), 0.0)
    with np.errstate(all="ignore"):
        got, exact = parts_of(wide(result)), parts_of(ref.exact)
        allowed, scale = ref.tolerance(), ref.scale
        if p.output.part:  # each part may have the error of the whole
            allowed, scale = (np.repeat(x, p.output.parts, axis=-1) for x in (allowed, scale))
        same = (got == exact) | (np.isnan(got) & np.isnan(exact))
        # a result whose error interval exceeds the largest number may be rounded to infinity
        overflows = (np.abs(exact) + allowed > p.output.largest) & (not p.output.saturates)
        same |= np.isinf(got) & overflows & (np.sign(got) == np.sign(exact))
        scale = np.maximum(*_pairs(p, scale).values()) if p.gated else scale
        if p.has_group_scales:  # activations and saturation may make numbers of infinities
            finite = p.output.saturates or any(epilogue_op(name).place == ACTIVATION for name in p.epilogue_ops)
            same |= np.isinf(scale) & (finite | ~np.isfinite(got))
        error = np.where(same, 0.0, np.abs(got - exact))
        ratio = np.where(same | (np.isinf(allowed) & np.isfinite(exact)), 0.0, error / allowed)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        unit = p.accumulator.roundoff * max(p.reduction, 1) ** 0.5 * scale
        worst = np.nanmax(np.where(error > 0, error / np.where(unit > 0, unit, np.inf), 0.0))
    flat = int(np.argmax(ratio))
    *rows, column = (int(i) for i in np.unravel_index(flat, ratio.shape))
    where = (*rows, column // p.output.parts)
    return Deviation(float(ratio.flat[flat]), where, float(worst))


def verdict(inputs: str, result: Array, ref: Reference) -> Deviation:
    """Compares a result with its reference. For ``integers`` inputs every element must be equal after rounding to the
    type of C."""
    deviation, got = compare(result, ref), wide(result)
    exact = all(epilogue_op(name).exact for name in ref.problem.epilogue_ops)
    if inputs != "integers" or not exact or not deviation.ok:
        return deviation
    if len(wrong := np.argwhere(got != ref.rounded)):
        return Deviation(np.inf, tuple(int(i) for i in wrong[0]), deviation.worst)
    return Deviation(0.0, deviation.where, 0.0)
