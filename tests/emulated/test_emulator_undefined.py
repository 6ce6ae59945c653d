"""Undefined registers: arithmetic on them is no fault; using one as an address, a predicate or in global memory is."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulator_kernels import module, run

from ptxgen.emulator import Machine
from ptxgen.emulator.engine.jit_blocks import available
from ptxgen.errors import UninitialisedFault

ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not available(), reason="llvmlite is not installed"))]
#: %r0 the lane, %d0 its word of the output, %p0 true in lanes 0 to 15, %u defined in those lanes
HALF = """mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; setp.lt.u32 %p0, %r0, 16; @%p0 mov.u32 %u, %r0;
"""
STORE = " st.global.u32 [%d0], %r9;"
UNDEFINED = ".reg .b32 %u, %w; .reg .pred %v;"


def words(body, engine, lanes=32, **options):
    out = np.zeros(lanes, "u4")
    run(HALF + body + STORE, out, registers=UNDEFINED, engine=engine, **options)
    return out


def refused(body, engine, **options):
    with pytest.raises(UninitialisedFault) as caught:
        words(body, engine, **options)
    return caught.value


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("sub.u32 %r9, %u, %u;", 0),
        ("xor.b32 %u, %u, %u; mov.b32 %r9, %u;", 0),
        ("and.b32 %r9, %u, 0;", 0),
        ("mov.u32 %r1, 0; mul.lo.u32 %r9, %u, %r1; add.u32 %r9, %r9, 7;", 7),
        ("or.b32 %r9, %u, 0xffffffff;", 0xFFFFFFFF),
        ("min.u32 %r9, %u, 0;", 0),
        ("shr.u32 %r9, %u, 32;", 0),
        ("mov.u32 %r1, 3; selp.u32 %r9, %u, %r1, %p1;", 3),
        ("lop3.b32 %r9, %u, %r0, %r0, 0x00;", 0),
        ("setp.lt.u32 %v, %u, 7; and.pred %v, %v, %p1; selp.u32 %r9, 1, 2, %v;", 2),
        ("mov.u32 %r2, %u; add.u32 %r3, %r2, 5; cvt.u64.u32 %d1, %r3; mov.u32 %r9, 4;", 4),
    ],
)
def test_results_that_do_not_depend_on_undefined_registers(body, value, engine):
    assert (words("setp.gt.u32 %p1, %r0, 99; " + body, engine) == value).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("body", "name", "instruction"),
    [
        ("mov.u32 %r9, %u;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("sub.u32 %r9, %u, 1;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("and.b32 %r9, %u, 1;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("shl.b32 %r9, %u, %u;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("@%p0 mov.u32 %w, 1; mul.lo.u32 %r9, %u, %w;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("@%p0 mov.u32 %w, 1; sub.u32 %r9, %u, %w;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("mov.u32 %r1, 3; selp.u32 %r9, %u, %r1, %p2;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("mov.u32 %r2, %u; add.u32 %r3, %r2, 5; mul.lo.u32 %r9, %r3, %r3;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("mov.u32 %r9, 1; mad.wide.u32 %d0, %u, 4, %q0;", "%d0", "st.global.u32 [%d0], %r9;"),
        ("mov.u32 %r9, 1; setp.lt.u32 %v, %u, 3; @%v mov.u32 %r9, 2;", "%v", "@%v mov.u32 %r9, 2;"),
        ("mov.u32 %r9, 1; setp.lt.u32 %v, %u, 3; @%v bra END; mov.u32 %r9, 2; END:", "%v", "@%v bra END;"),
        ("setp.lt.u32 %v, %u, 3; selp.u32 %r9, 1, 2, %v;", "%r9", "st.global.u32 [%d0], %r9;"),
        ("setp.lt.u32 %v, %u, 3; vote.sync.ballot.b32 %r9, %v, 0xffffffff;", "%v", "vote.sync.ballot.b32"),
        ("redux.sync.add.u32 %r9, %u, 0xffffffff;", "%r9", "st.global.u32 [%d0], %r9;"),
    ],
)
def test_uses_that_are_faults(body, name, instruction, engine):
    fault = refused("setp.lt.u32 %p2, %r0, 99; " + body, engine)
    assert fault.instruction.startswith(instruction)
    assert f"{name} is used; it depends on %u, which line" in str(fault)
    assert fault.thread == ((0 if "redux" in body else 16), 0, 0)
    assert fault.address is None
    words("setp.lt.u32 %p2, %r0, 99; " + body.replace("%d0, %u", "%d0, %r0"), engine, uninitialised=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_write_defines_a_register_again(engine):
    """The second half becomes undefined through a copy and defined through an assignment, in a loop."""
    body = """mov.u32 %r5, 0; mov.u32 %r9, 0;
    LOOP: mov.u32 %r2, %u; add.u32 %r3, %r2, 1; mov.u32 %r3, %r5; add.u32 %r9, %r9, %r3; add.u32 %r5, %r5, 1;
    setp.lt.u32 %p3, %r5, 20; @%p3 bra LOOP;"""
    assert (words(body, engine) == 190).all()
    fault = refused(body.replace("mov.u32 %r3, %r5;", "@%p0 mov.u32 %r3, %r5;"), engine)
    assert fault.thread == (16, 0, 0)
    assert "st.global" in fault.instruction


@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_and_launches_start_undefined(engine):
    """A register that became undefined in one wave is defined in the next."""
    out = np.zeros(128, "u4")
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 32, %r0; mad.wide.u32 %d0, %r2, 4, %q0;
    setp.ge.u32 %p0, %r1, 1; @%p0 mov.u32 %u, %r0; mov.u32 %r9, %u; @%p0 st.global.u32 [%d0], %r9;"""
    run(body, out, grid=4, lanes=32, registers=UNDEFINED, engine=engine)
    assert (out.reshape(4, 32) == np.outer([0, 1, 1, 1], np.arange(32))).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("leader", "defined"), [(0, True), (20, False)])
def test_warp_aggregated_atomics(leader, defined, engine):
    """One lane adds for its warp, the others read its result by shfl; their own registers are undefined."""
    body = f"""setp.eq.u32 %p1, %r0, 0; @!%p1 bra OTHERS; atom.global.add.u32 %r5, [%q0+128], 32;
    OTHERS: shfl.sync.idx.b32 %r6, %r5, {leader}, 31, 0xffffffff; add.u32 %r9, %r6, %r0;"""
    if defined:
        out = np.zeros(33, "u4")
        run(HALF + body + STORE, out, registers=UNDEFINED, engine=engine)
        assert (out == [*range(32), 32]).all()
    else:
        fault = refused(body, engine, lanes=33)
        assert "it depends on %r5" in str(fault)
        assert fault.thread == (0, 0, 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("delta", "lane"), [(1, 15), (16, 0)])
def test_shuffles_move_undefined_values(delta, lane, engine):
    """Lanes 16 to 31 have none; a lane that would read past the last one keeps its own."""
    fault = refused(f"shfl.sync.down.b32 %r9, %u, {delta}, 31, 0xffffffff;", engine)
    assert fault.thread == (lane, 0, 0)
    assert (words("shfl.sync.idx.b32 %r9, %u, 3, 31, 0xffffffff;", engine) == 3).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_two_operands_and_two_results(engine):
    """A result that no earlier value has reached, of two undefined operands; and halves of a packed register."""
    body = """@!%p0 mov.u32 %w, 1; add.u32 %r5, %u, %w; mov.u32 %r9, 2; TAKE"""
    assert (words(body.replace("TAKE", ""), engine, extra="") == 2).all()
    assert "it depends on" in str(refused(body.replace("TAKE", "mov.u32 %r9, %r5;"), engine))
    assert refused("mov.b64 %d1, {%u, %r0}; mov.b64 {%r9, %r5}, %d1;", engine).thread == (16, 0, 0)
    assert (words("mov.b64 %d1, {%u, %r0}; mov.b64 {%r5, %r9}, %d1;", engine) == np.arange(32)).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_undefined_memory_is_tracked(engine):
    body = """mov.u32 %r1, sm; mad.lo.u32 %r1, %r0, 4, %r1; @%p0 st.shared.u32 [%r1], %r0; ld.shared.u32 %r2, [%r1];
    add.u32 %r3, %r2, 1; add.u32 %r4, %r3, %r3; mov.u32 %r9, %r0; TAKE"""
    shared = ".shared .align 4 .b8 sm[128];"
    assert (words(body.replace("TAKE", ""), engine, extra=shared) == np.arange(32)).all()
    fault = refused(body.replace("TAKE", "mov.u32 %r9, %r4;"), engine, extra=shared)
    assert "%r9 is used; it depends on %r2, and line" in str(fault)
    assert "loaded it from uninitialised shared memory" in str(fault)
    assert fault.thread == (16, 0, 0)
    assert fault.address == 0x400 + 64


OPERATIONS = [
    "add.u32",
    "sub.u32",
    "mul.lo.u32",
    "and.b32",
    "or.b32",
    "xor.b32",
    "min.u32",
    "max.u32",
    "shl.b32",
    "shr.u32",
]


def drawn(seed):
    """A program of random operations on %r1 to %r8, some under %p0, in a loop of two iterations; %u and %w are inputs."""
    random = np.random.default_rng(seed)

    def register(sources=()):
        return str(random.choice([*(f"%r{i}" for i in range(1, 9)), *sources]))

    lines = [f"mov.u32 %r{i}, {int(random.choice([0, 1, 5, 0xFFFFFFFF]))};" for i in range(1, 9)]
    lines.append("mov.u32 %r10, 0; LOOP:")
    for _ in range(int(random.integers(3, 16))):
        guard = str(random.choice(["", "", "@%p0 ", "@!%p0 "]))
        one, other = register(("%u", "%w")), register(("%u", "0", "%r0"))
        case = random.integers(0, 10)
        if case == 0:
            lines.append(f"shfl.sync.bfly.b32 {register()}, {register()}, {int(random.integers(1, 32))}, 31, -1;")
        elif case == 1:
            lines.append(f"setp.lt.u32 %v, {one}, {other}; selp.u32 {register()}, {register()}, {register()}, %v;")
        else:
            lines.append(f"{guard}{random.choice(OPERATIONS)} {register()}, {one}, {other};")
    lines.append("add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 2; @%p3 bra LOOP;")
    return "\n".join(lines) + f"mov.u32 %r9, {register()};"


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    """No fault: the result does not depend on undefined registers; both engines agree."""
    body, output = drawn(seed), []
    for engine in ("numpy", "llvm") if available() else ("numpy",):
        try:
            output.append(words(body, engine).tolist())
        except UninitialisedFault as fault:
            output.append(str(fault))
    assert output[0] == output[-1]
    if isinstance(output[0], str):
        return
    for value in (0, 1, 5, 0x80000000, 0xDEADBEEF):
        given = f"@!%p0 mov.u32 %u, {value}; mov.u32 %w, {value ^ 0x1234}; {body}"
        assert words(given, "numpy").tolist() == output[0]


def test_random_programs_contain_faults_and_none():
    def faults(seed):
        try:
            words(drawn(seed), "numpy")
        except UninitialisedFault:
            return True
        return False

    assert 5 < sum(map(faults, range(40))) < 35


@pytest.mark.parametrize("engine", ENGINES)
def test_stores_of_undefined_values_pass_them_on(engine):
    """Through shared memory, local memory and parameters; a lane that does not use the value has no fault."""
    body = """mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; setp.lt.u32 %p0, %r0, 20; @%p0 mov.u32 %r1, 7;
    mov.u32 %r2, s; mad.lo.u32 %r2, %r0, 4, %r2; STORE @%p0 LOAD @USED st.global.u32 [%d0], %r3;"""
    for store, load, memory in (
        (
            "st.shared.u32 [%r2], %r1; bar.sync 0;",
            "ld.shared.u32 %r3, [%r2];",
            r"bytes that line 13 stored \(register %r1 is read before it is written\)",
        ),
        ("st.local.u32 [l+4], %r1;", "ld.local.u32 %r3, [l+4];", "local memory that nothing has written"),
        ("st.local.u32 [l+4], %r1;", "ld.local.u32 %r3, [%r4+4];", "local memory that nothing has written"),
    ):
        text = body.replace("STORE", f"mov.u32 %r4, l;\n{store}\n").replace("LOAD", load)
        y = np.zeros(32, "u4")
        options = {"registers": ".shared .b32 s[32]; .local .b32 l[4];", "engine": engine}
        run(text.replace("USED", "%p0"), y, **options)
        assert (y == np.where(np.arange(32) < 20, 7, 0)).all()
        unguarded = text.replace("@%p0 ld", "ld")
        run(unguarded.replace("USED", "%p0"), y, **options)
        with pytest.raises(UninitialisedFault, match=memory) as caught:
            run(unguarded.replace("USED", "!%p0"), y, **options)
        assert caught.value.thread == (20, 0, 0)


def test_a_defined_store_after_an_undefined_one():
    y = np.zeros(32, "u4")
    run(
        """mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; mov.u32 %r2, s; mad.lo.u32 %r2, %r0, 4, %r2;
        st.shared.u32 [%r2], %r1; st.local.u32 [l], %r1; mov.u32 %r3, 5; st.shared.u32 [%r2], %r3; st.local.u32 [l], %r3;
        ld.shared.u32 %r4, [%r2]; ld.local.u32 %r5, [l]; add.u32 %r4, %r4, %r5; st.global.u32 [%d0], %r4;""",
        y,
        registers=".shared .b32 s[32]; .local .b32 l[4];",
    )
    assert (y == 10).all()


def test_undefined_values_in_generic_stores():
    """To shared memory the value is passed on; to global memory, and as an address, it is a fault."""
    body = """mov.u32 %r0, %tid.x; mov.u64 %d1, s; cvta.shared.u64 %d1, %d1; mad.wide.u32 %d1, %r0, 4, %d1;
    mad.wide.u32 %d2, %r0, 4, %q0; st.u32 [PLACE], %r1;"""
    options = {"registers": ".shared .b32 s[32];"}
    run(body.replace("PLACE", "%d1"), np.zeros(32, "u4"), **options)
    for place in ("%d2", "%d3"):
        with pytest.raises(UninitialisedFault):
            run(body.replace("PLACE", place), np.zeros(32, "u4"), **options)


@pytest.mark.parametrize("engine", ENGINES)
def test_local_memory_that_nothing_has_written(engine):
    body = (
        "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; STORE ld.local.u32 %r1, [l+8]; st.global.u32 [%d0], %r1;"
    )
    options = {"registers": ".local .b32 l[4];", "engine": engine}
    run(body.replace("STORE", "st.local.v2.u32 [l+8], {%r0, %r0};"), np.zeros(32, "u4"), **options)
    with pytest.raises(
        UninitialisedFault, match="line 11 loaded it from local memory that nothing has written"
    ) as caught:
        run(body.replace("STORE", "st.local.v2.u32 [l], {%r0, %r0};"), np.zeros(32, "u4"), **options)
    assert caught.value.address is None  # that of the load is none of the store
    run(body.replace("STORE", ""), np.zeros(32, "u4"), uninitialised=False, **options)


PUBLISH = """st.relaxed.gpu.global.v2.u32 [%q0+256], {%u, %r0}; ld.relaxed.gpu.global.v2.u32 {%w, %r8}, [%q0+256];
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_strong_stores_publish_vectors_of_which_a_part_is_undefined(engine):
    """A fault belongs to the use of the undefined part; without one there is a note."""
    body = (
        HALF
        + "setp.eq.u32 %p1, %r0, 20; @!%p1 bra END; "
        + PUBLISH
        + "mov.u32 %r9, USED; st.global.u32 [%d0], %r9; END:"
    )
    out = np.zeros(80, "u4")
    stats = run(body.replace("USED", "%r8"), out, registers=UNDEFINED, block=32, engine=engine)
    assert out[20] == 20
    kept = r"global memory keeps undefined bytes that line \d+ stored \(register %u is read before it is written\)"
    assert len(stats.notes) == 1
    assert re.fullmatch(kept, stats.notes[0])
    with pytest.raises(UninitialisedFault, match=r"loaded it from bytes that line \d+ stored \(register %u is read"):
        run(body.replace("USED", "%w"), out, registers=UNDEFINED, block=32, engine=engine)
    again = body.replace("USED", "%w").replace(" ld.relaxed", " st.global.u32 [%q0+256], 5; ld.relaxed")
    stats = run(again, out, registers=UNDEFINED, block=32, engine=engine)
    assert (out[20], stats.notes) == (5, [])


def test_only_blocks_that_an_undefined_value_reaches_are_built_again(monkeypatch):
    text = module(
        """mov.u32 %r1, s; ld.shared.u32 %r2, [%r1]; add.u32 %r3, %r2, 1; mov.u32 %r4, 0;
        A: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 3; @%p1 bra A; xor.b32 %r5, %r3, %r3;""",
        registers=".shared .align 4 .b8 s[512];",
    )
    machine = Machine(engine="numpy")
    loaded = machine.load(text)
    program = loaded["k"].program(machine.options)
    built, step_of = [], program.step_of
    monkeypatch.setattr(program, "step_of", lambda body: built.append(body["ins"].op) or step_of(body))
    machine.launch(loaded, "k", 1, 32, b"")
    assert sorted(set(built)) == ["add", "ld", "mov", "xor"]
    assert built.count("mov") == 2
    assert built.count("add") == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("fill", "read"),
    [
        ("and.b32 %w, %w, 0xffffff00; or.b32 %w, %w, 5;", "and.b32 %r9, %w, 255;"),
        ("bfi.b32 %w, 5, %w, 8, 24;", "shr.u32 %r9, %w, 8;"),
        ("bfi.b32 %w, 5, %w, 4, 8;", "bfe.u32 %r9, %w, 4, 8;"),
        (
            "and.b32 %w, %w, 0xfffffff0; or.b32 %w, %w, 5;",
            "cvt.u16.u32 %h1, %w; cvt.u32.u16 %w, %h1; and.b32 %r9, %w, 7;",
        ),
        ("bfi.b32 %w, 5, %w, 8, 8; prmt.b32 %w, %w, %w, 0x3201;", "and.b32 %r9, %w, 255;"),
        ("mov.b64 %d1, {%w, %r8}; mov.b32 %r8, 7; mov.b64 %d2, %d1;", "mov.b64 {%r7, %r9}, %d2;"),
        ("st.local.u16 [l+2], 5; st.local.u32 [l+4], 0;", "ld.local.u32 %r9, [l]; shr.u32 %r9, %r9, 16;"),
    ],
)
def test_bit_fields_are_filled_one_by_one(fill, read, engine):
    """The field that was written is defined, in registers and after a store to local memory; the others are not."""
    body = "mov.b32 %r8, 5; mov.b32 %w, %u; " + fill + "MOVE " + read
    options = {"registers": UNDEFINED + ".local .align 4 .b32 l[2];", "engine": engine}
    for move in ("", "st.local.b32 [l+4], %w; mov.b32 %r3, 0; ld.local.b32 %w, [l+4];"):
        out = np.zeros(32, "u4")
        run(HALF + body.replace("MOVE", move) + STORE, out, **options)
        assert (out == 5).all()
    wrong = re.sub(r"%r9, %w, (7|255);", r"%r9, %w, 0xffff;", read.replace("shr.u32 %r9, %w, 8", "mov.u32 %r9, %w"))
    wrong = wrong.replace("4, 8;", "3, 8;").replace("{%r7, %r9}", "{%r9, %r7}").replace("%r9, %r9, 16", "%r9, %r9, 15")
    with pytest.raises(UninitialisedFault):
        run(HALF + body.replace("MOVE", "") + wrong + STORE, np.zeros(32, "u4"), **options)


@pytest.mark.parametrize("engine", ENGINES)
def test_unknown_terms_of_sums_cancel(engine):
    """An exclusive sum is an inclusive one less the own term, which may be undefined."""
    shared = "mov.u32 %r4, s; mad.lo.u32 %r4, %r0, 4, %r4; st.shared.u32 [%r4], %u; ld.shared.u32 %r3, [%r4];"
    scan = "shfl.sync.up.b32 %r5, %r3, 1, 0, -1; setp.gt.u32 %p1, %r0, 0; @%p1 add.u32 %r3, %r3, %r5;"
    body = shared + scan + "mov.u32 %r6, %r3; sub.u32 %r9, %r6, TERM; setp.gt.u32 %p2, %r0, 16; @%p2 mov.u32 %r9, 0;"
    options = {"engine": engine, "registers": UNDEFINED, "extra": ".shared .align 4 .b8 s[128];"}
    out = np.zeros(32, "u4")
    run(HALF + body.replace("TERM", "%u") + STORE, out, **options)
    assert (out == [0, *range(16), *[0] * 15]).all()
    wrong = ("%r5", "%r0")
    again = body.replace("TERM", "%u").replace(
        "ld.shared", "@%p0 st.shared.u8 [%r4], 1; st.shared.u8 [%r4], 0; ld.shared"
    )
    for text in (
        *(body.replace("TERM", term) for term in wrong),
        again,
        body.replace("TERM", "%u").replace(", 16;", ", 17;"),
    ):
        with pytest.raises(UninitialisedFault):
            run(HALF + text + STORE, out, **options)
