"""The LLVM text of floating-point conversions and of NaN results; the bits are those that ``numerics`` computes."""

from __future__ import annotations

from ptxgen.emulator.ops.operands.emitter import Emitter, Value

#: 16-bit formats, with one or two elements in a register: (fraction bits, exponent bias)
HALVES = {"f16": (10, 15), "f16x2": (10, 15), "bf16": (7, 127), "bf16x2": (7, 127)}


def with_hardware_nan(e: Emitter, text: str, *operands: str) -> Value:
    """A float64 result with the NaN of the hardware: the first NaN operand, made quiet, or the default NaN."""
    bad = e.new(f"fcmp uno double {text}, {text}")
    word = str(0xFFF8 << 48)
    for x in reversed(operands):
        nan = e.new(f"fcmp uno double {x}, {x}")
        bits = e.new(f"bitcast double {x} to i64")
        quiet = e.new(f"or i64 {bits}, {1 << 51}")
        word = e.new(f"select i1 {nan}, i64 {quiet}, i64 {word}")
    bits = e.new(f"bitcast double {text} to i64")
    return Value(8, e.new(f"select i1 {bad}, i64 {word}, i64 {bits}"))


def real_result(e: Emitter, dtype: str, text: str, *operands: str) -> Value:
    return Value(4, real=text, clean=False) if dtype == "f32" else with_hardware_nan(e, text, *operands)


def wide_half(e: Emitter, half: str, form: tuple[int, int]) -> str:
    """Converts a 16-bit floating-point number to float64."""
    if form[0] == 10:
        single = e.real(widened(e, half))
    else:
        bits = e.new(f"zext i16 {half} to i32")
        up = e.new(f"shl i32 {bits}, 16")
        single = e.new(f"bitcast i32 {up} to float")
    return e.new(f"fpext float {single} to double")


def sum_to_odd(e: Emitter, x: str, y: str) -> str:
    """x + y in float64, rounded to odd: an inexact sum becomes the neighbouring number whose last bit is 1."""
    total = e.new(f"fadd double {x}, {y}")
    back = e.new(f"fsub double {total}, {x}")
    a = e.new(f"fsub double {total}, {back}")
    b = e.new(f"fsub double {x}, {a}")
    c = e.new(f"fsub double {y}, {back}")
    lost = e.new(f"fadd double {b}, {c}")
    inexact = e.new(f"fcmp one double {lost}, 0.0")
    bits = e.new(f"bitcast double {total} to i64")
    even = e.new(f"xor i64 {bits}, 1")
    parity = e.new(f"trunc i64 {even} to i1")
    move = e.new(f"and i1 {inexact}, {parity}")
    up = e.new(f"fcmp ogt double {lost}, 0.0")
    positive = e.new(f"fcmp ogt double {total}, 0.0")
    away = e.new(f"xor i1 {up}, {positive}")
    step = e.new(f"select i1 {away}, i64 -1, i64 1")
    amount = e.new(f"select i1 {move}, i64 {step}, i64 0")
    moved = e.new(f"add i64 {bits}, {amount}")
    return e.new(f"bitcast i64 {moved} to double")


def narrow_half(e: Emitter, x: str, form: tuple[int, int]) -> str:
    """Converts float64 to a 16-bit floating-point number, to nearest even; NaN becomes 0x7fff."""
    digits, bias = form
    cut = 52 - digits
    bits = e.new(f"bitcast double {x} to i64")
    size = e.new(f"and i64 {bits}, {(1 << 63) - 1}")
    # a normal result: add half of the last bit and truncate
    last = e.new(f"lshr i64 {size}, {cut}")
    odd = e.new(f"and i64 {last}, 1")
    half = e.new(f"add i64 {size}, {(1 << (cut - 1)) - 1}")
    near = e.new(f"add i64 {half}, {odd}")
    moved = e.new(f"lshr i64 {near}, {cut}")
    normal = e.new(f"sub i64 {moved}, {(1023 - bias) << digits}")
    top = (2 * bias + 1) << digits
    over = e.new(f"icmp ugt i64 {near}, {(1023 + bias + 1) << 52}")
    capped = e.new(f"select i1 {over}, i64 {top}, i64 {normal}")
    # a subnormal result: add a number whose last bit has the weight of the last bit of subnormal numbers
    magic = (1023 + 1 - bias - digits + 52) << 52
    number = e.new(f"bitcast i64 {size} to double")
    other = e.new(f"bitcast i64 {magic} to double")
    total = e.new(f"fadd double {number}, {other}")
    whole = e.new(f"bitcast double {total} to i64")
    small = e.new(f"sub i64 {whole}, {magic}")
    tiny = e.new(f"icmp ult i64 {size}, {(1023 + 1 - bias) << 52}")
    result = e.new(f"select i1 {tiny}, i64 {small}, i64 {capped}")
    above = e.new(f"lshr i64 {bits}, 48")
    sign = e.new(f"and i64 {above}, 32768")
    signed = e.new(f"or i64 {result}, {sign}")
    nan = e.new(f"icmp ugt i64 {size}, {0x7FF << 52}")
    word = e.new(f"select i1 {nan}, i64 32767, i64 {signed}")
    return e.new(f"trunc i64 {word} to i16")


def widened(e: Emitter, half: str) -> Value:
    """Converts float16 to float32: shifts the bits and rescales the exponent by an exact multiplication."""
    wide = e.new(f"zext i16 {half} to i32")
    size = e.new(f"and i32 {wide}, 32767")
    low = e.new(f"shl i32 {size}, 13")
    number = e.new(f"bitcast i32 {low} to float")
    moved = e.new(f"fmul float {number}, 0x46F0000000000000")  # 2^112
    scaled = e.new(f"bitcast float {moved} to i32")
    infinite = e.new(f"or i32 {low}, {255 << 23}")
    special = e.new(f"icmp uge i32 {low}, {31 << 23}")
    bits = e.new(f"select i1 {special}, i32 {infinite}, i32 {scaled}")
    top = e.new(f"and i32 {wide}, 32768")
    sign = e.new(f"shl i32 {top}, 16")
    word = e.new(f"or i32 {bits}, {sign}")
    nan = e.new(f"icmp ugt i32 {low}, {31 << 23}")
    return Value(4, e.new(f"select i1 {nan}, i32 2147483647, i32 {word}"))
