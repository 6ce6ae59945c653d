"""One measurement: what was run, what came of it, and what it was run on."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from ptxgen.codegen.config import Config, parse_config
from ptxgen.problem.registry import Problem, parse

#: what times are: measured on hardware, or the emulated device's model
CLOCKS = ("hardware", "model")
#: what can come of a measurement; only ``ok`` trains the model
OUTCOMES = ("ok", "ptxas_error", "launch_error", "wrong_result", "timeout", "crashed")
#: how the message of a ``crashed`` measurement begins whose process got a signal that no kernel causes
ENDED_OUTSIDE = "the measuring process was ended from outside"


@dataclass(frozen=True)
class Environment:
    """What a time depends on beside problem and configuration. ``clock``: ``hardware``, or ``model`` on the
    emulated device, whose times are never compared with hardware's; ``policy``: the timing policy's text."""

    device: str
    clock: str = "hardware"
    driver: str = ""
    ptxas: str = ""
    policy: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Measurement:
    """``samples``: microseconds a launch, empty unless ``ok``; ``digest``: of the kernel's source; ``message``: why
    it failed; ``registers``, ``spills`` (bytes): what ptxas reported, -1 if it was not asked; ``purpose``: which
    phase of the tuner asked (``sample``, ``search``, ``refine``, ``bench``); ``sass``: of the machine code, as
    ``ptxgen.runtime.sass.of`` gives it, empty if it was not recorded."""

    problem: Problem
    config: Config
    outcome: str
    environment: Environment
    samples: tuple[float, ...] = ()
    digest: str = ""
    registers: int = -1
    spills: int = -1
    message: str = ""
    purpose: str = ""
    created: float = field(default=0.0, compare=False)
    sass: str = field(default="", compare=False)

    @property
    def us(self) -> float:
        """Median microseconds; infinity where there is none."""
        return statistics.median(self.samples) if self.samples else float("inf")

    @property
    def tflops(self) -> float:
        return self.problem.flops / self.us * 1e-6 if self.samples else 0.0

    @property
    def inconclusive(self) -> bool:
        """Whether the process ended for a reason that is not the kernel's, or that was not recorded: measure again."""
        return self.outcome == "crashed" and (not self.message or self.message.startswith(ENDED_OUTSIDE))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, fit for JSON; ``from_dict`` reads it back."""
        out = asdict(self)
        out.update(problem=self.problem.key(), config=self.config.full_text())
        if not self.sass:
            del out["sass"]
        return out


def from_dict(values: dict[str, Any]) -> Measurement:
    """The measurement whose ``as_dict()`` is ``values``."""
    fields = dict(values)
    fields["problem"] = parse(fields["problem"])
    fields["config"] = parse_config(fields["config"])
    fields["environment"] = Environment(**fields["environment"])
    fields["samples"] = tuple(fields["samples"])
    return Measurement(**fields)
