"""Convolutions on a GPU: selected kernels against float64, calls against PyTorch and cuDNN."""

from __future__ import annotations

import pytest

import ptxgen
from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.registry import parse
from ptxgen.runtime.check import check
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.open_driver import open_driver
from ptxgen.tuning.selection import select

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def driver():
    return open_driver("cuda")


LARGE = (
    Conv(16, 32, 79, 341, 32, 5, 10, stride=2),
    Conv(8, 64, 54, 54, 64, 3, 3, padding=1, layout="NHWC", dtype="f16", epilogue="bias,residual,relu"),
    Conv(16, 512, 14, 14, 48, 5, 5, padding=2, layout="CHWN"),
    Conv(32, 96, 28, 28, 96, 3, 3, padding=1, groups=96, layout="NHWC", dtype="f16"),
    Conv(8, 128, 27, 27, 128, 3, 3, padding=1, stride=2, direction="input_grad"),
    Conv(8, 128, 56, 56, 128, 3, 3, padding=1, stride=2, direction="input_grad", layout="NHWC", dtype="f16"),
    Conv(8, 256, 28, 28, 512, 1, 1, stride=2, direction="input_grad", layout="NHWC", dtype="bf16"),
    Conv(2, 64, 57, 55, 64, 3, 3, padding=1, stride=2, direction="input_grad", layout="NHWC", compute="tf32"),
    Conv(8, 3, 64, 64, 64, 7, 7, padding=3, stride=2, direction="input_grad", layout="NHWC", dtype="f16"),
    Conv(8, 128, 27, 27, 128, 3, 3, padding=1, direction="weight_grad", layout="NHWC", dtype="bf16"),
    Conv(4, 16, 24, 24, 32, 3, 3, 12, 3, padding=1, compute="tf32"),
)


@pytest.mark.parametrize("p", LARGE, ids=lambda p: p.key())
def test_selected_kernels_are_right(driver, p):
    deviation = check(driver, p, select(p, driver.device)[0].config)
    assert all(r.ok for r in deviation), [f"{r.inputs}: {r.deviation}" for r in deviation]


#: kernels of every family that store the sums beside the results
SUMS = (
    ("conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,pad=1 NCHW f32 epilogue=bias,residual,store_sums,gelu", ""),
    ("conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,pad=1 NHWC f16 epilogue=bias,residual,store_sums,gelu", ""),
    ("conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,pad=1 NHWC bf16 epilogue=bias,store_sums,swiglu", ""),
    (
        "conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,pad=1 NHWC bf16 epilogue=bias,store_sums,silu",
        "family=wgmma ml=128 nl=64 u=64 stages=3 math_warpgroups=2 vec_c=2",
    ),
    (
        "conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,pad=1 NHWC f16 epilogue=bias,store_sums,gelu",
        "family=wgmma ml=128 nl=96 u=64 stages=3 persistent=1 epilogue_smem=1 epilogue_subtiles=2 epilogue_buffers=2",
    ),
    (
        "conv N=8,C=64,H=27,W=27,K=90,R=3,S=3,pad=1 NHWC bf16 epilogue=store_sums,silu",
        "family=wgmma ml=64 nl=96 u=64 stages=3 epilogue_smem=1 epilogue_subtiles=3",
    ),
    (
        "conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,pad=1 NCHW f16 epilogue=bias,store_sums,gelu",
        "family=wgmma ml=64 nl=64 u=64 stages=3 persistent=1 epilogue_smem=1 epilogue_subtiles=2 operand_path_a=pack"
        " operand_path_b=pack",
    ),
    (
        "conv N=8,C=64,H=28,W=28,K=96,R=3,S=3,pad=1 NCHW f16 epilogue=residual,store_sums,silu",
        "family=wgmma ml=64 nl=64 u=64 stages=3 operand_path_a=pack operand_path_b=pack",
    ),
    (
        "conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,stride=2,pad=1 NHWC f16 direction=input_grad epilogue=store_sums,relu",
        "family=wgmma ml=64 nl=64 u=64 stages=3",
    ),
    (
        "conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,stride=2,pad=1 NHWC f16 direction=input_grad epilogue=store_sums,silu",
        "family=wgmma ml=64 nl=64 u=64 stages=3 epilogue_smem=1 epilogue_subtiles=2 epilogue_buffers=2",
    ),
    (
        "conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,pad=1 CHWN f16 epilogue=bias,store_sums,gelu",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=32 cp_async_a=0 cp_async_b=0 epilogue_smem=1",
    ),
    (
        "conv N=8,C=64,H=27,W=27,K=96,R=3,S=3,pad=1 NCHW f32 epilogue=bias,residual,store_sums,gelu",
        "family=winograd ms=4 ns=4 ml=32 nl=32 vec_a=4 vec_b=4 vec_c=4",
    ),
    (
        "conv N=8,C=64,H=27,W=27,K=64,R=3,S=3,pad=1,groups=64 NHWC f16 epilogue=bias,residual,store_sums,silu",
        "family=depthwise strip_results=4 strip_columns=2 block_lanes=64",
    ),
)


@pytest.mark.parametrize(("text", "config"), SUMS)
def test_kernels_store_the_sums(driver, text, config):
    p = parse(text)
    deviation = check(driver, p, parse_config(config) if config else select(p, driver.device)[0].config)
    assert all(r.ok for r in deviation), [f"{r.inputs}: {r.deviation}" for r in deviation]


# ---- from PyTorch


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    module.backends.cudnn.allow_tf32 = False
    return module


def close(torch, ours, theirs, terms: int) -> None:
    scale = theirs.double().abs().max().item()
    rounding = 2.0**-10 if ours.dtype == torch.float16 else 2.0**-23
    assert ours.shape == theirs.shape
    assert (ours.double() - theirs.double()).abs().max().item() <= 8 * terms**0.5 * rounding * max(scale, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 4)])
def test_calls_agree_with_cudnn(driver, torch, dtype, last, stride, groups):
    element = getattr(torch, dtype)
    memory = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(4, 32, 23, 17, device="cuda", dtype=element).contiguous(memory_format=memory)
    f = torch.randn(64, 32 // groups, 3, 3, device="cuda", dtype=element).contiguous(memory_format=memory)
    bias = torch.randn(64, device="cuda", dtype=element)
    how = {"stride": stride, "padding": 1, "groups": groups}
    terms = 9 * 32 // groups
    for _ in range(2):  # the second call is a prepared one
        y = ptxgen.conv2d(x, f, bias=bias, activation="relu", **how)
        close(torch, y, torch.relu(torch.conv2d(x, f, bias, **how)), terms)
    assert y.is_contiguous(memory_format=memory)
    dy = torch.randn_like(y)
    dx = ptxgen.conv2d_input_grad(dy, f, x.shape, **how)
    close(torch, dx, torch.nn.grad.conv2d_input(x.shape, f, dy, **how), 9 * 64 // groups)
    shift = torch.randn(32, device="cuda", dtype=element)
    up = ptxgen.conv_transpose2d(dy, f, bias=shift, output_padding=stride - 1, **how)
    want = torch.nn.functional.conv_transpose2d(dy, f, shift, output_padding=stride - 1, **how)
    close(torch, up, want, 9 * 64 // groups)
    df = ptxgen.conv2d_weight_grad(x, dy, f.shape, **how)
    close(torch, df, torch.nn.grad.conv2d_weight(x, f.shape, dy, **how), 4 * y.shape[2] * y.shape[3])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("last", [False, True])
def test_calls_store_the_sums(driver, torch, dtype, last):
    element = getattr(torch, dtype)
    memory = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(4, 32, 23, 17, device="cuda", dtype=element).contiguous(memory_format=memory)
    f = torch.randn(64, 32, 3, 3, device="cuda", dtype=element).contiguous(memory_format=memory)
    bias = torch.randn(64, device="cuda", dtype=element)
    want = torch.conv2d(x, f, bias, padding=1)
    for activation in ("relu", "relu", "x*up") if last else ("relu", "relu"):  # the second call is a prepared one
        sums = torch.full_like(want, torch.nan)
        y = ptxgen.conv2d(x, f, bias=bias, padding=1, activation=activation, sums=sums)
        close(torch, sums, want, 9 * 32)
        close(torch, y, torch.relu(want) if activation == "relu" else want[:, ::2] * want[:, 1::2], 9 * 32)


def test_other_numbers_of_axes(driver, torch):
    x, f = torch.randn(2, 8, 500, device="cuda"), torch.randn(4, 8, 9, device="cuda")
    close(torch, ptxgen.conv1d(x, f, padding=4), torch.conv1d(x, f, padding=4), 72)
    x, f = torch.randn(2, 8, 6, 9, 10, device="cuda"), torch.randn(4, 8, 3, 3, 3, device="cuda")
    close(torch, ptxgen.conv3d(x, f, padding="same"), torch.conv3d(x, f, padding=1), 216)


def test_baseline_computes_every_direction_and_layout(driver, torch):
    from ptxgen.operations.conv.cudnn import Cudnn
    from ptxgen.tuning.measure.bench import SEARCH_TIMING, Bench

    work = Bench(driver)
    for p in LARGE[:6]:
        times = Cudnn(driver, p).best([{}] * 2, Timing(samples=1, target_ms=1))
        assert 0 < times.best < 1e5
        if p.layout != "CHWN":
            assert times.best <= times.same_layout < 1e5
        if p.layout != "CHWN" and not p.epilogue:
            in_place = work.heuristic(p, SEARCH_TIMING, 1 << 15)  # on the arrays of the problem
            assert in_place is not None
            assert (in_place.outcome, in_place.message) == ("ok", "")
            assert in_place.us < 10 * times.same_layout
