"""Values of vectors alone in programs of f32 results: a launch computes them for each row or column, not for each
pair. Values with products stay, because kernels contract a product and a sum where nothing else uses the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from ptxgen.expr.node import Node, node, substituted, variable, variables, walk
from ptxgen.operations.task.assembling import array_of
from ptxgen.operations.task.exact_filter import without_steps
from ptxgen.operations.task.problem import read_again
from ptxgen.operations.task.program import Input, Program, RowReduce, Select, Store

_NAMES = {"i": "row_values", "j": "column_values"}


@dataclass(frozen=True)
class VectorValue:
    """A value of each row (``axis`` i) or column (j), which replaces ``value`` in programs as the array ``name``."""

    name: str
    axis: str
    value: Node

    @property
    def element(self) -> Node:
        return variable(f"{self.name}[{self.axis}]", "f32")

    def program(self, inputs: Sequence[Input]) -> Program:
        """The program that computes the array as a matrix of one column. ``inputs``: those of the programs."""
        names = variables(self.value)
        arrays = {array_of(x) for x in names}
        vectors = [replace(x, uses=(("i",),) if x.uses else ()) for x in inputs if x.name in arrays]
        rows = {name: variable(f"{array_of(name)}[i]", "f32") for name in names if name.endswith("[j]")}
        read, step = without_steps(*vectors)
        return Program(read, step, "+", "f32", (Store("C", substituted(self.value, rows)),))


def separated(programs: Sequence[Program]) -> tuple[list[Program], list[VectorValue]]:
    """The programs with values of vectors alone replaced by arrays, and these values."""
    values: dict[Node, VectorValue] = {}
    return [_separated(x, values) for x in programs], list(values.values())


def _separated(program: Program, values: dict[Node, VectorValue]) -> Program:
    output = program.outputs[0]
    vectors = {x.name for x in program.inputs if x.dtype == "f32" and x.name not in ("A", "B")}

    @cache
    def changed(x: Node) -> Node:
        if not x.arguments:
            return x
        names = variables(x)
        axes = {axis for axis in "ij" if any(name.endswith(f"[{axis}]") for name in names)}
        products = any(y.op in ("*", "fma") for y in walk(x))
        if x.type == "f32" and len(axes) == 1 and not products and {array_of(name) for name in names} <= vectors:
            (axis,) = axes
            return values.setdefault(x, VectorValue(f"{_NAMES[axis]}_{len(values)}", axis, x)).element
        return node(x.op, x.type, *map(changed, x.arguments), value=x.value)

    if isinstance(output, Select):
        output = replace(output, condition=(value := changed(output.condition)))
    else:
        assert isinstance(output, RowReduce)
        output = replace(output, value=(value := changed(output.value)))
    read = {array_of(name) for name in variables(value, *([] if program.when is None else [program.when]))}
    made = [Input(x.name, "f32", ((x.axis,),)) for x in values.values() if x.name in read]
    inputs = (*(x for x in program.inputs if x.name in {"A", "B", *read}), *made)
    return read_again(replace(program, inputs=inputs, outputs=(output,)))
