"""Variables as operands: each state space has its own addresses, and a generic access takes generic ones."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.emulator import Machine, launch
from ptxgen.errors import InputError, ParseError

ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not find_spec("llvmlite"), reason="no llvmlite"))]
THREAD = "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0;"
LANE = np.arange(32)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("global_first", [False, True])
@pytest.mark.parametrize("space", ["global", "const"])
def test_shared_and_global_symbols_in_one_kernel(engine, global_first, space):
    loads = ["ld.shared.u32 %r2, [s+4];", f"ld.{space}.u32 %r3, [g+8];"]
    y = np.zeros((3, 32), "u4")
    run(
        f"""{THREAD} mov.u32 %r9, 3; st.shared.u32 [s+4], 77; bar.sync 0;
        {" ".join(loads[::-1] if global_first else loads)}
        ld.shared.u32 %r4, [s+4]; add.u32 %r4, %r4, %r9;
        st.global.u32 [%d0], %r2; st.global.u32 [%d0+128], %r3; st.global.u32 [%d0+256], %r4; ret;""",
        y,
        engine=engine,
        races=False,
        registers=".shared .align 4 .b32 s[4];",
        extra=f".{space} .align 4 .u32 g[4] = {{5, 6, 7, 8}};",
    )
    assert (y == [[77], [7], [80]]).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_one_register_in_two_spaces(engine):
    """The instruction decides which space a register's address belongs to, also if both occur in one kernel."""
    y = np.zeros((2, 32), "u4")
    run(
        f"""{THREAD} st.shared.u32 [s], 9; bar.sync 0; setp.lt.u32 %p0, %r0, 16;
        mov.u64 %d2, s; mov.u64 %d3, g; selp.b64 %d1, %d2, %d3, %p0; mov.u32 %r1, 0; mov.u32 %r2, 0;
        @%p0 ld.shared.u32 %r1, [%d1]; @!%p0 ld.global.u32 %r2, [%d1];
        st.global.u32 [%d0], %r1; st.global.u32 [%d0+128], %r2; ret;""",
        y,
        engine=engine,
        races=False,
        registers=".shared .align 4 .b32 s;",
        extra=".global .align 4 .u32 g = 4;",
    )
    assert (y == [9 * (LANE < 16), 4 * (LANE >= 16)]).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cluster", [1, 2])
def test_generic_accesses_to_symbols(engine, cluster):
    """ld, st, atom and red without a state space, on names of .shared, .local and .global variables."""
    y = np.zeros((4, 32 * cluster), "u4")
    run(
        f"""mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0;
        mov.u32 %r9, %ctaid.x; mad.lo.u32 %r0, %r9, 32, %r0; mad.wide.u32 %d0, %r0, 4, %q0;
        @%p0 bra NEXT; st.u32 [s+8], 5; NEXT: bar.sync 0; red.add.u32 [s+8], 1;
        bar.sync 0; ld.u32 %r1, [s+8];
        st.u32 [l+4], %r0; ld.u32 %r2, [l+4]; ld.local.u32 %r3, [l+4]; ld.u32 %r4, [g];
        st.global.u32 [%d0], %r1; st.global.u32 [%d0+{128 * cluster}], %r2; st.global.u32 [%d0+{256 * cluster}], %r3;
        st.global.u32 [%d0+{384 * cluster}], %r4; ret;""",
        y,
        engine=engine,
        grid=cluster,
        cluster=cluster,
        registers=".shared .b32 s[4]; .local .b32 l[4];",
        extra=".global .u32 g = 11;",
    )
    thread = np.arange(32 * cluster)
    assert (y == [0 * thread + 37, thread, thread, 0 * thread + 11]).all()


def test_matrices_at_a_symbol():
    """ldmatrix without a state space, at the name of a .shared variable."""
    y = np.zeros(32, "u4")
    run(
        f"""{THREAD} mov.u32 %r2, s; mad.lo.u32 %r2, %r0, 4, %r2; st.shared.u32 [%r2], 6; bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x1.b16 {{%r1}}, [s]; st.global.u32 [%d0], %r1; ret;""",
        y,
        registers=".shared .align 16 .b8 s[128];",
    )
    assert (y == 6).all()


def test_shared_memory_counts_for_entries_that_use_it():
    text = """.version 8.0
    .target sm_90a
    .address_size 64
    .shared .align 16 .b8 big[200000]; .shared .align 4 .b8 small[64]; .shared .b32 unused[100];
    .func touch() { st.shared.u32 [small+60], 1; ret; }
    .visible .entry direct() { st.shared.u32 [big], 1; ret; }
    .visible .entry through() { .shared .b32 own[50000]; st.shared.u32 [own], 2; call touch; ret; }
    .visible .entry none() { ret; }"""
    machine = Machine()
    module = machine.load(text)
    assert [module[name].shared for name in ("direct", "through", "none")] == [200000, 64 + 200000, 0]
    for name in module.entries:
        machine.launch(module, name, 1, 32, b"")


def test_managed_variables_by_name():
    """The host reads and writes variables by name, managed ones like others."""
    text = """.version 8.0
.target sm_90a
.address_size 64
.visible .global .attribute(.managed) .align 4 .s32 count = 5;
.visible .attribute(.managed) .global .align 8 .f32 values[4];
.visible .const .f32 factor = 1.0;
.visible .entry k() {
.reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<4>;
mov.u32 %r0, %tid.x; mov.u64 %d0, values; mad.wide.u32 %d0, %r0, 4, %d0;
ld.global.f32 %f0, [%d0]; ld.const.f32 %f1, [factor]; mul.rn.f32 %f0, %f0, %f1; st.global.f32 [%d0], %f0;
red.global.add.s32 [count], %r0;
ret; }"""
    count, values = np.array(7, np.int32), np.arange(4, dtype=np.float32)
    factor = np.array(3, np.float32)
    launch(text, "k", 1, 4, [], variables={"count": count, "values": values, "factor": factor})
    assert count == 7 + 6
    assert (values == [0, 3, 6, 9]).all()
    machine = Machine()
    module = machine.load(text)
    variable = module.variable("count")
    machine.launch(module, "k", 1, 4, b"")
    assert np.frombuffer(machine.read(variable.address, variable.size), np.int32) == 5 + 6
    with pytest.raises(InputError, match="variable values is an array of 8 bytes; it must be C-contiguous and have 16"):
        launch(text, "k", 1, 4, [], variables={"values": values[:2]})
    with pytest.raises(InputError, match="no variable 'value'; there are: count, factor, values"):
        module.variable("value")
    with pytest.raises(ParseError, match=r"a \.managed variable is \.global"):
        machine.load(text.replace(".const .f32", ".const .attribute(.managed) .f32"))
