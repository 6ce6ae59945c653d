"""Prepared operands: the arrays that preparations have made on the device."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.preparation import SIZES, Preparation
from ptxgen.codegen.render import render_preparation
from ptxgen.codegen.source import Source, Step
from ptxgen.errors import LaunchError
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.packed_step import pack

#: driver -> the loaded kernels of preparations
_kernels: weakref.WeakKeyDictionary[Driver, dict[Source, Kernel]] = weakref.WeakKeyDictionary()


def _load(driver: Driver, source: Source) -> Kernel:
    loaded = _kernels.setdefault(driver, {})
    if source not in loaded:
        loaded[source] = driver.load(source)
    return loaded[source]


@dataclass(frozen=True)
class Prepared:
    """What one preparation has made. ``arrays``: by name; ``sizes``: by name; ``steps``: its kernel, with the steps of
    all stages and their packed parameters; ``us``: microseconds that it took."""

    preparation: Preparation
    arrays: Mapping[str, Allocation]
    sizes: Mapping[str, int]
    kernel: Kernel
    steps: tuple[tuple[Step, bytes], ...]
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

    def update(self) -> None:
        """Runs the preparations again that read the values of the operands. The pattern is the same."""
        with self.driver.lock:
            for each in self._made.values():
                if each.preparation.reads_values:
                    for step, parameters in each.steps:
                        self.driver.launch(each.kernel, step, parameters)

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
        kernel = _load(driver, render_preparation(preparation, driver.device))
        arrays: dict[str, Allocation] = {}
        sizes: dict[str, int] = {}
        done: list[tuple[Step, bytes]] = []
        at: dict[str, Any] = dict(self.addresses)
        for each in before:
            at |= {name: x.address for name, x in each.arrays.items()}
        driver.synchronize()
        start = time.perf_counter()
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
                    _, parameters = pack(step, (), at, driver.tensor_map)
                    done.append((step, parameters(())))
                    driver.launch(kernel, *done[-1])
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
        us = 1e6 * (time.perf_counter() - start)
        if preparation.reads_values:  # ``update`` runs the steps again
            arrays |= {f"{n}: scratch": x for n, x in enumerate(scratch)}
        else:
            done.clear()
        return Prepared(preparation, arrays, sizes, kernel, tuple(done), us)
