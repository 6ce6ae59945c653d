"""The commands task run, list, show and export."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ptxgen.cli.command import run
from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.language.readable import readable
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.semirings import semiring_program
from ptxgen.operations.task.suites import QUERIES, typed_text
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement
from tests import exports
from tests.random_programs import random_program

ROOT = Path(__file__).parents[2]
TEXT = "where (i, j) { reduce (k) { accum += abs(P[i, k] - R[j, k]); } C[i] argmin= accum; }"
TYPED = "P: f16[i, k]; R: f16[j, k]; accum: f32; " + TEXT.replace("abs(P[i, k] - R[j, k])", "f32(abs(P[i,k]-R[j,k]))")
H200 = Environment("h200", "hardware", "13.0", "13.0", "graph", "1")
CONFIG = parse_config("family=simt ms=4 ns=4 ml=32 nl=32 u=8")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A winner of a task, and a measurement of it with arrays stored otherwise."""
    path = tmp_path / "tasks.sqlite"
    first, second = Task(64, 48, 16, text=TEXT), Task(80, 48, 16, "TN", text=TEXT)
    with Database(path) as db:
        for p, us in ((first, 12.5), (second, 21.0)):
            m = Measurement(p, CONFIG, "ok", H200, (us,), "0123456789abcdef", 64, 0, "", "sample", 1000.0)
            db.add(m)
            if p is first:
                db.set_winner(m)
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    """The document of a command; of one that fails, its error."""
    assert run(["task", *arguments, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    return document["error"]["message"] if code else document


def test_task_without_a_command_is_task_run(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (printed(capsys, *words, "--expr", TEXT) for words in ((), ("run",)))
    assert one == other
    assert one["text"] == canonical(parse(TEXT, {"P": "f32", "R": "f32"}))


def test_list_has_winners_measurements_and_shipped_winners(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    rows = printed(capsys, "list", "--database", str(database))["rows"]
    assert {row["source"] for row in rows} == {"winner", "measured", "shipped"}
    mine = [row for row in rows if row["device"] == "h200" and row["source"] != "shipped"]
    facts = [(row["extents"], row["layout"], row["us"], row["family"], row["source"]) for row in mine]
    assert facts == [([64, 48, 16], "NT", 12.5, "simt", "winner"), ([80, 48, 16], "TN", 21.0, "simt", "measured")]
    assert len({row["hash"] for row in mine}) == 1
    assert mine[1]["text"] == "where(i,j){reduce(k){accum+=abs(A[k,i]-B[k,j]);}C[i]argmin=accum;}"  # as it is stored
    assert {"min_plus", "l1"} <= {row["name"] for row in rows}
    assert run(["task", "list", "--database", str(database), "--device", "h200", "--csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(line["M,N,K"], line["types"], line["hash"]) for line in lines if line["source"] != "shipped"] == [
        ("64,48,16", "A f32, B f32", mine[0]["hash"]),
        ("80,48,16", "A f32, B f32", mine[0]["hash"]),
    ]


def test_show_prints_text_roles_and_stored_times(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    text = TEXT.replace("P", "left")  # names do not count
    text_shown = printed(capsys, "show", "--task", text, "--database", str(database))
    assert "        accum += abs(left[i, k] - R[j, k]);\n    }\n    C[i] argmin= accum;" in text_shown["readable"]
    assert "A is left[i,k], f32" in text_shown["explanation"]
    facts = [(row["source"], row["us"]) for row in text_shown["rows"] if row["device"] == "h200"]
    assert facts == [("winner", 12.5), ("measured", 21.0)]
    assert [x.split()[0] for x in text_shown["rows"][0]["kernels"]] == ["task_f32_nt", "task_f32_nt_join"]
    (database.parent / "left.task").write_text(text)  # a file, by both ways, needs no types
    for words in ([], ["--task"]):
        of_file = printed(capsys, "show", *words, str(database.parent / "left.task"), "--database", str(database))
        assert of_file == text_shown
    again = printed(capsys, "show", text_shown["hash"][:8], "--database", str(database))
    assert again["hash"] == text_shown["hash"]
    assert again["rows"] == text_shown["rows"]
    chosen = printed(capsys, "show", "max_min", "--dtype", "f32", "--shape", "1024,1024,1024", "--device", "h100")
    assert chosen["name"] == "max_min"
    assert chosen["rows"][-1]["source"] == "shipped"
    assert chosen["rows"][-1] in chosen["rows"][:-1]  # what --shape adds is the stored winner


def test_a_name_of_tasks_of_several_types_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    p = Task(64, 48, 16, dtype="f16", text=canonical(semiring_program("min_plus", "f16")))
    with Database(tmp_path / "tasks.sqlite") as db:
        db.add(Measurement(p, CONFIG, "ok", H200, (9.0,), "0123456789abcdef", 64, 0, "", "sample", 1000.0))
    words = ["show", "min_plus", "--database", str(tmp_path / "tasks.sqlite"), "--device", "h200"]
    message = printed(capsys, *words, code=2)
    assert "task is min_plus; it is the name of several" in message
    assert "(f16)" in message
    assert printed(capsys, *words, "--dtype", "f16")["rows"][0]["us"] == 9.0


def test_readable_texts_parse_to_the_same_programs() -> None:
    programs = [parse(typed_text(text, "f32")) for text in QUERIES.values()]
    programs += [parse(canonical(random_program(Random(seed)))) for seed in range(20)]
    for program in programs:
        assert parse(readable(program)) == program


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show"], "a name or --task must be given, and not both"),
        (["show", "nothing"], "task is 'nothing'; it must be the name of a semiring, a distance or a query, the hash"),
        (["show", "min_plu"], "or a file: write min_plus"),
        (["show", "min_plus", "--dtype", "f33"], "dtype is 'f33'; it must be one of f64, f32"),
        (["list", "--device", "nope"], "device is 'nope'; it must be one of"),
        (["export"], "no task is given"),
        (["export", "--task", TEXT, "--shape", "8,8,8"], "P is unknown; declare P: f32[i, k]; before where"),
        (["export", "--task", TEXT, "--type", "Q=f32"], "type is Q=f32; the inputs of the task are P, R"),
        (["export", "--task", TEXT, "--type", "P"], "type is P; it must be NAME=TYPE"),
        (["export", "--task", TYPED, "--name", "a b", "--shape", "8,8,8"], "name is 'a b'; it must have letters"),
        (["export", "--task", TYPED, "--name", "a", "--name", "b"], "name is given 2 times"),
        (
            ["export", "--task", TYPED, "--output", "D", "--shape", "8,8,8"],
            "output is D; the outputs of the task are C",
        ),
        (["export", "--task", TYPED], "no extents are given, and the task has no stored times on h200; use --shape"),
        (["export", "--task", TYPED, "--groups", "4,4", "--shape", "8,8,8"], "groups is '4,4'; it must be empty"),
    ],
)
def test_errors_name_the_argument(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    export = ["--device", "h200", "--folder", str(tmp_path / "out")] if words[0] == "export" else []
    assert message in printed(capsys, *words, *export, code=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(exports.compiler() is None, reason="there is no gcc")
def test_export_writes_functions_that_programs_call(
    capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path
) -> None:
    """The code of the page compiles with the header of its command; stored extents are the default."""
    page = (ROOT / "docs" / "export.md").read_text()
    text = page.split("task export --task '")[1].split("'")[0]
    options = ["--device", "h200", "--folder", str(tmp_path / "out"), "--database", str(database)]
    words = ["--task", text, "--task", TEXT, "--dtype", "f32", "--name", "near", "--name", "nearest", *options]
    made = printed(capsys, "export", *words, "--shape", "96,48,16")
    assert made["functions"] == ["ptxgen_task_near", "ptxgen_task_nearest"]
    body = page.split("```c\n")[1].split("```")[0]
    names = "void *p, void *r, void *values, void *i, void *j, int64_t *count"
    code = f'#include "ptxgen_kernels.h"\nvoid call(ptxgen_library *library, struct CUstream_st *stream, {names})\n'
    (tmp_path / "call.c").write_text(f"{code}{{\n{body}}}\n")
    command = [str(exports.compiler()), *exports.WARNINGS, "-fsyntax-only", "-I", str(tmp_path / "out"), "call.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    stored = printed(capsys, "export", "--task", TEXT, "--dtype", "f32", *options)
    assert stored["problems"] == 1  # the other one has arrays that are stored in another order
    [name] = stored["functions"]
    assert len(name) == len("ptxgen_task_") + 12
