"""A loaded kernel for one problem and configuration, ready to launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Source, Step
from ptxgen.errors import AssembleError, InputError, LaunchError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.lowering.sink import part_names
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import Array
from ptxgen.problem.registry import Problem
from ptxgen.runtime.device_tables import Allocation, DeviceTable
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.packed_step import PackedStep, pack
from ptxgen.runtime.prepared_operands import Prepared, PreparedOperands
from ptxgen.runtime.workspace import Workspace

MAX_PACKED = 8  #: packed launches that a runner keeps, by their numbers


def generate(problem: Problem, config: Config, driver: Driver) -> tuple[Plan, Source]:
    """The plan and the PTX source of ``config`` for the driver's device. ConfigError: ``config`` breaks a rule."""
    plan = plan_for(problem, config, driver.device)
    return plan, render(plan)


class Runner:
    """A loaded kernel with its launch for one problem.

    ``prepared``: the results of the plan's preparations, on which the launch depends; None: the preparations have not
    run, and ``bind`` runs them.
    """

    def __init__(
        self,
        driver: Driver,
        plan: Plan,
        kernel: Kernel,
        problem: Problem,
        workspace: Workspace | None = None,
        prepared: tuple[Prepared, ...] | None = None,
    ) -> None:
        self.driver, self.kernel, self.problem, self.prepared = driver, kernel, problem, prepared
        self.plan = plan.with_registers(kernel.registers)
        self.workspace = workspace or Workspace(driver)
        self.holds: Any = None  #: an object that lives as long as a launch, or a captured graph, refers to the runner
        self._lowered = lower(problem)
        self._packed: dict[tuple[tuple[str, ...], str], list[PackedStep]] = {}  # of ``prepare``, by its arguments
        if prepared is None and not self.plan.preparations:
            self.prepared = ()
        sizes = {name: n for each in prepared for name, n in each.sizes.items()} if prepared is not None else None
        launch = self.plan.launch(self._lowered, sizes)
        self.launch = replace(launch, steps=self._bound(launch.steps))

    def _bound(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """The steps with addresses of device tables, and with the problem's names of arrays in place of the
        kernels'."""
        at, names = self.workspace.tables.of, self._lowered.bindings
        return tuple(step.with_table_addresses(at).bound_to(names) for step in steps)

    @property
    def tables(self) -> tuple[DeviceTable, ...]:
        """The device tables that the launch reads. They are freed with the last object that can launch the kernels."""
        return tuple(v for step in self.launch.steps for _, v in step.arguments if isinstance(v, DeviceTable))

    @classmethod
    def of(
        cls,
        driver: Driver,
        problem: Problem,
        config: Config,
        workspace: Workspace | None = None,
        source: Source | None = None,
    ) -> Runner:
        """The runner of ``config``, whose kernels are rendered, assembled and loaded. ConfigError: ``config`` breaks a
        rule. AssembleError: the assembler rejected the kernels.

        ``source``: the rendered kernels, if they exist. If the driver cannot load ``source``, the kernels are rendered
        again.
        """
        plan = plan_for(problem, config, driver.device)
        if source is not None:
            with suppress(AssembleError):
                return cls(driver, plan, driver.load(source), problem, workspace)
        return cls(driver, plan, driver.load(render(plan)), problem, workspace)

    def prepare(
        self,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        names: Sequence[str] | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> list[PackedStep]:
        """The steps of the launch, packed except for addresses in the order of ``names`` (default: the arrays of the
        problem, then the workspace, W). ``scalars``: values of the problem's other scalars; those that are missing have
        typical values.

        InputError: alpha or beta does not fit the accumulator type; integer sums take integers. LaunchError: the
        preparations have not run.
        """
        if self.prepared is None:
            raise LaunchError(f"the runner of {self.problem.key()} is not prepared; Runner.on prepares it")
        integer = self.problem.epilogue_dtype.integer
        for name, value in (("alpha", alpha), ("beta", beta)):
            if value.imag and not self.problem.epilogue_dtype.part:
                raise InputError(f"{name} is {value:g}; products of {self.problem.dtype} take real numbers")
            if integer and not float(value.real).is_integer():
                raise InputError(f"{name} is {value:g}; sums of {self.problem.dtype} take integers")
            if np.isfinite(value) and abs(value) > dtype(self.plan.arithmetic.type).largest:
                raise InputError(f"{name} is {value:g}; it must fit the accumulator type, {self.plan.arithmetic.type}")
        numbers: dict[str, float] = {}
        for name, value in (("alpha", alpha), ("beta", beta)):
            re, im = part_names(name)
            numbers |= {re: int(value.real) if integer else value.real, im: value.imag}
        numbers |= {**self.problem.typical_scalars, **(scalars or {})}
        names = (*self.problem.arrays, "W") if names is None else names
        for each in self.prepared:
            numbers |= {name: x.address for name, x in each.arrays.items()}
        key = tuple(names), repr(numbers)  # tells 0.0 and -0.0 apart
        if key not in self._packed:
            while len(self._packed) >= MAX_PACKED:
                del self._packed[next(iter(self._packed))]
            self._packed[key] = [pack(step, names, numbers, self.driver.tensor_map) for step in self.launch.steps]
        return self._packed[key]

    def on(self, addresses: Mapping[str, int] | PreparedOperands) -> Runner:
        """The runner for operands at these addresses, with the results of the plan's preparations, which run now unless
        they have run on these operands. A plan without preparations returns ``self``. LaunchError: the size of a
        prepared array exceeds its limit."""
        if self.prepared is not None:
            return self
        operands = addresses if isinstance(addresses, PreparedOperands) else PreparedOperands(self.driver, addresses)
        made = operands.make(self.plan.preparations, self._lowered.like(self.plan.problem))
        return Runner(self.driver, self.plan, self.kernel, self.problem, self.workspace, made)

    def bind(
        self,
        addresses: Mapping[str, int],
        alpha: complex = 1.0,
        beta: complex = 0.0,
        scalars: Mapping[str, float] | None = None,
    ) -> Callable[[], None]:
        """A function that launches every step on the problem's arrays at ``addresses``; it is not reentrant. ``bind``
        itself runs the preparations of the plan on these arrays."""
        runner = self.on(addresses)
        return runner._bind(addresses, runner.prepare(alpha, beta, scalars=scalars))

    def _bind(self, addresses: Mapping[str, int], prepared: list[PackedStep]) -> Callable[[], None]:
        """The function that ``bind`` returns; the preparations have run."""
        driver, kernel, launch = self.driver, self.kernel, self.launch
        bound = [addresses[name] for name in self.problem.arrays]
        current: Allocation | None = None
        steps: list[tuple[Step, bytes]] = []

        def launch_all() -> None:
            nonlocal current, steps
            allocation = self.workspace.acquire(launch) if launch.workspace else None
            if allocation is not current or not steps:
                at = (*bound, allocation.address if allocation is not None else 0)
                current, steps = allocation, [(step, parameters(at)) for step, parameters in prepared]
            for step, parameters in steps:
                driver.launch(kernel, step, parameters)
            if allocation is not None:
                self.workspace.put_back(launch, allocation)

        return launch_all  # it holds the runner, and so the prepared arrays

    def workspace_dirty(self) -> bool:
        """True if the workspace has a nonzero byte although the launch must leave the workspace zeroed."""
        if not self.launch.zeroed:
            return False
        flags = np.empty(self.launch.workspace, np.uint8)
        self.driver.download(self.workspace.address(self.launch), flags)
        return bool(flags.any())

    def compute(
        self,
        arrays: Mapping[str, Array],
        alpha: complex = 1.0,
        beta: complex = 0.0,
        addresses: Mapping[str, int] | None = None,
        scalars: Mapping[str, float] | None = None,
        bind: Callable[..., Callable[[], None]] | None = None,
    ) -> dict[str, Array]:
        """Computes on host arrays, stored contiguously or with the leading dimensions of the problem, and returns the
        outputs as new arrays of the same shapes. ``addresses``: the addresses of arrays that are already on the device;
        ``bind(addresses)``: a function that replaces ``Runner.bind``."""
        with Buffers(self.driver, arrays) as buffers:
            at = {**buffers.addresses, **(addresses or {})}
            call = self.bind(at, alpha, beta, scalars) if bind is None else bind(at)
            call()
            self.driver.synchronize()
            outputs = {name: np.empty_like(arrays[name]) for name in self.problem.outputs}
            for name, out in outputs.items():
                self.driver.download(at[name], out)
        return outputs


class Buffers:
    """Device copies of host arrays, by name. A context manager: the copies are freed at the end of the ``with`` block,
    or if an allocation fails."""

    def __init__(self, driver: Driver, arrays: Mapping[Any, Array]) -> None:
        self._copies: dict[Any, Allocation] = {}
        try:
            for name, array in arrays.items():
                self._copies[name] = Allocation(driver, max(array.nbytes, 1))
                if array.nbytes:
                    driver.upload(self._copies[name].address, np.ascontiguousarray(array))
        except BaseException:
            self._copies.clear()
            raise

    @property
    def addresses(self) -> dict[Any, int]:
        """The device addresses of the copies, by name."""
        return {name: copy.address for name, copy in self._copies.items()}

    def __enter__(self) -> Buffers:
        return self

    def __exit__(self, *error: Any) -> None:
        self._copies.clear()
