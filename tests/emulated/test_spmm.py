"""Kernels of sparse products, executed with checks for races, bounds and uninitialised reads; every element is
compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.families.common.space import families
from ptxgen.families.common.work_list import UNLIMITED, WHOLE, WorkList
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.checks import SpmmOperandSets
from ptxgen.operations.spmm.pattern_statistics import statistics_of
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.base import EXTENT_LIMIT
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import reference, verdict
from ptxgen.runtime.check import check
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.prepared_operands import PreparedOperands
from ptxgen.runtime.runner import Buffers, Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

WIDE = parse_config("family=row_split row_lanes=8 lane_vectors=2 nonzeros_in_flight=4 block_groups=4 vec_b=4")
NARROW = parse_config("family=row_split row_lanes=32 nonzeros_in_flight=8 block_groups=1 vec_b=1")


SHARED = parse_config("family=row_split row_lanes=2 nonzero_groups=4 nonzeros_in_flight=2 block_groups=4 vec_b=4")
SHUFFLED = parse_config("family=row_split row_lanes=8 index_loads=shuffle nonzeros_in_flight=4 block_groups=8 vec_b=4")
SPLIT = parse_config("family=row_split row_lanes=8 block_groups=8 row_order=length longest_part=32 vec_b=4")


@pytest.mark.first(4)
@pytest.mark.parametrize("n", range(24))
def test_random_problems_and_configurations(n: int) -> None:
    on = ("emulated", "t4", "a100", "b200")[n % 4]
    driver = EmulatedDriver()
    for p, c in SOURCES["spmm"].cases(500 + n, 1, device(on), threads=128):
        wrong = [
            f"{r.inputs}: {r.deviation}"
            for r in check_some(driver, p, c, n, (0, 3)[n % 2] if c.vec_b == 1 else 0)
            if not r.ok
        ]
        assert not wrong, f"{p.key()} | {c}"


def multiplied(
    rows: list[list[int]], k: int, n: int, config: Config, dtype: str = "f32", alpha: float = 1.0, beta: float = 0.0
) -> Any:
    """The verdict of a matrix whose rows have these columns."""
    nnz = sum(map(len, rows))
    p = Spmm(len(rows), n, k, dtype=dtype, pattern=f"even:nnz={nnz}", calls=1000)
    arrays = arrays_of(p, 3, "integers")
    arrays["indptr"] = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    arrays["indices"] = np.array([column for row in rows for column in row], np.int32)
    if beta == 0:
        arrays["C"] = np.full_like(arrays["C"], np.nan)
    got = Runner.of(EmulatedDriver(), p, config).compute(arrays, alpha, beta)["C"]
    return verdict("integers", got, reference(p, arrays, alpha, beta))


@pytest.mark.each_value
@pytest.mark.parametrize(
    "config",
    [WIDE, NARROW, SHARED, SHUFFLED, SPLIT, SPLIT.replace(index_loads=1)],
    ids=["wide", "narrow", "nonzero_groups", "shuffle", "parts", "parts_shuffle"],
)
@pytest.mark.parametrize(
    "rows",
    [
        [[], [1], [], [], [0, 2, 3], []],
        [[]] * 5,
        [[], list(range(37)), []],
        [[3, 3, 1, 3], [2, 0, 1], [36, 0, 36]],
        [list(range(i)) for i in range(20)],
        [[1], [2] * 200, [], [3] * 64, [4] * 65],
    ],
    ids=["empty_rows", "no_nonzeros", "one_long_row", "duplicates_unsorted", "every_length", "several_parts"],
)
def test_rows_of_every_kind(rows: list[list[int]], config: Config) -> None:
    n = 33 if config is NARROW else 44
    assert multiplied(rows, 37, n, config).ok
    assert multiplied(rows, 37, n, config, alpha=2.0, beta=-1.0).ok


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("n", [1, 7, 40])
def test_types_and_odd_columns(dtype: str, n: int) -> None:
    p = Spmm(23, n, 31, dtype=dtype, pattern="lognormal:density=0.2,sigma=1")
    vec = 16 // p.element.bytes if n == 40 else 1
    config = parse_config(f"family=row_split row_lanes=4 lane_vectors=2 nonzeros_in_flight=2 vec_b={vec}")
    assert all(r.ok for r in check_some(EmulatedDriver(), p, config))


def test_alpha_0_reads_no_operand() -> None:
    p = Spmm(9, 8, 7, pattern="banded:width=3")
    arrays = arrays_of(p)
    expected = 2 * arrays["C"]
    arrays["values"][:], arrays["B"][:], arrays["indices"][:] = np.nan, np.nan, 1 << 30
    got = Runner.of(EmulatedDriver(), p, WIDE).compute(arrays, 0.0, 2.0)["C"]
    np.testing.assert_array_equal(got, expected)


def test_configurations_add_in_the_same_order() -> None:
    """Each row is added in the order of its nonzeros, so that all configurations give the same bits."""
    p = Spmm(16, 24, 200, pattern="bernoulli:density=0.3")
    arrays = arrays_of(p)
    first, second = (Runner.of(EmulatedDriver(), p, c).compute(arrays, 1.5, 0.5)["C"] for c in (WIDE, NARROW))
    np.testing.assert_array_equal(first, second)


def test_orders_of_rows_give_the_same_bits() -> None:
    """A work list changes the order of rows, but not of a row's sum, and parts are added in order."""
    p = Spmm(90, 24, 300, pattern="lognormal:density=0.2,sigma=2", calls=1000)
    arrays, driver = arrays_of(p), EmulatedDriver()

    def computed(config: Config) -> Any:
        return Runner.of(driver, p, config).compute(arrays, 1.5, 0.5)["C"]

    natural = parse_config("family=row_split row_lanes=8 block_groups=8 vec_b=4")
    np.testing.assert_array_equal(computed(natural), computed(natural.replace(row_order=1)))
    np.testing.assert_array_equal(computed(natural), computed(SHUFFLED))
    np.testing.assert_array_equal(computed(SPLIT), computed(SPLIT))


def test_parts_leave_the_workspace_zero() -> None:
    p = Spmm(40, 24, 300, pattern="lognormal:density=0.2,sigma=2", calls=1000)
    runner = Runner.of(EmulatedDriver(), p, SPLIT)
    with Buffers(runner.driver, arrays_of(p)) as buffers:
        ready = runner.on(buffers.addresses)
        assert ready.launch.workspace > 0
        ready.bind(buffers.addresses)()
        assert not ready.workspace_dirty()


@pytest.mark.parametrize(("longest", "rows"), [(32, 1), (64, 8), (UNLIMITED, 1)])
def test_a_work_list_has_each_element_once(longest: int, rows: int) -> None:
    """Items are by length, and the parts of a segment follow each other."""
    p = Spmm(3000, 8, 500, pattern="lognormal:density=0.1,sigma=2", calls=1000)
    arrays, driver = arrays_of(p), EmulatedDriver()
    starts = arrays["indptr"][::rows]
    starts = starts if starts[-1] == arrays["indptr"][-1] else np.append(starts, arrays["indptr"][-1])
    with Buffers(driver, {**arrays, "indptr": starts}) as buffers:
        made = PreparedOperands(driver, buffers.addresses)
        [work_list] = made.make((WorkList("indptr", rows, longest),), lower(p))
        items, parts = (
            np.zeros((work_list.sizes["items"], 4), np.uint32),
            np.zeros((work_list.sizes["parts"], 2), np.uint32),
        )
        for name, x in (("items", items), ("parts", parts)):
            if x.size:
                driver.download(work_list.arrays[name].address, x)
    lengths = (items[:, 2] - items[:, 1]).astype(np.int64)
    assert lengths.max() <= longest
    whole = lengths[items[:, 3] == WHOLE]
    assert (whole[1:] <= 1.25 * whole[:-1]).all()
    order = np.lexsort((items[:, 1], items[:, 0]))
    segments, first, end, part = items[order].T
    assert set(segments) == set(range(len(starts) - 1))
    for s in range(len(starts) - 1):
        own = segments == s
        assert [*first[own], starts[s + 1]] == [starts[s], *end[own]]
        if own.sum() == 1:
            assert part[own] == WHOLE
        else:
            assert parts[part[own]].tolist() == [[part[own][0], own.sum()]] * own.sum()
            assert (np.diff(part[own].astype(np.int64)) == 1).all()


def test_a_work_list_has_all_parts_though_the_problem_states_fewer_nonzeros() -> None:
    """Handles state rounded statistics. All rows are one longer than a part."""
    p = Spmm(60, 32, 64, pattern="even:nnz=1980")
    arrays = arrays_of(p, 3, "integers")
    arrays["indices"] = np.tile(np.arange(33, dtype=np.int32), 60)
    text = statistics_of(64, arrays["indptr"], arrays["indices"]).rounded().text()
    stated = Spmm(60, 32, 64, pattern=text, calls=1000)
    assert stated.nnz == 1792
    got = Runner.of(EmulatedDriver(), stated, SPLIT).compute(arrays)["C"]
    assert verdict("integers", got, reference(p, arrays)).ok


@pytest.mark.each_pair
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("layout_c", ["N", "T"])
@pytest.mark.parametrize("index", ["i32", "i64"])
def test_column_major_matrices_and_wide_indices(dtype: str, layout: str, layout_c: str, index: str) -> None:
    p = Spmm(23, 9, 31, layout, dtype, pattern="lognormal:density=0.2,sigma=1", index=index, layout_c=layout_c)
    for text in ("row_lanes=4 lane_vectors=2", "row_lanes=4 nonzero_groups=4", "row_lanes=8 index_loads=shuffle"):
        if dtype != "f64" or "shuffle" not in text:
            config = parse_config(f"family=row_split nonzeros_in_flight=2 vec_b=1 {text}")
            wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(EmulatedDriver(), p, config, 1, 2) if not r.ok]
            assert not wrong, text


def test_a_dense_matrix_is_multiplied_by_a_column_major_one() -> None:
    p = Spmm(40, 24, 32, "NT", "f16", pattern="bernoulli:density=0.3", calls=1000)
    config = parse_config("family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=8 epilogue_smem=1")
    assert all(r.ok for r in check(EmulatedDriver(), p, config))
    for other in (replace(p, layout_c="T", ldc=0), replace(p, index="i64")):
        assert [f.name for f in families(lower(other), device("h200"))] == ["row_split"]


def test_starts_beyond_32_bits() -> None:
    """The row begins at nonzero 2³¹ + 5 and needs row 2³⁰ + 3 of B: the arrays have nothing else in memory."""
    driver, first, row = EmulatedDriver(), (1 << 31) + 5, (1 << 30) + 3
    p = Spmm(1, 8, EXTENT_LIMIT - 1, pattern="even:nnz=2", index="i64", ldb=8)
    held = {
        "indptr": np.array([first, first + 2]),
        "indices": np.array([row, row + 1]),
        "values": np.array([2, 3], np.float32),
        "B": np.arange(16, dtype=np.float32),
        "C": np.zeros(8, np.float32),
    }
    with Buffers(driver, held) as buffers:
        at = buffers.addresses
        before = {"indices": 8 * first, "values": 4 * first, "B": 4 * 8 * row}
        at |= {name: (at[name] - n) % (1 << 64) for name, n in before.items()}
        Runner.of(driver, p, parse_config("family=row_split row_lanes=4 nonzeros_in_flight=2 vec_b=2")).bind(at)()
        driver.download(buffers.addresses["C"], got := np.empty(8, np.float32))
    np.testing.assert_array_equal(got, 2 * held["B"][:8] + 3 * held["B"][8:])


# ---- the function on arrays


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")


def operands(m: int, n: int, k: int, dtype: str = "f32", density: float = 0.2) -> tuple[ptxgen.SparseMatrix, Any]:
    arrays = arrays_of(Spmm(m, n, k, dtype=dtype, pattern=f"bernoulli:density={density}"), 1, "integers")
    return ptxgen.SparseMatrix(arrays["indptr"], arrays["indices"], arrays["values"], (m, k)), arrays["B"]


def dense(a: ptxgen.SparseMatrix) -> Any:
    out = np.zeros(a.shape)
    rows = np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))
    np.add.at(out, (rows, a.indices), a.values.astype(np.float64))
    return out


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_arrays_of_numpy(element: str) -> None:
    a, b = operands(21, 13, 17, element)
    got = ptxgen.spmm(a, b)
    assert got.dtype == dtype(element).numpy
    np.testing.assert_array_equal(got.astype(np.float64), dense(a) @ b.astype(np.float64))
    out = np.ones((21, 20), b.dtype)[:, :13]  # rows with gaps
    assert ptxgen.spmm(a, b, out, alpha=2, beta=-1) is out
    np.testing.assert_array_equal(out.astype(np.float64), 2 * dense(a) @ b.astype(np.float64) - 1)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 5), (4, 0, 5), (4, 3, 0), (0, 0, 0)])
def test_empty_extents(m: int, n: int, k: int) -> None:
    a = ptxgen.SparseMatrix(np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32), (m, k))
    b, out = np.ones((k, n), np.float32), np.ones((m, n), np.float32)
    assert not ptxgen.spmm(a, b).any()
    np.testing.assert_array_equal(ptxgen.spmm(a, b, out, beta=3), np.full((m, n), 3))


def test_matrices_of_scipy() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    a, b = operands(12, 9, 15)
    x = scipy.csr_matrix((a.values, a.indices, a.indptr), a.shape)
    np.testing.assert_array_equal(ptxgen.spmm(x, b), dense(a) @ b)
    for form in ("csc", "coo", "bsr"):
        np.testing.assert_array_equal(ptxgen.spmm(x.asformat(form), b), dense(a) @ b)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    a, b = operands(12, 9, 15)
    x = torch.sparse_csr_tensor(*(torch.from_numpy(v) for v in a[:3]), a.shape)
    got = ptxgen.spmm(x, torch.from_numpy(b))
    assert isinstance(got, torch.Tensor)
    np.testing.assert_array_equal(got.numpy(), dense(a) @ b)
    for convert in (x.to_sparse_coo, x.to_sparse_csc, lambda: x.to_sparse_bsr((3, 5))):
        np.testing.assert_array_equal(ptxgen.spmm(convert(), torch.from_numpy(b)).numpy(), dense(a) @ b)
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.ones(2), (2, 15))  # not coalesced
    np.testing.assert_array_equal(ptxgen.spmm(twice, torch.from_numpy(b)).numpy(), [2 * b[1], 0 * b[1]])
    with pytest.raises(ptxgen_error(), match=r"a has layout torch\.strided; it must be one of torch\.sparse_csr"):
        ptxgen.spmm(torch.from_numpy(b), torch.from_numpy(b))
    wide = torch.sparse_csr_tensor(*(torch.from_numpy(v).long() for v in a[:2]), torch.from_numpy(a.values), a.shape)
    np.testing.assert_array_equal(ptxgen.spmm(wide, torch.from_numpy(b)).numpy(), dense(a) @ b)


def ptxgen_error() -> type[Exception]:
    from ptxgen.errors import InputError

    return InputError


F32 = np.float32
INT = np.int32
A = ptxgen.SparseMatrix(np.array([0, 1, 2], INT), np.array([0, 2], INT), np.ones(2, F32), (2, 3))
B = np.ones((3, 4), F32)


@pytest.mark.parametrize(
    ("a", "b", "named", "message"),
    [
        (B, B, {}, "a is ndarray; it must be a sparse matrix of SciPy, CuPy or PyTorch"),
        (A._replace(shape=(2, 3, 1)), B, {}, "a has shape .*; it must have 2 dimensions"),
        (A._replace(shape=(3, 3)), B, {}, "a.indptr has 3 elements; it must have 4"),
        (A._replace(values=np.ones(3, F32)), B, {}, "a.values has 3 elements; it must have 2, as a.indices"),
        (A._replace(values=np.ones((2, 1), F32)), B, {}, r"a.values has shape \(2, 1\); it must have 1 dimension"),
        (
            A._replace(indices=np.arange(4, dtype=INT)[::2]),
            B,
            {},
            "a.indices has strides .*; its elements must be cont",
        ),
        (
            A._replace(indices=np.array([0, 2])),
            B,
            {},
            "a.indptr is int32 and a.indices is int64; they must be the same",
        ),
        (A._replace(indices=np.ones(2, np.int16)), B, {}, "a.indices has dtype int16; it must be int32 or int64"),
        (
            A._replace(indptr=np.arange(3), indices=np.array([0, (1 << 32) + 1])),
            B,
            {},
            r"a.indices\[1\] is 4294967297; it must be at least 0 and less than 3",
        ),
        (A._replace(indptr=np.array([0, 2, 1], INT)), B, {}, "a.indptr is from 0 to 1; it must be from 0 to 2"),
        (
            A._replace(indptr=np.array([0, 3, 2], INT)),
            B,
            {},
            r"a.indptr\[2\] is 2; it must be at least a.indptr\[1\], 3",
        ),
        (
            A._replace(indices=np.array([0, 3], INT)),
            B,
            {},
            r"a.indices\[1\] is 3; it must be at least 0 and less than 3",
        ),
        (A._replace(indices=np.array([-1, 2], INT)), B, {}, r"a.indices\[0\] is -1; it must be at least 0"),
        (A, B.astype(np.float64), {}, "a is f32 and b is f64; they must be the same"),
        (A._replace(values=np.ones(2, np.int8)), B.astype(np.int8), {}, "a has dtype s8; it must be one of f16"),
        (A, np.ones((4, 4), F32), {}, "a has 3 columns and b has 4 rows"),
        (A, np.ones((3, 4, 1), F32), {}, r"b has shape \(3, 4, 1\); it must have 1 or 2 dimensions"),
        (A, np.ones(3, F32), {"out": np.ones((2, 1), F32)}, r"out has shape \(2, 1\); it must be \(2,\)"),
        (A, B, {"beta": 1}, "beta is 1 and out is None"),
        (A, B, {"out": np.ones((2, 3), F32)}, r"out has shape \(2, 3\); it must be \(2, 4\)"),
        (A, B, {"out": np.ones((2, 4))}, "out is f64; it must be f32"),
        (A, B, {"out": B[:2]}, "out shares memory with b"),
        (A, B, {"compute": "f16"}, "compute is 'f16'; with dtype f32 it must be one of"),
        (A, B, {"compute": "f32_bf16x6"}, "a and b are f32; no kernel multiplies f32 summed in f32_bf16x6"),
        (A, B, {"alpha": "x"}, "alpha is 'x'; it must be a real number"),
    ],
)
def test_errors_name_the_argument_and_the_rule(a: Any, b: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(ptxgen_error(), match=message):
        ptxgen.spmm(a, b, **named)


def test_operand_sets_exceed_the_l2_without_the_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared formats have fewer bytes than CSR: values, B and C alone are l2_multiple times the cache."""
    driver = EmulatedDriver()
    monkeypatch.setattr(driver, "clock", "hardware")
    p = Spmm(64, 8, 128, dtype="f16", pattern="even:nnz=4096")
    read = 2 * (4096 + 128 * 8 + 64 * 8)
    monkeypatch.setattr(driver, "device", replace(driver.device, l2=read))
    sets = SpmmOperandSets(driver, p, Timing(l2_multiple=3))
    assert len(sets.sets) == 3
    sets.release()
