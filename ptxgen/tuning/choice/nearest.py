"""Results for a device with few measurements of its own: the model and the winners of the nearest device that has more,
scaled by the facts of both devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common import perf_model, rules
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import DEVICES, Device
from ptxgen.problem.registry import Problem
from ptxgen.tuning.model.model import Model, Scale, Search, order_of_choices
from ptxgen.tuning.model.shortlist import Floats
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.measurement import Measurement

FEW_ROWS = 2_000  #: a model trained on fewer measurements gives way to that of the nearest device
RANKED = 64  #: the fewest configurations of the other device's ranking that are scaled
#: the facts of a device on which the choice among configurations depends; the memory bandwidth scales the times of all
#: alike
COMPUTE_FACTS = ("sms", "clock", "shared_block", "shared_sm", "registers_sm", "threads_sm", "blocks_sm")


def nearest(device: Device, others: Iterable[Device]) -> Device | None:
    """The first of ``by_distance``. None: ``others`` is empty."""
    return next(iter(by_distance(device, others)), None)


def by_distance(device: Device, others: Iterable[Device]) -> list[Device]:
    """``others``, those most like ``device`` first: devices of its compute capability, then of its major version, then
    of the nearest capability; among equals, by the nearest rates of arithmetic and memory."""

    def distance(other: Device) -> tuple[float, ...]:
        rates = ((device.sms * device.clock, other.sms * other.clock), (device.bandwidth, other.bandwidth))
        return (
            abs(device.sm // 10 - other.sm // 10),
            abs(device.sm - other.sm),
            sum(abs(math.log(x / y)) for x, y in rates),
        )

    return sorted(others, key=distance)


def others_tuned(device: Device) -> list[Device]:
    """The other GPUs of the same compute capability that have shipped winners, the nearest first."""
    names = set(tuning_files.devices()) - {device.name, "emulated"}
    others = [DEVICES[name] for name in sorted(names & set(DEVICES)) if DEVICES[name].sm == device.sm]
    return [] if device.name == "emulated" else by_distance(device, others)


def time_ratio(problem: Problem, columns: Columns, device: Device, other: Device) -> Floats:
    """The time of each configuration on ``device``, divided by its time on ``other``, as the performance model predicts
    both."""
    p = lower(problem)
    ratio: Floats = perf_model.predict(p, columns, device) / perf_model.predict(p, columns, other)
    return ratio


def scaled_us(problem: Problem, config: Config, us: float, device: Device, other: Device) -> float:
    """The predicted time on ``device`` of a configuration that takes ``us`` on ``other``."""
    return us * float(time_ratio(problem, Columns.of([config]), device, other)[0])


class ScaledModel(Model):
    """The model of another device, ``source``, for a device of the same compute capability. A prediction is that of
    ``source`` times the ratio of the performance model's predictions for the two devices. No configuration is predicted
    to be faster than on the other device unless this device's facts are better."""

    def __init__(self, device: Device, source: Model) -> None:
        super().__init__(device, source.facts, source.booster, source.names, source.network)
        self.source = source

    def predict(self, problem: Problem, columns: Columns, scale: Scale | None = None) -> Floats:
        scale = self.source._scale(problem, columns, RANKED) if scale is None else scale
        us: Floats = self.source.predict(problem, columns, scale)
        us = us * time_ratio(problem, columns, self.device, self.source.device)
        return us

    def search(
        self, problem: Problem, device: Device | None = None, k: int = 100, *, exhaustive: bool = False
    ) -> Search:
        own = self._own(device)
        result = self.source.search(problem, None, max(k, RANKED), exhaustive=exhaustive)
        configs = [config for config, _ in result.best]
        if any(getattr(own, name) != getattr(self.source.device, name) for name in COMPUTE_FACTS):
            configs += [c for c, _ in super().search(problem, own, max(k, RANKED), exhaustive=exhaustive).best]
        legal = [c for c in dict.fromkeys(configs) if rules.first_violation(lower(problem), c, own) is None]
        if not legal:
            return super().search(problem, own, k, exhaustive=exhaustive)
        us = self.predict(problem, Columns.of(legal), result.scale)
        choices = list(zip(legal, map(float, us), strict=True))
        return replace(result, best=[choices[i] for i in order_of_choices(lower(problem), choices, own)[:k]])


def transferred(device: Device, source: Model) -> Model:
    """The model of another device, for use on ``device``: a ``ScaledModel``. If it was trained on measurements of
    ``device``, too, or for another compute capability, whose legal configurations differ, its trees correct the
    performance model of ``device`` instead."""
    shared = source.facts is not None and device.name in source.facts.also
    if device.sm == source.device.sm and not shared:
        return ScaledModel(device, source)
    return Model(device, source.facts, source.booster, source.names, source.network)


def scaled_measurements(rows: Iterable[Measurement], device: Device, other: Device) -> Iterator[Measurement]:
    """Successful measurements of ``other`` with times scaled to ``device``, on which a model of ``device`` can be
    trained."""
    good = sorted((m for m in rows if m.outcome == "ok"), key=lambda m: m.problem.key())
    for problem, group in groupby(good, key=lambda m: m.problem):
        some: Sequence[Measurement] = list(group)
        columns = Columns.of([m.config for m in some])
        legal = np.flatnonzero(
            rules.legal(lower(problem), columns, device) & rules.legal(lower(problem), columns, other)
        )
        ratios = time_ratio(problem, columns.take(legal), device, other)
        for i, ratio in zip(legal, ratios, strict=True):
            m = some[int(i)]
            samples = tuple(us * float(ratio) for us in m.samples)
            yield replace(m, samples=samples, environment=replace(m.environment, device=device.name))
