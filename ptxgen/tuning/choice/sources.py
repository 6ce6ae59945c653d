"""The sources of configurations, and the order in which selection tries them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.errors import CorruptError
from ptxgen.families.common import rules, space
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.lowering.tile_lists import lists_tiles
from ptxgen.problem.device import Device
from ptxgen.problem.operation import operation_of
from ptxgen.problem.registry import Problem
from ptxgen.tuning.choice import choice_cache
from ptxgen.tuning.choice.choice_cache import Choice
from ptxgen.tuning.choice.log import warn
from ptxgen.tuning.choice.winners import is_current
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Measurement
from ptxgen.tuning.store.seeds import SEEDS, seeds

CACHED = 8  #: the most configurations of a choice that is cached on disk
LONG = 1024  #: K from which on the loop over K takes nearly all of a kernel's time
RANKED = 8  #: configurations of a GEMM; mostly at least one is legal for a task, and a search for more takes longer


@dataclass(frozen=True)
class Request:
    """A request to selection: at most ``k`` configurations for ``problem``, whose kernel problem is ``lowered``.
    ``use_winner``: False: the winner in the user's database is not used. ``rank_only``: only the last source is asked,
    because better sources have answered or are not wanted. ``objective``: time or energy."""

    problem: Problem
    lowered: KernelProblem
    device: Device
    database: Database | None
    k: int = 1
    use_winner: bool = True
    rank_only: bool = False
    objective: str = "time"

    def allows(self, config: Config) -> bool:
        """True if ``config`` is legal."""
        return rules.first_violation(self.lowered, config, self.device) is None

    @property
    def own_model(self) -> Path | None:
        """The folder of the user's model."""
        if self.database is None:
            return None
        from ptxgen.tuning.choice.models import model_folder

        return model_folder(self.database, self.device.name)


class Source(Protocol):
    def choices(self, request: Request) -> list[Choice]:
        """The choices of this source for the problem, the best first; empty if it has none."""


class LeastEnergy:
    """The configuration with the least energy of a call in the user's database, if the objective is energy."""

    def choices(self, request: Request) -> list[Choice]:
        problem, device = request.problem, request.device
        if request.objective != "energy" or request.database is None or not request.use_winner:
            return []
        m = request.database.least_energy(problem, device.name, tuning_files.clock_of(device.name))
        return [Choice(m.config, "energy", m.us)] if m is not None and is_current(m, device) else []


class StoredWinner:
    """The winner of the user's database, else the shipped one, if it is legal and its kernel has not changed."""

    def choices(self, request: Request) -> list[Choice]:
        problem, device = request.problem, request.device
        mine = _best(problem, device, request.database) if request.database is not None and request.use_winner else None
        for origin, m in (("winner", mine), ("shipped", tuning_files.lookup(problem, device.name))):
            if m is not None and request.allows(m.config) and is_current(m, device):
                return [Choice(m.config, origin, m.us)]
        return []


def _best(problem: Problem, device: Device, database: Database) -> Measurement | None:
    """The winner of a problem in a database. None: there is no winner, or its row is damaged, which is logged as a
    warning."""
    try:
        return database.best(problem, device.name, tuning_files.clock_of(device.name))
    except CorruptError as error:
        warn(f"{error}; the winner is not used")
        return None


class ShippedSeeds:
    """The shipped seeds of the problem: known-good configurations."""

    def choices(self, request: Request) -> list[Choice]:
        return [Choice(config, "seed") for config in seeds(request.problem, request.device.name)]


@dataclass(frozen=True)
class WithoutEpilogue:
    """The choices of ``source`` for the plain product, for problems with an epilogue and for tasks that are sums of
    products."""

    source: Source

    def choices(self, request: Request) -> list[Choice]:
        plain = _without_epilogue(request.problem)
        if plain == request.problem:
            return []
        choices = self.source.choices(replace(request, problem=plain, lowered=lower(plain), use_winner=True))
        return _fitted(request, choices)


@lru_cache(maxsize=32)
def _without_epilogue(problem: Problem) -> Problem:
    """The problem of the same loop over K that stores its sums as they are."""
    plain = operation_of(problem).plain
    return replace(problem, epilogue="") if plain is None else plain(problem)


def _fitted(request: Request, choices: Iterable[Choice]) -> list[Choice]:
    """Choices for another problem with the same loop over K, changed so that their epilogue is legal for this
    problem."""
    fitted = ((choice, space.fitted(request.lowered, request.device, choice.config)) for choice in choices)
    return [choice._replace(config=config) for choice, config in fitted if config is not None]


@dataclass(frozen=True)
class Cached:
    """The choices of ``sources``, cached on disk, because they take tens of milliseconds."""

    sources: tuple[Source, ...]

    def choices(self, request: Request) -> list[Choice]:
        own, device, k = request.own_model, request.device, request.k
        folders = [tuning_files.model_path(device.name).parent.parent, *([] if own is None else [own.parent])]
        names = (tuning_files.MODEL, tuning_files.WINNERS, SEEDS)
        patterns = [f"*/{name}" for name in (*names, f"*/{tuning_files.MODEL}")]
        files = [path for folder in folders for pattern in patterns for path in sorted(folder.glob(pattern))]
        facts = request.problem.key(), request.lowered, device, k, not request.rank_only
        key = choice_cache.key(files, *facts) if k <= CACHED else ""
        choices = choice_cache.read(key)
        if choices is None or not all(request.allows(c.config) for c in choices):
            choices = first_choices(self.sources, request)
            choice_cache.write(key, choices)
        return choices


def _nearest_results(request: Request) -> list[tuple[Device, Problem]]:
    """Pairs (device, problem) whose shipped results may serve in place of the device's own. The nearest device of the
    same compute capability is first; for each device the problem itself comes before the product without an
    epilogue."""
    from ptxgen.tuning.choice.nearest import others_tuned  # with performance models, which a shipped winner needs not

    problems = dict.fromkeys((request.problem, _without_epilogue(request.problem)))
    return [(other, problem) for other in others_tuned(request.device) for problem in problems]


class NearestWinner:
    """The shipped winner of the nearest device of the same compute capability, its time scaled by the facts of both."""

    def choices(self, request: Request) -> list[Choice]:
        for other, problem in _nearest_results(request):
            m = tuning_files.lookup(problem, other.name)
            if m is not None and is_current(m, other):
                from ptxgen.tuning.choice.nearest import scaled_us

                us = scaled_us(problem, m.config, m.us, request.device, other)
                if fitted := _fitted(request, [Choice(m.config, "shipped", us, other.name)]):
                    return fitted
        return []


class ProductRanking:
    """For a task with the loop of a GEMM: the model's ranking for the GEMM, if K is large. Models of tasks were trained
    on few such tasks."""

    def choices(self, request: Request) -> list[Choice]:
        plain = _without_epilogue(request.problem)
        if plain.operation == request.problem.operation or request.lowered.k < LONG:
            return []
        choices = Ranking().choices(
            replace(request, problem=plain, lowered=lower(plain), k=max(RANKED, request.k), rank_only=True)
        )
        return _fitted(request, choices)


class Ranking:
    """The model's ranking of the whole legal space and, unless better sources have answered, of the seeds of the
    nearest device."""

    def choices(self, request: Request) -> list[Choice]:
        problem, device = request.problem, request.device
        from ptxgen.tuning.choice.models import model_of_problem
        from ptxgen.tuning.model.model import order_of_choices

        model = model_of_problem(problem, device, request.own_model)
        listed = lists_tiles(request.lowered)
        search = model.search(problem, device, max(RANKED, request.k) if listed else request.k)
        origin = "model" if model.trained else "analytic"
        trained_on = model.measured_on if model.measured_on != device.name else ""
        ranked = [Choice(c, origin, us, trained_on) for c, us in search.best]
        if listed:  # the models were trained on kernels that start a block for each tile
            ranked = _fitted(request, ranked) or ranked
        known = [] if request.rank_only else _nearest_seeds(request)
        predicted = model.predict(problem, Columns.of([c.config for c in known]), search.scale) if known else ()
        ranked_us = {c.config: c.us for c in ranked}  # equal predictions, so that a seed precedes itself in the ranking
        scaled = [c._replace(us=ranked_us.get(c.config, float(us))) for c, us in zip(known, predicted, strict=True)]
        every = [*scaled, *ranked]
        return [every[i] for i in order_of_choices(request.lowered, [(c.config, c.us) for c in every], device)]


def _nearest_seeds(request: Request) -> list[Choice]:
    """The legal seeds of the nearest device that has seeds, without times."""
    for other, problem in _nearest_results(request):
        if configs := [config for config in seeds(problem, other.name) if request.allows(config)]:
            return [Choice(config, "seed", scaled_from=other.name) for config in configs]
    return []


#: the sources in order: selection takes the configurations of the first source that has any, then those of the last one
SOURCES: tuple[Source, ...] = (
    LeastEnergy(),
    StoredWinner(),
    ShippedSeeds(),
    WithoutEpilogue(StoredWinner()),
    WithoutEpilogue(ShippedSeeds()),
    Cached((NearestWinner(), ProductRanking(), Ranking())),
)


def first_choices(sources: Sequence[Source], request: Request) -> list[Choice]:
    """The legal choices of the first source that has any, then those of the last source, each configuration once."""
    better = () if request.rank_only else sources[:-1]
    legal = ([c for c in source.choices(request) if request.allows(c.config)] for source in better)
    chosen = next(filter(None, legal), [])
    if len(chosen) < request.k:
        chosen += sources[-1].choices(replace(request, rank_only=request.rank_only or bool(chosen)))
    unique: dict[Config, Choice] = {}
    for choice in chosen:
        unique.setdefault(choice.config, choice)
    return list(unique.values())[: request.k]
