"""Fused epilogues: every operation alone and combined, on the emulated device, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ConfigError, DtypeError, InputError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import DEVICES
from ptxgen.problem.epilogue_ops import epilogue_rows
from ptxgen.problem.reference import epilogue_arrays, operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases.simt import config, problem
from tests.emulated.gemm_runs import random_epilogues, right

D = DEVICES["h200"]
STAGES = [stage for row in epilogue_rows() for stage in row]
#: epilogue paths: from registers, through shared memory, split-K with a reduction kernel
OPTIONS = ("kg=1", "kl=2 u=16", "kg=3 splitk=workspace")


@pytest.mark.each_value
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("stage", STAGES)
def test_each_operation(stage: str, options: str) -> None:
    right(Gemm(19, 36, 50, "NT", epilogue=stage), f"ms=4 ns=4 ml=16 nl=32 lanes_m=4 {options}")


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_output_types(dtype: str) -> None:
    copies = "cp_async_a=0 cp_async_b=0" if dtype == "f16" else ""
    right(
        Gemm(17, 24, 20, "TN", dtype, epilogue="scale_rows,bias_column,residual,relu"),
        f"ms=4 ns=4 ml=16 nl=32 lanes_m=4 {copies}",
    )


def test_random_epilogues() -> None:
    random_epilogues(3, 8, lambda rng: problem(rng, 48, D), lambda p, rng: config(p, D, rng, 128), "h200")


def test_wrong_bias_is_found() -> None:
    """The check can fail: the kernel gets another bias than the reference."""
    p = Gemm(16, 32, 8, epilogue="bias_row")
    runner = Runner.of(EmulatedDriver(D), p, parse_config("ms=4 ns=4 ml=16 nl=32"))
    a, b, c = operands(p).values()
    bias = epilogue_arrays(p)["bias"]
    out = runner.compute({"A": a, "B": b, "C": c, "bias": bias + 1})["C"]
    assert np.abs(out - reference(p, {"A": a, "B": b, "bias": bias}).exact).min() > 0.99


def test_activations_keep_nan_and_relu_drops_minus_zero() -> None:
    p = Gemm(16, 32, 8, epilogue="relu")
    runner = Runner.of(EmulatedDriver(D), p, parse_config("ms=4 ns=4 ml=16 nl=32"))
    a, b, c = operands(p).values()
    a[3, 2] = np.nan
    out = runner.compute({"A": a, "B": b, "C": c})["C"]
    assert np.isnan(out[3]).all()
    assert (np.delete(out, 3, 0) >= 0).all()


@pytest.mark.parametrize(
    ("text", "error"),
    [("sine", InputError), ("relu,relu", InputError), ("relu,gelu", InputError), ("bias_row,bias_column", InputError)],
)
def test_bad_epilogues_are_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="epilogue"):
        Gemm(8, 8, 8, epilogue=text)


def test_epilogues_that_a_type_cannot_compute_are_refused() -> None:
    with pytest.raises(DtypeError, match="f64"):
        Gemm(8, 8, 8, dtype="f64", epilogue="pow(x,0.3)")
    with pytest.raises(ConfigError, match="splitk"):  # red cannot add to the result of an activation
        Runner.of(
            EmulatedDriver(D),
            Gemm(16, 32, 64, epilogue="relu"),
            parse_config("ms=4 ns=4 ml=16 nl=32 kg=2 splitk=flag_red"),
        )
