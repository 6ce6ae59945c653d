"""Activations that are registered from outside the package work in every family and command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen import plugins
from ptxgen.cli import command
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import DtypeError, InputError
from ptxgen.export.operations import epilogue_bits, epilogue_sum
from ptxgen.expr.node import node
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.epilogue_ops import (
    EPILOGUE_OPS,
    RESIDUAL,
    EpilogueOp,
    EpilogueStep,
    activation,
    epilogue_op,
    register,
    unregister,
)
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.search.sampler import Categorical
from tests.emulated.gemm_runs import check_some
from tests.plugins import activations

H200 = device("h200")
NAMES = [op.name for op in activations.OPS]
#: kernels that store from registers, through shared memory by threads and by TMA, and after a reduction
CONFIGURATIONS = {
    "simt": ("f32", "ms=4 ns=4 ml=16 nl=32 lanes_m=4"),
    "simt workspace": ("f32", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 kg=3 splitk=workspace"),
    "mma": ("f16", "family=mma ms=16 ns=16 ml=32 nl=32 u=32 stages=2 vec_a=8 vec_b=8 vec_c=4 epilogue_smem=1"),
    "skinny": ("f32", "family=skinny long_n=1 ms=4 ns=1 ml=4 nl=32"),
    "wgmma": ("f16", "family=wgmma ml=64 nl=64 u=32 stages=2"),
    "wgmma subtiles": ("f16", "family=wgmma ml=64 nl=64 u=32 stages=2 epilogue_smem=1 epilogue_subtiles=2"),
}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The activations, here and in child processes."""
    plugins.load()
    monkeypatch.setenv("PTXGEN_PLUGINS", "tests.plugins.activations:register_them")
    activations.register_them()
    yield
    activations.unregister_them()


def problem(dtype: str, epilogue: str) -> Gemm:
    return (
        Gemm(4, 96, 64, "NT", dtype, epilogue=epilogue)
        if dtype == "f32"
        else Gemm(40, 72, 64, "NT", dtype, epilogue=epilogue)
    )


@pytest.mark.each_value
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compute_them(registered: None, name: str, configuration: str) -> None:
    dtype, text = CONFIGURATIONS[configuration]
    epilogue = f"bias_column,residual,{name}"
    results = check_some(EmulatedDriver(H200), problem(dtype, epilogue), parse_config(text))
    assert all(r.ok for r in results), [str(r) for r in results]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_value_is_found(registered: None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel computes another expression than the reference."""
    op = epilogue_op(name)
    p = problem("f32", name)
    step = op.steps[0]
    wrong = replace(step, value=lambda x, y: node("abs", x.type, step.value(x, y)))
    right = EpilogueStep.expression
    monkeypatch.setattr(EpilogueStep, "expression", lambda s, t: right(wrong if t == "f32" and s is step else s, t))
    results = list(check(EmulatedDriver(H200), p, parse_config("ms=4 ns=4 ml=16 nl=32 lanes_m=4")))
    assert name == "softplus" or not all(r.ok for r in results)  # softplus is positive


def test_gemm_and_convolutions_compute_them(registered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(20, 12)).astype(np.float32), rng.normal(size=(12, 24)).astype(np.float32)
    x = a.astype(np.float64) @ b
    np.testing.assert_allclose(ptxgen.gemm(a, b, activation="softplus"), np.logaddexp(x, 0), atol=2e-5)
    np.testing.assert_allclose(
        ptxgen.gemm(a, b, activation="hard_swish"), x * np.clip(x + 3, 0, 6) / 6, atol=1e-4, rtol=1e-5
    )
    aux = rng.normal(size=(20, 24)).astype(np.float32)
    got = ptxgen.gemm(a, b, activation="clamp_grad", aux=aux)
    np.testing.assert_allclose(got, np.where(np.abs(aux) <= 1, x, 0), atol=1e-4)
    images, filters = rng.normal(size=(1, 3, 6, 6)).astype(np.float32), rng.normal(size=(4, 3, 1, 1)).astype(np.float32)
    y = np.einsum("nchw,kc->nkhw", images, filters[:, :, 0, 0])
    np.testing.assert_allclose(ptxgen.conv2d(images, filters, activation="softplus"), np.logaddexp(y, 0), atol=2e-5)
    with pytest.raises(
        InputError, match=r"activation is 'softplus' and aux is an array; relu_grad, .*, clamp_grad take aux"
    ):
        ptxgen.gemm(a, b, activation="softplus", aux=aux)


def test_targets_have_their_instructions(registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    for target in ("sm_75", "sm_80", "sm_90", "sm_100"):
        p = problem("f32", "softplus")
        assert assemble(
            render(
                plan_for(p, parse_config("ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0"), device(target))
            )
        ).cubin


def test_commands_know_them(registered: None, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setattr(Categorical, "learn", partial(Categorical.learn, wanted=20, limit=1 << 16))
    words = ["gemm", "--shape", "16,24,32", "--epilogue", "bias_row,softplus", "--device", "emulated", "--json"]
    for name in ("select", "emit", "check", "tune"):
        few = ["--samples", "4", "--search", "1", "--rounds", "1"] if name == "tune" else []
        code = command.run([name, *words, *few])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        document = json.loads(printed.out)
        [row] = document.get("rows", [document])
        assert "softplus" in json.dumps(row)


def test_it_leaves_nothing_behind() -> None:
    before, bits = dict(EPILOGUE_OPS), len(epilogue_bits())
    activations.register_them()
    assert Gemm(8, 8, 8, epilogue="softplus").epilogue_ops == ("softplus",)
    assert Conv(1, 8, 8, 8, 8, 1, 1, epilogue="bias,softplus").epilogue == "bias,softplus"
    assert epilogue_bits()["softplus"] == 1 << bits
    activations.unregister_them()
    assert before == EPILOGUE_OPS
    with pytest.raises(InputError, match="epilogue is 'softplus'; its operations must be among scale, scale_rows"):
        Gemm(8, 8, 8, epilogue="softplus")


def test_bad_operations_are_refused(registered: None) -> None:
    with pytest.raises(InputError, match="operation is 'relu'; it must be an identifier that no other operation has"):
        register(activation("relu", lambda x: x))
    with pytest.raises(InputError, match="operation is 'a b'; it must be an identifier"):
        register(activation("a b", lambda x: x))
    with pytest.raises(InputError, match="'late' is in place residual and reads no array; it must be an activation"):
        register(EpilogueOp("late", RESIDUAL, (EpilogueStep(lambda x, _: x),)))
    with pytest.raises(DtypeError, match="operator is 'sin'; it must be one of"):
        register(activation("sine", lambda x: node("sin", x.type, x)))
    with pytest.raises(InputError, match="operation is 'relu'; it must be one that was registered"):
        unregister("relu")
    for name in ("softplus", "hard_swish"):
        assert Gemm(8, 8, 8, dtype="f64", epilogue=name).epilogue == name


def test_bits_of_the_c_interface_stay() -> None:
    assert epilogue_bits() == {
        "scale": 1,
        "scale_rows": 2,
        "bias_row": 4,
        "bias_column": 8,
        "residual": 16,
        "relu": 32,
        "gelu": 64,
        "silu": 128,
        "relu_grad": 256,
        "bias": 512,
        "sigmoid": 1024,
        "gelu_erf": 2048,
        "gelu_grad": 4096,
        "gelu_erf_grad": 8192,
        "silu_grad": 16384,
        "sigmoid_grad": 32768,
        "tanh": 65536,
    }
    assert epilogue_sum("bias_column,gelu") == 72


def test_the_example_of_the_page_works() -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    section = page.split("\n## An epilogue operation\n")[1]
    source = re.search(r"```python\n(.*?)```", section, re.S)
    assert source is not None
    names: dict[str, Any] = {}
    exec(source[1], names)
    names["register_it"]()
    try:
        results = check(
            EmulatedDriver(H200), Gemm(16, 16, 16, epilogue="squared_relu"), parse_config("ms=4 ns=4 ml=16 nl=32")
        )
        assert all(r.ok for r in results)
    finally:
        unregister("squared_relu")
