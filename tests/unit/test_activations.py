"""Activations with numbers, as expressions of a text and as Python functions: their texts, values, bounds and errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptxgen
from ptxgen.api import bias_grad
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError, DtypeError, InputError, OverlapError, ShapeError, TaskError
from ptxgen.export.operations import epilogue_sum
from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.rounding import with_errors
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.checks import check_gemm
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.checks import random_group, sampled_deviation
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.reference import item_view
from ptxgen.operations.task.activations import traced
from ptxgen.problem.device import device
from ptxgen.problem.epilogue_ops import epilogue_op, register, split_epilogue
from ptxgen.problem.operation import operation_of
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.problem.registry import parse
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.emulated.gemm_runs import check_some

H200 = device("h200")
RNG = np.random.default_rng(2)
A, B = RNG.normal(size=(20, 12)).astype(np.float32), RNG.normal(size=(12, 24)).astype(np.float32)
AUX = RNG.normal(size=(20, 24)).astype(np.float32)
X = A.astype(np.float64) @ B
CDF = (1 + np.vectorize(math.erf)(X / math.sqrt(2))) / 2
#: a kernel of each epilogue path: from registers, after a reduction, through shared memory by threads and by TMA
CONFIGURATIONS = {
    "simt": ("f32", "ms=4 ns=4 ml=16 nl=32 lanes_m=4"),
    "simt workspace": ("f32", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 kg=3 splitk=workspace"),
    "mma": ("f16", "family=mma ms=16 ns=16 ml=32 nl=32 u=32 stages=2 vec_a=8 vec_b=8 vec_c=4 epilogue_smem=1"),
    "skinny": ("f32", "family=skinny long_n=1 ms=4 ns=1 ml=4 nl=32"),
    "wgmma": ("bf16", "family=wgmma ml=64 nl=64 u=32 stages=2"),
    "wgmma subtiles": ("f16", "family=wgmma ml=64 nl=64 u=32 stages=2 epilogue_smem=1 epilogue_subtiles=2"),
}


@pytest.mark.parametrize(
    ("activation", "wanted"),
    [
        ("sigmoid", 1 / (1 + np.exp(-X))),
        ("gelu_erf", X * CDF),
        ("clamp(-1, 1.5)", X.clip(-1, 1.5)),
        ("x * sigmoid(1.702 * x)", X / (1 + np.exp(-1.702 * X))),
        ("0.5 * x * (1 + erf(x / sqrt(2.0)))", X * CDF),
        (lambda x: ptxgen.maximum(x, 0) ** 2, X.clip(0) ** 2),
        (lambda x: x * ptxgen.erf(x), X * np.vectorize(math.erf)(X)),
        ("x > 0 ? x : 0.1 * x", np.where(X > 0, X, 0.1 * X)),
        ("where(x > 0, x, 0.1 * x)", np.where(X > 0, X, 0.1 * X)),
        ("clamp(x, -1, 1.5) + 1", X.clip(-1, 1.5) + 1),
        ("tanh(x)", np.tanh(X)),
        ("pow(x, 3) + pow(abs(x), 1.7)", X**3 + np.abs(X) ** 1.7),
        ("pow(x * x + 1, -2)", (X * X + 1) ** -2.0),
        (lambda x: x * ptxgen.tanh(ptxgen.log(1 + ptxgen.exp(x))), X * np.tanh(np.log1p(np.exp(X)))),
        (lambda x: x * ptxgen.sigmoid(1.702 * x), X / (1 + np.exp(-1.702 * X))),
        (lambda x: ptxgen.clamp(x, -1, 1) ** 2 + 2**x, X.clip(-1, 1) ** 2 + 2**X),
        (lambda x: ptxgen.pow(abs(x), 0.5) + abs(x) ** -0.5, np.abs(X) ** 0.5 + np.abs(X) ** -0.5),
        ("x", X),
        (lambda x: x, X),
        (lambda x, aux: ptxgen.pow(abs(x), aux), np.abs(X) ** AUX),
        (lambda x, aux: x * ptxgen.exp(-aux), X * np.exp(-AUX)),
    ],
)
def test_gemm_computes_them(activation: Any, wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    reads = callable(activation) and activation.__code__.co_argcount == 2
    got = ptxgen.gemm(A, B, activation=activation, **({"aux": AUX} if reads else {}))
    np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "epilogue", ["gelu", "gelu_erf", "silu_grad", "log(1+exp(x))*tanh(x)", "exp2(x)*erf(x)-log2(abs(x))"]
)
def test_products_of_f64_have_functions_of_f64(epilogue: str) -> None:
    """The bounds of errors are those of f64: a result that is right in f32 alone is wrong."""
    p = Gemm(20, 24, 12, dtype="f64", epilogue=f"bias_column,{epilogue}")
    arrays = operands(p, 1) | epilogue_arrays(p, 1)
    ref = reference(p, arrays)
    runner = Runner.of(EmulatedDriver(H200), p, parse_config("ms=4 ns=4 ml=16 nl=32 lanes_m=4"))
    got = runner.compute(arrays)["C"]
    assert compare(got, ref).ok
    assert not compare(got.astype(np.float32).astype(np.float64), ref).ok


def test_the_identity_stores_sums_and_has_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    sums = np.empty((20, 24), np.float32)
    for activation in (" x", lambda x: x):
        result = ptxgen.gemm(A, B, activation=activation, sums=sums)
        np.testing.assert_allclose(result, X, atol=1e-5)
        assert (sums == result).all()
    p = Gemm(20, 24, 12, epilogue="bias_column,x")
    assert parse(p.key()) == p
    with pytest.raises(InputError, match="none of x, aux, up"):
        register(epilogue_op("x"))


@pytest.mark.parametrize("name", ["gelu", "gelu_erf", "silu", "sigmoid"])
def test_gradients_are_the_slopes_of_activations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against differences of the activation; the slopes far from 0 are 0 and 1, and no NaN."""
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    aux = np.where(np.abs(AUX) > 1.5, 90 * AUX, 3 * AUX)
    at, step = np.float64(aux), 1e-4
    value = epilogue_op(name).steps[0].expression("f64")
    ends = [evaluate(value, {"x": at + d}) for d in (-step, step)]
    slope = np.where(np.isfinite(ends[1] - ends[0]), (ends[1] - ends[0]) / (2 * step), 0)
    got = ptxgen.gemm(A, B, activation=f"{name}_grad", aux=aux)
    np.testing.assert_allclose(got, X * slope, rtol=1e-4, atol=1e-4)


def test_convolutions_groups_and_jagged_groups_compute_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    images, filters = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32), RNG.normal(size=(4, 3, 1, 1)).astype(np.float32)
    y = np.einsum("nchw,kc->nkhw", images, filters[:, :, 0, 0])
    for activation in ("clamp(0,1)", lambda x: ptxgen.minimum(ptxgen.maximum(x, 0), 1)):
        np.testing.assert_allclose(ptxgen.conv2d(images, filters, activation=activation), y.clip(0, 1), atol=1e-5)
        [got] = ptxgen.gemm_grouped([A], [B], activation=activation)
        np.testing.assert_allclose(got, X.clip(0, 1), atol=1e-5)
    jagged = ptxgen.gemm_jagged(A, B[None], np.array([20], np.int32), activation="x * relu(x)")
    np.testing.assert_allclose(jagged, X * X.clip(0), atol=1e-4)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_every_family_is_right_with_an_expression(configuration: str) -> None:
    dtype, text = CONFIGURATIONS[configuration]
    m = 4 if "skinny" in text else 40
    for n, expression in enumerate(("x*sigmoid(1.702*x)+exp(-abs(aux))", "tanh(x)*aux", "pow(abs(x)+1,aux)")):
        p = Gemm(m, 72, 64, "NT", dtype, epilogue=f"bias_column,{expression}")
        results = check_some(EmulatedDriver(H200), p, parse_config(text), n)
        assert all(r.ok for r in results), [str(r) for r in results]


def test_keys_have_the_canonical_text() -> None:
    p = Gemm(8, 8, 8, epilogue="bias_column, max( x , 0.50 )*2")
    assert p.epilogue == "bias_column,max(x,0.5)*2"
    assert parse(p.key()) == p
    assert Gemm(8, 8, 8, epilogue="clamp(-1.0, 6)").key() == "gemm 8,8,8 NN f32 epilogue=clamp(-1,6)"
    assert traced(lambda x: x * 2.0 + 0.1) == "x*2+0.1"
    scale = 3
    assert traced(lambda x, aux: x * scale - aux) == "x*3-aux"
    for text in (
        "x*sigmoid(x)",
        "gelu(x)",
        "gelu_erf(x)*aux",
        "x>0?x:exp(x)-1",
        "x==1?2:0",
        "fma(x,x,inf)",
        "pow(x,tanh(x))",
    ):
        root = Gemm(8, 8, 8, epilogue=text).epilogue
        assert Gemm(8, 8, 8, epilogue=root).epilogue == root
    assert Conv(1, 8, 8, 8, 8, 1, 1, epilogue="bias,max(x,aux)").epilogue_operands == ("bias", "aux")
    assert split_epilogue("bias_column,min(max(x,0),6)") == ("bias_column", "min(max(x,0),6)")


@pytest.mark.parametrize("target", ["sm_75", "sm_90", "sm_120"])
def test_ptxas_takes_them(target: str) -> None:
    for epilogue in ("gelu_erf", "clamp(-1,1)", "x*log(1+exp(aux))/sqrt(abs(x))", "tanh(x)", "pow(x,0.7)"):
        config = parse_config("ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0")
        assert assemble(render(plan_for(Gemm(16, 32, 8, epilogue=epilogue), config, device(target)))).cubin


def test_the_bound_finds_a_wrong_value_and_holds_for_numbers_that_round() -> None:
    p = Gemm(40, 24, 64, epilogue="0.1*x+exp(x*0.3)")
    ref = reference(p, operands(p))
    allowed = ref.tolerance()
    assert compare(ref.exact.astype(np.float32), ref).ok
    assert not compare((ref.exact + 2 * allowed).astype(np.float32), ref).ok
    assert np.median(allowed / np.abs(ref.exact)) < 1e-4
    at = (slice(3, 9), slice(0, 7))
    np.testing.assert_array_equal(ref.part(at).tolerance(), allowed[at])
    infinite = replace(ref, variables={"x": np.full_like(ref.exact, 1e6)}, exact=np.full_like(ref.exact, np.inf))
    assert compare(np.full_like(ref.exact, np.inf), infinite).ok


@pytest.mark.parametrize(
    ("activation", "error", "message"),
    [
        ("x*y", TaskError, "line 1, column 3: y is unknown; it must be x, the sum, aux, or up"),
        ("foo", InputError, r"activation is 'foo'; it must be one of relu, .* clamp\(low,high\), an expression of x"),
        ("aux", TaskError, "activation is 'aux'; .*the activation does not read x, the sum; it must"),
        ("2.0", TaskError, "the activation does not read x, the sum; it must"),
        ("x[i]", TaskError, "i is no index; an activation reads x, aux and up, without indices"),
        ("clamp(1)", InputError, r"'clamp\(1\)'; it must have the form clamp\(low,high\)"),
        ("clamp(2,1)", InputError, "its first number must be at most the second"),
        ("x*", TaskError, r"activation is 'x\*'; line 1, column 3: the text ends early; it must be an expression\n"),
        ("clamp(x, 1)", TaskError, r"activation is 'clamp\(x, 1\)'; .*clamp has 2 arguments; it must have 3"),
        ("where(x, 1, 2)", TaskError, "the condition of . is a number of f64; it must be a comparison"),
        ("x**2", TaskError, r"write pow\(x, y\)"),
        ("aux*x", InputError, r"activation is 'aux\*x' and aux is None; the expression reads it"),
        (lambda x: math.exp(x), TaskError, "write ptxgen.exp"),
        (lambda: 1, InputError, "with no parameter; it must have one, the sum, or a second one, aux or up"),
        (int.from_bytes, InputError, "activation is from_bytes with parameters bytes, "),
        (max, InputError, "activation is max, whose parameters are not known; it must be a Python function"),
        (np.linalg.norm, InputError, "activation is norm with"),
        (lambda x: x.cosine(), InputError, "which fails on expressions"),
        ("x+" * 2000 + "x", TaskError, "nest"),
    ],
)
def test_bad_activations_are_named(activation: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ptxgen.gemm(A, B, activation=activation)


#: a kernel of each family, with pairs in vectors of 2 to 8, and with slices of K
GATED = (
    ("f16", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0 vec_c=2 kg=2 splitk=workspace"),
    ("f16", "family=mma ms=16 ns=16 ml=32 nl=32 u=32 stages=2 vec_a=8 vec_b=8 vec_c=4 epilogue_smem=1"),
    ("bf16", "family=wgmma ml=64 nl=32 u=32 stages=2 vec_c=2"),
    ("bf16", "family=wgmma ml=64 nl=64 u=32 stages=2 vec_c=8"),
    ("f16", "family=wgmma ml=64 nl=64 u=32 stages=2 epilogue_smem=1 epilogue_subtiles=2"),
    ("bf16", "family=skinny ms=1 ns=1 ml=1 nl=4 u=64 kl=1 vec_a=8 vec_b=8 vec_c=4 lanes_long=4 long_n=1"),
    ("f16", "family=skinny ms=2 ns=2 ml=8 nl=16 u=64 kl=1 vec_a=8 vec_b=8 vec_c=2 lanes_long=8 long_n=1 mma_m16=1"),
)


@pytest.mark.parametrize(("dtype", "text"), GATED)
def test_gated_activations_are_right(dtype: str, text: str) -> None:
    """Rows and columns past whole tiles, a leading dimension of C with a gap."""
    for epilogue, batch in (("swiglu", 1), ("scale_rows,bias_column,min(x,7)*sigmoid(1.702*x)*(up+1)", 2)):
        p = Gemm(7 if "skinny" in text else 37, 80, 40, "NT", dtype, epilogue=epilogue, ldc=48, batch=batch)
        results = check_some(EmulatedDriver(H200), p, parse_config(text))
        assert all(r.ok for r in results), [str(r) for r in results]


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ({"dtype": "f32"}, GATED[0][1].replace("nl=32", "nl=64").replace("ns=4", "ns=8").replace("vec_c=2", "vec_c=4")),
        ({"dtype": "f32", "compute": "tf32"}, GATED[1][1].replace("vec_a=8 vec_b=8", "vec_a=4 vec_b=4")),
        ({"dtype": "f32", "compute": "tf32"}, GATED[2][1]),
        ({"dtype": "f32", "compute": "f32_bf16x6"}, GATED[2][1]),
        ({"dtype": "bf16", "out": "f32"}, GATED[2][1]),
        ({"dtype": "s8", "out": "f32"}, GATED[2][1]),
        ({"dtype": "f16", "out": "f32"}, GATED[6][1]),
    ],
)
def test_gated_activations_are_stored_as_f32(types: dict[str, str], text: str) -> None:
    """An element of C is a word of 32 bits."""
    p = Gemm(7 if "skinny" in text else 37, 80, 48, "NT", epilogue="scale_rows,bias_column,geglu", ldc=48, **types)  # type: ignore[arg-type]
    config = parse_config(text)
    results = check_some(EmulatedDriver(H200), p, config)
    assert all(r.ok for r in results), [str(r) for r in results]
    assert assemble(render(plan_for(p, config, H200))).cubin


def test_the_bound_of_a_reciprocal_holds_where_it_may_be_infinite() -> None:
    """The logistic function is 1/(1 + exp(-x)); with an error of x, exp(-x) may be several times as large."""
    root = epilogue_op("sigmoid").steps[0].expression("f32")
    assert root.op == "rcp"
    for error in (0.5, 2.0):
        [(value, bound)] = with_errors([root], {"x": np.array(-35.0)}, {"x": np.array(error)})
        assert bound >= 1 / (1 + np.exp(35 - error)) - value


#: a list and a jagged group: items without rows or K, of one pair of columns, and past whole tiles; rows of C with gaps
GATED_LIST = GroupedGemm(
    ((33, 18, 24), (0, 4, 8), (7, 10, 0), (5, 2, 16)), "NT", "f16", ld="32:32:11", epilogue="swiglu"
)
GATED_ROWS = GroupedGemm(
    tuple((m, 80, 64) for m in (5, 0, 67)), "NT", "f16", jagged="m", epilogue="scale,bias_column,geglu"
)


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (GATED_LIST, GATED[0][1].replace("workspace", "last_cta")),
        (GATED_LIST, "family=mma ms=16 ns=16 ml=32 nl=32 u=32 stages=2 vec_a=8 vec_b=8 vec_c=2"),
        (replace(GATED_LIST, dtype="f32", compute="", out=""), GATED[0][1].replace("workspace", "last_cta")),
        (GATED_ROWS, GATED[1][1]),
        (replace(GATED_ROWS, dtype="bf16", out=""), f"{GATED[3][1]} persistent=1"),
        (GATED_ROWS, f"{GATED[4][1]} persistent=1 epilogue_buffers=2"),
    ],
)
def test_groups_compute_gated_activations(p: GroupedGemm, text: str) -> None:
    results = check_some(EmulatedDriver(replace(H200, sms=4)), p, parse_config(text))
    assert all(r.ok for r in results), [str(r) for r in results]


def test_calls_of_groups_with_gated_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    rows, weights = RNG.normal(size=(9, 16)).astype(np.float16), RNG.normal(size=(2, 16, 24)).astype(np.float16)
    ends = np.array([2, 9], np.int32)
    x = np.concatenate([rows[:2] @ weights[0].astype(np.float64), rows[2:] @ weights[1].astype(np.float64)])
    wanted = x[:, ::2] / (1 + np.exp(-x[:, ::2])) * x[:, 1::2]
    for activation in ("swiglu", lambda x, up: x / (1 + ptxgen.exp(-x)) * up):
        jagged = ptxgen.gemm_jagged(rows, weights, ends, activation=activation)
        lists = ptxgen.gemm_grouped([rows[:2], rows[2:]], list(weights), activation=activation)
        for got in (jagged, np.concatenate(lists)):
            np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=4e-3)
    scales = RNG.uniform(0.5, 2, 9).astype(np.float32), RNG.uniform(0.5, 2, (2, 24)).astype(np.float32)
    bias = RNG.normal(size=(2, 24)).astype(np.float16)
    got = ptxgen.gemm_jagged(rows, weights, ends, activation="x*up", bias=bias, scale_a=scales[0], scale_b=scales[1])
    sums = x * scales[0][:, None] * scales[1].repeat((2, 7), 0) + bias.repeat((2, 7), 0)
    np.testing.assert_allclose(got, sums[:, ::2] * sums[:, 1::2], rtol=4e-3, atol=2e-2)
    one = ptxgen.gemm_grouped([rows], [weights[0, :, :2]], activation="swiglu")[0]  # C with one column
    np.testing.assert_allclose(one[:2], wanted[:2, :1], rtol=2e-3, atol=4e-3)
    with pytest.raises(ShapeError, match="w has 23 columns; a gated activation takes an even number"):
        ptxgen.gemm_jagged(rows, weights[:, :, :23], ends, activation="swiglu")
    with pytest.raises(InputError, match="beta is 1; with a gated activation it must be 0"):
        ptxgen.gemm_jagged(rows, weights, ends, activation="swiglu", beta=1.0, out=jagged)
    with pytest.raises(InputError, match="beta of item 1 is 2; with a gated activation it must be 0"):
        ptxgen.gemm_grouped([rows] * 2, list(weights), [jagged] * 2, activation="swiglu", beta=[0, 2])
    with pytest.raises(ShapeError, match="item 0: b has 23 columns; a gated activation takes an even number"):
        ptxgen.gemm_grouped([rows], [weights[0, :, :23]], activation="swiglu")
    with pytest.raises(ShapeError, match="n of item 1 is 7; with a gated activation it must be even"):
        GroupedGemm(((8, 8, 8), (8, 7, 8)), dtype="f16", epilogue="swiglu")


def test_checks_of_groups_with_gated_activations() -> None:
    """The reference of a whole group is that of its items; a check of some elements finds a wrong one."""
    p = GroupedGemm(((5, 48, 16), (3, 10, 16)), "NT", "f16", ld="16:16:30", epilogue="swiglu")
    arrays = random_group(p, 1)
    exact = reference(p, arrays).exact
    for i in range(2):
        mine = {name: item_view(p, x, arrays[name], i) for x, name in enumerate("ABC")}
        np.testing.assert_array_equal(item_view(p, 2, exact, i), reference(p.item(i), mine).exact)
    out = exact.astype(np.float16)
    assert sampled_deviation(p, arrays, out, p.results).ok
    item_view(p, 2, out, 1)[0, 4] += 1
    assert sampled_deviation(p, arrays, out, p.results).where == (1, 0, 4)
    assert operation_of(p).plain(p).key() == "grouped 5,48,16+3,10,16 NT f16"  # type: ignore[misc]
    assert p.bytes == operation_of(p).plain(p).bytes - 2 * (5 * 24 + 3 * 5)  # type: ignore[misc]


def test_gemm_computes_gated_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    a, b = RNG.normal(size=(9, 16)).astype(np.float16), RNG.normal(size=(16, 24)).astype(np.float16)
    x = a.astype(np.float64) @ b
    gate, up = x[:, ::2], x[:, 1::2]
    for activation in ("swiglu", "silu(x)*up", lambda x, up: x / (1 + ptxgen.exp(-x)) * up):
        got = ptxgen.gemm(a, b, activation=activation)
        np.testing.assert_allclose(got, gate / (1 + np.exp(-gate)) * up, rtol=2e-3, atol=2e-3)
    with pytest.raises(InputError, match="beta is 1; with a gated activation it must be 0"):
        ptxgen.gemm(a, b, activation="swiglu", beta=1.0, out=got)
    with pytest.raises(ShapeError, match="b has 23 columns; a gated activation takes an even number"):
        ptxgen.gemm(a, b[:, :23], activation="swiglu")
    bias = RNG.normal(size=24).astype(np.float16)
    got = ptxgen.gemm(a, b, activation="x*up", bias=bias)  # the bias is added to the sums
    np.testing.assert_allclose(got, (gate + bias[::2]) * (up + bias[1::2]), rtol=2e-3, atol=1e-2)
    with pytest.raises(ShapeError, match="bias has 12 elements; it must have 24: one per column of b"):
        ptxgen.gemm(a, b, activation="swiglu", bias=bias[:12])
    with pytest.raises(InputError, match="with a gated activation there may be no residual"):
        ptxgen.gemm(a, b, activation="swiglu", residual=got)
    with pytest.raises(DtypeError, match="out is f64; with a gated activation it must be one of f16, bf16, f32"):
        ptxgen.gemm(A.astype(float), B.astype(float), activation="x*up")
    with pytest.raises(InputError, match="must not read both aux and up"):
        Gemm(8, 8, 8, epilogue="x*aux*up")
    with pytest.raises(ShapeError, match="n is 7; with a gated activation it must be even"):
        Gemm(8, 7, 8, dtype="f16", epilogue="swiglu")


STORES = (
    ("f32", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0 vec_c=2", "residual,store_sums,gelu"),
    (*GATED[0], "bias_column,store_sums,swiglu"),
    ("f32", GATED[0][1], "bias_column,store_sums,swiglu"),
    (*GATED[1], "scale_rows,store_sums,geglu"),
    (*GATED[1], "scale,bias_row,store_sums,x*aux"),
    (*GATED[2], "store_sums,relu"),
    (*GATED[3], "bias_column,store_sums,swiglu"),
    ("bf16", "family=wgmma ml=64 nl=64 u=32 stages=2 transposed_mma=1 vec_c=2", "store_sums,gelu"),
)


STAGED = "family=wgmma ml=64 nl=64 u=32 stages=2 epilogue_smem=1"
MMA = "family=mma ms=32 ns=16 ml=64 nl=32 u=32 stages=2 vec_a=8 vec_b=8 vec_c=2"
SUMS = (
    ("f32", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0 vec_c=2", "relu_grad,sum_columns"),
    ("f32", "ms=4 ns=4 ml=32 nl=32 lanes_m=8 lane_interleave=1 vec_c=4 cp_async_a=0 cp_async_b=0", "sum_columns"),
    ("f64", "ms=2 ns=2 ml=16 nl=16 lanes_m=8 cp_async_a=0 cp_async_b=0 vec_c=1", "bias_row,relu,sum_columns"),
    ("f16 f16", "family=mma ms=16 ns=32 ml=32 nl=64 u=32 stages=2 vec_a=8 vec_b=8 vec_c=2", "relu,sum_columns"),
    ("f16 f16", "ms=4 ns=4 ml=32 nl=32 lanes_m=8 vec_c=2 cp_async_a=0 cp_async_b=0", "sum_columns"),
    ("f16", "ms=2 ns=2 ml=64 nl=8 lanes_m=32 cp_async_a=0 cp_async_b=0 vec_c=2", "residual,sum_columns"),
    ("f16", "family=mma ms=16 ns=32 ml=32 nl=64 u=32 stages=2 vec_a=8 vec_b=8 vec_c=2", "x*aux,sum_columns"),
    (
        "bf16",
        MMA,
        "residual,store_sums,gelu_grad,sum_columns",
    ),
    ("bf16", "family=wgmma ml=64 nl=32 u=32 stages=2 vec_c=2", "bias_column,store_sums,sigmoid,sum_columns"),
    ("f16", "family=wgmma ml=128 nl=64 u=32 stages=2 persistent=1 vec_c=2", "scale_rows,gelu_grad,sum_columns"),
    ("bf16", "family=wgmma ml=64 nl=64 u=32 stages=2 transposed_mma=1 vec_c=2", "sigmoid,sum_columns"),
    (
        "bf16",
        "family=wgmma ml=128 nl=64 u=64 stages=2 math_warpgroups=2 persistent=1 pingpong=1",
        "relu_grad,sum_columns",
    ),
    ("f16", "family=wgmma ml=64 nl=64 u=32 stages=2 cluster_x=2 cluster_y=2", "bias_row,sum_columns"),
    ("bf16", f"{STAGED} epilogue_subtiles=2 epilogue_buffers=2", "gelu_grad,sum_columns"),
    ("f16", f"{STAGED} transposed_mma=1", "bias_column,sigmoid,sum_columns"),
    ("f16", f"{STAGED.replace('ml=64', 'ml=128')} persistent=1", "residual,relu_grad,sum_columns"),
    ("bf16", f"{STAGED.replace('ml=64', 'ml=128')} transposed_mma=1 persistent=1", "sum_columns"),
    (
        "bf16",
        f"{STAGED.replace('ml=64', 'ml=128')} math_warpgroups=2 epilogue_subtiles=4",
        "scale,bias_row,gelu,sum_columns",
    ),
)


@pytest.mark.parametrize(("dtype", "text", "epilogue"), SUMS)
def test_kernels_add_the_columns(dtype: str, text: str, epilogue: str) -> None:
    """Beside C, of elements that are not rounded; rows and columns past whole tiles, and gaps between rows. A block has
    several tiles if it is persistent."""
    p = Gemm(150, 80, 40, "NT", *dtype.split(), epilogue=epilogue)
    p = replace(p, ldc=p.columns_c + 8)
    results = list(check_gemm(EmulatedDriver(replace(H200, sms=4 if "cluster" in text else 1)), p, parse_config(text)))
    assert all(r.ok for r in results), [str(r) for r in results]
    assert p.outputs[-1] == "column_sums"
    assert parse(p.key()) == p
    assert assemble(render(plan_for(p, parse_config(text), H200))).cubin


@pytest.mark.parametrize("epilogue", ["sum_columns", "relu,sum_columns"])
def test_columns_of_elements_that_are_infinite_or_nan(epilogue: str) -> None:
    """Where the product of two block scales is infinite, the kernel decides between infinities and NaN."""
    p = Gemm(37, 50, 256, "NT", "e4m3", block_a="1x128", block_b="128x128", epilogue=epilogue)
    config = parse_config("family=wgmma ml=8 nl=64 u=128 stages=4 transposed_mma=1")
    results = list(check_gemm(EmulatedDriver(H200), p, config))
    assert all(r.ok for r in results), [str(r) for r in results]
    assert "extreme" in {r.inputs for r in results}


SUMS_OF_A = (
    ("f32", "", "TN", "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0 vec_c=2", "sum_a"),
    (
        "f32",
        "",
        "NT",
        "ms=4 ns=4 ml=32 nl=32 u=16 kl=2 lanes_m=4 lane_interleave=1 kg=2 splitk=workspace",
        "relu,sum_a",
    ),
    ("f64", "", "NN", "ms=2 ns=2 ml=16 nl=16 lanes_m=8 cp_async_a=0 cp_async_b=0 vec_c=1", "sum_columns,sum_a"),
    ("f32", "", "TN", "ms=4 ns=4 ml=32 nl=32 u=8 lanes_m=4 stream_k=1", "sum_a"),
    ("f16", "", "TN", "family=mma ms=16 ns=32 ml=32 nl=64 u=32 stages=2 vec_a=8 vec_b=8 vec_c=2", "sum_a"),
    ("bf16", "", "NN", f"{MMA} kg=3 splitk=workspace", "relu_grad,sum_a"),
    ("f64", "", "TN", "family=mma ms=16 ns=16 ml=32 nl=32 u=8 stages=2", "sum_a"),
    ("f32", "tf32", "TT", "family=mma ms=16 ns=16 ml=32 nl=32 u=32 stages=2 kl=2", "sum_a"),
    ("bf16", "", "TN", "family=wgmma ml=64 nl=32 u=32 stages=2 vec_c=2", "sum_a"),
    ("f16", "", "NN", "family=wgmma ml=128 nl=64 u=32 stages=2 epilogue_smem=1 persistent=1", "relu,sum_a"),
    ("bf16", "", "TN", "family=wgmma ml=128 nl=64 u=64 stages=2 math_warpgroups=2 persistent=1 pingpong=1", "sum_a"),
    ("bf16", "", "TN", f"{STAGED} kg=2 splitk=last_cta", "sum_a"),
    ("bf16", "", "TN", f"{STAGED} cluster_k=2", "bias_row,sum_a"),
    ("bf16", "", "TN", f"{STAGED} persistent=1 stream_waves=1", "sum_a"),
    ("f16", "", "TT", f"{STAGED} cluster_x=2 cluster_y=2", "sum_columns,sum_a"),
    ("f32", "tf32", "NT", "family=wgmma ml=64 nl=32 u=32 stages=2 vec_c=2", "sum_a"),
    ("f32", "tf32", "TT", "family=wgmma ml=64 nl=32 u=32 stages=2 vec_c=2", "sum_a"),
    ("f32", "tf32", "TT", "family=wgmma ml=128 nl=64 u=32 stages=3 persistent=1 stream_waves=1 vec_c=2", "sum_a"),
)


@pytest.mark.parametrize(("dtype", "compute", "layout", "text", "epilogue"), SUMS_OF_A)
def test_kernels_add_the_rows_of_a(dtype: str, compute: str, layout: str, text: str, epilogue: str) -> None:
    """Beside C, with every way to divide K; rows past whole tiles, several tiles of columns."""
    p = Gemm(200, 80, 136, layout, dtype, compute, epilogue=epilogue)
    p = replace(p, ldc=p.columns_c + 8)
    few = replace(H200, sms=16 if "last_cta" in text else 4)
    results = list(check_gemm(EmulatedDriver(few), p, parse_config(text)))
    assert all(r.ok for r in results), [str(r) for r in results]
    assert p.outputs[-1] == "a_sums"
    assert parse(p.key()) == p
    assert assemble(render(plan_for(p, parse_config(text), few))).cubin


def test_rules_of_sums_of_a() -> None:
    text = "family=wgmma ml=64 nl=64 u=32 stages=2"
    p = Gemm(150, 80, 512, "NT", "f16", epilogue="sum_a")
    with pytest.raises(ConfigError, match="sum_a takes A of f16, bf16 or tf32, summed in f32, as X"):
        plan_for(p, parse_config(f"{text} transposed_mma=1"), H200)
    ordered = replace(p, deterministic=True)
    for changes in ("kg=2 splitk=last_cta", "cluster_k=2"):
        with pytest.raises(ConfigError, match="with deterministic=1 also blocks that sum all of K"):
            plan_for(ordered, parse_config(f"{text} {changes}"), H200)
    assert plan_for(ordered, parse_config(text), H200)
    with pytest.raises(ConfigError, match="sum_a takes stages in shared memory and sums of four bytes"):
        plan_for(replace(p, compute="f16"), parse_config("ms=4 ns=4 ml=32 nl=32 cp_async_a=0 cp_async_b=0"), H200)


def test_rules_of_sums_of_columns() -> None:
    text = "family=wgmma ml=64 nl=64 u=32 stages=2"
    p = Gemm(150, 80, 512, "NT", "f16", epilogue="sum_columns")
    for changes in ("kg=2", "cluster_k=2"):
        with pytest.raises(ConfigError, match="with sum_columns blocks sum all of K"):
            plan_for(p, parse_config(f"{text} {changes}"), H200)
    text = "ms=4 ns=4 ml=16 nl=32 lanes_m=4 cp_async_a=0 cp_async_b=0"
    for changes in ("epilogue_smem=1", "kg=2 splitk=workspace", "stream_k=1"):
        with pytest.raises(ConfigError, match="takes an epilogue from registers"):
            plan_for(p, parse_config(f"{text} {changes}"), H200)
    for element in ("e4m3", "e5m2"):
        with pytest.raises(DtypeError, match=f"A is {element}; with sum_a it must be 16 bits or wider"):
            Gemm(64, 64, 64, "TT", element, epilogue="sum_a")
    with pytest.raises(InputError, match="with sum_columns batch must be 1"):
        Gemm(8, 8, 8, epilogue="sum_columns", batch=2)
    with pytest.raises(InputError, match="with a gated activation there may be no sum_columns"):
        Gemm(8, 8, 8, dtype="f16", epilogue="swiglu,sum_columns")
    with pytest.raises(InputError, match="in the order of execution: relu,sum_columns"):
        Gemm(8, 8, 8, epilogue="sum_columns,relu")
    with pytest.raises(InputError, match="epilogue has sum_columns; an exported library takes scale, scale_rows"):
        epilogue_sum("sum_columns")


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("of", ["a", "b"])
def test_gradients_of_a_bias_are_sums_of_an_operand(of: str, element: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel of the product, or by a second one; in every layout."""
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    integers = [np.random.default_rng(n).integers(-3, 4, (40, 56 - 32 * n)).astype(element) for n in range(2)]
    wanted = integers["ab".index(of)].sum(0, np.float64)
    kernels: list[str] = []
    multiply = bias_grad._multiply
    monkeypatch.setattr(bias_grad, "_multiply", lambda *x, **y: kernels.append(x[3]) or multiply(*x, **y))
    for order_a in "CF":
        for order_b in "CF":
            a, b = np.array(integers[0].T, order=order_a), np.array(integers[1], order=order_b)
            out, sums = ptxgen.gemm_bias_grad(a, b, of=of)
            assert np.array_equal(sums, wanted)
            assert np.array_equal(out, integers[0].T.astype(np.float64) @ integers[1])
            assert sums.dtype == (np.float64 if element is np.float64 else np.float32)
    assert kernels.count("a") == 4
    for order in "CF":
        out, given = np.empty((56, 24), element, order=order), np.empty(len(wanted), sums.dtype)
        result, sums = ptxgen.gemm_bias_grad(a, b, of=of, out=out, bias_grad=given, deterministic=True)
        assert result is out
        assert sums is given
        assert np.array_equal(sums, wanted)
    assert kernels.count("a") == 5
    for options in ({"alpha": 0.0}, {"activation": "swiglu"}) if element is not np.float64 else ({"alpha": 0.0},):
        assert np.array_equal(ptxgen.gemm_bias_grad(a, b, of=of, **options)[1], wanted)
    assert kernels.count("a") == 5
    assert not ptxgen.gemm_bias_grad(a[:, :0], b[:0], of=of)[1].any()


@pytest.mark.parametrize(("dtype", "text", "epilogue"), STORES)
def test_kernels_store_the_sums(dtype: str, text: str, epilogue: str) -> None:
    """Beside C, before the activation; rows and columns past whole tiles, and gaps between rows, which do not change."""
    p = Gemm(37, 80, 40, "NT", dtype, epilogue=epilogue)
    p = replace(p, ldc=p.columns_c + 8)
    results = check_some(EmulatedDriver(H200), p, parse_config(text))
    assert all(r.ok for r in results), [str(r) for r in results]
    assert p.outputs == ("C", "sums")
    assert parse(p.key()) == p


@pytest.mark.parametrize(("dtype", "text", "epilogue"), STORES)
def test_kernels_store_the_sums_of_a_batch(dtype: str, text: str, epilogue: str) -> None:
    """Items with gaps between rows and between items, which do not change."""
    p = Gemm(37, 80, 40, "NT", dtype, epilogue=epilogue, batch=3)
    ld = p.columns_c + 8
    p = replace(p, ldc=ld, stride_c=40 * ld)
    results = list(check_gemm(EmulatedDriver(H200), p, parse_config(text)))
    assert all(r.ok for r in results), [str(r) for r in results]


@pytest.mark.parametrize("shared", [False, True])
def test_gemm_stores_the_sums_of_a_batch(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if all items share an operand, and if the result is column-major."""
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    a = RNG.normal(size=(3, 20, 16)).astype(np.float32)
    b = RNG.normal(size=(16, 24) if shared else (3, 16, 24)).astype(np.float32)
    for order in "CF":
        sums, out = np.empty((3, 20, 24), np.float32, order=order), np.empty((3, 20, 24), np.float32, order=order)
        if order == "F":
            sums, out = (np.empty((3, 24, 20), np.float32).transpose(0, 2, 1) for _ in range(2))
        got = ptxgen.gemm(a, b, activation="silu", sums=sums, out=out)
        exact = a.astype(np.float64) @ b
        np.testing.assert_allclose(sums, exact, atol=1e-5)
        np.testing.assert_allclose(got, exact / (1 + np.exp(-exact)), atol=1e-5)
    both = np.empty((3, 20, 24), np.float32)
    got = ptxgen.gemm(a, b, activation="x*up", sums=both)
    np.testing.assert_allclose(both, exact, atol=1e-5)
    np.testing.assert_allclose(got, exact[..., ::2] * exact[..., 1::2], atol=1e-4)
    with pytest.raises(ShapeError, match="sums is f32 of 3x20x12; it must be f32 of 3x20x24"):
        ptxgen.gemm(a, b, activation="silu", sums=both[..., :12].copy())


def test_gemm_stores_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    sums, half = np.empty_like(AUX), [x.astype(np.float16) for x in (A, B)]
    got = ptxgen.gemm(A, B, activation="gelu_erf", sums=sums, bias=B[0])
    np.testing.assert_allclose(sums, X + B[0], atol=1e-5)
    assert np.array_equal(got, ptxgen.gemm(A, B, activation="gelu_erf", bias=B[0]))
    both = np.empty((20, 24), np.float16)
    got = ptxgen.gemm(*half, activation="swiglu", sums=both)
    np.testing.assert_allclose(both, X, atol=1e-2)
    gate, up = both[:, ::2].astype(np.float64), both[:, 1::2]
    np.testing.assert_allclose(got, gate / (1 + np.exp(-gate)) * up, rtol=1e-2, atol=1e-2)
    with pytest.raises(InputError, match="sums is an array; activation must then be given"):
        ptxgen.gemm(A, B, sums=sums)
    with pytest.raises(ShapeError, match="sums is f16 of 20x24; it must be f32 of 20x24, in the memory of out"):
        ptxgen.gemm(A, B, sums=both, activation="relu")
    with pytest.raises(OverlapError, match="sums shares memory with aux"):
        ptxgen.gemm(A, B, sums=AUX, aux=AUX, activation="gelu_grad")
    with pytest.raises(InputError, match="with store_sums out must be 16 or more bits wide"):
        Gemm(8, 8, 8, dtype="e4m3", out="e4m3", epilogue="store_sums,relu")
    with pytest.raises(InputError, match="its operations must be among"):
        GroupedGemm(((8, 8, 8),), epilogue="relu,sum_columns")
    with pytest.raises(InputError, match="epilogue has store_sums; an exported library takes scale, scale_rows"):
        epilogue_sum("store_sums,relu")


def test_gradients_of_a_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    masked, sums = ptxgen.gemm_bias_grad(A, B, activation="relu_grad", aux=AUX)
    np.testing.assert_allclose(masked, np.where(AUX > 0, X, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, np.where(AUX > 0, X, 0).sum(0), rtol=1e-5, atol=1e-5)
    half, given = [x.astype(np.float16) for x in (A, B)], np.empty(24, np.float32)
    out, sums = ptxgen.gemm_bias_grad(*half, activation="gelu_grad", aux=AUX.astype(np.float16), bias_grad=given)
    assert sums is given
    np.testing.assert_allclose(sums, out.astype(np.float64).sum(0), rtol=1e-2, atol=1e-2)
    for options in ({"out": np.empty((24, 20), np.float32).T}, {"activation": "swiglu"}):  # by a second kernel
        out, sums = ptxgen.gemm_bias_grad(A, B, **options)
        np.testing.assert_allclose(sums, out.astype(np.float64).sum(0), rtol=1e-5, atol=1e-5)
    out, sums = ptxgen.gemm_bias_grad(A[:, :0], B[:0])
    assert not out.any()
    assert not sums.any()
    once, again = (ptxgen.gemm_bias_grad(A.astype(float), B.astype(float))[1] for _ in range(2))
    assert once.dtype == np.float64
    np.testing.assert_allclose(once, X.sum(0), rtol=1e-12)
    assert np.array_equal(once, again)
    with pytest.raises(OverlapError, match="bias_grad shares memory with out"):
        ptxgen.gemm_bias_grad(A, B, out=(out := np.empty((20, 24), np.float32)), bias_grad=out[0])
    with pytest.raises(ShapeError, match=r"bias_grad is f32 of shape \(23,\); it must be f32 of shape \(24,\)"):
        ptxgen.gemm_bias_grad(A, B, bias_grad=given[:23])
    with pytest.raises(InputError, match="of is 'c'; it must be one of out, a, b"):
        ptxgen.gemm_bias_grad(A, B, of="c")
    with pytest.raises(ShapeError, match="a has 3 dimensions; it must have 2"):
        ptxgen.gemm_bias_grad(A[None], B)
    with pytest.raises(DtypeError, match="out is s32; with the gradient of a bias it must be f16, bf16, f32 or f64"):
        ptxgen.gemm_bias_grad(A.astype(np.int8), B.astype(np.int8))
    with pytest.raises(OverlapError, match="bias_grad shares memory with b"):
        ptxgen.gemm_bias_grad(A, B, out=np.empty((24, 20), np.float32).T, bias_grad=B[0])  # by a second kernel
    with pytest.raises(ShapeError, match="bias_grad has a stride of 2 elements; they must be contiguous"):
        ptxgen.gemm_bias_grad(A, B, bias_grad=np.empty(48, np.float32)[::2])
    small = np.zeros((20, 128), ml_dtypes.float8_e4m3fn)
    with pytest.raises(DtypeError, match="b is e4m3; with of=b it must be f16, bf16, f32 or f64"):
        ptxgen.gemm_bias_grad(small, small.T, of="b")


def test_gradients_of_a_bias_with_quantized_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    rng = np.random.default_rng(2)
    x, weight = (rng.standard_normal(shape).astype(np.float16) for shape in ((5, 128), (24, 128)))
    w = ptxgen.QuantizedWeight.quantize(weight)
    for options in ({}, {"activation": "swiglu"}):
        out, sums = ptxgen.gemm_bias_grad(x, w, **options)
        np.testing.assert_allclose(sums, out.astype(np.float64).sum(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(
        ptxgen.gemm_bias_grad(x, w, of="a")[1], x.astype(np.float64).sum(1), rtol=1e-3, atol=1e-3
    )
    with pytest.raises(InputError, match="of is b and b is a QuantizedWeight; b must then be an array"):
        ptxgen.gemm_bias_grad(x, w, of="b")
    other = ptxgen.QuantizedWeight(w.packed, np.ones((24, 1), np.float32), format="s4")
    with pytest.raises(OverlapError, match="bias_grad shares memory with scales"):
        ptxgen.gemm_bias_grad(x, other, bias_grad=other.scales[:, 0])


def test_a_gated_product_takes_the_configuration_of_the_product() -> None:
    p = Gemm(64, 128, 64, "NT", "bf16", epilogue="swiglu")
    assert parse(p.key()) == p
    assert p.stored == ((64, 64), (128, 64), (64, 64))
    assert p.bytes == 2 * (64 * 64 + 128 * 64 + 64 * 64)
    assert operation_of(p).plain(p) == replace(p, epilogue="", ldc=128)  # type: ignore[misc]
    wide = parse_config("family=wgmma ml=128 nl=128 u=64 stages=3 math_warpgroups=2 vec_c=8")
    geglu = Gemm(512, 512, 512, "NT", "bf16", epilogue="geglu")
    assert assemble(render(plan_for(geglu, wide, H200))).cubin
    transposed = parse_config("family=wgmma ml=64 nl=128 u=64 stages=3 transposed_mma=1 vec_c=2")
    with pytest.raises(ConfigError, match="transposed_mma=1: a gated activation takes 0"):
        render(plan_for(geglu, transposed, H200))


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(
        DtypeError, match=r"activation is 'pow\(x,1.5\)' and sums are f64; the operand of pow is f64; it"
    ):
        Gemm(8, 8, 8, dtype="f64", epilogue="pow(x,1.5)")
    with pytest.raises(DtypeError, match=r"epilogue is 'relu' and sums are s32; C must then be of floats"):
        Gemm(8, 8, 8, dtype="s8", epilogue="relu")
    assert Gemm(8, 8, 8, dtype="f64", epilogue="x*max(x,0.1)").epilogue == "x*max(x,0.1)"
    with pytest.raises(InputError, match=r"epilogue is 'x\*2,relu'; it may have only one of"):
        Gemm(8, 8, 8, epilogue="x*2,relu")
    with pytest.raises(InputError, match=r"epilogue has x\*2; an exported library takes scale, scale_rows"):
        epilogue_sum("bias_column,x*2")
    assert epilogue_op("clamp(0,6)").exact is False


def test_options_of_gemm_bias_grad_are_those_of_gemm() -> None:
    a, b = np.ones((4, 8), np.float32), np.ones((8, 5), np.float32)
    with pytest.raises(TypeError, match=r"gemm_bias_grad\(\) got an unexpected keyword argument 'scale'"):
        ptxgen.gemm_bias_grad(a, b, scale=2)
    with pytest.raises(TypeError, match=r"gemm_bias_grad\(\) got an unexpected keyword argument 'workspace'"):
        ptxgen.gemm_bias_grad(a, b, workspace=a)
    assert ptxgen.gemm_bias_grad(a, b, workspace=None)[1].tolist() == [32] * 5


@pytest.mark.parametrize("layout", ["NT", "TT"])
def test_no_branch_separates_products_of_c_from_their_commit(layout: str) -> None:
    """ptxas ends a group of wgmma at a branch, so a wait for all but the last group would wait for the products of C.
    Where A is not K-major, each K step has a group."""
    p = Gemm(512, 512, 512, layout, "f32", "tf32", epilogue="sum_a")
    text = "family=wgmma ml=128 nl=256 u=32 kg=1 math_warpgroups=2"
    lines = render(plan_for(p, parse_config(text), H200)).text.splitlines()
    ends = [n for n, line in enumerate(lines) if "wgmma.commit_group" in line]
    assert len(ends) == (1 if layout == "NT" else 4)
    for end in ends:
        first = max(n for n in range(end) if "wgmma.fence" in lines[n])
        assert sum("m64n256k8" in line for line in lines[first:end]) == (4 if layout == "NT" else 1)
        assert not any("bra" in line or "m64n8k8" in line for line in lines[first:end])
