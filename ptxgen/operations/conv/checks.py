"""Checks of convolutions, and their operand sets and references for timed runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.families import registry
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.reference import Box, box_extents, convolve, region_slices, whole_tensor
from ptxgen.problem.reference import (
    Array,
    Deviation,
    Reference,
    compare,
    epilogue_arrays,
    operands,
    random_operands,
    reference,
    verdict,
)
from ptxgen.runtime.check import CASES, CheckResult
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets
from ptxgen.runtime.runner import Buffers, Runner

RUNS = 8  #: number of boxes in which a large result is compared
CHANNELS = 32  #: channels per box if channels are not contiguous
DEPTH = 1 << 14  #: if sums have more terms than this, fewer sums are compared
GUARD = 256  #: bytes of each guard zone, before and after the result


class ConvOperandSets(OperandSets):
    """``OperandSets`` of a convolution: images, filters and results, contiguous."""

    problem: Conv

    def __init__(self, driver: Driver, problem: Conv, timing: Timing, seed: int = 0) -> None:
        inputs, epilogue = dict(islice(random_operands(problem, seed), 2)), epilogue_arrays(problem, seed)
        self.problem, self.arrays = problem, inputs | epilogue
        self._references: dict[tuple[tuple[int, int], ...], Reference] = {}
        bytes_c = math.prod(problem.stored[2]) * problem.output.bytes
        super().__init__(driver, timing, inputs, {"C": bytes_c}, epilogue)

    def deviation(self, limit: int) -> Deviation:
        """The deviation of the result of the first set from the float64 reference, over all elements or in boxes with
        about ``limit`` elements in total."""
        p, worst = self.problem, Deviation(0.0, (0,) * len(self.problem.stored[2]), 0.0)
        for box in boxes(p, limit) if math.prod(p.stored[2]) else ():
            deviation = compare(self._result(box), self._reference(box))
            if not deviation.ratio <= worst.ratio:
                where = (at.start + n for at, n in zip(region_slices(p, box), deviation.where, strict=True))
                worst = Deviation(deviation.ratio, tuple(where), deviation.worst)
        return worst

    def _result(self, box: Box) -> Array:
        """Downloads a box of the result of the first set."""
        at, stored, size = region_slices(self.problem, box), self.problem.stored[2], self.problem.output.bytes
        out = np.empty([s.stop - s.start for s in at], self.problem.output.numpy)
        contiguous_from = next((n for n in reversed(range(len(stored))) if out.shape[n] < stored[n]), 0)
        pieces = out.reshape(math.prod(out.shape[:contiguous_from]), -1)
        for piece, outer in zip(pieces, np.ndindex(*out.shape[:contiguous_from]), strict=True):
            first = [s.start + n for s, n in zip(at, (*outer, *(0,) * len(stored)), strict=False)]
            offset = int(np.ravel_multi_index(first, stored))
            self.driver.download(self.sets[0]["C"] + offset * size, piece)
        return out

    def _reference(self, box: Box) -> Reference:
        """The reference of a box of the result, cached."""
        p, every = self.problem, region_slices(self.problem, {})
        key, all_ = (tuple((s.start, s.stop) for s in at) for at in (region_slices(p, box), every))
        if key not in self._references:
            if all_ in self._references:
                known = self._references[all_]
                made = known.part(region_slices(p, box))
            else:
                made = reference(p, self.arrays, box=box)
            self._references[key] = made
        return self._references[key]


def boxes(p: Conv, limit: int) -> list[Box]:
    """Boxes of the result, evenly spread from its first element to its last, with about ``limit`` elements in
    total: some channels of adjacent pixels. Long sums count as several elements. A small result is one box."""
    extents, depth = p.extents(p.tensors[2]), lower(p).k
    limit = limit * DEPTH // max(depth, DEPTH)
    if math.prod(extents.values()) <= limit:
        return [whole_tensor(p, p.tensors[2])]
    channel_axis = "c" if p.direction == "input_grad" else "k"
    *_, fastest = extents
    group = extents[channel_axis] // p.groups
    per_box = limit // RUNS
    channels = min(extents[channel_axis], per_box if channel_axis == fastest else CHANNELS)
    channels = max(group, channels // group * group) if p.groups > 1 else max(1, channels)
    others = [name for name in extents if name != channel_axis]
    sizes = dict(zip(others, box_extents([extents[name] for name in others], max(1, per_box // channels)), strict=True))
    sizes[channel_axis] = channels
    granularity = {name: group if name == channel_axis and p.groups > 1 else 1 for name in extents}
    return [
        {
            name: slice(first, first + sizes[name])
            for name, extent in extents.items()
            for first in [round(n * (extent - sizes[name]) / granularity[name] / (RUNS - 1)) * granularity[name]]
        }
        for n in range(RUNS)
    ]


def guarded(runner: Runner, arrays: Mapping[str, Array], alpha: float, beta: float) -> tuple[dict[str, Array], bool]:
    """The pair (outputs of a kernel by name, True if the guard zones around the outputs and around the operands did not
    change)."""
    driver, p = runner.driver, runner.problem
    zone = np.full(GUARD // p.output.bytes, p.output.poison, p.output.numpy)
    wide = {name: np.concatenate([zone, arrays[name].reshape(-1), zone]) for name in p.outputs}
    outputs, unchanged = {}, True
    with Buffers(driver, {**arrays, **wide}) as buffers:
        at = buffers.addresses
        runner.bind(at | {name: at[name] + GUARD for name in wide}, alpha, beta)()
        driver.synchronize()
        for name, before in wide.items():
            after = np.empty_like(before)
            driver.download(at[name], after)
            inner = after[zone.size : after.size - zone.size]
            unchanged &= after[: zone.size].tobytes() == zone.tobytes() == after[zone.size + inner.size :].tobytes()
            outputs[name] = inner.reshape(arrays[name].shape)
        for name in ("A", "B"):
            x = arrays[name]
            read = np.empty(x.shape, x.dtype)
            if x.size:
                driver.download(at[name], read)
            unchanged &= read.tobytes() == x.tobytes()
    return outputs, unchanged


def adjoint(p: Conv, arrays: Mapping[str, Array], result: Array, seed: int) -> tuple[float, float]:
    """Two sides of the identity ⟨I * F, dO⟩ = ⟨I, dI(dO, F)⟩ = ⟨F, dF(I, dO)⟩ between a convolution and its gradients,
    for the computed ``result`` and a random third tensor. For integers the sides are equal."""
    third = np.random.default_rng([seed, 2]).integers(-2, 3, p.stored[2]).astype(np.float64)
    inputs = (arrays[name].astype(np.float64) for name in "AB")
    known = dict(zip(p.tensors, (*inputs, third), strict=True))
    other = replace(
        p,
        direction="forward" if p.direction != "forward" else "input_grad",
        out="",
        aligned_input=16,
        aligned_filter=16,
        aligned_output=16,
    )
    first, second, output = other.tensors
    return float(np.sum(result.astype(np.float64) * third)), float(
        np.sum(convolve(other, known[first], known[second]) * known[output])
    )


def check_conv(driver: Driver, p: Conv, config: Config, seed: int = 0, row_padding: int = 0) -> Iterator[CheckResult]:
    """The results of checking a convolution with each of ``check.CASES``, and of the identity between a convolution and
    its gradients (except for 8-bit results, which saturate). Sums that the kernel stores beside results are compared,
    too. Integer results must be exact unless the transforms of the family round. If a kernel wrote memory outside its
    outputs, the deviation is at (-1,). ``row_padding`` is unused, because outputs have guard zones."""
    runner = Runner.of(driver, p, config)
    exact = registry.of(config).exact_integers
    try:
        for inputs, alpha, beta, initial in CASES:
            if p.epilogue_dtype.integer:
                alpha, beta = round(alpha), round(beta)
            beta = 0.0 if p.gated else beta
            arrays = operands(p, seed, inputs) | epilogue_arrays(p, seed, inputs)
            if initial == "nan":
                arrays["C"] = np.full_like(arrays["C"], p.output.poison)
            ref = reference(p, arrays, alpha, beta)
            outputs, unchanged = guarded(runner, arrays, alpha, beta)
            out = outputs["C"]
            deviation = verdict(inputs, out, ref) if exact else compare(out, ref)
            if p.stores_sums:
                of_sums = reference(p.of_sums(), arrays, alpha, beta)
                beside = verdict(inputs, outputs["sums"], of_sums) if exact else compare(outputs["sums"], of_sums)
                deviation = max(deviation, beside, key=lambda x: x.ratio)
            if not unchanged or runner.workspace_dirty():
                deviation = Deviation(np.inf, (-1,), deviation.worst)
            yield CheckResult(inputs if beta == 0 else f"{inputs}, alpha={alpha:g}, beta={beta:g}", deviation)
            if inputs == "integers" and exact and not p.epilogue_ops and not p.output.saturates:
                left, right = adjoint(p, arrays, out, seed)
                yield CheckResult("adjoint", Deviation(0.0 if left == right else np.inf, (0,), abs(left - right)))
    finally:
        runner.workspace.release()
