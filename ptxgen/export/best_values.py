"""The n best values of a task in C: one kernel keeps those of rows, or lists all pairs in the workspace, which others
order.

Calls of Python keep lists short by bounds, whose counts the host reads. A C function enqueues its kernels and returns,
so its list has room for all pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ptxgen.codegen.render import render_records
from ptxgen.codegen.source import Launch, Source, Step
from ptxgen.codegen.top_records import (
    BEST,
    BEST_I,
    BEST_J,
    COUNT,
    LIST_I,
    LIST_J,
    MOST_RECORDS,
    TO,
    VALUES,
    Lists,
    TopRecords,
)
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.errors import InputError
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import SelectValues, list_names
from ptxgen.operations.task.program import Top
from ptxgen.operations.task.top_lists import missing
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype

#: array of results -> its name in launches. C and its numbers name the lists of the kernel that lists pairs
RESULTS = {BEST: "C_0", BEST_I: "C_1", BEST_J: "C_2"}
ALIGNMENT = 256  #: alignment in bytes of arrays in the workspace


@dataclass(frozen=True)
class KeptRows:
    """No kernel follows one that keeps the best values of rows. ``names``: array or number of that kernel -> its name
    in the C function."""

    names: Mapping[str, str]
    sources: tuple[Source, ...] = ()

    def completed(self, p: KernelProblem, launch: Launch) -> Launch:
        """The launch with the names of the C function."""
        return launch.bound_to({**self.names, "C": RESULTS[BEST], RowTop.COLUMNS: RESULTS[BEST_J]})


@dataclass(frozen=True)
class OrderedList:
    """The kernels that order the list of all pairs, and write the best ones. ``output``: the output of the program;
    ``device``: the device of the kernels."""

    output: Top
    device: Device

    @property
    def count(self) -> int:
        """The number of values, or of values of each row."""
        return int(self.output.count.value)

    @property
    def element(self) -> str:
        """The element type of the values."""
        return self.output.value.type

    @property
    def records(self) -> TopRecords:
        wide = TopRecords.needs_wide(self.element, self.output.axis, 1, 1)  # there are less than 2³² pairs
        return TopRecords(self.element, self.output.axis, self.output.greatest, wide, self.device)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The modules of these kernels."""
        return (render_records(self.records),)

    def completed(self, p: KernelProblem, launch: Launch) -> Launch:
        """The launch of the kernel that lists the pairs, followed by those that order them. The workspace of the former
        comes first in the workspace; then the lists, and the arrays of records. Joined runs are stored where the lists
        were, which have as many bytes or more. InputError: there are too many pairs."""
        pairs, axis, n = p.m * p.n, self.output.axis, self.count
        if pairs >= MOST_RECORDS:
            raise InputError(f"m × n is {pairs} pairs; best values in C must have less than {MOST_RECORDS}")
        rows, most = {"": (1, pairs), "i": (p.m, p.n), "j": (p.n, p.m)}[axis]
        lowest = missing(self.element, self.output.greatest)
        x = Lists(pairs, rows, p.n, most, n, 0, n, lowest)
        lists = {VALUES: dtype(self.element).bytes * pairs, LIST_I: 4 * pairs, LIST_J: 4 * pairs, COUNT: 8}
        at, end = _places({**lists, **self.records.scratch(x)}, launch.workspace)
        at[TO] = at[VALUES]
        names = (*list_names(3), SelectValues.COUNT)
        listed = dict(zip(names, (at[name] for name in lists), strict=True))
        room = {SelectValues.CAPACITY.name: pairs}
        clear = (Step("", (launch.workspace, 1, 1), arguments=(("u64", "W"),)),) if launch.zeroed else ()
        steps = (
            *clear,
            *(step.stored_in("W", listed).with_numbers(room) for step in launch.steps),
            *(step.stored_in("W", at).bound_to(RESULTS) for step in self.records.steps(x)),
        )
        return Launch(steps, end)


def _places(sizes: Mapping[str, Any], first: Any) -> tuple[dict[str, Any], Any]:
    """The offsets of arrays that follow one another, and their end. ``sizes``: bytes of each array."""
    places, at = {}, ceil_div(first, ALIGNMENT) * ALIGNMENT
    for name, size in sizes.items():
        places[name] = at
        at = at + ceil_div(size, ALIGNMENT) * ALIGNMENT
    return places, at
