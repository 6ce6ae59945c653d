"""The recorded outputs of all modules on a GPU, in one file, and the comparison of other outputs with them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .kernel import Case, Column

PATH = Path(__file__).with_name("h200.xz")
_FLOAT: dict[str, Any] = {
    "f16": np.dtype("<f2"),
    "f16x2": np.dtype("<f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "bf16x2": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}


@dataclass(frozen=True)
class Recording:
    """``facts``: of the machine and the generator; ``outputs`` and ``digests``: by module."""

    facts: dict[str, Any]
    outputs: dict[str, bytes]
    digests: dict[str, str]


def write(path: Path, facts: dict[str, Any], cases: tuple[Case, ...], outputs: dict[str, bytes]) -> None:
    recorded = [c for c in cases if c.name in outputs]
    head = {**facts, "modules": [[c.name, c.digest(), c.output] for c in recorded]}
    data = json.dumps(head, sort_keys=True).encode() + b"\n" + b"".join(outputs[c.name] for c in recorded)
    path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def read(path: Path = PATH) -> Recording:
    head, _, data = lzma.decompress(path.read_bytes()).partition(b"\n")
    facts = json.loads(head)
    outputs, digests, at = {}, {}, 0
    for name, digest, size in facts.pop("modules"):
        outputs[name], digests[name] = data[at : at + size], digest
        at += size
    return Recording(facts, outputs, digests)


@dataclass(frozen=True)
class Difference:
    """A difference of a module's output from the recording; values are hexadecimal bits."""

    case: str
    column: Column
    thread: int
    want: str
    got: str

    def __str__(self) -> str:
        label = self.column.label or self.column.dtype
        return f"{self.case}: {label}, thread {self.thread}: hardware {self.want}, here {self.got}"


def differences(case: Case, want: bytes, got: bytes) -> Iterator[Difference]:
    """The first difference of every column."""
    for column in case.columns:
        wrong = disagreeing(column, want, got)
        if len(wrong):
            i = int(wrong[0])
            raw = raw_dtype(column)
            pair = [np.frombuffer(x, raw, column.count, column.offset) for x in (want, got)]
            width = 2 * raw.itemsize
            yield Difference(case.name, column, i, *(f"{int(x[i]):0{width}x}" for x in pair))


def raw_dtype(column: Column) -> Any:
    from .draw import BITS

    return np.dtype(f"<u{BITS[column.dtype] // 8}")


def disagreeing(column: Column, want: bytes, got: bytes) -> NDArray[np.int64]:
    """The indices of the values that differ."""
    raw = raw_dtype(column)
    a, b = (np.frombuffer(x, raw, column.count, column.offset) for x in (want, got))
    wrong = a != b
    if not column.rule or not wrong.any():
        return np.flatnonzero(wrong)
    dtype = _FLOAT[column.dtype]
    x, y = a.view(dtype), b.view(dtype)
    with np.errstate(all="ignore"):
        fine = close(x, y, column.rule)
    per = len(x) // len(a)
    return np.flatnonzero(wrong & ~fine.reshape(-1, per).all(axis=1))


def close(hardware: NDArray[Any], here: NDArray[Any], rule: str) -> NDArray[np.bool_]:
    """True if an approximation is within its error bound of the correctly rounded value."""
    both_nan = np.isnan(hardware) & np.isnan(here)
    if rule == "nan":
        return both_nan | (hardware == here) & (np.signbit(hardware) == np.signbit(here))
    how, _, text = rule.partition(" ")
    bound = float(text)
    finfo: Any = ml_dtypes.finfo(hardware.dtype)
    x, y = hardware.astype(np.float64), here.astype(np.float64)
    ulp = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(np.abs(y), 5e-324))), np.log2(float(finfo.tiny))) * float(
        finfo.eps
    )
    if how == "ulp":
        limit = bound * ulp
    elif how == "abs":
        limit = np.full_like(y, bound)
    elif how == "log":  # absolute near 1, relative elsewhere: log2 of (1/2, 2) is in (-1, 1)
        limit = bound * np.maximum(np.abs(y), 1.0)
    else:  # of a subnormal number the last bit is more than that
        limit = np.maximum(bound * np.abs(y), np.where(np.abs(y) < float(finfo.tiny), ulp, 0.0))
    exact = (hardware == here) & np.isinf(here) | both_nan
    inside = np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= limit + 0.5 * ulp)
    overflow = np.isinf(x) & (np.abs(y) >= 0.999 * float(finfo.max)) & (np.signbit(x) == np.signbit(y))
    return exact | inside | overflow
