"""Tasks rewritten by laws of numbers, on the emulated device."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

from ptxgen.api import drivers, streams, task_call
from ptxgen.api.task import task
from ptxgen.cli import command
from ptxgen.errors import InputError
from ptxgen.operations.task import group_sums
from ptxgen.operations.task.problem import Task
from ptxgen.runtime.emulated import EmulatedDriver
from tests.tensors import LIBRARY, Tensor

RNG = np.random.default_rng(5)
BODY = "reduce (k) { accum += P[i,k] * R[k,j]; }"
SUMS = f"where (i, j) {{ {BODY} C[g[i],h[j]] += accum; }}"
EQUAL = f"where (i, j) when (g[i] == h[j]) {{ {BODY} C[g[i],h[j]] += accum * s; }}"


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the tasks that calls launch. Sums in groups pay from the first step."""
    names: list[str] = []
    made = task_call.Task

    def noted(*args: Any, **fields: Any) -> Any:
        p = made(*args, **fields)
        names.append(p.text)
        return p

    monkeypatch.setattr(group_sums, "LEAST", 1)
    for name, value in vars(made).items():
        if isinstance(value, staticmethod):
            setattr(noted, name, value)
    monkeypatch.setattr(task_call, "Task", noted)
    return names


def integers(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.integers(-3, 4, shape).astype(dtype)


def grouped(product: Any, g: Any, h: Any, groups: tuple[int, int]) -> Any:
    total = np.zeros(groups, product.dtype)
    np.add.at(total, (g[:, None], h[None]), product)
    return total


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.float16, np.int8], ids=lambda x: x.__name__)
@pytest.mark.parametrize(("m", "n", "k"), [(97, 83, 31), (64, 1, 1), (33, 130, 17), (128, 129, 64)])
def test_sums_in_groups_are_those_of_all_pairs(dtype: Any, m: int, n: int, k: int, called: list[str]) -> None:
    p, r = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype)
    g, h = RNG.integers(0, 3, m).astype(np.int32), np.sort(RNG.integers(0, 4, n)).astype(np.uint8)
    wide = np.int32 if dtype == np.int8 else np.float32 if dtype == np.float16 else dtype
    product = p.astype(wide) @ r.astype(wide)
    groups = (4, 4) if n > 1 else (4, 1)  # the last of rows is empty
    h = np.minimum(h, groups[1] - 1)
    result = task(SUMS)(P=p, R=r, g=g, h=h, groups=groups)
    assert result.dtype == wide
    assert len(called) == 3
    np.testing.assert_array_equal(result, grouped(product, g, h, groups))
    out = np.full(groups, 77, wide)
    task(EQUAL)(P=p, R=r, g=g, h=h, s=wide(3), out=out)
    assert len(called) == 6
    np.testing.assert_array_equal(out, grouped(np.where(g[:, None] == h, product * wide(3), 0), g, h, groups))


@pytest.mark.each_value
@pytest.mark.parametrize("text", [
    "where (i, j) { reduce (k) { accum += P[k,i] * R[k,j]; } C[g[i],h[j]] += accum; }",
    "where (i, j) { reduce (k) { accum += P[i,k] * R[j,k]; } C[h[j],g[i]] += -accum / 2; }",
    "where (i, j) when (h[j] == g[i]) { reduce (k) { accum += P[k,i] * R[j,k]; } C[h[j],g[i]] += accum; }",
])  # fmt: skip
@pytest.mark.parametrize("deterministic", [False, True])
def test_layouts_and_orders_of_keys(
    text: str, deterministic: bool, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many groups, a kernel makes the products of different ones 0."""
    monkeypatch.setattr(group_sums, "ALL_PAIRS", 0 if deterministic else 1 << 15)
    p, r = integers(70, 21), integers(21, 52)
    g, h = RNG.integers(0, 5, 70).astype(np.int32), RNG.integers(0, 3, 52).astype(np.int32)
    product = p @ r
    if "when" in text:
        product = np.where(g[:, None] == h, product, 0)
    expected = grouped(product, g, h, (5, 3))
    expected = expected.T * (-0.5 if "/" in text else 1) if "C[h" in text else expected
    given = {"P": p.T if "P[k" in text else p, "R": r.T if "R[j" in text else r}
    options = {"groups": expected.shape, "deterministic": deterministic}
    np.testing.assert_array_equal(task(text)(**given, g=g, h=h, **options), expected)
    assert len(called) == 3 + ("when" in text and deterministic)
    np.testing.assert_array_equal(task(text)(**given, g=g, h=h, **options, algebra=False), expected)


def test_one_array_on_both_sides(called: list[str]) -> None:
    x, g = integers(60, 9), RNG.integers(0, 4, 60).astype(np.int32)
    text = "where (i, j) { reduce (k) { accum += X[i,k] * X[j,k]; } C[g[i],g[j]] += accum; }"
    np.testing.assert_array_equal(task(text)(X=x, g=g, groups=(4, 4)), grouped(x @ x.T, g, g, (4, 4)))
    assert len(called) == 3


@pytest.mark.parametrize("text", [
    f"where (i, j) {{ {BODY} C[g[i],h[j]] += accum + 1; }}",
    f"where (i, j) {{ {BODY} C[g[i],h[j]] += accum * accum; }}",
    f"where (i, j) {{ {BODY} C[g[i],h[j]] += accum * f32(N); }}",
    f"where (i, j) {{ {BODY} C[g[i],h[j]] += accum > 1; }}",
    f"where (i, j) {{ {BODY} C[g[i],h[j]] max= accum; }}",
    f"where (i, j) {{ accum = 1; {BODY} C[g[i],h[j]] += accum; }}",
    f"where (i, j) when (g[i] < h[j]) {{ {BODY} C[g[i],h[j]] += accum; }}",
    f"where (i, j) when (i < j) {{ {BODY} C[g[i],h[j]] += accum; }}",
    "where (i, j) { reduce (k) { accum += P[i,k] * R[k,j] + 1; } C[g[i],h[j]] += accum; }",
    "where (i, j) { reduce (k) { accum max= P[i,k] * R[k,j]; } C[g[i],h[j]] += accum; }",
])  # fmt: skip
def test_other_tasks_are_computed_for_all_pairs(text: str, called: list[str]) -> None:
    p, r = integers(40, 5), integers(5, 30)
    g, h = RNG.integers(0, 5, 40).astype(np.int32), RNG.integers(0, 3, 30).astype(np.int32)
    expected = task(text)(P=p, R=r, g=g, h=h, groups=(5, 3), algebra=False)
    np.testing.assert_array_equal(task(text)(P=p, R=r, g=g, h=h, groups=(5, 3)), expected)
    assert len(called) == 2


def test_keys_out_of_range_are_counted(called: list[str]) -> None:
    p, r = integers(40, 5), integers(5, 30)
    g, h = np.arange(40, dtype=np.int32) % 5, np.arange(30, dtype=np.int32) % 3
    with pytest.raises(
        InputError, match=r"560 pairs \(i, j\) have keys out of range; keys of rows must be from 0 to 3"
    ):
        task(SUMS)(P=p, R=r, g=g, h=h, groups=(4, 2))
    assert len(called) == 1


def test_small_tasks_and_many_groups_are_computed_for_all_pairs() -> None:
    small, large = dict.fromkeys("ijk", 64), dict.fromkeys("ijk", 4096)
    assert not group_sums.pays(small, (2, 2))
    assert group_sums.pays(large, (64, 64))
    assert not group_sums.pays(large, (4096, 4096))
    assert not group_sums.pays(large, (0, 4))


# ---- arrays on a device


class Integers(Tensor):
    """A tensor of 32-bit integers."""

    def __init__(self, driver: EmulatedDriver, x: Any) -> None:
        super().__init__(driver, x.view(np.float32))
        self.dtype = "torch.int32"


Integers.__module__ = "torch"


@pytest.fixture
def device_driver(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    driver = EmulatedDriver()
    driver.name = "cuda"
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    return driver


@pytest.mark.parametrize("captured", [False, True])
def test_sums_in_groups_of_tensors(
    captured: bool, device_driver: EmulatedDriver, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    p, r = integers(37, 21), integers(21, 50)
    g, h = np.arange(37, dtype=np.int32) % 4, np.arange(50, dtype=np.int32) % 3
    held = {"P": Tensor(device_driver, p), "R": Tensor(device_driver, r)}
    keys = {"g": Integers(device_driver, g), "h": Integers(device_driver, h)}
    monkeypatch.setattr(streams, "is_captured", lambda stream, on: captured)
    out = Tensor(device_driver, np.full((3, 3), 7, np.float32))
    for _ in range(2):  # pairs with keys out of range are not reduced
        task(SUMS)(**held, **keys, out=out)
        np.testing.assert_array_equal(out.numpy(), grouped(p @ r, g, h, (4, 3))[:3])
    task(EQUAL)(**held, **keys, s=2.0, out=out)
    np.testing.assert_array_equal(out.numpy(), grouped(np.where(g[:, None] == h, 2 * (p @ r), 0), g, h, (4, 3))[:3])
    assert len(called) == 9


def test_elements_without_a_pair_keep_their_values() -> None:
    x = integers(40, 5)
    out = np.full((40, 40), 7, np.float32)
    task("where (i, j) when (i < j) { reduce (k) { accum += X[i,k] * X[j,k]; } C[i,j] = accum; }")(X=x, out=out)
    above = np.triu(np.ones((40, 40), bool), 1)
    np.testing.assert_array_equal(out, np.where(above, x @ x.T, 7))


# ---- the switch


def test_programs_are_computed_as_written_without_the_algebra_pass() -> None:
    from ptxgen.lowering.lower import lower
    from ptxgen.operations.task.printing import printed
    from ptxgen.problem.registry import parse

    text = "where(i,j){reduce(k){accum+=P[i,k]+(P[i,k]>R[k,j])*(P[i,k]-R[k,j]);}C[i,j]=accum;}"
    p, plain = Task(5, 6, 7, text=text), Task(5, 6, 7, text=text, algebra=False)
    assert "algebra" not in p.key()
    assert plain.key().endswith(" algebra=0")
    assert parse(plain.key()) == plain != p
    assert "--no-algebra" in plain.command_options
    assert "algebra" not in p.command_options
    assert "max(" in printed(lower(p).algebra.step)  # type: ignore[attr-defined]
    assert printed(lower(plain).algebra.step) == printed(plain.program.step)  # type: ignore[attr-defined]


def test_calls_without_the_algebra_pass() -> None:
    a, b = integers(20, 7), integers(7, 30)
    text = "where(i,j){reduce(k){accum+=P[i,k]+(P[i,k]>R[k,j])*(P[i,k]-R[k,j]);}C[i,j]=accum;}"
    cube = a[:, :, None]
    expected = (cube + np.maximum(cube - b, 0)).sum(1)
    for algebra in (False, True):
        np.testing.assert_array_equal(task(text)(P=a, R=b, algebra=algebra), expected)
    hits = task(text.replace("C[i,j]=accum", "accum>3?hits.add(i,j)"))(P=a, R=b, algebra=False, sorted=True)
    np.testing.assert_array_equal(hits.i, np.nonzero(expected > 3)[0])
    with pytest.raises(InputError, match="algebra is 3; it must be"):
        task(text)(P=a, R=b, algebra=3)


@pytest.mark.parametrize(("step", "algebra"), [("P[i,k]+R[k,j]+w[k]", True), ("P[i,k]*w[k]+R[k,j]*w[k]+w[k]", False)])
def test_steps_are_computed_before_they_are_summed(step: str, algebra: bool) -> None:
    a, b = integers(20, 7), integers(7, 30)
    w = np.full(7, 1 / 64 if algebra else 1, np.float32)
    far = np.float32(2**20 if algebra else 2**26)  # a sum with one of the terms loses what the others add
    result = task(f"where(i,j){{reduce(k){{accum+={step};}}C[i,j]=accum;}}")(P=a + far, R=b - far, w=w, algebra=algebra)
    exact = ((a + far)[:, :, None] + (b - far) + w[:, None]).sum(1)
    np.testing.assert_array_equal(result, exact)


def test_commands_rewrite_or_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> str:
        assert command.run([*words]) == 0
        return capsys.readouterr().out

    query1 = "where(i,j){reduce(k){accum+=P[i,k]+(P[i,k]>R[k,j])*(P[i,k]-R[k,j]);}C[i,j]=accum;}"
    assert ", rewritten from " in told("task", "--expr", query1, "--explain")
    assert ", rewritten from " not in told("task", "--expr", query1, "--explain", "--no-algebra")
    assert "rewriting: sums of A and of B in groups" in told("task", "--expr", f"g:s32[i];h:s32[j];{SUMS}", "--explain")
    assert "rewriting: " not in told("task", "--expr", f"g:s32[i];h:s32[j];{SUMS}", "--explain", "--no-algebra")
    words = ("select", "task", "--task", query1, "--shape", "24,20,16", "--device", "emulated", "--json")
    assert json.loads(told(*words))["rows"][0]["problem"]["algebra"] is True
    assert json.loads(told(*words, "--no-algebra"))["rows"][0]["problem"]["algebra"] is False
