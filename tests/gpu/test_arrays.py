"""PyTorch tensors on a GPU: the first call and cached calls refuse the same tensors."""

from __future__ import annotations

import pytest

import ptxgen
from ptxgen.errors import InputError, OverlapError, ShapeError

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    return module


@pytest.fixture
def a(torch):
    made = torch.randn(64, 64, device="cuda")
    ptxgen.gemm(made, made)  # remembered
    return made


def test_gradients_are_refused_only_while_they_are_recorded(torch, a):
    weights = torch.nn.Parameter(a.clone())
    images, filters = torch.randn(1, 4, 8, 8, device="cuda"), torch.nn.Parameter(torch.randn(4, 4, 3, 3, device="cuda"))
    for _ in range(2):
        for call in (
            lambda: ptxgen.gemm(weights, a),
            lambda: ptxgen.gemm(a, weights),
            lambda: ptxgen.gemm(a, a, out=weights),
            lambda: ptxgen.gemm(a, a, bias=weights[0]),
            lambda: ptxgen.conv2d(images, filters),
        ):
            with pytest.raises(InputError, match="requires a gradient"):
                call()
        with torch.no_grad():
            assert torch.allclose(ptxgen.gemm(weights, a), weights @ a, atol=1e-3)
            ptxgen.conv2d(images, filters)
        assert torch.allclose(ptxgen.gemm(weights.detach(), a), weights @ a, atol=1e-3)


def test_conjugate_and_negative_views_are_refused(torch, a):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(64, 64, device="cuda")
    for x in (fake, a.to("meta"), a.to_sparse(), torch._neg_view(a), torch.imag(torch.complex(a, a).conj())):
        with pytest.raises(InputError):
            ptxgen.gemm(x, a)
        with pytest.raises(InputError):
            ptxgen.gemm(a, x)
        with pytest.raises(InputError):
            ptxgen.gemm(a, a, out=x)


def test_out_must_not_overlap_inputs(torch, a):
    memory = torch.zeros(3, 64, 64, device="cuda")
    memory[0] = a
    ptxgen.gemm(memory[0], a, out=memory[1])
    flat = memory.view(-1)
    shifted = torch.from_dlpack(flat[4000 : 4000 + 4096]).view(64, 64)
    with pytest.raises(OverlapError, match="out shares memory with a"):
        ptxgen.gemm(memory[0], a, out=shifted)
    out = torch.empty(64, 64, device="cuda")
    for given in ({"bias": out[3]}, {"residual": out}, {"scale_a": out[0], "scale_b": a[0]}):
        with pytest.raises(OverlapError):
            ptxgen.gemm(a, a, out=out, **given)
    with pytest.raises(ShapeError, match="its elements must not share memory"):
        ptxgen.gemm(a, a, out=flat.as_strided((64, 64), (32, 1)))
    rows = memory[:2].transpose(0, 1).contiguous()  # rows of a, and of out between them
    ptxgen.gemm(rows[:, 0], a, out=rows[:, 1])
    assert torch.allclose(rows[:, 1], rows[:, 0] @ a, atol=1e-3)
