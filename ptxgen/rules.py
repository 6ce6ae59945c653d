"""What makes a configuration legal for a problem on a device: one row a rule.

The same row filters the space, words the exception and labels the rejection. Legal means that the kernel
assembles, loads and gives right answers; a legal configuration that does not is a bug in this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.config import BOUNDS_NONE, FAMILIES, SPLIT_MEMSET, SPLIT_WORKSPACE, Columns, Config
from ptxgen.device import Device
from ptxgen.errors import ConfigError
from ptxgen.geometry import WARP, ceil_div, geometry, register_cap
from ptxgen.problem import Gemm

REUSED = 8  #: registers by which the estimate may pass the cap: ptxas shares some that it counts apart
GRID_LIMIT = 65535  #: blocks along y and z


@dataclass(frozen=True)
class Rule:
    """``holds(p, c, g, d)``: a bool or a column; ``message``: a format over p, c, g, d that names both numbers."""

    name: str
    holds: Callable[[Gemm, Any, SimpleNamespace, Device], Any]
    message: str


def _power_of_two(x: Any) -> Any:
    return (x > 0) & (x & (x - 1) == 0)


def _loads_divide(g: SimpleNamespace, x: SimpleNamespace) -> Any:
    """Each thread's loads keep one offset from its first, whatever the thread."""
    t = np.maximum(g.threads, 1)
    across = np.maximum(x.across, 1)
    down = np.maximum(t // across, 1)
    many = x.loads > t
    few = np.logical_not(many)
    even = few | (x.loads % t == 0)
    transposed = (t % across == 0) & (few | ((x.tile % down == 0) & (x.loads // x.tile % across == 0)))
    kept = few | ((t % across == 0) & (down % 8 == 0))
    direct = few | (t % across == 0) | (across % t == 0)
    return (x.across > 0) & even & np.where(x.kept, kept, np.where(x.transposed, transposed, direct))


def _copies(p: Gemm, d: Device, x: SimpleNamespace) -> Any:
    """cp.async moves 4, 8 or 16 bytes as they are; transposing, one element at a time."""
    size = x.vec * p.element.bytes
    whole = (size >= 4) & (size <= 16) & (x.bytes == p.element.bytes) & d.has_async_copy
    return (x.copy == 0) | (whole & (np.logical_not(x.transposed) | (x.vec == 1)))


RULES = (
    Rule("axis", lambda p, c, g, d: np.logical_and.reduce([_power_of_two(v) for v in (
        c.ms, c.ns, c.ml, c.nl, c.u, c.ks, c.kl, c.vec_a, c.vec_b, c.vec_c, c.wm)]),
        "ms, ns, ml, nl, u, ks, kl, vec_a, vec_b, vec_c and wm must be powers of two ({c})"),
    Rule("range", lambda p, c, g, d: (c.family >= 0) & (c.family < len(FAMILIES)) & (c.wm <= WARP) & (c.kg >= 1)
         & (c.kg <= GRID_LIMIT) & (c.stages >= 2) & (c.stages <= 8) & (c.resident >= 1) & (c.raster >= 1)
         & (c.split >= 0) & (c.split <= 2) & (c.bounds >= 0) & (c.bounds <= 2) & (c.order >= 0) & (c.order <= 2)
         & np.logical_and.reduce([(v == 0) | (v == 1) for v in (
             c.copy_a, c.copy_b, c.keep_a, c.keep_b, c.stage_c, c.lanes, c.ahead, c.hold, c.stream)]),
         "an axis is out of its range ({c}): stages 2 to 8, kg 1 to 65535, switches 0 or 1"),
    Rule("tile_m", lambda p, c, g, d: c.ml % np.maximum(c.wm * c.ms, 1) == 0,
         "ml={c.ml} must be a multiple of wm·ms={c.wm}·{c.ms}"),
    Rule("tile_n", lambda p, c, g, d: c.nl % np.maximum(WARP // np.maximum(c.wm, 1) * c.ns, 1) == 0,
         "nl={c.nl} must be a multiple of 32/wm·ns=32/{c.wm}·{c.ns}"),
    Rule("warps", lambda p, c, g, d: (g.group >= WARP) & (g.group % WARP == 0),
         "(ml/ms)·(nl/ns)={g.group} threads must be a multiple of a warp, 32"),
    Rule("threads", lambda p, c, g, d: g.threads <= 1024, "{g.threads} threads a block; the limit is 1024"),
    Rule("depth", lambda p, c, g, d: (c.u % np.maximum(c.kl, 1) == 0) & (g.uk >= 2) & (g.uk % np.maximum(c.ks, 1) == 0)
         & (c.request >= 0) & (c.request <= np.maximum(g.uk - 2, 0)),
         "u={c.u} over kl={c.kl} leaves {g.uk} steps; they must be at least 2, a multiple of ks={c.ks},"
         " and at least request={c.request} and two more"),
    Rule("kept_a", lambda p, c, g, d: (c.keep_a == 0) | (g.a.kmajor & (g.bytes >= 4) & (g.uk % g.a.chunk == 0)
         & (c.vec_a <= g.a.chunk)
         & np.isin(c.u // g.a.chunk, (2, 4, 8))),
         "keep_a needs a K-major A of 4 or 8 bytes in shared memory, u={c.u} of 2, 4 or 8 chunks of 16 bytes,"
         " whole ones a group, and vec_a={c.vec_a} within a chunk"),
    Rule("kept_b", lambda p, c, g, d: (c.keep_b == 0) | (g.b.kmajor & (g.bytes >= 4) & (g.uk % g.b.chunk == 0)
         & (c.vec_b <= g.b.chunk)
         & np.isin(c.u // g.b.chunk, (2, 4, 8))),
         "keep_b needs a K-major B of 4 or 8 bytes in shared memory, u={c.u} of 2, 4 or 8 chunks of 16 bytes,"
         " whole ones a group, and vec_b={c.vec_b} within a chunk"),
    Rule("packed", lambda p, c, g, d: (p.compute != "f16") | ((c.ms >= 2) & (c.ns >= 2)),
         "ms={c.ms} and ns={c.ns} must be even for packed f16 arithmetic"),
    Rule("vector_a", lambda p, c, g, d: (c.vec_a <= p.vectors[0]) & (c.vec_a <= np.where(g.a.kmajor, c.u, c.ml)),
         "vec_a={c.vec_a} exceeds what A's alignment, rows and tile allow, {p.vectors[0]}"),
    Rule("vector_b", lambda p, c, g, d: (c.vec_b <= p.vectors[1]) & (c.vec_b <= np.where(g.b.kmajor, c.u, c.nl)),
         "vec_b={c.vec_b} exceeds what B's alignment, rows and tile allow, {p.vectors[1]}"),
    Rule("vector_c", lambda p, c, g, d: c.vec_c <= p.vectors[2],
         "vec_c={c.vec_c} exceeds what C's alignment and rows allow, {p.vectors[2]}"),
    Rule("async_a", lambda p, c, g, d: _copies(p, d, g.a),
         "copy_a=1 (cp.async) needs sm_80, 4 to 16 bytes an access, no conversion, and vec_a=1 where it transposes"),
    Rule("async_b", lambda p, c, g, d: _copies(p, d, g.b),
         "copy_b=1 (cp.async) needs sm_80, 4 to 16 bytes an access, no conversion, and vec_b=1 where it transposes"),
    Rule("loads_a", lambda p, c, g, d: _loads_divide(g, g.a),
         "{g.threads} threads do not divide the {g.a.loads} loads of A's tile"),
    Rule("loads_b", lambda p, c, g, d: _loads_divide(g, g.b),
         "{g.threads} threads do not divide the {g.b.loads} loads of B's tile"),
    Rule("shared", lambda p, c, g, d: g.shared <= d.shared_block,
         "{g.shared} bytes of shared memory; {d.name} has {d.shared_block} a block"),
    Rule("resident", lambda p, c, g, d: ((g.shared + d.shared_reserved) * c.resident <= d.shared_sm)
         & (g.threads * c.resident <= d.threads_sm) & (c.resident <= d.blocks_sm),
         "resident={c.resident} blocks of {g.threads} threads and {g.shared} bytes do not fit one multiprocessor"),
    Rule("registers", lambda p, c, g, d: g.registers <= register_cap(d, g.threads, c.resident) + REUSED,
         "about {g.registers} registers a thread; {g.threads} threads, resident={c.resident}, leave fewer"),
    Rule("hold", lambda p, c, g, d: (c.hold == 0) | (c.copy_a == 0) | (c.copy_b == 0),
         "hold=1 needs an operand that is copied through registers"),
    Rule("bounds", lambda p, c, g, d: (c.bounds != BOUNDS_NONE) | ((p.m % np.maximum(c.ml, 1) == 0)
         & (p.n % np.maximum(c.nl, 1) == 0) & (p.k % np.maximum(c.u, 1) == 0)),
         "bounds=0 needs m, n, k={p.m}, {p.n}, {p.k} to be multiples of ml, nl, u={c.ml}, {c.nl}, {c.u}"),
    Rule("slices", lambda p, c, g, d: c.kg <= np.maximum(ceil_div(p.k, np.maximum(c.u, 1)), 1),
         "kg={c.kg} slices; K={p.k} has fewer blocks of u={c.u}"),
    Rule("split", lambda p, c, g, d: ((c.kg > 1) | (c.split == SPLIT_MEMSET))
         & ((c.kg == 1) | (c.split == SPLIT_WORKSPACE) | ((p.dtype in ("f32", "f64")) & (not p.deterministic))),
         "split={c.split} with kg={c.kg}: kg=1 takes split=0; f16 and deterministic sums take split=2"),
    Rule("grid", lambda p, c, g, d: (c.raster > 1) | (g.tiles_n <= GRID_LIMIT),
         "raster=1 has at most 65535 tiles along N, here {g.tiles_n}; take raster=8"),
)  # fmt: skip


def broken(p: Gemm, c: Config, d: Device) -> Rule | None:
    """The first rule that ``c`` breaks, or None if it is legal."""
    with np.errstate(all="ignore"):
        g = None
        for rule in RULES:
            if g is None and rule.name not in ("axis", "range"):
                g = geometry(p, c)
            if not rule.holds(p, c, g or SimpleNamespace(), d):
                return rule
    return None


def require(p: Gemm, c: Config, d: Device) -> None:
    """ConfigError, naming the rule and its numbers, if ``c`` is not legal for ``p`` on ``d``."""
    rule = broken(p, c, d)
    if rule is not None:
        g = geometry(p, c) if rule.name not in ("axis", "range") else SimpleNamespace()
        raise ConfigError(f"config breaks rule {rule.name!r}: {rule.message.format(p=p, c=c, g=g, d=d)}", rule.name)


def rejections(p: Gemm, c: Columns, d: Device) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each row the index in RULES of the first rule that it breaks, or -1 if it is legal."""
    result = np.full(len(c), -1, np.int64)
    with np.errstate(all="ignore"):
        g = geometry(p, c)
        for i, rule in enumerate(RULES):
            holds = np.broadcast_to(rule.holds(p, c, g, d), len(c))
            result[(result < 0) & ~holds] = i
    return result


def legal(p: Gemm, c: Columns, d: Device) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask of the legal rows."""
    result: np.ndarray[Any, np.dtype[np.bool_]] = rejections(p, c, d) < 0
    return result
