"""The arguments of a convolution: axes of the arrays, memory layouts, stride, padding and dilation.

A layout lists the axes of an array in order. The memory layout is derived from the strides, so a permuted array (for
example PyTorch's channels_last) needs no copy.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptxgen.api.arrays import View
from ptxgen.arguments import flag, integer, is_integer, plain, shown, word
from ptxgen.errors import InputError, ShapeError
from ptxgen.problem.base import EXTENT_LIMIT

#: number of spatial axes -> layout of user arrays -> layout of the problem
LAYOUTS: dict[int, dict[str, str]] = {
    1: {"NCW": "NCHW", "NWC": "NHWC", "CWN": "CHWN"},
    2: {"NCHW": "NCHW", "NHWC": "NHWC", "CHWN": "CHWN"},
    3: {"NCDHW": "NCHW", "NDHWC": "NHWC", "CDHWN": "CHWN"},
}
FILTERS: dict[int, dict[str, str]] = {
    1: {"KCS": "KCRS", "KSC": "KRSC", "CSK": "CRSK"},
    2: {"KCRS": "KCRS", "KRSC": "KRSC", "CRSK": "CRSK"},
    3: {"KCTRS": "KCRS", "KTRSC": "KRSC", "CTRSK": "CRSK"},
}
#: role -> letters of its spatial axes
SPATIAL_AXES = {"images": "dhw", "filters": "trs", "results": "zpq"}

Extents = dict[str, int]


@dataclass(frozen=True)
class ConvArguments:
    """Stride, padding, dilation, groups and layouts of one call. ``dims``: number of spatial axes; ``stride``,
    ``dilation``: per (depth, height, width) after ``resolved``; ``padding``: unchanged from the caller; ``layout``,
    ``filters``: layouts of the user's arrays; ``output_padding``: of a transposed convolution, like ``stride``;
    ``exact_nonfinite``: as in ``Conv``.

    Methods name an array by its role: ``images``, ``filters`` or ``results``. InputError, ShapeError: an argument
    breaks a rule.
    """

    dims: int
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    layout: str | None = None
    filters: str | None = None
    output_padding: Any = 0
    exact_nonfinite: bool = False

    def resolved(self) -> ConvArguments:
        """The arguments with defaults filled in. All but the padding are checked."""
        default = next(iter(LAYOUTS[self.dims]))
        layout = word("layout", default if self.layout is None else self.layout, LAYOUTS[self.dims])
        natural = list(FILTERS[self.dims])[list(LAYOUTS[self.dims]).index(layout)]
        filters = word("filter_layout", natural if self.filters is None else self.filters, FILTERS[self.dims])
        groups = integer("groups", self.groups, 1, EXTENT_LIMIT - 1)
        return replace(
            self,
            layout=layout,
            filters=filters,
            groups=groups,
            padding=plain(self.padding),
            stride=self._per_axis("stride", self.stride, 1),
            dilation=self._per_axis("dilation", self.dilation, 1),
            output_padding=self._per_axis("output_padding", self.output_padding, 0),
            exact_nonfinite=flag("exact_nonfinite", self.exact_nonfinite),
        )

    def transposed(self, images: Mapping[str, int], filters: Mapping[str, int]) -> tuple[ConvArguments, Extents]:
        """The pair (arguments, extents of the result) by which a transposed convolution is computed as the input
        gradient of a convolution, whose results have the extents of ``images``. ``images``, ``filters``: extents of the
        operands by axis.

        ShapeError: channels of images and filters differ, an axis of images is empty, or ``output_padding`` is too
        large. InputError: ``padding`` is a word."""
        if images["k"] != filters["k"]:
            raise ShapeError(
                f"images have {images['k']} channels and filters {filters['k']} along K; they must be equal"
            )
        if isinstance(self.padding, str):
            raise InputError(f"padding is {shown(self.padding)}; that of a transposed convolution must be numbers")
        pads, out, arrays = (
            list(self.padding_pairs({}, filters)),
            [],
            {"n": images["n"], "c": filters["c"] * self.groups},
        )
        for n, (axis, result, tap) in enumerate(zip("dhw", "zpq", "trs", strict=True)):
            end, more, stride = pads[2 * n + 1], self.output_padding[n], self.stride[n]
            if not images[result]:
                raise ShapeError(f"images have no pixel along {axis}; a transposed convolution needs at least one")
            if more >= stride + end:
                raise ShapeError(
                    f"output_padding is {more} along {axis}; it must be smaller than {stride + end}, the stride plus"
                    " the padding at the end"
                )
            extent = (images[result] - 1) * stride + self.dilation[n] * (filters[tap] - 1) + 1 + more
            arrays[axis] = extent - pads[2 * n] - end
            if arrays[axis] < 0:
                raise ShapeError(
                    f"padding is {shown(self.padding)}; the result has {extent} pixels along {axis} without padding,"
                    " which must not be more"
                )
            if more >= stride:  # the convolution with this padding would have more results
                pads[2 * n + 1] = max(0, end - more)
            out.append((pads[2 * n], pads[2 * n + 1]))
        return replace(self, padding=tuple(out[3 - self.dims :])), arrays

    def _per_axis(self, name: str, value: Any, rest: int) -> tuple[int, ...]:
        """One integer per axis (depth, height, width). ``rest``: the value of axes that the convolution does not have,
        and the least value allowed."""
        given = plain(value)
        values = given if isinstance(given, tuple) else (given,) * self.dims
        if len(values) != self.dims or not all(is_integer(x, rest, EXTENT_LIMIT - 1) for x in values):
            some = f"an integer from {rest}" + (f", or {self.dims} such integers" if self.dims > 1 else "")
            raise ShapeError(f"{name} is {shown(value)}; it must be {some}, at most {EXTENT_LIMIT - 1}")
        return (rest,) * (3 - self.dims) + tuple(map(operator.index, values))

    def padding_pairs(self, images: Mapping[str, int], filters: Mapping[str, int]) -> tuple[int, ...]:
        """Begin and end of the padding of depth, height and width. ``same``: ceil(extent / stride) results, with
        the odd pixel at the end; ``valid``: no padding."""
        value = self.padding
        if isinstance(value, str):
            if value not in ("same", "valid"):
                raise InputError(f"padding is {shown(value)}; it must be same, valid, or numbers")
            if value == "valid":
                return (0,) * 6
            out: list[int] = []
            for axis, tap, stride, dilation in zip("dhw", "trs", self.stride, self.dilation, strict=True):
                results = -(-images[axis] // max(stride, 1))
                whole = max((results - 1) * stride + dilation * (filters[tap] - 1) + 1 - images[axis], 0)
                out += [whole // 2, whole - whole // 2]
            return tuple(out)
        if isinstance(value, tuple) and len(value) == self.dims and all(map(_is_pair, value)):
            given = [int(x) for pair in value for x in pair]
        else:
            try:
                given = [x for x in self._per_axis("padding", value, 0)[3 - self.dims :] for _ in (0, 1)]
            except ShapeError as error:
                raise ShapeError(f"{error}, a pair (begin, end) for each axis, same, or valid") from None
        return (0,) * (6 - 2 * self.dims) + tuple(given)

    # ---- arrays

    def axes(self, role: str) -> str:
        """The axes of the array with this role, in the order of the user's array, as letters of the problem's
        layouts."""
        if role == "filters":
            return str(self.filters).lower()
        layout = str(self.layout).lower()
        return layout.translate(str.maketrans("cdhw", "kzpq")) if role == "results" else layout

    def extents(self, role: str, shape: Sequence[int], argument: str) -> Extents:
        """The extents of a shape by axis. Missing axes have extent 1. ShapeError: the number of axes is wrong."""
        axes = self.axes(role)
        if len(shape) != len(axes):
            raise ShapeError(
                f"{argument} has shape {shown(tuple(shape))}; it must have {len(axes)} axes, {axes.upper()}"
            )
        if not all(is_integer(x, 0, EXTENT_LIMIT - 1) for x in shape):
            raise ShapeError(f"{argument} is {shown(shape)}; its extents must be integers from 0 to {EXTENT_LIMIT - 1}")
        return {**dict.fromkeys(SPATIAL_AXES[role], 1), **dict(zip(axes, (int(x) for x in shape), strict=True))}

    def memory_layouts(self, role: str, v: View) -> list[str]:
        """The problem layouts in which an array is contiguous. Axes of extent 1 fit anywhere. Layouts in which these
        axes have the strides of a new array come first, and among them the user's own layout."""
        table = FILTERS[self.dims] if role == "filters" else LAYOUTS[self.dims]
        own = self.filters if role == "filters" else self.layout
        orders = []
        for name, layout in table.items():
            order = self.axis_permutation(role, layout)
            strides = packed_strides(v.shape, order)
            if 0 in v.shape or all(n == 1 or v.strides[i] == strides[i] for i, n in enumerate(v.shape)):
                orders.append((v.strides != strides, name != own, layout))
        return [layout for *_, layout in sorted(orders, key=lambda x: x[:2])]

    def axis_permutation(self, role: str, problem_layout: str) -> tuple[int, ...]:
        """The array axis of each axis in memory order. ``problem_layout``: the layout in memory."""
        table = FILTERS[self.dims] if role == "filters" else LAYOUTS[self.dims]
        name = next(own for own, called in table.items() if called == problem_layout).lower()
        if role == "results":
            name = name.translate(str.maketrans("cdhw", "kzpq"))
        axes = self.axes(role)
        return tuple(axes.index(letter) for letter in name)


def packed_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array, by axis. ``order``: its axes in memory order."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The inverse permutation."""
    return tuple(sorted(range(len(order)), key=lambda i: order[i]))


def _is_pair(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and all(is_integer(y, 0, EXTENT_LIMIT - 1) for y in x)
