"""The hash by which commands and exported libraries name a task."""

from __future__ import annotations

from ptxgen.operations.task.language.canonical import digest
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.symmetry import computes_half, one_array

SHOWN = 12  #: digits that tables and names have


def task_hash(program: Program) -> str:
    """The digest of what kernels compute for a program: 24 hexadecimal digits, the same for programs that differ in
    names alone."""
    roles = roles_of(program)
    return digest(one_array(roles) if computes_half(roles) else roles.program)
