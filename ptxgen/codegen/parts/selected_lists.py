"""The lists to which the values of selected results are appended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.part import Part
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import SelectValues
from ptxgen.problem.dtypes import dtype


@dataclass(frozen=True)
class SelectedLists(Part):
    """The part for the lists of a ``SelectValues`` sink."""

    problem: KernelProblem

    @property
    def sink(self) -> SelectValues:
        sink = self.problem.sink
        assert isinstance(sink, SelectValues)
        return sink

    @property
    def count(self) -> str:
        """The kernel parameter with the address of the count."""
        return self.sink.COUNT

    @cached_property
    def lists(self) -> list[tuple[str, str]]:
        """For each list: the kernel parameter with its address, and the register for the address."""
        return [(name, f"%list_{n}") for n, name in enumerate(("C", *self.sink.lists))]

    @property
    def pointers(self) -> list[str]:
        return [pointer for _, pointer in self.lists]

    @property
    def operand(self) -> str:
        """The registers of the addresses of the lists, separated by commas."""
        return ", ".join(self.pointers)

    @property
    def stores(self) -> list[tuple[int, str, str]]:
        """For each value: bytes of an element, type suffix of its store, and register of the list's address."""
        elements = [dtype(x.type) for x in self.sink.values]
        return [
            (element.bytes, f"b{element.bits}", pointer)
            for element, pointer in zip(elements, self.pointers, strict=True)
        ]
