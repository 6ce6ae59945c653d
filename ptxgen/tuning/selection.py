"""From a shape to the configuration that computes it: the stored winner, else the regressor's choice."""

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
from ptxgen.tuning.records import judge
from ptxgen.tuning.seeds import seeds

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Selection:
    """A choice and where it comes from. ``origin``: ``winner`` (measured here), ``shipped`` (measured by us), ``seed``
    (it did well once), ``model`` (the regressor), ``analytic`` (a formula: nothing was measured on such a device),
    ``given``; ``us``: measured or predicted microseconds (NaN: unknown).
    """

    problem: Problem
    config: Config
    origin: str
    us: float = float("nan")


def model_folder(database: Database, device: str) -> Path:
    """Where the regressor trained on a database's rows of ``device`` is kept: beside the database."""
    return database.path.parent / f"{database.path.stem}-models" / device


def model_for(device: Device, database: Database | None = None) -> Model:
    """The regressor for ``device``: trained here, else shipped, else the formula that needs no measurements. One that
    is damaged, or of another version, is passed over, with a warning to ``logging``."""
    folders = [tuning_files.model_path(device.name).parent]
    if database is not None:
        folders.insert(0, model_folder(database, device.name))
    for folder in folders:
        try:
            changed = (folder / tuning_files.MODEL).stat().st_mtime_ns
        except OSError:
            continue
        found = _load(folder, changed)
        if isinstance(found, Model):
            return found
        _warn(f"{found}; choices come from what is left")
    return Model.analytic(device)


@lru_cache(maxsize=4096)
def _warn(message: str) -> None:
    """Once, and to those who listen: nothing is printed where logging is not set up."""
    _log.warning("%s", message)


@lru_cache(maxsize=8)
def _load(folder: Path, changed: int) -> Model | DatabaseError:
    """The model, or why it cannot be used: a damaged file is read once, too."""
    try:
        return Model.load(folder)
    except DatabaseError as error:
        return error


@lru_cache(maxsize=1 << 14)
def current_digest(problem: Problem, config: Config, device: Device) -> str:
    """The digest of the kernel that this version generates; remembered while the process runs. PtxgenError: there is
    none."""
    return render(plan_for(problem, config, device)).digest


def is_current(m: Measurement, device: Device) -> bool:
    """Whether a winner is of the kernel that this version generates; if not, one warning says so."""
    reason = judge(m, lambda problem, config: current_digest(problem, config, device))
    if reason:
        _warn(f"the winner of {m.problem.key()} on {device.name} is stale and passed over: {reason}")
    return not reason


def select(
    problem: Problem, device: Device, database: Database | None = None, use_model: bool = False, k: int = 1
) -> list[Selection]:
    """The ``k`` best choices for ``problem``, best first: the stored winner, or what ships as worth trying, unless
    ``use_model``; then the regressor's (or a formula's) ranking of the whole legal space. What is known of the product
    alone serves a problem with an epilogue of which nothing is known. Needs no GPU."""
    out: list[Selection] = []
    if not use_model:
        out = _known(problem, problem, device, database)
        if not out and problem.epilogue:
            out = _known(replace(problem, epilogue=""), problem, device, database)
    if len(out) < k:
        model = model_for(device, database)
        origin = "model" if model.trained else "analytic"
        ranked = model.rank(problem, device, k)
        out += [Selection(problem, c, origin, us) for c, us in ranked if all(c != s.config for s in out)]
    return out[:k]


def _known(like: Problem, problem: Problem, device: Device, database: Database | None) -> list[Selection]:
    """What is stored of ``like``, else worth trying, and legal for ``problem``."""
    winner = _winner(like, device, database)
    if winner is not None and rules.broken(lower(problem), winner.config, device) is None:
        return [replace(winner, problem=problem)]
    legal = [c for c in seeds(like, device.name) if rules.broken(lower(problem), c, device) is None]
    return [Selection(problem, c, "seed") for c in legal]


def lacking(problem: Problem, device: Device) -> str:
    """What is missing, for a problem without a legal configuration on ``device``."""
    if near := space.families(lower(problem), device):
        return f"no configuration of {' or '.join(space.FAMILIES[f.code] for f in near)} fits"
    targets = sorted({d.sm for d in DEVICES.values() if space.families(lower(problem), d)})
    if targets:
        return f"it is sm_{device.sm}; kernels of this are for {', '.join(f'sm_{sm}' for sm in targets)}"
    sums = [c for c in COMPUTE_MODES[problem.dtype] if space.families(lower(replace(problem, compute=c)), device)]
    return "nor on another device" + (f"; with compute {' or '.join(sums)} there are kernels" if sums else "")


def _winner(problem: Problem, device: Device, database: Database | None) -> Selection | None:
    """The winner that was measured here, else the one that ships, which must be legal and of the kernel of today."""
    mine = database.best(problem, device.name, tuning_files.clock_of(device.name)) if database is not None else None
    for origin, found in (("winner", mine), ("shipped", tuning_files.lookup(problem, device.name))):
        if (
            found is not None
            and rules.broken(lower(problem), found.config, device) is None
            and is_current(found, device)
        ):
            return Selection(problem, found.config, origin, found.us)
    return None
