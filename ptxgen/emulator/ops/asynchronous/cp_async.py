"""cp.async: copies of 4 to 16 bytes from global to shared memory, in groups of each thread.

A copy writes its destination at the wait ("late") or at once ("early"). In both cases an access to the destination
before the wait is a fault.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.data_movement.load_store import is_hint
from ptxgen.emulator.ops.operands.access import Site, check_aligned, global_access, global_access_at, nearest, shared
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Imm, Instruction, Not, Reg
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.async_copies import Copy, commit, finish
from ptxgen.emulator.sync.touch import Touch, page_bits
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault, spread
from ptxgen.errors import OutOfBoundsFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


@instruction("cp.async.ca", "cp.async.cg")
def cp_async(b: Builder, ins: Instruction) -> Step:
    known = {"async", "ca", "cg", "shared", "shared::cta", "global"}
    for m in ins.mods:
        if m not in known and not is_hint(m):
            raise b.unsupported(f".{m}")
    operands = list(ins.operands)
    if "L2::cache_hint" in ins.mods:
        b.src(operands.pop(), "u64")
    if len(operands) not in (3, 4) or not isinstance(operands[2], Imm):
        raise b.malformed("[destination], [source], size, and optionally a source size or predicate are needed")
    size = operands[2].value
    if size not in ((16,) if "cg" in ins.mods else (4, 8, 16)):
        raise b.malformed(f"a copy of {size} bytes")
    to = Site(b, ins, operands[0], "shared", size, "write")
    source = Site(b, ins, operands[1], "global", size, "read")
    b.sites += [to, source]
    amount = ignore = None
    negated = False
    if len(operands) == 4:
        last = operands[3]
        if isinstance(last, Not):
            last, negated = last.reg, True
        if isinstance(last, Reg) and last.type == "pred":
            ignore = b.src(last, "pred")
        else:
            amount = b.src(last, "u32")
    unit = min(size, 8)
    count = size // unit

    def step(c: WarpBatch, m: Mask) -> None:
        if m is None:
            m = c.alive
        lanes = np.arange(c.n) if m is None else flatnonzero(m)
        sizes = None
        if amount is not None:
            sizes = spread(c.v[amount], c.n)[lanes].astype(np.int64)
            sizes = np.minimum(sizes, size)
            if all_true(sizes == size):
                sizes = None
        elif ignore is not None:
            skip = c.v[ignore][lanes]
            skip = ~skip if negated else skip
            if any_true(skip):
                sizes = np.where(skip, 0, size)
        place = shared(c, to, m, unit)
        index = place.index[lanes] + place.shift if place.lanes is None else place.index + place.shift
        if sizes is None:
            read = global_access(c, source, m, unit)
            origin = (read.index[lanes] if read.lanes is None else read.index) + read.shift
        else:
            origin = np.zeros(len(lanes), np.int64)
            whole = sizes == size
            at = source.addresses(c, lanes)
            if any_true(whole):
                origin[whole] = global_access_at(c, source, None, unit, at[whole], lanes[whole]).index
            for n in np.unique(sizes[~whole]):
                if n:
                    some = sizes == n
                    check_partial_source(c, source, at[some], lanes[some], int(n))
                    origin[some] = (at[some] - (1 << 32)) // unit
        touch = Touch(pages_of(c, index * unit, size), index * unit, 0, size, None, ins)
        touch.lanes = lanes
        copy = Copy(
            touch,
            lanes,
            index,
            origin,
            sizes,
            unit,
            count,
            c.copy_group[lanes] if isinstance(c.copy_group, np.ndarray) else c.copy_group,
        )
        copy.number = c.state["copies"] = c.state.get("copies", 0) + 1
        c.copies.append(copy)
        c.copy_pages |= touch.pages
        c.wave.checks.copy_pages |= touch.pages
        c.wave.checks.begin_copy(touch)
        if not c.wave.engine.late:
            copy.complete(c)

    return step


def check_partial_source(c: WarpBatch, site: Site, at: Array, lanes: Array, size: int) -> None:
    """Faults if a copy whose source has fewer bytes than it writes reads a misaligned or out-of-bounds source."""
    check_aligned(c, site, at, lanes)
    good = c.wave.engine.memory.inside(at, size)
    if not all_true(good):
        i = int(np.argmin(good))
        text = c.wave.engine.memory.outside(int(at[i]), size, nearest(at, good, i))
        raise fault(OutOfBoundsFault, text, c, site.ins, int(lanes[i]), int(at[i]))


def pages_of(c: WarpBatch, positions: Array, size: int) -> int:
    """The pages of shared memory that accesses of ``size`` bytes touch."""
    if not len(positions):
        return 0
    inside = positions % c.wave.stride
    return page_bits(int(inside.min()), int(inside.max()) + size)


@instruction("cp.async.commit_group")
def commit_group(b: Builder, ins: Instruction) -> Step:
    return commit


@instruction("cp.async.wait_group")
def wait_group(b: Builder, ins: Instruction) -> Step:
    if len(ins.operands) != 1 or not isinstance(ins.operands[0], Imm):
        raise b.malformed("a constant is needed")
    keep = ins.operands[0].value
    return lambda c, m: finish(c, m, keep)


@instruction("cp.async.wait_all")
def wait_all(b: Builder, ins: Instruction) -> Step:
    def step(c: WarpBatch, m: Mask) -> None:
        commit(c, m)
        finish(c, m, 0)

    return step
