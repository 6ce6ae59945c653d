"""Models of the time of vendors' libraries: boosted trees over facts of the problem, one for each operation.

The file ``vendor.json.xz`` of a device has them. They are trained on the times of ``vendor_files``. Each has a margin,
which the time of a library exceeded for one in ten of the problems that were held out of training. Few trees are read
by Python itself, so that a choice needs no XGBoost.
"""

from __future__ import annotations

import json
import lzma
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import CorruptError, DatabaseError, InputError, SchemaError
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import Device
from ptxgen.problem.operation import operation_of
from ptxgen.problem.registry import Problem
from ptxgen.tuning import roofline
from ptxgen.tuning.store.exchange import MEMORY_LIMIT, replacing
from ptxgen.tuning.store.vendor_files import VendorTime

FILE, FORMAT = "vendor.json.xz", 1
LEAST_US = 1.5  #: of a launch: below it, the roofline says nothing
TREES, RATE, DEPTH, CHILD_WEIGHT = 240, 0.06, 5, 2.0
ROWS_DRAWN, FEATURES_DRAWN, SEED = 0.8, 0.6, 7
FOLDS = 5
FEW = 40  #: times of an arithmetic below which nothing of it is predicted
QUANTILE = 0.9  #: of the held-out problems that a prediction and its margin cover
#: tiles of C whose number of waves is a feature: those of the libraries' kernels
TILES = ((64, 64), (128, 64), (128, 128), (256, 128))
BYTES_MOST, NODES_MOST = 1 << 24, 1 << 10


def arithmetic(problem: Problem) -> str:
    """The type of the operands; for f32 the value of ``compute``; with that of the results if it is another one."""
    name = problem.compute if problem.dtype == "f32" else problem.dtype
    return name if problem.out == problem.dtype else f"{name} {problem.out}"


def features(problem: Problem, device: Device) -> dict[str, float]:
    """The features of a problem by name: those that follow from its kernel problem and the device, and those that its
    operation defines for the vendor's library."""
    p = lower(problem)
    m, n, k, batch = (max(int(x), 1) for x in (p.m, p.n, p.k, p.batch))
    values = {name: math.log2(x) for name, x in (("m", m), ("n", n), ("k", k), ("batch", batch))}
    values["results"], values["bytes"] = math.log2(m * n * batch), math.log2(max(float(p.bytes), 1.0))
    values["flops"], values["peak"] = math.log2(max(float(p.flops), 1.0)), math.log2(roofline.peak_flops(p, device))
    values["memory"] = math.log2(roofline.memory_us(p, device) + 1e-3)
    values["roofline"] = math.log2(least_us(problem, device))
    values |= {f"vector_{x}": math.log2(max(int(v), 1)) for x, v in zip("abc", p.vectors, strict=True)}
    values |= {f"kmajor_{x}": float(letter == wanted) for x, letter, wanted in zip("ab", p.layout, "NT", strict=True)}
    for rows, columns in TILES:
        waves = -(-m // rows) * -(-n // columns) * batch / device.sms
        values[f"waves_{rows}x{columns}"] = math.log2(waves)
        values[f"fill_{rows}x{columns}"] = waves / math.ceil(waves)
    calls = next((b.calls for b in operation_of(problem).baselines.values() if b.calls is not None), None)
    return values | ({} if calls is None else {name: float(of(problem)) for name, of in calls.features.items()})


def least_us(problem: Problem, device: Device) -> float:
    """The time relative to which the trees predict: that of the roofline, or of a launch if it is longer."""
    return max(roofline.roofline_us(lower(problem), device), LEAST_US)


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a vendor's library. ``us``: microseconds; ``margin``: log2 of a factor: nine of ten
    held-out problems took less than this factor times their predicted time; ``library``: the name of its
    ``Baseline``."""

    us: float
    margin: float
    library: str


@dataclass(frozen=True)
class VendorModel:
    """The model of one operation. ``versions``: names and versions of the library that was timed, none: not recorded;
    ``margins``: by arithmetic; ``error``: root mean square of log2(measured / predicted) of held-out problems;
    ``forest``: the first term of the sum, and the lists of the trees."""

    library: str
    versions: tuple[str, ...]
    rows: int
    names: tuple[str, ...]
    margins: dict[str, float]
    error: float
    forest: dict[str, Any] = field(repr=False)

    def predict(self, problem: Problem, device: Device) -> Prediction | None:
        """The time of a problem whose sums are stored as they are. None: too few of its arithmetic were measured."""
        margin = self.margins.get(arithmetic(problem))
        if margin is None or problem.epilogue:
            return None
        values = features(problem, device)
        if set(values) != set(self.names):
            return None
        x = [float(np.float32(values[name])) for name in self.names]
        return Prediction(least_us(problem, device) * 2.0 ** _sum(self.forest, x), margin, self.library)

    def timed(self, version: str) -> bool:
        """True if times of this major version of the library are known, or none is recorded."""
        return not self.versions or _major(version) in map(_major, self.versions)


def _major(version: str) -> str:
    return version.partition(".")[0]


def _sum(forest: dict[str, Any], x: Sequence[float]) -> float:
    total = float(forest["base"])
    for left, right, feature, value in forest["trees"]:
        node = 0
        while left[node] >= 0:
            node = left[node] if x[feature[node]] < value[node] else right[node]
        total += value[node]
    return total


# ---- training


def train(rows: Iterable[VendorTime], device: Device) -> dict[str, VendorModel]:
    """A model for each operation of which enough times are known, by name. If a problem has several times, the last one
    counts. The same rows give the same trees. UnavailableError: XGBoost is not installed."""
    latest = {row.problem: row for row in rows}
    by_operation: dict[str, list[VendorTime]] = {}
    for row in sorted(latest.values(), key=lambda row: row.problem.key()):
        if not row.problem.epilogue:
            by_operation.setdefault(row.problem.operation, []).append(row)
    models = {name: _trained(some, device) for name, some in by_operation.items()}
    return {name: model for name, model in models.items() if model.margins}


def _trained(rows: list[VendorTime], device: Device) -> VendorModel:
    columns = [features(row.problem, device) for row in rows]
    names = tuple(columns[0])
    x = np.array([[values[name] for name in names] for values in columns], np.float32)
    y = np.array([math.log2(row.us / least_us(row.problem, device)) for row in rows])
    fold = np.random.default_rng(SEED).permutation(len(rows)) % FOLDS
    behind = np.zeros(len(rows))
    if len(rows) >= FEW:
        for held_out in range(FOLDS):
            out = fold == held_out
            forest = _grown(x[~out], y[~out])
            behind[out] = y[out] - [_sum(forest, list(map(float, row))) for row in x[out]]
    classes = [arithmetic(row.problem) for row in rows]
    margins = {
        name: round(max(float(np.quantile(behind[[c == name for c in classes]], QUANTILE)), 0.0), 4)
        for name, count in sorted(Counter(classes).items())
        if count >= FEW
    }
    versions = tuple(sorted({row.version for row in rows} - {""}))
    error = round(float(np.sqrt(np.mean(behind**2))), 4)
    return VendorModel(rows[0].library, versions, len(rows), names, margins, error, _grown(x, y) if margins else {})


def _grown(x: NDArray[np.float32], y: NDArray[np.float64]) -> dict[str, Any]:
    from ptxgen.tuning.model.model_trees import forest_of
    from ptxgen.tuning.model.tree_predictor import xgboost

    library, base = xgboost(), float(np.mean(y))
    options = {
        "objective": "reg:squarederror",
        "base_score": base,
        "tree_method": "hist",
        "eta": RATE,
        "max_depth": DEPTH,
        "min_child_weight": CHILD_WEIGHT,
        "subsample": ROWS_DRAWN,
        "colsample_bytree": FEATURES_DRAWN,
        "seed": SEED,
        "nthread": 1,
        "verbosity": 0,
    }
    made = forest_of(library.train(options, library.QuantileDMatrix(x, y, nthread=1), TREES))
    trees = [[tree["left"], tree["right"], tree["feature"], _short(tree["value"])] for tree in made["trees"]]
    return {"base": made["base"], "trees": trees}


def _short(values: list[float]) -> list[float]:
    """The numbers rounded to float32, with as few decimal digits as identify the float32."""
    return [float(str(np.float32(value))) for value in values]


# ---- files


def write(
    path: Path, device: str, models: dict[str, VendorModel], commits: Iterable[str], commands: Iterable[str]
) -> None:
    """Writes a file. The same content gives the same bytes."""
    content = {
        "format": FORMAT,
        "device": device,
        "commits": sorted(set(commits)),
        "commands": sorted(set(commands)),
        "models": {name: asdict(model) for name, model in sorted(models.items())},
    }
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    with replacing(path) as file:
        file.write(lzma.compress(text, preset=9))
    _load.cache_clear()


def load(folder: Path) -> dict[str, VendorModel] | DatabaseError:
    """The models in a device's folder by operation; none: there is no file. The error of a damaged file is returned, so
    that it is read once."""
    path = folder / FILE
    try:
        return _load(path, path.stat().st_mtime_ns)
    except OSError:
        return {}


@lru_cache(maxsize=16)
def _load(path: Path, changed: int) -> dict[str, VendorModel] | DatabaseError:
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY_LIMIT)
        text = unpacker.decompress(path.read_bytes(), BYTES_MOST)
        if not unpacker.eof:
            raise InputError(f"is longer than {BYTES_MOST} bytes")
        content = json.loads(text)
        if content["format"] != FORMAT:
            return SchemaError(f"{path} has format {content['format']!r}; this ptxgen reads {FORMAT}")
        return {name: _model(values) for name, values in content["models"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, lzma.LZMAError, EOFError) as error:
        return CorruptError(f"{path} is damaged: {type(error).__name__}: {error}")


def _model(values: dict[str, Any]) -> VendorModel:
    """The model of one operation, read from JSON. InputError, TypeError, KeyError: a value breaks a rule."""
    names, versions = tuple(values["names"]), tuple(values["versions"])
    margins = {str(name): float(margin) for name, margin in values["margins"].items()}
    if not all(0 <= margin < 64 for margin in margins.values()):
        raise InputError(f"margins are {margins}; each must be at least 0, and finite")
    for left, right, feature, value in values["forest"]["trees"]:
        count = len(left)
        if not 1 <= count <= NODES_MOST or {len(right), len(feature), len(value)} != {count}:
            raise InputError("a tree has lists of different lengths, or too many nodes")
        for i in range(count):
            leaf = left[i] < 0
            # children that follow their parents exclude cycles
            if not (leaf or (i < left[i] < count and i < right[i] < count and 0 <= feature[i] < len(names))):
                raise InputError("a tree has a child before its parent, or an unknown feature")
    return VendorModel(**{**values, "names": names, "versions": versions, "margins": margins})
