"""Generated PTX and its launches."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, SupportsIndex

from ptxgen.cuda_abi import MAP_ALIGNMENT, PARAMETERS_AT
from ptxgen.lowering.table import Table

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_FORMAT = {"u64": "Q", "u32": "I", "s32": "i", "f32": "f", "f64": "d", "b16": "H"}


@dataclass(frozen=True)
class PixelBox:
    """The pixels that im2col loads visit, as cuTensorMapEncodeIm2col describes them. The innermost axis (W) is first.

    ``lower``: the first position along each axis; ``upper``: the last position, relative to the last pixel of the
    image; ``strides``: pixels from one position to the next.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class TensorMap:
    """The description of a tensor for TMA. A driver encodes it, with an address, into a tensor map of MAP_BYTES bytes.

    ``operand``: the name of the address (an operand, or W); ``extents``, ``box``: in elements, innermost axis first;
    ``pitches``: the strides in bytes of all axes except the innermost; ``swizzle``: the span of the swizzle pattern in
    bytes (16: none). Loads fill elements outside the extents with zeros; stores skip them. ``pixel_box``: set for an
    im2col map, whose axes are channels, W, H, …, images, and whose box is channels by pixels; ``offset``: bytes from
    the address of the operand to the first element; ``element_alignment``: 0 if the first element is at a multiple of
    16 bytes; else the element size in bytes: the map then begins at the preceding 16-byte boundary, and the innermost
    extent grows by the elements in between.
    """

    operand: str
    dtype: str
    extents: tuple[int, ...]
    pitches: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    pixel_box: PixelBox | None = None
    offset: int = 0
    element_alignment: int = 0

    def at(self, address: int) -> tuple[TensorMap, int]:
        """The map for an operand at ``address``, and the address at which the map begins."""
        start = address + self.offset
        if not self.element_alignment:
            return self, start
        more = start % 16
        return replace(
            self, extents=(self.extents[0] + more // self.element_alignment, *self.extents[1:]), element_alignment=0
        ), start - more


@dataclass(frozen=True)
class ArrayPart:
    """The address of a part of an array, as an argument. ``array``: the name of the array; ``offset``: bytes from its
    address."""

    array: str
    offset: int


#: one argument of a launch: its PTX type, and an integer or the name of a value that the caller supplies: the address
#: of an operand, of a prepared array or of W (the workspace), or a scalar such as alpha or beta.
#: ``("u64", ArrayPart)``: the address of a part of an array; ``("map", TensorMap)``: a tensor map;
#: ``("table", Table)``: a table, which ``with_table_addresses`` replaces by its address on the device
Argument = tuple[str, "int | str | ArrayPart | TensorMap | Table | SupportsIndex"]

#: a function that encodes a tensor map for an address, as a driver's ``tensor_map``
Encode = Callable[[TensorMap, int], bytes]


def digest(text: str) -> str:
    """The digest of a PTX text without comments and white space, 16 hexadecimal digits."""
    lines = (" ".join(line.split()) for line in _COMMENT.sub("", text).splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Source:
    """A PTX module. ``entries``: the names of its kernels; ``target``: for example ``sm_90``; ``shared``: the most
    bytes of dynamic shared memory of its launches; ``registers``: an estimate of registers per thread; ``pdl_entries``:
    the kernels that may start before the preceding kernel of the stream has ended, and wait for its end themselves."""

    text: str
    entries: tuple[str, ...]
    target: str
    shared: int = 0
    registers: int = 0
    pdl_entries: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        return digest(self.text)


@dataclass(frozen=True)
class Step:
    """One launch. ``entry``: the name of a kernel; empty: a memset to zero of ``grid[0]`` bytes at the address
    ``arguments[0]``.

    ``grid``, ``block``: (x, y, z); ``shared``: bytes of dynamic shared memory.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    arguments: tuple[Argument, ...] = ()

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(value for _, value in self.arguments if isinstance(value, Table))

    def with_table_addresses(self, at: Callable[[Table], SupportsIndex]) -> Step:
        """The step with device tables in place of its tables. ``at(table)``: the device table of a table."""
        arguments: list[Argument] = [
            ("u64", at(v)) if isinstance(v, Table) else (ptx_type, v) for ptx_type, v in self.arguments
        ]
        return replace(self, arguments=tuple(arguments)) if self.tables else self

    def bound_to(self, arrays: Mapping[str, str]) -> Step:
        """The step whose arguments name arrays of a problem in place of operands of the kernel. ``arrays``: operand ->
        array, where the names differ."""
        if not arrays:
            return self
        return replace(self, arguments=tuple((ptx_type, _renamed(v, arrays)) for ptx_type, v in self.arguments))

    def moved(self, offsets: Mapping[str, int]) -> Step:
        """The step on parts of arrays. ``offsets``: array -> bytes from its address to the part."""
        return replace(self, arguments=tuple((ptx_type, _moved(v, offsets)) for ptx_type, v in self.arguments))

    def stored_in(self, array: str, offsets: Mapping[str, int]) -> Step:
        """The step whose arrays in ``offsets`` are parts of ``array``. ``offsets``: array -> bytes from the address of
        ``array`` to the part."""
        return replace(self, arguments=tuple((ptx_type, _part(v, array, offsets)) for ptx_type, v in self.arguments))

    def with_numbers(self, numbers: Mapping[str, SupportsIndex]) -> Step:
        """The step with ``numbers`` in place of the values of these names that the caller supplies."""
        return replace(
            self,
            arguments=tuple((t, numbers.get(v, v) if isinstance(v, str) else v) for t, v in self.arguments),
        )

    @property
    def format(self) -> str:
        """The ``struct`` format of the parameter buffer up to the first tensor map: native order and alignment, as the
        driver lays it out."""
        return "@" + "".join(
            _FORMAT[ptx_type] for ptx_type, _ in self.arguments[: len(self.arguments) - len(self.maps)]
        )

    @property
    def named_offsets(self) -> list[tuple[int, str, int]]:
        """For each argument that the caller supplies, except tensor maps: its offset in the parameter buffer, its name,
        and the bytes to add to its value."""
        form = self.format
        return [
            (struct.calcsize(form[: n + 2]) - struct.calcsize(form[n + 1]), *named)
            for n, (_, value) in enumerate(self.arguments)
            if (named := named_value(value)) is not None
        ]

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """The tensor maps, which are the last arguments."""
        return tuple(value for _, value in self.arguments if isinstance(value, TensorMap))

    def pack(self, values: Mapping[str, int | float]) -> bytes:
        """The parameter buffer up to the first tensor map, including padding before the map. ``values``: the values
        that arguments name."""
        plain = self.arguments[: len(self.arguments) - len(self.maps)]
        out = struct.pack(self.format, *(_value(v, values) for _, v in plain))
        return out + bytes(-(len(out) + PARAMETERS_AT) % MAP_ALIGNMENT) if self.maps else out

    def pack_maps(self, encode: Encode, values: Mapping[str, int | float]) -> bytes:
        """The encoded tensor maps, which are the rest of the parameter buffer. ``values``: the addresses, by
        operand."""
        return b"".join(encode(*m.at(int(values[m.operand]))) for m in self.maps)


def named_value(value: Any) -> tuple[str, int] | None:
    """The name of the value that the caller supplies for an argument, and the bytes to add to it. None: the argument is
    a number, a table or a tensor map."""
    if isinstance(value, ArrayPart):
        return value.array, value.offset
    return (value, 0) if isinstance(value, str) else None


def _value(value: Any, values: Mapping[str, int | float]) -> Any:
    """The value of an argument. ``values``: those that arguments name."""
    if isinstance(value, ArrayPart):
        return int(values[value.array]) + value.offset
    return values[value] if isinstance(value, str) else value


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The value of an argument, renamed if it is the name of an operand, or a part or a tensor map of an operand, in
    ``names``."""
    if isinstance(value, TensorMap):
        return replace(value, operand=names.get(value.operand, value.operand))
    if isinstance(value, ArrayPart):
        return replace(value, array=names.get(value.array, value.array))
    return names.get(value, value) if isinstance(value, str) else value


def _moved(value: Any, offsets: Mapping[str, int]) -> Any:
    """The value of an argument on a part of its array, if ``offsets`` has the array."""
    if isinstance(value, TensorMap):
        return replace(value, offset=value.offset + offsets.get(value.operand, 0))
    more = offsets.get(value, 0) if isinstance(value, str) else 0
    return ArrayPart(value, more) if more else value


def _part(value: Any, array: str, offsets: Mapping[str, int]) -> Any:
    """The value of an argument, as a part of ``array`` if ``offsets`` has its array."""
    if isinstance(value, TensorMap) and value.operand in offsets:
        return replace(value, operand=array, offset=value.offset + offsets[value.operand])
    name, more = named_value(value) or ("", 0)
    return ArrayPart(array, more + offsets[name]) if name in offsets else value


@dataclass(frozen=True)
class Launch:
    """The steps that compute one problem with the kernels of a Source. ``workspace``: bytes at W; ``zeroed``: True if W
    must be zero before the steps run; the steps leave W zero."""

    steps: tuple[Step, ...]
    workspace: int = 0
    zeroed: bool = False

    def moved(self, offsets: Mapping[str, int]) -> Launch:
        """The launch on parts of arrays: see ``Step.moved``."""
        return replace(self, steps=tuple(step.moved(offsets) for step in self.steps)) if offsets else self

    def bound_to(self, arrays: Mapping[str, str]) -> Launch:
        """The launch whose steps name arrays of a problem in place of operands of the kernel: see ``Step.bound_to``."""
        return replace(self, steps=tuple(step.bound_to(arrays) for step in self.steps))
