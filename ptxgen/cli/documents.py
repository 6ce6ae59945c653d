"""Reads the JSON documents of commands. Every part of a document that a reader uses is checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ptxgen.arguments import shown
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import InputError
from ptxgen.problem.registry import parse
from ptxgen.runtime.profiler import METRICS
from ptxgen.tuning.store.splitting import SPLITS

Document = dict[str, Any]
#: a function that returns a value in the form that readers use; InputError, ValueError, TypeError: the value breaks a
#: rule
Check = Callable[[Any], Any]

LARGEST = 1e15  #: the largest number that documents may have


def load(path: Path) -> Document:
    """The document in a file, not yet checked. InputError: the file has no JSON object with the name of a command."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a JSON document: {error}") from error
    if not isinstance(document, dict) or "command" not in document:
        raise InputError(f"{path} is not the document of a command: it has no command")
    return document


def read(path: Path, *commands: str, device: str | None = None) -> Document:
    """The document that one of ``commands`` printed to a file with ``--json``, or saved. ``device``: the device that
    the document must be of; None: any. InputError: the file has no such document, or the document is damaged."""
    document = load(path)
    if document["command"] not in commands:
        raise InputError(f"{path} must be the output of {' or '.join(commands)} --json")
    try:
        document |= _checked(document, CHECKS[document["command"]])
    except (ValueError, TypeError) as error:  # InputError is a ValueError
        raise InputError(f"{path} is damaged: {error}") from error
    if device is not None and document["device"] != device:
        raise InputError(f"{path} is of device {document['device']}; it must be of {device}")
    return document


def _checked(values: Any, checks: Mapping[str, Check], prefix: str = "") -> Document:
    """The checked fields of an object, those in ``checks``. A missing field is None. ``prefix``: text before the name
    of a field in errors."""
    if not isinstance(values, dict):
        raise InputError(f"is {shown(values)}; it must be an object")
    return {name: _named(prefix + name, check, values.get(name)) for name, check in checks.items()}


def _named(name: str, check: Check, value: Any) -> Any:
    """The result of ``check(value)``. Errors begin with ``name``, as ``rows[2].ratio``."""
    try:
        return check(value)
    except (ValueError, TypeError) as error:
        text = str(error)
        raise InputError(f"{name}{'' if text.startswith(('.', '[')) else ' '}{text}") from error


def _list_of(check: Check) -> Check:
    """The check of a list whose elements have ``check``; a missing list is empty."""

    def checked(value: Any) -> list[Any]:
        if not isinstance(value, list | None):
            raise InputError(f"is {shown(value)}; it must be a list")
        return [_named(f"[{i}]", check, item) for i, item in enumerate(value or ())]

    return checked


def _row(**checks: Check) -> Check:
    """The check of an object whose fields have ``checks``; other fields are kept unchecked."""
    return lambda value: {**(value if isinstance(value, dict) else {}), **_checked(value, checks, ".")}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"is {shown(value)}; it must be text")
    return value


def _optional(check: Check, missing: Any = None) -> Check:
    return lambda value: missing if value is None else check(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        raise InputError(f"is {shown(value)}; it must be a number from 0 to {LARGEST:g}")
    return value


def _positive(value: Any) -> float:
    if _number(value) == 0:
        raise InputError("is 0; it must be positive")
    return float(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise InputError(f"is {shown(value)}; it must be a whole number from 0 to {LARGEST:g}")
    return value


def _problem(value: Any) -> Document:
    """The check of a problem: an object with the key of the problem. The result has the problem's fields."""
    if not isinstance(value, dict):
        raise InputError(f"is {shown(value)}; it must be an object with the key of a problem")
    problem = parse(_text(value.get("key")))
    return {"key": problem.key(), **problem.as_dict()}


def _config(value: Any) -> Document:
    """The check of a configuration: an object of axes. The result has every axis."""
    if not isinstance(value, dict):
        raise InputError(f"is {shown(value)}; it must be an object of axes")
    return parse_config(" ".join(f"{name}={axis}" for name, axis in value.items())).values()


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"is {shown(value)}; it must be true or false")
    return value


def _column_major(value: Any) -> Document:
    return _checked(value, {"m": _count, "n": _count, "k": _count, "a_t": _flag, "b_t": _flag}, ".")


def _samplers(value: Any) -> list[Document]:
    samplers: list[Document] = _list_of(_row(sampler=_text, acceptance=_number))(value)
    for name in ("categorical", "uniform"):
        if all(s["sampler"] != name for s in samplers):
            raise InputError(f"lacks the sampler {name}")
    return samplers


def _splits(value: Any) -> Document:
    splits = _checked(value, {"splits": _text, "us": _positive, "measured": _count, "config": _config}, ".")
    if splits["splits"] not in SPLITS:
        raise InputError(f".splits is {shown(splits['splits'])}; it must be one of {', '.join(SPLITS)}")
    return {**value, **splits}


_NAMES: dict[str, Check] = {
    "name": _optional(_text, ""),
    "problem": _problem,
    "column_major": _optional(_column_major),
    "note": _optional(_text, ""),
}
_CHOICE: dict[str, Check] = {
    **_NAMES,
    "config": _optional(_config),
    "origin": _optional(_text, ""),
    "scaled_from": _optional(_text, ""),
}
_TIMES = ("us", "vendor_us", "vendor_first_us", "vendor_same_layout_us", "ratio", "tflops")
_REGRESSOR = _row(
    hidden=_list_of(_count),
    weights=_count,
    samples=_count,
    mse=_number,
    first=_number,
    plain_mse=_optional(_number),
    seeds=_optional(_count, 1),
    mse_deviation=_optional(_number),
)


def _extents(value: Any) -> list[int]:
    extents: list[int] = _list_of(_count)(value)
    if len(extents) != 3:
        raise InputError(f"has {len(extents)} elements; it must have x, y and z")
    return extents


def _tile(value: Any) -> list[int]:
    tile: list[int] = _list_of(_count)(value)
    if len(tile) != 2:
        raise InputError(f"has {len(tile)} elements; it must have rows and columns")
    return tile


def _captured(value: Any) -> Document:
    checks = {"name": _text, "grid": _extents, "block": _extents, **dict.fromkeys(_RESOURCES, _count)}
    return _checked(value, checks, ".")


def _libraries(value: Any) -> list[Document]:
    libraries: list[Document] = _list_of(_row(**_LIBRARY))(value)
    if not libraries:
        raise InputError("is empty; it must have a library")
    return libraries


_RESOURCES = ("registers", "shared", "blocks_sm")
_LIBRARY: dict[str, Check] = {
    "name": _text,
    "us": _positive,
    "tflops": _positive,
    "tile": _optional(_tile),
    "kernels": _list_of(_captured),
    "main": _captured,
    "occupancy": _number,
    "profile": lambda value: _checked(value or {}, {name: _optional(_number) for name in METRICS}, "."),
    "note": _optional(_text, ""),
    "splits": _count,
    "config": _optional(_config),
}


def _dict_of(check: Check) -> Check:
    """The check of an object with any names, whose values have ``check``; a missing object is empty."""

    def checked(value: Any) -> Document:
        if not isinstance(value, dict | None):
            raise InputError(f"is {shown(value)}; it must be an object")
        return {_text(name): _named(f".{name}", check, item) for name, item in (value or {}).items()}

    return checked


_SWEPT = {
    **dict.fromkeys(("m", "n", "threads"), _count),
    **dict.fromkeys(("us", "gflops"), _optional(_positive)),
    "note": _optional(_text, ""),
}
_LIST_TIMES: dict[str, Check] = {
    "name": _text,
    **dict.fromkeys(("max_mn", "max_k", "items"), _count),
    "named": _flag,
    "flops": _positive,
    **dict.fromkeys(("us", "host_us"), _dict_of(_positive)),
    "occupancy": _dict_of(_number),
    "notes": _dict_of(_text),
}

#: command -> the checks of the fields of its document that readers use
CHECKS: dict[str, dict[str, Check]] = {
    "bench": {
        "device": _text,
        "baseline": _optional(_text),
        "rows": _list_of(_row(**_CHOICE, **dict.fromkeys(_TIMES, _optional(_positive)))),
    },
    "select": {"device": _text, "rows": _list_of(_row(**_CHOICE))},
    "paper batchgemm": {"device": _text, "sweep": _list_of(_row(**_SWEPT)), "lists": _list_of(_row(**_LIST_TIMES))},
    "paper anatomy": {"device": _text, "column_major": _column_major, "libraries": _libraries},
    "paper splitting": {"device": _text, "rows": _list_of(_row(**_NAMES, splits=_list_of(_splits)))},
    "sampler": {"device": _text, "rows": _list_of(_row(**_NAMES, samplers=_samplers))},
    "model evaluate": {
        "device": _text,
        "curve": _list_of(_row(problems=_count, error=_number)),
        "samples": _list_of(_REGRESSOR),
        "architectures": _list_of(_REGRESSOR),
    },
}
