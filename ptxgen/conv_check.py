"""Convolutions on inputs that show mistakes, and beside float64 while they are timed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.config import Config
from ptxgen.conv import Conv
from ptxgen.convolution import convolve
from ptxgen.drivers import Driver, Timing
from ptxgen.reference import Array, Deviation, Reference, compare, epilogue_arrays, operands, reference, verdict
from ptxgen.runner import Buffers, Runner

RUNS = 8  #: runs of results, first to last in memory, of which that many are compared
GUARD = 256  #: poisoned bytes on either side of a result, which must not change


class ConvRing:
    """As ``bench.Ring``, for convolutions. Images, filters and results lie without gaps."""

    def __init__(self, driver: Driver, problem: Conv, timing: Timing, seed: int = 0) -> None:
        self.driver, self.problem = driver, problem
        self.a, self.b, c = operands(problem, seed)
        self.bytes_c = max(c.nbytes, 1)
        whole = self.a.nbytes + self.b.nbytes + c.nbytes
        count = 1
        if driver.clock == "hardware":
            count = int(min(timing.most, max(2, -(-timing.ring * driver.device.l2 // max(whole, 1)))))
        self.sets: list[tuple[int, int, int]] = []
        for _ in range(count):
            a, b = (self._upload(x) for x in (self.a, self.b))
            self.sets.append((a, b, driver.allocate(self.bytes_c)))
            driver.fill(self.sets[-1][2], self.bytes_c, 0xFF)
        self.more = epilogue_arrays(problem, seed)
        self.more_at = tuple(self._upload(x) for x in self.more)
        self._references: dict[tuple[int, int], Reference] = {}

    def _upload(self, array: Array) -> int:
        address = self.driver.allocate(max(array.nbytes, 1))
        if array.nbytes:
            self.driver.upload(address, np.ascontiguousarray(array))
        return address

    def runs(self, limit: int) -> Iterator[tuple[int, int]]:
        """(first, one past the last) result in memory: at most ``limit`` of them in all, or about as many."""
        whole = math.prod(self.problem.stored[2])
        if whole <= limit:
            yield 0, whole
            return
        run = max(1, limit // RUNS)
        for i in range(RUNS):
            first = round(i * (whole - run) / (RUNS - 1))
            yield first, first + run

    def deviation(self, limit: int) -> Deviation:
        """Compares the first set's results, as the device holds them, with float64."""
        p, worst = self.problem, Deviation(0.0, (0,) * len(self.problem.stored[2]), 0.0)
        for first, last in self.runs(limit) if math.prod(p.stored[2]) else ():
            ref = self._reference(first, last)
            got = np.empty(last - first, p.output.numpy)
            self.driver.download(self.sets[0][2] + first * p.output.bytes, got)
            found = compare(got, ref)
            if not found.ratio <= worst.ratio:
                where = np.unravel_index(first + found.where[0], p.stored[2])
                worst = Deviation(found.ratio, tuple(int(i) for i in where), found.worst)
        return worst

    def _reference(self, first: int, last: int) -> Reference:
        """These results in float64; kept."""
        p, whole = self.problem, (0, math.prod(self.problem.stored[2]))
        if (first, last) not in self._references:
            if cuts(p) or (first, last) == whole:
                made = part(p, self.a, self.b, self.more, first, last)
            else:
                all_ = self._reference(*whole)
                made = Reference(p, all_.exact[first:last], all_.scale[first:last])
            self._references[first, last] = made
        return self._references[first, last]

    def release(self) -> None:
        for address in (*(address for addresses in self.sets for address in addresses), *self.more_at):
            self.driver.release(address)
        self.sets.clear()
        self.more_at = ()


def cuts(p: Conv) -> bool:
    """Whether results can be computed apart from others along what varies slowest in memory."""
    return p.groups == 1 or next(iter(p.extents(p.tensors[2]))) == "n"


def part(p: Conv, a: Array, b: Array, more: tuple[Array, ...], first: int, last: int) -> Reference:
    """The results from ``first`` to ``last`` as they lie in memory, in float64. Only what they need is computed: the
    images, filters or channels, whichever vary slowest in memory, that they belong to."""
    extents = p.extents(p.tensors[2])
    letter = next(iter(extents))
    step = math.prod(extents.values()) // extents[letter]
    chosen = slice(first // step, -(-last // step))
    small = p
    if cuts(p):
        changed: dict[str, Any] = {letter: chosen.stop - chosen.start}
        small = replace(p, **changed)
        a, b = (_cut(p, tensor, x, letter, chosen) for tensor, x in zip(p.tensors, (a, b), strict=False))
        more = tuple(
            x[chosen] if name == "bias" and letter == "k" else
            _cut(p, p.tensors[2], x.reshape(p.stored[2]), letter, chosen) if name == "residual" else x
            for name, x in zip(p.reads, more, strict=True)
        )  # fmt: skip
        first, last = first - chosen.start * step, last - chosen.start * step
    whole = reference(small, a, b, more=more)
    return Reference(small, whole.exact.reshape(-1)[first:last], whole.scale.reshape(-1)[first:last])


def _cut(p: Conv, tensor: str, stored: Array, letter: str, chosen: slice) -> Array:
    """The part of a tensor that has these indices along an axis; all of it where it has no such axis."""
    letters = [x for x in p.extents(tensor) if stored.ndim == 5 or x not in "dtz"]
    if letter not in letters:
        return stored
    return np.ascontiguousarray(stored[tuple(chosen if x == letter else slice(None) for x in letters)])


def guarded(runner: Runner, a: Array, b: Array, c: Array, alpha: float, beta: float,
            more: tuple[Array, ...]) -> tuple[Array, bool]:  # fmt: skip
    """(the result, whether what lies around it and the operands are as before)."""
    driver, p = runner.driver, runner.problem
    zone = np.full(GUARD // p.output.bytes, p.output.poison, p.output.numpy)
    wide = np.concatenate([zone, c.reshape(-1), zone])
    after = np.empty_like(wide)
    with Buffers(driver, a, b, wide, *more) as at:
        first, second, result, *rest = at.addresses
        runner.bind(first, second, result + GUARD, alpha, beta, tuple(rest))()
        driver.synchronize()
        driver.download(result, after)
        kept = after[: zone.size].tobytes() == zone.tobytes() == after[zone.size + c.size :].tobytes()
        for address, x in ((first, a), (second, b)):
            read = np.empty(x.shape, x.dtype)
            if x.size:
                driver.download(address, read)
            kept &= read.tobytes() == x.tobytes()
    return after[zone.size : zone.size + c.size].reshape(c.shape), kept


def adjoint(p: Conv, a: Array, b: Array, result: Array, seed: int) -> tuple[float, float]:
    """Two sides of ⟨I * F, dO⟩ = ⟨I, dI(dO, F)⟩ = ⟨F, dF(I, dO)⟩, which ties a convolution to its gradients, for a
    ``result`` that the device computed and a random third tensor. In integers they are equal."""
    third = np.random.default_rng([seed, 2]).integers(-2, 3, p.stored[2]).astype(np.float64)
    known = dict(zip(p.tensors, (a.astype(np.float64), b.astype(np.float64), third), strict=True))
    other = replace(p, direction="forward" if p.direction != "forward" else "input_grad", out="",
                    aligned_input=16, aligned_filter=16, aligned_output=16)  # fmt: skip
    one, two, made = other.tensors
    return float(np.sum(result.astype(np.float64) * third)), float(
        np.sum(convolve(other, known[one], known[two]) * known[made])
    )


def trials(driver: Driver, p: Conv, config: Config, seed: int,
           cases: Sequence[tuple[str, float, float, str]]) -> Iterator[tuple[str, Deviation]]:  # fmt: skip
    """(what was tried, how the result deviates) for each of ``check.CASES``, and once more for the identity that ties
    convolutions to their gradients. Where anything but the result was changed, the deviation is at (-1,)."""
    runner = Runner.of(driver, p, config)
    try:
        for kind, alpha, beta, before in cases:
            if p.linear.integer:
                alpha, beta = round(alpha), round(beta)
            a, b, c = operands(p, seed, kind)
            if before == "nan":
                c = np.full_like(c, p.output.poison)
            more = epilogue_arrays(p, seed, kind)
            ref = reference(p, a, b, c, alpha, beta, more)
            out, kept = guarded(runner, a, b, c, alpha, beta, more)
            deviation = verdict(kind, out, ref)
            if not kept or runner.raised():
                deviation = Deviation(np.inf, (-1,), deviation.worst)
            yield kind if beta == 0 else f"{kind}, alpha={alpha:g}, beta={beta:g}", deviation
            if kind == "integers" and not p.stages:
                left, right = adjoint(p, a, b, out, seed)
                yield "adjoint", Deviation(0.0 if left == right else np.inf, (0,), abs(left - right))
    finally:
        runner.workspace.release()
