"""Convolutions as users call them from Python, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxgen.api import launch_cache
from ptxgen.api.arrays import View, aligned, direct, on_host, tensor
from ptxgen.api.conv_layouts import FILTERS, LAYOUTS, Extents, Window, inverse
from ptxgen.arguments import flag, plain, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.lowering.lower import lower
from ptxgen.problem.base import EPILOGUE_OPS, OUT_DTYPES
from ptxgen.problem.conv import Conv
from ptxgen.problem.dtypes import ALLOWED
from ptxgen.runtime.runner import Runner

ACTIVATIONS = EPILOGUE_OPS[-1]
#: direction -> names of the two operands, what they are, what the result is
PARTS = {
    "forward": (("images", "filters"), ("images", "filters"), "results"),
    "input_grad": (("grads", "filters"), ("results", "filters"), "images"),
    "weight_grad": (("images", "grads"), ("images", "results"), "filters"),
}
#: the problem's names of the alignment of each
ALIGNED = {"images": "aligned_input", "filters": "aligned_filter", "results": "aligned_output"}


def conv2d(
    images: Any,
    filters: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "NCHW",
    filter_layout: str | None = None,
    bias: Any = None,
    residual: Any = None,
    activation: str | None = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    workspace: Any = None,
) -> Any:
    """activation(images * filters + bias + residual), as an array like ``images``: each filter slides over each image,
    and a result is the sum of products of what it covers (no filter is turned over).

    ``layout`` names the axes of images and results: NCHW, NHWC or CHWN. ``filter_layout`` those of filters: KCRS, KRSC
    or CRSK, by default the one that goes with it; C is the channels of one of ``groups``. Arrays whose elements lie in
    memory as another of these layouts has them (PyTorch's channels_last) are read as they are; others are copied first.

    ``stride``, ``dilation``: one integer, or (height, width). ``padding``: likewise, or a pair (begin, end) for each;
    ``same``: as many results as pixels divided by the stride, rounded up, an odd pixel at the end; ``valid``: none.
    ``bias``: K elements, one a filter, of the result's type, or float32 to 8 bits; ``residual``: like the result;
    ``activation``: relu, gelu (the form with tanh) or silu; types, ``out``, ``compute``, ``deterministic``,
    ``workspace``, devices and streams: as for ``gemm``.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    window = (2, stride, padding, dilation, groups, layout, filter_layout)
    return _call(
        "forward", images, filters, None, window, out, compute, deterministic, bias, residual, activation, workspace
    )


def conv1d(
    images: Any,
    filters: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "NCW",
    filter_layout: str | None = None,
    bias: Any = None,
    residual: Any = None,
    activation: str | None = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    workspace: Any = None,
) -> Any:
    """As ``conv2d``, along one axis: layouts NCW, NWC, CWN, filters KCS, KSC, CSK."""
    window = (1, stride, padding, dilation, groups, layout, filter_layout)
    return _call(
        "forward", images, filters, None, window, out, compute, deterministic, bias, residual, activation, workspace
    )


def conv3d(
    images: Any,
    filters: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "NCDHW",
    filter_layout: str | None = None,
    bias: Any = None,
    residual: Any = None,
    activation: str | None = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    workspace: Any = None,
) -> Any:
    """As ``conv2d``, along three axes: layouts NCDHW, NDHWC, CDHWN, filters KCTRS, KTRSC, CTRSK."""
    window = (3, stride, padding, dilation, groups, layout, filter_layout)
    return _call(
        "forward", images, filters, None, window, out, compute, deterministic, bias, residual, activation, workspace
    )


def conv2d_input_grad(
    grads: Any,
    filters: Any,
    input_shape: Sequence[int],
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "NCHW",
    filter_layout: str | None = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    workspace: Any = None,
) -> Any:
    """The gradient of ``conv2d`` with respect to its images, of shape ``input_shape``, from that of its results
    (a transposed convolution of ``grads``). Axes, options, types and errors as for ``conv2d``."""
    window = (2, stride, padding, dilation, groups, layout, filter_layout)
    shape = _extents(input_shape, "input_shape")
    return _call("input_grad", grads, filters, shape, window, out, compute, deterministic, workspace=workspace)


def conv2d_weight_grad(
    images: Any,
    grads: Any,
    filter_shape: Sequence[int],
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "NCHW",
    filter_layout: str | None = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    workspace: Any = None,
) -> Any:
    """The gradient of ``conv2d`` with respect to its filters, of shape ``filter_shape``, from its images and the
    gradient of its results. Axes, options, types and errors as for ``conv2d``."""
    window = (2, stride, padding, dilation, groups, layout, filter_layout)
    shape = _extents(filter_shape, "filter_shape")
    return _call("weight_grad", images, grads, shape, window, out, compute, deterministic, workspace=workspace)


# ---- from arguments to a launch


def _call(
    direction: str,
    a: Any,
    b: Any,
    shape: tuple[int, ...] | None,
    window: tuple[Any, ...],
    out: Any,
    compute: str | None,
    deterministic: bool,
    bias: Any = None,
    residual: Any = None,
    activation: str | None = None,
    workspace: Any = None,
) -> Any:
    try:
        hash(window)
    except TypeError:  # lists and arrays
        window = plain(window)
    key = _key(direction, a, b, shape, window, compute, deterministic, bias, residual, activation)
    ready = launch_cache.prepared(key) if key is not None and out is None else None
    if ready is not None and workspace is not launch_cache.SIZE:
        go, make, bound = ready
        result = make(a)
        more = () if bias is None else (bias.data_ptr(),)
        if residual is not None:
            more = (*more, residual.data_ptr())
        own = None if workspace is None else _workspace(workspace, bound, PARTS[direction][0], a, b, result)
        go(a.data_ptr(), b.data_ptr(), result.data_ptr(), launch_cache.stream_of(a), more, own)
        return result
    window, shape = plain(window), plain(shape)  # a key has numbers: what else holds a number may change it
    key = (
        None
        if out is not None
        else _key(direction, a, b, shape, window, compute, deterministic, bias, residual, activation)
    )
    with launch_cache.lock:
        compute = word("compute", "" if compute is None else compute)
        deterministic = flag("deterministic", deterministic)
        return _first(
            key,
            direction,
            a,
            b,
            shape,
            Window(*window).settled(),
            out,
            compute,
            deterministic,
            bias,
            residual,
            activation,
            workspace,
        )


def _workspace(workspace: Any, bound: Runner, names: tuple[str, str], a: Any, b: Any, out: Any) -> int | None:
    return launch_cache.workspace_of(workspace, bound, **dict(zip((*names, "out"), (a, b, out), strict=True)))


def _extents(shape: Any, argument: str) -> tuple[int, ...]:
    try:
        return tuple(shape)
    except TypeError:
        raise ShapeError(f"{argument} is {shown(shape)}; it must be a shape, one integer an axis") from None


def _key(
    direction: str,
    a: Any,
    b: Any,
    shape: Any,
    window: Any,
    compute: Any,
    deterministic: bool,
    bias: Any,
    residual: Any,
    activation: Any,
) -> Any:
    """What decides how PyTorch tensors are convolved, cheap to make. None: other arrays, and tensors whose checks
    depend on more than that."""
    try:
        if not all(x is None or direct(x) for x in (a, b, bias, residual)):
            return None
        made = (
            direction,
            window,
            shape,
            compute,
            deterministic,
            activation,
            a.shape,
            a.stride(),
            a.dtype,
            a.data_ptr() & 15,
            a.device,
            b.shape,
            b.stride(),
            b.dtype,
            b.data_ptr() & 15,
            b.device,
            None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.device),
            None
            if residual is None
            else (residual.shape, residual.stride(), residual.dtype, residual.data_ptr() & 15, residual.device),
        )
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return None
    return made


def _first(
    key: Any,
    direction: str,
    a: Any,
    b: Any,
    shape: tuple[int, ...] | None,
    window: Window,
    out: Any,
    compute: str,
    deterministic: bool,
    bias: Any,
    residual: Any,
    activation: str | None,
    workspace: Any,
) -> Any:
    """The whole way: checks, selection, generation, launch; remembered under ``key`` where the next call can use it."""
    names, whats, made = PARTS[direction]
    views = tensor(a, names[0]), tensor(b, names[1])
    _agree(*views, *names)
    launch_cache.require_driver(views[0])
    extents = {what: window.extents(what, v.shape, name) for what, v, name in zip(whats, views, names, strict=True)}
    if shape is not None:
        extents[made] = window.extents(made, shape, "input_shape" if made == "images" else "filter_shape")
    given = None if out is None else tensor(out, "out")
    fields: dict[str, Any] = {
        "direction": direction,
        "dtype": views[0].dtype.name,
        "compute": compute,
        "deterministic": deterministic,
        "out": given.dtype.name if given is not None else "",
        "epilogue": _stages(bias, residual, activation),
    }
    if given is not None and given.dtype.name not in OUT_DTYPES[views[0].dtype.name]:
        allowed = " or ".join(OUT_DTYPES[views[0].dtype.name])
        raise DtypeError(f"out is {given.dtype}; with {names[0]} of {views[0].dtype} it must be {allowed}")
    layout, filters = _layouts(window, {made: given, **dict(zip(whats, views, strict=True))})
    memory = {"images": layout, "results": layout, "filters": filters}
    if not views[0].host:
        launch_cache.require_device(**dict(zip(names, views, strict=True)))
        packed = [_packed(window, what, v, memory[what]) for what, v in zip(whats, views, strict=True)]
        fields |= {ALIGNED[what]: aligned(v.address) for what, v in zip(whats, packed, strict=True)}
        written = [v for v in (given, None if residual is None else tensor(residual, "residual")) if v is not None]
        fields[ALIGNED[made]] = min([16, *(aligned(v.address) for v in written)])  # a residual is read as C is written
    problem = _problem(window, extents, layout=layout, filters=filters, **fields)
    _require(window, problem, extents, dict(zip(whats, names, strict=True)))
    if 0 not in _shape(window, problem, made):
        _ = lower(problem)  # ShapeError, before memory for the result is allocated
    make = _maker(window, problem, made, memory[made], a)
    result = make(a) if out is None else out
    target = tensor(result, "out")
    _fits(window, problem, made, target, **dict(zip(names, views, strict=True)))
    more = _more(window, problem, bias, residual, target)
    launch_cache.require_own(target, **dict(zip(names, views, strict=True)), **more)
    if target.host and (size := launch_cache.host_workspace(workspace)) is not None:
        return size
    if 0 in target.shape:
        return result if workspace is not launch_cache.SIZE else 0
    if target.host:
        _host(problem, *views, target, tuple(more.values()))
        return result
    launch_cache.require_device(out=target)
    bound = launch_cache.runner(problem)
    if workspace is launch_cache.SIZE:
        return bound.launch.workspace
    own = _workspace(workspace, bound, names, a, b, result)
    go = launch_cache.launcher(bound)
    addresses = tuple(v.address for v in more.values())
    go(packed[0].address, packed[1].address, target.address, launch_cache.stream_of(a), addresses, own)
    if key is not None and packed[0] is views[0] and packed[1] is views[1]:
        launch_cache.remember(key, go, make, bound)
    return result


def _agree(a: View, b: View, name_a: str, name_b: str) -> None:
    if a.dtype is not b.dtype:
        raise DtypeError(f"{name_a} is {a.dtype} and {name_b} is {b.dtype}; they must be the same")
    if a.dtype.name not in OUT_DTYPES:
        raise DtypeError(f"{name_a} and {name_b} have dtype {a.dtype.numpy}; it must be one of {ALLOWED}")
    if a.host != b.host:
        raise InputError(f"{name_a} and {name_b} must be in the same memory: both the host's, or both the GPU's")


def _stages(bias: Any, residual: Any, activation: str | None) -> str:
    if activation is not None:
        word("activation", activation, ACTIVATIONS)
    some = ("bias" if bias is not None else "", "residual" if residual is not None else "", activation or "")
    return ",".join(stage for stage in some if stage)


def _layouts(window: Window, arrays: dict[str, View | None]) -> tuple[str, str]:
    """The layouts to compute in: on a GPU those of the arrays' memory, of ``out`` before the others; on the host those
    that the axes are named by, for it is packed copies that go to the device."""
    own = LAYOUTS[window.dims][str(window.layout)], FILTERS[window.dims][str(window.filters)]
    found: dict[bool, str] = {}
    for nth, (what, v) in enumerate(arrays.items()):
        if v is None or v.host:
            continue
        stored = window.stored(what, v)
        if stored is None and nth == 0:
            raise ShapeError(
                f"out has strides {v.strides}; its elements must lie side by side, in the order of a layout"
            )
        if stored is not None:
            found.setdefault(what == "filters", stored)
    return found.get(False, own[0]), found.get(True, own[1])


def _problem(window: Window, extents: dict[str, Extents], **fields: Any) -> Conv:
    """The problem that the arguments name. What of its extents no operand has is what a given shape says."""
    images, filters = extents.get("images"), extents.get("filters")
    assert images is not None and filters is not None  # noqa: PT018 a gradient's shape is required
    if filters["c"] * window.groups != images["c"]:
        raise ShapeError(
            f"filters have {filters['c']} channels and groups is {window.groups}; they must make"
            f" {images['c']}, the channels of images"
        )
    fields.update({letter: images[letter] for letter in "ncdhw"}, **{letter: filters[letter] for letter in "ktrs"})
    return Conv(
        stride=window.stride,
        padding=window.pads(images, filters),
        dilation=window.dilation,
        groups=window.groups,
        **fields,
    )


def _require(window: Window, problem: Conv, extents: dict[str, Extents], names: dict[str, str]) -> None:
    """ShapeError: gradients of results are of another shape than results."""
    if "results" in names:
        want = {**problem.extents("y")}
        letters = window.letters("results")
        found = extents["results"]
        if any(found[i] != want[i] for i in want):
            has, told = (tuple(shape[i] for i in letters) for shape in (found, want))
            raise ShapeError(
                f"{names['results']} has shape {has}; the results of these images and filters have {told},"
                f" {letters.upper()}"
            )


def _shape(window: Window, problem: Conv, what: str) -> tuple[int, ...]:
    found = problem.extents({"images": "x", "filters": "w", "results": "y"}[what])
    return tuple(found[letter] for letter in window.letters(what))


def _maker(window: Window, problem: Conv, made: str, memory: str, like: Any) -> Callable[[Any], Any]:
    """What makes a result for operands like ``like``, with elements in memory as ``memory`` has them."""
    order = window.order(made, memory)
    shape = _shape(window, problem, made)
    stored, back = tuple(shape[i] for i in order), inverse(order)
    turned, kind = back != tuple(range(len(back))), problem.output

    def make(x: Any) -> Any:
        y = launch_cache.empty(x, stored, kind)
        return y if not turned else y.permute(back) if hasattr(y, "permute") else y.transpose(back)

    def quick(x: Any) -> Any:
        y = x.new_empty(stored, dtype=named)
        return y.permute(back) if turned else y

    named = launch_cache.torch_dtype(like, kind)
    return make if named is None else quick


def _fits(window: Window, problem: Conv, made: str, out: View, **operands: View) -> None:
    want = _shape(window, problem, made)
    if out.shape != want:
        raise ShapeError(f"out has shape {out.shape}; it must be {want}, {window.letters(made).upper()}")
    if out.host != next(iter(operands.values())).host:
        raise InputError(f"out must be in the same memory as {' and '.join(operands)}")


def _more(window: Window, problem: Conv, bias: Any, residual: Any, out: View) -> dict[str, View]:
    """What the epilogue reads, in the order of the problem's. ShapeError, DtypeError, InputError: it does not fit."""
    found = {}
    for name, x, want in (("bias", bias, (problem.k,)), ("residual", residual, out.shape)):
        if x is None:
            continue
        v = tensor(x, name)
        if v.shape != want:
            what = "one a filter" if name == "bias" else "like the result"
            raise ShapeError(f"{name} has shape {v.shape}; it must have {want}, {what}")
        if v.dtype is not (kind := problem.epilogue_operand_dtype(name)):
            raise DtypeError(f"{name} is {v.dtype}; it must be {kind}, beside results in {out.dtype}")
        if v.host != out.host:
            raise InputError(f"{name} must be in the same memory as images and filters")
        if not v.host and (
            problem.k > 1 and v.strides != (1,) if name == "bias" else not _lies(window, "results", v, problem.layout)
        ):
            rule = "they must lie side by side" if name == "bias" else f"they must lie as out's, {problem.layout}"
            raise ShapeError(f"{name} has strides {v.strides}, in elements; {rule}")
        found[name] = v
    return found


def _lies(window: Window, what: str, v: View, memory: str) -> bool:
    """Whether an array's elements lie side by side, in the order of ``memory``."""
    step = 1
    for axis in reversed(window.order(what, memory)):
        if v.shape[axis] != 1 and v.strides[axis] != step:
            return False
        step *= v.shape[axis]
    return True


def _packed(window: Window, what: str, v: View, memory: str) -> View:
    """An operand whose elements lie in memory as ``memory`` has them: itself, or a copy."""
    if _lies(window, what, v, memory):
        return v
    order, x = window.order(what, memory), v.origin
    if hasattr(x, "permute"):
        return tensor(x.permute(order).contiguous().permute(inverse(order)), what)
    if not hasattr(x, "transpose"):
        raise ShapeError(f"{what} has strides {v.strides}; its elements must lie side by side as {memory}")
    return tensor(x.transpose(order).copy().transpose(inverse(order)), what)


def _host(problem: Conv, a: View, b: View, out: View, more: tuple[View, ...]) -> None:
    """Host arrays: packed copies go to the device, and the result comes back."""
    into = on_host(out)
    first, second, *others = (np.ascontiguousarray(on_host(v)) for v in (a, b, *more))
    shapes = problem.stored
    before = np.empty(shapes[2], into.dtype)
    done = launch_cache.runner(problem).compute(
        first.reshape(shapes[0]), second.reshape(shapes[1]), before, 1.0, 0.0, tuple(others)
    )
    into[...] = done.reshape(into.shape)
