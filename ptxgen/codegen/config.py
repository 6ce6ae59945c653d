"""The tuning parameters, one row each, and their text form. A parameter absent from this table does not exist.

The first eight carry the paper's names (Tillet & Cox, SC'17, section 3.2, figure 3).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen import config_migration
from ptxgen.errors import ConfigError

#: the kernel families, in the order of their codes on the ``family`` axis; ``families.registry.register`` adds more
FAMILIES = ["simt", "mma", "wgmma", "skinny", "depthwise"]

#: codes of the ``splitk`` axis
SPLIT_MEMSET, SPLIT_FLAG, SPLIT_WORKSPACE, SPLIT_POLL, SPLIT_SHARE = 0, 1, 2, 3, 4
PDL_WITHIN = 3
#: codes of the ``bounds`` axis
BOUNDS_NONE, BOUNDS_CLAMP, BOUNDS_PREDICATE = 0, 1, 2
#: codes of the ``operand_path`` axes
DIRECT, PACK, REALIGN = 0, 1, 2


def axis(
    default: int,
    values: tuple[int, ...],
    symbol: str,
    meaning: str,
    *,
    refined: bool = False,
    words: Sequence[str] = (),
) -> Any:
    """An axis: its default, the values that the search visits, the paper's symbol, what it means.

    ``refined``: the model cannot see its effect; the tuner times its values on the hardware, around the best few
    configurations. ``words``: the text form of the values 0, 1, …; empty: the axis is a number.
    """
    meta = {"values": values, "symbol": symbol, "meaning": meaning, "refined": refined, "words": words}
    return field(default=default, metadata=meta)


@dataclass(frozen=True, order=True)
class Config:
    """Tunable integers: how a problem is computed."""

    family: int = axis(0, (0,), "", "kernel family", words=FAMILIES)
    ms: int = axis(8, (2, 4, 8, 16), "M_S", "rows of C per thread (mma: per warp)")
    ns: int = axis(8, (2, 4, 8, 16), "N_S", "columns of C per thread (mma: per warp; depthwise: results per thread)")
    ml: int = axis(64, (16, 32, 64, 128, 256), "M_L", "rows of C per block")
    nl: int = axis(64, (16, 32, 64, 128, 256), "N_L", "columns of C per block")
    u: int = axis(8, (8, 16, 32), "U", "depth of K per iteration")
    ks: int = axis(1, (1, 2), "K_S", "independent accumulator sets per thread, added in registers")
    kl: int = axis(1, (1, 2, 4, 8), "K_L", "thread groups of a block that split K, added in shared memory")
    kg: int = axis(1, (1, 2, 4, 8, 16, 32, 64), "K_G", "blocks that split K, added in global memory")
    stages: int = axis(3, (2, 3, 4), "", "pipeline stages in shared memory")
    cp_async_a: int = axis(1, (0, 1), "", "1: cp.async copies A to shared memory; 0: through registers")
    cp_async_b: int = axis(1, (0, 1), "", "1: cp.async copies B to shared memory; 0: through registers")
    kmajor_smem_a: int = axis(0, (0, 1), "", "1: a K-major A stays K-major in shared memory; 0: it is transposed")
    kmajor_smem_b: int = axis(0, (0, 1), "", "1: a K-major B stays K-major in shared memory; 0: it is transposed")
    vec_a: int = axis(1, (1, 2, 4, 8), "", "elements per global load of A")
    vec_b: int = axis(1, (1, 2, 4, 8), "", "elements per global load of B")
    vec_c: int = axis(1, (1, 2, 4, 8), "", "elements per global access to C")
    lanes_m: int = axis(
        4, (1, 2, 4, 8, 16, 32), "", "lanes of a warp along M; 32 / lanes_m along N (skinny: the long side, and K)"
    )
    splitk: int = axis(
        0,
        (0, 1, 2),
        "",
        "how the kg partial sums of C are added. memset_red: red.add to C, which a memset clears first; flag_red:"
        " red.add to C after the first block has stored it; workspace: a second kernel adds them in a fixed order;"
        " last_cta: the last block adds them; distributed: each block adds its part of the tile",
        refined=True,
        words=("memset_red", "flag_red", "workspace", "last_cta", "distributed"),
    )
    epilogue_smem: int = axis(0, (0, 1), "", "1: the epilogue stores C through shared memory", refined=True)
    bounds: int = axis(
        1,
        (0, 1, 2),
        "",
        "none: no bounds checks; clamp: load addresses are clamped once, stores are predicated; predicate: every access"
        " is predicated",
        refined=True,
        words=("none", "clamp", "predicate"),
    )
    lane_interleave: int = axis(0, (0, 1), "", "1: the bits of a lane number alternate between M and N", refined=True)
    mma_order: int = axis(
        0,
        (0, 1, 2),
        "",
        "order of a warp's MMA instructions of one k: rows or columns in serpentine order, or rows in plain order",
        refined=True,
        words=("row_serpentine", "column_serpentine", "row_major"),
    )
    fragment_prefetch: int = axis(
        1, (0, 1), "", "1: fragments are loaded from shared memory one k step ahead", refined=True
    )
    prefetch_k: int = axis(0, (0, 3), "", "k step at which the loads of the next stage are issued", refined=True)
    deferred_sts: int = axis(
        0, (0, 1), "", "1: an iteration stores to shared memory what the previous one loaded", refined=True
    )
    raster_group: int = axis(
        1, (1, 4, 8, 16), "", "tiles along M of one group of the raster order; 1: tile = block index", refined=True
    )
    store_policy: int = axis(
        0,
        (0, 1),
        "",
        "cache policy of stores to C: default, or streaming (st.cs)",
        refined=True,
        words=("default", "streaming"),
    )
    min_ctas_per_sm: int = axis(
        1, (1, 2, 3, 4, 6, 8), "", "blocks per multiprocessor for which registers are limited", refined=True
    )
    transposed_mma: int = axis(0, (0, 1), "", "1: the 64 rows of wgmma lie along N; 0: along M")
    math_warpgroups: int = axis(1, (1, 2), "", "warpgroups of a block that compute; one more warp copies")
    pingpong: int = axis(0, (0, 1), "", "1: the warpgroups compute different tiles in turn; 0: they share each tile")
    cluster_x: int = axis(
        1, (1, 2, 4), "", "blocks of a cluster along the 64-row side, which multicast the other operand"
    )
    cluster_y: int = axis(
        1, (1, 2, 4), "", "blocks of a cluster along the other side, which multicast the 64-row operand"
    )
    cluster_k: int = axis(
        1, (1, 2, 4, 8), "", "blocks of a cluster that split K, added through distributed shared memory"
    )
    dsmem_completion: int = axis(
        0,
        (0, 1),
        "",
        "how a block learns that the partial sums of its cluster have arrived: mbarrier transaction bytes, or a cluster"
        " barrier",
        refined=True,
        words=("tx_bytes", "barrier"),
    )
    persistent: int = axis(0, (0, 1), "", "1: one block per multiprocessor, which loops over tiles")
    epilogue_subtiles: int = axis(1, (1, 2, 4), "", "parts in which the epilogue stores a tile through shared memory")
    epilogue_buffers: int = axis(1, (1, 2, 4), "", "shared-memory buffers of those parts")
    epilogue_aliases_ab: int = axis(0, (0, 1), "", "1: the epilogue reuses the shared memory of A and B")
    l2_evict_first: int = axis(
        0,
        (0, 1, 2, 3),
        "",
        "operands whose loads have the L2 policy evict_first",
        refined=True,
        words=("none", "a", "b", "ab"),
    )
    operand_path_a: int = axis(
        0,
        (0, 1, 2),
        "",
        "direct: A is loaded from where it is; pack: an auxiliary kernel first copies it to 128-byte rows (images: to"
        " rows of channels; where wgmma needs it, transposed); realign: TMA loads unaligned rows, which are shifted in"
        " shared memory",
        words=("direct", "pack", "realign"),
    )
    operand_path_b: int = axis(0, (0, 1, 2), "", "the same for B", words=("direct", "pack", "realign"))
    tma_rows: int = axis(
        0,
        (0, 16, 32),
        "",
        "rows of a 64-row tile that TMA loads where C has no more, 0: all",
    )
    long_n: int = axis(0, (0, 1), "", "long side of C: M (0) or N (1)")
    mma_m16: int = axis(0, (0, 1), "", "1: mma.sync instructions of 16 rows compute; 0: FMA")
    pdl: int = axis(
        0,
        (0, 1, 2, 3),
        "",
        "programmatic dependent launch: blocks may start when the preceding kernel of the stream exits (on_exit), or"
        " when it has started (on_start), or when it exits and belongs to the same call (within_launch)",
        words=("off", "on_exit", "on_start", "within_launch"),
    )

    def __str__(self) -> str:
        """``family=simt ms=8 …``: the family, the paper's axes, and the others that are not at their default."""
        return " ".join(
            f"{a.name}={a.text(value)}"
            for a in AXES
            if (value := getattr(self, a.name)) != a.default or a.symbol or a.name == "family"
        )

    def full_text(self) -> str:
        """Every axis as ``name=value``."""
        return " ".join(f"{a.name}={a.text(getattr(self, a.name))}" for a in AXES)

    def items(self) -> Iterator[tuple[str, int]]:
        return ((a.name, getattr(self, a.name)) for a in AXES)

    def values(self) -> dict[str, int | str]:
        """Every axis with its value: a word, or a number."""
        return {a.name: a.value(getattr(self, a.name)) for a in AXES}


@dataclass(frozen=True)
class Axis:
    """One row of the table above."""

    name: str
    default: int
    values: tuple[int, ...]
    symbol: str
    meaning: str
    refined: bool
    words: Sequence[str]

    def value(self, number: int) -> int | str:
        """The word of a number, or the number if the axis has no word for it."""
        return self.words[number] if 0 <= number < len(self.words) else number

    def text(self, number: int) -> str:
        return str(self.value(number))

    def parse(self, text: str) -> int:
        """The value that ``text`` names. ConfigError: it names none."""
        if text in self.words:
            return self.words.index(text)
        if self.words:
            guess = config_migration.word_of(self.name, text) or _closest(text, self.words)
            hint = f"; did you mean {self.name}={guess}?" if guess else ""
            raise ConfigError(
                f"config has '{self.name}={text}'; {self.name} is one of {', '.join(self.words)}{hint}", "axis"
            )
        if not re.fullmatch("-?[0-9]{1,18}", text):
            raise ConfigError(f"config has '{self.name}={text}'; the value of {self.name} must be an integer", "axis")
        return int(text)


AXES = tuple(Axis(f.name, f.default, **f.metadata) for f in fields(Config))  # type: ignore[arg-type]
AXIS = {a.name: a for a in AXES}


def _closest(word: str, words: Sequence[str]) -> str:
    """The most similar of ``words``, or an empty text if none is similar."""
    return next(iter(difflib.get_close_matches(word, words, 1)), "")


def _unknown_axis(name: str) -> ConfigError:
    guess = config_migration.renamed(name) or _closest(name, tuple(AXIS))
    hint = f"did you mean {guess!r}? " if guess else ""
    return ConfigError(f"config has {name!r}; {hint}the axes are {', '.join(AXIS)}", "axis")


def parse_config(text: str) -> Config:
    """The configuration that ``text`` (``family=mma ms=32 …``) names; axes left out take their defaults.

    ConfigError: an unknown axis or value; the message names the closest known one.
    """
    values: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name not in AXIS:
            raise _unknown_axis(name)
        if name in values:
            raise ConfigError(f"config has {name} twice: {AXIS[name].text(values[name])} and {value}", "axis")
        values[name] = AXIS[name].parse(value)
    return Config(**values)


class Columns:
    """Many configurations at once: an axis is a NumPy column. Reads like a ``Config``."""

    def __init__(self, columns: dict[str, NDArray[np.int64]], length: int | None = None) -> None:
        if unknown := sorted(columns.keys() - AXIS.keys()):
            raise ConfigError(f"columns have {', '.join(unknown)}; the axes are {', '.join(AXIS)}", "axis")
        size = length if length is not None else max((len(v) for v in columns.values()), default=0)
        self.columns = {a.name: columns.get(a.name, np.broadcast_to(np.int64(a.default), size)) for a in AXES}
        self.length = size

    def __len__(self) -> int:
        return self.length

    def __getattr__(self, name: str) -> NDArray[np.int64]:
        try:
            return self.__dict__["columns"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def take(self, rows: NDArray[Any]) -> Columns:
        """The rows that a mask or a list of indices picks."""
        picked = {n: v[rows] for n, v in self.columns.items()}
        return Columns(picked, len(picked["ms"]))

    def row(self, i: int) -> Config:
        return Config(**{n: int(v[i]) for n, v in self.columns.items()})

    def replace(self, **columns: Any) -> Columns:
        """The same rows with some axes replaced by a column or a number."""
        new = {n: np.broadcast_to(np.asarray(v, np.int64), self.length) for n, v in columns.items()}
        return Columns({**self.columns, **new}, self.length)

    @classmethod
    def of(cls, configs: list[Config]) -> Columns:
        return cls({a.name: np.array([getattr(c, a.name) for c in configs], np.int64) for a in AXES}, len(configs))

    @classmethod
    def product(cls, values: dict[str, Any]) -> Columns:
        """Every combination of the given values."""
        grids = np.meshgrid(*(np.asarray(v, np.int64) for v in values.values()), indexing="ij")
        return cls({n: g.ravel() for n, g in zip(values, grids, strict=True)}, grids[0].size)

    @classmethod
    def concat(cls, parts: list[Columns]) -> Columns:
        return cls({a.name: np.concatenate([p.columns[a.name] for p in parts]) for a in AXES}, sum(map(len, parts)))
