"""Tensor maps: a tensor in global memory as the operand of tensor copies, encoded in 128 bytes.

The encoding of the driver is not public. The encoding of this device is little-endian:

    0  "PTXGENTM"                        44  element strides, 5 bytes, and 3 of zero
    8  zero, u64                         52  box, 5 x u16, and 2 bytes of zero
    16 type, rank, im2col (0 or 1),      64  strides of dimensions 1 to 4 in bytes, 4 x u64
       interleave, swizzle, fill,        96  im2col: lower corner, upper corner (3 x s16 each),
       L2 promotion, empty: a byte each      channels, pixels (u16)
    24 extents less 1, 5 x u32           112 address, u64, and 8 bytes of zero

Programs that work around errors of a driver change bits of its maps: CUTLASS clears bit 21 of bytes 8 to 15 in maps of
small tensors. Those bytes have no meaning here.

Types, interleave, swizzle, fill and promotion are numbered as in the driver's API; dimensions go innermost first. Bit i
of ``empty`` says that extent i is 0, which only tensormap.replace can write.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ptxgen.emulator.ptx.dtypes import FP8
from ptxgen.emulator.reductions import flatnonzero
from ptxgen.errors import InputError, UnsupportedError

Array = NDArray[Any]


SIZE = 128


ALIGNMENT = 64


_MAGIC = b"PTXGENTM"


_FORM = "<8s8x8B5I8B5H2x4Q3h3hHHQ8x"


#: the element types in the order of the driver: (name, NumPy type)
TYPES: tuple[tuple[str, Any], ...] = (
    ("u8", np.uint8),
    ("u16", np.uint16),
    ("u32", np.uint32),
    ("s32", np.int32),
    ("u64", np.uint64),
    ("s64", np.int64),
    ("f16", np.float16),
    ("f32", np.float32),
    ("f64", np.float64),
    ("bf16", ml_dtypes.bfloat16),
    ("f32.ftz", np.float32),
    ("tf32", np.float32),
    ("tf32.ftz", np.float32),
)


_ALIASES = {"s8": "u8", **dict.fromkeys(FP8, "u8"), "s16": "u16", "b8": "u8", "b16": "u16"}


_NUMBERS = {name: i for i, (name, _) in enumerate(TYPES)}


SWIZZLES = (0, 32, 64, 128)


_NUMPY = {np.dtype(t): name for name, t in reversed(TYPES)}


#: the bits that the fill mode "nan" writes, by type
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def require(condition: bool, message: str) -> None:
    """Raises InputError unless a condition holds."""
    if not condition:
        raise InputError(message)


@dataclass(frozen=True)
class TensorMap:
    """The arguments of a tensor map; ``encode`` gives its bytes. As an argument of ``launch`` it is a .b8 array of 128
    bytes.

    ``base``: an address, or an array, whose device address the launch inserts. Other fields: as in ``tensormap``.
    """

    base: Any
    type: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    fill: str = "zero"
    promotion: int = 0
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    im2col: bool = field(default=False)

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def dtype(self) -> np.dtype[Any]:
        out: np.dtype[Any] = np.dtype(TYPES[_NUMBERS[self.type]][1])
        return out

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the elements that a copy moves, the innermost dimension last."""
        if self.im2col:
            return self.pixels, self.channels
        steps = (1, *self.element_strides[1:])
        return tuple(ceil(b, s) for b, s in zip(reversed(self.box), reversed(steps), strict=True))

    @property
    def size(self) -> int:
        """The bytes of shared memory that a copy fills and signals to the mbarrier."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def row_chunks(self) -> int:
        """The 16-byte chunks of a row that is narrower than the swizzle span, whose pitch is then the span; else 0."""
        inner = self.shape[-1] * self.dtype.itemsize
        return inner >> 4 if inner < self.swizzle else 0

    @property
    def footprint(self) -> int:
        """The bytes of shared memory from the first to the last byte of a box."""
        return self.size // (self.row_chunks << 4) * self.swizzle if self.row_chunks else self.size

    def encode(self, address: int | None = None) -> bytes:
        """The 128 bytes that a kernel receives, for the tensor at ``address`` (default: ``base``)."""
        if address is None:
            require(not isinstance(self.base, np.ndarray), "base is an array: encode needs its address")
            address = int(self.base)
        require(address % 16 == 0 and address >= 0, f"address is {address:#x}; it must be a multiple of 16")

        def five(values: Sequence[int], default: int = 0) -> list[int]:
            return [*values, *[default] * (5 - len(values))]

        return struct.pack(
            _FORM,
            _MAGIC,
            _NUMBERS[self.type],
            self.rank,
            self.im2col,
            self.interleave,
            SWIZZLES.index(self.swizzle),
            int(self.fill == "nan"),
            self.promotion,
            0,
            *five([e - 1 for e in self.extents]),
            *five(self.element_strides),
            0,
            0,
            0,
            *five(self.box),
            *[*self.strides, 0, 0, 0, 0][:4],
            *[*self.lower, 0, 0, 0][:3],
            *[*self.upper, 0, 0, 0][:3],
            self.channels,
            self.pixels,
            address,
        )


def tensormap(
    base: Any,
    extents: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    box: Sequence[int] = (),
    *,
    type: str | None = None,
    element_strides: Sequence[int] | None = None,
    interleave: int = 0,
    swizzle: int = 0,
    fill: str = "zero",
    promotion: int = 0,
    lower: Sequence[int] | None = None,
    upper: Sequence[int] | None = None,
    channels: int | None = None,
    pixels: int | None = None,
) -> TensorMap:
    """A tensor map for ``launch``. Its arguments are checked as cuTensorMapEncodeTiled checks them or, with
    ``channels``, as cuTensorMapEncodeIm2col does. Dimensions are listed innermost first.

    ``base``: an address, or a NumPy array, which also supplies ``type``, ``extents`` and ``strides``. ``type``: u8,
    u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32.ftz, tf32 or tf32.ftz. ``strides``: in bytes, from dimension 1 on.
    ``box``: the extents of a box. ``swizzle``: 0, 32, 64 or 128. ``fill``: "zero" or "nan". An im2col map has, in place
    of ``box``: ``lower``, ``upper``: the corners of the box of pixels; ``channels``: channels of a pixel that a copy
    moves; ``pixels``: pixels that a copy moves. InputError: an argument breaks a rule.
    """
    if isinstance(base, np.ndarray):
        require(base.dtype in _NUMPY or type is not None, f"no tensor map has elements of {base.dtype}: give a type")
        type = type or _NUMPY[base.dtype]
        extents = base.shape[::-1] if extents is None else extents
        strides = base.strides[-2::-1] if strides is None else strides
    require(type is not None, "type is missing")
    assert type is not None
    type = _ALIASES.get(type, type)
    require(type in _NUMBERS, f"type is {type!r}; it must be one of {', '.join(_NUMBERS)}")
    require(extents is not None, "extents are missing")
    assert extents is not None
    rank, size = len(extents), np.dtype(TYPES[_NUMBERS[type]][1]).itemsize
    columns = channels is not None
    require((3 if columns else 1) <= rank <= 5, f"the rank is {rank}; it must be {3 if columns else 1} to 5")
    strides = tuple(strides or ())
    require(len(strides) == rank - 1, f"there are {len(strides)} strides; a tensor of rank {rank} has {rank - 1}")
    steps = tuple(element_strides or (1,) * rank)
    require(len(steps) == rank, f"there are {len(steps)} element strides; a tensor of rank {rank} has {rank}")
    for i, e in enumerate(extents):
        require(1 <= e <= 1 << 32, f"extents[{i}] is {e}; it must be 1 to 2**32")
    for i, s in enumerate(strides):
        require(s % 16 == 0 and 0 <= s < 1 << 40, f"strides[{i}] is {s}; it must be a multiple of 16 and below 2**40")
    for i, s in enumerate(steps):
        require(1 <= s <= 8, f"element_strides[{i}] is {s}; it must be 1 to 8")
    require(swizzle in SWIZZLES, f"swizzle is {swizzle}; it must be 0, 32, 64 or 128")
    require(interleave in (0, 16, 32), f"interleave is {interleave}; it must be 0, 16 or 32")
    if interleave:
        raise UnsupportedError(f"tensor maps with an interleave of {interleave} bytes are not emulated")
    require(fill in ("zero", "nan"), f"fill is {fill!r}; it must be 'zero' or 'nan'")
    require(fill == "zero" or type.split(".")[0] in _NAN or type.startswith("tf32"), f"NaN fill of {type} elements")
    require(0 <= promotion <= 3, f"promotion is {promotion}; it must be 0 to 3")
    if not isinstance(base, np.ndarray):
        require(int(base) % 16 == 0, f"base is {int(base):#x}; it must be a multiple of 16")
    if not columns:
        require(len(box) == rank, f"the box has {len(box)} dimensions, the tensor {rank}")
        for i, n in enumerate(box):
            require(1 <= n <= 256, f"box[{i}] is {n}; it must be 1 to 256")
        inner = box[0] * size
        require(inner % 16 == 0, f"the box's rows have {inner} bytes; they must be a multiple of 16")
        require(
            not swizzle or inner <= swizzle,
            f"the box's rows have {inner} bytes; a swizzle of {swizzle} allows {swizzle}",
        )
        return TensorMap(base, type, tuple(extents), strides, tuple(box), steps, interleave, swizzle, fill, promotion)
    assert channels is not None
    low, high = tuple(lower or ()), tuple(upper or ())
    least, most = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}[rank]
    for name, corner in (("lower", low), ("upper", high)):
        require(len(corner) == rank - 2, f"{name} has {len(corner)} numbers; a tensor of rank {rank} needs {rank - 2}")
        for i, n in enumerate(corner):
            require(least <= n <= most, f"{name}[{i}] is {n}; at rank {rank} it must be {least} to {most}")
    for i in range(rank - 2):
        require(extents[i + 1] + high[i] > low[i], f"the box of pixels is empty in dimension {i + 1}")
    require(1 <= channels <= 256, f"channels is {channels}; it must be 1 to 256")
    require(pixels is not None and 1 <= pixels <= 1024, f"pixels is {pixels}; it must be 1 to 1024")
    assert pixels is not None
    inner = channels * size
    require(inner % 16 == 0, f"a pixel's channels have {inner} bytes; they must be a multiple of 16")
    require(
        not swizzle or inner <= swizzle,
        f"a pixel's channels have {inner} bytes; a swizzle of {swizzle} allows {swizzle}",
    )
    return TensorMap(
        base,
        type,
        tuple(extents),
        strides,
        (),
        steps,
        interleave,
        swizzle,
        fill,
        promotion,
        low,
        high,
        channels,
        pixels,
        True,
    )


@functools.lru_cache(maxsize=1024)
def decode(data: bytes) -> TensorMap | None:
    """The tensor map that 128 bytes encode; None if they encode none."""
    magic, type_number, rank, columns, interleave, swizzle, fill, promotion, empty, *rest, address = struct.unpack(
        _FORM, data
    )
    if magic != _MAGIC or type_number >= len(TYPES) or not 1 <= rank <= 5 or swizzle >= len(SWIZZLES):
        return None
    extents, steps, box = rest[:5], rest[5:10], rest[13:18]
    strides, low, high = rest[18:22], rest[22:25], rest[25:28]
    return TensorMap(
        address,
        TYPES[type_number][0],
        tuple(0 if empty >> i & 1 else e + 1 for i, e in enumerate(extents[:rank])),
        tuple(strides[: rank - 1]),
        () if columns else tuple(box[:rank]),
        tuple(steps[:rank]),
        interleave,
        SWIZZLES[swizzle],
        "nan" if fill else "zero",
        promotion,
        tuple(low[: rank - 2]) if columns else (),
        tuple(high[: rank - 2]) if columns else (),
        rest[28],
        rest[29],
        bool(columns),
    )


@functools.lru_cache(maxsize=1024)
def defect(tensor_map: TensorMap) -> str:
    """The rule that a decoded map breaks, as ``tensormap`` words it; empty if it breaks none."""
    t = tensor_map
    columns: dict[str, Any] = {}
    if t.im2col:
        columns = {"lower": t.lower, "upper": t.upper, "channels": t.channels, "pixels": t.pixels}
    try:
        tensormap(
            t.base,
            t.extents,
            t.strides,
            t.box,
            type=t.type,
            element_strides=t.element_strides,
            interleave=t.interleave,
            swizzle=t.swizzle,
            fill=t.fill,
            promotion=t.promotion,
            **columns,
        )
    except InputError as error:
        return str(error)
    return ""


# ---- tensormap.replace

#: the fields that tensormap.replace writes: (position of the first element in the 128 bytes, format of an element)
FIELDS = {
    "elemtype": (16, "<B"),
    "rank": (17, "<B"),
    "interleave_layout": (19, "<B"),
    "swizzle_mode": (20, "<B"),
    "fill_mode": (21, "<B"),
    "global_dim": (24, "<I"),
    "element_stride": (44, "<B"),
    "box_dim": (52, "<H"),
    "global_stride": (64, "<Q"),
    "global_address": (112, "<Q"),
}


#: the numbers that tensormap.replace gives the element types; the driver's API numbers them in another order
REPLACED_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")


_EMPTY = 23


def replaced(data: bytes, field: str, ordinal: int, value: int) -> bytes | None:
    """The 128 bytes of a tiled map with a new value of a field; None if the bytes are no tiled map.

    ``field``: as in FIELDS; ``ordinal``: the dimension, for a field with several elements (else 0); ``value``: the
    operand of the instruction. 128 zero bytes count as a map without extents. Illegal values are stored, too;
    ``defect`` names them.
    """
    out = bytearray(data)
    if not any(out[: len(_MAGIC)]):
        out[: len(_MAGIC)] = _MAGIC
    if out[: len(_MAGIC)] != _MAGIC or out[18]:
        return None
    at, code = FIELDS[field]
    size = struct.calcsize(code)
    if field == "global_dim":
        out[_EMPTY] = out[_EMPTY] & ~(1 << ordinal) | (0 if value else 1 << ordinal)
        value = (value - 1) % (1 << 32)
    elif field == "rank":
        value += 1
    elif field == "elemtype":
        value = _NUMBERS[REPLACED_TYPES[value]]
    elif field == "interleave_layout":
        value = (0, 16, 32)[value]
    struct.pack_into(code, out, at + ordinal * size, min(value, (1 << 8 * size) - 1))
    return bytes(out)


class TensorRegion:
    """The part of a box that is inside the tensor.

    ``low``, ``high``: first and past-the-last address; both 0 if the part is empty. ``slices``: the part as slices of
    the box, the innermost dimension last.
    """

    def __init__(
        self, tensor: TensorMap, coordinates: Sequence[int], offsets: Sequence[int] = (), writes: bool = False
    ) -> None:
        self.tensor = tensor
        self.low = self.high = 0
        size = tensor.dtype.itemsize
        pitches = (size, *tensor.strides)
        if tensor.im2col:
            self.find_pixels(coordinates, offsets)
            return
        slices: list[slice] = []
        shape: list[int] = []
        at, last = tensor.base, size
        for i in range(tensor.rank):
            step = tensor.element_strides[i] if i else 1
            count = ceil(tensor.box[i], step)
            first = max(0, ceil(-coordinates[i], step))
            extent = tensor.extents[i]
            if writes and i == 0:  # hardware writes a chunk of 16 bytes if any part of it is inside
                extent = ceil(extent * size, 16) * 16 // size
            end = min(count, ceil(extent - coordinates[i], step))
            slices.append(slice(first, end))
            shape.append(max(end - first, 0))
            at += (coordinates[i] + first * step) * pitches[i]
            last += max(end - first - 1, 0) * step * pitches[i]
        self.empty = 0 in shape
        self.slices = tuple(reversed(slices))
        self.inner = tuple(reversed(shape))
        steps = (1, *tensor.element_strides[1:])
        self.pitches = tuple(p * s for p, s in zip(reversed(pitches), reversed(steps), strict=True))
        if not self.empty:
            at %= 1 << 64  # hardware adds strides modulo 2^64
            self.low, self.high = at, at + last

    def find_pixels(self, coordinates: Sequence[int], offsets: Sequence[int]) -> None:
        """Finds the pixels of an im2col column that are inside the tensor: sets ``rows``, their rows in the box, and
        ``at``, their addresses."""
        t = self.tensor
        spatial = t.rank - 2
        position = list(coordinates[1:])
        rows = np.empty((t.pixels, t.rank - 1), np.int64)
        ends = [t.extents[i + 1] - 1 + t.upper[i] for i in range(spatial)]
        for p in range(t.pixels):
            rows[p] = position
            for i in range(spatial):
                position[i] += t.element_strides[i + 1]
                if position[i] <= ends[i]:
                    break
                position[i] = t.lower[i]
            else:
                position[spatial] += t.element_strides[spatial + 1]
        rows[:, :spatial] += np.array([*offsets] or [0] * spatial, np.int64)
        good = ((rows >= 0) & (rows < np.array(t.extents[1:], np.int64))).all(axis=1)
        first = max(0, -coordinates[0])
        end = min(t.channels, t.extents[0] - coordinates[0])
        self.slices = (slice(None), slice(first, max(end, first)))
        at = t.base + rows @ np.array(t.strides, np.int64) + (coordinates[0] + first) * t.dtype.itemsize
        self.rows = flatnonzero(good)
        self.at = at[good]
        self.empty = not len(self.rows) or end <= first
        if not self.empty:
            self.low, self.high = int(self.at.min()), int(self.at.max()) + (end - first) * t.dtype.itemsize

    @property
    def bytes(self) -> int:
        """The bytes of global memory in the region."""
        if self.empty:
            return 0
        count = (
            int(np.prod(self.inner))
            if not self.tensor.im2col
            else len(self.rows) * len(range(*self.slices[1].indices(1 << 30)))
        )
        return count * self.tensor.dtype.itemsize

    def view(self, memory: Array, base: int) -> Array:
        """The elements of the region as a view of ``memory``. Not for im2col maps."""
        t = self.tensor
        start = self.low - base
        flat = memory[start : start + self.high - self.low].view(t.dtype)
        return as_strided(flat, self.inner, self.pitches)

    def columns(self) -> Array:
        """The positions of the elements in memory, in units of elements, for im2col maps."""
        t = self.tensor
        width = self.slices[1].stop - self.slices[1].start
        out: Array = self.at[:, None] // t.dtype.itemsize + np.arange(width)
        return out

    def load(self, memory: Array, base: int) -> Array:
        """The elements of the box, with the fill value outside the tensor."""
        t = self.tensor
        out = np.zeros(t.shape, t.dtype)
        element_type = t.type.split(".")[0]
        if t.fill == "nan":
            nan = _NAN["f32" if element_type == "tf32" else element_type]
            out.view(f"<u{t.dtype.itemsize}")[...] = nan
        if not self.empty:
            if t.im2col:
                index = self.columns() - base // t.dtype.itemsize
                out[self.rows[:, None], np.arange(t.channels)[self.slices[1]]] = memory.view(t.dtype)[index]
            else:
                out[self.slices] = self.view(memory, base)
        if t.type != element_type or element_type == "tf32":
            self.convert(out, element_type == "tf32", t.type.endswith(".ftz"))
        return out

    @staticmethod
    def convert(out: Array, tf32: bool, flush: bool) -> None:
        bits = out.view(np.uint32)
        if flush:
            bits[(bits & 0x7F800000) == 0] &= np.uint32(0x80000000)
        if tf32:
            finite = (bits & 0x7F800000) != 0x7F800000
            rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
            bits[finite] = rounded[finite]
