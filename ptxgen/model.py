"""The regressor: from a problem and configurations to microseconds, and the exhaustive search over it (sections 5, 6).

Boosted trees (XGBoost, this module's own dependency) learn the logarithm of time relative to one of three yardsticks,
whichever carries best to problems left out of the training. The search scores the whole legal space of a problem but
for what the analytic clock puts far behind its best; a device without measurements is ranked by that clock alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen import clock
from ptxgen.config import Columns, Config
from ptxgen.device import Device
from ptxgen.errors import CorruptError, DeviceError, InputError, SchemaError, UnavailableError
from ptxgen.features import NAMES, features
from ptxgen.measurement import Measurement
from ptxgen.problem import Gemm, Problem
from ptxgen.space import Candidates, candidates

Floats = NDArray[np.float32]
Rows = NDArray[np.intp]

FORMAT = 1  #: version of the metadata; a newer one is refused
TREES, DEPTH, RATE, BINS = 150, 6, 0.1, 256
SEED = 7
THREAD_ROWS = 20_000  #: rows from which two threads train; never by the machine: the order of sums follows threads
FOLDS = 3
FACTOR = 3.0  #: the search drops what the clock puts this far behind its best
LIMIT = 50_000  #: if more is left than this, which is what 200 ms allow on two cores, one of each kin is scored first,
FINALISTS = 1_500  #: then all of the kin of so many
CHUNK = 1 << 15  #: rows scored at a time: a matrix larger than the cache costs more to allocate than to fill

#: what time is measured against: nothing, the problem's roofline, the analytic clock
TARGETS = ("time", "roofline", "clock")


@dataclass(frozen=True)
class Search:
    """What an exhaustive search did: ``best`` as (configuration, predicted microseconds), fastest first.

    ``total``: legal candidates; ``scored``: how many the model saw; ``factor``: the clock puts the rest at more than so
    many times its best, or they are kin of worse ones.
    """

    best: list[tuple[Config, float]]
    total: int
    scored: int
    factor: float


@dataclass(frozen=True)
class Facts:
    """What is kept with a trained model. ``errors``: root mean square of log2(predicted / measured) by yardstick, on
    problems left out of training and after their mean is taken off; ``error``: the chosen one's, mean kept."""

    device: dict[str, Any]
    target: str
    rows: int
    problems: int
    skipped: int
    error: float = float("nan")
    errors: dict[str, float] = field(default_factory=dict)
    commits: tuple[str, ...] = ()
    trees: int = TREES
    depth: int = DEPTH


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError as e:  # pragma: no cover
        raise UnavailableError("the model needs xgboost: pip install 'xgboost-cpu>=3.0'") from e
    return xgboost


def _threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, 8))


def yardstick(target: str, p: Problem, d: Device, us: Floats) -> Any:
    """log2 of the microseconds that time is measured against; ``us``: the clock's."""
    if target == "time":
        return np.zeros_like(us)
    return np.full_like(us, np.log2(clock.roofline(p, d))) if target == "roofline" else np.log2(us)


def _probe(d: Device) -> list[float]:
    """The features of a few fixed points: a model must see them as it did when it was trained."""
    c = Columns.of([Config(), Config(ms=4, ns=8, ml=32, u=32, kl=2, kg=7, split=2)])
    points = (Gemm(512, 768, 1024, "TN"), Gemm(32, 2560, 5120, "NT"))
    return [round(float(v), 4) for p in points for v in features(p, c, d).ravel()]


class Model:
    """Predicts microseconds on one device. ``Model.fit``, ``Model.load`` or ``Model.analytic`` make one."""

    def __init__(self, device: Device, facts: Facts | None = None, booster: Any = None) -> None:
        self.device, self.facts, self._booster = device, facts, booster
        if booster is not None:
            booster.set_param({"nthread": _threads()})

    @property
    def trained(self) -> bool:
        return self._booster is not None

    @classmethod
    def analytic(cls, device: Device) -> Model:
        """The model of a device that has no measurements: the clock of section 5.2."""
        return cls(device)

    @classmethod
    def fit(cls, measurements: Iterable[Measurement], device: Device, *, target: str = "") -> Model:
        """A model of ``device`` from its measurements: only those that are ``ok``, on its own clock.

        ``target``: a yardstick of TARGETS; by default the one that errs least on problems left out.
        InputError: nothing to train on, or no such yardstick.
        """
        if target and target not in TARGETS:
            raise InputError(f"target is {target!r}; it must be one of {', '.join(TARGETS)}")
        rows = _Training.gather(measurements, device)
        if not len(rows.log_us):
            raise InputError(
                f"measurements hold no usable row for {device.name} ({rows.skipped} skipped): a row must be ok, of"
                f" that device, with clock={_clock_of(device)}"
            )
        errors = {t: rows.validate(t) for t in ((target,) if target else TARGETS)} if rows.groups >= 2 else {}
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
            commits=tuple(sorted(rows.commits)),
        )
        return cls(device, facts, booster)

    def predict(self, problem: Problem, columns: Columns) -> Floats:
        """Microseconds of each configuration, which must be legal."""
        return self._score(problem, columns, self.device, clock.predict(problem, columns, self.device))

    def _score(self, p: Problem, c: Columns, d: Device, us: Floats) -> Floats:
        if self._booster is None or self.facts is None:
            return us
        out = np.empty(len(c), np.float32)
        base = yardstick(self.facts.target, p, d, us)
        for at in range(0, len(c), CHUNK):
            rows = np.arange(at, min(at + CHUNK, len(c)))
            part = c.take(rows) if len(c) > CHUNK else c
            out[rows] = self._booster.inplace_predict(features(p, part, d, us[rows]), validate_features=False)
        predicted: Floats = np.exp2(out + base)
        return predicted

    def search(
        self, problem: Problem, device: Device | None = None, k: int = 100, *, exhaustive: bool = False
    ) -> Search:
        """The ``k`` fastest of the legal configurations by this model. DeviceError: the model is another device's.

        ``exhaustive``: score even what the clock puts far behind; seconds instead of a fraction of one.
        """
        d = self._own(device)
        c = candidates(problem, d)
        us = clock.predict(problem, c, d)
        total = scored = len(c)
        factor = float("inf")
        if self.trained and not exhaustive:
            near = np.flatnonzero(us <= FACTOR * us.min()) if total else np.zeros(0, np.intp)
            scored, factor = len(near), FACTOR
            if scored > LIMIT:
                leaders, factor = _leaders(c, us, near)
                first = self._score(problem, c.take(leaders), d, us[leaders])
                near = _kin_of(c, near, leaders[fastest(first, FINALISTS)])
                scored = len(leaders) + len(near)
            c, us = c.take(near), us[near]
        us = self._score(problem, c, d, us)
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
        """Writes ``model.json`` (XGBoost's own format) and ``model.meta.json``. InputError: nothing was trained."""
        if self._booster is None or self.facts is None:
            raise InputError("model is analytic; only a trained one can be saved")
        text = _portable(bytes(self._booster.save_raw(raw_format="json")))
        meta = {
            "format": FORMAT,
            "features": list(NAMES),
            "digest": hashlib.sha256(text).hexdigest(),
            "xgboost": _xgboost().__version__,
            **asdict(self.facts),
            "probe": _probe(self.device),
        }
        meta["error"] = None if np.isnan(self.facts.error) else self.facts.error
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in (("model.json", text), ("model.meta.json", json.dumps(meta, indent=1).encode() + b"\n")):
            temporary = folder / f"{name}.{os.getpid()}.part"
            temporary.write_bytes(data)
            temporary.replace(folder / name)

    @classmethod
    def load(cls, folder: Path | str) -> Model:
        """The model that ``save`` wrote. CorruptError: absent or damaged; SchemaError: a newer format, or features
        that this ptxgen does not compute."""
        folder = Path(folder)
        meta = _metadata(folder / "model.meta.json")
        try:
            text = (folder / "model.json").read_bytes()
        except OSError as e:
            raise CorruptError(f"{folder / 'model.json'} cannot be read: {e.strerror}") from e
        digest = hashlib.sha256(text).hexdigest()
        if digest != meta["digest"]:
            raise CorruptError(f"{folder / 'model.json'} has digest {digest}; its metadata say {meta['digest']}")
        booster = _xgboost().Booster()
        booster.load_model(bytearray(text))
        names = {f.name for f in fields(Facts)}
        values = {n: v for n, v in meta.items() if n in names}
        values["error"] = float("nan") if values.get("error") is None else values["error"]
        values["commits"] = tuple(values.get("commits", ()))
        try:
            device = Device(**meta["device"])
        except TypeError as e:
            raise SchemaError(f"{folder} describes a device otherwise than this ptxgen: {e}") from e
        seen, now = np.array(meta["probe"]), np.array(_probe(device))
        same = len(seen) == len(now)
        changed = np.flatnonzero(np.abs(now - seen) > 1e-3 * (1 + np.abs(seen))) if same else np.zeros(0, np.intp)
        if not same or len(changed):
            which = ", ".join(sorted({NAMES[i % len(NAMES)] for i in changed})) or "their number"
            raise SchemaError(
                f"{folder} was trained on features that are computed otherwise now: {which}; train it again"
            )
        return cls(device, Facts(**values), booster)


def _leaders(c: Candidates, us: Floats, near: Rows) -> tuple[Rows, float]:
    """Of the rows ``near``, one of each kin, LIMIT at the most, the best by the clock; and how far they reach."""
    leaders = near[c.base.leads[c.rows[near]]]
    if len(leaders) <= LIMIT:
        return leaders, FACTOR
    bound = np.partition(us[leaders], LIMIT - 1)[LIMIT - 1]
    return leaders[us[leaders] <= bound][:LIMIT], float(bound / us.min())


def _kin_of(c: Candidates, near: Rows, chosen: Rows) -> Rows:
    """The rows of ``near`` whose kin and slices are those of a row of ``chosen``."""
    kins = int(c.base.kin.max()) + 1
    wanted = np.zeros((len(c.cells), kins), bool)
    wanted[c.cell[chosen], c.base.kin[c.rows[chosen]]] = True
    return near[wanted[c.cell[near], c.base.kin[c.rows[near]]]]


def fastest(us: Floats, k: int) -> Rows:
    """The indices of the ``k`` smallest, in order; of equals the first."""
    k = min(max(k, 0), len(us))
    if k == 0:
        return np.zeros(0, np.intp)
    worst = np.partition(us, k - 1)[k - 1]
    picked = np.flatnonzero(us <= worst)
    return picked[np.argsort(us[picked], kind="stable")][:k]


def _metadata(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_text())
        if not isinstance(meta, dict) or not isinstance(meta["format"], int):
            raise ValueError("no format")
    except OSError as e:
        raise CorruptError(f"{path} cannot be read: {e.strerror}") from e
    except (ValueError, KeyError) as e:
        raise CorruptError(f"{path} is not the metadata of a model: {e}") from e
    if meta["format"] > FORMAT:
        raise SchemaError(f"{path} has format {meta['format']}; this ptxgen reads up to {FORMAT}")
    if meta.get("features") != list(NAMES):
        theirs = meta.get("features") or []
        missing, extra = sorted(set(NAMES) - set(theirs)), sorted(set(theirs) - set(NAMES))
        raise SchemaError(
            f"{path} was trained on {len(theirs)} features; this ptxgen computes {len(NAMES)}"
            f" (only here: {', '.join(missing) or 'none'}; only there: {', '.join(extra) or 'none'})"
        )
    absent = {"digest", "device", "target", "probe", "rows", "problems", "skipped"} - set(meta)
    if absent:
        raise CorruptError(f"{path} lacks {', '.join(sorted(absent))}")
    return meta


def _portable(text: bytes) -> bytes:
    """The model as XGBoost 3.0 reads it too: later versions write the base score as a list."""
    model = json.loads(text)
    parameters = model["learner"]["learner_model_param"]
    parameters["base_score"] = parameters["base_score"].strip("[]")
    return json.dumps(model, separators=(",", ":")).encode()


def _clock_of(d: Device) -> str:
    return "model" if d.name == "emulated" else "hardware"


@dataclass(frozen=True)
class _Training:
    """Training data: one row a measurement, ``group`` the index of its problem."""

    x: Floats
    log_us: Floats
    group: NDArray[np.int64]
    bases: dict[str, Floats]
    groups: int
    skipped: int
    commits: frozenset[str]

    @classmethod
    def gather(cls, measurements: Iterable[Measurement], d: Device) -> _Training:
        by_problem: dict[Problem, list[tuple[Config, float]]] = {}
        commits, skipped = set(), 0
        for m in measurements:
            e = m.environment
            if m.outcome != "ok" or not m.samples or e.device != d.name or e.clock != _clock_of(d) or not m.us > 0:
                skipped += 1
                continue
            by_problem.setdefault(m.problem, []).append((m.config, m.us))
            commits.add(e.commit)
        blocks, times, group = [np.zeros((0, len(NAMES)), np.float32)], [], []
        bases: dict[str, list[Floats]] = {t: [] for t in TARGETS}
        for i, p in enumerate(sorted(by_problem, key=lambda q: q.key())):
            rows = sorted(by_problem[p])
            c = Columns.of([r[0] for r in rows])
            us = clock.predict(p, c, d)
            blocks.append(features(p, c, d, us))
            times.append(np.log2(np.array([r[1] for r in rows], np.float32)))
            group.append(np.full(len(rows), i))
            for t in TARGETS:
                bases[t].append(yardstick(t, p, d, us))
        empty = [np.zeros(0, np.float32)]
        return cls(
            x=np.concatenate(blocks),
            log_us=np.concatenate(times or empty),
            group=np.concatenate(group or empty).astype(np.int64),
            bases={t: np.concatenate(b or empty) for t, b in bases.items()},
            groups=len(by_problem),
            skipped=skipped,
            commits=frozenset(commits - {""}),
        )

    def weights(self) -> Floats:
        """Fast rows count more, by the root of their speed: the search never returns slow ones."""
        best = np.full(max(self.groups, 1), np.inf, np.float32)
        np.minimum.at(best, self.group, self.log_us)
        weights: Floats = np.exp2((best[self.group] - self.log_us) / 2)
        return weights

    def train(self, target: str, mask: NDArray[np.bool_]) -> Any:
        xgboost = _xgboost()
        y = (self.log_us - self.bases[target])[mask]
        weight, threads = self.weights()[mask], 2 if len(y) >= THREAD_ROWS else 1
        data = xgboost.QuantileDMatrix(self.x[mask], y, weight=weight, max_bin=BINS, nthread=threads)
        options = {
            "tree_method": "hist", "objective": "reg:squarederror", "max_depth": DEPTH, "eta": RATE, "seed": SEED,
            "max_bin": BINS, "nthread": threads, "base_score": float(np.mean(y)), "min_child_weight": 2,
            "lambda": 1.0, "verbosity": 0,
        }  # fmt: skip
        return xgboost.train(options, data, TREES)

    def validate(self, target: str) -> tuple[float, float]:
        """(error with each problem's mean taken off, error), weighted, over problems left out in FOLDS turns."""
        fold = np.random.default_rng(SEED).permutation(self.groups) % min(FOLDS, self.groups)
        error = np.zeros_like(self.log_us)
        for turn in range(min(FOLDS, self.groups)):
            out = fold[self.group] == turn
            model = self.train(target, ~out)
            error[out] = model.inplace_predict(self.x[out]) + self.bases[target][out] - self.log_us[out]
        w = self.weights()
        total = np.bincount(self.group, w, self.groups)
        centred = error - (np.bincount(self.group, w * error, self.groups) / total)[self.group]
        return float(np.sqrt(np.average(centred**2, weights=w))), float(np.sqrt(np.average(error**2, weights=w)))
