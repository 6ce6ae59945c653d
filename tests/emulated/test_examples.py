"""The programs of ``examples/``, on the emulated device."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from ptxgen.api import choice
from ptxgen.codegen.config.config import parse_config
from tests.architecture.source import ROOT

pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nearest_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--rows", "9", "--columns", "30", "-k", "5", "-n", "3", "--method", "topk", "--method", "density"]
    assert example("nearest_neighbours").main([*sizes, "--device", "cpu"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[1] in ("exact", "fast")]
    assert len(rows) == 4
    assert all(float(error) < 1e-5 for _, _, error in rows)


def test_graph_convolution(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    short = parse_config("family=row_split row_lanes=2 block_groups=16 nonzeros_in_flight=2 vec_b=1")
    monkeypatch.setattr(choice, "choose", lambda problem, on: short)
    sizes = ["--nodes", "30", "--degree", "4", "--features", "7", "--hidden", "6", "--classes", "3"]
    assert example("graph_convolution").main([*sizes, "--device", "cpu", "--dtype", "f64"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("30 nodes, ")
    assert all(float(x) < 1e-14 for x in second.split()[1:])
