"""The registry of kernel families.

To add one, build a ``Family`` and pass it to ``register``; nothing else in the package asks for a family by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from ptxgen.codegen.config import config
from ptxgen.codegen.config.axes import Axis
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.geometry import Geometry
from ptxgen.errors import InputError
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

if TYPE_CHECKING:
    from ptxgen.codegen.mixed_tiles import MixedTiles
    from ptxgen.codegen.plan import Plan
    from ptxgen.codegen.preparation import Preparation


class PerformanceModel(Protocol):
    """The analytic model of a family: a module or an object with these functions. ``c`` are columns of one family."""

    def work(self, p: KernelProblem, c: Any, g: Any, d: Device) -> Any:
        """The cost of one block of each configuration."""

    def cell(self, p: KernelProblem, c: Any, g: Any, d: Device) -> Any:
        """The numbers that depend on extents and slices of K."""

    def microseconds(self, p: KernelProblem, d: Device, w: Any, rows: Any, x: Any, cell: Any) -> Any:
        """The time of rows ``rows`` of ``w`` with the slices ``cell`` of ``x``."""


def prepared_operands(p: KernelProblem, c: Any) -> tuple[Preparation, ...]:
    """The preparations that make operands of ``p``."""
    return tuple(x.prepared for x in p.operands if x.prepared is not None)


#: a problem, and configurations of it
Probe = tuple[KernelProblem, tuple[config.Config, ...]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """One kernel family. If its blocks compute tiles of M by N, with slices of K, it is a ``TileFamily``.

    ``axes``: its axes, which are all that its configurations have. ``geometry(p, c)``: threads, tiles,
    shared memory, registers. ``rules``: the rows of the rule table that hold for it alone. ``candidates``: a
    ``common.candidates.CandidateSpace``. ``model``: its performance model. ``plan(p, c)``: the plan class for a problem
    and a configuration; families of the package import it on first use.

    ``provides``: its capabilities: the access modes that it reads (strided, offset_table, im2col, …), those that it
    writes (with _output), the algebras that it computes, the sinks that it has; split_items: several of its blocks can
    split K of an item of a list. It computes the problems that need nothing else.
    ``counts(p, c)``: the numbers of its geometry, by name, that take little time to compute; ``geometry`` has the same.
    ``grouped_model``: the performance model of groups, None:
    ``model``. ``calibrated(p)``: whether the performance model alone ranks
    configurations of ``p`` until a model is trained on groups: it has terms that other measurements do not correct.
    ``training_class(p)``: a name under which measurements of problems like ``p`` are counted, besides that of the
    family, because trees that saw only others do not rank them; empty: none.
    ``features``: features of the model besides the axes, or that the family fills from another axis than the one with
    the feature's name; name -> values of columns ``c``.
    ``exact_integers``: integers whose sums are exact in the type of sums give exact results. False: transforms round.
    ``native(p, d)``: whether it has a kernel for ``p`` whose instructions multiply elements that the instructions of
    other families convert on ``d`` first.
    ``preparations(p, c)``: those whose arrays its kernels read, ``preparation_axes``: the axes that they depend on.
    ``probes()``: points whose features a model that was trained on the family must see as it did then.
    ``mixed_tiles(p, configs, d, most_registers, grid)``: the kernel, with so many registers per thread at most, in
    which each item of a list has the tile of one of ``configs``; the grid is that of the largest item if ``grid``.
    None: it has no such kernel.
    ``scope``: the problems that it computes, in words, if its capabilities do not tell enough.
    ``published``: the name of the published method that it implements; ``bench --baseline`` compares with it.
    ``instructions``: the PTX instructions of its products; several: axes or types choose one.
    """

    name: str
    axes: tuple[Axis, ...]
    geometry: Callable[[KernelProblem, Any], Geometry]
    rules: tuple[Rule, ...]
    candidates: Any
    model: PerformanceModel
    plan: Callable[[KernelProblem, config.Config], type[Plan]]
    provides: frozenset[str]
    counts: Callable[[KernelProblem, Any], Mapping[str, Any]] = lambda p, c: {}
    features: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    probes: Callable[[], Sequence[Probe]] = tuple
    grouped_model: Any = None
    calibrated: Callable[[KernelProblem], bool] = lambda p: False
    training_class: Callable[[KernelProblem], str] = lambda p: ""
    exact_integers: bool = True
    native: Callable[[KernelProblem, Device], bool] = lambda p, d: False
    preparations: Callable[[KernelProblem, Any], tuple[Preparation, ...]] = prepared_operands
    preparation_axes: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ("fma",)
    mixed_tiles: Callable[[KernelProblem, Sequence[config.Config], Device, int, bool], MixedTiles] | None = None
    scope: str = ""
    published: str = ""

    def form(self, p: KernelProblem) -> KernelProblem:
        """The form of a problem that its kernels compute, to which geometry, rules, candidates and performance model
        apply."""
        return p.form(self.provides)

    def computes(self, p: KernelProblem) -> bool:
        """True if it provides what a form of the problem needs."""
        return self.form(p).needs <= self.provides

    def modelled(self, p: KernelProblem) -> KernelProblem:
        """The problem whose features and lower bound the model reads for its kernels: its form if that has other
        extents, as a product of the dense matrix; else ``p``."""
        form = self.form(p)
        return form if type(form.extents) is not type(p.extents) else p

    #: whether the common rules of tiles hold for it
    tiles: ClassVar[bool] = False

    @property
    def code(self) -> int:
        """The value of the ``family`` axis."""
        return config.FAMILIES.index(self.name)

    # ---- features of the model

    def column(self, c: Any, name: str) -> Any:
        """The values of an axis, or of another feature, of columns ``c`` of this family. A family may compute it from
        other axes; if it has no such axis, the value is the axis's default, or 0."""
        if name in self.features:
            return self.features[name](c)
        return c.column(name) if name in config.AXIS else 0

    def own_features(self, p: KernelProblem, c: Any, g: Any, w: Any, d: Device) -> Mapping[str, Any]:
        """Features of configurations alone, besides their axes and those that every family has, by name; the others
        are 0. ``w``: the costs of blocks. Reads only the fields of ``p`` that its class shares."""
        return {}

    def extent_features(self, p: KernelProblem, c: Any, g: Any) -> Mapping[str, Any]:
        """Features that depend on extents and on the axes of cells, besides those that every family has, by name; the
        others are 0."""
        return {}

    def iterations(self, p: KernelProblem, c: Any, g: Any) -> Any:
        """Iterations of the loop of a block."""
        return 1

    def iteration_work(self, c: Any, w: Any) -> tuple[Any, Any]:
        """Multiply-adds of a thread per iteration, and bytes that a block loads."""
        return np.ones(len(c), np.float32), np.ones(len(c), np.float32)


def class_in(module: str, name: str) -> Callable[[KernelProblem, config.Config], type[Plan]]:
    """The plan of a family with one class, which the first call imports: choices need no plan."""
    return lambda p, c: getattr(import_module(module), name)


def function_in(module: str, name: str) -> Callable[..., Any]:
    """A function that calls one of another module, which the first call imports."""
    return lambda *arguments: getattr(import_module(module), name)(*arguments)


#: capabilities of families that multiply matrices and store tiles of C
STORES_PRODUCTS = frozenset(("plus_times", "store_tile", "strided_output"))
#: those of families that read single elements and store single elements, through offset tables or not
READS_ELEMENTS = STORES_PRODUCTS | {"strided", "offset_table", "offset_table_output"}
#: those of families whose blocks loop over the tiles of a group
LOOPS_OVER_ITEMS = frozenset(
    ("descriptor_table", "descriptor_table_output", "item_rows", "item_rows_output", "split_items")
)

#: by name, in the order of registration
FAMILIES: dict[str, Family] = {}

#: the rules of all families; ``families.common.rules`` puts the common rules first
RULES: list[Rule] = []

#: the candidate spaces of all families, by the code of the ``family`` axis
SPACES: list[Any] = []


def register(family: Family) -> Family:
    """Adds a family. InputError: its name is taken, or it is no identifier, or an axis contradicts another family's."""
    if family.name in FAMILIES:
        raise InputError(f"family {family.name!r} is registered already")
    if not family.name.isidentifier():
        raise InputError(f"family is {family.name!r}; its name must be an identifier")
    config.declare(family.name, family.axes)
    FAMILIES[family.name] = family
    RULES.extend(replace(rule, family=family.name) for rule in family.rules)
    SPACES.append(family.candidates)
    return family


def unregister(name: str) -> None:
    """Removes a family that ``register`` added last."""
    family = FAMILIES[name]
    if family.code != len(FAMILIES) - 1:
        raise InputError(f"family {name!r} has families after it, whose codes would change")
    config.retract(name)
    del FAMILIES[name]
    RULES[:] = [rule for rule in RULES if rule.family != name]
    SPACES.remove(family.candidates)


def of(c: Any) -> Family:
    """The family of a configuration, or of columns of one family.

    Columns without rows count as of the first family."""
    name = c.family
    if isinstance(name, str):
        return FAMILIES[name]
    return by_code(int(name.flat[0]) if len(name) else 0)


def by_code(code: int) -> Family:
    """The family with a code of columns."""
    return FAMILIES[config.FAMILIES[code]]


def by_modelled(p: KernelProblem) -> list[tuple[KernelProblem, tuple[Family, ...]]]:
    """The problems that the model reads in place of ``p``, each with its families. Times by the performance model are
    compared, and corrected by those of trees, among the families of one."""
    modelled: dict[type, tuple[KernelProblem, list[Family]]] = {}
    for family in FAMILIES.values():
        q = family.modelled(p)
        modelled.setdefault(type(q.extents), (q, []))[1].append(family)
    return [(q, tuple(families)) for q, families in modelled.values()]


#: capabilities in messages, by name
MEANINGS = {
    "strided": "operands with leading dimensions",
    "block_scaled": "operands whose blocks have scales",
    "offset_table": "operands addressed through offset tables",
    "im2col": "images that TMA loads as im2col",
    "strips": "convolutions in strips",
    "descriptor_table": "items with sizes of their own",
    "item_rows": "items that are ranges of rows of one array",
    "inner_expression": "inner operators other than a product",
    "complex_plus_times": "products of complex numbers",
    "store_gated": "gated activations of adjacent sums",
    "store_value": "results that are values of an expression",
    "select_values": "lists of selected results",
    "mirrored": "results of two pairs with one sum",
    "row_reduce": "reductions of rows or columns of results",
    "aggregate": "reductions of groups of results",
    "scatter": "results that are stored at keys",
    "element_groups": "reductions of the elements of an array in groups",
    "csr": "sparse matrices in CSR that are not prepared",
    "prepared_csr": "sparse matrices in CSR that may be prepared",
    "repeated_columns": "rows of a sparse matrix whose columns do not increase",
    "graph_batches": "batches of graphs",
    "nonfinite": "results that are exact beside infinities and NaN",
    "gathered_rows": "rows of B that a sparse matrix selects",
}


def providing(capability: str) -> list[str]:
    """The names of the families that provide a capability."""
    return [f.name for f in FAMILIES.values() if capability in f.provides]


def native(p: KernelProblem, d: Device) -> list[str]:
    """The names of the families that multiply the elements of ``p``, which others convert on ``d`` first."""
    return [f.name for f in FAMILIES.values() if f.computes(p) and f.native(f.form(p), d)]


def missing(p: KernelProblem, family: str) -> str:
    """The message that family ``family`` lacks a capability: what the problem needs, and who has it."""
    provided = FAMILIES[family].provides
    nearest = max((p, *p.forms), key=lambda x: len(x.needs & provided))
    lacking = sorted({name.removesuffix("_output") for name in nearest.needs - provided})
    words = " and ".join(MEANINGS.get(name, name) for name in lacking)
    having = [f.name for f in FAMILIES.values() if f.computes(p)]
    scope = FAMILIES[family].scope
    instead = f"it computes {scope}" if scope else f"families for this problem: {', '.join(having) or 'none'}"
    return f"family {family} lacks {words}; {instead}"
