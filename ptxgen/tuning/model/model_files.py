"""A trained model as one file, JSON compressed with xz: trees, network, training data, features. Trees and weights are
columns of numbers (``number_text``)."""

from __future__ import annotations

import hashlib
import json
import lzma
import stat
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen import file_digests
from ptxgen.codegen.config.config import Columns
from ptxgen.errors import CorruptError, SchemaError
from ptxgen.families.common import array_cache
from ptxgen.families.common.features import PROBLEM, all_names, features, of_operations
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device
from ptxgen.tuning.model import model_trees as trees
from ptxgen.tuning.model import tree_columns
from ptxgen.tuning.model.ranking_network import RankingNetwork
from ptxgen.tuning.model.training import DEPTH, TARGETS, TREES
from ptxgen.tuning.store.exchange import MEMORY_LIMIT, replacing
from ptxgen.tuning.store.tuning_files import MODEL

FORMAT = 5  #: the format of the file; files of other formats are refused
BYTES_MOST = 1 << 23  #: the most bytes of the decompressed file
VALUES_MOST, CONTAINERS_MOST = 1 << 16, 1 << 10  #: the most values, and the most lists and objects, in its JSON
#: xz's parameters for numbers of two bytes without order
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 2, "lp": 0, "pb": 0}]


@dataclass(frozen=True)
class Facts:
    """The facts that are stored with a trained model. ``device``: the fields of the device; ``rows``, ``problems``:
    what the model was trained on; ``skipped``: measurements that were not used; ``errors``: by target, the root mean
    square of log2(predicted / measured) on held-out problems, without the mean error of each problem; ``error``: the
    same for the chosen target, with the mean error; ``families``: the number of rows of each family and of each
    ``Family.training_class``; ``grouped``: the number of rows of groups of GEMMs."""

    device: dict[str, Any]
    target: str
    rows: int
    problems: int
    skipped: int
    error: float = float("nan")
    errors: dict[str, float] = field(default_factory=dict)
    families: dict[str, int] = field(default_factory=dict)
    grouped: int = 0
    commits: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  #: the other devices on whose measurements the model was trained
    newest: float = 0.0  #: the time at which the latest of the measurements was made
    trees: int = TREES
    depth: int = DEPTH


FEW = 200  #: with fewer rows of a family, a trained model ranks its kernels by the performance model


def known(facts: Facts, p: KernelProblem | None = None) -> list[str]:
    """The families with enough training data, in general or, if ``p`` is given, for problems like ``p``."""
    names = [name for name in FAMILIES if facts.families.get(name, 0) >= FEW]
    if p is None:
        return names
    names = [name for name in names if facts.families.get(FAMILIES[name].training_class(p) or name, 0) >= FEW]
    return [name for name in names if facts.grouped >= FEW or not FAMILIES[name].calibrated(p)]


def _probe(d: Device, facts: Facts, names: tuple[str, ...]) -> list[float]:
    """The features ``names`` of a few fixed configurations and problems, by which changes of features are detected."""
    points = [point for family in known(facts) for point in FAMILIES[family].probes()]
    return [round(float(v), 4) for p, cs in points for v in features(p, Columns.of(cs), d, None, names).ravel()]


def write(
    folder: Path,
    device: Device,
    facts: Facts,
    booster: Any,
    names: tuple[str, ...],
    network: RankingNetwork | None = None,
) -> None:
    """Writes ``model.json.xz`` atomically: if several processes write it at once, a reader finds the whole file of one
    of them."""
    content = {
        "format": FORMAT,
        "features": list(names),
        **asdict(facts),
        "error": None if np.isnan(facts.error) else facts.error,
        "probe": _probe(device, facts, names),
        "forest": tree_columns.pack(trees.forest_of(booster), len(names)),
        "network": None if network is None else network.as_dict(),
    }
    with replacing(folder / MODEL) as file:
        file.write(lzma.compress(_text({**content, "digest": _digest(content)}) + b"\n", filters=FILTERS))


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _digest(content: dict[str, Any], text: bytes = b"") -> str:
    """The digest of a file's content without the digest itself. ``text``: the text of the file, if it is known.
    ``write`` puts the digest last, so that the digest can be computed from the text."""
    last = b',"digest":"%s"}\n' % str(content.get("digest")).encode()
    if text.endswith(last):
        digest = hashlib.sha256(text.removesuffix(last) + b"}").hexdigest()
        if digest == content["digest"]:
            return digest
    return hashlib.sha256(_text({n: v for n, v in content.items() if n != "digest"})).hexdigest()


def read(folder: Path) -> tuple[Device, Facts, Any, tuple[str, ...], RankingNetwork | None]:
    """The model that ``write`` wrote: its device, facts, booster, features and network. The checked content is kept in
    the disk cache. CorruptError, SchemaError: as in ``Model.load``."""
    path = folder / MODEL
    try:
        _require_file(path)
        key = _cache_key(path)
        arrays = array_cache.read(key)
        if arrays is None:
            _made_arrays.append(path)
            arrays = _read(path)
            if key == _cache_key(path):  # it was not replaced meanwhile
                array_cache.write(key, arrays)
        content = json.loads(arrays["facts"].tobytes())
        device, facts = _device(path, content["device"]), _facts(content)
        names = tuple(content["features"])
        return device, facts, trees.loaded(arrays["trees"].tobytes()), names, _network(content, len(names))
    except OSError as error:
        raise CorruptError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, lzma.LZMAError) as error:
        raise CorruptError(f"{path} is damaged, or no model: {type(error).__name__}: {error}"[:500]) from error


_made_arrays: list[Path] = []  #: models that were read without the disk cache


def made_arrays() -> bool:
    """True if this process has read a model that the disk cache did not have, since the last call."""
    made = bool(_made_arrays)
    _made_arrays.clear()
    return made


def _cache_key(path: Path) -> str:
    return array_cache.package_key("model", file_digests.of_files([(str(path), str(path))]))


def _read(path: Path) -> array_cache.Arrays:
    """The checked content of a model as two arrays of bytes. ``facts``: JSON without the trees; ``trees``: the trees in
    XGBoost's format."""
    text = content_of(path)
    content = json.loads(text)
    if not isinstance(content, dict):
        raise TypeError("it must be a JSON object")
    digest = _digest(content, text)
    if not isinstance(content["format"], int):
        raise ValueError(f"format is {content['format']!r}; it must be an integer")
    if content["format"] != FORMAT:
        raise SchemaError(f"{path} has format {content['format']}; this ptxgen reads format {FORMAT}")
    if digest != content["digest"]:
        raise CorruptError(f"{path} has digest {digest}; it must be {content['digest']!r}")
    names = _features(path, content["features"])
    device, facts = _device(path, content["device"]), _facts(content)
    forest = tree_columns.unpack(content.pop("forest"), len(names))
    _network(content, len(names))
    with np.errstate(all="ignore"):  # a device's facts may be nonsense
        _require_probe(path, content["probe"], _probe(device, facts, names), names)
    constant = [i for i, name in enumerate(names) if name in {*PROBLEM, *of_operations()}]
    facts_text = json.dumps({**content, "features": names}).encode()
    parts = {"facts": facts_text, "trees": trees.content_of(trees.ranking_first(forest, constant), len(names))}
    return {name: np.frombuffer(part, np.uint8) for name, part in parts.items()}


def _network(content: dict[str, Any], features: int) -> RankingNetwork | None:
    values = content.get("network")
    return None if values is None else RankingNetwork.from_dict(values, features)


def content_of(path: Path) -> bytes:
    """The decompressed content of a model file. Only its numbers of bytes, values and lists are checked, because a list
    that takes two bytes in the file takes 64 in memory. OSError, ValueError, LZMAError: the file cannot be read, or
    exceeds a limit."""
    _require_file(path)
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY_LIMIT)
    text = unpacker.decompress(path.read_bytes(), BYTES_MOST)
    if not unpacker.eof or unpacker.unused_data:
        rule = f"one xz stream of at most {BYTES_MOST} bytes of text"
        raise ValueError(f"{path.name} is longer, or has more streams; it must be {rule}")
    for name, count, most in (
        ("values", text.count(b","), VALUES_MOST),
        ("lists and objects", text.count(b"[") + text.count(b"{"), CONTAINERS_MOST),
    ):
        if count > most:
            raise ValueError(f"{path.name} has {count} {name}; it must have at most {most}")
    return text


def _require_file(path: Path) -> None:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > BYTES_MOST:
        raise ValueError(f"{path.name} is no file or is longer; it must be a file of at most {BYTES_MOST} bytes")


def _features(path: Path, stored: list[str]) -> tuple[str, ...]:
    """The names of the features that a model reads; this version may have further features.

    SchemaError: this version does not compute a feature."""
    if not isinstance(stored, list) or not all(isinstance(name, str) for name in stored):
        raise TypeError(f"features is {type(stored).__name__}; it must be a list of names")
    names = tuple(stored)
    if len(set(names)) != len(names) or not names:
        raise ValueError(
            f"features has {len(names)} names, {len(set(names))} different; it must have one, and no equal ones"
        )
    if extra := sorted(set(names) - set(all_names())):
        raise SchemaError(
            f"{path} was trained on {len(stored)} features; this ptxgen does not compute {', '.join(extra)}"
        )
    return names


def _device(path: Path, values: dict[str, Any]) -> Device:
    try:
        device = Device(**values)
    except TypeError as e:
        raise SchemaError(f"{path} has facts of a device that do not match this ptxgen: {e}") from e
    for name, value in asdict(device).items():
        if name == "name":
            _require(name, value, str)
        elif _require(name, value, int) < 1 or value > 1 << 40:
            raise ValueError(f"{name} of the device is {value}; it must be from 1 to {1 << 40}")
    return device


def _facts(content: dict[str, Any]) -> Facts:
    """The facts of a file. ValueError, TypeError: a fact has a wrong type or value."""
    values = {f.name: content[f.name] for f in fields(Facts) if f.name in content}
    values["error"] = float("nan") if values.get("error") is None else values["error"]
    for name in ("commits", "also"):
        values[name] = tuple(values.get(name, ()))
    facts = Facts(**values)
    for name in ("rows", "problems", "skipped", "grouped", "trees", "depth"):
        if not 0 <= _require(name, getattr(facts, name), int) < 1 << 53:
            raise ValueError(f"{name} is {getattr(facts, name)}; it must be a count")
    for name in ("error", "newest"):
        _require(name, getattr(facts, name), float, int)
    if not np.isfinite(facts.newest):
        raise ValueError(f"newest is {facts.newest}; it must be finite")
    if facts.target not in TARGETS:
        raise ValueError(f"target is {facts.target!r}; it must be one of {', '.join(TARGETS)}")
    for name, number_type in (("errors", float), ("families", int)):
        for key, value in _require(name, getattr(facts, name), dict).items():
            _require(f"{name}[{key!r}]", value, number_type, int)
    for name, words in (("commit", facts.commits), ("also", facts.also)):
        for word in words:
            _require(name, word, str)
    return facts


def _require(name: str, value: Any, *types: type) -> Any:
    if isinstance(value, bool) or not isinstance(value, types):
        raise TypeError(f"{name} is {str(value)[:60]!r}; it must be of type {types[0].__name__}")
    return value


def _require_probe(path: Path, seen: list[float], now: list[float], names: tuple[str, ...]) -> None:
    """Raises SchemaError if the features of ``_probe`` had other values when the model was trained (``seen``) than
    ``now``."""
    then = np.asarray(seen, dtype=np.float64)
    if then.ndim != 1 or not np.isfinite(then).all():
        raise ValueError(f"probe has shape {then.shape} or an infinite number; it must be a list of finite numbers")
    same = len(then) == len(now)
    changed = np.flatnonzero(np.abs(now - then) > 1e-3 * (1 + np.abs(then))) if same else np.zeros(0, np.intp)
    if not same or len(changed):
        which = ", ".join(sorted({names[i % len(names)] for i in changed})) or "their number"
        raise SchemaError(
            f"{path} was trained on features that this version computes differently: {which}; train it again"
        )
