"""One row of the rule table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device


@dataclass(frozen=True)
class Rule:
    """``holds(p, c, g, d)``: a bool or a column; ``message``: a format over p, c, g, d that names both numbers;
    ``family``: the only family that it is for; empty: every family. ``registry.register`` sets it."""

    name: str
    holds: Callable[[KernelGemm, Any, SimpleNamespace, Device], Any]
    message: str
    family: str = ""
