"""An operation and a family from outside the package that multiply no matrices: a CSR operand, a list as the result, no
K, and a grid that depends on a size that the device computed. They work through every command, child process included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxgen import plugins
from ptxgen.cli import command
from ptxgen.codegen.config.config import Columns, Config, parse_config
from ptxgen.codegen.render import render, render_preparation
from ptxgen.codegen.source import Step
from ptxgen.errors import ConfigError, InputError, LaunchError
from ptxgen.families.common.features import all_names, default_names, features
from ptxgen.families.common.space import candidates, families
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.operation import OPERATIONS
from ptxgen.problem.reference import Array
from ptxgen.problem.registry import parse
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Buffers, Runner
from ptxgen.tuning.measure.bench import Bench
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.search.sampler import Categorical
from ptxgen.tuning.selection import select
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from tests.plugins import row_list
from tests.plugins.row_list import RowList

H200 = device("h200")
P = RowList(70, 40, 300)
CONFIG = "family=rowwise threads=32 lanes=4"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The operation and the family, here and in child processes."""
    plugins.load()
    monkeypatch.setenv("PTXGEN_PLUGINS", "tests.plugins.row_list:register")
    row_list.register()
    yield
    row_list.unregister()


def operands(lengths: Mapping[int, int], rows: int = 70, columns: int = 40) -> dict[str, Array]:
    """A matrix with rows of these lengths, the others empty, a vector and the outputs."""
    p = RowList(rows, columns, max(sum(lengths.values()), 1))
    counts = np.array([lengths.get(row, 0) for row in range(rows)])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    return {**row_list.random_inputs(p), "indptr": indptr, **row_list.empty_outputs(p)}


def test_the_problem_has_no_matrix_and_no_k() -> None:
    p = lower(P)
    assert parse(P.key()) == P
    assert p.needs == {"plus_times", "csr", "vector", "store_list", "row_numbers_output"}
    assert p.arrays == ("values", "x", "sums", "indptr", "indices", "numbers", "count")
    assert set(p.arrays) == set(P.arrays)
    assert not any(hasattr(p.extents, name) for name in "mnk")
    assert [f.name for f in families(p, H200)] == ["rowwise"]
    assert len(candidates(p, H200)) == 9
    with pytest.raises(
        ConfigError,
        match="family simt lacks sparse matrices in CSR that are",
    ):
        plan_for(P, Config(), H200)
    with pytest.raises(ConfigError, match="it computes the rows of sparse matrices that are not empty"):
        plan_for(Gemm(16, 16, 16), parse_config(CONFIG), H200)


def test_every_configuration_is_right() -> None:
    driver = EmulatedDriver()
    for choice in select(P, driver.device, k=9):
        assert [(r.inputs, r.ok) for r in check(driver, P, choice.config)] == [("integers", True), ("normal", True)]


def test_a_wrong_list_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_list, "filled", lambda arrays: np.arange(70))
    assert Bench(EmulatedDriver()).measure(P, parse_config(CONFIG)).outcome == "wrong_result"


class Recorder(EmulatedDriver):
    """Records the kernels that it launches, with their grids."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[tuple[str, int]] = []

    def launch(self, kernel: Any, step: Step, parameters: bytes, stream: int = 0) -> None:
        self.launched.append((step.entry, step.grid[0]))
        super().launch(kernel, step, parameters, stream)


@pytest.mark.parametrize(
    ("lengths", "blocks"),
    [(dict.fromkeys(range(70), 2), 9), ({3: 5, 50: 1, 69: 7}, 1), (dict.fromkeys(range(9), 1), 2)],
)
def test_the_grid_depends_on_a_size_that_the_device_computed(lengths: dict[int, int], blocks: int) -> None:
    driver, arrays = Recorder(), operands(lengths)
    runner = Runner.of(driver, P, parse_config(CONFIG))
    assert runner.launch.steps[0].grid == (9, 1, 1)  # at the limit: no row is empty
    with Buffers(driver, arrays) as buffers:
        ready = runner.on(buffers.addresses)
        [made] = ready.prepared or ()
        assert made.sizes == {"rows": len(lengths)}
        call = runner.bind(buffers.addresses)
        del ready
        call()
        call()
    assert driver.launched == [("list_rows", 1)] * 2 + [("row_list_f32", blocks)] * 2
    got = runner.compute(arrays)
    assert got["numbers"][: got["count"][0]].tolist() == sorted(lengths)
    assert row_list.deviation(P, arrays, got).ok


def test_a_matrix_without_nonzeros_has_an_empty_list() -> None:
    got = Runner.of(EmulatedDriver(), P, parse_config(CONFIG)).compute(operands({}))
    assert got["count"] == 0
    assert np.isnan(got["sums"]).all()


def test_a_launch_at_the_limits_is_right() -> None:
    """Without sizes: the kernels read them from the prepared buffer."""
    driver, arrays = Recorder(), operands({3: 5, 50: 1})
    runner = Runner.of(driver, P, parse_config(CONFIG))
    with Buffers(driver, arrays) as buffers:
        ready = runner.on(buffers.addresses)
        [made] = ready.prepared or ()
        largest = (replace(made, sizes={"rows": 70}),)
        Runner(driver, runner.plan, runner.kernel, P, runner.workspace, largest).bind(buffers.addresses)()
        count = np.zeros(1, np.uint32)
        driver.download(buffers.addresses["count"], count)
    assert (driver.launched[-1], count[0]) == (("row_list_f32", 9), 2)


def test_sizes_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    made = row_list.ListRows.stages
    monkeypatch.setattr(
        row_list.ListRows, "stages", lambda x, p: (replace(stage, sizes={"rows": 2}) for stage in made(x, p))
    )
    with pytest.raises(LaunchError, match="size rows of ListRows is 3; it must be at most 2"):
        Runner.of(EmulatedDriver(), P, parse_config(CONFIG)).compute(operands({3: 5, 50: 1, 69: 7}))


def test_a_runner_is_prepared_for_addresses() -> None:
    with pytest.raises(LaunchError, match="the runner of row_list 70,40,300 CSR f32 is not prepared"):
        Runner.of(EmulatedDriver(), P, parse_config(CONFIG)).prepare()


def test_plans_without_preparation_launch_as_they_are() -> None:
    driver, p = Recorder(), Gemm(8, 8, 8)
    runner = Runner.of(driver, p, select(p, driver.device)[0].config)
    assert runner.plan.preparations == ()
    assert runner.on({}) is runner


def test_features_of_matrices_are_0() -> None:
    c = Columns.of([parse_config(CONFIG)])
    x = dict(zip(all_names(), features(lower(P), c, H200, None, all_names())[0].tolist(), strict=True))
    assert {x[n] for n in ("m", "n", "k", "kmajor_a", "row_alignment_a", "tiles", "epilogue_ops")} == {0}
    assert x["flops"] == pytest.approx(np.log2(600))
    assert (x["threads"], x["lanes"], x["blocks"]) == pytest.approx((5, 2, np.log2(9)))


def test_the_operation_gives_its_features_to_a_new_model() -> None:
    assert "row_length" in set(default_names()) & set(all_names())
    long, short = RowList(16, 40, 256), RowList(64, 40, 128)
    c = Columns.of([parse_config(CONFIG)])
    assert [features(lower(p), c, H200, None, ("row_length",)).item() for p in (long, short)] == [4, 1]
    assert features(lower(Gemm(16, 16, 16)), Columns.of([Config()]), H200, None, ("row_length",)).item() == 0
    emulated = EmulatedDriver().device
    configs = [choice.config for choice in select(P, emulated, k=9)]
    work = Bench(EmulatedDriver())
    rows = [work.measure(p, config) for p in (P, long, short) for config in configs]
    model = Model.fit(rows, emulated, target="clock")
    assert "row_length" in model.names
    assert np.isfinite(model.predict(P, Columns.of(configs))).all()


def test_shipped_models_keep_names_and_predictions() -> None:
    folder = tuning_files.model_path("h200").parent
    p, c = Gemm(512, 512, 512, dtype="f16"), Columns.of([Config(family="mma", ml=64), Config()])
    with_features = Model.load(folder)
    predicted = with_features.predict(p, c)
    row_list.unregister()
    try:
        plain = Model.load(folder)
        assert plain.names == with_features.names
        assert "row_length" not in plain.names
        assert plain.predict(p, c).tolist() == predicted.tolist()
    finally:
        row_list.register()


def test_a_feature_of_configurations_is_none_of_an_operation() -> None:
    changed = replace(row_list.OPERATION, features={"threads": lambda p: 1.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPERATIONS, row_list.NAME, changed)
        with pytest.raises(InputError, match="operations give features threads"):
            all_names()


def test_both_kernels_are_emitted() -> None:
    plan = plan_for(P, parse_config(CONFIG), H200)
    assert render(plan).entries == ("row_list_f32",)
    assert [render_preparation(each, H200).entries for each in plan.preparations] == [("list_rows",)]


@pytest.mark.parametrize("name", ["select", "emit", "check", "bench", "explain", "tune"])
def test_commands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setattr(Categorical, "learn", partial(Categorical.learn, wanted=20, limit=1 << 16))
    words = [name, "row_list", "--shape", "70,40,300", "--device", "emulated"]
    few = ["--samples", "4", "--search", "2", "--rounds", "1"] if name == "tune" else []
    code = command.run([*words, *few, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    [row] = document.get("rows", [document])
    assert row["problem"]["operation"] == "row_list"
    if name == "emit":
        assert list(document["preparations"]) == ["ListRows"]
    if name == "tune":
        with Database(tmp_path / "tuning.sqlite") as database:
            rows = list(database.measurements())
            assert len(rows) >= 4
            assert {(m.outcome, m.config.family) for m in rows} == {("ok", "rowwise")}
            [best] = select(P, device("emulated"), database)
            assert best.origin == "winner"
    assert command.run([*words, *few]) == 0
