"""malloc and free in device code."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.emulator import Machine, launch
from ptxgen.errors import Fault, Faults, OutOfBoundsFault

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.extern .func free (.param .b64 pointer);
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p<4>;
ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %d5, %r0, 8, %d0; cvt.u64.u32 %d1, %r0;
mad.lo.u64 %d1, %d1, 4, 16;
"""
#: %d2 = malloc(16 + 4 * thread)
MALLOC = """{ .param .b64 n; .param .b64 p; st.param.b64 [n], %d1;
call.uni (p), malloc, (n); ld.param.b64 %d2, [p]; }
"""
FREE = "{ .param .b64 p; st.param.b64 [p], %d2; call.uni free, (p); }\n"
#: stores at the last element of the allocation, and loads it
USE = "add.u64 %d3, %d2, %d1; st.u32 [%d3+-4], %r0; ld.u32 %r1, [%d3+-4]; st.global.u32 [%d5], %r1;\n"


def text(body: str) -> str:
    return f"{HEAD}{body}ret; }}"


def test_malloc_and_free():
    """Each thread has memory of its own, of the bytes that it asked for, and a note says what was not freed."""
    out = np.full(64, -1, np.int64)
    stats = launch(text(MALLOC + USE + FREE), "k", 1, 64, [out])
    assert (out.view(np.int32)[::2] == np.arange(64)).all()
    assert not stats.notes
    stats = launch(text(MALLOC + USE), "k", 1, 4, [out])
    assert stats.notes == ["line 12: 4 allocations of malloc, 88 bytes, have not been freed"]


def test_no_memory():
    out = np.full(64, -1, np.int64)
    launch(text("mov.u64 %d1, 5000000;" + MALLOC + "st.global.u64 [%d5], %d2;"), "k", 1, 2, [out])
    assert out[0] > 0
    assert out[1] == 0


@pytest.mark.parametrize(
    ("body", "fault", "message"),
    [
        (MALLOC + "add.u64 %d3, %d2, %d1; st.u32 [%d3], 0;", OutOfBoundsFault, "0 bytes past the end of the 16 bytes"),
        (MALLOC + USE + FREE + USE, OutOfBoundsFault, "at offset 12 of the 16 bytes .*, which line 14 has freed"),
        (MALLOC + FREE + FREE, Fault, "the 16 bytes .* are freed twice, first by line 13"),
        (MALLOC + "add.u64 %d2, %d2, 8;" + FREE, Fault, "not one that malloc has returned"),
        ("mov.u64 %d2, %d0;" + FREE, Fault, "not one that malloc has returned"),
    ],
)
def test_faults(body, fault, message):
    with pytest.raises(fault, match=message):
        launch(text(body), "k", 1, 1, [np.zeros(64, np.int64)])


def test_a_launch_that_goes_on_frees_once():
    """Lane 0 passes a wrong pointer; the other lanes free their memory once."""
    body = MALLOC + "setp.eq.u32 %p0, %r0, 0; @%p0 add.u64 %d2, %d2, 8;" + FREE
    with pytest.raises(Faults) as caught:
        launch(text(body), "k", 1, 4, [np.zeros(64, np.int64)], faults=4)
    assert len(caught.value.faults) == 1
    with pytest.raises(Fault, match="two lanes free the 16 bytes"):
        launch(
            text(
                "mov.u64 %d1, 16;" + MALLOC + "shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;"
                "mov.b64 {%r2, %r3}, %d2; shfl.sync.idx.b32 %r2, %r2, 0, 31, -1; mov.b64 %d2, {%r2, %r3};" + FREE
            ),
            "k",
            1,
            32,
            [np.zeros(64, np.int64)],
        )


def test_memory_stays_for_later_launches():
    """One kernel allocates, another one frees."""
    machine = Machine()
    module = machine.load(text("mov.u64 %d2, 0;" + FREE + MALLOC + "st.global.u64 [%d5], %d2;"))
    other = machine.load(text("ld.global.u64 %d2, [%d5];" + USE.replace("st.global.u32 [%d5]", "st.u32 [%d2]") + FREE))
    out = machine.alloc(64)
    for _ in range(2):
        machine.launch(module, "k", 1, 2, out.to_bytes(8, "little"))
        machine.launch(other, "k", 1, 2, out.to_bytes(8, "little"))
    assert machine.heap is not None
    assert machine.heap.used == 0
    with pytest.raises(OutOfBoundsFault, match="has freed"):
        machine.launch(other, "k", 1, 2, out.to_bytes(8, "little"))
