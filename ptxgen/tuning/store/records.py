"""Validation of measurements, and their conversion to and from text columns of the database."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from ptxgen.codegen.config.config import Config, config_of_full_text, parse_config
from ptxgen.errors import InputError, PtxgenError
from ptxgen.problem.registry import Problem, parse
from ptxgen.tuning.store.exchange import is_utf8, require_device_name
from ptxgen.tuning.store.measurement import CLOCKS, OUTCOMES, Environment, Measurement, VendorMeasurement

Row = tuple[Any, ...]
#: (problem, configuration) -> digest of the kernel that this version generates
Current = Callable[[Problem, Config], str]
#: (device name, problem, configuration) -> digest of the kernel that this version generates
CurrentOn = Callable[[str, Problem, Config], str]


def config_text(config: Config) -> str:
    """The family and all axes of a configuration as ``name=value``: the form in which the database compares
    configurations."""
    return config.full_text()


def stored_config(text: str) -> Config:
    """The configuration of a stored text. ConfigError: an axis or value is unknown."""
    return config_of_full_text(text) or parse_config(text)


parse_problem = lru_cache(maxsize=4096)(parse)
make_environment = lru_cache(maxsize=256)(Environment)
LATEST = 253402300799.0  #: seconds since 1970 at the end of the year 9999


@lru_cache(maxsize=4096)
def _is_known_axis(family: str, word: str) -> bool:
    try:
        stored_config(f"{family} {word}" if word != family else word)
    except InputError:
        return False
    return True


def has_known_axes(config: str) -> bool:
    """True if this version knows every axis and value of a stored text."""
    words = config.split()
    family = next((word for word in words if word.startswith("family=")), "")
    return all(_is_known_axis(family, word) for word in words)


def samples_text(m: Measurement | VendorMeasurement) -> str:
    """The samples as a JSON list."""
    return f"[{', '.join([repr(float(x)) for x in m.samples])}]"  # json.dumps takes several times as long


def utf8_text(message: str) -> str:
    """``message`` with lone surrogates replaced. The output of programs may have lone surrogates, and SQLite rejects
    them."""
    return message.encode(errors="replace").decode()


def stale_reason(m: Measurement, current: Current) -> str:
    """The reason why a winner is stale; empty if it is not."""
    try:
        now = current(m.problem, m.config)
    except (PtxgenError, OverflowError) as error:  # a stored axis may have any value
        return f"no kernel now: {error}"
    return "" if now == m.digest else f"its kernel was {m.digest or 'not recorded'}, now it is {now}"


def require_valid(m: Measurement | VendorMeasurement, *, winner: bool = False) -> None:
    """Raises InputError if a measurement breaks a rule. ``winner``: True: the rules for winners apply, too."""
    if m.outcome not in OUTCOMES:
        raise InputError(f"outcome is {m.outcome!r}; it must be one of {', '.join(OUTCOMES)}")
    if winner and m.outcome != "ok":
        raise InputError(f"winner of {m.problem.key()} has outcome {m.outcome!r}; it must be ok")
    if m.environment.clock not in CLOCKS:
        raise InputError(f"clock is {m.environment.clock!r}; it must be one of {', '.join(CLOCKS)}")
    if (m.outcome == "ok") != bool(m.samples):
        raise InputError(f"outcome {m.outcome} has {len(m.samples)} samples; ok requires some, a failure none")
    if not all(0 < x < math.inf for x in m.samples):
        raise InputError(f"samples are {m.samples}; they must be positive and finite")
    if not 0 <= m.created <= LATEST:
        raise InputError(f"created is {m.created!r}; it must be seconds since 1970, from 0 to {LATEST:.0f}")
    _require_utf8(digest=m.digest, purpose=m.purpose)
    _require_environment(m.environment)


def _require_utf8(**texts: str) -> None:
    for name, text in texts.items():
        if not is_utf8(text):
            raise InputError(f"{name} is {text!r}; it must be text that UTF-8 can encode")


@lru_cache(maxsize=256)
def _require_environment(environment: Environment) -> None:
    _require_utf8(**asdict(environment))
    require_device_name(environment.device)
