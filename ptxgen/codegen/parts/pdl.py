"""Programmatic dependent launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ptxgen.codegen.config.config import PDL_WITHIN, Config
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.source import Step


@dataclass(frozen=True)
class Pdl(Part):
    """True if kernels start before the previous kernel of the stream has ended."""

    config: Config

    @property
    def active(self) -> bool:
        return self.config.pdl > 0

    @property
    def trigger(self) -> str:
        """The moment from which the next kernel may start: after this kernel's last loads (late), or at its start
        (early)."""
        return ("", "late", "early", "late")[self.config.pdl]

    def entries(self, entries: Sequence[str], steps: Callable[[], Sequence[Step]]) -> tuple[str, ...]:
        """The kernels of ``entries`` that may be launched before the previous kernel of the stream has ended.
        ``steps()``: a launch of all of them."""
        if self.config.pdl != PDL_WITHIN:
            return tuple(entries) if self.active else ()
        # the first step, and those that follow a memset, wait for the end of the preceding step
        ordered = {step.entry for before, step in pairwise((Step("", (0, 0, 0)), *steps())) if not before.entry}
        return tuple(entry for entry in entries if entry not in ordered)
