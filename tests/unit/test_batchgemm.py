"""The tables and figures of Zhang et al.: their document, its measurement on the emulated device, what they print."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import batchgemm_tables
from ptxgen.cli.command import run
from ptxgen.cli.measured import MeasuredOptions
from ptxgen.cli.report import plain
from ptxgen.codegen.config.config import Config
from ptxgen.operations.grouped import article_times, suites
from ptxgen.operations.grouped.article_times import ListCase
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tile_kernel import tile_config
from ptxgen.operations.grouped.tlp_policy import TILES
from ptxgen.operations.grouped.tlp_schedule import VARIANTS
from ptxgen.problem.device import device
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.store import paper_files

BRIEF = Timing(samples=1)


def row(name: str, max_mn: int, max_k: int, items: int, scale: float) -> dict[str, Any]:
    us = {m: scale * (1 + i) for i, m in enumerate(m for m in batchgemm_tables.METHODS if m != "cudnn" or not max_mn)}
    named = (max_mn, max_k) in suites.NAMED_RANGES
    variants = dict.fromkeys(VARIANTS, 0.5)
    return {
        **{"name": name, "max_mn": max_mn, "max_k": max_k, "named": named, "items": items, "flops": 1e6 * items},
        **{"us": us, "host_us": dict.fromkeys(VARIANTS, 30.0), "occupancy": variants, "notes": {}},
    }


def shown() -> dict[str, Any]:
    """A document of the command."""
    lists = [
        row(f"{mn}/{k} x{n}", mn, k, n, n * mn / 1024)
        for mn, k in ((128, 128), (512, 128), (256, 512))
        for n in (8, 64, *([1024] if k == 128 else []))
    ]
    lists += [row(name, 0, 0, len(items), 4.0) for name, items in suites.INCEPTION.items()]
    swept = [
        {"m": m, "n": n, "threads": t, "us": 1.0, "gflops": m * n / t, "note": ""}
        for m, n in article_times.SWEEP_TILES
        for t in article_times.SWEEP_THREADS
    ]
    swept[-1].update(us=None, gflops=None, note="tile 128x128 breaks rule 'registers'")
    return plain({"command": "paper batchgemm", "device": "h100", "sweep": swept, "lists": lists})


def test_every_variant_has_a_title() -> None:
    assert set(VARIANTS) <= set(batchgemm_tables.METHODS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "batchgemm.json").write_text(json.dumps(shown()))
    return tmp_path / "batchgemm.json"


def rows_of(name: str, file: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    assert run(["paper", "batchgemm", name, "--from", str(file), "--csv"]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


@pytest.mark.parametrize("name", batchgemm_tables.TABLES)
def test_tables_are_printed(name: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rows_of(name, file, capsys)
    title = "Table" if name.startswith("table") else "Figure"
    chart = batchgemm_tables.TABLES[name].table(shown()).chart
    assert f"{title} {name.removeprefix(title.lower())}" in chart.title


@pytest.mark.parametrize("name", ["figure3", "figure5", "figure9"])
def test_each_kind_of_chart_is_drawn(name: str, file: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = file.with_suffix(".svg")
    assert run(["paper", "batchgemm", name, "--from", str(file), "--picture", str(picture)]) == 0
    assert "h100" in picture.read_text()


def test_workloads_are_those_of_the_article(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("table2", "table3"):
        rows = rows_of(name, file, capsys)
        assert all(float(r["W_CP"]) == float(r["article's W_CP"]) for r in rows)
        assert all(float(r["W_DL"]) == float(r["article's W_DL"]) for r in rows)
    assert {r["threads"] for r in rows} == {"128", "256"}


def test_named_and_chosen_ranges_are_told_apart(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of("figure5", file, capsys)
    assert {(r["range"], r["named"]) for r in rows} == {("128/128", "yes"), ("512/128", "yes"), ("256/512", "no")}
    assert {r["items"] for r in rows} == {"8", "64"}
    first = rows[0]
    assert float(first["method"]) == pytest.approx(8e6 / 1.0 * 1e-3)
    assert float(first["× cuBLAS loop"]) == pytest.approx(10)
    assert run(["paper", "batchgemm", "figure5", "--from", str(file)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "the method is faster than every tile alone on 6 of 6 lists" in text
    assert "× cuBLAS loop: named ranges 10.00, others 10.00 (article: 7.18 on an A800)" in text


def test_sweep_compares_threads(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_tile = {r["tile"]: r for r in rows_of("figure3", file, capsys)}
    assert len(by_tile) == 9
    assert (by_tile["64×64"]["fastest"], by_tile["64×64"]["Table 3"]) == ("64", "256")
    assert by_tile["128×128"]["512 threads"] == by_tile["8×8"]["Table 3"] == ""


def test_overhead_is_of_the_named_ranges(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_items = {r["items"]: r for r in rows_of("figure7", file, capsys)}
    assert set(by_items) == {"8", "64", "1024"}
    us = (8 * 128 / 1024 + 8 * 512 / 1024) / 2
    assert float(by_items["8"]["overhead %"]) == pytest.approx(100 * 30 / (30 + us))
    assert by_items["8"]["article %"] == "6.37"


def test_gain_of_the_new_tlp(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_range = {r["range"]: r for r in rows_of("figure9", file, capsys)}
    assert by_range["256/512"] == {"range": "256/512", "named": "no", "8 items": "3.0", "64 items": "3.0"}


def test_tables_without_times_need_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(paper_files, "shipped_dir", lambda: tmp_path)
    assert run(["paper", "batchgemm", "table3"]) == 0
    assert run(["paper", "batchgemm", "figure5"]) == 2
    assert "On such a GPU: python -m ptxgen paper batchgemm --measure" in capsys.readouterr().err
    assert run(["paper", "batchgemm", "figure12"]) == 2
    assert "name is 'figure12'; it must be one of table2, table3" in capsys.readouterr().err
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    assert run(["paper", "batchgemm", "--measure"]) == 3
    assert "needs an NVIDIA GPU" in capsys.readouterr().err


def test_incomplete_documents_are_errors(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "less.json"
    path.write_text(json.dumps({"command": "paper batchgemm", "device": "h100", "sweep": [], "lists": []}))
    for name, part in (("figure3", "sweep"), ("figure5", "random list"), ("figure11", "Inception module")):
        assert run(["paper", "batchgemm", name, "--from", str(path)]) == 2
        assert f"the document has no {part}" in capsys.readouterr().err


def test_measurement_times_every_variant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = EmulatedDriver(device("h100"))
    cases = [ListCase("small", GroupedGemm(((40, 24, 20), (16, 16, 8))), 64, 32, True)]

    def choose(p: GroupedGemm) -> Config:
        return tile_config(p, driver.device, TILES[0])

    [times] = article_times.list_times(driver, cases, choose, tmp_path / "none.sqlite", BRIEF)
    assert set(times.us) == {"ptxgen", *VARIANTS}
    assert min(times.us.values()) > 0
    assert times.items == 2
    assert times.flops == 2 * (40 * 24 * 20 + 16 * 16 * 8)
    assert sum(times.tiles["tlp"].values()) == 2
    assert all(0 < x <= 1 for x in times.occupancy.values())
    monkeypatch.setattr(article_times, "SWEEP_TILES", ((16, 16), (128, 128)))
    monkeypatch.setattr(article_times, "SWEEP_THREADS", (64, 128))
    swept = list(article_times.sweep(driver, ((24, 32, 16),), BRIEF))
    assert [(s.m, s.threads, s.us is not None) for s in swept] == [
        (16, 64, True),
        (16, 128, True),
        (128, 64, False),
        (128, 128, True),
    ]
    assert "breaks rule 'registers'" in swept[2].note
    assert json.dumps(plain([asdict(times), *map(asdict, swept)]))


def test_measured_document_is_saved_and_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """The emulated device in place of a GPU: libraries have no times."""
    driver = EmulatedDriver(device("h100"))
    cases = [ListCase("64/32 x2", GroupedGemm(((40, 24, 20), (16, 16, 8))), 64, 32, True)]
    monkeypatch.setattr(MeasuredOptions, "gpu", lambda self, name: driver)
    monkeypatch.setattr(article_times, "list_cases", lambda most: cases)
    monkeypatch.setattr(article_times, "VARIANTS", {name: VARIANTS[name] for name in ("tlp", "tlp_blocks")})
    monkeypatch.setattr(article_times, "SWEEP_TILES", ((16, 16),))
    monkeypatch.setattr(article_times, "SWEEP_THREADS", (64,))
    monkeypatch.setattr(article_times.sweep, "__defaults__", (((24, 32, 16),), BRIEF))
    path = tmp_path / "batchgemm.json"
    assert run(["paper", "batchgemm", "figure5", "--measure", "--save", str(path), "--device", "h100"]) == 0
    assert "64/32" in capsys.readouterr().out
    saved = json.loads(path.read_text())
    assert saved["settings"]["tlp"].keys() == {"threshold", "bodies"}
    for name in ("figure3", "figure6", "figure7", "figure9", "figure10"):
        assert rows_of(name, path, capsys)


def test_lists_are_those_of_the_suite_and_long_ones() -> None:
    cases = list(article_times.list_cases())
    assert len(cases) == 12 * 6 + 2 + 9
    assert [c.name for c in cases if len(c.problem.items) == 1024] == ["128/128 x1024", "512/128 x1024"]
    known = {case.problem for case in suites.SUITES["batchgemm"].build()}
    assert {c.problem for c in cases if len(c.problem.items) < 1024} == known
    assert sum(c.named for c in cases) == 14
    assert len(list(article_times.list_cases(16))) == 12 * 2 + 9
