"""The record of energy, power and clock that were observed while a kernel ran, and its text form."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ptxgen.arguments import word

#: word after ``--observe`` -> field of ``Observation``, title of the column
OBSERVERS = {
    "energy": ("millijoules", "mJ"),
    "power": ("watts", "W"),
    "clock": ("megahertz", "SM MHz"),
}


@dataclass(frozen=True)
class Observation:
    """Energy, power and clock while a call was repeated. ``millijoules``: the energy of one call; ``watts``: the
    average power of the device; ``megahertz``: the median clock of its multiprocessors; ``us``: the microseconds of one
    call meanwhile, when the device is as warm as in long programs."""

    millijoules: float
    watts: float
    megahertz: float
    us: float

    def __str__(self) -> str:
        """The text that is stored as the message of a measurement; ``parse`` reads it."""
        return " ".join(f"{f.name}={getattr(self, f.name):.6g}" for f in fields(self))


def parse(text: str) -> Observation | None:
    """The observation that ``text`` describes; None: the text is not that of an observation."""
    values = dict(part.split("=", 1) for part in text.split() if "=" in part)
    try:
        return Observation(**{name: float(x) for name, x in values.items()})
    except (TypeError, ValueError):
        return None


def observers(text: str) -> tuple[str, ...]:
    """The names in the text of ``--observe``, in the order of ``OBSERVERS``. InputError: a name is unknown."""
    given = {word("observe", name.strip(), OBSERVERS) for name in text.split(",")}
    return tuple(name for name in OBSERVERS if name in given)
