"""The C text of launches: parameters, tensor maps and grids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.source import Step, TensorMap
from ptxgen.cuda_abi import MAP_SWIZZLES, MAP_TYPES
from ptxgen.export.library import ExportedProblem, Library, key_of
from ptxgen.export.operations import OPERATIONS
from ptxgen.lowering.table import Table


@dataclass(frozen=True)
class CStep:
    """A launch in C. ``arguments``: the statements that put its parameters; ``function``: the index of its kernel."""

    arguments: list[str]
    function: int
    grid: tuple[str, str, str]
    threads: int
    shared: int


@dataclass(frozen=True)
class CProgram:
    """The C function ``name`` that launches the kernels of a problem. ``scalars``: the type of alpha and beta;
    ``workspace``: its bytes."""

    name: str
    title: str
    config: str
    scalars: str
    workspace: str
    zeroed: bool
    steps: list[CStep]


@dataclass(frozen=True)
class CEntry:
    """A row of the table of problems."""

    fields: tuple[int, ...]
    alignment: tuple[int, int, int]
    program: str


def entries(library: Library) -> dict[str, list[CEntry]]:
    """By the name of the C function: its problems in the order in which the library searches them."""
    out: dict[str, list[CEntry]] = {operation.name: [] for operation in OPERATIONS.values()}
    for p in library.problems:
        operation = OPERATIONS[p.problem.operation]
        out[operation.name].append(CEntry(key_of(p.problem), operation.alignments(p.problem), _name(p)))
    return {name: sorted(rows, key=lambda row: (row.fields, [-n for n in row.alignment])) for name, rows in out.items()}


def program(library: Library, p: ExportedProblem) -> CProgram:
    """The C function of an exported problem."""
    steps = [_step(library, p, step) for step in p.launch.steps]
    kinds = {kind for step in p.launch.steps for kind, value in step.arguments if value in ("alpha", "beta")}
    return CProgram(
        name=_name(p),
        title=p.problem.key(),
        config=str(p.config),
        scalars=next(iter(kinds - {"f64"}), ""),
        workspace=str(p.launch.workspace),
        zeroed=p.launch.zeroed,
        steps=steps,
    )


def example(p: ExportedProblem) -> dict[str, Any]:
    """What the example program needs: the problem, and the member and bytes of each of its arrays."""
    problem, operation = p.problem, OPERATIONS[p.problem.operation]
    counts = dict(zip("abc", operation.elements(problem), strict=True))
    kinds = {"a": problem.element, "b": problem.element, "c": problem.output}
    for name, (stored, _) in problem.broadcast_shapes.items():
        counts[name] = counts["c"] if name == "residual" else math.prod(stored)
        kinds[name] = problem.epilogue_operand_dtype(name)
    buffers = [(name, max(count * kinds[name].bytes, 1)) for name, count in counts.items()]
    fields = list(zip((f.name for f in operation.fields), key_of(problem), strict=True))
    return {"first": p, "name": operation.name, "fields": fields, "buffers": buffers}


def _name(p: ExportedProblem) -> str:
    return f"compute_{p.number}"


def _step(library: Library, p: ExportedProblem, step: Step) -> CStep:
    lines = [_argument(library, p, kind, value) for kind, value in step.arguments]
    x, y, z = (str(n) for n in step.grid)
    return CStep(lines, library.function(p.module, step.entry).number, (x, y, z), step.block[0], step.shared)


def _argument(library: Library, p: ExportedProblem, kind: str, value: object) -> str:
    """The statement that puts a parameter."""
    if isinstance(value, TensorMap):
        return _map(p, value)
    if isinstance(value, Table):
        return f"put_u64(x, x->library->tables + {library.tables.offsets[value]});"
    if isinstance(value, str):
        number = f"x->operands->{value}" if value in ("alpha", "beta") else operand(value, p.swapped)
        return f"put_{kind}(x, {number});"
    return f"put_{kind}(x, {value});"


def operand(name: str, swapped: bool) -> str:
    """The address of an operand, as kernels name it. ``swapped``: A of the kernels is the second operand."""
    member = {"A": "b" if swapped else "a", "B": "a" if swapped else "b", "C": "c", "W": "workspace"}.get(name, name)
    return f"address(x->operands->{member})"


def _map(p: ExportedProblem, m: TensorMap) -> str:
    fields = {
        "type": MAP_TYPES[m.dtype],
        "rank": len(m.extents),
        "swizzle": MAP_SWIZZLES[m.swizzle],
        "element": m.element_alignment,
        "address": operand(m.operand, p.swapped),
        "offset": m.offset,
        "extents": _braces(m.extents),
        "pitches": _braces(m.pitches),
        "box": _braces(m.box),
    }
    if m.pixel_box is not None:
        fields |= {
            "pixels": m.box[1],
            "steps": _braces((1, *m.pixel_box.strides, 1)),
            "lower": _braces(m.pixel_box.lower),
            "upper": _braces(m.pixel_box.upper),
        }
    text = ", ".join(f".{name} = {value}" for name, value in fields.items() if value != 0)
    return f"put_map(x, (struct tensor_map){{{text}}});"


def _braces(values: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"
