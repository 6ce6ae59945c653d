"""Documents that commands read: any damage is an InputError that names the file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import batchgemm_tables, documents, page, paper_anatomy, paper_tables, report
from ptxgen.cli.explain import vendor_times
from ptxgen.cli.tables import csv_of, text_of
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import InputError
from ptxgen.problem.operation import Case
from ptxgen.problem.reference import Deviation
from ptxgen.problem.suites import cases
from ptxgen.tuning.collect.validation import Validated, read_rows, summaries
from ptxgen.tuning.measure.bench import BenchRow
from ptxgen.tuning.selection import Selection
from tests.unit.test_anatomy import shown as shown_anatomy
from tests.unit.test_batchgemm import shown as shown_batchgemm

CONFIG = parse_config("ms=8 ns=4 ml=64 nl=32 u=8")
GEMM, OTHER = list(cases("isaac", "gemm"))[:2]


def bench_row(case: Case) -> dict[str, Any]:
    selection = Selection(case.problem, CONFIG, "winner", 4.0)
    row = BenchRow(case.name, case.problem, selection, 4.0, 5.0, 6.0, deviation=Deviation(0.1, (0, 0), 0.1))
    return report.bench_fields(case, row)


REGRESSOR = {"hidden": [64, 32], "weights": 100, "samples": 1000, "mse": 0.1, "first": 0.9, "plain_mse": 0.2}
ACCEPTANCE = [{"sampler": name, "acceptance": 0.1} for name in ("categorical", "uniform")]
DOCUMENTS: dict[str, dict[str, Any]] = {
    "bench": {
        "command": "bench",
        "device": "h200",
        "baseline": "cublas",
        "rows": [bench_row(GEMM), bench_row(OTHER)],
    },
    "sampler": {
        "command": "sampler",
        "device": "h200",
        "rows": [{**report.problem_fields(GEMM), "samplers": ACCEPTANCE}],
    },
    "paper splitting": {
        "command": "paper splitting",
        "device": "h200",
        "rows": [
            {
                **report.problem_fields(GEMM),
                "splits": [{"splits": "all", "us": 4.0, "measured": 3, **report.config_fields(CONFIG)}],
            }
        ],
    },
    "paper anatomy": shown_anatomy(),
    "paper batchgemm": {name: x[3:5] if isinstance(x, list) else x for name, x in shown_batchgemm().items()},
    "model evaluate": {
        "command": "model evaluate",
        "device": "h200",
        "curve": [{"problems": 10, "rows": 100, "error": 0.1, "first": 0.9}],
        "samples": [REGRESSOR],
        "architectures": [REGRESSOR],
    },
}
DOCUMENTS = {name: json.loads(report.to_json(document)) for name, document in DOCUMENTS.items()}
HOSTILE = ("x", "", -1, 0, 10**400, 1e300, float("nan"), True, None, [], {}, [5], {"key": 5}, "gemm 0,0,0 NN f32")


def read_table(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        document = documents.read(path, "bench", "sampler", "model evaluate", "paper splitting")
        if document.get(paper_tables.CONTENTS[name]):
            parts = paper_tables.TABLES[name](document).parts
            text_of(parts, 80), csv_of(parts)

    return read


def read_anatomy(path: Path) -> None:
    parts = paper_anatomy.table(documents.read(path, "paper anatomy")).parts
    text_of(parts, 80), csv_of(parts)


def read_batchgemm(path: Path) -> None:
    document = documents.read(path, "paper batchgemm")
    for shown in batchgemm_tables.TABLES.values():
        with suppress(InputError):  # a part is missing
            parts = shown.table(document).parts
            text_of(parts, 80), csv_of(parts)


#: command -> the functions that read its document
READERS: dict[str, list[Callable[[Path], object]]] = {
    "bench": [page.read_source, lambda path: vendor_times(path, "h200"), read_table("table4"), read_table("table6")],
    "sampler": [read_table("table1")],
    "paper splitting": [read_table("splitting")],
    "paper anatomy": [read_anatomy],
    "paper batchgemm": [read_batchgemm],
    "model evaluate": [page.read_source, read_table("table2"), read_table("figure5")],
}


def damaged(document: Any, share: int = 1) -> Iterator[Any]:
    """Copies of a document with each part replaced by each hostile value, and without each part. ``share``: each part
    takes one in so many of these, in turn."""
    places: list[tuple[Any, ...]] = [()]
    for place in places:
        part = document
        for step in place:
            part = part[step]
        if isinstance(part, dict | list):
            places += [(*place, step) for step in (part if isinstance(part, dict) else range(len(part)))]
    for n, place in enumerate(places[1:]):
        for value in (*HOSTILE, KeyError)[n % share :: share]:
            changed = copy.deepcopy(document)
            part = changed
            for step in place[:-1]:
                part = part[step]
            if value is KeyError:
                del part[place[-1]]
            else:
                part[place[-1]] = value
            yield changed


def error_of(read: Callable[[Path], object], path: Path) -> str:
    """The message of an InputError; empty: the file is read."""
    try:
        read(path)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_any_damage_is_reported_with_the_name_of_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text(json.dumps(DOCUMENTS[name]))
    assert not any(error_of(read, path) for read in READERS[name])
    refused = []
    for document in damaged(DOCUMENTS[name], 4):
        path.write_text(json.dumps(document))
        refused += filter(None, (error_of(read, path) for read in READERS[name]))
    assert len(refused) > 25
    others = {text for text in refused if "document.json" not in text}
    assert all(text.startswith("baseline is ") for text in others)  # `paper` adds the file


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", '{"a": 1}', '{"command": []}', "\x00", "5", "9" * 5000])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text(text)
    for readers in READERS.values():
        for read in readers:
            with pytest.raises(InputError, match=r"document\.json"):
                read(path)


def test_the_error_names_the_value_and_the_rule(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    document = copy.deepcopy(DOCUMENTS["bench"])
    document["rows"][1]["ratio"] = -1
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"bench\.json is damaged: rows\[1\]\.ratio is -1; it must be a number from 0"):
        documents.read(path, "bench")


def test_problems_and_configurations_are_those_of_this_version(tmp_path: Path) -> None:
    """A document of an earlier version lacks fields of this one."""
    path = tmp_path / "bench.json"
    row = {"name": "old", "problem": {"key": GEMM.problem.key()}, "us": 4.0, "config": {"family": "simt", "ms": 8}}
    path.write_text(json.dumps({"command": "bench", "device": "h200", "rows": [row]}))
    [stored] = documents.read(path, "bench")["rows"]
    assert stored["problem"] == {"key": GEMM.problem.key(), **GEMM.problem.as_dict()}
    assert stored["config"] == parse_config("family=simt ms=8").values()
    assert (stored["us"], stored["ratio"], stored["note"]) == (4.0, None, "")


def test_any_damage_of_rows_of_a_validation_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    header, row = {"device": "h200"}, Validated(GEMM.problem, 9, 4.0, 3.0, 2.0, 5.0, configs=(CONFIG,)).as_dict()
    refused = []
    for lines in damaged([header, row]):
        path.write_text("\n".join(map(json.dumps, lines)))
        refused.append(error_of(lambda path: list(summaries(read_rows(path)[1])), path))
    assert len(list(filter(None, refused))) > 50
    assert all("rows.jsonl" in text for text in refused if text)
