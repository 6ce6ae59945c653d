"""The model of a device: trained by the user, shipped, or taken from the nearest device."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ptxgen.errors import DatabaseError
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.operation import operation_names
from ptxgen.problem.registry import Problem
from ptxgen.tuning.choice.log import warn
from ptxgen.tuning.choice.nearest import FEW_ROWS, nearest, transferred
from ptxgen.tuning.model import model_files
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database


def models_folder(database: Path) -> Path:
    """The folder, next to a database, of the user's models, with one folder for each device."""
    return database.parent / f"{database.stem}-models"


def model_folder(database: Database, device: str) -> Path:
    """The folder of the user's model for ``device``."""
    return models_folder(database.path) / device


def model_for(device: Device, database: Database | None = None) -> Model:
    """The model for ``device``: the user's, else the shipped one, else the model of the nearest device that has one,
    scaled by the facts of both devices, else the performance model, which needs no measurements. A model that was
    trained on few measurements comes after that of the nearest device. A model file that is damaged or of another
    version is skipped with a warning to ``logging``."""
    return model_from(device, None if database is None else model_folder(database, device.name))


def model_from(device: Device, own: Path | None) -> Model:
    """``model_for`` with ``own``, the folder of the user's model for ``device``; the models of other devices are in
    folders next to it. An operation may have a model of its own, in a folder with its name inside the device's
    folder."""
    whole = _model_of(device, own, "") or Model.analytic(device)
    parts = {name: part for name in operation_names() if (part := _model_of(device, own, name)) is not None}
    return whole.with_parts(parts) if parts else whole


def model_of_problem(problem: Problem, device: Device, own: Path | None) -> Model:
    """``model_from``, without the models that predictions for ``problem`` do not need. If the disk cache does not have
    the needed models, all models are read, which takes tenths of a second, and stored there: later processes, also for
    other operations, read them from the cache."""
    part = _model_of(device, own, problem.operation)
    if part is not None and not lower(problem).forms:
        model = part
    else:
        whole = _model_of(device, own, "") or Model.analytic(device)
        model = whole if part is None else whole.with_parts({problem.operation: part})
    if model_files.made_arrays():
        model_from(device, own)
    return model


def _model_of(device: Device, own: Path | None, operation: str) -> Model | None:
    """The trained model of ``operation``, or, for "", of all operations; None: no such model exists."""
    mine = None if own is None else own.parent
    own_models = _own_models(device.name, mine, operation)
    best = next((model for model in own_models if model.facts is not None and model.facts.rows >= FEW_ROWS), None)
    if best is None and (other := _nearest_model(device, mine, operation)) is not None:
        return other
    return best or next(iter(own_models), None)


def _own_models(name: str, mine: Path | None, operation: str) -> list[Model]:
    """The models that were trained on measurements of the device ``name``: the user's, in a folder of ``mine``, then
    the shipped one."""
    shipped = tuning_files.model_path(name).parent
    out = []
    for of_device in (shipped,) if mine is None else (mine / name, shipped):
        folder = of_device / operation
        try:
            changed = (folder / tuning_files.MODEL).stat().st_mtime_ns
        except OSError:
            continue
        loaded = _load(folder, changed)
        if isinstance(loaded, Model):
            out.append(loaded)
        else:
            warn(f"{loaded}; another model is used instead")
    return out


def _nearest_model(device: Device, mine: Path | None, operation: str) -> Model | None:
    """The model of the nearest other GPU with many measurements, transferred to ``device``; None: no GPU has one."""
    if device.name == "emulated":
        return None
    shipped = tuning_files.model_path(device.name).parent.parent
    roots = (shipped,) if mine is None else (shipped, mine)
    paths = (path for root in roots for path in root.glob(str(Path("*", operation, tuning_files.MODEL))))
    names = {path.parents[1 if operation else 0].name for path in paths}
    others: dict[Device, Model] = {}
    for name in sorted(names - {device.name, "emulated"}):
        for model in _own_models(name, mine, operation)[:1]:
            if model.facts is not None and model.facts.rows >= FEW_ROWS:
                others[model.device] = model
    shared = [d for d, model in others.items() if model.facts is not None and device.name in model.facts.also]
    chosen = nearest(device, shared or others)
    return None if chosen is None else _transferred(device, others[chosen])


_transferred = lru_cache(maxsize=8)(transferred)


@lru_cache(maxsize=32)
def _load(folder: Path, changed: int) -> Model | DatabaseError:
    """The model in a folder, or the error of loading it. The result is cached until ``changed``, the time of the file,
    changes."""
    try:
        return Model.load(folder)
    except DatabaseError as error:
        return error
