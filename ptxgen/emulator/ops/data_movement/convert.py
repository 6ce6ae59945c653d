"""cvt, for all pairs of types and all modifiers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ptxgen.emulator.ops.arithmetic.llvm_numerics import HALVES, narrow_half, widened
from ptxgen.emulator.ops.arithmetic.numerics import (
    BITS,
    FLOAT,
    add_odd,
    canonical,
    flush,
    flush_rounded,
    round_to,
    saturate,
    wide,
)
from ptxgen.emulator.ops.operands.builder import Array, Builder, into
from ptxgen.emulator.ops.operands.emitter import INTEGERS, REAL, Emitter, UnableError, Value, lowering
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import FP8, SIGNED
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Reg
from ptxgen.emulator.reductions import any_true
from ptxgen.emulator.warp_batch import Step, View

_ROUND_INT: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


_MODES = {"rn", "rz", "rm", "rp", "rna", *_ROUND_INT}


finfo: Any = ml_dtypes.finfo


_FP8_PAIRS = {f"{name}x2" for name in FP8}


@instruction("cvt")
def cvt(b: Builder, ins: Instruction) -> Step:
    types = ins.types
    if len(types) != 2 or not set(ins.mods) <= _MODES | set(SIZES) | {"ftz", "sat", "satfinite", "relu"}:
        raise b.unsupported()
    to, source = types
    if to in {"f16x2", "bf16x2", *_FP8_PAIRS} or source in _FP8_PAIRS:
        return pairs(b, ins, to, source)
    if to == "tf32":
        return tf32(b, ins, source)
    mode = next((m for m in ins.mods if m in _MODES), "")
    ftz, sat, relu = "ftz" in ins.mods, "sat" in ins.mods, "relu" in ins.mods
    finite = "satfinite" in ins.mods
    src = b.src(ins.operands[1], source)
    if to in FLOAT:
        dst = b.dst_wide(ins.operands[0], to) if to in ("f16", "bf16") else b.dst(ins.operands[0], to)
    else:
        dst = b.dst_wide(ins.operands[0], to)
    if (to, source) == ("f32", "bf16") and not (ftz or sat or relu or finite or mode):
        body = bf16_to_f32
    elif to in FLOAT and source in FLOAT:
        body = float_to_float(to, source, mode, ftz, sat, relu, finite)
    elif to in FLOAT:
        body = int_to_float(to, source, mode or "rn", sat)
    elif source in FLOAT:
        if mode not in _ROUND_INT:
            raise b.malformed("a rounding to an integer is needed: .rni, .rzi, .rmi or .rpi")
        body = float_to_int(to, source, mode, ftz)
    else:
        body = int_to_int(to, source, sat)

    def compute(v: list[Array], out: Array) -> None:
        value = body(v[src])
        if value.dtype != out.dtype and to in ("f16", "bf16"):
            value = value.view(np.uint16)
        np.copyto(out, value, casting="unsafe")

    if to not in FLOAT and source not in FLOAT and not sat and SIZES[to] == SIZES[source] == view_width(b, dst):
        return into(b, dst, lambda v, out: np.copyto(out, v[src], casting="unsafe"))
    return into(b, dst, compute)


@lowering("cvt")
def lower_cvt(e: Emitter, ins: Instruction, guard: str) -> None:
    types = ins.types
    if len(types) != 2 or not isinstance(ins.operands[0], Reg):
        raise UnableError
    to, source = types
    mods = [m for m in ins.mods if m not in SIZES]
    width = SIZES[ins.operands[0].type]
    if {to, source} <= INTEGERS | {"u8", "s8"} and not mods:
        word = e.word(e.src(ins.operands[1], source))
        word = e.resize(word, SIZES[source], SIZES[to], source in SIGNED)
        if width < SIZES[to]:
            raise UnableError
        e.put(ins.operands[0], Value(width, e.resize(word, SIZES[to], width, to in SIGNED)), guard)
        return
    if to in ("f32", "f64") and source in ("u32", "s32") and mods == ["rn"] and width == SIZES[to]:
        word = e.word(e.src(ins.operands[1], source))
        how = "sitofp" if source == "s32" else "uitofp"
        e.put(ins.operands[0], Value(width, real=e.new(f"{how} i32 {word} to {REAL[width]}")), guard)
        return
    if to in ("f16", "bf16") and source == "f32" and mods == ["rn"] and width == 2:
        number = e.new(f"fpext float {e.real(e.src(ins.operands[1], 'f32'))} to double")
        e.put(ins.operands[0], Value(2, narrow_half(e, number, HALVES[to])), guard)
        return
    if (to, source) == ("f32", "f16") and not mods and width == 4:
        e.put(ins.operands[0], widened(e, e.word(e.src(ins.operands[1], "u16"))), guard)
        return
    raise UnableError


@instruction("cvt.pack")
def pack_integers(b: Builder, ins: Instruction) -> Step:
    """cvt.pack: two words, clamped to a narrower type, below the low bits of a third word."""
    mods = ins.mods
    if len(mods) < 4 or mods[1] != "sat" or mods[3] != "s32" or mods[2][0] not in "us" or not mods[2][1:].isdigit():
        raise b.unsupported()
    size, signed = int(mods[2][1:]), mods[2][0] == "s"
    if size not in (2, 4, 8, 16) or len(ins.operands) != (3 if size == 16 else 4):
        raise b.malformed("d, a, b, and c for types of up to 8 bits, are needed")
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if signed else (0, (1 << size) - 1)
    x, y = b.src(ins.operands[1], "s32"), b.src(ins.operands[2], "s32")
    rest = b.src(ins.operands[3], "u32") if size < 16 else None
    mask = np.uint32((1 << size) - 1)

    def compute(v: list[Array], out: Array) -> None:
        first, second = (np.clip(v[i], low, high).astype(np.uint32) & mask for i in (x, y))
        word = first << np.uint32(size) | second
        out[...] = word if rest is None else word | v[rest] << np.uint32(2 * size)

    return into(b, b.dst(ins.operands[0], "u32"), compute)


def view_width(b: Builder, index: int) -> int:
    """The size in bytes of the register of a view."""
    view = b.views[index]
    return view.width if isinstance(view, View) else 0


def limits(ptx_type: str) -> tuple[int, int]:
    bits = 8 * SIZES[ptx_type]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if ptx_type in SIGNED else (0, (1 << bits) - 1)


def int_dtype(ptx_type: str) -> Any:
    return np.dtype(f"<{'i' if ptx_type in SIGNED else 'u'}{SIZES[ptx_type]}")


def int_to_int(to: str, source: str, sat: bool) -> Any:
    dtype = int_dtype(to)
    low, high = limits(to)
    s_low, s_high = limits(source)

    def body(x: Array) -> Any:
        if sat:
            x = np.clip(x, np.array(max(low, s_low), x.dtype), np.array(min(high, s_high), x.dtype))
        return x.astype(dtype)

    return body


def int_to_float(to: str, source: str, mode: str, sat: bool) -> Any:
    big = SIZES[source] == 8

    def body(x: Array) -> Array:
        if (to == "f64" and mode == "rn") or not big:
            exact = x.astype(np.float64)
        else:
            # the high and low halves are exact; their sum is rounded to odd
            low = (x & np.array(0xFFFFFFFF, x.dtype)).astype(np.float64)
            high = (x >> np.array(32, x.dtype)).astype(np.float64) * 2.0**32
            if to == "f64":
                near = high + low
                lost = (high - near) + low
                shift = {"rz": (near > 0) & (lost < 0) | (near < 0) & (lost > 0), "rm": lost < 0, "rp": lost > 0}[mode]
                toward = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
                moved: Array = np.where(shift, np.nextafter(near, toward), near)
                return moved
            exact = add_odd(high, low)
        out = round_to(np.asarray(exact), to, mode)
        return saturate(out) if sat else out

    return body


def float_to_int(to: str, source: str, mode: str, ftz: bool) -> Any:
    dtype = int_dtype(to)
    low, high = limits(to)
    nan = 1 << (8 * SIZES[to] - 1) if SIZES[to] == 8 or source == "f64" else 0
    if to in SIGNED:
        nan = -nan

    def body(x: Array) -> Array:
        a = wide(flush(x, source) if ftz else x)
        a = _ROUND_INT[mode](a)
        bottom, top = a <= float(low), a >= float(high)
        safe = np.where(bottom | top | np.isnan(a), 0.0, a)
        out = safe.astype(dtype)
        out = np.where(bottom, np.array(low, dtype), np.where(top, np.array(high, dtype), out))
        return np.where(np.isnan(a), np.array(nan, dtype), out)

    return body


def bf16_to_f32(x: Array) -> Array:
    """Converts bf16 to float32: appends 16 zero bits, so that a NaN is unchanged."""
    return (np.atleast_1d(x).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def float_to_float(to: str, source: str, mode: str, ftz: bool, sat: bool, relu: bool, finite: bool) -> Any:
    # conversions with f64 on either side keep NaNs
    keeps_nan = not sat and "f64" in (to, source)

    def body(x: Array) -> Array:
        a = flush(x, "f32") if ftz and source == "f32" else x
        if mode in _ROUND_INT:
            out = _ROUND_INT[mode](wide(a)).astype(FLOAT[to])
        elif to == source:
            out = np.array(a)
        elif SIZES[to] > SIZES[source]:
            out = a.astype(FLOAT[to])
        else:
            out = np.atleast_1d(np.asarray(round_to(np.atleast_1d(wide(a)), to, mode or "rn")))
        if ftz and to == "f32":
            out = flush_rounded(out, "f32", mode or "rn", lambda: wide(a)) if source == "f64" else flush(out, "f32")
        if finite:
            big: Any = finfo(FLOAT[to]).max
            out = np.where(np.isinf(out), np.copysign(np.array(big, FLOAT[to]), out), out)
        if sat:
            out = saturate(out)
        if relu:
            out = np.where(out > 0, out, np.where(np.isnan(out), out, np.zeros((), out.dtype)))
        out = np.atleast_1d(np.ascontiguousarray(out))
        if keeps_nan and not relu:
            nan = np.isnan(np.atleast_1d(a))
            if any_true(nan):
                out.view(BITS[to])[nan] = converted_nan(np.ascontiguousarray(np.atleast_1d(a)), source, to)[nan]
        else:
            canonical(out, to)
        return out

    return body


#: type -> number of its fraction bits
FRACTION_BITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def converted_nan(a: Array, source: str, to: str) -> Array:
    """The quiet NaNs to which the hardware converts NaNs: the sign and the upper part of the payload are kept."""
    word = a.view(BITS[source]).astype(np.uint64)
    top, digits = 8 * SIZES[to] - 1, FRACTION_BITS[to]
    sign = (word >> np.uint64(8 * SIZES[source] - 1)) << np.uint64(top)
    payload = word & np.uint64((1 << FRACTION_BITS[source]) - 1)
    shift = FRACTION_BITS[source] - digits
    payload = payload >> np.uint64(shift) if shift > 0 else payload << np.uint64(-shift)
    quiet = np.uint64((1 << top) - (1 << (digits - 1)))
    moved: Array = (sign | quiet | payload).astype(BITS[to])
    return moved


def tf32(b: Builder, ins: Instruction, source: str) -> Step:
    if source != "f32":
        raise b.unsupported()
    away, relu, finite = "rna" in ins.mods, "relu" in ins.mods, "satfinite" in ins.mods
    truncate = "rz" in ins.mods
    x = b.src(ins.operands[1], "u32")
    dst = b.dst(ins.operands[0], "u32")

    def compute(v: list[Array], out: Array) -> None:
        word = v[x]
        nan = (word & np.uint32(0x7FFFFFFF)) > 0x7F800000
        add: Any
        if away:
            add = np.uint32(0x1000)
        elif truncate:
            add = np.uint32(0)
        else:
            add = np.uint32(0xFFF) + ((word >> np.uint32(13)) & np.uint32(1))
        infinite = (word & np.uint32(0x7FFFFFFF)) == 0x7F800000
        near = np.where(infinite, word, (word + add) & np.uint32(0xFFFFE000))
        if finite:
            over = (near & np.uint32(0x7FFFFFFF)) == 0x7F800000
            near = np.where(over, (near & np.uint32(0x80000000)) | np.uint32(0x7F7FE000), near)
        if relu:
            near = np.where(near >> np.uint32(31) != 0, np.uint32(0), near)
        # .rna truncates a NaN; the other roundings give the canonical NaN
        out[...] = np.where(nan, word & np.uint32(0xFFFFE000) if away else np.uint32(0x7FFFE000), near)

    return into(b, dst, compute)


def to_fp8(x: Array, ptx_type: str) -> Array:
    """Converts float32 or float16 to fp8 bits: to nearest even, clamped to the largest finite number."""
    dtype = FP8[ptx_type]
    big = float(finfo(dtype).max)
    a = np.clip(x.astype(np.float32), -big, big)
    bits = a.astype(dtype).view(np.uint8)
    return np.where(np.isnan(x), np.uint8(0x7F), bits)


def pairs(b: Builder, ins: Instruction, to: str, source: str) -> Step:
    mode = next((m for m in ins.mods if m in _MODES), "rn")
    relu, finite = "relu" in ins.mods, "satfinite" in ins.mods
    base = to.removesuffix("x2")

    def clip(x: Array) -> Array:
        return np.where(x > 0, x, np.where(np.isnan(x), x, np.zeros((), x.dtype))) if relu else x

    if source in _FP8_PAIRS:
        src = b.src(ins.operands[1], "u16")
        dst = b.dst(ins.operands[0], "f16x2")
        dtype = FP8[source[:4]]

        def widen(v: list[Array], out: Array) -> None:
            word = np.broadcast_to(v[src], (len(out) // 2,)).copy()
            value = clip(word.view(np.uint8).view(dtype).astype(np.float32)).astype(np.float16)
            out[...] = value
            canonical(out, "f16")

        return into(b, dst, widen)
    if base in FP8:
        dst = b.dst(ins.operands[0], "u16")
        if source == "f32":
            upper, lower = b.src(ins.operands[1], "f32"), b.src(ins.operands[2], "f32")

            def narrow(v: list[Array], out: Array) -> None:
                hi, lo = (to_fp8(clip(v[i]), base).astype(np.uint16) for i in (upper, lower))
                out[...] = (hi << np.uint16(8)) | lo

            return into(b, dst, narrow)
        if source != "f16x2":
            raise b.unsupported()
        both = b.src(ins.operands[1], "f16x2")

        def narrow_pair(v: list[Array], out: Array) -> None:
            bits = to_fp8(clip(np.broadcast_to(v[both], (2 * len(out),))), base)
            out[...] = np.ascontiguousarray(bits).view(np.uint16)

        return into(b, dst, narrow_pair)
    if source != "f32" or base not in ("f16", "bf16"):
        raise b.unsupported()
    upper, lower = b.src(ins.operands[1], "f32"), b.src(ins.operands[2], "f32")
    dst = b.dst(ins.operands[0], to)
    body = float_to_float(base, "f32", mode, False, False, relu, finite)

    def pack(v: list[Array], out: Array) -> None:
        out[1::2], out[::2] = body(v[upper]), body(v[lower])

    return into(b, dst, pack)
