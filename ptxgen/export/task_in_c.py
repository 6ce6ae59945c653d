"""Tasks as C functions: the structures of their problems and operands, in the order of the inputs of their texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from ptxgen.api.selection import LEAST, PAIRS
from ptxgen.arguments import integer, shown
from ptxgen.codegen.top_records import BEST, BEST_I, BEST_J
from ptxgen.errors import ConfigError, InputError
from ptxgen.export.best_values import RESULTS, KeptRows, OrderedList
from ptxgen.export.general import GROUPS
from ptxgen.export.operations import CArgument, CField, COperation
from ptxgen.expr.node import Node, variable
from ptxgen.lowering.aggregate import REJECTED
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import SelectValues, list_names
from ptxgen.operations.task import several
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.lowering import lower_task
from ptxgen.operations.task.printing import printed
from ptxgen.operations.task.problem import ResultArray, Task
from ptxgen.operations.task.program import (
    Aggregate,
    Distinct,
    Input,
    Output,
    Program,
    RowReduce,
    Scatter,
    Select,
    Store,
    Top,
)
from ptxgen.operations.task.roles import Roles, roles_of
from ptxgen.operations.task.task_hash import SHOWN, task_hash
from ptxgen.operations.task.top_lists import keeps_best, listing
from ptxgen.problem.base import EXTENT_LIMIT
from ptxgen.problem.c_form import CForm
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.operation import operation_of
from ptxgen.tuning.selection import Selection

#: keywords of C and C++, which cannot name a member; the header serves both languages
_WORDS = """
    alignas alignof and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await
    co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not_eq nullptr operator or_eq private protected public register reinterpret_cast requires
    restrict return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq NULL
"""
KEYWORDS = frozenset(_WORDS.split())
#: names that are reserved in C or C++, or used by the header
RESERVED = re.compile(r"_[A-Z_]|PTXGEN_|(u?int\d+|size|ptrdiff)_t$")
TEMPLATE = "export/task.c.mako"
#: suffixes of the functions and types of a task, with which its name must not end
ENDS = ("_workspace", "_problem", "_operands")
#: element type of a scalar input -> its C type
NUMBERS = {"f64": "double", "f32": "float", "f16": "float", "bf16": "float"}
NUMBERS |= {f"{sign}{bits}": f"{name}{bits}_t" for sign, name in (("s", "int"), ("u", "uint")) for bits in (8, 16, 32)}
#: axis -> the field of the problem with its extent
FIELDS = {"i": "m", "j": "n", "k": "k"}
#: the members of every operand structure for the workspace
WORKSPACE = (
    CArgument("workspace", "void *", "as in ptxgen_operands", ("x->common.workspace",)),
    CArgument("workspace_bytes", "size_t", "", ("x->common.workspace_bytes",)),
    CArgument("workspace_is_zero", "int", "", ("x->common.workspace_is_zero",)),
)


def require_name(name: str) -> None:
    """Requires a name for which ``ptxgen_task_<name>`` can be a C function. InputError: it cannot."""
    if not re.fullmatch(r"[A-Za-z0-9_]+", name, re.ASCII):
        raise InputError(f"name is {shown(name)}; it must have letters, digits and _ alone, as part of the name in C")
    end = next((end for end in ENDS if name.endswith(end)), None)
    if end is not None:
        raise InputError(f"name is {name}; it must not end in {end}, as other functions and types of a task do")


@dataclass(frozen=True)
class TaskInC:
    """A task with one output as a C function.

    ``name``: the name of the function, without ``ptxgen_task_``; ``program``: its first use of an array states how the
    array is stored; ``order``: the names of the inputs in the order of arguments; empty: the order of the program; the
    other fields have the meanings of those of ``Task``.

    InputError: a name in the program cannot be a name in C, or two members of a structure have one name."""

    name: str
    program: Program
    compute: str = ""
    deterministic: bool = False
    algebra: bool = True
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_name(self.name)
        output = self.output
        if isinstance(output, Distinct):
            raise InputError(
                f"{output.name} is {canonical_output(self.program)}, of which the host makes lists; a C function marks"
                f" pairs of keys in a matrix: {output.name}[…, …] |= condition"
            )
        if isinstance(output, Top) and (output.count.op != "constant" or not output.count.value):
            count = "0" if output.count.op == "constant" else printed(output.count)
            raise InputError(
                f"{output.name} has {count} values; the text for a C function must have their number, from 1 on"
            )
        members = [x.name for x in self.arguments]
        for name in (*(x.name for x in self.program.inputs), self.output.name):
            if name in KEYWORDS or RESERVED.match(name):
                raise InputError(f"{name} is a word of C; the text must have another name for it")
        for name in members:
            if members.count(name) > 1:
                raise InputError(f"{name} is the name of two members of a structure; the text must have another name")

    @cached_property
    def roles(self) -> Roles:
        """The roles of the arrays in kernels. For the best values, kernels list all pairs."""
        return roles_of(listing(self.program) if isinstance(self.output, Top) else self.program)

    @property
    def output(self) -> Output:
        return self.program.outputs[0]

    def problem(self, m: int, n: int, k: int, groups: str = "") -> Task:
        """The problem with extents ``m``, ``n`` and ``k`` of the axes i, j and k; ``groups`` is the field of ``Task``.
        InputError: an extent is out of range, or two extents of one axis of an array differ."""
        kept = self._kept_roles
        roles = self.roles if kept is None or not keeps_best(kept.program, k) else kept
        return self._problem(roles, m, n, k, groups)

    def selected(self, p: Task, choose: Callable[[Task], Selection]) -> Selection:
        """The selection of a problem by ``choose``; that of the list of all pairs, if no kernel keeps the best values
        of rows. ConfigError: no configuration is legal."""
        if not p.keeps_best:
            return choose(p)
        try:
            return choose(p)
        except ConfigError:
            return choose(self._problem(self.roles, p.m, p.n, p.k))

    @cached_property
    def _kept_roles(self) -> Roles | None:
        """The roles of the arrays in kernels that keep the best values of rows. None: the output is another one."""
        x = self.output
        return roles_of(self.program) if isinstance(x, Top) and x.axis == "i" else None

    def _problem(self, roles: Roles, m: int, n: int, k: int, groups: str = "") -> Task:
        extents = zip(FIELDS.items(), (m, n, k), strict=True)
        given = {axis: integer(name, x, int(axis != "k"), EXTENT_LIMIT - 1) for (axis, name), x in extents}
        for a, b in self.equal_axes:
            if given[a] != given[b]:
                raise InputError(
                    f"{FIELDS[b]} is {given[b]}; it must be {given[a]}, as {FIELDS[a]}: an array has both at one axis"
                )
        e, pairs = roles.extents(given), m * n
        return Task(
            e["i"],
            e["j"],
            e["k"],
            roles.layout,
            "",
            text=Task.text_of(roles),
            compute=self.compute,
            deterministic=self.deterministic,
            algebra=self.algebra,
            groups=groups,
            capacity=min(pairs, max(LEAST, pairs // PAIRS)),
        )

    @property
    def equal_axes(self) -> list[tuple[str, str]]:
        """Pairs of task axes that must have equal extents, because both index the same axis of an array."""
        pairs = {
            tuple(sorted(pair))
            for x in self.program.inputs
            for one, other in combinations(x.uses, 2)
            for pair in zip(one, other, strict=True)
            if pair[0] != pair[1]
        }
        return sorted(pairs)  # type: ignore[arg-type]

    # ---- the structures

    @property
    def in_c(self) -> COperation:
        """The C function of the task."""
        form = CForm(
            f"task_{self.name}",
            f"task {task_hash(self.program)}",
            TEMPLATE,
            alignments=lambda p: (p.aligned_a, p.aligned_b, p.aligned_c),
            elements=lambda p: (0, 0, 0),
            without_sum=None,
            serves_other_shapes=lambda p: True,
            lower=_lower,
            tied=lambda p: TIED if p.mirrored else {},
            groups=lambda p: p.group_extents if self.grouped else (1, 1),
            completion=self._completion,
            values={"task": self},
        )
        notes = [canonical(self.program), *self._notes()]
        return COperation(form, tuple(self._fields()), 0, False, self.arguments, tuple(notes))

    def _completion(self, p: Task, on: Device) -> OrderedList | KeptRows | None:
        """The kernels that follow those of a problem for the best values."""
        if not isinstance(self.output, Top):
            return None
        if not p.keeps_best:
            return OrderedList(self.output, on)
        assert self._kept_roles is not None
        arrays = {(u.name, u.axes): u.role for u in self.roles.uses}
        numbers = {name: role for role, name, _ in self.roles.scalars}
        names = {u.role: arrays[u.name, u.axes] for u in self._kept_roles.uses}
        return KeptRows(names | {role: numbers[name] for role, name, _ in self._kept_roles.scalars})

    def _fields(self) -> Iterator[CField]:
        m, n = ("n", "m") if self.roles.exchanged else ("m", "n")
        yield CField("m", "extent of i", lambda p: int(getattr(p, m)))
        yield CField("n", "extent of j", lambda p: int(getattr(p, n)))
        yield CField("k", "extent of k", lambda p: int(p.k))
        if self.grouped:
            yield CField("group_rows", f"rows of {self.output.name}", lambda p: int(p.group_extents[0]))
            yield CField("group_columns", f"columns of {self.output.name}", lambda p: int(p.group_extents[1]))
        for name, (role, meaning) in self.leading.items():
            yield CField(f"ld_{name}", meaning, lambda p, role=role: int(getattr(p, f"ld{role.lower()}")))  # type: ignore[misc]

    @cached_property
    def leading(self) -> dict[str, tuple[str, str]]:
        """For each array that may have gaps between rows: its role (A, B or C), and the meaning of its leading
        dimension. Arrays that kernels read in a second way, too, must be contiguous."""
        others = {u.name for u in self.roles.others}
        arrays = {self.roles.use(role).name: role for role in "BA"}
        leading = {
            x.name: (arrays[x.name], f"elements from one row of {x.name} to the next; 0: contiguous")
            for x in self.program.inputs
            if x.name in arrays and x.name not in others
        }
        if isinstance(self.output, Store):
            leading[self.output.name] = "C", f"the same of {self.output.name}"
        return leading

    @cached_property
    def arguments(self) -> tuple[CArgument, ...]:
        """The members of the operand structure: the inputs in the order of arguments, the output, the workspace."""
        inputs = {x.name: self._input(x) for x in self.program.inputs}
        ordered = [*(inputs[name] for name in self.order if name in inputs), *inputs.values()]
        return (*dict.fromkeys(ordered), *self._outputs(), *WORKSPACE)

    def _input(self, x: Input) -> CArgument:
        if not x.uses:
            role = next(role for role, name, _ in self.roles.scalars if name == x.name)
            return CArgument(x.name, NUMBERS[x.dtype], f"{x.dtype}", (place(role),))
        places = tuple(place(u.role) for u in self.roles.uses if u.name == x.name)
        return CArgument(x.name, "const void *", f"{x.dtype}, {_stored(x.uses[0])}{self._gaps(x.name)}", places)

    def _gaps(self, name: str) -> str:
        return f", leading dimension ld_{name}" if name in self.leading else ""

    def _outputs(self) -> Iterator[CArgument]:
        x, result_type = self.output, Task.result_type(self.program)
        if isinstance(x, Select):
            for name, value, role in zip(list_columns(x), x.values, list_names(len(x.values)), strict=True):
                meaning = f"{value.type}, list of {printed(value)}"
                yield CArgument(f"{x.name}_{name}", "void *", meaning, (place(role),))
            yield CArgument(f"{x.name}_capacity", "int64_t", "elements that each list has room for", ("x->capacity",))
            meaning = "number of results, on the GPU, also if it exceeds the capacity"
            yield CArgument(f"{x.name}_count", "int64_t *", meaning, (place(SelectValues.COUNT),))
        elif isinstance(x, Top):
            rows = f"{FIELDS[x.axis]} × " if x.axis else ""
            for role, (name, element) in best_arrays(x).items():
                meaning = f"{element}, {rows}{int(x.count.value)}, contiguous"
                yield CArgument(f"{x.name}_{name}", "void *", meaning, (place(role),))
        elif isinstance(x, Aggregate | Scatter):
            yield CArgument(x.name, "void *", f"{result_type}, group_rows × group_columns, contiguous", (place("C"),))
            if isinstance(x, Aggregate):
                meaning = "number of pairs (i, j) whose keys are out of range, on the GPU"
                yield CArgument(f"{x.name}_rejected", "int64_t *", meaning, (place(REJECTED),))
        else:
            axes = x.axes if isinstance(x, Store) else (x.axis,) if isinstance(x, RowReduce) else ()
            yield CArgument(x.name, "void *", f"{result_type}, {_stored(axes)}{self._gaps(x.name)}", (place("C"),))

    def _notes(self) -> Iterator[str]:
        """The sentences of the header on the rules of a call."""
        for a, b in self.equal_axes:
            yield f"{FIELDS[a]} and {FIELDS[b]} must be equal."
        if isinstance(self.output, Select):
            yield "The lists have the first results up to the capacity, in no order; the count is that of all."
        if isinstance(self.output, Top):
            yield "The best value is the first one; where fewer pairs count, the worst of the type and index -1 follow."
        if isinstance(self.output, Aggregate):
            yield "Pairs with a key out of range are counted, and not reduced."
        if isinstance(self.output, Scatter):
            yield "Elements without a pair keep their values; pairs with a key out of range are not stored."
        if self.program.when is not None and isinstance(self.output, Store):
            yield f"Elements of {self.output.name} whose pair `when` excludes keep their values."

    def example(self, p: Task) -> tuple[dict[str, int], dict[str, int], dict[str, str]]:
        """The values of the example program, by member: bytes of inputs, bytes of outputs, texts of scalars."""
        e = dict(zip("ijk", (p.m, p.n, p.k), strict=True))
        of = {**e, "i": e["j"], "j": e["i"]} if self.roles.exchanged else e
        inputs = {
            x.name: math.prod(of[axis] for axis in x.uses[0]) * dtype(x.dtype).bytes
            for x in self.program.inputs
            if x.uses
        }
        members = {y: x.name for x in self.arguments for y in x.places}
        outputs = {members[place(name)]: math.prod(x.shape) * x.dtype.bytes for name, x in self._results(p).items()}
        numbers = {x.name: "1" for x in self.program.inputs if not x.uses}
        if isinstance(self.output, Select):
            numbers[f"{self.output.name}_capacity"] = str(p.capacity)
        return ({k: max(n, 1) for k, n in inputs.items()}, {k: max(n, 1) for k, n in outputs.items()}, numbers)

    def _results(self, p: Task) -> Mapping[str, ResultArray]:
        """Parameter -> shape and type of each array that a call writes."""
        x = self.output
        if not isinstance(x, Top):
            return p.result_arrays
        shape = (*{"": (), "i": (p.m,), "j": (p.n,)}[x.axis], int(x.count.value))
        return {role: ResultArray(shape, dtype(element)) for role, (_, element) in best_arrays(x).items()}

    # ---- the numbers of kernels

    @property
    def shape(self) -> dict[str, str]:
        """The extents and leading dimensions of the kernel problem, as C expressions of the problem structure."""
        fields = dict(FIELDS)
        if self.roles.exchanged:
            fields["i"], fields["j"] = fields["j"], fields["i"]
        of = {axis: f"p->{name}" for axis, name in fields.items()}
        shape = {"m": of["i"], "n": of["j"], "k": of["k"]}
        for role in "AB":
            use = self.roles.use(role)
            shape[f"ld{role.lower()}"] = f"p->ld_{use.name}" if use.name in self.leading else of[use.axes[1]]
        shape["ldc"] = f"p->ld_{self.output.name}" if isinstance(self.output, Store) else of["j"]
        return shape

    @property
    def groups(self) -> str:
        """The C expressions of the numbers of row groups and column groups, separated by a comma."""
        return "p->group_rows, p->group_columns" if self.grouped else "1, 1"

    @property
    def rows(self) -> dict[str, tuple[str, str]]:
        """For each array with a leading dimension: the C expressions of its number of rows, and of elements in a
        row."""
        axes = {self.roles.use(role).name: self.roles.use(role).axes for role in "BA"}
        if isinstance(self.output, Store):
            axes[self.output.name] = ("i", "j")  # of the kernels
        of = {axis: self.shape[name] for axis, name in FIELDS.items()}
        return {name: (of[axes[name][0]], of[axes[name][1]]) for name in self.leading}

    @property
    def grouped(self) -> bool:
        """True if group keys select the elements of the output."""
        return isinstance(self.output, Aggregate | Scatter)

    @property
    def counts(self) -> bool:
        """True if kernels count selected results, or pairs whose keys are out of range."""
        return isinstance(self.output, Select | Aggregate)

    @property
    def equal_fields(self) -> list[tuple[str, str]]:
        """The C expressions of pairs of extents that must be equal."""
        return [(f"p->{FIELDS[a]}", f"p->{FIELDS[b]}") for a, b in self.equal_axes]


#: for kernels that compute the pairs i ≤ j of one array: variable of the shape -> the variable that it always equals
TIED = {"n": "m", "ldb": "lda", "aligned_b": "aligned_a"}


def canonical_output(program: Program) -> str:
    """The canonical text of the last output of a program."""
    return canonical(program).removesuffix("}").rsplit("}", 1)[1].rstrip(";").rsplit(";", 1)[-1]


def _stored(axes: tuple[str, ...]) -> str:
    """The indices of an array, and its shape if it has several axes, for a comment: ``[i][k], m × k``."""
    index = "".join(f"[{axis}]" for axis in axes)
    return f"{index}, {' × '.join(FIELDS[axis] for axis in axes)}" if len(axes) > 1 else index


def place(role: str) -> str:
    """The C expression of the member of ``struct call`` for the kernel parameter ``role`` of a task."""
    simple = {"A": "common.a", "B": "common.b", "C": "common.c", SelectValues.COUNT: "count", REJECTED: "count"}
    if role in simple:
        return f"x->{simple[role]}"
    name, number = re.fullmatch(r"(input|scalar|C_)(\d+)", role).groups()  # type: ignore[union-attr]
    return f"x->{'list' if name == 'C_' else name}[{number}]"


def best_arrays(x: Top) -> dict[str, tuple[str, str]]:
    """Parameter -> the name and type of each array of an output of best values: the values, and their indices, except
    that of the rows or columns that have values of their own."""
    arrays = {BEST: ("value", x.value.type), BEST_I: ("i", "s32"), BEST_J: ("j", "s32")}
    return {RESULTS[array]: named for array, named in arrays.items() if named[0] != x.axis}


def list_columns(x: Select) -> list[str]:
    """The names of the lists of an output with selected results: i, j, and value, or value0, value1, …"""
    indices: dict[Node, str] = {variable(axis, "s32"): axis for axis in "ij"}
    others = sum(value not in indices for value in x.values)
    numbers = (f"value{n}" if others > 1 else "value" for n in range(others))
    return [indices.get(value) or next(numbers) for value in x.values]


class _Shape(Task):
    """A task with symbols in place of numbers. ``symbols``: the numbers of row groups and column groups."""

    symbols: Any

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def group_extents(self) -> tuple[int, int]:
        rows, columns = self.symbols
        return rows, columns


def _lower(p: Task, problem_type: type[KernelProblem], **symbols: Any) -> KernelProblem:
    """The kernel problem of a task, with ``symbols`` in place of numbers of the shape."""
    shape = object.__new__(_Shape)  # its rules are those of numbers
    if p.groups:
        shape.symbols = tuple(symbols.pop(name, x) for name, x in zip(GROUPS, p.group_extents, strict=True))
    values: Mapping[str, Any] = {f.name: getattr(p, f.name) for f in fields(p)} | symbols
    for name, x in values.items():
        object.__setattr__(shape, name, x)
    features = tuple((name, of(p)) for name, of in operation_of(p).features.items())
    return _of_type(replace(lower_task(shape), features=features), problem_type)


def _of_type(p: KernelProblem, problem_type: type[KernelProblem]) -> KernelProblem:
    """``p`` and its forms as objects of ``problem_type``."""
    values = {f.name: getattr(p, f.name) for f in fields(p)}
    return problem_type(**{**values, "forms": tuple(_of_type(form, problem_type) for form in p.forms)})


def functions_of(name: str, program: Program, output: str | None = None, **options: Any) -> list[TaskInC]:
    """The C functions of a program, one for each output; with several outputs, the name of a function ends in that of
    its output. ``name``: default: digits of the program's digest; ``output``: the only output to export; ``options``:
    other fields of ``TaskInC``. InputError: there is no such output."""
    name = name or task_hash(program)[:SHOWN]
    names = [x.name for x in program.outputs]
    if output is not None and output not in names:
        raise InputError(f"output is {output}; the outputs of the task are {', '.join(names)}")
    if len(names) == 1:
        return [TaskInC(name, program, **options)]
    return [
        TaskInC(f"{name}_{x.name}", several.single(program, x), **options)
        for x in program.outputs
        if output in (None, x.name)
    ]
