"""The problem type of tasks: a program on matrices of given extents and strides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

from ptxgen.arguments import word
from ptxgen.errors import DtypeError
from ptxgen.expr.node import node, variable
from ptxgen.expr.value_types import PRED
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.task.language.canonical import canonical as canonical_text
from ptxgen.operations.task.program import ACCUMULATOR, Input, Program, Store
from ptxgen.operations.task.roles import Roles, roles_of
from ptxgen.problem.base import COMPUTE_MODES, SUMS, described
from ptxgen.problem.dtypes import Dtype, canonical, dtype


@lru_cache(maxsize=256)
def _read(text: str) -> Roles:
    from ptxgen.operations.task.language.parser import parse  # it imports a parser generator

    return roles_of(parse(text))


def sum_of_products(kind: str) -> Program:
    """C[i,j] = Σ A[i,k]·B[k,j] of elements of type ``kind``. DtypeError: GEMMs do not have it."""
    word("dtype", kind, COMPUTE_MODES, DtypeError)
    sums = SUMS.get(compute := COMPUTE_MODES[kind][0], compute)
    a, b = Input("A", kind, (("i", "k"),)), Input("B", kind, (("k", "j"),))
    elements = [a.variable(("i", "k")), b.variable(("k", "j"))]
    if kind != sums:
        elements = [node("cast", sums, x) for x in elements]
    result = variable(ACCUMULATOR, sums)
    return Program((a, b), node("*", sums, *elements), "+", sums, (Store("C", result),))


@dataclass(frozen=True)
class Task(Gemm):
    """C[i,j] = the value of a program for each pair (i, j), of M rows and N columns, reduced over K.

    ``text``: the canonical text of the program, with the names of roles: A is the array at [i,k], B at [k,j],
    ``input0``, ``input1``, … the others, ``scalar0``, … the scalars, C the output; empty: the sum of products.
    ``layout``: N: A is stored M×K, B is stored K×N; T: K×M, N×K. ``dtype``, ``compute``, ``out``: the types of A, of
    the reduction and of C, which the text states. The other fields are those of ``Gemm``.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """

    text: str = field(default="", metadata=described("Program of the task, as text without spaces."))

    operation = "task"
    CODE_OPTIONS: ClassVar[tuple[str, ...]] = ("text", "batch")
    ALLOWED_EPILOGUE_OPS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def __post_init__(self) -> None:
        found = _read(self.text) if self.text else roles_of(sum_of_products(canonical(self.dtype)))
        object.__setattr__(self, "text", canonical_text(found.program))
        super().__post_init__()

    @staticmethod
    def text_of(roles: Roles) -> str:
        """The field ``text`` of a program with these roles."""
        return canonical_text(roles.program)

    @staticmethod
    def result_type(program: Program) -> str:
        """The type of C."""
        kind = program.outputs[0].value.type
        return "u8" if kind == PRED else kind

    @property
    def roles(self) -> Roles:
        return _read(self.text)

    @property
    def program(self) -> Program:
        """The program, with the names of roles."""
        return self.roles.program

    def _normalize_dtypes(self) -> None:
        program = self.program
        stated = {
            "dtype": self.roles.use("A").dtype,
            "compute": program.accumulator,
            "out": self.result_type(program),
        }
        for name, known in stated.items():
            given = getattr(self, name)
            if given not in ("", known) and not (name == "dtype" and given == "f32"):
                raise DtypeError(f"{name} is {given}; the program has {known}")
            object.__setattr__(self, name, known)

    def with_rows(self, m: int) -> Task:
        """The task with another M, and contiguous operands."""
        return replace(self, m=m, lda=0, ldb=0, ldc=0)

    @property
    def problem_kind(self) -> str:
        return "task"

    @property
    def description(self) -> list[str]:
        return [f"task: {self.text}", f"layout {self.layout} (row-major), {self.dtype}, reduced in {self.compute}"]

    @property
    def arrays(self) -> tuple[str, ...]:
        return ("A", "B", "C", *(u.role for u in self.roles.others))

    @property
    def epilogue_dtype(self) -> Dtype:
        return dtype(self.compute)

    @property
    def typical_scalars(self) -> dict[str, float]:
        return {role: 1 for role, _, _ in self.roles.scalars}
