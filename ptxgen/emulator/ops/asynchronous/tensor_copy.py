"""cp.async.bulk.tensor, its reductions and prefetches: copies of boxes of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.cuda_abi import PARAMETERS_AT
from ptxgen.emulator.memory.address_map import GLOBAL_BASE, PARAM_WINDOW, WINDOW
from ptxgen.emulator.memory.tensormap import ALIGNMENT, SIZE, TensorMap, TensorRegion, decode, defect
from ptxgen.emulator.ops.asynchronous.bulk_copy import SIGNAL, hint
from ptxgen.emulator.ops.asynchronous.bulk_transfers import (
    CopyBarrier,
    CopyFromShared,
    CopyToShared,
    Issued,
    check_global,
    check_multiple,
    deliveries,
)
from ptxgen.emulator.ops.control.branch import nothing
from ptxgen.emulator.ops.operands.access import Site, locate
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ops.synchronisation.atomic import apply
from ptxgen.emulator.ops.synchronisation.mbarrier import value
from ptxgen.emulator.ptx.syntax import Imm, Instruction, Mem, Operand, Vec
from ptxgen.emulator.reductions import flatnonzero
from ptxgen.emulator.sync.async_state import async_state
from ptxgen.emulator.sync.events import CHUNK
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault, spread
from ptxgen.errors import Fault, MisalignedFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


#: reduction -> its element types; and, or and xor use the unsigned types
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


#: alignment in bytes of a box in shared memory
BOX_ALIGNMENT = 128


class Tensor:
    """The operand [map, {coordinates}] of a tensor copy, and its im2col offsets."""

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
        """The tensor map of each of some lanes."""
        maps: dict[int, TensorMap] = {}
        addresses = self.site.addresses(c, lanes).tolist()
        for lane, at in zip(lanes.tolist(), addresses, strict=True):
            if at not in maps:
                maps[at] = self.map(c, lane, at)
        return [maps[at] for at in addresses]

    def map(self, c: WarpBatch, lane: int, at: int) -> TensorMap:
        """The checked tensor map at an address."""
        engine = c.wave.engine
        if PARAM_WINDOW <= at < PARAM_WINDOW + WINDOW:
            where, base, data = at - PARAM_WINDOW, PARAMETERS_AT, engine.param_bytes
        else:
            check_global(c, self.ins, lane, at, at + SIZE, False)
            if engine.shadow is not None:
                engine.shadow.use_map(c, self.ins, lane, at)
            where, base, data = at - GLOBAL_BASE, 0, engine.memory.buffer
        if (where + base) % ALIGNMENT:
            raise fault(
                MisalignedFault,
                f"the address of the tensor map is {at}; it must be a multiple of {ALIGNMENT}",
                c,
                self.ins,
                lane,
                at,
            )
        tensor_map = decode(data[where : where + SIZE].tobytes()) if where + SIZE <= len(data) else None
        if tensor_map is None:
            raise fault(Fault, "the address holds no tensor map", c, self.ins, lane, at)
        if wrong := defect(tensor_map):
            raise fault(Fault, f"the tensor map is invalid: {wrong}", c, self.ins, lane, at)
        if tensor_map.rank != self.rank:
            text = f"the tensor has rank {tensor_map.rank}, the instruction {self.rank}"
            raise fault(Fault, text, c, self.ins, lane, at)
        return tensor_map

    def check_coordinates(
        self, c: WarpBatch, lane: int, tensor: TensorMap, coordinates: list[int], writes: bool
    ) -> None:
        """Faults at coordinates for which an H200 reports an illegal instruction."""
        if coordinates[0] * tensor.dtype.itemsize % 16:
            raise fault(
                MisalignedFault,
                f"the first coordinate of a box is {coordinates[0]}, not a multiple of 16 bytes",
                c,
                self.ins,
                lane,
            )
        if writes and not tensor.im2col and min(coordinates) < 0:
            raise fault(
                Fault, f"a box that is stored begins outside the tensor, at {tuple(coordinates)}", c, self.ins, lane
            )

    def regions(
        self, c: WarpBatch, lanes: Array, im2col: bool, writes: bool, sources: Array | None = None
    ) -> list[TensorRegion]:
        """The part of the tensor that each lane accesses, which is checked here; ``sources``: as in
        ``bulk_copy.global_addresses``."""
        issued = Issued(c, self.ins)
        v = c.v
        places = np.array([spread(v[x], c.n)[lanes] for x in self.coordinates], np.int64).T.tolist()
        offsets = np.array([spread(v[x], c.n)[lanes] for x in self.offsets], np.int64).T.tolist()
        out = []
        for i, (lane, tensor) in enumerate(zip(lanes.tolist(), self.maps(c, lanes), strict=True)):
            if tensor.im2col != im2col:
                described = "an im2col" if tensor.im2col else "a tiled"
                raise fault(Fault, f"the tensor map is {described} map", c, self.ins, lane)
            self.check_coordinates(c, lane, tensor, places[i], writes)
            region = TensorRegion(tensor, places[i], offsets[i] if offsets else (), writes)
            if not region.empty:
                check_global(c, self.ins, lane, region.low, region.high, writes)
                if c.wave.engine.shadow is not None and (
                    sources is None or issued.first(lane, region.low, *places[i], int(sources[i]))
                ):
                    c.wave.engine.shadow.box(c, self.ins, lane, region, writes)
            out.append(region)
        return out


def count_sectors(c: WarpBatch, regions: list[TensorRegion], load: bool) -> None:
    """Counts the global memory sectors of copies for the statistics."""
    stats = c.wave.engine.stats
    access = stats.global_load if load else stats.global_store
    for region in regions:
        access.requests += 1
        access.bytes += region.bytes
        access.sectors += region.bytes / 32


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
    any_block = to == "shared::cluster"
    place = Site(b, ins, operands[0], "shared", 16, "write")
    boxes = Tensor(b, ins, operands[1], rank, offsets)
    barrier_at = CopyBarrier(b, ins, operands[2], to, any_block=any_block)

    def step(c: WarpBatch, m: Mask) -> None:
        every = flatnonzero(active(c, m))
        wave = c.wave
        regions_of_lanes = boxes.regions(c, every, offsets is not None, False)
        count_sectors(c, regions_of_lanes, True)
        for which in group_by_layout(regions_of_lanes):
            lanes = every[which]
            tensor = regions_of_lanes[which[0]].tensor
            address = place.addresses(c, lanes)
            check_multiple(c, ins, lanes, address, BOX_ALIGNMENT, "the address in shared memory")
            at, _ = locate(c, address, lanes, tensor.footprint, ins, any_block)
            issuer, targets = deliveries(c, ins, lanes, mask(c, lanes) if mask is not None else None)
            at = np.where(targets < 0, at[issuer], targets * wave.stride + at[issuer] % wave.stride)
            regions = [regions_of_lanes[i] for i in which[issuer].tolist()]
            memory = wave.engine.memory

            def fetch(i: int, regions: list[TensorRegion] = regions, memory: Any = memory) -> Array:
                return regions[i].load(memory.buffer, GLOBAL_BASE).reshape(-1).view(np.uint8)

            work = CopyToShared(
                c,
                ins,
                lanes[issuer],
                at,
                barrier_at.of_deliveries(c, lanes, issuer, targets),
                tensor.size >> CHUNK,
                tensor.swizzle,
                fetch,
                "the tensor copy",
                width=tensor.row_chunks,
            )
            async_state(wave).begin(work)

    return step


def group_by_layout(regions: list[TensorRegion]) -> list[Array]:
    """Indices of the regions, grouped by the layout of the box in shared memory."""
    keys = [(w.tensor.shape, w.tensor.dtype.itemsize, w.tensor.swizzle) for w in regions]
    return [np.array([i for i, k in enumerate(keys) if k == key]) for key in dict.fromkeys(keys)]


def store(b: Builder, ins: Instruction, operands: list[Operand], rank: int, columns: bool, op: str) -> Step:
    source = Site(b, ins, operands[1], "shared", 16, "read")
    boxes = Tensor(b, ins, operands[0], rank, None)
    operation = "the tensor reduction" if op else "the tensor copy"

    def step(c: WarpBatch, m: Mask) -> None:
        every = flatnonzero(active(c, m))
        wave = c.wave
        regions_of_lanes = boxes.regions(c, every, columns, True, None if op else source.addresses(c, every))
        count_sectors(c, regions_of_lanes, False)
        for which in group_by_layout(regions_of_lanes):
            lanes = every[which]
            tensor = regions_of_lanes[which[0]].tensor
            if op and tensor.type not in _REDUCES[op]:
                raise fault(Fault, f"tensor copies have no .{op} of {tensor.type} elements", c, ins, int(lanes[0]))
            address = source.addresses(c, lanes)
            check_multiple(c, ins, lanes, address, BOX_ALIGNMENT, "the address in shared memory")
            at, _ = locate(c, address, lanes, tensor.footprint, ins, False)
            regions = [regions_of_lanes[i] for i in which.tolist()]
            memory = wave.engine.memory

            def store_box(i: int, data: Array, regions: list[TensorRegion] = regions, memory: Any = memory) -> None:
                write(regions[i], memory.buffer, data, op)

            def clipped(i: int, regions: list[TensorRegion] = regions) -> Array | None:
                w = regions[i]
                written = np.zeros((*w.tensor.shape, w.tensor.dtype.itemsize), bool)
                if not w.empty:
                    written[(w.rows[:, None], np.arange(w.tensor.channels)[w.slices[1]]) if columns else w.slices] = (
                        True
                    )
                return written.reshape(-1)

            work = CopyFromShared(
                c,
                ins,
                lanes,
                at,
                tensor.size >> CHUNK,
                tensor.swizzle,
                store_box,
                clipped,
                operation,
                tensor.row_chunks,
            )
            work.async_state.begin(work)

    return step


def write(region: TensorRegion, memory: Array, data: Array, op: str) -> None:
    """Writes or reduces a box to the tensor, clipped to its extents."""
    if region.empty:
        return
    tensor = region.tensor
    elements = data.view(tensor.dtype).reshape(tensor.shape)
    if tensor.im2col:
        target: Any = memory.view(tensor.dtype)
        index: Any = region.columns() - GLOBAL_BASE // tensor.dtype.itemsize
        values = elements[region.rows[:, None], np.arange(tensor.channels)[region.slices[1]]]
    else:
        target, index = region.view(memory, GLOBAL_BASE), ...
        values = elements[region.slices]
    if op:
        element_type = tensor.type.split(".")[0]
        old = target[index].reshape(-1)
        values = apply(op, element_type, old, values.reshape(-1), None, False).reshape(values.shape)
    target[index] = values


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
