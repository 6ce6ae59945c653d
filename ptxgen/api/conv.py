"""``conv1d``, ``conv2d``, ``conv3d``, their transposes and the gradients of ``conv2d`` on arrays of NumPy, PyTorch and
CuPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import (
    call_lock,
    caller_workspace,
    drivers,
    launch_function,
    launches,
    new_arrays,
    on_host,
    runners,
    streams,
    vendor_calls,
)
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    is_cupy,
    is_plain_tensor,
    is_torch,
    require_disjoint,
    require_same_memory,
    tensor,
)
from ptxgen.api.conv_layouts import FILTERS, LAYOUTS, ConvArguments, Extents, inverse, packed_strides
from ptxgen.api.epilogue_args import Activation, alignment_like_c, checked_activation, text_of
from ptxgen.arguments import flag, plain, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.base import ARRAYS_LIKE_C, OUT_DTYPES
from ptxgen.problem.dtypes import ALLOWED
from ptxgen.runtime.runner import Runner


class Signature(NamedTuple):
    """The arrays of a function. ``direction``: that of its problem; ``names``: the argument names of the two operands;
    ``roles``: their roles in the problem; ``result_role``: the role of the result."""

    direction: str
    names: tuple[str, str]
    roles: tuple[str, str]
    result_role: str


FORWARD = Signature("forward", ("images", "filters"), ("images", "filters"), "results")
INPUT_GRAD = Signature("input_grad", ("grads", "filters"), ("results", "filters"), "images")
WEIGHT_GRAD = Signature("weight_grad", ("images", "grads"), ("images", "results"), "filters")
#: a transposed convolution is the input gradient of a convolution, whose results have the shape of ``images``
TRANSPOSED = Signature("input_grad", ("images", "filters"), ("results", "filters"), "images")
#: the epilogue operands, in the order of the kernel parameters
EPILOGUE_NAMES = ("bias", "residual", "sums", "aux")
#: for each name of ``EPILOGUE_NAMES`` its array, or None
Epilogue = tuple[Any, Any, Any, Any]
#: role -> the problem's field for the alignment
ALIGNMENT_FIELDS = {"images": "aligned_input", "filters": "aligned_filter", "results": "aligned_output"}


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
    activation: Activation | None = None,
    aux: Any = None,
    sums: Any = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    exact_nonfinite: bool = False,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    """activation(images ⋆ filters + bias + residual) as an array of the same library as ``images``; ⋆ is
    cross-correlation (filters are not mirrored).

    ``layout`` names the axes of images and results: NCHW, NHWC or CHWN. ``filter_layout`` names those of filters: KCRS,
    KRSC or CRSK (default: the one that matches ``layout``), where C is the number of channels per group. An array with
    the memory order of any of these layouts (for example PyTorch's channels_last) is read without a copy; other arrays
    are copied first.

    ``stride``, ``dilation``: one integer, or (height, width). ``padding``: likewise, or a pair (begin, end) for each
    axis; ``same``: ceil(extent / stride) results, with the odd pixel at the end; ``valid``: no padding. ``bias``: K
    elements (one per filter) of the result's dtype, float32 for 8-bit results. ``residual``: shape and dtype of the
    result. ``activation``: as for ``gemm``; relu_grad gives 0 where ``aux``, an array like the residual, is at most 0,
    and the sum elsewhere. A gated activation takes the filters of a group in pairs, a gate and a value in turn: results
    are float16, bfloat16 or float32 and have K/2 channels. ``sums``: an array like the result to which the kernel also
    stores the sums, the argument of the activation, for its gradient (``gelu_grad`` with ``aux``); with a gated
    activation it has K channels, and NHWC must be the order of the results in memory. ``vendor``: auto: cuDNN computes
    the convolution if it is measured or predicted to be faster; never: ptxgen does; None: the value of
    ``PTXGEN_VENDOR``. Dtypes, ``out``, ``compute``, ``deterministic``, ``workspace``, devices and streams: as for
    ``gemm``.

    3x3 filters with stride 1, and both gradients, may be computed in f32 by Winograd's algorithm. If all data are of
    one order of magnitude, its errors are at most three times those of direct sums, but a NaN or an infinity also makes
    adjacent results NaN. Some direct kernels also spread NaN to other results: those for NCHW with at most 4 filters,
    for groups with few channels, and for a stride that does not divide the columns of a filter.
    ``exact_nonfinite=True`` excludes all these kernels; the environment variable PTXGEN_WINOGRAD=off excludes
    Winograd's algorithm.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    arguments = (2, stride, padding, dilation, groups, layout, filter_layout, 0, exact_nonfinite)
    epilogue = bias, residual, sums, aux
    return _call(
        FORWARD, images, filters, None, arguments, out, compute, deterministic, epilogue, activation, workspace, vendor
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
    activation: Activation | None = None,
    aux: Any = None,
    sums: Any = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    exact_nonfinite: bool = False,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    """``conv2d`` with one spatial axis: layouts NCW, NWC, CWN; filters KCS, KSC, CSK."""
    arguments = (1, stride, padding, dilation, groups, layout, filter_layout, 0, exact_nonfinite)
    epilogue = bias, residual, sums, aux
    return _call(
        FORWARD, images, filters, None, arguments, out, compute, deterministic, epilogue, activation, workspace, vendor
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
    activation: Activation | None = None,
    aux: Any = None,
    sums: Any = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    exact_nonfinite: bool = False,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    """``conv2d`` with three spatial axes: layouts NCDHW, NDHWC, CDHWN; filters KCTRS, KTRSC, CTRSK."""
    arguments = (3, stride, padding, dilation, groups, layout, filter_layout, 0, exact_nonfinite)
    epilogue = bias, residual, sums, aux
    return _call(
        FORWARD, images, filters, None, arguments, out, compute, deterministic, epilogue, activation, workspace, vendor
    )


def conv_transpose2d(
    images: Any,
    filters: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "NCHW",
    filter_layout: str | None = None,
    bias: Any = None,
    residual: Any = None,
    activation: Activation | None = None,
    aux: Any = None,
    sums: Any = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    exact_nonfinite: bool = False,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    """activation(transposed convolution of ``images`` with ``filters`` + bias + residual), as an array of the same
    library as ``images``. It computes the same as PyTorch's ``conv_transpose2d``.

    Along an axis of n pixels and t taps the result has (n - 1)·stride - padding at both ends + dilation·(t - 1) + 1 +
    output_padding pixels. ``output_padding``: one integer, or (height, width), smaller than stride plus the padding at
    the end; pixels that no tap reaches are bias + residual. ``filter_layout`` names the axes of filters as for
    ``conv2d``, but K is the number of channels of ``images``, and C the number of channels of the result per group.
    ``padding``: numbers, as for ``conv2d``. ``bias``: one element per channel of the result. ``activation``: not a
    gated one. Other arguments, dtypes and errors: as for ``conv2d``.
    """
    arguments = (2, stride, padding, dilation, groups, layout, filter_layout, output_padding, exact_nonfinite)
    epilogue = bias, residual, sums, aux
    return _call(
        TRANSPOSED,
        images,
        filters,
        None,
        arguments,
        out,
        compute,
        deterministic,
        epilogue,
        activation,
        workspace,
        vendor,
    )


def conv_transpose1d(
    images: Any,
    filters: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "NCW",
    filter_layout: str | None = None,
    bias: Any = None,
    residual: Any = None,
    activation: Activation | None = None,
    aux: Any = None,
    sums: Any = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    exact_nonfinite: bool = False,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    """``conv_transpose2d`` with one spatial axis: layouts NCW, NWC, CWN; filters KCS, KSC, CSK."""
    arguments = (1, stride, padding, dilation, groups, layout, filter_layout, output_padding, exact_nonfinite)
    epilogue = bias, residual, sums, aux
    return _call(
        TRANSPOSED,
        images,
        filters,
        None,
        arguments,
        out,
        compute,
        deterministic,
        epilogue,
        activation,
        workspace,
        vendor,
    )


def conv_transpose3d(
    images: Any,
    filters: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "NCDHW",
    filter_layout: str | None = None,
    bias: Any = None,
    residual: Any = None,
    activation: Activation | None = None,
    aux: Any = None,
    sums: Any = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    exact_nonfinite: bool = False,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    """``conv_transpose2d`` with three spatial axes: layouts NCDHW, NDHWC, CDHWN; filters KCTRS, KTRSC, CTRSK."""
    arguments = (3, stride, padding, dilation, groups, layout, filter_layout, output_padding, exact_nonfinite)
    epilogue = bias, residual, sums, aux
    return _call(
        TRANSPOSED,
        images,
        filters,
        None,
        arguments,
        out,
        compute,
        deterministic,
        epilogue,
        activation,
        workspace,
        vendor,
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
    residual: Any = None,
    activation: Activation | None = None,
    aux: Any = None,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    exact_nonfinite: bool = False,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    """The gradient of ``conv2d`` with respect to its images, of shape ``input_shape``: a transposed convolution of
    ``grads``, the gradient with respect to its results. Axes, options, dtypes and errors: as for ``conv2d``.

    If the images are results of a ReLU, ``activation="relu_grad", aux=images`` gives the gradient with respect to the
    ReLU's input. ``residual``: another gradient of the same images, which is added before the activation."""
    arguments = (2, stride, padding, dilation, groups, layout, filter_layout, 0, exact_nonfinite)
    shape, epilogue = _extents(input_shape, "input_shape"), (None, residual, None, aux)
    return _call(
        INPUT_GRAD,
        grads,
        filters,
        shape,
        arguments,
        out,
        compute,
        deterministic,
        epilogue,
        activation,
        workspace,
        vendor,
    )


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
    exact_nonfinite: bool = False,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    """The gradient of ``conv2d`` with respect to its filters, of shape ``filter_shape``, from its images and
    ``grads``, the gradient with respect to its results. Axes, options, dtypes and errors: as for ``conv2d``."""
    arguments = (2, stride, padding, dilation, groups, layout, filter_layout, 0, exact_nonfinite)
    shape = _extents(filter_shape, "filter_shape")
    return _call(
        WEIGHT_GRAD, images, grads, shape, arguments, out, compute, deterministic, workspace=workspace, vendor=vendor
    )


# ---- from arguments to a launch


def _call(
    signature: Signature,
    a: Any,
    b: Any,
    shape: tuple[int, ...] | None,
    arguments: tuple[Any, ...],
    out: Any,
    compute: str | None,
    deterministic: bool,
    epilogue: Epilogue = (None, None, None, None),
    activation: Activation | None = None,
    workspace: Any = None,
    vendor: str | None = None,
) -> Any:
    try:
        hash(arguments)
    except TypeError:  # lists and arrays
        arguments = plain(arguments)
    activation = text_of(activation)
    if type(deterministic) is not bool:  # 1 equals True in a key
        deterministic = flag("deterministic", deterministic)
    key = _key(signature, a, b, shape, arguments, compute, deterministic, epilogue, activation, vendor)
    ready = launches.cached(key) if key is not None and out is None else None
    if ready is not None and workspace is not caller_workspace.QUERY_SIZE:
        launch, make, runner = ready
        result = make(a)
        addresses = tuple(x.data_ptr() for x in (a, b, result, *epilogue) if x is not None)
        own = None if workspace is None else _workspace(workspace, runner, signature.names, a, b, result)
        launch(addresses, streams.current_stream(a), own)
        return result
    arguments, shape = plain(arguments), plain(shape)  # the key must contain numbers, not mutable objects
    key = (
        None
        if out is not None
        else _key(signature, a, b, shape, arguments, compute, deterministic, epilogue, activation, vendor)
    )
    with call_lock.lock:
        compute = word("compute", "" if compute is None else compute)
        vendor_calls.require_mode(vendor)
        result = launch_uncached(
            key,
            signature,
            a,
            b,
            shape,
            ConvArguments(*arguments).resolved(),
            out,
            compute,
            deterministic,
            epilogue,
            activation,
            workspace,
            vendor=vendor,
        )
    return new_arrays.result_of(result, a) if out is None else result


def _workspace(workspace: Any, runner: Runner, names: tuple[str, str], a: Any, b: Any, out: Any) -> int | None:
    return caller_workspace.workspace_address(workspace, runner, **dict(zip((*names, "out"), (a, b, out), strict=True)))


def _extents(shape: Any, argument: str) -> tuple[int, ...]:
    try:
        return tuple(shape)
    except TypeError:
        raise ShapeError(f"{argument} is {shown(shape)}; it must be a shape: one integer per axis") from None


def _key(
    signature: Signature,
    a: Any,
    b: Any,
    shape: Any,
    arguments: Any,
    compute: Any,
    deterministic: bool,
    epilogue: Epilogue,
    activation: Any,
    vendor: str | None,
) -> Any:
    """The launch cache key of a call on PyTorch tensors. None: other arrays, and tensors that need checks not
    covered by the key."""
    try:
        if not all(x is None or is_plain_tensor(x) for x in (a, b, *epilogue)):
            return None
        key = (
            signature,
            arguments,
            shape,
            compute,
            deterministic,
            activation,
            vendor,
            tuple(map(type, (a, b, *epilogue))),
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
            tuple(None if x is None else (x.shape, x.stride(), x.dtype, x.data_ptr() & 15, x.device) for x in epilogue),
        )
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return None
    return key


def launch_uncached(
    key: Any,
    signature: Signature,
    a: Any,
    b: Any,
    shape: tuple[int, ...] | None,
    arguments: ConvArguments,
    out: Any,
    compute: str,
    deterministic: bool,
    epilogue: Epilogue,
    activation: Activation | None,
    workspace: Any,
    allocation: Any = None,
    vendor: str | None = None,
) -> Any:
    """Checks the arguments, selects, generates and launches; stores the launch under ``key`` if later calls can use it.
    ``allocation`` is stored with the launch: how a later call allocates the result (default: as ``conv2d`` does). The
    caller holds ``call_lock.lock``."""
    direction, names, roles, result_role = signature
    given_arguments = arguments
    views = tensor(a, names[0]), tensor(b, names[1])
    _check_operands(*views, *names)
    on = drivers.driver_of(views[0])
    extents = {role: arguments.extents(role, v.shape, name) for role, v, name in zip(roles, views, names, strict=True)}
    if shape is not None:
        extents[result_role] = arguments.extents(
            result_role, shape, "input_shape" if result_role == "images" else "filter_shape"
        )
    elif signature is TRANSPOSED:
        arguments, extents[result_role] = arguments.transposed(extents["results"], extents["filters"])
    given = None if out is None else tensor(out, "out")
    if given is not None:
        arguments.extents(result_role, given.shape, "out")
    fields: dict[str, Any] = {
        "direction": direction,
        "dtype": views[0].dtype.name,
        "compute": compute,
        "deterministic": deterministic,
        "out": given.dtype.name if given is not None else "",
        "epilogue": _epilogue(epilogue, activation),
    }
    if given is not None and given.dtype.name not in OUT_DTYPES[views[0].dtype.name]:
        allowed = " or ".join(OUT_DTYPES[views[0].dtype.name])
        raise DtypeError(f"out is {given.dtype}; with {names[0]} of {views[0].dtype} it must be {allowed}")
    layout, filters = _layouts(arguments, {result_role: given, **dict(zip(roles, views, strict=True))})
    memory = {"images": layout, "results": layout, "filters": filters}
    if not views[0].host:
        drivers.require_device(on, **dict(zip(names, views, strict=True)))
        packed = [_pack(arguments, role, v, memory[role]) for role, v in zip(roles, views, strict=True)]
        fields |= {ALIGNMENT_FIELDS[role]: alignment_of(v.address) for role, v in zip(roles, packed, strict=True)}
        like_c = [
            (name, tensor(x, name))
            for name, x in zip(EPILOGUE_NAMES, epilogue, strict=True)
            if name in ARRAYS_LIKE_C and x is not None
        ]
        aligned = 16 if given is None else alignment_of(given.address)
        fields[ALIGNMENT_FIELDS[result_role]] = min(aligned, alignment_like_c(like_c))
    problem = _problem(arguments, extents, layout=layout, filters=filters, **fields)
    _check_result_shape(arguments, problem, extents, dict(zip(roles, names, strict=True)))
    # ShapeError, before memory for the result is allocated
    parts = _parts(problem, (a, b, out, *epilogue)) if 0 not in _shape(arguments, problem, result_role) else 1
    make = _result_factory(arguments, problem, result_role, memory[result_role], a)
    result = make(a) if out is None else out
    target = tensor(result, "out")
    _check_out(arguments, problem, result_role, target, **dict(zip(names, views, strict=True)))
    epilogue_args = _epilogue_args(arguments, problem, result_role, epilogue, target)
    operands = dict(zip(names, views, strict=True))
    require_disjoint(target, **operands, **epilogue_args)
    if "sums" in epilogue_args:
        others = {name: v for name, v in epilogue_args.items() if name != "sums"}
        require_disjoint(epilogue_args["sums"], "sums", **operands, **others)
    if target.host and (size := caller_workspace.refuse_host_workspace(workspace)) is not None:
        return size
    if 0 in target.shape:
        return result if workspace is not caller_workspace.QUERY_SIZE else 0
    if parts > 1:
        axis, sizes = given_arguments.axes(result_role).index("n"), []
        step = -(-problem.n // parts)
        for first in range(0, problem.n, step):
            count = min(step, problem.n - first)
            index = (*(slice(None),) * axis, slice(first, first + count))
            part = launch_uncached(
                None,
                signature,
                a[index],
                b,
                shape and (*shape[:axis], count, *shape[axis + 1 :]),
                given_arguments,
                result[index],
                compute,
                deterministic,
                (epilogue[0], *(None if x is None else x[index] for x in epilogue[1:])),
                activation,
                workspace,
                vendor=vendor,
            )
            sizes.append(part)
        return max(sizes) if workspace is caller_workspace.QUERY_SIZE else result
    if target.host:
        _compute_on_host(problem, *views, target, epilogue_args, vendor)
        return result
    drivers.require_device(on, out=target, **epilogue_args)
    stream = streams.current_stream(a)
    runner = runners.runner_for(problem, stream, on)
    if workspace is caller_workspace.QUERY_SIZE:
        return runner.launch.workspace
    own = _workspace(workspace, runner, names, a, b, result)
    launch = launch_function.make_launch(runner, use=vendor)
    with streams.ordered(on, stream, (*views, target, *epilogue_args.values())):
        launch(tuple(v.address for v in (*packed, target, *epilogue_args.values())), stream, own)
    if key is not None and packed[0] is views[0] and packed[1] is views[1]:
        launches.store(key, launch, allocation or make, runner)
    return result


def _parts(problem: Conv, arrays: Iterable[Any]) -> int:
    """The number of parts into which the batch is split so that the offsets in each part fit in 31 bits; 1 if those of
    the whole batch do. ShapeError: the offsets of one image do not fit, or the batch cannot be split: it is not the
    outermost axis, the result is a sum over it, or slices of an array are copies."""
    try:
        _ = lower(problem)
        return 1
    except ShapeError:
        views = all(x is None or isinstance(x, np.ndarray) or is_torch(x) or is_cupy(x) for x in arrays)
        if problem.layout == "CHWN" or problem.direction == "weight_grad" or not views:
            raise
        parts = 1
        while parts < problem.n:
            parts *= 2
            with suppress(ShapeError):
                _ = lower(replace(problem, n=-(-problem.n // parts)))
                return parts
        raise


def _check_operands(a: View, b: View, name_a: str, name_b: str) -> None:
    """DtypeError, InputError: the operands differ in dtype or memory, or the dtype is not supported."""
    if a.dtype is not b.dtype:
        raise DtypeError(f"{name_a} is {a.dtype} and {name_b} is {b.dtype}; they must be the same")
    if a.dtype.name not in OUT_DTYPES:
        raise DtypeError(f"{name_a} and {name_b} have dtype {a.dtype.numpy}; it must be one of {ALLOWED}")
    require_same_memory(name_a, a, name_b, b)


def _epilogue(epilogue: Epilogue, activation: Activation | None) -> str:
    """The epilogue operations in the form of ``Conv.epilogue``. InputError: the activation does not agree with ``aux``
    or ``sums``."""
    *arrays, aux = epilogue
    activation = checked_activation(activation, aux)
    if arrays[-1] is not None and activation is None:
        raise InputError("sums is an array; activation must then be given, because out has the sums")
    given = zip(("bias", "residual", "store_sums"), arrays, strict=True)
    return ",".join([*(op for op, x in given if x is not None), *([activation] if activation else [])])


def _layouts(arguments: ConvArguments, arrays: dict[str, View | None]) -> tuple[str, str]:
    """The (image, filter) layouts of the problem. On a GPU they are the memory layouts of the arrays; that of ``out``
    is considered first, and an array that fits several layouts takes the layout of the others. Host arrays are copied
    to contiguous arrays in the layouts of the arguments."""
    fitting: dict[bool, list[str]] = {}
    for nth, (role, v) in enumerate(arrays.items()):
        if v is None or v.host:
            continue
        layouts = arguments.memory_layouts(role, v)
        if not layouts and nth == 0:
            raise ShapeError(f"out has strides {v.strides}; its elements must be contiguous in the order of a layout")
        known = fitting.setdefault(role == "filters", layouts)
        fitting[role == "filters"] = [x for x in known if x in layouts] or known or layouts
    own = LAYOUTS[arguments.dims][str(arguments.layout)], FILTERS[arguments.dims][str(arguments.filters)]
    images, filters = (next(iter(fitting.get(key, ())), name) for key, name in zip((False, True), own, strict=True))
    return images, filters


def _problem(arguments: ConvArguments, extents: dict[str, Extents], **fields: Any) -> Conv:
    """The problem for the arguments. ShapeError: channels, filters and groups do not match."""
    images, filters = extents.get("images"), extents.get("filters")
    assert images is not None and filters is not None  # noqa: PT018 a gradient's shape is required
    if filters["c"] * arguments.groups != images["c"]:
        raise ShapeError(
            f"filters have {filters['c']} channels and groups is {arguments.groups}; their product must be"
            f" {images['c']}, the channels of images"
        )
    fields.update({letter: images[letter] for letter in "ncdhw"}, **{letter: filters[letter] for letter in "ktrs"})
    return Conv(
        stride=arguments.stride,
        padding=arguments.padding_pairs(images, filters),
        dilation=arguments.dilation,
        groups=arguments.groups,
        exact_nonfinite=arguments.exact_nonfinite,
        **fields,
    )


def _check_result_shape(
    arguments: ConvArguments, problem: Conv, extents: dict[str, Extents], names: dict[str, str]
) -> None:
    """ShapeError: the shape of ``grads`` differs from that of the results of these images and filters."""
    if "results" in names:
        want = {**problem.extents("y")}
        letters = arguments.axes("results")
        extents_of_results = extents["results"]
        if any(extents_of_results[i] != want[i] for i in want):
            given, expected = (tuple(shape[i] for i in letters) for shape in (extents_of_results, want))
            raise ShapeError(
                f"{names['results']} has shape {given}; the results of these images and filters have {expected},"
                f" {letters.upper()}"
            )


def _shape(arguments: ConvArguments, problem: Conv, role: str) -> tuple[int, ...]:
    """The shape of the array with this role, in the user's layout."""
    shape = problem.extents({"images": "x", "filters": "w", "results": "y"}[role])
    return tuple(shape[letter] for letter in arguments.axes(role))


def _result_factory(
    arguments: ConvArguments, problem: Conv, result_role: str, memory: str, like: Any
) -> Callable[[Any], Any]:
    """A function that allocates a result in the library of ``like``, with the memory layout ``memory``."""
    order = arguments.axis_permutation(result_role, memory)
    shape = _shape(arguments, problem, result_role)
    stored, back = tuple(shape[i] for i in order), inverse(order)
    permuted, element = back != tuple(range(len(back))), problem.output

    def make(x: Any) -> Any:
        y = new_arrays.empty_array(x, stored, element)
        return y if not permuted else y.permute(back) if hasattr(y, "permute") else y.transpose(back)

    def make_tensor(x: Any) -> Any:
        y = x.new_empty(stored, dtype=torch_dtype)
        return y.permute(back) if permuted else y

    torch_dtype = new_arrays.torch_dtype(like, element)
    return make if torch_dtype is None else make_tensor


def _check_out(arguments: ConvArguments, problem: Conv, result_role: str, out: View, **operands: View) -> None:
    """ShapeError, InputError: out has the wrong shape or memory."""
    want = _shape(arguments, problem, result_role)
    if out.shape != want:
        raise ShapeError(f"out has shape {out.shape}; it must be {want}, {arguments.axes(result_role).upper()}")
    require_same_memory("out", out, *next(iter(operands.items())))


def _epilogue_args(
    arguments: ConvArguments, problem: Conv, result_role: str, epilogue: Epilogue, out: View
) -> dict[str, View]:
    """The epilogue operands by name. ShapeError, DtypeError, InputError: an operand does not match the problem."""
    operands, channels = {}, problem.sum_channels
    for name, x in zip(EPILOGUE_NAMES, epilogue, strict=True):
        if x is None:
            continue
        want, rule = out.shape, "like the result"
        if name == "bias":
            want = (channels,)
            rule = "one per filter" if problem.direction == "forward" else "one per channel of the result"
        elif name == "sums":
            want, rule = _shape(arguments, problem.of_sums(), result_role), "an element for each sum"
        v = tensor(x, name)
        if v.shape != want:
            raise ShapeError(f"{name} has shape {v.shape}; it must have {want}, {rule}")
        if v.dtype is not (element := problem.epilogue_operand_dtype(name)):
            raise DtypeError(f"{name} is {v.dtype}; it must be {element} for results of {out.dtype}")
        if name == "sums" and problem.gated and v.address % (2 * element.bytes):
            raise ShapeError(
                f"sums starts at {v.address:#x}; with a gated activation it must be a multiple of {2 * element.bytes}"
                " bytes"
            )
        require_same_memory(name, v, "out", out)
        if not v.host and (
            channels > 1 and v.strides != (1,)
            if name == "bias"
            else not _is_packed(arguments, result_role, v, problem.layout)
        ):
            rule = (
                "it must be contiguous"
                if name == "bias"
                else f"it must have the memory layout of out, {problem.layout}"
            )
            raise ShapeError(f"{name} has strides {v.strides}, in elements; {rule}")
        operands[name] = v
    return operands


def _is_packed(arguments: ConvArguments, role: str, v: View, memory: str) -> bool:
    """True if an array is contiguous in the memory layout ``memory``."""
    strides = packed_strides(v.shape, arguments.axis_permutation(role, memory))
    return all(n == 1 or v.strides[i] == strides[i] for i, n in enumerate(v.shape))


def _pack(arguments: ConvArguments, role: str, v: View, memory: str) -> View:
    """The operand in the memory layout ``memory``: the array itself if it has that layout, else a copy."""
    if _is_packed(arguments, role, v, memory):
        return v
    order, x = arguments.axis_permutation(role, memory), v.origin
    if hasattr(x, "permute"):
        return tensor(x.permute(order).contiguous().permute(inverse(order)), role)
    if not hasattr(x, "transpose"):
        raise ShapeError(f"{role} has strides {v.strides}; its elements must be contiguous in the layout {memory}")
    copied, back = tensor(x.transpose(order).copy(), role), inverse(order)
    return replace(copied, shape=tuple(copied.shape[i] for i in back), strides=tuple(copied.strides[i] for i in back))


def _compute_on_host(
    problem: Conv, a: View, b: View, out: View, epilogue_args: dict[str, View], vendor: str | None
) -> None:
    """Copies host arrays to contiguous memory of the device, computes there, and copies the result back."""
    into = as_numpy(out)
    first, second, third = problem.stored
    arrays = {name: np.ascontiguousarray(as_numpy(v)) for name, v in epilogue_args.items()}
    arrays["A"] = np.ascontiguousarray(as_numpy(a)).reshape(first)
    arrays["B"] = np.ascontiguousarray(as_numpy(b)).reshape(second)
    arrays["C"] = np.empty(third, into.dtype)
    results = on_host.compute_on_host(problem, arrays, use=vendor)
    into[...] = results["C"].reshape(into.shape)
    if "sums" in results:
        as_numpy(epilogue_args["sums"])[...] = results["sums"]
