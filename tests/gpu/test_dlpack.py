"""Arrays of JAX and CuPy on a GPU, and operands of several libraries in one call."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import ptxgen
from ptxgen.errors import InputError

pytestmark = pytest.mark.gpu


def integers(*shape):
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(np.float32)


@pytest.fixture(scope="module")
def jax():
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("JAX finds no GPU")
    return module


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    return module


def test_jax_arrays(jax):
    x, y, bias = integers(129, 65), integers(65, 33), integers(33)
    a, b = jax.numpy.asarray(x), jax.numpy.asarray(y)
    for _ in range(3):
        made = ptxgen.gemm(2 * a, b, bias=jax.numpy.asarray(bias))  # a temporary array
        assert isinstance(made, jax.Array)
        assert np.array_equal(made + 1, 2 * x @ y + bias + 1)
    half = ptxgen.gemm(a.astype("bfloat16"), b.astype("bfloat16"))
    assert half.dtype == jax.numpy.bfloat16
    images, filters = integers(2, 4, 9, 9), integers(6, 4, 3, 3)
    made = ptxgen.conv2d(jax.numpy.asarray(images), jax.numpy.asarray(filters), padding=1)
    assert np.array_equal(made, ptxgen.conv2d(images, filters, padding=1))
    [c] = ptxgen.gemm_grouped([a], [b])
    assert np.array_equal(c, x @ y)
    with pytest.raises(InputError, match="out is read-only"):
        ptxgen.gemm(a, b, out=c)


def test_cupy_arrays_on_streams_of_their_own(torch):
    cupy = pytest.importorskip("cupy")
    x = integers(512, 512)
    t = torch.tensor(x, device="cuda")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for n in range(1, 10):
            y = cupy.asarray(x) * n
            made = ptxgen.gemm(t, y)  # on PyTorch's stream
            assert torch.equal(made, n * (t @ t))
            again = ptxgen.gemm(y, t)  # on CuPy's stream
            assert isinstance(again, cupy.ndarray)
            assert np.array_equal(cupy.asnumpy(again), n * (x @ x))


def test_objects_with_dlpack_alone(torch):
    x = torch.tensor(integers(64, 64), device="cuda")

    def only(t):
        return SimpleNamespace(__dlpack__=t.__dlpack__, __dlpack_device__=t.__dlpack_device__)

    out = torch.empty_like(x)
    given = only(out)
    assert ptxgen.gemm(only(x), only(x), out=given) is given
    assert torch.equal(out, x @ x)
