"""The C form of two-dimensional convolutions, for exported libraries."""

from __future__ import annotations

import math

from ptxgen.errors import InputError
from ptxgen.operations.conv.problem import FILTERS, Conv
from ptxgen.operations.gemm import c_form as gemm
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.c_form import CForm


def _require_2d(p: Conv) -> None:
    if p.deep or any(p.pads[0]):
        raise InputError(f"{p.key()} has three dimensions; export takes convolutions of two")


def _alignments(p: Conv) -> tuple[int, int, int]:
    known = {"x": p.aligned_input, "w": p.aligned_filter, "y": p.aligned_output}
    a, b, c = (known[x] for x in p.tensors)
    return a, b, c


def _elements(p: Conv) -> tuple[int, int, int]:
    a, b, c = (math.prod(shape) for shape in p.stored)
    return a, b, c


def _without_sum(p: Conv) -> Gemm:
    """The GEMM that computes the result if the sum over K is empty. Its C is the result as matrices. Its bias has an
    element for each column if channels are contiguous, else for each row."""
    result = p.tensors[2]
    extents = p.extents(result)
    place, sizes = 0, list(extents.values())
    if p.direction != "weight_grad":
        place = list(extents).index("c" if result == "x" else "k")
    before, channels, pixels = math.prod(sizes[:place]), sizes[place], math.prod(sizes[place + 1 :])
    m, n, batch, bias = (before, channels, 1, "bias_column") if pixels == 1 else (channels, pixels, before, "bias_row")
    return gemm.without_sum(
        Gemm(
            m,
            n,
            0,
            dtype=p.dtype,
            compute=p.compute,
            aligned_c=_alignments(p)[2],
            deterministic=p.deterministic,
            out=p.out,
            epilogue=p.epilogue.replace("bias", bias),
            batch=batch,
        )
    )


C_FORM = CForm(
    "conv2d",
    "a convolution of images, or one of its gradients",
    "export/conv2d.c.mako",
    alignments=_alignments,
    elements=_elements,
    without_sum=_without_sum,
    require=_require_2d,
    values={"filters": FILTERS},
)
