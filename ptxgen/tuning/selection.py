"""Selects the configuration for a problem: the stored winner, else the choice of the model."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from ptxgen import file_digests
from ptxgen.arguments import word
from ptxgen.codegen.config.config import Config
from ptxgen.errors import ConfigError, DtypeError
from ptxgen.families.common import space
from ptxgen.lowering.lower import lower
from ptxgen.problem.base import COMPUTE_MODES
from ptxgen.problem.device import DEVICES, Device
from ptxgen.problem.registry import Problem
from ptxgen.settings import OBJECTIVES, settings
from ptxgen.tuning.choice.sources import SOURCES, Request, StoredWinner, first_choices
from ptxgen.tuning.choice.vendor import Faster, faster_vendor
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import ENERGY


@dataclass(frozen=True)
class Selection:
    """A configuration and its source. ``origin``: ``winner`` (the winner of the user's database), ``energy`` (the least
    measured energy in the database), ``shipped`` (a winner of the shipped tuning files), ``seed`` (a known-good
    configuration without a stored time), ``model`` (the choice of the trained model), ``analytic`` (the choice of the
    performance model, without measurements of this device), or ``given`` (by the user). ``us``: measured or predicted
    microseconds, NaN: unknown. ``scaled_from``: another device whose winners or model were used, because this device
    has few measurements; the time is scaled by the facts of both devices. ``vendor``: the vendor's library, if it
    was measured or is predicted to be faster: calls use the library in place of the configuration where they may."""

    problem: Problem
    config: Config
    origin: str
    us: float = math.nan
    scaled_from: str = ""
    vendor: Faster | None = None

    @property
    def predicted(self) -> bool:
        """True if ``us`` is a prediction, not a measured time."""
        return self.origin in ("model", "analytic") or bool(self.scaled_from)

    @property
    def source(self) -> str:
        """``origin``, followed by the other device whose data was used, if any: ``model (h200)``."""
        return f"{self.origin} ({self.scaled_from})" if self.scaled_from else self.origin


def select(
    problem: Problem,
    device: Device,
    database: Database | None = None,
    use_model: bool = False,
    k: int = 1,
    use_winners: bool = True,
    objective: str | None = None,
) -> list[Selection]:
    """The ``k`` best configurations for ``problem``, the best first. The stored winner comes first, or else the shipped
    seeds; then the ranking of the whole legal space by the model. ``use_model``: True: only the ranking of the model is
    used. A problem with an epilogue and without stored results has those of the product without the epilogue.
    ``use_winners``: False: the winner of exactly this problem in the user's database is not used. ``objective``: time,
    or energy: the configuration with the least measured energy comes first, if energy was measured; None: as
    ``PTXGEN_OBJECTIVE`` says. Needs no GPU."""
    least = settings().objective if objective is None else word("objective", objective, OBJECTIVES)
    request = Request(problem, lower(problem), device, database, k, use_winners, use_model, least)
    selected = [Selection(problem, *choice) for choice in first_choices(SOURCES, request)]
    if selected and use_winners and not use_model:
        selected[0] = replace(selected[0], vendor=faster_vendor(problem, device, database, selected[0]))
    return selected


@dataclass(frozen=True)
class ExhaustiveSearch:
    """A ranking of all legal configurations by the model, and its comparison with the search that ``select`` uses.
    ``best``: the best configurations; ``scored``, ``seconds``: the number of configurations that were scored, and the
    time that it took; ``search_scored``, ``search_seconds``: the same for the search; ``search_us``: the predicted time
    of the search's choice, NaN if there is none."""

    best: list[Selection]
    scored: int
    seconds: float
    search_scored: int
    search_seconds: float
    search_us: float


def exhaustive(problem: Problem, device: Device, database: Database | None = None, k: int = 1) -> ExhaustiveSearch:
    """Ranks every legal configuration by the model, and compares this with the search, which ranks representatives.
    ConfigError: no configuration is legal."""
    from ptxgen.tuning.choice.models import model_from  # a shipped winner needs no model

    model = model_from(device, Request(problem, lower(problem), device, database).own_model)
    times = [time.perf_counter()]
    searched = model.search(problem, device, k)
    times.append(time.perf_counter())
    every = model.search(problem, device, k, exhaustive=True)
    times.append(time.perf_counter())
    if not every.best:
        raise _none_legal(problem, device)
    origin = "model" if model.trained else "analytic"
    trained_on = model.measured_on if model.measured_on != device.name else ""
    return ExhaustiveSearch(
        [Selection(problem, config, origin, us, trained_on) for config, us in every.best],
        every.scored,
        times[2] - times[1],
        searched.scored,
        times[1] - times[0],
        searched.best[0][1] if searched.best else math.nan,
    )


def stored(problem: Problem, device: Device, database: Database | None = None) -> Selection | None:
    """The winner of the user's database, or else the shipped one; None: the problem has not been tuned."""
    choices = StoredWinner().choices(Request(problem, lower(problem), device, database))
    return Selection(problem, *choices[0]) if choices else None


def require(
    problem: Problem,
    device: Device,
    database: Database | None = None,
    use_model: bool = False,
    k: int = 1,
    objective: str | None = None,
) -> list[Selection]:
    """As ``select``, with at least one configuration. ConfigError: no configuration is legal."""
    selected = select(problem, device, database, use_model, k, objective=objective)
    if not selected:
        raise _none_legal(problem, device)
    return selected


def _none_legal(problem: Problem, device: Device) -> ConfigError:
    why = why_unsupported(problem, device)
    return ConfigError(f"{problem.key()}: no kernel supports this problem on {device.name}: {why}", "space")


def untuned(problem: Problem, device: Device, database: Database | None = None) -> Selection | None:
    """The answer of ``select`` without the winners of the user's database; None: no configuration is legal."""
    selected = select(problem, device, database, use_winners=False)
    return selected[0] if selected else None


def digest_of(choices: Iterable[tuple[Problem, Config, str]]) -> str:
    """A digest of problems, their configurations and the digests of their kernels, which does not depend on their
    order."""
    lines = sorted(f"{problem.key()} | {config.full_text()} | {kernel}" for problem, config, kernel in choices)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def state_digest(device: Device, database: Database | None = None) -> str:
    """A digest of everything that selection on ``device`` depends on: the package and its templates, the facts of the
    device, shipped files, the user's models and winners. Two processes with equal digests select the same configuration
    for any problem."""
    state = hashlib.sha256(
        f"{device} {file_digests.of_package()} {settings().winograd} {settings().objective}".encode()
    )
    from ptxgen.tuning.choice.models import model_folder
    from ptxgen.tuning.model import vendor_model

    roots = [tuning_files.model_path("any").parent.parent]
    if database is not None:
        roots.append(model_folder(database, "any").parent)
        for m in sorted(database.winners(device.name), key=lambda m: m.problem.key()):
            state.update(f"{m.problem.key()} | {m.config.full_text()} | {m.digest} | {m.environment.clock}\n".encode())
        if settings().objective == "energy":
            state.update("\n".join(map(repr, database.measurements(device=device.name, purpose=ENERGY))).encode())
    state.update(file_digests.of_tree(roots, (".txt", tuning_files.MODEL, vendor_model.FILE)).encode())
    return state.hexdigest()[:16]


def why_unsupported(problem: Problem, device: Device) -> str:
    """The reason why ``problem`` has no legal configuration on ``device``."""
    if near := space.families(lower(problem), device):
        return f"no configuration of {' or '.join(f.name for f in near)} fits"
    targets = sorted({d.sm for d in DEVICES.values() if space.families(lower(problem), d)})
    if targets:
        return f"it is sm_{device.sm}; kernels of this are for {', '.join(f'sm_{sm}' for sm in targets)}"
    sums = []
    for c in COMPUTE_MODES.get(problem.dtype, ()):
        with suppress(DtypeError):  # the program of a task states the type of its reduction
            if space.families(lower(replace(problem, compute=c)), device):
                sums.append(c)
    return "no built-in device has a kernel for it" + (
        f"; with compute {' or '.join(sums)} there are kernels" if sums else ""
    )
