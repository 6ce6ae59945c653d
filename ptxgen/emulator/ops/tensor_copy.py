"""cp.async.bulk.tensor, its reductions and prefetches: copies of boxes of a tensor that a tensor map describes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.cuda_abi import PARAMETERS_AT
from ptxgen.emulator.memory.address_map import GLOBAL_BASE, PARAM_WINDOW, WINDOW
from ptxgen.emulator.memory.tensormap import ALIGNMENT, SIZE, TensorMap, Window, decode
from ptxgen.emulator.ops.access import Site, locate
from ptxgen.emulator.ops.atomic import apply
from ptxgen.emulator.ops.barrier import nothing
from ptxgen.emulator.ops.builder import Builder
from ptxgen.emulator.ops.bulk_copy import SIGNAL, hint
from ptxgen.emulator.ops.bulk_transfers import CopyBarrier, Incoming, Outgoing, aligned, deliveries, in_global
from ptxgen.emulator.ops.mbarrier import value
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Imm, Instruction, Mem, Operand, Vec
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.events import GRANULE
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault
from ptxgen.errors import Fault, MisalignedFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


#: reductions by the map's type, as for plain ranges; signless ones take the unsigned types
_BITS = {"u8", "u16", "u32", "s32", "u64", "s64"}


_REDUCES = {
    "add": {"u32", "s32", "u64", "f16", "bf16", "f32", "f32.ftz"},
    "inc": {"u32"},
    "dec": {"u32"},
    "min": {"u32", "s32", "u64", "s64", "f16", "bf16"},
    "max": {"u32", "s32", "u64", "s64", "f16", "bf16"},
    "and": _BITS,
    "or": _BITS,
    "xor": _BITS,
}


#: shared memory of a box begins at a multiple of this
BOX = 128


class Tensor:
    """The operand [map, {coordinates}], and the offsets of im2col."""

    def __init__(self, b: Builder, ins: Instruction, op: Operand, rank: int, offsets: Operand | None) -> None:
        if not isinstance(op, Mem) or op.coords is None or len(op.coords.items) != rank:
            raise b.malformed(f"[map, {{{rank} coordinates}}] is needed")
        self.ins, self.rank = ins, rank
        self.site = Site(b, ins, Mem(op.base, op.offset), "generic", SIZE, "read")
        self.coordinates = [b.src(x, "s32") for x in op.coords.items]
        items = offsets.items if isinstance(offsets, Vec) else () if offsets is None else (offsets,)
        if offsets is not None and len(items) != rank - 2:
            raise b.malformed(f"{rank - 2} offsets are needed")
        self.offsets = [b.src(x, "u16") for x in items]

    def maps(self, c: WarpBatch, lanes: Array) -> list[TensorMap]:
        """The maps of some lanes."""
        found: dict[int, TensorMap] = {}
        addresses = self.site.addresses(c, lanes).tolist()
        for lane, at in zip(lanes.tolist(), addresses, strict=True):
            if at not in found:
                found[at] = self.map(c, lane, at)
        return [found[at] for at in addresses]

    def map(self, c: WarpBatch, lane: int, at: int) -> TensorMap:
        engine = c.chunk.engine
        if PARAM_WINDOW <= at < PARAM_WINDOW + WINDOW:
            where, base, data = at - PARAM_WINDOW, PARAMETERS_AT, engine.param_bytes
        else:
            in_global(c, self.ins, lane, at, at + SIZE, False)
            where, base, data = at - GLOBAL_BASE, 0, engine.memory.buffer
        if (where + base) % ALIGNMENT:
            raise fault(MisalignedFault, f"a tensor map must be at a multiple of {ALIGNMENT}", c, self.ins, lane, at)
        found = decode(data[where : where + SIZE].tobytes()) if where + SIZE <= len(data) else None
        if found is None:
            raise fault(Fault, "there is no tensor map here", c, self.ins, lane, at)
        if found.rank != self.rank:
            raise fault(Fault, f"the tensor has rank {found.rank}", c, self.ins, lane, at)
        return found

    def legal(self, c: WarpBatch, lane: int, tensor: TensorMap, place: list[int], writes: bool) -> None:
        """Faults at coordinates that an H200 calls an illegal instruction."""
        if place[0] * tensor.dtype.itemsize % 16:
            raise fault(MisalignedFault, f"a box begins at {place[0]}, no multiple of 16 bytes", c, self.ins, lane)
        if writes and not tensor.im2col and min(place) < 0:
            raise fault(Fault, f"a box that is stored begins outside the tensor, at {tuple(place)}", c, self.ins, lane)

    def windows(self, c: WarpBatch, lanes: Array, im2col: bool, writes: bool) -> list[Window]:
        """The part of the tensor that each lane accesses, checked."""
        v = c.v
        places = np.array([np.broadcast_to(v[x], (c.n,))[lanes] for x in self.coordinates], np.int64).T.tolist()
        offsets = np.array([np.broadcast_to(v[x], (c.n,))[lanes] for x in self.offsets], np.int64).T.tolist()
        out = []
        for i, (lane, tensor) in enumerate(zip(lanes.tolist(), self.maps(c, lanes), strict=True)):
            if tensor.im2col != im2col:
                kind = "an im2col" if tensor.im2col else "a tiled"
                raise fault(Fault, f"this is the map of {kind} tensor", c, self.ins, lane)
            self.legal(c, lane, tensor, places[i], writes)
            window = Window(tensor, places[i], offsets[i] if offsets else (), writes)
            if not window.empty:
                in_global(c, self.ins, lane, window.low, window.high, writes)
                if c.chunk.engine.shadow is not None:
                    c.chunk.engine.shadow.box(c, self.ins, lane, window, writes)
            out.append(window)
        return out


def sectors(c: WarpBatch, windows: list[Window], load: bool) -> None:
    stats = c.chunk.engine.stats
    into = stats.global_load if load else stats.global_store
    for window in windows:
        into.requests += 1
        into.bytes += window.moved
        into.sectors += window.moved / 32


@instruction("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
def tensor(b: Builder, ins: Instruction) -> Step:
    mods = [m for m in ins.mods if m != "L2::cache_hint"]
    mods = mods[mods.index("tensor") + 1 :]
    if len(mods) < 4 or mods[0] not in ("1d", "2d", "3d", "4d", "5d"):
        raise b.unsupported()
    rank, to, source = int(mods[0][0]), mods[1], mods[2]
    rest = mods[3:]
    reduces = ins.mods[0] == "reduce"
    op = rest.pop(0) if reduces else ""
    multicast = "multicast::cluster" in rest
    if multicast:
        rest.remove("multicast::cluster")
    loads = source == "global" and to in ("shared::cluster", "shared::cta")
    how = SIGNAL if loads else "bulk_group"
    mode = next((m for m in rest if m in ("tile", "im2col", "im2col_no_offs")), "tile")
    rest = [m for m in rest if m != mode]
    if (
        rest != [how]
        or (reduces and (loads or op not in _REDUCES))
        or (not loads and (to, source) != ("global", "shared::cta"))
    ):
        raise b.unsupported()
    if mode not in (("tile", "im2col") if loads else ("tile", "im2col_no_offs")) or (mode != "tile" and rank < 3):
        raise b.unsupported()
    if multicast and not loads:
        raise b.unsupported()
    operands = list(ins.operands)
    hint(b, ins, operands)
    if not loads:
        if len(operands) != 2:
            raise b.malformed("[map, {coordinates}] and [source] are needed")
        return store(b, ins, operands, rank, mode != "tile", op)
    mask = value(b, operands.pop(), "u16") if multicast else None
    offsets = operands.pop() if mode == "im2col" else None
    if len(operands) != 3:
        raise b.malformed("[destination], [map, {coordinates}] and [mbarrier] are needed")
    return load(b, ins, operands, rank, to, offsets, mask)


def load(
    b: Builder, ins: Instruction, operands: list[Operand], rank: int, to: str, offsets: Operand | None, mask: Any
) -> Step:
    everywhere = to == "shared::cluster"
    place = Site(b, ins, operands[0], "shared", 16, "write")
    boxes = Tensor(b, ins, operands[1], rank, offsets)
    barrier_at = CopyBarrier(b, ins, operands[2], to, everywhere=everywhere)

    def step(c: WarpBatch, m: Mask) -> None:
        every = np.flatnonzero(active(c, m))
        chunk = c.chunk
        found = boxes.windows(c, every, offsets is not None, False)
        sectors(c, found, True)
        for which in alike(found):
            lanes = every[which]
            tensor = found[which[0]].tensor
            address = place.addresses(c, lanes)
            aligned(c, ins, lanes, address, BOX, "the address in shared memory")
            at, _ = locate(c, address, lanes, tensor.room, ins, everywhere)
            who, targets = deliveries(c, ins, lanes, mask(c, lanes) if mask is not None else None)
            at = np.where(targets < 0, at[who], targets * chunk.stride + at[who] % chunk.stride)
            windows = [found[i] for i in which[who].tolist()]
            memory = chunk.engine.memory

            def fetch(i: int, windows: list[Window] = windows, memory: Any = memory) -> Array:
                return windows[i].load(memory.buffer, GLOBAL_BASE).reshape(-1).view(np.uint8)

            work = Incoming(
                c,
                ins,
                lanes[who],
                at,
                barrier_at.of(c, lanes, who, targets),
                tensor.size >> GRANULE,
                tensor.swizzle,
                fetch,
                "the tensor copy",
                width=tensor.narrow,
            )
            async_state(chunk).begin(work)

    return step


def alike(windows: list[Window]) -> list[Array]:
    """Groups boxes that have the same layout in shared memory."""
    keys = [(w.tensor.shape, w.tensor.dtype.itemsize, w.tensor.swizzle) for w in windows]
    return [np.array([i for i, k in enumerate(keys) if k == key]) for key in dict.fromkeys(keys)]


def store(b: Builder, ins: Instruction, operands: list[Operand], rank: int, columns: bool, op: str) -> Step:
    source = Site(b, ins, operands[1], "shared", 16, "read")
    boxes = Tensor(b, ins, operands[0], rank, None)
    doing = "the tensor reduction" if op else "the tensor copy"

    def step(c: WarpBatch, m: Mask) -> None:
        every = np.flatnonzero(active(c, m))
        chunk = c.chunk
        found = boxes.windows(c, every, columns, True)
        sectors(c, found, False)
        for which in alike(found):
            lanes = every[which]
            tensor = found[which[0]].tensor
            if op and tensor.type not in _REDUCES[op]:
                raise fault(Fault, f"no .{op} of {tensor.type} elements", c, ins, int(lanes[0]))
            address = source.addresses(c, lanes)
            aligned(c, ins, lanes, address, BOX, "the address in shared memory")
            at, _ = locate(c, address, lanes, tensor.room, ins, False)
            windows = [found[i] for i in which.tolist()]
            memory = chunk.engine.memory

            def put(i: int, data: Array, windows: list[Window] = windows, memory: Any = memory) -> None:
                write(windows[i], memory.buffer, data, op)

            def wanted(i: int, windows: list[Window] = windows) -> Array | None:
                w = windows[i]
                need = np.zeros((*w.tensor.shape, w.tensor.dtype.itemsize), bool)
                if not w.empty:
                    need[(w.rows[:, None], np.arange(w.tensor.channels)[w.part[1]]) if columns else w.part] = True
                return need.reshape(-1)

            work = Outgoing(
                c, ins, lanes, at, tensor.size >> GRANULE, tensor.swizzle, put, wanted, doing, tensor.narrow
            )
            work.async_state.begin(work)

    return step


def write(window: Window, memory: Array, data: Array, op: str) -> None:
    """Writes a box to the tensor, clipped."""
    if window.empty:
        return
    tensor = window.tensor
    elements = data.view(tensor.dtype).reshape(tensor.shape)
    if tensor.im2col:
        there: Any = memory.view(tensor.dtype)
        index: Any = window.columns() - GLOBAL_BASE // tensor.dtype.itemsize
        mine = elements[window.rows[:, None], np.arange(tensor.channels)[window.part[1]]]
    else:
        there, index = window.view(memory, GLOBAL_BASE), ...
        mine = elements[window.part]
    if op:
        kind = tensor.type.split(".")[0]
        old = there[index].reshape(-1)
        mine = apply(op, kind, old, mine.reshape(-1), None, False).reshape(mine.shape)
    there[index] = mine


@instruction("cp.async.bulk.prefetch.tensor")
def prefetch(b: Builder, ins: Instruction) -> Step:
    operands = list(ins.operands)
    hint(b, ins, operands)
    rank = int(next(m for m in ins.mods if m in ("1d", "2d", "3d", "4d", "5d"))[0])
    Tensor(b, ins, operands[0], rank, operands[1] if len(operands) > 1 else None)
    return nothing


@instruction("prefetch.tensormap", "prefetch.param.tensormap", "prefetch.const.tensormap")
def prefetch_map(b: Builder, ins: Instruction) -> Step:
    op = ins.operands[0]
    if not isinstance(op, Mem) or isinstance(op.base, Imm):
        raise b.malformed("[map] is needed")
    b.address_key(op.base, "generic")
    return nothing
