"""tex, tld4, txq, suld, sust and suq: reads of textures, and accesses to surfaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import GLOBAL_BASE
from ptxgen.emulator.memory.texture import ORDERS, TYPES, Texture, corners, sample, values
from ptxgen.emulator.ops.data_movement.load_store import elements, vector
from ptxgen.emulator.ops.operands.access import Site
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Mem, Operand, Pair, Vec
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault, spread
from ptxgen.errors import Fault, MisalignedFault, OutOfBoundsFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


#: geometry -> (number of coordinates, whether the first coordinate is a layer)
GEOMETRIES = {
    "1d": (1, False),
    "2d": (2, False),
    "3d": (3, False),
    "a1d": (1, True),
    "a2d": (2, True),
    "cube": (3, False),
    "acube": (3, True),
}


class TextureOperand:
    """The operand [texture, {coordinates}], or [texture]; ``resource``: "texture" or "surface", for messages."""

    def __init__(
        self, b: Builder, ins: Instruction, op: Operand, size: int, resource: str, access: str = "read"
    ) -> None:
        if not isinstance(op, Mem):
            raise b.malformed("an address in brackets is needed")
        self.ins, self.resource = ins, resource
        self.site = Site(b, ins, Mem(op.base, op.offset), "global", size, access)
        b.sites.append(self.site)
        self.geometry = next((m for m in ins.mods if m in GEOMETRIES), "")
        self.coordinates: list[int] = []
        self.layer: int | None = None
        if op.coords is None:
            return
        if not self.geometry:
            raise b.unsupported()
        count, layered = GEOMETRIES[self.geometry]
        items = list(op.coords.items)
        needed = count + layered
        if len(items) != (4 if needed == 3 else needed):
            raise b.malformed(f"{4 if needed == 3 else needed} coordinates are needed")
        if layered:
            self.layer = b.src(items.pop(0), "u32")
        number = "s32" if access == "write" or resource == "surface" else ins.types[-1]
        self.coordinates = [b.src(item, number) for item in items[:count]]

    def groups(self, c: WarpBatch, m: Mask) -> Iterator[tuple[Texture, int, Array]]:
        """For each texture handle among some lanes, the triple (texture, position of its first texel in memory,
        lanes)."""
        lanes = flatnonzero(active(c, m))
        handles = self.site.addresses(c, lanes)
        memory = c.wave.engine.memory
        for handle in np.unique(handles).tolist():
            which = lanes[handles == handle]
            lane = int(which[0])
            t = memory.textures.get(handle)
            if t is None:
                text = f"{handle:#x} is not the handle of a {self.resource}; ptxgen.emulator.texture makes one"
                raise fault(Fault, text, c, self.ins, lane)
            if self.geometry and self.geometry != t.geometry:
                text = f"the {self.resource} is {t.geometry}, the instruction .{self.geometry}"
                raise fault(Fault, text, c, self.ins, lane)
            extent = memory.extent(t.base)
            if extent is None or t.base + t.nbytes > extent[1]:
                text = f"the {self.resource} of {t.nbytes} bytes is outside its memory"
                raise fault(OutOfBoundsFault, text, c, self.ins, lane, t.base)
            yield t, t.base - GLOBAL_BASE, which

    def places(self, c: WarpBatch, lanes: Array) -> tuple[list[Array], Array | None]:
        """The pair (coordinates of some lanes, layers or None)."""
        coordinates = [spread(c.v[x], c.n)[lanes] for x in self.coordinates]
        return coordinates, None if self.layer is None else np.broadcast_to(c.v[self.layer], (c.n,))[lanes]

    def record(self, c: WarpBatch, operation: str, size: int, at: Array, lanes: Array) -> None:
        """Applies the race checks to accesses at positions of memory."""
        shadow = c.wave.engine.shadow
        if shadow is not None and len(at):
            shadow.access(c, self.ins, operation, size, at, lanes)


class Results:
    """The destination {d0, d1, d2, d3} of a texture read. A predicate |p after it becomes true, as no texel is
    missing."""

    def __init__(self, b: Builder, ins: Instruction) -> None:
        op = ins.operands[0]
        self.predicate = b.dst(op.second, "pred") if isinstance(op, Pair) else None
        vec = op.first if isinstance(op, Pair) else op
        self.type = ins.types[0]
        self.dsts = [b.dst(item, self.type) for item in elements(b, vec, 4)]

    def check(self, c: WarpBatch, ins: Instruction, t: Texture, lane: int) -> None:
        """Faults if the type of the instruction is not that in which the texture is read."""
        if t.floats != (self.type == "f32"):
            read = "floating-point numbers" if t.floats else "integers"
            text = f"the texels, {t.type}, are read as {read}; the instruction has .{self.type}"
            raise fault(Fault, text, c, ins, lane)

    def write(self, c: WarpBatch, lanes: Array, columns: list[Array]) -> None:
        for dst, column in zip(self.dsts, columns, strict=True):
            c.v[dst][lanes] = column if column.dtype == c.v[dst].dtype else column.view(c.v[dst].dtype)
        if self.predicate is not None:
            c.v[self.predicate][lanes] = True


def texel_offsets(b: Builder, ins: Instruction) -> list[int]:
    """The constant offsets in texels; their operand is the last one."""
    last = ins.operands[-1]
    gradients = "grad" in ins.mods and len(ins.operands) < 5
    if len(ins.operands) < 3 or gradients or not isinstance(last, Vec):
        return []
    return [b.src(item, "s32") for item in last.items]


@instruction("tex")
def tex(b: Builder, ins: Instruction) -> Step:
    """tex. Levels and gradients have no effect, because textures have one level."""
    results = Results(b, ins)
    operand = TextureOperand(b, ins, ins.operands[1], 1, "texture")
    offsets = texel_offsets(b, ins)
    for op in ins.operands[2 : 4 if "grad" in ins.mods else 3 if "level" in ins.mods else 2]:
        for item in op.items if isinstance(op, Vec) else (op,):
            b.src(item, ins.types[-1])

    def step(c: WarpBatch, m: Mask) -> None:
        memory = c.wave.engine.memory
        for t, base, lanes in operand.groups(c, m):
            results.check(c, ins, t, int(lanes[0]))
            coordinates, layer = operand.places(c, lanes)
            integer = ins.types[-1] == "s32"
            if integer and t.normalised:
                text = "the coordinates are integers; those of the texture are normalised"
                raise fault(Fault, text, c, ins, int(lanes[0]))
            shifts = [spread(c.v[x], c.n)[lanes].astype(np.int64) for x in offsets]
            footprint = corners(t, coordinates, layer, t.filter == "linear" and not integer, shifts)
            for at, inside, _ in footprint:
                operand.record(c, "read", t.texel, (base + at)[inside], lanes[inside])
            out = sample(t, memory.buffer, base, footprint)
            # a missing channel is 0, the fourth one 1
            missing = [np.full(len(lanes), int(i == 3), out.dtype) for i in range(t.channels, 4)]
            results.write(c, lanes, [*np.ascontiguousarray(out.T), *missing])

    return step


@instruction("tld4")
def tld4(b: Builder, ins: Instruction) -> Step:
    """tld4: one channel of each of the four texels that linear filtering would read, counter-clockwise from (x, y +
    1)."""
    results = Results(b, ins)
    channel = "rgba".index(next(m for m in ins.mods if m in ("r", "g", "b", "a")))
    operand = TextureOperand(b, ins, ins.operands[1], 1, "texture")
    offsets = texel_offsets(b, ins)

    def step(c: WarpBatch, m: Mask) -> None:
        memory = c.wave.engine.memory
        for t, base, lanes in operand.groups(c, m):
            results.check(c, ins, t, int(lanes[0]))
            coordinates, layer = operand.places(c, lanes)
            shifts = [spread(c.v[x], c.n)[lanes].astype(np.int64) for x in offsets]
            footprint = corners(t, coordinates, layer, True, shifts)
            columns = []
            for i in (2, 3, 1, 0):
                at, inside, _ = footprint[i]
                operand.record(c, "read", t.texel, (base + at)[inside], lanes[inside])
                texels = values(t, memory.buffer, base, at, inside)
                missing = np.full(len(lanes), int(channel == 3), texels.dtype)
                columns.append(np.ascontiguousarray(texels[:, channel]) if channel < t.channels else missing)
            results.write(c, lanes, columns)

    return step


def queried(t: Texture, what: str) -> int:
    """A property of a texture or a surface."""
    if what in ("width", "height", "depth"):
        axis = ("width", "height", "depth").index(what)
        return t.extents[axis] if axis < len(t.extents) else 0
    return {
        "array_size": t.layers,
        "num_mipmap_levels": 1,
        "num_samples": 1,
        "normalized_coords": int(t.normalised),
        "channel_order": ORDERS[t.channels],
        "channel_data_type": TYPES[t.type][2 if t.fractions else 1],
    }[what]


@instruction("txq", "suq")
def query(b: Builder, ins: Instruction) -> Step:
    what = next(m for m in ins.mods if m not in ("level", "b32"))
    dst = b.dst(ins.operands[0], "u32")
    operand = TextureOperand(b, ins, ins.operands[1], 1, "texture" if ins.op == "txq" else "surface")
    for op in ins.operands[2:]:
        b.src(op, "u32")

    def step(c: WarpBatch, m: Mask) -> None:
        for t, _, lanes in operand.groups(c, m):
            c.v[dst][lanes] = queried(t, what)

    return step


class SurfaceOperand(TextureOperand):
    """The operand of an access to a surface, whose first coordinate is in bytes."""

    def __init__(self, b: Builder, ins: Instruction, op: Operand, access: str) -> None:
        self.unit = SIZES[ins.types[-1]]
        self.size = self.unit * vector(ins)
        super().__init__(b, ins, op, self.size, "surface", access)
        self.bounds = next(m for m in ins.mods if m in ("trap", "clamp", "zero"))

    def positions(self, c: WarpBatch, t: Texture, base: int, lanes: Array) -> tuple[Array, Array]:
        """The pair (positions in memory, whether they are inside the surface). Outside, .trap is a fault and .clamp
        takes the nearest texel."""
        coordinates, layer = self.places(c, lanes)
        names, sizes = ["x", "y", "z"], [t.extents[0] * t.texel - self.size + 1, *t.extents[1:]]
        pitches = [1, *t.pitches[1:]]
        if layer is not None:
            coordinates, names = [*coordinates, layer], [*names[: len(coordinates)], "the layer"]
            sizes, pitches = [*sizes, t.layers], [*pitches, t.layer_pitch]
        at, inside = np.full(len(lanes), base, np.int64), np.ones(len(lanes), bool)
        for i, (x, name, n, pitch) in enumerate(zip(coordinates, names, sizes, pitches, strict=False)):
            x = x.astype(np.int64)
            good = (x >= 0) & (x < n)
            if self.bounds == "trap" and not all_true(good):
                k = int(np.argmin(good))
                limit = f"{t.extents[0] * t.texel} bytes" if not i else str(n)
                text = f"{name} is {int(x[k])}{f', of {self.size} bytes' * (not i)}; the surface has {limit}"
                raise fault(OutOfBoundsFault, text, c, self.ins, int(lanes[k]))
            bad = x % self.size != 0 if not i else np.zeros(len(x), bool)
            if any_true(bad):
                k = int(np.argmax(bad))
                text = f"x is {int(x[k])} bytes; it must be a multiple of the {self.size} bytes of the access"
                raise fault(MisalignedFault, text, c, self.ins, int(lanes[k]))
            inside &= good
            at += np.clip(x, 0, max(n - 1, 0)) * pitch
        return at, inside | (self.bounds == "clamp")


@instruction("suld.b")
def suld(b: Builder, ins: Instruction) -> Step:
    operand = SurfaceOperand(b, ins, ins.operands[1], "read")
    dsts = [b.dst_wide(item, f"u{8 * operand.unit}") for item in elements(b, ins.operands[0], vector(ins))]

    def step(c: WarpBatch, m: Mask) -> None:
        memory = c.wave.engine.memory
        for t, base, lanes in operand.groups(c, m):
            at, inside = operand.positions(c, t, base, lanes)
            operand.record(c, "read", operand.size, at[inside], lanes[inside])
            for i, dst in enumerate(dsts):
                where = (at + i * operand.unit)[:, None] + np.arange(operand.unit)
                data = memory.buffer[where].view(f"<u{operand.unit}").reshape(-1)
                c.v[dst][lanes] = np.where(inside, data, 0)

    return step


@instruction("sust.b")
def sust(b: Builder, ins: Instruction) -> Step:
    operand = SurfaceOperand(b, ins, ins.operands[0], "write")
    srcs = [b.src(item, f"u{8 * operand.unit}") for item in elements(b, ins.operands[1], vector(ins))]

    def step(c: WarpBatch, m: Mask) -> None:
        memory = c.wave.engine.memory
        c.wave.engine.progress += 1
        for t, base, lanes in operand.groups(c, m):
            extent = memory.extent(t.base)
            if extent is not None and extent[0] in memory.readonly:
                text = f"a read-only buffer is written: {memory.name(extent[0])}"
                raise fault(OutOfBoundsFault, text, c, ins, int(lanes[0]), t.base)
            at, inside = operand.positions(c, t, base, lanes)
            operand.record(c, "write", operand.size, at[inside], lanes[inside])
            for i, src in enumerate(srcs):
                data = spread(c.v[src], c.n)[lanes[inside]].astype(f"<u{operand.unit}")
                where = (at[inside] + i * operand.unit)[:, None] + np.arange(operand.unit)
                memory.buffer[where] = data.view(np.uint8).reshape(-1, operand.unit)

    return step
