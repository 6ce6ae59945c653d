"""The command report: one page that needs no network, in light and dark, on wide screens and phones."""

from __future__ import annotations

import html
import json
import lzma
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import report as texts
from ptxgen.cli.command import run
from ptxgen.codegen.config.config import Config
from ptxgen.errors import CorruptError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.operation import Case
from ptxgen.problem.reference import Deviation
from ptxgen.tuning.measure.bench import BenchRow
from ptxgen.tuning.selection import Selection
from ptxgen.tuning.store import history, tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.history import Attempt, Ratio
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.tuning.store.tuning_files import Header

pytest.importorskip("matplotlib")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
VOID = {"meta", "br", "use", "path"}
#: everything that would make a browser load something
LOADS = re.compile(r"<script|<link|<img|<iframe|@import|\bsrc=|url\((?!#)|href=\"(?!#)", re.I)


def measured(p: Gemm, us: float, created: float, outcome: str = "ok", **axes: Any) -> Measurement:
    samples = (us,) if outcome == "ok" else ()
    message = "" if outcome == "ok" else "<no answer> in 60 s"
    place = Environment("h200", policy="test")
    return Measurement(p, Config(**axes), outcome, place, samples, message=message, created=created)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page about a database of two problems, and a document of bench."""
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    large, small = Gemm(2048, 2048, 2048), Gemm(16, 2560, 2560, dtype="f16")
    with Database(tmp_path / "tuning.sqlite") as database:
        for m in (
            measured(large, 900.0, 1.7e9),
            measured(large, 400.0, 1.7e9 + 60, ms=4),
            measured(small, 9.0, 1.7e9 + 90),
            measured(small, 0.0, 1.7e9 + 99, "timeout", ms=4),
        ):
            database.add(m)
        database.set_winner(measured(large, 400.0, 1.7e9 + 60, ms=4))
        database.set_winner(measured(small, 9.0, 1.7e9 + 90))
    selection = Selection(large, Config(), "winner", 400.0)
    row = BenchRow("x", large, selection, 400.0, 500.0, 600.0, deviation=Deviation(0.1, (0, 0), 0.1))
    fields = texts.bench_fields(Case("x", large), row)
    document = {"command": "bench", "device": "h200", "clock": "hardware", "baseline": "cublas", "rows": [fields]}
    (tmp_path / "bench.json").write_text(texts.to_json(document))
    curve = [{"problems": n, "rows": 10 * n, "error": 1 / n, "first": 0.9} for n in (10, 20, 40)]
    evaluation = {"command": "model evaluate", "device": "h200", "curve": curve}
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    page = tmp_path / "report.html"
    files = (str(tmp_path / name) for name in ("bench.json", "evaluation.json"))
    assert run(["report", "--out", str(page), *(word for file in files for word in ("--from", file))]) == 0
    return page


class Checker(HTMLParser):
    """Checks that elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_is_self_contained_and_well_formed(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert LOADS.findall(text) == []
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids)) > 50
    assert "prefers-color-scheme: dark" in text


def test_the_page_has_the_results(written: Path, tmp_path: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert "<title>gemm 2048,2048,2048 NN f32: 400.0 µs, 42.95 TFLOP/s, simt</title>" in text  # of a point
    assert text.count("<title>gemm ") == 2
    assert "<td>timeout</td><td>simt</td>" in text
    assert "&lt;no answer&gt; in 60 s" in text
    assert '<td class="number">1.25</td>' in text  # the ratio
    assert "From the database tuning.sqlite, bench.json, evaluation.json" in text
    assert "ms=4" in text
    for chart in ("roofline-gemm", "ratio-gemm", "history", "search", "learning"):
        assert f'id="{chart}-' in text


def test_a_page_of_shipped_results_has_the_learning_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "none.sqlite"))
    monkeypatch.setattr(
        tuning_files, "measurements_path", lambda device, folder=None: tmp_path / "measurements.jsonl.xz"
    )
    curve = [{"problems": n, "rows": 10 * n, "error": 1 / n, "first": 0.9} for n in (10, 20, 40)]
    evaluation = {"command": "model evaluate", "device": "t4", "curve": curve}
    (tmp_path / history.EVALUATION).write_text(json.dumps(evaluation))
    assert run(["report", "--device", "t4", "--out", str(tmp_path / "t4.html")]) == 0
    text = (tmp_path / "t4.html").read_text(encoding="utf-8")
    assert "From the shipped evaluation of the model" in text
    assert 'id="learning-' in text


def test_shipped_measurements_are_read_as_those_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "measurements.jsonl.xz"
    rows = [
        measured(Gemm(16, 16, 16), 9.5, 1.7e9),
        measured(Gemm(16, 16, 32), 4.5, 1.7e9 + 1, ms=4),
        measured(Gemm(16, 16, 48), 0.0, 1.7e9 + 2, "timeout", family="wgmma"),
    ]
    tuning_files.write_measurements(path, Header("h200", "hardware", "abc", "ptxgen collect", "2026-01-02"), rows)
    attempts = sorted(history.shipped_attempts([path]), key=lambda attempt: attempt.created)
    assert attempts == [history.attempt(m) for m in rows]
    assert [attempt.family for attempt in attempts] == ["simt", "simt", "wgmma"]
    assert attempts[2].us == math.inf
    for line in ('{"problem": "gemm 1,1,1", "outcome": "ok"}', '{"samples": ["x"], "config": ""}', "not JSON"):
        with lzma.open(path, "wt") as file:
            file.write(f'{{"ptxgen": "measurements"}}\n{line}\n')
        with pytest.raises(CorruptError, match=r"measurements\.jsonl\.xz"):
            list(history.shipped_attempts([path]))


def test_a_page_without_results_has_the_commands_that_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "none.sqlite"))
    assert run(["report", "--device", "t4", "--out", str(tmp_path / "t4.html")]) == 0
    text = (tmp_path / "t4.html").read_text(encoding="utf-8")
    for command in ("python -m ptxgen tune", "--baseline cublas --save bench.json", "model evaluate --json"):
        assert command in html.unescape(text)
    assert "<svg" not in text


def test_files_of_other_kinds_and_devices_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {"kind.json": {"command": "select"}, "device.json": {"command": "bench", "device": "a100", "rows": []}}
    for name, document in wrong.items():
        (tmp_path / name).write_text(json.dumps(document))
        words = ["report", "--device", "h200", "--no-history", "--out", str(tmp_path / "r.html")]
        assert run([*words, "--from", str(tmp_path / name)]) == 2
        assert re.search(r"must be (the output of bench or model evaluate --json|of h200)", capsys.readouterr().err)
        assert not (tmp_path / "r.html").exists()


def test_attempts_become_curves_and_counts() -> None:
    rows = [
        Attempt("p", "simt", "ok", 8.0, 1.0),
        Attempt("p", "mma", "ok", 4.0, 2.0),
        Attempt("p", "mma", "timeout", math.inf, 3.0, "late"),
        Attempt("q", "simt", "ok", 5.0, 4.0),
    ]
    assert history.search_curve(rows) == [(1, pytest.approx(math.sqrt(0.5))), (2, pytest.approx(1.0))]
    assert history.counts_over_time(rows)["mma"] == [(1.0, 0), (2.0, 1), (3.0, 2), (4.0, 2)]
    assert history.failures(rows) == [history.Failure("timeout", "mma", 1, "late")]
    grid = history.heat_map([Ratio(Gemm(64, 64, 64), 2.0), Ratio(Gemm(65, 65, 65), 0.5), Ratio(Gemm(8, 8, 64), 3.0)])
    assert (grid.columns, grid.rows) == ([6, 9, 12], [6])
    assert grid.cells == [[(pytest.approx(3.0), 1), None, (pytest.approx(1.0), 2)]]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_chromium_shows_the_page_on_screens_and_phones(written: Path, scheme: str, tmp_path: Path) -> None:
    """The page, in a frame of each width, reports its layout to the title of the document around it."""
    probe = """<script>addEventListener("load", () => {
      const widths = [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect().width);
      parent.document.title += [innerWidth, document.documentElement.scrollWidth, Math.min(...widths),
        getComputedStyle(document.body).backgroundColor].join("|") + ";";
    })</script>"""
    text = written.read_text(encoding="utf-8").replace("</body>", f"{probe}</body>")
    frames = "".join(f'<iframe width="{w}" height="900" srcdoc="{html.escape(text)}"></iframe>' for w in (1200, 360))
    around = tmp_path / "around.html"
    around.write_text(f'<!DOCTYPE html><meta charset="utf-8"><title></title><style>iframe{{border:0}}</style>{frames}')
    assert CHROMIUM is not None
    words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    words += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000", "--dump-dom"]
    words += [f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", around.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    match = re.search(r"<title>(.*?)</title>", done.stdout)
    assert match, done.stderr
    rows = [row.split("|") for row in match[1].split(";")[:-1]]
    assert sorted(int(row[0]) for row in rows) == [360, 1200]
    for inner, scroll, narrowest, colour in rows:
        assert int(scroll) <= int(inner)
        assert float(narrowest) >= 280
        assert colour == {"light": "rgb(251, 251, 250)", "dark": "rgb(20, 23, 27)"}[scheme]
