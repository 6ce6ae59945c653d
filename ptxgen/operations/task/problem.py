"""The problem type of tasks: a program on matrices of given extents and strides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ptxgen.arguments import integer, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.expr.node import node, variable
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.aggregate import REJECTED, depends_on_order
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import SelectValues, list_names
from ptxgen.lowering.states import StateReduction
from ptxgen.operations.gemm.problem import CONTIGUOUS, LAYOUTS, Gemm
from ptxgen.operations.task.joined_keys import joined_keys
from ptxgen.operations.task.language.canonical import canonical as canonical_text
from ptxgen.operations.task.language.texts import input_ranks, parse
from ptxgen.operations.task.program import (
    ACCUMULATOR,
    Aggregate,
    Input,
    Program,
    RowReduce,
    Scatter,
    Select,
    Store,
    Top,
)
from ptxgen.operations.task.roles import Roles, roles_of
from ptxgen.operations.task.symmetry import computes_half, one_array
from ptxgen.operations.task.top_lists import keeps_best
from ptxgen.problem.base import COMPUTE_MODES, EXTENT_LIMIT, SUMS, described
from ptxgen.problem.dtypes import DTYPES, Dtype, canonical, dtype

CAPACITY_LIMIT = 1 << 40
#: the type of counts, which expressions do not have
COUNTER = Dtype("s64", 64, np.dtype(np.int64), roundoff=0.0, dlpack=0)


class ResultArray(NamedTuple):
    """An array that a call writes."""

    shape: tuple[int, ...]
    dtype: Dtype


@lru_cache(maxsize=256)
def _read(text: str, dtype: str) -> Roles:
    """The roles of the arrays of the program with this text. ``dtype``: the type of inputs whose type the text does not
    declare."""
    return roles_of(parse(text, dict.fromkeys(input_ranks(text), dtype)))


def read_again(program: Program) -> Program:
    """The program that parsing the text of ``program`` gives: its inputs are in the order of first use."""
    return parse(canonical_text(program))


def sum_of_products(element_type: str) -> Program:
    """The program C[i,j] = Σ A[i,k]·B[k,j] of elements of type ``element_type``, summed in the type that GEMMs sum in,
    and integers in 32 bits. Raises DtypeError if there is no such type."""
    if element_type in COMPUTE_MODES:
        sums = SUMS.get(compute := COMPUTE_MODES[element_type][0], compute)
    else:
        sums = f"{word('dtype', element_type, DTYPES, DtypeError)[0]}32"
    a, b = Input("A", element_type, (("i", "k"),)), Input("B", element_type, (("k", "j"),))
    elements = [a.variable(("i", "k")), b.variable(("k", "j"))]
    if element_type != sums:
        elements = [node("cast", sums, x) for x in elements]
    result = variable(ACCUMULATOR, sums)
    return Program((a, b), node("*", sums, *elements), "+", sums, (Store("C", result),))


@dataclass(frozen=True)
class Task(Gemm):
    """C[i,j] = the value of a program for each pair (i, j), of M rows and N columns, reduced over K.

    ``text``: the canonical text of the program, with the names of roles: A is the array at [i,k], B at [k,j],
    ``input0``, ``input1``, … the others, ``scalar0``, … the scalars, C the output; empty: the sum of products. A is
    also the array of the other side if kernels compute the pairs with i ≤ j alone (``mirrored``).
    ``layout``: N: A is stored M×K, B is stored K×N; T: K×M, N×K; empty: as the program indexes them. ``dtype``,
    ``compute``, ``out``: the types of A, of the reduction and of C, which the text states; sums of products of f32 may
    have ``compute`` tf32. ``capacity``: the number of elements of each list of selected results (C is the first list),
    unless a call passes another number; ``groups``: the rows and columns of C if keys select its elements; ``algebra``:
    True if kernels may compute the program rewritten by laws that hold for finite numbers; ``sorted_keys``: True if the
    arrays of the first condition x[i] == y[j] are sorted in ascending order. The other fields are those of ``Gemm``.
    Raises ShapeError, DtypeError or InputError if an argument breaks a rule.
    """

    layout: str = field(
        default="", metadata=described("NN, NT, TN or TT (T: stored transposed) [default: as indexed]", words=LAYOUTS)
    )
    text: str = field(
        default="",
        metadata=described(
            "The task: its text, or a file with it. Inputs without a type have that of --dtype. [default: a sum of"
            " products]",
            "FILE",
            flag="--task",
        ),
    )
    capacity: int = field(default=0, metadata=described("Elements of the lists of selected results. [default: 0]"))
    groups: str = field(
        default="", metadata=described("Rows and columns of C where keys select its elements, as 4,7.", "G,H")
    )
    algebra: bool = field(
        default=True,
        metadata=described("Rewrite tasks by laws that hold for finite numbers. [default: they are rewritten]"),
    )
    sorted_keys: bool = field(
        default=False,
        metadata=described(
            "The elements of the arrays x and y of the first condition x[i] == y[j] of `when` ascend: tiles without"
            " equal keys take no time. [default: they have any order]"
        ),
    )

    operation = "task"
    CODE_OPTIONS: ClassVar[tuple[str, ...]] = (
        "text",
        "compute",
        "batch",
        "groups",
        "deterministic",
        "algebra",
        "sorted_keys",
    )

    @classmethod
    def epilogue_rows(cls) -> tuple[tuple[str, ...], ...]:
        return ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "capacity", integer("capacity", self.capacity, 0, CAPACITY_LIMIT))
        roles = (
            _read(self.text, canonical(self.dtype)) if self.text else roles_of(sum_of_products(canonical(self.dtype)))
        )
        object.__setattr__(self, "text", self.text_of(roles))
        outputs = roles.program.outputs
        if not any(isinstance(x, Select) for x in outputs):
            object.__setattr__(self, "capacity", 0)
        elif self.batch != 1 and len(outputs) == 1:
            raise InputError(f"batch is {self.batch}; a task with lists of selected results takes batch 1")
        if not self.layout:
            object.__setattr__(self, "layout", roles.layout)
        super().__post_init__()
        self._normalize_groups()
        if self.sorted_keys and joined_keys(roles.program.when) is None:
            raise InputError(
                "sorted_keys is True; it must be False where `when` has no condition x[i] == y[j] of integers"
            )
        if self.mirrored and not self._may_mirror():
            object.__setattr__(self, "text", canonical_text(roles.program))

    def _normalize_groups(self) -> None:
        """Checks ``groups`` and writes it in its normal form. Raises ShapeError if the extents are missing, or no keys
        need them."""
        if not any(isinstance(x, Aggregate | Scatter) for x in self.program.outputs):
            if self.groups:
                raise ShapeError(f"groups is {shown(self.groups)}; it must be empty where no keys select elements of C")
            return
        words = self.groups.replace(" ", "").split(",") if self.groups else []
        if len(words) != 2 or not all(x.isdecimal() and len(x) <= 10 for x in words):
            raise ShapeError(f"groups is {shown(self.groups)}; it must be G,H, the rows and columns of C, as 4,7")
        extents = [integer("groups", int(x), 0, EXTENT_LIMIT - 1) for x in words]
        object.__setattr__(self, "groups", ",".join(map(str, extents)))

    def _may_mirror(self) -> bool:
        """True if A and B, as the fields describe them, can be one array, and the results need not be reduced in the
        order of i and j."""
        output = self.program.outputs[0]
        if self.deterministic and isinstance(output, Aggregate) and depends_on_order(output.op, output.value.type):
            return False
        one = self.layout in ("NT", "TN") and self.lda == self.ldb and self.stride_a == self.stride_b
        return self.algebra and one and self.aligned_a == self.aligned_b and self.m == self.n

    @property
    def mirrored(self) -> bool:
        """True if A and B are one array, and (i, j) and (j, i) have the same reduction, which is computed only for i ≤
        j."""
        return self.roles.one_array

    @property
    def skipped(self) -> str:
        return "results" if self.sorted_keys else ""

    @property
    def flops(self) -> int:
        return self.batch * self.m * (self.m + 1) * self.k if self.mirrored else super().flops

    @property
    def shared_bytes(self) -> int:
        """The bytes of B that are also bytes of A, because both are one array; else 0."""
        items = self.batch if self.strides[1] else min(self.batch, 1)
        return items * self.types[1].bytes * self.n * self.k if self.mirrored else 0

    @property
    def bytes(self) -> int:
        return super().bytes - self.shared_bytes

    @property
    def group_extents(self) -> tuple[int, int]:
        """The rows and columns of C, whose elements keys select."""
        rows, columns = map(int, self.groups.split(","))
        return rows, columns

    @classmethod
    def checked_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The fields, with the text of the file in place of its name if ``text`` names a file. Raises InputError if the
        file cannot be read."""
        text = values.get("text", "")
        if not text or "{" in text:
            return values
        try:
            return {**values, "text": Path(text).read_text()}
        except OSError as error:
            raise InputError(f"task is {text}; it must be the text of a task, or a file with it: {error}") from None

    @staticmethod
    @lru_cache(maxsize=512)
    def text_of(roles: Roles) -> str:
        """The field ``text`` of a program with these roles."""
        return canonical_text(one_array(roles) if computes_half(roles) else roles.program)

    @staticmethod
    def result_type(program: Program) -> str:
        """The type of C."""
        output = program.outputs[0]
        if isinstance(output, RowReduce):
            return StateReduction(output.op, output.value.type).result
        value_type = output.value.type
        return "u8" if value_type == PRED else value_type

    @property
    def types(self) -> tuple[Dtype, Dtype, Dtype]:
        a, b = (dtype(self.roles.use(role).dtype) for role in "AB")
        return a, b, self.output

    @property
    def roles(self) -> Roles:
        return _read(self.text, self.dtype)

    @property
    def program(self) -> Program:
        """The program of the task, in which arrays have the names of their roles."""
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
            modes = [x for x in COMPUTE_MODES.get(self.dtype, ()) if SUMS.get(x) == known] if name == "compute" else []
            if given in modes:
                continue
            if given not in ("", known) and not (name == "dtype" and given == "f32"):
                rule = f"one of {', '.join(dict.fromkeys((known, *modes)))}" if modes else known
                raise DtypeError(f"{name} is {given}; it must be {rule}, because the program has {known}")
            object.__setattr__(self, name, known)

    def with_rows(self, m: int) -> Task:
        """The problem with M = ``m``, one item and contiguous operands."""
        packed = replace(self, stride_a=CONTIGUOUS, stride_b=CONTIGUOUS, stride_c=CONTIGUOUS, batch=1)
        return replace(packed, m=m, lda=0, ldb=0, ldc=0)

    problem_class = "task"

    @property
    def description(self) -> list[str]:
        return [f"task: {self.text}", f"layout {self.layout} (row-major), {self.dtype}, reduced in {self.compute}"]

    @property
    def arrays(self) -> tuple[str, ...]:
        return ("A", "B", *self.outputs, *(u.role for u in self.roles.others))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.result_arrays)

    @cached_property
    def result_arrays(self) -> dict[str, ResultArray]:
        """Name -> shape and type of each array that a call writes."""
        output = self.program.outputs[0]
        if isinstance(output, RowReduce):
            return {"C": ResultArray((self.m if output.axis == "i" else self.n,), self.output)}
        if isinstance(output, Aggregate):
            return {"C": ResultArray(self.group_extents, self.output), REJECTED: ResultArray((1,), COUNTER)}
        if isinstance(output, Scatter):
            return {"C": ResultArray(self.group_extents, self.output)}
        if self.keeps_best:
            assert isinstance(output, Top)
            shape = self.m, int(output.count.value)
            return {"C": ResultArray(shape, self.output), RowTop.COLUMNS: ResultArray(shape, dtype("s32"))}
        if self.selected is None:
            return {"C": ResultArray((self.batch, self.m, self.n)[self.batch == 1 :], self.output)}
        lists = zip(list_names(len(self.selected.values)), self.selected.values, strict=True)
        arrays = {name: ResultArray((self.capacity,), dtype(x.type)) for name, x in lists}
        return arrays | {SelectValues.COUNT: ResultArray((1,), COUNTER)}

    @property
    def stores_pairs(self) -> bool:
        """True if C has an element for each pair (i, j), at its row and column."""
        return isinstance(self.program.outputs[0], Store)

    @cached_property
    def keeps_best(self) -> bool:
        """True if the output is the best values of each row, and a kernel may keep them."""
        return self.batch == 1 and self.n > 0 and keeps_best(self.program, self.k)

    @property
    def selected(self) -> Select | None:
        """The output if it is a list of selected results, else None."""
        output = self.program.outputs[0]
        return output if isinstance(output, Select) else None

    @property
    def epilogue_dtype(self) -> Dtype:
        return dtype(self.program.accumulator)

    @property
    def typical_scalars(self) -> dict[str, float]:
        scalars: dict[str, float] = {role: 1 for role, _, _ in self.roles.scalars}
        return scalars if self.selected is None else scalars | {SelectValues.CAPACITY.name: self.capacity}
