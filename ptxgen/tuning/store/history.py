"""The history of tuning: the measurements of a device in the order of time, and summaries of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.errors import CorruptError, InputError
from ptxgen.lowering.lower import lower
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.measurement import Measurement

VALIDATION = "validation.jsonl.xz"  #: the name of the shipped file that ``model validate --rows`` wrote
EVALUATION = "evaluation.json"  #: the name of the shipped document of ``model evaluate --json``


@dataclass(frozen=True)
class Attempt:
    """A summary of one measurement. ``problem``: the key of the problem; ``us``: the fastest sample in microseconds,
    infinity for a failure; ``created``: seconds since 1970."""

    problem: str
    family: str
    outcome: str
    us: float
    created: float
    message: str = ""


def attempt(m: Measurement) -> Attempt:
    family = str(m.config.values()["family"])
    return Attempt(m.problem.key(), family, m.outcome, min(m.samples, default=math.inf), m.created, m.message)


def shipped_attempts(files: Sequence[Path]) -> Iterator[Attempt]:
    """The measurements in shipped files. They are read without the checks of ``read_measurements``, in a tenth of the
    time. CorruptError: a line is not a measurement."""
    for path in files:
        for values in tuning_files.plain_all([path]):
            try:
                yield _plain_attempt(values)
            except (KeyError, TypeError, ValueError) as error:
                raise CorruptError(f"{path}: a line is not a measurement: {error}") from error


def _plain_attempt(values: dict[str, Any]) -> Attempt:
    return Attempt(
        values["problem"],
        tuning_files.family_of(values["config"]),
        values["outcome"],
        min(map(float, values.get("samples", ())), default=math.inf),
        float(values.get("created", 0.0)),
        values.get("message", ""),
    )


def counts_over_time(attempts: Sequence[Attempt], points: int = 60) -> dict[str, list[tuple[float, int]]]:
    """For each family, pairs (seconds since 1970, number of measurements of the family until then) at about ``points``
    times."""
    ordered = sorted((a for a in attempts if a.created > 0), key=lambda a: a.created)
    curves: dict[str, list[tuple[float, int]]] = {a.family: [] for a in ordered}
    counts: Counter[str] = Counter()
    step = max(1, -(-len(ordered) // points))
    for number, a in enumerate(ordered, 1):
        counts[a.family] += 1
        if number % step == 0 or number == len(ordered):
            for family, line in curves.items():
                line.append((a.created, counts[family]))
    return curves


def search_curve(attempts: Iterable[Attempt]) -> list[tuple[int, float]]:
    """The progress of search with the number of measurements: pairs (n, ratio) for powers of two n. The ratio is the
    fastest time of all over the fastest of the first n measurements of a problem, as the geometric mean over all
    problems. A problem with fewer than n measurements counts with all of them."""
    runs: dict[str, list[Attempt]] = {}
    for a in attempts:
        if a.us < math.inf:
            runs.setdefault(a.problem, []).append(a)
    bests: list[list[float]] = []
    for run in runs.values():
        best, line = math.inf, []
        for a in sorted(run, key=lambda a: a.created):
            best = min(best, a.us)
            line.append(best)
        bests.append(line)
    longest = max(map(len, bests), default=0)
    numbers = [1 << i for i in range(longest.bit_length())] if longest else []
    out = []
    for n in numbers:
        logs = [math.log(line[-1] / line[min(n, len(line)) - 1]) for line in bests]
        out.append((n, math.exp(sum(logs) / len(logs))))
    return out


@dataclass(frozen=True)
class Failure:
    """The failures of one family with one outcome. ``count``: their number; ``message``: their most frequent
    message."""

    outcome: str
    family: str
    count: int
    message: str


def failures(attempts: Iterable[Attempt]) -> list[Failure]:
    """The failures by outcome and family, most frequent first."""
    messages: dict[tuple[str, str], Counter[str]] = {}
    for a in attempts:
        if a.outcome != "ok":
            messages.setdefault((a.outcome, a.family), Counter())[a.message] += 1
    rows = [Failure(*labels, counts.total(), counts.most_common(1)[0][0]) for labels, counts in messages.items()]
    return sorted(rows, key=lambda f: -f.count)


@dataclass(frozen=True)
class Ratio:
    """The time of the vendor's best candidate over that of ptxgen, in one run."""

    problem: Problem
    ratio: float

    @property
    def results(self) -> int:
        """The number of results of one item of the kernel problem; for a GEMM, the elements of C."""
        return max(int(lower(self.problem).extents.item[0]), 1)

    @property
    def depth(self) -> int:
        """The number of terms in the sum of one result; for a GEMM, K."""
        return max(int(lower(self.problem).extents.item[1]), 1)


@dataclass(frozen=True)
class HeatMap:
    """Geometric means of ratios, by class of shapes. ``columns``, ``rows``: log2 of the lower limits of the classes,
    for the elements of C and for K; ``cells``: for each row and column (mean, number of ratios), or None if no problem
    has such a shape."""

    columns: list[int]
    rows: list[int]
    cells: list[list[tuple[float, int] | None]]


RESULTS_STEP, DEPTH_STEP = 3, 2  #: a class of shapes spans a factor of eight of the elements of C, and of four of K


def heat_map(ratios: Sequence[Ratio]) -> HeatMap:
    """The heat map of ``ratios``. InputError: ``ratios`` is empty."""
    if not ratios:
        raise InputError("ratios is empty; a heat map needs one")
    classes: dict[tuple[int, int], list[float]] = {}
    for r in ratios:
        column = int(math.log2(r.results)) // RESULTS_STEP * RESULTS_STEP
        row = int(math.log2(r.depth)) // DEPTH_STEP * DEPTH_STEP
        classes.setdefault((row, column), []).append(math.log(r.ratio))
    columns = list(range(min(c for _, c in classes), max(c for _, c in classes) + 1, RESULTS_STEP))
    rows = list(range(min(r for r, _ in classes), max(r for r, _ in classes) + 1, DEPTH_STEP))
    cells = [[_mean(classes.get((r, c))) for c in columns] for r in rows]
    return HeatMap(columns, rows, cells)


def _mean(logs: list[float] | None) -> tuple[float, int] | None:
    return None if logs is None else (math.exp(sum(logs) / len(logs)), len(logs))
