"""Lists of the values of selected results in fragments: a bit of each result of a thread tells if it is selected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.selected_lists import SelectedLists
from ptxgen.codegen.registers import Tile
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT

WORD = 32  #: bits of a register


@dataclass(frozen=True)
class FragmentLists(SelectedLists):
    """The bits of a group of 8 columns are adjacent, in a part of a word: of fragment ``m`` along X, result ``q``, bit
    4 m + q. ``kind``: the type of sums; ``mi``: fragments along X; ``groups``: of columns."""

    kind: str = "f32"
    mi: int = 1
    groups: int = 1

    @cached_property
    def each(self) -> int:
        """Bits of a group: a power of two."""
        return 1 << (FRAGMENT * self.mi - 1).bit_length()

    @property
    def words(self) -> int:
        return -(-self.groups * self.each // WORD)

    @cached_property
    def bits(self) -> Tile:
        return Tile("selected_bits", "b32", (self.words,))

    @cached_property
    def picked(self) -> Tile:
        """The sums of one group: [fragment along X][row][column]."""
        return Tile("picked", self.kind, (self.mi, FRAGMENT))

    def place(self, j: int) -> tuple[str, int]:
        """(register, first bit) of group ``j``."""
        word, group = divmod(j, WORD // self.each)
        return self.bits[word], group * self.each

    def bit(self, m: int, j: int, q: int) -> tuple[str, str]:
        """(register, bit) of a result."""
        register, first = self.place(j)
        return register, hex(1 << first + FRAGMENT * m + q)

    def group(self, j: int) -> tuple[str, str]:
        """(register, bits) of group ``j``."""
        register, first = self.place(j)
        return register, hex((1 << self.each) - 1 << first)

    def but_row(self, n: int) -> str:
        """The bits of a word without those of row ``n``."""
        m, h = divmod(n, 2)
        return self._but(range(WORD // self.each), [FRAGMENT * m + 2 * h + e for e in range(2)])

    def but_column(self, j: int, e: int) -> tuple[str, str]:
        """(register, the bits of the word without those of column ``e`` of group ``j``)."""
        register, first = self.place(j)
        return register, self._but(
            [first // self.each], [FRAGMENT * m + 2 * h + e for m in range(self.mi) for h in (0, 1)]
        )

    def _but(self, groups: Iterable[int], results: Sequence[int]) -> str:
        cleared = sum(1 << group * self.each + bit for group in groups for bit in results)
        return hex((1 << WORD) - 1 ^ cleared)
