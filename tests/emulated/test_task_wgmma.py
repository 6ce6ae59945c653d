"""Tasks on wgmma: values of sums of products from registers, and selected results. Kernels are executed with checks for
races, bounds and uninitialised reads; every result is compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import FAMILIES, parse_config
from ptxgen.codegen.render import render
from ptxgen.families.common.rules import first_violation, legal
from ptxgen.families.common.space import candidates
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

HOPPER = device("h200")
CONFIGS = {
    "pairs": "ml=64 nl=32 u=64 vec_c=2",
    "transposed": "ml=32 nl=64 u=64 transposed_mma=1",
    "pingpong": "ml=128 nl=32 u=32 math_warpgroups=2 pingpong=1 persistent=1",
    "workspace": "ml=64 nl=32 u=16 kg=3 splitk=workspace",
    "last_cta": "ml=64 nl=32 u=16 cluster_k=2 kg=2 splitk=last_cta stages=2",
    "distributed": "ml=64 nl=32 u=32 kg=2 splitk=distributed",
}
VALUE = "A:f16[i,k];B:f16[k,j];r:f32[i];s:f32;where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}C[i,j]=max(accum*s,0)+r[i];}"
SELECT = "A:f16[i,k];B:f16[k,j];s:f32;where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}accum>s?L.add(accum,i,j);}"
MEAN = "A:f16[i,k];B:f16[k,j];where(i,j){reduce(k){accum=mean(accum,A[i,k]*B[k,j]);}C[i,j]=accum;}"


def wgmma(text: str) -> str:
    return f"family=wgmma {text}"


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(24))
def test_random_problems_and_configurations(n: int) -> None:
    for p, c in SOURCES["task_wgmma"].cases(300 + n, 1, HOPPER, limit=150):
        wrong = [f"{r.inputs}: {r.deviation}" for r in check_some(EmulatedDriver(HOPPER), p, c, n) if not r.ok]
        assert not wrong, f"{p.key()} | {c}: {wrong}"


@pytest.mark.each_value
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    ("shape", "first"), [((64, 32, 64), 0), ((65, 40, 136), 1), ((1, 8, 64), 1), ((127, 31, 61), 0)], ids=str
)
def test_values(shape: tuple[int, int, int], first: int, config: str) -> None:
    """Values and means in turn."""
    text = (VALUE, MEAN)[(first + list(CONFIGS.values()).index(config)) % 2]
    p, c = Task(*shape, dtype="f16", text=text), parse_config(wgmma(config))
    if shape[1] % 2:
        c = c.replace(vec_c=1)
    if any(x % 8 for x in shape[1:]):
        c = c.replace(operand_path_a=1, operand_path_b=1)
        c = c.replace(splitk=parse_config(wgmma("kg=2 splitk=workspace")).splitk) if c.kg > 1 else c
    for row in check_some(EmulatedDriver(HOPPER), p, c, 1):
        assert row.ok, f"{row.inputs}: {row.deviation}"


@pytest.mark.each_value
@pytest.mark.parametrize("scalar", [-np.inf, np.inf, 0.0, np.nan], ids=["all", "none", "ties", "nan"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_selected_results(config: str, scalar: float) -> None:
    m, n, k = 70, 40, 64
    rng = np.random.default_rng(5)
    arrays = {"A": rng.integers(-3, 4, (m, k)).astype("f2"), "B": rng.integers(-3, 4, (k, n)).astype("f2")}
    product = arrays["A"].astype("f4") @ arrays["B"].astype("f4")
    selected = product > scalar
    p = Task(m, n, k, dtype="f16", text=SELECT, capacity=m * n)
    given = {name: np.full(x.shape, -1, x.dtype.numpy) for name, x in p.result_arrays.items()}
    c = parse_config(wgmma(config)).replace(vec_c=1)
    out = Runner.of(EmulatedDriver(HOPPER), p, c).compute({**arrays, **given}, scalars={"scalar0": scalar})
    count = int(selected.sum())
    assert out["count"] == [count]
    i, j = out["C_1"][:count], out["C_2"][:count]
    assert {*zip(i.tolist(), j.tolist(), strict=True)} == {*map(tuple, np.argwhere(selected).tolist())}
    assert (out["C"][:count] == product[i, j]).all()


#: configurations whose threads have 64 results or more
LARGE = {
    "two_warpgroups": "ml=256 nl=64 u=32 math_warpgroups=2 persistent=1",
    "transposed": "ml=128 nl=256 u=32 transposed_mma=1 math_warpgroups=2",
    "three_fragments": "ml=192 nl=48 u=32",
    "pingpong": "ml=128 nl=64 u=32 math_warpgroups=2 pingpong=1 persistent=1",
}
LISTED = (
    "A:f16[i,k];B:f16[k,j];r:f32[i];c:f32[j];t:f32[i,j];u:f32[j,i];s:f32;"
    "where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}CONDITION?L.add(accum*c[j]+r[i]+s,j,u[j,i]-t[i,j],i);}"
)


CONDITIONS = ("accum>s*9.5+f32(N)*0.125", "accum+c[j]>r[i]", "t[i,j]>3.0+s", "accum>s*30.0")


@pytest.mark.parametrize(("config", "condition"), list(zip(LARGE.values(), CONDITIONS, strict=True)), ids=LARGE)
def test_lists_of_large_tiles(config: str, condition: str) -> None:
    p = Task(149, 139, 40, dtype="f16", text=LISTED.replace("CONDITION", condition), capacity=21000, ldb=144)
    for row in check_some(EmulatedDriver(HOPPER), p, parse_config(wgmma(config)).replace(vec_c=1), 1):
        assert row.ok, f"{row.inputs}: {row.deviation}"


#: outputs of groups: counts, sums of floats, of pairs alone, of columns that all have other keys, by compare and swap
GROUPED = (
    "s:f32;where(i,j){reduce(k){S}C[g[i],h[j]]+=accum>s*2.5;}",
    "where(i,j)when(i+70>j){reduce(k){S}C[h[j],g[i]]+=accum;}",
    "c:f32[j];where(i,j){reduce(k){S}C[g[i],h[j]]max=accum*c[j];}",
    "where(i,j)when(g[i]!=h[j]){reduce(k){S}C[h[j],g[i]]*=1.0+f32(accum>30.0);}",
)


@pytest.mark.parametrize(("config", "text"), list(zip(LARGE.values(), GROUPED, strict=True)), ids=LARGE)
def test_groups_of_large_tiles(config: str, text: str) -> None:
    """Keys are sorted, in any order with some out of range, and all equal."""
    groups = "9,12" if "max=" in text or "*=" in text else "40,64"
    text = "A:f16[i,k];B:f16[k,j];g:s32[i];h:s32[j];" + text.replace("S", "accum+=A[i,k]*B[k,j];")
    p = Task(149, 139, 40, dtype="f16", text=text, groups=groups, ldb=144)
    for row in check_some(EmulatedDriver(HOPPER), p, parse_config(wgmma(config)).replace(vec_c=1), 1):
        assert row.ok, f"{row.inputs}: {row.deviation}"


def test_sorted_keys_take_few_atomic_instructions() -> None:
    """Runs of rows and columns with one key are joined in registers: each warp has one key along rows and seven along
    columns."""
    arrays = {"A": np.ones((128, 16), "f2"), "B": np.ones((16, 256), "f2")}
    arrays |= {"input0": np.arange(128, dtype="i4") // 32, "input1": np.arange(256, dtype="i4") // 37}
    text = reduced("C[g[i],h[j]]+=accum>s")
    p = Task(128, 256, 16, dtype="f16", text=text, groups="4,7")
    driver = EmulatedDriver(HOPPER)
    launch, atomics = driver.machine.launch, Counter[float]()

    def counted(*given: Any, **named: Any) -> Any:
        stats = launch(*given, **named)
        atomics[limit] += stats.atomics
        return stats

    driver.machine.launch = counted  # type: ignore[method-assign]
    runner = Runner.of(driver, p, parse_config(wgmma("ml=128 nl=256 u=16 math_warpgroups=2")))
    zeros = {name: np.zeros(x.shape, x.dtype.numpy) for name, x in p.result_arrays.items()}
    for limit in (1.0, 16.0):
        out = runner.compute({**arrays, **zeros}, scalars={"scalar0": limit})
        expected = np.zeros((4, 7), "i4")
        np.add.at(expected, (arrays["input0"][:, None], arrays["input1"]), limit < 16)
        assert np.array_equal(out["C"], expected)
    assert atomics[1.0] - atomics[16.0] == 8 * 7  # values that change nothing are not written


@pytest.mark.parametrize("family", ["wgmma ml=64 nl=32 u=32", "mma ml=32 nl=32 ms=16 ns=16 u=16", "simt u=16"])
@pytest.mark.parametrize("output", ["accum>LIMIT?L.add(accum,i)", "C[i,j]=accum*LIMIT", "C[i]+=accum>LIMIT"])
def test_expressions_of_numbers_alone_are_computed_once(output: str, family: str) -> None:
    """The products with it are added by fma: a part of them is computed once."""
    body = output.replace("LIMIT", "(accum+s*sqrt(f32(K)))")
    text = f"A:f32[i,k];B:f32[k,j];s:f32;where(i,j){{reduce(k){{accum+=A[i,k]*B[k,j];}}{body};}}"
    tf32 = {} if family.startswith("simt") else {"compute": "tf32"}
    p = Task(64, 64, 64, "NT", text=text, capacity=64, **tf32)
    c = parse_config(f"family={family}").replace(vec_c=1)
    assert render(plan_for(p, c, HOPPER)).text.count("sqrt.rn.f32") == 1


#: configuration -> rows and columns of the tiles of a cluster of blocks
SKIPPING = {
    "one_tile": ("ml=64 nl=32", 64, 32),
    "transposed": ("ml=32 nl=64 transposed_mma=1", 32, 64),
    "multicast": ("ml=64 nl=32 cluster_x=2", 128, 32),
    "multicast_2d": ("ml=16 nl=64 cluster_x=2 cluster_y=2 transposed_mma=1 persistent=1", 32, 128),
    "persistent": ("ml=64 nl=32 persistent=1 raster_group=2", 64, 32),
    "pingpong": ("ml=64 nl=32 math_warpgroups=2 pingpong=1 persistent=1", 64, 32),
    "slices": ("ml=64 nl=32 cluster_k=2 kg=2 splitk=last_cta", 64, 32),
    "workspace": ("ml=64 nl=32 kg=2 splitk=workspace", 64, 32),
}


@pytest.mark.each_value
@pytest.mark.parametrize(("config", "rows", "columns"), SKIPPING.values(), ids=SKIPPING)
@pytest.mark.parametrize("pairs", ["i<j", "abs(i-j)<9", "i+300<j"])
def test_tiles_without_a_pair_are_not_multiplied(pairs: str, config: str, rows: int, columns: int) -> None:
    """Blocks of a cluster multiply their tiles if one of them has a pair."""
    m, n, k = 256, 160, 128
    rng = np.random.default_rng(3)
    arrays = {"A": rng.integers(-3, 4, (m, k)).astype("f2"), "B": rng.integers(-3, 4, (k, n)).astype("f2")}
    text = f"A:f16[i,k];B:f16[k,j];where(i,j)when({pairs}){{reduce(k){{accum+=A[i,k]*B[k,j];}}C[i,j]=accum;}}"
    driver = EmulatedDriver(HOPPER)
    launch, products = driver.machine.launch, []

    def counted(*given: Any, **named: Any) -> Any:
        stats = launch(*given, **named)
        products.append(stats.mma)
        return stats

    driver.machine.launch = counted  # type: ignore[method-assign]
    c = parse_config(wgmma(config)).replace(vec_c=1, stages=2, u=32)
    runner = Runner.of(driver, Task(m, n, k, dtype="f16", text=text), c)
    out = runner.compute({**arrays, "C": np.full((m, n), np.nan, "f4")})["C"]
    i, j = np.mgrid[:m, :n]
    holds = eval(pairs, {"i": i, "j": j, "abs": np.abs})
    whole = arrays["A"].astype("f4") @ arrays["B"].astype("f4")
    assert np.array_equal(out, np.where(holds, whole, np.nan), equal_nan=True)
    corners = [(a, b) for a in range(0, m, rows) for b in range(0, n, columns)]
    taken = sum(holds[a : a + rows, b : b + columns].any() for a, b in corners)
    instructions = rows * columns // (64 * min(c.ml, c.nl)) * k // 16
    assert sum(products) == taken * instructions


STAGED = {
    "one": "ml=64 nl=32 u=64",
    "subtiles": "ml=128 nl=64 u=64 epilogue_subtiles=2 epilogue_buffers=2",
    "transposed": "ml=32 nl=64 u=64 transposed_mma=1",
    "pingpong": "ml=128 nl=32 u=32 math_warpgroups=2 pingpong=1 persistent=1 epilogue_subtiles=2",
    "last_cta": "ml=64 nl=32 u=16 cluster_k=2 kg=2 splitk=last_cta stages=2 epilogue_aliases_ab=1",
}
#: configurations of large tiles
WHOLE = (
    "math_warpgroups=2 persistent=1 stages=3 epilogue_subtiles=4 epilogue_buffers=2",
    "math_warpgroups=2 stages=3 epilogue_aliases_ab=1",
    "math_warpgroups=2 stages=3 cluster_x=2 persistent=1 epilogue_subtiles=2",
)
#: a value of every kind of array, in f16
EVERY = (
    "A:f16[i,k];B:f16[k,j];r:f32[i];c:f16[j];t:f16[i,j];u:f32[j,i];s:f32;where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}"
    "C[i,j]=f16(max(accum*s,0)*f32(c[j])+r[i]+f32(t[i,j])+u[j,i]+f32(i-j)*0.125);}"
)


@pytest.mark.each_value
@pytest.mark.parametrize("config", STAGED.values(), ids=STAGED)
@pytest.mark.parametrize("shape", [(64, 32, 64), (129, 40, 136), (127, 31, 64)], ids=str)
def test_values_through_shared_memory(shape: tuple[int, int, int], config: str) -> None:
    """Rows of C are whole 16 bytes, which TMA stores, or not."""
    m, n, k = shape
    p = Task(m, n, k, dtype="f16", text=EVERY, ldb=-(-n // 8) * 8)
    for row in check_some(EmulatedDriver(HOPPER), p, parse_config(wgmma(f"epilogue_smem=1 {config}")), 1):
        assert row.ok, f"{row.inputs}: {row.deviation}"


@pytest.mark.parametrize(
    "text",
    [VALUE, SELECT, EVERY.replace("where(i,j)", "where(i,j)when(i<j)"), EVERY.replace("=f16", "=u16")],
    ids=["f32", "list", "pairs", "integers"],
)
def test_only_whole_tiles_of_16_bits_go_through_shared_memory(text: str) -> None:
    c = parse_config(wgmma("ml=64 nl=32 u=64 epilogue_smem=1"))
    broken = first_violation(lower(Task(64, 64, 64, dtype="f16", text=text)), c, HOPPER)
    assert broken is not None
    assert broken.name in ("wgmma_values", "wgmma_epilogue_smem")


def test_a_product_as_a_task_has_the_configurations_of_a_gemm() -> None:
    """Also with a value that GEMMs compute as an epilogue."""
    plain = "A:f16[i,k];B:f16[k,j];where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}C[i,j]=f16(accum);}"
    p = lower(Task(1000, 1000, 1000, dtype="f16", text=plain.replace("f16(accum)", "f16(max(accum,0))")))
    gemm = lower(Gemm(1000, 1000, 1000, dtype="f16", epilogue="relu"))
    configs = [parse_config(wgmma(f"ml=128 nl=256 u=64 epilogue_smem=1 {x}")) for x in WHOLE]
    assert [first_violation(x, c, HOPPER) for x in (p, gemm) for c in configs] == [None] * 2 * len(configs)


REDUCING = {
    "one_tile": "ml=64 nl=32 u=64 stages=2",
    "transposed": "ml=32 nl=64 u=64 stages=2 transposed_mma=1 cluster_x=2",
    "pingpong": "ml=128 nl=32 u=32 math_warpgroups=2 pingpong=1 persistent=1",
    "cluster": "ml=128 nl=48 u=32 cluster_k=2 math_warpgroups=2 stages=2",
}
REDUCTIONS = ("C[i]+=accum", "C[j]argmin=accum", "C[i]argmax=accum", "C[j]max=accum", "C[i]=logsumexp(C[i],accum)")


def reduced(output: str, pairs: str = "") -> str:
    arrays = ("g:s32[i];" if "g[i]" in output else "") + ("h:s32[j];" if "h[j]" in output else "")
    inputs = f"A:f16[i,k];B:f16[k,j];{arrays}{'s:f32;' if '>s' in output else ''}"
    return f"{inputs}where(i,j){pairs}{{reduce(k){{accum+=A[i,k]*B[k,j];}}{output};}}"


@pytest.mark.each_value
@pytest.mark.parametrize("config", REDUCING.values(), ids=REDUCING)
@pytest.mark.parametrize("output", REDUCTIONS)
def test_rows_and_columns_are_reduced(output: str, config: str) -> None:
    """Integers have many equal values, of which the first position counts; special values include NaN."""
    p = Task(130, 72, 64, dtype="f16", text=reduced(output, "when(i<j)" if config == REDUCING["one_tile"] else ""))
    for row in check_some(EmulatedDriver(HOPPER), p, parse_config(wgmma(config)).replace(vec_c=1), 1):
        assert row.ok, f"{row.inputs}: {row.deviation}"


@pytest.mark.parametrize("config", REDUCING.values(), ids=REDUCING)
@pytest.mark.parametrize("least", [1, -np.inf])
def test_logsumexp_of_infinities_and_large_values(least: float, config: str) -> None:
    """A row of each special value; the number of groups of 8 columns is odd."""
    a, b = np.zeros((9, 64), np.float16), np.zeros((64, 40), np.float16)
    a[:, 0] = [2.5, np.inf, -np.inf, np.nan, 6e4, -6e4, 80, 0, -3]
    b[0] = np.where(np.arange(40) < 9, least, 1)
    with np.errstate(invalid="ignore"):
        values = a[:, :1].astype("f8") * b[:1].astype("f8")
        greatest = values.max(1, keepdims=True)
        sums = np.exp(np.where(values == greatest, 0, values - greatest)).sum(1)
    p = Task(9, 40, 64, dtype="f16", text=reduced("C[i]=logsumexp(C[i],accum)"))
    runner = Runner.of(EmulatedDriver(HOPPER), p, parse_config(wgmma(config)).replace(vec_c=1))
    result = runner.compute({"A": a, "B": b, "C": np.zeros(9, np.float32)})["C"].reshape(-1)
    np.testing.assert_allclose(result, greatest[:, 0] + np.log(sums), rtol=4e-7)


@pytest.mark.each_value
@pytest.mark.parametrize("config", REDUCING.values(), ids=REDUCING)
@pytest.mark.parametrize("keys", ["one", "rows", "columns", "random", "out of range"])
def test_groups_of_results(keys: str, config: str) -> None:
    """Rows, or columns, of a warp have one key or several; pairs with a key out of range are counted."""
    op = "max" if config in (REDUCING["transposed"], REDUCING["pingpong"]) else "+"
    m, n, k = 192, 80, 64
    rng = np.random.default_rng(7)
    arrays = {"A": rng.integers(-3, 4, (m, k)).astype("f2"), "B": rng.integers(-3, 4, (k, n)).astype("f2")}
    g, h = np.zeros(m, np.int32), np.zeros(n, np.int32)
    if keys in ("columns", "random", "out of range"):
        g = rng.integers(0, 4, m).astype(np.int32)
    if keys in ("rows", "random", "out of range"):
        h = rng.integers(0, 5, n).astype(np.int32)
    if keys == "out of range":
        g[[3, 77]], h[8:16] = (-1, 4), 5
    output = "C[g[i],h[j]]+=accum>s" if op == "+" else "C[h[j],g[i]]=max(C[h[j],g[i]],accum)"
    groups = (4, 5) if op == "+" else (5, 4)
    p = Task(m, n, k, dtype="f16", text=reduced(output), groups=f"{groups[0]},{groups[1]}")
    roles = {use.axes: use.role for use in p.roles.others}
    arrays |= {roles[("i",)]: g, roles[("j",)]: h}
    given = {name: np.zeros(x.shape, x.dtype.numpy) for name, x in p.result_arrays.items()}
    c = parse_config(wgmma(config)).replace(vec_c=1)
    out = Runner.of(EmulatedDriver(HOPPER), p, c).compute(
        {**arrays, **given}, scalars={"scalar0": 4.0} if op == "+" else {}
    )
    product = arrays["A"].astype("f4") @ arrays["B"].astype("f4")
    inside = ((g >= 0) & (g < 4))[:, None] & (h < 5)
    assert out["rejected"] == [(~inside).sum()]
    i, j = np.nonzero(inside)
    expected = np.zeros((4, 5)) if op == "+" else np.full((4, 5), -np.inf)
    combine = np.add if op == "+" else np.maximum
    combine.at(expected, (g[i], h[j]), (product > 4)[i, j] if op == "+" else product[i, j])
    assert np.array_equal(out["C"], expected if op == "+" else expected.T)


def test_reductions_take_slices_that_leave_the_workspace_as_it_was() -> None:
    rows, groups = (
        lower(Task(64, 64, 64, dtype="f16", text=reduced(output), groups=extents))
        for output, extents in (("C[i]+=accum", ""), ("C[g[i],h[j]]+=accum", "3,4"))
    )
    for p, split, allowed in ((rows, "last_cta", False), (groups, "last_cta", True), (groups, "workspace", False)):
        broken = first_violation(p, parse_config(wgmma(f"ml=64 nl=32 u=32 kg=2 splitk={split} vec_c=1")), HOPPER)
        assert (broken is None) == allowed
        assert allowed or (broken is not None and broken.name == "wgmma_reduced_values")


@pytest.mark.each_value
@pytest.mark.parametrize("output", ["C[i,j]=accum", "C[i]+=accum", "C[i]logsumexp=accum", "C[g[i],h[j]]+=accum"])
@pytest.mark.parametrize("k", [0, 64])
def test_candidates_are_legal_for_an_empty_sum(output: str, k: int) -> None:
    p = lower(Task(33, 17, k, dtype="f16", text=reduced(output), groups="3,4" if "g[" in output else ""))
    columns = candidates(p, HOPPER)
    assert "wgmma" in {FAMILIES[x] for x in columns.family} or (k == 0 and output != "C[i,j]=accum")
    assert legal(p, columns, HOPPER).all()
