"""Sets of problems: suites of operations, and shapes files in JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ptxgen.arguments import shown
from ptxgen.errors import InputError
from ptxgen.problem.operation import DEFAULT, Case, operation_named
from ptxgen.problem.registry import from_dict

MOST_CALLS = 10**15  #: the largest ``count`` on a line of a shapes file


def cases(name: str, of: str = DEFAULT, **fields: Any) -> list[Case]:
    """The cases of suite ``name`` of operation ``of``. ``fields``: fields that all problems have.

    InputError: there is no such suite, or a layout is given although the suite sets layouts itself. ShapeError,
    DtypeError: the problem type does not accept the fields.
    """
    suites = operation_named(of).suites
    if name not in suites:
        raise InputError(f"suite is {name!r}; for {of} it must be one of {', '.join(suites)}")
    suite = suites[name]
    if suite.layouts and "layout" in fields:
        raise InputError(f"layout is {fields['layout']!r}; suite {name} sets the layout of each case itself")
    return list(suite.build(**fields))


def named(cases: Sequence[Case], texts: Sequence[str]) -> list[Case]:
    """The cases whose names contain one of ``texts``. InputError: no name contains a text."""
    for text in texts:
        if not any(text in case.name for case in cases):
            names = ", ".join(shown(case.name) for case in cases) or "none"
            raise InputError(f"case is {shown(text)}; it must be a part of the name of a case: {names}")
    return [case for case in cases if any(text in case.name for text in texts)]


def separated(cases: Iterable[Case]) -> list[Case]:
    """The cases, in which each problem with several outputs is replaced by one problem per output."""
    cases_of_steps = []
    for case in cases:
        separate = operation_named(case.problem.operation).separate
        outputs = separate(case.problem) if separate else {}
        named = {f"{case.name}: {name}": p for name, p in outputs.items()} or {case.name: case.problem}
        cases_of_steps += [replace(case, name=name, problem=p) for name, p in named.items()]
    return cases_of_steps


def as_called(cases: Iterable[Case]) -> list[Case]:
    """The cases, in which each problem that calls compute in parts on every device is replaced by its parts."""
    calls = []
    for case in cases:
        find = operation_named(case.problem.operation).parts
        parts = find(case.problem, None) if find else None
        steps = parts.steps if parts else ()
        calls += [replace(case, name=f"{case.name}: {x.name}", problem=x.problem, column_major=None) for x in steps]
        calls += [] if steps else [case]
    return calls


def read(
    lines: Iterable[str | bytes], name: str, of: str = DEFAULT, column_major: bool = False, **fields: Any
) -> Iterator[Case]:
    """Reads the cases of a shapes file. Each line is a JSON object with the extents of a problem, any of its other
    fields and, optionally, ``name`` and ``count`` of the case.

    ``name``: the file name, for errors; ``of``: the operation; if empty, each line may name its own (default ``gemm``);
    ``column_major``: True if the lines and ``fields`` are in column-major terms; ``fields``: defaults of fields.
    InputError: a line breaks a rule; the message has the file name and the line number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = _object(_text(line.strip()))
            if values.setdefault("operation", of or DEFAULT) != of and of:
                raise InputError(f"operation is {values['operation']!r}; a command on {of} takes only {of}")
            title, count = _title(values.pop("name", "")), _count(values.pop("count", 1))
            case = case_of({**fields, **values}, column_major)
        except (ValueError, TypeError) as error:  # InputError is a ValueError
            raise InputError(f"{name}, line {number}: {error}") from error
        yield replace(case, name=title or case.name, count=count)


def case_of(values: dict[str, Any], column_major: bool) -> Case:
    """The case of the problem with these fields. ``column_major``: True if they are in column-major terms. InputError:
    the fields do not describe a problem, or the operation has no column-major form."""
    if not column_major:
        problem = from_dict(values)
        return Case(problem.key(), problem)
    operation = operation_named(values.get("operation", DEFAULT))
    if operation.column_major is None:
        raise InputError(f"--column-major is given; {operation.name} has no column-major form")
    return operation.column_major(values)


def _text(line: str | bytes) -> str:
    """The line as text. InputError: bytes are not UTF-8."""
    try:
        return line if isinstance(line, str) else line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the line is not UTF-8: byte {error.object[error.start]:#x}, column {error.start + 1}"
        ) from None


def _title(value: Any) -> str:
    """The name of a case. InputError: it has characters that a terminal does not print (a line break, an escape, half
    of a surrogate pair)."""
    text = str(value)
    if not text.isprintable():
        raise InputError(f"name is {shown(value)}; it must be text of printable characters")
    return text


def _count(value: Any) -> float:
    """The count of a case. InputError: the value is not a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_CALLS:
        raise InputError(f"count is {shown(value)}; it must be a positive number of calls")
    return float(value)


def _object(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{text[:60]!r} is not JSON: {error.msg}, column {error.colno}") from None
    except RecursionError:
        raise InputError(
            f"{text[:60]!r}... is nested too deeply; a line is an object of numbers, text and lists"
        ) from None
    except ValueError:  # Python limits the digits of integers
        raise InputError(f"{text[:60]!r}... has an integer of too many digits; the largest is 2147483647") from None
    if not isinstance(values, dict):
        raise InputError(f"{text[:60]!r} is not a JSON object")
    return values


__all__ = ["Case", "cases", "read"]
