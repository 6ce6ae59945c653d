"""The tuning database: its contents after kills, newer and foreign files, and changes of the generator."""

from __future__ import annotations

import ast
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ptxgen
from ptxgen.codegen.config.config import FAMILIES, Config, axes_of, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError, CorruptError, DatabaseError, InputError, SchemaError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.registry import Problem
from ptxgen.tuning.store import database, sqlite_file, tuning_files
from ptxgen.tuning.store.database import APPLICATION, SCHEMA_VERSION, Database, destination, readable
from ptxgen.tuning.store.measurement import OUTCOMES, Environment, Measurement
from ptxgen.tuning.store.tuning_files import Header, read_measurements, read_winners, write_winners

H200 = Environment("h200", "hardware", "cuda 13.0", "13.0.88", "graph 3x", "abc")
EMULATED = Environment("emulated", "model")
PROBLEM = Gemm(2560, 16, 2560)
OLD, NEW = "0123456789abcdef", "fedcba9876543210"


def measured(us: float = 10.0, **changes: Any) -> Measurement:
    m = Measurement(PROBLEM, Config(kg=4), "ok", H200, (us, us + 1, us - 1), OLD, 64, 0, "", "sample", 1000.0)
    return replace(m, **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "on first use" / "tuning?#.sqlite"


@pytest.fixture
def db(path: Path) -> Any:
    with Database(path) as database:
        yield database


def sql(path: Path, statement: str, *values: Any) -> list[Any]:
    connection = sqlite3.connect(path)
    with connection:
        rows = connection.execute(statement, values).fetchall()
    connection.close()
    return rows


# --- rows ----------------------------------------------------------------------------------------------------


def test_every_field_round_trips(db: Database, path: Path) -> None:
    odd = Gemm(3, 5, 7, "TN", "f16", "f16", lda=9, aligned_b=2, deterministic=True)
    stored = [
        measured(),
        measured(problem=odd, config=Config(ms=2, splitk=2), samples=(1 / 3,), registers=-1, purpose="bench"),
        *(measured(outcome=o, samples=(), message=f"{o} — 'twice'\n") for o in OUTCOMES[1:]),
    ]
    assert [db.add(m) for m in stored] == list(range(1, len(stored) + 1))
    with Database(path, readonly=True) as again:
        read = list(again.measurements())
    assert read == stored
    assert {m.created for m in read} == {1000.0}
    assert read[1].us == 1 / 3


def test_measurement_without_a_date_gets_one(db: Database) -> None:
    db.add(measured(created=0.0))
    assert next(db.measurements()).created > 1.7e9


def test_numpy_numbers_become_plain_ones(db: Database, path: Path) -> None:
    import numpy as np

    db.add(measured(registers=np.int64(40), samples=tuple(np.array([2.5, 3.5], np.float32))))
    assert sql(path, "SELECT us, registers, typeof(us), typeof(registers) FROM result") == [
        (3.0, 40, "real", "integer")
    ]
    assert next(db.measurements()).samples == (2.5, 3.5)


def test_filters_select_by_each_of_their_columns(db: Database) -> None:
    other = Gemm(7, 7, 7)
    rows = [
        measured(),
        measured(problem=other),
        measured(environment=EMULATED),
        measured(outcome="timeout", samples=()),
        measured(purpose="refine"),
    ]
    for m in rows:
        db.add(m)
    assert list(db.measurements(problem=other)) == [rows[1]]
    assert list(db.measurements(device="emulated")) == [rows[2]]
    assert list(db.measurements(clock="hardware", outcome="timeout")) == [rows[3]]
    assert list(db.measurements(purpose="refine")) == [rows[4]]
    assert list(db.measurements(device="t4")) == []
    assert db.devices() == [("emulated", "model"), ("h200", "hardware")]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"outcome": "fine"}, "outcome is 'fine'"),
        ({"outcome": "timeout"}, "timeout has 3 samples"),
        ({"samples": ()}, "ok has 0 samples"),
        ({"samples": (float("nan"),)}, "positive and finite"),
        ({"samples": (-1.0,)}, "positive and finite"),
        ({"environment": Environment("h200", "sundial")}, "clock is 'sundial'"),
        ({"environment": Environment("h200", driver="\ud800")}, "driver is .*UTF-8"),
        ({"created": float("inf")}, "created is inf"),
        ({"created": float("nan")}, "created is nan"),
    ],
)
def test_invalid_measurements_are_refused_and_store_nothing(db: Database, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        db.add(measured(**changes))
    assert db.info()["measurements"] == 0


def test_columns_can_be_queried_in_sql(db: Database, path: Path) -> None:
    db.add(measured(problem=Gemm(8, 4, 2, "TN", lda=16)))
    row = "m, n, k, layout, dtype, compute, us, device, driver, ptxas, policy, revision, digest"
    assert sql(path, f"SELECT {row} FROM result") == [
        (8, 4, 2, "TN", "f32", "f32", 10.0, "h200", "cuda 13.0", "13.0.88", "graph 3x", "abc", OLD)
    ]
    ((fields, samples),) = sql(path, "SELECT fields, samples FROM result")
    assert json.loads(fields)["lda"] == 16
    assert json.loads(samples) == [10.0, 11.0, 9.0]


# --- unknown axes ------------------------------------------------------------------------------------------------


def test_older_rows_have_the_default_of_a_new_axis(db: Database, path: Path) -> None:
    db.add(measured())
    sql(path, "UPDATE measurement SET config = replace(config, ' min_ctas_per_sm=1', '')")
    assert sql(path, "SELECT config FROM measurement WHERE config LIKE '%min_ctas_per_sm%'") == []
    assert list(db.measurements()) == [measured()]


def test_rows_with_an_unknown_axis_are_counted_but_not_returned(db: Database, path: Path) -> None:
    db.set_winner(measured())
    db.add(measured(config=Config(kg=8)))
    sql(path, "UPDATE measurement SET config = config || ' warp_magic=3' WHERE id = 1")
    assert [m.config.kg for m in db.measurements()] == [8]
    assert (db.info()["unreadable"], db.info()["measurements"]) == (1, 2)
    assert db.best(PROBLEM, "h200") is None
    ((key, reason),) = db.demote("h200", lambda problem, config: OLD)
    assert key == PROBLEM.key()
    assert "unknown" in reason


def test_rows_can_be_added_while_reading(db: Database) -> None:
    for us in range(1, 50):
        db.add(measured(us + 1.0))
    for read, _ in enumerate(db.measurements()):
        if read < 20:
            db.add(measured(problem=Gemm(1, 1, read)))
    assert db.info()["measurements"] == 69


# --- claims ----------------------------------------------------------------------------------------------------


def test_claim_excludes_others_until_the_measurement_is_stored(db: Database, path: Path) -> None:
    at = (PROBLEM, Config(kg=4), "h200", "hardware")
    with Database(path) as other:
        assert db.claim(*at, "one", 60.0)
        assert db.claim(*at, "one", 60.0)  # it is its own
        assert not other.claim(*at, "two", 60.0)
        for differs in ((Gemm(1, 1, 1), *at[1:]), (PROBLEM, Config(kg=8), *at[2:]), (*at[:2], "a100", "hardware")):
            assert other.claim(*differs, "two", 60.0)
        db.add(measured(config=Config(kg=8), environment=EMULATED))
        assert not other.claim(*at, "two", 60.0)  # it was another configuration, on another device
        db.add(measured())
        assert other.claim(*at, "two", 60.0)
    assert db.claimants() == ["two"]
    db.release("two")
    assert db.claimants() == []
    assert db._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_claims_expire(db: Database) -> None:
    at = (PROBLEM, Config(kg=4), "h200", "hardware")
    assert db.claim(*at, "one", -1.0)
    assert db.claim(*at, "two", 60.0)
    assert db.claimants() == ["two"]


def test_rows_after_a_number(db: Database) -> None:
    assert db.newest() == 0
    rows = [measured(n + 1.0) for n in range(1, 5)]
    numbers = [db.add(m) for m in rows]
    assert db.newest() == numbers[-1]
    assert list(db.measurements(after=numbers[1], device="h200")) == rows[2:]
    assert list(db.measurements(after=numbers[-1])) == []


# --- winners -------------------------------------------------------------------------------------------------


def test_winner_is_the_one_that_was_set(db: Database) -> None:
    fast, slow = measured(5.0), measured(50.0)
    assert db.best(PROBLEM, "h200") is None
    db.add(fast)
    db.set_winner(fast)
    assert db.best(PROBLEM, "h200") == fast
    assert db.info()["measurements"] == 1  # it was stored already
    db.set_winner(slow)
    assert db.best(PROBLEM, "h200") == slow
    assert (db.info()["measurements"], len(list(db.winners()))) == (2, 1)
    assert db.best(Gemm(2560, 16, 2561), "h200") is None
    assert db.best(PROBLEM, "h100") is None


def test_measurement_added_without_a_date_is_recognised(db: Database) -> None:
    m = measured(created=0.0)
    db.add(m)
    db.set_winner(m)
    assert db.info()["measurements"] == 1


def test_modelled_time_never_wins_for_hardware(db: Database) -> None:
    modelled = measured(0.001, samples=(0.001,), environment=Environment("h200", "model"))
    db.set_winner(modelled)
    assert db.best(PROBLEM, "h200") is None
    assert list(db.winners(clock="hardware")) == []
    real = measured()
    db.set_winner(real)
    assert db.best(PROBLEM, "h200") == real
    assert db.best(PROBLEM, "h200", "model") == modelled
    assert db.merge([], [modelled]) == {
        "measurements": 0,
        "already_present": 0,
        "winners": 0,
        "not_replaced": 1,
        "stale": 0,
    }
    assert db.best(PROBLEM, "h200") == real


def test_failure_cannot_win(db: Database) -> None:
    failure = measured(outcome="wrong_result", samples=())
    with pytest.raises(InputError, match="must be ok"):
        db.set_winner(failure)
    with pytest.raises(InputError, match="must be ok"):
        db.merge([], [failure])
    assert db.info()["measurements"] == 0


def test_demote_marks_the_winners_whose_kernel_changed(db: Database) -> None:
    broken, changed, same, elsewhere = Gemm(1, 1, 1), Gemm(2, 2, 2), Gemm(3, 3, 3), Gemm(4, 4, 4)
    for problem in (broken, changed, same):
        db.set_winner(measured(problem=problem))
    db.set_winner(measured(problem=elsewhere, environment=replace(H200, device="a100")))

    def current(problem: Problem, config: Config) -> str:
        assert config == Config(kg=4)
        if problem == broken:
            raise ConfigError("kg is 4; it must be 1", "kg")
        return NEW if problem == changed else OLD

    demoted = dict(db.demote("h200", current))
    assert set(demoted) == {broken.key(), changed.key()}
    assert "kg is 4" in demoted[broken.key()]
    assert OLD in demoted[changed.key()]
    assert NEW in demoted[changed.key()]
    assert db.best(changed, "h200") is None
    assert [m.problem for m in db.winners()] == [same, elsewhere]
    assert {row[:3] for row in db.stale("h200")} == {(p.key(), "h200", "hardware") for p in (broken, changed)}
    assert db.info()["winners"][1] == {"device": "h200", "clock": "hardware", "count": 1, "stale": 2}
    assert db.info()["measurements"] == 4  # nothing is deleted

    assert db.demote("h200", current) == []  # nothing new
    assert db.demote("h200", lambda problem, config: OLD) == []
    assert db.best(changed, "h200") is not None  # the kernel is back, and so is its winner


def test_winner_without_a_digest_is_stale(db: Database) -> None:
    db.set_winner(measured(digest=""))
    assert len(db.demote("h200", lambda problem, config: OLD)) == 1


def test_new_winner_replaces_a_stale_one(db: Database) -> None:
    db.set_winner(measured())
    db.demote("h200", lambda problem, config: NEW)
    fresh = measured(20.0, digest=NEW)
    db.set_winner(fresh)
    assert db.best(PROBLEM, "h200") == fresh
    assert db.stale() == []


def test_winners_come_in_the_order_of_their_measurements(db: Database) -> None:
    one, two = measured(problem=Gemm(1, 1, 1)), measured(problem=Gemm(2, 2, 2))
    db.add(one)
    db.add(two)
    db.set_winner(two)
    db.set_winner(one)
    assert list(db.winners()) == [one, two]


# --- merging -------------------------------------------------------------------------------------------------


def test_merging_twice_adds_nothing(db: Database) -> None:
    rows = [measured(), measured(), measured(11.0), measured(created=0.0), measured(outcome="crashed", samples=())]
    first = db.merge(rows, [measured()])
    assert first == {"measurements": 3, "already_present": 2, "winners": 1, "not_replaced": 0, "stale": 0}
    again = db.merge(rows, [measured()])
    assert again == {"measurements": 0, "already_present": 5, "winners": 0, "not_replaced": 1, "stale": 0}
    assert db.info()["measurements"] == 3
    assert db.merge([measured(created=2000.0)], [])["measurements"] == 1  # the same numbers on another day


def test_faster_winner_stays(db: Database) -> None:
    db.set_winner(measured(10.0))
    better, worse = measured(8.0, config=Config(kg=8)), measured(12.0, config=Config(kg=16))
    assert db.merge([], [worse])["not_replaced"] == 1
    assert db.best(PROBLEM, "h200") == measured(10.0)
    assert db.merge([], [better])["winners"] == 1
    assert db.best(PROBLEM, "h200") == better
    assert db.merge([], [worse, measured(10.0), measured(8.0, config=Config(kg=2))])["not_replaced"] == 3
    assert db.best(PROBLEM, "h200") == better


def test_merged_winner_of_another_kernel_is_stale(db: Database) -> None:
    asked = []

    def current(device: str, problem: Problem, config: Config) -> str:
        asked.append((device, problem, config))
        return NEW

    assert db.merge([], [measured()], current)["stale"] == 1
    assert asked == [("h200", PROBLEM, Config(kg=4))]
    assert db.best(PROBLEM, "h200") is None
    assert len(db.stale()) == 1
    slow = measured(99.0, digest=NEW)
    assert db.merge([], [slow], current)["winners"] == 1  # slow and valid beats fast and stale
    assert db.best(PROBLEM, "h200") == slow
    assert db.merge([], [measured()], current)["stale"] == 1
    assert db.best(PROBLEM, "h200") == slow


def test_merged_winner_with_values_out_of_range_is_stale(db: Database) -> None:
    def current(device: str, problem: Problem, config: Config) -> str:
        return render(plan_for(problem, config, ptxgen.problem.device.device(device))).digest

    m = measured(
        problem=Gemm(64, 1, 64, "NT", "f16"), config=Config(family="wgmma", nl=256, math_warpgroups=-1, ml=10**17)
    )
    assert db.merge([], [m], current)["stale"] == 1


def test_stale_winner_becomes_current_only_if_verified(db: Database) -> None:
    db.set_winner(measured())
    db.demote("h200", lambda problem, config: NEW)
    assert db.merge([], [measured()])["not_replaced"] == 1
    assert db.best(PROBLEM, "h200") is None
    assert db.merge([], [measured()], lambda device, problem, config: OLD)["winners"] == 1
    assert db.best(PROBLEM, "h200") == measured()


def test_failed_merge_stores_nothing(db: Database) -> None:
    db.set_winner(measured())

    def rows() -> Any:
        yield measured(1.5, problem=Gemm(5, 5, 5), environment=replace(H200, driver="cuda 14"))
        raise CorruptError("line 2")

    with pytest.raises(CorruptError, match="line 2"):
        db.merge(rows(), [measured(3.0, config=Config())])
    assert list(db.measurements()) == [measured()]
    assert db.best(PROBLEM, "h200") == measured()
    assert db.info()["problems"] == 1
    db.add(measured(problem=Gemm(5, 5, 5), environment=replace(H200, driver="cuda 14")))  # and is usable after it
    assert db.info()["problems"] == 2


@pytest.fixture
def insert_row(path: Path) -> Any:
    """Adds a row from another connection, at once or not at all."""
    with Database(path, timeout=0.0) as other:
        yield lambda n: other.add(measured(problem=Gemm(9, 9, n)))


def test_others_can_write_while_a_merge_reads(db: Database, insert_row: Any) -> None:
    def rows() -> Any:
        for n in range(1, 6):
            insert_row(n)
            yield measured(problem=Gemm(5, 5, n))

    assert db.merge(rows(), [])["measurements"] == 5
    assert db.info()["measurements"] == 10


def test_merge_uses_short_transactions(db: Database, insert_row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BATCH", 10)
    begun: list[int] = []

    def traced(statement: str) -> None:
        if statement == "BEGIN IMMEDIATE":
            begun.append(len(begun) + 1)
            insert_row(begun[-1])  # a lock that is held would make this fail

    db._db.set_trace_callback(traced)
    counts = db.merge(
        (measured(problem=Gemm(5, 5, n)) for n in range(1, 36)),
        (measured(problem=Gemm(5, 5, n)) for n in range(1, 16)),
    )
    db._db.set_trace_callback(None)
    assert (counts["measurements"], counts["winners"]) == (35, 15)
    assert len(begun) == 4 + 2
    assert [m.problem.k for m in db.measurements() if m.problem.m == 5] == list(range(1, 36))


def test_temporary_rows_of_a_merge_are_dropped(db: Database) -> None:
    def rows() -> Any:
        yield measured()
        raise CorruptError("line 2")

    for _ in range(2):
        with pytest.raises(CorruptError):
            db.merge(rows(), [])
    assert db.merge([measured()], [])["measurements"] == 1
    assert db._db.execute("SELECT count(*) FROM temp.sqlite_master").fetchone() == (0,)


def test_median_of_six_digits_identifies_its_row(db: Database) -> None:
    db.add(measured(100 / 3))
    shortened = measured(samples=(33.3333,), created=0.0, purpose="")
    db.merge([], [shortened])
    best = db.best(PROBLEM, "h200")
    assert best is not None
    assert best.samples == measured(100 / 3).samples
    assert db.info()["measurements"] == 1


# --- the file ------------------------------------------------------------------------------------------------


def test_journal_mode_is_wal_and_the_file_is_marked(db: Database, path: Path) -> None:
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]
    assert sql(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert sql(path, "PRAGMA application_id") == [(APPLICATION,)]


def untouched(path: Path, before: bytes) -> None:
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(("other", "wrote"), [(-1, "an earlier one"), (3, "a newer one")])
@pytest.mark.parametrize("readonly", [False, True])
def test_another_schema_is_refused_and_unchanged(path: Path, readonly: bool, other: int, wrote: str) -> None:
    with Database(path) as db:
        db.add(measured())
    sql(path, f"PRAGMA user_version = {SCHEMA_VERSION + other}")
    before = path.read_bytes()
    with pytest.raises(SchemaError, match=f"version {SCHEMA_VERSION + other}.* {SCHEMA_VERSION}.* {wrote}") as caught:
        Database(path, readonly=readonly)
    assert str(path) in str(caught.value)
    untouched(path, before)


def test_newer_schema_in_the_log_is_refused(path: Path) -> None:
    with Database(path) as older:
        older.add(measured())
        newer = sqlite3.connect(path)
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        assert path.read_bytes()[60:64] == SCHEMA_VERSION.to_bytes(4, "big")  # not in the file itself yet
        with pytest.raises(SchemaError, match=f"version {SCHEMA_VERSION + 1}"):
            Database(path)
        newer.close()


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("content", [b"M,N,K,us\n1,2,3,4\n" * 40, b"SQLite format 3\0", b"x"])
def test_other_files_are_refused_and_unchanged(tmp_path: Path, content: bytes, readonly: bool) -> None:
    path = tmp_path / "notes.csv"
    path.write_bytes(content)
    with pytest.raises(CorruptError, match=r"notes\.csv"):
        Database(path, readonly=readonly)
    untouched(path, content)


def test_database_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    sql(path, "CREATE TABLE urls (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(CorruptError, match=r"history\.sqlite.*not one of ptxgen's"):
        Database(path)
    untouched(path, before)


def test_truncated_database_is_reported_as_corrupt(path: Path) -> None:
    with Database(path) as db:
        for us in range(1, 200):
            db.add(measured(us + 1.0, problem=Gemm(us, 1, 1)))
    before = path.read_bytes()
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(CorruptError, match="tuning"), Database(path) as db:
        list(db.measurements())


def test_damaged_page_is_reported_as_corrupt(path: Path) -> None:
    with Database(path) as db:
        for us in range(1, 200):
            db.add(measured(us + 1.0, problem=Gemm(us, 1, 1)))
    content = bytearray(path.read_bytes())
    content[4096 * 2 :] = random.Random(1).randbytes(len(content) - 4096 * 2)
    path.write_bytes(content)
    with pytest.raises(CorruptError, match="tuning"), Database(path) as db:
        list(db.measurements())


def mutated(content: bytes, chance: random.Random) -> bytes:
    """A database with a damaged header, damaged bytes, a damaged page header, two swapped pages, or a missing end."""
    b, pages = bytearray(content), len(content) // 4096
    change = chance.choice(("header", "bytes", "bytes", "bytes", "page", "swap", "cut"))
    if change == "header":
        b[chance.randrange(100)] = chance.randrange(256)
    elif change == "bytes":
        used = [i for i, byte in enumerate(content) if byte]
        for _ in range(chance.choice((1, 2, 8))):
            b[chance.choice(used)] = chance.randrange(256)
    elif change == "page":
        b[chance.randrange(pages) * 4096 + chance.randrange(60)] = chance.choice((0, 1, 255))
    elif change == "swap":
        one, two = chance.randrange(pages) * 4096, chance.randrange(pages) * 4096
        b[one : one + 4096], b[two : two + 4096] = b[two : two + 4096], b[one : one + 4096]
    else:
        del b[chance.randrange(len(b)) :]
    return bytes(b)


def used_in_every_way(path: Path, readonly: bool) -> None:
    with Database(path, readonly=readonly) as db:
        list(db.measurements())
        list(db.winners())
        db.best(Gemm(1, 1, 1), "h200")
        db.devices()
        db.stale()
        db.info()
        if not readonly:
            db.demote("h200", lambda problem, config: OLD)
            db.set_winner(measured(3.0, problem=Gemm(2, 1, 1), environment=replace(H200, driver="other")))
            db.merge([measured(problem=Gemm(n, 1, 1)) for n in range(3, 9)], [measured(problem=Gemm(9, 1, 1))])


@pytest.mark.parametrize("readonly", [False, True])
def test_any_damage_is_reported_as_corrupt(tmp_path: Path, readonly: bool) -> None:
    with Database(tmp_path / "whole.sqlite") as db:
        for n in range(1, 25):
            db.add(measured(n + 1.0, problem=Gemm(n, 1, 1)))
        for outcome in OUTCOMES[1:]:
            db.add(measured(outcome=outcome, samples=(), message="why " * 50))
        db.set_winner(measured(2.0, problem=Gemm(1, 1, 1)))
    content, chance, refused = (tmp_path / "whole.sqlite").read_bytes(), random.Random(readonly), 0
    for turn in range(250):
        path = tmp_path / f"{turn}.sqlite"
        path.write_bytes(mutated(content, chance))
        try:
            used_in_every_way(path, readonly)
        except (CorruptError, SchemaError):
            refused += 1
        for file in tmp_path.glob(f"{turn}.sqlite*"):
            file.unlink()
    assert 50 < refused < 250


STRANGE = {
    "trigger": "CREATE TRIGGER extra AFTER INSERT ON measurement BEGIN DELETE FROM winner; END",
    "view": "CREATE VIEW extra AS SELECT * FROM measurement",
    "table": "CREATE TABLE extra (x)",
    "index": "CREATE INDEX extra ON measurement (us)",
}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("schema", STRANGE)
def test_foreign_schemas_are_refused(path: Path, schema: str, readonly: bool) -> None:
    with Database(path) as db:
        db.add(measured())
    sql(path, STRANGE[schema])
    before = path.read_bytes()
    with pytest.raises(CorruptError, match=f"with a {schema} extra"):
        Database(path, readonly=readonly)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement", ["DROP VIEW result", "ALTER TABLE winner ADD COLUMN x", "DROP INDEX measurement_of_problem"]
)
def test_schema_that_does_not_match_its_version_is_refused(path: Path, statement: str) -> None:
    Database(path).close()
    sql(path, statement)
    with pytest.raises(CorruptError, match=f"is not that of schema version {SCHEMA_VERSION}"):
        Database(path)


def test_replaced_view_is_refused(path: Path) -> None:
    Database(path).close()
    sql(path, "DROP VIEW result")
    sql(path, "CREATE VIEW result AS SELECT load_extension('x') AS id")
    with pytest.raises(CorruptError, match="view result is not that of schema version"):
        Database(path, readonly=True)


def test_planner_statistics_are_accepted(path: Path) -> None:
    with Database(path) as db:
        db.add(measured())
    sql(path, "ANALYZE")
    with Database(path) as db:
        assert list(db.measurements()) == [measured()]


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("column", ["config", "samples", "digest", "spills", "created"])
def test_value_of_a_wrong_type_is_reported_as_corrupt(path: Path, column: str, readonly: bool) -> None:
    with Database(path) as db:
        db.add(measured())
    sql(path, f"UPDATE measurement SET {column} = x'00ff'")
    with pytest.raises(CorruptError, match="1 rows of the table measurement"):
        Database(path, readonly=readonly)


def test_schema_of_a_foreign_file_is_not_trusted(db: Database) -> None:
    assert db._db.execute("PRAGMA trusted_schema").fetchone() == (0,)
    if sys.version_info >= (3, 12):
        assert db._db.getconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE)


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("suffix", ["", "-journal", "-wal"])
def test_fifo_is_refused_at_once(path: Path, suffix: str, readonly: bool) -> None:
    Database(path).close()
    Path(f"{path}{suffix}").unlink(missing_ok=True)
    os.mkfifo(f"{path}{suffix}")
    with pytest.raises(CorruptError, match="not a regular file"):
        Database(path, readonly=readonly)


def test_samples_that_are_no_list_are_reported_as_corrupt(db: Database, path: Path) -> None:
    db.add(measured())
    sql(path, "UPDATE measurement SET samples = '[1.0, '")
    with pytest.raises(CorruptError, match="measurement 1"):
        list(db.measurements())


def test_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    path.touch()
    with pytest.raises(DatabaseError, match="is empty"):
        Database(path, readonly=True)
    assert path.stat().st_size == 0
    with Database(path) as db:
        db.add(measured())
        assert db.info()["measurements"] == 1


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + bytes(200)])
def test_a_database_that_cannot_be_used_is_a_warning_where_results_do_not_need_it(path: Path, content: bytes) -> None:
    assert readable(path) is None
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=rf"{re.escape(path.name)}.*not used"):
        assert readable(path) is None
    assert path.read_bytes() == content


def test_tables_may_be_created_twice(db: Database) -> None:
    db.add(measured())
    db._create()  # like a process that read an empty file and then waited for another process
    assert list(db.measurements()) == [measured()]


def test_interrupted_first_write_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "half.sqlite"
    script = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN IMMEDIATE")
db.execute("CREATE TABLE problem (x)")
db.executemany("INSERT INTO problem VALUES (zeroblob(4000))", [()] * 200)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=300)
    assert path.stat().st_size > 0
    assert Path(f"{path}-journal").exists()
    with Database(path) as db:
        db.add(measured())
        assert list(db.measurements()) == [measured()]
    assert sql(path, "SELECT count(*) FROM problem") == [(1,)]


def test_folder_or_invalid_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="cannot be read"):
        Database(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match="file"):
        Database(tmp_path / "file" / "tuning.sqlite")


def test_reading_creates_and_changes_nothing(path: Path) -> None:
    with pytest.raises(DatabaseError, match="does not exist"):
        Database(path, readonly=True)
    assert not path.parent.exists()
    with Database(path) as db:
        db.set_winner(measured())
    before = path.read_bytes()
    with Database(path, readonly=True) as db:
        assert db.best(PROBLEM, "h200") == measured()
        for attempt in (lambda: db.add(measured()), lambda: db.set_winner(measured(1.5)), lambda: db.merge([], [])):
            with pytest.raises(DatabaseError, match="reading only"):
                attempt()
    assert path.read_bytes() == before


def test_any_thread_may_read_but_only_one_may_write(db: Database, path: Path) -> None:
    db.set_winner(measured())
    with ThreadPoolExecutor(1) as other, Database(path, readonly=True) as reader:
        assert other.submit(reader.best, PROBLEM, "h200").result() == measured()
        with pytest.raises(DatabaseError, match="thread"):
            other.submit(db.add, measured(11.0)).result()


def test_database_in_a_read_only_folder_can_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Database(path) as db:
        db.add(measured())
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Database(path, readonly=True) as db:
        assert list(db.measurements()) == [measured()]
        assert [p.name for p in path.parent.iterdir()] == [path.name]  # not even SQLite's index of the log


def test_readers_see_new_rows(db: Database, path: Path) -> None:
    with Database(path, readonly=True) as one, Database(path, readonly=True) as two:
        db.add(measured())
        assert list(one.measurements()) == list(two.measurements()) == [measured()]
        reading = one.measurements()
        next(reading)
        db.add(measured(12.0))  # no reader makes a writer wait
        assert len(list(two.measurements())) == 2


def test_wait_for_another_writer_times_out(db: Database, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Database(path, timeout=0.05) as waiting, pytest.raises(DatabaseError, match="locked") as caught:
        waiting.add(measured())
    assert not isinstance(caught.value, CorruptError)
    other.execute("ROLLBACK")
    other.close()


def test_closed_database_is_an_error(path: Path) -> None:
    db = Database(path)
    db.close()
    with pytest.raises(DatabaseError, match="closed"):
        db.add(measured())


def test_info_counts_by_device_clock_and_outcome(db: Database, path: Path) -> None:
    for m in (measured(), measured(11.0), measured(outcome="timeout", samples=()), measured(environment=EMULATED)):
        db.add(m)
    db.set_winner(measured())
    info = db.info()
    assert info["rows"] == [
        {"device": "emulated", "clock": "model", "outcome": "ok", "count": 1},
        {"device": "h200", "clock": "hardware", "outcome": "ok", "count": 2},
        {"device": "h200", "clock": "hardware", "outcome": "timeout", "count": 1},
    ]
    assert info["winners"] == [{"device": "h200", "clock": "hardware", "count": 1, "stale": 0}]
    assert (info["path"], info["schema"], info["problems"], info["measurements"]) == (str(path), SCHEMA_VERSION, 1, 4)
    assert info["bytes"] >= path.stat().st_size
    json.dumps(info)


# --- file systems -------------------------------------------------------------------------------------------------


def files(path: Path) -> list[str]:
    return sorted(f.name.removeprefix(path.name) for f in path.parent.iterdir())


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "file_system", lambda folder: "nfs4")


def test_database_on_a_network_file_system_has_no_wal(path: Path, network: None) -> None:
    with Database(path) as one, Database(path) as two:
        one.add(measured())
        two.add(measured(11.0))
        assert list(one.measurements()) == list(two.measurements()) == [measured(), measured(11.0)]
        assert files(path) == [""]
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]
    assert path.read_bytes()[18:20] == b"\1\1"


def test_database_with_wal_leaves_it_on_a_network_file_system(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = child(path, 0, 1000)  # killed, so that its rows are in the log
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.wait(60)
    process.stdout.close()
    Path(f"{path}-shm").unlink()
    assert files(path) == ["", "-wal"]
    opened: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "file_system", lambda folder: "cifs")
        patch.setattr(Database, "_verify", lambda db: opened.append(Path(f"{path}-shm").exists()))
        with Database(path) as db:
            assert next(db.measurements()).problem.m == 0
            db.add(measured())
            with Database(path) as other:  # the exclusive access has ended
                other.add(measured(11.0))
            assert files(path) == [""]
    assert opened == [False, False]  # nor was shared memory used before
    with Database(path) as db:
        assert measured(11.0) in list(db.measurements())
        assert files(path) == ["", "-shm", "-wal"]


def test_no_wal_if_its_index_cannot_be_created(path: Path) -> None:
    Path(f"{path}-shm").mkdir(parents=True)
    for us in (5.0, 6.0):
        with Database(path) as db:
            db.add(measured(us))
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]
    assert sql(path, "SELECT count(*) FROM measurement") == [(2,)]


def test_file_system_type_is_detected(tmp_path: Path) -> None:
    assert sqlite_file.file_system(Path("/proc")) == "proc"
    assert sqlite_file.file_system(tmp_path / "absent") == ""


@pytest.mark.parametrize(
    ("file_system", "networked"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("cifs", True),
        ("smb3", True),
        ("fuse.sshfs", True),
        ("lustre", True),
        ("ext4", False),
        ("xfs", False),
        ("btrfs", False),
        ("tmpfs", False),
        ("overlay", False),
        ("", False),
    ],
)
def test_file_systems_without_wal(
    path: Path, monkeypatch: pytest.MonkeyPatch, file_system: str, networked: bool
) -> None:
    monkeypatch.setattr(sqlite_file, "file_system", lambda folder: file_system)
    Database(path).close()
    assert sql(path, "PRAGMA journal_mode") == [("delete" if networked else "wal",)]


# --- other processes -----------------------------------------------------------------------------------------

CHILD = """
import sys
from ptxgen.codegen.config.config import FAMILIES, Config, parse_config
from ptxgen.operations.conv.problem import Conv
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.tuning.store.tuning_files import Header, read_measurements, read_winners, write_winners

path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Database(path) as db:
    for i in range(first, first + count):
        db.add(Measurement(Gemm(i, 1, 1), Config(), "ok", Environment("h200"), (1.0,), created=1.0))
        print(i, flush=True)
"""


def child(path: Path, first: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(path), str(first), str(count)]
    root, other = str(Path(ptxgen.__file__).parents[1]), os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, other])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_every_acknowledged_row_survives_kill_9(path: Path) -> None:
    acknowledged: list[int] = []
    for turn, wait_for in enumerate((1, 7, 23)):
        process = child(path, 1000 * turn, 1000)
        assert process.stdout is not None
        for _ in range(wait_for):
            acknowledged.append(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        process.stdout.close()
        assert process.wait(60) == -signal.SIGKILL
    with Database(path) as db:
        stored = [m.problem.m for m in db.measurements()]
        assert set(acknowledged) <= set(stored)
        assert len(stored) <= len(acknowledged) + 3  # at most one a kill was stored and not acknowledged
        assert len(stored) == len(set(stored))
        db.add(measured())  # and it goes on
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


def test_several_processes_create_and_fill_one_database(path: Path) -> None:
    path.parent.mkdir(parents=True)
    processes = [child(path, 100 * i, 20) for i in range(3)]
    assert [p.wait(120) for p in processes] == [0, 0, 0]
    for p in processes:
        assert p.stdout is not None
        p.stdout.close()
    with Database(path, readonly=True) as db:
        assert sorted(m.problem.m for m in db.measurements()) == [100 * i + j for i in range(3) for j in range(20)]


def test_kill_during_the_first_write_leaves_a_usable_file(path: Path) -> None:
    process = child(path, 0, 1000)
    while not path.exists() and process.poll() is None:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()
    with Database(path, readonly=True) as db:  # a file that exists has its tables
        assert db.info()["schema"] == SCHEMA_VERSION
    with Database(path) as db:
        db.add(measured())
        assert measured() in list(db.measurements())


def test_a_database_exists_only_with_its_tables(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(db: sqlite3.Connection) -> None:
        assert not path.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite_file, "_make_tables", ends)
    with pytest.raises(KeyboardInterrupt):
        Database(path)
    assert list(path.parent.iterdir()) == []


def test_a_database_is_created_without_hard_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*files: object) -> None:
        raise PermissionError

    monkeypatch.setattr(sqlite_file.os, "link", link)
    with Database(path) as db:
        db.add(measured())
        assert list(db.measurements()) == [measured()]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("links", [True, False])
def test_a_database_gets_its_name_at_the_end_of_an_import(
    path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def link(*files: object) -> None:
        raise PermissionError

    if not links:
        monkeypatch.setattr(os, "link", link)
    with pytest.raises(InputError, match="outcome"), destination(path) as db:
        db.merge([measured(), measured(outcome="nonsense")], [])
    assert list(path.parent.iterdir()) == []
    for count in (1, 2):  # a new database, then the same one
        with destination(path) as db:
            db.add(measured())
            assert path.exists() == (count == 2)
        with Database(path) as db:
            assert len(list(db.measurements())) == count
        assert list(path.parent.iterdir()) == [path]


def test_an_import_does_not_replace_the_database_of_another_process(path: Path) -> None:
    def add() -> None:
        with destination(path):
            Database(path).close()

    with pytest.raises(DatabaseError, match="created by another process"):
        add()
    assert list(path.parent.iterdir()) == [path]


def test_the_log_of_a_removed_database_is_not_applied_to_a_new_one(path: Path) -> None:
    with Database(path) as db:
        db.add(measured())
        log = Path(f"{path}-wal").read_bytes()
        assert log
    path.unlink()
    Path(f"{path}-wal").write_bytes(log)
    with Database(path) as db:
        assert list(db.measurements()) == []


# --- the package ---------------------------------------------------------------------------------------------


def test_package_does_not_import_pickle() -> None:
    banned = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    files = list(Path(ptxgen.tuning.__file__).parent.rglob("*.py"))
    assert len(files) > 10
    for file in files:
        text = file.read_text()
        for node in ast.walk(ast.parse(text)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {n.split(".")[0] for n in names} & banned, file
        assert "allow_pickle=True" not in text, file


def test_convolutions_are_stored_and_looked_up_by_problem(tmp_path: Path) -> None:
    v = Conv(2, 8, 6, 6, 16, 3, 3, stride=(2, 1), padding=(1, 0, 2, 2), layout="NHWC", epilogue="bias")
    m = Measurement(v, Config(), "ok", Environment("h200"), (3.0,), "0" * 16)
    with Database(tmp_path / "conv.sqlite") as database:
        database.set_winner(m)
        assert database.best(v, "h200") == m
        assert database.best(replace(v, direction="weight_grad", epilogue=""), "h200") is None
        [row] = database._db.execute("SELECT operation, m, n, k FROM problem").fetchall()
    assert row == ("conv", lower(v).m, lower(v).n, lower(v).k)
    path = tmp_path / "winners.txt"
    write_winners(path, Header("h200"), [m])
    assert [w.problem for w in read_winners(path)[1]] == [v]


def test_fastest_of_concurrently_set_winners_stays(path: Path) -> None:
    """Each process compares with the stored winner and replaces it in one transaction."""
    Database(path).close()

    def compete(seed: int) -> None:
        with Database(path) as database:
            for us in random.Random(seed).sample(range(10, 1000), 25):
                m = measured(float(us), config=Config(kg=seed + 1))
                database.set_winner(m, over=lambda held, m=m: m.us < held.us)  # type: ignore[misc]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(compete, range(4)))
    fastest = min(us for seed in range(4) for us in random.Random(seed).sample(range(10, 1000), 25))
    with Database(path) as database:
        best = database.best(PROBLEM, "h200")
        assert best is not None
        assert best.us == fastest


def test_protected_winner_stays_unless_stale(db: Database) -> None:
    assert db.set_winner(measured(5.0), over=lambda held: False)  # there was none
    assert not db.set_winner(measured(3.0), over=lambda held: False)
    assert [m.us for m in db.winners()] == [5.0]
    db.demote("h200", lambda problem, config: NEW)
    assert list(db.winners()) == []
    assert [m.us for m in db.winners(stale=True)] == [5.0]
    assert db.set_winner(measured(9.0, digest=NEW), over=lambda held: False)
    assert [m.us for m in db.winners()] == [9.0]


#: axis -> a value that is not its default; each family has one of them
OTHER_VALUES = {"kg": "kg=2", "vec_b": "vec_b=2", "thread_rows": "thread_rows=2", "thread_pixels": "thread_pixels=4"}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_configuration_of_every_family_is_stored_and_exported(family: str, path: Path, tmp_path: Path) -> None:
    """Rows whose axes a database does not know are not returned: every axis of a family must survive the text form."""
    known = {a.name for a in axes_of(family)}
    changed = next(text for name, text in OTHER_VALUES.items() if name in known)
    config = parse_config(f"family={family} {changed}")
    one = measured(config=config)
    with Database(path) as db:
        db.add(one)
        assert [m.config for m in db.measurements()] == [config]
        assert db.info()["unreadable"] == 0
        tuning_files.export_text(db, tmp_path / "out", device="h200")
    [exported] = read_measurements(tmp_path / "out" / "h200" / "measurements.jsonl.xz")[1]
    assert exported.config == config
