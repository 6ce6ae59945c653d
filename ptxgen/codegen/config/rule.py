"""One row of the rule table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


@dataclass(frozen=True)
class Rule:
    """A condition of every legal configuration.

    ``holds(p, c, g, d)``: a bool, or a column of them, where ``g`` is the family's geometry (None: the rule needs
    none). ``message``: a format over p, c, g and d that names both numbers, or a function of them. ``family``: the
    only family that the rule is for; empty: all. ``registry.register`` sets it. ``tiles``: a common rule that holds for
    families with tiles alone (``TileFamily``).
    """

    name: str
    holds: Callable[[KernelProblem, Any, Any, Device], Any]
    message: str | Callable[[KernelProblem, Any, Any, Device], str]
    family: str = ""
    tiles: bool = False

    def worded(self, p: KernelProblem, c: Any, g: Any, d: Device) -> str:
        """The message for a point that breaks the rule."""
        return self.message.format(p=p, c=c, g=g, d=d) if isinstance(self.message, str) else self.message(p, c, g, d)
