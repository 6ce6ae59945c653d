"""The programs of ``examples/``, on the emulated device."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ptxgen.api import choice
from ptxgen.codegen.config.config import parse_config
from ptxgen.tuning.search.tuner import Tuned
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement
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


def test_triton_ptx(capsys: pytest.CaptureFixture[str]) -> None:
    assert example("triton_ptx").main(["--elements", "200"]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == "256 elements: right"
    assert second.startswith("200 elements: 4 bytes at offset ")
    assert second.endswith("past the end of scale_param_0, f32[200]")
    page = (ROOT / "docs" / "debug-ptx.md").read_text()
    assert (ROOT / "examples" / "scale.ptx").read_text() in page


def test_fp8_decoder(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--layers", "1", "--hidden", "16", "--heads", "2", "--tokens", "3"]
    assert example("fp8_decoder").main([*sizes, "--device", "cpu"]) == 0
    error, memory = (float(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert 0.001 < error < 0.05
    assert 0.25 < memory < 0.35


def test_dask_tuning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The executor of a Dask client is one of ``concurrent.futures``."""
    module = example("dask_tuning")
    config = parse_config("ms=2 ns=2 ml=16 nl=16 u=4 cp_async_a=0 cp_async_b=0 stages=2")

    def tune(problems: list[Any], driver: str, database: Database, deadline: Any) -> list[Tuned]:
        environment = Environment("emulated", "model")
        rows = [Measurement(problems[0], config, "ok", environment, (us,)) for us in (5.0,)]
        database.add_all(rows)
        return [Tuned(problems[0], rows[0])]

    monkeypatch.setattr(module, "tune", tune)
    problems = [module.Gemm(16, 16, k) for k in (16, 32)]
    with Database(tmp_path / "tuning.sqlite") as database, ThreadPoolExecutor(1) as executor:
        assert module.tune_on(executor, problems, 1.0, database) == 2
        assert {m.problem for m in database.winners("emulated", "model")} == set(problems)
    assert "gemm 16,16,16 NN f32: 1 measured, 5.0 µs" in capsys.readouterr().out


def test_graph_convolution(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    short = parse_config("family=row_split row_lanes=2 block_groups=16 nonzeros_in_flight=2 vec_b=1")
    monkeypatch.setattr(choice, "choose", lambda problem, on: short)
    sizes = ["--nodes", "30", "--degree", "4", "--features", "7", "--hidden", "6", "--classes", "3"]
    assert example("graph_convolution").main([*sizes, "--device", "cpu", "--dtype", "f64"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("30 nodes, ")
    assert all(float(x) < 1e-14 for x in second.split()[1:])
