"""Batches without a device: problems, kernels and launches."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ShapeError
from ptxgen.families.common.geometry import geometry
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.wgmma.rules import mapped
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.operand_sets import RUNS, GemmOperandSets
from ptxgen.operations.gemm.problem import CONTIGUOUS, Gemm
from ptxgen.operations.gemm.strided_arrays import C, elements, padded, span, store_operand
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from ptxgen.problem.registry import from_dict, parse
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver

H200 = device("h200")
TEXTS = {
    "simt": "ms=4 ns=4 ml=32 nl=32 u=8 stages=2 cp_async_a=0 cp_async_b=0",
    "splitk": "ms=4 ns=4 ml=32 nl=32 u=8 stages=2 cp_async_a=0 cp_async_b=0 kg=2 splitk=workspace",
    "wgmma": "family=wgmma u=32 stages=2 ml=64 nl=32 persistent=1",
}


# ---- problems


def test_batch_of_one_is_no_batch():
    plain = Gemm(64, 32, 16)
    assert plain == Gemm(64, 32, 16, batch=1, stride_a=7, stride_c=0)
    assert plain.key() == "gemm 64,32,16 NN f32"
    assert plain.offsets == (64 * 16 * 4, 16 * 32 * 4, 64 * 32 * 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "batch=3"),
        ({"stride_a": 64 * 16, "stride_b": CONTIGUOUS, "stride_c": 64 * 32}, "batch=3"),
        ({"stride_a": 0}, "batch=3 stride_a=0"),
        ({"stride_b": 1, "stride_c": 1 << 39}, f"batch=3 stride_b=1 stride_c={1 << 39}"),
        ({"ldc": 96, "stride_c": 32}, "ldc=96 batch=3 stride_c=32"),
    ],
)
def test_keys_contain_unpacked_strides(changes, words):
    p = Gemm(64, 32, 16, batch=3, **changes)
    assert p.key() == f"gemm 64,32,16 NN f32 {words}"
    assert parse(p.key()) == p == from_dict(p.as_dict())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": -1}, "batch is -1; it must be an integer from 0"),
        ({"stride_a": -2}, "stride_a is -2; it must be an integer from 0"),
        ({"stride_b": 1 << 40}, "stride_b is 1099511627776"),
        ({"stride_a": True}, "stride_a is True"),
        ({"stride_c": 0}, "stride_c is 0; 3 items of 64 rows of 32 with ldc 32 would overlap in C"),
        ({"stride_c": 64 * 32 - 1}, "stride_c is 2047"),
        ({"ldc": 95, "stride_c": 32}, "stride_c is 32; 3 items of 64 rows of 32 with ldc 95"),
    ],
)
def test_invalid_strides_are_refused(changes, words):
    with pytest.raises(ShapeError, match=words):
        Gemm(64, 32, 16, **{"batch": 3, **changes})


def test_single_row_may_have_any_leading_dimension():
    assert Gemm(1, 32, 16, batch=3, ldc=500, stride_c=32).strides[2] == 32
    with pytest.raises(ShapeError):
        Gemm(1, 32, 16, batch=3, stride_c=31)


def test_strides_count_for_alignment():
    assert Gemm(64, 64, 64, batch=3).vectors == (4, 4, 4)
    assert Gemm(64, 64, 64, batch=3, stride_a=64 * 64 + 2, stride_b=0, stride_c=64 * 64 + 1).vectors == (2, 4, 1)
    p = Gemm(64, 64, 64, "NT", "bf16", batch=3, stride_a=64 * 64 + 4)
    assert not mapped(lower(p), "a")
    assert mapped(lower(p), "b")
    assert mapped(lower(replace(p, stride_a=0)), "a")
    assert not mapped(lower(replace(p, stride_a=1 << 39)), "a")


def test_work_and_traffic_of_batches():
    one, p = Gemm(64, 32, 16), Gemm(64, 32, 16, batch=5)
    assert (p.flops, p.bytes) == (5 * one.flops, 5 * one.bytes)
    shared = replace(p, stride_b=0)
    assert shared.bytes == p.bytes - 4 * 16 * 32 * 4
    assert shared.stored == ((5, 64, 16), (1, 16, 32), (5, 64, 32))


# ---- kernels and launches


@pytest.mark.parametrize("name", TEXTS)
def test_one_kernel_serves_all_counts_and_strides(name):
    """The kernel of a single GEMM contains no batch code."""

    def text(**changes):
        p = Gemm(64, 64, 64, "NT", "bf16", **changes)
        return render(plan_for(p, parse_config(TEXTS[name]), H200))

    some = text(batch=2)
    assert some.digest == text(batch=9, stride_a=0, stride_b=64 * 64 + 8).digest
    assert some.digest != text().digest
    code = re.sub(r"//[^\n]*", "", text().text)
    assert "item" not in code
    assert "batch" not in code


def test_geometry_counts_the_tiles_of_all_items():
    for text in TEXTS.values():
        one = geometry(lower(Gemm(100, 100, 64, "NT", "bf16")), parse_config(text))
        five = geometry(lower(Gemm(100, 100, 64, "NT", "bf16", batch=5)), parse_config(text))
        assert (five.tiles, five.blocks, five.workspace) == (5 * one.tiles, 5 * one.blocks, 5 * one.workspace)
        assert five.registers == one.registers


def test_a_million_items():
    """A grid has 65535 blocks along z; persistent blocks compute more items."""
    p = Gemm(16, 16, 16, batch=1_000_000)
    made = plan_for(p, parse_config(TEXTS["simt"]), H200)
    steps = made.launch(lower(p)).steps
    assert [s.grid for s in steps] == [(1, 1, 65535)] * 15 + [(1, 1, 1_000_000 - 15 * 65535)]
    names = [
        n for line in made.parameters.rows.declarations for n in line.replace(",", "").split() if n == "first_item"
    ]
    assert names
    firsts = [next(v for k, v in s.arguments[4:] if k == "u32") for s in steps]
    assert firsts == [65535 * i for i in range(16)]
    p = replace(p, layout="NT", dtype="bf16", out="bf16")
    [step] = plan_for(p, parse_config(TEXTS["wgmma"]), H200).launch(lower(p)).steps
    assert step.grid == (132, 1, 1)


def test_slices_of_all_items_fit_the_grid():
    p = Gemm(32, 32, 4096, batch=9000)
    config = parse_config(TEXTS["splitk"].replace("kg=2", "kg=64"))
    launch = plan_for(p, config, H200).launch(lower(p))
    assert all(s.grid[2] <= 65535 for s in launch.steps)
    assert launch.workspace == 65535 // 64 * 64 * 32 * 32 * 4
    assert sum(s.grid[2] for s in launch.steps if s.entry.endswith("reduce")) == 9000


def test_shared_operands_have_a_map_of_one_item():
    p = Gemm(64, 64, 64, "NT", "bf16", batch=7, stride_b=0)
    [step] = (
        plan_for(p, parse_config("family=wgmma u=32 stages=2 ml=64 nl=32 epilogue_smem=1"), H200).launch(lower(p)).steps
    )
    a, b, c = step.maps
    assert [m.extents for m in (a, b, c)] == [(64, 64, 7), (64, 64, 1), (64, 64, 7)]
    assert a.pitches == (128, 8192)
    assert all(m.box[2] == 1 for m in step.maps)


# ---- memory


def test_items_with_interleaved_rows():
    p = Gemm(2, 3, 4, batch=2, ldc=6, stride_c=3)
    assert span(p, C) == 2 * 6 + 3
    memory = store_operand(p, C, np.arange(12.0).reshape(2, 2, 3), -1)
    assert memory[:12].tolist() == [0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11]
    assert np.array_equal(elements(p, C, memory), np.arange(12.0).reshape(2, 2, 3))


def test_reference_of_a_batch_is_per_item():
    p = Gemm(5, 6, 7, "TN", batch=3, stride_b=0)
    a, b, c = operands(p).values()
    computed = reference(p, {"A": a, "B": b, "C": c}, 2.0, 1.0)
    for i in range(3):
        one = reference(replace(p, batch=1), {"A": a[i], "B": b[0], "C": c[i]}, 2.0, 1.0)
        np.testing.assert_allclose(computed.exact[i], one.exact, rtol=1e-12)
        np.testing.assert_allclose(computed.scale[i], one.scale, rtol=1e-12)


@pytest.mark.parametrize("limit", [1 << 20, 40 * 8 * 8, 3 * 64, 17])
def test_measurements_compare_first_and_last_items(limit):
    p = Gemm(8, 8, 8, batch=100)
    operand_sets = GemmOperandSets(EmulatedDriver(), p, Timing())
    blocks = list(operand_sets.blocks(limit))
    assert blocks[0][0].start == 0
    assert blocks[-1][0].stop == 100
    assert len(blocks) <= 8 * RUNS
    size = sum((i.stop - i.start) * (r.stop - r.start) * 8 for i, r in blocks)
    assert size == 6400 if limit > 6400 else size <= max(limit, 8 * RUNS)
    exact = reference(p, operand_sets.arrays).exact.astype(np.float32)
    operand_sets.driver.upload(operand_sets.sets[0]["C"], padded(p, operand_sets.arrays | {"C": exact})["C"])
    assert operand_sets.deviation(limit).ok
    exact[99, 7, 7] += 1
    operand_sets.driver.upload(operand_sets.sets[0]["C"], padded(p, operand_sets.arrays | {"C": exact})["C"])
    deviation = operand_sets.deviation(1 << 20)
    assert not deviation.ok
    assert deviation.where == (99, 7, 7)
