"""The text form of launch arguments: ``f32:1.5``, ``u32:7``, ``f32[64x32]=random:out=y.npy``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.dtypes import FP8
from ptxgen.errors import InputError

Array = NDArray[Any]


#: NumPy type of each type that an argument may have
TYPES: dict[str, Any] = {
    **{
        f"{sign}{bits}": np.dtype(f"{'i' if sign == 's' else 'u'}{bits // 8}")
        for sign in "sub"
        for bits in (8, 16, 32, 64)
    },
    "f16": np.dtype("f2"),
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
    "tf32": np.dtype("f4"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **FP8,
}


#: types that a .npy file cannot hold; files store their values as float32
FLOAT32_IN_FILES = ("bf16", *FP8)


LARGEST = 1 << 40  #: largest size in bytes of a buffer


FILLS = ("zeros", "ones", "iota", "random")


_BUFFER = re.compile(r"(?P<type>\w+)\[(?P<extent>[^\]]*)\](?:=(?P<fill>.+))?")


@dataclass(frozen=True)
class Argument:
    """One launch argument. ``value``: the array or NumPy scalar to launch with; ``save``: the file to which the array
    is written after the launch."""

    text: str
    ptx_type: str
    value: Any
    save: Path | None = None

    def store(self) -> None:
        """Writes the array to its file, if it has one."""
        if self.save is not None:
            np.save(self.save, self.value.astype(np.float32) if self.ptx_type in FLOAT32_IN_FILES else self.value)


def parse_argument(text: str, random: np.random.Generator) -> Argument:
    """The argument that a text of the form TYPE:VALUE or TYPE[EXTENT]=FILL describes, optionally with :out=FILE.
    InputError: the text has another form."""
    spec, out, save = text.partition(":out=")
    match = _BUFFER.fullmatch(spec)
    if match:
        if out and not save:
            raise InputError(f"argument {text!r}: no file after :out=")
        ptx_type = known(match["type"], text)
        value = buffer(text, ptx_type, match["extent"], match["fill"] or "zeros", random)
        return Argument(text, ptx_type, value, Path(save) if out else None)
    ptx_type, colon, number = spec.partition(":")
    if not colon or out:
        raise InputError(f"argument {text!r} is neither TYPE:VALUE nor TYPE[EXTENT]=FILL, perhaps with :out=FILE")
    return Argument(text, known(ptx_type, text), scalar(text, ptx_type, number))


def known(ptx_type: str, text: str) -> str:
    if ptx_type not in TYPES:
        raise InputError(f"argument {text!r}: no type {ptx_type!r}; there are {', '.join(sorted(TYPES))}")
    return ptx_type


def scalar(text: str, ptx_type: str, number: str) -> Any:
    dtype = TYPES[ptx_type]
    try:
        if dtype.kind in "iu":
            whole = int(number, 0)
            info = np.iinfo(dtype)
            low = info.min if ptx_type[0] == "u" else -(1 << info.bits - 1)
            high = info.max if ptx_type[0] == "s" else (1 << info.bits) - 1
            if not low <= whole <= high:
                raise InputError(f"argument {text!r}: {number} is not within {low} to {high}")
            return np.array(whole & (1 << info.bits) - 1, f"u{dtype.itemsize}").view(dtype)[()]
        with np.errstate(over="ignore"):
            return np.array(float(number), dtype)[()]
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"argument {text!r}: {number!r} is no number of type {ptx_type}") from None


def buffer(text: str, ptx_type: str, extent: str, fill: str, random: np.random.Generator) -> Array:
    dtype = TYPES[ptx_type]
    shape: tuple[int, ...] | None = None
    if extent:
        parts = extent.split("x")
        if not all(re.fullmatch("[0-9]{1,18}", p.strip()) for p in parts):
            raise InputError(f"argument {text!r}: the extent is {extent!r}, not a number or several, as 64x32")
        shape = tuple(int(p) for p in parts)
        if (size := math.prod(shape) * dtype.itemsize) > LARGEST:
            raise InputError(f"argument {text!r}: the buffer has {size} bytes; it must have at most {LARGEST}")
    if fill not in FILLS:
        return loaded(text, ptx_type, shape, Path(fill))
    if shape is None:
        raise InputError(f"argument {text!r}: {fill} needs an extent")
    count = int(np.prod(shape))
    if fill == "random":
        if dtype.kind in "iu":
            values: Array = random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
        else:
            values = random.standard_normal(count).astype(dtype)
    elif fill == "iota":
        values = np.arange(count).astype(dtype)
    else:
        values = np.full(count, fill == "ones").astype(dtype)
    return values.reshape(shape)


def loaded(text: str, ptx_type: str, shape: tuple[int, ...] | None, path: Path) -> Array:
    dtype = TYPES[ptx_type]
    if path.suffix != ".npy":
        raise InputError(f"argument {text!r}: {str(path)!r} is neither a .npy file nor one of {', '.join(FILLS)}")
    try:
        values: Array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"argument {text!r}: {path} is not an array file: {error}") from None
    if ptx_type in FLOAT32_IN_FILES and values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = values.astype(dtype)
    elif values.dtype != dtype and not (
        values.dtype.kind in "iu" and dtype.kind in "iu" and values.dtype.itemsize == dtype.itemsize
    ):
        wanted = "float32" if ptx_type in FLOAT32_IN_FILES else dtype.name
        raise InputError(f"argument {text!r}: {path} holds {values.dtype.name}, not {wanted}")
    if shape is not None and values.size != int(np.prod(shape)):
        raise InputError(f"argument {text!r}: {path} holds {values.size} elements, not {int(np.prod(shape))}")
    return np.array(values, order="C", copy=True)
