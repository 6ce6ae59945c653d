"""Finds problems that a vendor's library computes faster than the configuration of ptxgen: by measurements of both in
one run, or by a prediction of the library's time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ptxgen.errors import DatabaseError
from ptxgen.problem.device import Device
from ptxgen.problem.operation import HEURISTIC, Baseline, vendor_of
from ptxgen.problem.registry import Problem
from ptxgen.tuning.choice.log import warn
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import VendorMeasurement

if TYPE_CHECKING:
    from ptxgen.tuning.model.vendor_model import VendorModel


class Timed(Protocol):
    """A record with a time in microseconds."""

    @property
    def us(self) -> float: ...


class Chosen(Timed, Protocol):
    """A selected configuration."""

    @property
    def origin(self) -> str: ...

    @property
    def scaled_from(self) -> str: ...


MARGIN = 0.005  #: the least gain for which calls use the vendor's library
COVERED = 1.2816  #: standard deviations that nine of ten errors do not exceed


@dataclass(frozen=True)
class PredictedVendor:
    """A vendor's library that is predicted to be faster, with the algorithm that its heuristic names. ``library``,
    ``version``, ``us``, ``algorithm``: as in ``VendorMeasurement``, with the predicted time; ``most_us``: microseconds
    that the library does not exceed in nine of ten predictions."""

    library: str
    version: str
    us: float
    most_us: float

    predicted = True
    algorithm = HEURISTIC


Faster = VendorMeasurement | PredictedVendor


def faster_vendor(problem: Problem, device: Device, database: Database | None, ours: Chosen) -> Faster | None:
    """The vendor's library, if it is faster than the selected configuration ``ours``. If both were measured in the
    user's database, their times decide; else a prediction with its margin. None: the configuration is as fast, one of
    the times is unknown, the library is missing or has another version, or the problem is deterministic."""
    clock = tuning_files.clock_of(device.name)
    library = vendor_of(problem, clock)
    if library is None or library.calls is None:
        return None
    theirs = None if database is None else database.vendor(problem, device.name, clock)
    if theirs is not None and theirs.library == library.name and theirs.version == library.calls.version():
        if theirs.outcome != "ok":
            return None
        if ours.origin == "winner":
            return theirs if is_faster(theirs, ours) else None
    return _predicted(problem, device, database, ours, library)


def may_be_faster(problem: Problem, device: Device, database: Database | None) -> bool:
    """False if no time of the vendor's library is known or predicted, whatever the configuration."""
    clock = tuning_files.clock_of(device.name)
    if database is not None and database.vendor(problem, device.name, clock) is not None:
        return True
    return problem.operation in _models(device, database)


def _models(device: Device, database: Database | None) -> dict[str, VendorModel]:
    """The models of libraries' times: the user's, else the shipped ones; a damaged file is skipped with a warning."""
    from ptxgen.tuning.model import vendor_model

    folders = [tuning_files.model_path(device.name).parent]
    if database is not None:
        from ptxgen.tuning.choice.models import model_folder

        folders.insert(0, model_folder(database, device.name))
    for folder in folders:
        if not (folder / vendor_model.FILE).exists():
            continue
        models = vendor_model.load(folder)
        if isinstance(models, DatabaseError):
            warn(f"{models}; no time of a vendor's library is predicted by it")
        else:
            return models
    return {}


def _predicted(
    problem: Problem, device: Device, database: Database | None, ours: Chosen, library: Baseline
) -> PredictedVendor | None:
    """The library, if its predicted time is less than the time of ``ours`` by the margin of the prediction. If the time
    of ``ours`` is predicted, too, the margin includes the error of that prediction."""
    if not math.isfinite(ours.us) or ours.scaled_from or ours.origin not in ("winner", "shipped", "model"):
        return None
    model = _models(device, database).get(problem.operation)
    made = None if model is None or model.library != library.name else model.predict(problem, device)
    if model is None or made is None or made.us * 2.0**made.margin >= (1 - MARGIN) * ours.us:
        return None
    margin = made.margin
    if ours.origin == "model":
        margin = math.hypot(margin, COVERED * _error(problem, device, database))
        if not made.us * 2.0**margin < (1 - MARGIN) * ours.us:
            return None
    version = None if library.calls is None else library.calls.version()
    if version is None or not model.timed(version):
        return None
    return PredictedVendor(library.name, version, made.us, made.us * 2.0**margin)


def _error(problem: Problem, device: Device, database: Database | None) -> float:
    """The root mean square of log2(predicted / measured) of the model of configurations; infinity: unknown."""
    from ptxgen.tuning.choice.models import model_folder, model_of_problem

    own = None if database is None else model_folder(database, device.name)
    facts = model_of_problem(problem, device, own).facts
    return math.inf if facts is None or math.isnan(facts.error) else facts.error


def is_faster(theirs: Timed, ours: Timed) -> bool:
    """True if a vendor's library is faster than a configuration by more than ``MARGIN``."""
    return theirs.us < (1 - MARGIN) * ours.us
