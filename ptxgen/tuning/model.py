"""The regressor: from a problem and configurations to microseconds, and the exhaustive search over it (sections 5, 6).

Boosted trees (XGBoost, this module's own dependency) learn the logarithm of time relative to one of three yardsticks,
whichever carries best to problems left out of the training. The search scores the whole legal space of a problem but
for what the analytic clock puts far behind its best; a device without measurements is ranked by that clock alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config import FAMILIES, Columns, Config
from ptxgen.errors import DeviceError, InputError
from ptxgen.families import perf_model as clock
from ptxgen.families.features import NAMES, features
from ptxgen.families.space import Candidates, candidates, members
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.tuning import model_files
from ptxgen.tuning.measurement import Measurement
from ptxgen.tuning.model_files import Facts
from ptxgen.tuning.search import Floats, fastest, shortlist
from ptxgen.tuning.training import TARGETS, Training, clock_of, threads, yardstick

FACTOR = 3.0  #: the search drops what the clock puts this far behind its best
#: so many rows at most are scored, one of each equivalence class; of 300 random problems one chose another
#: configuration than with four times as many
LIMIT = 12_000
#: (trees, rows): the first trees rank those, and so many are left
STAGES = ((60, 2_500), (150, 400))
#: all trees rank every row of the classes that are left; for more configurations than FEW, all limits are four times
#: as high
FEW, MORE = 8, 4
ONE_THREAD = 16_000  #: rows that one thread predicts
CHUNK = 1 << 15  #: rows scored at a time: a matrix larger than the cache costs more to allocate than to fill


@dataclass(frozen=True)
class Search:
    """What an exhaustive search did: ``best`` as (configuration, predicted microseconds), fastest first.

    ``total``: legal candidates; ``scored``: how many the model saw; ``factor``: the clock puts the rest at more than so
    many times its best, or they are of the classes of worse ones.
    """

    best: list[tuple[Config, float]]
    total: int
    scored: int
    factor: float


class Model:
    """Predicts microseconds on one device. ``Model.fit``, ``Model.load`` or ``Model.analytic`` make one."""

    def __init__(
        self, device: Device, facts: Facts | None = None, booster: Any = None, names: tuple[str, ...] = NAMES
    ) -> None:
        """``names``: the features that the booster was trained on, some of ``features.NAMES``."""
        self.device, self.facts, self._booster, self._names = device, facts, booster, names
        if booster is not None:
            booster.set_param({"nthread": threads()})

    @property
    def trained(self) -> bool:
        return self._booster is not None

    @property
    def booster(self) -> Any:
        """The trained trees; None if there are none."""
        return self._booster

    @property
    def names(self) -> tuple[str, ...]:
        """The features that the trees read."""
        return self._names

    @property
    def measured_on(self) -> str:
        """The name of the device on whose measurements it was trained; empty: none."""
        return str(self.facts.device["name"]) if self.facts is not None else ""

    @classmethod
    def analytic(cls, device: Device) -> Model:
        """The model of a device that has no measurements: the clock of section 5.2."""
        return cls(device)

    @classmethod
    def fit(cls, measurements: Iterable[Measurement], device: Device, *, target: str = "") -> Model:
        """A model of ``device`` from its measurements: only those that are ``ok``, on its own clock.

        ``target``: a yardstick of TARGETS, taken as it is: how far it errs is left unknown. By default the one that
        errs least on problems left out, which takes ten trainings.
        InputError: nothing to train on, or no such yardstick.
        """
        if target and target not in TARGETS:
            raise InputError(f"target is {target!r}; it must be one of {', '.join(TARGETS)}")
        rows = Training.gather(measurements, device)
        if not len(rows.log_us):
            raise InputError(
                f"measurements hold no usable row for {device.name} ({rows.skipped} skipped): a row must be ok, of"
                f" that device, with clock={clock_of(device)}"
            )
        errors = {t: rows.validate(t) for t in TARGETS} if rows.groups >= 2 and not target else {}
        chosen = target or (min(errors, key=lambda t: errors[t][0]) if errors else "clock")
        booster = rows.train(chosen, np.ones(len(rows.log_us), bool))
        facts = Facts(
            device=asdict(device),
            target=chosen,
            rows=len(rows.log_us),
            problems=rows.groups,
            skipped=rows.skipped,
            error=round(errors[chosen][1], 4) if errors else float("nan"),
            errors={t: round(e[0], 4) for t, e in errors.items()},
            families=rows.families,
            commits=tuple(sorted(rows.commits)),
            newest=rows.newest,
        )
        return cls(device, facts, booster)

    def predict(self, problem: Problem, columns: Columns) -> Floats:
        """Microseconds of each configuration, which must be legal."""
        p = lower(problem)
        return self._score(p, columns, self.device, clock.predict(p, columns, self.device))

    def _learnt(self, c: Columns) -> NDArray[np.intp]:
        """The rows of families that the model was trained on."""
        if not self.trained or self.facts is None:
            return np.zeros(0, np.intp)
        known = [FAMILIES.index(f) for f in model_files.known(self.facts)]
        if len(known) == len(FAMILIES):
            return np.arange(len(c))
        if isinstance(c, Candidates):
            every = np.arange(len(c))
            found = [every[where] for part, where, _, _ in c.groups() if part.base.family.code in known]
            return np.sort(np.concatenate(found)) if found else every[:0]
        return np.flatnonzero(np.isin(c.family, known))

    def _score(self, p: KernelGemm, c: Columns, d: Device, us: Floats) -> Floats:
        """Microseconds of rows that the clock puts at ``us``."""
        learnt = self._learnt(c)
        if self._booster is None or self.facts is None or not len(learnt):
            return us
        out = us.copy()
        base = yardstick(self.facts.target, p, d, us)
        for at in range(0, len(learnt), CHUNK):
            rows = learnt[at : at + CHUNK]
            x = self._features(p, c if len(rows) == len(c) else c.take(rows), d, us[rows])
            out[rows] = np.exp2(self._predicted(x, 0) + base[rows])
        return out

    def _features(self, p: KernelGemm, c: Columns, d: Device, us: Floats) -> Floats:
        """The features that the trees read."""
        x = features(p, c, d, us)
        return x if self._names == NAMES else np.ascontiguousarray(x[:, model_files.columns_of(self._names)])

    def _predicted(self, x: Floats, trees: int) -> Floats:
        """The prediction of the first ``trees`` (0: of all) for rows of features."""
        assert self._booster is not None
        # waking a second thread takes longer than a few rows do
        self._booster.set_param({"nthread": 1 if len(x) <= ONE_THREAD else threads()})
        found: Floats = self._booster.inplace_predict(x, iteration_range=(0, trees), validate_features=False)
        return found

    def _best_classes(
        self, p: KernelGemm, c: Candidates, d: Device, us: Floats, stages: list[tuple[int, int]]
    ) -> Candidates:
        """The rows of ``c`` that are left after ``stages`` of (trees, rows): few trees rank many rows, more trees those
        that are best by then."""
        learnt = self._learnt(c)
        if self._booster is None or self.facts is None or not len(learnt):
            return c.take(np.sort(fastest(us, stages[-1][1])))
        left, log_us = np.arange(len(c)), np.log2(us)
        x, place = self._features(p, c.take(learnt), d, us[learnt]), np.full(len(c), -1)
        place[learnt] = np.arange(len(learnt))
        base = yardstick(self.facts.target, p, d, us)
        for trees, count in stages:
            if len(left) > count and self._booster.num_boosted_rounds() > 2 * trees:
                known = left[place[left] >= 0]
                log_us[known] = self._predicted(x[place[known]], trees) + base[known]
                left = np.sort(left[fastest(log_us[left], count)])
        return c.take(left)

    def search(
        self, problem: Problem, device: Device | None = None, k: int = 100, *, exhaustive: bool = False
    ) -> Search:
        """The ``k`` fastest of the legal configurations by this model. DeviceError: the model is another device's.

        ``exhaustive``: score even what the clock puts far behind; seconds instead of a fraction of one.
        """
        d = self._own(device)
        p = lower(problem)
        every = exhaustive or not self.trained
        c = candidates(p, d, representatives=not every)
        us = clock.predict(p, c, d)
        total = scored = len(c)
        factor = float("inf")
        if not every:
            more = 1 if k <= FEW else MORE
            near, factor = shortlist(c, us, FACTOR, more * LIMIT)
            total, scored = c.total, len(near)
            c = members(self._best_classes(p, c.take(near), d, us[near], [(t, max(more * n, k)) for t, n in STAGES]))
            us = clock.predict(p, c, d)
            scored += len(c)
        us = self._score(p, c, d, us)
        best = [(c.row(int(i)), float(us[i])) for i in fastest(us, k)]
        return Search(best, total, scored, factor)

    def rank(
        self, problem: Problem, device: Device | None = None, k: int = 100, *, exhaustive: bool = False
    ) -> list[tuple[Config, float]]:
        """The ``k`` fastest configurations and their predicted microseconds, fastest first."""
        return self.search(problem, device, k, exhaustive=exhaustive).best

    def _own(self, device: Device | None) -> Device:
        if device is None or device.name == self.device.name:
            return device or self.device
        raise DeviceError(f"device is {device.name}; the model was trained for {self.device.name}")

    def save(self, folder: Path | str) -> None:
        """Writes ``model.json`` into ``folder``, at one stroke. InputError: nothing was trained."""
        if self._booster is None or self.facts is None:
            raise InputError("model is analytic; only a trained one can be saved")
        model_files.write(Path(folder), self.device, self.facts, self._booster, self._names)

    @classmethod
    def load(cls, folder: Path | str) -> Model:
        """The model that ``save`` wrote, in this version or an earlier one.

        CorruptError: absent or damaged; SchemaError: a newer format, or features that this ptxgen does not compute."""
        return cls(*model_files.read(Path(folder)))


__all__ = ["TARGETS", "Facts", "Model", "Search", "fastest"]
