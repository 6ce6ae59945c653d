"""Texts that are not PTX: edits of one token, with ptxas as the judge, and the messages of the refusals."""

from __future__ import annotations

from collections import Counter

import edits
import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.emulator import Machine, launch
from ptxgen.emulator.ptx.parser import parse
from ptxgen.errors import InputError, OutOfBoundsFault, ParseError, UnsupportedError

HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"
KERNEL = """.global .b32 g[4]; .shared .b32 s[4];
.visible .entry k(.param .u64 x)
{
.reg .pred %p<2>; .reg .b16 %h<2>; .reg .b32 %r<4>; .reg .s32 %i; .reg .f32 %f<3>; .reg .b64 %d<3>; .reg .f64 %g;
BODY
}
"""


def test_edits_of_one_token():
    """Every refusal is an error of the emulated device, and nearly all judgments are those of ptxas."""
    verdicts: Counter[tuple[bool, bool]] = Counter()
    differing = []
    for name, rows in edits.recorded().items():
        text = (edits.TEXTS / f"{name}.ptx").read_text()
        assert not edits.refusal(text)
        for edit, accepted in rows:
            why = edits.refusal(edit.apply(text))  # any other exception fails the test
            verdicts[accepted, not why] += 1
            if accepted != (not why):
                differing.append((name, edit, accepted, why))
    accepted_share, rejected_share = edits.shares(verdicts)
    assert sum(verdicts.values()) > 400
    assert verdicts[True, True] > 100
    assert accepted_share >= 0.99, differing
    assert rejected_share >= 0.97, differing


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("add.s32 %r0, %r1;", "line 8: `add.s32` has 2 operands; it must have 3: d, a, b: add.s32 %r0, %r1; (in k)"),
        ("add.s32 %r0, %r1, %f0;", "operand 3 of `add.s32` is %f0, a .f32 register; it must be a .s32 register: add"),
        ("add.s32 %r0, %tid.x, 1;", "operand 2 of `add.s32` is the special register %tid.x"),
        ("add.f32 %f0, %i, %f1;", "operand 2 of `add.f32` is %i, a .s32 register"),
        ("add.f32 %f0, %f1, 1;", "operand 3 of `add.f32` is an integer constant"),
        (
            "mul.wide.s32 %r0, %r1, 4;",
            "operand 1 of `mul.wide.s32` is %r0, a .b32 register; it must be a .s64 register",
        ),
        ("setp.eq.s32 %p0, %r0, 1, %p1;", "`setp.eq.s32` has 4 operands; it must have 3: p|q, a, b"),
        ("shl.b64 %d0, %d1, %d2;", "operand 3 of `shl.b64` is %d2, a .b64 register; it must be a .u32 register"),
        ("ld.global.u32 %f0, [%d0];", "operand 1 of `ld.global.u32` is %f0"),
        ("ld.global.u32 %r0, [s];", "s is a .shared variable; it must be .global"),
        ("ld.global.u32 %r0, [%r1];", "its address %r1 has 32 bits; it must have 64"),
        ("ld.shared.u32 %r0, [%f0];", "its address %f0 is a .f32 register"),
        ("ld.global.v2.u32 {%r0, %r1, %r2}, [%d0];", "operand 1 of `ld.global.v2.u32` has 3 elements; it must have 2"),
        (
            "ld.relaxed.global.u32 %r0, [%d0];",
            "has only a memory order; it must have both a memory order and a scope, or neither",
        ),
        ("st.global.u32 [%d0], %h0;", "operand 2 of `st.global.u32` is %h0"),
        ("atom.global.and.u32 %r0, [%d0], 1;", "has type .u32; it must be one of b32, b64"),
        ("mov.u32 %r0, nothing;", "line 8: nothing is not declared"),
        ("mov.b64 %d0, {%h0, %h1};", "together they must have 64"),
        ("cvt.f32.s32 %f0, %r0;", "`cvt.f32.s32` needs a rounding: .rn, .rz, .rm or .rp"),
        ("bar.sync 16;", "operand 1 of `bar.sync` is 16; it must be 0 to 15"),
        ("bra %r0;", "it must be a label"),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r0], %d0, [%r1];",
            "is %d0, a .b64 register; it must be a .b32 register",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r0], 8;",
            "operand 3 of `cp.async.bulk.global.shared::cta.bulk_group` is 8; it must be 0 to 4294967280 and a multiple of 16",
        ),
        (
            "createpolicy.fractional.L2::evict_first.b64 %d0, 2.0;",
            "operand 2 of `createpolicy.fractional.L2::evict_first.b64` is 2; it must be above 0 and at most 1",
        ),
        ("cvt.rn.bf16x2.f32 %r0, %d0, %f1;", "operand 2 of `cvt.rn.bf16x2.f32` is %d0"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f0, %f0, %f0}, %g, %d0, 1, 1, 1, 0, 0;",
            "is %g, a .f64 register; it must be a .u64 register",
        ),
        (
            "mma.sync.aligned.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%g, %g}, {%g}, {%g}, {%g, %g};",
            "has .aligned twice; it must have it once",
        ),
        (
            "cp.async.bulk.prefetch.tensor.2d.L2.global [%d0, {%d1, 0}];",
            "its coordinate is %d1, a .b64 register; it must be a .s32 register",
        ),
        ("discard.L2 [%d0], 64;", "operand 2 of `discard.L2` is 64; it must be 128"),
        ("createpolicy.fractional.L2::evict_first.b64 %d0, 1;", "is an integer constant; it must be a .f32 register"),
        ("ret;;", "';' is unexpected; it must be a statement"),
        ("add.s32 %r0, %r1, 1,;", "';' is unexpected; it must be an operand"),
        (
            "add.s32 %r0, %r1, 99999999999999999999;",
            "99999999999999999999 is too large; an integer constant has 64 bits",
        ),
        ("mov.u32 %r0, 08;", "08 has a digit that is not octal"),
        ("mov.f32 %f0, 1e400;", "1e400 is beyond the range of .f64"),
        (".reg .b32 %i;", "%i is defined twice"),
        (".shared .align 3 .b32 t;", "the alignment is 3; it must be a power of two"),
        (".loc 1 2;", "';' is unexpected; it must be an integer"),
    ],
)
def test_messages(statement, message):
    with pytest.raises(ParseError) as error:
        parse(HEADER + KERNEL.replace("BODY", statement))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            ".target sm_90a\n",
            "'.target' is unexpected; it must be .version: a module begins with .version, .target and .address_size",
        ),
        (".version 8.5\n.address_size 64\n", "it must be .target"),
        (".version 6.9\n.target sm_70\n", "'6.9' is unexpected; there is no such version of the PTX ISA"),
        (".version 8\n.target sm_90a\n", "'8' is unexpected; it must be a version such as 8.0"),
        (".version 8.5\n.target banana\n", "'banana' is unexpected; it must be an architecture such as sm_90a"),
        (".version 7.0\n.target sm_90a\n", "'sm_90a' is unexpected; .version 7.0 has no such architecture"),
        (".version 8.5\n.target sm_90a\n;", "';' is unexpected; it must be a directive"),
    ],
)
def test_headers(header, message):
    with pytest.raises(ParseError) as error:
        parse(header + KERNEL.replace("BODY", "ret;"))
    assert message in str(error.value)


@pytest.mark.parametrize(
    "statement",
    [
        "tensormap.replace.tile.rank.global.b1024.b32 [%r0], 1;",
        "fence.proxy.tensormap::generic.acquire.gpu [%r0], 128;",
        "cp.async.bulk.prefetch.L2.global [%r0], 16;",
        "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %d0, [%r0], %r1, 65536;",
        "createpolicy.fractional.L2::evict_last.b64 %d0, %f0;",
        "prefetch.global.L2::evict_last [%d0];",
        "applypriority.L2::evict_normal [%d0], 128;",
        "redux.sync.sync.add.u32 %r0, %r1, -1;",
        "bar.sync.sync 0;",
        "ld.global.v2.u32 {%f0, %r1}, [%d0];",
        "st.global.v2.u64 [%d0], {%d0, %g};",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r0, %r1}, {%r0, %r1}, {%r2, %r3}, "
        "{%r0, %r1}, %r2, 4294967296;",
    ],
)
def test_texts_that_ptxas_takes(statement):
    """Addresses of 32 bits that ptxas extends, policies, a repeated .sync, vectors with one register of a bit type."""
    assert edits.refusal(HEADER + KERNEL.replace("BODY", statement)) == ""


def test_variables_that_do_not_fit():
    text = HEADER + ".global .b32 g[99999999999];\n.visible .entry k() { .reg .b64 %d; mov.u64 %d, g; ret; }"
    with pytest.raises(UnsupportedError, match="line 4: g has 399999999996 bytes; at most 4294967296 are emulated"):
        launch(text, "k", grid=1, block=1, args=[])
    with pytest.raises(InputError, match="nbytes is 1152921504606846976; it must fit in the memory of this machine"):
        Machine().alloc(1 << 60)


def test_special_registers_in_vectors():
    y = np.zeros((8, 4), "u4")
    run(
        """mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 16, %q0; mov.b64 %d1, {%tid.x, %ntid.x};
        st.global.u64 [%d0], %d1; st.global.v2.u32 [%d0+8], {%r0, %tid.x}; ret;""",
        y,
        block=8,
    )
    assert (y == np.arange(8)[:, None] * [1, 0, 1, 1] + [0, 8, 0, 0]).all()


def test_shared_memory_of_a_kernel():
    statement = ".shared .b8 t[240000]; .reg .b32 %t; mov.u32 %t, t;"
    with pytest.raises(ParseError, match="line 5: k has 240000 bytes of shared memory; it must have at most 232448"):
        launch(HEADER + KERNEL.replace("BODY", statement), "k", grid=1, block=1, args=[np.uint64(0)])


def test_arguments_of_launch():
    text = HEADER + ".visible .entry k() { ret; }"
    for options, message in (
        ({"grid": 0}, "grid.x is 0; it must be 1 to 2147483647"),
        ({"block": (32, 64)}, "block has 2048 threads; it must have at most 1024"),
        ({"race": True}, "race is no option of the emulated device; the options are .*races"),
    ):
        with pytest.raises(InputError, match=message):
            launch(text, "k", **{"grid": 1, "block": 1, "args": []} | options)
    with pytest.raises(ParseError, match=r"a module begins with \.version; it must be PTX, as nvcc -ptx"):
        launch("#include <cstdio>", "k", grid=1, block=1, args=[])


def test_launch_takes_names_of_cxx():
    """The C++ name of a kernel, or a list of the names there are."""
    text = HEADER + "".join(f".visible .entry _ZN3app4scanI{t}EEvP{t}() {{ ret; }}\n" for t in "fi")
    launch(text, "app::scan<int>", grid=1, block=1, args=[])
    wanted = r"entry is 'app::scan'; it must name one of the kernels of the text: app::scan<float>\(float\*\); app::scan<int>"
    for entry, message in (("app::scan", wanted), ("scan", wanted.replace("app::scan'", "scan'"))):
        with pytest.raises(InputError, match=message):
            launch(text, entry, grid=1, block=1, args=[])


def test_an_unknown_modifier_refuses_only_its_kernel():
    """Valid in some version of PTX, perhaps; another kernel of the text runs."""
    text = HEADER + "".join(
        f".visible .entry {name}() {{ .reg .b32 %r<3>; {body} ret; }}\n"
        for name, body in (("old", ""), ("new", "add.future.s32 %r0, %r1, %r2;"))
    )
    launch(text, "old", grid=1, block=1, args=[])
    with pytest.raises(UnsupportedError, match=r"add\.future\.s32 is not emulated"):
        launch(text, "new", grid=1, block=1, args=[])


def test_a_16_bit_register_holds_a_shared_address():
    y = np.zeros(1, "u4")
    run(
        """.shared .align 4 .b32 v; .reg .b16 %a; mov.u32 %r0, v; cvt.u16.u32 %a, %r0; st.shared.u32 [%a], 7;
        ld.shared.u32 %r1, [v]; st.global.u32 [%q0], %r1; ret;""",
        y,
        block=1,
    )
    assert y[0] == 7


def test_an_access_outside_a_parameter():
    """Assembles, so it is a fault of the launch that executes it."""
    text = f"{HEADER}.visible .entry k(.param .u32 n, .param .u32 m) {{ .reg .b32 %r; ld.param.u32 %r, [m+4]; ret; }}"
    with pytest.raises(OutOfBoundsFault, match="4 bytes at offset 4 of m, which has 4 bytes"):
        launch(text, "k", grid=1, block=1, args=[np.uint32(1), np.uint32(2)])
    call = """.func f(.param .b32 a) { .reg .b32 %r; ld.param.b32 %r, [a]; ret; }
    .visible .entry k() { .param .b32 p; st.param.b32 [p+4], 1; call f, (p); ret; }"""
    with pytest.raises(OutOfBoundsFault, match="4 bytes at offset 4 of p, which has 4 bytes"):
        launch(HEADER + call, "k", grid=1, block=1, args=[])


def test_launch_parses_a_text_once(monkeypatch):
    """The second launch of a text has its compiled kernel, and the initial values of its variables again."""
    text = f"""{HEADER}.global .u32 count = 5;
    .visible .entry k(.param .u64 y) {{ .reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [y];
    ld.global.u32 %r, [count]; add.u32 %r, %r, 1; st.global.u32 [count], %r; st.global.u32 [%d], %r; ret; }}"""
    parsed = []
    monkeypatch.setattr("ptxgen.emulator.engine.module.parse", lambda text: parsed.append(text) or parse(text))
    for _ in range(3):
        y = np.zeros(1, "u4")
        launch(text, "k", 1, 1, [y])
        assert y[0] == 6
    assert len(parsed) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "cvt.rn.satfinite.e4m3x2.f32 %h0, 0f00000000, %f0;",
        "cvt.rn.f16x2.f32 %r0, %f0, 1.5;",
        "cvt.rna.tf32.f32 %r0, 0f3F800000;",
        "cvt.u64.u32 %d0, %tid.x;",
        "add.s32 %r0, %r1, s+4;",
        "selp.b32 %f0, %r1, %f1, %p0;",
        "mov.b32 %f0, 0f3F800000;",
        "setp.eq.s32 %p0|_, 1, %i;",
        "st.global.b8 [%d0], %f0;",
        "ld.global.b8 %f0, [%d0];",
        "atom.global.exch.b32 %f0, [%d0], %f1;",
        "lop3.b32 %f0, %f1, 5, %r0, 0x96;",
    ],
)
def test_statements_that_ptxas_accepts(statement):
    code = parse(HEADER + KERNEL.replace("BODY", statement)).functions["k"].code
    assert not code[-1].refusal
