"""From a shape to the configuration that computes it: the stored winner, else the regressor's choice."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ptxgen import rules, shipped, space
from ptxgen.config import Config
from ptxgen.database import Database
from ptxgen.device import DEVICES, Device
from ptxgen.errors import SchemaError
from ptxgen.lower import lower
from ptxgen.model import Model
from ptxgen.operations import Problem
from ptxgen.seeds import seeds
from ptxgen.typed import COMPUTE

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
    was trained on other features is passed over, with a warning to ``logging``."""
    folders = [shipped.model_path(device.name).parent]
    if database is not None:
        folders.insert(0, model_folder(database, device.name))
    for folder in folders:
        path = folder / "model.json"
        if path.exists():
            try:
                return _load(folder, path.stat().st_mtime_ns)
            except SchemaError as error:  # of another version: less to go by, but no reason to stop
                _warn(str(error))
    return Model.analytic(device)


@lru_cache(maxsize=64)
def _warn(message: str) -> None:
    """Once, and to those who listen: nothing is printed where logging is not set up."""
    _log.warning("%s; choices come from what is left", message)


@lru_cache(maxsize=8)
def _load(folder: Path, changed: int) -> Model:
    return Model.load(folder)


def select(problem: Problem, device: Device, database: Database | None = None, use_model: bool = False,
           k: int = 1) -> list[Selection]:  # fmt: skip
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
    sums = [c for c in COMPUTE[problem.dtype] if space.families(lower(replace(problem, compute=c)), device)]
    return "nor on another device" + (f"; with compute {' or '.join(sums)} there are kernels" if sums else "")


def _winner(problem: Problem, device: Device, database: Database | None) -> Selection | None:
    """The legal winner that was measured here, else the one that ships."""
    for origin in ("winner", "shipped") if database is not None else ("shipped",):
        if origin == "winner" and database is not None:
            found = database.best(problem, device.name, shipped.clock_of(device.name))
        else:
            found = shipped.lookup(problem, device.name)
        if found is not None and rules.broken(lower(problem), found.config, device) is None:
            return Selection(problem, found.config, origin, found.us)
    return None
