"""What makes a configuration legal for a problem on a device: one row a rule.

The same row filters the space, words the exception and labels the rejection. Legal means that the kernel
assembles, loads and gives right answers; a legal configuration that does not is a bug in this table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_
from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.axes import BOUNDS_NONE, SPLIT_MEMSET, SPLIT_WORKSPACE, Axis
from ptxgen.codegen.config import Columns, Config
from ptxgen.codegen.rule import Rule
from ptxgen.codegen.vectorized import ceil_div, register_cap
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.errors import ConfigError
from ptxgen.families import registry
from ptxgen.families.geometry import geometry
from ptxgen.families.registry import RULES as RULES
from ptxgen.lowering.implicit_gemm import PADDING
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm
from ptxgen.problem.device import Device

REUSED = 5  #: registers by which the estimate may pass the cap: ptxas shares some that it counts apart
NARROWED = 12  #: rows to one that is left from where those that broke a rule are dropped before the next


def reducible(p: KernelGemm) -> bool:
    """Whether slices of K may be added to C in whatever order they finish; integer sums do not care for it. What an
    epilogue does to a sum it cannot do to a part of it."""
    return p.out == "s32" or (p.out in ("f32", "f64") and not p.deterministic and not p.epilogue)


def _every_axis(c: Any, holds: Callable[[Axis, Any], Any]) -> Any:
    """Whether every axis of the family holds. An axis at its default in all rows does."""
    axes = registry.of(c).axes
    if isinstance(c, Columns):
        axes = tuple(a for a in axes if a.name in c.columns)
    return reduce(and_, (holds(a, getattr(c, a.name)) for a in axes), True)


#: rules that need no geometry, and without which there is none
FIRST = (
    Rule(
        "axis",
        lambda p, c, g, d: _every_axis(c, Axis.is_power_of_two),
        "{c.outside} ({c})",
    ),
    Rule(
        "range",
        lambda p, c, g, d: _every_axis(c, Axis.in_range),
        "{c.outside} ({c})",
    ),
    Rule(
        "types_c",
        lambda p, c, g, d: not p.output.fp8 or d.sm >= 89,
        "results in {p.out} need sm_89; {d.name} is sm_{d.sm}",
    ),
)

LAST = (
    Rule(
        "tables",
        lambda p, c, g, d: (p.addr_a == p.addr_b == p.addr_c == STRIDED) | registry.of(c).gathers(p),
        "operands are found as {p.addr_a}, {p.addr_b}, {p.addr_c}: simt and mma look into tables, wgmma does not, but"
        " TMA walks over some images",
    ),
    Rule(
        "tables_end",
        lambda p, c, g, d: (
            (not registry.of(c).offset_tables) | (p.addr_a == p.addr_b == STRIDED) | ((c.stages + 2) * c.u <= PADDING)
        ),
        "stages={c.stages} of u={c.u} look up more than 1024 offsets behind a table's last",
    ),
    Rule(
        "pdl",
        lambda p, c, g, d: (c.pdl == 0) | ((c.pdl > 0) & (c.pdl <= 3) & (d.sm >= 90)),
        "pdl={c.pdl}: 0, or 1 to 3 where kernels can wait for each other, from sm_90 on; {d.name} is sm_{d.sm}",
    ),
    Rule("threads", lambda p, c, g, d: g.threads <= 1024, "{g.threads} threads a block; the limit is 1024"),
    Rule(
        "vector_c",
        lambda p, c, g, d: (c.vec_c <= p.vectors[2]) & (c.vec_c <= c.nl),
        "vec_c={c.vec_c} exceeds what C's alignment and rows allow, {p.vectors[2]}, or a row of the tile, {c.nl}",
    ),
    Rule(
        "shared",
        lambda p, c, g, d: g.shared <= d.shared_block,
        "{g.shared} bytes of shared memory; {d.name} has {d.shared_block} a block",
    ),
    Rule(
        "min_ctas_per_sm",
        lambda p, c, g, d: (
            ((g.shared + d.shared_reserved) * c.min_ctas_per_sm <= d.shared_sm)
            & (g.threads * c.min_ctas_per_sm <= d.threads_sm)
            & (c.min_ctas_per_sm <= d.blocks_sm)
        ),
        "min_ctas_per_sm={c.min_ctas_per_sm} blocks of {g.threads} threads and {g.shared} bytes do not fit one multiprocessor",
    ),
    Rule(
        "registers",
        lambda p, c, g, d: g.registers <= register_cap(d, g.threads, c.min_ctas_per_sm) + REUSED,
        "about {g.registers} registers a thread; {d.name} has {d.registers_sm} for min_ctas_per_sm={c.min_ctas_per_sm} blocks of"
        " {g.threads} threads, and {d.registers_thread} for one",
    ),
    Rule(
        "registers_left",
        lambda p, c, g, d: (
            g.registers + getattr(g, "reg_margin", 0) <= register_cap(d, g.threads, c.min_ctas_per_sm) + REUSED
        ),
        "about {g.registers} registers a thread, and {g.reg_margin} in reserve; {d.name} has {d.registers_sm} for"
        " min_ctas_per_sm={c.min_ctas_per_sm} blocks of {g.threads} threads, and {d.registers_thread} for one",
    ),
    Rule(
        "bounds",
        lambda p, c, g, d: (
            (c.bounds != BOUNDS_NONE)
            | (
                (p.extent_gcd[0] % np.maximum(c.ml, 1) == 0)
                & (p.extent_gcd[1] % np.maximum(c.nl, 1) == 0)
                & (p.extent_gcd[2] % np.maximum(c.u, 1) == 0)
            )
        ),
        "bounds=none needs m, n, k={p.extent_gcd[0]}, {p.extent_gcd[1]}, {p.extent_gcd[2]} to be multiples of ml, nl, u={c.ml}, {c.nl},"
        " {c.u}",
    ),
    Rule(
        "slices",
        lambda p, c, g, d: c.kg <= np.maximum(ceil_div(p.k, np.maximum(c.u, 1)), 1),
        "kg={c.kg} slices; K={p.k} has fewer blocks of u={c.u}",
    ),
    Rule(
        "splitk",
        lambda p, c, g, d: (
            ((c.kg > 1) | (c.splitk == SPLIT_MEMSET))
            & (c.splitk <= registry.of(c).splitk)
            & ((c.kg == 1) | (c.splitk >= SPLIT_WORKSPACE) | reducible(p))
        ),
        "splitk={c.splitk} with kg={c.kg}: kg=1 takes splitk=memset_red; 16-bit C, deterministic sums and epilogues take splitk=workspace",
    ),
    Rule(
        "grid",
        lambda p, c, g, d: np.where(
            c.raster_group > 1,
            (g.tiles_m * g.tiles_n < 1 << 31) & (g.tiles_n * c.raster_group < 1 << 31),
            (g.tiles_n <= GRID_LIMIT) & (g.tiles_m < 1 << 31),
        ),
        "raster_group={c.raster_group} with {g.tiles_m} tiles along M and {g.tiles_n} along N: raster_group=1 takes at most 65535 along"
        " N (then take raster_group=8), more at most 2147483647 in all, and along N times raster",
    ),
)

RULES[:0] = (*FIRST, *LAST)


def rules_of(family: str) -> list[tuple[int, Rule]]:
    """The rules of a family and their indices in RULES, in the order of evaluation: its own stand between those of all
    families that need no geometry and the others."""
    common, first = len(FIRST) + len(LAST), len(FIRST)
    rows = list(enumerate(RULES))
    own = [(i, rule) for i, rule in rows[common:] if rule.family == family]
    return [*rows[:first], *own, *rows[first:common]]


def first_violation(p: KernelGemm, c: Config, d: Device) -> Rule | None:
    """The first rule that ``c`` breaks, or None if it is legal."""
    with np.errstate(all="ignore"):
        g = SimpleNamespace()
        for _, rule in rules_of(c.family):
            if rule not in FIRST and not vars(g):
                g = geometry(p, c)
            if not rule.holds(p, c, g, d):
                return rule
    return None


class _Worded:
    """A configuration as messages show it: attributes are words where the axis has words."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._axes = {a.name: a for a in config.axes}

    def __getattr__(self, name: str) -> int | str:
        number = getattr(self._config, name)
        return self._axes[name].value(number) if name in self._axes else number

    @property
    def outside(self) -> str:
        """The axes with illegal values."""
        pairs = ((a, getattr(self._config, a.name)) for a in self._config.axes)
        wrong = (f"{a.name}={n} must be {a.domain}" for a, n in pairs if not (a.is_power_of_two(n) and a.in_range(n)))
        return ", ".join(wrong)

    def __str__(self) -> str:
        return str(self._config)


def require(p: KernelGemm, c: Config, d: Device) -> None:
    """ConfigError, naming the rule and its numbers, if ``c`` is not legal for ``p`` on ``d``."""
    rule = first_violation(p, c, d)
    if rule is not None:
        g = SimpleNamespace() if rule in FIRST else geometry(p, c)
        message = rule.message.format(p=p, c=_Worded(c), g=g, d=d)
        raise ConfigError(f"config breaks rule {rule.name!r}: {message}", rule.name)


def rejections(p: KernelGemm, c: Columns, d: Device) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each row the index in RULES of the first rule that it breaks, or -1 if it is legal."""
    result = np.full(len(c), -1, np.int64)
    codes = np.unique(c.family)
    if len(codes) > 1:
        for code in codes:
            rows = np.flatnonzero(c.family == code)
            result[rows] = rejections(p, c.take(rows), d)
        return result
    if not len(c):
        return result
    with np.errstate(all="ignore"):
        g = geometry(p, c)
        for i, rule in rules_of(registry.of(c).name):
            holds = np.broadcast_to(rule.holds(p, c, g, d), len(c))
            result[(result < 0) & ~holds] = i
    return result


def legal(p: KernelGemm, c: Columns, d: Device) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask of the legal rows."""
    result = np.zeros(len(c), np.bool_)
    with np.errstate(all="ignore"):
        for code in np.unique(c.family):
            result[_legal_of(p, c, d, int(code))] = True
    return result


def _legal_of(p: KernelGemm, c: Columns, d: Device, code: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The legal rows of a family. Of random ones most break an early rule: the later see only what is left by then."""
    rows = np.flatnonzero(c.family == code)
    part, left, g = c if len(rows) == len(c) else c.take(rows), np.ones(len(rows), np.bool_), SimpleNamespace()
    for _, rule in rules_of(registry.by_code(code).name):
        if rule not in FIRST and not vars(g):
            g = geometry(p, part)
        left &= rule.holds(p, part, g, d)
        if NARROWED * left.sum() < len(left):
            rows, part = rows[left], part.take(left)
            left, g = np.ones(len(rows), np.bool_), SimpleNamespace()
            if not len(rows):
                break
    return rows[left]
