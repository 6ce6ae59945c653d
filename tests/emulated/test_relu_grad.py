"""The gradient of ReLU, fused into products and input gradients of every family: zeros exactly where NumPy has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.problem.device import device
from ptxgen.problem.reference import Array, epilogue_arrays, operands, reference
from ptxgen.problem.registry import parse
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner

H200 = device("h200")

#: kernel -> (problem, configuration)
CASES = {
    "simt": ("gemm 19,36,50 NT f32", "ms=4 ns=4 ml=16 nl=32"),
    "simt, split K": ("gemm 19,36,50 NT f64", "ms=4 ns=4 ml=16 nl=32 kg=3 splitk=workspace"),
    "simt, batch": ("gemm 19,36,50 NN f16 batch=3", "ms=4 ns=4 ml=16 nl=32 cp_async_a=0 cp_async_b=0"),
    "mma": ("gemm 40,72,64 NT bf16", "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=4"),
    "mma, split K": (
        "gemm 40,72,256 NT bf16",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=4 kg=2 splitk=workspace",
    ),
    "skinny": ("gemm 4,200,136 NT f16", "family=skinny long_n=1 ms=4 ml=4 ns=2 nl=16 lanes_long=8 kl=2 u=32 vec_c=2"),
    "wgmma, from registers": ("gemm 150,72,136 NT f16", "family=wgmma ml=64 nl=32 u=64 stages=2"),
    "wgmma, 8-bit result": ("gemm 150,72,144 NT e4m3 out=e4m3", "family=wgmma ml=64 nl=32 u=64 stages=2"),
    "wgmma, through shared memory": (
        "gemm 150,72,136 NT f16",
        "family=wgmma ml=64 nl=64 u=64 stages=2 epilogue_smem=1 epilogue_subtiles=4 epilogue_buffers=2",
    ),
    "wgmma, split K": (
        "gemm 150,72,136 NT f16",
        "family=wgmma ml=64 nl=64 u=32 stages=2 kg=2 splitk=last_cta epilogue_smem=1",
    ),
    "input gradient, simt": (
        "conv N=2,C=5,H=7,W=9,K=6,R=3,S=2,stride=2,pad=1 NCHW f32 direction=input_grad",
        "ms=2 ns=2 ml=16 nl=16 u=8 stages=2 cp_async_a=0 cp_async_b=0",
    ),
    "input gradient, mma": (
        "conv N=2,C=40,H=7,W=9,K=24,R=3,S=3,pad=1 NHWC f16 direction=input_grad",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=32 cp_async_a=0 cp_async_b=0 vec_c=4",
    ),
    "input gradient, wgmma": (
        "conv N=2,C=72,H=7,W=9,K=40,R=3,S=3,pad=1 NHWC f16 direction=input_grad",
        "family=wgmma ml=64 nl=32 u=64 stages=3 epilogue_smem=1",
    ),
    "input gradient, phases": (
        "conv N=2,C=136,H=11,W=9,K=24,R=3,S=3,stride=2,pad=1 NHWC f16 direction=input_grad",
        "family=wgmma ml=64 nl=64 u=64 stages=3",
    ),
    "input gradient, phases through shared memory": (
        "conv N=2,C=136,H=11,W=9,K=24,R=3,S=3,stride=2,pad=1 NHWC f16 direction=input_grad",
        "family=wgmma ml=64 nl=64 u=64 stages=3 epilogue_smem=1 epilogue_subtiles=2",
    ),
    "input gradient, phases, images as columns": (
        "conv N=2,C=40,H=9,W=17,K=72,R=3,S=4,stride=2x4,pad=1x0x1x1,dilation=2x3 NHWC bf16 direction=input_grad",
        "family=wgmma transposed_mma=1 ml=24 nl=64 u=32 stages=3 epilogue_smem=1",
    ),
    "input gradient, scattered": (
        "conv N=8,C=16,H=6,W=6,K=72,R=3,S=3,pad=1 NCHW f16 direction=input_grad",
        "family=wgmma ml=64 nl=32 u=64 stages=3 operand_path_a=pack operand_path_b=pack",
    ),
    "input gradient, depthwise strips": (
        "conv N=2,C=34,H=6,W=5,K=34,R=3,S=2,pad=0x1x2x1,dilation=2,groups=34 NCHW f32 direction=input_grad",
        "family=depthwise strip_results=4 block_rows=2 block_lanes=32",
    ),
    "input gradient, depthwise patches": (
        "conv N=2,C=40,H=9,W=5,K=40,R=3,S=3,pad=1,groups=40 NHWC bf16 direction=input_grad",
        "family=depthwise strip_results=4 strip_columns=2 block_lanes=64",
    ),
    "input gradient, Winograd": (
        "conv N=2,C=17,H=7,W=6,K=21,R=3,S=3,pad=1 NCHW f32 direction=input_grad",
        "family=winograd ms=4 ns=4 ml=32 nl=32 u=8 stages=2 vec_a=4 vec_b=4 vec_c=4",
    ),
}


def inputs(p: Any) -> dict[str, Array]:
    """Small integers; ``aux`` holds zeros of both signs, both signs and NaN."""
    arrays = operands(p, 1, "integers") | epilogue_arrays(p, 1, "integers")
    aux = arrays["aux"].reshape(-1)  # a view
    aux[::7], aux[1::7], aux[2::7] = -0.0, 0.0, np.nan
    return arrays


#: cases that add no family, direction or way to store to the others
LIKE = ("mma, split K", "wgmma, split K", "input gradient, mma", "input gradient, phases")


@pytest.mark.first(len(CASES) - len(LIKE))
@pytest.mark.parametrize("case", sorted(CASES, key=LIKE.__contains__))
def test_sums_are_kept_where_aux_is_positive_or_nan(case: str) -> None:
    """Alone and with another operation, in turn."""
    text, config = CASES[case]
    epilogue, beta = (("relu_grad", 0.0), ("residual,relu_grad", 2.0))[[*CASES].index(case) % 2]
    p = replace(parse(text), epilogue=epilogue)
    arrays = inputs(p)
    plain = replace(p, epilogue=epilogue.replace("relu_grad", "").strip(","))
    sums = reference(plain, arrays, 1.0, beta).rounded
    got = Runner.of(EmulatedDriver(H200), p, parse_config(config)).compute(arrays, 1.0, beta)["C"]
    aux = arrays["aux"].astype(np.float64)  # comparisons of ml_dtypes warn of NaN
    assert np.array_equal(got.astype(np.float64), np.where(aux <= 0, 0.0, sums))


def test_wrong_aux_is_found() -> None:
    """The kernel reads ``aux``: with its negative, other elements are zero."""
    p = replace(parse("gemm 150,72,136 NT f16"), epilogue="relu_grad")
    c = parse_config("family=wgmma ml=64 nl=64 u=64 stages=2 epilogue_smem=1")
    a, b, before = operands(p, 1, "integers").values()
    aux = epilogue_arrays(p, 1)["aux"]
    runner = Runner.of(EmulatedDriver(H200), p, c)
    one, other = (runner.compute({"A": a, "B": b, "C": before, "aux": x})["C"] for x in (aux, -aux))
    assert not (one * other).any()
    assert np.array_equal(
        one + other, np.where(aux == 0, 0, reference(replace(p, epilogue=""), {"A": a, "B": b}).rounded)
    )
