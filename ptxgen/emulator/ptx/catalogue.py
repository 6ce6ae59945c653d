"""The instructions of PTX ISA 9.1 that are not emulated, with the reasons."""

from __future__ import annotations

from functools import cache

from ptxgen.emulator.ptx.syntax import Instruction

#: the newest target whose instructions are emulated
TARGET = "sm_90a"

#: instructions and forms for targets up to sm_90a that are not emulated -> the reason; a name with modifiers stands for
#: all instructions that have them
NOT_TAKEN = {
    "multimem": "it accesses the memory of several GPUs; one GPU is emulated",
    "istypep": "a handle has no type that is known when the kernel is compiled",
    "sured": "reductions in surfaces are not implemented",
    "sust p": "formatted stores to surfaces are not implemented",
    "tex 2dms": "textures have one sample of a pixel",
    "tex a2dms": "textures have one sample of a pixel",
    "tld4 cube": "four texels of a cube are not implemented",
    "tld4 acube": "four texels of a cube are not implemented",
    **{
        f"txq {query}": "queries of samplers are not implemented"
        for query in ("filter_mode", "addr_mode_0", "addr_mode_1", "addr_mode_2", "force_unnormalized_coords")
    },
    "suq memory_layout": "surfaces have one layout",
    "tex f16": "textures give numbers of 32 bits",
    "tex f16x2": "textures give numbers of 32 bits",
    "mma m8n8k4 f16": "the fragments of Volta are not implemented",
}

#: instructions and forms that need a target later than sm_90a
LATER = {
    "tcgen05": "sm_100a",
    "clusterlaunchcontrol": "sm_100",
    "st bulk": "sm_100",
    "redux f32": "sm_100a",
    **{f"{op} f32x2": "sm_100" for op in ("add", "sub", "mul", "fma")},
    **{f"{op} f32 {narrow}": "sm_100" for op in ("add", "sub", "fma") for narrow in ("f16", "bf16")},
    "cvt rs": "sm_100a",
    **{f"cvt {ptx_type}": "sm_100a" for ptx_type in ("e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2", "s2f6x2")},
    "ldmatrix m16n16": "sm_100a",
    "ldmatrix m8n16": "sm_100a",
    "stmatrix m16n8": "sm_100a",
    **{f"mma kind::{inputs}": "sm_120a" for inputs in ("f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4")},
    **{f"cp.async.bulk.tensor {mode}": "sm_100" for mode in ("tile::gather4", "tile::scatter4", "im2col::w")},
    "cp.async.bulk.tensor im2col::w::128": "sm_100",
    **{f"cp.async.bulk.tensor cta_group::{n}": "sm_100" for n in (1, 2)},
    "cp.async.bulk cp_mask": "sm_100",
    "multimem.cp": "sm_100",
}


@cache
def _split(key: str) -> tuple[str, frozenset[str]]:
    op, *mods = key.replace(".", " ").split()
    return op, frozenset(mods)


def reason(ins: Instruction) -> str:
    """The reason why an instruction is not emulated, by the most specific row of the tables; empty if none has it."""
    mods, best, why = set(ins.mods), -1, ""
    for table, text in ((NOT_TAKEN, "{}"), (LATER, f"it needs {{}}; instructions up to {TARGET} are emulated")):
        for key, value in table.items():
            op, words = _split(key)
            if op == ins.op and words <= mods and len(words) > best:
                best, why = len(words), text.format(value)
    return why
