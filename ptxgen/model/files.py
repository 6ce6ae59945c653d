"""A trained model as files: XGBoost's own JSON, and beside it what was trained, on what, and on which features."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.config import FAMILIES, Columns, Config
from ptxgen.device import Device
from ptxgen.errors import CorruptError, SchemaError
from ptxgen.features import NAMES, features
from ptxgen.lower import lower
from ptxgen.model.training import DEPTH, TREES, xgboost
from ptxgen.problem import Gemm
from ptxgen.sliding import Conv

FORMAT = 1  #: version of the metadata; a newer one is refused


@dataclass(frozen=True)
class Facts:
    """What is kept with a trained model. ``errors``: root mean square of log2(predicted / measured) by yardstick, on
    problems left out of training and after their mean is taken off; ``error``: the chosen one's, mean kept;
    ``families``: how many rows each had."""

    device: dict[str, Any]
    target: str
    rows: int
    problems: int
    skipped: int
    error: float = float("nan")
    errors: dict[str, float] = field(default_factory=dict)
    families: dict[str, int] = field(default_factory=dict)
    commits: tuple[str, ...] = ()
    newest: float = 0.0  #: when the latest of the measurements was made
    trees: int = TREES
    depth: int = DEPTH


FEW = 100  #: rows of a family below which its kernels are ranked by the clock, also by a trained model

_PLAIN = (Config(), Config(ms=4, ns=8, ml=32, u=32, kl=2, kg=7, split=2))
_HALVES = Gemm(512, 768, 4096, "NT", "f16")
#: points of each family whose features a model that learnt of it must see as it did when it was trained
_PROBES: dict[str, tuple[tuple[Gemm, tuple[Config, ...]], ...]] = {
    "simt": ((Gemm(512, 768, 1024, "TN"), _PLAIN), (Gemm(32, 2560, 5120, "NT"), _PLAIN)),
    "mma": ((_HALVES, (
        Config(family=1, ms=32, ns=64, ml=64, nl=128, u=32, kg=3, split=2, vec_a=8, vec_b=8, vec_c=4, stage_c=1),
        Config(family=1, ms=16, ns=16, ml=32, nl=32, u=64, kl=2, vec_a=8, vec_b=8, vec_c=4, ahead=0, repack=3),
    )),),
    "wgmma": ((_HALVES, (
        Config(family=2, ml=128, nl=96, u=64, wg=2, cluster=2, persistent=1, stage_c=1, chunks=2),
        Config(family=2, ml=16, nl=64, u=128, swap=1, kc=2, kg=3, split=3),
    )),),
    "stream": ((Gemm(4096, 1, 4096, "NT", "f16"), (
        Config(family=3, ms=4, ns=1, ml=16, nl=1, wm=1, kl=2, u=1024, vec_a=8, vec_b=8, resident=2),
        Config(family=3, ms=1, ns=1, ml=8, nl=1, wm=2, kl=1, u=512, vec_a=8, vec_b=8, kg=2, split=2),
    )),),
    "slide": ((lower(Conv(8, 64, 56, 56, 64, 3, 3, padding=1, groups=64)), (
        Config(family=4, ns=4, ml=1, nl=64), Config(family=4, ns=8, ml=4, nl=64, resident=2),
    )),),
}  # fmt: skip


def known(facts: Facts) -> list[str]:
    """The families that a model learnt enough of."""
    return [f for f in FAMILIES if facts.families.get(f, 0) >= FEW]


def _probe(d: Device, facts: Facts) -> list[float]:
    """The features of a few fixed points."""
    points = [point for family in known(facts) for point in _PROBES[family]]
    return [round(float(v), 4) for p, cs in points for v in features(p, Columns.of(list(cs)), d).ravel()]


def write(folder: Path, device: Device, facts: Facts, booster: Any) -> None:
    """Writes ``model.json`` (XGBoost's own format) and ``model.meta.json``."""
    text = _portable(bytes(booster.save_raw(raw_format="json")))
    meta = {
        "format": FORMAT,
        "features": list(NAMES),
        "digest": hashlib.sha256(text).hexdigest(),
        "xgboost": xgboost().__version__,
        **asdict(facts),
        "probe": _probe(device, facts),
    }
    meta["error"] = None if np.isnan(facts.error) else facts.error
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("model.json", text), ("model.meta.json", json.dumps(meta, indent=1).encode() + b"\n")):
        temporary = folder / f"{name}.{os.getpid()}.part"
        temporary.write_bytes(data)
        temporary.replace(folder / name)


def read(folder: Path) -> tuple[Device, Facts, Any]:
    """(device, facts, booster) of the model that ``write`` wrote."""
    meta = _metadata(folder / "model.meta.json")
    try:
        text = (folder / "model.json").read_bytes()
    except OSError as e:
        raise CorruptError(f"{folder / 'model.json'} cannot be read: {e.strerror}") from e
    digest = hashlib.sha256(text).hexdigest()
    if digest != meta["digest"]:
        raise CorruptError(f"{folder / 'model.json'} has digest {digest}; its metadata say {meta['digest']}")
    booster = xgboost().Booster()
    booster.load_model(bytearray(text))
    names = {f.name for f in fields(Facts)}
    values = {n: v for n, v in meta.items() if n in names}
    values["error"] = float("nan") if values.get("error") is None else values["error"]
    values["commits"] = tuple(values.get("commits", ()))
    try:
        device = Device(**meta["device"])
    except TypeError as e:
        raise SchemaError(f"{folder} describes a device otherwise than this ptxgen: {e}") from e
    facts = Facts(**values)
    seen, now = np.array(meta["probe"]), np.array(_probe(device, facts))
    same = len(seen) == len(now)
    changed = np.flatnonzero(np.abs(now - seen) > 1e-3 * (1 + np.abs(seen))) if same else np.zeros(0, np.intp)
    if not same or len(changed):
        which = ", ".join(sorted({NAMES[i % len(NAMES)] for i in changed})) or "their number"
        raise SchemaError(f"{folder} was trained on features that are computed otherwise now: {which}; train it again")
    return device, facts, booster


def _metadata(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_text())
        if not isinstance(meta, dict) or not isinstance(meta["format"], int):
            raise ValueError("no format")
    except OSError as e:
        raise CorruptError(f"{path} cannot be read: {e.strerror}") from e
    except (ValueError, KeyError) as e:
        raise CorruptError(f"{path} is not the metadata of a model: {e}") from e
    if meta["format"] > FORMAT:
        raise SchemaError(f"{path} has format {meta['format']}; this ptxgen reads up to {FORMAT}")
    if meta.get("features") != list(NAMES):
        theirs = meta.get("features") or []
        missing, extra = sorted(set(NAMES) - set(theirs)), sorted(set(theirs) - set(NAMES))
        raise SchemaError(
            f"{path} was trained on {len(theirs)} features; this ptxgen computes {len(NAMES)}"
            f" (only here: {', '.join(missing) or 'none'}; only there: {', '.join(extra) or 'none'})"
        )
    absent = {"digest", "device", "target", "probe", "rows", "problems", "skipped", "families"} - set(meta)
    if absent:
        raise CorruptError(f"{path} lacks {', '.join(sorted(absent))}")
    return meta


def _portable(text: bytes) -> bytes:
    """The model as XGBoost 3.0 reads it too: later versions write the base score as a list."""
    model = json.loads(text)
    parameters = model["learner"]["learner_model_param"]
    parameters["base_score"] = parameters["base_score"].strip("[]")
    return json.dumps(model, separators=(",", ":")).encode()
