"""From a shape to the configuration that computes it: the stored winner, else the regressor's choice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ptxgen import rules, shipped
from ptxgen.config import Config
from ptxgen.database import Database
from ptxgen.device import Device
from ptxgen.errors import DatabaseError
from ptxgen.model import Model
from ptxgen.problem import Gemm


@dataclass(frozen=True)
class Selection:
    """A choice and where it comes from. ``origin``: ``winner`` (measured here), ``shipped`` (measured by us), ``model``
    (the regressor), ``analytic`` (a formula: nothing was ever measured on such a device), ``given``; ``us``: measured or
    predicted microseconds (NaN: unknown)."""

    problem: Gemm
    config: Config
    origin: str
    us: float = float("nan")


@lru_cache(maxsize=4)
def model_for(device: Device) -> Model:
    """The regressor shipped for ``device``, or the formula where there is none."""
    path = shipped.model_path(device.name)
    if path.exists():
        return Model.load(path.parent)
    return Model.analytic(device)


def select(problem: Gemm, device: Device, database: Database | None = None, use_model: bool = False,
           k: int = 1) -> list[Selection]:  # fmt: skip
    """The ``k`` best choices for ``problem``, best first: the stored winner unless ``use_model``, then the regressor's
    ranking of the whole legal space. Needs no GPU."""
    out: list[Selection] = []
    if not use_model:
        found = shipped.lookup(problem, device.name, database)
        if found is not None and rules.broken(problem, found.config, device) is None:
            origin = "winner" if database is not None and _stored(problem, device, database) else "shipped"
            out.append(Selection(problem, found.config, origin, found.us))
    if len(out) < k:
        model = model_for(device)
        origin = "model" if model.trained else "analytic"
        ranked = model.rank(problem, device, k)
        out += [Selection(problem, c, origin, us) for c, us in ranked if all(c != s.config for s in out)]
    return out[:k]


def _stored(problem: Gemm, device: Device, database: Database) -> bool:
    try:
        return database.best(problem, device.name, shipped.clock_of(device.name)) is not None
    except DatabaseError:
        return False
