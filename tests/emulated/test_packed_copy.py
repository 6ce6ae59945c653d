"""The copy kernel makes what the description of a packed copy says."""

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands
from ptxgen.problem.registry import parse
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Buffers, Runner
from tests.cases.packed_copy import packed

SIMT = "ms=4 ns=4 ml=32 nl=32 u={0} vec_a={1} vec_b={1} operand_path_a=pack operand_path_b=pack"
MMA = "family=mma ms=16 ns=16 ml=32 nl=32 u={0} stages=2 vec_a={1} vec_b={1} operand_path_a=pack operand_path_b=pack"
WGMMA = "family=wgmma ml=64 nl={} u={} stages=3 math_warpgroups=1 operand_path_b=pack"
BOTH = WGMMA + " operand_path_a=pack"
OTHER = 0xA5  #: byte of the workspace before


def copies(problem, config, start=0):
    """The packing, its runner, the operands by their names in the kernel, and the workspace after the copy kernel.
    Operands begin ``start`` bytes after an address that is aligned."""
    p, driver = parse(problem), EmulatedDriver(device("h200"))
    runner = Runner.of(driver, p, parse_config(config))
    packing, arrays = runner.plan.packing, operands(p)
    shifted = {n: np.concatenate([np.zeros(start, np.uint8), x.reshape(-1).view(np.uint8)]) for n, x in arrays.items()}
    with Buffers(driver, shifted) as b:
        size = runner.launch.workspace
        workspace = driver.allocate(size)
        driver.fill(workspace, size, OTHER)
        for step, parameters in runner.prepare():
            if step.entry.endswith("_pack"):
                driver.launch(runner.kernel, step, parameters((*(b.addresses[n] + start for n in p.arrays), workspace)))
        stored = np.empty(size, np.uint8)
        driver.download(workspace, stored)
    bindings = lower(p).bindings
    return packing, runner, {name: arrays[bindings.get(name.upper(), name.upper())] for name in packing.names}, stored


@pytest.mark.parametrize(
    ("problem", "config", "methods"),
    [
        ("gemm 5,9,37 NT f32", SIMT.format(8, 4), "exchange exchange"),
        ("gemm 137,75,133 NT f32", SIMT.format(8, 4), "exchange exchange"),
        ("gemm 137,76,132 NT f32", SIMT.format(8, 4), "exchange exchange"),
        ("gemm 41,75,133 NT f16", SIMT.format(8, 8) + " cp_async_a=0 cp_async_b=0", "exchange exchange"),
        ("gemm 41,75,67 TT f32 batch=3", SIMT.format(8, 4), "shift exchange"),
        ("gemm 41,75,67 NN f32", SIMT.format(8, 4), "exchange shift"),
        ("gemm 5,9,37 NT f16", MMA.format(32, 8), "gather gather"),
        ("gemm 5,9,37 NN s8", MMA.format(64, 16), "gather gather"),
        ("gemm 5,9,37 TN f32 compute=tf32", MMA.format(16, 4), "gather gather"),
        ("gemm 5,9,37 NT f64", MMA.format(8, 2), "gather gather"),
        ("gemm 5,9,37 NT f16 batch=3", MMA.format(32, 8), "gather gather"),
        ("gemm 5,9,37 NT bf16 batch=2", BOTH.format(16, 32), "shift shift"),
        ("gemm 5,9,37 NT bf16", BOTH.format(16, 32), "shift shift"),
        ("gemm 5,9,37 NT e4m3", BOTH.format(16, 32), "shift shift"),
        ("gemm 5,9,37 NT f32 compute=tf32", BOTH.format(16, 32), "shift shift"),
        ("conv N=2,C=17,H=5,W=8,K=10,R=3,S=3,pad=1 NCHW f16", BOTH.format(64, 32), "exchange exchange"),
        ("conv N=2,C=40,H=4,W=8,K=16,R=3,S=3,pad=1 NCHW bf16", BOTH.format(64, 32), "exchange exchange"),
        ("conv N=3,C=72,H=5,W=5,K=16,R=2,S=2 NCHW bf16", BOTH.format(64, 32), "exchange exchange"),
        ("conv N=2,C=9,H=6,W=8,K=8,R=3,S=3,pad=1 NCHW f32 compute=tf32", BOTH.format(64, 32), "exchange exchange"),
        ("conv N=2,C=20,H=3,W=7,K=8,R=3,S=3,pad=1 NCHW f32 compute=tf32", BOTH.format(64, 32), "exchange exchange"),
        ("conv N=2,C=16,H=7,W=7,K=8,D=3,T=2,R=2,S=2,pad=1 NCHW f16", BOTH.format(64, 32), "exchange exchange"),
        ("conv N=2,C=24,H=6,W=16,K=8,R=1,S=1,stride=2 NCHW f16", WGMMA.format(64, 32), "exchange"),
        ("conv N=2,C=24,H=7,W=9,K=8,R=1,S=1,stride=2 NCHW bf16", WGMMA.format(64, 32), "exchange"),
        ("conv N=2,C=24,H=8,W=8,K=8,R=1,S=1,stride=3x4 NCHW f16", WGMMA.format(64, 32), "exchange"),
        ("conv N=1,C=24,H=9,W=20,K=8,R=1,S=1,stride=1x5 NCHW f16", WGMMA.format(64, 32), "exchange"),
        ("conv N=1,C=24,H=9,W=32,K=8,R=1,S=1,stride=1x8 NCHW f16", WGMMA.format(64, 32), "exchange"),
        ("conv N=2,C=12,H=5,W=8,K=8,R=1,S=1,stride=2 NCHW f32 compute=tf32", WGMMA.format(64, 32), "exchange"),
        ("conv N=5,C=24,H=3,W=4,K=16,R=3,S=3,pad=1 CHWN f16", WGMMA.format(64, 32), "exchange"),
        ("conv N=8,C=24,H=5,W=4,K=16,R=1,S=1,stride=2 CHWN f16", WGMMA.format(64, 32), "exchange"),
        ("conv N=2,C=11,H=3,W=9,K=5,R=2,S=3,pad=1 NHWC f32 compute=tf32", BOTH.format(64, 32), "exchange exchange"),
        ("conv N=8,C=9,H=3,W=4,K=16,R=3,S=3,pad=1 CHWN bf16", WGMMA.format(64, 32), "exchange"),
        ("conv N=2,C=3,H=5,W=7,K=9,R=3,S=3,stride=2,pad=1 NCHW f16", BOTH.format(64, 32), "gather gather"),
        (
            "conv N=1,C=3,H=6,W=6,K=24,R=5,S=5,stride=2,pad=2 NHWC bf16 direction=input_grad",
            WGMMA.format(16, 32),
            "gather",
        ),
        ("conv N=1,C=96,H=4,W=5,K=48,R=2,S=3,pad=1,groups=6 NHWC f16", WGMMA.format(64, 16), "gather"),
    ],
)
def test_copies_are_as_described(problem, config, methods):
    check(*copies(problem, config), methods)


@pytest.mark.parametrize(
    ("problem", "start"),
    [
        ("conv N=2,C=24,H=5,W=8,K=16,R=3,S=3,pad=1 NCHW f16 aligned_input=2 aligned_filter=2", 2),
        ("conv N=2,C=17,H=5,W=7,K=16,R=3,S=3,pad=1 NCHW bf16 aligned_input=2 aligned_filter=2", 10),
        ("conv N=2,C=24,H=5,W=8,K=16,R=3,S=3,pad=1 NCHW f32 compute=tf32 aligned_input=4 aligned_filter=4", 12),
    ],
)
def test_exchanged_copies_of_operands_at_any_address(problem, start):
    check(*copies(problem, BOTH.format(64, 32), start), "exchange exchange")


def check(packing, runner, arrays, stored, methods):
    """Compares the copies in the workspace with their descriptions."""
    assert " ".join(code.method for code in packing.codes.values()) == methods
    end, p = 0, runner.plan.problem
    for name in packing.names:
        copy, size = packing.copy(p, name), p.element.bytes
        for array in arrays[name].reshape(packing.items(p, name, p.batch), -1):
            want, inside = packed(copy, array.view(f"u{size}"))
            got = stored[end:][: copy.size * size].view(f"u{size}").reshape(want.shape)
            end += packing.copy_bytes(p, name)
            assert np.array_equal(got[inside], want[inside])
            assert not copy.zeros or not got[~inside].any()
