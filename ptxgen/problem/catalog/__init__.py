"""The operations that commands, suites and tables know: a further one is a further row."""

from __future__ import annotations

from ptxgen.errors import InputError
from ptxgen.problem.catalog.base import Case, ColumnMajor, Entry, Suite
from ptxgen.problem.catalog.conv import CONV
from ptxgen.problem.catalog.gemm import GEMM

CATALOG = {o.name: o for o in (GEMM, CONV)}


def entry(name: str) -> Entry:
    """What is known of the operation called ``name``. InputError: there is none."""
    if name not in CATALOG:
        raise InputError(f"operation is {name!r}; it must be one of {', '.join(CATALOG)}")
    return CATALOG[name]


__all__ = ["CATALOG", "Case", "ColumnMajor", "Entry", "Suite", "entry"]
