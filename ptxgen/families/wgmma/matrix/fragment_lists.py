"""Lists of values of selected results in fragments. For each result of a thread, a bit says if it is selected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.selected_lists import SelectedLists
from ptxgen.codegen.registers import Tile
from ptxgen.families.wgmma.geometry import COLUMNS
from ptxgen.families.wgmma.matrix.fragment_groups import halved
from ptxgen.families.wgmma.matrix.fragment_values import FRAGMENT

WORD = 32  #: bits of a register


@dataclass(frozen=True)
class FragmentLists(SelectedLists):
    """The selection of results in fragments. The bits of a group of 8 columns are adjacent within a word: result ``q``
    of fragment ``m`` along X has bit 4 m + q. ``ptx_type``: the type of sums; ``mi``: fragments along X; ``groups``:
    groups of columns."""

    ptx_type: str = "f32"
    mi: int = 1
    groups: int = 1

    @cached_property
    def each(self) -> int:
        """The number of bits of a group, a power of two."""
        return 1 << (FRAGMENT * self.mi - 1).bit_length()

    @property
    def words(self) -> int:
        return -(-self.groups * self.each // WORD)

    @cached_property
    def bits(self) -> Tile:
        return Tile("selected_bits", "b32", (self.words,))

    @cached_property
    def picked(self) -> Tile:
        """The registers of the sums of one group: [fragment along X][row][column]."""
        return Tile("picked", self.ptx_type, (self.mi, FRAGMENT))

    @property
    def columns(self) -> int:
        """The number of columns of a tile along Y."""
        return COLUMNS * self.groups

    @property
    def group_bits(self) -> list[str]:
        """For each group of columns, a literal of the bit that stands for it."""
        return [hex(1 << j) for j in range(self.groups)]

    @property
    def halves(self) -> dict[tuple[int, int], int]:
        """The middle of each range of groups of columns that a search halves: (first group, end) -> middle."""
        return halved(0, self.groups)

    @property
    def places(self) -> list[tuple[str, int]]:
        """For each group: the register of its bits, and the first bit."""
        return [self.place(j) for j in range(self.groups)]

    @property
    def result_bits(self) -> dict[tuple[int, int], list[tuple[str, str]]]:
        """The register and the bit of each result, for each (fragment along X, group)."""
        return {
            (m, j): [self.bit(m, j, q) for q in range(FRAGMENT)] for m in range(self.mi) for j in range(self.groups)
        }

    @property
    def masks_of_rows(self) -> list[str]:
        """For each row, the mask that clears its bits in a word."""
        return [self.but_row(n) for n in range(2 * self.mi)]

    @property
    def masks_of_columns(self) -> list[list[tuple[str, str]]]:
        """For both columns of each group: the register, and the mask that clears the column's bits."""
        return [[self.but_column(j, e) for e in range(2)] for j in range(self.groups)]

    @property
    def bits_of_groups(self) -> list[tuple[int, str]]:
        """For each group: the number of its register, and the mask of its bits."""
        return [(self.bits.all.index(register), bits) for register, bits in map(self.group, range(self.groups))]

    @property
    def picked_sums(self) -> list[list[str]]:
        """For each fragment along X, the registers of the sums of one group."""
        return [[self.picked[m, q] for q in range(FRAGMENT)] for m in range(self.mi)]

    def place(self, j: int) -> tuple[str, int]:
        """The register of the bits of group ``j``, and the first bit."""
        word, group = divmod(j, WORD // self.each)
        return self.bits[word], group * self.each

    def bit(self, m: int, j: int, q: int) -> tuple[str, str]:
        """The register and the bit of a result."""
        register, first = self.place(j)
        return register, hex(1 << first + FRAGMENT * m + q)

    def group(self, j: int) -> tuple[str, str]:
        """The register of the bits of group ``j``, and their mask."""
        register, first = self.place(j)
        return register, hex((1 << self.each) - 1 << first)

    def but_row(self, n: int) -> str:
        """The mask that clears the bits of row ``n`` in a word."""
        m, h = divmod(n, 2)
        return self._but(range(WORD // self.each), [FRAGMENT * m + 2 * h + e for e in range(2)])

    def but_column(self, j: int, e: int) -> tuple[str, str]:
        """The register of group ``j``, and the mask that clears the bits of its column ``e``."""
        register, first = self.place(j)
        return register, self._but(
            [first // self.each], [FRAGMENT * m + 2 * h + e for m in range(self.mi) for h in (0, 1)]
        )

    def _but(self, groups: Iterable[int], results: Sequence[int]) -> str:
        cleared = sum(1 << group * self.each + bit for group in groups for bit in results)
        return hex((1 << WORD) - 1 ^ cleared)
