"""A loaded kernel for one problem and configuration, ready to launch."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.config import Config
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Source, Step
from ptxgen.errors import AssembleError, InputError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import Array
from ptxgen.problem.registry import Problem
from ptxgen.runtime.device_tables import Allocation, DeviceTable
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.workspace import Workspace

MAX_TENSOR_MAPS = 256  #: cached tensor maps of a step, by set of addresses


def generate(problem: Problem, config: Config, driver: Driver) -> tuple[Plan, Source]:
    """The plan and the PTX of ``config`` for the driver's device. ConfigError: it breaks a rule."""
    plan = plan_for(problem, config, driver.device)
    return plan, render(plan)


class PackedStep:
    """A step with a packed parameter buffer, except for the leading addresses (``names``) and the tensor maps."""

    __slots__ = ("_driver", "_mapped", "_maps", "_operands", "_swapped", "head", "names", "step", "tail")

    def __init__(
        self, step: Step, head: struct.Struct, names: tuple[str, ...], tail: bytes, driver: Driver, swapped: bool
    ) -> None:
        self.step, self.head, self.names, self.tail, self._driver = step, head, names, tail, driver
        self._swapped = swapped
        self._operands = names[:1] == ("A",)
        self._mapped = bool(step.maps)
        self._maps: dict[tuple[int, ...], bytes] = {}

    def parameters(self, a: int, b: int, c: int, w: int, epilogue_args: tuple[int, ...] = ()) -> bytes:
        """The parameter buffer for addresses of A, B, C, the workspace and the epilogue operands. Tensor maps are
        encoded once per set of addresses."""
        if self._swapped:
            a, b = b, a
        at = (a, b, c, w, *epilogue_args) if self._operands else (c, w, *epilogue_args)
        if not self._mapped:
            return self.head.pack(*at) + self.tail
        addresses = (a, b, c, w, *epilogue_args)
        maps = self._maps.get(addresses)
        if maps is None:
            if len(self._maps) >= MAX_TENSOR_MAPS:
                self._maps.clear()
            epilogue_names = self.names[4 if self._operands else 2 :]
            values = dict(zip((*"ABCW", *epilogue_names), addresses, strict=True))
            maps = self._maps[addresses] = self.step.pack_maps(self._driver.tensor_map, values)
        return self.head.pack(*at) + self.tail + maps


class Runner:
    """A loaded kernel with the launch of one problem. AssembleError: the assembler rejected it."""

    def __init__(
        self, driver: Driver, plan: Plan, kernel: Kernel, problem: Problem, workspace: Workspace | None = None
    ) -> None:
        self.driver, self.kernel, self.problem = driver, kernel, problem
        self.plan = plan.with_registers(kernel.registers)
        self.workspace = workspace or Workspace(driver)
        launch = self.plan.launch(lower(problem))
        self.launch = replace(
            launch, steps=tuple(step.with_table_addresses(self.workspace.tables.of) for step in launch.steps)
        )

    @property
    def tables(self) -> tuple[DeviceTable, ...]:
        """The device tables of the kernels. They are freed with the last object that can launch the kernels."""
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
        """The runner of ``config``: generated, assembled and loaded. ConfigError: it breaks a rule.

        ``source``: the rendered kernel, if there is one. If the driver cannot load it, the kernel is rendered again.
        """
        plan = plan_for(problem, config, driver.device)
        if source is not None:
            with suppress(AssembleError):
                return cls(driver, plan, driver.load(source), problem, workspace)
        return cls(driver, plan, driver.load(render(plan)), problem, workspace)

    def prepare(self, alpha: float = 1.0, beta: float = 0.0) -> list[PackedStep]:
        """The steps of the launch, packed except for addresses.

        InputError: alpha or beta does not fit the accumulator type; integer sums take integers.
        """
        integer = self.problem.epilogue_dtype.integer
        for name, value in (("alpha", alpha), ("beta", beta)):
            if integer and not float(value).is_integer():
                raise InputError(f"{name} is {value:g}; sums of {self.problem.dtype} take integers")
            if np.isfinite(value) and abs(value) > dtype(self.plan.arithmetic.type).largest:
                raise InputError(f"{name} is {value:g}; it must fit the accumulator type, {self.plan.arithmetic.type}")
        if integer:
            alpha, beta = int(alpha), int(beta)
        out = []
        values: dict[str, int | float] = {"alpha": alpha, "beta": beta, "A": 0, "B": 0, "C": 0, "W": 0}
        values.update(dict.fromkeys(self.problem.arrays, 0))
        for step in self.launch.steps:
            names = tuple(str(v) for kind, v in step.arguments if kind == "u64" and isinstance(v, str))
            head = struct.Struct(f"@{len(names)}Q")
            out.append(
                PackedStep(step, head, names, step.pack(values)[head.size :], self.driver, lower(self.problem).swapped)
            )
        return out

    def bind(
        self, a: int, b: int, c: int, alpha: float = 1.0, beta: float = 0.0, epilogue_args: tuple[int, ...] = ()
    ) -> Callable[[], None]:
        """A function that launches every step on these addresses. It is not reentrant. ``epilogue_args``: addresses in
        the order of ``problem.epilogue_operands``."""
        prepared, driver, kernel = self.prepare(alpha, beta), self.driver, self.kernel
        workspace, launch = self.workspace, self.launch
        current: Allocation | None = None
        steps: list[tuple[Step, bytes]] = []

        def launch_all() -> None:
            nonlocal current, steps
            allocation = workspace.acquire(launch) if launch.workspace else None
            if allocation is not current or not steps:
                at = (a, b, c, allocation.address if allocation is not None else 0, epilogue_args)
                current, steps = allocation, [(ready.step, ready.parameters(*at)) for ready in prepared]
            for step, parameters in steps:
                driver.launch(kernel, step, parameters)
            if allocation is not None:
                workspace.put_back(launch, allocation)

        return launch_all

    def workspace_dirty(self) -> bool:
        """Whether a workspace that must be zero after every launch has a nonzero byte."""
        if not self.launch.zeroed:
            return False
        flags = np.empty(self.launch.workspace, np.uint8)
        self.driver.download(self.workspace.address(self.launch), flags)
        return bool(flags.any())

    def compute(
        self, a: Array, b: Array, c: Array, alpha: float = 1.0, beta: float = 0.0, epilogue_args: tuple[Array, ...] = ()
    ) -> Array:
        """Computes on host arrays as stored (contiguous, or with the leading dimensions of the problem) and returns the
        result, a new array like ``c``. ``epilogue_args``: in the order of ``problem.epilogue_operands``."""
        with Buffers(self.driver, a, b, c, *epilogue_args) as at:
            first, second, result, *rest = at.addresses
            self.bind(first, second, result, alpha, beta, tuple(rest))()
            self.driver.synchronize()
            out = np.empty_like(c)
            self.driver.download(result, out)
        return out


class Buffers:
    """Device copies of host arrays, freed at the end of a ``with`` block, or if an allocation fails."""

    def __init__(self, driver: Driver, *arrays: Array) -> None:
        self._copies: list[Allocation] = []
        try:
            for array in arrays:
                self._copies.append(Allocation(driver, max(array.nbytes, 1)))
                if array.nbytes:
                    driver.upload(self._copies[-1].address, np.ascontiguousarray(array))
        except BaseException:
            self._copies.clear()
            raise

    @property
    def addresses(self) -> list[int]:
        """The device addresses, in the order of the arrays."""
        return [copy.address for copy in self._copies]

    def __enter__(self) -> Buffers:
        return self

    def __exit__(self, *error: Any) -> None:
        self._copies.clear()
