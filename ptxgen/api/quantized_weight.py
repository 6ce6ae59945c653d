"""``QuantizedWeight``: integers of 8 or 4 bits and the scales that make them a matrix."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ptxgen.api.arrays import View, alignment_of, as_numpy, is_cupy, is_torch, require_same_memory, tensor, view
from ptxgen.arguments import is_integer, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.quantized.problem import EXACT, FAST, PRECISIONS
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.weight_formats import GROUPS, WEIGHT_FORMATS, WeightFormat

FLOATS = ("f16", "bf16", "f32")  #: types of scales, and of weights before they are quantized


class QuantizedWeight:
    """The weights of a layer as integers: N rows along K, and a scale for each group of a row; or those of E experts.

    ``packed``: N×K int8 in the format s8, uint8 in u8, or N×K/2 uint8 in s4 and u4, the weight of the even k in the low
    bits of a byte. ``scales``: N×G of float16, bfloat16 or float32; K/G adjacent weights of a row share a scale: 32,
    64, 128 or all of the row. ``zeros``: the zero points of the formats u8 and u4, N×G uint8, at most 255 and 63, which
    are subtracted before the product with the scale; None: 0. Those in memory of a GPU are not checked: the low 6 bits
    of a zero point of u4 count. Arrays of experts are E×N×K, or E×N×K/2, and E×N×G. All are of one library in one
    memory; their rows are contiguous. ``format``: s8, u8, s4 or u4. ``precision``: exact, or fast: kernels may round
    weights times their scales to the type of the activations, which scales then have. That is the rounding of
    ``dequantize().to(dtype)``; many rows of activations take less time.

    ``gemm(a, w)`` computes A·Wᵀ, as ``ptxgen.torch.linear`` does; ``gemm_jagged(x, w, offsets)`` multiplies the rows of
    each expert by its weights. Each call reads the arrays: their contents may
    change, but the arrays must not be replaced.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """

    __slots__ = ("_views", "format", "group", "key", "packed", "precision", "scales", "shape", "zeros")

    def __init__(self, packed: Any, scales: Any, zeros: Any = None, *, format: str, precision: str = EXACT) -> None:
        known = _format(format)
        stored, scale = view(packed, "packed", batched=True), tensor(scales, "scales")
        if stored.dtype.name != known.storage:
            raise DtypeError(f"packed is {stored.dtype}; with format {format} it must be {dtype(known.storage)}")
        if scale.dtype.name not in FLOATS:
            raise DtypeError(f"scales is {scale.dtype}; it must be float16, bfloat16 or float32")
        shape = (*stored.shape[:-1], stored.shape[-1] * known.per_byte)
        views = {"packed": stored, "scales": scale}
        if zeros is not None:
            if known.signed:
                raise InputError(f"zeros is given; weights of format {format} have no zero points, u8 and u4 do")
            views["zeros"] = tensor(zeros, "zeros")
            if views["zeros"].dtype.name != "u8":
                raise DtypeError(f"zeros is {views['zeros'].dtype}; it must be uint8")
            most = known.largest_zero
            if views["zeros"].host and (greatest := int(as_numpy(views["zeros"]).max(initial=0))) > most:
                raise InputError(f"zeros has {greatest}; with format {format} zero points are at most {most}")
        for name, v in views.items():
            if name != "packed" and v.shape not in (shapes := _shapes(shape)):
                allowed, rows = ", ".join(map(str, shapes)), "x".join(map(str, shape[:-1]))
                raise ShapeError(
                    f"{name} has shape {v.shape}; with {rows} rows of {shape[-1]} weights it must be one of {allowed}:"
                    f" one for each {', '.join(map(str, GROUPS[1:]))} weights of a row, or for all"
                )
            if name == "zeros" and v.shape != scale.shape:
                raise ShapeError(f"zeros has shape {v.shape}; it must be {scale.shape}, that of scales")
            if not _contiguous(v, rows_alone=name == "packed"):
                raise ShapeError(
                    f"{name} has strides {v.strides}; its rows must be contiguous, and experts without gaps"
                    if len(shape) > 2
                    else f"{name} has strides {v.strides}; its rows must be contiguous"
                )
            require_same_memory(name, v, "packed", stored)
        self.packed, self.scales, self.zeros, self.format = packed, scales, zeros, format
        self.precision = word("precision", precision, PRECISIONS)
        self.shape: tuple[int, ...] = shape
        self.group = shape[-1] // scale.shape[-1] if scale.shape[-1] > 1 else 0
        self._views = views
        #: the part of a launch cache key that describes these weights
        self.key = (
            format,
            precision,
            self.group,
            self.shape,
            stored.strides,
            alignment_of(stored.address),
            *(part for v in views.values() for part in (v.dtype.name, v.device, v.host)),
        )

    @classmethod
    def quantize(cls, weight: Any, format: str = "s4", group: int = 128, precision: str = EXACT) -> QuantizedWeight:
        """Quantizes a weight of N rows along K to the nearest integers, with scales of its dtype. ``weight``: N×K, or
        E×N×K, of float16, bfloat16 or float32, of NumPy, PyTorch or CuPy; the result is in the same memory.
        ``group``: the number of adjacent weights of a row that share a scale, 32, 64 or 128; 0: all of the row.
        ``precision``: as for the class.

        s8 and s4: the scale of a group is its largest magnitude over 127 or 7. u8 and u4: the integers divide the range
        of the group, extended to contain 0, evenly, and the zero point is the integer that means 0. ShapeError,
        DtypeError, InputError: an argument breaks a rule.
        """
        known, given = _format(format), view(weight, "weight", batched=True)
        if given.dtype.name not in FLOATS:
            raise DtypeError(f"weight is {given.dtype}; it must be float16, bfloat16 or float32")
        *rows, k = given.shape
        if not k:
            raise ShapeError("weight has 0 columns; it must have at least 1")
        if not is_integer(group, 0, max(GROUPS)) or int(group) not in GROUPS:
            named = ", ".join(map(str, GROUPS[1:]))
            raise ShapeError(f"group is {shown(group)}; it must be {named}, or 0, all of a row")
        group = int(group)
        if group and k % group:
            raise ShapeError(f"group is {group}; it must divide the {k} columns of weight, or be 0")
        if k % known.per_byte:
            raise ShapeError(f"weight has {k} columns; with format {format}, two in a byte, they must be even")
        library = _library(weight)
        values = library.floats(weight).reshape(*rows, k // group if group else 1, group or k)
        if known.signed:
            scales = _amax(library, library.xp.abs(values)) / known.largest
        else:
            low, high = -_amax(library, -values), _amax(library, values)
            low, high = low * (low < 0), high * (high > 0)
            scales = (high - low) / known.largest
        scales = library.cast(scales, given.dtype.numpy.name)  # the integers are those of the rounded scales
        step = library.floats(scales)
        step = step + (step == 0)  # a group of zeros
        zeros = None if known.signed else library.xp.clip(library.xp.round(-low / step), 0, known.largest)
        steps = library.xp.round(values / step[..., None])
        if zeros is not None:
            steps = steps + zeros[..., None]
        integers = library.xp.clip(steps, known.least, known.largest).reshape(*rows, k)
        if known.per_byte == 1:
            packed = library.cast(integers, "int8" if known.signed else "uint8")
        else:
            nibbles = library.cast(integers, "int8")
            packed = (
                library.cast((nibbles[..., ::2] & 15), "uint8") | library.cast(nibbles[..., 1::2] & 15, "uint8") * 16
            )
        return cls(
            packed, scales, None if zeros is None else library.cast(zeros, "uint8"), format=format, precision=precision
        )

    def dequantize(self) -> Any:
        """The weight as float32 with the shape ``shape``: the integers less their zero points, times their scales."""
        return dequantized(self.packed, self.scales, self.zeros, self.format)

    @property
    def views(self) -> dict[str, View]:
        """The views of the arrays, by name."""
        return dict(self._views)

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses of the arrays that follow A and C in a launch: weights, scales and zero points."""
        return tuple(v.address for v in self._views.values())

    def host_arrays(self) -> dict[str, Any]:
        """The arrays in host memory, by their names in the problem."""
        names = {"packed": "B", "scales": "scales", "zeros": "zeros"}
        return {names[name]: as_numpy(v) for name, v in self._views.items()}

    def __repr__(self) -> str:
        *items, n, k = self.shape
        about = f"groups of {self.group}" if self.group else "a scale for each row"
        rows = f"{items[0]} experts of {n} rows" if items else f"{n} rows"
        zeros = ", zero points" if self.zeros is not None else ""
        fast = f", {FAST}" if self.precision == FAST else ""
        return f"QuantizedWeight({rows} of {k}, {self.format}, {about}{zeros}{fast})"


def dequantized(packed: Any, scales: Any, zeros: Any, format: str) -> Any:
    """The weight that these arrays of a ``QuantizedWeight`` mean, as N×K or E×N×K float32."""
    library, known = _library(packed), WEIGHT_FORMATS[format]
    *rows, width = packed.shape
    groups = scales.shape[-1]
    stored = packed
    if known.per_byte == 2:
        stored = library.xp.stack((stored & 15, stored >> 4), -1)
    values = library.floats(stored).reshape(*rows, groups, width * known.per_byte // groups)
    if known.per_byte == 2 and known.signed:
        values = values - 16 * (values > known.largest)
    if zeros is not None:
        values = values - library.floats(zeros & known.largest_zero)[..., None]
    return (values * library.floats(scales)[..., None]).reshape(*rows, width * known.per_byte)


class _Library:
    """Functions that NumPy, PyTorch and CuPy name differently. ``xp``: the module of the library."""

    def __init__(self, xp: Any, tensors: bool) -> None:
        self.xp, self._tensors = xp, tensors

    def cast(self, x: Any, name: str) -> Any:
        """``x`` with the dtype of this name."""
        if self._tensors:
            return x.to(getattr(self.xp, name))
        return x.astype(name)

    def floats(self, x: Any) -> Any:
        return self.cast(x, "float32")


def _library(x: Any) -> _Library:
    """The library of an array. InputError: it is not one of NumPy, PyTorch and CuPy."""
    if isinstance(x, np.ndarray):
        return _Library(np, False)
    if is_torch(x):
        return _Library(importlib.import_module("torch"), True)
    if is_cupy(x):
        return _Library(importlib.import_module("cupy"), False)
    raise InputError(f"weight is {type(x).__name__}; to be quantized it must be an array of NumPy, PyTorch or CuPy")


def _amax(library: _Library, x: Any) -> Any:
    """The largest value of each group; 0 if groups have no elements."""
    return library.xp.amax(x, -1) if x.shape[-1] else x.sum(-1)


def _format(name: str) -> WeightFormat:
    return WEIGHT_FORMATS[word("format", name, tuple(WEIGHT_FORMATS), DtypeError)]


def _shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes that the scales of weights of this shape may have."""
    *rows, k = shape
    return list(
        dict.fromkeys((*rows, k // (group or max(k, 1)) or 1) for group in GROUPS if not group or k % group == 0)
    )


def _contiguous(v: View, rows_alone: bool) -> bool:
    """True if rows are contiguous, and matrices follow each other without gaps. Unless ``rows_alone``, rows must also
    follow each other without gaps."""
    if 0 in v.shape:  # NumPy gives these strides of 0
        return True
    (*items, rows, columns), (*apart, down, along) = v.shape, v.strides
    in_row = columns <= 1 or along == 1
    pitch = down if rows > 1 else columns
    whole = pitch == columns or columns == 0
    matrices = all(n <= 1 or s == rows * pitch for n, s in zip(items, apart, strict=True))
    return in_row and matrices and (whole or (rows_alone and pitch >= columns))
