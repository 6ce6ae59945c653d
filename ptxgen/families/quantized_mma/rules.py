"""The rules of legal configurations of the family quantized_mma."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.rule import Rule
from ptxgen.families.common.matrix_instructions import COLUMNS, ROWS, instruction
from ptxgen.families.quantized_mma.geometry import CHUNK, LANES, NO_WEIGHTS, QuantizedMmaGeometry, access_of
from ptxgen.lowering.kernel_problem import KernelProblem

LOADS_LIMIT = 64  #: most words of weights of a thread in flight
COPIES_LIMIT = 32  #: most copies of a thread to a stage
SUMS_LIMIT = 128  #: most sums of a lane


def _groups(p: KernelProblem, g: QuantizedMmaGeometry) -> Any:
    """True if the steps of a warp have whole scale groups."""
    group = access_of(p).group
    return (g.step_depth <= group) & (g.steps * g.step_depth % group == 0) if group else True


RULES = (
    Rule(
        "quantized_mma_weights",
        lambda p, c, g, d: access_of(p) is not NO_WEIGHTS,
        "B is a matrix of {p.dtype}; it must be quantized weights",
    ),
    Rule(
        "quantized_mma_types",
        lambda p, c, g, d: p.element.bytes == 2 and d.sm >= instruction(p).sm,
        "activations are {p.dtype} on sm_{d.sm}; mma.sync multiplies f16 and bf16 with weights, from sm_80 on",
    ),
    Rule(
        "quantized_mma_tile",
        lambda p, c, g, d: (
            (c.ml == c.ms // 2 * COLUMNS)
            & (g.along >= 1)
            & (c.nl == g.along * LANES * c.ns)
            & (c.ms * c.ns <= SUMS_LIMIT)
        ),
        f"ms={{c.ms}}, ns={{c.ns}}, ml={{c.ml}}, nl={{c.nl}}: a lane has two rows of each {COLUMNS} of ml, and two"
        f" columns of each {ROWS} of its warp's part of nl, which is {LANES} · ns; at most {SUMS_LIMIT} sums",
    ),
    Rule(
        "quantized_mma_depth",
        lambda p, c, g, d: (
            (g.steps >= 1) & (c.u == g.steps * c.kl * g.step_depth) & (g.steps * c.ns * g.words <= LOADS_LIMIT)
        ),
        "u={c.u} is {g.steps} steps of kl={c.kl} warps along K, {g.step_depth} elements each: whole steps; a"
        f" lane loads {{c.ns}} rows of {{g.words}} words in each, at most {LOADS_LIMIT} words in all",
    ),
    Rule(
        "quantized_mma_groups",
        lambda p, c, g, d: _groups(p, g),
        "u={c.u}, kl={c.kl}, vec_b={c.vec_b}: the {g.steps} steps of a warp, of {g.step_depth} elements each, must have"
        " whole groups of weights",
    ),
    Rule(
        "quantized_mma_stages",
        lambda p, c, g, d: (c.stages != 1) & ((c.stages == 0) | ((c.vec_a >= 2) & (g.copies <= COPIES_LIMIT))),
        "stages={c.stages}, vec_a={c.vec_a}: without stages (0) lanes load activations; cp.async copies 4 bytes, two"
        f" elements, or more to 2 stages or more, in at most {COPIES_LIMIT} copies of a thread, not {{g.copies}}",
    ),
    Rule(
        "quantized_mma_vec",
        lambda p, c, g, d: (
            (c.vec_a <= p.vectors[0]) & (c.vec_b <= p.vectors[1]) & (c.vec_a <= np.minimum(g.depth, CHUNK))
        ),
        "vec_a={c.vec_a}, vec_b={c.vec_b}: A allows {p.vectors[0]} elements and B {p.vectors[1]} bytes; vec_a is at"
        f" most {CHUNK}, and the {{g.depth}} elements of a lane's vector of weights",
    ),
)
