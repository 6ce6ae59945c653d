"""``ptxgen.plan``: the problem of a call without data, its configuration, tuning and loading."""

from __future__ import annotations

import typing
from collections import OrderedDict

import numpy as np
import pytest

import ptxgen
from ptxgen.api import drivers, plans, runners
from ptxgen.api.gemm import gemm
from ptxgen.errors import DeviceError, InputError, ShapeError


@pytest.fixture(autouse=True)
def _emulated(monkeypatch, tmp_path):
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setattr(runners, "runners", OrderedDict())
    drivers.driver.cache_clear()
    yield
    drivers.driver.cache_clear()


def test_texts_stand_for_arrays():
    plan = ptxgen.plan(ptxgen.gemm, "f16[6, 40]", "f16[40,5]", bias="f16[5]", activation="relu")
    assert plan.problem == ptxgen.Gemm(6, 5, 40, "NN", "f16", epilogue="bias_column,relu")
    assert repr(plan) == f"CallPlan({plan.problem.key()})"
    conv = ptxgen.plan(ptxgen.conv2d, "f32[1,3,8,8]", "f32[4,3,3,3]", padding=1)
    assert (conv.problem.k, conv.problem.p) == (4, 8)


def test_a_plan_computes_what_was_planned(monkeypatch):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    plan = ptxgen.plan(ptxgen.gemm, "f32[3,4]", "f32[4,3]", alpha=2.0)
    assert not runners.runners
    plan.warm_up()
    ((_, problem),) = runners.runners
    assert problem == plan.problem
    monkeypatch.setattr(runners, "make_runner", None)  # the kernel is loaded
    assert np.array_equal(plan(a, a.T.copy()), 2 * a @ a.T)


def test_tuning_and_selection(monkeypatch):
    plan = ptxgen.plan(ptxgen.Gemm(16, 16, 16))
    assert plan.selection.problem == plan.problem
    assert plan.config == plan.selection.config
    calls = []
    monkeypatch.setattr(plans, "tune", lambda problems, driver, database, deadline: calls.append(problems) or ["tuned"])
    monkeypatch.setattr(runners, "reselect", lambda problems: calls.append(problems))
    assert plan.tune(5) == "tuned"
    assert calls == [[plan.problem], [plan.problem]]
    with pytest.raises(InputError, match="time_limit is 0; it must be a positive number"):
        plan.tune(0)
    with pytest.raises(InputError, match="it must be that of a function"):
        plan(1)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (InputError, "call is .*; it must be a problem, gemm", (print, "f32[2,2]")),
        (InputError, "has the type f13; it must be one of f16", (gemm, "f13[2,2]", "f32[2,2]")),
        (ShapeError, "a is 2x3 and b is 2x3", (gemm, "f32[2,3]", "f32[2,3]")),
        (InputError, "computes no kernel", (gemm, "f32[0,3]", "f32[3,3]")),
        (InputError, "call is a problem and arguments are given", (ptxgen.Gemm(2, 2, 2), "f32[2,3]")),
    ],
)
def test_errors(error, message, arguments):
    with pytest.raises(error, match=message):
        ptxgen.plan(*arguments)


def test_a_problem_has_a_selection():
    problem = ptxgen.Gemm(16, 2560, 2560)
    assert ptxgen.select(problem) == ptxgen.plan(problem).selection
    shipped = ptxgen.select(problem, device="h200")
    assert (shipped.problem, shipped.source) == (problem, "shipped")
    assert shipped.us > 0
    with pytest.raises(InputError, match=r"the first argument is 'gemm'; it must be a problem, as ptxgen.Gemm"):
        ptxgen.select("gemm")
    with pytest.raises(InputError, match=r"NN f32 is a problem and values are given"):
        ptxgen.select(problem, "h200")
    with pytest.raises(DeviceError):
        ptxgen.select(problem, device="h2000")


def test_devices():
    assert ptxgen.device() == drivers.driver().device
    assert ptxgen.device("h200").sm == 90
    with pytest.raises(DeviceError):
        ptxgen.device("h2000")


def test_the_result_of_gemm_has_the_type_of_its_operand():
    hints = typing.get_type_hints(gemm)
    assert isinstance(hints["a"], typing.TypeVar)
    assert hints["return"] == hints["a"]
