"""Axes: the tuning parameters of configurations. ``COMMON`` has the axes that several families use.

The first eight carry the paper's names (Tillet & Cox, SC'17, section 3.2, figure 3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptxgen.arguments import closest
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.errors import ConfigError

#: codes of the ``splitk`` axis
SPLIT_MEMSET, SPLIT_FLAG, SPLIT_WORKSPACE, SPLIT_LAST_CTA, SPLIT_DISTRIBUTED = 0, 1, 2, 3, 4
PDL_WITHIN = 3
#: codes of the ``bounds`` axis
BOUNDS_NONE, BOUNDS_CLAMP, BOUNDS_PREDICATE = 0, 1, 2
#: codes of the ``operand_path`` axes
DIRECT, PACK, REALIGN = 0, 1, 2
#: codes of the ``row_order`` axis
NATURAL, BY_LENGTH = 0, 1


@dataclass(frozen=True)
class Axis:
    """A tuning parameter.

    ``default``: the value unless a configuration sets another; ``meaning``: one line for the reference; ``values``: the
    values that the search visits; ``symbol``: the paper's name; ``refined``: the model cannot predict the effect of the
    axis, so the tuner times its values on the hardware, around the best few configurations; ``words``: the text forms
    of the values 0, 1, …; empty: the text form is a number. ``least``, ``most``: the range of legal values;
    ``power_of_two``: legal values must be powers of two; ``feature``: True if models are trained on the axis by
    default.
    """

    name: str
    default: int
    meaning: str
    values: tuple[int, ...] = ()
    symbol: str = ""
    refined: bool = False
    words: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    power_of_two: bool = False
    feature: bool = True

    @property
    def counts(self) -> bool:
        """True if the values of the axis are positive numbers, so that models use their logarithm as a feature."""
        return self.default > 0 and self.least != 0 and not self.words

    def is_power_of_two(self, number: Any) -> Any:
        """True if ``number``, or each number of a column, is a power of two, or need not be one."""
        return (number > 0) & (number & (number - 1) == 0) if self.power_of_two else True

    def in_range(self, number: Any) -> Any:
        """True if ``number``, or each number of a column, is from ``least`` to ``most``."""
        least, most = (0, len(self.words) - 1) if self.words else (self.least, self.most)
        above = True if least is None else number >= least
        return above if most is None else above & (number <= most)

    @property
    def domain(self) -> str:
        """The text that describes the legal values, for messages."""
        if self.words:
            return ", ".join(self.words)
        number = "a power of two" if self.power_of_two else "an integer"
        if self.least is None:
            return number
        return f"{number} from {self.least}" + ("" if self.most is None else f" to {self.most}")

    def value(self, number: int) -> int | str:
        """The word of a number, or the number if the axis has no word for it."""
        return self.words[number] if 0 <= number < len(self.words) else number

    def text(self, number: int) -> str:
        return str(self.value(number))

    def parse(self, text: str) -> int:
        """The number that ``text`` stands for. ConfigError: ``text`` is no value of the axis."""
        if text in self.words:
            return self.words.index(text)
        if self.words:
            guess = closest(text, self.words)
            hint = f"; did you mean {self.name}={guess}?" if guess else ""
            raise ConfigError(
                f"config has '{self.name}={text}'; {self.name} is one of {', '.join(self.words)}{hint}", "axis"
            )
        if not re.fullmatch("-?[0-9]{1,18}", text):
            raise ConfigError(f"config has '{self.name}={text}'; the value of {self.name} must be an integer", "axis")
        return int(text)


def switch(
    name: str,
    meaning: str,
    values: tuple[int, ...] = (0, 1),
    default: int = 0,
    refined: bool = False,
    feature: bool = True,
) -> Axis:
    """An axis that is 0 or 1."""
    return Axis(name, default, meaning, values, refined=refined, least=0, most=1, feature=feature)


_SPLITK = (
    "how the kg partial sums of C are added. memset_red: red.add to C, which a memset clears first; flag_red: red.add"
    " to C after the first block has stored it; workspace: a second kernel adds them in a fixed order; last_cta: the"
    " last block adds them; distributed: each block adds its part of the tile"
)
_STREAM_K = (
    "1: blocks have equal shares of the K iterations of all tiles of a list, or of the last tiles of one product"
    " (stream-K); 0: they compute whole tiles or slices"
)
_L2_PREFETCH = "1: blocks prefetch what a tile of a group reads of A and B to L2 before they load its first stage"
_LISTED_TILES = (
    "tiles of a join, whose rows and columns are in the order of their keys. 1: a kernel lists those that have pairs of"
    " equal keys, and blocks loop over the list; 0: a block for each tile ends if its tile has none"
)
_BOUNDS = (
    "none: no bounds checks; clamp: load addresses are clamped once, stores are predicated; predicate: every access is"
    " predicated"
)
_ORDER = "order of a warp's MMA instructions of one k: rows or columns in serpentine order, or rows in plain order"
_PATH = (
    "direct: {} is loaded from where it is; pack: an auxiliary kernel first copies it to 128-byte rows (images: to rows"
    " of channels; where the MMA instruction needs it, transposed); realign: TMA loads unaligned rows, which are"
    " shifted in shared memory"
)
_PATHS = ("direct", "pack", "realign")
_ROW_ORDER = (
    "order of the rows, or row windows, of a sparse matrix: as stored, or by length with parts of at most longest_part,"
    " from a prepared work list"
)
_LONGEST_PART = "most nonzeros of a part of a row; 0: rows are not split"
_PDL = (
    "programmatic dependent launch: blocks may start when those of the preceding kernel of the stream have issued their"
    " last loads (on_exit), when they have started (on_start), or as on_exit after a kernel of the same call"
    " (within_launch)"
)

#: the axes, by name, that code outside a family may read; a configuration whose family lacks such an axis gives its
#: default
COMMON = {
    a.name: a
    for a in (
        Axis("ms", 8, "rows of C per thread", symbol="M_S", power_of_two=True),
        Axis("ns", 8, "columns of C per thread", symbol="N_S", power_of_two=True),
        Axis("ml", 64, "rows of C per block", symbol="M_L", power_of_two=True),
        Axis("nl", 64, "columns of C per block", symbol="N_L", power_of_two=True),
        Axis("u", 8, "depth of K per iteration", symbol="U", power_of_two=True),
        Axis("ks", 1, "independent accumulator sets per thread, added in registers", symbol="K_S", power_of_two=True),
        Axis("kl", 1, "thread groups of a block that split K, added in shared memory", symbol="K_L", power_of_two=True),
        Axis("kg", 1, "blocks that split K, added in global memory", symbol="K_G", least=1, most=GRID_LIMIT),
        Axis("stages", 3, "pipeline stages in shared memory", least=2, most=8),
        switch("cp_async_a", "1: cp.async copies A to shared memory; 0: through registers", default=1),
        switch("cp_async_b", "1: cp.async copies B to shared memory; 0: through registers", default=1),
        Axis("vec_a", 1, "elements per global load of A", power_of_two=True),
        Axis("vec_b", 1, "elements per global load of B", power_of_two=True),
        Axis("vec_c", 1, "elements per global access to C", power_of_two=True),
        Axis(
            "splitk",
            0,
            _SPLITK,
            refined=True,
            words=("memset_red", "flag_red", "workspace", "last_cta", "distributed"),
        ),
        switch("epilogue_smem", "1: the epilogue stores C through shared memory", refined=True),
        Axis("bounds", 1, _BOUNDS, refined=True, words=("none", "clamp", "predicate")),
        Axis("mma_order", 0, _ORDER, refined=True, words=("row_serpentine", "column_serpentine", "row_major")),
        switch(
            "fragment_prefetch", "1: fragments are loaded from shared memory one k step ahead", default=1, refined=True
        ),
        Axis("prefetch_k", 0, "k step at which the loads of the next stage are issued", refined=True),
        switch("deferred_sts", "1: an iteration stores to shared memory what the previous one loaded", refined=True),
        Axis(
            "raster_group",
            1,
            "tiles along M of one group of the raster order; 1: tile = block index",
            refined=True,
            least=1,
        ),
        Axis(
            "store_policy",
            0,
            "cache policy of stores to C: default, or streaming (st.cs)",
            refined=True,
            words=("default", "streaming"),
        ),
        Axis("min_ctas_per_sm", 1, "blocks per multiprocessor for which registers are limited", refined=True, least=1),
        switch("stream_k", _STREAM_K),
        switch("l2_prefetch", _L2_PREFETCH, refined=True, feature=False),
        switch("listed_tiles", _LISTED_TILES, refined=True, feature=False),
        Axis("lane_vectors", 1, "vectors of a row of B per lane", feature=False),
        Axis("row_order", NATURAL, _ROW_ORDER, words=("natural", "length"), feature=False),
        Axis("longest_part", 0, _LONGEST_PART, feature=False),
        Axis("operand_path_a", 0, _PATH.format("A"), words=_PATHS, feature=False),
        Axis("operand_path_b", 0, "the same for B", words=_PATHS, feature=False),
        Axis("pdl", 0, _PDL, words=("off", "on_exit", "on_start", "within_launch"), feature=False),
    )
}


def common(name: str, values: tuple[int, ...] = (), meaning: str = "", **domain: Any) -> Axis:
    """The common axis ``name`` for one family. ``values``: the values that the search visits; ``meaning``: a more exact
    meaning; ``domain``: other values of ``least``, ``most`` and ``power_of_two``."""
    axis = COMMON[name]
    return replace(axis, values=values, meaning=meaning or axis.meaning, **domain)


def searched(axes: Sequence[Axis]) -> dict[str, tuple[int, ...]]:
    """For each axis that the search visits: its name and the visited values."""
    return {a.name: a.values for a in axes if a.values}
