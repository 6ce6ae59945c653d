"""SIMT kernels with packed operands, executed with checks for races, bounds and uninitialised reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gemm_runs import right, verify

from ptxgen.codegen.config.config import DIRECT, PACK, SPLIT_FLAG, parse_config
from ptxgen.families.common.fma import pack_rows
from ptxgen.families.common.perf_model import predict
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import device
from tests.lowered import space

TILE = "ms=4 ns=4 ml=32 nl=32"
PATHS = {
    "both": "operand_path_a=pack operand_path_b=pack",
    "a": "operand_path_a=pack",
    "b": "operand_path_b=pack",
}
H200 = device("h200")


def text(names: str, size: int, more: str = "") -> str:
    """A configuration that packs the operands ``names``, with loads of 16 bytes of them."""
    vec = " ".join(f"vec_{x}={16 // size}" for x in ("ab" if names == "both" else names))
    return f"{TILE} {PATHS[names]} {vec} {more}"


@pytest.mark.each_pair
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("names", list(PATHS))
@pytest.mark.parametrize("k", [0, 1, 7, 8, 37])
def test_every_layout(layout, names, k):
    p = Gemm(61, 75, k, layout)
    verify(p, parse_config(text(names, 4)), "integers", 2.0, -1.0)
    verify(p, parse_config(text(names, 4, "bounds=predicate u=16 stages=2")), "normal", 1.0, 0.5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "compute"), [("f16", "f32"), ("bf16", "f32")])
def test_elements_of_two_bytes(layout, dtype, compute):
    more = "cp_async_a=0 cp_async_b=0 u=16"
    verify(Gemm(61, 75, 37, layout, dtype, compute), parse_config(text("both", 2, more)), "integers", 1.0, -1.0)


@pytest.mark.parametrize("names", list(PATHS))
def test_rows_with_gaps_and_unaligned_starts(names):
    for layout in ("NT", "TN"):
        p = Gemm(19, 21, 33, layout, lda=39, ldb=41, ldc=27, aligned_a=4, aligned_b=8, aligned_c=4)
        verify(p, parse_config(text(names, 4)), "integers", 1.0, -1.0, shift=True)


@pytest.mark.parametrize("names", list(PATHS))
def test_batches(names):
    """Items at a distance, and one B for all items."""
    for more in ({"stride_a": 61 * 37 + 5}, {"stride_b": 0}):
        verify(Gemm(61, 75, 37, "NT", batch=3, **more), parse_config(text(names, 4)), "integers", 2.0, 1.0)


@pytest.mark.parametrize("splitk", ["memset_red", "workspace"])
def test_slices_of_k(splitk):
    more = f"kg=3 splitk={splitk} kl=2 u=16 pdl=within_launch"
    verify(Gemm(61, 75, 301, "TT"), parse_config(text("both", 4, more)), "integers", 1.0, -1.0)


def test_epilogue_through_shared_memory():
    p = Gemm(61, 75, 37, "NT", epilogue="bias_row,residual,gelu")
    right(p, text("both", 4, "epilogue_smem=1 pdl=within_launch"))


def test_neighbours_pack_and_unpack():
    """Tuning packs operands that are along K or too unaligned for 16 bytes, and reads them directly again."""
    aligned, odd = Gemm(512, 512, 512, "TN"), Gemm(511, 509, 507, "TN")
    plain = parse_config("ms=4 ns=4 ml=64 nl=64")
    assert not space.refinements(aligned, H200, plain).operand_path_a.any()
    near = space.refinements(odd, H200, plain)
    paths = set(zip(near.operand_path_a.tolist(), near.operand_path_b.tolist(), strict=True))
    assert paths >= {(PACK, DIRECT), (DIRECT, PACK), (PACK, PACK), (DIRECT, DIRECT)}
    packed = parse_config("ms=4 ns=4 ml=64 nl=64 vec_a=4 operand_path_a=pack")
    near = space.refinements(odd, H200, packed)
    assert (near.operand_path_a == DIRECT).any()
    assert (near.pdl > 0).any()
    sliced = parse_config("ms=4 ns=4 ml=64 nl=64 kg=4 splitk=flag_red")
    near = space.refinements(odd, H200, sliced)
    assert ((near.operand_path_a == PACK) & (near.kg > 1)).any()
    assert not ((near.operand_path_a == PACK) & (near.kg > 1) & (near.splitk == SPLIT_FLAG)).any()


def test_packing_takes_time():
    """The performance model adds the packing kernel: its launch, and the bytes of the copies."""
    direct, packed = parse_config(f"{TILE} u=8"), parse_config(f"{TILE} u=8 operand_path_a=pack operand_path_b=pack")
    small, large = Gemm(64, 64, 64, "TN"), Gemm(4096, 4096, 4096, "TN")
    more = [predict(lower(p), packed, H200) - predict(lower(p), direct, H200) for p in (small, large)]
    assert 1 < more[0] < 3
    assert more[1] > 40


def test_wrong_copies_are_noticed(monkeypatch):
    """A copy of which a row is too short makes a wrong product."""
    copy = pack_rows.packed_operand
    monkeypatch.setattr(pack_rows, "packed_operand", lambda p, name: without_last(copy(p, name)))
    with pytest.raises(AssertionError):
        verify(Gemm(61, 75, 37, "NT"), parse_config(text("both", 4)), "integers", 1.0, 0.0)


def without_last(copy):
    """The copy whose rows lack their last element."""
    return replace(copy, along=replace(copy.along, extent=copy.along.extent - 1))
