"""An operation in C, for exported libraries. Its structure has the fields of the problem that have a meaning in C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class CForm:
    """An operation in C. ``name``: that of its function, without ``ptxgen_``; ``template``: the C functions
    ``normalize_<name>`` and ``set_shape_<name>``, which reads ``values``; ``strides``: the number of the last fields
    that are strides of a batch; ``alignments(problem)``: of the first operand, the second and the result, in bytes;
    ``elements(problem)``: that they span in memory; ``require(problem)``: raises InputError if the function does not
    take the problem; ``without_sum(problem)``: the GEMM with an empty K that has its result if alpha is 0, None: its
    calls have no alpha; ``arrays``: name -> bytes for a problem, of the arrays that it reads besides its operands and
    those of epilogues; ``serves_other_shapes(problem)``: true if its kernels are exported for other shapes too;
    ``lower(problem, problem_type=…, **symbols)``: then the kernel problem, of that type, with symbols in place of
    numbers of the shape; ``tied(problem)``: numbers of the shape -> those that they equal in every shape;
    ``groups(problem)``: rows and columns of a result whose elements keys select, (1, 1) of others."""

    name: str
    meaning: str
    template: str
    alignments: Callable[[Any], tuple[int, int, int]]
    elements: Callable[[Any], tuple[int, int, int]]
    without_sum: Callable[[Any], Any] | None
    require: Callable[[Any], None] = lambda p: None
    serves_other_shapes: Callable[[Any], bool] = lambda p: False
    lower: Callable[..., Any] | None = None
    tied: Callable[[Any], Mapping[str, str]] = lambda p: {}
    groups: Callable[[Any], tuple[int, int]] = lambda p: (1, 1)
    strides: int = 0
    arrays: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
