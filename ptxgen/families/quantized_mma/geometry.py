"""The geometry of quantized_mma kernels.

The product is transposed: weights are the operand of mma.sync with 16 rows, activations are the operand with 8 columns.
A warp has a tile of ``ns`` · 8 weight rows (columns of C) by all ``ml`` rows of activations. A lane has ``ns`` adjacent
weight rows, and the sums of two rows of C in each tile of 8. The four lanes of a quad load adjacent vectors of the same
weight rows. The instruction takes the elements in this order of K, so a step of a warp has four vectors of K.

Threads copy activations to stages in shared memory, which all warps along N read. Without stages, each lane loads its
own activations from global memory.

The warps of a block are along N and, ``kl`` of them, along K. The steps of a warp in a K iteration are contiguous and
have whole scale groups: the sums of a group are multiplied by its scale before they are added to the total.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import OperandGeometry, ThreadLoadGeometry, accumulator_bytes
from ptxgen.codegen.split_k import tiles_and_slices
from ptxgen.codegen.vectorized import WARP, BoolOrColumn, IntOrColumn, ceil_div, where
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.quantized_rows import QuantizedRows

QUAD = 4  #: lanes that load adjacent vectors of a row
LANES = WARP // QUAD  #: lanes along N, and along M
WORD = 4  #: bytes of a register
CHUNK = 8  #: elements of K that are dequantized at once
ELEMENT = 2  #: bytes of an element of A
FIXED_REGISTERS = 36  #: registers of a thread besides operands, sums and addresses
COPY_REGISTERS = 10  #: addresses of copies to stages
NO_WEIGHTS = QuantizedRows(True, 1, 1, 1, 0, 1, 1)
MANY_STEPS = 4  #: steps of which ptxas hoists the loads of two next ones
DEQUANTIZED = 5  #: registers for each row of weights that is dequantized ahead
HOISTED = 16  #: loads that ptxas hoists into registers that are free there


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class QuantizedMmaGeometry(ThreadLoadGeometry):
    """The geometry of a quantized_mma kernel."""

    along: IntOrColumn  #: warps of the block along N
    depth: IntOrColumn  #: elements of K of a lane per step
    step_depth: IntOrColumn  #: elements of K of a warp per step
    steps: IntOrColumn  #: steps of a warp per K iteration
    words: IntOrColumn  #: words of weights that a lane has per row and step
    scaled: BoolOrColumn  #: True if scale groups are shorter than a row
    strided: BoolOrColumn  #: True if pairs are of elements four apart, for cheaper conversion of 4-bit weights
    stage_bytes: IntOrColumn  #: bytes of a stage of activations in shared memory
    sums_shared: IntOrColumn  #: bytes of the sums in shared memory, before the stages
    copies: IntOrColumn  #: copies of a thread to a stage; a block may have more threads than copies


def access_of(p: KernelProblem) -> QuantizedRows:
    """The access to the weights. Rules reject problems without quantized weights, but the geometry needs numbers for
    them."""
    return next((x.access for x in p.operands if isinstance(x.access, QuantizedRows)), NO_WEIGHTS)


def counts(p: KernelProblem, c: Any) -> dict[str, Any]:
    """The geometry that depends only on tiles, extents and slices: tiles and slices of K."""
    sum_bytes = accumulator_bytes(p)
    return {"sum_bytes": sum_bytes, **tiles_and_slices(p, c, sum_bytes)}


def geometry(p: KernelProblem, c: Any) -> QuantizedMmaGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    counted, access = counts(p, c), access_of(p)
    per_byte, grouped = access.format.per_byte, access.group > 0
    words = np.maximum(c.vec_b // WORD, 1)
    depth = words * WORD * per_byte
    step_depth = QUAD * depth
    along = c.nl // np.maximum(LANES * c.ns, 1)
    steps = c.u // np.maximum(c.kl * step_depth, 1)
    threads = along * c.kl * WARP
    tiles_m = c.ms // 2
    loads_a = tiles_m * np.maximum(depth // np.maximum(c.vec_a, 1), 1)
    loads_b = c.ns * np.maximum(WORD // np.maximum(c.vec_b, 1), 1)
    c_row_pitch = c.nl + 4
    sums = c.ns * c.ms * (2 if grouped else 1)
    scales = np.maximum(steps * step_depth // access.group, 1) if grouped else 0
    scales = (scales + c.fragment_prefetch) * c.ns * (1 + access.zeros)
    chunk = np.minimum(depth, CHUNK)
    operands = chunk // 2 * (c.ns + tiles_m) + where(c.vec_a == 1, chunk * tiles_m, 0)
    # ptxas hoists loads of activations, of a step and of the next one, of two next ones if there are many
    ahead = where(steps > 1, where(steps >= MANY_STEPS, 3, 2), 1)
    hoisted = tiles_m * depth // where(c.vec_a == 1, 1, 2) * ahead - chunk // 2 * tiles_m - HOISTED
    # those from shared memory need half of their registers; of several steps, ptxas hoists two more, of many three more
    from_shared = chunk // 4 * tiles_m * where(steps > 1, where(steps >= MANY_STEPS, 4, 3), -1)
    hoisted = where(c.stages > 0, from_shared, np.maximum(hoisted, 0))
    # of many steps with two tiles along M, ptxas also dequantizes weights of the next step ahead
    hoisted += where(grouped & (steps >= MANY_STEPS) & (tiles_m > 1), DEQUANTIZED * c.ns, 0)
    pointers = 2 * c.ns + where(c.stages > 0, COPY_REGISTERS, 2 * tiles_m) + 2 * c.ns * (1 + access.zeros)
    stage_bytes = c.ml * (c.u + QUAD * chunk) * ELEMENT
    sums_shared = c.ml * c_row_pitch * c.kl * counted["sum_bytes"]
    loaded = steps * c.ns * words + scales + where(c.vec_b < WORD, steps * loads_b, 0)
    return QuantizedMmaGeometry(
        a=OperandGeometry(loads=loads_a * steps * threads),
        b=OperandGeometry(loads=loads_b * steps * threads),
        along=along,
        depth=depth,
        step_depth=step_depth,
        steps=steps,
        words=words,
        scaled=grouped,
        threads=threads,
        uk=depth * steps,
        strided=(c.ns > tiles_m) & (per_byte == 2),
        stage_bytes=stage_bytes,
        sums_shared=sums_shared,
        copies=ceil_div(c.ml * c.u // np.maximum(c.vec_a, 1), np.maximum(threads, 1)),
        shared=sums_shared + c.stages * stage_bytes,
        c_row_pitch=c_row_pitch,
        c_via_smem=c.ns > 0,
        registers=sums + loaded + operands + pointers + hoisted + FIXED_REGISTERS,
        **counted,
    )
