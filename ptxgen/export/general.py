"""Exported kernels that compute every shape of a class, not only the shape of their problem.

The plan, the rules, the launches and the features of such a kernel are computed with symbols in place of the extents,
so that conditions and numbers become expressions of the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.render import render, rendered
from ptxgen.codegen.source import Launch, Source
from ptxgen.export.operations import COperation
from ptxgen.export.symbol import Branch, Leaf, Symbol, explore, outcomes, value
from ptxgen.expr.node import Node
from ptxgen.families import registry
from ptxgen.families.common import perf_model, rules
from ptxgen.families.common.features import row
from ptxgen.families.common.geometry import geometry
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.c_form import C_FORM as GEMM
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.c_form import CForm
from ptxgen.problem.device import Device
from ptxgen.problem.registry import Problem
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.model.training import baseline

#: the numbers of a shape that are symbols: fields of the problem, and rows and columns of groups
FIELDS = ("m", "n", "k", "lda", "ldb", "ldc", "aligned_a", "aligned_b", "aligned_c")
GROUPS = ("group_rows", "group_columns")
VARIABLES = (*FIELDS, *GROUPS)


def serves_other_shapes(operation: COperation, problem: Problem) -> bool:
    """True if the kernels of ``problem`` are also exported for other shapes; kernels of empty problems never are."""
    return operation.form.serves_other_shapes(problem) and min(lower(problem).extents.common_divisors) > 0


def variables(of: CForm, problem: Problem) -> dict[str, int]:
    """The values of ``VARIABLES`` for ``problem``, a GEMM or a task. ``of``: its operation in C."""
    groups = zip(GROUPS, of.groups(problem), strict=True)
    return {**{name: getattr(problem, name) for name in FIELDS}, **dict(groups)}


@dataclass(frozen=True)
class General:
    """A configuration for all shapes of a class.

    ``ones``: the variables that must be 1; all others must be greater; ``learnt``: True if the model has trees of the
    family; ``source``: the kernels; ``launch``: the tree of launches; a leaf without form stands for shapes that the
    configuration does not serve; ``score``: the tree of features and the baseline that they correct, or of the
    predicted time if the model has no trees of the family."""

    config: Config
    ones: tuple[str, ...]
    learnt: bool
    source: Source
    launch: Leaf | Branch
    score: Leaf | Branch

    @property
    def served(self) -> Leaf | Branch:
        """A tree of truth values: the form of a leaf is True if the configuration serves the shapes of the leaf."""
        return _served(self.launch)

    def without_score(self) -> General:
        """The configuration with a constant score, for a class in which there is nothing to choose."""
        return replace(self, learnt=False, score=Leaf((), (_node(1.0),)))

    def serves(self, shape: Mapping[str, int]) -> bool:
        """True if the configuration computes the shape. ``shape``: the values of ``VARIABLES``."""
        if any((shape[name] == 1) != (name in self.ones) for name in VARIABLES):
            return False
        tree, known = self.launch, dict[Node, Any]()
        while isinstance(tree, Branch):
            tree = tree.yes if value(tree.condition, shape, known) else tree.no
        return tree.form is not None


def _served(tree: Leaf | Branch) -> Leaf | Branch:
    if isinstance(tree, Leaf):
        return Leaf(tree.form is not None)
    yes, no = _served(tree.yes), _served(tree.no)
    return yes if yes == no else Branch(tree.condition, yes, no)


def general(
    of: CForm, problem: Problem, config: Config, device: Device, form: Callable[[Source, Launch], Leaf], model: Model
) -> General:
    """``config`` for all shapes of the class of ``problem`` for which it is legal and has the same code. ``of``: the
    operation in C; ``form(source, launch)``: the leaf of a launch. TooManyPathsError: the launches depend on too many
    conditions."""
    lowered, source = lower(problem), render(plan_for(problem, config, device))
    completion = of.completion(problem, device)
    launches = _launches(problem, config, device, form, source, lambda: _symbolic(of, problem), completion)
    columns = Columns.of([config])
    learnt = model.learnt(lowered, config.family)
    trained = model if learnt else None
    score: Leaf | Branch = Leaf(None)
    if (known := outcomes(launches)) is not None:
        score = explore(lambda: _score(_symbolic(of, problem), columns, device, trained), known)
    ones = tuple(name for name, number in variables(of, problem).items() if number == 1)
    return General(config, ones, learnt, source, launches, score)


def empty_sums(
    empty: Gemm, config: Config, device: Device, form: Callable[[Source, Launch], Leaf]
) -> tuple[Source, Leaf | Branch]:
    """The kernels of ``empty``, a GEMM with K = 0, and the tree of their launches for all M, N, leading dimensions and
    alignments of C."""
    source = render(plan_for(empty, config, device))

    def symbolic() -> KernelProblem:  # the leading dimension of the caller's B, which is not read, does not count
        return _symbolic(GEMM, empty, {"k": "", "lda": "", "ldb": "n", "aligned_a": "", "aligned_b": ""})

    return source, _launches(empty, config, device, form, source, symbolic)


def _launches(
    problem: Problem,
    config: Config,
    device: Device,
    form: Callable[[Source, Launch], Leaf],
    source: Source,
    symbolic: Callable[[], KernelProblem],
    completion: Any = None,
) -> Leaf | Branch:
    """The tree of the launches of ``source`` for all shapes of ``symbolic()``; leaves without form are shapes for which
    ``config`` is illegal or has other code. ``completion``: the kernels that follow, as ``CForm.completion``."""

    def launch() -> Leaf:
        family = registry.of(config)
        p = family.form(symbolic())
        if not family.computes(p):
            return Leaf(None)
        if rules.first_violation(p, config, device) is not None:
            return Leaf(None)
        plan = family.plan(p, config)(p, config, device, geometry(p, config))
        plan.source_problem = problem
        other = rendered(plan)
        same = (other.digest, other.pdl_entries) == (source.digest, source.pdl_entries)
        if not same:
            return Leaf(None)
        made = plan.launch(p)
        return form(source, made if completion is None else completion.completed(p, made))

    return explore(launch)


class _SymbolicProblem(KernelProblem):
    """A kernel problem with symbols as extents. It is equal to itself alone, so that no cache returns a result that was
    computed with other decisions on symbols."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def _symbolic(of: CForm, problem: Problem, tied: Mapping[str, str] | None = None) -> KernelProblem:
    """The kernel problem with symbols in place of the variables above 1. ``tied``: variable -> the variable that it
    always equals, or empty if it stays a number; None: the ties that the operation defines."""
    assert of.lower is not None
    tied = of.tied(problem) if tied is None else tied
    numbers = {name: number for name, number in variables(of, problem).items() if number > 1 and name not in tied}
    symbols = {name: Symbol.variable(name, n) for name, n in numbers.items()}
    symbols |= {name: symbols[source] for name, source in tied.items() if source in symbols}
    lowered: KernelProblem = of.lower(problem, problem_type=_SymbolicProblem, **symbols)
    return lowered


def _score(p: KernelProblem, c: Columns, d: Device, model: Model | None) -> Leaf:
    """The expressions that exported C code evaluates for a configuration: the model's features, then its baseline. A
    feature log2(x) is given as x, and marked in the form of the leaf. Without a model: the predicted time alone."""
    us = perf_model.microseconds(p, c, d)
    if model is None or model.facts is None:
        return Leaf((), (_node(us),))
    numbers = [_node(x) for x in row(p, c, d, us, model.names).values()]
    logarithms = tuple(x.op == "log2" for x in numbers)
    values = [x.arguments[0] if log else x for x, log in zip(numbers, logarithms, strict=True)]
    return Leaf(logarithms, (*values, _node(baseline(model.facts.target, p, c, d, us))))


def _node(x: Any) -> Node:
    """A number as float32, the type of features."""
    return Symbol.of(x).astype("float32").node
