"""Messages between the warps of a block through a flag in shared memory: what orders the data, and what does not."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.errors import RaceFault

#: warp 0 writes [v] and then the flag [f]; warp 1 polls the flag and reads [v]
BODY = """mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; mov.u32 %r3, 0; @%p0 st.shared.u32 [f], %r3; bar.sync 0;
@!%p0 bra READ;
st.shared.u32 [v], 42;
WRITE
ret;
READ: setp.ne.u32 %p0, %r0, 32; @%p0 ret;
WAIT: POLL setp.eq.u32 %p0, %r1, 0; @%p0 bra WAIT;
AFTER
ld.shared.u32 %r2, [v]; st.global.u32 [%q0], %r2;"""


def send(write, poll, after, **options):
    y = np.zeros(1, "u4")
    body = BODY.replace("WRITE", write).replace("POLL", poll).replace("AFTER", after)
    run(body, y, block=64, registers=".shared .b32 f, v;", **options)
    return int(y[0])


VOLATILE = "ld.volatile.shared.u32 %r1, [f];"
RELAXED = "ld.relaxed.cta.shared.u32 %r1, [f];"
ACQUIRE = "ld.acquire.cta.shared.u32 %r1, [f];"
ATOMIC = "atom.shared.or.b32 %r1, [f], 0;"


@pytest.mark.parametrize("global_races", [True, False])
@pytest.mark.parametrize(
    ("write", "poll", "after"),
    [
        ("membar.cta; st.volatile.shared.u32 [f], 1;", VOLATILE, "membar.cta;"),
        ("fence.acq_rel.cta; st.relaxed.cta.shared.u32 [f], 1;", RELAXED, "fence.acq_rel.cta;"),
        ("st.release.cta.shared.u32 [f], 1;", ACQUIRE, ""),
        ("membar.cta; atom.shared.exch.b32 %r5, [f], 1;", ATOMIC, "membar.cta;"),
        ("membar.gl; red.shared.add.u32 [f], 1;", VOLATILE, "membar.gl;"),
        ("st.release.cta.shared.u32 [f], 1;", RELAXED, "fence.acq_rel.cta;"),
    ],
)
def test_messages(write, poll, after, global_races):
    for seed in range(3):
        assert send(write, poll, after, seed=seed, global_races=global_races) == 42


@pytest.mark.parametrize(
    ("write", "poll", "after"),
    [
        ("st.volatile.shared.u32 [f], 1;", VOLATILE, "membar.cta;"),
        ("membar.cta; st.volatile.shared.u32 [f], 1;", VOLATILE, ""),
        ("st.relaxed.cta.shared.u32 [f], 1;", ACQUIRE, ""),
        ("st.release.cta.shared.u32 [f], 1;", RELAXED, ""),
        ("atom.shared.exch.b32 %r5, [f], 1;", ATOMIC, "membar.cta;"),
    ],
)
def test_messages_without_a_fence(write, poll, after):
    with pytest.raises(RaceFault, match="of the same shared memory") as caught:
        send(write, poll, after)
    assert "[v]" in caught.value.instruction


def test_weak_flags_race():
    with pytest.raises(RaceFault, match="strong read by warp 1 and write by warp 0") as caught:
        send("membar.cta; st.shared.u32 [f], 1;", VOLATILE, "membar.cta;")
    assert "[f]" in caught.value.instruction
