"""``gemm_grouped``: lists of matrix products of different shapes, each list in one launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.api import (
    batch_views,
    call_lock,
    choice,
    driver_state,
    drivers,
    grouped_calls,
    launches,
    new_arrays,
    recording,
    streams,
)
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    emptied,
    matrix_layout,
    overlap,
    require_disjoint,
    require_same_memory,
    view,
)
from ptxgen.api.epilogue_args import (
    Activation,
    EpilogueArgs,
    activation_name,
    alignment_like_c,
    columns_of_c,
    epilogue_arguments,
)
from ptxgen.api.gemm import check_operands, check_out, contiguous, number
from ptxgen.api.jagged_calls import pitches, stored_along
from ptxgen.arguments import flag, word
from ptxgen.codegen.config.config import Config
from ptxgen.codegen.grouped.scheduler import GroupedScheduler
from ptxgen.codegen.render import render
from ptxgen.errors import DeviceError, DtypeError, InputError, OverlapError, PtxgenError, ShapeError
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.gemm.strided_arrays import A, B, C
from ptxgen.operations.grouped.launch import GroupCall, GroupLaunch, ListLaunch, PackedLaunch
from ptxgen.operations.grouped.lowering import SMALL_LD
from ptxgen.operations.grouped.problem import GroupedGemm, write_leading_dimensions
from ptxgen.operations.grouped.reference import item_view
from ptxgen.problem.base import ARRAYS_LIKE_C, OUT_DTYPES
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.operation import operation_named
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.runner import Buffers
from ptxgen.tuning import selection

#: epilogue arguments that are lists with an array for each item
LISTS = ("scale_a", "scale_b", "bias", "residual", "aux", "sums")
WRITTEN = ("out", "sums")  #: the arguments with arrays that a call writes
#: letter of a layout -> that of the transpose
OTHER_LETTER = str.maketrans("NT", "TN")


def gemm_grouped(
    a: Sequence[Any],
    b: Sequence[Any],
    outs: Sequence[Any] | None = None,
    *,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    compute: str | None = None,
    deterministic: bool = False,
    bias: Sequence[Any] | None = None,
    residual: Sequence[Any] | None = None,
    activation: Activation | None = None,
    aux: Sequence[Any] | None = None,
    scale_a: Sequence[Any] | None = None,
    scale_b: Sequence[Any] | None = None,
    sums: Sequence[Any] | None = None,
    schedule: str | None = None,
) -> list[Any]:
    """C_i = activation(scale_a_i·scale_b_i·alpha_i·A_i·B_i + beta_i·out_i + bias_i + residual_i) for every item i, as a
    list of arrays.

    ``a``, ``b``, ``outs``: lists of arrays, as ``gemm`` takes them, each item with its own M, N, K and strides; all
    items have one dtype. Items may be empty. ``outs`` is allocated if None. ``alpha``, ``beta``: a number, or one of
    each item. ``bias``, ``residual``, ``aux``, ``scale_a``, ``scale_b``, ``sums``: None, or a list with an array for
    each item, as ``gemm`` takes it; scales may be those of blocks.

    All items with the same layouts are computed in one launch, which a descriptor table in device memory describes.
    Inputs may share memory; an array of ``outs`` or ``sums`` must not share memory with another array. Errors name
    the item and are otherwise those of ``gemm``.

    ``schedule``: a name as for the option ``--schedule``, for example ``tlp``: this method chooses a tile for each
    item, in place of one tuned kernel for all; an epilogue is then an error.

    A captured CUDA graph computes the same items on the same arrays again.
    """
    count = length_of("a", a)
    lists = {"b": b, "outs": outs}
    lists |= {"bias": bias, "residual": residual, "aux": aux, "scale_a": scale_a, "scale_b": scale_b, "sums": sums}
    for name, given in lists.items():
        if given is not None and length_of(name, given) != count:
            raise InputError(f"a has {count} items and {name} has {len(given)}; they must have as many")
    if type(deterministic) is not bool:  # 1 equals True in a key
        deterministic = flag("deterministic", deterministic)
    plain = activation is aux is sums is bias is residual is scale_a is scale_b is None
    keyed = grouped_calls.key_of(a, b, outs, alpha, beta, compute, deterministic, schedule) if plain and count else None
    key = keyed[0] if keyed is not None else None
    if keyed is not None and (ready := launches.grouped_calls.get(key)) is not None:
        made = grouped_calls.launch(ready, a, outs, keyed[1])
        if made is not None:
            return list(outs) if outs is not None else made
    compute = word("compute", "" if compute is None else compute)
    if schedule is not None:
        word("schedule", schedule, operation_named("grouped").schedules)
    alphas, betas = _numbers("alpha", alpha, count), _numbers("beta", beta, count)
    if outs is None and betas.any():
        i = int(np.flatnonzero(betas)[0])
        raise InputError(f"beta of item {i} is {betas[i]:g} and outs is None; a beta other than 0 requires outs")
    activation = activation_name(activation)
    if betas.any() and columns_of_c(2, activation) == 1:
        i = int(np.flatnonzero(betas)[0])
        raise InputError(f"beta of item {i} is {betas[i]:g}; with a gated activation it must be 0")
    with call_lock.lock:
        results: list[Any] = []
        items = []
        for i in range(count):
            with _named(i):
                arrays = [None if lists[name] is None else lists[name][i] for name in LISTS]  # type: ignore[index]
                item, result = _item(i, a[i], b[i], None if outs is None else outs[i], arrays, activation)
            items.append(item)
            results.append(result)
        if items:
            _check_group(items)
            groups = _groups([x if alphas[x.index] != 0 else x.without_product() for x in items])
            launched = [_launch(group, a[0], alphas, betas, compute, deterministic, schedule) for group in groups]
            if key is not None:
                _store(key, items, groups, launched, results)
    return results if outs is not None else [new_arrays.result_of(c, x) for c, x in zip(results, a, strict=True)]


@dataclass(frozen=True)
class Item:
    """One item as the kernel computes it. ``index``: its place in the lists; ``swapped``: the kernel computes Cᵀ =
    BᵀAᵀ, so that C is row-major."""

    index: int
    a: View
    b: View
    c: View
    epilogue: EpilogueArgs
    swapped: bool
    layout: str

    def without_product(self) -> Item:
        """The item with K = 0, so that A and B are not read."""
        return replace(self, a=emptied(self.a, 1), b=emptied(self.b, 0))


def length_of(name: str, given: Any) -> int:
    """The length of a list. InputError: ``given`` is not a list."""
    if not isinstance(given, (list, tuple)):
        raise InputError(f"{name} is {type(given).__name__}; it must be a list of arrays, one of each item")
    return len(given)


@contextmanager
def _named(i: int) -> Iterator[None]:
    """Errors within the block begin with the number of the item."""
    try:
        yield
    except PtxgenError as error:
        raise type(error)(f"item {i}: {error}") from error


def _numbers(name: str, given: Any, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """One number for each item. InputError: there are more or fewer, or one is not a number."""
    if not isinstance(given, (list, tuple, np.ndarray)) or np.ndim(given) == 0:
        return np.full(count, number(given, name))
    if len(given) != count:
        raise InputError(f"a has {count} items and {name} has {len(given)}; they must have as many")
    return np.array([number(x, f"{name} of item {i}") for i, x in enumerate(given)], np.float64)


def _item(i: int, a: Any, b: Any, out: Any, arrays: list[Any], activation: str | None) -> tuple[Item, Any]:
    """The item, and the array of its result. Errors are those of ``gemm``."""
    va, vb = view(a, "a"), view(b, "b")
    check_operands(va, vb)
    shape = va.shape[0], columns_of_c(vb.shape[1], activation)
    gated = shape[1] != vb.shape[1]
    on = drivers.driver_of(va)
    result = new_arrays.empty_array(a, shape, dtype(OUT_DTYPES[va.dtype.name][0])) if out is None else out
    vc = view(result, "out")
    check_out(va, vc, shape)
    scale_a, scale_b, bias, residual, aux, sums = arrays
    epilogue = epilogue_arguments(
        shape, vc, scale_a, scale_b, bias, residual, activation, aux, operands=(va, vb), sums=sums
    )
    require_disjoint(vc)  # from the operands of all items: _check_disjoint
    if sums is not None:
        require_disjoint(dict(epilogue.arrays)["sums"], "sums")
    if not va.host:
        drivers.require_device(on, a=va, b=vb, out=vc, **dict(epilogue.arrays))
    c_layout = matrix_layout(vc)
    if not va.host:  # host arrays are copied
        if c_layout is None:
            raise ShapeError(f"out has strides {vc.strides}; its rows or its columns must be contiguous")
        if gated and c_layout[0] == "T":
            raise ShapeError(f"out has strides {vc.strides}; with a gated activation its rows must be contiguous")
        epilogue.check_strides(vc)
    swapped = c_layout is not None and c_layout[0] == "T" and not gated
    if epilogue.blocks[0]:
        (va, letter_a), (vb, letter_b) = stored_along(va, "a", 1), stored_along(vb, "b", 0)
        layout = letter_a + letter_b
    else:
        va, vb = (v if matrix_layout(v) else contiguous(v, name) for v, name in ((va, "a"), (vb, "b")))
        layout = "".join((matrix_layout(v) or ("N", 0))[0] for v in (va, vb))
    if swapped:
        va, vb, vc = batch_views.transposed(vb), batch_views.transposed(va), batch_views.transposed(vc)
        epilogue, layout = epilogue.transposed(), layout[::-1].translate(OTHER_LETTER)
    return Item(i, va, vb, vc, epilogue, swapped, layout), result


def _check_group(items: list[Item]) -> None:
    """DtypeError, InputError, OverlapError: items cannot be computed together."""
    first = items[0]
    for x in items:
        given, wanted = ([v.dtype for v in (y.a, y.b, y.c)] for y in (x, first))
        if given != wanted:
            raise DtypeError(
                f"item {x.index}: a is {given[0]}, b is {given[1]} and out is {given[2]}; they must be {wanted[0]},"
                f" {wanted[1]} and {wanted[2]}, as in item {first.index}"
            )
        require_same_memory(f"a of item {x.index}", x.a, f"a of item {first.index}", first.a)
        if x.c.device != first.c.device:
            raise DeviceError(
                f"item {x.index} is on GPU {x.c.device} and item {first.index} on GPU {first.c.device}; all items must"
                " be on one GPU"
            )
    _check_disjoint(items)


def _check_disjoint(items: list[Item]) -> None:
    """OverlapError: an output shares memory with another output or with an input. Only arrays whose spans intersect are
    compared."""
    arrays = [(x, v, name) for x in items for v, name in _arrays(x) if 0 not in v.shape]
    outputs = [(n, *array) for n, array in enumerate(arrays) if array[2] in WRITTEN]
    if not outputs:
        return
    low, high = np.array([v.span for _, _, v, _ in outputs], np.int64).T
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    for n, (x, v, name) in enumerate(arrays):
        begin, end = v.span
        # outputs that begin before the end of v, and whose predecessors may reach its beginning
        for place in range(int(np.searchsorted(reach, begin, "right")), int(np.searchsorted(low, end, "left"))):
            m, y, c, output = outputs[order[place]]
            if (name in WRITTEN and m >= n) or not overlap(c, v):
                continue
            raise OverlapError(f"{output} of item {y.index} shares memory with {name} of item {x.index}")


def _arrays(x: Item) -> Iterable[tuple[View, str]]:
    """The arrays of an item, with their names as arguments."""
    a, b = ("b", "a") if x.swapped else ("a", "b")
    yield x.a, a
    yield x.b, b
    yield x.c, "out"
    for name, v in x.epilogue.arrays:
        yield v, name


def _groups(items: list[Item]) -> list[list[Item]]:
    """The items that one launch computes: those with the same layouts and operations."""
    groups: dict[Any, list[Item]] = {}
    for x in items:
        groups.setdefault((x.layout, x.swapped, x.epilogue.ops, x.epilogue.blocks), []).append(x)
    return list(groups.values())


def _store(key: Any, items: list[Item], groups: list[list[Item]], launched: Sequence[Any], results: list[Any]) -> None:
    """Caches a call, unless an array was copied or is in host memory."""
    own = [{x.a.address, x.b.address, x.c.address} for x in items]
    named = [[v.origin.data_ptr() for v in (x.a, x.b, x.c)] for x in items]
    if any(call is None for call in launched) or any(one != set(other) for one, other in zip(own, named, strict=True)):
        return
    cached = []
    for group, call in zip(groups, launched, strict=True):
        used = [x.index for x in group if 0 not in x.c.shape]
        p = call.problem
        alignment = (p.aligned_a, p.aligned_b, p.aligned_c)
        if group[0].swapped:
            alignment = (p.aligned_b, p.aligned_a, p.aligned_c)
        index = np.array([x.index for x in group])
        cached.append(
            grouped_calls.CachedGroup(call, index, group[0].swapped, np.array(used, np.intp), np.array(alignment))
        )
    order = [(x.b, x.a, x.c) if x.swapped else (x.a, x.b, x.c) for x in items]
    sizes = np.array([[v.span[1] - v.span[0] for v in views] for views in order], np.int64)
    shapes = tuple(tuple(result.shape) for result in results)
    grouped_calls.store(
        key, grouped_calls.CachedCall(tuple(cached), sizes, shapes, results[0].dtype, recording.active())
    )


def _launch(
    group: list[Item], array: Any, alphas: Any, betas: Any, compute: str, deterministic: bool, schedule: str | None
) -> GroupCall | None:
    """Computes the items of one launch. Returns the call that computes them again at other addresses; None: the arrays
    are on the host, or no result has an element."""
    index = [x.index for x in group]
    alpha, beta = alphas[index], betas[index]
    problem = _problem(group, compute, deterministic)
    _check_numbers(problem, index, alpha, beta)
    if not problem.results:
        return None
    call = None
    names = _operand_names(problem)
    on = drivers.driver_of(group[0].a)
    if group[0].a.host:
        _compute_on_host(group, problem, alpha, beta, launcher(problem, on, schedule))
    else:
        stream = streams.current_stream(array)
        addresses = np.array([[x.a.address, x.b.address, x.c.address] for x in group], np.int64)
        operands = [np.array([dict(x.epilogue.arrays)[n].address for x in group], np.int64) for n in names]
        with streams.ordered(on, stream, (v for x in group for v, _ in _arrays(x))):
            call = launcher(problem, on, schedule).prepare(problem, alpha, beta, operands)
            call(addresses, stream)
    recording.notify(problem, on)
    return call


def _problem(group: list[Item], compute: str, deterministic: bool) -> GroupedGemm:
    """The problem of one launch. For host arrays, the problem describes contiguous copies."""
    first = group[0]
    items = tuple((x.a.shape[0], x.b.shape[1], x.a.shape[1]) for x in group)
    block_a, block_b = first.epilogue.blocks if any(k for _, _, k in items) else ("", "")  # else nothing is scaled
    ld, aligned = "", [16, 16, 16]
    if not first.a.host:
        lds = [[*_pitches(x), (matrix_layout(x.c) or ("N", 0))[1]] for x in group]
        ld = write_leading_dimensions(lds)
        aligned = [min((alignment_of(v.address) for v in vs), default=16) for vs in _operands(group)]
        aligned[2] = min(aligned[2], *(alignment_like_c(x.epilogue.arrays) for x in group))
    return GroupedGemm(
        items,
        first.layout,
        first.a.dtype.name,
        compute,
        ld,
        aligned[0],
        aligned[1],
        aligned[2],
        deterministic,
        first.c.dtype.name,
        ",".join(first.epilogue.ops),
        block_a=block_a,
        block_b=block_b,
        dtype_b=first.b.dtype.name,
    )


def _pitches(x: Item) -> list[int]:
    """The leading dimensions of A and B; 0: that of contiguous rows."""
    if not x.epilogue.blocks[0]:
        return [(matrix_layout(v) or ("N", 0))[1] for v in (x.a, x.b)]
    return pitches(x.layout, x.a, x.b)


def _operand_names(problem: GroupedGemm) -> tuple[str, ...]:
    """The arrays besides A, B and C whose addresses are in the descriptor table, in its order."""
    return (*problem.epilogue_operands, *problem.scale_shapes)


def _operands(group: list[Item]) -> list[list[View]]:
    """A, B and C of the items whose arrays have elements."""
    full = [x for x in group if 0 not in x.c.shape]
    return [[x.a for x in full], [x.b for x in full], [x.c for x in full]]


def _check_numbers(problem: GroupedGemm, index: list[int], alpha: Any, beta: Any) -> None:
    """InputError: an alpha or beta does not fit the type of the epilogue."""
    number = problem.epilogue_dtype
    for name, values in (("alpha", alpha), ("beta", beta)):
        wrong = values != np.rint(values) if number.integer else np.zeros(len(values), bool)
        wrong |= np.isfinite(values) & (np.abs(values) > number.largest)
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise InputError(f"{name} of item {index[i]} is {values[i]:g}; it must be a number of type {number.name}")


def _compute_on_host(group: list[Item], problem: GroupedGemm, alpha: Any, beta: Any, launch: ListLaunch) -> None:
    """Copies host arrays to contiguous memory of the device, computes there, and copies the results back."""
    on = launch.driver
    wholes = [np.zeros(size, element.numpy) for size, element in zip(problem.sizes, problem.types, strict=True)]
    reads_c = beta != 0
    for i, x in enumerate(group):
        for operand, v in ((A, x.a), (B, x.b), (C, x.c)):
            if 0 not in v.shape and (operand != C or reads_c[i]):
                item_view(problem, operand, wholes[operand], i)[...] = _stored(x, operand, v)
    operands = {
        name: [_epilogue_values(name, dict(x.epilogue.arrays)[name], x) for x in group]
        for name in _operand_names(problem)
    }
    flat = [y for ys in operands.values() for y in ys]
    with Buffers(on, dict(enumerate((*wholes, *flat)))) as buffers:
        at = list(buffers.addresses.values())
        bytes_ = np.array([x.bytes for x in problem.types])
        addresses = problem.starts * bytes_ + np.array(at[:3], np.int64)
        rest = np.array(at[3:], np.int64).reshape(len(operands), len(group))
        launch(problem, addresses, alpha, beta, list(rest))
        on.synchronize()
        on.download(at[2], wholes[C])
        for name, places in zip(operands, rest.tolist(), strict=True):
            for place, values in zip(places, operands[name] if name in WRITTEN else (), strict=False):
                if values.size:
                    on.download(place, values)
    for i, x in enumerate(group):
        _stored(x, C, x.c)[...] = item_view(problem, C, wholes[C], i)
        if "sums" in operands:
            _stored(x, C, dict(x.epilogue.arrays)["sums"])[...] = operands["sums"][i]


def _epilogue_values(name: str, v: View, x: Item) -> Any:
    """An operand of the epilogue of the kernel's problem, as a contiguous array."""
    array = as_numpy(v)
    return np.ascontiguousarray(array.T if x.swapped and name in ARRAYS_LIKE_C else array)


def _stored(x: Item, operand: int, v: View) -> Any:
    """A, B or C as the kernel's problem stores it."""
    array = as_numpy(v).T if x.swapped else as_numpy(v)
    return array.T if operand != C and x.layout[operand] == "T" else array


def launcher(problem: GroupedGemm, on: Driver, schedule: str | None = None) -> ListLaunch:
    """The loaded kernel of a problem on a driver. DtypeError: no kernel computes the problem. LaunchError: ``schedule``
    has no kernel for it."""
    if schedule is not None:
        return _tile_launcher(problem, schedule, on)
    config = choice.choose(problem, on)
    if config is None:
        why = selection.why_unsupported(problem, on.device)
        raise DtypeError(f"a and b are {problem.dtype}; no kernel multiplies them on {on.device.name}: {why}")
    return _launcher(problem, config, on)


_launchers: dict[Any, ListLaunch] = {}


def _launcher(problem: GroupedGemm, config: Config, on: Driver) -> ListLaunch:
    """The loaded kernel of a configuration. One kernel serves all groups with the same layout, types and epilogue."""
    large = bool((problem.lds > SMALL_LD).any())
    fields = tuple(getattr(problem, name) for name in ("layout", "dtype", *GroupedGemm.CODE_OPTIONS))
    key = (on, fields, config, large)
    if key not in _launchers:
        shared = driver_state.state_of(on)
        plan = plan_for(problem, config, on.device)
        launch_class = GroupLaunch if isinstance(plan.scheduler, GroupedScheduler) else PackedLaunch
        _launchers[key] = launch_class(on, plan, shared.kernel(render(plan)), shared.workspaces)
    return _launchers[key]


def _tile_launcher(problem: GroupedGemm, schedule: str, on: Driver) -> ListLaunch:
    """The loaded kernel of a schedule that chooses a tile for each item."""
    from ptxgen.operations.grouped.tile_kernel import kernel_plan, kernel_source
    from ptxgen.operations.grouped.tile_launch import TileLaunch
    from ptxgen.operations.grouped.tlp_schedule import VARIANTS, setting_of

    variant = VARIANTS[schedule]
    bodies = setting_of(on.device, schedule).bodies
    plan = kernel_plan(problem, on.device, variant.method.tiles, bodies, variant.grid)
    key = on, schedule, plan
    if key not in _launchers:
        shared = driver_state.state_of(on)
        _launchers[key] = TileLaunch(on, plan, shared.kernel(kernel_source(plan)), shared.workspaces, variant)
    return _launchers[key]
