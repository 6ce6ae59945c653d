"""The hash by which commands and exported libraries name a task."""

from __future__ import annotations

from ptxgen.operations.task.language.canonical import digest
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.symmetry import computes_half, one_array

SHOWN = 12  #: the digits of a hash in tables and names


def task_hash(program: Program) -> str:
    """The digest of the program that kernels compute: 24 hexadecimal digits, the same for programs that differ only in
    names."""
    roles = roles_of(program)
    return digest(one_array(roles) if computes_half(roles) else roles.program)
