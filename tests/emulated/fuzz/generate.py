"""All modules. They depend on their names only, so they are the same on every machine.

Modules are gathered in files, so that assembling them does not take long; each is an entry with parameters
(input, output), which point to buffers of the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from . import approximate, asynchronous, collective, flow, matrix, memory, registers, scalar
from .kernel import Case

#: increased by every change of the generated modules; a recording belongs to one version
VERSION = 2
#: modules in one file
TOGETHER = 50
HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"


@dataclass(frozen=True)
class File:
    """A PTX text and the modules in it."""

    name: str
    text: str
    cases: tuple[Case, ...]


#: the modules of a family are all from one of these; the fastest ones first
GENERATORS = tuple(
    map(cache, (m.cases for m in (scalar, approximate, flow, registers, collective, memory, matrix, asynchronous)))
)


@cache
def cases() -> tuple[Case, ...]:
    out = tuple(case for generator in GENERATORS for case in generator())
    assert len({c.name for c in out}) == len(out)
    return out


@cache
def directed() -> tuple[Case, ...]:
    """Modules for cases that random modules rarely contain. They may be absent from a recording; a GPU test runs them."""
    return (*scalar.directed(), *memory.directed(), *matrix.directed())


def directed_file() -> File:
    return File("directed", HEADER + "\n".join(c.text for c in directed()), directed())


@cache
def files_of(family: str) -> tuple[File, ...]:
    """The files of one family. Other generators than its own need not run."""
    members = next(of_family for g in GENERATORS if (of_family := [case for case in g() if case.family == family]))
    out = []
    for i in range(0, len(members), TOGETHER):
        some = tuple(members[i : i + TOGETHER])
        out.append(File(f"{family}{i // TOGETHER}", HEADER + "\n".join(c.text for c in some), some))
    return tuple(out)


def files() -> tuple[File, ...]:
    out = [file for family in dict.fromkeys(case.family for case in cases()) for file in files_of(family)]
    assert sum(len(file.cases) for file in out) == len(cases())
    return tuple(out)
