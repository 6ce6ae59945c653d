"""The text of a task as a function of PyTorch tensors, as users write it: operations on whole arrays.

The reduction over k is a matrix product, a distance of ``torch.cdist``, or a reduction of a cube M×K×N in slabs along
K.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxgen.errors import DtypeError
from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.python_text import TORCH, PythonText, number, type_in
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.lowering.algebra import PLUS_TIMES, InnerExpression
from ptxgen.lowering.bit_products import truth_operator
from ptxgen.operations.task.assembling import depends_on
from ptxgen.operations.task.baselines.parts import Parts, Read
from ptxgen.operations.task.lowering import algebra_of
from ptxgen.operations.task.program import (
    MEAN,
    POSITIONS,
    Aggregate,
    Output,
    RowReduce,
    Scatter,
    Select,
    Store,
)
from ptxgen.operations.task.sum_parts import sums_of
from ptxgen.operations.task.text_blocks import filled

SOURCE = """\
import torch


def compute(«arguments»M, N, K, slab, groups, row=0):
    if torch.is_tensor(row):
        i = row + torch.arange(M, dtype=torch.int32, device=A.device)
    else:
        i = torch.arange(row, row + M, dtype=torch.int32, device=A.device)
    j = torch.arange(N, dtype=torch.int32, device=A.device)
    «reduction»
    «results»
"""
CUBE = """\
accum = None
for first in range(0, K, slab):
    k = torch.arange(first, min(first + slab, K), dtype=torch.int32, device=A.device)
    «step»
    part = «reduced»
    accum = part if accum is None else «joined»
"""
#: form -> ``compute_mode``: by sums of squares and a product, whose result may fail its check; by differences
CDIST_MODES = {"cdist by products": "use_mm_for_euclid_dist", "cdist": "donot_use_mm_for_euclid_dist"}
#: operator -> text of the reduction along an axis
_ALONG = {
    "+": "{x}.sum({axis}, dtype={type})",
    "*": "{x}.prod({axis}, dtype={type})",
    "max": "{x}.amax({axis})",
    "min": "{x}.amin({axis})",
    "fmax": "{x}.amax({axis})",
    "fmin": "{x}.amin({axis})",
    "argmax": "{x}.argmax({axis}).to(torch.int32)",
    "argmin": "{x}.argmin({axis}).to(torch.int32)",
    "logsumexp": "{x}.logsumexp({axis})",
    "mean": "{x}.mean({axis})",
}
#: operator -> reduction of ``index_reduce_``
_REDUCED_BY_INDEX = {"*": "prod", "max": "amax", "min": "amin"}


def along(op: str, x: str, axis: int, type: str) -> str:
    """The text of the reduction of ``x`` along an axis. DtypeError: PyTorch has no such reduction."""
    if op not in _ALONG:
        raise DtypeError(f"the reduction is {op}; PyTorch has {', '.join(_ALONG)}")
    return _ALONG[op].format(x=x, axis=axis, type=type_in(TORCH, type))


def _element(read: Read, axes: tuple[str, ...]) -> str:
    """The text of a variable that broadcasts along ``axes``: (i, k, j) in the cube, (i, j) in results."""
    if read.indexed:
        own: tuple[str, ...] = (read.name,) if read.name in axes else ()
        base = read.name if own else f"torch.tensor({read.name}, dtype=torch.int32)"
    else:
        order = [axis for axis in axes if axis in read.axes]
        own, base = tuple(order), read.name
        if list(read.axes) != order:
            base = f"{read.name}.T"
        if read.name == "A":
            base = "A"
        elif read.name == "B":
            base = "B"
    if not own:
        return base
    inside = ["first:first + slab" if axis == "k" and not read.indexed else ":" for axis in axes if axis in own]
    at = iter(inside)
    return f"{base}[{', '.join(next(at) if axis in own else 'None' for axis in axes)}]"


def forms(parts: Parts) -> dict[str, list[str]]:
    """The ways to reduce over k: name -> lines that define ``accum``. A is M×K, B is K×N. DtypeError: PyTorch lacks an
    operator or a type."""
    p, algebra = parts.problem, parts.algebra
    total = type_in(TORCH, algebra.type)
    program, roles = p.program, p.roles
    if program.reduction in POSITIONS:
        raise DtypeError(f"the reduction is {program.reduction}; it must be an operator")
    out: dict[str, list[str]] = {}
    if algebra_of(roles) is PLUS_TIMES and type_of(algebra.type).floating:
        same = roles.use("A").dtype == roles.use("B").dtype == p.out
        wide = "" if same else f".to({total})"
        out["matmul"] = [f"accum = torch.matmul(A{wide}, B{wide}).to({total})"]
        return out
    if (power := distance_of(algebra)) is not None:
        for name, mode in CDIST_MODES.items():
            if name == "cdist" or power == "2.0":
                text = f'torch.cdist(A, B.T, p={power}, compute_mode="{mode}")'
                out[name] = [f"accum = {text}{'.square()' if power == '2.0' else ''}"]
    out |= truth_forms(algebra)
    names = parts.names(lambda read: _element(read, ("i", "k", "j")), parts.step)
    step = PythonText([parts.step], names, TORCH, "s")
    part, accum = variable("part", algebra.type), parts.accumulator
    joined = PythonText([], {part: "part", accum: "accum"}, TORCH)(node(algebra.reduce, algebra.type, accum, part))
    if algebra.reduce not in _ALONG and out:
        return out
    words = {"reduced": along(algebra.reduce, step(parts.step), 1, algebra.type), "joined": joined}
    out["cube"] = filled(CUBE, {"step": step.definitions}, words).splitlines()
    return out


def truth_forms(algebra: InnerExpression) -> dict[str, list[str]]:
    """The ways to compute a reduction of truth values by a matrix product of 0 and 1: in f16, which is exact only if |
    reduces, and in 8-bit integers. Empty if the algebra is another one."""
    op = truth_operator(algebra)
    if op is None:
        return {}
    forms = {}
    for name, torch_type, multiply in (("f16 product", "float16", "matmul"), ("int8 product", "int8", "_int_mm")):
        if torch_type == "float16" and (op != "&" or algebra.reduce != "|"):
            continue
        lines = [f"{x} = ({x.upper()} != 0).to(torch.{torch_type})" for x in "ab"]
        lines.append(f"accum = torch.{multiply}(a, b)")
        if op == "^":
            sums = "a.sum(1, dtype=torch.int32)[:, None] + b.sum(0, dtype=torch.int32)"
            lines.append(f"accum = {sums} - 2 * accum")
        if algebra.reduce == "|":
            lines.append(f"accum = (accum != 0).to({type_in(TORCH, algebra.type)})")
        forms[name] = lines
    return forms


def distance_of(algebra: InnerExpression) -> str | None:
    """The Python text of p, if the algebra is the p-distance (or, for p = 2, its square). None: it is not a distance,
    or not in the type of A and B."""
    a, b, type = algebra.a, algebra.b, algebra.type
    if a.op != "variable" or b.op != "variable" or type not in ("f32", "f64"):
        return None
    for difference in (node("-", type, a, b), node("-", type, b, a)):
        size = node("abs", type, difference)
        if algebra.step is size and algebra.reduce in ("+", "max"):
            return "1.0" if algebra.reduce == "+" else 'float("inf")'
        if algebra.step is node("*", type, difference, difference) and algebra.reduce == "+":
            return "2.0"
    return None


def _matrix(text: PythonText, x: Node, type: str) -> str:
    """The text of an expression as a matrix of all pairs."""
    if x.op == "constant":
        return f"torch.full((M, N), {number(x)}, dtype={type_in(TORCH, type)}, device=A.device)"
    return f"{text(x)}.expand(M, N)"


def results(parts: Parts) -> list[str]:
    """The lines that return the outputs as a list, in the order of the program."""
    program = parts.problem.program
    outputs = [_known_output(parts, x) for x in program.outputs]
    when = None if program.when is None else parts.known(program.when)
    roots = [x for _, xs in outputs for x in xs] + ([when] if when is not None else [])
    names = parts.names(lambda read: _element(read, ("i", "j")), *roots)
    text = PythonText(roots, names, TORCH, "v")
    lines = list(text.definitions)
    if when is not None:
        lines.append(f"when = {_matrix(text, when, PRED)}")
    shown: list[str] = []
    for output, expressions in outputs:
        lines += _OUTPUTS[type(output)](output, expressions, text, when is not None, f"out{len(shown)}")
        shown.append(f"out{len(shown)}")
    return [*lines, f"return [{', '.join(shown)}]"]


def _known_output(parts: Parts, x: Output) -> tuple[Output, list[Node]]:
    """An output, and its expressions with the values of scalars. The expressions of a list begin with the condition;
    those of groups, and of values stored at keys, end with the keys."""
    roots = [x.condition, *x.values] if isinstance(x, Select) else [x.value]
    if isinstance(x, Aggregate | Scatter):
        roots += [x.row, x.column]
    return x, [parts.known(parts.of_reduction(y)) for y in roots]


Lines = Callable[..., list[str]]


def _masked(value: str, op: str, type: str, masked: bool) -> str:
    """The text of a matrix in which pairs that are not computed have the identity of ``op``."""
    if not masked:
        return value
    operator = OPERATORS["max" if op == "logsumexp" else op]
    assert operator.identity is not None
    return f"torch.where(when, {value}, {number(constant(operator.identity(type_of(type)), type))})"


def _scattered(output: Output, roots: list[Node], text: PythonText, masked: bool, name: str) -> list[str]:
    raise DtypeError("the output leaves elements unwritten; PyTorch writes all")


def _stored(output: Output, roots: list[Node], text: PythonText, masked: bool, name: str) -> list[str]:
    assert isinstance(output, Store)
    if masked:
        raise DtypeError("the output leaves elements unwritten; PyTorch writes all")
    value = _matrix(text, roots[0], roots[0].type)
    return [f"{name} = {value}{'.T' if output.axes == ('j', 'i') else ''}"]


def _grouped(output: Output, roots: list[Node], text: PythonText, masked: bool, name: str) -> list[str]:
    """The lines that reduce rows in groups, then columns in groups. Keys out of range have a group of their own, which
    is dropped."""
    assert isinstance(output, Aggregate)
    value, row, column = roots
    if output.op != "+" and output.op not in _REDUCED_BY_INDEX:
        raise DtypeError(f"the reduction of groups is {output.op}; PyTorch has +, {', '.join(_REDUCED_BY_INDEX)}")
    operator = OPERATORS[output.op]
    assert operator.identity is not None
    first = number(constant(operator.identity(type_of(value.type)), value.type))
    add = "index_add_({axis}, {at}, {x})"
    if output.op != "+":
        add = f'index_reduce_({{axis}}, {{at}}, {{x}}, "{_REDUCED_BY_INDEX[output.op]}")'
    across = not depends_on("i", row)  # keys of rows are those of j
    x = _masked(_matrix(text, value, value.type), output.op, value.type, masked)
    lines = [f"g, h = groups[{output.name!r}]", f"x = ({x}).T" if across else f"x = {x}"]
    for key, root, size in (("rows", row, "g"), ("columns", column, "h")):
        lines += [
            f"{key} = {text(root)}.flatten()",
            f"{key} = torch.where(({key} >= 0) & ({key} < {size}), {key}, {size})",
        ]
    return [
        *lines,
        f"part = x.new_full((g + 1, x.shape[1]), {first}).{add.format(axis=0, at='rows', x='x')}",
        f"{name} = x.new_full((g + 1, h + 1), {first}).{add.format(axis=1, at='columns', x='part')}[:g, :h]",
    ]


def _along_axis(output: Output, roots: list[Node], text: PythonText, masked: bool, name: str) -> list[str]:
    assert isinstance(output, RowReduce)
    if masked and output.op in (MEAN, *POSITIONS):
        raise DtypeError(f"{output.op} of some pairs is none of PyTorch's operations")
    value = _masked(_matrix(text, roots[0], roots[0].type), output.op, roots[0].type, masked)
    return [f"{name} = {along(output.op, value, 1 if output.axis == 'i' else 0, roots[0].type)}"]


def _listed(output: Output, roots: list[Node], text: PythonText, masked: bool, name: str) -> list[str]:
    condition = _matrix(text, roots[0], PRED)
    values = ", ".join(f"{_matrix(text, x, x.type)}[at]" for x in roots[1:])
    return [f"at = torch.nonzero({condition}{' & when' if masked else ''}, as_tuple=True)", f"{name} = ({values},)"]


_OUTPUTS: dict[type[Output], Lines] = {
    Store: _stored,
    Scatter: _scattered,
    Aggregate: _grouped,
    RowReduce: _along_axis,
    Select: _listed,
}


def sources(parts: Parts) -> dict[str, str]:
    """Name of a form -> source of its module, which defines ``compute``. DtypeError: PyTorch cannot express the
    program."""
    others = [u.role for u in parts.problem.roles.others]
    words = {"arguments": "".join(f"{name}, " for name in ("A", "B", *others))}
    texts = results(parts)
    blocks = {name: {"reduction": lines, "results": texts} for name, lines in forms(parts).items()}
    blocks |= group_forms(parts)
    return {name: filled(SOURCE, lines, words) for name, lines in blocks.items()}


def group_forms(parts: Parts) -> dict[str, dict[str, list[str]]]:
    """The ways to compute sums of products in groups from sums of rows and of columns: name -> lines by block. The sums
    are made by ``index_add_``, or by products with matrices of 0 and 1. Empty if the program is another one."""
    p = parts.problem
    sums = sums_of(p)
    if sums is None or not type_of(p.program.accumulator).floating:
        return {}
    output, total = p.program.outputs[0], type_in(TORCH, p.program.accumulator)
    first = [f"g, h = groups[{output.name!r}]"]
    for name, each, size in (("rows", sums.rows, "g"), ("columns", sums.columns, "h")):
        first += [
            f"{name} = torch.where(({each.key} >= 0) & ({each.key} < {size}), {each.key}, {size})",
            f"of_{name} = {each.array if each.array == 'A' else 'B.T'}.to({total})",
        ]
    forms: dict[str, list[str]] = {
        "index_add of rows and columns": [
            f"{name} = of_{name}.new_zeros(({size} + 1, K)).index_add_(0, {name}, of_{name})[:{size}]"
            for name, size in (("rows", "g"), ("columns", "h"))
        ],
        "one-hot products": [
            f"{name} = (torch.arange({size}, device=A.device)[:, None] == {name}[None]).to({total}) @ of_{name}"
            for name, size in (("rows", "g"), ("columns", "h"))
        ],
    }
    accum = parts.accumulator
    value = parts.known(parts.of_reduction(output.value))
    text = PythonText([value], {accum: "accum"}, TORCH, "v")
    if p.program.when is None:
        last = ["accum = rows @ columns.T", *text.definitions, f"return [{text(value)}]"]
    else:  # of equal groups alone
        last = [
            "both = min(g, h)",
            "accum = (rows[:both] * columns[:both]).sum(1)",
            *text.definitions,
            "out = accum.new_zeros((g, h))",
            f"out.diagonal().copy_({text(value)})",
            "return [out]",
        ]
    return {name: {"reduction": [*first, *lines], "results": last} for name, lines in forms.items()}
