"""Prepared operands: the arrays that preparations have made on the device."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from ptxgen.codegen.preparation import SIZES, Preparation
from ptxgen.codegen.render import render_preparation
from ptxgen.errors import LaunchError
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.runtime.device_tables import Part, allocate_parts
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.packed_step import PackedStep, pack

WORD = 4  #: bytes of a size in the array that preparations write sizes to
#: driver -> the loaded kernels of preparations
_kernels: weakref.WeakKeyDictionary[Driver, dict[Preparation, Kernel]] = weakref.WeakKeyDictionary()
#: driver -> index of a stage of preparations -> the sizes and the addresses of its scratch arrays
_scratch: weakref.WeakKeyDictionary[Driver, dict[int, tuple[list[int], list[int]]]] = weakref.WeakKeyDictionary()


def load_once(driver: Driver, preparation: Preparation) -> Kernel:
    """The kernel of a preparation, which is loaded at the first call."""
    loaded = _kernels.setdefault(driver, {})
    if preparation not in loaded:
        source = render_preparation(preparation, driver.device)
        same = (each for each in loaded.values() if each.source == source)
        loaded[preparation] = next(same, None) or driver.load(source)
    return loaded[preparation]


def scratch(driver: Driver, sizes: Mapping[str, int], stage: int = 0) -> dict[str, int]:
    """The addresses of arrays that a stage of a preparation uses until the next preparation begins. The driver keeps
    the memory, so that later preparations allocate none; it runs one preparation at a time, on its own stream."""
    if not sizes:
        return {}
    wanted, slots = [max(n, 1) for n in sizes.values()], _scratch.setdefault(driver, {})
    held, at = slots.get(stage, ([], []))
    if len(held) < len(wanted) or any(size < n for size, n in zip(held, wanted, strict=False)):
        if slots.pop(stage, None):
            driver.release(at[0])
        held = [max(pair) for pair in zip_longest(held, wanted, fillvalue=1)]
        slots[stage] = held, driver.allocate_parts(held)
    return dict(zip(sizes, slots[stage][1], strict=False))


@dataclass(frozen=True)
class Prepared:
    """The results of one preparation. ``arrays`` and ``sizes`` are by name; ``kernel``: the loaded kernel; ``steps``:
    the steps of all stages, packed except for the addresses of the operands; ``us``: microseconds that the preparation
    took."""

    preparation: Preparation
    arrays: Mapping[str, Part]
    sizes: Mapping[str, int]
    kernel: Kernel
    steps: tuple[PackedStep, ...]
    us: float


class PreparedOperands:
    """The prepared arrays of operands. ``addresses``: the device addresses of the operands, by name. Each preparation
    runs once, when ``make`` first needs it."""

    def __init__(self, driver: Driver, addresses: Mapping[str, int]) -> None:
        self.driver, self.addresses = driver, dict(addresses)
        self._made: dict[Preparation, Prepared] = {}

    def make(self, preparations: tuple[Preparation, ...], p: KernelProblem) -> tuple[Prepared, ...]:
        """The results of ``preparations`` for the kernel problem ``p``, which run in their order if they have not run.
        LaunchError: a size exceeds its limit, or there is not enough memory."""
        prepared: list[Prepared] = []
        last = None  # the place of the last one that runs now
        for each in preparations:
            if each not in self._made:
                self._made[each], last = self._run(each, p, prepared), len(prepared)
            prepared.append(self._made[each])
        if last is not None:
            start, made = self.driver.now_us(), prepared[last]
            self.driver.synchronize()
            prepared[last] = replace(made, us=made.us + self.driver.now_us() - start)
            self._made[made.preparation] = prepared[last]
        return tuple(prepared)

    def has(self, preparations: Collection[Preparation]) -> bool:
        """True if all of ``preparations`` have run."""
        return all(each in self._made for each in preparations)

    def keep(self, preparations: Collection[Preparation]) -> None:
        """Drops the results of all preparations except ``preparations``. Arrays are freed with their last reference."""
        self._made = {each: made for each, made in self._made.items() if each in preparations}

    def update(self, addresses: Mapping[str, int] | None = None, stream: int = 0) -> None:
        """Repeats the preparations that read the values of the operands, after the values changed and the pattern did
        not. ``stream``: a raw handle; 0: the driver's own; ``addresses``: the new addresses of operands that moved."""
        self.addresses.update(addresses or {})
        at = tuple(self.addresses.values())
        with self.driver.lock:
            for each in self._made.values():
                if each.preparation.reads_values:
                    for step, parameters in each.steps:
                        self.driver.launch(each.kernel, step, parameters(at), stream)

    @property
    def bytes(self) -> int:
        """The number of bytes of all prepared arrays."""
        return sum(x.size for each in self._made.values() for x in each.arrays.values())

    @property
    def us(self) -> float:
        """The microseconds that all preparations took."""
        return sum(each.us for each in self._made.values())

    def _run(self, preparation: Preparation, p: KernelProblem, before: list[Prepared]) -> Prepared:
        """Runs a preparation and returns its results. The work of the last stage may still be queued on the driver's
        stream."""
        driver = self.driver
        kernel = load_once(driver, preparation)
        arrays: dict[str, Part] = {}
        sizes: dict[str, int] = {}
        done: list[PackedStep] = []
        names, operands = tuple(self.addresses), tuple(self.addresses.values())
        at: dict[str, Any] = {}
        for each in before:
            at |= {name: x.address for name, x in each.arrays.items()}
        start = driver.now_us()
        stages = preparation.stages(p)
        stage, number = next(stages, None), 0
        while stage is not None:
            used = {**stage.scratch, **({SIZES: WORD * len(stage.sizes)} if stage.sizes else {})}
            if preparation.reads_values:  # ``update`` runs the steps again, on any stream
                new = allocate_parts(driver, {**stage.arrays, **used})
            else:
                new = allocate_parts(driver, stage.arrays)
                at |= scratch(driver, used, number)
            at |= {name: x.address for name, x in new.items()}
            arrays |= {f"{number}: {name}" if name in used else name: x for name, x in new.items()}
            with driver.lock:
                for step in stage.steps:
                    if preparation.reads_values:
                        done.append(pack(step, names, at, driver.tensor_map))
                        driver.launch(kernel, step, done[-1].parameters(operands))
                    else:
                        driver.launch(kernel, step, step.pack({**self.addresses, **at}))
                words = np.empty(len(stage.sizes), np.uint32)
                if words.size:
                    driver.download(at[SIZES], words)
            read = tuple(map(int, words))
            for (name, limit), n in zip(stage.sizes.items(), read, strict=True):
                if n > limit:
                    raise LaunchError(f"size {name} of {type(preparation).__name__} is {n}; it must be at most {limit}")
            sizes |= dict(zip(stage.sizes, read, strict=True))
            number += 1
            try:
                stage = stages.send(read)
            except StopIteration:
                stage = None
        return Prepared(preparation, arrays, sizes, kernel, tuple(done), driver.now_us() - start)
