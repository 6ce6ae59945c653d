"""Generated code and how to launch it."""

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
    """The pixels that im2col loads visit, as cuTensorMapEncodeIm2col describes them. Innermost axis (W) first.

    ``lower``: the first position along each axis; ``upper``: the last position, relative to the last pixel of the
    image; ``strides``: pixels between positions.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class TensorMap:
    """The description of a tensor for TMA. A driver encodes it, with an address, into a tensor map of MAP_BYTES bytes.

    ``operand``: names the address (an operand, or W); ``extents`` and ``box``: in elements, innermost axis first;
    ``pitches``: the stride in bytes of every other axis; ``swizzle``: the span of the swizzle pattern in bytes (16:
    none). Loads fill elements outside the extents with zeros; stores skip them. ``pixel_box``: set for an im2col map,
    whose axes are (channels, W, H, …, images) and whose box is (channels, pixels). ``offset``: bytes from the address
    of the operand to the first element. ``element_alignment``: 0 if the first element is at a multiple of 16 bytes;
    else the element size in bytes. The map then begins at the preceding 16-byte boundary, and the innermost extent
    grows by the elements in between.
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


#: one argument of a launch: its PTX type, and an integer, or the name of a value that a caller supplies: an operand,
#: a prepared array or W (the workspace), which are addresses, or a number, alpha or beta.
#: ``("map", TensorMap)``: a tensor map; ``("table", Table)``: a table, which ``with_table_addresses`` replaces by its
#: address on the device
Argument = tuple[str, "int | str | TensorMap | Table | SupportsIndex"]

#: encodes a tensor map at an address: a driver's ``tensor_map``
Encode = Callable[[TensorMap, int], bytes]


def digest(text: str) -> str:
    """Identifies the code of a PTX text, in 16 hexadecimal digits: comments and blank space do not count."""
    lines = (" ".join(line.split()) for line in _COMMENT.sub("", text).splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Source:
    """A PTX module. ``entries``: its kernels; ``target``: as ``sm_90``; ``shared``: the most dynamic shared
    memory of its launches, in bytes; ``registers``: estimated registers per
    thread; ``pdl_entries``: the kernels that may start before the preceding kernel of the stream has ended, and wait
    for it."""

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
    """One launch. ``entry``: a kernel, or ``""`` to set ``arguments[0]`` (an address) for ``grid[0]`` bytes to zero.

    ``grid``, ``block``: (x, y, z); ``shared``: dynamic bytes.
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
        """The step with the addresses of its tables on the device; ``at``: returns the device table of a table."""
        arguments: list[Argument] = [
            ("u64", at(v)) if isinstance(v, Table) else (ptx_type, v) for ptx_type, v in self.arguments
        ]
        return replace(self, arguments=tuple(arguments)) if self.tables else self

    def bound_to(self, arrays: Mapping[str, str]) -> Step:
        """The step that takes arrays of a problem in place of operands of the kernel. ``arrays``: operand -> array,
        where the names differ."""
        if not arrays:
            return self
        return replace(self, arguments=tuple((ptx_type, _renamed(v, arrays)) for ptx_type, v in self.arguments))

    @property
    def format(self) -> str:
        """The ``struct`` format of the parameter buffer up to the first tensor map: native order and alignment, as the
        driver lays it out."""
        return "@" + "".join(
            _FORMAT[ptx_type] for ptx_type, _ in self.arguments[: len(self.arguments) - len(self.maps)]
        )

    @property
    def named_offsets(self) -> list[tuple[int, str]]:
        """The offset in the parameter buffer and the name of each value that a caller supplies, without tensor maps."""
        form = self.format
        return [
            (struct.calcsize(form[: n + 2]) - struct.calcsize(form[n + 1]), value)
            for n, (_, value) in enumerate(self.arguments)
            if isinstance(value, str)
        ]

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """The tensor maps, which end the list of arguments."""
        return tuple(value for _, value in self.arguments if isinstance(value, TensorMap))

    def pack(self, values: Mapping[str, int | float]) -> bytes:
        """The parameter buffer up to the first tensor map, and the gap before that; ``values`` supplies the
        values that arguments name."""
        plain = self.arguments[: len(self.arguments) - len(self.maps)]
        out = struct.pack(self.format, *(values[v] if isinstance(v, str) else v for _, v in plain))
        return out + bytes(-(len(out) + PARAMETERS_AT) % MAP_ALIGNMENT) if self.maps else out

    def pack_maps(self, encode: Encode, values: Mapping[str, int | float]) -> bytes:
        """The rest of the parameter buffer; ``values`` supplies the addresses."""
        return b"".join(encode(*m.at(int(values[m.operand]))) for m in self.maps)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The value of an argument with other names of operands."""
    if isinstance(value, TensorMap):
        return replace(value, operand=names.get(value.operand, value.operand))
    return names.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Launch:
    """The launches of a Source that compute one problem. ``workspace``: bytes at W; ``zeroed``: whether W must be zero
    before the first launch (each launch sets it to zero again)."""

    steps: tuple[Step, ...]
    workspace: int = 0
    zeroed: bool = False

    def bound_to(self, arrays: Mapping[str, str]) -> Launch:
        """The launches whose steps take arrays of a problem in place of operands of the kernel: see ``Step``."""
        return replace(self, steps=tuple(step.bound_to(arrays) for step in self.steps))
