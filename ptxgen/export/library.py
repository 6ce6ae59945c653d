"""The contents of an exported library: kernel modules, and the launches that compute each problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config import Config
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Launch, Source
from ptxgen.errors import InputError
from ptxgen.export.operations import OPERATIONS, CField
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.lowering.table import Table
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.tuning.selection import Selection

#: chooses the configuration of a problem
Choose = Callable[[Problem], Selection]


@dataclass(frozen=True)
class Function:
    """A kernel of a module. ``number``: its index in the library; ``dependent``: whether it may start before the
    preceding kernel of the stream has ended."""

    number: int
    module: int
    entry: str
    dependent: bool


@dataclass(frozen=True)
class Module:
    """The kernels of one PTX text."""

    number: int
    source: Source

    @property
    def name(self) -> str:
        """The name of its files, without suffix."""
        return f"{self.source.entries[0]}_{self.source.digest}"


@dataclass(frozen=True)
class ExportedProblem:
    """A problem, its configuration and the launches of its module that compute it. ``swapped``: A of the kernels is the
    caller's second operand."""

    number: int
    selection: Selection
    module: Module
    launch: Launch
    swapped: bool

    @property
    def problem(self) -> Problem:
        return self.selection.problem

    @property
    def config(self) -> Config:
        return self.selection.config


@dataclass
class TableData:
    """The offset tables of all launches in one array of words, each once."""

    words: list[NDArray[np.uint32]] = field(default_factory=list)
    offsets: dict[Table, int] = field(default_factory=dict)
    size: int = 0

    ALIGNMENT = 256  #: bytes that each table starts at a multiple of

    def add(self, table: Table) -> int:
        """The offset of ``table`` in bytes."""
        if table not in self.offsets:
            words = np.ascontiguousarray(table.words()).reshape(-1)
            padded = -(-words.nbytes // self.ALIGNMENT) * self.ALIGNMENT
            self.offsets[table] = self.size
            self.words.append(np.concatenate([words, np.zeros((padded - words.nbytes) // 4, np.uint32)]))
            self.size += padded
        return self.offsets[table]

    def bytes(self) -> bytes:
        """The tables in little-endian words, in the order of their offsets."""
        return b"".join(words.astype("<u4").tobytes() for words in self.words)


@dataclass
class Library:
    """What is exported for one device."""

    device: Device
    modules: list[Module] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    problems: list[ExportedProblem] = field(default_factory=list)
    tables: TableData = field(default_factory=TableData)

    @classmethod
    def of(cls, problems: Sequence[Problem], device: Device, choose: Choose) -> Library:
        """The library that computes ``problems``. InputError: an operation or a property of one has no C function."""
        library = cls(device)
        for problem in dict.fromkeys(problems):
            require_exportable(problem)
            library._add(choose(problem))
        return library

    def function(self, module: Module, entry: str) -> Function:
        """The kernel ``entry`` of a module."""
        return next(f for f in self.functions if f.module == module.number and f.entry == entry)

    def _add(self, selection: Selection) -> None:
        plan = plan_for(selection.problem, selection.config, self.device)
        lowered = lower(selection.problem)
        launch = plan.launch(lowered)
        for step in launch.steps:
            for table in step.tables:
                self.tables.add(table)
        module = self._module(render(plan))
        self.problems.append(ExportedProblem(len(self.problems), selection, module, launch, lowered.swapped))

    def _module(self, source: Source) -> Module:
        for module in self.modules:
            if module.source.digest == source.digest and module.source.pdl_entries == source.pdl_entries:
                return module
        module = Module(len(self.modules), source)
        self.modules.append(module)
        for entry in source.entries:
            dependent = entry in source.pdl_entries
            self.functions.append(Function(len(self.functions), module.number, entry, dependent))
        return module


def require_exportable(problem: Problem) -> None:
    """InputError: no C function computes ``problem``."""
    operation = OPERATIONS.get(problem.operation)
    if operation is None:
        raise InputError(f"operation is {problem.operation!r}; export takes {' and '.join(OPERATIONS)}")
    operation.require(problem)


def key_of(problem: Problem) -> tuple[int, ...]:
    """The numbers by which the C library recognises ``problem``."""
    return tuple(f.number(problem) for f in OPERATIONS[problem.operation].fields)


__all__ = ["CField", "ExportedProblem", "Function", "Library", "Module", "TableData", "key_of", "require_exportable"]
