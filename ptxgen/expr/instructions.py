"""The PTX instructions of each operator, by type and target, with the pipes that execute them.

Registers of 32 bits hold values of 8- and 16-bit integers, extended by sign or zeros, or two values of 16 bits each
(``value_types.PAIRS``); registers of 16 bits hold values of f16 and bf16. A row of the table is a short sequence of
instructions, of which only the last one writes the result.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ptxgen.errors import DtypeError, InputError
from ptxgen.expr import functions_f64
from ptxgen.expr.node import Node, constant
from ptxgen.expr.operators import OPERATORS, Operator
from ptxgen.expr.value_types import PRED, VALUE_TYPES, type_of

#: pipes: ``fma`` executes multiply-adds of f32 and f16, ``imad`` multiplications of integers, ``alu`` comparisons,
#: logic and sums of integers, ``xu`` special functions and most conversions, ``fp64`` f64
PIPES = ("fma", "imad", "alu", "xu", "fp64")
OLDEST = 75  #: the first target of ptxgen


@dataclass(frozen=True)
class Row:
    """One row of the instruction table. ``operator``: an operator of ``expr.operators``, or ``cast``, ``select`` or
    ``mad`` (multiply-add of integers); ``operand``, ``result``: the types of the operands (for ``select``, of the two
    values) and of the result; ``first``: the first target that has the instructions; ``lines``: the PTX, with ``{d}``
    for the result, ``{a}``, ``{b}``, ``{c}`` for the operands and names such as ``{f32_x}`` for temporary registers;
    empty if the register of the operand already has the value; ``pipes``: the number of instructions of each pipe;
    ``relative``, ``absolute``: bounds of the error of an approximate instruction, in addition to its rounding."""

    operator: str
    operand: str
    result: str
    first: int
    lines: tuple[str, ...]
    pipes: tuple[tuple[str, int], ...]
    relative: float = 0.0
    absolute: float = 0.0


def register_class(type: str) -> str:
    """The PTX type of the registers that hold values of this type."""
    t = type_of(type)
    if t.group == "predicate":
        return PRED
    if t.values > 1:
        return "b32"
    if t.floating:
        return type if t.bits > 16 else "b16"
    return "b64" if t.bits == 64 else "b32"


def literal(x: Node) -> str:
    """A constant as PTX text: floats by their bits; a pair of 16-bit values has the number in both halves."""
    if type_of(x.type).values > 1:
        half = constant(x.value, x.type.removesuffix("x2"))
        bits = int(literal(half), 0) & 0xFFFF
        return f"0x{bits << 16 | bits:08X}"
    if x.type == "f64":
        return f"0d{struct.unpack('<Q', struct.pack('<d', x.value))[0]:016X}"
    if x.type == "f32":
        with np.errstate(over="ignore"):
            return f"0f{int(np.array(x.value, np.float32).view(np.uint32)):08X}"
    if x.type == "f16":
        with np.errstate(over="ignore"):
            return f"0x{int(np.array(x.value, np.float16).view(np.uint16)):04X}"
    if x.type == "bf16":
        return f"0x{_bf16_bits(x.value):04X}"
    return str(int(x.value))


def _bf16_bits(value: float) -> int:
    """The bits of a number rounded to bf16."""
    if math.isnan(value):
        return 0x7FC0
    with np.errstate(over="ignore"):
        word = int(np.array(value, np.float32).view(np.uint32))
    return word >> 16 if math.isinf(value) else (word + 0x7FFF + (word >> 16 & 1)) >> 16


_COMPARISONS = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne"}
_LOGIC = {"&": "and", "|": "or", "^": "xor"}
_NAN = {"f32": "0f7FFFFFFF", "f64": "0d7FF8000000000000"}
#: operators of f16 and bf16 that are computed in f32
_IN_F32 = ("/", "sqrt", "rcp", "rsqrt", "exp", "exp2", "log", "log2", "erf", "tanh", "pow")


#: exp(x) = 2^n 2^r for r = x log2(e) - n. log2(e) is the sum of two constants, so that the error does not grow with x.
#: n is rounded by adding 1.5 · 2^23, and clamped to -126 … 126 by saturation to 0 … 1; if n is clamped, r is larger
_EXP = "; ".join(
    (
        "fma.rn.sat.f32 {f32_n}, {a}, 0f3BBB989D, 0f3F000000",
        "fma.rm.f32 {f32_n}, {f32_n}, 0f437C0000, 0f4B400001",
        "add.rn.f32 {f32_r}, {f32_n}, 0fCB40007F",
        "neg.f32 {f32_r}, {f32_r}",
        "fma.rn.f32 {f32_r}, {a}, 0f3FB8AA3B, {f32_r}",
        "fma.rn.f32 {f32_r}, {a}, 0f32A57060, {f32_r}",
        "ex2.approx.ftz.f32 {f32_r}, {f32_r}",
        "shl.b32 {f32_n}, {f32_n}, 23",
        "mul.rn.f32 {d}, {f32_r}, {f32_n}",
    )
)
#: erf(x) = 1 - t p(t) exp(-x²) with t = 1 / (1 + 0.3275911 |x|), with the sign of x: formula 7.1.26 of Abramowitz and
#: Stegun, whose error is at most 1.5e-7
_ERF = "; ".join(
    (
        "abs.f32 {f32_t}, {a}",
        "fma.rn.f32 {f32_t}, {f32_t}, 0f3EA7BA05, 0f3F800000",
        "rcp.approx.ftz.f32 {f32_t}, {f32_t}",
        "mul.rn.f32 {f32_e}, {a}, {a}",
        "mul.rn.f32 {f32_e}, {f32_e}, 0fBFB8AA3B",
        "ex2.approx.ftz.f32 {f32_e}, {f32_e}",
        "fma.rn.f32 {f32_p}, {f32_t}, 0fBF87DC22, 0f3FBA00E3",
        "fma.rn.f32 {f32_p}, {f32_p}, {f32_t}, 0fBFB5F0E3",
        "fma.rn.f32 {f32_p}, {f32_p}, {f32_t}, 0f3E91A98E",
        "fma.rn.f32 {f32_p}, {f32_p}, {f32_t}, 0fBE827906",
        "mul.rn.f32 {f32_p}, {f32_p}, {f32_t}",
        "fma.rn.f32 {f32_p}, {f32_p}, {f32_e}, 0f3F800000",
        "copysign.f32 {d}, {a}, {f32_p}",
    )
)
#: tanh(x) = 1 - 2 / (1 + exp(2 |x|)), with the sign of x; where |x| is less than 0.55, which loses bits, x + x s p(s)
#: with s = x² and a polynomial p
_TANH = "; ".join(
    (
        "abs.f32 {f32_t}, {a}",
        "mul.rn.f32 {f32_e}, {f32_t}, 0f4038AA3B",
        "ex2.approx.ftz.f32 {f32_e}, {f32_e}",
        "add.rn.f32 {f32_e}, {f32_e}, 0f3F800000",
        "rcp.approx.ftz.f32 {f32_e}, {f32_e}",
        "fma.rn.f32 {f32_e}, {f32_e}, 0fC0000000, 0f3F800000",
        "copysign.f32 {f32_e}, {a}, {f32_e}",
        "mul.rn.f32 {f32_s}, {a}, {a}",
        "fma.rn.f32 {f32_p}, {f32_s}, 0f3C7FCC11, 0fBD55DC0A",
        "fma.rn.f32 {f32_p}, {f32_p}, {f32_s}, 0f3E085389",
        "fma.rn.f32 {f32_p}, {f32_p}, {f32_s}, 0fBEAAA9B4",
        "mul.rn.f32 {f32_p}, {f32_p}, {f32_s}",
        "fma.rn.f32 {f32_p}, {f32_p}, {a}, {a}",
        "setp.lt.f32 {pred_x}, {f32_t}, 0f3F0CCCCD",
        "selp.f32 {d}, {f32_p}, {f32_e}, {pred_x}",
    )
)
#: pow(x, y) = exp2(y log2 |x|). |x| = 2^e m with m from 2/3 to 4/3. With u = 2 (m - 1) / (m + 1), log m is
#: u (1 + v p(v)) for v = u² and a polynomial p. The logarithm is the sum of two numbers, h and l, and so is its product
#: with y, so that the error of the result does not grow with its exponent. Then 0, infinity and NaN; pow(±1, y) and
#: pow(x, 0), which are 1; the sign of x if y is odd; NaN if x is negative and y is no integer
_POW = "; ".join(
    (
        "abs.f32 {f32_t}, {a}",
        "setp.lt.f32 {pred_x}, {f32_t}, 0f00800000",
        "mul.rn.f32 {f32_m}, {f32_t}, 0f4B800000",
        "selp.f32 {f32_m}, {f32_m}, {f32_t}, {pred_x}",
        "selp.f32 {f32_e}, 0fC1C00000, 0f00000000, {pred_x}",
        "mov.b32 {b32_m}, {f32_m}",
        "sub.s32 {b32_i}, {b32_m}, 0x3F2AAAAB",
        "and.b32 {b32_i}, {b32_i}, 0xFF800000",
        "sub.s32 {b32_m}, {b32_m}, {b32_i}",
        "mov.b32 {f32_m}, {b32_m}",
        "cvt.rn.f32.s32 {f32_z}, {b32_i}",
        "fma.rn.f32 {f32_e}, {f32_z}, 0f34000000, {f32_e}",
        "add.rn.f32 {f32_f}, {f32_m}, 0fBF800000",
        "add.rn.f32 {f32_m}, {f32_f}, 0f40000000",
        "rcp.approx.ftz.f32 {f32_r}, {f32_m}",
        "add.rn.f32 {f32_u}, {f32_f}, {f32_f}",
        "mul.rn.f32 {f32_u}, {f32_u}, {f32_r}",
        "sub.rn.f32 {f32_m}, {f32_f}, {f32_u}",
        "add.rn.f32 {f32_m}, {f32_m}, {f32_m}",
        "neg.f32 {f32_z}, {f32_u}",
        "fma.rn.f32 {f32_m}, {f32_z}, {f32_f}, {f32_m}",
        "mul.rn.f32 {f32_m}, {f32_m}, {f32_r}",
        "mul.rn.f32 {f32_v}, {f32_u}, {f32_u}",
        "mul.rn.f32 {f32_z}, {f32_v}, 0f3E800000",
        "fma.rn.f32 {f32_m}, {f32_m}, {f32_z}, {f32_m}",
        "fma.rn.f32 {f32_p}, {f32_v}, 0f39F6CB59, 0f3B11F4A5",
        "fma.rn.f32 {f32_p}, {f32_p}, {f32_v}, 0f3C4CCDEF",
        "fma.rn.f32 {f32_p}, {f32_p}, {f32_v}, 0f3DAAAAAA",
        "mul.rn.f32 {f32_p}, {f32_p}, {f32_v}",
        "mul.rn.f32 {f32_h}, {f32_u}, 0f3FB8AA3B",
        "neg.f32 {f32_z}, {f32_h}",
        "fma.rn.f32 {f32_l}, {f32_u}, 0f3FB8AA3B, {f32_z}",
        "fma.rn.f32 {f32_l}, {f32_u}, 0f32A57060, {f32_l}",
        "fma.rn.f32 {f32_l}, {f32_m}, 0f3FB8AA3B, {f32_l}",
        "fma.rn.f32 {f32_l}, {f32_h}, {f32_p}, {f32_l}",
        "add.rn.f32 {f32_s}, {f32_e}, {f32_h}",
        "sub.rn.f32 {f32_z}, {f32_s}, {f32_e}",
        "sub.rn.f32 {f32_h}, {f32_h}, {f32_z}",
        "add.rn.f32 {f32_l}, {f32_h}, {f32_l}",
        "add.rn.f32 {f32_h}, {f32_s}, {f32_l}",
        "sub.rn.f32 {f32_z}, {f32_h}, {f32_s}",
        "sub.rn.f32 {f32_l}, {f32_l}, {f32_z}",
        "lg2.approx.f32 {f32_z}, {f32_t}",
        "setp.gt.f32 {pred_x}, {f32_t}, 0f00000000",
        "setp.lt.and.f32 {pred_x}, {f32_t}, 0f7F800000, {pred_x}",
        "selp.f32 {f32_h}, {f32_h}, {f32_z}, {pred_x}",
        "selp.f32 {f32_l}, {f32_l}, 0f00000000, {pred_x}",
        "mul.rn.f32 {f32_p}, {b}, {f32_h}",
        "neg.f32 {f32_z}, {f32_p}",
        "fma.rn.f32 {f32_z}, {b}, {f32_h}, {f32_z}",
        "fma.rn.f32 {f32_z}, {b}, {f32_l}, {f32_z}",
        "mul.rn.f32 {f32_z}, {f32_z}, 0f3F317218",
        "ex2.approx.f32 {f32_p}, {f32_p}",
        "fma.rn.f32 {f32_z}, {f32_p}, {f32_z}, {f32_p}",
        "setp.gt.f32 {pred_x}, {f32_p}, 0f00000000",
        "setp.lt.and.f32 {pred_x}, {f32_p}, 0f7F800000, {pred_x}",
        "selp.f32 {f32_p}, {f32_z}, {f32_p}, {pred_x}",
        "setp.eq.f32 {pred_x}, {f32_t}, 0f3F800000",
        "setp.eq.or.f32 {pred_x}, {b}, 0f00000000, {pred_x}",
        "selp.f32 {f32_p}, 0f3F800000, {f32_p}, {pred_x}",
        "mul.rn.f32 {f32_h}, {b}, 0f3F000000",
        "cvt.rzi.f32.f32 {f32_z}, {f32_h}",
        "setp.neu.f32 {pred_x}, {f32_z}, {f32_h}",
        "cvt.rzi.f32.f32 {f32_z}, {b}",
        "setp.eq.and.f32 {pred_x}, {f32_z}, {b}, {pred_x}",
        "copysign.f32 {f32_h}, {a}, {f32_p}",
        "selp.f32 {f32_p}, {f32_h}, {f32_p}, {pred_x}",
        "setp.neu.f32 {pred_x}, {f32_z}, {b}",
        "setp.lt.and.f32 {pred_x}, {a}, 0f00000000, {pred_x}",
        "setp.lt.and.f32 {pred_x}, {f32_t}, 0f7F800000, {pred_x}",
        "selp.f32 {d}, 0f7FFFFFFF, {f32_p}, {pred_x}",
    )
)


def _row(
    operator: str,
    operand: str,
    line: str,
    result: str = "",
    first: int = OLDEST,
    at: Mapping[str, int] | None = None,
    **pipes: int,
) -> Row:
    lines = tuple(x.strip() for x in line.split(";"))
    return Row(operator, operand, result or operand, first, lines, tuple((at or pipes).items()))


def _floats() -> Iterator[Row]:
    """The rows of f32 and f64."""
    for t, pipe, other in (("f32", "fma", "alu"), ("f64", "fp64", "fp64")):
        for operator, name in (("+", "add"), ("-", "sub"), ("*", "mul")):
            yield _row(operator, t, f"{name}.rn.{t} {{d}}, {{a}}, {{b}}", at={pipe: 1})
        yield _row("fma", t, f"fma.rn.{t} {{d}}, {{a}}, {{b}}, {{c}}", at={pipe: 1})
        for operator in ("neg", "abs"):
            yield _row(operator, t, f"{operator}.{t} {{d}}, {{a}}", at={pipe: 1})
        for name in ("min", "max"):
            yield _row(f"f{name}", t, f"{name}.{t} {{d}}, {{a}}, {{b}}", at={other: 1})
            yield _row(
                name,
                t,
                f"{name}.{t} {{{t}_x}}, {{a}}, {{b}}; setp.nan.{t} {{pred_x}}, {{a}}, {{b}}; "
                f"selp.{t} {{d}}, {_NAN[t]}, {{{t}_x}}, {{pred_x}}",
                at={"alu": 3} if t == "f32" else {"fp64": 2, "alu": 2},
            )
        for operator, name in _COMPARISONS.items():
            unordered = "neu" if operator == "!=" else name
            yield _row(operator, t, f"setp.{unordered}.{t} {{d}}, {{a}}, {{b}}", PRED, at={other: 1})
        yield _row("select", t, f"selp.{t} {{d}}, {{b}}, {{c}}, {{a}}", alu=1 if t == "f32" else 2)
    for name in ("min", "max"):
        yield _row(name, "f32", f"{name}.NaN.f32 {{d}}, {{a}}, {{b}}", first=80, alu=1)
    yield _row("/", "f32", "div.rn.f32 {d}, {a}, {b}", xu=1, fma=8)
    yield _row("/", "f64", "div.rn.f64 {d}, {a}, {b}", xu=1, fp64=9)
    yield _row("rcp", "f32", "rcp.rn.f32 {d}, {a}", xu=1, fma=4)
    yield _row("rcp", "f64", "rcp.rn.f64 {d}, {a}", xu=1, fp64=7)
    yield _row("sqrt", "f32", "sqrt.rn.f32 {d}, {a}", xu=1, fma=6)
    yield _row("sqrt", "f64", "sqrt.rn.f64 {d}, {a}", xu=1, fp64=8)
    for operator, lines in functions_f64.FUNCTIONS.items():
        pipes = tuple(functions_f64.pipes(lines).items())
        yield Row(operator, "f64", "f64", OLDEST, lines, pipes, relative=2.0**-50)
    yield _row("rsqrt", "f64", "sqrt.rn.f64 {f64_x}, {a}; rcp.rn.f64 {d}, {f64_x}", xu=2, fp64=14)
    for row, relative, absolute in (
        (_row("rsqrt", "f32", "rsqrt.approx.f32 {d}, {a}", xu=1, fma=2, alu=1), 2.0**-22, 0.0),
        (_row("exp2", "f32", "ex2.approx.f32 {d}, {a}", xu=1, fma=2, alu=1), 2.0**-22, 0.0),
        (_row("exp", "f32", _EXP, fma=6, alu=1, xu=1), 2.0**-21, 0.0),
        # absolute between 1/2 and 2
        (_row("log2", "f32", "lg2.approx.f32 {d}, {a}", xu=1, fma=2, alu=1), 2.0**-22, 2.0**-22),
        (
            _row("log", "f32", "lg2.approx.f32 {f32_x}, {a}; mul.rn.f32 {d}, {f32_x}, 0f3F317218", xu=1, fma=3, alu=1),
            2.0**-21,
            2.0**-22,
        ),
        (_row("erf", "f32", _ERF, fma=8, alu=2, xu=2), 0.0, 2.0**-21),
        (_row("tanh", "f32", _TANH, fma=9, alu=4, xu=2), 2.0**-21, 0.0),
        (_row("pow", "f32", _POW, fma=40, alu=25, xu=6), 2.0**-20, 0.0),
    ):
        yield Row(
            row.operator, row.operand, row.result, row.first, row.lines, row.pipes, relative=relative, absolute=absolute
        )


def _halves() -> Iterator[Row]:
    """The rows of f16 and bf16. Where a target lacks an instruction, fma or instructions of f32 compute the operator,
    with one rounding."""
    for t in ("f16", "bf16"):
        first, full = (OLDEST, OLDEST) if t == "f16" else (80, 90)
        for operator, name in (("+", "add"), ("-", "sub"), ("*", "mul")):
            yield _row(operator, t, f"{name}.rn.{t} {{d}}, {{a}}, {{b}}", first=full, fma=1)
        yield _row("fma", t, f"fma.rn.{t} {{d}}, {{a}}, {{b}}, {{c}}", first=first, fma=1)
        for operator in ("neg", "abs"):
            yield _row(operator, t, f"{operator}.{t} {{d}}, {{a}}", first=first, fma=1)
        for name in ("min", "max"):
            yield _row(f"f{name}", t, f"{name}.{t} {{d}}, {{a}}, {{b}}", first=80, alu=1)
            yield _row(name, t, f"{name}.NaN.{t} {{d}}, {{a}}, {{b}}", first=80, alu=1)
        for operator, name in _COMPARISONS.items():
            unordered = "neu" if operator == "!=" else name
            yield _row(operator, t, f"setp.{unordered}.{t} {{d}}, {{a}}, {{b}}", PRED, first=full, alu=1)
        yield _row("select", t, "selp.b16 {d}, {b}, {c}, {a}", alu=1)
    yield _row("+", "bf16", "mov.b16 {b16_x}, 0x3F80; fma.rn.bf16 {d}, {a}, {b16_x}, {b}", first=80, fma=1)
    yield _row("-", "bf16", "mov.b16 {b16_x}, 0xBF80; fma.rn.bf16 {d}, {b}, {b16_x}, {a}", first=80, fma=1)
    yield _row("*", "bf16", "mov.b16 {b16_x}, 0x8000; fma.rn.bf16 {d}, {a}, {b}, {b16_x}", first=80, fma=1)
    wide = {(r.operator, r.first): r for r in _floats() if r.operand == "f32"}
    for name in _IN_F32:
        yield from (_in_f32(wide[name, OLDEST], t) for t in ("f16", "bf16"))
    for name in ("min", "max", "fmin", "fmax"):
        yield _in_f32(wide[name, OLDEST], "f16")
    for name in _COMPARISONS:
        yield _in_f32(wide[name, OLDEST], "bf16")


def _widened(t: str, to: str, value: str) -> list[str]:
    if t == "f16":
        return [f"cvt.f32.f16 {to}, {value}"]
    return ["mov.b16 {b16_zero}, 0", f"mov.b32 {to}, {{{{{{b16_zero}}, {value}}}}}"]


def _in_f32(row: Row, t: str) -> Row:
    """The row for the 16-bit float ``t`` that converts the operands to f32, computes ``row`` and rounds its result."""
    lines: list[str] = []
    for x in "abc":
        if any(f"{{{x}}}" in line for line in row.lines):
            lines += [line for line in _widened(t, f"{{f32_{x}}}", f"{{{x}}}") if line not in lines]
    compares = row.result == PRED
    for line in row.lines:
        for x in "abc" if compares else "abcd":
            line = line.replace(f"{{{x}}}", f"{{f32_{x}}}")
        lines.append(line)
    if not compares:
        lines.append(f"cvt.rn.{t}.f32 {{d}}, {{f32_d}}")
    converted = sum(line.startswith(("cvt", "mov.b32")) for line in lines)
    pipes = dict(row.pipes)
    pipes["alu"] = pipes.get("alu", 0) + converted
    rounds = row.first if compares or t == "f16" else 80
    return Row(
        row.operator,
        t,
        row.result if compares else t,
        rounds,
        tuple(lines),
        tuple(pipes.items()),
        row.relative,
        row.absolute,
    )


def _wide_integers() -> Iterator[Row]:
    """The rows of integers of 32 and 64 bits."""
    for t in ("s32", "u32", "s64", "u64"):
        bits = int(t[1:])
        twice = bits // 32
        for operator, name in (("+", "add"), ("-", "sub")):
            yield _row(operator, t, f"{name}.{t} {{d}}, {{a}}, {{b}}", alu=twice)
        yield _row("*", t, f"mul.lo.{t} {{d}}, {{a}}, {{b}}", imad=twice**2)
        yield _row("mad", t, f"mad.lo.{t} {{d}}, {{a}}, {{b}}, {{c}}", imad=twice**2)
        for name in ("min", "max"):
            yield _row(name, t, f"{name}.{t} {{d}}, {{a}}, {{b}}", alu=1 if twice == 1 else 4)
        for operator, name in _LOGIC.items():
            yield _row(operator, t, f"{name}.b{bits} {{d}}, {{a}}, {{b}}", alu=twice)
        yield _row("~", t, f"not.b{bits} {{d}}, {{a}}", alu=twice)
        if t[0] == "s":
            yield _row("neg", t, f"neg.{t} {{d}}, {{a}}", alu=twice)
            yield _row("abs", t, f"abs.{t} {{d}}, {{a}}", alu=1 if twice == 1 else 4)
        # numbers of bits that are 32 or more, too
        amount = "" if twice == 1 else "min.u64 {b64_x}, {b}, 64; cvt.u32.u64 {b32_x}, {b64_x}; "
        by = "{b}" if twice == 1 else "{b32_x}"
        yield _row("<<", t, f"{amount}shl.b{bits} {{d}}, {{a}}, {by}", alu=1 if twice == 1 else 6)
        yield _row(">>", t, f"{amount}shr.{t} {{d}}, {{a}}, {by}", alu=1 if twice == 1 else 6)
        for operator, name in _COMPARISONS.items():
            yield _row(operator, t, f"setp.{name}.{t} {{d}}, {{a}}, {{b}}", PRED, alu=twice)
        yield _row("select", t, f"selp.b{bits} {{d}}, {{b}}, {{c}}, {{a}}", alu=twice)
    yield _row("popcount", "u32", "popc.b32 {d}, {a}", xu=1)
    yield _row("popcount", "u64", "popc.b64 {b32_x}, {a}; cvt.u64.u32 {d}, {b32_x}", xu=2, alu=1)


#: operators of 8- and 16-bit integers whose result, computed with 32 bits, is extended again
_OVERFLOWS = {"+", "-", "*", "mad", "neg", "abs", "<<"}


def _narrow_integers() -> Iterator[Row]:
    """The rows of integers of 8 and 16 bits, which have the instructions of 32 bits."""
    wide = list(_wide_integers())
    for t in ("s16", "u16", "s8", "u8"):
        base = f"{t[0]}32"
        for r in wide:
            if r.operand != base:
                continue
            if r.operator in _OVERFLOWS or (r.operator == "~" and t[0] == "u"):
                lines = tuple(line.replace("{d}", "{b32_d}") for line in r.lines)
                pipes = dict(r.pipes)
                pipes["alu"] = pipes.get("alu", 0) + 1
                yield Row(r.operator, t, t, r.first, (*lines, f"cvt.{base}.{t} {{d}}, {{b32_d}}"), tuple(pipes.items()))
            else:
                yield Row(r.operator, t, PRED if r.result == PRED else t, r.first, r.lines, r.pipes)


def _pairs() -> Iterator[Row]:
    """The rows of pairs: two values of 16 bits in a register."""
    for t in ("f16x2", "bf16x2"):
        first, full = (OLDEST, OLDEST) if t == "f16x2" else (80, 90)
        for operator, name in (("+", "add"), ("-", "sub"), ("*", "mul")):
            yield _row(operator, t, f"{name}.rn.{t} {{d}}, {{a}}, {{b}}", first=full, fma=1)
        for operator in ("neg", "abs"):
            yield _row(operator, t, f"{operator}.{t} {{d}}, {{a}}", first=first, fma=1)
        for name in ("min", "max"):
            yield _row(f"f{name}", t, f"{name}.{t} {{d}}, {{a}}, {{b}}", first=80, alu=1)
            yield _row(name, t, f"{name}.NaN.{t} {{d}}, {{a}}, {{b}}", first=80, alu=1)
    one = "mov.b32 {b32_x}, 0x3F803F80; fma.rn.bf16x2 {d}, {a}, {b32_x}, {b}"
    yield _row("+", "bf16x2", one, first=80, fma=1)
    minus = "mov.b32 {b32_x}, 0xBF80BF80; fma.rn.bf16x2 {d}, {b}, {b32_x}, {a}"
    yield _row("-", "bf16x2", minus, first=80, fma=1)
    zero = "mov.b32 {b32_x}, 0x80008000; fma.rn.bf16x2 {d}, {a}, {b}, {b32_x}"
    yield _row("*", "bf16x2", zero, first=80, fma=1)
    for t in ("s16x2", "u16x2"):
        for operator, name in (("+", "add"), ("min", "min"), ("max", "max")):
            yield _row(operator, t, f"{name}.{t} {{d}}, {{a}}, {{b}}", first=90, alu=1)
        for operator, name in _LOGIC.items():
            yield _row(operator, t, f"{name}.b32 {{d}}, {{a}}, {{b}}", alu=1)
        yield _row("~", t, "not.b32 {d}, {a}", alu=1)


def _predicates() -> Iterator[Row]:
    for operator, name in _LOGIC.items():
        yield _row(operator, PRED, f"{name}.pred {{d}}, {{a}}, {{b}}", alu=1)
    yield _row("not", PRED, "not.pred {d}, {a}", alu=1)
    yield _row(
        "select",
        PRED,
        "and.pred {pred_x}, {a}, {b}; not.pred {pred_y}, {a}; and.pred {pred_y}, {pred_y}, {c}; "
        "or.pred {d}, {pred_x}, {pred_y}",
        alu=2,
    )


def _casts() -> Iterator[Row]:
    """The rows of casts between all pairs of types. Floats are truncated to integers and saturated; casts of f64 and of
    integers to bf16 go through f32."""
    for source in VALUE_TYPES.values():
        for to in VALUE_TYPES.values():
            if source is not to:
                row = _cast(source.name, to.name)
                yield row


def _cast(source: str, to: str) -> Row:
    s, t = type_of(source), type_of(to)
    if to == PRED:
        if source == "bf16":
            return _cast_through(
                source, to, _widened("bf16", "{f32_x}", "{a}"), "setp.neu.f32 {d}, {f32_x}, 0f00000000"
            )
        if source == "f16":
            return _cast_line(source, to, "cvt.f32.f16 {f32_x}, {a}; setp.neu.f32 {d}, {f32_x}, 0f00000000", alu=2)
        zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(source, "0")
        compared = source if s.bits >= 32 else f"{source[0]}32"
        return _cast_line(source, to, f"setp.{'neu' if s.floating else 'ne'}.{compared} {{d}}, {{a}}, {zero}", alu=1)
    if source == PRED:
        one = {"f16": "0x3C00", "bf16": "0x3F80", "f32": "0f3F800000", "f64": "0d3FF0000000000000"}.get(to, "1")
        zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(to, "0")
        return _cast_line(source, to, f"selp.{register_class(to)} {{d}}, {one}, {zero}, {{a}}", alu=1)
    if s.integer and t.integer:
        return _cast_integer(source, to)
    if source == "bf16":
        if to == "f32":
            return _cast_through(source, to, _widened("bf16", "{d}", "{a}"), "")
        return _cast_through(
            source, to, _widened("bf16", "{f32_x}", "{a}"), _cast("f32", to).lines[0].replace("{a}", "{f32_x}")
        )
    held = source if s.floating else f"{source[0]}{max(32, s.bits)}"
    if to == "bf16":
        if source == "f32":
            return _cast_line(source, to, "cvt.rn.bf16.f32 {d}, {a}", first=80, alu=1)
        widening = "" if s.bits < 32 and s.floating else ".rn"
        return _cast_line(
            source,
            to,
            f"cvt{widening}.f32.{held} {{f32_x}}, {{a}}; cvt.rn.bf16.f32 {{d}}, {{f32_x}}",
            first=80,
            xu=1,
            alu=1,
        )
    if t.integer:
        return _cast_line(source, to, f"cvt.rzi.{to}.{source} {{d}}, {{a}}", xu=1)
    rounding = "" if s.floating and s.bits < t.bits else ".rn"
    pipe = {"alu": 1} if {source, to} == {"f16", "f32"} else {"xu": 1}
    return _cast_line(source, to, f"cvt{rounding}.{to}.{held} {{d}}, {{a}}", OLDEST, **pipe)


def _cast_integer(source: str, to: str) -> Row:
    """The row of a cast between integers: it keeps the low bits, or extends the source by its sign or by zeros."""
    s, t = type_of(source), type_of(to)
    if t.bits == 64:
        if s.bits == 64:
            return Row("cast", source, to, OLDEST, (), ())
        return _cast_line(source, to, f"cvt.{source[0]}64.{source[0]}32 {{d}}, {{a}}", alu=1)
    narrow = f"cvt.{to[0]}32.{to} {{d}}, "
    if s.bits == 64:
        if t.bits == 32:
            return _cast_line(source, to, "cvt.u32.u64 {d}, {a}")
        return _cast_line(source, to, f"cvt.u32.u64 {{b32_x}}, {{a}}; {narrow}{{b32_x}}", alu=1)
    if t.bits == 32 or (t.least <= s.least and s.greatest <= t.greatest):
        return Row("cast", source, to, OLDEST, (), ())
    return _cast_line(source, to, f"{narrow}{{a}}", alu=1)


def _cast_line(source: str, to: str, line: str, first: int = OLDEST, **pipes: int) -> Row:
    return _row("cast", source, line, to, first, at=pipes)


def _cast_through(source: str, to: str, widening: list[str], last: str) -> Row:
    lines = (*widening, last) if last else tuple(widening)
    first = 80 if to == "bf16" else OLDEST
    return Row("cast", source, to, first, lines, (("alu", 1 + bool(last)),))


#: rows of operators that programs registered, by operator
_REGISTERED: dict[str, tuple[Row, ...]] = {}
_table = {"version": 0}


def table_version() -> int:
    """A number that changes with the table."""
    return _table["version"]


def register(operator: Operator, *instructions: Row) -> None:
    """Adds an operator with its rows. InputError: an operator with this name exists, or a row belongs to another
    operator."""
    if operator.name in OPERATORS or any(r.operator != operator.name for r in instructions):
        raise InputError(f"operator is {operator.name!r}; it must be a name that no other has, and that of its rows")
    OPERATORS[operator.name] = operator
    _REGISTERED[operator.name] = instructions
    _changed()


def unregister(name: str) -> None:
    """Removes an operator that ``register`` added."""
    del _REGISTERED[name], OPERATORS[name]
    _changed()


def has_registered() -> bool:
    """True if the process has registered an operator that is not part of the package."""
    return bool(_REGISTERED)


def _changed() -> None:
    rows.cache_clear()
    _table["version"] += 1


@functools.cache
def rows() -> dict[tuple[str, str, str], tuple[Row, ...]]:
    """The instruction table: rows by (operator, type of the operands, type of the result), those of the newest target
    first."""
    table: dict[tuple[str, str, str], list[Row]] = {}
    makers = (_floats, _halves, _wide_integers, _narrow_integers, _pairs, _predicates, _casts)
    for made in (*(makes() for makes in makers), *_REGISTERED.values()):
        for r in made:
            table.setdefault((r.operator, r.operand, r.result), []).append(r)
    return {key: tuple(sorted(entries, key=lambda r: -r.first)) for key, entries in table.items()}


@functools.cache
def fast_rows() -> dict[str, Row]:
    """The approximate rows by operator: one or two f32 instructions, which flush subnormal operands and results to
    0."""
    made = (
        ("exp2", "ex2.approx.ftz.f32 {d}, {a}", 0),
        ("exp", "mul.rn.f32 {f32_x}, {a}, 0f3FB8AA3B; ex2.approx.ftz.f32 {d}, {f32_x}", 1),
        ("log2", "lg2.approx.ftz.f32 {d}, {a}", 0),
        ("log", "lg2.approx.ftz.f32 {f32_x}, {a}; mul.rn.f32 {d}, {f32_x}, 0f3F317218", 1),
        ("rcp", "rcp.approx.ftz.f32 {d}, {a}", 0),
        ("rsqrt", "rsqrt.approx.ftz.f32 {d}, {a}", 0),
        ("sqrt", "sqrt.approx.ftz.f32 {d}, {a}", 1),
        ("/", "div.full.ftz.f32 {d}, {a}, {b}", 2),
    )
    fastest = {}
    for operator, line, fma in made:
        row = _row(operator, "f32", line, at={"xu": 1, "fma": fma} if fma else {"xu": 1})
        absolute = 2.0**-22 if operator.startswith("log") else 0.0
        fastest[operator] = replace(row, relative=2.0**-21, absolute=absolute)
    return fastest


def row_of(x: Node, sm: int, fast: bool = False) -> Row:
    """The row of a node. ``fast``: that of ``fast_rows``, if there is one. DtypeError: no instructions compute the
    node, or the target lacks them."""
    operands = x.arguments[1:] if x.op == "select" else x.arguments
    operand = operands[0].type
    if any(y.type != operand for y in operands):
        types = ", ".join(y.type for y in operands)
        raise DtypeError(f"the operands of {x.op} are {types}; they must have one type")
    if fast and x.type == "f32" and x.op in fast_rows():
        return fast_rows()[x.op]
    entries = rows().get((x.op, operand, x.type))
    if entries is None:
        if x.op not in OPERATORS and x.op not in ("cast", "select", "mad"):
            raise DtypeError(f"operator is {x.op!r}; it must be one of {', '.join(OPERATORS)}, cast or select")
        if x.op in ("cast", "select") or (x.op, operand) in {key[:2] for key in rows()}:
            raise DtypeError(f"{x.op} of {operand} is {x.type}; it must be another type")
        having = [t for t in VALUE_TYPES if (x.op, t) in {key[:2] for key in rows()}]
        raise DtypeError(f"the operand of {x.op} is {operand}; it must be {' or '.join(having)}")
    row = next((r for r in entries if r.first <= sm), None)
    if row is None:
        raise DtypeError(f"the target is sm_{sm}; it must be sm_{entries[-1].first} or newer for {x.op} of {operand}")
    return row


TEMPORARY = re.compile(r"\{((?:f64|f32|b16|b32|b64|pred)_\w+)\}")  #: a temporary register in a line of a row
