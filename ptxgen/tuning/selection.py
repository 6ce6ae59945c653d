"""Selects the configuration for a problem: the stored winner, else the choice of the model."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ptxgen import file_digests
from ptxgen.codegen.config import Columns, Config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError, CorruptError, DatabaseError
from ptxgen.families.common import rules, space
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.lowering.lower import lower
from ptxgen.problem.base import COMPUTE_MODES
from ptxgen.problem.device import DEVICES, Device
from ptxgen.problem.registry import Problem
from ptxgen.settings import settings
from ptxgen.tuning.choice import choice_cache
from ptxgen.tuning.choice.choice_cache import Choice
from ptxgen.tuning.choice.nearest import FEW_ROWS, by_distance, nearest, scaled_us, transferred
from ptxgen.tuning.model import model_files
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Measurement
from ptxgen.tuning.store.records import stale_reason
from ptxgen.tuning.store.seeds import SEEDS, seeds

CACHED = 8  #: the most configurations of a choice that is cached on disk

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Selection:
    """A configuration and its source. ``origin``: ``winner`` (of the user's database), ``shipped`` (a winner of the
    tuning files), ``seed`` (a known-good configuration without a stored time), ``model`` (predicted by the trained
    model), ``analytic`` (predicted by the performance model, without measurements of this device), ``given``.
    ``us``: measured or predicted microseconds (NaN: unknown). ``scaled_from``: the other device whose winners or model
    were used, since this one has few measurements; its time is scaled by the facts of both."""

    problem: Problem
    config: Config
    origin: str
    us: float = float("nan")
    scaled_from: str = ""

    @property
    def predicted(self) -> bool:
        """Whether ``us`` is a prediction, not a measured time."""
        return self.origin in ("model", "analytic") or bool(self.scaled_from)

    @property
    def source(self) -> str:
        """``origin``, and the device whose data was used if it is another one: ``model (h200)``."""
        return f"{self.origin} ({self.scaled_from})" if self.scaled_from else self.origin


def models_folder(database: Path) -> Path:
    """The folder, next to a database, of the user's models, with one folder for each device."""
    return database.parent / f"{database.stem}-models"


def model_folder(database: Database, device: str) -> Path:
    """The folder of the user's model for ``device``."""
    return models_folder(database.path) / device


def model_for(device: Device, database: Database | None = None) -> Model:
    """The model for ``device``: trained by the user, else shipped, else that of the nearest device that has one, scaled
    by the facts of both, else the performance model, which needs no measurements. One trained on few measurements comes
    after that of the nearest device. A model file that is damaged or of another version is skipped with a warning to
    ``logging``."""
    return model_from(device, None if database is None else model_folder(database, device.name))


def model_from(device: Device, own: Path | None) -> Model:
    """``model_for`` with the folder of the user's model; those of other devices are in folders next to it."""
    mine = None if own is None else own.parent
    own_models = _own_models(device.name, mine)
    best = next((model for model in own_models if model.facts is not None and model.facts.rows >= FEW_ROWS), None)
    if best is None and (other := _nearest_model(device, mine)) is not None:
        return other
    return best or next(iter(own_models), None) or Model.analytic(device)


def _own_models(name: str, mine: Path | None) -> list[Model]:
    """The models trained on measurements of the device called ``name``: the user's in a folder of ``mine``, then the
    shipped one."""
    shipped = tuning_files.model_path(name).parent
    out = []
    for folder in (shipped,) if mine is None else (mine / name, shipped):
        try:
            changed = (folder / tuning_files.MODEL).stat().st_mtime_ns
        except OSError:
            if (former := folder / model_files.FORMER_MODEL).exists():
                _warn(f"{former} is of an earlier version and is not used; train it again: ptxgen model train")
            continue
        loaded = _load(folder, changed)
        if isinstance(loaded, Model):
            out.append(loaded)
        else:
            _warn(f"{loaded}; another model is used instead")
    return out


def _nearest_model(device: Device, mine: Path | None) -> Model | None:
    """The model of the nearest other GPU that has many measurements, for ``device``; None: there is none."""
    if device.name == "emulated":
        return None
    shipped = tuning_files.model_path(device.name).parent.parent
    roots = (shipped,) if mine is None else (shipped, mine)
    names = {path.parent.name for root in roots for path in root.glob(f"*/{tuning_files.MODEL}")}
    others: dict[Device, Model] = {}
    for name in sorted(names - {device.name, "emulated"}):
        for model in _own_models(name, mine)[:1]:
            if model.facts is not None and model.facts.rows >= FEW_ROWS:
                others[model.device] = model
    shared = [d for d, model in others.items() if model.facts is not None and device.name in model.facts.also]
    chosen = nearest(device, shared or others)
    return None if chosen is None else _transferred(device, others[chosen])


def others_tuned(device: Device) -> list[Device]:
    """The other GPUs of the same compute capability that have shipped winners, the nearest first."""
    names = set(tuning_files.devices()) - {device.name, "emulated"}
    others = [DEVICES[name] for name in sorted(names & set(DEVICES)) if DEVICES[name].sm == device.sm]
    return [] if device.name == "emulated" else by_distance(device, others)


_transferred = lru_cache(maxsize=8)(transferred)


@lru_cache(maxsize=4096)
def _warn(message: str) -> None:
    """Logs a message once per process; it is printed only if logging is set up."""
    _log.warning("%s", message)


@lru_cache(maxsize=8)
def _load(folder: Path, changed: int) -> Model | DatabaseError:
    """The model, or the error of loading it; cached, so that a damaged file is read once."""
    try:
        return Model.load(folder)
    except DatabaseError as error:
        return error


@lru_cache(maxsize=1 << 14)
def current_digest(problem: Problem, config: Config, device: Device) -> str:
    """The digest of the kernel that this version generates; cached. PtxgenError: there is none."""
    return render(plan_for(problem, config, device)).digest


def is_current(m: Measurement, device: Device) -> bool:
    """Whether the kernel of a winner is the one that this version generates; if not, logs one warning."""
    reason = stale_reason(m, lambda problem, config: current_digest(problem, config, device))
    if reason:
        _warn(f"the winner of {m.problem.key()} on {device.name} is stale and is not used: {reason}")
    return not reason


def select(
    problem: Problem,
    device: Device,
    database: Database | None = None,
    use_model: bool = False,
    k: int = 1,
    use_winners: bool = True,
) -> list[Selection]:
    """The ``k`` best configurations for ``problem``, best first. Unless ``use_model``, the stored winner comes
    first, or else the shipped seeds; then the ranking of the whole legal space by the model. For a problem with an
    epilogue and no stored results, those of the product without epilogue are used. ``use_winners``: False: the winner
    of exactly this problem in the user's database is not used. Needs no GPU."""
    out: list[Selection] = []
    if not use_model:
        out = _stored_or_seeds(problem, problem, device, database if use_winners else None)
        if not out and problem.epilogue:
            out = _stored_or_seeds(_without_epilogue(problem), problem, device, database)
    if len(out) < k:
        own = None if database is None else model_folder(database, device.name)
        predicted = _predicted(problem, device, own, k, use_winners=not (use_model or out))
        out += [s for s in predicted if all(s.config != known.config for known in out)]
    return out[:k]


def _without_epilogue(problem: Problem) -> Problem:
    return replace(problem, epilogue="")


def _predicted(problem: Problem, device: Device, own: Path | None, k: int, use_winners: bool) -> list[Selection]:
    """The choice for a problem that the device has no winner of: with ``use_winners`` that of the nearest device; then
    the ranking by the model. Cached on disk. ``own``: the folder of the user's model."""
    folders = [tuning_files.model_path(device.name).parent.parent, *([] if own is None else [own.parent])]
    names = (tuning_files.MODEL, tuning_files.WINNERS, SEEDS)
    files = [path for folder in folders for name in names for path in sorted(folder.glob(f"*/{name}"))]
    p = lower(problem)
    key = choice_cache.key(files, problem.key(), p, device, k, use_winners) if k <= CACHED else ""
    choices = choice_cache.read(key)
    if choices is None or not all(_is_legal(p, c.config, device) for c in choices):
        choices = _computed(problem, device, own, k, use_winners)
        choice_cache.write(key, choices)
    return [Selection(problem, *choice) for choice in choices]


def _computed(problem: Problem, device: Device, own: Path | None, k: int, use_winners: bool) -> list[Choice]:
    """As ``_predicted``, without the cache."""
    others = others_tuned(device) if use_winners else []
    sources = dict.fromkeys((problem, _without_epilogue(problem)))
    pairs = [(other, source) for other in others for source in sources]
    winner = next(filter(None, (_winner_of(source, problem, device, other) for other, source in pairs)), None)
    if winner is not None and k == 1:
        return [winner]
    model = model_from(device, own)
    search = model.search(problem, device, k)
    origin = "model" if model.trained else "analytic"
    trained_on = model.measured_on if model.measured_on != device.name else ""
    ranked = [Choice(c, origin, us, trained_on) for c, us in search.best]
    if winner is None:
        known = next(filter(None, (_seeds_of(source, problem, device, other) for other, source in pairs)), [])
        predicted = model.predict(problem, Columns.of([c.config for c in known]), search.scale) if known else ()
        scaled = [c._replace(us=float(us)) for c, us in zip(known, predicted, strict=True)]
        ranked = sorted([*scaled, *ranked], key=lambda c: c.us)
    best: dict[Config, Choice] = {}
    for choice in ranked if winner is None else (winner, *ranked):
        best.setdefault(choice.config, choice)
    return list(best.values())[:k]


def stored(problem: Problem, device: Device, database: Database | None = None) -> Selection | None:
    """The winner of the user's database, or else the shipped one; None: the problem has not been tuned."""
    return _winner(problem, device, database)


def require(
    problem: Problem, device: Device, database: Database | None = None, use_model: bool = False, k: int = 1
) -> list[Selection]:
    """``select``, of at least one configuration. ConfigError: none is legal."""
    found = select(problem, device, database, use_model, k)
    if not found:
        why = why_unsupported(problem, device)
        raise ConfigError(f"{problem.key()}: no kernel supports this problem on {device.name}: {why}", "space")
    return found


def untuned(problem: Problem, device: Device, database: Database | None = None) -> Selection | None:
    """The answer of ``select`` without the winners of the user's database; None: no configuration is legal."""
    found = select(problem, device, database, use_winners=False)
    return found[0] if found else None


def _stored_or_seeds(source: Problem, problem: Problem, device: Device, database: Database | None) -> list[Selection]:
    """The stored winner of ``source``, else its seeds, if legal for ``problem``."""
    p = lower(problem)
    winner = _winner(source, device, database)
    if winner is not None and _is_legal(p, winner.config, device):
        return [replace(winner, problem=problem)]
    return [Selection(problem, c, "seed") for c in seeds(source, device.name) if _is_legal(p, c, device)]


def _winner_of(source: Problem, problem: Problem, device: Device, other: Device) -> Choice | None:
    """The shipped winner of ``source`` on another device of the same compute capability, if legal for ``problem``."""
    m = tuning_files.lookup(source, other.name)
    if m is None or not is_current(m, other) or not _is_legal(lower(problem), m.config, device):
        return None
    return Choice(m.config, "shipped", scaled_us(problem, m.config, m.us, device, other), other.name)


def _seeds_of(source: Problem, problem: Problem, device: Device, other: Device) -> list[Choice]:
    """The seeds of ``source`` on another device, likewise; their times are unknown."""
    p = lower(problem)
    return [Choice(c, "seed", math.nan, other.name) for c in seeds(source, other.name) if _is_legal(p, c, device)]


def _is_legal(p: KernelGemm, config: Config, device: Device) -> bool:
    return rules.first_violation(p, config, device) is None


def digest_of(choices: Iterable[tuple[Problem, Config, str]]) -> str:
    """A digest of problems, their configurations and the digests of their kernels, in any order."""
    lines = sorted(f"{problem.key()} | {config.full_text()} | {kernel}" for problem, config, kernel in choices)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def state_digest(device: Device, database: Database | None = None) -> str:
    """A digest of everything that selection on ``device`` depends on: the package and its templates, the facts of the
    device, shipped files, the user's models and winners. Where it is equal, any problem gets the same configuration."""
    state = hashlib.sha256(f"{device} {file_digests.of_package()} {settings().winograd}".encode())
    roots = [tuning_files.model_path("any").parent.parent]
    if database is not None:
        roots.append(model_folder(database, "any").parent)
        for m in sorted(database.winners(device.name), key=lambda m: m.problem.key()):
            state.update(f"{m.problem.key()} | {m.config.full_text()} | {m.digest} | {m.environment.clock}\n".encode())
    state.update(file_digests.of_tree(roots, (".txt", tuning_files.MODEL)).encode())
    return state.hexdigest()[:16]


def why_unsupported(problem: Problem, device: Device) -> str:
    """Why ``problem`` has no legal configuration on ``device``."""
    if near := space.families(lower(problem), device):
        return f"no configuration of {' or '.join(f.name for f in near)} fits"
    targets = sorted({d.sm for d in DEVICES.values() if space.families(lower(problem), d)})
    if targets:
        return f"it is sm_{device.sm}; kernels of this are for {', '.join(f'sm_{sm}' for sm in targets)}"
    sums = [c for c in COMPUTE_MODES[problem.dtype] if space.families(lower(replace(problem, compute=c)), device)]
    return "no built-in device has a kernel for it" + (
        f"; with compute {' or '.join(sums)} there are kernels" if sums else ""
    )


def _winner(problem: Problem, device: Device, database: Database | None) -> Selection | None:
    """The user's winner, else the shipped one, if it is legal and its kernel has not changed."""
    mine = _best(problem, device, database) if database is not None else None
    for origin, found in (("winner", mine), ("shipped", tuning_files.lookup(problem, device.name))):
        if found is not None and _is_legal(lower(problem), found.config, device) and is_current(found, device):
            return Selection(problem, found.config, origin, found.us)
    return None


def _best(problem: Problem, device: Device, database: Database) -> Measurement | None:
    """The winner of a database. None: there is none, or, with a warning, its row is damaged."""
    try:
        return database.best(problem, device.name, tuning_files.clock_of(device.name))
    except CorruptError as error:
        _warn(f"{error}; the winner is not used")
        return None
