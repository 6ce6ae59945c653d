"""The contents of an exported library: kernel modules, and the launches that compute each problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Launch, Source
from ptxgen.errors import InputError
from ptxgen.export.general import General, empty_sums, general, serves_other_shapes, variables
from ptxgen.export.operations import COperation, exported, in_c
from ptxgen.export.symbol import Branch, Leaf, TooManyPathsError
from ptxgen.export.task_in_c import TaskInC
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.lowering.table import Table
from ptxgen.operations.gemm.problem import CONTIGUOUS, Gemm
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.selection import Selection

EMPTY_SIDE = 512  #: rows and columns of C in the problem for which the configuration for alpha = 0 is chosen
#: chooses the configuration of a problem
Choose = Callable[[Problem], Selection]
#: makes the C statements of the launches of modules, whose numbers may be symbols
Form = Callable[["Library", Sequence["Module"], Launch], Leaf]


@dataclass(frozen=True)
class Function:
    """A kernel of a module. ``number``: its index in the library; ``module``: the number of the module; ``dependent``:
    True if the kernel may start before the preceding kernel of the stream has ended."""

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
        """The name of the module's files, without suffix."""
        return f"{self.source.entries[0]}_{self.source.digest}"


@dataclass(frozen=True)
class ExportedKernel:
    """A kernel that computes all shapes of the class of ``problem``. ``modules``: that of the kernel, then those of the
    kernels that follow it; ``general``: its configuration; ``empty``: the tree of launches for calls with alpha = 0;
    None: the operation has no alpha."""

    number: int
    operation: COperation
    problem: Problem
    modules: tuple[Module, ...]
    general: General
    empty: Leaf | Branch | None

    @property
    def module(self) -> Module:
        return self.modules[0]


@dataclass(frozen=True)
class EmptySum:
    """A configuration and its launch for calls with alpha = 0. ``problem``: a GEMM with K = 0, which does not read A
    and B."""

    problem: Gemm
    config: Config
    module: Module
    launch: Launch


@dataclass(frozen=True)
class ExportedProblem:
    """An exported problem with its selected configuration and its launch.

    ``modules``: that of the problem's kernels, then those of the kernels that follow them; ``bindings``: operand of the
    kernels -> array of the problem, where the names differ; ``empty``: the launch for calls with alpha = 0; None: the
    operation has no alpha; ``kernel``: the kernel that computes this and other shapes, if there is one."""

    number: int
    operation: COperation
    selection: Selection
    modules: tuple[Module, ...]
    launch: Launch
    bindings: Mapping[str, str]
    empty: EmptySum | None
    kernel: ExportedKernel | None = None

    @property
    def module(self) -> Module:
        return self.modules[0]

    @property
    def swapped(self) -> bool:
        """True if the kernels read the caller's second operand as A."""
        return bool(self.bindings)

    @property
    def problem(self) -> Problem:
        return self.selection.problem

    @property
    def config(self) -> Config:
        return self.selection.config


@dataclass
class TableData:
    """The offset tables of all launches, concatenated. Equal tables are stored once."""

    words: list[NDArray[np.uint32]] = field(default_factory=list)
    offsets: dict[Table, int] = field(default_factory=dict)
    size: int = 0

    ALIGNMENT = 256  #: alignment of each table in bytes

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
    """The exported problems and kernels for one device. ``model``: the trees that predict times of other shapes;
    ``chooses``: False if the library computes only the exported problems; ``tasks``: its tasks as C functions."""

    device: Device
    model: Model
    chooses: bool = True
    tasks: list[COperation] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    problems: list[ExportedProblem] = field(default_factory=list)
    kernels: list[ExportedKernel] = field(default_factory=list)
    tables: TableData = field(default_factory=TableData)
    _empty_configs: dict[Gemm, Config] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        problems: Sequence[Problem],
        device: Device,
        choose: Choose,
        model: Model,
        form: Form,
        tasks: Mapping[TaskInC, Sequence[Task]] | None = None,
        chooses: bool = True,
    ) -> Library:
        """The library that computes ``problems``.

        ``choose``: selects the configuration of a problem; ``model``: its trees choose kernels for other shapes if it
        was trained on measurements of ``device``, else the performance model chooses; ``form``: makes the C text of
        launches (``c_source.form``); ``tasks``: each task with its problems; ``chooses``: False: the library computes
        no other shapes. InputError: an operation or a property of a problem has no C function, or two tasks have one
        name."""
        trained = model.of_trees() if model.measured_on == device.name else Model.analytic(device)
        library = cls(device, trained, chooses)
        for problem in dict.fromkeys(problems):
            require_exportable(problem)
            library._add(in_c(problem.operation), choose(problem), choose, form)
        for task, shapes in (tasks or {}).items():
            operation = task.in_c
            if any(known.form.name == operation.form.name for known in library.tasks):
                raise InputError(f"name is {task.name}; it must not be that of another task")
            library.tasks.append(operation)
            for p in dict.fromkeys(shapes):
                library._add(operation, task.selected(p, choose), choose, form)
        return library

    @property
    def operations(self) -> tuple[COperation, ...]:
        """All operations and tasks with a C function."""
        return (*map(in_c, exported()), *self.tasks)

    def scored(self) -> list[General]:
        """The configurations of ``kernels``. A kernel that is the only one of its class has a constant score."""
        classes = Counter((k.operation.form.name, k.operation.class_key(k.problem)) for k in self.kernels)
        return [
            k.general
            if classes[k.operation.form.name, k.operation.class_key(k.problem)] > 1
            else k.general.without_score()
            for k in self.kernels
        ]

    def function(self, modules: Sequence[Module], entry: str) -> Function:
        """The kernel ``entry`` of one of these modules."""
        numbers = [module.number for module in modules]
        return next(f for f in self.functions if f.module in numbers and f.entry == entry)

    def _add(self, operation: COperation, selection: Selection, choose: Choose, form: Form) -> None:
        problem = selection.problem
        plan, lowered = plan_for(problem, selection.config, self.device), lower(problem)
        launch, completion = plan.launch(lowered), operation.form.completion(problem, self.device)
        if completion is not None:
            launch = completion.completed(lowered, launch)
        for step in launch.steps:
            for table in step.tables:
                self.tables.add(table)
        general = self.chooses and serves_other_shapes(operation, problem)
        kernel = self._kernel(operation, selection, choose, form) if general else None
        modules = self._modules(render(plan), completion) if kernel is None else kernel.modules
        number, empty = len(self.problems), self._empty_sum(operation, problem, choose)
        self.problems.append(
            ExportedProblem(number, operation, selection, modules, launch, lowered.bindings, empty, kernel)
        )

    def _empty_sum(self, operation: COperation, problem: Problem, choose: Choose) -> EmptySum | None:
        if operation.form.without_sum is None:
            return None
        empty = operation.form.without_sum(problem)
        config = self._empty_config(empty, choose)
        plan = plan_for(empty, config, self.device)
        return EmptySum(empty, config, self._module(render(plan)), plan.launch(lower(empty)))

    def _empty_config(self, empty: Gemm, choose: Choose) -> Config:
        """The configuration for calls with alpha = 0 of all problems of a class. It stores single elements of C."""
        size, columns = empty.output.bytes, EMPTY_SIDE + 1
        batch = min(empty.batch, 2)
        typical = replace(
            empty, m=EMPTY_SIDE, n=EMPTY_SIDE, ldb=0, ldc=columns, aligned_c=size, batch=batch, stride_c=CONTIGUOUS
        )
        if typical not in self._empty_configs:
            self._empty_configs[typical] = choose(typical).config
        config = self._empty_configs[typical]
        legal = first_violation(lower(empty), config, self.device) is None
        return config if legal else choose(empty).config

    def _kernel(self, operation: COperation, selection: Selection, choose: Choose, form: Form) -> ExportedKernel | None:
        """The kernel that computes the selected problem and other shapes; None: its launches have no expressions."""
        problem = selection.problem
        for kernel in self.kernels:
            same = kernel.operation is operation and operation.class_key(kernel.problem) == operation.class_key(problem)
            if (
                same
                and kernel.general.config == selection.config
                and kernel.general.serves(variables(operation.form, problem))
            ):
                return kernel

        completion = operation.form.completion(problem, self.device)

        def leaf(source: Source, launch: Launch) -> Leaf:
            return form(self, self._modules(source, completion), launch)

        def empty_leaf(source: Source, launch: Launch) -> Leaf:
            return form(self, self._modules(source), launch)

        empties, model = None, self.model if operation.learnt else Model.analytic(self.device)
        try:
            made = general(operation.form, problem, selection.config, self.device, leaf, model)
            if not made.serves(variables(operation.form, problem)):
                return None
            if operation.form.without_sum is not None:
                empty = operation.form.without_sum(problem)
                _, empties = empty_sums(empty, self._empty_config(empty, choose), self.device, empty_leaf)
        except TooManyPathsError:
            return None
        modules = self._modules(made.source, completion)
        self.kernels.append(ExportedKernel(len(self.kernels), operation, problem, modules, made, empties))
        return self.kernels[-1]

    def _modules(self, source: Source, completion: Any = None) -> tuple[Module, ...]:
        """The module of ``source``, and those of the kernels that follow, as ``CForm.completion``."""
        return tuple(map(self._module, (source, *(() if completion is None else completion.sources))))

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
    """Requires a problem that a C function can compute. InputError: none can."""
    if problem.operation not in exported():
        raise InputError(
            f"operation is {problem.operation!r}; export takes {' and '.join(exported())}, task export takes tasks"
        )
    in_c(problem.operation).form.require(problem)


def key_of(problem: Problem) -> tuple[int, ...]:
    """The numbers by which the C library recognises ``problem``."""
    return in_c(problem.operation).key(problem)
