"""Copies row pointers and columns of 64 bits to 32 bits on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.parts.parameters import ParameterList, Parameters
from ptxgen.codegen.preparation import Preparation
from ptxgen.codegen.source import Step
from ptxgen.runtime.device_tables import Part, allocate_parts
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.prepared_operands import load_once


@dataclass(frozen=True)
class NarrowIndices(Preparation):
    """The kernel that copies the lower 32 bits of an array of 64-bit integers."""

    kernel: ClassVar[str] = "prepare/narrow_indices.mako"
    description: ClassVar[list[str]] = ["row pointers or columns of 64 bits as 32 bits"]
    threads: ClassVar[int] = 256
    #: parameters of the kernel: address of the array, address of its copy, number of integers
    parameters: ClassVar[ParameterList] = ParameterList((Parameters("u64", ("wide", "narrow", "count"), tuple),))

    def step(self, address: int, to: int, count: int) -> Step:
        """The launch for ``count`` integers."""
        blocks = max(-(-count // self.threads), 1)
        arguments = self.parameters.arguments((address, to, count))
        return Step("narrow_indices", (blocks, 1, 1), (self.threads, 1, 1), 0, arguments)


def narrow(driver: Driver, arrays: Mapping[str, tuple[int, int]]) -> dict[str, Part]:
    """Copies of arrays of 64-bit integers, which must fit 32 bits, as 32-bit integers. ``arrays``: name -> (address,
    number of integers). The kernels are queued on the driver's stream; later work on this stream sees the complete
    copies."""
    made = NarrowIndices()
    kernel = load_once(driver, made)
    copies = allocate_parts(driver, {name: 4 * count for name, (_, count) in arrays.items()})
    for name, (address, count) in arrays.items():
        step = made.step(address, copies[name].address, count)
        driver.launch(kernel, step, step.pack({}))
    return copies
