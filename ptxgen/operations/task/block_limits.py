"""Limits of the best f32 sum of each row in each of several blocks of its columns, computed by tensor cores.

The limit of a block is the least upper end of the row's sums in it, for least sums, and the greatest lower end for
greatest sums (``exact_nearest``). So the n-th best limit of a row is not better than its n-th best sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ptxgen.operations.task import exact_filter
from ptxgen.operations.task.exact_nearest import nearest_of
from ptxgen.operations.task.exact_select import Launch, Operands, Stage, stage_of
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device

LIMITS = "block_limits"
BYTES = 4  #: of an f32


@dataclass(frozen=True)
class BlockLimits:
    """The launches for ``blocks`` blocks. Block b has the columns b, b + ``blocks``, …, and the same number as the
    others: the last columns may be in no block.

    ``stages``: the launches that prepare operands and ends; ``product``: the launch of one block; ``steps``: name of an
    array of ``product`` -> bytes from its part for a block to that for the next; ``scratch``: name -> number of 4-byte
    elements of each further array."""

    blocks: int
    stages: tuple[Stage, ...]
    product: Stage
    steps: Mapping[str, int]
    scratch: Mapping[str, int]

    @classmethod
    def of(cls, p: Task, blocks: int, d: Device) -> BlockLimits | None:
        """The launches for a task that reduces each row by min or max; None: they do not pay, or the task is not one
        whose sums have known ends."""
        programs = nearest_of(p.roles) if p.algebra and p.compute == "f32" and p.batch == 1 else None
        if programs is None or not exact_filter.pays(p, d):
            return None
        made, columns, pitch = Operands.of(p), p.n // blocks, BYTES * p.k
        made.add_bounds(programs.limits, p.k)
        names = dict(made.names)
        steps = {names["B"]: pitch, LIMITS: BYTES * p.m}
        for x in programs.limits.inputs:
            if x.uses == (("j",),):  # one row for each block
                names[x.name] = f"blocks_{x.name}"
                made.scratch[names[x.name]] = blocks * columns
                steps[names[x.name]] = BYTES * columns
                arrays = {"X": x.name, "C": names[x.name]}
                made.stages.append(stage_of(exact_filter.transposed(), blocks, columns, arrays))
        aligned = math.gcd(made.kmajor.aligned_b, pitch)
        fields = {"n": columns, "ldb": blocks * p.k, "aligned_b": aligned}
        made.add_product(programs.limits, {"C": LIMITS}, {}, names, **fields)
        *stages, product = made.stages
        return cls(blocks, tuple(stages), product, steps, made.scratch)

    def launch(
        self,
        make_launch: Callable[[Task, Mapping[str, float]], Launch],
        addresses: Mapping[str, int],
        scalars: Mapping[str, float],
        stream: int = 0,
    ) -> None:
        """Queues the launches. ``make_launch``: returns the launch of a problem with given numbers; ``addresses``: the
        addresses of the inputs, the arrays of ``scratch`` and ``LIMITS``, which gets M limits for each block;
        ``scalars``: the numbers of the task."""
        for stage in self.stages:
            launch = make_launch(stage.problem, stage.numbers(scalars))
            launch(tuple(addresses[name] for name in stage.arrays), stream)
        launch = make_launch(self.product.problem, self.product.numbers(scalars))
        for block in range(self.blocks):
            at = (addresses[name] + block * self.steps.get(name, 0) for name in self.product.arrays)
            launch(tuple(at), stream)
