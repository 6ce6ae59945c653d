"""The kernel families: what each provides, registered once under its name.

To add one, build a ``Family`` and pass it to ``register``; nothing else in the package asks for a family by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ptxgen.codegen import config
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.rule import Rule
from ptxgen.errors import InputError
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan


class PerformanceModel(Protocol):
    """The analytic model of a family: a module or an object with these functions. ``c`` are columns of one family."""

    def work(self, p: KernelGemm, c: Any, g: Any, d: Device) -> Any:
        """The cost of one block of each configuration."""

    def cell(self, p: KernelGemm, c: Any, g: Any, d: Device) -> Any:
        """What extents and slices of K decide."""

    def microseconds(self, p: KernelGemm, d: Device, w: Any, rows: Any, x: Any, cell: Any) -> Any:
        """The time of rows ``rows`` of ``w`` with the slices ``cell`` of ``x``."""


@dataclass(frozen=True, eq=False)
class Family:
    """One kernel family.

    ``axes``: the axes of ``Config`` that it reads; the others keep their defaults. ``geometry(p, c)``: threads, tiles,
    shared memory, registers. ``rules``: the rows of the rule table that hold for it alone. ``candidates``: a
    ``families.candidates.CandidateSpace``. ``model``: its performance model. ``rate(p, d)``: multiply-adds per clock
    and multiprocessor. ``issuer_tile(p, c, g)``: rows and columns of the accumulator tile of one MMA issuer (thread,
    warp or warpgroup), depth of an iteration, loads of A and of B per iteration. ``thread_products(c)``: multiply-adds
    of one thread per iteration. ``plan(p, c)``: the plan class for a problem and a configuration.

    ``stages``: least and greatest number of pipeline stages. ``any_tile``: block tiles need not be powers of two.
    ``splitk``: the greatest code of the ``splitk`` axis. ``gathers(p)``: whether it computes problems whose operands
    are not plain matrices. ``offset_tables``: it reads the addresses of such operands from tables.
    """

    name: str
    axes: tuple[str, ...]
    geometry: Callable[[KernelGemm, Any], Geometry]
    rules: tuple[Rule, ...]
    candidates: Any
    model: PerformanceModel
    rate: Callable[[KernelGemm, Device], float]
    issuer_tile: Callable[[KernelGemm, Any, Any], tuple[Any, Any, Any, Any, Any]]
    thread_products: Callable[[Any], Any]
    plan: Callable[[KernelGemm, config.Config], type[Plan]]
    stages: tuple[int, int] = (2, 8)
    any_tile: bool = False
    splitk: int = config.SPLIT_WORKSPACE
    gathers: Callable[[KernelGemm], bool] = lambda p: False
    offset_tables: bool = False

    @property
    def code(self) -> int:
        """The value of the ``family`` axis."""
        return config.FAMILIES.index(self.name)


#: by name, in the order of registration
FAMILIES: dict[str, Family] = {}

#: the rules of all families; ``families.rules`` puts the common rules first
RULES: list[Rule] = []

#: the candidate spaces of all families, by the code of the ``family`` axis
SPACES: list[Any] = []


def register(family: Family) -> Family:
    """Adds a family. InputError: its name is taken, or it is no identifier."""
    if family.name in FAMILIES:
        raise InputError(f"family {family.name!r} is registered already")
    if not family.name.isidentifier():
        raise InputError(f"family is {family.name!r}; its name must be an identifier")
    if family.name not in config.FAMILIES:
        config.FAMILIES.append(family.name)
    FAMILIES[family.name] = family
    RULES.extend(replace(rule, family=family.code) for rule in family.rules)
    SPACES.append(family.candidates)
    return family


def of(c: Any) -> Family | None:
    """The family of a configuration, or of columns of one family; None: the code is unknown.

    Columns without rows count as of the first family."""
    code = c.family
    if isinstance(code, np.ndarray):
        code = code[0] if len(code) else 0
    return by_code(int(code))


def by_code(code: int) -> Family | None:
    """The family with a value of the ``family`` axis; None: there is none."""
    return FAMILIES.get(config.FAMILIES[code]) if 0 <= code < len(config.FAMILIES) else None


def require(c: Any) -> Family:
    """As ``of``; the code must be known."""
    found = of(c)
    if found is None:
        raise InputError(f"family is {c.family}; it must be from 0 to {len(config.FAMILIES) - 1}")
    return found
