"""Explanations of choices: times, lower bound, resident blocks, rejections, near problems, the command's text."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ptxgen.cli.command import run
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError
from ptxgen.families.common import space
from ptxgen.families.common.geometry import geometry
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.tuning import explanation
from ptxgen.tuning.selection import select
from ptxgen.tuning.store import fastest, tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement

H200 = device("h200")
PROBLEM = Gemm(300, 200, 100, "TN")
CONFIG = parse_config("ms=4 ns=4 ml=64 nl=32 u=8")


def measured(problem: Gemm, config: Config, us: float, digest: str = "", registers: int = 40) -> Measurement:
    digest = digest or render(plan_for(problem, config, H200)).digest
    return Measurement(problem, config, "ok", Environment("h200"), (us,), digest, registers)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    runner_up = select(PROBLEM, H200)[0].config
    with Database(tmp_path / "t.sqlite") as database:
        database.set_winner(measured(PROBLEM, CONFIG, 9.0))
        database.add(measured(PROBLEM, runner_up, 8.0, digest="0123456789abcdef"))  # of a changed kernel
        database.add(measured(Gemm(300, 100, 100, "TN"), CONFIG, 5.0))
        database.add(measured(Gemm(300, 200, 100, "TN", "f16"), CONFIG, 4.0, digest="0" * 16))
    return tmp_path / "t.sqlite"


def test_predicted_times_are_those_that_rank(tmp_path: Path) -> None:
    """With a family without trees, too, and of a winner that the model did not choose."""
    p = Conv(32, 128, 28, 28, 128, 3, 3, padding=1)
    by_model = {s.config: s.us for s in select(p, H200, use_model=True, k=8)}
    chosen = next(c for c in by_model if c.family == "winograd_4x4")
    with Database(tmp_path / "t.sqlite") as database:
        database.set_winner(measured(p, chosen, 9.0))
        answer = explanation.explain(p, H200, database, 8)
    assert answer.candidates[0].measured_us == 9.0
    predicted = {x.selection.config: x.predicted_us for x in answer.candidates}
    assert predicted == pytest.approx(by_model, rel=1e-6)


def test_candidates_have_predicted_times_and_measured_ones_of_current_kernels(path: Path) -> None:
    with Database(path, readonly=True) as database:
        answer = explanation.explain(PROBLEM, H200, database, 3)
    choice, second, _ = answer.candidates
    assert (choice.selection.config, choice.selection.origin) == (CONFIG, "winner")
    assert choice.measured_us == choice.us == 9.0
    assert choice.predicted_us > 0
    assert math.isnan(second.measured_us)
    assert second.us == second.predicted_us == pytest.approx(second.selection.us)
    assert (choice.residency.registers, choice.residency.registers_measured) == (40, True)
    assert not second.residency.registers_measured


def test_nearest_problems_have_the_same_types_and_layout(path: Path) -> None:
    with Database(path, readonly=True) as database:
        first, second, *_ = explanation.near(PROBLEM, "h200", database)
    assert (first.problem, first.us) == (Gemm(300, 100, 100, "TN"), 5.0)
    assert first.distance == pytest.approx(1)
    assert second.distance >= first.distance
    assert (second.problem.dtype, second.problem.layout) == ("f32", "TN")
    batch = explanation.near(Gemm(300, 100, 100, "TN", batch=4), "h200", None, 100)
    assert batch
    assert all(n.problem.dtype == "f32" for n in batch)
    assert any(n.distance >= 2 for n in batch)


def test_a_device_without_measurements_has_the_near_problems_of_its_models_device() -> None:
    assert {n.device for n in explanation.explain(PROBLEM, replace(H200, name="h20"), None, 1).nearest} == {"h200"}


def test_residency_is_that_of_the_occupancy_rules() -> None:
    residency = explanation.residency(PROBLEM, CONFIG, H200, 100)
    g = geometry(lower(PROBLEM), CONFIG)
    assert residency.resident == H200.blocks_per_sm(g.threads, 100, g.shared) == min(residency.limits.values())
    assert {n for n, k in residency.limits.items() if k == residency.resident} == set(residency.binding)
    assert residency.occupancy == pytest.approx(residency.resident * g.threads / 2048)
    assert residency.waves == pytest.approx(g.blocks / (residency.resident * H200.sms))


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "binding"),
    [
        (256, 128, 1024, "registers"),
        (64, 16, 60_000, "shared memory"),
        (1024, 16, 1024, "warps"),
        (32, 16, 0, "blocks"),
    ],
)
def test_the_scarcest_resource_limits_blocks(threads: int, registers: int, shared: int, binding: str) -> None:
    limits = H200.block_limits(threads, registers, shared)
    assert min(limits, key=lambda name: limits[name]) == binding
    assert H200.blocks_per_sm(threads, registers, shared) == limits[binding]


def test_floor_names_its_bound() -> None:
    thin, square = explanation.floor(Gemm(4096, 4, 4096, "NN"), H200), explanation.floor(Gemm(*[8192] * 3, "NN"), H200)
    assert (thin.bound, square.bound) == ("memory", "arithmetic")
    assert thin.us == pytest.approx(thin.bytes / (H200.bandwidth * 1e3))
    assert square.us > square.memory_us


def test_rejections_and_legal_candidates_are_those_of_the_space() -> None:
    answer = explanation.explain(PROBLEM, H200, None, 1)
    assert answer.legal == len(space.candidates(lower(PROBLEM), H200))
    assert answer.rejected == space.explain(lower(PROBLEM), H200)
    assert list(answer.rejected.values()) == sorted(answer.rejected.values(), reverse=True)


def test_near_problems_are_those_of_all_shipped_measurements() -> None:
    p = Gemm(1000, 700, 900, "NN", "f16")
    near = explanation.near(p, "h200", None)
    winners, every = tuning_files.shipped_winners("h200"), fastest.read(tuning_files.fastest_path("h200"))
    assert [n.distance for n in near] == sorted(n.distance for n in near)
    others = [n for n in near if n.problem.key() not in winners]
    assert others
    for n in others:
        row = every[n.problem.key()]
        assert (str(n.config), n.us) == (row.config, row.us)
    limit = near[-1].distance
    for key in fastest.comparable(every, p):
        q = parse(key)
        if (q.compute, q.out) == (p.compute, p.out) and explanation._distance(p, q) < limit:
            assert q in {n.problem for n in near}
    of_winner = parse(next(iter(winners)))
    near_winner = replace(of_winner, deterministic=not of_winner.deterministic)
    [first, *_] = explanation.near(near_winner, "h200", None)
    assert (first.problem, first.us) == (of_winner, winners[of_winner.key()].us)


def test_families_that_are_not_searched_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for extents, families in (("512,384,4096", "simt"), ("512,384,32", None)):
        assert run(["explain", "--shape", extents, "--dtype", "f16", "--device", "h200"]) == 0
        line = f"not searched, as others are as fast or there are no measurements: {families}"
        out = capsys.readouterr().out
        assert (line in out) if families else ("not searched" not in out)


def test_unsupported_problem_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no kernel supports this problem"):
        explanation.explain(Gemm(8, 8, 8, "NN", "e4m3"), device("t4"))


LAYER = ["conv", "--shape", "N=8,C=64,H=28,W=28,K=64,R=3,S=3,pad=1", "--layout", "NHWC", "--dtype", "f16"]


@pytest.mark.parametrize(
    "words", [["--shape", "2560,16,2560"], ["--shape", "4096,4090,4096", "--dtype", "bf16"], LAYER]
)
def test_text_fits_80_columns(words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["explain", *words, "--device", "h200"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for part in (
        "roofline floor",
        "(predicted)",
        "limits",
        "legal candidates",
        "Nearest problems measured on h200",
        "unknown",
    ):
        assert part in out


def test_document_has_the_vendors_time(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"problem": {"key": PROBLEM.key()}, "vendor_us": 18.0}
    timed = tmp_path / "bench.json"
    timed.write_text(json.dumps({"command": "bench", "device": "h200", "rows": [row]}))
    words = ["explain", "--shape", "300,200,100", "--layout", "TN", "--database", str(path), "--from", str(timed)]
    assert run([*words, "--device", "h200", "--json"]) == 0
    [rows] = json.loads(capsys.readouterr().out)["rows"]
    assert rows["vendor_us"] == 18.0
    assert (rows["candidates"][0]["us"], rows["candidates"][0]["predicted"]) == (9.0, False)
    assert rows["candidates"][1]["predicted"]
    assert rows["candidates"][1]["measured_us"] is None
    assert run([*words, "--device", "h200"]) == 0
    assert "2.00 times the choice's time" in capsys.readouterr().out
    assert run([*words, "--device", "h100"]) == 2
    assert "is of device h200; it must be of h100" in capsys.readouterr().err
    timed.write_text("{}")
    assert run([*words, "--device", "h200"]) == 2
    assert "is not the document of a command: it has no command" in capsys.readouterr().err


def test_distance_counts_the_batch() -> None:
    layer = Conv(8, 64, 28, 28, 64, 3, 3, padding=1)
    assert explanation._distance(layer, layer) == 0
    assert explanation._distance(Gemm(8, 8, 8, "NN", batch=4), Gemm(8, 8, 8, "NN")) == 2
