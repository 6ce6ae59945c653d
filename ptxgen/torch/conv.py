"""Convolutions, transposed convolutions and their gradients.

There are three operators: the convolution, its gradient with respect to the input, and its gradient with respect to the
weight. The gradients of each operator are computed by the other two, so that convolutions can be differentiated any
number of times. Two more operators compute an activation of the results of the first two, and two others return these
results, the sums, beside the activation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from ptxgen.api import call_lock, conv, launches
from ptxgen.api.conv_layouts import ConvArguments
from ptxgen.errors import InputError, ShapeError
from ptxgen.torch import activations, launching
from ptxgen.torch.backward_step import BackwardStep
from ptxgen.torch.launching import allocation, check_dense, check_operands, key_of
from ptxgen.torch.memory_formats import in_memory_format, memory_format
from ptxgen.torch.operator import Operator, is_legacy_batched
from ptxgen.torch.products import to_front

Shape = tuple[int, ...]
#: stride, (begin, end) of the padding of each axis, dilation, groups
Geometry = tuple[Shape, Shape, Shape, int]
PerAxis = int | Sequence[int]
CHANNELS = 1  #: the axis of channels


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    activation: str | Callable[..., Any] | None = None,
) -> Tensor:
    """``conv2d`` with one spatial axis, as ``torch.nn.functional.conv1d``: ``input`` N×C×W or C×W, ``weight``
    K×C/groups×S."""
    return _convolution(1, input, weight, bias, stride, padding, dilation, groups, activation)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    activation: str | Callable[..., Any] | None = None,
) -> Tensor:
    """The convolution of images with filters, as ``torch.nn.functional.conv2d``; the kernel adds the bias.

    ``input``: N×C×H×W, or C×H×W. ``weight``: K×C/groups×R×S. ``bias``: K elements. ``padding``: numbers, ``valid``, or
    ``same`` (which requires a stride of 1). The result is in ``channels_last`` if an operand is. Dtypes are float16,
    bfloat16, float32 and float64; tensors on the CPU are computed by the emulated device. float32 is multiplied as TF32
    if ``torch.backends.cudnn`` allows it.

    ``activation``: as for ``linear``. A gated one (swiglu, geglu, or an expression of ``x`` and ``up``) takes the
    filters of a group in pairs, a gate and a value in turn: the result has K/2 channels. The kernel computes the
    activation; if a gradient is recorded, it also stores the sums, of which PyTorch computes the gradient of the
    activation. PyTorch computes a gated activation if a gradient is recorded or the dtype is float64, and for float64
    another one if PTX lacks the functions.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """
    return _convolution(2, input, weight, bias, stride, padding, dilation, groups, activation)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    activation: str | Callable[..., Any] | None = None,
) -> Tensor:
    """``conv2d`` with three spatial axes, as ``torch.nn.functional.conv3d``: ``input`` N×C×D×H×W or C×D×H×W, ``weight``
    K×C/groups×T×R×S."""
    return _convolution(3, input, weight, bias, stride, padding, dilation, groups, activation)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
    *,
    activation: str | Callable[..., Any] | None = None,
) -> Tensor:
    """``conv_transpose2d`` with one spatial axis, as ``torch.nn.functional.conv_transpose1d``: ``weight``
    C×K/groups×S."""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation, activation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
    *,
    activation: str | Callable[..., Any] | None = None,
) -> Tensor:
    """The transposed convolution, as ``torch.nn.functional.conv_transpose2d``: the gradient of ``conv2d`` with respect
    to its input. ``input``: N×C×H×W, or C×H×W. ``weight``: C×K/groups×R×S. ``activation``: of ``x`` alone. Other
    arguments, dtypes and errors: as for ``conv2d``."""
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation, activation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
    *,
    activation: str | Callable[..., Any] | None = None,
) -> Tensor:
    """``conv_transpose2d`` with three spatial axes, as ``torch.nn.functional.conv_transpose3d``: ``weight``
    C×K/groups×T×R×S."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation, activation)


# ---- arguments


def _convolution(
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: PerAxis,
    padding: PerAxis | str,
    dilation: PerAxis,
    groups: int,
    activation: Any,
) -> Tensor:
    text = None if activation is None else activations.given(activation)
    if not _has_batch(dims, input, weight):
        one = input.unsqueeze(0)
        return _convolution(dims, one, weight, bias, stride, padding, dilation, groups, text).squeeze(0)
    taps = tuple(weight.shape[2:]) if isinstance(padding, str) else None
    geometry = _geometry(dims, stride, padding, dilation, groups, taps)
    _activated_shape((input.shape[0], weight.shape[0]), geometry[-1], text)
    return _activated(CONV, CONV_ACTIVATION, CONV_ACTIVATION_SUMS, text, input, weight, bias, *geometry)


def _transposed(
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: PerAxis,
    padding: PerAxis,
    output_padding: PerAxis,
    groups: int,
    dilation: PerAxis,
    activation: Any,
) -> Tensor:
    text = None if activation is None else activations.given_elementwise(activation)
    if isinstance(padding, str):
        raise InputError(f"padding is {padding!r}; a transposed convolution takes numbers")
    if not _has_batch(dims, input, weight):
        one = input.unsqueeze(0)
        whole = _transposed(dims, one, weight, bias, stride, padding, output_padding, groups, dilation, text)
        return whole.squeeze(0)
    more = _per_axis(dims, "output_padding", output_padding, 0)
    geometry = _geometry(dims, stride, padding, dilation, groups, None)
    strides, pads, dilations, groups = geometry
    if any(more[i] >= max(strides[i], dilations[i]) for i in range(dims)):
        raise ShapeError(f"output_padding is {more}; it must be smaller than stride {strides} or dilation {dilations}")
    if any(more[i] >= strides[i] for i in range(dims)):  # pixels that further pixels of input, zeros, would reach
        ends = [n for i in reversed(range(dims)) for n in (0, more[i] // strides[i])]
        input, more = torch.nn.functional.pad(input, ends), tuple(more[i] % strides[i] for i in range(dims))
    extents = (
        (input.shape[i + 2] - 1) * strides[i]
        - pads[2 * i]
        - pads[2 * i + 1]
        + dilations[i] * (weight.shape[i + 2] - 1)
        + more[i]
        + 1
        for i in range(dims)
    )
    shape = (input.shape[0], weight.shape[1] * groups, *extents)
    if input.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        raise ShapeError(
            f"input has {input.shape[1]} channels, weight has shape {tuple(weight.shape)} and groups is {groups}; the"
            " first axis of weight must be the channels, and a multiple of groups"
        )
    if any(n < 1 for n in shape[2:]):
        raise ShapeError(f"padding is {padding}; the result would have shape {tuple(shape)}, without pixels")
    operators = CONV_INPUT_GRAD, CONV_INPUT_GRAD_ACTIVATION, CONV_INPUT_GRAD_ACTIVATION_SUMS
    return _activated(*operators, text, input, weight, bias, shape, *geometry)


def _activated(
    product: Operator,
    activated: Operator,
    stored: Operator,
    text: str | None,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *rest: Any,
) -> Tensor:
    """The result of ``product``, or its activation. Where a gradient is recorded, ``stored`` computes the activation
    and the sums, which the gradient reads; else ``activated`` computes the activation alone."""
    result: Tensor
    if text is None:
        result = product(input, weight, bias, *rest)
    elif activations.records_gradient(input, weight, bias):
        result = stored(input, weight, bias, *rest, text)[0]
    else:
        result = activated(input, weight, bias, *rest, text)
    return result


def _has_batch(dims: int, input: Tensor, weight: Tensor) -> bool:
    """True if ``input`` has a batch axis, False if it is one image. InputError: an operand is not a dense tensor.
    ShapeError: the operands do not have the number of axes of a convolution."""
    try:
        if input.dim() == weight.dim() == dims + 2:
            return True
    except AttributeError:  # no tensor
        pass
    check_dense("input", input)
    check_dense("weight", weight)
    if input.dim() != dims + 1 or weight.dim() != dims + 2:
        raise ShapeError(
            f"input has {input.dim()} axes and weight {weight.dim()}; a convolution with {dims} spatial axes takes"
            f" {dims + 2}, or {dims + 1} for one image, and {dims + 2}"
        )
    return False


def _geometry(dims: int, stride: Any, padding: Any, dilation: Any, groups: Any, taps: Shape | None) -> Geometry:
    """The geometry that a user's arguments describe. ``taps``: the extents of the filter, for padding ``same`` and
    ``valid``."""
    if not is_dynamo_compiling():  # dynamo traces cached functions with a warning
        try:
            return _cached_geometry(dims, stride, padding, dilation, groups, taps)
        except TypeError:  # lists
            pass
    return _new_geometry(dims, stride, padding, dilation, groups, taps)


def _new_geometry(dims: int, stride: Any, padding: Any, dilation: Any, groups: Any, taps: Shape | None) -> Geometry:
    strides, dilations = _per_axis(dims, "stride", stride, 1), _per_axis(dims, "dilation", dilation, 1)
    (groups,) = _per_axis(1, "groups", groups, 1)
    if not isinstance(padding, str):
        pads = _per_axis(dims, "padding", padding, 0)
        return strides, tuple(p for p in pads for _ in (0, 1)), dilations, groups
    if padding == "valid":
        return strides, (0,) * (2 * dims), dilations, groups
    if padding != "same":
        raise InputError(f"padding is {padding!r}; it must be same, valid, or numbers")
    if any(s != 1 for s in strides):
        raise ShapeError(f"padding is 'same' and stride is {strides}; padding 'same' requires a stride of 1")
    wholes = [dilations[i] * (t - 1) for i, t in enumerate(taps or ())]
    return strides, tuple(p for whole in wholes for p in (whole // 2, whole - whole // 2)), dilations, groups


@lru_cache(maxsize=1024, typed=True)  # typed: 1.0 equals 1
def _cached_geometry(*arguments: Any) -> Geometry:
    """``_new_geometry``, cached. TypeError: an argument is mutable, as lists and tensors are."""
    if any(isinstance(x, Tensor) for a in arguments for x in (a if isinstance(a, tuple) else (a,))):
        raise TypeError("a tensor is no key")
    return _new_geometry(*arguments)


def _per_axis(dims: int, name: str, value: Any, least: int) -> Shape:
    """``value`` as one integer for each axis. ShapeError: the number of integers is wrong, or an integer is below
    ``least``."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    values = values * dims if len(values) == 1 else values
    try:  # the cache would return (1.0, 1.0) to later calls with (1, 1), which equals it
        values = tuple(v if isinstance(v, torch.SymInt) else int(index(v)) for v in values)
    except TypeError:  # a number that is not an integer
        values = ()
    if len(values) != dims or any(v < least for v in values):
        several = f", or {dims} such integers" if dims > 1 else ""
        raise ShapeError(f"{name} is {value!r}; it must be an integer from {least}{several}")
    return values


# ---- kernels


def _key(
    signature: conv.Signature,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    shape: Any,
    geometry: tuple[Any, ...],
    text: str | None = None,
    stores_sums: bool = False,
) -> Any:
    shape = tuple(shape) if shape.__class__ is list else shape
    options = launching.settings(a, "conv"), shape, _hashable(geometry), text, stores_sums
    return key_of(signature.direction, options, a, b, bias)


def _kernel(
    signature: conv.Signature,
    names: tuple[str, str],
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    shape: Sequence[int] | None,
    geometry: tuple[Any, ...],
    text: str | None = None,
    sums: Tensor | None = None,
) -> Tensor:
    """The result of the operation that a signature of ``ptxgen.api.conv`` names. ``names``: the names of ``a`` and
    ``b`` in errors; ``shape``: the shape of a gradient, None for a convolution; ``geometry``: stride, padding, dilation
    and groups; ``text``: the activation; ``sums``: a new tensor like the result, to which the sums are stored, or
    None."""
    key, at_a, at_b, at_bias = _key(signature, a, b, bias, shape, geometry, text, sums is not None)
    launch = launches.cached(key)
    if launch is not None:
        return launching.launch(*launch[:2], at_a, at_b, at_bias if sums is None else (*at_bias, sums.data_ptr()))
    (tf32, deterministic), geometry = launching.settings(a, "conv"), _hashable(geometry)
    stride, padding, dilation, groups = geometry
    check_operands(**{names[0]: a, names[1]: b, "bias": bias})
    shape = _result_shape(a, b, bias, *geometry) if shape is None else tuple(shape)
    out = _empty(_activated_shape(shape, groups, text), a, b)
    if 0 in shape:
        return out
    if 0 in a.shape or 0 in b.shape:  # sums without terms
        sums = _empty(shape, a, b) if sums is None else sums
        sums = sums.zero_() if bias is None else sums.copy_(bias.view(-1, *(1,) * (sums.dim() - 2)).expand(shape))
        return sums if text is None else activations.value(text, sums, CHANNELS)
    pairs = tuple(zip(padding[::2], padding[1::2], strict=True))
    arguments = ConvArguments(out.dim() - 2, stride, pairs, dilation, groups).resolved()
    first, second, third = a.resolve_neg(), b.resolve_neg(), launching.vector(bias)
    channels = (b.shape if signature is not conv.WEIGHT_GRAD else shape)[1]
    tf32 = tf32 and channels > 1  # filters of one channel have a family of kernels in f32, which memory limits
    key = key if launching.in_place((first, a), (second, b), (third, bias)) else None
    with call_lock.lock:
        conv.launch_uncached(
            key,
            signature,
            first,
            second,
            None if signature is conv.FORWARD else shape,
            arguments,
            out,
            launching.compute(a, tf32),
            deterministic,
            (third, None, sums, None),
            text,
            None,
            allocation(out),
        )
    return out


def _hashable(geometry: tuple[Any, ...]) -> tuple[Any, ...]:
    """Stride, padding, dilation and groups with tuples in place of the lists that the dispatcher passes."""
    return geometry if geometry[0].__class__ is not list else (*map(tuple, geometry[:3]), geometry[3])


def _conv(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    return _kernel(conv.FORWARD, ("input", "weight"), input, weight, bias, None, rest)


def _conv_activation(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    *geometry, activation = rest
    text = activations.checked(activation)
    if not activations.has_kernel(text, input.dtype):
        _activated_shape((input.shape[0], weight.shape[0]), geometry[-1], text)
        return activations.value(text, _conv(input, weight, bias, *geometry), CHANNELS)
    return _kernel(conv.FORWARD, ("input", "weight"), input, weight, bias, None, tuple(geometry), text)


def _input_grad_activation(grad: Tensor, weight: Tensor, bias: Tensor | None, shape: Any, *rest: Any) -> Tensor:
    *geometry, activation = rest
    text = _elementwise(activation)
    if not activations.has_kernel(text, grad.dtype):
        return activations.value(text, _conv_input_grad(grad, weight, bias, shape, *geometry))
    return _kernel(conv.INPUT_GRAD, ("grad", "weight"), grad, weight, bias, shape, tuple(geometry), text)


def _conv_activation_sums(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    *geometry, activation = rest
    text = activations.checked(activation)
    if activations.is_gated(text) or not activations.has_kernel(text, input.dtype):
        _activated_shape((input.shape[0], weight.shape[0]), geometry[-1], text)
        sums = _conv(input, weight, bias, *geometry)
        return activations.value(text, sums, CHANNELS), sums
    check_operands(input=input, weight=weight, bias=bias)
    sums = _empty(_result_shape(input, weight, bias, *geometry), input, weight)
    names = "input", "weight"
    return _kernel(conv.FORWARD, names, input, weight, bias, None, tuple(geometry), text, sums), sums


def _input_grad_activation_sums(
    grad: Tensor, weight: Tensor, bias: Tensor | None, shape: Any, *rest: Any
) -> tuple[Tensor, Tensor]:
    *geometry, activation = rest
    text = _elementwise(activation)
    if not activations.has_kernel(text, grad.dtype):
        sums = _conv_input_grad(grad, weight, bias, shape, *geometry)
        return activations.value(text, sums), sums
    check_operands(grad=grad, weight=weight, bias=bias)
    sums, names = _empty(shape, grad, weight), ("grad", "weight")
    return _kernel(conv.INPUT_GRAD, names, grad, weight, bias, shape, tuple(geometry), text, sums), sums


def _elementwise(activation: str) -> str:
    """The canonical text of an activation of transposed convolutions. InputError: it breaks a rule."""
    return activations.require_elementwise(activations.checked(activation))


def _conv_activation_key(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Any:
    return _key(conv.FORWARD, input, weight, bias, None, rest[:-1], activations.checked(rest[-1]))


def _input_grad_activation_key(grad: Tensor, weight: Tensor, bias: Tensor | None, shape: Any, *rest: Any) -> Any:
    return _key(conv.INPUT_GRAD, grad, weight, bias, shape, rest[:-1], _elementwise(rest[-1]))


def _conv_key(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Any:
    return _key(conv.FORWARD, input, weight, bias, None, rest)


def _input_grad_key(grad: Tensor, weight: Tensor, bias: Tensor | None, shape: Any, *rest: Any) -> Any:
    return _key(conv.INPUT_GRAD, grad, weight, bias, shape, rest)


def _conv_input_grad(grad: Tensor, weight: Tensor, bias: Tensor | None, shape: Sequence[int], *rest: Any) -> Tensor:
    return _kernel(conv.INPUT_GRAD, ("grad", "weight"), grad, weight, bias, shape, rest)


def _conv_weight_grad(input: Tensor, grad: Tensor, shape: Sequence[int], *rest: Any) -> Tensor:
    return _kernel(conv.WEIGHT_GRAD, ("input", "grad"), input, grad, None, shape, rest)


# ---- shapes and memory formats


def _result_shape(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Shape:
    """The shape of the result of a convolution. ShapeError: the shapes of the operands do not match."""
    if groups < 1 or input.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise ShapeError(
            f"input has {input.shape[1]} channels, weight has shape {tuple(weight.shape)} and groups is {groups};"
            " weight must have channels/groups on its second axis, and its first axis must be a multiple of groups"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ShapeError(f"bias has shape {tuple(bias.shape)}; it must be ({weight.shape[0]},), one per filter")
    if 0 in weight.shape[2:]:
        raise ShapeError(f"weight has shape {tuple(weight.shape)}; each spatial axis must have at least one element")
    extents = []
    for i, (n, taps) in enumerate(zip(input.shape[2:], weight.shape[2:], strict=True)):
        whole, tap = n + padding[2 * i] + padding[2 * i + 1], dilation[i] * (taps - 1) + 1
        if whole < tap:
            raise ShapeError(
                f"input has {n} pixels along axis {i + 2}, {whole} with padding; weight needs {tap} (with dilation)"
            )
        extents.append((whole - tap) // stride[i] + 1)
    return input.shape[0], weight.shape[0], *extents


def _activated_shape(shape: Sequence[int], groups: int, text: str | None) -> Shape:
    """The shape of the activation of sums of shape ``shape``: a gated activation takes the channels of a group in
    pairs. ShapeError: their number is odd."""
    if text is None or not activations.is_gated(text):
        return tuple(shape)
    filters = shape[CHANNELS]
    if groups > 0 and filters // groups % 2:
        raise ShapeError(
            f"weight has {filters} filters and groups is {groups}; a gated activation takes an even number of filters"
            " in a group, a gate and a value in turn"
        )
    return *shape[:CHANNELS], filters // 2, *shape[CHANNELS + 1 :]


def _empty(shape: Sequence[int], a: Tensor, b: Tensor) -> Tensor:
    return torch.empty(shape, dtype=a.dtype, device=a.device, memory_format=memory_format(a, b))


def _fake_conv(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    check_operands(input=input, weight=weight, bias=bias)
    return _empty(_result_shape(input, weight, bias, *rest), input, weight)


def _fake_input_grad(grad: Tensor, weight: Tensor, bias: Tensor | None, shape: Sequence[int], *rest: Any) -> Tensor:
    check_operands(grad=grad, weight=weight, bias=bias)
    return _empty(shape, grad, weight)


def _fake_conv_activation(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    *geometry, activation = rest
    shape = _fake_conv(input, weight, bias, *geometry).shape
    return _empty(_activated_shape(shape, geometry[-1], activations.checked(activation)), input, weight)


def _fake_input_grad_activation(*args: Any) -> Tensor:
    _elementwise(args[-1])
    return _fake_input_grad(*args[:-1])


def _fake_conv_activation_sums(*args: Any) -> tuple[Tensor, Tensor]:
    return _fake_conv_activation(*args), _fake_conv(*args[:-1])


def _fake_input_grad_activation_sums(*args: Any) -> tuple[Tensor, Tensor]:
    return _fake_input_grad_activation(*args), _fake_input_grad(*args[:-1])


def _fake_weight_grad(input: Tensor, grad: Tensor, shape: Sequence[int], *rest: Any) -> Tensor:
    check_operands(input=input, grad=grad)
    return _empty(shape, input, grad)


# ---- gradients


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.rest = inputs[-4:]


def _in_format_of(x: Tensor, *operands: Tensor) -> Tensor:
    """A gradient in the memory format of the operands, with the strides of that format, so that no kernel of a backward
    step copies it."""
    if is_legacy_batched(x):
        return x
    return in_memory_format(x, memory_format(*operands))


def _sum_by_channel(grad: Tensor) -> Tensor:
    """The gradient of a bias: the sum of ``grad`` for each channel."""
    return grad.sum([0, *range(2, grad.dim())])


def _backward_keys(grad: Tensor, weight: Tensor, input: Tensor, rest: tuple[Any, ...]) -> tuple[Any, Any]:
    return (
        _key(conv.INPUT_GRAD, grad, weight, None, input.shape, rest),
        _key(conv.WEIGHT_GRAD, input, grad, None, weight.shape, rest),
    )


_BACKWARD = BackwardStep("conv", _backward_keys, input_first=True)


def _gradients_of_conv(
    input: Tensor, weight: Tensor, grad: Tensor, needs: tuple[bool, ...], rest: tuple[Any, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients of the input, the weight and the bias of a convolution for ``grad``, that of its result. ``needs``:
    True for those to compute."""
    operands = grad, weight, input
    step = _BACKWARD.get(operands, needs, rest)
    if step is None:
        grad = _in_format_of(grad, input, weight)
        step = (
            CONV_INPUT_GRAD(grad, weight, None, input.shape, *rest) if needs[0] else None,
            CONV_WEIGHT_GRAD(input, grad, weight.shape, *rest) if needs[1] else None,
        )
        if grad is operands[0]:
            _BACKWARD.missed(operands, needs, rest)
    return *step, _sum_by_channel(grad) if needs[2] else None


def _conv_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    input, weight = ctx.saved_tensors
    return *_gradients_of_conv(input, weight, grad, ctx.needs_input_grad, ctx.rest), *(None,) * 4


def _gradients_of_input_grad(
    dy: Tensor, weight: Tensor, grad: Tensor, needs: tuple[bool, ...], rest: tuple[Any, ...]
) -> tuple[Tensor | None, ...]:
    """``_gradients_of_conv`` of an input gradient, whose operands are ``dy`` and the weight."""
    grad = _in_format_of(grad, dy, weight)
    return (
        CONV(grad, weight, None, *rest) if needs[0] else None,
        CONV_WEIGHT_GRAD(grad, dy, weight.shape, *rest) if needs[1] else None,
        _sum_by_channel(grad) if needs[2] else None,
    )


def _input_grad_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    dy, weight = ctx.saved_tensors
    return *_gradients_of_input_grad(dy, weight, grad, ctx.needs_input_grad, ctx.rest), *(None,) * 5


def _save_activation(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.rest = inputs[3:]


def _conv_activation_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (input, weight, bias), (*rest, text) = ctx.saved_tensors, ctx.rest
    dy = activations.gradient(activations.checked(text), grad, CONV(input, weight, bias, *rest), CHANNELS)
    return *_gradients_of_conv(input, weight, dy, ctx.needs_input_grad, tuple(rest)), *(None,) * 5


def _input_grad_activation_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (input, weight, bias), (shape, *rest, text) = ctx.saved_tensors, ctx.rest
    dy = activations.gradient(_elementwise(text), grad, CONV_INPUT_GRAD(input, weight, bias, shape, *rest))
    return *_gradients_of_input_grad(input, weight, dy, ctx.needs_input_grad, tuple(rest)), *(None,) * 6


def _save_sums(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2], output[1])
    *ctx.rest, ctx.activation = inputs[-5:]
    ctx.set_materialize_grads(False)


def _backward_of_sums(gradients: Callable[..., tuple[Tensor | None, ...]], inputs: int) -> Callable[..., Any]:
    """The backward step of an operator that returns an activation and its sums. ``gradients``: computes the gradients
    of the operands from that of the sums; ``inputs``: the number of the operator's inputs."""

    def backward(ctx: Any, grad: Tensor | None, of_sums: Tensor | None) -> tuple[Any, ...]:
        input, weight, sums = ctx.saved_tensors
        dy = of_sums
        if grad is not None:
            through = activations.gradient(activations.checked(ctx.activation), grad, sums, CHANNELS)
            dy = through if of_sums is None else through + of_sums
        if dy is None:
            return (None,) * inputs
        return *gradients(input, weight, dy, ctx.needs_input_grad, tuple(ctx.rest)), *(None,) * (inputs - 3)

    return backward


def _weight_grad_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (input, dy), needs = ctx.saved_tensors, ctx.needs_input_grad
    grad = _in_format_of(grad, input, dy)
    return (
        CONV_INPUT_GRAD(dy, grad, None, input.shape, *ctx.rest) if needs[0] else None,
        CONV(input, grad, None, *ctx.rest) if needs[1] else None,
        *(None,) * 5,
    )


# ---- torch.vmap: a batch becomes further images where all items have the same filters, and further groups otherwise


def _into_axis(x: Tensor, dim: int | None, count: int, axis: int) -> Tensor:
    """``x`` with its batch axis ``dim`` joined with ``axis``, the batch outermost. Without a batch (None), ``count``
    copies of ``x`` are its batch."""
    x = x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.movedim(0, axis).flatten(axis, axis + 1)


def _split(y: Tensor, axis: int, count: int, extent: int) -> Tensor:
    """The inverse of ``_into_axis``: ``y`` with the batch as its first axis. ``extent``: the extent of ``axis`` in one
    item."""
    return y.unflatten(axis, (count, extent)).movedim(axis, 0)


def _extent(x: Tensor, dim: int | None, axis: int) -> int:
    """The extent of an axis of one item of the batch, whose axis in ``x`` is ``dim``."""
    extent: int = x.shape[axis + (dim is not None and dim <= axis)]
    return extent


def _scaled(shape: Sequence[int], count: int, axis: int) -> Shape:
    return *shape[:axis], shape[axis] * count, *shape[axis + 1 :]


def _batch_conv(
    info: Any, dims: tuple[Any, ...], input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, int]:
    count, (*geometry, groups) = info.batch_size, rest
    own = dims[2] is not None  # a bias for each item is added after the convolution
    shared = None if own else bias
    if dims[1] is None:
        y = _split(
            CONV(_into_axis(input, dims[0], count, 0), weight, shared, *rest), 0, count, _extent(input, dims[0], 0)
        )
    else:
        x, w = _into_axis(input, dims[0], count, 1), _into_axis(weight, dims[1], count, 0)
        repeated = None if shared is None else shared.repeat(count)
        y = _split(CONV(x, w, repeated, *geometry, groups * count), 1, count, _extent(weight, dims[1], 0))
    return _with_bias(y, to_front(bias, dims[2]) if own else None), 0


def _batch_input_grad(
    info: Any,
    dims: tuple[Any, ...],
    grad: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: Sequence[int],
    *rest: Any,
) -> tuple[Tensor, int]:
    count, (*geometry, groups) = info.batch_size, rest
    own = dims[2] is not None
    shared = None if own else bias
    if dims[1] is None:
        dy = _into_axis(grad, dims[0], count, 0)
        y = _split(CONV_INPUT_GRAD(dy, weight, shared, _scaled(shape, count, 0), *rest), 0, count, shape[0])
    else:
        dy, w = _into_axis(grad, dims[0], count, 1), _into_axis(weight, dims[1], count, 0)
        repeated = None if shared is None else shared.repeat(count)
        y = CONV_INPUT_GRAD(dy, w, repeated, _scaled(shape, count, 1), *geometry, groups * count)
        y = _split(y, 1, count, shape[1])
    return _with_bias(y, to_front(bias, dims[2]) if own else None), 0


def _batch_activation(batch: Callable[..., tuple[Tensor, int]]) -> Callable[..., tuple[Tensor, int]]:
    """The rule for a product's activation. PyTorch computes it, because a bias may follow the product."""

    def activated(info: Any, dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        sums, at = batch(info, dims, *args[:-1])
        result: Tensor = activations.ACTIVATION(sums, args[-1], CHANNELS + 1)
        return result, at

    return activated


def _batch_sums(batch: Callable[..., tuple[Tensor, int]]) -> Callable[..., Any]:
    """``_batch_activation`` of an operator that returns the activation and the sums."""

    def activated(info: Any, dims: tuple[Any, ...], *args: Any) -> Any:
        sums, at = batch(info, dims, *args[:-1])
        return (activations.ACTIVATION(sums, args[-1], CHANNELS + 1), sums), (at, at)

    return activated


def _with_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """``y`` plus the bias. The first axis of both is the batch, each item of which has its own bias."""
    return y if bias is None else y + bias.reshape(bias.shape[0], 1, -1, *(1,) * (y.dim() - 3))


def _batch_weight_grad(
    info: Any, dims: tuple[Any, ...], input: Tensor, grad: Tensor, shape: Sequence[int], *rest: Any
) -> tuple[Tensor, int]:
    count, (*geometry, groups) = info.batch_size, rest
    x, dy = _into_axis(input, dims[0], count, 1), _into_axis(grad, dims[1], count, 1)
    y = CONV_WEIGHT_GRAD(x, dy, _scaled(shape, count, 0), *geometry, groups * count)
    return _split(y, 0, count, shape[0]), 0


GEOMETRY = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups"
CONV = Operator(
    f"conv(Tensor input, Tensor weight, Tensor? bias, {GEOMETRY}) -> Tensor",
    3,
    _conv,
    _fake_conv,
    _save,
    _conv_backward,
    _batch_conv,
    _conv_key,
    "conv",
)
CONV_INPUT_GRAD = Operator(
    f"conv_input_grad(Tensor grad, Tensor weight, Tensor? bias, SymInt[] shape, {GEOMETRY}) -> Tensor",
    3,
    _conv_input_grad,
    _fake_input_grad,
    _save,
    _input_grad_backward,
    _batch_input_grad,
    _input_grad_key,
    "conv",
)
CONV_ACTIVATION = Operator(
    f"conv_activation(Tensor input, Tensor weight, Tensor? bias, {GEOMETRY}, str activation) -> Tensor",
    3,
    _conv_activation,
    _fake_conv_activation,
    _save_activation,
    _conv_activation_backward,
    _batch_activation(_batch_conv),
    _conv_activation_key,
    "conv",
)
CONV_INPUT_GRAD_ACTIVATION = Operator(
    f"conv_input_grad_activation(Tensor grad, Tensor weight, Tensor? bias, SymInt[] shape, {GEOMETRY}, str activation)"
    " -> Tensor",
    3,
    _input_grad_activation,
    _fake_input_grad_activation,
    _save_activation,
    _input_grad_activation_backward,
    _batch_activation(_batch_input_grad),
    _input_grad_activation_key,
    "conv",
)
CONV_ACTIVATION_SUMS = Operator(
    f"conv_activation_sums(Tensor input, Tensor weight, Tensor? bias, {GEOMETRY}, str activation) -> (Tensor, Tensor)",
    3,
    _conv_activation_sums,
    _fake_conv_activation_sums,
    _save_sums,
    _backward_of_sums(_gradients_of_conv, 8),
    _batch_sums(_batch_conv),
)
CONV_INPUT_GRAD_ACTIVATION_SUMS = Operator(
    "conv_input_grad_activation_sums(Tensor grad, Tensor weight, Tensor? bias, SymInt[] shape,"
    f" {GEOMETRY}, str activation) -> (Tensor, Tensor)",
    3,
    _input_grad_activation_sums,
    _fake_input_grad_activation_sums,
    _save_sums,
    _backward_of_sums(_gradients_of_input_grad, 9),
    _batch_sums(_batch_input_grad),
)
CONV_WEIGHT_GRAD = Operator(
    f"conv_weight_grad(Tensor input, Tensor grad, SymInt[] shape, {GEOMETRY}) -> Tensor",
    2,
    _conv_weight_grad,
    _fake_weight_grad,
    _save,
    _weight_grad_backward,
    _batch_weight_grad,
)
