"""The record of a measurement: problem, configuration, outcome, times, and environment."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.problem.operation import FLOPS, operation_of
from ptxgen.problem.registry import Problem, parse
from ptxgen.tuning.store.observation import Observation
from ptxgen.tuning.store.observation import parse as parse_observation

#: sources of times: hardware, or the performance model of the emulated device
CLOCKS = ("hardware", "model")
#: outcomes of a measurement; only ``ok`` trains the model
OUTCOMES = ("ok", "ptxas_error", "launch_error", "wrong_result", "timeout", "crashed")
ENERGY = "energy"  #: the purpose of measurements that observe the energy of finalists
#: start of the message of a ``crashed`` measurement whose process got a signal that no kernel causes
ENDED_OUTSIDE = "the measuring process was ended from outside"


@dataclass(frozen=True)
class Environment:
    """The device, programs and timing policy of a measurement. ``clock``: ``hardware``, or ``model`` on the emulated
    device, whose times are never compared with those of hardware; ``policy``: text of the timing policy."""

    device: str
    clock: str = "hardware"
    driver: str = ""
    ptxas: str = ""
    policy: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Measurement:
    """The outcome of one configuration on a problem. ``samples``: microseconds per launch, empty unless the outcome is
    ``ok``; ``digest``: the digest of the PTX text; ``message``: why the configuration failed, or the text of an
    ``Observation``; ``registers``, ``spills`` (bytes): as ptxas reported them, -1 if unknown; ``purpose``: the phase of
    the measurement (``sample``, ``search``, ``refine``, ``final``, ``energy``, ``bench``); ``created``: seconds since
    1970; ``sass``: machine code, as ``ptxgen.runtime.sass.machine_code`` returns it, empty if not recorded;
    ``operands``: the digest of the operands that the text of the problem names, empty if it names none."""

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
    operands: str = field(default="", compare=False)

    @property
    def us(self) -> float:
        """Median of the samples in microseconds; infinity if there is none."""
        return statistics.median(self.samples) if self.samples else float("inf")

    @property
    def observed(self) -> Observation | None:
        """The observed energy, power and clock; None: they were not observed."""
        return parse_observation(self.message) if self.outcome == "ok" and self.message else None

    @property
    def tflops(self) -> float:
        return FLOPS.cell(self.problem, self.us)

    @property
    def speed(self) -> float:
        """The speed in the unit of the operation; 0: there is no time."""
        return operation_of(self.problem).speed.cell(self.problem, self.us)

    @property
    def inconclusive(self) -> bool:
        """True if the measuring process ended for a reason other than the kernel, or for an unknown reason. Such a
        configuration is measured again."""
        return self.outcome == "crashed" and (not self.message or self.message.startswith(ENDED_OUTSIDE))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; ``from_dict`` reads it."""
        out = asdict(self)
        out.update(problem=self.problem.key(), config=self.config.full_text())
        for name in ("sass", "operands"):
            if not out[name]:
                del out[name]
        return out


@dataclass(frozen=True)
class VendorMeasurement:
    """A measurement of a vendor's library. ``library``: the name of its ``Baseline``; ``version``: name and version of
    the library, as ``VendorCalls.version`` returns them; ``algorithm``: the text of the fastest algorithm; ``message``:
    why the library failed; the other fields are those of ``Measurement``."""

    problem: Problem
    library: str
    version: str
    outcome: str
    environment: Environment
    samples: tuple[float, ...] = ()
    algorithm: str = ""
    message: str = ""
    created: float = field(default=0.0, compare=False)

    @property
    def us(self) -> float:
        """Median of the samples in microseconds; infinity if there is none."""
        return statistics.median(self.samples) if self.samples else float("inf")

    purpose = "vendor"
    predicted = False  #: as of ``choice.vendor.PredictedVendor``

    @property
    def digest(self) -> str:
        """The identity of the measured code, in place of the digest of a ``Measurement``: the version of the
        library."""
        return self.version

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; ``vendor_from_dict`` reads it."""
        return {**asdict(self), "problem": self.problem.key()}


_parse_problem = lru_cache(maxsize=256)(parse)  # files have many rows of one problem


def from_dict(values: dict[str, Any]) -> Measurement:
    """The measurement whose ``as_dict()`` is ``values``. ValueError: a value breaks a rule."""
    fields = dict(values)
    fields["problem"] = _parse_problem(fields["problem"])
    fields["config"] = parse_config(fields["config"])
    fields["environment"] = Environment(**fields["environment"])
    fields["samples"] = tuple(fields["samples"])
    return Measurement(**fields)


def vendor_from_dict(values: dict[str, Any]) -> VendorMeasurement:
    """The measurement whose ``as_dict()`` is ``values``. ValueError: a value breaks a rule."""
    made = {"problem": _parse_problem(values["problem"]), "environment": Environment(**values["environment"])}
    return VendorMeasurement(**{**values, **made, "samples": tuple(map(float, values["samples"]))})
