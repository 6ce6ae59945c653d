"""Runs a configuration on several sets of inputs and compares every element with a float64 reference."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.problem.operation import operation_of
from ptxgen.problem.reference import Deviation
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver


@dataclass(frozen=True)
class CheckResult:
    """The result of a check with one set of inputs. ``inputs``: the name of the set; ``deviation``: the deviation of
    the outputs from the reference."""

    inputs: str
    deviation: Deviation

    @property
    def ok(self) -> bool:
        return self.deviation.ok


#: (name of the inputs, alpha, beta, initial values of C)
CASES = (
    ("integers", 1.0, 0.0, "nan"),
    ("normal", 1.0, 0.0, "nan"),
    ("scaled", 1.0, 0.0, "nan"),
    ("positive", 1.0, 0.0, "nan"),
    ("normal", -1.5, 0.75, "normal"),
)
#: further cases of products with block scales, or with quantized weights
SCALE_CASES = (("extreme", 1.0, 0.0, "nan"),)


def scale_cases(p: Problem) -> tuple[tuple[str, float, float, str], ...]:
    """``SCALE_CASES`` of a product with block scales or quantized weights; none of other problems."""
    return SCALE_CASES if p.has_group_scales else ()


def check(driver: Driver, problem: Problem, config: Config, seed: int = 0, row_padding: int = 0) -> list[CheckResult]:
    """Runs ``config`` on ``problem`` with integers (every element must be equal), with normal and badly scaled values,
    and with alpha and beta; scales of blocks and of weights also with zeros, infinities, NaN, and denormal and huge
    numbers. With beta = 0, C is pre-filled with NaN. ``row_padding``: the number of guard elements after each row of
    the operands of a GEMM. If a kernel writes a guard element, or does not clear a flag of the workspace, the deviation
    is at (-1, -1). ConfigError: ``config`` breaks a rule. AssembleError: the assembler rejected the kernel.
    LaunchError: a launch failed. Fault: the emulated device found an error of the kernel.
    """
    return list(operation_of(problem).checks(driver, problem, config, seed, row_padding))
