"""The instructions of functions of f64, which PTX does not have: exponentials, logarithms, erf and tanh.

Names in braces are those of ``instructions.Row``. Polynomials are near the best ones of their degrees; their errors are
less than half of the last bit.
"""

from __future__ import annotations

#: (exp(r) - 1) / r for |r| up to ln 2 / 2, and (2^r - 1) / r for |r| up to 1/2; coefficients of the highest power first
_EXPONENTIAL = (
    "3E21F7F358827813 3E5AF6342AF888E6 3E927E4D411CBA8B 3EC71DDF5603D413 3EFA01A01A9EC69B 3F2A01A01B14B169"
    " 3F56C16C16C15A62 3F8111111110F212 3FA5555555555557 3FC555555555555A 3FE0000000000000 3FF0000000000000"
)
_POWER_OF_TWO = (
    "3DBC4A2E9D89B1EB 3DFE9EC2175764F5 3E3E4CF10A8A53B8 3E7B524EBD04AAEB 3EB62C02242C4A0B 3EEFFCBFC6DA74A4"
    " 3F2430912F86B7B5 3F55D87FE78A3F9B 3F83B2AB6FBA4E79 3FAC6B08D704A0C6 3FCEBFBDFF82C58F 3FE62E42FEFA39EF"
)
#: (2 artanh(s) / s - 2) / z of z = s²
_LOGARITHM = (
    "3FC0C04595976D29 3FC0FBE83C2CB59E 3FC3B1C360763BDD 3FC745CF901605F5 3FCC71C720160B47 3FD2492492476C87"
    " 3FD9999999999A38 3FE5555555555555"
)
#: erf(x) / x of x² up to 1, and exp(x²) (1 - erf(x)) of (x - 3) / (x + 3) for x from 1 to 6
_ERF = (
    "3DD05FCCB83CEB07 BE1389C36BA2329C 3E4F7B46724DE85E BE85F1EC38082BBF 3EBB9DF21654263F BEEF4D1E306E0024"
    " 3F1F9A321D4DAB9D BF4C02DB3DABCED8 3F7565BCD0DBA7CE BF9B82CE31284DF1 3FBCE2F21A042B2F BFD812746B0379E6"
    " 3FF20DD750429B6D"
)
_ERF_FAR = (
    "3E2D8D93FB6E1EB2 3EB566D93F5F9A32 3EC0E3F7B94FCCE9 BEE0CC3B3E05920B BEEAF086EE5C82D0 3F10CB2E74A1F014"
    " 3F07B9EF7F2711FD BF439085F2DDBEC5 3F473101F6CB3CAB 3F717C839090DD8E BF98FA58EB5EA6E2 3FB258B13B00EC52"
    " BFC336FFBEF08B8B 3FCF6FF204105A04 BFD4E102B9CF8513 3FC6E9827D229D2D"
)
_ONE, _TWO, _NAN = "0d3FF0000000000000", "0d4000000000000000", "0d7FF8000000000000"
_INFINITY, _MINUS_INFINITY = "0d7FF0000000000000", "0dFFF0000000000000"
#: 1.5 · 2^52: a number plus it has the nearest integer in the low bits
_ROUND, _MINUS_ROUND = "0d4338000000000000", "0dC338000000000000"
_LOG2_E, _MINUS_LN2, _MINUS_LN2_REST = "0d3FF71547652B82FE", "0dBFE62E42FEFA39EF", "0dBC7ABC9E3B39803F"
_LN2, _LN2_REST = "0d3FE62E42FEFA39EF", "0d3C7ABC9E3B39803F"


def _polynomial(to: str, x: str, coefficients: str) -> list[str]:
    """``to`` = the polynomial of ``x``."""
    first, second, *others = (f"0d{c}" for c in coefficients.split())
    lines = [f"fma.rn.f64 {to}, {x}, {first}, {second}"]
    return lines + [f"fma.rn.f64 {to}, {to}, {x}, {c}" for c in others]


def _power_less_one(x: str) -> list[str]:
    """2^i (1 + p) = exp(x): the integer {b32_i} in 32 bits, and {f64_p}."""
    return [
        f"fma.rn.f64 {{f64_n}}, {x}, {_LOG2_E}, {_ROUND}",
        "mov.b64 {{{b32_i}, {b32_j}}}, {f64_n}",
        f"add.rn.f64 {{f64_n}}, {{f64_n}}, {_MINUS_ROUND}",
        f"fma.rn.f64 {{f64_r}}, {{f64_n}}, {_MINUS_LN2}, {x}",
        f"fma.rn.f64 {{f64_r}}, {{f64_n}}, {_MINUS_LN2_REST}, {{f64_r}}",
        *_polynomial("{f64_p}", "{f64_r}", _EXPONENTIAL),
        "mul.rn.f64 {f64_p}, {f64_p}, {f64_r}",
    ]


def _power_of_two(to: str, i: str) -> list[str]:
    """``to`` = 2^i for an integer ``i`` from -1022 to 1023, which is overwritten."""
    return [
        f"shl.b32 {i}, {i}, 20",
        f"add.s32 {i}, {i}, 0x3FF00000",
        "mov.b32 {b32_z}, 0",
        f"mov.b64 {to}, {{{{{{b32_z}}, {i}}}}}",
    ]


def _scaled() -> list[str]:
    """{f64_p} times 2^i, in two steps, since 2^i need not be a normal number; NaN where {a} is NaN."""
    return [
        "shr.s32 {b32_j}, {b32_i}, 1",
        "sub.s32 {b32_i}, {b32_i}, {b32_j}",
        *_power_of_two("{f64_n}", "{b32_j}"),
        "mul.rn.f64 {f64_p}, {f64_p}, {f64_n}",
        *_power_of_two("{f64_n}", "{b32_i}"),
        "mul.rn.f64 {f64_p}, {f64_p}, {f64_n}",
        "setp.nan.f64 {pred_x}, {a}, {a}",
        "selp.f64 {d}, {a}, {f64_p}, {pred_x}",
    ]


def _exp() -> list[str]:
    return [
        "min.f64 {f64_x}, {a}, 0d4087000000000000",  # 736
        "max.f64 {f64_x}, {f64_x}, 0dC088000000000000",  # -768
        *_power_less_one("{f64_x}"),
        f"add.rn.f64 {{f64_p}}, {{f64_p}}, {_ONE}",
        *_scaled(),
    ]


def _exp2() -> list[str]:
    return [
        "min.f64 {f64_x}, {a}, 0d4091000000000000",  # 1088
        "max.f64 {f64_x}, {f64_x}, 0dC091000000000000",
        f"add.rn.f64 {{f64_n}}, {{f64_x}}, {_ROUND}",
        "mov.b64 {{{b32_i}, {b32_j}}}, {f64_n}",
        f"add.rn.f64 {{f64_n}}, {{f64_n}}, {_MINUS_ROUND}",
        "sub.rn.f64 {f64_r}, {f64_x}, {f64_n}",
        *_polynomial("{f64_p}", "{f64_r}", _POWER_OF_TWO),
        f"fma.rn.f64 {{f64_p}}, {{f64_p}}, {{f64_r}}, {_ONE}",
        *_scaled(),
    ]


def _logarithm(last: list[str]) -> list[str]:
    """log(x) for x = 2^e m, m from √½ to √2: {f64_p} = log m = 2 artanh(s) with s = (m - 1) / (m + 1), and {f64_e}.
    ``last``: the instructions that make {f64_p} the result."""
    return [
        "setp.lt.f64 {pred_x}, {a}, 0d0010000000000000",
        "mul.rn.f64 {f64_x}, {a}, 0d4350000000000000",  # 2^54
        "selp.f64 {f64_x}, {f64_x}, {a}, {pred_x}",
        "selp.f64 {f64_e}, 0dC04B000000000000, 0d0000000000000000, {pred_x}",
        "mov.b64 {{{b32_j}, {b32_h}}}, {f64_x}",
        "sub.s32 {b32_i}, {b32_h}, 0x3FE6A09E",
        "and.b32 {b32_i}, {b32_i}, 0xFFF00000",
        "sub.s32 {b32_h}, {b32_h}, {b32_i}",
        "mov.b64 {f64_x}, {{{b32_j}, {b32_h}}}",
        "shr.s32 {b32_i}, {b32_i}, 20",
        "cvt.rn.f64.s32 {f64_n}, {b32_i}",
        "add.rn.f64 {f64_e}, {f64_e}, {f64_n}",
        "add.rn.f64 {f64_x}, {f64_x}, 0dBFF0000000000000",
        f"add.rn.f64 {{f64_n}}, {{f64_x}}, {_TWO}",
        "div.rn.f64 {f64_s}, {f64_x}, {f64_n}",
        "mul.rn.f64 {f64_z}, {f64_s}, {f64_s}",
        *_polynomial("{f64_p}", "{f64_z}", _LOGARITHM),
        "mul.rn.f64 {f64_p}, {f64_p}, {f64_z}",
        "mul.rn.f64 {f64_p}, {f64_p}, {f64_s}",
        f"fma.rn.f64 {{f64_p}}, {{f64_s}}, {_TWO}, {{f64_p}}",
        *last,
        # infinity of itself, minus infinity of 0, NaN of others
        "setp.gt.f64 {pred_x}, {a}, 0d0000000000000000",
        f"selp.f64 {{f64_s}}, {{a}}, {_NAN}, {{pred_x}}",
        f"setp.lt.and.f64 {{pred_x}}, {{a}}, {_INFINITY}, {{pred_x}}",
        "selp.f64 {f64_p}, {f64_p}, {f64_s}, {pred_x}",
        "setp.eq.f64 {pred_x}, {a}, 0d0000000000000000",
        f"selp.f64 {{d}}, {_MINUS_INFINITY}, {{f64_p}}, {{pred_x}}",
    ]


def _log() -> list[str]:
    return _logarithm(
        [
            f"fma.rn.f64 {{f64_p}}, {{f64_e}}, {_LN2_REST}, {{f64_p}}",
            f"fma.rn.f64 {{f64_p}}, {{f64_e}}, {_LN2}, {{f64_p}}",
        ]
    )


def _log2() -> list[str]:
    return _logarithm([f"fma.rn.f64 {{f64_p}}, {{f64_p}}, {_LOG2_E}, {{f64_e}}"])


def _tanh() -> list[str]:
    """u / (u + 2) with u = exp(2 |x|) - 1, with the sign of x."""
    return [
        "abs.f64 {f64_x}, {a}",
        "add.rn.f64 {f64_x}, {f64_x}, {f64_x}",
        "min.f64 {f64_x}, {f64_x}, 0d4048000000000000",  # 48, of which the result is 1
        *_power_less_one("{f64_x}"),
        *_power_of_two("{f64_n}", "{b32_i}"),
        "add.rn.f64 {f64_r}, {f64_n}, 0dBFF0000000000000",
        "fma.rn.f64 {f64_p}, {f64_p}, {f64_n}, {f64_r}",
        f"add.rn.f64 {{f64_r}}, {{f64_p}}, {_TWO}",
        "div.rn.f64 {f64_p}, {f64_p}, {f64_r}",
        "copysign.f64 {f64_p}, {a}, {f64_p}",
        "setp.nan.f64 {pred_x}, {a}, {a}",
        "selp.f64 {d}, {a}, {f64_p}, {pred_x}",
    ]


def _erf() -> list[str]:
    """x q(x²) for |x| less than 1; else 1 - exp(-x²) q(t) with t = (|x| - 3) / (|x| + 3), with the sign of x. A greater
    |x| counts as 6."""
    return [
        "abs.f64 {f64_t}, {a}",
        "min.f64 {f64_t}, {f64_t}, 0d4018000000000000",
        "mul.rn.f64 {f64_x}, {f64_t}, {f64_t}",
        *_polynomial("{f64_q}", "{f64_x}", _ERF),
        "mul.rn.f64 {f64_q}, {f64_q}, {a}",
        "neg.f64 {f64_x}, {f64_x}",
        *_power_less_one("{f64_x}"),
        *_power_of_two("{f64_n}", "{b32_i}"),
        "fma.rn.f64 {f64_p}, {f64_p}, {f64_n}, {f64_n}",
        "add.rn.f64 {f64_x}, {f64_t}, 0dC008000000000000",
        "add.rn.f64 {f64_r}, {f64_t}, 0d4008000000000000",
        "div.rn.f64 {f64_x}, {f64_x}, {f64_r}",
        *_polynomial("{f64_r}", "{f64_x}", _ERF_FAR),
        "neg.f64 {f64_p}, {f64_p}",
        f"fma.rn.f64 {{f64_p}}, {{f64_p}}, {{f64_r}}, {_ONE}",
        "copysign.f64 {f64_p}, {a}, {f64_p}",
        "setp.ge.f64 {pred_x}, {f64_t}, 0d3FF0000000000000",
        "selp.f64 {f64_p}, {f64_p}, {f64_q}, {pred_x}",
        "setp.nan.f64 {pred_x}, {a}, {a}",
        "selp.f64 {d}, {a}, {f64_p}, {pred_x}",
    ]


#: operator -> its instructions
FUNCTIONS = {
    name: tuple(lines())
    for name, lines in (
        ("exp", _exp),
        ("exp2", _exp2),
        ("log", _log),
        ("log2", _log2),
        ("tanh", _tanh),
        ("erf", _erf),
    )
}


def pipes(lines: tuple[str, ...]) -> dict[str, int]:
    """The number of instructions of each pipe. A division takes ten."""
    wide = sum(".f64" in line and not line.startswith(("selp", "copysign", "mov")) for line in lines)
    divisions = sum(line.startswith("div") for line in lines)
    other = sum(".f64" not in line for line in lines) + 2 * sum(line.startswith("selp.f64") for line in lines)
    return {"fp64": wide + 9 * divisions, "alu": other, "xu": 1 + divisions}
