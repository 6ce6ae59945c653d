"""The operations that commands, suites and tables know: a further one is a further row."""

from __future__ import annotations

from ptxgen.errors import InputError
from ptxgen.operations.base import Case, ColumnMajor, Operation, Suite
from ptxgen.operations.gemm import GEMM

OPERATIONS = {o.name: o for o in (GEMM,)}


def operation(name: str) -> Operation:
    """The operation called ``name``. InputError: there is none."""
    if name not in OPERATIONS:
        raise InputError(f"operation is {name!r}; it must be one of {', '.join(OPERATIONS)}")
    return OPERATIONS[name]


__all__ = ["OPERATIONS", "Case", "ColumnMajor", "Operation", "Suite", "operation"]
