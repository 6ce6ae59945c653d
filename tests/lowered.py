"""Functions of kernel families that take the problems of users: they lower them first."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ptxgen import families
from ptxgen.families.common import candidates as _candidates
from ptxgen.families.common import features as _features
from ptxgen.families.common import geometry as _geometry
from ptxgen.families.common import perf_costs as _perf_costs
from ptxgen.families.common import perf_model as _perf_model
from ptxgen.families.common import rules as _rules
from ptxgen.families.common import space as _space
from ptxgen.families.common import space_bases as _space_bases
from ptxgen.lowering.depthwise_strips import strips
from ptxgen.lowering.im2col_descriptor import im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.lowering.winograd import winograd
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.base import ProblemBase


def of(function: Callable[..., Any], family: str = "") -> Callable[..., Any]:
    """``function`` with kernel problems. ``family``: whose form of a problem it takes; empty: the problem itself."""

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        return function(*(form(x, family) if isinstance(x, ProblemBase) else x for x in args), **named)

    for name in {"cache_clear", "cache_info"} & set(dir(function)):
        setattr(call, name, getattr(function, name))
    return call


def form(problem: ProblemBase | KernelProblem, family: str = "") -> KernelProblem:
    """The form of a problem that a family computes."""
    p = lower(problem)  # type: ignore[arg-type]
    return families.registry.FAMILIES[family].form(p) if family else p


def kernel(*args: Any, **fields: Any) -> KernelProblem:
    """The kernel problem of a GEMM with these fields of ``Gemm``."""
    problem = Gemm(*args, **fields)
    _USERS[lower(problem)] = problem
    return lower(problem)


_USERS: dict[KernelProblem, Gemm] = {}


def user(p: Any) -> Any:
    """The GEMM that ``kernel`` lowered to ``p``; any other problem itself."""
    return _USERS.get(p, p)


class Lowering:
    """The functions of a module with kernel problems; everything else as it is there."""

    def __init__(self, module: Any, family: str = "") -> None:
        self._module, self._family = module, family

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._module, name)
        return of(attribute, self._family) if callable(attribute) and not isinstance(attribute, type) else attribute


rules, space, space_bases, perf_model = (Lowering(m) for m in (_rules, _space, _space_bases, _perf_model))
candidates, perf_costs = Lowering(_candidates), Lowering(_perf_costs)
first_violation, require, legal, rejections = rules.first_violation, rules.require, rules.legal, rules.rejections
predict, work, microseconds = perf_model.predict, perf_model.work, perf_model.microseconds
least_us, features, geometry = perf_model.least_us, of(_features.features), of(_geometry.geometry)
violations, first_violations, legal_rows = candidates.violations, candidates.first_violations, candidates.legal_rows
whole_waves = candidates.whole_waves


def im2col_of(problem: ProblemBase | KernelProblem) -> Any:
    """The im2col descriptor of a convolution; None: it has none."""
    return next((x for x in map(im2col, _forms(problem)) if x is not None), None)


def strips_of(problem: ProblemBase | KernelProblem) -> Any:
    """The strips of a convolution; None: it has none."""
    return next((x for x in map(strips, _forms(problem)) if x is not None), None)


def winograd_of(problem: ProblemBase | KernelProblem, tile: int) -> KernelProblem | None:
    """The products of a convolution over tiles of ``tile`` rows and columns; None: it has none."""
    return next((p for p in _forms(problem) if (access := winograd(p)) is not None and access.tile == tile), None)


def _forms(problem: ProblemBase | KernelProblem) -> tuple[KernelProblem, ...]:
    p = form(problem)
    return (p, *p.forms)
