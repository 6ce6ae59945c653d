"""The rules of legal configurations for a problem on a device, one row each.

The same row filters the space, words the exception and labels the rejection. A legal configuration must assemble, load
and compute correct results; one that does not reveals a bug in this table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Any, cast

import numpy as np

from ptxgen.codegen.config.axes import BOUNDS_NONE, DIRECT, SPLIT_LAST_CTA, SPLIT_MEMSET, SPLIT_WORKSPACE, Axis
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.split_k import is_countable, is_one_product
from ptxgen.codegen.vectorized import ceil_div, register_cap
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.errors import ConfigError
from ptxgen.families import registry
from ptxgen.families.common.geometry import geometry
from ptxgen.families.common.tile_family import TileFamily
from ptxgen.families.registry import RULES as RULES
from ptxgen.lowering.bit_products import packs_bits
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.implicit_gemm import PADDING
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.tile_lists import lists_tiles
from ptxgen.problem.device import Device

TOLERANCE = 5  #: registers by which the estimate may exceed the limit
COMPACTION = 12  #: if there are this many illegal rows for each legal one, later rules see only the legal rows


def reducible(p: KernelProblem) -> bool:
    """True if blocks may add K slices to C in any order. Sums of integers do not depend on the order; epilogue
    operations need the whole sum."""
    return p.algebra.atomic and p.sink.linear and p.output.bytes >= 4 and (p.output.integer or not p.deterministic)


def _every_axis(c: Any, holds: Callable[[Axis, Any], Any]) -> Any:
    """True if ``holds`` is true of every axis of the family; an axis at its default in all rows counts as true."""
    axes = registry.of(c).axes
    if isinstance(c, Columns):
        axes = tuple(a for a in axes if a.name in c.columns)
    return reduce(and_, (holds(a, getattr(c, a.name)) for a in axes), True)


def _tiles_of(c: Any) -> TileFamily:
    """The ``TileFamily`` of a configuration, or of columns of one."""
    return cast(TileFamily, registry.of(c))


#: the rule that the family provides what the problem needs
CAPABILITIES = Rule(
    "capabilities",
    lambda p, c, g, d: p.needs <= registry.of(c).provides,
    lambda p, c, g, d: registry.missing(p, c.family),
)


def _shares_iterations(p: KernelProblem, c: Any) -> Any:
    """True if blocks can share K iterations. In one product, packed operands are excluded, because they overwrite
    workspace words that must be zero."""
    if grouped(p):
        return "offsets" not in p.arrays
    direct = (c.operand_path_a == DIRECT) & (c.operand_path_b == DIRECT)
    one = is_one_product(p) and is_countable(p) and not packs_bits(p)
    return one & (c.stages > 0) & (c.pdl == 0) & direct


#: rules that need no geometry; if one is broken, there is no geometry
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
        "output_dtype",
        lambda p, c, g, d: not p.output.fp8 or d.sm >= p.output.sm,
        "results in {p.out} need sm_89; {d.name} is sm_{d.sm}",
    ),
    CAPABILITIES,
)

LAST = (
    Rule(
        "offset_table_end",
        lambda p, c, g, d: ("offset_table" not in p.needs) | ((c.stages + 2) * c.u <= PADDING),
        "stages={c.stages} of u={c.u} read more than 1024 offsets past the end of a table",
        tiles=True,
    ),
    Rule(
        "grouped_slices",
        lambda p, c, g, d: (
            (not grouped(p))
            | (
                (
                    (c.kg == 1)
                    | (
                        (c.splitk == SPLIT_LAST_CTA)
                        & ("split_items" in registry.of(c).provides)
                        & ("offsets" not in p.arrays)
                    )
                )
                & (c.pdl == 0)
                & (
                    ((c.operand_path_a == DIRECT) & (c.operand_path_b == DIRECT))
                    | ("packed_items" in registry.of(c).provides)
                )
            )
        ),
        lambda p, c, g, d: (
            f"kg={c.kg}, splitk={c.splitk}, pdl={c.pdl}, operand_path_a={c.operand_path_a},"
            f" operand_path_b={c.operand_path_b}: the tile loop of a group takes pdl=0, operand_path=direct (but for"
            f" {' and '.join(registry.providing('packed_items'))}) and kg=1, or, for lists and families"
            f" {' and '.join(registry.providing('split_items'))}, splitk=last_cta"
        ),
        tiles=True,
    ),
    Rule(
        "stream_k",
        lambda p, c, g, d: (
            (c.stream_k == 0) | ((c.kg == 1) & ("split_items" in registry.of(c).provides) & _shares_iterations(p, c))
        ),
        "stream_k={c.stream_k}, kg={c.kg}, stages={c.stages}, pdl={c.pdl}, operand_path_a={c.operand_path_a},"
        " operand_path_b={c.operand_path_b}: blocks share the K iterations of lists and of single products of matrices,"
        " with kg=1; those of a product with stages in shared memory, pdl=0 and operand_path=direct, and in s8 of K up"
        " to 131072",
        tiles=True,
    ),
    Rule(
        "l2_prefetch",
        lambda p, c, g, d: (c.l2_prefetch == 0) | (grouped(p) & (c.kg == 1) & (c.stream_k == 0)),
        "l2_prefetch={c.l2_prefetch}, kg={c.kg}, stream_k={c.stream_k}: only whole tiles of groups are prefetched, with"
        " kg=1 and stream_k=0",
        tiles=True,
    ),
    Rule(
        "listed_tiles",
        lambda p, c, g, d: (
            (c.listed_tiles == 0)
            | (
                (lists_tiles(p) and not packs_bits(p))
                & (c.stages > 0)
                & (c.kg == 1)
                & (c.pdl == 0)
                & (c.raster_group == 1)
                & (c.operand_path_a == DIRECT)
                & (c.operand_path_b == DIRECT)
            )
        ),
        "listed_tiles={c.listed_tiles}, stages={c.stages}, kg={c.kg}, pdl={c.pdl}, raster_group={c.raster_group}: the"
        " list of tiles is for joins of one item in the order of keys, with stages in shared memory, kg=1, pdl=0,"
        " raster_group=1 and operand_path=direct",
        tiles=True,
    ),
    Rule(
        "pdl",
        lambda p, c, g, d: (c.pdl == 0) | ((c.pdl > 0) & (c.pdl <= 3) & (d.sm >= 90)),
        "pdl={c.pdl}: 0, or 1 to 3 where kernels can wait for each other, from sm_90 on; {d.name} is sm_{d.sm}",
    ),
    Rule("threads", lambda p, c, g, d: g.threads <= 1024, "{g.threads} threads a block; the limit is 1024"),
    Rule(
        "vec_c",
        lambda p, c, g, d: (c.vec_c <= p.vectors[2]) & (c.vec_c <= c.nl),
        "vec_c={c.vec_c} exceeds {p.vectors[2]}, the limit by C's alignment and rows, or {c.nl}, a row of the tile",
        tiles=True,
    ),
    Rule(
        "gated",
        lambda p, c, g, d: ("store_gated" not in p.needs) | (c.vec_c >= 2) | g.stores_boxes,
        "vec_c={c.vec_c}: a gated activation makes an element of C of two adjacent sums; it takes vec_c of 2 or more",
        tiles=True,
    ),
    Rule(
        "shared_memory",
        lambda p, c, g, d: g.shared <= d.shared_block,
        "{g.shared} bytes of shared memory; {d.name} has {d.shared_block} a block",
    ),
    Rule(
        "min_ctas_per_sm",
        lambda p, c, g, d: (
            (g.shared <= d.most_shared(c.min_ctas_per_sm))
            & (g.threads * c.min_ctas_per_sm <= d.threads_sm)
            & (c.min_ctas_per_sm <= d.blocks_sm)
        ),
        "min_ctas_per_sm={c.min_ctas_per_sm} blocks of {g.threads} threads and {g.shared} bytes do not fit one"
        " multiprocessor",
    ),
    Rule(
        "registers",
        lambda p, c, g, d: g.registers <= register_cap(d, g.threads, c.min_ctas_per_sm) + TOLERANCE,
        "about {g.registers} registers a thread; {d.name} has {d.registers_sm} for min_ctas_per_sm={c.min_ctas_per_sm}"
        " blocks of {g.threads} threads, and {d.registers_thread} for one",
    ),
    Rule(
        "register_margin",
        lambda p, c, g, d: g.registers + g.reg_margin <= register_cap(d, g.threads, c.min_ctas_per_sm) + TOLERANCE,
        "about {g.registers} registers a thread, and {g.reg_margin} in reserve; {d.name} has {d.registers_sm} for"
        " min_ctas_per_sm={c.min_ctas_per_sm} blocks of {g.threads} threads, and {d.registers_thread} for one",
    ),
    Rule(
        "bounds",
        lambda p, c, g, d: (
            (c.bounds != BOUNDS_NONE)
            | (
                (p.extents.common_divisors[0] % np.maximum(c.ml, 1) == 0)
                & (p.extents.common_divisors[1] % np.maximum(c.nl, 1) == 0)
                & (p.extents.common_divisors[2] % np.maximum(c.u, 1) == 0)
            )
        ),
        "bounds=none needs m, n, k={p.extents.common_divisors[0]}, {p.extents.common_divisors[1]},"
        " {p.extents.common_divisors[2]} to be multiples of ml, nl,"
        " u={c.ml}, {c.nl}, {c.u}",
        tiles=True,
    ),
    Rule(
        "kg",
        lambda p, c, g, d: c.kg <= np.maximum(ceil_div(p.k, np.maximum(c.u, 1)), 1),
        "kg={c.kg} slices; K={p.k} has fewer blocks of u={c.u}",
        tiles=True,
    ),
    Rule(
        "splitk",
        lambda p, c, g, d: (
            ((c.kg > 1) | (c.splitk == SPLIT_MEMSET))
            & ((c.splitk <= _tiles_of(c).splitk) | grouped(p))
            & ((c.kg == 1) | (c.splitk >= SPLIT_WORKSPACE) | reducible(p))
        ),
        "splitk={c.splitk} with kg={c.kg}: kg=1 takes splitk=memset_red; 16-bit C, deterministic sums, epilogues and"
        " reductions without a red instruction take splitk=workspace",
        tiles=True,
    ),
    Rule(
        "positions",
        lambda p, c, g, d: (c.kg == 1) | (p.algebra.state is None),
        "kg={c.kg}: a reduction to positions along K is joined in registers; it takes kg=1",
        tiles=True,
    ),
    Rule(
        "grid",
        lambda p, c, g, d: np.where(
            c.raster_group > 1,
            (g.tiles_m * g.tiles_n < 1 << 31) & (g.tiles_n * c.raster_group < 1 << 31),
            (g.tiles_n <= GRID_LIMIT) & (g.tiles_m < 1 << 31),
        ),
        "raster_group={c.raster_group} with {g.tiles_m} tiles along M and {g.tiles_n} along N: raster_group=1 takes at"
        " most 65535 along N (else take raster_group=8); others take at most 2147483647 tiles, and along N times"
        " raster_group",
        tiles=True,
    ),
)

RULES[:0] = (*FIRST, *LAST)


def rules_of(family: str) -> list[tuple[int, Rule]]:
    """The rules of a family with their indices in RULES, in the order of evaluation: common rules that need no
    geometry, the family's own rules, the other common rules. Families without tiles have no rules of tiles."""
    common, first = len(FIRST) + len(LAST), len(FIRST)
    rows = list(enumerate(RULES))
    own = [(i, rule) for i, rule in rows[common:] if rule.family == family]
    tiles = registry.FAMILIES[family].tiles
    return [*rows[:first], *own, *(row for row in rows[first:common] if tiles or not row[1].tiles)]


def first_violation(p: KernelProblem, c: Config, d: Device) -> Rule | None:
    """The first rule that ``c`` breaks; None: ``c`` is legal."""
    p = registry.of(c).form(p)
    with np.errstate(all="ignore"):
        g: Geometry | None = None
        for _, rule in rules_of(c.family):
            if g is None and rule not in FIRST:
                g = geometry(p, c)
            if not rule.holds(p, c, g, d):
                return rule
    return None


class _Worded:
    """A configuration for messages: an attribute is a word if the axis has words for its values."""

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


def require(p: KernelProblem, c: Config, d: Device) -> None:
    """Checks ``c``. ConfigError: ``c`` is not legal for ``p`` on ``d``; the message names the rule and its numbers."""
    rule = first_violation(p, c, d)
    if rule is not None:
        p = registry.of(c).form(p)
        g = None if rule in FIRST else geometry(p, c)
        message = rule.worded(p, _Worded(c), g, d)
        raise ConfigError(f"config breaks rule {rule.name!r}: {message}", rule.name)


def rejections(p: KernelProblem, c: Columns, d: Device) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each row the index in RULES of the first rule that it breaks; -1: the row is legal."""
    result = np.full(len(c), -1, np.int64)
    codes = np.unique(c.family)
    if len(codes) > 1:
        for code in codes:
            rows = np.flatnonzero(c.family == code)
            result[rows] = rejections(p, c.take(rows), d)
        return result
    if not len(c):
        return result
    family = registry.of(c)
    p = family.form(p)
    with np.errstate(all="ignore"):
        g = None
        for i, rule in rules_of(family.name):
            if g is None and rule not in FIRST:
                g = geometry(p, c)
            holds = np.broadcast_to(rule.holds(p, c, g, d), len(c))
            result[(result < 0) & ~holds] = i
            if rule is CAPABILITIES and not holds.any():
                break  # the others read what the family provides
    return result


def legal(p: KernelProblem, c: Columns, d: Device) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask of the legal rows."""
    result = np.zeros(len(c), np.bool_)
    with np.errstate(all="ignore"):
        for code in np.unique(c.family):
            result[_legal_of(p, c, d, int(code))] = True
    return result


def _legal_of(p: KernelProblem, c: Columns, d: Device, code: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The indices of the legal rows of one family. Most random rows break an early rule; later rules see only the
    remaining rows."""
    family, rows = registry.by_code(code), np.flatnonzero(c.family == code)
    p = family.form(p)
    g: Geometry | None = None
    part, holds = c if len(rows) == len(c) else c.take(rows), np.ones(len(rows), np.bool_)
    for _, rule in rules_of(family.name):
        if g is None and rule not in FIRST:
            g = geometry(p, part)
        holds &= rule.holds(p, part, g, d)
        if COMPACTION * holds.sum() < len(holds):
            rows, part = rows[holds], part.take(holds)
            holds, g = np.ones(len(rows), np.bool_), None
            if not len(rows):
                break
    return rows[holds]
