"""Launches that go on after faults (option `faults`): what they list, count, drop, and what ends them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.emulator import launch
from ptxgen.errors import (
    BarrierFault,
    DeadlockFault,
    Fault,
    Faults,
    InputError,
    MisalignedFault,
    OutOfBoundsFault,
    RaceFault,
    UninitialisedFault,
)

TEXT = (Path(__file__).parent / "emulator_ptx" / "messages.ptx").read_text()
#: %d0: the address of the thread's word of the first array
WORD = "mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; "
#: stores %r1 to the thread's word
STORE = "st.global.u32 [%d0], %r1;"


def faults(body, *arrays, faults=5, **options):
    """The faults of a launch of a body, each as (type, count), and their exception."""
    with pytest.raises(Faults) as caught:
        run(body, *arrays, faults=faults, **options)
    return [(type(fault), fault.count) for fault in caught.value.faults], caught.value


@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_two_faults_of_a_kernel(engine):
    """The first thread past the end, at the load and at the store; the other threads store their elements."""
    x, y = np.arange(60, dtype=np.float32), np.zeros(62, np.float32)
    with pytest.raises(Faults) as caught:
        launch(TEXT, "shift", 2, 32, [x, y, np.int32(64)], faults=5, engine=engine)
    load, store = caught.value.faults
    assert (load.source, load.count, load.thread) == ("messages.cu:40", 5, (27, 0, 0))
    assert (store.source, store.count, store.thread) == ("messages.cu:42", 2, (30, 0, 0))
    assert np.array_equal(y, [*range(1, 60), 0, 0, 0])  # a load that is dropped gives 0
    assert (caught.value.entry, caught.value.source, caught.value.end) == ("shift", load.source, "")
    text = str(caught.value)
    assert text.startswith(f"OutOfBoundsFault: {load.message}\n  kernel       shift\n")
    assert "\n  occurred     5 times\n\nOutOfBoundsFault: " in text
    assert text.endswith("\n\n2 different faults, which occurred 7 times")


def test_the_limit_ends_the_launch():
    """One fault more than the limit is not listed, whether or not the limit is 1."""
    args = [np.zeros(60, np.float32), np.zeros(62, np.float32), np.int32(64)]
    with pytest.raises(OutOfBoundsFault):
        launch(TEXT, "shift", 2, 32, args)
    body = WORD + "ld.global.u32 %r1, [%d0+4]; ld.global.u32 %r2, [%d0+8]; ld.global.u32 %r3, [%d0+12];"
    listed, error = faults(body, np.zeros(32, np.int32), faults=2)
    assert listed == [(OutOfBoundsFault, 1), (OutOfBoundsFault, 2)]
    assert str(error).endswith("the launch ended early: it has more than 2 different faults")
    with pytest.raises(InputError, match="faults is 0; it must be at least 1"):
        launch(TEXT, "shift", 2, 32, args, faults=0)


def test_without_a_fault_a_launch_returns_its_statistics():
    x = np.zeros(32, np.int32)
    assert run(WORD + "mov.u32 %r1, 7; " + STORE, x, faults=5).threads == 32
    assert (x == 7).all()


def test_a_race_is_listed_once():
    """From both sides, in both blocks; an uninitialised read that the race causes is not listed."""
    x, y = np.arange(64, dtype=np.float32), np.zeros(60, np.float32)
    with pytest.raises(Faults) as caught:
        launch(TEXT, "_ZN3app7reverseIfEEvPKT_PS1_", 2, 64, [x, y], faults=5, global_races=False)
    assert {type(fault) for fault in caught.value.faults} == {RaceFault, OutOfBoundsFault}
    assert len(caught.value.faults) == 2


def test_undefined_values_are_listed_once():
    """A predicate, a stored value and an address; only the access with the undefined address is dropped."""
    body = WORD + (
        "@%p0 add.u32 %r0, %r0, 0; @%p0 add.u32 %r0, %r0, 0; st.global.u32 [%d0], %r5; st.global.u32 [%d0], %r0;"
        "ld.global.u32 %r1, [%d1];"
    )
    x = np.full(32, -1, np.int32)
    listed, error = faults(body, x)
    assert listed == [(UninitialisedFault, 32)] * 3
    assert [fault.message.split()[1] for fault in error.faults] == ["%p0", "%r5", "%d1"]
    assert (x == np.arange(32)).all()


def test_misaligned_and_shared_accesses():
    body = "mov.u32 %r0, %tid.x; mov.u32 %r9, sm; add.u32 %r9, %r9, %r0; st.shared.u32 [%r9], %r0; " + (
        "ld.shared.u32 %r1, [%r9+1024];" + WORD + STORE
    )
    x = np.full(8, -1, np.int32)
    listed, _ = faults(body, x, block=8, extra=".shared .align 4 .b8 sm[64];")
    assert listed == [(MisalignedFault, 6), (OutOfBoundsFault, 8)]
    assert (x == 0).all()


def test_a_warp_with_a_fault_skips_a_warp_wide_instruction():
    """Warp 0 has a mask without one of its lanes; warp 1 exchanges."""
    body = WORD + (
        "shr.u32 %r2, %r0, 5; sub.u32 %r2, 0, %r2; or.b32 %r2, %r2, 0x7fffffff;"
        "shfl.sync.idx.b32 %r1, %r0, 3, 31, %r2;" + STORE
    )
    x = np.full(64, -1, np.int32)
    listed, error = faults(body, x, block=64)
    assert len(listed) == 1
    assert error.faults[0].thread[0] < 32
    assert (x == np.repeat([0, 35], 32)).all()


@pytest.mark.parametrize(
    ("end", "last", "words"),
    [
        ("trap;", Fault, "no thread can go on after the last fault"),
        ("mov.u32 %r5, 33; bar.sync 0, %r5;", BarrierFault, "no thread can go on after the last fault"),
        ("L: setp.eq.u32 %p0, %r1, 0; @%p0 bra L;", None, "DeadlockFault, a warp has executed over 1000 instructions"),
    ],
)
def test_faults_that_end_the_launch(end, last, words):
    """A deadlock after another fault is not listed: it may follow from a dropped access."""
    body = WORD + "ld.global.u32 %r1, [%d0+128];" + end
    listed, error = faults(body, np.zeros(32, np.int32), watchdog=1000)
    assert [one for one, _ in listed] == [OutOfBoundsFault, *([last] if last else [])]
    assert error.end.startswith(words)
    with pytest.raises(Faults) as caught:
        run("L: bra L;", np.zeros(1, np.int32), watchdog=1000, faults=5)
    assert [type(fault) for fault in caught.value.faults] == [DeadlockFault]
