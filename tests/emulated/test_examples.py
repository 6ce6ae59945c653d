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


def test_graph_convolution(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    short = parse_config("family=row_split row_lanes=2 block_groups=16 nonzeros_in_flight=2 vec_b=1")
    monkeypatch.setattr(choice, "choose", lambda problem, on: short)
    sizes = ["--nodes", "30", "--degree", "4", "--features", "7", "--hidden", "6", "--classes", "3"]
    assert example("graph_convolution").main([*sizes, "--device", "cpu", "--dtype", "f64"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("30 nodes, ")
    assert all(float(x) < 1e-14 for x in second.split()[1:])
