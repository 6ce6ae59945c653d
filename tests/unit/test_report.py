"""Reports: JSON documents, tables, summaries, progress."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ptxgen.cli import report
from ptxgen.cli.tables import Predicted, Table, csv_of, number, text_of
from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.reference import Deviation
from ptxgen.problem.suites import Case, cases
from ptxgen.tuning.measure.bench import BenchRow
from ptxgen.tuning.selection import Selection


@dataclass
class Inner:
    x: float


def test_documents_are_valid_json() -> None:
    made = report.to_json(
        {
            "nan": math.nan,
            "inf": np.float64(np.inf),
            "number": np.int64(3),
            "path": Path("a") / "b",
            "text": "µs",
            "list": (Inner(1.5), {1: None}),
            "bool": np.bool_(True),
            "values": np.float32(0.5),
        }
    )
    assert json.loads(made) == {
        "nan": None,
        "inf": None,
        "number": 3,
        "path": "a/b",
        "text": "µs",
        "list": [{"x": 1.5}, {"1": None}],
        "bool": True,
        "values": 0.5,
    }


def test_table_aligns_columns_and_omits_blank_ones() -> None:
    output = Table(("name", "blank", "n", "x"), [["a", "", 5, 1.25], ["long name", None, 1000, None]]).text()
    assert output.splitlines() == ["name          n     x", "a             5  1.25", "long name  1000"]


def test_table_without_rows_has_its_titles() -> None:
    assert Table(("a", "b"), []).text() == "a  b"


def test_a_narrow_table_states_constants_once_and_then_leaves_columns_out() -> None:
    rows = [["first", "f32", 1, "x" * 30, "a" * 20], ["second", "f32", 2, "y" * 30, "b" * 20]]
    table = Table(("name", "dtype", "n", "long", "words"), rows, optional=("long",))
    assert table.text(68).splitlines() == [
        "name    n  long                            words",
        f"first   1  {'x' * 30}  {'a' * 20}",
        f"second  2  {'y' * 30}  {'b' * 20}",
        "all rows: dtype f32",
    ]
    assert table.text(33).splitlines() == [
        "name    n  words",
        f"first   1  {'a' * 20}",
        f"second  2  {'b' * 20}",
        "all rows: dtype f32",
        "not shown: long; --wide shows all",
    ]


def test_the_last_column_of_a_narrow_table_is_wrapped_and_others_are_shortened() -> None:
    table = Table(("name", "reason"), [["a" * 30, "one two three four five six seven"], ["b", "eight"]])
    assert table.text(40).splitlines() == [
        "name                reason",
        f"{'a' * 17}…  one two three four",
        "                    five six seven",
        "b                   eight",
        "not shown: part of name; --wide shows",
        "  all",
    ]


def test_predicted_numbers_are_marked_in_text_and_plain_in_csv() -> None:
    table = Table(("µs", "clock"), [[Predicted(3.14159), "model"], [2.5, ""]], csv_only=("clock",))
    assert table.text().splitlines() == ["   µs", "~3.14", " 2.50"]
    assert csv_of([table, "a note"]) == "µs,clock\n3.14159,model\n2.5,\n"


@pytest.mark.parametrize(
    ("value", "message"), [(3.14159, "3.14"), (123.456, "123.5"), (12345.6, "12346"), (math.nan, "-"), (0.0, "0.00")]
)
def test_numbers_have_about_four_digits(value: float, message: str) -> None:
    assert number(value) == message


def row(name: str, us: float, vendor: float, ok: bool = True, same_layout: float = 1.0) -> dict[str, object]:
    p = Gemm(64, 64, 64)
    selection = Selection(p, Config(), "winner", us)
    deviation = Deviation(0.5 if ok else 2.0, (0, 0), 0.1)
    bench_row = BenchRow(name, p, selection, us, vendor, vendor * 1.1, vendor * same_layout, deviation)
    return report.bench_fields(Case(name, p), bench_row)


def test_summary_is_the_geometric_mean_and_the_worst_row() -> None:
    rows = [row("a", 10, 20), row("b", 10, 5), row("c", 10, math.nan)]
    output = report.summary(rows)
    assert output["rows"] == 2
    assert output["geometric_mean"] == pytest.approx(1.0)
    assert output["worst"] == {"name": "b", "ratio": pytest.approx(0.5)}
    assert report.summary(rows[2:]) == {
        "rows": 0,
        "geometric_mean": None,
        "worst": None,
        "same_layout": None,
    }


def test_a_vendor_that_is_faster_in_another_layout_has_a_column_of_its_own() -> None:
    rows = [row("a", 10, 8, same_layout=2), row("b", 10, 5), row("c", 10, 20, same_layout=math.nan)]
    ratio = report.summary(rows)["same_layout"]
    assert ratio == {"rows": 2, "geometric_mean": pytest.approx(math.sqrt(1.6 * 0.5)), "slower": 1}
    output = text_of(report.bench_text(bench_document(rows)))
    assert "cuBLASLt, same layout µs" in output
    assert "with cuBLASLt in the layout of each problem: 0.894 of 2, 1 row slower" in output
    assert "same layout" not in text_of(report.bench_text(bench_document(rows[1:2])))


def bench_document(rows: list[dict[str, object]], clock: str = "hardware") -> dict[str, object]:
    return {"device": "h200", "clock": clock, "baseline": "cublas", "rows": rows, "summary": report.summary(rows)}


def test_comparison_ends_with_mean_and_worst_row() -> None:
    output = text_of(report.bench_text(bench_document([row("a", 10, 20), row("b", 10, 5)])))
    assert "geometric mean of 2 ratios: 1.000" in output
    assert "worst row: b, 0.500" in output
    assert "M_S  N_S  M_L  N_L   U  K_S  K_L  K_G" in output.splitlines()[0] or all(
        symbol in output.splitlines()[0].split() for symbol in ("M_S", "N_S", "M_L", "N_L", "U", "K_S", "K_L", "K_G")
    )
    assert report.MODEL_CLOCK not in output
    assert report.MODEL_CLOCK in text_of(report.bench_text(bench_document([row("a", 10, 20)], "model")))


def test_table_shows_the_papers_values_and_ours() -> None:
    case = cases("isaac")[3]  # DeepBench-F 16
    selection = Selection(case.problem, Config(), "shipped", 10.0)
    output = text_of(
        report.select_text({"device": "h200", "clock": "hardware", "rows": [report.selection_fields(case, selection)]})
    )
    assert "2560,16,2560 NN" in output
    assert "16,2560,2560  NN" in output


def test_wrong_or_unmeasured_row_is_not_ok() -> None:
    assert row("a", 10, 20)["ok"]
    assert not row("a", 10, 20, ok=False)["ok"]
    p = Gemm(64, 64, 64)
    failed = BenchRow("a", p, Selection(p, Config(), "winner"), math.nan, note="launch_error: lost")
    fields = report.bench_fields(Case("a", p), failed)
    assert (fields["ok"], fields["us"], fields["ratio"], fields["tflops"]) == (False, None, None, None)
    assert "a: launch_error: lost" in text_of(report.bench_text(bench_document([fields])))


def test_preparations_are_counted_in_products_and_in_calls() -> None:
    p = Gemm(64, 64, 64)

    def fields(name: str, **times: float) -> dict[str, object]:
        bench_row = BenchRow(
            name, p, Selection(p, Config(), "winner"), 10.0, deviation=Deviation(0.1, (0, 0), 0.1), **times
        )
        return report.bench_fields(Case(name, p), bench_row)

    rows = [
        fields("a", preparation_us=80.0, unprepared_us=12.0),
        fields("b", preparation_us=80.0, unprepared_us=10.0),
        fields("c"),
        fields("d", preparation_us=85.0),
    ]
    assert [r["preparation_products"] for r in rows] == [8.0, 8.0, None, 8.5]
    assert [r["pays_from_calls"] for r in rows] == [41, None, None, None]  # 41 calls: 490 and 492 µs
    document = {**bench_document(rows), "baseline": None}
    text = text_of(report.bench_text(document))
    assert "never" in text.splitlines()[2]
    head, *lines = csv.reader(csv_of(report.bench_text(document)).splitlines())
    at = head.index("preparation, products")
    assert head[at : at + 4] == [
        "preparation, products",
        "pays from calls",
        "preparation µs",
        "µs without preparation",
    ]
    assert [line[at : at + 4] for line in lines] == [
        ["8.0", "41", "80.0", "12.0"],
        ["8.0", "never", "80.0", "10.0"],
        ["", "", "", ""],
        ["8.5", "", "85.0", ""],
    ]
    shown = [report._preparation_cells(r, False, True) for r in rows]
    assert [number(x) for x in (*shown[2][:2], shown[3][1])] == ["-", "-", "-"]
    assert "without preparation" not in text
    assert "preparation: time in units of one product" in text
    assert "preparation 8.0 products" in report.bench_line(rows[0], document)
    plain = text_of(report.bench_text(bench_document([row("a", 10, 20)])))
    assert "preparation" not in plain
    assert "pays from" not in plain


def test_text_of_a_configuration_is_valid_option_input() -> None:
    from ptxgen.codegen.config.config import parse_config

    config = Config(ms=4, kg=7, splitk=2, stages=4)
    assert parse_config(report.config_fields(config)["config_text"]) == config
