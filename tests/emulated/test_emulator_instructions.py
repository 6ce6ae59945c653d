"""The instructions that the emulated device takes: an example of each row of the table of signatures is compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from ptxgen.emulator import launch
from ptxgen.emulator.engine.module import Module
from ptxgen.emulator.memory.global_memory import GlobalMemory
from ptxgen.emulator.ops.instruction_set import find  # noqa: F401  imports all instructions
from ptxgen.emulator.ops.registry import TABLE
from ptxgen.emulator.options import Options
from ptxgen.emulator.ptx import catalogue
from ptxgen.emulator.ptx.operand_checks import CHECKED, Signature, Spec, table
from ptxgen.emulator.ptx.reader import is_special
from ptxgen.emulator.ptx.syntax import SIZES
from ptxgen.errors import UnsupportedError
from tests import ptx_catalogue

KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k() {{
.reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<8>; .reg .f64 %g<8>; .reg .b128 %q<4>;
{}
L: ret; }}
"""
#: constants of instructions that take only some values
CONSTANTS = {"setmaxnreg": 64, "cp": 16, "applypriority": 128, "discard": 128, "fence": 128, "wgmma": 0, "tensormap": 1}
COORDINATES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4}


def register(dtype: str, number: int = 0) -> str:
    if dtype == "pred":
        return f"%p{number % 4}"
    letters = {1: "r", 2: "h", 4: "f" if dtype == "f32" else "r", 8: "g" if dtype == "f64" else "d", 16: "q"}
    return f"%{letters[SIZES[dtype]]}{number}"


def vector(dtype: str, count: int) -> str:
    return "{" + ", ".join(register(dtype, i) for i in range(count)) + "}"


def operand(op: str, mods: list[str], types: tuple[str, ...], spec: Spec, number: int) -> str:
    """An operand that fits its specification."""
    dtype = spec.form
    if dtype.startswith("["):
        if not dtype.endswith(",t]"):
            return "[%d0]"
        rank = next((m for m in mods if m in COORDINATES or re.fullmatch(r"[1-5]d", m)), "")
        if op == "cp":
            return f"[%d0, {vector('b32', int(rank[0]))}]"
        kinds = [types[1] if len(types) > 1 else "b32"] * COORDINATES[rank]
        if rank[0] == "a":
            kinds[0] = "b32"  # the layer
        return f"[%d0, {{{', '.join(register(dtype, i) for i, dtype in enumerate(kinds))}}}]"
    if dtype in ("d|p", "d||p", "d_||p", "p|q"):
        return f"{register(spec.type, 1)}|%p1"
    if dtype.startswith("v4|"):
        return vector(types[0], 4)
    if dtype in ("vd", "va"):
        count = 4 if "v4" in mods else 2 if "v2" in mods else 1
        return vector(types[0], count)
    if dtype == "v":
        if op in ("ldmatrix", "stmatrix"):
            return vector("b32", int(next(m for m in mods if re.fullmatch(r"x\d", m))[1]))
        if op == "cp":
            rank = next(m for m in mods if re.fullmatch(r"[1-5]d", m))
            return vector("b16", int(rank[0]) - 2)
        rank = next(m for m in mods if m in COORDINATES)
        return vector("f32" if "grad" in mods else "b32", {"1d": 1, "a1d": 1, "2d": 2, "a2d": 2}.get(rank, 4))
    if dtype == "n":
        if op == "cp":
            return "0" if "wait_group" in mods else "16"
        return "128" if "cp_fenceproxy" in mods else str(CONSTANTS.get(op, 1))
    if dtype == "L":
        return "L"
    if dtype == "_":
        return "_"
    return register(spec.type, number)


def examples(op: str, signature: Signature) -> Iterator[str]:
    """Statements with all types of a row: with the fewest and the most modifiers, and the first and the last of each."""
    groups = signature.groups
    for types in signature.types:
        for pick in (min, max):
            chosen = [[pick(words)] if not optional else [pick(words)] * (pick is max) for words, optional in groups]
            mods = [m for group in chosen for m in group]
            if op == "cp" and "im2col" in mods:
                mods = ["3d" if re.fullmatch(r"[12]d", m) else m for m in mods]
            specs = [s for s in signature.specs(mods, types) if not (s.optional and pick is min)]
            name = ".".join((op, *mods, *types))
            yield f"{name} {', '.join(operand(op, mods, types, s, i) for i, s in enumerate(specs))};"


def compile_kernel(body: str) -> None:
    module = Module(KERNEL.format(body), GlobalMemory())
    module.entries["k"].program(Options(engine="numpy"))


@pytest.mark.parametrize("op", sorted(table()))
def test_examples_of_signatures_are_compiled(op):
    for signature in table()[op]:
        if not signature.any_modifiers:
            compile_kernel("\n".join(examples(op, signature)))


# ---- the catalogue

NAMES = {name for names in ptx_catalogue.CHAPTERS.values() for name in names.split()}


def test_every_instruction_is_in_the_catalogue():
    """Each one is emulated, or has a reason why not; none has both."""
    emulated = {name for name in TABLE if name[0] != "*"}
    named = {name.partition(".")[0] for name in NAMES}
    assert {name.partition(".")[0] for name in emulated} <= named
    assert named >= set(CHECKED)
    refused = {key.replace(" ", ".") for key in (*catalogue.NOT_TAKEN, *catalogue.LATER)}
    for name in NAMES:
        known = any(row == name or row.startswith(f"{name}.") for row in emulated)
        assert known != (name in refused), name


#: a statement for each reason; ptxas 13.0 takes the first part for sm_90a
REFUSED = {
    "multimem": "multimem.red.relaxed.gpu.global.add.u32 [%d0], %r0;",
    "istypep": "istypep.texref %p0, %d0;",
    "sured": "sured.b.add.1d.u32.trap [%d0, {%r0}], %r1;",
    "sust p": "sust.p.1d.b32.trap [%d0, {%r0}], {%r1};",
    "tex 2dms": "tex.2dms.v4.f32.s32 {%f0,%f1,%f2,%f3}, [%d0, {%r0,%r1,%r2,%r3}];",
    "tex a2dms": "tex.a2dms.v4.f32.s32 {%f0,%f1,%f2,%f3}, [%d0, {%r0,%r1,%r2,%r3}];",
    "tld4 cube": "tld4.r.cube.v4.f32.f32 {%f0,%f1,%f2,%f3}, [%d0, {%f0,%f1,%f2,%f3}];",
    "tld4 acube": "tld4.r.acube.v4.f32.f32 {%f0,%f1,%f2,%f3}, [%d0, {%r0,%f1,%f2,%f3}];",
    **{f"txq {query}": f"txq.{query}.b32 %r0, [%d0];" for query in ("filter_mode", "force_unnormalized_coords")},
    **{f"txq addr_mode_{i}": f"txq.addr_mode_{i}.b32 %r0, [%d0];" for i in range(3)},
    "suq memory_layout": "suq.memory_layout.b32 %r0, [%d0];",
    "tex f16": "tex.1d.v4.f16.s32 {%h0,%h1,%h2,%h3}, [%d0, {%r0}];",
    "tex f16x2": "tex.1d.v2.f16x2.s32 {%r0,%r1}, [%d0, {%r0}];",
    "mma m8n8k4 f16": "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%r0,%r1}, {%r0,%r1,%r2,%r3};",
    "tcgen05": "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;",
    "redux f32": "redux.sync.min.abs.NaN.f32 %f0, %f1, -1;",
    "add f32x2": "add.rn.f32x2 %d0, %d1, %d2;",
    "fma f32 bf16": "fma.rn.f32.bf16 %f0, %h0, %h1, %f1;",
    "cvt e2m1x2": "cvt.rn.satfinite.e2m1x2.f32 %h0, %f0, %f1;",
    "cp.async.bulk cp_mask": "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d0], [%r0], 16, %h0;",
    "mma kind::mxf4": "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 {%f0,%f1,%f2,%f3}, "
    "{%r0,%r1,%r2,%r3}, {%r0,%r1}, {%f0,%f1,%f2,%f3}, %r4, {%h0,%h1}, %r5, {%h0,%h1};",
}


@pytest.mark.parametrize("key", REFUSED)
def test_reasons(key):
    assert catalogue.NOT_TAKEN.keys() <= REFUSED.keys()
    why = catalogue.NOT_TAKEN.get(key) or f"it needs {catalogue.LATER[key]}; instructions up to sm_90a are emulated"
    with pytest.raises(UnsupportedError, match=f"is not emulated \\({re.escape(why)}\\)"):
        compile_kernel(REFUSED[key])


def test_special_registers_and_directives():
    for name in ptx_catalogue.REGISTERS.split():
        assert is_special(f"%{name}") or is_special(f"%{name}.x"), name
    assert not any(is_special(f"%{name}") for name in ptx_catalogue.REGISTERS_NOT_TAKEN)
    for directive in ptx_catalogue.DIRECTIVES.split():
        text = DIRECTIVES.get(directive, f".visible .entry k() {directive} {{ ret; }}")
        begin = "" if text.startswith(".version") else ".version 8.7\n.target sm_90a\n.address_size 64\n"
        Module(begin + text, GlobalMemory())


#: a module with each directive that is not one of a kernel alone
DIRECTIVES = {
    **dict.fromkeys((".version", ".target", ".address_size"), ".version 8.7\n.target sm_90a\n.address_size 64\n"),
    ".entry": ".entry k() { ret; }",
    ".func": ".func f() { ret; }",
    ".alias": ".func f() { ret; } .func g(); .alias g, f;",
    ".branchtargets": ".entry k() { .reg .u32 %r; T: .branchtargets L; brx.idx %r, T; L: ret; }",
    ".calltargets": ".func f() { ret; } .entry k() { .reg .u64 %d; mov.u64 %d, f; T: .calltargets f; call %d, (), T; ret; }",
    ".callprototype": ".entry k() { .reg .u64 %d; P: .callprototype _ (); call %d, (), P; ret; }",
    **{f".{word}": f".entry k() .{word} 32 {{ ret; }}" for word in ("maxnreg", "maxntid", "reqntid", "maxclusterrank")},
    **{f".{word}": f".entry k() .maxntid 32 .{word} 2 {{ ret; }}" for word in ("minnctapersm", "maxnctapersm")},
    ".reqnctapercluster": ".entry k() .reqnctapercluster 2 { ret; }",
    ".noreturn": ".func f() .noreturn { trap; }",
    ".pragma": '.pragma "nounroll";',
    ".abi_preserve": ".func f() .abi_preserve 8 { ret; }",
    ".abi_preserve_control": ".func f() .abi_preserve_control 8 { ret; }",
    ".section": ".section .debug_str { L: .b8 0 }",
    ".file": '.file 1 "k.cu"',
    ".loc": '.file 1 "k.cu" .entry k() { .loc 1 2 3 ret; }',
    ".extern": ".extern .shared .align 16 .b8 s[];",
    ".visible": ".visible .global .u32 x;",
    ".weak": ".weak .global .u32 x;",
    ".common": ".common .global .u32 x;",
    ".reg": ".entry k() { .reg .u32 %r<4>; ret; }",
    ".global": ".global .u32 x;",
    ".const": ".const .u32 x = 1;",
    ".shared": ".shared .u32 x;",
    ".local": ".entry k() { .local .u32 x; ret; }",
    ".param": ".entry k(.param .u32 x) { ret; }",
    ".align": ".global .align 16 .b8 x[16];",
    ".attribute": ".global .attribute(.managed) .u32 x;",
    ".explicitcluster": ".entry k() .explicitcluster { ret; }",
    ".blocksareclusters": ".entry k() .reqntid 32 .reqnctapercluster 2 .blocksareclusters { ret; }",
}


@pytest.mark.parametrize("result", ["f16", "bf16"])
@pytest.mark.parametrize("source", ["s16", "u32", "b64", "f32", "f64"])
def test_set_gives_16_bit_numbers(result, source):
    """1.0 in the type of the result, from a comparison of any type."""
    loads = "".join(f"cvt.u64.u16 %d{i + 4}, %h{i}; st.global.u64 [%d8+8 * {i}], %d{i + 4};" for i in range(2))
    register_class = "f" if source[0] == "f" else "d" if source == "b64" else "h" if source == "s16" else "r"
    register_class = "g" if source == "f64" else register_class
    one, two = ("1.0", "2.0") if source[0] == "f" else ("1", "2")
    body = f"""mov.{source} %{register_class}2, {one}; mov.{source} %{register_class}3, {two};
    set.eq.{result}.{source} %h0, %{register_class}2, %{register_class}3; set.ne.{result}.{source} %h1, %{register_class}2, %{register_class}3;
    ld.param.u64 %d8, [x]; {loads}"""
    y = np.zeros(2, "u8")
    launch(KERNEL.format(body).replace("k()", "k(.param .u64 x)"), "k", grid=1, block=1, args=[y])
    assert y.tolist() == [0, 0x3C00 if result == "f16" else 0x3F80]
