"""Mutation tests: kernels with one mistake each, which the check must report."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import (
    AssembleError,
    AsyncFault,
    BarrierFault,
    DeadlockFault,
    DivergenceFault,
    EmulatorError,
    MisalignedFault,
    OutOfBoundsFault,
    RaceFault,
    UninitialisedFault,
)
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.runtime import runner
from ptxgen.runtime.check import CASES, CheckResult, check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure.bench import Bench
from tests.emulated.gemm_runs import checked_with

#: through registers, two stages; by cp.async, three stages; shared by two groups; slices of three kinds
PLAIN = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
COPIED = parse_config("ms=2 ns=2 ml=16 nl=16 stages=3")
SHARED = parse_config("ms=2 ns=2 ml=16 nl=16 kl=2 stages=3")
P = Gemm(20, 19, 40, "TN")

#: integers, and other numbers with alpha and beta
KINDS = CASES[0], CASES[-1]

Change = Callable[[str], str]


def drop(pattern: str, which: int = 0) -> Change:
    """Removes the ``which``-th line that begins with ``pattern``."""

    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        places = [i for i, line in enumerate(lines) if re.match(rf"\s*{pattern}", line)]
        del lines[places[which]]
        return "".join(lines)

    return change


def swap(pattern: str, by: str, which: int = 0) -> Change:
    """Replaces the ``which``-th match."""

    def change(text: str) -> str:
        match = list(re.finditer(pattern, text))[which]
        return text[: match.start()] + match.expand(by) + text[match.end() :]

    return change


def every(pattern: str, by: str) -> Change:
    def change(text: str) -> str:
        changed = re.sub(pattern, by, text)
        assert changed != text
        return changed

    return change


@pytest.fixture
def mutated(monkeypatch):
    """Runs the check on a kernel whose text is changed after it was generated."""

    def run(
        c: Config, change: Change, p: Gemm = P, row_padding: int = 0, on="emulated", **options
    ) -> list[CheckResult]:
        def wrong(plan):
            source = render(plan)
            text = change(source.text)
            assert text != source.text
            return replace(source, text=text)

        monkeypatch.setattr(runner, "render", render)
        driver = EmulatedDriver(device(on), **options)
        with checked_with(KINDS):
            assert all(r.ok for r in check(driver, p, c, row_padding=row_padding))  # as it was generated
        monkeypatch.setattr(runner, "render", wrong)
        return check(driver, p, c, row_padding=row_padding)

    return run


def bars(c: Config, p: Gemm = P) -> int:
    return len(re.findall(r"\n    bar\.sync 0;", render(plan_for(p, c, device("emulated"))).text))


# ---- barriers


@pytest.mark.parametrize(
    "c", [PLAIN, COPIED, SHARED, replace(PLAIN, fragment_prefetch=0, bounds=2), replace(COPIED, epilogue_smem=1)]
)
def test_missing_barrier_is_a_race(mutated, c):
    """Each barrier in turn: after the prologue, in the loop, before the tile is staged (with beta and without)."""
    count = bars(c)
    assert count == (4 if c.kl > 1 or c.epilogue_smem else 2)
    for which in range(count):
        with pytest.raises((RaceFault, AsyncFault)) as caught:
            mutated(c, drop(r"bar\.sync 0;", which), uninitialised=False)
        assert "shared" in caught.value.instruction
        assert caught.value.line > 0
        assert caught.value.thread is not None
    with pytest.raises((RaceFault, AsyncFault, UninitialisedFault)):  # which is first depends on the order of warps
        mutated(c, drop(r"bar\.sync 0;"))


def test_lane_that_frees_a_stage_for_its_warp(mutated):
    """A lane arrives at the empty barrier of a stage from which the other lanes of its warp load A."""
    c = parse_config("family=wgmma ml=64 nl=32 u=32 stages=2")
    alone = swap(r"(lanes have read the stage\n) *bar\.warp\.sync 0xffffffff;", r"\1")
    with pytest.raises(RaceFault, match=r"tensor copy by warp 4 and read by warp .* bar\.warp\.sync must precede it"):
        mutated(c, alone, Gemm(64, 32, 160, "TT", "f32", "tf32"), on="H200")


def test_barrier_skipped_by_some_threads(mutated):
    half = swap(r"\n    bar\.sync 0;", "\n    setp.lt.u32 %p, %thread, 32;\n    @%p bar.sync 0;", 1)
    with pytest.raises((DeadlockFault, BarrierFault, RaceFault)):
        mutated(PLAIN, half)
    lanes = swap(r"\n    bar\.sync 0;", "\n    setp.lt.u32 %p, %thread, 40;\n    @%p barrier.sync.aligned 0;", 1)
    with pytest.raises((DivergenceFault, RaceFault)):
        mutated(PLAIN, lanes)


def test_stage_written_while_it_is_read(mutated):
    """A ring that never advances to its second stage."""
    with pytest.raises(RaceFault):
        mutated(PLAIN, swap(r"selp\.b32 %write_stage, %smem, %write_stage, %wrap;", "mov.b32 %write_stage, %smem;"))


# ---- copies


@pytest.mark.each_value
@pytest.mark.parametrize("c", [COPIED, SHARED, replace(COPIED, cp_async_a=0), replace(COPIED, stages=2)])
@pytest.mark.parametrize("which", [0, 1])
def test_missing_wait_for_a_copy(mutated, c, which):
    with pytest.raises(AsyncFault) as caught:
        mutated(c, drop(r"cp\.async\.wait_group", which))
    assert "ld.shared" in caught.value.instruction


@pytest.mark.parametrize("completion", ["late", "early"])
def test_wait_for_one_group_too_few(mutated, completion):
    """Also on a device whose copies complete at once."""
    with pytest.raises(AsyncFault):
        mutated(COPIED, every(r"wait_group 1;", "wait_group 2;"), completion=completion)


def test_missing_commit_of_copies(mutated):
    with pytest.raises(AsyncFault):
        mutated(COPIED, drop(r"cp\.async\.commit_group;", 0))


# ---- places


def test_store_to_c_one_element_off(mutated):
    """The rightmost column is stored between rows, or past the end."""
    for which in range(4):
        try:
            outcome = mutated(
                PLAIN, swap(r"st\.global\.f32 \[%c_addr", r"st.global.f32 [%c_addr+4", which), row_padding=1
            )
        except (OutOfBoundsFault, RaceFault):  # or where another thread's element is
            continue
        assert not any(r.ok for r in outcome[:3])


@pytest.mark.parametrize("which", range(4))
def test_store_to_shared_memory_one_element_off(mutated, which):
    change = swap(r"st\.shared\.b32 \[%dst_([ab])", r"st.shared.b32 [%dst_\1+4", which)
    try:
        outcome = mutated(PLAIN, change)
    except (RaceFault, UninitialisedFault):
        return
    assert not any(r.ok for r in outcome)


def test_fragment_of_the_next_row(mutated):
    outcome = mutated(PLAIN, swap(r"\[%frag_ptr_a0\+64\]", "[%frag_ptr_a0+128]"))
    assert not any(r.ok for r in outcome)


def test_misaligned_access(mutated):
    p = Gemm(32, 32, 32, "TN")
    c = parse_config("ms=4 ns=4 ml=32 nl=32 vec_a=4 vec_b=4 vec_c=4")
    with pytest.raises(MisalignedFault) as caught:
        mutated(c, swap(r"st\.global\.v4\.f32 \[%c_addr\]", "st.global.v4.f32 [%c_addr+4]"), p)
    assert "st.global.v4" in caught.value.instruction
    with pytest.raises(MisalignedFault):
        mutated(
            c, swap(r"ld\.shared\.v4\.f32 (\{[^}]*\}), \[%frag_ptr_a0\]", r"ld.shared.v4.f32 \1, [%frag_ptr_a0+8]"), p
        )


# ---- bounds


@pytest.mark.parametrize("which", range(4))
def test_store_without_its_guard(mutated, which):
    """Rows of the last tile are past the end of C; columns are stored in the next row."""
    with pytest.raises(OutOfBoundsFault) as caught:
        mutated(PLAIN, swap(r"@%in_bounds st\.global", "st.global", which))
    assert "st.global" in caught.value.instruction
    assert caught.value.block[0] == 1


def test_one_row_or_column_too_many(mutated):
    with pytest.raises(OutOfBoundsFault):
        mutated(PLAIN, every(r"setp\.lt\.u32 %in_m, %tmp0, %M;", "setp.le.u32 %in_m, %tmp0, %M;"))
    outcome = mutated(
        PLAIN, every(r"setp\.lt\.u32 (%in_n\d), %tmp0, %N;", r"setp.le.u32 \1, %tmp0, %N;"), row_padding=1
    )
    assert all(r.deviation.where == (-1, -1) for r in outcome[:3])  # only memory between rows


def test_load_that_is_not_clamped(mutated):
    """A is 40 x 20, B 40 x 19: the last tiles reach past them in the last row of K."""
    for which in (1, 3):
        with pytest.raises(OutOfBoundsFault) as caught:
            mutated(PLAIN, drop(r"min\.u32 %tmp0, %tmp0, %tmp2;", which))
        assert "ld.global" in caught.value.instruction
    with pytest.raises(OutOfBoundsFault):
        mutated(COPIED, drop(r"min\.u32 %tmp0, %tmp0, %tmp2;", 1))


def test_load_that_is_not_predicated(mutated):
    with pytest.raises(OutOfBoundsFault):
        mutated(replace(PLAIN, bounds=2), every(r"mov\.pred %skip, %oob_b0;", "setp.ne.u32 %skip, 0, 0;"))


@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_k_remainder_one_too_long(mutated, layout):
    """The first iteration takes one column too many: memory between rows, or past the end."""
    p = Gemm(20, 19, 37, layout)
    try:
        outcome = mutated(
            PLAIN, every(r"setp\.ge\.u32 %skip, %tmp0, %k_rem;", "setp.gt.u32 %skip, %tmp0, %k_rem;"), p, row_padding=1
        )
    except OutOfBoundsFault:
        return
    assert not any(r.ok for r in outcome)


# ---- arithmetic


@pytest.mark.each_value
@pytest.mark.parametrize("which", [0, 5, -1])
@pytest.mark.parametrize(
    ("pattern", "by"),
    [
        (r"(fma\.rn\.f32 %acc\d+, %frag_a)(\d+)", r"\g<1>0"),
        (r"fma\.rn\.f32 (%acc\d+, %frag_a\d+, %frag_b\d+), %acc\d+", r"fma.rn.f32 \1, %acc0"),
        (r"fma\.rn\.f32 (%acc\d+), %frag_a\d+, %frag_b\d+, %acc\d+;", r"mov.f32 \1, \1;"),
        (r"fma\.rn\.f32 (%acc\d+, %frag_a\d+, %frag_b\d+, %acc\d+;)", r"fma.rz.f32 \1 fma.rn.f32 \1"),
    ],
)
def test_extra_missing_or_wrong_products(mutated, pattern, by, which):
    text = render(plan_for(P, PLAIN, device("emulated"))).text
    if swap(pattern, by, which)(text) == text:
        return  # it was that operand
    outcome = mutated(PLAIN, swap(pattern, by, which))
    assert not any(r.ok for r in outcome)


def test_missing_alpha_or_beta(mutated):
    outcome = mutated(PLAIN, every(r"mul\.rn\.f32 (%result\d), (%acc\d), %alpha;", r"mov.f32 \1, \2;"))
    assert [r.ok for r in outcome] == [True, True, True, True, False]
    outcome = mutated(PLAIN, every(r"fma\.rn\.f32 (%result\d), %beta, %c_raw0, %result\d;", "mov.f32 \\1, \\1;"))
    assert [r.ok for r in outcome] == [True, True, True, True, False]


def test_c_is_read_with_beta_zero(mutated):
    """C holds NaN."""
    outcome = mutated(PLAIN, every(r"setp\.neu\.f32 %p, %beta, 0f00000000;", "setp.eq.f32 %p, %beta, %beta;"))
    assert [r.ok for r in outcome] == [False, False, False, False, True]


def test_uninitialised_accumulator(mutated):
    with pytest.raises(UninitialisedFault) as caught:
        mutated(PLAIN, drop(r"mov\.f32 %acc2,"))
    assert "%acc2" in str(caught.value)


def test_slice_added_twice_or_before_c_is_scaled(mutated):
    outcome = mutated(replace(PLAIN, kg=2), every(r"(@%in_bounds red\.global[^;]*;)", r"\1 \1"))
    assert not any(r.ok for r in outcome[:3])
    outcome = mutated(
        replace(PLAIN, kg=3, splitk=2), swap(r"setp\.lt\.u32 %p, %slice, %slices;", "setp.le.u32 %p, %slice, 1;")
    )
    assert not any(r.ok for r in outcome)


def test_flag_that_is_never_set(mutated):
    with pytest.raises((DeadlockFault, DivergenceFault)) as caught:
        mutated(replace(PLAIN, kg=2, splitk=1), drop(r"@%p red\.release\.gpu"))
    assert "ld.acquire.gpu.global.u32 %tmp0, [%flag_addr]; (polls)" in str(caught.value)


def test_flag_that_is_not_reset(mutated):
    """The next launch on the same workspace does not wait for C, or counts wrongly."""
    for change in (drop(r"@%p st\.relaxed\.gpu"), swap(r"mov\.u32 %tmp1, %nctaid\.z;", "mov.u32 %tmp1, 77;")):
        outcome = mutated(replace(PLAIN, kg=3, splitk=1), change)
        assert not any(r.ok for r in outcome)
        assert outcome[0].deviation.where == (-1, -1)


# ---- text


def test_invalid_ptx(mutated):
    for change in (
        swap(r"fma\.rn\.f32", "fmaa.rn.f32"),
        swap(r"%acc0, %frag_a0", "%nobody, %frag_a0"),
        swap(r"\n    ret;", "\n    ret"),
    ):
        with pytest.raises((AssembleError, EmulatorError)):
            mutated(PLAIN, change)


# ---- errors that the check of a measurement finds


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (swap(r"(fma\.rn\.f32 %acc\d+, %frag_a)1", r"\g<1>0"), "wrong_result"),
        (drop(r"bar\.sync 0;", 1), "launch_error"),
        (swap(r"@%in_bounds st\.global", "st.global"), "launch_error"),
        (swap(r"\n    ret;", "\n    ret"), "ptxas_error"),
    ],
)
def test_measurement_of_a_wrong_kernel_fails(monkeypatch, change, outcome):
    work = Bench(EmulatedDriver(device("emulated")))
    assert work.measure(P, PLAIN).outcome == "ok"
    monkeypatch.setattr(runner, "render", lambda plan: replace(render(plan), text=change(render(plan).text)))
    measurement = work.measure(P, PLAIN)
    assert measurement.outcome == outcome
    assert measurement.message
    assert measurement.samples == ()
    monkeypatch.undo()
    assert work.measure(P, PLAIN).outcome == "ok"  # the next kernel runs without an error


def test_flags_of_a_failed_kernel_do_not_reach_the_next(monkeypatch):
    """It stops with flags set; the workspace is not used again."""
    c = replace(PLAIN, kg=3, splitk=1)
    work = Bench(EmulatedDriver(device("emulated")))
    stopped = swap(r"@%in_bounds red\.global\.add\.f32 \[%c_addr\]", "red.global.add.f32 [%c_addr+1000000]")
    monkeypatch.setattr(runner, "render", lambda plan: replace(render(plan), text=stopped(render(plan).text)))
    assert work.measure(P, c).outcome == "launch_error"
    monkeypatch.undo()
    assert work.measure(P, c).outcome == "ok"
    launch = plan_for(P, c, device("emulated")).launch(lower(P))
    flags = np.ones(launch.workspace, np.uint8)
    work.driver.download(work.workspace.address(launch), flags)
    assert not flags.any()


def test_right_kernel_passes_in_any_order():
    for seed in range(3):
        for completion in ("late", "early"):
            driver = EmulatedDriver(device("emulated"), seed=seed, completion=completion)
            with checked_with(KINDS):
                results = check(driver, P, SHARED, seed, row_padding=1)
            assert all(r.ok for r in results)
            assert np.isfinite([r.deviation.worst for r in results]).all()
