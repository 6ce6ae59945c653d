"""Gives the arrays of a program the names of kernel operands, so that programs that differ only in names have the same
kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from ptxgen.errors import InputError
from ptxgen.expr.node import Node, node, substituted, variable, walk
from ptxgen.operations.task.assembling import roots
from ptxgen.operations.task.program import Input, Program, RowReduce, Store, Top
from ptxgen.problem.dtypes import dtype

#: operand -> the axes of its elements, in either order
SIDES = {"A": {"i", "k"}, "B": {"k", "j"}}


@dataclass(frozen=True)
class Use:
    """One use of an array of a program by a kernel. ``role``: the name of the array in the kernel; ``name``: its name
    in the program; ``axes``: the axes by which the program indexes it."""

    role: str
    name: str
    dtype: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Roles:
    """A program whose arrays have roles in a kernel. ``program``: the program with the names of roles; ``uses``: its
    arrays, A and B first; ``scalars``: (role, name, type of the kernel parameter) of each scalar; ``outputs``: (role,
    name) of each output; ``exchanged``: True if i and j are exchanged in ``program``, because C is stored by
    columns."""

    program: Program
    uses: tuple[Use, ...]
    scalars: tuple[tuple[str, str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    exchanged: bool = False

    def extents(self, of: Mapping[str, int]) -> dict[str, int]:
        """The extents of i, j and k of ``program``. ``of``: the extents of the axes of the program as it was
        written."""
        return {**of, "i": of["j"], "j": of["i"]} if self.exchanged else dict(of)

    def use(self, role: str) -> Use:
        return next(u for u in self.uses if u.role == role)

    @property
    def layout(self) -> str:
        """The layout (NN, NT, TN or TT) if A and B are stored as the program indexes them."""
        a, b = self.use("A").axes, self.use("B").axes
        return ("N" if a == ("i", "k") else "T") + ("N" if b == ("k", "j") else "T")

    @property
    def one_array(self) -> bool:
        """True if one array of the program is A and B."""
        return self.use("A").name == self.use("B").name

    @property
    def tiles(self) -> tuple[str, ...]:
        """The names in the program of the arrays that are A and B; one name if both are one array."""
        return tuple(dict.fromkeys(self.use(role).name for role in SIDES))

    @property
    def others(self) -> tuple[Use, ...]:
        """The arrays besides A and B."""
        return tuple(u for u in self.uses if u.role not in SIDES)


@lru_cache(maxsize=256)
def roles_of(program: Program) -> Roles:
    """The roles of the arrays of a program. Raises InputError if its step reads no array with the axes of A or of B."""
    by_columns = any(isinstance(x, Store) and x.axes == ("j", "i") for x in program.outputs)
    if by_columns:
        program = exchanged(program)
    every = [Use("", x.name, x.dtype, axes) for x in program.inputs for axes in x.uses]
    named = _named_by_roles(every) or _with_roles(every)
    numbers = [x for x in program.inputs if not x.uses]
    if {x.name for x in numbers} == set(_numbered("scalar", numbers)):
        numbers.sort(key=lambda x: int(x.name.removeprefix("scalar")))
    scalars = tuple((f"scalar{n}", x.name, _parameter_type(x.dtype)) for n, x in enumerate(numbers))
    changes = {_element(u.name, u.axes): variable(_element(u.role, u.axes), u.dtype) for u in named}
    changes |= {
        x.name: _number(role, element_type, x.dtype)
        for x, (role, _, element_type) in zip(numbers, scalars, strict=True)
    }
    inputs = (
        *(Input(u.role, u.dtype, (u.axes,)) for u in named),
        *(Input(role, element_type) for role, _, element_type in scalars),
    )
    names = [("C" if n == 0 else f"C{n}", x.name) for n, x in enumerate(program.outputs)]
    outputs = tuple(
        with_variables(replace(x, name=role), changes) for x, (role, _) in zip(program.outputs, names, strict=True)
    )
    changed = with_variables(replace(program, inputs=inputs, outputs=outputs), changes)
    return Roles(changed, tuple(named), scalars, tuple(names), by_columns)


def _with_roles(uses: list[Use]) -> list[Use]:
    """The uses with their roles: A and B are the first ones with the axes of A and of B. InputError: there is none."""
    named: list[Use] = []
    for role, side in SIDES.items():
        own = [u for u in uses if set(u.axes) == side]
        if not own:
            index = "i,k" if role == "A" else "k,j"
            raise InputError(f"the task reads no array at [{index}]; its step must read one")
        named.append(replace(own[0], role=role))
    rest = [u for u in uses if not any((u.name, u.axes) == (x.name, x.axes) for x in named)]
    return [*named, *(replace(u, role=f"input{n}") for n, u in enumerate(rest))]


def _named_by_roles(uses: list[Use]) -> list[Use]:
    """The uses with their names as roles, if all names are roles, as in the text of a problem: the order of first use
    in such a text may differ from that of the program whose roles these are. Empty: they are not. An array with several
    uses has the name of the first role, and the next ones."""
    sides = [[u for u in uses if set(u.axes) == side and u.name in ("A", role)] for role, side in SIDES.items()]
    if not all(sides):
        return []
    a, b = sides[0][0], sides[1][0]
    rest: dict[str, Use] = {}
    for u in sorted((u for u in uses if u is not a and u is not b), key=lambda u: u.axes):
        number = u.name.removeprefix("input")
        several = sum(x.name == u.name for x in rest.values())
        rest[f"input{int(number) + several}" if number.isdecimal() else u.name] = u
    roles = _numbered("input", uses[2:])
    if set(rest) != set(roles):
        return []
    return [replace(a, role="A"), replace(b, role="B"), *(replace(rest[role], role=role) for role in roles)]


def _numbered(word: str, of: Collection[Any]) -> list[str]:
    """The names of roles with numbers, as many as ``of`` has elements."""
    return [f"{word}{n}" for n in range(len(of))]


#: name of an axis or extent -> its name after i and j are exchanged
_OTHER = {"i": "j", "j": "i", "M": "N", "N": "M"}


@lru_cache(maxsize=256)
def exchanged(program: Program) -> Program:
    """The program with i and j exchanged."""
    read = {x.value: x.type for x in walk(*roots(program)) if x.op == "variable"}
    changes = {name: variable(exchanged_name(name), element_type) for name, element_type in read.items()}
    uses = [tuple(tuple(_OTHER.get(axis, axis) for axis in axes) for axes in x.uses) for x in program.inputs]
    inputs = tuple(replace(x, uses=each) for x, each in zip(program.inputs, uses, strict=True))
    outputs = []
    for x in program.outputs:
        other = with_variables(x, changes)
        if isinstance(other, Store):
            other = replace(other, axes=("i", "j") if other.axes == ("j", "i") else ("j", "i"))
        elif isinstance(other, RowReduce) or (isinstance(other, Top) and other.axis):
            other = replace(other, axis=_OTHER[other.axis])
        outputs.append(other)
    made: Program = with_variables(replace(program, inputs=inputs, outputs=tuple(outputs)), changes)
    return made


def exchanged_name(name: str) -> str:
    """The name of a variable after i and j are exchanged."""
    array, bracket, axes = name.partition("[")
    if not bracket:
        return _OTHER.get(name, name)
    return f"{array}[{','.join(_OTHER.get(axis, axis) for axis in axes[:-1].split(','))}]"


def _parameter_type(element_type: str) -> str:
    """The type of the kernel parameter for a scalar of this type: parameters have at least 32 bits."""
    t = dtype(element_type)
    return (
        element_type
        if t.bytes >= 4
        else "s32"
        if t.integer and element_type[0] == "s"
        else "u32"
        if t.integer
        else "f32"
    )


def _number(role: str, parameter: str, element_type: str) -> Node:
    """The expression of a scalar of type ``element_type`` in terms of its kernel parameter, of type ``parameter``."""
    x = variable(role, parameter)
    return x if parameter == element_type else node("cast", element_type, x)


def _element(name: str, axes: tuple[str, ...]) -> str:
    return f"{name}[{','.join(axes)}]"


def with_variables(x: Any, changes: dict[str, Node]) -> Any:
    """The record ``x`` with variables of its expressions replaced. ``changes``: name of a variable -> its
    replacement."""

    def changed(value: Any) -> Any:
        if isinstance(value, Node):
            return substituted(value, changes)
        if isinstance(value, tuple) and value and all(isinstance(y, Node) for y in value):
            return tuple(substituted(y, changes) for y in value)
        return value

    return replace(x, **{f.name: changed(getattr(x, f.name)) for f in fields(x)})
