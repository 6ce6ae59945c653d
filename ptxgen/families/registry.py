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
    """The performance model of a family: a module or an object with these functions. ``c`` are columns of one
    family."""

    def work(self, p: KernelProblem, c: Any, g: Any, d: Device) -> Any:
        """The cost of one block of each configuration, whatever the extents."""

    def cell(self, p: KernelProblem, c: Any, g: Any, d: Device) -> Any:
        """The numbers that depend on extents and K slices."""

    def microseconds(self, p: KernelProblem, d: Device, w: Any, rows: Any, x: Any, cell: Any) -> Any:
        """The predicted microseconds of the rows ``rows`` of ``w``, with the entries ``cell`` of ``x``."""


def prepared_operands(p: KernelProblem, c: Any) -> tuple[Preparation, ...]:
    """The preparations that make operands of ``p``."""
    return tuple(x.prepared for x in p.operands if x.prepared is not None)


#: (problem, configurations of it)
Probe = tuple[KernelProblem, tuple[config.Config, ...]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """One kernel family. A family whose blocks compute tiles of M by N, with K slices, is a ``TileFamily``.

    - ``axes``: its axes; a configuration of the family has these and no others.
    - ``geometry(p, c)``: threads, tiles, shared memory, registers. ``counts(p, c)``: those of its numbers that are
      cheap to compute, by name.
    - ``rules``: the rules that hold for this family alone.
    - ``candidates``: a ``common.candidates.CandidateSpace``.
    - ``model``: the performance model; ``grouped_model``: that of groups, None: ``model``.
    - ``plan(p, c)``: the plan class for a problem and a configuration; families of the package import it on first use.
    - ``provides``: its capabilities: accesses that it reads (strided, offset_table, im2col, …), accesses that it writes
      (with _output), algebras, sinks; split_items: several blocks can split K of an item of a list; packed_items:
      operands of a group can be packed; packed_operands: FMA kernels can pack operands of products. It computes the
      problems that need nothing else.
    - ``calibrated(p)``: True if the performance model alone ranks configurations of ``p`` until the model is trained on
      groups, because it has terms that other measurements do not correct.
    - ``training_class(p)``: the name of a class of problems whose measurements are counted apart, because trees that
      saw only other problems do not rank them; empty: none.
    - ``features``: name -> values of columns ``c``, for features that are not axes, or that the family computes from
      another axis than the one with the feature's name.
    - ``exact_integers``: True if integers whose sums are exact in the type of sums give exact results; False:
      transforms round.
    - ``native(p, d)``: True if it has a kernel for ``p`` whose instructions multiply the elements directly, while other
      families convert them on ``d`` first.
    - ``preparations(p, c)``: preparations whose arrays its kernels read; ``preparation_axes``: the axes on which they
      depend.
    - ``probes()``: points whose features must be the same as when a model was trained on the family.
    - ``mixed_tiles(p, configs, d, most_registers, grid)``: the kernel, with at most this many registers per thread, in
      which each item of a list has the tile of one of ``configs``; ``grid``: True if the grid is that of the largest
      item. None: it has no such kernel.
    - ``scope``: the problems that it computes, in words, if its capabilities do not say enough.
    - ``published``: the name of the published method that it implements; ``bench --baseline`` compares with it.
    - ``instructions``: the PTX instructions of its products; if several, axes or types choose one.
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
        """The form of a problem that the family's kernels compute; geometry, rules, candidates and performance model
        apply to this form."""
        return p.form(self.provides)

    def computes(self, p: KernelProblem) -> bool:
        """True if the family provides all that a form of the problem needs."""
        return self.form(p).needs <= self.provides

    def modelled(self, p: KernelProblem) -> KernelProblem:
        """The problem from which the model reads features and lower bound for the family's kernels: the form if its
        extents are of another type, as those of a product with the dense matrix; else ``p``."""
        form = self.form(p)
        return form if type(form.extents) is not type(p.extents) else p

    #: True if the common rules of tiles hold for the family
    tiles: ClassVar[bool] = False

    @property
    def code(self) -> int:
        """The value of the ``family`` axis."""
        return config.FAMILIES.index(self.name)

    # ---- features of the model

    def column(self, c: Any, name: str) -> Any:
        """The values of an axis, or of another feature, for columns ``c`` of this family. A family may compute them
        from other axes. If it has no such axis, the value is the axis's default, or 0."""
        if name in self.features:
            return self.features[name](c)
        return c.column(name) if name in config.AXIS else 0

    def own_features(self, p: KernelProblem, c: Any, g: Any, w: Any, d: Device) -> Mapping[str, Any]:
        """Further features of configurations alone, by name, besides axes and the features of every family; missing
        ones are 0. ``w``: the costs of blocks. Of ``p`` it reads only the fields that all problems of the class
        share."""
        return {}

    def extent_features(self, p: KernelProblem, c: Any, g: Any) -> Mapping[str, Any]:
        """Further features of extents and of the axes of cells, by name, besides the features of every family; missing
        ones are 0."""
        return {}

    def iterations(self, p: KernelProblem, c: Any, g: Any) -> Any:
        """The number of iterations of the loop of a block."""
        return 1

    def iteration_work(self, c: Any, w: Any) -> tuple[Any, Any]:
        """The multiply-adds of a thread per iteration, and the bytes that a block loads per iteration."""
        return np.ones(len(c), np.float32), np.ones(len(c), np.float32)


def class_in(module: str, name: str) -> Callable[[KernelProblem, config.Config], type[Plan]]:
    """The function ``plan`` of a family with one plan class, which it imports on the first call, because choosing a
    configuration needs no plan."""
    return lambda p, c: getattr(import_module(module), name)


def function_in(module: str, name: str) -> Callable[..., Any]:
    """A function that calls a function of another module, which it imports on the first call."""
    return lambda *arguments: getattr(import_module(module), name)(*arguments)


class _Deferred:
    """A placeholder for a module, which is imported when a name of the module is first read."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(self._module), name)


def module(name: str) -> Any:
    """A module that is imported when a name in it is first read: a shipped winner needs no performance model."""
    return _Deferred(name)


#: capabilities of families that multiply matrices and store tiles of C
STORES_PRODUCTS = frozenset(("plus_times", "store_tile", "strided_output"))
#: capabilities of families that load and store single elements, through offset tables or not
READS_ELEMENTS = STORES_PRODUCTS | {"strided", "offset_table", "offset_table_output"}
#: capabilities of families whose blocks loop over the tiles of a group
LOOPS_OVER_ITEMS = frozenset(
    ("descriptor_table", "descriptor_table_output", "item_rows", "item_rows_output", "item_columns", "split_items")
)
#: capabilities of families that fuse all epilogues and sinks of tiles of products
FUSES_EPILOGUES = frozenset(
    (
        "store_gated",
        "store_sums",
        "sum_columns",
        "sum_a",
        "store_value",
        "select_values",
        "mirrored",
        "row_reduce",
        "aggregate",
    )
)

#: families by name, in the order of registration
FAMILIES: dict[str, Family] = {}

#: the rules of all families, after the common rules that ``families.common.rules`` adds
RULES: list[Rule] = []

#: the candidate spaces of all families, by the code of the ``family`` axis
SPACES: list[Any] = []


def register(family: Family) -> Family:
    """Adds a family. InputError: its name is taken or not an identifier, or an axis contradicts an axis of another
    family."""
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
    """Removes the family that ``register`` added last."""
    family = FAMILIES[name]
    if family.code != len(FAMILIES) - 1:
        raise InputError(f"family {name!r} has families after it, whose codes would change")
    config.retract(name)
    del FAMILIES[name]
    RULES[:] = [rule for rule in RULES if rule.family != name]
    SPACES.remove(family.candidates)


def of(c: Any) -> Family:
    """The family of a configuration, or of columns of one family. Empty columns belong to the first family."""
    name = c.family
    if isinstance(name, str):
        return FAMILIES[name]
    return by_code(int(name.flat[0]) if len(name) else 0)


def by_code(code: int) -> Family:
    """The family with this code in the ``family`` axis."""
    return FAMILIES[config.FAMILIES[code]]


def by_modelled(p: KernelProblem) -> list[tuple[KernelProblem, tuple[Family, ...]]]:
    """The problems that the model reads in place of ``p``, each with its families. Predicted times are compared, and
    corrected by the trees, among the families of one such problem."""
    modelled: dict[type, tuple[KernelProblem, list[Family]]] = {}
    for family in FAMILIES.values():
        q = family.modelled(p)
        modelled.setdefault(type(q.extents), (q, []))[1].append(family)
    return [(q, tuple(families)) for q, families in modelled.values()]


#: capability -> its description in messages
MEANINGS = {
    "strided": "operands with leading dimensions",
    "block_scaled": "operands whose blocks have scales",
    "offset_table": "operands addressed through offset tables",
    "im2col": "images that TMA loads as im2col",
    "strips": "convolutions in strips",
    "few_results": "convolutions with few results per pixel",
    "descriptor_table": "items with sizes of their own",
    "item_rows": "items that are ranges of rows of one array",
    "item_columns": "items that are ranges of columns of one array",
    "inner_expression": "inner operators other than a product",
    "complex_plus_times": "products of complex numbers",
    "store_sums": "sums that are stored beside the results",
    "sum_a": "sums of the rows of A",
    "sum_columns": "sums of the columns of results",
    "store_gated": "gated activations of adjacent sums",
    "store_value": "results that are values of an expression",
    "select_values": "lists of selected results",
    "mirrored": "results of two pairs with one sum",
    "row_reduce": "reductions of rows or columns of results",
    "row_top": "best values of rows of results",
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
    """The names of the families that multiply the elements of ``p`` directly, while others convert them on ``d``
    first."""
    return [f.name for f in FAMILIES.values() if f.computes(p) and f.native(f.form(p), d)]


def missing(p: KernelProblem, family: str) -> str:
    """The message that ``family`` lacks a capability: what the problem needs, and which families provide it."""
    provided = FAMILIES[family].provides
    nearest = max((p, *p.forms), key=lambda x: len(x.needs & provided))
    lacking = sorted({name.removesuffix("_output") for name in nearest.needs - provided})
    words = " and ".join(MEANINGS.get(name, name) for name in lacking)
    having = [f.name for f in FAMILIES.values() if f.computes(p)]
    scope = FAMILIES[family].scope
    instead = f"it computes {scope}" if scope else f"families for this problem: {', '.join(having) or 'none'}"
    return f"family {family} lacks {words}; {instead}"
