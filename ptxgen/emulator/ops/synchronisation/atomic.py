"""atom and red. The lanes execute in a seeded random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import SHARED_WINDOW
from ptxgen.emulator.ops.arithmetic.numerics import REDUCTIONS, canonical, flush
from ptxgen.emulator.ops.data_movement.load_store import SPACES, is_hint, space_of
from ptxgen.emulator.ops.operands.access import (
    Positions,
    Site,
    global_access,
    global_access_at,
    is_generic_shared,
    shared,
    shared_at,
)
from ptxgen.emulator.ops.operands.access import cluster_shared as in_cluster
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import DTYPES
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Vec
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.warp_batch import Step, WarpBatch, active

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


WORDS = {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz", "v2", "v4", "v8"}


_OPS = {"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"}


def arena_positions(c: WarpBatch, site: Site, m: Mask, unit: int) -> list[tuple[dict[int, Array], Array, Array]]:
    """For each state space that the executing lanes address, the triple (arena views, element positions, lanes)."""
    out = []

    def append(views: dict[int, Array], place: Positions) -> None:
        lanes, index = place.lanes, place.index
        if lanes is None:
            lanes = np.arange(c.n) if place.mask is None else flatnonzero(place.mask)
            index = index[lanes]
        out.append((views, index + place.shift, lanes))

    memory = c.wave.engine.memory
    if "shared::cluster" in site.ins.mods:
        append(c.wave.views, in_cluster(c, site, m, unit, True, True))
    elif site.space == "shared":
        append(c.wave.views, shared(c, site, m, unit, True))
    elif site.space == "global":
        append(memory.views, global_access(c, site, m, unit))
    else:
        lanes = flatnonzero(active(c, m))
        at = site.addresses(c, lanes)
        in_shared = is_generic_shared(at)
        if any_true(in_shared):
            append(c.wave.views, shared_at(c, site, at[in_shared] - SHARED_WINDOW, lanes[in_shared], unit, True))
        if not all_true(in_shared):
            append(memory.views, global_access_at(c, site, m, unit, at[~in_shared], lanes[~in_shared]))
    return out


@instruction("red")
def red(b: Builder, ins: Instruction) -> Step:
    return make(b, ins, False)


@instruction("atom", polls=True)
def atom(b: Builder, ins: Instruction) -> Step:
    return make(b, ins, True)


def apply(op: str, ptx_type: str, old: Array, x: Array, y: Array | None, ftz: bool) -> Array:
    """The new values of one operation on ``old``; ``y``: the third operand of cas."""
    if op == "add":
        if ptx_type in ("f32", "f64", "f16", "bf16"):
            new = flush(flush(old, ptx_type) + flush(x, ptx_type), ptx_type) if ftz else old + x
            canonical(new, ptx_type)
            return new
        return old + x
    if op == "min" or op == "max":
        if ptx_type in ("f16", "bf16"):
            new = np.asarray((np.fmin if op == "min" else np.fmax)(old, x))
            canonical(new, ptx_type)
            return new
        return (np.minimum if op == "min" else np.maximum)(old, x)
    if op == "inc":
        return np.where(old >= x, np.zeros((), old.dtype), old + np.ones((), old.dtype))
    if op == "dec":
        return np.where((old == 0) | (old > x), x, old - np.ones((), old.dtype))
    if op == "and":
        return old & x
    if op == "or":
        return old | x
    if op == "xor":
        return old ^ x
    if op == "exch":
        return x
    assert op == "cas"
    assert y is not None
    return np.where(old == x, y, old)


def make(b: Builder, ins: Instruction, returns: bool) -> Step:
    op = next((m for m in ins.mods if m in _OPS), "")
    ptx_type = ins.types[-1] if ins.types else ""
    for m in ins.mods:
        if m not in WORDS | _OPS | set(SIZES) and m.split("::")[0] not in SPACES and not is_hint(m):
            raise b.unsupported(f".{m}")
    if not op or SIZES.get(ptx_type) not in (2, 4, 8):
        raise b.unsupported()
    space = space_of(ins)
    if space not in ("global", "shared", "generic"):
        raise b.unsupported()
    packed = ptx_type in ("f16x2", "bf16x2")
    base = ptx_type.removesuffix("x2")
    count = next((int(m[1:]) for m in ins.mods if m in ("v2", "v4", "v8")), 1)
    operands = list(ins.operands)
    dst_op = operands.pop(0) if returns else None
    address = operands.pop(0)
    if any(m == "L2::cache_hint" for m in ins.mods):
        b.src(operands.pop(), "u64")
    site = Site(b, ins, address, space, SIZES[ptx_type] * count, "write")
    b.sites.append(site)
    values = operands[0].items if isinstance(operands[0], Vec) else (operands[0],)
    if len(values) != count or len(operands) != (2 if op == "cas" else 1):
        raise b.malformed("wrong number of operands")
    typed = "u" + ptx_type[1:] if ptx_type[0] == "b" and ptx_type[1].isdigit() else ptx_type
    pieces = 2 if packed else 1
    xs = [b.src(v, typed) for v in values]
    y = b.src(operands[1], typed) if op == "cas" else None
    dsts: list[int] = []
    if dst_op is not None:
        items = dst_op.items if isinstance(dst_op, Vec) else (dst_op,)
        dsts = [b.dst(item, typed) for item in items]
    unit = SIZES[base]
    dtype = DTYPES[typed]
    ftz = base == "f32" and space != "shared" and op == "add"
    exact = base not in ("f32", "f64", "f16", "bf16")

    def step(c: WarpBatch, m: Mask) -> None:
        engine = c.wave.engine
        v = c.v
        for views, index, lanes in arena_positions(c, site, m, unit):
            engine.stats.atomics += len(lanes)
            arena = views[unit].view(dtype)
            loaded: list[tuple[Array, Array]] = []  # (destination, old values), written after all sources are read
            for e, x in enumerate(xs):
                for half in range(pieces):
                    value = v[x]
                    value = np.broadcast_to(value, (c.n * pieces,))[half::pieces][lanes]
                    where = index + (e * pieces + half)
                    if exact and not returns and op in REDUCTIONS:
                        REDUCTIONS[op].at(arena, where, value)
                        engine.progress += 1
                        continue
                    other = None if y is None else np.broadcast_to(v[y], (c.n * pieces,))[half::pieces][lanes]
                    old = in_random_order(engine, op, base, arena, where, value, other, ftz)
                    if returns:
                        loaded.append((v[dsts[e]][half::pieces], old))
            for row, old in loaded:
                row[lanes] = old

    return step


def in_random_order(
    engine: Any, op: str, ptx_type: str, arena: Array, where: Array, x: Array, y: Array | None, ftz: bool
) -> Array:
    """Executes lanes with the same address in a seeded random order; returns the old value that each lane read."""
    old = np.empty(len(where), arena.dtype)
    changed = False
    for group in serialized_lanes(engine, where):
        at = where[group]
        current = arena[at]
        new = apply(op, ptx_type, current, x[group], None if y is None else y[group], ftz)
        arena[at] = new
        old[group] = current
        changed = changed or not np.array_equal(_bits(new), _bits(current))
        # a swap that finds the expected value does not count as polling, even if it stores the same value
        changed = changed or (op == "cas" and any_true(np.equal(_bits(current), _bits(x[group]))))
    if changed:
        engine.progress += 1
    return old


def serialized_lanes(engine: Any, where: Array) -> Iterator[Array]:
    """Groups of lanes, in execution order; the addresses within a group are distinct."""
    n = len(where)
    order = engine.generator.permutation(n)
    sequence = order[np.argsort(where[order], kind="stable")]
    sorted_at = where[sequence]
    first = np.ones(n, bool)
    first[1:] = sorted_at[1:] != sorted_at[:-1]
    start = np.maximum.accumulate(np.where(first, np.arange(n), 0))
    number = np.arange(n) - start
    for i in range(int(number.max()) + 1 if n else 0):
        yield sequence[number == i]


def _bits(x: Array) -> Array:
    return x.view(np.uint16) if x.dtype == ml_dtypes.bfloat16 else x.view(f"<u{x.itemsize}")
