"""The description of an operation for exported C libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class CForm:
    """An operation in an exported C library. Its C structure has the problem's fields that have a meaning in C.

    - ``name``: the name of the C function, without ``ptxgen_``.
    - ``template``: C source of the functions ``normalize_<name>`` and ``set_shape_<name>``; it reads ``values``.
    - ``strides``: how many of the last fields are batch strides.
    - ``alignments(problem)``: the alignments of the first operand, the second operand and the result, in bytes.
    - ``elements(problem)``: the numbers of elements that these three arrays span in memory.
    - ``require(problem)``: raises InputError if the C function cannot take the problem.
    - ``without_sum(problem)``: the GEMM with K = 0 that gives the problem's result for alpha = 0. None: calls have no
      alpha.
    - ``arrays``: the other arrays that a call reads, except those of epilogues: name -> function from problem to bytes.
    - ``serves_other_shapes(problem)``: True if the problem's kernels are exported for other shapes, too.
    - ``lower(problem, problem_type=…, **symbols)``: lowers such a problem to a ``problem_type`` with symbols for its
      extents.
    - ``tied(problem)``: name of an extent -> name of the extent that it equals in every shape.
    - ``completion(problem, device)``: the kernels that follow those of the problem: an object with their ``sources``,
      and ``completed(p, launch)``, the launch of the kernel problem ``p`` with their launches. None: there are none.
    - ``groups(problem)``: rows and columns of a result whose elements are selected by keys; (1, 1) for other results.
    """

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
    completion: Callable[[Any, Any], Any] = lambda p, device: None
    strides: int = 0
    arrays: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
