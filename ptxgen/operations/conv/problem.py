"""The problem type of convolutions and their gradients.

The names of extents are the paper's: N images of C channels and D×H×W pixels, K filters of T×R×S taps, results of Z×P×Q
pixels. A layout lists the axes in memory order, the contiguous axis last. D, T and Z precede H, R and P in every
layout.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from ptxgen.arguments import shown, word
from ptxgen.errors import InputError, ShapeError
from ptxgen.operations.conv.spatial import PerAxis, per_axis, per_axis_text
from ptxgen.problem.base import EXACT_NONFINITE, EXTENT_LIMIT, MEMORY_LIMIT, ProblemBase, described
from ptxgen.problem.dtypes import Dtype
from ptxgen.problem.epilogue_ops import STORE

#: layout of images and results -> the filters' natural layout
FILTERS = {"NCHW": "KCRS", "NHWC": "KRSC", "CHWN": "CRSK"}
#: with at most MAX_FOLDED_FILTERS filters per group, FOLD pixels of a row become columns of the GEMM
MAX_FOLDED_FILTERS, FOLD = 4, 16
TENSORS = {"x": "images", "w": "filters", "y": "results"}
GRADIENTS = {"x": "input gradients", "w": "weight gradients", "y": "gradients of results"}
DIRECTIONS = ("forward", "input_grad", "weight_grad")
#: (name, meaning) of the C arguments for height and width
C_STRIDE = ("stride_h", "rows from one window to the next"), ("stride_w", "columns from one window to the next")
C_DILATION = ("dilation_h", "rows from one tap to the next"), ("dilation_w", "columns from one tap to the next")
C_PADDING = (
    ("pad_top", "rows of zeros above an image"),
    ("pad_bottom", "rows of zeros below an image"),
    ("pad_left", "columns of zeros before an image"),
    ("pad_right", "columns of zeros after an image"),
)


@dataclass(frozen=True)
class Conv(ProblemBase):
    """A convolution (``forward``) or one of its gradients.

    There are ``n`` images of ``c`` channels and ``d``×``h``×``w`` pixels, and ``k`` filters of ``c/groups`` channels
    and ``t``×``r``×``s`` taps. ``stride``, ``padding``, ``dilation``: one integer, or one for each axis, (h, w) or (d,
    h, w); padding also as (begin, end) pairs of each axis, (h0, h1, w0, w1). ``layout``: the layout of images and
    results; ``filters``: the layout of filters, by default the natural one of ``layout`` (FILTERS).

    ``direction``: ``forward`` computes results from images and filters; ``input_grad`` computes input gradients from
    result gradients and filters; ``weight_grad`` computes weight gradients from images and result gradients.
    ``epilogue``, not for ``weight_grad``: ``scale``, ``bias`` (one for each channel of the result), ``residual`` (of
    the result's shape), an activation or ``relu_grad`` (with ``aux`` of the result's shape), as for Gemm. A gated
    activation, for ``forward`` alone, takes the filters of a group in pairs, a gate and a value in turn: results have
    K/2 channels, while scales and the bias precede it, so that the bias has K elements. ``store_sums``, before the
    activation, stores the sums to ``sums``, an array like the result; with a gated activation, which then takes the
    layout NHWC, it has K channels.
    ``aligned_input``, ``aligned_filter``, ``aligned_output``: the alignment in bytes of the addresses of images,
    filters and results. ``exact_nonfinite``: infinities and NaN reach only the results that depend on them, which
    excludes Winograd's algorithm, ``fold``, and zeros between the filters of groups or in place of taps.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """

    n: int = field(metadata=described(c="images"))
    c: int = field(metadata=described(c="channels"))
    h: int = field(metadata=described(c="height of an image"))
    w: int = field(metadata=described(c="width of an image"))
    k: int = field(metadata=described(c="filters"))
    r: int = field(metadata=described(c="height of a filter"))
    s: int = field(metadata=described(c="width of a filter"))
    d: int = 1
    t: int = 1
    stride: PerAxis = field(default=1, metadata=described(c=C_STRIDE))
    padding: PerAxis = field(default=0, metadata=described(c=C_PADDING))
    dilation: PerAxis = field(default=1, metadata=described(c=C_DILATION))
    groups: int = field(default=1, metadata=described(c="groups of channels and filters"))
    layout: str = field(default="NCHW", metadata=described("NCHW, NHWC or CHWN", words=FILTERS))
    filters: str = field(
        default="",
        metadata=described(
            "conv: filter layout KCRS, KRSC or CRSK. [default: the one that matches the layout]",
            c="layout of filters",
            words=FILTERS.values(),
        ),
    )
    dtype: str = "f32"
    compute: str = ""
    out: str = ""
    epilogue: str = ""
    deterministic: bool = False
    direction: str = field(
        default="forward",
        metadata=described(
            "conv: forward, input_grad or weight_grad. [default: forward]",
            c="PTXGEN_FORWARD, PTXGEN_INPUT_GRAD or PTXGEN_WEIGHT_GRAD",
            words=DIRECTIONS,
        ),
    )
    aligned_input: int = field(default=16, metadata=described("conv: alignment of images in bytes. [default: 16]"))
    aligned_filter: int = field(default=16, metadata=described("conv: alignment of filters. [default: 16]"))
    aligned_output: int = field(default=16, metadata=described("conv: alignment of results. [default: 16]"))
    exact_nonfinite: bool = field(default=False, metadata=EXACT_NONFINITE)

    operation = "conv"
    SHAPE = ("n", "c", "h", "w", "k", "r", "s", "d", "t", "stride", "padding", "dilation", "groups")
    RUNTIME_PARAMETERS = "extents"
    STEPS, ROWS = "addresses and runs of adjacent elements", ""
    SHAPE_EXAMPLE = "N=16,C=32,..."
    SHAPE_FORM = "N=,C=,H=,W=,K=,R=,S=[,D=,T=,stride=,pad=,dilation=,groups=]"
    CODE_OPTIONS = ("filters", "direction", "compute", "out", "epilogue")
    GATED = True
    WRITES: ClassVar[tuple[str, ...]] = (STORE,)

    @classmethod
    def epilogue_rows(cls) -> tuple[tuple[str, ...], ...]:
        return (("scale",), ("bias",), *super().epilogue_rows()[2:])

    def __post_init__(self) -> None:
        self._normalize_integers(
            ("n", "c", "d", "h", "w", "k", "t", "r", "s", "groups", "aligned_input", "aligned_filter", "aligned_output")
        )
        self._check_words_and_flags()
        self._normalize_layout("layout", tuple(FILTERS))
        if not self.filters:
            object.__setattr__(self, "filters", FILTERS[self.layout])
        self._normalize_layout("filters", tuple(FILTERS.values()))
        word("direction", self.direction, DIRECTIONS)
        self._normalize_spatial()
        self._normalize_filters()
        self._normalize_dtypes()
        for name, stored in zip(("aligned_input", "aligned_filter", "aligned_output"), "xwy", strict=True):
            self._check_alignment(name, self.dtype_of(stored))
        self._normalize_epilogue()
        if self.epilogue and self.direction == "weight_grad":
            raise InputError(f"epilogue is {self.epilogue!r}; direction {self.direction} takes none")
        self._require_memory()

    def _check_gated(self, given: list[str]) -> None:
        super()._check_gated(given)
        if self.direction != "forward":
            raise InputError(
                f"epilogue is {self.epilogue!r} and direction is {self.direction}; with a gated activation direction"
                " must be forward"
            )
        if self.k // self.groups % 2:
            groups, count = (f" and groups is {self.groups}", "k/groups") if self.groups > 1 else ("", "it")
            raise ShapeError(
                f"k is {self.k}{groups}; with a gated activation {count} must be even: a gate and a value in turn"
            )
        if "store_sums" in given and self.layout != "NHWC":
            raise InputError(
                f"epilogue is {self.epilogue!r} and layout is {self.layout}; with store_sums and a gated activation"
                " layout must be NHWC, in which a gate and its value are adjacent"
            )

    def _require_memory(self) -> None:
        """Raises ShapeError if a tensor has more bytes than a GPU can address."""
        for name, tensor in TENSORS.items():
            extents, element = self.extents(name).values(), self.dtype_of(name)
            size = math.prod(extents) * element.bytes
            if size > MEMORY_LIMIT:
                count = "x".join(map(str, extents))
                raise ShapeError(
                    f"{tensor} have {count} elements of {element}, {size} bytes; it must be at most"
                    f" {MEMORY_LIMIT}, the address space of a GPU"
                )

    def _normalize_spatial(self) -> None:
        deep = self.d > 1 or self.t > 1
        stride, dilation = per_axis("stride", self.stride, deep), per_axis("dilation", self.dilation, deep)
        pads = per_axis("padding", self.padding, deep, 2, 0)
        if self.groups < 1 or self.c % self.groups or self.k % self.groups:
            raise ShapeError(f"groups is {self.groups}; it must be at least 1, and divide c={self.c} and k={self.k}")
        extents, taps = (self.d, self.h, self.w), (self.t, self.r, self.s)
        # normalize values without effect, so that equivalent problems compare equal
        dilation = tuple(1 if f == 1 else x for f, x in zip(taps, dilation, strict=True))
        filter_extents = [dilation[i] * (taps[i] - 1) + 1 for i in range(3)]
        padded_extents = [extents[i] + pads[2 * i] + pads[2 * i + 1] for i in range(3)]
        for name, axis, filter_, tap, filter_extent, padded in zip(
            "dhw", extents, "trs", taps, filter_extents, padded_extents, strict=True
        ):
            if tap < 1:
                raise ShapeError(f"{filter_} is {tap}; it must be at least 1")
            if padded >= EXTENT_LIMIT:
                raise ShapeError(
                    f"padding is {shown(self.padding)}; {name} is {axis}, and with its padding {padded}; it"
                    f" must be at most {EXTENT_LIMIT - 1}"
                )
            if filter_extent > padded:
                whole = f", {padded} with its padding" if padded > axis else ""
                raise ShapeError(
                    f"{name} is {axis}{whole}; it must be at least {filter_extent}, the extent of the dilated filter"
                    f" ({filter_})"
                )
        stride = tuple(1 if padded_extents[i] == filter_extents[i] else stride[i] for i in range(3))
        for name, value in (("stride", stride), ("padding", pads), ("dilation", dilation)):
            object.__setattr__(self, name, value)

    def _normalize_filters(self) -> None:
        """Sets ``filters`` to the natural layout if both layouts describe the same memory, as KCRS and KRSC do for 1x1
        filters."""

        def order(layout: str) -> list[str]:
            return [letter for letter in layout.lower().replace("r", "tr") if extents[letter] > 1]

        extents = self.extents("w")
        same = (name for name in (FILTERS[self.layout], *FILTERS.values()) if order(name) == order(self.filters))
        object.__setattr__(self, "filters", next(same))

    @property
    def skipped(self) -> str:
        return "terms"  # padding

    @property
    def problem_class(self) -> str:
        """``depthwise`` if there are groups, else ``conv``."""
        return "depthwise" if self.groups > 1 else "conv"

    @property
    def description(self) -> list[str]:
        known = {"forward": "xwy", "input_grad": "w", "weight_grad": "x"}[self.direction]
        first, second, result = (TENSORS[x] if x in known else GRADIENTS[x] for x in self.tensors)
        taps, pixels = ("T R S", "Z P Q") if self.deep else ("R S", "P Q")
        image, product = "D H W" if self.deep else "H W", self.one_pixel
        # the meanings of M, N and K, if the operands are not swapped
        m, n, k = {
            "forward": (
                f"results (N {pixels})",
                f"filters (K{', a gate and a value in turn' * self.gated}){' and adjacent pixels' * bool(self.fold)}",
                f"channels and taps (C {taps})",
            ),
            "input_grad": (
                f"pixels of images (N {image})",
                "channels of images (C)",
                f"filters and taps (K {taps})",
            )
            if product.c == self.c
            else ("images (N)", f"channels and pixels of images (C {image})", "filters (K)"),
            "weight_grad": (f"channels and taps (C {taps})", "filters (K)", f"results (N {pixels})"),
        }[self.direction]
        if product.swapped:
            first, second, m, n = second, first, n, m
        return [
            f"conv {self.direction}: images {self.layout}, filters {self.filters}, {self.dtype}, summed in"
            f" {self.compute}",
            f"as C = alpha A B + beta C: A is {first}, B {second}, C {result}; M counts {m}, N {n}, K {k}",
        ]

    # ---- extents

    @cached_property
    def results(self) -> tuple[int, int, int]:
        """The extents (z, p, q) of a result: depth, height and width."""
        z, p, q = (
            (extent + self.pads[i][0] + self.pads[i][1] - self.dilations[i] * (taps - 1) - 1) // self.strides[i] + 1
            for i, (extent, taps) in enumerate(zip((self.d, self.h, self.w), (self.t, self.r, self.s), strict=True))
        )
        return z, p, q

    @property
    def z(self) -> int:
        return self.results[0]

    @property
    def p(self) -> int:
        return self.results[1]

    @property
    def q(self) -> int:
        return self.results[2]

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides along depth, height and width."""
        assert isinstance(self.stride, tuple)
        return self.stride

    @property
    def dilations(self) -> tuple[int, ...]:
        assert isinstance(self.dilation, tuple)
        return self.dilation

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """The padding (begin, end) along depth, height and width."""
        assert isinstance(self.padding, tuple)
        return tuple(zip(self.padding[::2], self.padding[1::2], strict=True))

    @property
    def flops(self) -> int:
        z, p, q = self.results
        return 2 * self.n * self.k * z * p * q * (self.c // self.groups) * self.t * self.r * self.s

    @property
    def reduction(self) -> int:
        """The largest number of products in the sum of one element of the result."""
        if self.direction == "weight_grad":
            return self.n * math.prod(self.results)
        taps = (self.t, self.r, self.s)
        if self.direction == "forward":
            return self.c // self.groups * math.prod(taps)
        # along an axis, one of stride / gcd(stride, dilation) taps contributes to a pixel
        every = (s // math.gcd(s, d) for s, d in zip(self.strides, self.dilations, strict=True))
        return self.k // self.groups * math.prod(-(-n // step) for n, step in zip(taps, every, strict=True))

    @property
    def bytes(self) -> int:
        """A lower bound of the bytes moved: images, filters, results and stored sums once each."""
        sums = math.prod(self.of_sums().stored[2]) * self.output.bytes if self.stores_sums else 0
        return sum(math.prod(self.extents(x).values()) * self.dtype_of(x).bytes for x in "xwy") + sums

    @property
    def stores_sums(self) -> bool:
        """True if the kernel stores the sums beside the result."""
        return "store_sums" in self.epilogue_ops

    def of_sums(self) -> Conv:
        """The convolution whose results are the sums that ``store_sums`` stores."""
        before = self.epilogue_ops[: self.epilogue_ops.index("store_sums")]
        return replace(self, epilogue=",".join(before))

    # ---- tensors: x images, w filters, y results

    def extents(self, tensor: str) -> dict[str, int]:
        """The extents of a tensor by axis, in memory order."""
        z, p, q = self.results
        if tensor == "w":
            all_ = {"k": self.k, "c": self.c // self.groups, "t": self.t, "r": self.r, "s": self.s}
            order = self.filters.lower().replace("r", "tr")
        elif tensor == "x":
            all_ = {"n": self.n, "c": self.c, "d": self.d, "h": self.h, "w": self.w}
            order = self.layout.lower().replace("h", "dh")
        else:
            all_ = {"n": self.n, "k": self.k // 2 if self.gated else self.k, "z": z, "p": p, "q": q}
            order = self.layout.lower().replace("c", "k").replace("h", "zp").replace("w", "q")
        return {letter: all_[letter] for letter in order}

    def steps(self, tensor: str) -> dict[str, int]:
        """The strides of a tensor by axis, in elements."""
        out, step = {}, 1
        for letter, extent in reversed(self.extents(tensor).items()):
            out[letter] = step
            step *= max(extent, 1)
        return out

    @property
    def tensors(self) -> tuple[str, str, str]:
        """The letters of the first operand, the second operand and the result: x images, w filters, y results."""
        return {"forward": ("x", "w", "y"), "input_grad": ("y", "w", "x"), "weight_grad": ("x", "y", "w")}[
            self.direction
        ]

    @property
    def sum_channels(self) -> int:
        """The number of channels of the sums, each of which has a bias (not for ``weight_grad``)."""
        return self.c if self.direction == "input_grad" else self.k

    @property
    def channel_axis(self) -> int:
        """The axis of channels in images and results as stored."""
        return {"NCHW": 1, "NHWC": 4 if self.deep else 3, "CHWN": 0}[self.layout]

    @property
    def pair_axis(self) -> int:
        return self.channel_axis

    @property
    def deep(self) -> bool:
        """True if the convolution has a depth axis."""
        return self.d > 1 or self.t > 1 or self.z > 1

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of the two operands and the result as stored. Depth axes of extent 1 are omitted."""
        a, b, c = (
            tuple(extent for letter, extent in self.extents(x).items() if self.deep or letter not in "dtz")
            for x in self.tensors
        )
        return a, b, c

    @property
    def broadcast_shapes(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        result = self.stored[2]
        channels = tuple(-1 if n == self.channel_axis else 1 for n in range(len(result)))
        one: tuple[tuple[int, ...], tuple[int, ...]] = ((1,), (1,))
        bias = (self.sum_channels,), channels
        known = {"scale_a": one, "scale_b": one, "bias": bias, "residual": (result, result), "aux": (result, result)}
        if self.stores_sums:
            known["sums"] = (self.of_sums().stored[2],) * 2
        return {name: known[name] for name in self.epilogue_operands}

    def dtype_of(self, tensor: str) -> Dtype:
        return self.output if tensor == self.tensors[2] else self.element

    # ---- as a GEMM

    @cached_property
    def one_pixel(self) -> Conv:
        """The convolution of images of one pixel that computes the same, if each filter covers its image exactly: the
        pixels of all channels are its channels. ``self``, if the elements of images and filters differ in their order,
        or channels in their bias."""
        pixels = self.d * self.h * self.w
        covered = (self.d, self.h, self.w) == (self.t, self.r, self.s) and not any(sum(self.pads, ()))
        if not covered or self.c * pixels >= EXTENT_LIMIT:
            return self
        channels_last = self.layout == "NHWC"
        ordered = channels_last == (self.filters == "KRSC") and not (channels_last and self.groups > 1)
        if pixels > 1 and not (ordered and (self.direction != "input_grad" or "bias" not in self.epilogue_ops)):
            return self
        return replace(
            self,
            c=self.c * pixels,
            d=1,
            h=1,
            w=1,
            t=1,
            r=1,
            s=1,
            stride=1,
            padding=0,
            dilation=1,
            layout="CHWN" if self.layout == "CHWN" else "NHWC",
            filters="CRSK" if self.filters == "CRSK" else "KRSC",
        )

    @property
    def fold(self) -> int:
        """The number of adjacent output pixels that are folded into the columns of the GEMM; 0: none. With few filters,
        folding reuses the input pixels that the windows of adjacent results have in common, at the price of additional
        products with zeros."""
        # the epilogue of a folded GEMM has one bias for all columns
        limit = 1 if "bias" in self.epilogue_ops else MAX_FOLDED_FILTERS
        applies = (
            self.direction == "forward" and self.k // self.groups <= limit and self.s > 1 and self.dilations[2] == 1
        )
        if (
            self.exact_nonfinite
            or self.gated
            or not applies
            or self.steps("x")["w"] != 1
            or self.steps("y")["q"] != 1
            or self.q < 2 * FOLD
        ):
            return 0
        return FOLD if self.s < FOLD else 2 * FOLD

    @property
    def swapped(self) -> bool:
        """True if A of the GEMM is the second operand, so that rows of C are contiguous in the result. Not with a gated
        activation, whose pairs of sums are adjacent columns of C in every layout."""
        if self.direction == "weight_grad":
            return self.filters != "CRSK"
        return self.layout != "NHWC" and not self.fold and not self.gated

    # ---- text form

    def shape(self) -> str:
        words = [f"{name.upper()}={getattr(self, name)}" for name in ("n", "c", "h", "w", "k", "r", "s")]
        deep = self.d > 1 or self.t > 1
        if deep or any(self.pads[0]):
            words += [f"D={self.d}", f"T={self.t}"]
        for name, value in (("stride", self.strides), ("pad", self.pads), ("dilation", self.dilations)):
            words += [f"{name}={text}" for text in [per_axis_text(value, deep)] if text]
        if self.groups > 1:
            words.append(f"groups={self.groups}")
        return ",".join(words)

    @classmethod
    def read_shape(cls, text: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for item in text.replace(" ", "").split(","):
            name, _, value = item.partition("=")
            field = NAMES.get(name.lower())
            if field is None or field in out or not re.fullmatch(r"-?[0-9]{1,10}(x-?[0-9]{1,10}){0,5}", value):
                raise ShapeError(f"shape has {shown(item)}; it must read {cls.SHAPE_FORM}, with several numbers as 1x2")
            numbers = [int(x) for x in value.split("x")]
            out[field] = numbers[0] if len(numbers) == 1 else numbers
        missing = [name.upper() for name in ("n", "c", "h", "w", "k", "r", "s") if name not in out]
        if missing:
            raise ShapeError(f"shape is {shown(text)}; it lacks {', '.join(missing)}")
        return cls.checked_fields(out)

    @classmethod
    def checked_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name, counts in (("stride", (1, 2)), ("padding", (1, 2, 4)), ("dilation", (1, 2))):
            value = values.get(name)
            if isinstance(value, (list, tuple)) and len(value) not in counts and not {"d", "t"} & set(values):
                rule = f"it must be {' or '.join(map(str, counts))} numbers, unless d or t is given"
                raise ShapeError(f"{name} is {'x'.join(map(str, value))}; an image has height and width: {rule}")
        return values


#: name in the text of a shape -> field
NAMES = {**{x: x for x in Conv.SHAPE}, "pad": "padding"}
