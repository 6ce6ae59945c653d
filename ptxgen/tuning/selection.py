"""Selects the configuration for a problem: the stored winner, else the choice of the model."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ptxgen.codegen.config import Config
from ptxgen.codegen.render import render
from ptxgen.errors import DatabaseError
from ptxgen.families import rules, space
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.base import COMPUTE_MODES
from ptxgen.problem.device import DEVICES, Device
from ptxgen.problem.registry import Problem
from ptxgen.tuning import tuning_files
from ptxgen.tuning.database import Database
from ptxgen.tuning.measurement import Measurement
from ptxgen.tuning.model import Model
from ptxgen.tuning.records import stale_reason
from ptxgen.tuning.seeds import seeds

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Selection:
    """A configuration and its source. ``origin``: ``winner`` (of the user's database), ``shipped`` (a winner of the
    tuning files), ``seed`` (a known-good configuration without a stored time), ``model`` (predicted by the trained
    model), ``analytic`` (predicted by the performance model, without measurements of this device), ``given``.
    ``us``: measured or predicted microseconds (NaN: unknown)."""

    problem: Problem
    config: Config
    origin: str
    us: float = float("nan")

    @property
    def predicted(self) -> bool:
        """Whether ``us`` is a prediction, not a measured time."""
        return self.origin in ("model", "analytic")


def model_folder(database: Database, device: str) -> Path:
    """The folder, next to the database, of the model trained on its measurements of ``device``."""
    return database.path.parent / f"{database.path.stem}-models" / device


def model_for(device: Device, database: Database | None = None) -> Model:
    """The model for ``device``: trained by the user, else shipped, else the performance model, which needs no
    measurements. A model file that is damaged or of another version is skipped with a warning to ``logging``."""
    return model_from(device, None if database is None else model_folder(database, device.name))


def model_from(device: Device, own: Path | None) -> Model:
    """``model_for`` with the folder of the user's model."""
    shipped = tuning_files.model_path(device.name).parent
    for folder in (shipped,) if own is None else (own, shipped):
        try:
            changed = (folder / tuning_files.MODEL).stat().st_mtime_ns
        except OSError:
            continue
        found = _load(folder, changed)
        if isinstance(found, Model):
            return found
        _warn(f"{found}; another model is used instead")
    return Model.analytic(device)


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
    problem: Problem, device: Device, database: Database | None = None, use_model: bool = False, k: int = 1
) -> list[Selection]:
    """The ``k`` best configurations for ``problem``, best first. Unless ``use_model``, the stored winner comes
    first, or else the shipped seeds; then the ranking of the whole legal space by the model. For a problem with an
    epilogue and no stored results, those of the product without epilogue are used. Needs no GPU."""
    out: list[Selection] = []
    if not use_model:
        out = _stored_or_seeds(problem, problem, device, database)
        if not out and problem.epilogue:
            out = _stored_or_seeds(replace(problem, epilogue=""), problem, device, database)
    if len(out) < k:
        model = model_for(device, database)
        origin = "model" if model.trained else "analytic"
        ranked = model.rank(problem, device, k)
        out += [Selection(problem, c, origin, us) for c, us in ranked if all(c != s.config for s in out)]
    return out[:k]


def _stored_or_seeds(source: Problem, problem: Problem, device: Device, database: Database | None) -> list[Selection]:
    """The stored winner of ``source``, else its seeds, if legal for ``problem``."""
    winner = _winner(source, device, database)
    if winner is not None and rules.first_violation(lower(problem), winner.config, device) is None:
        return [replace(winner, problem=problem)]
    legal = [c for c in seeds(source, device.name) if rules.first_violation(lower(problem), c, device) is None]
    return [Selection(problem, c, "seed") for c in legal]


def why_unsupported(problem: Problem, device: Device) -> str:
    """Why ``problem`` has no legal configuration on ``device``."""
    if near := space.families(lower(problem), device):
        return f"no configuration of {' or '.join(space.FAMILIES[f.code] for f in near)} fits"
    targets = sorted({d.sm for d in DEVICES.values() if space.families(lower(problem), d)})
    if targets:
        return f"it is sm_{device.sm}; kernels of this are for {', '.join(f'sm_{sm}' for sm in targets)}"
    sums = [c for c in COMPUTE_MODES[problem.dtype] if space.families(lower(replace(problem, compute=c)), device)]
    return "no built-in device has a kernel for it" + (
        f"; with compute {' or '.join(sums)} there are kernels" if sums else ""
    )


def _winner(problem: Problem, device: Device, database: Database | None) -> Selection | None:
    """The user's winner, else the shipped one, if it is legal and its kernel has not changed."""
    mine = database.best(problem, device.name, tuning_files.clock_of(device.name)) if database is not None else None
    for origin, found in (("winner", mine), ("shipped", tuning_files.lookup(problem, device.name))):
        if (
            found is not None
            and rules.first_violation(lower(problem), found.config, device) is None
            and is_current(found, device)
        ):
            return Selection(problem, found.config, origin, found.us)
    return None
