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
    """The part for programmatic dependent launch, by which kernels start before the previous kernel of the stream
    ends."""

    config: Config

    @property
    def active(self) -> bool:
        return self.config.pdl > 0

    @property
    def trigger(self) -> str:
        """The time from which the next kernel may start: ``late``, after this kernel's last loads, or ``early``, at
        this kernel's start; empty: the part is not active."""
        return ("", "late", "early", "late")[self.config.pdl]

    def entries(self, entries: Sequence[str], steps: Callable[[], Sequence[Step]]) -> tuple[str, ...]:
        """The kernels of ``entries`` that may start before the previous kernel of the stream has ended. ``steps()``:
        the steps of a launch of all kernels."""
        if self.config.pdl != PDL_WITHIN:
            return tuple(entries) if self.active else ()
        # the first step, and those that follow a memset, wait for the end of the preceding step
        ordered = {step.entry for before, step in pairwise((Step("", (0, 0, 0)), *steps())) if not before.entry}
        return tuple(entry for entry in entries if entry not in ordered)
