"""Parameters of kernels. A record declares parameters and computes the values that a launch passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.source import Argument
from ptxgen.lowering.algebra import Scalar
from ptxgen.lowering.block_scales import BYTES, Scales, block_scaled, item_scales, scales_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.quantized_rows import quantized_rows
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.table import Table

MAP_BYTES = 128  #: bytes of a tensor map


@dataclass(frozen=True)
class Parameters:
    """Adjacent parameters of one PTX type. ``values(x)``: the value of each in a launch ``x``, in the form of
    ``Argument``; ``same_line``: True if their declaration continues the line of the preceding parameters."""

    ptx_type: str
    names: tuple[str, ...]
    values: Callable[[Any], Iterable[Any]]
    same_line: bool = False

    @property
    def text(self) -> str:
        return ", ".join(f".param .{self.ptx_type} {name}" for name in self.names)

    def arguments(self, x: Any) -> list[Argument]:
        pairs = zip(self.names, self.values(x), strict=True)
        return [("table" if isinstance(value, Table) else self.ptx_type, value) for _, value in pairs]


@dataclass(frozen=True)
class TensorMaps(Parameters):
    """Parameters that are arrays of ``count`` tensor maps each. ``values(x)``: the maps of all arrays."""

    count: int = 1

    @property
    def text(self) -> str:
        return ", ".join(f".param .align 64 .b8 {name}[{MAP_BYTES * self.count}]" for name in self.names)

    def arguments(self, x: Any) -> list[Argument]:
        return [("map", value) for value in self.values(x)]


def given(ptx_type: str, *names: str) -> Parameters:
    """Parameters whose values the caller of a launch supplies by name: arrays, the workspace, alpha, beta."""
    return Parameters(ptx_type, names, lambda _: names)


class ScalarGroup(NamedTuple):
    """Adjacent scalar parameters of one PTX type."""

    type: str
    names: list[str]

    @property
    def registers(self) -> str:
        return ", ".join(f"%{name}" for name in self.names)

    @property
    def load(self) -> str:
        """The instructions that load the scalars to registers, on one line."""
        return "  ".join(f"ld.param.{self.type} %{name}, [{name}];" for name in self.names)


def scalar_groups(scalars: Iterable[Scalar]) -> list[ScalarGroup]:
    """The groups of adjacent ``scalars`` of one type."""
    return [ScalarGroup(ptx_type, [s.name for s in each]) for ptx_type, each in groupby(scalars, attrgetter("type"))]


def scalar_parameters(scalars: Iterable[Scalar]) -> list[Parameters]:
    """The parameters of ``scalars``, whose values the caller supplies."""
    return [given(ptx_type, *(s.name for s in each)) for ptx_type, each in groupby(scalars, attrgetter("type"))]


def sink_numbers(p: KernelProblem) -> list[Parameters]:
    """The parameters of the sink's numbers, whose values follow from the problem."""
    return [Parameters(each.type, (each.name,), partial(_sink_number, n)) for n, each in enumerate(p.sink.numbers)]


def _sink_number(n: int, x: Any) -> tuple[Any]:
    return (x.p.sink.numbers[n].value,)


def weight_parameters(p: KernelProblem) -> list[Parameters]:
    """The number of scale groups of a row of quantized weights; nothing for other operands."""
    if quantized_rows(p) is None:
        return []
    return [Parameters("u32", ("groups",), lambda x: (x.p.operand("B").access.groups(x.p.k),))]


def scale_strides(p: KernelProblem, name: str) -> list[Parameters]:
    """The parameters of the strides of the block scales of operand ``name``, in bytes: from one block to the next along
    the rows and along K, unless each item has its own, and from one item of a batch to the next. A descriptor table has
    the places of the items of a group."""

    def scales(x: Any) -> Scales:
        return scales_of(x.p, name.upper())

    array = f"scale_{name.lower()}"
    strides = Parameters(
        "u32",
        (f"{array}_rows", f"{array}_k"),
        lambda x: (BYTES * scales(x).along_rows, BYTES * scales(x).along_k),
    )
    items = Parameters("u64", (f"{array}_items",), lambda x: (BYTES * scales(x).along_items,))
    if scales_of(p, name.upper()).by_k is not None:
        return []
    return [strides] if item_scales(p) else [strides, items]


def block_scale_parameters(p: KernelProblem) -> list[Parameters]:
    """``scale_strides`` of both operands; nothing for operands without block scales."""
    return [row for name in "AB" for row in scale_strides(p, name)] if block_scaled(p) else []


def step_leading_dimensions(p: KernelProblem) -> list[Parameters]:
    """The parameters of leading dimensions of the arrays with two axes that steps read."""
    return [Parameters("u32", (f"step_ld_{v.name}",), partial(_extent, v.axis[1])) for v in p.algebra.matrices]


def _extent(axis: str, x: Any) -> tuple[int]:
    return (max({"i": x.p.m, "j": x.p.n, "k": x.p.k}[axis], 1),)


def sink_parameters(p: KernelProblem) -> list[Parameters]:
    """The parameters of the sink: its numbers, the offset of its workspace, and for states of results (j, i) the number
    of the first part of them."""
    mirror = Parameters("u32", ("mirror_parts",), lambda x: (x.mirror_parts,))
    places = [sink_offset(), *([mirror] if isinstance(p.sink, RowReduce) and p.mirrored else [])]
    return [*sink_numbers(p), *(places if p.sink.has_workspace else [])]


def sink_offset() -> Parameters:
    """The parameter with the offset of the sink's workspace."""
    return Parameters("u64", ("sink_offset",), lambda x: (x.sink_offset,))


def operand_names(p: KernelProblem) -> tuple[str, ...]:
    return tuple(x.name for x in p.operands)


def output_names(p: KernelProblem) -> tuple[str, ...]:
    return tuple(x.name for x in p.outputs)


def other_addresses(p: KernelProblem) -> list[Parameters]:
    """The parameters with addresses of arrays that are neither operands nor outputs, as epilogue operands."""
    return [given("u64", name) for name in p.other_arrays]


def addresses(p: KernelProblem) -> list[Parameters]:
    """The parameters with addresses of the operands, the outputs, the workspace and all other arrays."""
    return [given("u64", *operand_names(p), *output_names(p), "W"), *other_addresses(p)]


def on_one_line(rows: Iterable[Parameters]) -> list[Parameters]:
    """The same parameters, declared on the line of the preceding ones."""
    return [replace(row, same_line=True) for row in rows]


class ParameterList(tuple[Parameters, ...]):
    """The parameters of a kernel, in their order."""

    @property
    def declarations(self) -> list[str]:
        """The parameter declarations, in lines."""
        lines: list[str] = []
        for row in self:
            if row.names and row.same_line and lines:
                lines[-1] += f", {row.text}"
            elif row.names:
                lines.append(row.text)
        return [*(f"{line}," for line in lines[:-1]), *lines[-1:]]

    def arguments(self, x: Any) -> tuple[Argument, ...]:
        """The arguments of launch ``x``."""
        return tuple(argument for row in self if row.names for argument in row.arguments(x))

    @property
    def names(self) -> list[str]:
        return [name for row in self for name in row.names]

    @property
    def by_name(self) -> tuple[Argument, ...]:
        """The arguments of a launch whose caller supplies all values by name. No parameter is a tensor map."""
        return tuple((row.ptx_type, name) for row in self for name in row.names)


@dataclass(frozen=True)
class KernelParameters(Part):
    """The parameters of the main kernel."""

    @property
    def declared(self) -> Sequence[Parameters]:
        """The parameters in their order."""
        raise NotImplementedError

    @cached_property
    def rows(self) -> ParameterList:
        return ParameterList(self.declared)
