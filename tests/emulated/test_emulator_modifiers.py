"""Modifiers in other orders than the ISA's, which ptxas accepts, and instructions of older targets."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.errors import UnsupportedError

ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not find_spec("llvmlite"), reason="no llvmlite"))]
LANE = np.arange(32)
#: orders that ptxas 13.0 assembles; the first is the ISA's
ORDERS = [
    ["vote.sync.ballot.b32 %r1, %p0, -1;", "vote.ballot.sync.b32 %r1, %p0, -1;", "vote.b32.ballot.sync %r1, %p0, -1;"],
    ["shfl.sync.bfly.b32 %r1, %r0, 3, 31, -1;", "shfl.bfly.b32.sync %r1, %r0, 3, 31, -1;"],
    ["match.any.sync.b32 %r1, %r2, -1;", "match.sync.any.b32 %r1, %r2, -1;", "match.b32.sync.any %r1, %r2, -1;"],
    ["redux.sync.add.u32 %r1, %r0, -1;", "redux.add.sync.u32 %r1, %r0, -1;", "redux.u32.add.sync %r1, %r0, -1;"],
    ["ld.volatile.global.u32 %r1, [%d0];", "ld.u32.global.volatile %r1, [%d0];"],
    ["atom.relaxed.gpu.global.add.u32 %r1, [%d0], 2;", "atom.u32.add.global.relaxed.gpu %r1, [%d0], 2;"],
    ["mad.lo.cc.u32 %r1, %r0, %r0, 5;", "mad.lo.u32.cc %r1, %r0, %r0, 5;"],
    ["shf.l.wrap.b32 %r1, %r0, %r2, 5;", "shf.l.b32.wrap %r1, %r0, %r2, 5;"],
    [
        "cvt.rn.ftz.sat.f32.f64 %f1, 0d3FE0000000000000; mov.b32 %r1, %f1;",
        "cvt.f32.sat.f64.ftz.rn %f1, 0d3FE0000000000000; mov.b32 %r1, %f1;",
    ],
    [
        "setp.lt.and.u32 %p1, %r0, 9, %p0; selp.u32 %r1, 1, 0, %p1;",
        "setp.u32.and.lt %p1, %r0, 9, %p0; selp.u32 %r1, 1, 0, %p1;",
    ],
    ["prmt.b32.f4e %r1, %r0, 0x12345678, 1;", "prmt.f4e.b32 %r1, %r0, 0x12345678, 1;"],
    [
        "fma.rn.ftz.f32 %f1, 0f40000000, 0f40400000, 0f3F800000; mov.b32 %r1, %f1;",
        "fma.f32.ftz.rn %f1, 0f40000000, 0f40400000, 0f3F800000; mov.b32 %r1, %f1;",
    ],
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("orders", ORDERS, ids=lambda orders: orders[0].split()[0])
def test_orders_of_modifiers(orders, engine):
    permutations = []
    for text in orders:
        y = np.arange(100, 132, dtype="u4")
        run(
            f"""mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; and.b32 %r2, %r0, 3; setp.eq.u32 %p0, %r2, 1;
            {text} add.u32 %r1, %r1, 1; st.global.u32 [%d0], %r1; ret;""",
            y,
            engine=engine,
        )
        permutations.append(y.tolist())
    assert all(y == permutations[0] for y in permutations[1:])
    assert permutations[0] != list(range(100, 132))


def test_polling_in_another_order():
    """A load that polls lets others run, wherever .volatile or .acquire stands."""
    y = np.zeros(4, "u4")
    run(
        """mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 32; @%p0 bra SET;
        WAIT: ld.global.gpu.acquire.u32 %r1, [%q0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra WAIT; st.global.u32 [%q0+4], %r1; ret;
        SET: st.global.release.gpu.u32 [%q0], 3; ret;""",
        y,
        block=64,
        watchdog=200_000,
    )
    assert y[1] == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_votes_and_shuffles_without_sync(engine):
    """Among the lanes that execute them together: here those of one side of a branch."""
    y = np.zeros((5, 32), "u4")
    run(
        """mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %q0; setp.lt.u32 %p0, %r0, 20; and.b32 %r2, %r0, 1;
        setp.eq.u32 %p1, %r2, 0; @%p0 bra LOW; mov.u32 %r1, 7; bra END;
        LOW: vote.ballot.b32 %r1, %p1; vote.all.pred %p2, %p1; vote.any.pred %p3, !%p1; vote.uni.pred %p4, %p0;
        shfl.bfly.b32 %r3|%p5, %r0, 1, 31; selp.u32 %r4, 1, 0, %p2; selp.u32 %r5, 1, 0, %p3; selp.u32 %r6, 1, 0, %p4;
        st.global.u32 [%d0+128], %r4; st.global.u32 [%d0+256], %r5; st.global.u32 [%d0+384], %r6;
        st.global.u32 [%d0+512], %r3;
        END: st.global.u32 [%d0], %r1; ret;""",
        y,
        engine=engine,
    )
    low = LANE < 20
    assert (y[0] == np.where(low, 0x55555, 7)).all()
    assert (y[1:4] == [0 * LANE, low, low]).all()
    assert (y[4] == (LANE ^ 1) * low).all()


@pytest.mark.parametrize(
    "text", ["vote.ballot.pred %p0, %p1;", "vote.some.pred %p0, %p1;", "shfl.b32 %r1, %r0, 1, 31;"]
)
def test_invalid_text(text):
    with pytest.raises(UnsupportedError):
        run(f"{text} ret;", uninitialised=False)
