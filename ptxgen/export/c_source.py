"""The C text of launches, of the shapes that kernels serve, and of the scores by which the library chooses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.source import Launch, Step, TensorMap, named_value
from ptxgen.cuda_abi import MAP_SWIZZLES, MAP_TYPES
from ptxgen.export.c_expression import MARK, block, mark
from ptxgen.export.choice import Score
from ptxgen.export.general import VARIABLES, General
from ptxgen.export.library import ExportedKernel, ExportedProblem, Library, Module
from ptxgen.export.symbol import Branch, Leaf, Symbol
from ptxgen.export.task_in_c import place
from ptxgen.expr.node import Node
from ptxgen.lowering.aggregate import REJECTED
from ptxgen.lowering.sink import SelectValues
from ptxgen.lowering.table import Table
from ptxgen.problem.base import ELEMENTWISE_OPERANDS

#: array of a problem or workspace -> member of the C structure, where the names differ
MEMBERS = {"A": "a", "values": "a", "B": "b", "C": "c", "W": "workspace"}


@dataclass(frozen=True)
class CFunction:
    """A C function that launches kernels. ``title``: what it computes; ``lines``: its body; ``empty``: the body for
    calls with alpha = 0; None: its calls have no alpha."""

    name: str
    title: str
    config: str
    lines: list[str]
    empty: list[str] | None


@dataclass(frozen=True)
class CEntry:
    """A row of the C library's table of problems. ``fields``: the numbers of the problem; ``alignment``: alignments of
    A, B and C in bytes; ``compute``: the name of the C function."""

    fields: tuple[int, ...]
    alignment: tuple[int, int, int]
    compute: str


@dataclass(frozen=True)
class CChoice:
    """A kernel that also serves shapes other than the exported ones. ``class_key``: the values of the fields that all
    its problems share; ``serves``, ``score``: the bodies of its C functions; ``fixed``: the features that are the same
    for all shapes."""

    operation: str
    class_key: tuple[int, ...]
    compute: str
    serves: list[str]
    score: list[str]
    fixed: list[str]
    learnt: bool


def entries(library: Library) -> dict[str, list[CEntry]]:
    """The table rows of each C function, by its name, in the order in which the library searches them."""
    out: dict[str, list[CEntry]] = {operation.form.name: [] for operation in library.operations}
    for p in library.problems:
        of = p.operation
        out[of.form.name].append(CEntry(of.key(p.problem), of.form.alignments(p.problem), _name(p)))
    return {name: sorted(rows, key=lambda row: (row.fields, [-n for n in row.alignment])) for name, rows in out.items()}


def _name(p: ExportedProblem) -> str:
    return f"problem_{p.number}" if p.kernel is None else _kernel_name(p.kernel)


def _kernel_name(k: ExportedKernel) -> str:
    return f"kernel_{k.number}"


def functions(library: Library) -> list[CFunction]:
    """The functions that launch kernels: for any shape, and for one problem."""
    out = []
    for k in library.kernels:
        title, shape = f"shapes as {k.problem.key()}", "x->shape."
        out.append(_function(_kernel_name(k), title, str(k.general.config), k.general.launch, k.empty, shape))
    for p in library.problems:
        if p.kernel is None:
            launch = form(library, p.modules, p.launch.bound_to(p.bindings))
            empty = None if p.empty is None else form(library, [p.empty.module], p.empty.launch)
            out.append(_function(_name(p), p.problem.key(), str(p.config), launch, empty, ""))
    return out


def _function(
    name: str, title: str, config: str, launch: Leaf | Branch, empty: Leaf | Branch | None, shape: str
) -> CFunction:
    """The C function of ``launch``, a tree of launches. ``empty``: the tree for calls with alpha = 0; ``shape``: the C
    prefix of variables."""
    lines, instead = (None if tree is None else block(tree, _launch_lines, shape) for tree in (launch, empty))
    return CFunction(name, title, config, lines or [], instead)


def choices(library: Library, scores: Sequence[Score]) -> list[CChoice]:
    """The kernels that serve other shapes than the exported ones, in the order of the library."""
    out = []
    for k, score in zip(library.kernels, scores, strict=True):
        out.append(
            CChoice(
                operation=k.operation.form.name,
                class_key=k.operation.class_key(k.problem),
                compute=_kernel_name(k),
                serves=_serves(k.general),
                score=block(score.tree, _score_lines if score.learnt else _time_lines, "s->"),
                fixed=[f"{value.hex()}f" for value in score.fixed],
                learnt=score.learnt,
            )
        )
    return out


def _serves(g: General) -> list[str]:
    wrong = " || ".join(f"s->{name} {'!=' if name in g.ones else '<='} 1" for name in VARIABLES)
    tree = block(g.served, lambda leaf, _: [f"return {int(leaf.form)};"], "s->")
    return [f"if ({wrong})", "    return 0;", *tree]


def _score_lines(leaf: Leaf, numbers: Sequence[str]) -> list[str]:
    if leaf.form is None:
        return ["return NAN;"]
    return [*(f"f[{i}] = {number};" for i, number in zip(leaf.form, numbers, strict=False)), f"return {numbers[-1]};"]


def _time_lines(leaf: Leaf, numbers: Sequence[str]) -> list[str]:
    return ["return NAN;"] if leaf.form is None else [f"return (float)log2({numbers[0]});"]


# ---- launches


def _launch_lines(leaf: Leaf, numbers: Sequence[str]) -> list[str]:
    if leaf.form is None:
        return ["x->status = PTXGEN_NOT_EXPORTED;"]
    return [MARK.sub(lambda m: numbers[int(m[1])], line) for line in leaf.form]


class _Numbers:
    """Collects the numbers of a form. A call adds a number and returns the mark that stands for it in the text."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def __call__(self, x: Any) -> str:
        self.nodes.append(Symbol.of(x).node)
        return mark(len(self.nodes) - 1)

    def braces(self, values: Sequence[Any]) -> str:
        return "{" + ", ".join(map(self, values)) + "}"


def form(library: Library, modules: Sequence[Module], launch: Launch) -> Leaf:
    """The statements that launch the kernels of ``modules``; their numbers may be symbols."""
    number = _Numbers()
    types = {ptx_type for step in launch.steps for ptx_type, value in step.arguments if _is_scalar(value)} - {"f64"}
    lines = [f"scalars_{ptx_type}(x);" for ptx_type in sorted(types)]
    lines.append(f"if (!begin(x, (size_t){number(launch.workspace)}, {int(launch.zeroed)}))")
    lines.append("    return;")
    for step in launch.steps:
        for ptx_type, value in step.arguments if step.entry else ():
            lines += _argument(library, ptx_type, value, number)
        lines.append(_launch(library, modules, step, number))
    return Leaf(tuple(lines), tuple(number.nodes))


def _launch(library: Library, modules: Sequence[Module], step: Step, number: _Numbers) -> str:
    if not step.entry:
        return f"clear(x, {_address(step.arguments[0][1], number)}, (size_t){number(step.grid[0])});"
    grid = ", ".join(map(number, step.grid))
    return f"launch(x, {library.function(modules, step.entry).number}, {grid}, {step.block[0]}, {step.shared});"


def _is_scalar(value: object) -> bool:
    return isinstance(value, str) and value in ("alpha", "beta")


def _argument(library: Library, ptx_type: str, value: Any, number: _Numbers) -> list[str]:
    """The C statements that append one kernel parameter to the parameter buffer."""
    if isinstance(value, TensorMap):
        return _map(value, number)
    if isinstance(value, Table):
        return [f"put_u64(x, x->library->tables + {library.tables.offsets[value]});"]
    if _is_scalar(value):
        return [f"put_{ptx_type}(x, x->operands->{value});"]
    if isinstance(value, str) and value == SelectValues.CAPACITY.name:
        return [f"put_{ptx_type}(x, (uint64_t)x->capacity);"]
    if isinstance(value, str) and value.startswith("scalar"):
        return [f"put_{ptx_type}(x, {'(int64_t)' * (ptx_type == 'u32')}{place(value)});"]
    if named_value(value) is not None:
        return [f"put_{ptx_type}(x, {_address(value, number)});"]
    if ptx_type == "u64" and isinstance(value, int):
        value = (value ^ 1 << 63) - (1 << 63) if value >> 63 else value  # numbers of C expressions are signed
    return [f"put_{ptx_type}(x, {'(uint64_t)' * (ptx_type == 'u64')}{number(value)});"]


def _address(value: Any, number: _Numbers) -> str:
    """The C expression of the address of an array, or of a part of one."""
    name, more = named_value(value)  # type: ignore[misc]
    return operand(name) if isinstance(more, int) and not more else f"{operand(name)} + {number(more)}"


def operand(name: str) -> str:
    """The C expression of the address of an array of the problem, or of the workspace."""
    if name.startswith(("input", "C_")) or name in (SelectValues.COUNT, REJECTED):
        return f"address({place(name)})"
    return f"address(x->operands->{MEMBERS.get(name, name)})"


def _map(m: TensorMap, number: _Numbers) -> list[str]:
    lines = [
        "put_map(x, (struct tensor_map){",
        f"    .type = {MAP_TYPES[m.dtype]}, .rank = {len(m.extents)}, .swizzle = {MAP_SWIZZLES[m.swizzle]},"
        f" .element = {m.element_alignment},",
        f"    .address = {operand(m.operand)}, .offset = (uint64_t){number(m.offset)},",
        f"    .extents = {number.braces(m.extents)},",
        f"    .pitches = {number.braces(m.pitches)},",
        f"    .box = {_braces(m.box)},",
    ]
    if m.pixel_box is not None:
        lines.append(
            f"    .pixels = {m.box[1]}, .steps = {_braces((1, *m.pixel_box.strides, 1))},"
            f" .lower = {_braces(m.pixel_box.lower)}, .upper = {_braces(m.pixel_box.upper)},"
        )
    return [*lines, "});"]


def _braces(values: Sequence[int]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


# ---- the example


def example(p: ExportedProblem) -> dict[str, Any]:
    """The template values of the example program: the problem, the name and the bytes of each array, and the indices of
    the arrays that the program reads from files."""
    problem, operation = p.problem, p.operation
    if operation.arguments:
        return _task_example(p)
    counts = dict(zip("abc", operation.form.elements(problem), strict=True))
    elements = {"a": problem.element, "b": problem.element, "c": problem.output}
    for name, (stored, _) in problem.broadcast_shapes.items():
        counts[name] = counts["c"] if name in ELEMENTWISE_OPERANDS else math.prod(stored)
        elements[name] = problem.epilogue_operand_dtype(name)
    buffers = [(name, max(count * elements[name].bytes, 1)) for name, count in counts.items()]
    inputs = [0, 1, *(len(buffers) + i for i in range(len(operation.form.arrays)))]
    files = ["A", "B", *(name.upper() for name in operation.form.arrays), "C"]
    buffers += [(name, max(size(problem), 1)) for name, size in operation.form.arrays.items()]
    return {
        **_named(p),
        "buffers": buffers,
        "numbers": [("alpha", "1.0")],
        "inputs": inputs,
        "outputs": [2],
        "files": files,
    }


def _named(p: ExportedProblem) -> dict[str, Any]:
    """The template values that all examples have: names of structures, and the fields of the problem."""
    of = p.operation
    fields = list(zip((f.name for f in of.fields), of.key(p.problem), strict=True))
    return {"first": p, "name": of.form.name, "operands_type": of.operands, "fields": fields}


def _task_example(p: ExportedProblem) -> dict[str, Any]:
    """The template values of the example of a task. Its inputs come first in the list of arrays."""
    inputs, outputs, numbers = p.operation.form.values["task"].example(p.problem)
    return {
        **_named(p),
        "buffers": [*inputs.items(), *outputs.items()],
        "numbers": list(numbers.items()),
        "inputs": list(range(len(inputs))),
        "outputs": list(range(len(inputs), len(inputs) + len(outputs))),
        "files": [*inputs, *outputs],
    }
