"""The tuning parameters: one row an axis. A parameter absent from this table does not exist.

The first eight carry the paper's names (Tillet & Cox, SC'17, section 3.2, figure 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import ConfigError

#: the kernel families, in the order of their codes on the ``family`` axis
FAMILIES = ("simt", "mma", "wgmma", "skinny", "depthwise")

#: codes of the ``split`` axis
SPLIT_MEMSET, SPLIT_FLAG, SPLIT_WORKSPACE, SPLIT_POLL, SPLIT_SHARE = 0, 1, 2, 3, 4
PDL_WITHIN = 3
#: codes of the ``bounds`` axis
BOUNDS_NONE, BOUNDS_CLAMP, BOUNDS_PREDICATE = 0, 1, 2


def axis(default: int, values: tuple[int, ...], symbol: str, meaning: str, *, refined: bool = False) -> Any:
    """An axis: its default, the values that the search visits, the paper's symbol, what it means.

    ``refined``: a regressor cannot see its effect, so it is tried on the hardware, around the best few.
    """
    meta = {"values": values, "symbol": symbol, "meaning": meaning, "refined": refined}
    return field(default=default, metadata=meta)


@dataclass(frozen=True, order=True)
class Config:
    """Tunable integers: how a problem is computed."""

    family: int = axis(0, (0,), "", "kernel family: " + ", ".join(f"{i} {f}" for i, f in enumerate(FAMILIES)))
    ms: int = axis(8, (2, 4, 8, 16), "M_S", "rows of C a thread")
    ns: int = axis(8, (2, 4, 8, 16), "N_S", "columns of C a thread, or results of a strip (slide)")
    ml: int = axis(64, (16, 32, 64, 128, 256), "M_L", "rows of C a block")
    nl: int = axis(64, (16, 32, 64, 128, 256), "N_L", "columns of C a block")
    u: int = axis(8, (8, 16, 32), "U", "depth of K prefetched an iteration")
    ks: int = axis(1, (1, 2), "K_S", "sets of accumulators a thread, added in registers")
    kl: int = axis(1, (1, 2, 4, 8), "K_L", "groups of a block's threads that share K, added in shared memory")
    kg: int = axis(1, (1, 2, 4, 8, 16, 32, 64), "K_G", "slices of K over the grid, added in global memory")
    stages: int = axis(3, (2, 3, 4), "", "iterations of K in flight in shared memory")
    cp_async_a: int = axis(1, (0, 1), "", "A reaches shared memory through registers (0) or by cp.async (1)")
    cp_async_b: int = axis(1, (0, 1), "", "B, likewise")
    kmajor_smem_a: int = axis(
        0, (0, 1), "", "1: a K-major A stays K-major in shared memory; 0: transposed on the way in"
    )
    kmajor_smem_b: int = axis(0, (0, 1), "", "B, likewise")
    vec_a: int = axis(1, (1, 2, 4, 8), "", "elements of one global load of A")
    vec_b: int = axis(1, (1, 2, 4, 8), "", "elements of one global load of B")
    vec_c: int = axis(1, (1, 2, 4, 8), "", "elements of one global access of C")
    lanes_m: int = axis(4, (1, 2, 4, 8, 16, 32), "", "threads of a warp along M; 32 / wm along N, or along K (stream)")
    splitk: int = axis(
        0,
        (0, 1, 2),
        "",
        "slices meet by red on a C cleared by a memset (0) or by the first slice (1),"
        " or in a workspace that a second pass sums in a fixed order (2), the last slice's block (3),"
        " or the blocks of all slices, each a share of the tile (4)",
        refined=True,
    )
    epilogue_smem: int = axis(0, (0, 1), "", "1: the tile of C leaves through shared memory", refined=True)
    bounds: int = axis(
        1,
        (0, 1, 2),
        "",
        "0: no checks; 1: addresses clamped once, stores predicated; 2: every access predicated",
        refined=True,
    )
    lane_interleave: int = axis(0, (0, 1), "", "1: the bits of a lane number alternate between M and N", refined=True)
    mma_order: int = axis(
        0, (0, 1, 2), "", "products of one k: 0 serpentine by rows, 1 by columns, 2 plain rows", refined=True
    )
    fragment_prefetch: int = axis(1, (0, 1), "", "1: fragments are read from shared memory one k ahead", refined=True)
    prefetch_k: int = axis(0, (0, 3), "", "k step at which the next stage is requested", refined=True)
    deferred_sts: int = axis(
        0, (0, 1), "", "1: a pass stores to shared memory what the pass before it loaded", refined=True
    )
    raster_group: int = axis(1, (1, 4, 8, 16), "", "tiles of M walked together; 1: tile = block index", refined=True)
    store_policy: int = axis(0, (0, 1), "", "1: C is written past the caches' keeping (st.cs)", refined=True)
    min_ctas_per_sm: int = axis(
        1, (1, 2, 3, 4, 6, 8), "", "blocks that one multiprocessor has registers for", refined=True
    )
    transposed_mma: int = axis(
        0, (0, 1), "", "side of C that wgmma's 64 rows lie along, or that is long (stream): M (0), N (1)"
    )
    math_warpgroups: int = axis(1, (1, 2), "", "warpgroups of a block that multiply; one more warp copies")
    pingpong: int = axis(0, (0, 1), "", "those warpgroups share a tile (0) or take tiles in turn (1)")
    cluster_x: int = axis(1, (1, 2, 4), "", "blocks along the 64-row side that load the other operand for each other")
    cluster_y: int = axis(
        1, (1, 2, 4), "", "blocks of a cluster along the other side that load the 64-row operand for each other"
    )
    cluster_k: int = axis(
        1, (1, 2, 4, 8), "", "blocks of a cluster that split K, added through each other's shared memory"
    )
    dsmem_completion: int = axis(
        0, (0, 1), "", "their sums are known to have come by counted bytes (0) or a barrier (1)", refined=True
    )
    persistent: int = axis(0, (0, 1), "", "1: as many blocks as multiprocessors, each walks over tiles")
    epilogue_subtiles: int = axis(1, (1, 2, 4), "", "parts in which the tile of C leaves through shared memory")
    epilogue_buffers: int = axis(1, (1, 2, 4), "", "of those parts, how many have memory of their own")
    epilogue_aliases_ab: int = axis(0, (0, 1), "", "1: C leaves through the memory that the operands came through")
    l2_evict_first: int = axis(
        0, (0, 1, 2, 3), "", "operands that the L2 cache may forget at once: 1 A, 2 B, 3 both", refined=True
    )
    operand_path: int = axis(
        0,
        (0, 1, 2, 3, 4, 8, 12),
        "",
        "operands that are copied first, to rows of whole 128 bytes, images to rows of channels, and where wgmma needs"
        " that with K contiguous: 1 A, 2 B, 3 both; or that come as they lie, and are shifted in shared memory:"
        " 4 A, 8 B, 12 both",
    )
    tma_rows: int = axis(
        0,
        (0, 16, 32),
        "",
        "rows that are loaded of a tile of 64, where C has no more, 0: all (wgmma); 16: matrix instructions of so many"
        " rows multiply, 0: single products (stream)",
    )
    pdl: int = axis(
        0,
        (0, 1, 2, 3),
        "",
        "blocks may begin, and wait, while the kernel before in the stream ends (1), or runs (2), or, where it belongs"
        " to the same launch, ends (3)",
    )

    def __str__(self) -> str:
        """``ms=8 ns=8 …``: the paper's axes, and the others where they differ from their defaults."""
        shown = [a.name for a in AXES if a.symbol or getattr(self, a.name) != a.default]
        return " ".join(f"{name}={getattr(self, name)}" for name in shown)

    def items(self) -> Iterator[tuple[str, int]]:
        return ((a.name, getattr(self, a.name)) for a in AXES)


@dataclass(frozen=True)
class Axis:
    """One row of the table above."""

    name: str
    default: int
    values: tuple[int, ...]
    symbol: str
    meaning: str
    refined: bool


AXES = tuple(Axis(f.name, f.default, **f.metadata) for f in fields(Config))  # type: ignore[arg-type]
AXIS = {a.name: a for a in AXES}


def parse_config(text: str) -> Config:
    """The configuration that ``text`` (``ms=8 ns=4 …``) names; axes left out take their defaults.

    ConfigError: an unknown axis, or a value that is no integer.
    """
    values: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name not in AXIS:
            raise ConfigError(f"config has {name!r}; the axes are {', '.join(AXIS)}", "axis")
        if not re.fullmatch("-?[0-9]{1,18}", value):
            raise ConfigError(f"config has {word!r}; the value of {name} must be an integer", "axis")
        if name in values:
            raise ConfigError(f"config has {name} twice: {values[name]} and {value}", "axis")
        values[name] = int(value)
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
