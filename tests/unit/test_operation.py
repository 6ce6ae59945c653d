"""The registry of operations, and an operation that is registered from outside the package: C = A·diag(d)·B."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ptxgen import plugins
from ptxgen.cli import command
from ptxgen.codegen.render import render
from ptxgen.errors import InputError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.operation import (
    Operation,
    operation_named,
    operation_names,
    operation_of,
    register,
    unregister,
)
from ptxgen.problem.registry import from_dict, parse
from ptxgen.runtime.check import CASES, check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure.bench import Bench
from ptxgen.tuning.search.sampler import Categorical
from ptxgen.tuning.selection import select
from tests.plugins.diagonal import DIAGONAL, DiagonalGemm, DiagonalOperandSets, checks

P = DiagonalGemm(16, 24, 32, "NT")
H200 = device("h200")


@pytest.fixture
def registered() -> Iterator[Operation]:
    plugins.load()
    register(DIAGONAL)
    yield DIAGONAL
    unregister("diagonal_gemm")


def test_package_has_its_operations() -> None:
    assert operation_names()[:2] == ("gemm", "conv")
    for name in operation_names():
        assert operation_named(name).name == name
        assert "small" in operation_named(name).suites
    assert all("isaac" in operation_named(name).suites for name in ("gemm", "conv"))
    with pytest.raises(InputError, match="operation is 'sddmm'; it must be one of gemm, conv"):
        operation_named("sddmm")


def test_name_is_registered_once(registered: Operation) -> None:
    with pytest.raises(InputError, match="registered already"):
        register(DIAGONAL)
    assert operation_of(P) is registered


def test_new_operation_has_a_text_form(registered: Operation) -> None:
    assert P.key() == "diagonal_gemm 16,24,32 NT f32"
    assert parse(P.key()) == P == from_dict(P.as_dict())
    assert parse("gemm 16,24,32 NT f32") != P


def test_new_operation_is_lowered_selected_and_emitted(registered: Operation) -> None:
    lowered = lower(P)
    assert lowered.needs == lower(Gemm(16, 24, 32)).needs
    assert (lowered.m, lowered.n, lowered.k, lowered.layout) == (16, 24, 32, "NT")
    [chosen, *_] = select(P, H200)
    plain = plan_for(Gemm(16, 24, 32, "NT"), chosen.config, H200)
    assert render(plan_for(P, chosen.config, H200)).digest == render(plain).digest


def test_new_operation_is_checked_and_timed(registered: Operation) -> None:
    driver = EmulatedDriver()
    config = select(P, driver.device)[0].config
    deviation = check(driver, P, config)
    assert [r.inputs for r in deviation] == [inputs for inputs, *_ in CASES]
    assert all(r.ok for r in deviation)
    work = Bench(driver)
    assert work.measure(P, config).outcome == "ok"
    assert isinstance(work.operand_sets, DiagonalOperandSets)


def test_check_of_a_new_operation_finds_errors(registered: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checks.__globals__, "scale", lambda p, a, d: a)
    driver = EmulatedDriver()
    assert not any(r.ok for r in check(driver, P, select(P, driver.device)[0].config))


@pytest.mark.parametrize("name", ["select", "emit", "check", "bench", "tune", "sampler"])
def test_commands_accept_a_new_operation(
    registered: Operation,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setenv("PTXGEN_PLUGINS", "tests.plugins.diagonal:register_it")
    words = [name, "diagonal_gemm", "--shape", "16,24,32", "--device", "emulated", "--json"]
    monkeypatch.setattr(Categorical, "learn", partial(Categorical.learn, wanted=20, limit=1 << 16))
    few = ["--samples", "2", "--search", "1", "--rounds", "0"]
    code = command.run([*words, *(few if name == "tune" else [])])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    [row] = document.get("rows", [document])
    assert row["problem"]["operation"] == "diagonal_gemm"
    if name != "tune":  # its text is that of the other commands
        assert command.run([w for w in words if w != "--json"]) == 0
