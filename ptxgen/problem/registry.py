"""Reads problems of any registered operation from their text form and from dictionaries."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any

from ptxgen.arguments import shown, word
from ptxgen.errors import InputError
from ptxgen.problem.base import ProblemBase
from ptxgen.problem.operation import DEFAULT, operation_named, operation_names, operations

#: a problem of any operation
Problem = ProblemBase


def parse(text: str) -> Problem:
    """The problem whose ``key()`` is ``text``. InputError: ``text`` is not the key of a problem."""
    words = text.split()
    if len(words) < 4 or words[0] not in operation_names():
        forms = " or ".join(f"{o.name} {o.problem.SHAPE_FORM} LAYOUT DTYPE [name=value ...]" for o in operations())
        raise InputError(f"problem is {shown(text)}; it must have the form: {forms}")
    problem_type = operation_named(words[0]).problem
    shape = problem_type.read_shape(words[1])
    extra: dict[str, Any] = {}
    types = {f.name: f.type for f in fields(problem_type) if f.name not in (*problem_type.SHAPE, "layout", "dtype")}
    for item in words[4:]:
        name, _, value = item.partition("=")
        if name not in types or name in extra:
            known = ", ".join(types)
            raise InputError(
                f"problem has {shown(item)}; it must be name=value, at most once, with one of the names {known}"
            )
        of, flag = types[name], types[name] == "bool"
        if of != "str" and not re.fullmatch("[01]" if flag else "[0-9]{1,13}", value):
            raise InputError(f"problem has {shown(item)}; {name} must be {'0 or 1' if flag else 'an integer'}")
        extra[name] = value if of == "str" else int(value) if of == "int" else value == "1"
    return problem_type(**{**shape, "layout": words[2], "dtype": words[3], **extra})


def from_dict(values: dict[str, Any]) -> Problem:
    """The problem whose ``as_dict()`` is ``values``, as on a line of a shapes file; fields with defaults may be
    missing. InputError: ``values`` do not describe a problem."""
    operation = word("operation", values.get("operation", DEFAULT), operation_names())
    problem_type = operation_named(operation).problem
    known = {f.name for f in fields(problem_type)} | {"operation"}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InputError(f"problem has {', '.join(unknown)}; known names: {', '.join(sorted(known))}")
    required = [f.name for f in fields(problem_type) if f.default is MISSING]
    for name in required:
        if name not in values:
            raise InputError(f"problem lacks {name}; it must have {', '.join(required[:-1])} and {required[-1]}")
    return problem_type(**problem_type.checked_fields({k: v for k, v in values.items() if k != "operation"}))
