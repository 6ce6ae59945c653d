"""Converts programs to lists for JSON, in which every node occurs once, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ptxgen.expr.node import Node, node, walk
from ptxgen.operations.task.assembling import roots
from ptxgen.operations.task.program import Aggregate, Distinct, Input, Program, RowReduce, Scatter, Select, Store, Top

_RECORDS: dict[str, Any] = {
    x.__name__: x for x in (Program, Input, Store, Scatter, Aggregate, Distinct, RowReduce, Select, Top)
}


def to_lists(program: Program) -> list[Any]:
    """A list of two: the nodes of a program, arguments before the nodes that use them, and the program, which refers to
    the nodes."""
    places: dict[Node, int] = {}
    rows: list[list[Any]] = []
    for x in walk(*roots(program)):
        places[x] = len(rows)
        rows.append([x.op, x.type, [places[y] for y in x.arguments], x.value])

    def written(x: Any) -> Any:
        if isinstance(x, Node):
            return {"node": places[x]}
        if isinstance(x, tuple):
            return [written(y) for y in x]
        name = type(x).__name__
        return {"record": name, **{f.name: written(getattr(x, f.name)) for f in fields(x)}} if name in _RECORDS else x

    return [rows, written(program)]


def from_lists(lists: Any) -> Program:
    """The program from which ``to_lists`` made ``lists``. ValueError, TypeError, KeyError, IndexError: ``lists`` has
    another form."""
    nodes: list[Node] = []
    rows, program = lists
    for op, value_type, arguments, value in rows:
        nodes.append(node(op, value_type, *(nodes[n] for n in arguments), value=value))

    def read(x: Any) -> Any:
        if isinstance(x, list):
            return tuple(map(read, x))
        if not isinstance(x, dict):
            return x
        if "node" in x:
            return nodes[x["node"]]
        values = {name: read(y) for name, y in x.items()}
        return _RECORDS[values.pop("record")](**values)

    program_read = read(program)
    if not isinstance(program_read, Program):
        raise TypeError(f"the lists are of a {type(program_read).__name__}; they must be of a Program")
    return program_read
