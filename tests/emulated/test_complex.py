"""Products of complex numbers, executed with checks for races, bounds and uninitialised reads; every part of every
element is compared."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_runs import execute, verify

import ptxgen
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.lowering.complex_product import ComplexProduct
from ptxgen.operations.gemm.checks import check_gemm
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.reference import INPUTS, operands
from ptxgen.runtime.emulated import EmulatedDriver
from tests.cases.complex import SOURCE

#: serves every alignment and every target
ANY = "ms=2 ns=2 ml=16 nl=16 u=16 cp_async_a=0 cp_async_b=0 stages=2"
#: alpha and beta: none, real, imaginary, both; a C that is not read, and a product that is 0
SCALES = ((1.0, 0.0), (2.0, -1.0), (1j, 0.0), (1.0, 1j), (-0.5 + 0.25j, 1 - 2j), (0.0, 2j))


@pytest.mark.first(3)
@pytest.mark.parametrize("n", range(8))
def test_random_problems_and_configurations(n):
    """Types, layouts, extents, leading dimensions, batches, every axis."""
    on = ("emulated", "t4", "a100", "h200")[n % 4]
    for i, (p, c) in enumerate(SOURCE.cases(n, 2, device(on), limit=40, threads=128)):
        alpha, beta = SCALES[(2 * n + i) % len(SCALES)]
        verify(p, c, INPUTS[(n + i) % len(INPUTS)], alpha, beta, n, on=on, seed=n)


def test_conjugation_and_order_are_exact_on_integers():
    """Elements, rows and columns have different parts, so that a wrong sign of one part changes a result."""
    rng = np.random.default_rng(1)
    for layout, (alpha, beta) in zip(("NN", "NC", "CN", "CC", "TR", "RT"), SCALES, strict=True):
        p = Gemm(5, 7, 9, layout, "c64", lda=11, ldb=11, ldc=8)
        a, b, c = (
            (rng.integers(-3, 4, shape) + 1j * rng.integers(-3, 4, shape)).astype(np.complex64) for shape in p.stored
        )
        got = execute(p, parse_config(ANY), (a, b, c), alpha, beta)
        left, right = (x.conj() if letter in "CR" else x for x, letter in zip((a, b), layout, strict=True))
        product = (left.T if layout[0] in "TC" else left) @ (right.T if layout[1] in "TC" else right)
        assert np.array_equal(got, alpha * product + beta * c), layout


@pytest.mark.each_value
@pytest.mark.parametrize(
    "how",
    [
        "ks=2 kl=2",
        "kg=3 splitk=memset_red",
        "kg=2 splitk=flag_red epilogue_smem=1",
        "kg=3 splitk=workspace kl=2",
        "bounds=predicate fragment_prefetch=0",
    ],
)
@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_slices_of_k_add_both_parts(dtype, how):
    p = Gemm(19, 22, 48, "CN", dtype)
    c = parse_config(f"{ANY} {how}")
    verify(p, c, "integers", 1 - 1j, 2j)


@pytest.mark.parametrize(
    ("layout", "on", "how"),
    [
        ("NC", "a100", "ms=16 ns=8 ml=32 nl=16 u=8 fragment_prefetch=0"),
        ("CN", "h200", "ms=32 ns=8 ml=32 nl=16 u=16 kl=2"),
        ("RT", "h200", "ms=16 ns=16 ml=32 nl=32 u=8 kg=2 splitk=flag_red"),
        ("CC", "h200", "ms=16 ns=24 ml=32 nl=24 u=8 epilogue_smem=1 cp_async_a=0"),
    ],
)
def test_tensor_cores_multiply_parts(layout, on, how):
    verify(Gemm(37, 27, 21, layout, "c128", ldc=29), parse_config(f"family=mma {how}"), "integers", 1j, 2 - 1j, on=on)


def test_check_reports_a_conjugation_that_is_missing(monkeypatch):
    """The float64 reference, its error bound, and the guard of memory between rows; then a wrong kernel."""
    p, c, driver = Gemm(9, 10, 11, "RT", "c64", ldc=12), parse_config(ANY), EmulatedDriver(device("h200"))
    assert all(r.ok for r in check_gemm(driver, p, c, row_padding=1))
    plain = ComplexProduct().products
    monkeypatch.setattr(ComplexProduct, "products", plain)
    assert not any(r.ok for r in check_gemm(driver, p, c))


def test_extents_of_zero_and_one():
    for shape in ((0, 3, 4), (1, 1, 1), (3, 1, 5), (1, 4, 0)):
        p = Gemm(*shape, "CN", "c64")
        a, b, c = operands(p).values()
        got = ptxgen.gemm(a.conj().T, b, beta=1j, out=c.copy())
        assert np.allclose(got, a.conj().T @ b + 1j * c, atol=1e-5)


def test_calls_on_arrays_of_numpy_and_pytorch():
    rng = np.random.default_rng(2)

    def draw(*shape, dtype=np.complex64):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)

    a, b = draw(9, 6), draw(6, 7)
    column_major = np.asfortranarray(draw(9, 7))
    expected = (2 - 1j) * (a @ b) + 1j * column_major
    assert np.allclose(ptxgen.gemm(a, b, alpha=2 - 1j, beta=np.complex64(1j), out=column_major), expected, atol=1e-5)
    x, y = draw(3, 5, 4, dtype=np.complex128), draw(3, 4, 2, dtype=np.complex128)
    assert np.allclose(ptxgen.gemm(x, y), x @ y, atol=1e-13)
    torch = pytest.importorskip("torch")
    left, right = torch.from_numpy(draw(6, 9)), torch.from_numpy(draw(7, 6))
    for u, v in ((left.H, right.H), (left.T.conj(), right.T), (left.T, right.T.conj())):
        result = ptxgen.gemm(u, v)
        assert not result.is_conj()
        assert torch.allclose(result, u @ v, atol=1e-5)
    into = torch.empty(7, 9, dtype=torch.complex64).T  # C is column-major, so A and B are exchanged
    assert torch.allclose(ptxgen.gemm(left.H, right.H, out=into), left.H @ right.H, atol=1e-5)
    with pytest.raises(InputError, match="out is a view with the conjugate bit"):
        ptxgen.gemm(left.T, right.T, out=torch.empty(9, 7, dtype=torch.complex64).conj())


def test_what_complex_products_do_not_have_is_named():
    a = np.ones((4, 4), np.complex64)
    for error, message, options in (
        (DtypeError, "epilogue is 'relu'; products of c64 have none", {"activation": "relu"}),
        (DtypeError, "epilogue is 'bias_column'; products of c64 have none", {"bias": a[0]}),
        (DtypeError, "out is f32; with a and b of c64 it must be c64", {"out": np.empty((4, 4), np.float32)}),
        (DtypeError, "compute is 'f16'; with dtype c64 it must be", {"compute": "f16"}),
    ):
        with pytest.raises(error, match=message):
            ptxgen.gemm(a, a, **options)
    with pytest.raises(InputError, match="alpha is 0\\+1j; with operands of float32 it must be a real number"):
        ptxgen.gemm(a.real.copy(), a.real.copy(), alpha=1j)
    with pytest.raises(ShapeError, match="layout is 'CN'; it must be one of NN, NT, TN, TT"):
        Gemm(4, 4, 4, "CN")
    with pytest.raises(DtypeError, match="dtype is c64; grouped has no complex types, only gemm has"):
        ptxgen.gemm_grouped([a], [a])
