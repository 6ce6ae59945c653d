"""Loads, stores, atomics, asynchronous copies and the syntax around them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from emulator_kernels import launch, module, run

from ptxgen.emulator import Machine
from ptxgen.errors import InputError, OutOfBoundsFault, ParseError, RaceFault

THREAD = "mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mov.u32 %r8, %ntid.x; mad.lo.u32 %r0, %r9, %r8, %r0;"


@pytest.mark.each_pair
@pytest.mark.parametrize("space", ["global", "shared", "generic", "generic shared"])
@pytest.mark.parametrize("vector", ["", ".v2", ".v4"])
@pytest.mark.parametrize("element", ["u8", "b16", "u32", "f32", "b64", "f64"])
def test_vectors_round_trip(space, vector, element):
    count = int(vector[2:] or 1)
    dtype = {"u8": "u1", "b16": "u2", "u32": "u4", "f32": "f4", "b64": "u8", "f64": "f8"}[element]
    size = np.dtype(dtype).itemsize * count
    if size > 16:
        pytest.skip("no such access")
    x = (np.arange(64 * count) % 251).astype(dtype)
    y = np.zeros_like(x)
    regs = {1: "%h", 2: "%h", 4: "%f" if element == "f32" else "%r1", 8: "%g" if element == "f64" else "%d1"}[
        np.dtype(dtype).itemsize
    ]
    names = [f"{regs}{i}" for i in range(count)]
    v = "{" + ", ".join(names) + "}" if count > 1 else names[0]
    ld_in = f"ld.global.nc.L1::no_allocate{vector}.{element} {v}, [%d0];"
    body = THREAD + f"mul.wide.u32 %d2, %r0, {size}; add.u64 %d0, %q0, %d2; add.u64 %d3, %q1, %d2; {ld_in}"
    if space == "global":
        body += f"st.global.cs{vector}.{element} [%d3], {v};"
    elif space == "generic":
        body += f"st{vector}.{element} [%d3], {v};"
    else:
        if space == "shared":
            body += f"mov.u32 %r20, sm; mad.lo.u32 %r20, %r0, {size}, %r20;"
            name, at = ".shared", "%r20"
        else:
            body += "mov.u64 %d20, sm; cvta.shared.u64 %d20, %d20; add.u64 %d20, %d20, %d2;"
            name, at = "", "%d20"
        body += f"st{name}{vector}.{element} [{at}], {v}; bar.sync 0; ld{name}{vector}.{element} {v}, [{at}]; st.global{vector}.{element} [%d3], {v};"
    run(body, x, y, block=64, extra=".shared .align 16 .b8 sm[1024];")
    assert (x == y).all()


def test_narrow_loads_extend():
    x = np.array([0x80, 0x7F, 0xFF], "u1")
    y = np.zeros(9, "i8")
    run(
        """ld.global.s8 %r1, [%q0]; ld.global.u8 %r2, [%q0]; ld.global.s8 %d1, [%q0+2]; ld.global.b8 %d2, [%q0+2];
    cvt.s64.s32 %d3, %r1; cvt.u64.u32 %d4, %r2; st.global.u64 [%q1], %d3; st.global.u64 [%q1+8], %d4;
    st.global.u64 [%q1+16], %d1; st.global.u64 [%q1+24], %d2; st.global.u8 [%q1+32], %r1;""",
        x,
        y,
        block=1,
    )
    assert y[:5].tolist() == [-128, 128, -1, 255, 128]


def test_parameters():
    y = np.zeros(8, "i8")
    run(
        """cvt.s64.s8 %d1, %q1; st.global.u64 [%q0], %d1; cvt.u64.u16 %d1, %q2; st.global.u64 [%q0+8], %d1;
    st.global.f32 [%q0+16], %q3; st.global.f64 [%q0+24], %q4; st.global.u64 [%q0+32], %q5;""",
        y,
        np.int8(-3),
        np.uint16(65535),
        np.float32(1.5),
        np.float64(-2.5),
        np.uint64(1 << 63),
        block=1,
    )
    assert y[:2].tolist() == [-3, 65535]
    assert y.view("f4")[4] == 1.5
    assert y.view("f8")[3] == -2.5
    assert y.view("u8")[4] == 1 << 63


def test_structure_by_value():
    text = module(
        """ld.param.u64 %d0, [out]; mov.b64 %d1, box; cvta.param.u64 %d1, %d1; ld.param.u32 %r0, [box+12];
    ld.u32 %r1, [%d1+16]; st.global.v2.u32 [%d0], {%r0, %r1};""",
        ".param .align 64 .b8 box[128], .param .u64 out",
    )
    out = np.zeros(2, "u4")
    launch(text, "k", 1, 1, [np.arange(32, dtype="u4").view("u1"), out])
    assert out.tolist() == [3, 4]


def test_variables_and_initialisers():
    extra = """.const .align 4 .u32 table[4] = {1, 2, 0x30, 4};
    .global .align 8 .f32 numbers[3] = {1.5, 0f40000000, -0.25};
    .global .u64 where = numbers; .visible .global .align 4 .b8 text[8] = {65, 66, 0};
    .shared .align 16 .b8 one[3]; .shared .f32 two[4];"""
    y = np.zeros(16, "u4")
    run(
        """ld.const.u32 %r1, [table+8]; st.global.u32 [%q0], %r1; ld.global.u64 %d1, [where]; ld.global.u32 %r2, [%d1+4];
    st.global.u32 [%q0+4], %r2; ld.global.u8 %r3, [text+1]; st.global.u32 [%q0+8], %r3; mov.u32 %r4, two; mov.u32 %r5, one;
    sub.u32 %r4, %r4, %r5; st.global.u32 [%q0+12], %r4; mov.u64 %d2, table; cvta.const.u64 %d2, %d2; ld.u32 %r6, [%d2+4];
    st.global.u32 [%q0+16], %r6; ld.global.f32 %f1, [numbers+8]; st.global.f32 [%q0+20], %f1;""",
        y,
        block=1,
        extra=extra,
    )
    assert y[:5].tolist() == [0x30, 0x40000000, 66, 4, 2]
    assert y.view("f4")[5] == -0.25


def test_local_memory():
    y = np.zeros(64, "u4")
    run(
        THREAD
        + """mov.u64 %d1, mine; cvta.local.u64 %d2, %d1; st.local.u32 [mine+4], %r0; mad.lo.u32 %r1, %r0, 3, 1;
    st.u32 [%d2+8], %r1; ld.u32 %r2, [%d2+4]; ld.local.u32 %r3, [%d1+8]; add.u32 %r2, %r2, %r3;
    mad.wide.u32 %d3, %r0, 4, %q0; st.global.u32 [%d3], %r2;""",
        y,
        block=64,
        registers=".local .align 8 .b8 mine[16];",
    )
    assert (y == 4 * np.arange(64) + 1).all()


def test_scopes_and_labels():
    """Braces hide registers and labels; ranges, lists, comments and pragmas are read."""
    y = np.zeros(32, "u4")
    run(
        """/* a comment
    over lines */ mov.u32 %r0, %tid.x; mov.u32 %x, 1; // another
    { .reg .b32 %x; mov.u32 %x, 5; L: add.u32 %x, %x, 1; setp.lt.u32 %p0, %x, 9; @%p0 bra L; add.u32 %r0, %r0, %x; }
    .pragma "nounroll";
    { .reg .b32 %x, %y<3>; mov.u32 %y2, 100; L: add.u32 %y2, %y2, %y2; setp.lt.u32 %p0, %y2, 300; @%p0 bra L;
      add.u32 %r0, %r0, %y2; }
    add.u32 %r0, %r0, %x; mov.u32 %r1, %tid.x; mad.wide.u32 %d0, %r1, (2+2)*1, %q0; st.global.u32 [%d0+(8-8)], %r0;""",
        y,
        registers=".reg .b32 %x;",
    )
    assert (y == np.arange(32) + 9 + 400 + 1).all()


def test_register_ranges_end():
    with pytest.raises(ParseError, match="%r32"):
        run("mov.u32 %r32, 1;")
    with pytest.raises(ParseError, match="%r07"):
        run("mov.u32 %r07, 1;")


# ---- atomics


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("op", "want"),
    [
        ("add.u32", 63 * 32),
        ("min.s32", 0),
        ("max.u32", 63),
        ("or.b32", 63),
        ("and.b32", 0),
        ("xor.b32", 0),
        ("inc.u32", 62 % 40),
        ("exch.b32", None),
    ],
)
@pytest.mark.parametrize("returns", [False, True])
def test_atomics(space, op, want, returns):
    y = np.zeros(65, "u4")
    word = "%q0" if space == "global" else "sm"
    start = 0xFFFFFFFF if op.startswith("and") else 5 if op.startswith("min") else 0
    value = "39" if op.startswith("inc") else "%r0"
    if op.startswith(("inc", "exch")) and not returns:
        pytest.skip("only atom")
    text = f"atom.{space}.{op} %r1, [{word}], {value};" if returns else f"red.{space}.{op} [{word}], {value};"
    body = f"""mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; @%p0 st.{space}.u32 [{word}], {start}; bar.sync 0; mov.u32 %r1, 0;
    {text} bar.sync 0; ld.{space}.u32 %r2, [{word}]; mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0+4], %r1;
    @%p0 st.global.u32 [%q0], %r2;"""
    run(body, y, block=64, extra=".shared .align 8 .b8 sm[8];", seed=3)
    seen = y[1:].tolist()
    if want is not None and not op.startswith("inc"):
        assert y[0] == want
    if returns and op == "add.u32":
        order = sorted(range(1, 64), key=seen.__getitem__)
        assert seen[order[0]] == 0
        assert all(seen[b] == seen[a] + a for a, b in itertools.pairwise(order))
        assert order != sorted(order)
    if returns and op == "exch.b32":
        assert sorted([*seen, int(y[0])]) == sorted([*range(64), 0])
    if returns and op == "inc.u32":
        assert sorted(seen) == sorted(i % 40 for i in range(64))
        assert y[0] == 64 % 40


def test_lock_by_compare_and_swap():
    """Lanes of one warp and of others take turns: no lane starves."""
    y = np.zeros(2, "u4")
    run(
        """L: atom.global.cas.b32 %r1, [%q0], 0, 1; setp.ne.u32 %p0, %r1, 0; @%p0 bra L;
    ld.volatile.global.u32 %r2, [%q0+4]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%q0+4], %r2; membar.gl;
    atom.global.exch.b32 %r1, [%q0], 0;""",
        y,
        block=64,
        grid=3,
    )
    assert y.tolist() == [0, 192]


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_float_reductions(element):
    dtype = {"f32": "f4", "f64": "f8"}[element]
    y = np.zeros(8, dtype)
    reg, one = ("%f1", "0f3F800000") if element == "f32" else ("%g1", "0d3FF0000000000000")
    run(
        f"mov.{element} {reg}, {one}; red.global.add.{element} [%q0], {reg}; red.relaxed.gpu.global.add.{element} [%q0+8], {reg};",
        y,
        block=64,
        grid=5,
    )
    assert y[0] == 320
    assert y[8 // y.itemsize] == 320


def test_vector_and_packed_reductions():
    y = np.zeros(8, "f4")
    run(
        """mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f40000000; red.global.v4.f32.add [%q0], {%f0, %f1, %f0, %f1};
    red.global.v2.f32.add [%q0+16], {%f1, %f1}; mov.u32 %r1, 0x40003C00; red.global.add.noftz.f16x2 [%q0+24], %r1;
    atom.global.add.noftz.f16x2 %r2, [%q0+28], %r1;""",
        y,
        block=32,
    )
    assert y[:6].tolist() == [32, 64, 32, 64, 64, 64]
    assert y[6:].view("f2").tolist() == [32, 64, 32, 64]


# ---- asynchronous copies


@pytest.mark.parametrize("completion", ["late", "early"])
@pytest.mark.parametrize(("size", "op"), [(4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")])
@pytest.mark.parametrize("amount", ["", "size", "zero", "predicate"])
def test_copies(completion, size, op, amount):
    x = np.arange(1, 32 * size + 1, dtype="u2").astype("u1")
    y = np.zeros(32 * size, "u1")
    last = {"": "", "size": ", %r3", "zero": ", 0", "predicate": ", %p1"}[amount]
    # a source that is not read may lie anywhere
    invalid = "@%p1 mov.u64 %d0, 64;" if amount == "predicate" else "mov.u64 %d0, 0;" if amount == "zero" else ""
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, {size}, %r9; mad.wide.u32 %d0, %r0, {size}, %q0;
    and.b32 %r3, %r0, {size - 1}; setp.lt.u32 %p1, %r0, 7; {invalid}
    cp.async.{op}.shared.global.L2::128B [%r1], [%d0], {size}{last}; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
    mov.u32 %r5, 0; mad.wide.u32 %d1, %r0, {size}, %q1;
    L: add.u32 %r6, %r1, %r5; ld.shared.u8 %r7, [%r6]; cvt.u64.u32 %d2, %r5; add.u64 %d2, %d2, %d1; st.global.u8 [%d2], %r7;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, {size}; @%p0 bra L;"""
    run(body, x, y, extra=".shared .align 16 .b8 sm[512];", completion=completion)
    want = x.reshape(32, size).copy()
    for t in range(32):
        keep = {"": size, "size": t & (size - 1), "zero": 0, "predicate": 0 if t < 7 else size}[amount]
        want[t, keep:] = 0
    assert (y == want.reshape(-1)).all()


@pytest.mark.parametrize("completion", ["late", "early"])
def test_copy_groups_are_counted(completion):
    """Three groups: a wait for all but two completes the first only; late data arrive late."""
    x, y = np.arange(96, dtype="u4"), np.zeros(32, "u4")
    copy = "cp.async.ca.shared.global [%r1+{0}], [%d0+{0}], 4; cp.async.commit_group;"
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; mad.wide.u32 %d0, %r0, 4, %q0;
    """ + "".join(copy.format(128 * i) for i in range(3))
    end = "cp.async.wait_group 2; ld.shared.u32 %r2, [%r1]; mad.wide.u32 %d1, %r0, 4, %q1; st.global.u32 [%d1], %r2;"
    # the source changes after the copy began: early completion saw the old value
    run(body + "st.global.u32 [%d0], 7;" + end, x, y, extra=".shared .align 16 .b8 sm[512];", completion=completion)
    assert (y == (7 if completion == "late" else np.arange(32))).all()


def test_copies_of_divergent_lanes():
    """Lanes commit different numbers of groups; each waits for its own."""
    x, y = np.arange(64, dtype="u4"), np.zeros(32, "u4")
    run(
        """mov.u32 %r0, %tid.x; mov.u32 %r9, sm; mad.lo.u32 %r1, %r0, 4, %r9; mad.wide.u32 %d0, %r0, 4, %q0; setp.lt.u32 %p0, %r0, 9;
    cp.async.ca.shared.global [%r1], [%d0], 4; cp.async.commit_group;
    @%p0 cp.async.ca.shared.global [%r1+128], [%d0+128], 4; @%p0 cp.async.commit_group;
    @%p0 cp.async.wait_group 1; @!%p0 cp.async.wait_group 0; ld.shared.u32 %r2, [%r1]; @%p0 cp.async.wait_all;
    @%p0 ld.shared.u32 %r3, [%r1+128]; @%p0 add.u32 %r2, %r2, %r3; mad.wide.u32 %d1, %r0, 4, %q1; st.global.u32 [%d1], %r2;""",
        x,
        y,
        extra=".shared .align 16 .b8 sm[512];",
    )
    assert y.tolist() == [2 * t + 32 if t < 9 else t for t in range(32)]


# ---- the machine


def test_machine():
    m = Machine(seed=5)
    text = module(
        "ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n]; st.global.u32 [%d0+4], %r0;", ".param .u32 n, .param .u64 p"
    )
    loaded = m.load(text)
    entry = loaded["k"]
    assert [(p.name, p.type, p.offset, p.size) for p in entry.parameters] == [("n", "u32", 0, 4), ("p", "u64", 8, 8)]
    assert loaded.target == "sm_90a"
    a, b = m.alloc(8), m.alloc(100)
    assert a % 256 == 0
    assert b % 256 == 0
    m.fill(a, 8, 0xEE)
    params = np.zeros(1, [("n", "u4"), ("pad", "u4"), ("p", "u8")])
    params["n"], params["p"] = 42, a
    stats = m.launch(loaded, "k", (1,), (1, 1, 1), params.tobytes())
    assert m.read(a, 8) == b"\xee" * 4 + b"\x2a\0\0\0"
    assert stats.opcodes["st.global.u32"] == 1
    m.write(b, np.arange(25, dtype="u4"))
    assert m.read(b + 4, 4) == b"\1\0\0\0"
    m.free(a)
    for bad in (
        lambda: m.free(a),
        lambda: m.read(a, 4),
        lambda: m.read(b, 101),
        lambda: m.write(b, bytes(101)),
        lambda: m.launch(loaded, "k", 1, 1, b"short"),
        lambda: m.alloc(-1),
    ):
        with pytest.raises(InputError):
            bad()
    again = m.alloc(8)
    assert m.read(again, 8) == bytes(8)


def test_memory_grows():
    m = Machine()
    addresses = [m.alloc(1 << 20) for _ in range(8)]
    for i, a in enumerate(addresses):
        m.fill(a, 1 << 20, i)
    assert [m.read(a, 2)[1] for a in addresses] == list(range(8))


def test_statistics():
    x = np.zeros(4096, "f4")
    body = (
        THREAD
        + """mad.wide.u32 %d0, %r0, 4, %q0; ld.global.f32 %f0, [%d0]; add.f32 %f0, %f0, %f0; mov.u32 %r1, sm;
    mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r2, STRIDE, %r1; st.shared.f32 [%r3], %f0; bar.sync 0; st.global.f32 [%d0], %f0;"""
    )
    plain = run(
        body.replace("STRIDE", "4"), x, grid=4, block=128, extra=".shared .align 16 .b8 sm[16384];", stats="full"
    )
    assert plain.bank_conflicts == 0
    assert plain.blocks == 4
    assert plain.opcodes["add.f32"] == 16
    assert plain.lane_instructions["fp32"] == 512
    assert plain.global_load.sectors == 64
    assert plain.global_load.bytes == plain.global_store.bytes == 2048
    assert plain.barriers == 16
    bad = run(
        body.replace("STRIDE", "128"), x, grid=4, block=128, extra=".shared .align 16 .b8 sm[16384];", stats="full"
    )
    assert bad.shared.wavefronts == 16 * 32
    assert bad.bank_conflicts == 16 * 31
    sampled = run(body.replace("STRIDE", "128"), x, grid=4, block=128, extra=".shared .align 16 .b8 sm[16384];")
    assert sampled.bank_conflicts == bad.bank_conflicts
    wide = run(
        """mov.u32 %r0, %tid.x; mov.u32 %r1, sm; mad.lo.u32 %r1, %r0, 16, %r1; mov.f32 %f0, 0f3F800000;
    st.shared.v4.f32 [%r1], {%f0, %f0, %f0, %f0};""",
        extra=".shared .align 16 .b8 sm[512];",
        stats="full",
    )
    assert wide.shared.wavefronts == 4
    assert wide.bank_conflicts == 0


def test_a_null_pointer_is_named():
    """Not an array that happens to be the nearest allocation."""
    body = "ld.param.u64 %d0, [z]; mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %d0; ld.global.u32 %r1, [%d0+8];"
    text = module(body, ".param .u64 y, .param .u64 z")
    with pytest.raises(OutOfBoundsFault, match="4 bytes at offset 8 of a null pointer: z is null"):
        launch(text, "k", 1, 32, [np.zeros(4, "u4"), np.uint64(0)])


def test_nc_loads_of_memory_that_the_kernel_writes():
    body = """mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; mad.wide.u32 %d1, %r0, 4, %q1;
    ld.global.nc.u32 %r1, [%d1]; st.global.u32 [%d0], %r1; bar.sync 0; AGAIN"""
    y, x = np.zeros(64, "u4"), np.arange(64, dtype="u4")
    run(body.replace("AGAIN", "ld.global.u32 %r2, [%d0];"), y, x, block=64)
    assert (y == x).all()
    with pytest.raises(RaceFault, match=r"reads with \.nc global memory that line \d+ wrote in this launch"):
        run(body.replace("AGAIN", "ld.global.nc.u32 %r2, [%d0];"), np.zeros(64, "u4"), x + 1, block=64)


@pytest.mark.parametrize("cluster", [1, 2])
def test_reserved_shared_memory(cluster):
    """Cooperative groups keep barriers in it, which are zero at the start of each block."""
    offset = (
        "mov.u32 %r0, %tid.x; mov.u32 %r9, %reserved_smem_offset_1; cvt.u64.u32 %d1, %r9; cvta.shared.u64 %d1, %d1;"
    )
    body = (
        offset
        + """bar.warp.sync -1; atom.add.acq_rel.cta.u32 %r1, [%d1+4], 1; bar.sync 0; ld.shared.u32 %r2, [%r9+4];
    mad.wide.u32 %d0, %r0, 4, %q0; st.global.u32 [%d0], %r2;"""
    )
    out = np.zeros(32, "u4")
    run(body, out, block=32, grid=2 * cluster, cluster=cluster)
    assert (out == 32).all()
    with pytest.raises(OutOfBoundsFault, match=r"outside \[0x400, 0x400\)"):
        run("mov.u32 %r0, 16; ld.shared.u32 %r1, [%r0];", out, block=32)
