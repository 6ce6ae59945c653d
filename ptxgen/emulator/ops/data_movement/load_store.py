"""ld, st and prefetch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import (
    GLOBAL_BASE,
    LOCAL_BITS,
    LOCAL_END,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
)
from ptxgen.emulator.memory.global_memory import typed_views
from ptxgen.emulator.ops.operands.access import (
    Positions,
    Site,
    cluster_parts,
    global_access,
    global_access_at,
    is_generic_shared,
    shared,
    shared_at,
)
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.operands.emitter import REAL, WORD, Emitter, UnableError, Value, lowering
from ptxgen.emulator.ops.operands.undefined import ALL_BITS, Operands, bits_of, terms_of
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import DTYPES, SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Mem, Operand, Reg, Sink, Sym, Vec
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault
from ptxgen.errors import OutOfBoundsFault, UninitialisedFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


SPACES = ("global", "shared", "local", "param", "const")


_HINTS = {
    "weak",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "mmio",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "nc",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "v2",
    "v4",
    "v8",
    "unified",
}


def is_hint(m: str) -> bool:
    """True if a modifier is a cache hint."""
    return m.startswith(("L1::", "L2::"))


def space_of(ins: Instruction) -> str:
    return next((m.split("::")[0] for m in ins.mods if m.split("::")[0] in SPACES), "generic")


def checked_mods(b: Builder, ins: Instruction, allowed: set[str] = _HINTS) -> None:
    for m in ins.mods:
        if m not in allowed and m not in SIZES and m.split("::")[0] not in SPACES and not is_hint(m):
            raise b.unsupported(f".{m}")


#: the memory that an instruction accesses: (typed views of an arena, positions) for each state space
Parts = list[tuple[dict[int, Array], Positions]]


def resolver(space: str, any_block: bool = False) -> Callable[[WarpBatch, Site, Mask, int], Parts]:
    """A function of (warp batch, site, mask, unit) that gives the accessed memory; ``any_block``: with
    .shared::cluster."""
    if any_block:
        return cluster_parts
    if space == "shared":
        return lambda c, site, m, unit: [(c.wave.views, shared(c, site, m, unit))]
    if space in ("global", "const"):
        return lambda c, site, m, unit: [(c.wave.engine.memory.views, global_access(c, site, m, unit))]
    if space == "local":
        return lambda c, site, m, unit: [local(c, site, m, unit, 0)]
    return generic


def generic(c: WarpBatch, site: Site, m: Mask, unit: int) -> Parts:
    """The memory that generic addresses refer to."""
    lanes = flatnonzero(active(c, m))
    at = site.addresses(c, lanes)
    if len(lanes) and all_true(at < SHARED_WINDOW):
        return [(c.wave.engine.memory.views, global_access(c, site, m, unit))]
    return generic_at(c, site, at, lanes, unit)


def generic_at(c: WarpBatch, site: Site, at: Array, lanes: Array, unit: int) -> Parts:
    """The memory that explicit generic addresses of some lanes refer to."""
    parts: Parts = []
    some = at < SHARED_WINDOW
    if any_true(some):
        place = global_access_at(c, site, None, unit, at[some], lanes[some])
        parts.append((c.wave.engine.memory.views, place))
    some = is_generic_shared(at)
    if any_true(some):
        parts.append((c.wave.views, shared_at(c, site, at[some] - SHARED_WINDOW, lanes[some], unit)))
    some = (at >= LOCAL_WINDOW) & (at < LOCAL_END)
    if any_true(some):
        parts.append(local_at(c, site, local_offsets(c, site, at[some], lanes[some]), lanes[some], unit))
    some = (at >= PARAM_WINDOW) & (at < PARAM_WINDOW + (1 << 32))
    if any_true(some):
        parts.append(parameters_at(c, site, at[some] - PARAM_WINDOW, lanes[some], unit))
    return parts


def explicit(c: WarpBatch, site: Site, at: Array, lanes: Array, unit: int) -> Parts:
    """The memory of explicit addresses of some lanes in the space of the site: global, shared or generic."""
    if site.space == "shared":
        return [(c.wave.views, shared_at(c, site, at, lanes, unit))]
    if site.space == "global":
        return [(c.wave.engine.memory.views, global_access_at(c, site, None, unit, at, lanes))]
    return generic_at(c, site, at, lanes, unit)


def local_offsets(c: WarpBatch, site: Site, at: Array, lanes: Array) -> Array:
    """The offsets in local memory of generic addresses; faults if an address belongs to the local memory of another
    thread."""
    offset = at - c.local_windows()[lanes].astype(np.int64)
    bad = (offset < -(1 << LOCAL_BITS - 1)) | (offset >= 1 << LOCAL_BITS - 1)
    if any_true(bad):
        i = int(np.argmax(bad))
        text = "a generic address of the local memory of another thread"
        raise fault(OutOfBoundsFault, text, c, site.ins, int(lanes[i]), int(at[i]))
    return offset


def local(c: WarpBatch, site: Site, m: Mask, unit: int, base: int) -> tuple[dict[int, Array], Positions]:
    lanes = flatnonzero(active(c, m))
    return local_at(c, site, site.addresses(c, lanes) - base, lanes, unit)


def local_at(c: WarpBatch, site: Site, at: Array, lanes: Array, unit: int) -> tuple[dict[int, Array], Positions]:
    size = c.wave.program.local_size
    bad = (at < 0) | (at + site.size > size) | (at & (site.size - 1) != 0)
    if any_true(bad):
        text = f"{site.size} bytes at a misaligned address or outside the {size} bytes of local memory"
        raise site.out_of_bounds(text, c, bad, lanes, at)
    views = c.state.get("local")
    if views is None:
        views = c.state["local"] = typed_views(np.zeros(c.n * size, np.uint8))
    return views, Positions((at + lanes * size) >> (unit.bit_length() - 1), 0, lanes, None)


def parameters_at(c: WarpBatch, site: Site, at: Array, lanes: Array, unit: int) -> tuple[dict[int, Array], Positions]:
    data = c.wave.engine.param_bytes
    bad = (at < 0) | (at + site.size > len(data)) | (at & (site.size - 1) != 0)
    if any_true(bad):
        text = f"{site.size} bytes at a misaligned address or outside the {len(data)} bytes of parameters"
        raise site.out_of_bounds(text, c, bad, lanes, at)
    padded = np.concatenate([data, np.zeros(-len(data) % 8, np.uint8)])
    return typed_views(padded), Positions(at >> (unit.bit_length() - 1), 0, lanes, None)


def vector(ins: Instruction) -> int:
    """The number of elements of a vector access."""
    return next((int(m[1:]) for m in ins.mods if m in ("v2", "v4", "v8")), 1)


def elements(b: Builder, op: Operand, count: int) -> tuple[Operand, ...]:
    """The elements of a vector operand, or the operand itself if it is no vector; there must be ``count`` of them."""
    items = op.items if isinstance(op, Vec) else (op,)
    if len(items) != count:
        raise b.malformed(f"{count} registers are needed")
    return items


@instruction("ld.acquire", "ld.relaxed", "ld.volatile", polls=True)
def ld_strong(b: Builder, ins: Instruction) -> Step:
    return ld(b, ins)


@instruction("ld", "ldu")
def ld(b: Builder, ins: Instruction) -> Step:
    checked_mods(b, ins)
    ptx_type = ins.types[-1] if ins.types else ""
    space = space_of(ins)
    if SIZES.get(ptx_type) not in (1, 2, 4, 8):
        raise b.unsupported()
    count, size = vector(ins), SIZES[ptx_type]
    address = ins.operands[1]
    items = elements(b, ins.operands[0], count)
    if not isinstance(address, Mem):
        raise b.malformed("an address in brackets is needed")
    if space == "param":
        return ld_param(b, ins, ptx_type, items, address)
    number = f"{'s' if ptx_type in SIGNED else 'u'}{8 * size}"
    site = Site(b, ins, address, space, size * count, "read")
    b.sites.append(site)
    dsts = [b.dst_wide(item, number) for item in items]
    exact = all(b.views[d].width == size for d in dsts)  # type: ignore[union-attr]
    raws = [b.raw(d) for d in dsts] if exact else dsts
    if all(isinstance(item, Reg) for item in items):
        site.slots = [item.slot for item in items if isinstance(item, Reg)]
    any_block = "shared::cluster" in ins.mods
    resolve = resolver(site.space, any_block)
    dtype = DTYPES[number]
    hints = [m for m in ins.mods if m in ("volatile", "relaxed", "acquire")]

    if exact and space in ("shared", "global") and not hints and not any_block:
        locate: Any = shared if space == "shared" else global_access

        def fast(c: WarpBatch, m: Mask) -> None:
            place = locate(c, site, m, size)
            arena = (c.wave if space == "shared" else c.wave.engine.memory).views[size]
            v = c.v
            lanes, index, shift = place.lanes, place.index, place.shift
            if lanes is None and place.mask is None and 0 <= shift < len(arena):
                for d in raws:
                    arena[shift:].take(index, None, v[d], "clip")
                    shift += 1
            else:
                scatter(v, raws, arena, place, None)

        return fast

    def step(c: WarpBatch, m: Mask) -> None:
        for views, place in resolve(c, site, m, size):
            scatter(c.v, raws, views[size], place, None if exact else dtype)
            engine = c.wave.engine
            if views is c.state.get("local") or (engine.undefined_bytes and views is engine.memory.views):
                load_undefined(c, site, views, place, size, ptx_type in SIGNED)

    return step


_LOADS = {"b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"}


@lowering("ld")
def lower_ld(e: Emitter, ins: Instruction, guard: str) -> None:
    """Compiles a load from shared or global memory. The caller has checked the positions; lanes with a false guard have
    none."""
    ptx_type = ins.mods[-1]
    plain = {"global", "shared", "shared::cta", "nc", "ca", "cg", "cs", "lu", "weak", "v2", "v4"}
    for m in ins.mods[:-1]:
        if m not in plain and not m.startswith(("L1::", "L2::")):
            raise UnableError
    if ptx_type not in _LOADS or not {"global", "shared", "shared::cta"} & set(ins.mods):
        raise UnableError
    if not isinstance(ins.operands[1], Mem):
        raise UnableError
    to = ins.operands[0]
    items = to.items if isinstance(to, Vec) else (to,)
    if not all(isinstance(item, (Reg, Sink)) for item in items):
        raise UnableError
    size = SIZES[ptx_type]
    space = "global" if "global" in ins.mods else "shared"
    key, _, constant = e.b.address_key(ins.operands[1].base, space)
    which = ("index", space, key, size)
    at = e.numbers.get(which, "")
    if not at:
        where = e.new(f"getelementptr i64, ptr {e.pointer(which)}, i64 %i")
        number = e.new(f"load i64, ptr {where}")
        offset = e.new(f"mul i64 {number}, {size}")
        at = e.numbers[which] = e.new(f"getelementptr i8, ptr {e.pointer(('arena', space))}, i64 {offset}")
    start = ins.operands[1].offset + constant
    if start:
        at = e.new(f"getelementptr i8, ptr {at}, i64 {start}")
    if guard:
        at = e.new(f"select i1 {guard}, ptr {at}, ptr {e.pointer('nothing')}")
    for n, item in enumerate(items):
        place = e.new(f"getelementptr i8, ptr {at}, i64 {n * size}") if n else at
        if isinstance(item, Sink):
            continue
        width = SIZES[item.type]  # type: ignore[union-attr]
        if width == size and ptx_type in ("f32", "f64"):
            value = Value(size, real=e.new(f"load {REAL[size]}, ptr {place}"))
        else:
            word = e.new(f"load {WORD[size]}, ptr {place}")
            if width < size:
                raise UnableError
            if width > size:
                how = "sext" if ptx_type in SIGNED else "zext"
                word = e.new(f"{how} {WORD[size]} {word} to {WORD[width]}")
            value = Value(width, word)
        e.put(item, value, guard)


def scatter(v: list[Array], dsts: list[int], arena: Array, place: Positions, dtype: Any) -> None:
    """Writes loaded elements to registers. ``dtype``: the type of an element, by which it is extended to a wider
    register."""
    lanes, index = place.lanes, place.index
    if lanes is None and place.mask is not None:
        lanes = flatnonzero(place.mask)
        index = index[lanes]
    index = index + place.shift
    for i, d in enumerate(dsts):
        value = arena[index + i]
        if dtype is not None:
            value = value.view(dtype)
        if lanes is None:
            v[d][...] = value
        else:
            v[d][lanes] = value


def ld_param(b: Builder, ins: Instruction, ptx_type: str, items: tuple[Operand, ...], address: Mem) -> Step:
    """Loads a kernel parameter; the value is the same in all lanes unless the address is in a register."""
    size = SIZES[ptx_type]
    number = f"{'s' if ptx_type in SIGNED else 'u'}{8 * size}"
    base = address.base
    dsts = [b.dst_wide(item, number) for item in items]
    dtype = DTYPES[number]
    if not isinstance(base, Sym):
        site = Site(b, ins, address, "param", size * len(items), "read")

        def gather(c: WarpBatch, m: Mask) -> None:
            lanes = flatnonzero(active(c, m))
            views, place = parameters_at(c, site, site.addresses(c, lanes), lanes, size)
            scatter(c.v, dsts, views[size], place, dtype)

        return gather
    offset = base.var.address + base.offset + address.offset
    start = base.offset + address.offset
    if start < 0 or start + size * len(items) > base.var.size or start % size:
        text = f"{size * len(items)} bytes at offset {start} of {base.var.name}, which has {base.var.size} bytes"

        def outside(c: WarpBatch, m: Mask) -> None:
            lanes = flatnonzero(active(c, m))
            raise fault(OutOfBoundsFault, text, c, ins, int(lanes[0]), start, lanes=lanes)

        return outside

    def step(c: WarpBatch, m: Mask) -> None:
        data = c.wave.engine.params
        v = c.v
        for i, d in enumerate(dsts):
            value = np.frombuffer(data, dtype, 1, offset + i * size)[0]
            if m is None:
                v[d][...] = value
            else:
                v[d][m] = value

    return step


@instruction("st")
def st(b: Builder, ins: Instruction) -> Step:
    checked_mods(b, ins)
    ptx_type = ins.types[-1] if ins.types else ""
    space = space_of(ins)
    if SIZES.get(ptx_type) not in (1, 2, 4, 8) or space in ("param", "const"):
        raise b.unsupported()
    count, size = vector(ins), SIZES[ptx_type]
    site = Site(b, ins, ins.operands[0], space, size * count, "write")
    b.sites.append(site)
    items = elements(b, ins.operands[1], count)
    source = ptx_type if ptx_type in ("f32", "f64") else f"u{8 * size}"
    srcs = [b.src(item, source) for item in items]
    srcs = [b.raw(s) if not isinstance(b.views[s], np.ndarray) and _is_row(b, s, size) else s for s in srcs]
    unsigned = np.dtype(f"<u{size}")
    resolve = resolver(site.space, "shared::cluster" in ins.mods)
    registers = [item if isinstance(item, Reg) else None for item in items]
    strong = any(m in ("volatile", "relaxed", "release", "mmio") for m in ins.mods)
    if site.space != "global" or strong:
        b.propagation = partial(remember, ins, {reg.slot for reg in registers if reg is not None})

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        engine = c.wave.engine
        for views, place in resolve(c, site, m, size):
            arena = views[size]
            local = views is c.state.get("local")
            engine.progress += not local  # other warps cannot wait for local memory
            lanes, index = place.lanes, place.index
            whole = lanes is None
            if lanes is None and place.mask is not None:
                lanes = flatnonzero(place.mask)
                index = index[lanes]
            shift = place.shift
            if engine.shadow is not None and views is engine.memory.views:
                record_store(c, ins, arena, place, [v[s] for s in srcs], size)
            for s in srcs:
                value = v[s]
                if value.dtype != unsigned:
                    value = value.view(unsigned)
                if lanes is not None and value.ndim:
                    value = value[lanes]
                if whole and 0 <= shift < len(arena):
                    arena[shift:][index] = value
                else:
                    arena[index + shift] = value
                shift += 1
            if c.undefined_sources or engine.undefined_bytes or local:
                undefined_store(c, ins, views, place, registers, size, strong)
        c.undefined_sources = {}

    return step


#: bytes of an element -> a mask of all its bits
LOW_BITS = {size: ALL_BITS >> np.uint64(64 - 8 * size) for size in (1, 2, 4, 8)}


def remember(ins: Instruction, sources: set[int], c: WarpBatch, operands: Operands) -> list[Array] | None:
    """The propagation of undefined values by a store, whose step marks the stored bytes. An undefined address is a
    fault."""
    if any(reg.slot not in sources or reg in address_registers(ins) for reg, _ in operands):
        return None
    registers = c.wave.program.undefined
    c.undefined_sources = {
        reg.slot: (
            bits_of(c, registers.flags[reg.slot], bad),
            registers.fault_text(c, reg, ins),
            terms_of(c, registers.flags[reg.slot]),
        )
        for reg, bad in operands
    }
    return []


def stored_bytes(ins: Instruction, text: str) -> str:
    """The name in messages of the bytes that a store of an undefined value writes, with the origin of the value.
    ``text``: the message of a fault at the use of the value."""
    at = text.find("bytes that line")
    if at >= 0:  # the first of a chain of stores
        return text[at:]
    return f"bytes that line {ins.line} stored ({text.replace(' is used; it', '').replace(' is used;', ':')})"


def address_registers(ins: Instruction) -> list[Operand]:
    return [op.base for op in ins.operands if isinstance(op, Mem)]


def undefined_store(
    c: WarpBatch,
    ins: Instruction,
    views: dict[int, Array],
    place: Positions,
    registers: list[Reg | None],
    size: int,
    strong: bool,
) -> None:
    """Marks the bytes that a store has written as defined or undefined.

    A store of an undefined value to global memory is a fault, except a strong store: blocks publish whole vectors, and
    readers may use a part of a vector.
    """
    lanes = place.lanes
    if lanes is None:
        lanes = np.arange(c.n) if place.mask is None else flatnonzero(place.mask)
        index = place.index[lanes]
    else:
        index = place.index
    for i, reg in enumerate(registers):
        bad, text, terms = c.undefined_sources.get(-1 if reg is None else reg.slot, (None, "", None))
        bits = None if bad is None else bad[lanes] & LOW_BITS[size]
        where = None if bits is None else bits != 0
        at = (index + place.shift + i) * size
        if views is c.state.get("local"):
            mark_local(c, at, size, bits)
        elif views is c.wave.engine.memory.views and (strong or c.wave.engine.undefined_bytes):
            if where is not None and any_true(where) and not strong:
                raise fault(UninitialisedFault, text, c, ins, int(lanes[np.argmax(where)]))
            mark_global(c.wave.engine.undefined_bytes, at, size, where, stored_bytes(ins, text))
        elif where is None or not any_true(where):
            continue
        elif views is c.wave.views:
            whole = reg is not None and SIZES[reg.type] == size
            c.wave.checks.mark_undefined(
                at[where], size, stored_bytes(ins, text), terms[lanes][where] if whole and terms is not None else None
            )
        else:
            address = c.wave.program.undefined.shared_address(c, reg, ins) if reg is not None else None
            lane = int(lanes[np.argmax(where)])
            c.wave.engine.report(fault(UninitialisedFault, text, c, ins, lane, address, lanes=lanes[where]))


def undefined_bytes(c: WarpBatch) -> dict[int, Array] | None:
    """The undefined bits of local memory (1: undefined), in views of each size; None if uninitialised values are not
    checked."""
    marks: dict[int, Array] | None = c.state.get("local_undefined")
    if marks is None and c.wave.engine.options.uninitialised:
        marks = c.state["local_undefined"] = typed_views(np.full(c.n * c.wave.program.local_size, 0xFF, np.uint8))
    return marks


def mark_local(c: WarpBatch, at: Array, size: int, undefined: Array | None) -> None:
    """Marks the bits ``undefined`` (None: no bits) of elements of local memory as undefined, and their other bits as
    defined."""
    marks = undefined_bytes(c)
    if marks is not None:
        marks[size][at >> (size.bit_length() - 1)] = 0 if undefined is None else undefined & LOW_BITS[size]


def mark_global(marks: dict[int, str], at: Array, size: int, undefined: Array | None, source: str) -> None:
    """Marks bytes of global memory as undefined in the lanes ``undefined``, and as defined in the other lanes.
    ``source``: the store, for messages."""
    if marks:
        for first in at.tolist() if undefined is None else at[~undefined].tolist():
            for byte in range(first, first + size):
                marks.pop(byte, None)
    if undefined is not None:
        for first in at[undefined].tolist():
            marks.update(dict.fromkeys(range(first, first + size), source))


def undefined_global(marks: dict[int, str], at: Array, size: int) -> tuple[Array, str] | None:
    """The pair (accesses to global memory that read undefined bytes, store that wrote those of the first); None if no
    access reads undefined bytes."""
    sources = [next((marks[i] for i in range(first, first + size) if i in marks), "") for first in at.tolist()]
    bad = np.array([bool(source) for source in sources])
    return (bad, next(filter(None, sources))) if any_true(bad) else None


def undefined_local(c: WarpBatch, at: Array, size: int, signed: bool) -> Array | None:
    """The undefined bits of each loaded element of local memory, extended as the load extends the element; None if all
    bits are defined."""
    marks = undefined_bytes(c)
    if marks is None:
        return None
    bits: Array = marks[size][at >> (size.bit_length() - 1)].astype(np.uint64)
    if not any_true(bits):
        return None
    if signed:
        bits[bits >> np.uint64(8 * size - 1) != 0] |= ~LOW_BITS[size]
    return bits


def load_undefined(
    c: WarpBatch, site: Site, views: dict[int, Array], place: Positions, size: int, signed: bool
) -> None:
    """Marks the registers that a load fills with undefined bytes of local or global memory."""
    lanes, index = place.lanes, place.index
    if lanes is None:
        lanes = np.arange(c.n) if place.mask is None else flatnonzero(place.mask)
        index = index[lanes]
    loaded: dict[int, tuple[Array, int, str]] = {}
    for i, slot in enumerate(site.slots or []):
        at = (index + place.shift + i) * size
        if views is c.state.get("local"):
            bad, source = undefined_local(c, at, size, signed), "local memory that nothing has written"
            base, length = 0, c.wave.program.local_size
        else:
            bad, source = undefined_global(c.wave.engine.undefined_bytes, at, size) or (None, "")
            base, length = GLOBAL_BASE, 1 << 48
        if bad is not None:
            where = np.zeros(c.n, bad.dtype)
            where[lanes] = bad
            loaded[slot] = (where, base + int(at[np.argmax(bad != 0)]) % length, source)
    if loaded:
        c.wave.program.mark_undefined(c, loaded, site.ins)


def record_store(
    c: WarpBatch, ins: Instruction, arena: Array, place: Positions, values: list[Array], size: int
) -> None:
    """Applies the race checks to a store to global memory, before it writes."""
    lanes, index = place.lanes, place.index
    if lanes is None and place.mask is None:
        lanes = c.every_lane
    elif lanes is None:
        lanes = flatnonzero(place.mask)
        index = index[lanes]
    index = index + place.shift
    new, old = np.empty((2, len(values), len(index)), arena.dtype)
    for i, x in enumerate(values):
        x = x.view(arena.dtype)
        new[i] = x if x.ndim == 0 or lanes is c.every_lane else x[lanes]
        old[i] = arena[index + i if i else index]
    shadow = c.wave.engine.shadow
    assert shadow is not None
    shadow.store(c, ins, index * size, lanes, size * len(values), old, new)


def _is_row(b: Builder, index: int, size: int) -> bool:
    view = b.views[index]
    return getattr(view, "width", 0) == size


@instruction("prefetch", "prefetchu", "applypriority", "discard")
def prefetch(b: Builder, ins: Instruction) -> Step:
    for op in ins.operands:
        if isinstance(op, Mem):
            b.address_key(op.base, space_of(ins))
    return lambda c, m: None


@instruction("createpolicy")
def createpolicy(b: Builder, ins: Instruction) -> Step:
    dst = b.dst(ins.operands[0], "u64")
    return lambda c, m: c.v[dst].__setitem__(slice(None) if m is None else m, 0)
