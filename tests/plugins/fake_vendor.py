"""A vendor's library for GEMMs and convolutions, as a plugin: its only algorithm is a kernel of ptxgen, so the emulated
device times it.

``FAKE_VENDOR`` sets its version, ``FAKE_WRONG`` has it compute half of the results.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.operation import OPERATIONS, Baseline, VendorCalls, add_baseline, operation_named
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.runner import Runner

#: faster than ``SLOW``, for the problems of the tests
FAST = "ms=2 ns=2 ml=16 nl=16 u=2 cp_async_a=0 cp_async_b=0 stages=2"
SLOW = "ms=4 ns=4 ml=32 nl=32 u=8 cp_async_a=0 cp_async_b=0 stages=2"


class Kernel:
    """A kernel of ptxgen as the library's. ``launches``: counts all."""

    workspace, allocates = 64, False
    launches = 0

    def __init__(self, driver: Driver, problem: Problem, text: str) -> None:
        wrong = isinstance(problem, Gemm) and os.environ.get("FAKE_WRONG")
        half = replace(problem, m=problem.m // 2) if wrong else problem
        self.runner = Runner.of(driver, half, parse_config(text or FAST))

    def launch(self, addresses: Mapping[str, int], workspace: int, stream: int) -> None:
        assert workspace
        Kernel.launches += 1
        self.runner.bind(addresses)()


def search(driver: Driver, problem: Problem, sets: Any, timing: Any) -> str:
    return FAST


def version() -> str | None:
    return os.environ.get("FAKE_VENDOR", "Fake 1.0") or None


FAKE = Baseline("fake", "Fake", lambda: Kernel, emulated=True, calls=VendorCalls(version, search, Kernel))


def register(operation: str = "gemm") -> None:
    add_baseline(operation, FAKE)


def unregister() -> None:
    for name in ("gemm", "conv"):
        known = operation_named(name)
        rest = {other: x for other, x in known.baselines.items() if other != FAKE.name}
        OPERATIONS[name] = replace(known, baselines=rest)
