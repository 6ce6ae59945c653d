"""The database as JSON lines and as Parquet: it comes back the same; damaged files are refused."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli.command import run
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import CorruptError, DatabaseError, InputError, SchemaError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.tuning.store import parquet_file
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.tuning.store.result_files import FORMS, import_files, read_results, write_results

H200 = Environment("h200", "hardware", "580.65", "13.0.88", "l2_multiple=2", "abc1234")
CONFIG = parse_config("family=simt ms=4 ns=8")
ROWS = (
    Measurement(Gemm(512, 512, 512), CONFIG, "ok", H200, (10.25, 1 / 3 + 10, 11.0), "0" * 16, 80, 0, "", "final", 5.5),
    Measurement(Gemm(512, 512, 512), parse_config("family=simt"), "ok", H200, (12.0,), "1" * 16, created=6.0),
    Measurement(Gemm(64, 64, 64, "NT", "f16"), CONFIG, "crashed", H200, message="signal 11 — «odd»\nline", created=7.0),
    Measurement(Gemm(8, 8, 8), CONFIG, "ok", replace(H200, device="emulated", clock="model"), (3.0,), "2" * 16),
)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "first.sqlite"
    with Database(path) as store:
        for m in ROWS:
            store.add(m)
        store.set_winner(ROWS[0])
        store.set_winner(ROWS[3])
        store.demote("h200", lambda problem, config: "f" * 16)  # the winner of h200 is stale
    return path


def content(path: Path) -> tuple[list[tuple[Measurement, float]], list[Measurement], list[tuple[str, ...]]]:
    with Database(path, readonly=True) as store:
        rows = [(m, m.created) for m in store.measurements()]
        stale = [row[:3] for row in store.stale()]
        return sorted(rows, key=repr), sorted(store.winners(stale=True), key=repr), stale


@pytest.mark.parametrize("form", FORMS)
def test_database_comes_back_the_same(form: str, database: Path, tmp_path: Path) -> None:
    with Database(database, readonly=True) as store:
        path = write_results(store, tmp_path / "out", form)
    other = tmp_path / "second.sqlite"
    digests = {"h200": "f" * 16, "emulated": "2" * 16}
    with Database(other) as store:
        counts = import_files(store, tmp_path / "out", lambda device, problem, config: digests[device])
        assert counts["measurements"] == len(ROWS)
        again = import_files(store, path, lambda device, problem, config: digests[device])
    assert (again["measurements"], again["already_present"]) == (0, len(ROWS))
    assert content(other) == content(database)
    assert len(content(other)[1]) == 2
    assert len(content(other)[2]) == 1


@pytest.mark.parametrize("form", FORMS)
def test_export_of_a_device_and_of_winners(form: str, database: Path, tmp_path: Path) -> None:
    with Database(database, readonly=True) as store:
        path = write_results(store, tmp_path, form, device="h200", raw=False)
        assert [(m, winner) for m, winner in read_results(path)] == [(ROWS[0], True)]
        with pytest.raises(InputError, match="no measurements of it"):
            write_results(store, tmp_path, form, device="a100")
        with pytest.raises(InputError, match="format is 'csv'; it must be text, jsonl or parquet"):
            write_results(store, tmp_path, "csv")


def test_parquet_has_typed_columns(database: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with Database(database, readonly=True) as store:
        path = write_results(store, tmp_path, "parquet")
    table = parquet.read_table(path)
    assert table.schema.field("samples").type.value_type == "double"
    assert table.column("us").to_pylist() == [3.0, ROWS[0].us, 12.0, None]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda lines: lines[:-1], CorruptError, "ends without its last line"),
        (lambda lines: [*lines[:2], *lines[3:]], CorruptError, "says 4 rows; there are 3"),
        (lambda lines: ["{}", *lines[1:]], CorruptError, "line 1: is something else; it must be an object"),
        (lambda lines: [lines[0].replace(":4", ":5"), *lines[1:]], SchemaError, "format 5"),
        (lambda lines: [*lines[:1], lines[1].replace('"us":', '"us":1'), *lines[2:]], CorruptError, "line 2: us is"),
        (lambda lines: [*lines[:1], lines[1].replace("ms=4", "ms=four"), *lines[2:]], CorruptError, "line 2: config"),
        (
            lambda lines: [x.replace('"h200"', '"../h200"') for x in lines],
            CorruptError,
            "device is '../h200'; it must name",
        ),
    ],
)
def test_damaged_lines_are_refused(change, error, message, database: Path, tmp_path: Path) -> None:
    with Database(database, readonly=True) as store:
        path = write_results(store, tmp_path, "jsonl")
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with Database(tmp_path / "second.sqlite") as store:
        with pytest.raises(error, match=message):
            import_files(store, path)
        assert not list(store.measurements())


def test_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"")
    with pytest.raises(CorruptError, match=r"results\.jsonl is empty; it must have"):
        list(read_results(path))


def test_path_that_does_not_exist_makes_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = tmp_path / "new.sqlite"
    assert run(["db", "import", str(tmp_path / "absent"), "--database", str(database)]) == 2
    assert "there is no such file or folder" in capsys.readouterr().err
    assert not database.exists()


def test_damaged_parquet_is_refused(database: Path, tmp_path: Path) -> None:
    with Database(database, readonly=True) as store:
        path = write_results(store, tmp_path, "parquet")
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(CorruptError, match="cannot be read as Parquet"):
        list(read_results(path))


def test_commands(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert run(["db", "export", out, "--format", "jsonl", "--database", str(database)]) == 0
    assert run(["db", "export", out, "--format", "csv", "--database", str(database)]) == 2
    assert run(["db", "import", out, "--database", str(tmp_path / "second.sqlite")]) == 0
    capsys.readouterr()
    assert run(["db", "list", "--json", "--database", str(database)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["problem"], row["device"]) for row in rows] == [
        (m.problem.key(), m.environment.device) for m in (ROWS[3], ROWS[0])
    ]
    assert [bool(row["stale"]) for row in rows] == [False, True]
    assert run(["db", "list", "--device", "h200", "--database", str(database)]) == 0
    assert "gemm 512,512,512" in capsys.readouterr().out
    capsys.readouterr()
    assert run(["db", "list", "--wide", "--database", str(database)]) == 0
    text = capsys.readouterr().out
    assert "TFLOP/s" in text
    assert "~3" in text  # the emulated time


# ---- Parquet files of other programs


@pytest.fixture
def table(database: Path, tmp_path: Path) -> Any:
    """The rows of a database as a table of Arrow."""
    parquet = pytest.importorskip("pyarrow.parquet")
    with Database(database, readonly=True) as store:
        return parquet.read_table(write_results(store, tmp_path, "parquet"))


def written(table: Any, path: Path, **options: Any) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, **options)
    return path


def replaced(table: Any, name: str, values: Any) -> Any:
    return table.set_column(table.schema.get_field_index(name), name, values)


def test_columns_of_another_type_or_name_are_refused(table: Any, tmp_path: Path) -> None:
    import pyarrow as pa

    rows = table.num_rows
    for changed, message in (
        (replaced(table, "created", pa.array([2**62] * rows, pa.timestamp("ns"))), "created is of type timestamp"),
        (replaced(table, "created", pa.array([2**31 - 1] * rows, pa.date32())), "created is of type date32"),
        (replaced(table, "us", pa.array([1.0] * rows, pa.float32())), "us is of type float; it must be double"),
        (replaced(table, "samples", pa.array([["1"]] * rows)), "samples is of type list<.*string>; it must be list"),
        (replaced(table, "digest", pa.array([b"0"] * rows)), "digest is of type binary; it must be string"),
        (replaced(table, "digest", pa.array(["0"] * rows, pa.large_string())), "digest is of type large_string"),
        (table.append_column("us", table["us"]), "has the column us 2 times; it must have it once"),
        (table.append_column("more", table["us"]), "has the column 'more'; the columns are problem, "),
        (table.drop_columns(["spills"]), "has no column spills"),
        (table.drop_columns(["spills"]).slice(0, 0), "has no column spills"),
    ):
        path = written(changed, tmp_path / "other.parquet")
        with pytest.raises(CorruptError, match=message), Database(tmp_path / "new.sqlite") as store:
            import_files(store, path)


def test_text_that_is_not_utf8_is_refused(table: Any, tmp_path: Path) -> None:
    import pyarrow as pa

    ends = pa.array([2 * i for i in range(table.num_rows + 1)], pa.int32()).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), table.num_rows, [None, ends, pa.py_buffer(b"\xff\xfe" * table.num_rows)])
    path = written(replaced(table, "message", texts), tmp_path / "other.parquet")
    with pytest.raises(CorruptError, match="the column message has a text that is not UTF-8 in rows 1 to 4"):
        list(read_results(path))


def test_small_files_of_many_bytes_are_refused_in_little_memory(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet stores equal values once, and compresses others."""
    import pyarrow as pa

    def repeated(text: str) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array([0] * len(many), pa.int32()), pa.array([text]))

    many = pa.concat_tables([table.slice(0, 1)] * 1000)
    long, several = "x" * (parquet_file.LINE_LIMIT // 2), [1.0] * 500
    monkeypatch.setattr(parquet_file, "BYTES_MOST", 1 << 22)
    different = pa.array([f"{i}{'x' * (1 << 13)}" for i in range(len(many))])
    for changed, message in (
        (replaced(many, "message", repeated(long)), "rows 1 to 1000 have values of more than 4194304"),
        (replaced(many, "samples", pa.array([several] * len(many))), "rows 1 to 1000 have values of more than 4194304"),
        (replaced(many, "message", repeated(3 * long)), "message has a text of more than 1048576 bytes"),
        (replaced(many, "message", different), "row group 0 has values of .* bytes; it must have at most 4194304"),
    ):
        path = written(changed, tmp_path / "other.parquet")
        assert path.stat().st_size < 1 << 21
        arrow = pa.default_memory_pool().max_memory()
        tracemalloc.start()
        with pytest.raises(CorruptError, match=message):
            list(read_results(path))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
        tracemalloc.stop()
        assert pa.default_memory_pool().max_memory() < max(arrow, 1 << 26)  # 1000 texts have 500 MB


def test_files_that_other_programs_rewrote_are_read(table: Any, tmp_path: Path) -> None:
    """Other row groups, encodings, compression, order of columns, and texts as categories."""
    import pyarrow as pa

    many = pa.concat_tables([table] * 50)
    wanted = list(read_results(written(many, tmp_path / "one.parquet")))
    assert len(wanted) == 200
    shuffled = many.select(sorted(many.schema.names))
    categories = replaced(many, "config", many["config"].dictionary_encode())
    for number, (changed, options) in enumerate(
        (
            (many, {"row_group_size": 7, "compression": "none"}),
            (many, {"use_dictionary": False, "compression": "gzip"}),
            (many, {"dictionary_pagesize_limit": 64, "data_page_size": 256}),
            (shuffled, {}),
            (categories, {"version": "1.0"}),
        )
    ):
        assert list(read_results(written(changed, tmp_path / f"{number}.parquet", **options))) == wanted


def test_damaged_bytes_of_parquet_are_typed_errors(database: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    with Database(database, readonly=True) as store:
        path = write_results(store, tmp_path, "parquet")
    whole = path.read_bytes()
    refused = 0
    for at in range(0, len(whole), 11):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            list(read_results(path))
        except DatabaseError:
            refused += 1
    assert refused > len(whole) // 44
