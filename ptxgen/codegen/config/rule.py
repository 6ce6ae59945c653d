"""The record of a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


@dataclass(frozen=True)
class Rule:
    """A condition that every legal configuration meets.

    ``holds(p, c, g, d)``: a bool, or a column of bools, for a kernel problem, a configuration, the family's geometry
    (None: the rule needs none) and a device; ``message``: a format string with p, c, g and d, or a function of them,
    for the error; ``family``: the only family that the rule is for; empty: all (``registry.register`` sets it);
    ``tiles``: True if a common rule is for families with tiles (``TileFamily``) only.
    """

    name: str
    holds: Callable[[KernelProblem, Any, Any, Device], Any]
    message: str | Callable[[KernelProblem, Any, Any, Device], str]
    family: str = ""
    tiles: bool = False

    def worded(self, p: KernelProblem, c: Any, g: Any, d: Device) -> str:
        """The error message for a problem and a configuration that break the rule."""
        return self.message.format(p=p, c=c, g=g, d=d) if isinstance(self.message, str) else self.message(p, c, g, d)
