"""Small kernels for the tests of the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.emulator import Stats, launch

TYPES = {
    "float16": "b16",
    "float32": "f32",
    "float64": "f64",
    "uint8": "u8",
    "int8": "s8",
    "uint16": "u16",
    "int16": "s16",
    "uint32": "u32",
    "int32": "s32",
    "uint64": "u64",
    "int64": "s64",
}
HOLDS = {"u8": "b16", "s8": "b16", "u16": "b16", "s16": "b16"}


def module(body: str, params: str = "", *, registers: str = "", extra: str = "", directives: str = "") -> str:
    """A module with one entry `k`; %r, %d, %h, %p, %f and %g registers are declared."""
    return f""".version 8.0
.target sm_90a
.address_size 64
{extra}
.visible .entry k({params}) {directives}
{{
.reg .b32 %r<32>; .reg .b64 %d<32>; .reg .b16 %h<32>; .reg .pred %p<16>; .reg .f32 %f<32>; .reg .f64 %g<32>;
{registers}
{body}
}}
"""


def run(
    body: str,
    *args: Any,
    grid: Any = 1,
    block: Any = 32,
    shared: int = 0,
    registers: str = "",
    extra: str = "",
    directives: str = "",
    **options: Any,
) -> Stats:
    """Runs a body; array argument i is the generic pointer %q<i>, scalar argument i the register %q<i>."""
    params, loads, declared = [], [], []
    for i, a in enumerate(args):
        if isinstance(a, np.ndarray):
            params.append(f".param .u64 q{i}")
            loads.append(f"ld.param.u64 %q{i}, [q{i}];")
            declared.append(f".reg .b64 %q{i};")
        else:
            dtype = TYPES[a.dtype.name]
            params.append(f".param .{dtype} q{i}")
            loads.append(f"ld.param.{dtype} %q{i}, [q{i}];")
            declared.append(f".reg .{HOLDS.get(dtype, dtype)} %q{i};")
    text = module(
        "\n".join(loads) + "\n" + body,
        ", ".join(params),
        registers="\n".join([*declared, registers]),
        extra=extra,
        directives=directives,
    )
    return launch(text, "k", grid, block, list(args), shared, **options)


def compute(code: str, out: Any, *inputs: Any, **options: Any) -> Any:
    """`code` from registers %a, %b, %c to %z, element by element; a thread each. Packed and narrow types are passed as
    bits: uint32 for f16x2, uint16 for f16."""
    arrays = [np.ascontiguousarray(x) for x in inputs]
    n = max(len(x) for x in arrays)
    result = np.zeros(n, out)
    every = [result, *[np.resize(x, n) for x in arrays]]
    lines, declared = (
        [
            "mov.u32 %i, %tid.x; mov.u32 %j, %ctaid.x; mad.lo.u32 %i, %j, 128, %i;",
            f"setp.ge.u32 %off, %i, {n}; @%off bra END;",
        ],
        [".reg .b32 %i, %j; .reg .b64 %at; .reg .pred %off;"],
    )
    for x, name in zip(every, "zabc", strict=False):
        dtype = TYPES[x.dtype.name]
        # of a bit type, to hold packed types, too
        declared.append(f".reg .{HOLDS.get(dtype, dtype).replace('u', 'b')} %{name};")
    for i, (x, name) in enumerate(zip(every, "zabc", strict=False)):
        if i:
            dtype = TYPES[x.dtype.name]
            lines.append(f"mad.wide.u32 %at, %i, {x.itemsize}, %q{i}; ld.global.{dtype} %{name}, [%at];")
    dtype = TYPES[result.dtype.name]
    lines.append(code)
    lines.append(f"mad.wide.u32 %at, %i, {result.itemsize}, %q0; st.global.{dtype} [%at], %z;\nEND: ret;")
    run("\n".join(lines), *every, grid=-(-n // 128), block=128, registers="\n".join(declared), **options)
    return result
