"""The geometry of kernels with private groups.

A lane has a copy of each group, and of one further group that collects elements that are not reduced. If keys are those
of rows, a warp has ``array_vec`` columns per lane, and the warps of a block share the rows of a slice. If keys are
those of columns, a warp has ``warp_rows`` rows, and its lanes share the columns of a slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.vectorized import WARP, IntOrColumn, ceil_div
from ptxgen.expr.instructions import register_class
from ptxgen.lowering.element_groups import ElementGroups
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import dtype

FIXED_REGISTERS = 36  #: registers per thread besides loads, keys and values
JOIN_REGISTERS = 60  #: registers of the epilogue for keys of columns, besides those of values
COUNT_BYTES = 8  #: bytes of the number of rejected keys that a warp, or a slice, has
WORKSPACE_ALIGNMENT = 16  #: alignment in bytes of these numbers in the workspace


def sink_of(p: KernelProblem) -> ElementGroups | None:
    """The sink if it is an ``ElementGroups``, else None."""
    return p.sink if isinstance(p.sink, ElementGroups) else None


def array_bytes(p: KernelProblem) -> int:
    """The size of an element of the reduced array in bytes."""
    return dtype(p.sink.array.element.type).bytes


def key_bytes(p: KernelProblem) -> int:
    """The bytes of a key."""
    return dtype(p.sink.keys_read.element.type).bytes


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PrivateGroupsGeometry(Geometry):
    copy_bytes: IntOrColumn  #: bytes of a warp's copies of one group, for one of its rows
    warp_bytes: IntOrColumn  #: bytes of shared memory of a warp
    strips: IntOrColumn  #: blocks per slice
    units: IntOrColumn  #: rows, or a warp's vectors along a row, that are divided among the slices
    loaded: IntOrColumn  #: registers of a thread with elements in flight


def packs(element: str) -> bool:
    """True if a register holds two elements."""
    return register_class(element) == "b16"


def words(n: Any, element: str) -> Any:
    """The number of registers that hold ``n`` adjacent elements."""
    return ceil_div(n, 2) if packs(element) else n * max(dtype(element).bytes // 4, 1)


def geometry(p: KernelProblem, c: Any) -> PrivateGroupsGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    sink = p.sink
    held, rows = sink.value_bytes, sink.by_rows
    copy = WARP * held * (c.array_vec if rows else 1)
    warp_bytes = copy * (sink.count + 1) * c.warp_rows
    span = WARP * c.array_vec
    columns = span if rows else c.copy_warps * c.warp_rows
    strips, units = ceil_div(p.n if rows else p.m, columns), p.m if rows else ceil_div(p.n, span)
    strips = strips + (strips == 0)
    results = sink.count * (p.n if rows else p.m)
    loaded = c.loads * words(c.array_vec, sink.array.element.type) * c.warp_rows
    keys = 1 if rows else c.loads * c.array_vec
    values = 4 * (held // 4) * (c.array_vec if rows else c.warp_rows)
    addresses = c.loads + c.loads // 3 if rows else c.warp_rows * 2 + c.loads * c.array_vec // 6
    return PrivateGroupsGeometry(
        threads=WARP * c.copy_warps,
        shared=c.copy_warps * (warp_bytes + COUNT_BYTES),
        registers=np.maximum(
            FIXED_REGISTERS + loaded + keys + values + addresses, 0 if rows else JOIN_REGISTERS + 4 * held
        ),
        blocks=strips * c.kg,
        workspace=c.kg * (results * held + COUNT_BYTES),
        copy_bytes=copy,
        warp_bytes=warp_bytes,
        strips=strips,
        units=units,
        loaded=loaded,
    )
