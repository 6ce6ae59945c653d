"""mov, cvta and other copies of a value."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import LOCAL_END, SHARED_WINDOW, WINDOW, WINDOWS
from ptxgen.emulator.ops.data_movement.load_store import elements
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.operands.emitter import WORD, Emitter, UnableError, Value, copy_of, lowering, only, raw
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Operand, Special, Vec
from ptxgen.emulator.warp_batch import Step, View, WarpBatch

Mask = NDArray[np.bool_] | None


copyto = np.copyto


def copy(dst: int, src: int) -> Step:
    """A step that copies one row to another of the same type."""

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        if m is None:
            copyto(v[dst], v[src])
        else:
            copyto(v[dst], v[src], where=m)

    return step


def copies(b: Builder, pairs: list[tuple[int, int]]) -> Step:
    """A step that copies several rows, each pair (destination, source), as if it read all sources first."""

    def row(index: int) -> Any:
        view = b.views[index]
        return (view.width, view.row) if isinstance(view, View) else None

    written = [row(dst) for dst, _ in pairs]
    overlapping = any(row(src) in written[:i] for i, (_, src) in enumerate(pairs))

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        where: Any = True if m is None else m
        values = [v[src].copy() if overlapping else v[src] for _, src in pairs]
        for (dst, _), value in zip(pairs, values, strict=True):
            copyto(v[dst], value, where=where)

    return step


@instruction("mov")
def mov(b: Builder, ins: Instruction) -> Step:
    if ins.mods[-1] not in SIZES or len(ins.operands) != 2 or ins.mods[:-1] not in ((), ("v2",), ("v4",)):
        raise b.unsupported()
    dtype = ins.mods[-1]
    if SIZES[dtype] == 1 and not ins.hidden:
        raise b.malformed(f".{dtype} is no type of mov; registers of 8 bits are packed and unpacked")
    d, a = ins.operands
    if len(ins.mods) == 2:
        count, raw = int(ins.mods[0][1]), f"u{8 * SIZES[dtype]}"
        if not 2 <= SIZES[dtype] <= 16 // count:
            raise b.malformed(f"{ins.mods[0]}.{dtype} is no type of mov; elements have 16 to {128 // count} bits")
        pairs = zip(*(elements(b, x, count) for x in (d, a)), strict=True)
        return copies(b, [(b.dst(to, raw), b.src(source, raw)) for to, source in pairs])
    if isinstance(d, Vec) or isinstance(a, Vec):
        return pack(b, dtype, d, a)
    if isinstance(a, Special) and a.name[1:].split("_")[0] in ("clock", "clock64", "globaltimer"):
        return clock(b, dtype, d, a.name)
    if dtype == "b128":
        raise b.unsupported("128-bit registers")
    raw = "pred" if dtype == "pred" else f"u{8 * SIZES[dtype]}"
    if dtype in ("f32", "f64"):
        return copy(b.dst(d, dtype), b.src(a, dtype))
    return copy(b.dst(d, raw), b.src(a, raw))


@lowering("mov")
def lower_mov(e: Emitter, ins: Instruction, guard: str) -> None:
    dtype = only(ins)
    d, a = ins.operands
    if dtype in ("b128", "f16", "bf16"):
        raise UnableError
    if isinstance(d, Vec) or isinstance(a, Vec):
        return lower_pack(e, dtype, d, a, guard)
    if getattr(a, "name", "")[:6] in ("%clock", "%globa"):
        raise UnableError
    v = e.src(a, dtype if dtype in ("f32", "f64", "pred") else raw(dtype))
    e.put(d, copy_of(e, v), guard)
    return None


def pack(b: Builder, dtype: str, d: Any, a: Any) -> Step:
    """mov between a vector and a single register, which packs or unpacks elements."""
    vec, whole = (d, a) if isinstance(d, Vec) else (a, d)
    if not isinstance(vec, Vec) or isinstance(whole, Vec):
        raise b.malformed("both sides are vectors; one must be a single register")
    size = SIZES[dtype] // len(vec.items)
    if len(vec.items) not in (2, 4) or size * len(vec.items) != SIZES[dtype] or size not in (1, 2, 4):
        raise b.unsupported("this packing")
    piece = f"u{8 * size}"
    if vec is a:
        return copies(b, [(b.part(whole, piece, i, True), b.src(item, piece)) for i, item in enumerate(vec.items)])
    return copies(b, [(b.dst(item, piece), b.part(whole, piece, i, False)) for i, item in enumerate(vec.items)])


def lower_pack(e: Emitter, dtype: str, d: Operand, a: Operand, guard: str) -> None:
    vec, whole = (d, a) if isinstance(d, Vec) else (a, d)
    if not isinstance(vec, Vec) or isinstance(whole, Vec):
        raise UnableError
    size = SIZES[dtype] // len(vec.items)
    if size not in (1, 2, 4) or size * len(vec.items) != SIZES[dtype]:
        raise UnableError
    big = WORD[SIZES[dtype]]
    if vec is a:
        total = ""
        for n, item in enumerate(vec.items):
            piece = e.resize(e.word(e.src(item, f"u{8 * size}")), size, SIZES[dtype], False)
            if n:
                piece = e.new(f"shl {big} {piece}, {8 * size * n}")
            total = e.new(f"or {big} {total}, {piece}") if total else piece
        e.put(whole, Value(SIZES[dtype], total), guard)
        return
    word = e.word(e.src(whole, f"u{8 * SIZES[dtype]}"))
    for n, item in enumerate(vec.items):
        piece = e.new(f"lshr {big} {word}, {8 * size * n}") if n else word
        e.put(item, Value(size, e.resize(piece, SIZES[dtype], size, False)), guard)


def clock(b: Builder, dtype: str, d: Any, name: str) -> Step:
    if SIZES[dtype] not in (4, 8):
        raise b.malformed(f"{name} has 32 or 64 bits, .{dtype} is needed")
    dst = b.dst(d, f"u{8 * SIZES[dtype]}")
    shift = 32 if name.endswith("_hi") else 0
    wide = SIZES[dtype] == 8

    def step(c: WarpBatch, m: Mask) -> None:
        now = time.perf_counter_ns() >> shift
        row = c.v[dst]
        value = np.array(now & (0xFFFFFFFFFFFFFFFF if wide else 0xFFFFFFFF), row.dtype)
        if m is None:
            copyto(row, value)
        else:
            copyto(row, value, where=m)

    return step


@instruction("cvta")
def cvta(b: Builder, ins: Instruction) -> Step:
    to = ins.mods[0] == "to"
    space = ins.mods[1 if to else 0].split("::")[0]
    base = {"global": 0, "const": 0, **WINDOWS}.get(space)
    if base is None or ins.mods[-1] != "u64":
        raise b.unsupported()
    dst, src = b.dst(ins.operands[0], "u64"), b.src(ins.operands[1], "u64")
    if base == 0:
        return copy(dst, src)
    if space == "local":
        return local_cvta(dst, src, to)
    offset = np.array(-base & 0xFFFFFFFFFFFFFFFF if to else base, np.uint64)

    def step(c: WarpBatch, m: Mask) -> None:
        v = c.v
        np.add(v[src], offset, out=v[dst], where=True if m is None else m)

    return step


@lowering("cvta")
def lower_cvta(e: Emitter, ins: Instruction, guard: str) -> None:
    space = ins.mods[1 if ins.mods[0] == "to" else 0].split("::")[0]
    if space not in ("global", "const") or ins.mods[-1] != "u64":
        raise UnableError
    e.put(ins.operands[0], copy_of(e, e.src(ins.operands[1], "u64")), guard)


def local_cvta(dst: int, src: int, to: bool) -> Step:
    """Converts between local and generic addresses; the offset differs from thread to thread."""
    ufunc = np.subtract if to else np.add

    def step(c: WarpBatch, m: Mask) -> None:
        ufunc(c.v[src], c.local_windows(), out=c.v[dst], where=True if m is None else m)

    return step


@instruction("isspacep")
def isspacep(b: Builder, ins: Instruction) -> Step:
    space = ins.mods[0].split("::")[0]
    base = WINDOWS.get(space)
    if base is None and space not in ("global", "const"):
        raise b.unsupported()
    dst, src = b.dst(ins.operands[0], "pred"), b.src(ins.operands[1], "u64")

    def step(c: WarpBatch, m: Mask) -> None:
        at = c.v[src]
        if base is None:
            inside = at < np.uint64(SHARED_WINDOW)
            constant = np.zeros(inside.shape, bool)
            for start, end in c.wave.engine.memory.constants.items():
                constant |= (at >= np.uint64(start)) & (at < np.uint64(end))
            inside = constant if space == "const" else inside & ~constant
        else:
            end = LOCAL_END if space == "local" else base + WINDOW
            inside = (at >= np.uint64(base)) & (at < np.uint64(end))
        copyto(c.v[dst], inside, where=True if m is None else m)

    return step
