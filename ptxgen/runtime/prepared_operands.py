"""Prepared operands: the arrays that preparations have made on the device."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.preparation import SIZES, Preparation
from ptxgen.codegen.render import render_preparation
from ptxgen.codegen.source import Source
from ptxgen.errors import LaunchError
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.packed_step import PackedStep, pack

#: driver -> the loaded kernels of preparations
_kernels: weakref.WeakKeyDictionary[Driver, dict[Source, Kernel]] = weakref.WeakKeyDictionary()


def load_once(driver: Driver, source: Source) -> Kernel:
    """The loaded kernel of a preparation."""
    loaded = _kernels.setdefault(driver, {})
    if source not in loaded:
        loaded[source] = driver.load(source)
    return loaded[source]


@dataclass(frozen=True)
class Prepared:
    """What one preparation has made. ``arrays``: by name; ``sizes``: by name; ``steps``: its kernel, with the steps of
    all stages, packed except for the addresses of the operands; ``us``: microseconds that it took."""

    preparation: Preparation
    arrays: Mapping[str, Allocation]
    sizes: Mapping[str, int]
    kernel: Kernel
    steps: tuple[PackedStep, ...]
    us: float


class PreparedOperands:
    """The prepared arrays of operands at ``addresses``, by name. Each preparation runs once, when it is first asked
    for."""

    def __init__(self, driver: Driver, addresses: Mapping[str, int]) -> None:
        self.driver, self.addresses = driver, dict(addresses)
        self._made: dict[Preparation, Prepared] = {}

    def make(self, preparations: tuple[Preparation, ...], p: KernelProblem) -> tuple[Prepared, ...]:
        """The results of preparations for operands of ``p``, each after those before it. LaunchError: a size exceeds
        its limit, or there is not enough memory."""
        found: list[Prepared] = []
        for each in preparations:
            if each not in self._made:
                self._made[each] = self._run(each, p, found)
            found.append(self._made[each])
        return tuple(found)

    def has(self, preparations: Collection[Preparation]) -> bool:
        """True if all of them have run."""
        return all(each in self._made for each in preparations)

    def keep(self, preparations: Collection[Preparation]) -> None:
        """Forgets the results of all others. They are freed with their last user."""
        self._made = {each: made for each, made in self._made.items() if each in preparations}

    def update(self, addresses: Mapping[str, int] | None = None, stream: int = 0) -> None:
        """Runs the preparations again that read the values of the operands, on a stream (a raw handle; 0: the driver's
        own). The pattern is the same. ``addresses``: the new ones of operands that are somewhere else now."""
        self.addresses.update(addresses or {})
        at = tuple(self.addresses.values())
        with self.driver.lock:
            for each in self._made.values():
                if each.preparation.reads_values:
                    for step, parameters in each.steps:
                        self.driver.launch(each.kernel, step, parameters(at), stream)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(x.size for each in self._made.values() for x in each.arrays.values())

    @property
    def us(self) -> float:
        """Microseconds of all preparations."""
        return sum(each.us for each in self._made.values())

    def _run(self, preparation: Preparation, p: KernelProblem, before: list[Prepared]) -> Prepared:
        driver = self.driver
        kernel = load_once(driver, render_preparation(preparation, driver.device))
        arrays: dict[str, Allocation] = {}
        sizes: dict[str, int] = {}
        done: list[PackedStep] = []
        names, operands = tuple(self.addresses), tuple(self.addresses.values())
        at: dict[str, Any] = {}
        for each in before:
            at |= {name: x.address for name, x in each.arrays.items()}
        driver.synchronize()
        start = driver.now_us()
        stages = preparation.stages(p)
        scratch: list[Allocation] = []
        stage = next(stages, None)
        while stage is not None:
            new = {name: Allocation(driver, max(size, 1)) for name, size in stage.arrays.items()}
            made = {name: Allocation(driver, max(size, 1)) for name, size in stage.scratch.items()}
            made[SIZES] = Allocation(driver, 4 * max(len(stage.sizes), 1))
            arrays |= new
            scratch += made.values()
            at |= {name: x.address for name, x in (*new.items(), *made.items())}
            with driver.lock:
                for step in stage.steps:
                    done.append(pack(step, names, at, driver.tensor_map))
                    driver.launch(kernel, step, done[-1].parameters(operands))
                words = np.empty(len(stage.sizes), np.uint32)
                if words.size:
                    driver.synchronize()
                    driver.download(made[SIZES].address, words)
            read = tuple(map(int, words))
            for (name, limit), n in zip(stage.sizes.items(), read, strict=True):
                if n > limit:
                    raise LaunchError(f"size {name} of {type(preparation).__name__} is {n}; it must be at most {limit}")
            sizes |= dict(zip(stage.sizes, read, strict=True))
            try:
                stage = stages.send(read)
            except StopIteration:
                stage = None
        driver.synchronize()
        us = driver.now_us() - start
        if preparation.reads_values:  # ``update`` runs the steps again
            arrays |= {f"{n}: scratch": x for n, x in enumerate(scratch)}
        else:
            done.clear()
        return Prepared(preparation, arrays, sizes, kernel, tuple(done), us)
