"""What ptxas spilt once, it does not any more, or no rule allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxgen.codegen.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.runtime.assemble import assemble

#: whether it is legal, problem, configuration
SPILT = {
    "activations in place, from tile to tile": (
        True,
        "conv N=8,C=80,H=8,W=10,K=103,R=1,S=2,stride=1x3 CHWN f16 epilogue=relu aligned_input=8 aligned_output=8",
        "family=wgmma ml=192 nl=128 u=32 stages=4 epilogue_smem=1 raster_group=4 cluster_x=2 persistent=1 l2_evict_first=ab operand_path_a=pack operand_path_b=pack",
    ),
    "the same from registers": (
        True,
        "gemm 15,16,8 TN f32 compute=tf32 lda=16 ldb=20 epilogue=relu",
        "family=wgmma ml=128 nl=256 u=64 stages=1 vec_c=2 raster_group=8 math_warpgroups=2 persistent=1 l2_evict_first=b operand_path_a=pack operand_path_b=pack",
    ),
    "activations of many sums at once": (
        True,
        "conv N=2,C=64,H=14,W=14,K=200,R=3,S=3,pad=1 NCHW f16 epilogue=scale,bias,gelu",
        "family=wgmma ml=128 nl=128 u=32 stages=2 epilogue_smem=1 operand_path_a=pack operand_path_b=pack",
    ),
    "a bias beside what few registers there are": (
        True,
        "conv N=1,C=80,H=2,W=4,K=169,R=3,S=1,D=2,T=1,pad=1x1x1x2x0x1 NHWC e4m3 epilogue=bias",
        "family=wgmma ml=248 nl=128 u=128 stages=2 epilogue_smem=1 raster_group=4 transposed_mma=1 math_warpgroups=2 epilogue_aliases_ab=1",
    ),
    "what C holds in many boxes at once": (
        True,
        "conv N=1,C=55,H=2,W=13,K=170,R=1,S=3,pad=2x2x2x1 NHWC f16 direction=input_grad aligned_input=8",
        "family=wgmma ml=128 nl=240 u=16 stages=8 epilogue_smem=1 math_warpgroups=2 persistent=1 epilogue_subtiles=2 operand_path_a=pack operand_path_b=pack",
    ),
    "places of many boxes at once": (
        True,
        "conv N=2,C=64,H=7,W=7,K=200,R=1,S=1,pad=0 NCHW f16 aligned_output=2",
        "family=wgmma ml=256 nl=144 u=16 stages=2 epilogue_smem=1 math_warpgroups=2 persistent=1 operand_path_a=direct operand_path_b=pack",
    ),
    "sums of other blocks at once": (
        True,
        "gemm 256,136,130 NN e5m2 lda=176 ldb=168 ldc=144 out=f16",
        "family=wgmma ml=64 nl=184 u=64 stages=1 min_ctas_per_sm=2 cluster_k=3 operand_path_a=pack operand_path_b=pack",
    ),
    "two slices, of which one finishes all": (
        False,
        "gemm 512,512,512 NT bf16 out=f32",
        "family=wgmma ml=192 nl=120 u=32 stages=4 kg=2 splitk=distributed",
    ),
    "many units of images beside many sums": (
        False,
        "conv N=2,C=8,H=4,W=9,D=4,K=98,R=2,S=2,T=2 NHWC bf16",
        "family=wgmma ml=128 nl=192 u=128 stages=1 math_warpgroups=2 pingpong=1 persistent=1 raster_group=8",
    ),
    "loads that are looked up": (
        False,
        "conv N=2,C=2,H=6,W=6,K=2,R=3,S=1,stride=3,pad=2x0x3x2,dilation=2x1,groups=2 NHWC f32",
        "family=simt ms=32 ns=1 ml=128 nl=16 u=32 kl=2 stages=2 cp_async_a=0 epilogue_smem=1 lane_interleave=1 mma_order=row_major prefetch_k=3 raster_group=14",
    ),
    "loads that predicates guard": (
        False,
        "gemm 3,658,46 NN f64",
        "family=mma ms=16 ns=64 ml=64 nl=64 u=32 stages=4 cp_async_b=0 vec_a=2 vec_b=2 vec_c=2 epilogue_smem=1 bounds=predicate mma_order=row_major",
    ),
    "many boxes of images beside many sums": (
        False,
        "conv N=5,C=48,H=9,W=11,K=176,R=2,S=2 NHWC f16 direction=weight_grad",
        "family=wgmma ml=128 nl=192 u=64 stages=2 math_warpgroups=2 pingpong=1 persistent=1",
    ),
    "results of eight bits that leave by whole groups": (
        True,
        "gemm 40,608,63 NT e4m3 lda=80 ldb=80 ldc=640 out=e4m3",
        "family=wgmma ml=256 nl=128 u=256 stages=2 vec_c=8 raster_group=4 math_warpgroups=2 persistent=1 operand_path_a=direct operand_path_b=pack",
    ),
    "copies of eight bits for X from registers": (
        True,
        "conv N=3,C=128,H=11,W=8,K=16,R=2,S=2,dilation=1x2 NHWC e5m2 out=f16 direction=input_grad",
        "family=wgmma ml=256 nl=128 u=128 raster_group=8 transposed_mma=1 math_warpgroups=2 persistent=1",
    ),
    "a scale in turns, beside blocks that load for each other": (
        True,
        "gemm 61,16,893 NN e4m3 lda=936 ldb=59 ldc=32 aligned_a=4 aligned_b=4 epilogue=scale",
        "family=wgmma ml=128 nl=136 u=256 stages=2 epilogue_smem=1 math_warpgroups=2 pingpong=1 cluster_y=4 persistent=1 operand_path_a=pack operand_path_b=pack",
    ),
    "slices that share what many sums leave": (
        False,
        "gemm 4,2,7537 NT f32 compute=tf32 lda=7544 ldb=7548 ldc=8",
        "family=wgmma ml=176 nl=128 u=32 kg=7 stages=4 splitk=distributed transposed_mma=1 cluster_x=2",
    ),
    "rows of four-byte elements on both sides": (
        False,
        "gemm 3,7,5200 NT f32 lda=5208 ldb=5204",
        "family=skinny ms=4 ns=1 ml=4 nl=8 u=2048 kl=4 vec_a=4 vec_b=4 lanes_long=2 fragment_prefetch=0 raster_group=8 long_n=1",
    ),
    "a bias of eight bits beside 192 sums": (
        False,
        "conv N=3,C=64,H=11,W=4,K=289,R=3,S=2,stride=3x2,pad=0x2x2x0 NHWC e5m2 out=f16 epilogue=bias",
        "family=wgmma ml=128 nl=192 u=64 stages=4 epilogue_smem=1 persistent=1 l2_evict_first=b",
    ),
    "several sets of sums": (
        False,
        "gemm 40,24,7 TN f32",
        "ms=2 ns=16 ml=64 nl=256 u=16 ks=2 stages=4 vec_a=4 vec_b=2 vec_c=2 lanes_m=8 mma_order=column_serpentine fragment_prefetch=0 raster_group=8 store_policy=streaming pdl=within_launch",
    ),
    "the same of what is looked up, through registers": (
        False,
        "conv N=1,C=2,H=1,W=2,K=2,R=3,S=2,stride=2x3,pad=3x0x1x2,groups=2 CHWN f32 direction=weight_grad",
        "ms=8 ns=8 ml=32 nl=64 u=8 ks=2 stages=6 cp_async_a=0 cp_async_b=0 lane_interleave=1 fragment_prefetch=0 prefetch_k=2 deferred_sts=1 raster_group=12 min_ctas_per_sm=2",
    ),
    "an operand through registers beside doubles": (
        False,
        "gemm 96,4,64 NN f64 deterministic=1",
        "ms=4 ns=16 ml=64 nl=32 u=8 cp_async_a=0 vec_a=2 lanes_m=16 epilogue_smem=1 mma_order=row_major fragment_prefetch=0 prefetch_k=3 deferred_sts=1 raster_group=8 min_ctas_per_sm=2",
    ),
}


@pytest.mark.parametrize("what", SPILT)
def test_what_spilt_once(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d, (allowed, problem, config) = device("h200"), SPILT[what]
    p, c = parse(problem), parse_config(config)
    assert (first_violation(lower(p), c, d) is None) == allowed
    if allowed:
        assert not any(assemble(render(plan_for(p, c, d))).spills.values())
