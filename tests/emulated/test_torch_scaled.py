"""``ptxgen.torch.scaled_mm`` as an operator: compiled, with fake tensors, with the gradient of the bias."""

from __future__ import annotations

from typing import Any

import pytest

from ptxgen.errors import InputError

torch = pytest.importorskip("torch")

import ptxgen.torch as pt  # noqa: E402 needs PyTorch


def operands(blocks: bool) -> tuple[Any, ...]:
    """Integers, whose products are exact, and scales that are powers of two."""
    a, b = (torch.randint(-3, 4, shape).to(torch.float8_e4m3fn) for shape in ((40, 256), (256, 24)))
    shapes = ((40, 2), (2, 24)) if blocks else ((40, 1), (1, 24))
    return a, b, *(torch.exp2(torch.randint(-1, 2, shape).float()) for shape in shapes)


def expected(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    left = a.double() * scale_a.double().repeat_interleave(256 // scale_a.shape[1], 1)
    return left @ (b.double() * scale_b.double().repeat_interleave(256 // scale_b.shape[0], 0))


@pytest.mark.parametrize("blocks", [False, True])
def test_compiled_products_have_no_graph_break(blocks: bool) -> None:
    given = operands(blocks)

    def function(*x: Any) -> Any:
        return pt.scaled_mm(*x, out_dtype=torch.float32) + 1

    result = torch.compile(function, backend="aot_eager", fullgraph=True)(*given)
    assert torch.equal(result.double(), expected(*given) + 1)
    assert torch.equal(function(*given), result)


@pytest.mark.parametrize("blocks", [False, True])
def test_scales_may_be_of_a_type_of_powers_of_two(blocks: bool) -> None:
    a, b, *scales = operands(blocks)
    powers = [x.to(torch.float8_e8m0fnu) for x in scales]
    wanted = expected(a, b, *scales).float()
    compiled = torch.compile(pt.scaled_mm, backend="aot_eager", fullgraph=True)
    for function in (pt.scaled_mm, compiled):
        assert torch.equal(function(a, b, *powers, out_dtype=torch.float32), wanted)
    with pytest.raises(InputError, match="scale_a has dtype float16; it must be float32 or float8_e8m0fnu"):
        pt.scaled_mm(a, b, scales[0].half(), scales[1])


@pytest.mark.parametrize("type", [torch.float32, torch.float8_e8m0fnu])
def test_opcheck(type: torch.dtype) -> None:
    a, b, *scales = operands(True)
    arguments = (a, b, *(x.to(type) for x in scales), None, torch.float32, False)
    tests = ("test_faketensor", "test_aot_dispatch_dynamic")  # test_schema multiplies tensors of 8-bit floats
    checked = torch.library.opcheck(torch.ops.ptxgen.scaled_mm.default, arguments, test_utils=tests)
    assert set(checked.values()) == {"SUCCESS"}


CALLS = {
    "eager": lambda f: f,
    "compiled": lambda f: torch.compile(f, backend="aot_eager"),
    "one graph": lambda f: torch.compile(f, backend="aot_eager", fullgraph=True),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_the_bias_has_a_gradient(call: str, out_dtype: Any) -> None:
    torch.compiler.reset()
    given, factor = operands(False), torch.randint(-2, 3, (40, 24)).float()
    type = torch.float32 if out_dtype.itemsize == 1 else out_dtype
    bias = torch.randint(-2, 3, (24,)).to(type).requires_grad_()

    def function(bias: Any) -> Any:
        return (pt.scaled_mm(*given, bias, out_dtype).float() * factor).sum()

    for _ in range(2):  # the second call uses the launch of the first one
        bias.grad = None
        CALLS[call](function)(bias).backward()
        assert bias.grad is not None
        assert bias.grad.dtype is type
        assert torch.equal(bias.grad.float(), factor.sum(0))
    with torch.no_grad():
        assert not pt.scaled_mm(*given, bias, out_dtype).requires_grad
    again = torch.func.grad(function)(bias.detach())
    assert torch.equal(again.float(), factor.sum(0))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["input", "mat2", "scale_a", "scale_b"])
def test_other_tensors_have_no_gradient(call: str, name: str) -> None:
    torch.compiler.reset()
    given = dict(zip(("input", "mat2", "scale_a", "scale_b"), operands(False), strict=True))
    function = CALLS[call](lambda **x: pt.scaled_mm(**x))
    assert not function(**given).requires_grad
    given[name].requires_grad_()
    with pytest.raises(Exception, match=rf"{name} requires a gradient, and scaled_mm computes that of the bias alone"):
        function(**given)
    with torch.inference_mode():
        assert pt.scaled_mm(**given).dtype == torch.bfloat16
    with torch.no_grad():
        assert not function(**given).requires_grad


@pytest.mark.parametrize("shape", [(16, 1), (1, 16), (15,), ()])
@pytest.mark.parametrize("call", ["eager", "compiled"])
def test_the_bias_is_a_vector(call: str, shape: tuple[int, ...]) -> None:
    """Also for a square result, of which a column has as many elements."""
    torch.compiler.reset()
    a, b = (torch.ones(16, 16).to(torch.float8_e4m3fn) for _ in range(2))
    one, bias = torch.ones(()), torch.ones(shape, dtype=torch.bfloat16)
    function = CALLS[call](lambda bias: pt.scaled_mm(a, b.t(), one, one, bias))
    with pytest.raises(Exception, match=r"bias has shape \(.*\); it must be \(16,\), the columns of mat2"):
        function(bias)


def test_wrong_operands_are_named_by_compiled_code() -> None:
    a, b, scale_a, scale_b = operands(False)
    with pytest.raises(Exception, match="input has 1 dimensions and mat2 2; both must have 2"):
        torch.compile(lambda *x: pt.scaled_mm(*x), backend="aot_eager")(a[0], b, scale_a, scale_b)
    for function in (pt.scaled_mm, torch.compile(lambda *x: pt.scaled_mm(*x), backend="aot_eager")):
        with pytest.raises(Exception, match="input has 256 columns and mat2 128 rows; they must be equal"):
            function(a, b[:128], scale_a, scale_b)
