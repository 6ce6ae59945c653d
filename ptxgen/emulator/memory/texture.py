"""Textures and surfaces: arrays in global memory that instructions read with interpolation, or access by coordinates.

The N texels of a texture are at the coordinates 0.5, 1.5, ..., N - 0.5. Point sampling takes texel floor(x). Linear
filtering takes texels floor(x - 0.5) and floor(x - 0.5) + 1, with weights of 8 fractional bits. Normalised coordinates
are multiplied by N first.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.tensormap import require

Array = NDArray[Any]


#: the types of a channel: (NumPy type, OpenCL number, OpenCL number of the type read as fractions or 0)
TYPES: dict[str, tuple[Any, int, int]] = {
    "s8": (np.int8, 0x10D7, 0x10D0),
    "s16": (np.int16, 0x10D8, 0x10D1),
    "s32": (np.int32, 0x10D9, 0),
    "u8": (np.uint8, 0x10DA, 0x10D2),
    "u16": (np.uint16, 0x10DB, 0x10D3),
    "u32": (np.uint32, 0x10DC, 0),
    "f16": (np.float16, 0x10DD, 0),
    "f32": (np.float32, 0x10DE, 0),
}


#: number of channels -> OpenCL number of the channel order (CL_R, CL_RG, CL_RGBA)
ORDERS = {1: 0x10B0, 2: 0x10B2, 4: 0x10B5}


FILTERS = ("point", "linear")


ADDRESS_MODES = ("clamp", "border", "wrap", "mirror")


_NAMES = {np.dtype(t): name for name, (t, _, _) in TYPES.items()}


@dataclass(frozen=True)
class Texture:
    """A texture or a surface; ``texture`` makes it, and explains the fields.

    ``base``: an address, or an array, whose device address the launch inserts. ``extents``: width, height, depth.
    ``pitches``: bytes from texel to texel in each of these dimensions. ``layers``: the number of layers, 0 without
    layers; ``layer_pitch``: bytes from layer to layer (for a cube: from face to face).
    """

    base: Any
    type: str
    channels: int
    extents: tuple[int, ...]
    pitches: tuple[int, ...]
    layers: int = 0
    layer_pitch: int = 0
    cube: bool = False
    filter: str = "point"
    address: tuple[str, ...] = ()
    normalised: bool = False
    fractions: bool = False
    border: tuple[float, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        out: np.dtype[Any] = np.dtype(TYPES[self.type][0])
        return out

    @property
    def texel(self) -> int:
        """The bytes of a texel."""
        return self.channels * self.dtype.itemsize

    @property
    def geometry(self) -> str:
        """The geometry as instructions name it: 1d, a2d, cube, ..."""
        shape = "cube" if self.cube else f"{len(self.extents)}d"
        return f"a{shape}" if self.layers else shape

    @property
    def floats(self) -> bool:
        """True if texels are read as floating-point numbers."""
        return self.type[0] == "f" or self.fractions

    @property
    def nbytes(self) -> int:
        """The bytes from the first to the last texel."""
        last = sum((n - 1) * p for n, p in zip(self.extents, self.pitches, strict=True)) + self.texel
        return last + (max(self.layers, 1) * (6 if self.cube else 1) - 1) * self.layer_pitch


def texture(
    base: Any,
    extents: Sequence[int] | None = None,
    *,
    type: str | None = None,
    channels: int = 1,
    pitch: int | None = None,
    layered: bool = False,
    cube: bool = False,
    filter: str = "point",
    address: str | Sequence[str] = "clamp",
    normalised: bool = False,
    fractions: bool = False,
    border: Sequence[float] = (0, 0, 0, 0),
) -> Texture:
    """A texture, or a surface, of an array in device memory; an argument of ``launch`` for a .u64 handle.

    ``base``: an address, or a C-contiguous NumPy array, which also supplies ``type`` and ``extents``. The axes of an
    array are layer (if ``layered``), face (if ``cube``: 6), depth, height, width and channel (if ``channels`` is 2 or
    4). ``extents``: those of the memory at an address, in the order of these axes, without channel. ``type``: u8, s8,
    u16, s16, u32, s32, f16 or f32. ``pitch``: bytes of a row. ``filter``: "point" or "linear". ``address``: "clamp",
    "border", "wrap" or "mirror", or one of these for each of x, y and z; wrap and mirror need normalised coordinates.
    ``normalised``: coordinates are from 0 to 1. ``fractions``: integers of 8 or 16 bits are read as floating-point
    numbers, from 0 to 1 or from -1 to 1. ``border``: the texel outside the array. InputError: an argument breaks a
    rule.
    """
    require(channels in ORDERS, f"channels is {channels}; it must be 1, 2 or 4")
    if isinstance(base, np.ndarray):
        require(base.dtype in _NAMES or type is not None, f"no texture has elements of {base.dtype}: give a type")
        type = type or _NAMES[base.dtype]
        shape = base.shape if extents is None else tuple(extents)
        if channels > 1 and extents is None:
            require(
                shape[-1:] == (channels,), f"the last extent is {shape[-1:]}; it must be that of {channels} channels"
            )
            shape = shape[:-1]
    else:
        require(extents is not None, "extents are missing")
        shape = tuple(extents or ())
    require(type in TYPES, f"type is {type!r}; it must be one of {', '.join(TYPES)}")
    assert type is not None
    axes = [*(("layer",) if layered else ()), *(("face",) if cube else ())]
    rank = len(shape) - len(axes)
    most = 2 if axes else 3
    least = 2 if cube else 1
    require(least <= rank <= most, f"there are {rank} spatial extents; there must be {least} to {most}")
    for n in shape:
        require(n > 0, f"the extents are {shape}; each must be above 0")
    if cube:
        faces, height, width = shape[-3:]
        require((faces, height) == (6, width), f"the extents are {shape}; a cube must have 6 square faces")
    require(filter in FILTERS, f"filter is {filter!r}; it must be 'point' or 'linear'")
    modes = (address,) * 3 if isinstance(address, str) else tuple(address)
    for mode in modes:
        require(mode in ADDRESS_MODES, f"address is {mode!r}; it must be one of {', '.join(ADDRESS_MODES)}")
        require(
            normalised or cube or mode in ("clamp", "border"),
            f"address is {mode!r}; without normalised coordinates it must be 'clamp' or 'border'",
        )
    require(
        len(modes) >= rank, f"there are {len(modes)} address modes; there must be one for each of {rank} dimensions"
    )
    require(not fractions or TYPES[type][2] != 0, f"fractions of {type}; the type must be u8, s8, u16 or s16")
    out = Texture(
        base,
        type,
        channels,
        tuple(shape[len(axes) :][::-1]),
        (),
        shape[0] if layered else 0,
        0,
        cube,
        filter,
        modes,
        normalised or cube,
        fractions,
        tuple(border),
    )
    require(
        filter == "point" or out.floats, f"linear filtering of {type}; the texels must be read as numbers: fractions"
    )
    row = out.texel * out.extents[0] if pitch is None else pitch
    require(row >= out.texel * out.extents[0], f"pitch is {row}; a row has {out.texel * out.extents[0]} bytes")
    pitches = (out.texel, row, row * (out.extents[1] if rank > 1 else 1))
    return Texture(
        **{
            **{name: getattr(out, name) for name in out.__dataclass_fields__},
            "pitches": pitches[:rank],
            "layer_pitch": pitches[1] * (out.extents[1] if rank > 1 else 1),
        }
    )


def cube_face(x: Array, y: Array, z: Array) -> tuple[Array, Array, Array]:
    """The face of a cube that a direction hits, and the normalised coordinates on it."""
    ax, ay, az = np.abs(x), np.abs(y), np.abs(z)
    along_x = (ax >= ay) & (ax >= az)
    along_y = ~along_x & (ay >= az)
    major = np.where(along_x, x, np.where(along_y, y, z))
    face = np.where(along_x, 0, np.where(along_y, 2, 4)) + (major < 0)
    s = np.choose(face, [-z, z, x, x, x, -x])
    t = np.choose(face, [-y, -y, z, -z, -y, -y])
    m = np.abs(major)
    return face, (s / m + 1) / 2, (t / m + 1) / 2


#: one texel of the footprint of each of some lanes: (byte offset, whether it is inside the texture, weight)
Corner = tuple[Array, Array, Array]


def taps(t: Texture, axis: int, x: Array, linear: bool, offset: Array | int) -> list[tuple[Array, Array]]:
    """Pairs (index, weight) of the texels in one dimension, before the address mode is applied; ``x``: the coordinate
    in texels."""
    if x.dtype.kind in "iu":
        return [(x.astype(np.int64) + offset, np.ones(len(x)))]
    at = np.clip(np.nan_to_num(x.astype(np.float64) * (t.extents[axis] if t.normalised else 1)), -(2.0**40), 2.0**40)
    if not linear:
        return [(np.floor(at).astype(np.int64) + offset, np.ones(len(x)))]
    fixed = np.floor((at - 0.5) * 256 + 0.5).astype(np.int64)
    index, weight = (fixed >> 8) + offset, (fixed & 255) / 256
    return [(index, 1 - weight), (index + 1, weight)]


def addressed(t: Texture, axis: int, index: Array, integer: bool) -> tuple[Array, Array]:
    """The pair (indices after the address mode, whether they are inside the texture)."""
    n, mode = t.extents[axis], t.address[axis]
    if integer and t.geometry == "1d":
        mode = "border"  # a fetch from linear memory
    inside = np.ones(len(index), bool)
    if mode == "border":
        inside = (index >= 0) & (index < n)
    elif mode == "wrap":
        index = index % n
    elif mode == "mirror":
        index = index % (2 * n)
        index = np.minimum(index, 2 * n - 1 - index)
    return np.clip(index, 0, n - 1), inside


def corners(
    t: Texture, coordinates: list[Array], layer: Array | None, linear: bool, offsets: Sequence[Array | int] = ()
) -> list[Corner]:
    """The texels of the footprints of some lanes; x varies fastest."""
    start = np.zeros(len(coordinates[0]), np.int64)
    if layer is not None:
        start = np.clip(layer.astype(np.int64), 0, t.layers - 1) * (6 if t.cube else 1)
    if t.cube:
        face, *coordinates = cube_face(*coordinates)
        start = start + face
    start = start * t.layer_pitch
    out = []
    by_axis = [
        taps(t, i, x, linear, offsets[i] if i < len(offsets) else 0)
        for i, x in enumerate(coordinates[: len(t.extents)])
    ]
    for combination in itertools.product(*reversed(by_axis)):
        at, inside, weight = start, np.ones(len(start), bool), np.ones(len(start))
        for i, (index, part) in enumerate(reversed(combination)):
            index, good = addressed(t, i, index, coordinates[i].dtype.kind in "iu")
            at, inside, weight = at + index * t.pitches[i], inside & good, weight * part
        out.append((at, inside, weight))
    return out


def values(t: Texture, memory: Array, base: int, at: Array, inside: Array) -> Array:
    """The texels at byte offsets, as [lane, channel]: f32 if they are read as numbers, else s32 or u32."""
    where = (base + at)[:, None] + np.arange(t.texel)
    raw = memory[where].view(t.dtype)
    dtype: Any = np.float32 if t.floats else np.int32 if t.type[0] == "s" else np.uint32
    out = raw.astype(dtype)
    if t.fractions:
        out = np.maximum(out / np.float32(np.iinfo(t.dtype).max), np.float32(-1))
    border = np.array([*t.border, 0, 0, 0, 0][: t.channels]).astype(dtype)
    picked: Array = np.where(inside[:, None], out, border)
    return picked


def sample(t: Texture, memory: Array, base: int, footprint: list[Corner]) -> Array:
    """The weighted sum of the texels of the footprints, as [lane, channel]."""
    if len(footprint) == 1:
        return values(t, memory, base, footprint[0][0], footprint[0][1])
    total = np.zeros((len(footprint[0][0]), t.channels))
    for at, inside, weight in footprint:
        part = values(t, memory, base, at, inside).astype(np.float64) * weight[:, None]
        total += np.where(weight[:, None] == 0, 0, part)
    return total.astype(np.float32)
