"""The operations that an exported library computes, and their problems as C structures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from ptxgen.errors import InputError
from ptxgen.problem.base import COMPUTE_MODES, OUT_DTYPES, text_of
from ptxgen.problem.c_form import CForm
from ptxgen.problem.epilogue_ops import ordered_names, split_epilogue
from ptxgen.problem.operation import operation_named, operations

if TYPE_CHECKING:
    from ptxgen.problem.registry import Problem


@cache
def words() -> tuple[str, ...]:
    """The names of layouts, directions, types and arithmetic. The C enumerator of a name has its index as value."""
    fields_of = (f for name in exported() for f in fields(operation_named(name).problem))
    described = [word for f in fields_of for word in text_of(f).words]
    modes = (name for names in COMPUTE_MODES.values() for name in names)
    outputs = (name for names in OUT_DTYPES.values() for name in names)
    return tuple(dict.fromkeys((*described, *COMPUTE_MODES, *modes, *outputs)))


def enumerator(word: str) -> str:
    """The C enumerator of a name in ``words``."""
    return f"PTXGEN_{word.upper()}"


@dataclass(frozen=True)
class CField:
    """A field of a problem structure. ``c_type``: its C type; ``number(problem)``: its value."""

    name: str
    meaning: str
    number: Callable[[Any], int]
    c_type: str = "int64_t"


def _word(name: str, meaning: str) -> CField:
    return CField(name, meaning, lambda p: words().index(getattr(p, name)), "ptxgen_word")


def _integer(name: str, meaning: str) -> CField:
    return CField(name, meaning, lambda p: int(getattr(p, name)))


def epilogue_bits() -> dict[str, int]:
    """Epilogue operation -> its bit in the field ``epilogue`` of a C problem."""
    return {name: 1 << bit for bit, name in enumerate(ordered_names())}


def epilogue_sum(epilogue: str) -> int:
    """The value of the field ``epilogue`` of a C problem, for epilogue operations separated by commas. InputError: an
    operation has no bit."""
    bits, names = epilogue_bits(), split_epilogue(epilogue)
    if unknown := [name for name in names if name not in bits]:
        raise InputError(f"epilogue has {unknown[0]}; an exported library takes {', '.join(bits)}")
    return sum(bits[name] for name in names)


#: the first fields of every problem structure; problems of one class have equal values of them
CLASS_FIELDS = (
    _word("layout", "memory layout"),
    _word("dtype", "type of A and B"),
    _word("compute", "arithmetic"),
    _word("out", "type of C"),
    CField("epilogue", "sum of PTXGEN_EPILOGUE_ values", lambda p: epilogue_sum(p.epilogue)),
    CField("deterministic", "1: only kernels whose sums have a fixed order", lambda p: int(p.deterministic)),
)


@dataclass(frozen=True)
class CArgument:
    """A member of a C structure of operands. ``places``: the C expressions of the members of ``struct call`` that hold
    its value, as ``x->common.a``."""

    name: str
    c_type: str
    meaning: str
    places: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """The C declaration of the member, without semicolon."""
        return f"{self.c_type}{'' if self.c_type.endswith('*') else ' '}{self.name}"


@dataclass(frozen=True)
class COperation:
    """An operation, or a task, as a C function.

    ``fields``: the fields of its problem structure; ``class_fields``: the number of leading fields that identify a
    class of problems, whose kernels serve all shapes of the class; ``learnt``: True if the trees of the model may
    choose among these kernels; ``arguments``: the members of its operand structure; empty: ``ptxgen_operands`` is used;
    ``notes``: lines of the header that say what it computes."""

    form: CForm
    fields: tuple[CField, ...]
    class_fields: int = len(CLASS_FIELDS)
    learnt: bool = True
    arguments: tuple[CArgument, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def operands(self) -> str:
        """The C type of the operand structure."""
        return f"ptxgen_{self.form.name}_operands" if self.arguments else "ptxgen_operands"

    def key(self, problem: Problem) -> tuple[int, ...]:
        """The values of the problem structure's fields, by which the C library recognises ``problem``."""
        return tuple(f.number(problem) for f in self.fields)

    def class_key(self, problem: Problem) -> tuple[int, ...]:
        """The values of the leading fields, which identify the class of ``problem``."""
        return self.key(problem)[: self.class_fields]


def exported() -> list[str]:
    """The names of the operations that have a C function."""
    return [operation.name for operation in operations() if operation.c_form is not None]


@cache
def in_c(name: str) -> COperation:
    """The operation ``name`` of ``exported()`` in C. Its text fields come first, then its integer fields, both in the
    order of the Python class."""
    operation = operation_named(name)
    assert operation.c_form is not None
    own = [f for f in fields(operation.problem) if text_of(f).c]
    described = [c for text in (True, False) for f in own if (f.type == "str") == text for c in _fields(f)]
    return COperation(operation.c_form, (*CLASS_FIELDS, *described))


def _fields(f: Field[Any]) -> list[CField]:
    """The C fields for one field of the Python problem: one for each element of a tuple."""
    described = text_of(f)
    if f.type == "str":
        return [_word(f.name, described.c[0][1])]
    if len(described.c) == 1:
        return [_integer(f.name, described.c[0][1])]
    count = len(described.c)
    return [CField(name, meaning, _element(f.name, i - count)) for i, (name, meaning) in enumerate(described.c)]


def _element(name: str, index: int) -> Callable[[Any], int]:
    return lambda p: int(getattr(p, name)[index])
