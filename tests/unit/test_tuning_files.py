"""Tuning files: equal bytes for equal content, and strict validation."""

from __future__ import annotations

import json
import lzma
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen.codegen.config.config import Config
from ptxgen.errors import ConfigError, CorruptError, DatabaseError, InputError, SchemaError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store import exchange, tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.exchange import decompressed_lines, from_json
from ptxgen.tuning.store.measurement import OUTCOMES, Environment, Measurement
from ptxgen.tuning.store.time_floor import time_floor
from ptxgen.tuning.store.tuning_files import Header

H200 = Environment("h200", "hardware", "cuda 13.0 | r580", "13.0.88", "graph", "abc")
EMULATED = Environment("emulated", "model")
HEADER = Header("h200", "hardware", "4101e5d", "python -m ptxgen tune gemm: all", "2026-01-31")
OLD, NEW = "0123456789abcdef", "fedcba9876543210"
SMALL, WIDE, ODD = Gemm(64, 64, 64), Gemm(2560, 16, 2560, "NT"), Gemm(3, 5, 7, "TN", "f16", "f16", aligned_a=2)


def measured(problem: Gemm = WIDE, us: float = 12.5, **changes: Any) -> Measurement:
    m = Measurement(
        problem, Config(kg=4, vec_a=4), "ok", H200, (us, us * 1.1, us * 0.9), OLD, 64, 0, "", "refine", 1000.0
    )
    return replace(m, **changes)


THREE = [measured(WIDE), measured(SMALL, 1 / 3, config=Config(ms=2)), measured(ODD, 123456.789)]
FAILURES = [measured(outcome=o, samples=(), message=f"{o}: ‘why’\n\u2028 \ud800") for o in OUTCOMES[1:]]


@pytest.fixture
def winners(tmp_path: Path) -> Path:
    path = tmp_path / "h200" / "winners.txt"
    tuning_files.write_winners(path, HEADER, THREE)
    return path


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "h200" / "measurements.jsonl.xz"
    tuning_files.write_measurements(path, HEADER, [*THREE, *FAILURES])
    return path


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.sqlite") as database:
        yield database


def short(m: Measurement) -> Measurement:
    """The fields of a winner that its text form has."""
    return replace(m, samples=(float(f"{m.us:.6g}"),), registers=-1, spills=-1, purpose="", created=0.0)


# --- winners.txt ---------------------------------------------------------------------------------------------


def test_winners_round_trip(winners: Path) -> None:
    header, read = tuning_files.read_winners(winners)
    assert header == HEADER
    assert sorted(read, key=lambda m: m.us) == sorted(map(short, THREE), key=lambda m: m.us)


def test_winners_are_sorted_readable_lines(winners: Path) -> None:
    text = winners.read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == sorted(lines)
    line = next(line for line in lines if line.startswith(WIDE.key()))
    assert line.startswith(f"{WIDE.key()} | {Config(kg=4, vec_a=4)} | 12.5 | {OLD} | {{")
    for value in ("format 4", "device: h200", "clock: hardware", HEADER.commit, HEADER.command, HEADER.date):
        assert value in text.split(lines[0])[0]


def test_equal_winners_give_equal_bytes_in_any_order(winners: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.txt"
    tuning_files.write_winners(again, HEADER, reversed(THREE))
    assert again.read_bytes() == winners.read_bytes()
    tuning_files.write_winners(again, *tuning_files.read_winners(winners))
    assert again.read_bytes() == winners.read_bytes()


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (measured(outcome="timeout", samples=()), "must be ok"),
        (measured(digest="short"), "has digest 'short'"),
        (measured(environment=replace(H200, device="a100")), "device is 'a100'"),
        (measured(environment=replace(H200, clock="model")), "clock is 'model'"),
        (measured(us=99.0), "two winners"),
        (measured(Gemm(1, 1, 1), samples=(-1.0,)), r"time is -1\.0"),
    ],
)
def test_invalid_winner_is_not_written_and_the_old_file_stays(winners: Path, bad: Measurement, named: str) -> None:
    before = winners.read_bytes()
    with pytest.raises(InputError, match=named):
        tuning_files.write_winners(winners, HEADER, [*THREE, bad])
    assert winners.read_bytes() == before
    assert [p.name for p in winners.parent.iterdir()] == [winners.name]


@pytest.mark.parametrize("field", ["device", "clock", "commit", "command", "date"])
def test_header_values_are_single_lines(field: str) -> None:
    with pytest.raises(InputError, match=field):
        replace(HEADER, **{field: "two\nlines"})


@pytest.mark.parametrize("device", ["", "../h200", "H200", "a/b", ".."])
def test_device_name_must_be_a_folder_name(device: str) -> None:
    with pytest.raises(InputError, match="device"):
        Header(device)


Edit = Callable[[str], str]
WINNER_RULES: list[tuple[str, Edit, type[Exception], str]] = [
    ("newer format", lambda t: t.replace("format 4", "format 7"), SchemaError, "line 1.*format 7.*reads format 4"),
    ("no format", lambda t: t.replace("format 4", "format x"), CorruptError, "line 1.*format is 'x'"),
    ("format of 5,000 digits", lambda t: t.replace("format 4", "format " + "1" * 5000), CorruptError, "line 1.*format"),
    ("no title", lambda t: t.split("\n", 1)[1], CorruptError, "line 1.*ptxgen winners"),
    ("empty", lambda t: "", CorruptError, "line 1.*ptxgen winners"),
    ("unknown clock", lambda t: t.replace("clock: hardware", "clock: sundial"), CorruptError, "clock is 'sundial'"),
    ("no device", lambda t: t.replace("device: h200", "device:"), CorruptError, "device is ''"),
    ("cut at a line", lambda t: t[: t.rstrip().rindex("\n") + 1], CorruptError, "says '3' winners, it has 2"),
    ("cut in a line", lambda t: t.rstrip()[:-3], CorruptError, "line 11"),
    ("a line twice", lambda t: t + t.rstrip().rsplit("\n", 1)[1] + "\n", CorruptError, "line 12.*twice"),
    ("unknown axis", lambda t: t.replace(" vec_a=4", " warp_magic=4", 1), CorruptError, "line 9.*warp_magic"),
    ("axis without a number", lambda t: t.replace("vec_a=4", "vec_a=four", 1), CorruptError, "line 9.*four"),
    ("unknown layout", lambda t: t.replace(" NT ", " QT "), CorruptError, "line 9.*layout is 'QT'"),
    ("other spelling", lambda t: t.replace("2560,16,", "2560,016,"), CorruptError, "line 9.*must be written as"),
    ("time is no number", lambda t: t.replace("| 12.5 |", "| fast |"), CorruptError, "line 9.*fast"),
    ("time is not positive", lambda t: t.replace("| 12.5 |", "| 0 |"), CorruptError, "line 9.*positive"),
    ("time is not finite", lambda t: t.replace("| 12.5 |", "| nan |"), CorruptError, "line 9.*finite"),
    ("digest", lambda t: t.replace(OLD, OLD[:-1], 1), CorruptError, "line 9.*16 hexadecimal"),
    ("three columns", lambda t: t.replace(" | 12.5", "", 1).replace(f" | {OLD} | ", " ", 1), CorruptError, "3 columns"),
    ("environment", lambda t: t.replace('"ptxas"', '"pxtas"', 1), CorruptError, "line 9.*pxtas"),
    ("environment's type", lambda t: t.replace('"13.0.88"', "13", 1), CorruptError, "line 9.*ptxas"),
    ("not UTF-8", lambda t: t.replace("NT", "\udcff"), CorruptError, "as text"),
    (
        "half a character",
        lambda t: t.replace('"graph"', '"graph\\ud800"', 1),
        CorruptError,
        "line 9.*policy is .* text that UTF-8 can encode",
    ),
]


@pytest.mark.parametrize(("edit", "error", "named"), [r[1:] for r in WINNER_RULES], ids=[r[0] for r in WINNER_RULES])
def test_invalid_winners_file_names_file_line_and_rule(
    winners: Path, db: Database, edit: Edit, error: type[Exception], named: str
) -> None:
    text = winners.read_text()
    edited = edit(text)
    assert edited != text
    winners.write_bytes(edited.encode(errors="surrogateescape"))
    with pytest.raises(error, match=named) as caught:
        tuning_files.read_winners(winners)
    assert str(winners) in str(caught.value)
    with pytest.raises(DatabaseError):
        tuning_files.import_text(db, winners)
    assert db.info()["problems"] == db.info()["measurements"] == 0


def test_line_ends_of_other_systems_are_accepted(winners: Path) -> None:
    expected = tuning_files.read_winners(winners)
    winners.write_bytes(winners.read_bytes().replace(b"\n", b"\r\n"))
    assert tuning_files.read_winners(winners) == expected


# --- measurements.jsonl.xz -----------------------------------------------------------------------------------


def test_measurements_round_trip(raw: Path) -> None:
    header, rows = tuning_files.read_measurements(raw)
    assert header == HEADER
    read = list(rows)
    assert len(read) == len(THREE) + len(FAILURES)
    assert all(m in read for m in [*THREE, *FAILURES])
    assert {m.created for m in read} == {1000.0}


def test_a_device_has_the_measurements_of_all_its_files(raw: Path, db: Database) -> None:
    more = [measured(Gemm(8, 8, 8), config=Config(ms=4))]
    tuning_files.write_measurements(raw.with_name("measurements-more.jsonl.xz"), HEADER, more)
    files = tuning_files.measurement_files("h200", raw.parents[1])
    assert [f.name for f in files] == ["measurements-more.jsonl.xz", "measurements.jsonl.xz"]
    read = list(tuning_files.read_all(files))
    assert len(read) == len(more) + len(THREE) + len(FAILURES)
    assert read[0].problem == more[0].problem
    assert [values["problem"] for values in tuning_files.plain_all(files)] == [m.problem.key() for m in read]
    assert tuning_files.import_text(db, raw.parent)["measurements"] == len(read)


def test_withdrawn_measurements_are_left_out(raw: Path, db: Database) -> None:
    (raw.parent / "withdrawn.txt").write_text(f"# why\n{WIDE.key()} | simt\n{SMALL.key()} | mma\n")
    left = {m.problem for m in tuning_files.read_all([raw])}
    assert left == {SMALL, ODD}
    assert {values["problem"] for values in tuning_files.plain_all([raw])} == {p.key() for p in left}
    tuning_files.import_text(db, raw.parent)
    assert {m.problem for m in db.measurements(device="h200")} == left
    (raw.parent / "withdrawn.txt").write_text("0123456789abcdef\n")
    with pytest.raises(CorruptError, match=r"problem \| family"):
        list(tuning_files.read_all([raw]))


def test_measurements_of_chosen_problems_are_those_of_all(raw: Path) -> None:
    rows = list(tuning_files.read_all([raw]))
    for chosen in ({SMALL}, {WIDE, ODD}, set[Problem]()):
        assert list(tuning_files.read_all([raw], chosen)) == [m for m in rows if m.problem in chosen]


def test_measured_problems_are_those_of_all_measurements(raw: Path) -> None:
    problems = {m.problem.key() for m in tuning_files.read_all([raw])}
    assert tuning_files.measured_problems([raw, raw]) == sorted(problems)


def test_equal_measurements_give_equal_bytes_in_any_order(raw: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.xz"
    assert tuning_files.write_measurements(again, HEADER, [*FAILURES, *reversed(THREE)]) == 8
    assert again.read_bytes() == raw.read_bytes()


@pytest.mark.parametrize("bad", [measured(samples=(0.0,)), measured(samples=()), measured(outcome="fine")])
def test_only_readable_rows_are_written(raw: Path, bad: Measurement) -> None:
    before = raw.read_bytes()
    with pytest.raises(InputError):
        tuning_files.write_measurements(raw, HEADER, [bad])
    assert raw.read_bytes() == before


def test_import_constructs_a_problem_as_often_for_many_rows_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of an import's time would be that of problems: a file has hundreds of rows of each."""
    made: list[Gemm] = []
    check = Gemm.__post_init__

    def counted(problem: Gemm) -> None:
        made.append(problem)
        check(problem)

    monkeypatch.setattr(Gemm, "__post_init__", counted)
    counts = []
    for rows in (2, 600):
        problem = Gemm(64, 64, 1000 + rows)
        path = tmp_path / f"{rows}" / "measurements.jsonl.xz"
        tuning_files.write_measurements(path, HEADER, [measured(problem, config=Config(ms=n + 1)) for n in range(rows)])
        made.clear()
        with Database(tmp_path / f"{rows}.sqlite") as database:
            assert tuning_files.import_text(database, path)["measurements"] == rows
        counts.append(len(made))
    assert counts[0] == counts[1]


def test_rows_that_are_alike_are_stored_once(tmp_path: Path, db: Database) -> None:
    """Equal rows of one file, and rows whose date is not known."""
    rows = [measured(), measured(), measured(created=2000.0), measured(created=0.0), measured(purpose="final")]
    path = tmp_path / "measurements.jsonl.xz"
    tuning_files.write_measurements(path, HEADER, rows)
    dates = sorted({m.created for m in rows if m.purpose == "refine"})
    counts = tuning_files.import_text(db, path)
    assert (counts["measurements"], counts["already_present"]) == (4, 1)
    assert sorted(m.created for m in db.measurements() if m.purpose == "refine") == dates
    undated = tuning_files.import_text(db, path)
    assert (undated["measurements"], undated["already_present"]) == (0, 5)


def test_reading_is_streaming(tmp_path: Path) -> None:
    path = tmp_path / "measurements.jsonl.xz"
    tuning_files.write_measurements(path, HEADER, [measured(us=i + 2.0) for i in range(3000)])
    path.write_bytes(path.read_bytes()[:-40])
    _, rows = tuning_files.read_measurements(path)
    assert next(rows).outcome == "ok"  # rows before the damage are read
    with pytest.raises(CorruptError, match="cut short"):
        list(rows)


def repacked(path: Path, edit: Callable[[list[str]], list[str]]) -> None:
    lines = edit(lzma.decompress(path.read_bytes()).decode().splitlines())
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def last_row(**changes: Any) -> Callable[[list[str]], list[str]]:
    """An edit of the last line, which is an ``ok`` row; a value of None removes the name."""

    def edit(lines: list[str]) -> list[str]:
        values = {**json.loads(lines[-1]), **changes}
        return [*lines[:-1], json.dumps({n: v for n, v in values.items() if v is not None})]

    return edit


def environment(**changes: Any) -> Callable[[list[str]], list[str]]:
    return lambda lines: last_row(environment={**json.loads(lines[-1])["environment"], **changes})(lines)


def header(**changes: Any) -> Callable[[list[str]], list[str]]:
    return lambda lines: [json.dumps({**json.loads(lines[0]), **changes}), *lines[1:]]


def edited(old: str, new: str) -> Callable[[list[str]], list[str]]:
    """An edit of the text that Python's JSON cannot express."""

    def edit(lines: list[str]) -> list[str]:
        n = 0 if "format" in old else -1
        assert old in lines[n]
        lines[n] = lines[n].replace(old, new)
        return lines

    return edit


ROW_RULES: list[tuple[str, Any, type[Exception], str]] = [
    ("newer format", header(format=5), SchemaError, "line 1.*format 5.*reads format 4"),
    ("no format", header(format=None), CorruptError, "line 1.*format is None"),
    ("something else", header(ptxgen="model"), CorruptError, "line 1.*ptxgen"),
    ("unknown header", header(host="x"), CorruptError, "line 1.*host"),
    ("header's type", header(commit=3), CorruptError, "line 1.*commit"),
    ("header is a list", lambda lines: ["[1]", *lines[1:]], CorruptError, "line 1.*JSON object"),
    ("nothing", lambda lines: [], CorruptError, "line 1"),
    ("a line less", lambda lines: lines[:-1], CorruptError, "says 8 measurements, it has 7"),
    ("no JSON", lambda lines: [*lines[:-1], lines[-1][:-5]], CorruptError, "line 9"),
    ("deep JSON", lambda lines: [*lines[:-1], "[" * 100_000], CorruptError, "line 9"),
    ("unknown name", last_row(colour="red"), CorruptError, "line 9.*colour"),
    ("missing name", last_row(outcome=None), CorruptError, "line 9.*lacks outcome"),
    ("unknown axis", last_row(config="ms=8 warp_magic=1"), CorruptError, "line 9.*warp_magic"),
    ("bad problem", last_row(problem="gemm 1,2 NN f32"), CorruptError, "line 9.*shape"),
    ("bad number in problem", last_row(problem="gemm 1,2,3 NN f32 lda=x"), CorruptError, "line 9"),
    ("unknown outcome", last_row(outcome="fine"), CorruptError, "line 9.*outcome is 'fine'"),
    ("outcome against samples", last_row(outcome="timeout"), CorruptError, "line 9.*timeout has 3 samples"),
    ("no samples", last_row(samples=[]), CorruptError, "line 9.*ok has 0 samples"),
    ("sample is text", last_row(samples=["1.0"]), CorruptError, "line 9.*positive and finite"),
    ("sample is infinite", last_row(samples=[float("inf")]), CorruptError, "line 9.*Infinity"),
    ("sample is negative", last_row(samples=[-1.0]), CorruptError, "line 9.*positive and finite"),
    ("sample too large", last_row(samples=[10**400]), CorruptError, "line 9"),
    ("registers are text", last_row(registers="64"), CorruptError, "line 9.*registers"),
    ("registers are true", last_row(registers=True), CorruptError, "line 9.*registers"),
    ("registers too large", last_row(registers=1 << 70), CorruptError, "line 9.*registers"),
    ("created too large", last_row(created=10**400), CorruptError, "line 9"),
    ("created is infinite", edited('"created":1000.0', '"created":1e999'), CorruptError, "line 9.*created is inf"),
    ("created is negative", last_row(created=-1), CorruptError, "line 9.*created is -1"),
    ("created past the year 9999", last_row(created=1e12), CorruptError, "line 9.*created is 1000000000000"),
    ("format of 5,000 digits", edited('"format":4', '"format":' + "1" * 5000), CorruptError, "line 1"),
    ("format of 5,000 digits as text", header(format="1" * 5000), CorruptError, "line 1.*format is '111"),
    ("format is a superscript", header(format="\u00b2"), CorruptError, "line 1.*format is"),
    ("half a character in the header", header(command="\ud800"), CorruptError, "line 1.*command"),
    ("half a character in purpose", last_row(purpose="\ud800"), CorruptError, "line 9.*purpose.*UTF-8"),
    ("half a character in digest", last_row(digest="\udfff"), CorruptError, "line 9.*digest.*UTF-8"),
    ("half a character in environment", environment(driver="x\ud800"), CorruptError, "line 9.*driver.*UTF-8"),
    ("other device", environment(device="a100"), CorruptError, "line 9.*device is 'a100'"),
    ("other clock", environment(clock="model"), CorruptError, "line 9.*clock is 'model'"),
    ("unknown environment", environment(host="x"), CorruptError, "line 9.*host"),
    ("no device", last_row(environment={}), CorruptError, "line 9.*lacks device"),
]


@pytest.mark.parametrize(("edit", "error", "named"), [r[1:] for r in ROW_RULES], ids=[r[0] for r in ROW_RULES])
def test_invalid_line_names_file_line_and_rule_and_nothing_is_imported(
    raw: Path, db: Database, edit: Any, error: type[Exception], named: str
) -> None:
    repacked(raw, edit)
    with pytest.raises(error, match=named) as caught:
        list(tuning_files.read_measurements(raw)[1])
    assert str(raw) in str(caught.value)
    with pytest.raises(error):
        tuning_files.import_text(db, raw)
    assert db.info()["problems"] == db.info()["measurements"] == 0


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_xz_file_is_corrupt_and_nothing_is_imported(raw: Path, db: Database, keep: int) -> None:
    raw.write_bytes(raw.read_bytes()[:keep])
    with pytest.raises(CorruptError, match=r"measurements\.jsonl\.xz"):
        tuning_files.import_text(db, raw.parent)
    assert db.info()["measurements"] == 0


def test_overlong_compressed_line_is_refused_in_little_memory(tmp_path: Path, db: Database) -> None:
    path = tmp_path / "measurements.jsonl.xz"
    path.write_bytes(lzma.compress(b'{"ptxgen": "measurements", "x": "' + bytes(1 << 26), preset=0))
    assert path.stat().st_size < 1 << 14
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError, match="after line 0: a line has more than 1048576 bytes"):
            tuning_files.import_text(db, path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


def test_stream_that_needs_much_memory_is_refused(raw: Path, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MEMORY_LIMIT", 1 << 20)  # what write_measurements makes needs 9 MiB
    with pytest.raises(CorruptError, match=r"measurements\.jsonl\.xz.*[Mm]emory"):
        tuning_files.import_text(db, raw)


def test_data_after_the_stream_is_refused(raw: Path, db: Database) -> None:
    raw.write_bytes(raw.read_bytes() * 2)
    with pytest.raises(CorruptError, match="after the end"):
        tuning_files.import_text(db, raw)
    assert db.info()["measurements"] == 0


def test_large_file_of_winners_is_refused(winners: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "TEXT_LIMIT", 100)
    with pytest.raises(CorruptError, match="more than 100 bytes"):
        tuning_files.read_winners(winners)


@pytest.mark.parametrize("name", ["winners.txt", "measurements.jsonl.xz"])
def test_fifo_is_refused(tmp_path: Path, db: Database, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(CorruptError, match="not a regular file"):
        tuning_files.import_text(db, tmp_path)


@pytest.mark.parametrize("us", ["5e-324", "1e-05", "1.2"])
def test_impossibly_short_time_is_refused(winners: Path, raw: Path, db: Database, us: str) -> None:
    """An A of 26 MB takes an H200 5.5 us to read; time_floor is a quarter of that."""
    winners.write_text(winners.read_text().replace("| 12.5 |", f"| {us} |"))
    repacked(raw, last_row(problem=WIDE.key(), samples=[float(us)]))
    for path in (winners, raw):
        with pytest.raises(CorruptError, match=rf"{path.name}: gemm 2560,16,2560 NT f32 takes {us} µs on h200.*1\.38"):
            tuning_files.import_text(db, path)
    assert db.info()["problems"] == 0


def test_shipped_times_are_possible() -> None:
    for device in tuning_files.devices():
        for m in tuning_files.shipped_winners(device).values():
            assert m.us > 2 * time_floor(m.problem, device, m.environment.clock), m.problem.key()


def test_extents_beyond_kernels_limits_are_refused(raw: Path, db: Database) -> None:
    repacked(raw, last_row(problem="gemm 2147483647,2147483647,2147483647 NN f32", samples=[1e9]))
    with pytest.raises(CorruptError, match="2147483647"):
        tuning_files.import_text(db, raw)


def test_exports_are_synced_before_and_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace_ = os.fsync, Path.replace

    def synced(handle: int) -> None:
        done.append("sync " + Path(os.readlink(f"/proc/self/fd/{handle}")).name.split(".")[0])
        sync(handle)

    def replaced(old: Path, new: Path) -> Path:
        assert old.stat().st_size > 0
        done.append(f"name {new.name}")
        return replace_(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    for _ in range(2):
        tuning_files.write_winners(tmp_path / "h200" / "winners.txt", HEADER, THREE)
    again = ["sync winners", "name winners.txt", "sync h200"]
    assert done == [*again, f"sync {tmp_path.name.split('.')[0]}", *again]


def test_flipped_bit_is_corrupt(raw: Path, db: Database) -> None:
    content = bytearray(raw.read_bytes())
    content[len(content) // 2] ^= 4
    raw.write_bytes(content)
    with pytest.raises(CorruptError):
        tuning_files.import_text(db, raw)
    assert db.info()["measurements"] == 0


def test_missing_files_are_an_error(tmp_path: Path, db: Database) -> None:
    for read in (tuning_files.read_winners, tuning_files.read_measurements):
        with pytest.raises(InputError, match="does not exist"):
            read(tmp_path / "none")
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="path is"):
            tuning_files.import_text(db, path)


# --- exchange ------------------------------------------------------------------------------------------------


def filled(path: Path) -> Database:
    db = Database(path)
    for m in (*THREE, *FAILURES[:2]):
        db.add(m)
    modelled = (measured(SMALL, 1.5, environment=e) for e in (EMULATED, replace(H200, clock="model")))
    for m in (*THREE[:2], *modelled):
        db.set_winner(m)
    return db


def test_export_writes_a_folder_per_device_that_import_reads(tmp_path: Path, db: Database) -> None:
    out = tmp_path / "out"
    with filled(tmp_path / "full.sqlite") as full:
        files = tuning_files.export_text(full, out, commit="c", command="x", date="d")
        inside = list(full.measurements(device="h200", clock="hardware"))
    assert sorted(str(f.relative_to(out)) for f in files) == [
        "emulated/fastest.txt.xz",
        "emulated/measurements.jsonl.xz",
        "emulated/winners.txt",
        "h200/fastest.txt.xz",
        "h200/measurements.jsonl.xz",
        "h200/winners.txt",
    ]
    header, text = tuning_files.read_winners(out / "h200" / "winners.txt")
    assert header == Header("h200", "hardware", "c", "x", "d")
    assert {m.problem for m in text} == {WIDE, SMALL}  # and no modelled time of an h200
    counts = tuning_files.import_text(db, out)
    assert counts == {"measurements": 6, "already_present": 0, "winners": 3, "not_replaced": 0, "stale": 0}
    back = list(db.measurements(device="h200"))
    assert len(back) == len(inside)
    assert all(m in back for m in inside)
    assert db.best(SMALL, "h200") == THREE[1]  # with its own samples, not the median of the text
    assert db.best(SMALL, "emulated", "model") is not None


def test_export_after_import_gives_the_same_bytes(tmp_path: Path, db: Database) -> None:
    with filled(tmp_path / "full.sqlite") as full:
        files = tuning_files.export_text(full, tmp_path / "one")
    tuning_files.import_text(db, tmp_path / "one")
    tuning_files.export_text(db, tmp_path / "two")
    for file in files:
        assert (tmp_path / "two" / file.relative_to(tmp_path / "one")).read_bytes() == file.read_bytes()


def test_importing_twice_changes_nothing(tmp_path: Path, db: Database) -> None:
    with filled(tmp_path / "full.sqlite") as full:
        tuning_files.export_text(full, tmp_path / "out")
    tuning_files.import_text(db, tmp_path / "out")
    before = list(db.measurements()), list(db.winners())
    counts = tuning_files.import_text(db, tmp_path / "out")
    assert counts == {"measurements": 0, "already_present": 6, "winners": 0, "not_replaced": 3, "stale": 0}
    assert (list(db.measurements()), list(db.winners())) == before


def test_winners_alone_can_be_exported_and_imported(tmp_path: Path, db: Database) -> None:
    with filled(tmp_path / "full.sqlite") as full:
        (file,) = tuning_files.export_text(full, tmp_path / "out", device="h200", raw=False)
        with pytest.raises(InputError, match="t4"):
            tuning_files.export_text(full, tmp_path / "out", device="t4")
    assert tuning_files.import_text(db, file)["winners"] == 2
    assert tuning_files.import_text(db, file.parent)["not_replaced"] == 2
    assert db.best(WIDE, "h200") == short(THREE[0])


def test_stale_winners_are_not_exported(tmp_path: Path) -> None:
    with filled(tmp_path / "full.sqlite") as full:
        full.demote("h200", lambda problem, config: OLD if problem == SMALL else NEW)
        tuning_files.export_text(full, tmp_path / "out", raw=False)
    assert [m.problem for m in tuning_files.read_winners(tmp_path / "out/h200/winners.txt")[1]] == [SMALL]


@pytest.mark.parametrize(("us", "stays"), [(20.0, False), (2.0, True)])
def test_faster_of_two_winners_stays(winners: Path, db: Database, us: float, stays: bool) -> None:
    mine = measured(WIDE, us, config=Config(ms=16))
    db.set_winner(mine)
    counts = tuning_files.import_text(db, winners)
    assert (counts["winners"], counts["not_replaced"]) == ((2, 1) if stays else (3, 0))
    assert db.best(WIDE, "h200") == (mine if stays else short(THREE[0]))


def test_imported_winners_of_changed_kernels_are_stale(winners: Path, db: Database) -> None:
    def current(device: str, problem: Problem, config: Config) -> str:
        assert device == "h200"
        if problem == ODD:
            raise ConfigError("vec_a is 4; it must be 1", "vector")
        return NEW if problem == WIDE else OLD

    assert tuning_files.import_text(db, winners, current)["stale"] == 2
    assert [m.problem for m in db.winners()] == [SMALL]
    reasons = {row[0]: row[-1] for row in db.stale()}
    assert NEW in reasons[WIDE.key()]
    assert "vec_a is 4" in reasons[ODD.key()]


def test_one_invalid_device_prevents_the_import(winners: Path, tmp_path: Path, db: Database) -> None:
    bad = tmp_path / "z100" / "measurements.jsonl.xz"
    tuning_files.write_measurements(bad, replace(HEADER, device="z100"), [measured(environment=Environment("z100"))])
    repacked(bad, last_row(colour="red"))
    with pytest.raises(CorruptError, match=r"z100.*line 2.*colour"):
        tuning_files.import_text(db, tmp_path)
    assert db.info()["problems"] == 0


# --- what ships ----------------------------------------------------------------------------------------------


def test_devices_are_the_folders_with_winners(winners: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert tuning_files.devices(tmp_path) == ["h200"]
    assert tuning_files.devices(tmp_path / "nowhere") == []
    assert tuning_files.winners_path("h200", tmp_path) == winners
    assert tuning_files.measurements_path("h200", tmp_path) == winners.parent / "measurements.jsonl.xz"
    assert tuning_files.model_path("h200", tmp_path) == winners.parent / "model.json.xz"


def test_shipped_winners_are_read_once_per_process(
    winners: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_problem = tuning_files.shipped_winners("h200", tmp_path)
    assert by_problem[WIDE.key()] == short(THREE[0])
    assert set(by_problem) == {m.problem.key() for m in THREE}
    assert tuning_files.shipped_winners("t4", tmp_path) == {}
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read again"))
    assert tuning_files.shipped_winners("h200", tmp_path) is by_problem
    tuning_files.write_winners(winners, HEADER, THREE[:1])
    monkeypatch.undo()
    assert len(tuning_files.shipped_winners("h200", tmp_path)) == 1  # but what was written is seen


def test_misnamed_folder_is_corrupt(winners: Path, tmp_path: Path) -> None:
    winners.parent.rename(tmp_path / "a100")
    with pytest.raises(CorruptError, match=r"'h200'.*'a100'"):
        tuning_files.shipped_winners("a100", tmp_path)


def test_shipped_winners_can_be_read() -> None:
    for device in tuning_files.devices():
        head, rows = tuning_files.read_winners(tuning_files.winners_path(device))
        assert head.device == device
        assert {m.problem.key() for m in rows} == set(tuning_files.shipped_winners(device))


def test_lines_are_parsed_on_demand(winners: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tuning_files, "parse_config", lambda text: asked.append(text) or Config())
    by_problem = tuning_files.shipped_winners("h200", tmp_path)
    assert len(by_problem) == 3
    assert WIDE.key() in by_problem
    assert asked == []  # thousands of winners must not slow the first answer down
    assert by_problem[WIDE.key()].config == Config()
    assert asked == [str(Config(kg=4, vec_a=4))]


def test_lookup_prefers_the_users_winner_to_the_shipped_one(winners: Path, tmp_path: Path, db: Database) -> None:
    assert tuning_files.lookup(WIDE, "h200", None, folder=tmp_path) == short(THREE[0])
    assert tuning_files.lookup(WIDE, "h200", db, folder=tmp_path) == short(THREE[0])
    mine = measured(WIDE, 99.0)
    db.set_winner(mine)
    assert tuning_files.lookup(WIDE, "h200", db, folder=tmp_path) == mine
    assert tuning_files.lookup(replace(WIDE, m=1, lda=0), "h200", db, folder=tmp_path) is None
    assert tuning_files.lookup(WIDE, "a100", db, folder=tmp_path) is None


def test_lookup_separates_clocks(winners: Path, tmp_path: Path, db: Database) -> None:
    modelled = measured(WIDE, environment=EMULATED)
    db.set_winner(modelled)
    db.set_winner(measured(ODD, environment=Environment("h200", "model")))
    assert tuning_files.lookup(WIDE, "emulated", db, folder=tmp_path) == modelled
    assert tuning_files.lookup(ODD, "h200", db, folder=tmp_path) == short(THREE[2])
    assert tuning_files.lookup(WIDE, "h200", db, clock="model", folder=tmp_path) is None


def test_lookup_ignores_changed_kernels(winners: Path, tmp_path: Path, db: Database) -> None:
    mine = measured(WIDE, 99.0, digest=NEW)
    db.set_winner(mine)
    here = {"folder": tmp_path}
    assert tuning_files.lookup(WIDE, "h200", db, current=lambda problem, config: NEW, **here) == mine
    assert tuning_files.lookup(WIDE, "h200", db, current=lambda problem, config: OLD, **here) == short(THREE[0])

    def illegal(problem: Problem, config: Config) -> str:
        raise ConfigError("no")

    assert tuning_files.lookup(WIDE, "h200", db, current=illegal, **here) is None


def test_shipped_measurements_can_be_read() -> None:
    """With this version's axes: a removed axis loses no measurement. Reads the first row of each problem, in each file,
    and every twentieth row."""
    for name in tuning_files.devices():
        files = tuning_files.measurement_files(name)
        read = 0
        for path in files:
            with closing(decompressed_lines(path)) as lines:
                next(lines)
                known = set[bytes]()
                for number, line in enumerate(lines, 2):
                    problem = line[: line.find(b'","')]
                    if problem not in known or number % 20 == 0:
                        known.add(problem)
                        tuning_files.measurement_of(from_json(line.decode()))
                        read += 1
        assert not files or read > 1000
