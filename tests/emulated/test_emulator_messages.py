"""The reports of faults in C++ kernels: names, variables, source lines of inlined code, both sides of a race.

nvcc has compiled emulator_ptx/messages.ptx with -lineinfo.
"""

from pathlib import Path

import numpy as np
import pytest

from ptxgen.emulator import launch
from ptxgen.emulator.memory.variables import element
from ptxgen.emulator.ptx import demangle
from ptxgen.errors import Frame, OutOfBoundsFault, RaceFault, UninitialisedFault, shortened

TEXT = (Path(__file__).parent / "emulator_ptx" / "messages.ptx").read_text()
ROW_SUMS, REVERSE, COUNT = "_ZN3app8row_sumsEPKfPfii", "_ZN3app7reverseIfEEvPKT_PS1_", "_ZN3app5countEPKiPi"


def fault_of(fault, *args, text=TEXT, **options):
    with pytest.raises(fault) as caught:
        launch(text, *args, **options)
    return caught.value


def row_sums(text=TEXT):
    args = np.ones((8, 4), np.float32), np.zeros(8, np.float32), np.int32(8), np.int32(4)
    return fault_of(OutOfBoundsFault, ROW_SUMS, 1, 32, args, text=text)


def test_inlined_functions_name_the_lines_of_their_callers():
    fault = row_sums()
    assert fault.frames == (
        Frame("messages.cu:5", "app::element(float const*, int, int, int)", "inlined"),
        Frame("messages.cu:12", "app::row_sum(float const*, int, int)", "inlined"),
        Frame("messages.cu:19", "app::row_sums(float const*, float*, int, int)"),
    )
    assert fault.source == "messages.cu:5"
    assert (
        str(fault)
        == """4 bytes at offset 128, 0 bytes past the end of parameter 0, f32[8x4]
  kernel       app::row_sums(float const*, float*, int, int)
  line         105
  source       messages.cu:5 in app::element(float const*, int, int, int)
  inlined from messages.cu:12 in app::row_sum(float const*, int, int)
  inlined from messages.cu:19
  instruction  ld.global.f32 %f6, [%rd11];
  block        (0, 0, 0)
  thread       (7, 0, 0)
  address      0x100010880"""
    )


def test_function_names_may_have_an_offset():
    """One string section with one label, as the PTX ISA allows."""
    start = TEXT.index("$L__info_string1:")
    text = TEXT[:start] + TEXT[start:].partition("\n")[2]
    text = text.replace("$L__info_string1,", "$L__info_string0+22,")
    assert row_sums(text).frames == row_sums().frames


def test_code_on_line_0_has_no_source():
    """nvcc writes line 0 for code that belongs to no line: the report names the line of the caller, or none."""
    assert row_sums(TEXT.replace(".loc\t1 5 5,", ".loc\t1 0 5,")).source == "messages.cu:12"
    fault = fault_of(
        OutOfBoundsFault,
        "shift",
        1,
        32,
        [np.zeros(32, np.float32)] * 2 + [np.int32(32)],
        text=TEXT.replace(".loc\t1 40 5", ".loc\t1 0 5"),
    )
    assert (fault.source, "source" in str(fault)) == ("", False)


def test_both_sides_of_a_race_in_shared_memory():
    fault = fault_of(RaceFault, REVERSE, 1, 64, [np.arange(64, dtype=np.float32), np.zeros(64, np.float32)])
    other = fault.other
    assert other is not None
    sides = {(fault.source, fault.thread[0]), (other.source, other.thread[0])}
    assert {source for source, _ in sides} == {"messages.cu:25", "messages.cu:26"}
    writer, reader = (next(t for source, t in sides if source.endswith(line)) for line in ("25", "26"))
    assert writer == 63 - reader
    assert writer // 32 != reader // 32
    assert fault.variable == f"element {writer} of tile (bytes {4 * writer} to {4 * writer + 3} of 256)"
    assert fault.kernel == "app::reverse<float>(float const*, float*)"
    assert f"  the {other.name}:\n    line         {other.line}\n    source       {other.source}\n" in str(fault)


@pytest.mark.parametrize(
    ("keys", "variable", "lines"),
    [
        (np.full(33, 3), "element 3 of parameter 1, s32[40]", {"messages.cu:32"}),
        (np.arange(33), "app::total, u32", {"messages.cu:34"}),
    ],
)
def test_both_sides_of_a_race_in_global_memory(keys, variable, lines):
    fault = fault_of(RaceFault, COUNT, 1, 33, [keys.astype(np.int32), np.zeros(40, np.int32)])
    assert fault.variable == variable
    assert fault.other is not None
    assert {fault.source, fault.other.source} == lines
    assert fault.thread != fault.other.thread
    assert fault.other.block == (0, 0, 0)


def test_both_sides_of_a_race_between_lanes():
    """The two lanes of one warp, with their threads."""
    text = TEXT.replace("63;", "31;")
    fault = fault_of(RaceFault, REVERSE, 1, 32, [np.arange(32, dtype=np.float32), np.zeros(32, np.float32)], text=text)
    assert "of the same warp" in fault.message
    assert fault.other is not None
    assert {fault.source, fault.other.source} == {"messages.cu:25", "messages.cu:26"}
    assert fault.thread[0] + fault.other.thread[0] == 31


def test_lines_that_a_message_names_have_sources():
    """An undefined value names the load that it comes from, here in an inlined function; a note names stores."""
    text = """.version 8.0
        .target sm_80
        .address_size 64
        .visible .entry k(.param .u64 x) {
            .shared .b32 s[32];
            .reg .b32 %r;
            .reg .b64 %x;
            ld.param.u64 %x, [x];
            .loc 1 6 0
            .loc 1 3 0, function_name load, inlined_at 1 6 0
            ld.shared.b32 %r, [s+8];
            .loc 1 7 0
            st.global.b32 [%x], %r;
        }
        .file 1 "k.cu"
        .section .debug_str { load: .b8 95, 90, 49, 108, 118, 0 }
    """
    fault = fault_of(UninitialisedFault, "k", 1, 1, [np.zeros(1, np.int32)], text=text)
    assert (fault.source, fault.variable) == ("k.cu:7", "element 2 of s, b32[32]")
    assert fault.mentioned[0].frames == (Frame("k.cu:3", "l()", "inlined"), Frame("k.cu:6", "k"))
    assert str(fault).endswith("\n  line 11      k.cu:3: ld.shared.b32 %r, [s+8];\n               inlined from k.cu:6")
    written = text.replace("ld.shared.b32 %r, [s+8];", "mov.u32 %r, 1; st.shared.b32 [s+8], %r;")
    stats = launch(written, "k", 1, 64, [np.zeros(1, np.int32)])
    assert stats.notes[0].startswith("line 11 (k.cu:3): several warps store the same value")


def test_names_without_a_demangler(monkeypatch):
    monkeypatch.setattr(demangle, "LIBRARIES", ("no such library",))
    for function in (demangle._demangler, demangle.demangled):
        function.cache_clear()
    try:
        assert row_sums().kernel == ROW_SUMS
    finally:
        for function in (demangle._demangler, demangle.demangled):
            function.cache_clear()


def test_demangled_names():
    names = {
        "_Z1kv": "k()",
        "_ZZ1kvE4tile": "k()::tile",
        "_Z3addIiEvT_": "add<int>(int)",
        "_ZN19_INTERNAL_0a_k_cu_112_GLOBAL__N_17counterE": "(anonymous namespace)::counter",
        "_Zjunk": "_Zjunk",
        "saxpy": "saxpy",
        "i": "i",
    }
    assert {name: demangle.demangled(name) for name in names} == names


@pytest.mark.parametrize(
    ("name", "access", "text"),
    [
        ("x, f32[8]", (12, 4, 1), "element 3 of x, f32[8]"),
        ("x, f32[8x4]", (16, 4, 4), "elements [1][0] to [1][3] of x, f32[8x4]"),
        ("n, u32", (0, 4, 1), "n, u32"),
        ("x, f32[8]", (2, 2, 1), "bytes 2 to 3 of x, f32[8]"),
        ("x, b8[8]", (3, 1, 1), "byte 3 of x, b8[8]"),
        ("the allocation of 64 bytes at 0x1", (4, 4, 1), "bytes 4 to 7 of the allocation of 64 bytes at 0x1"),
    ],
)
def test_elements(name, access, text):
    assert element(name, *access) == text


LONG = "int, " * 40 + "int"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f<int>(int)", "f<int>(int)"),
        (f"a::f<{LONG}>::g<2>({LONG})::t", "a::f<...>::g<...>(...)::t"),
        (f"(anonymous namespace)::f<{LONG}>()", "(anonymous namespace)::f<...>()"),
        (f"bool a::operator< <{LONG}>(a::b<(c)1> const&)", "bool a::operator< <...>(...)"),
        (
            f"f<{LONG}>(int)::{{lambda(int)#1}}::operator()(int) const",
            "f<...>(...)::{lambda(...)#1}::operator()(...) const",
        ),
        ("_Z" + "x" * 300, "_Z" + "x" * 234 + " ..."),
    ],
)
def test_long_names_are_shortened(name, text):
    assert shortened(name) == text


def test_templates_that_inline_themselves():
    """One line calls the same line in another function; nvcc repeats the .loc of an outer function behind an inner one."""
    text = """.version 8.0
        .target sm_80
        .address_size 64
        .visible .entry k(.param .u64 x) {
            .reg .b32 %r;
            .reg .b64 %x;
            ld.param.u64 %x, [x];
            .loc 1 9 5
            .loc 1 4 9, function_name two, inlined_at 1 9 5
            .loc 1 4 9, function_name one, inlined_at 1 4 9
            ld.global.b32 %r, [%x];
            .loc 1 4 9, function_name one, inlined_at 1 4 9
            .loc 1 3 9, function_name none, inlined_at 1 4 9
            ld.global.b32 %r, [%x+4];
        }
        .file 1 "k.cu"
        .section .debug_str {
            two: .b8 50, 0
            one: .b8 49, 0
            none: .b8 48, 0
        }
    """
    fault = fault_of(OutOfBoundsFault, "k", 1, 1, [np.zeros(1, np.int32)], text=text)
    assert [(frame.source, frame.function) for frame in fault.frames] == [
        ("k.cu:3", "0"),
        ("k.cu:4", "1"),
        ("k.cu:4", "2"),
        ("k.cu:9", "k"),
    ]


def test_accesses_behind_shared_memory_name_the_last_variable():
    fault = fault_of(OutOfBoundsFault, REVERSE, 1, 96, [np.zeros(96, np.float32)] * 2, races=False, uninitialised=False)
    assert fault.message == "4 bytes of shared memory outside [0x400, 0x500), 0 bytes past the end of tile"
