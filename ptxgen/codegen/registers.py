"""Tiles of registers. Templates name registers through them, so that a wrong index fails here and not in ptxas."""

from __future__ import annotations

import math
from typing import Any


class Tile:
    """An array of registers of one PTX type, with a shape: ``Tile("acc", "f32", (4, 8))`` is ``%acc<32>``.

    ``tile[i, j]`` is one register; ``tile[i, :]`` and ``tile.vector(i, j, n=4)`` are operands of consecutive registers,
    in braces if there are several.
    """

    def __init__(self, name: str, ptx_type: str, shape: tuple[int, ...]) -> None:
        self.name, self.ptx_type, self.shape = name, ptx_type, shape
        self.size = math.prod(shape)
        self._names: dict[tuple[int, ...], str] = {}  #: cache: index -> name of a register

    def _flat(self, index: tuple[int, ...]) -> int:
        if len(index) != len(self.shape):
            raise IndexError(f"%{self.name} has {len(self.shape)} dimensions, the index {index} has {len(index)}")
        flat = 0
        for i, extent in zip(index, self.shape, strict=True):
            if not 0 <= i < extent:
                raise IndexError(f"%{self.name}{list(index)} is outside its shape {list(self.shape)}")
            flat = flat * extent + i
        return flat

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> str:
        place: Any = index if isinstance(index, tuple) else (index,)
        if isinstance(place[-1], slice):
            first, end, _ = place[-1].indices(self.shape[-1])
            return self.vector(*place[:-1], first, n=end - first)
        name = self._names.get(place)
        if name is None:
            name = f"%{self.name}{self._flat(place)}"
            self._names[place] = name
        return name

    def vector(self, *index: int, n: int) -> str:
        first = self._flat(index)
        self._flat((*index[:-1], index[-1] + n - 1))
        return braces([f"%{self.name}{first + i}" for i in range(n)])

    @property
    def all(self) -> list[str]:
        return [f"%{self.name}{i}" for i in range(self.size)]

    @property
    def declaration(self) -> str:
        return f".reg .{self.ptx_type} %{self.name}<{self.size}>;"

    @property
    def rows(self) -> list[list[str]]:
        """The registers of a tile of two dimensions, one list for each row."""
        return [[self[i, j] for j in range(self.shape[1])] for i in range(self.shape[0])]

    @property
    def columns(self) -> list[list[str]]:
        return [list(names) for names in zip(*self.rows, strict=True)]


def braces(names: list[str]) -> str:
    """The operand of registers: a single name as it is, several in braces."""
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def width(n: int, ptx_type: str) -> str:
    """The type suffix of an access of ``n`` elements: ``f32``, ``v2.f32``, ``v4.f32``."""
    return ptx_type if n == 1 else f"v{n}.{ptx_type}"


def load_type(type: str) -> str:
    """The type suffix of a load of one element of ``type``."""
    return "b16" if type in ("f16", "bf16") else type
