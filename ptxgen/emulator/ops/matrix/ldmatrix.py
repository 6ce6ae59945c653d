"""ldmatrix, stmatrix and movmatrix: 8x8 matrices of 16-bit elements between shared memory and a warp's registers.

Each matrix takes one 32-bit register of a warp: lane l holds elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l // 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.data_movement.load_store import elements
from ptxgen.emulator.ops.operands.access import Site, from_generic, shared, shared_at
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction, Mem, Operand, Reg, Sym
from ptxgen.emulator.reductions import all_true, any_true, count_nonzero, flatnonzero
from ptxgen.emulator.sync.checks import UNINITIALISED
from ptxgen.emulator.sync.touch import FULL
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault, spread
from ptxgen.errors import DivergenceFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


LANES = np.arange(32)


#: for each lane: row of the matrix in its register, and column in units of registers (two elements)
ROW, COLUMN = LANES // 4, LANES % 4


#: with .trans, for each lane and each half of its register: row and column of the element in memory
TRANS_ROW = 2 * (LANES % 4)[:, None] + np.arange(2)


TRANS_COLUMN = np.repeat((LANES // 4)[:, None], 2, axis=1)


def whole_warps(c: WarpBatch, m: Mask, ins: Instruction) -> Array | None:
    """The blocks of the wave whose warp executes the instruction (None: all); faults if a lane of such a warp does
    not."""
    if m is None:
        m = c.alive
        if m is None:
            return None
    rows = m.reshape(-1, 32)
    executing = rows.any(axis=1)
    incomplete = executing & ~rows.all(axis=1)
    if any_true(incomplete):
        warp = int(np.argmax(incomplete))
        lane = 32 * warp + int(np.argmax(rows[warp]))
        missing = 32 - count_nonzero(rows[warp])
        raise fault(
            DivergenceFault,
            f"{missing} lanes of the warp are missing: they have exited, or the block has no such threads",
            c,
            ins,
            lane,
        )
    return None if all_true(executing) else flatnonzero(executing)


def gather(c: WarpBatch, view: int, warps: Array | None) -> Array:
    """The values of a register or constant in the warps of some blocks, as rows of 32 lanes."""
    rows = spread(c.v[view], c.n).reshape(-1, 32)
    return rows if warps is None else rows[warps]


def scatter(c: WarpBatch, view: int, warps: Array | None, value: Array) -> None:
    """Writes rows of 32 lanes to a register in the warps of some blocks."""
    rows = c.v[view].reshape(-1, 32)
    rows[slice(None) if warps is None else warps] = value


class Matrices:
    """The common part of ldmatrix and stmatrix: their modifiers, and the addresses of rows."""

    def __init__(self, b: Builder, ins: Instruction, address: Operand, operation: str) -> None:
        mods = list(ins.mods)
        self.transposed = "trans" in mods
        if self.transposed:
            mods.remove("trans")
        named = isinstance(address, Mem) and isinstance(address.base, Sym)
        self.generic = not named and not any(m in ("shared", "shared::cta") for m in mods)
        mods = [m for m in mods if m not in ("shared", "shared::cta")]
        if mods[:3] != ["sync", "aligned", "m8n8"] or mods[4:] != ["b16"] or mods[3] not in ("x1", "x2", "x4"):
            raise b.unsupported()
        self.count = int(mods[3][1:])
        self.ins = ins
        self.site = Site(b, ins, address, "shared", 16, operation)
        b.sites.append(self.site)

    def rows(self, c: WarpBatch, m: Mask, warps: Array | None, unit: int) -> Array:
        """The checked positions of the matrix rows, in elements of ``unit`` bytes: [warp, matrix, row]."""
        site = self.site
        if self.count == 4 and warps is None and not self.generic:
            place = shared(c, site, m, unit)
        else:
            first = 32 * (np.arange(c.blocks) if warps is None else warps)
            lanes: Array = (first[:, None] + np.arange(8 * self.count)).reshape(-1)
            at = site.addresses(c, lanes)
            if self.generic:
                at = from_generic(c, at, lanes, self.ins)
            place = shared_at(c, site, at, lanes, unit)
        return (place.index + place.shift).reshape(-1, self.count, 8)

    def elements(self, rows: Array) -> Array:
        """The positions in memory of the contents of the registers: [warp, matrix, lane], or with .trans [warp, matrix,
        lane, half].

        Positions and ``rows`` count units of ``unit`` bytes: 2 with .trans, else 4.
        """
        if self.transposed:
            return rows[:, :, TRANS_ROW] + TRANS_COLUMN
        return rows[:, :, ROW] + COLUMN

    @property
    def unit(self) -> int:
        return 2 if self.transposed else 4


@instruction("ldmatrix", execution="warp")
def ldmatrix(b: Builder, ins: Instruction) -> Step:
    mat = Matrices(b, ins, ins.operands[1], "read")
    items = elements(b, ins.operands[0], mat.count)
    dsts = [b.dst(item, "b32") for item in items]
    slots = [item.slot if isinstance(item, Reg) else None for item in items]
    mat.site.slots = []
    unit = mat.unit

    def undefined(c: WarpBatch, at: Array, warps: Array | None) -> None:
        """Marks the registers that receive uninitialised bytes as undefined."""
        unknown = c.wave.checks.valid_views[unit][at] != FULL[unit]
        loaded: dict[int, tuple[Array, int, str]] = {}
        for i, slot in enumerate(slots):
            bad = unknown[:, i]
            if slot is None or not any_true(bad):
                continue
            address = int(at[:, i][bad][0]) * unit % c.wave.stride
            if mat.transposed:
                bad = bad.any(axis=-1)
            where = np.zeros((c.n // 32, 32), bool)
            where[slice(None) if warps is None else warps] = bad
            loaded[slot] = where.reshape(-1), address, UNINITIALISED
        if loaded:
            c.wave.program.mark_undefined(c, loaded, ins)

    def step(c: WarpBatch, m: Mask) -> None:
        warps = whole_warps(c, m, ins)
        checks = c.wave.checks
        checks.maybe_uninitialised = False
        at = mat.elements(mat.rows(c, m, warps, unit))
        if checks.maybe_uninitialised:
            undefined(c, at, warps)
        loaded = c.wave.views[unit].take(at)
        if mat.transposed:
            loaded = loaded.view(np.uint32)[..., 0]
        for i, dst in enumerate(dsts):
            scatter(c, dst, warps, loaded[:, i])

    return step


@instruction("stmatrix", execution="warp")
def stmatrix(b: Builder, ins: Instruction) -> Step:
    mat = Matrices(b, ins, ins.operands[0], "write")
    srcs = [b.src(item, "b32") for item in elements(b, ins.operands[1], mat.count)]
    unit = mat.unit

    def step(c: WarpBatch, m: Mask) -> None:
        warps = whole_warps(c, m, ins)
        c.wave.engine.progress += 1
        at = mat.elements(mat.rows(c, m, warps, unit))
        value = np.stack([gather(c, s, warps) for s in srcs], axis=1)
        if mat.transposed:
            value = value.view(np.uint16).reshape(at.shape)
        c.wave.views[unit][at] = value

    return step


#: for each half of a register of a warp, the half register that movmatrix.trans moves there
MOVMATRIX_SOURCE = 2 * (4 * TRANS_ROW + TRANS_COLUMN // 2) + TRANS_COLUMN % 2


@instruction("movmatrix", execution="warp")
def movmatrix(b: Builder, ins: Instruction) -> Step:
    if ins.mods != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise b.unsupported()
    src, dst = b.src(ins.operands[1], "b32"), b.dst(ins.operands[0], "b32")
    source = MOVMATRIX_SOURCE.reshape(-1)

    def step(c: WarpBatch, m: Mask) -> None:
        warps = whole_warps(c, m, ins)
        c.wave.checks.exchange(c, None, "product")
        halves = np.ascontiguousarray(gather(c, src, warps)).view(np.uint16)
        scatter(c, dst, warps, halves.take(source, axis=1).view(np.uint32))

    return step
