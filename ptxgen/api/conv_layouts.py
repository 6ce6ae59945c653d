"""The arguments of a convolution, as arrays have them and as a problem has them.

A layout names the axes of an array in order. Which of the layouts its elements have in memory is read from its strides,
so an array that was permuted (PyTorch's channels_last among them) costs nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptxgen.api.arrays import View
from ptxgen.arguments import integer, is_integer, plain, shown, word
from ptxgen.errors import InputError, ShapeError
from ptxgen.problem.base import EXTENT_LIMIT

#: by the number of axes that a filter slides along: layouts of arrays, and what a problem calls them
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
#: letters of images, of filters and of results that the filter slides along
SLIDES = {"images": "dhw", "filters": "trs", "results": "zpq"}

Extents = dict[str, int]


@dataclass(frozen=True)
class Window:
    """How filters slide, and what the axes of the arrays are. ``dims``: along how many axes; ``stride``, ``dilation``:
    of depth, height, width; ``padding``: as it was given; ``layout``, ``filters``: of the arrays.

    InputError, ShapeError: an argument breaks a rule.
    """

    dims: int
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    layout: str | None = None
    filters: str | None = None

    def settled(self) -> Window:
        """The same with everything filled in and checked, but for the padding."""
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
            stride=self._spread("stride", self.stride, 1),
            dilation=self._spread("dilation", self.dilation, 1),
        )

    def _spread(self, name: str, value: Any, rest: int) -> tuple[int, ...]:
        """One integer an axis of (depth, height, width); ``rest``: for those that there are not, and the least."""
        given = plain(value)
        values = given if isinstance(given, tuple) else (given,) * self.dims
        if len(values) != self.dims or not all(is_integer(x, rest, EXTENT_LIMIT - 1) for x in values):
            some = f"an integer from {rest}" + (f", or {self.dims} of them" if self.dims > 1 else "")
            raise ShapeError(f"{name} is {shown(value)}; it must be {some}, at most {EXTENT_LIMIT - 1}")
        return (rest,) * (3 - self.dims) + tuple(map(operator.index, values))

    def pads(self, images: Mapping[str, int], filters: Mapping[str, int]) -> tuple[int, ...]:
        """Begin and end of the padding of depth, height, width. ``same``: as many results as pixels over the stride, an
        odd pixel at the end; ``valid``: none."""
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
                given = [x for x in self._spread("padding", value, 0)[3 - self.dims :] for _ in (0, 1)]
            except ShapeError as error:
                raise ShapeError(f"{error}, a pair (begin, end) for each axis, same, or valid") from None
        return (0,) * (6 - 2 * self.dims) + tuple(given)

    # ---- arrays

    def letters(self, what: str) -> str:
        """The axes of an array in order, in the problem's letters: of ``images``, ``filters`` or ``results``."""
        if what == "filters":
            return str(self.filters).lower()
        layout = str(self.layout).lower()
        return layout.translate(str.maketrans("cdhw", "kzpq")) if what == "results" else layout

    def extents(self, what: str, shape: Sequence[int], argument: str) -> Extents:
        """A shape by letter; axes that there are not have the extent 1. ShapeError: it has another number of axes."""
        letters = self.letters(what)
        if len(shape) != len(letters):
            raise ShapeError(
                f"{argument} has shape {shown(tuple(shape))}; it must have {len(letters)} axes, {letters.upper()}"
            )
        if not all(is_integer(x, 0, EXTENT_LIMIT - 1) for x in shape):
            raise ShapeError(f"{argument} is {shown(shape)}; its extents must be integers from 0 to {EXTENT_LIMIT - 1}")
        return {**dict.fromkeys(SLIDES[what], 1), **dict(zip(letters, (int(x) for x in shape), strict=True))}

    def stored(self, what: str, v: View) -> str | None:
        """The layout, as problems call it, in which the elements of an array lie side by side in memory: its own one if
        that is one of them; None: there is none."""
        letters = self.letters(what)
        steps = dict(zip(letters, zip(v.shape, v.strides, strict=True), strict=True))
        table = FILTERS[self.dims] if what == "filters" else LAYOUTS[self.dims]
        own = self.filters if what == "filters" else self.layout
        for name in sorted(table, key=lambda name: name != own):
            order = name.lower().translate(str.maketrans("cdhw", "kzpq")) if what == "results" else name.lower()
            step, packed = 1, True
            for letter in reversed(order):
                extent, stride = steps[letter]
                packed &= extent == 1 or stride == step
                step *= extent
            if packed or 0 in v.shape:
                return table[name]
        return None

    def order(self, what: str, problem_layout: str) -> tuple[int, ...]:
        """Which axis of the array each axis in memory is; ``problem_layout``: the layout in memory."""
        table = FILTERS[self.dims] if what == "filters" else LAYOUTS[self.dims]
        name = next(own for own, called in table.items() if called == problem_layout).lower()
        if what == "results":
            name = name.translate(str.maketrans("cdhw", "kzpq"))
        letters = self.letters(what)
        return tuple(letters.index(letter) for letter in name)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(sorted(range(len(order)), key=lambda i: order[i]))


def _is_pair(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and all(is_integer(y, 0, EXTENT_LIMIT - 1) for y in x)
