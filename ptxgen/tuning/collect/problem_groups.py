"""Groups problems that share kernels: extents are parameters of a launch, so one assembled kernel serves a group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from ptxgen.families.common.candidates import neutral
from ptxgen.lowering.kernel_problem import Access, GemmExtents, MatrixAccess
from ptxgen.lowering.lower import lower
from ptxgen.problem.registry import Problem

READ_AHEAD = 256  #: problems among which a group is sought


def kernel_class(problem: Problem) -> tuple[object, ...]:
    """The part of a problem on which kernels depend: types, layout, alignment, accesses, and whether there is a batch.
    If it is equal for two problems, most configurations have the same kernel for both."""
    p = lower(problem)
    if isinstance(p.extents, GemmExtents):
        return neutral(p), p.batch > 1
    return (neutral(p).with_accesses(_without_extents),)


def _without_extents(access: Access) -> Access:
    """The access with its extents and strides removed: only the alignment of a matrix remains."""
    if not isinstance(access, MatrixAccess):
        return access
    return replace(access, rows=0, columns=0, ld=access.vec, stride=0, aligned=access.vec)


def groups(problems: Iterable[Problem], size: int, ahead: int = READ_AHEAD) -> Iterator[list[Problem]]:
    """The problems in groups of at most ``size`` problems of one kernel class. A group has the first remaining problem,
    and those of the next ``ahead`` problems whose extents are nearest to its extents. No two problems of a group are
    equal."""
    source = iter(problems)
    waiting: dict[Problem, tuple[object, ...]] = {}  #: the problems in order, with their classes
    members: dict[tuple[object, ...], dict[Problem, tuple[float, ...]]] = {}  #: by class, with log2 of the extents
    while True:
        for problem in islice(source, max(ahead if size > 1 else 1, 1) - len(waiting)):
            if problem not in waiting:
                key = waiting[problem] = kernel_class(problem) if size > 1 else ()
                members.setdefault(key, {})[problem] = _extents(problem)
        if not waiting:
            return
        first, key = next(iter(waiting.items()))
        at = members[key]
        group = sorted(at, key=lambda p: (p != first, math.dist(at[p], at[first])))[:size]
        for problem in group:
            del waiting[problem], at[problem]
        if not at:
            del members[key]
        yield group


def _extents(problem: Problem) -> tuple[float, ...]:
    return tuple(math.log2(max(extent, 1)) for extent in lower(problem).extents.sizes)
