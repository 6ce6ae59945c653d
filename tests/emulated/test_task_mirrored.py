"""Tasks with one array on both sides, of which kernels compute the pairs with i ≤ j: results are those of all pairs.
Kernels are executed with checks for races, bounds and uninitialised reads."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.api import on_host
from ptxgen.api.task import matmul_over, task
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.launches import result_ranges
from ptxgen.errors import CapacityError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.kernel_problem import GemmExtents, MirroredExtents
from ptxgen.lowering.lower import lower
from ptxgen.lowering.sink import ValueSink
from ptxgen.operations.task.explanation import explanation
from ptxgen.operations.task.language.parser import parse as parse_text
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.speed import SPR, least_us
from ptxgen.operations.task.suites import QUERIES, typed_text
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.selection import select
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

PLAIN = "cp_async_a=0 cp_async_b=0 vec_a=1 vec_b=1"
TILES = {
    "registers": f"ms=4 ns=2 ml=32 nl=16 u=8 {PLAIN}",
    "shared_memory": f"ms=2 ns=4 ml=16 nl=32 u=8 epilogue_smem=1 {PLAIN}",
    "thread_groups": f"ms=2 ns=2 ml=16 nl=16 u=8 kl=2 {PLAIN}",
    "slices": f"ms=2 ns=2 ml=16 nl=16 u=8 kg=3 splitk=workspace {PLAIN}",
}
LISTS = typed_text(QUERIES["q6"], "f32")
MATRIX = "X:f32[i,k];c:f32[j];where(i,j){reduce(k){accum max= abs(X[i,k]-X[j,k]);}D[i,j]=accum+c[j];}"


@pytest.mark.first(4)
@pytest.mark.parametrize("n", range(8))
def test_random_problems_and_configurations(n: int) -> None:
    on, driver = ("emulated", "t4", "a100", "b200")[n % 4], EmulatedDriver()
    for p, c in SOURCES["task_mirrored"].cases(720 + n, 1, device(on), limit=70, threads=128):
        padding = 3 if n % 2 and c.vec_a == c.vec_b == 1 else 0
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(driver, p, c, n, padding) if not r.ok]
        assert not wrong, f"{p.key()} | {c}"


@pytest.mark.each_value
@pytest.mark.parametrize("config", TILES.values(), ids=TILES)
@pytest.mark.parametrize("text", [LISTS, MATRIX], ids=["lists", "matrix"])
@pytest.mark.parametrize("m", [1, 17, 37])
def test_results_are_those_of_all_pairs(m: int, text: str, config: str) -> None:
    driver, p = EmulatedDriver(), Task(m, m, 21, text=text, capacity=m * m)
    whole = replace(p, algebra=False)
    assert p.mirrored
    assert not whole.mirrored
    x = np.random.default_rng(m).integers(-3, 4, (m, 21)).astype("f4")
    results = []
    for each in (p, whole):
        given = {"A": x, "B": x} | ({} if p.selected else {"input0": np.arange(m, dtype="f4")})
        given |= {name: np.full(r.shape, -1, r.dtype.numpy) for name, r in each.result_arrays.items()}
        scalars = {**each.typical_scalars, "scalar0": 40.0} if p.selected else {}
        results.append(Runner.of(driver, each, parse_config(config)).compute(given, scalars=scalars))
    if p.selected is None:
        np.testing.assert_array_equal(results[0]["C"], results[1]["C"])
        return
    assert results[0]["count"] == results[1]["count"]
    rows = [sorted(zip(*(out[name].tolist() for name in ("C", "C_1", "C_2")), strict=True)) for out in results]
    assert rows[0] == rows[1]


ROWS = "X:f32[i,k];where(i,j)when(i!=j){reduce(k){accum+=abs(X[i,k]-X[j,k]);}D[AXIS]OP;}"


@pytest.mark.each_value
@pytest.mark.parametrize("config", TILES.values(), ids=TILES)
@pytest.mark.parametrize("op", ["=argmin(D[AXIS],accum)", "+=accum*f32(j)"])
@pytest.mark.parametrize("axis", "ij")
def test_rows_and_columns_reduce_all_pairs(axis: str, op: str, config: str) -> None:
    text = ROWS.replace("OP", op).replace("AXIS", axis)
    for m in (1, 37):
        p = Task(m, m, 21, text=text)
        assert p.mirrored
        assert lower(p).extents == MirroredExtents(m, m, 21)
        assert all(r.ok for r in check_some(EmulatedDriver(), p, parse_config(config)))


READ = "X:TYPE[i,k];c:f32[i];d:f32[j];e:f32[i,j];f:f32[j,i];"
RANGES = READ + "where(i,j)when(WHEN){reduce(k){accum+=STEP;}D[AXIS]OP;}"
VALUE = "f32(accum)+2*c[i]-d[j]+3*e[i,j]-f[j,i]"
WGMMA = "family=wgmma ml=64 nl=64 math_warpgroups=1 u=64 stages=2 transposed_mma=1"


@pytest.mark.each_value
@pytest.mark.parametrize("config", [*TILES.values(), WGMMA], ids=[*TILES, "wgmma"])
@pytest.mark.parametrize("op", ["argmin", "+"])
@pytest.mark.parametrize("when", ["i!=j", "abs(i-j)<20"])
@pytest.mark.parametrize("axis", "ij")
def test_ranges_of_rows_join_kept_states(
    axis: str, when: str, op: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range of rows has states of all later columns, too; positions count from its first row."""
    wgmma = config == WGMMA
    m, dtype, step = (136, "f16", "f32(X[i,k])*f32(X[j,k])") if wgmma else (70, "f32", "abs(X[i,k]-X[j,k])")
    text = RANGES.replace("TYPE", dtype).replace("STEP", step).replace("WHEN", when)
    text = text.replace("OP", f"=argmin(D[AXIS],{VALUE})" if op == "argmin" else f"+={VALUE}").replace("AXIS", axis)
    p, rng = Task(m, m, 24, "NT", dtype, text=text), np.random.default_rng(m)
    (c, d), (e, f) = rng.integers(-3, 4, (2, m)), rng.integers(-3, 4, (2, m, m))
    x = rng.integers(-3, 4, (m, 24))
    i, j = np.arange(m)[:, None], np.arange(m)
    taken = i != j if when == "i!=j" else abs(i - j) < 20
    sums = x @ x.T if wgmma else abs(x[:, None] - x).sum(-1)
    values, along = sums + 2 * c[:, None] - d + 3 * e - f.T, "ij".index(axis) ^ 1
    expected = (
        np.where(taken, values, 1 << 20).argmin(along) if op == "argmin" else np.where(taken, values, 0).sum(along)
    )
    whole = plan_for(p, parse_config(config), device("h200")).launch(lower(p))
    monkeypatch.setattr(result_ranges, "LIMIT", whole.workspace // 3)
    monkeypatch.setattr(result_ranges, "STEP", 16)
    runner = Runner.of(EmulatedDriver(device("h200")), p, parse_config(config))
    entries = ["_" + step.entry.rsplit("_", 1)[1] for step in runner.launch.steps]
    assert p.mirrored
    assert entries.count("_keep") >= 5
    assert entries.count("_join") == 1
    states = 4 * m * (2 if op == "argmin" else 1)
    assert runner.launch.workspace <= whole.workspace * (0.75 if wgmma else 0.6) + states
    given = dict(zip("AB", (x, x), strict=True)) | {f"input{n}": v for n, v in enumerate((c, d, e, f))}
    arrays = {name: given[name].astype("f2" if name in "AB" and wgmma else "f4") for name in given}
    arrays |= {name: np.full(r.shape, -7, r.dtype.numpy) for name, r in p.result_arrays.items()}
    np.testing.assert_array_equal(runner.compute(arrays)["C"], expected)


def test_ranges_count_indices_from_their_first_row() -> None:
    """Expressions that read an index or an extent by itself have one range."""
    whole = "X:f32[i,k];where(i,j){reduce(k){accum+=abs(X[i,k]-X[j,k]);}D[i]argmin=VALUE;}"
    p = Task(1 << 16, 1 << 16, 24, "NT", text=whole.replace("VALUE", "accum"))
    launch = plan_for(p, parse_config(TILES["registers"]), device("h200")).launch(lower(p))
    assert launch.workspace <= result_ranges.LIMIT + 8 * p.m
    for value in ("accum+f32(j)", "accum+f32(M)", "accum+f32(max(i,j))"):
        p = replace(p, text=whole.replace("VALUE", value))
        assert p.mirrored
        assert not result_ranges.separable(lower(p))
    assert result_ranges.separable(lower(replace(p, text=whole.replace("VALUE", "accum+f32(abs(i-j))"))))


@pytest.mark.each_value
@pytest.mark.parametrize("tile", [(16, 16, 10), (16, 32, 6), (32, 16, 6), (64, 64, 1)])
@pytest.mark.parametrize("slices", ["", " kg=2 splitk=workspace"])
def test_tiles_below_the_diagonal_are_not_computed(tile: tuple[int, int, int], slices: str) -> None:
    ml, nl, tiles = tile
    driver, p = EmulatedDriver(), Task(64, 64, 32, text=MATRIX)
    launch, computed = driver.machine.launch, []

    def counted(*given: Any, **named: Any) -> Any:
        stats = launch(*given, **named)
        computed.append(stats.lane_instructions["fp32"])
        return stats

    driver.machine.launch = counted  # type: ignore[method-assign]
    config = parse_config(f"ms=2 ns=2 ml={ml} nl={nl} u=8{slices}")
    x = np.zeros((64, 32), "f4")
    given = {"A": x, "B": x, "input0": np.zeros(64, "f4"), "C": np.zeros((64, 64), "f4")}
    Runner.of(driver, p, config).compute(given)
    assert lower(p).extents.tiles(ml, nl) == tiles
    instructions = 3 * tiles * ml * nl * 32  # a difference, its magnitude, the maximum
    assert instructions <= computed[0] < 1.1 * instructions


NOT_SYMMETRIC = [
    "reduce (k) { accum += max(X[i,k], 2 * X[j,k]); } C[i,j] = accum;",
    "reduce (k) { accum += X[i,k] - X[j,k]; } C[i,j] = accum;",
    "reduce (k) { accum += max(X[i,k], X[j,k]) * f32(i); } C[i,j] = accum;",
    "reduce (k) { accum += max(X[i,k], X[j,k]) + v[i,j]; } C[i,j] = accum;",
    "reduce (k) { accum += max(X[i,k], X[k,j]); } C[i,j] = accum;",
    "reduce (k) { accum += max(X[i,k], Y[j,k]); } C[i,j] = accum;",
    "reduce (k) { accum += X[i,k] * X[j,k]; } C[i,j] = accum;",  # a GEMM
]


@pytest.mark.parametrize("body", NOT_SYMMETRIC)
def test_other_programs_compute_all_pairs(body: str) -> None:
    text = f"where (i, j) {{ {body} }}"
    p = Task(20, 20, 20, text=text)
    assert not p.mirrored
    assert type(lower(p).extents) is GemmExtents
    assert not getattr(lower(p).sink, "mirrored", False)


#: of sums, of pairs on one side of others, of values that are not symmetric
GROUPS = (
    "g:s32[i];where(i,j){reduce(k){S}C[g[i],g[j]]+=accum;}",
    "g:s32[i];h:s32[j];where(i,j)when(i!=j){reduce(k){S}C[h[j],g[i]]max=accum+f32(i);}",
    "g:s32[i];where(i,j){reduce(k){S}C[g[i],j]+=accum>80.0;}",
)


@pytest.mark.each_value
@pytest.mark.parametrize("config", TILES.values(), ids=TILES)
@pytest.mark.parametrize("text", GROUPS)
def test_groups_reduce_all_pairs(text: str, config: str) -> None:
    """Keys are sorted, in any order with some out of range, and all equal."""
    p = Task(37, 37, 21, text=text.replace("S", "accum+=max(X[i,k],X[j,k]);"), groups="37,37")
    assert p.mirrored
    assert lower(p).extents == MirroredExtents(37, 37, 21)
    c = parse_config(config).replace(epilogue_smem=0)
    assert all(r.ok for r in check_some(EmulatedDriver(), p, c))


@pytest.mark.each_value
@pytest.mark.parametrize("text", GROUPS)
@pytest.mark.parametrize(
    "config",
    [
        "family=mma ms=16 ns=16 ml=32 nl=32 u=32 vec_a=8 vec_b=8",
        "family=wgmma ml=64 nl=32 u=64",
        "family=wgmma ml=64 nl=128 u=32 transposed_mma=1 math_warpgroups=2 persistent=1",
    ],
)
def test_groups_of_products_on_tensor_cores(config: str, text: str) -> None:
    task = text.replace("S", "accum+=X[i,k]*X[j,k];")
    p = Task(136, 136, 40, "", "f16", text=f"X:f16[i,k];{task}", groups="136,140")
    assert p.mirrored
    assert all(r.ok for r in check_some(EmulatedDriver(device("h200")), p, parse_config(config).replace(vec_c=1)))


@pytest.mark.each_value
@pytest.mark.parametrize("output", ["C[i]=argmax(C[i],accum)", "C[j]+=accum*f32(i)", "C[i]=min(C[i],accum)"])
@pytest.mark.parametrize(
    "config",
    [
        "ml=64 nl=32 u=64",
        "ml=32 nl=128 u=32 transposed_mma=1 math_warpgroups=2",
        "ml=128 nl=32 u=32 math_warpgroups=2 pingpong=1 persistent=1",
        "ml=64 nl=32 u=32 cluster_x=2 cluster_y=2",
        "ml=64 nl=32 u=32 cluster_k=2 persistent=0",
    ],
)
def test_rows_and_columns_of_products_on_wgmma(config: str, output: str) -> None:
    """Tiles below the diagonal store no states."""
    text = f"X:f16[i,k];where(i,j)when(i!=j){{reduce(k){{accum+=X[i,k]*X[j,k];}}{output};}}"
    p = Task(150, 150, 64, "", "f16", text=text)
    assert p.mirrored
    assert all(
        r.ok for r in check_some(EmulatedDriver(device("h200")), p, parse_config(f"family=wgmma {config} vec_c=1"))
    )


@pytest.mark.parametrize("config", ["", "transposed_mma=1", "math_warpgroups=2 pingpong=1 persistent=1"])
def test_tiles_of_rows_without_a_pair_are_skipped(config: str) -> None:
    text = "A:f16[i,k];B:f16[k,j];where(i,j)when(i+64<j){reduce(k){accum+=A[i,k]*B[k,j];}C[i]=max(C[i],accum);}"
    driver, p = EmulatedDriver(device("h200")), Task(192, 192, 64, dtype="f16", text=text)
    launch, products = driver.machine.launch, []

    def counted(*given: Any, **named: Any) -> Any:
        stats = launch(*given, **named)
        products.append(stats.mma)
        return stats

    driver.machine.launch = counted  # type: ignore[method-assign]
    x, y = (np.random.default_rng(n).integers(-3, 4, (192, 192)).astype("f2")[:, :64] for n in (0, 1))
    runner = Runner.of(driver, p, parse_config(f"family=wgmma ml=64 nl=64 u=64 {config}"))
    out = runner.compute({"A": x, "B": np.ascontiguousarray(y.T), "C": np.zeros(192, "f4")})["C"]
    i, j = np.mgrid[:192, :192]
    assert np.array_equal(out, np.where(i + 64 < j, x.astype("f4") @ y.T.astype("f4"), -np.inf).max(1))
    assert sum(products) == 3 * 4  # three tiles of four steps


def test_groups_in_a_fixed_order_compute_all_pairs() -> None:
    text = GROUPS[0].replace("S", "accum+=max(X[i,k],X[j,k]);")
    assert not Task(20, 20, 20, text=text, groups="4,4", deterministic=True).mirrored
    exact = GROUPS[2].replace("S", "accum+=max(X[i,k],X[j,k]);")
    assert Task(20, 20, 20, text=exact, groups="4,20", deterministic=True).mirrored


def test_pairs_that_are_excluded_on_one_side_compute_all() -> None:
    body = "{ reduce (k) { accum += max(X[i,k], X[j,k]); } C[i,j] = accum; }"
    assert not Task(20, 20, 20, text=f"where (i, j) when (i < j) {body}").mirrored
    assert not Task(20, 20, 20, text=f"t: f32[i]; where (i, j) when (t[i] < t[j]) {body}").mirrored
    assert Task(20, 20, 20, text=f"where (i, j) when (abs(j - i) < 3) {body}").mirrored
    assert Task(20, 20, 20, text=f"t: f32[i]; where (i, j) when (t[i] == t[j]) {body}").mirrored


def test_the_text_names_one_array() -> None:
    p = Task(20, 20, 9, text=LISTS, capacity=7)
    assert "B" not in p.text
    assert parse(p.key()) == p
    assert p.layout == "NT"
    changes: list[dict[str, Any]] = [
        {"m": 19},
        {"layout": "NN", "ldb": 0},
        {"lda": 12},
        {"aligned_b": 4},
        {"algebra": False},
    ]
    for change in changes:
        whole = replace(p, **change)
        assert "B:f32[j,k]" in whole.text
        assert not whole.mirrored
        assert parse(whole.key()) == whole
    assert not p.with_rows(5).mirrored


def test_explanations_tell_it() -> None:
    program = parse_text(LISTS, {})
    told = "rewriting: (i, j) and (j, i) have the same reduction, which is computed for i <= j; "
    assert any(line.startswith(told) for line in explanation(program))
    assert not any(line.startswith(told) for line in explanation(program, algebra=False))


# ---- products


PRODUCT = "X:f16[i,k];s:f32;where(i,j){reduce(k){accum+=X[i,k]*X[j,k];}OUTPUT}"


@pytest.mark.each_value
@pytest.mark.parametrize("output", ["accum>s?L.add(accum,i,j);", "C[i,j]=accum>s?accum:f32(i);"])
@pytest.mark.parametrize(
    "config",
    [
        "family=mma ms=16 ns=16 ml=32 nl=32 u=32 vec_a=8 vec_b=8 epilogue_smem=1",
        "family=mma ms=16 ns=16 ml=32 nl=32 u=32 kg=2 splitk=workspace vec_a=8 vec_b=8",
        "family=wgmma ml=64 nl=32 u=64 vec_c=1",
        "family=wgmma ml=32 nl=64 u=64 transposed_mma=1 vec_c=1",
        "family=wgmma ml=128 nl=32 u=32 math_warpgroups=2 pingpong=1 persistent=1 vec_c=1",
        "family=wgmma ml=64 nl=32 u=32 cluster_x=2 vec_c=1",
        "family=wgmma ml=64 nl=32 u=16 kg=3 splitk=workspace vec_c=1",
    ],
)
def test_products_on_tensor_cores(config: str, output: str) -> None:
    p = Task(136, 136, 64, "", "f16", text=PRODUCT.replace("OUTPUT", output), capacity=136 * 136)
    assert p.mirrored
    assert lower(p).mirrored
    assert all(r.ok for r in check_some(EmulatedDriver(device("h200")), p, parse_config(config)))


def test_a_product_of_matrices_is_a_gemm() -> None:
    p = Task(72, 72, 64, "", "f16", text=PRODUCT.replace("OUTPUT", "C[i,j]=f16(accum);").replace("s:f32;", ""))
    assert lower(p).name == "gemm_f16_nt"


def test_the_model_predicts_products_of_half_of_the_pairs() -> None:
    h100 = device("h100")
    text = PRODUCT.replace("OUTPUT", "accum>s?L.add(accum,i,j);")
    for dtype, least in (("f16", 1.1), ("f32", 1.5)):
        p = Task(4096, 4096, 4096, "", dtype, text=text.replace("f16", dtype), capacity=1000)
        half, whole = (select(x, h100)[0] for x in (p, replace(p, algebra=False)))
        assert whole.us / half.us > least
        assert half.config.family == whole.config.family


# ---- predictions


def test_work_is_that_of_half_of_the_pairs() -> None:
    h100 = device("h100")
    p = Task(4096, 4096, 4096, text=LISTS, capacity=1000)
    whole = replace(p, algebra=False)
    assert p.flops == lower(p).flops == 4096 * 4097 * 4096
    assert p.bytes == whole.bytes - 4 * 4096 * 4096
    assert least_us(p, h100) == pytest.approx(least_us(whole, h100) / 2, rel=1e-3)
    assert SPR.of(p, 100.0) == SPR.of(whole, 100.0)
    times = [select(x, h100)[0].us for x in (p, whole)]
    assert 1.8 < times[1] / times[0] < 2.2


@pytest.mark.each_pair
@pytest.mark.parametrize("ml", [16, 48, 64, 128])
@pytest.mark.parametrize("nl", [16, 32, 96, 128])
@pytest.mark.parametrize("m", [1, 64, 130, 1000])
def test_tiles_with_a_pair_are_counted(m: int, ml: int, nl: int) -> None:
    rows, columns = np.mgrid[: -(-m // ml), : -(-m // nl)]
    tiles = int((rows * ml <= np.minimum((columns + 1) * nl, m) - 1).sum())
    tile_count = MirroredExtents(m, m, 8, batch=3).tiles(ml, nl)
    assert tile_count % 3 == 0
    exact = math.gcd(ml, nl) in (ml, nl)
    assert (
        tile_count // 3 == tiles if exact and len(rows) % max(nl // ml, 1) == 0 else abs(tile_count // 3 - tiles) <= 2
    )


# ---- calls


@pytest.mark.parametrize("m", [1, 40])
def test_calls_have_all_results(m: int) -> None:
    x = np.random.default_rng(m).integers(-3, 4, (m, 9)).astype(np.float32)
    complement = (np.maximum(x[:, None], x[None]) ** 2).sum(-1)
    query6 = task(QUERIES["q6"])
    scalar = float(np.sort(complement.ravel())[-min(3, m)]) - 0.5
    i, j = np.nonzero(complement > scalar)
    for algebra in (True, False):
        hits = query6(R=x, thres=scalar, sorted=True, algebra=algebra)
        assert hits.count == len(i)
        assert np.array_equal(hits.i, i)
        assert np.array_equal(hits.j, j)
        assert np.array_equal(hits.values, complement[i, j])
    for capacity in (0, len(i) - 1, len(i)):
        hits = query6(R=x, thres=scalar, capacity=capacity, overflow="truncate")
        assert (hits.count, len(hits.values)) == (len(i), min(capacity, len(i)))
        assert len({*zip(hits.i.tolist(), hits.j.tolist(), strict=True)}) == len(hits)
        assert np.array_equal(hits.values, complement[hits.i, hits.j])
    if len(i) > 1:
        with pytest.raises(CapacityError):
            query6(R=x, thres=scalar, capacity=len(i) - 1, overflow="error")
    assert query6(R=x, thres=-1.0, capacity=1).count == m * m  # lists grow


def test_excluded_elements_of_a_matrix_keep_their_values() -> None:
    x = np.random.default_rng(0).integers(-3, 4, (21, 5)).astype(np.float32)
    out = np.full((21, 21), 7, np.float32)
    text = "where (i, j) when (i != j) { reduce (k) { accum += abs(X[i,k] - X[j,k]); } C[i,j] = accum; }"
    task(text)(X=x, out=out)
    distances = np.abs(x[:, None] - x).sum(-1)
    assert np.array_equal(out, np.where(np.eye(21, dtype=bool), 7, distances))


def test_nearest_neighbours_among_the_rows_of_an_array() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (50, 5)).astype(np.float32)
    distances = np.abs(x[:, None] - x).sum(-1)
    np.fill_diagonal(distances, np.inf)
    text = "where (i, j) when (i != j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } C[i] argmin= accum; }"
    for algebra in (True, False):
        assert np.array_equal(task(text)(P=x, R=x, algebra=algebra), distances.argmin(1))


def test_batches_of_one_array() -> None:
    x = np.random.default_rng(0).integers(-3, 4, (3, 19, 5)).astype(np.float32)
    distances = task("where (i, j) { reduce (k) { accum += abs(X[i,k] - X[j,k]); } C[i,j] = accum; }")(X=x)
    assert np.array_equal(distances, np.abs(x[:, :, None] - x[:, None]).sum(-1))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The problems that calls compute."""
    problems: list[Task] = []
    compute = on_host.compute_on_host
    monkeypatch.setattr(
        on_host, "compute_on_host", lambda p, *rest, **named: problems.append(p) or compute(p, *rest, **named)
    )
    return problems


def test_an_array_that_is_passed_twice_is_one(computed: list[Task]) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (19, 19)).astype(np.float32)
    distances = task("where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } C[i,j] = accum; }")
    assert np.array_equal(distances(P=x, R=x), np.abs(x[:, None] - x).sum(-1))
    assert np.array_equal(distances(P=x, R=x, algebra=False), np.abs(x[:, None] - x).sum(-1))
    assert np.array_equal(distances(P=x, R=x.copy()), np.abs(x[:, None] - x).sum(-1))
    assert np.array_equal(distances(P=x, R=x.T), np.abs(x[:, None] - x.T).sum(-1))
    assert np.array_equal(distances(P=x[:, 1:], R=x[:, :-1]), np.abs(x[:, None, 1:] - x[:, :-1]).sum(-1))
    assert np.array_equal(distances(P=x[::2], R=x[::2]), np.abs(x[::2, None] - x[::2]).sum(-1))
    assert [p.mirrored for p in computed] == [True, False, False, False, False, True]


def test_a_transpose_that_is_passed_is_the_array(computed: list[Task]) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (19, 7)).astype(np.float32)
    square = np.ascontiguousarray(x[:7])
    expected = (x[:, :, None] + x.T[None]).min(1)
    assert np.array_equal(matmul_over("min_plus", x, x.T), expected)
    assert np.array_equal(matmul_over("min_plus", square, square), (square[:, :, None] + square[None]).min(1))
    least = task("where (i, j) { reduce (k) { accum = min(accum, P[i,k] + R[k,j]); } accum < t ? L.add(i, j, accum); }")
    hits = least(P=x, R=x.T, t=-2.0, sorted=True)
    assert np.array_equal(np.stack([hits.i, hits.j]), np.nonzero(expected < -2))
    assert [p.mirrored for p in computed] == [True, False, True]


# ---- planted faults


@pytest.mark.each_value
@pytest.mark.parametrize("config", [TILES["registers"], TILES["slices"]], ids=["registers", "slices"])
@pytest.mark.parametrize("fault", ["twice on the diagonal", "never exchanged", "whole tiles twice"])
def test_check_finds_a_fault(fault: str, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxgen.expr.node import node, variable
    from ptxgen.expr.value_types import PRED

    i, j = variable("i", "s32"), variable("j", "s32")
    both = ValueSink._of_half

    def planted(sink: ValueSink, condition: Any, exchanged: bool = False) -> Any:
        if fault == "whole tiles twice":
            return both(replace(sink, mirrored=False), condition)
        if exchanged:
            wrong = node("<=", PRED, j, i) if fault == "twice on the diagonal" else node("<", PRED, i, j)
            return wrong if condition is None else node("&", PRED, wrong, condition)
        return both(sink, condition)

    monkeypatch.setattr(ValueSink, "_of_half", planted)
    for text in (LISTS, ROWS.replace("OP", "+=accum+1").replace("AXIS", "i").replace("when(i!=j)", "")):
        p = Task(37, 37, 21, text=text, capacity=37 * 37)
        assert p.mirrored
        assert not all(r.ok for r in check(EmulatedDriver(), p, parse_config(config)))
