"""All modules. They depend on their names only, so they are the same on every machine.

Modules are gathered in files, so that assembling them does not take long; each is an entry with parameters
(input, output), which point to buffers of the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from . import approximate, asynchronous, collective, flow, matrix, memory, scalar
from .kernel import Case

#: increased by every change of the generated modules; a recording belongs to one version
VERSION = 1
#: modules in one file
TOGETHER = 50
HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"


@dataclass(frozen=True)
class File:
    """A PTX text and the modules in it."""

    name: str
    text: str
    cases: tuple[Case, ...]


@cache
def cases() -> tuple[Case, ...]:
    out = (
        *scalar.cases(),
        *approximate.cases(),
        *flow.cases(),
        *collective.cases(),
        *memory.cases(),
        *matrix.cases(),
        *asynchronous.cases(),
    )
    assert len({c.name for c in out}) == len(out)
    return out


@cache
def directed() -> tuple[Case, ...]:
    """Modules for cases that random modules rarely contain. They may be absent from a recording; a GPU test runs them."""
    return (*scalar.directed(), *memory.directed(), *matrix.directed())


def directed_file() -> File:
    return File("directed", HEADER + "\n".join(c.text for c in directed()), directed())


@cache
def files() -> tuple[File, ...]:
    out = []
    families: dict[str, list[Case]] = {}
    for case in cases():
        families.setdefault(case.family, []).append(case)
    for family, members in families.items():
        for i in range(0, len(members), TOGETHER):
            some = tuple(members[i : i + TOGETHER])
            out.append(File(f"{family}{i // TOGETHER}", HEADER + "\n".join(c.text for c in some), some))
    return tuple(out)
