"""One configuration, loaded and ready to launch on a driver."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.config import Config
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Source, Step
from ptxgen.errors import InputError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import Array
from ptxgen.problem.registry import Problem
from ptxgen.runtime.device_tables import Allocation, Resident
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.workspace import Workspace

MAPS_KEPT = 256  #: sets of addresses whose tensor maps a step keeps


def generate(problem: Problem, config: Config, driver: Driver) -> tuple[Plan, Source]:
    """The plan and the PTX of ``config`` for the driver's device. ConfigError: it breaks a rule."""
    plan = plan_for(problem, config, driver.device)
    return plan, render(plan)


class Prepared:
    """A step all of whose parameters are packed but the leading addresses, ``names``, and the tensor maps."""

    __slots__ = ("_driver", "_mapped", "_maps", "_swapped", "head", "names", "step", "tail")

    def __init__(
        self, step: Step, head: struct.Struct, names: tuple[str, ...], tail: bytes, driver: Driver, swapped: bool
    ) -> None:
        self.step, self.head, self.names, self.tail, self._driver = step, head, names, tail, driver
        self._swapped = swapped
        self._mapped = bool(step.maps)
        self._maps: dict[tuple[int, ...], bytes] = {}

    def parameters(self, a: int, b: int, c: int, w: int, more: tuple[int, ...] = ()) -> bytes:
        """The parameter buffer on the addresses of the problem's operands, its result and the workspace (``more``: of
        what the epilogue reads); maps are encoded once for each set of them."""
        if self._swapped:
            a, b = b, a
        at = (a, b, c, w, *more) if self.names[0] == "A" else (c, w, *more)
        if not self._mapped:
            return self.head.pack(*at) + self.tail
        known = (a, b, c, w, *more)
        maps = self._maps.get(known)
        if maps is None:
            if len(self._maps) >= MAPS_KEPT:
                self._maps.clear()
            more_names = self.names[4 if self.names[0] == "A" else 2 :]
            values = dict(zip((*"ABCW", *more_names), known, strict=True))
            maps = self._maps[known] = self.step.pack_maps(self._driver.tensor_map, values)
        return self.head.pack(*at) + self.tail + maps


class Runner:
    """A kernel bound to a problem. AssembleError: the assembler rejected it."""

    def __init__(
        self, driver: Driver, plan: Plan, kernel: Kernel, problem: Problem, workspace: Workspace | None = None
    ) -> None:
        self.driver, self.plan, self.kernel, self.problem = driver, plan, kernel, problem
        self.workspace = workspace or Workspace(driver)
        made = plan.launch(lower(problem))
        self.launch = replace(made, steps=tuple(step.placed(self.workspace.tables.of) for step in made.steps))

    @property
    def tables(self) -> tuple[Resident, ...]:
        """What its kernels look up: freed with the last of what may launch them."""
        return tuple(v for step in self.launch.steps for _, v in step.arguments if isinstance(v, Resident))

    @classmethod
    def of(cls, driver: Driver, problem: Problem, config: Config, workspace: Workspace | None = None) -> Runner:
        plan, source = generate(problem, config, driver)
        return cls(driver, plan, driver.load(source), problem, workspace)

    def prepare(self, alpha: float = 1.0, beta: float = 0.0) -> list[Prepared]:
        """Each step with what is left to do for a launch on other addresses.

        InputError: alpha or beta is none of the sums' type: of integer sums no integer, or too large.
        """
        whole = self.problem.linear.integer
        for name, value in (("alpha", alpha), ("beta", beta)):
            if whole and not float(value).is_integer():
                raise InputError(f"{name} is {value:g}; sums of {self.problem.dtype} take integers")
            if np.isfinite(value) and abs(value) > dtype(self.plan.sum).largest:
                raise InputError(f"{name} is {value:g}; it must fit the type of sums, {self.plan.sum}")
        if whole:
            alpha, beta = int(alpha), int(beta)
        out = []
        values: dict[str, int | float] = {"alpha": alpha, "beta": beta, "A": 0, "B": 0, "C": 0, "W": 0}
        values.update(dict.fromkeys(self.problem.reads, 0))
        for step in self.launch.steps:
            names = tuple(str(v) for kind, v in step.arguments if kind == "u64" and isinstance(v, str))
            head = struct.Struct(f"@{len(names)}Q")
            out.append(
                Prepared(step, head, names, step.pack(values)[head.size :], self.driver, lower(self.problem).swapped)
            )
        return out

    def bind(
        self, a: int, b: int, c: int, alpha: float = 1.0, beta: float = 0.0, more: tuple[int, ...] = ()
    ) -> Callable[[], None]:
        """A call that launches every step on these addresses, one call at a time; ``more``: of ``problem.reads``, in
        that order."""
        prepared, driver, kernel = self.prepare(alpha, beta), self.driver, self.kernel
        workspace, launch = self.workspace, self.launch
        held: Allocation | None = None
        steps: list[tuple[Step, bytes]] = []

        def go() -> None:
            nonlocal held, steps
            taken = workspace.take(launch) if launch.workspace else None
            if taken is not held or not steps:
                at = (a, b, c, taken.address if taken is not None else 0, more)
                held, steps = taken, [(ready.step, ready.parameters(*at)) for ready in prepared]
            for step, parameters in steps:
                driver.launch(kernel, step, parameters)
            if taken is not None:
                workspace.give(launch, taken)

        return go

    def raised(self) -> bool:
        """Whether a launch has left something in a workspace that it must leave zero."""
        if not self.launch.zeroed:
            return False
        flags = np.empty(self.launch.workspace, np.uint8)
        self.driver.download(self.workspace.address(self.launch), flags)
        return bool(flags.any())

    def compute(
        self, a: Array, b: Array, c: Array, alpha: float = 1.0, beta: float = 0.0, more: tuple[Array, ...] = ()
    ) -> Array:
        """The result for host arrays as stored (packed, or wider than the leading dimension says): a new C. ``more``:
        what the epilogue reads, in the order of ``problem.reads``."""
        with Buffers(self.driver, a, b, c, *more) as at:
            first, second, result, *rest = at.addresses
            self.bind(first, second, result, alpha, beta, tuple(rest))()
            self.driver.synchronize()
            out = np.empty_like(c)
            self.driver.download(result, out)
        return out


class Buffers:
    """Device copies of host arrays, freed at the end of a ``with``, or when one of them cannot be made."""

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
        return [copy.address for copy in self._copies]

    def __enter__(self) -> Buffers:
        return self

    def __exit__(self, *error: Any) -> None:
        self._copies.clear()
