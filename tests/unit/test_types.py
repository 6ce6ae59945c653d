"""Types of problems: allowed combinations, tolerances, and the families that compute them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.api.arrays import view
from ptxgen.api.gemm import gemm
from ptxgen.codegen.config.config import Config
from ptxgen.errors import DtypeError, ShapeError
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.reference import as_matrices
from ptxgen.problem.base import COMPUTE_MODES, OUT_DTYPES
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import DTYPES, bits_of, canonical, dtype, from_numpy
from ptxgen.problem.reference import INPUTS, compare, operands, reference, wide
from ptxgen.problem.registry import from_dict, parse


@pytest.mark.parametrize("name", COMPUTE_MODES)
def test_every_type_has_an_accumulator_and_an_output(name):
    for compute in COMPUTE_MODES[name]:
        for out in OUT_DTYPES[name]:
            p = Gemm(8, 8, 8, "NN", name, compute, out=out)
            assert parse(p.key()) == p == from_dict(p.as_dict())
    assert Gemm(8, 8, 8, "NN", name).key() == f"gemm 8,8,8 NN {name}"  # defaults are not spelt out


def test_types_without_a_kernel_are_refused():
    for name, compute, out in (
        ("f16", "tf32", ""),
        ("f64", "f32_bf16x6", ""),
        ("s8", "f32", ""),
        ("f32", "", "f16"),
        ("s8", "", "f64"),
        ("", "", ""),
    ):
        with pytest.raises(DtypeError):
            Gemm(8, 8, 8, "NN", name, compute, out=out)


def test_alignment_classes_count_elements_of_each_operand():
    assert Gemm(64, 64, 64, "NT", "e4m3").vectors == (16, 16, 8)
    assert Gemm(64, 64, 63, "NT", "s8").vectors == (1, 1, 4)
    assert Gemm(64, 66, 64, "NT", "f16", out="f32").vectors == (8, 8, 2)
    with pytest.raises(ShapeError, match="from 4 to 16"):
        Gemm(8, 8, 8, "NN", "s8", aligned_c=2)


def test_bytes_of_each_operand():
    assert Gemm(2, 3, 4, "NN", "s8").bytes == 2 * 4 + 4 * 3 + 4 * 2 * 3


def test_numpy_names_and_literals():
    for inputs in DTYPES.values():
        assert from_numpy(inputs.numpy, "a") is inputs
    assert bits_of(0.0, dtype("s32")) == "0"
    assert bits_of(1.0, dtype("bf16")) == "0x3F80"
    assert view(np.zeros((2, 3), np.int8), "a").dtype is dtype("s8")


@pytest.mark.parametrize("name", ["u32", "s16", "u16", "u8"])
def test_types_of_tasks_alone(name):
    x = np.ones((8, 8), dtype(name).numpy)
    assert view(x, "a").dtype is dtype(name)
    assert dtype(canonical(str(x.dtype))) is dtype(name)
    with pytest.raises(DtypeError, match=f"a and b have dtype {x.dtype}; it must be one of float16"):
        gemm(x, x)
    with pytest.raises(DtypeError, match=f"out is {name}; with a and b of f32 it must be f32"):
        gemm(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32), out=x)
    with pytest.raises(DtypeError, match=f"dtype is '{name}'; it must be one of f16"):
        Gemm(8, 8, 8, "NN", name)


@pytest.mark.parametrize("name", COMPUTE_MODES)
@pytest.mark.parametrize("inputs", INPUTS)
def test_operands_are_finite_and_integers_stay_exact(name, inputs):
    p = Gemm(33, 31, 300, "TN", name)
    a, b, c = operands(p, 1, inputs).values()
    assert a.dtype == b.dtype == p.element.numpy
    assert c.dtype == p.output.numpy
    assert all(np.isfinite(wide(x)).all() for x in (a, b, c))
    if inputs == "integers":
        exact = 2 * reference(p, {"A": a, "B": b}).exact + wide(c)
        np.testing.assert_array_equal(wide(exact.astype(p.output.numpy)), exact)


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2"])
def test_f32_sum_passes_and_one_wrong_product_fails(name):
    p = Gemm(17, 19, 512, "NN", name)
    a, b, _ = operands(p, 2).values()
    ref = reference(p, {"A": a, "B": b})
    good = (a.astype(np.float32) @ b.astype(np.float32)).astype(p.output.numpy)
    assert compare(good, ref).ok
    wrong = (a[:, 1:].astype(np.float32) @ b[1:].astype(np.float32)).astype(p.output.numpy)
    assert not compare(wrong, ref).ok


def test_rounded_inputs_pass_for_tf32_only():
    a, b, _ = operands(Gemm(40, 40, 200), 3).values()
    bits = (a.view(np.uint32) + 0x1000) & np.uint32(0xFFFFE000)  # nearest of 11 bits
    rounded = bits.view(np.float32)
    for compute, right in (("tf32", True), ("f32", False)):
        p = Gemm(40, 40, 200, "NN", "f32", compute)
        left, other = as_matrices(p, rounded, b)
        assert compare((left @ other).astype(np.float32), reference(p, {"A": a, "B": b})).ok is right


def test_integers_are_exact_or_wrong():
    p = Gemm(9, 9, 500, "NT", "s8")
    a, b, _ = operands(p, 4, "scaled").values()
    ref = reference(p, {"A": a, "B": b})
    out = ref.exact.astype(np.int32)
    assert compare(out, ref).ok
    out[3, 4] += 1
    deviation = compare(out, ref)
    assert not deviation.ok
    assert deviation.where == (3, 4)


@pytest.mark.parametrize(("name", "compute"), [("f32", "tf32"), ("s8", ""), ("e4m3", ""), ("e5m2", "")])
def test_simt_refuses_tensor_core_types(name, compute):
    rule = first_violation(lower(Gemm(64, 64, 64, "NN", name, compute)), Config(), device("h200"))
    assert rule is not None
    assert rule.name == "simt_dtype"


def test_simt_widens_bf16_from_sm_80():
    p, c = Gemm(64, 64, 64, "NN", "bf16"), Config(cp_async_a=0, cp_async_b=0, stages=2)
    assert first_violation(lower(p), c, device("sm_80")) is None
    assert first_violation(lower(p), c, device("t4")).name == "simt_dtype"


def test_poison_is_no_possible_result():
    for inputs in DTYPES.values():
        cells = np.full(2, inputs.poison, inputs.numpy)
        assert np.array_equal(cells, cells, equal_nan=not inputs.integer)
        assert inputs.poison != 0
