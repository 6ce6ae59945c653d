"""An operation and a kernel family that are registered from outside the package: the rows of a sparse matrix that are
not empty, multiplied by a vector.

The matrix is in CSR. The result is no matrix but a list: how many rows there are, their numbers in order, their sums.
Kernels that run once for a matrix list the rows; the grid of the product has only as many blocks as they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ptxgen.arguments import integer
from ptxgen.codegen.config.axes import Axis, searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.parts.parameters import KernelParameters, ParameterList, Parameters, given
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.preparation import SIZES, Preparation, Stage, Stages
from ptxgen.codegen.source import Launch, Step
from ptxgen.errors import ShapeError
from ptxgen.families import registry
from ptxgen.families.common import perf_blocks
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.families.registry import Family
from ptxgen.lowering.csr import Csr
from ptxgen.lowering.kernel_problem import Access, Extents, KernelProblem, Operand
from ptxgen.problem import operation
from ptxgen.problem.base import EXTENT_LIMIT, ProblemBase
from ptxgen.problem.device import Device
from ptxgen.problem.operation import Case, Operation, Suite, by_name
from ptxgen.problem.reference import Array, Deviation, Reference, compare, verdict
from ptxgen.runtime.check import CheckResult
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets
from ptxgen.runtime.runner import Runner

NAME = "row_list"
INDEX = 4  #: bytes of a row number, a column number or an offset

# ---- the operation


@dataclass(frozen=True)
class RowList(ProblemBase):
    """The triple (count, numbers, sums) of the rows of A·x that have nonzeros. ``layout``: how A is stored. ShapeError: an extent is
    no positive integer, or there are nonzeros in no columns."""

    rows: int
    columns: int
    nnz: int
    layout: str = "CSR"
    dtype: str = "f32"
    compute: str = ""
    out: str = ""
    epilogue: str = ""
    deterministic: bool = False

    operation = NAME
    SHAPE = ("rows", "columns", "nnz")
    SHAPE_FORM = "ROWS,COLUMNS,NNZ"
    CODE_OPTIONS = ()
    RUNTIME_PARAMETERS = "addresses"
    outputs = ("count", "numbers", "sums")
    arrays = ("indptr", "indices", "values", "x", *outputs)
    problem_class = NAME
    broadcast_shapes: ClassVar[dict[str, Any]] = {}

    @classmethod
    def epilogue_rows(cls) -> tuple[tuple[str, ...], ...]:
        return ()

    def __post_init__(self) -> None:
        for name in self.SHAPE:
            object.__setattr__(self, name, integer(name, getattr(self, name), 1, EXTENT_LIMIT - 1))
        self._check_words_and_flags()
        self._normalize_layout("layout", ("CSR",))
        self._normalize_dtypes()
        self._normalize_epilogue()

    def shape(self) -> str:
        return f"{self.rows},{self.columns},{self.nnz}"

    @classmethod
    def read_shape(cls, text: str) -> dict[str, Any]:
        words = text.split(",")
        if len(words) != 3 or not all(word.isdecimal() for word in words):
            raise ShapeError(f"shape is {text!r}; it must be {cls.SHAPE_FORM}")
        return dict(zip(cls.SHAPE, map(int, words), strict=True))

    @property
    def reduction(self) -> int:
        return self.nnz

    @property
    def flops(self) -> int:
        return 2 * self.nnz

    @property
    def bytes(self) -> int:
        return (self.element.bytes + INDEX) * self.nnz + INDEX * self.rows + self.element.bytes * self.columns

    @property
    def description(self) -> list[str]:
        return [f"the rows of A[{self.rows}, {self.columns}] x that have nonzeros, as a list; {self.nnz} nonzeros"]


def random_inputs(p: RowList, seed: int = 0, inputs: str = "normal") -> dict[str, Array]:
    """A matrix in which about half of the rows are empty, and a vector."""
    rng = np.random.default_rng([seed, p.rows, p.nnz])
    some = rng.permutation(p.rows)[: (p.rows + 1) // 2]
    lengths = np.bincount(rng.choice(some, p.nnz), minlength=p.rows)

    def numbers(n: int) -> Array:
        return (rng.integers(-4, 5, n) if inputs == "integers" else rng.standard_normal(n)).astype(np.float32)

    return {
        "indptr": np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32),
        "indices": rng.integers(0, p.columns, p.nnz).astype(np.uint32),
        "values": numbers(p.nnz),
        "x": numbers(p.columns),
    }


def product(p: RowList, arrays: Mapping[str, Array], region: None = None) -> tuple[Array, Array]:
    terms = arrays["values"].astype(np.float64) * arrays["x"].astype(np.float64)[arrays["indices"]]
    starts = arrays["indptr"][filled(arrays)]
    return np.add.reduceat(terms, starts), np.add.reduceat(np.abs(terms), starts)


def filled(arrays: Mapping[str, Array]) -> Array:
    """The numbers of the rows that are not empty."""
    return np.flatnonzero(np.diff(arrays["indptr"].astype(np.int64)))


def deviation(p: RowList, arrays: Mapping[str, Array], got: Mapping[str, Array], inputs: str = "normal") -> Deviation:
    """The deviation of a list from the reference; at (-1,): its row numbers are wrong."""
    rows = filled(arrays)
    if got["count"][0] != len(rows) or not np.array_equal(got["numbers"][: len(rows)], rows):
        return Deviation(np.inf, (-1,), np.inf)
    expected, sums = Reference(p, *product(p, arrays)), got["sums"][: len(rows)]
    return compare(sums, expected) if inputs == "normal" else verdict(inputs, sums, expected)


def empty_outputs(p: RowList) -> dict[str, Array]:
    return {
        "count": np.zeros(1, np.uint32),
        "numbers": np.zeros(p.rows, np.uint32),
        "sums": np.full(p.rows, np.nan, np.float32),
    }


def checks(driver: Driver, p: RowList, config: Config, seed: int = 0, row_padding: int = 0) -> Iterator[CheckResult]:
    runner = Runner.of(driver, p, config)
    for inputs in ("integers", "normal"):
        arrays = random_inputs(p, seed, inputs)
        yield CheckResult(inputs, deviation(p, arrays, runner.compute({**arrays, **empty_outputs(p)}), inputs))


class RowListOperandSets(OperandSets):
    problem: RowList

    def __init__(self, driver: Driver, problem: RowList, timing: Timing) -> None:
        self.problem, self.arrays, self.outputs = problem, random_inputs(problem), empty_outputs(problem)
        super().__init__(driver, timing, self.arrays, {name: x.nbytes for name, x in self.outputs.items()}, {})

    def deviation(self, limit: int) -> Deviation:
        for name, x in self.outputs.items():
            self.driver.download(self.sets[0][name], x)
        return deviation(self.problem, self.arrays, self.outputs)


@dataclass(frozen=True)
class Vector(Access):
    """Consecutive elements."""

    capability = "vector"


@dataclass(frozen=True)
class RowNumbers(Access):
    """A list of rows: the output has their results."""

    capability = "row_numbers"

    @property
    def arrays(self) -> tuple[str, ...]:
        return "numbers", "count"


@dataclass(frozen=True)
class StoreList:
    """The sums of rows are stored one after the other."""

    arithmetic: str = "f32"
    arrays: tuple[str, ...] = ()
    needs: ClassVar[frozenset[str]] = frozenset(("store_list",))
    templates: ClassVar[Path | None] = None


@dataclass(frozen=True)
class RowExtents(Extents):
    rows: int
    columns: int
    nnz: int

    @property
    def results(self) -> int:
        return self.rows

    @property
    def flops(self) -> int:
        return 2 * self.nnz

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.rows, self.columns, self.nnz

    def representative(self) -> RowExtents:
        return RowExtents(1, 1, 1)


def lowered(p: RowList) -> KernelProblem:
    return KernelProblem(
        f"{NAME}_{p.dtype}",
        RowExtents(p.rows, p.columns, p.nnz),
        (Operand("values", p.dtype, Csr()), Operand("x", p.dtype, Vector())),
        (Operand("sums", p.out, RowNumbers()),),
        p.compute,
        StoreList(),
        moved=p.bytes,
    )


def small(**fields: Any) -> Iterator[Case]:
    yield Case("70 rows", RowList(70, 40, 300, **fields))


OPERATION = Operation(
    RowList,
    lowering=lowered,
    product=product,
    slices=lambda p, region: (),
    checks=checks,
    operand_sets=RowListOperandSets,
    titles=("rows", "columns", "nonzeros"),
    cells=lambda row: [row["problem"][name] for name in RowList.SHAPE],
    suites=by_name(Suite("small", "one small matrix", small)),
    features={"row_length": lambda p: float(np.log2(p.nnz / p.rows))},
)

# ---- the family

AXES = (
    Axis("threads", 64, "threads of a block", (32, 64, 128), least=32, most=1024),
    Axis("lanes", 4, "threads of a warp that share a row", (1, 4, 32), most=32),
)
RULES = (
    Rule("row_types", lambda p, c, g, d: p.dtype == "f32", "family rowwise multiplies f32, not {p.dtype}"),
    Rule("row_warps", lambda p, c, g, d: c.threads % 32 == 0, "threads={c.threads} must be a multiple of a warp, 32"),
)


def geometry(p: KernelProblem, c: Any) -> Geometry:
    none = c.threads * 0
    blocks = -(-p.extents.rows * c.lanes // c.threads)
    return Geometry(threads=c.threads, shared=none, registers=none + 32, blocks=blocks)


class Model:
    """The performance model: the time of the loads and stores, and of the rounds of the longest rows."""

    @staticmethod
    def cell(p: KernelProblem, c: Columns, g: Geometry, d: Device) -> None:
        """Times depend on the problem alone."""

    @staticmethod
    def work(p: KernelProblem, c: Columns, g: Geometry, d: Device) -> perf_blocks.Work:
        return perf_blocks.Work.of(len(c), resident=8, busy=1 / c.lanes, latency=1 / c.threads)

    @staticmethod
    def microseconds(p: KernelProblem, d: Device, w: Any, rows: Any, x: Any, cell: Any) -> Any:
        length = p.extents.nnz / p.extents.rows
        rounds = np.float32(length) * w.busy[rows] + w.latency[rows]
        return (np.float32(2 + p.bytes / (d.bandwidth * 1e3)) + np.float32(0.01) * rounds).astype(np.float32)


class Candidates(CandidateSpace):
    name = "rowwise"
    axes, class_axes = searched(AXES), {}
    tile = ("threads", "lanes")
    fixed = ("row_types",)
    tile_rules = ("axis", "range", "threads", "row_warps")
    extent_rules = ("range",)

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product(dict(self.axes)).replace(family=self.code)

    shapes = tiles

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return []

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        return tiles, violations(self, p, tiles, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        return [config.replace(**changes)]


@dataclass(frozen=True)
class RowScheduler:
    grid_text: str = "(blocks of rows of the list, 1, 1)"


@dataclass(frozen=True)
class RowParameters(KernelParameters):
    """The addresses of the list and of all arrays of the problem."""

    problem: KernelProblem

    @property
    def declared(self) -> list[Parameters]:
        return [given("u64", "listed"), given("u64", *self.problem.arrays)]


def rows_of(p: KernelProblem) -> tuple[int]:
    return (p.extents.rows,)


@dataclass(frozen=True)
class ListRows(Preparation):
    """The array ``listed``: the number of rows that are not empty, and the rows."""

    kernel = "rows_of_list.mako"
    templates = Path(__file__).parent
    description: ClassVar[list[str]] = ["the rows that are not empty"]
    parameters: ClassVar[ParameterList] = ParameterList(
        (given("u64", "listed", SIZES, "indptr"), Parameters("u32", ("rows",), rows_of))
    )

    def stages(self, p: KernelProblem) -> Stages:
        [rows] = rows_of(p)
        step = Step("list_rows", (1, 1, 1), (32, 1, 1), 0, self.parameters.arguments(p))
        yield Stage((step,), {"listed": INDEX * (1 + rows)}, sizes={"rows": rows})


class RowPlan(Plan):
    kernel = "row_list.mako"
    templates = Path(__file__).parent
    accesses = "accesses of single elements"
    preconditions: ClassVar[list[str]] = ["offsets and numbers of 32 bits", "the list of the kernel list_rows"]
    numbers = "addresses"
    parameter_meanings: Mapping[str, str] = {"[a-z]+": "address"}
    preparations = (ListRows(),)

    def _compose(self) -> None:
        self.scheduler = RowScheduler()
        self.parameters = RowParameters(self.problem)
        self.lanes = self.config.lanes
        self.distances = [1 << i for i in range(self.lanes.bit_length() - 1)]

    @property
    def block_tile(self) -> str:
        return f"{self.threads // self.lanes} rows"

    def _launch_prepared(self, problem: KernelProblem, sizes: Mapping[str, int]) -> Launch:
        blocks = max(-(-sizes["rows"] * self.lanes // self.threads), 1)  # one stores the count, also of no rows
        arguments = self.parameters.rows.arguments(problem)
        return Launch((Step(self.entry, (blocks, 1, 1), (self.threads, 1, 1), 0, arguments),))


FAMILY = Family(
    name="rowwise",
    axes=AXES,
    geometry=geometry,
    rules=RULES,
    candidates=Candidates(),
    model=Model(),
    plan=lambda p, c: RowPlan,
    provides=frozenset(("plus_times", "csr", "vector", "row_numbers_output", "store_list")),
    scope="the rows of sparse matrices that are not empty",
)


def register() -> None:
    operation.register(OPERATION)
    registry.register(FAMILY)


def unregister() -> None:
    registry.unregister(FAMILY.name)
    operation.unregister(NAME)
