"""One row of the rule table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device


@dataclass(frozen=True)
class Rule:
    """A condition of every legal configuration.

    ``holds(p, c, g, d)``: a bool, or a column of them, where ``g`` is the family's geometry (None: the rule needs
    none). ``message``: a format over p, c, g, d and f (``rules._Families``) that names both numbers. ``family``: the
    only family that the rule is for; empty: all. ``registry.register`` sets it. ``tiles``: a common rule that holds for
    families with tiles alone (``TileFamily``).
    """

    name: str
    holds: Callable[[KernelGemm, Any, Any, Device], Any]
    message: str
    family: str = ""
    tiles: bool = False
