"""The operations that an exported library computes, and their problems as C structures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ptxgen.errors import InputError
from ptxgen.problem.base import COMPUTE_MODES, EPILOGUE_OPS, OUT_DTYPES
from ptxgen.problem.conv import DIRECTIONS, FILTERS, Conv
from ptxgen.problem.gemm import LAYOUTS, Gemm
from ptxgen.problem.strided_arrays import A, B, C, span

#: epilogue operation -> its bit in the field ``epilogue``
EPILOGUE_BITS = {name: 1 << bit for bit, name in enumerate([*(n for row in EPILOGUE_OPS for n in row), "bias"])}

#: layout of images -> the layout of filters that corresponds to it
NATURAL_FILTERS = dict(FILTERS)

#: the words of layouts, directions, types and arithmetic; the value in C of each is its index
WORDS = tuple(
    dict.fromkeys(
        (
            *LAYOUTS,
            *FILTERS,
            *FILTERS.values(),
            *DIRECTIONS,
            *COMPUTE_MODES,
            *(name for names in COMPUTE_MODES.values() for name in names),
            *(name for names in OUT_DTYPES.values() for name in names),
        )
    )
)


def enumerator(word: str) -> str:
    """The C enumerator of a word."""
    return f"PTXGEN_{word.upper()}"


@dataclass(frozen=True)
class CField:
    """A field of a problem structure. ``kind``: its C type; ``number(problem)``: its value."""

    name: str
    meaning: str
    number: Callable[[Any], int]
    kind: str = "int64_t"


def _word(name: str, meaning: str) -> CField:
    return CField(name, meaning, lambda p: WORDS.index(getattr(p, name)), "ptxgen_word")


def _integer(name: str, meaning: str) -> CField:
    return CField(name, meaning, lambda p: int(getattr(p, name)))


def epilogue_bits(epilogue: str) -> int:
    """The field ``epilogue`` of operations separated by commas."""
    return sum(EPILOGUE_BITS[name] for name in epilogue.split(",") if name)


#: the fields of every operation: types, arithmetic, epilogue
KIND = (
    _word("layout", "memory layout"),
    _word("dtype", "type of A and B"),
    _word("compute", "arithmetic"),
    _word("out", "type of C"),
    CField("epilogue", "sum of PTXGEN_EPILOGUE_ values", lambda p: epilogue_bits(p.epilogue)),
    CField("deterministic", "1: only kernels whose sums have a fixed order", lambda p: int(p.deterministic)),
)


@dataclass(frozen=True)
class COperation:
    """An operation in C. ``name``: that of its function, without ``ptxgen_``; ``fields``: of its problem, the
    ``strides`` last ones strides of a batch; ``alignments(problem)``: of the first operand, the second and the result,
    in bytes; ``elements(problem)``: that they span in memory; ``require(problem)``: raises InputError if the function
    does not take the problem; ``without_sum(problem)``: the GEMM with an empty K that has its result if alpha is 0."""

    name: str
    meaning: str
    fields: tuple[CField, ...]
    alignments: Callable[[Any], tuple[int, int, int]]
    elements: Callable[[Any], tuple[int, int, int]]
    require: Callable[[Any], None]
    without_sum: Callable[[Any], Gemm]
    strides: int = 0


def _axis(name: str, index: int) -> Callable[[Any], int]:
    return lambda p: int(getattr(p, name)[index])


def _pair(axis: int, end: int) -> Callable[[Any], int]:
    return lambda p: int(p.pads[axis][end])


def _require_2d(p: Any) -> None:
    if p.deep or any(p.pads[0]):
        raise InputError(f"{p.key()} has three dimensions; export takes convolutions of two")


def _conv_alignments(p: Any) -> tuple[int, int, int]:
    known = {"x": p.aligned_input, "w": p.aligned_filter, "y": p.aligned_output}
    a, b, c = (known[x] for x in p.tensors)
    return a, b, c


def _conv_elements(p: Any) -> tuple[int, int, int]:
    a, b, c = (math.prod(shape) for shape in p.stored)
    return a, b, c


def _gemm_without_sum(p: Gemm) -> Gemm:
    size = p.element.bytes
    return replace(p, k=0, layout="NN", lda=0, ldb=0, aligned_a=size, aligned_b=size, stride_a=0, stride_b=0)


def _conv_without_sum(p: Conv) -> Gemm:
    """The result as matrices with a bias for each column, if channels are contiguous, else for each row."""
    result = p.tensors[2]
    extents = p.extents(result)
    place, sizes = 0, list(extents.values())
    if p.direction != "weight_grad":
        place = list(extents).index("c" if result == "x" else "k")
    before, channels, pixels = math.prod(sizes[:place]), sizes[place], math.prod(sizes[place + 1 :])
    m, n, batch, bias = (before, channels, 1, "bias_column") if pixels == 1 else (channels, pixels, before, "bias_row")
    return _gemm_without_sum(
        Gemm(
            m,
            n,
            0,
            dtype=p.dtype,
            compute=p.compute,
            aligned_c=_conv_alignments(p)[2],
            deterministic=p.deterministic,
            out=p.out,
            epilogue=p.epilogue.replace("bias", bias),
            batch=batch,
        )
    )


OPERATIONS = {
    "gemm": COperation(
        "gemm",
        "C = alpha op(A) op(B) + beta C, row-major",
        (
            *KIND,
            _integer("m", "rows of C"),
            _integer("n", "columns of C"),
            _integer("k", "length of the sums"),
            _integer("lda", "elements from one stored row of A to the next; 0: contiguous"),
            _integer("ldb", "the same of B"),
            _integer("ldc", "the same of C"),
            _integer("batch", "items of the batch; 0 and 1: one product"),
            _integer("stride_a", "elements from A of one item to that of the next; -1: contiguous; 0: one A for all"),
            _integer("stride_b", "the same of B"),
            _integer("stride_c", "the same of C, not 0"),
        ),
        lambda p: (p.aligned_a, p.aligned_b, p.aligned_c),
        lambda p: (span(p, A), span(p, B), span(p, C)),
        lambda p: None,
        _gemm_without_sum,
        strides=3,
    ),
    "conv": COperation(
        "conv2d",
        "a convolution of images, or one of its gradients",
        (
            *KIND,
            _word("filters", "layout of filters"),
            _word("direction", "PTXGEN_FORWARD, PTXGEN_INPUT_GRAD or PTXGEN_WEIGHT_GRAD"),
            _integer("n", "images"),
            _integer("c", "channels"),
            _integer("h", "height of an image"),
            _integer("w", "width of an image"),
            _integer("k", "filters"),
            _integer("r", "height of a filter"),
            _integer("s", "width of a filter"),
            CField("stride_h", "rows from one window to the next", _axis("strides", 1)),
            CField("stride_w", "columns from one window to the next", _axis("strides", 2)),
            CField("pad_top", "rows of zeros above an image", _pair(1, 0)),
            CField("pad_bottom", "rows of zeros below an image", _pair(1, 1)),
            CField("pad_left", "columns of zeros before an image", _pair(2, 0)),
            CField("pad_right", "columns of zeros after an image", _pair(2, 1)),
            CField("dilation_h", "rows from one tap to the next", _axis("dilations", 1)),
            CField("dilation_w", "columns from one tap to the next", _axis("dilations", 2)),
            _integer("groups", "groups of channels and filters"),
        ),
        _conv_alignments,
        _conv_elements,
        _require_2d,
        _conv_without_sum,
    ),
}
