"""Both engines of the emulated device give the same bits, the same counts and the same faults."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import module, run
from fuzz import generate, recording
from gemm_runs import execute, inputs
from test_emulator_hardware import recorded
from test_emulator_hardware import run as run_case

from ptxgen.codegen.config.config import parse_config
from ptxgen.emulator import Machine
from ptxgen.emulator.ops.arithmetic.elementwise import OPERATIONS, row_of
from ptxgen.emulator.ops.operands.emitter import LOWER
from ptxgen.errors import MisalignedFault, OutOfBoundsFault, RaceFault, UnavailableError, UninitialisedFault
from ptxgen.problem.registry import parse

needs_llvm = pytest.mark.skipif(not __import__("importlib.util").util.find_spec("llvmlite"), reason="no llvmlite here")

#: problem, configuration, what is multiplied
KERNELS = {
    "8x8": ("gemm 64,64,64 TN f32", "vec_a=4 vec_b=4 vec_c=4"),
    "4x4": ("gemm 64,64,64 TN f32", "ms=4 ns=4 ml=32 nl=64 vec_a=4 vec_b=4 vec_c=4"),
    "held": ("gemm 64,64,32 NT f32", "cp_async_a=0 cp_async_b=0 deferred_sts=1 vec_a=4 vec_b=4 vec_c=4"),
    "edges": ("gemm 61,67,59 TT f32", "ms=4 ns=4 ml=32 nl=32 bounds=predicate cp_async_a=0 cp_async_b=0"),
    "split": ("gemm 64,64,128 TN f32", "ms=4 ns=4 ml=32 nl=32 kg=4 splitk=memset_red vec_a=4 vec_b=4 vec_c=4"),
    "f64": ("gemm 64,64,32 TN f64", "ms=4 ns=4 ml=32 nl=64 u=8 vec_a=2 vec_b=2 vec_c=2 store_policy=streaming"),
    "f16": ("gemm 64,64,32 NN f16", "ms=8 ns=4 ml=64 nl=64 cp_async_a=0 cp_async_b=0 vec_a=8 vec_b=8 vec_c=8"),
    "f16 packed": ("gemm 64,64,32 TN f16 compute=f16", "vec_a=8 vec_b=8 vec_c=8 epilogue_smem=1"),
}


@needs_llvm
@pytest.mark.first(6)
@pytest.mark.parametrize("name", sorted(KERNELS, key=("4x4", "held").__contains__))
def test_kernels(name):
    completion = ("late", "early")[list(KERNELS).index(name) % 2]
    problem, config = (f(x) for f, x in zip((parse, parse_config), KERNELS[name], strict=True))
    arrays = inputs(problem, "normal", 3, 0.5)
    got, counts = {}, {}
    for engine in ("numpy", "llvm", "auto"):
        stats: list = []
        options = {"engine": engine, "completion": completion}
        got[engine] = execute(problem, config, arrays, 1.25, 0.5, stats=stats, times=2, **options)
        counts[engine] = [(s.opcodes, s.lane_instructions, s.shared, s.global_load, s.global_store) for s in stats]
    bits = {engine: array.view(np.uint8) for engine, array in got.items()}
    assert np.array_equal(bits["numpy"], bits["llvm"])
    assert np.array_equal(bits["numpy"], bits["auto"])
    assert counts["numpy"] == counts["llvm"] == counts["auto"]


@needs_llvm
@pytest.mark.parametrize("family", ["straight", "control", "call", "memory", "barrier", "copy"])
def test_random_modules(family):
    """A part of the modules that ran on hardware; all agree."""
    wrong = []
    file = generate.files_of(family)[0]
    machine = Machine(engine="llvm", stats="off")
    loaded = machine.load(file.text)
    for case in file.cases[:: 48 if family in ("straight", "control") else 24]:
        wrong += recording.differences(case, recorded().outputs[case.name], run_case(machine, loaded, case))
    assert not wrong, "\n".join(map(str, wrong[:20]))


@needs_llvm
def test_every_operation_of_both_engines():
    """All forms of the scalar instructions, on edge values (NaN, subnormal numbers, limits) and on random ones."""
    wrong, compiled = [], set()
    for file in [
        file for family in ("integer", "real", "convert", "byte", "overlap") for file in generate.files_of(family)
    ]:
        machines = [Machine(engine=engine, stats="off") for engine in ("numpy", "llvm")]
        loaded = [machine.load(file.text) for machine in machines]
        for case in file.cases[:: 2 if file.cases[0].name.startswith("overlap") else 6]:
            one, other = (run_case(m, text, case) for m, text in zip(machines, loaded, strict=True))
            wrong += recording.differences(case, one, other)
        for entry in loaded[1].entries.values():
            for program in entry.programs.values():
                runs = [run for runs in program.jit_compiler.compiled.values() for run in runs]
                compiled |= {
                    name for run in runs for body in run.bodies for name in (body["ins"].op, row_of(body["ins"]))
                }
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert OPERATIONS.keys() | LOWER.keys() - {"cvta"} <= compiled


FAULTS = {
    "out of bounds": (
        OutOfBoundsFault,
        "ld.global.u32 %r1, [%q0+4096]; add.u32 %r1, %r1, 1; st.global.u32 [%q0], %r1;",
    ),
    "misaligned": (MisalignedFault, "add.u64 %d1, %q0, 2; mov.u32 %r2, 3; ld.global.u32 %r1, [%d1];"),
    "register": (UninitialisedFault, "mov.u32 %r1, 5; add.u32 %r2, %r1, %r3; st.global.u32 [%q0], %r2;"),
    "shared memory": (
        UninitialisedFault,
        "mov.u32 %r1, s; mov.u32 %r3, 7; ld.shared.u32 %r2, [%r1]; add.u32 %r2, %r2, %r3; st.global.u32 [%q0], %r2;",
    ),
    "race": (
        RaceFault,
        "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3; st.shared.u32 [%r2], %r1;"
        "xor.b32 %r4, %r2, 128; ld.shared.u32 %r5, [%r4]; st.global.u32 [%q0], %r5; bar.sync 0;",
    ),
}


@needs_llvm
@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    fault, body = FAULTS[name]
    output = []
    for engine in ("numpy", "llvm"):
        with pytest.raises(fault) as error:
            run(
                ".shared .align 4 .b8 s[512];" + body,
                np.zeros(64, "u4"),
                block=64,
                engine=engine,
                uninitialised=name != "race",
            )
        output.append(str(error.value))
    assert output[0] == output[1]


@needs_llvm
def test_unused_undefined_memory_is_no_fault():
    """Its load is in the middle of a run, whose other results stay."""
    out = np.zeros(64, "u4")
    run(
        """.shared .align 4 .b8 s[512]; mov.u32 %r1, s; mov.u32 %r4, 1; add.u32 %r4, %r4, %r4; ld.shared.u32 %r2, [%r1];
        mov.u32 %r2, 9; add.u32 %r4, %r4, %r2; mov.u32 %r5, %tid.x; mad.wide.u32 %d1, %r5, 4, %q0;
        st.global.u32 [%d1], %r4;""",
        out,
        block=64,
        engine="llvm",
    )
    assert (out == 11).all()


@needs_llvm
def test_addresses_in_several_allocations_use_numpy():
    a, b, out = np.arange(32, dtype="u4"), np.arange(100, 132, dtype="u4"), np.zeros(32, "u4")
    run(
        """mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; selp.b64 %d1, %q0, %q1, %p1;
        mad.wide.u32 %d2, %r1, 4, %d1; ld.global.u32 %r3, [%d2]; add.u32 %r3, %r3, 1; @%p1 add.u32 %r3, %r3, 1000;
        mad.wide.u32 %d3, %r1, 4, %q2; st.global.u32 [%d3], %r3;""",
        a,
        b,
        out,
        engine="llvm",
    )
    assert out.tolist() == [i + 1001 if i % 2 == 0 else 101 + i for i in range(32)]


LOOP = """mov.u32 %r1, 0; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f3F800000;
A: fma.rn.f32 %f1, %f2, %f2, %f1; add.u32 %r1, %r1, 1; xor.b32 %r3, %r1, 5; setp.lt.u32 %p1, %r1, {n}; @%p1 bra A;
mov.u32 %r2, %tid.x; mad.wide.u32 %d1, %r2, 4, %q0; st.global.f32 [%d1], %f1;"""


def looping(n: int, **options) -> tuple[Machine, np.ndarray]:
    text = module("ld.param.u64 %q0, [q0];\n" + LOOP.format(n=n), ".param .u64 q0", registers=".reg .b64 %q0;")
    machine = Machine(**options)
    loaded = machine.load(text)
    out = machine.alloc(128)
    machine.launch(loaded, "k", 1, 32, out.to_bytes(8, "little"))
    (program,) = loaded["k"].programs.values()
    return program, np.frombuffer(machine.read(out, 128), "f4")


@needs_llvm
def test_frequent_runs_are_compiled():
    """A block is compiled when that would have saved as much time as it takes."""
    for n, engine, compiled in ((60, "auto", 0), (4000, "auto", 1), (4000, "numpy", 0), (1, "llvm", 3)):
        program, out = looping(n, engine=engine)
        assert (out == n).all()
        compiled_blocks = program.jit_compiler.compiled if program.jit_compiler is not None else {}
        assert sum(bool(runs) for runs in compiled_blocks.values()) == compiled, (n, engine)


@needs_llvm
def test_results_that_nothing_reads_are_not_stored():
    """A compiled function stores %r2, which a guarded instruction may keep, and %r5, which the next iteration reads."""
    out = np.zeros(64, "u4")
    body = """mov.u32 %r1, %tid.x; mov.u32 %r5, 0; mov.u32 %r6, 0;
    A: add.u32 %r2, %r1, 7; xor.b32 %r3, %r2, %r5; shl.b32 %r4, %r3, 1; setp.gt.u32 %p1, %r1, 40;
    add.u32 %r5, %r4, 3; add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3; @%p2 bra A;
    @%p1 mov.u32 %r2, %r5; mad.wide.u32 %d1, %r1, 4, %q0; st.global.u32 [%d1], %r2;"""
    machine = Machine(engine="llvm")
    loaded = machine.load(module("ld.param.u64 %q0, [q0];" + body, ".param .u64 q0", registers=".reg .b64 %q0;"))
    address = machine.alloc(out.nbytes)
    machine.launch(loaded, "k", 1, 64, address.to_bytes(8, "little"))
    want = []
    for i in range(64):
        x = 0
        for _ in range(3):
            x = ((i + 7 ^ x) << 1) + 3
        want.append(x if i > 40 else i + 7)
    assert np.frombuffer(machine.read(address, out.nbytes), "u4").tolist() == want
    (program,) = loaded["k"].programs.values()
    names = {program.builder.place(reg): reg.name for reg in program.function.registers}
    (loop,) = (runs for runs in program.jit_compiler.compiled.values() if len(runs[0].bodies) == 7)
    assert {names[row] for row in loop[0].live()} == {"%r2", "%r5", "%r6", "%p1", "%p2"}


def test_without_llvmlite(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    monkeypatch.delitem(sys.modules, "ptxgen.emulator.engine.llvm", raising=False)
    monkeypatch.delattr("ptxgen.emulator.engine.llvm", raising=False)
    _, out = looping(100)
    assert (out == 100).all()
    with pytest.raises(UnavailableError, match=r"ptxgen\[emu\]"):
        looping(1, engine="llvm")


def test_only_one_module_needs_llvmlite():
    folder = Path(sys.modules["ptxgen.emulator"].__file__).parent
    assert [p.name for p in sorted(folder.rglob("*.py")) if "import llvmlite" in p.read_text()] == ["llvm.py"]
