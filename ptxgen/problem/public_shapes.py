"""Shapes that people reported as slow on NVIDIA GPUs, with the sources of the reports, read from
``public_shapes.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class PublicShape(NamedTuple):
    """A reported shape. ``source``: repository and thread number, or address of a page; ``fields``: fields of the
    problem."""

    operation: str
    name: str
    source: str
    fields: dict[str, Any]


@cache
def _shapes() -> tuple[PublicShape, ...]:
    lines = files("ptxgen.problem").joinpath("public_shapes.jsonl").read_text().splitlines()
    return tuple(PublicShape(**json.loads(line)) for line in lines)


def public_shapes(operation: str) -> Iterator[PublicShape]:
    """The reported shapes of an operation."""
    return (x for x in _shapes() if x.operation == operation)
