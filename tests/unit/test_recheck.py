"""Stored winners of changed kernels: kept if the machine code is the same, else timed again."""

from __future__ import annotations

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import command
from ptxgen.cli.report import recheck_text
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import CorruptError, LaunchError
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import device
from ptxgen.runtime import sass
from ptxgen.runtime.assemble import assemble, find_ptxas
from ptxgen.tuning.choice import log, models
from ptxgen.tuning.choice.winners import current_digest
from ptxgen.tuning.measure import recheck
from ptxgen.tuning.measure.recheck import DatabaseWinners, FolderWinners, Recheck
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement, from_dict
from ptxgen.tuning.store.records import stale_reason
from ptxgen.tuning.store.tuning_files import Header, read_winners, winners_path, write_winners

EMULATED, H200 = device("emulated"), device("h200")
P, Q, R = Gemm(32, 32, 64, "TN"), Gemm(32, 48, 64, "TN"), Gemm(16, 16, 16, "TN")
MINE = parse_config("ms=4 ns=4 ml=32 nl=16 u=8 lanes_m=8 vec_a=4 vec_b=4 vec_c=4")
OLD = "0123456789abcdef"
HEADER = Header("emulated", "model", "abc", "ptxgen tune", "2026-01-02")
needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")


def stored(problem: Gemm, us: float = 1e6, digest: str = "", **more: Any) -> Measurement:
    digest = digest or current_digest(problem, MINE, EMULATED)
    return Measurement(problem, MINE, "ok", Environment("emulated", "model"), (us,), digest, **more)


def folder_of(tmp_path: Path, *winners: Measurement) -> Path:
    write_winners(winners_path("emulated", tmp_path), HEADER, winners)
    return tmp_path


def winners_of(folder: Path, name: str = "winners.txt") -> dict[Any, Measurement]:
    return {m.problem: m for m in read_winners(folder / "emulated" / name)[1]}


# ---- machine code


@needs_ptxas
def test_sass_digest_covers_only_executed_code():
    source = render(plan_for(P, MINE, H200))
    same = replace(
        source, text="// another comment\n" + source.text.replace("%k_", "%q_").replace("mov.u32", "mov.b32")
    )
    other = replace(source, text=source.text.replace("fma.rn.f32", "fma.rz.f32", 1))
    assert len({source.digest, same.digest, other.digest}) == 3
    assert sass.machine_code(same) == sass.machine_code(source) != sass.machine_code(other)
    assert sass.machine_code(source).split()[1] == "sm_90"
    assert sass.cached_machine_code(other.digest, "sm_90") == sass.machine_code(other)
    assert sass.cached_machine_code("f" * 16, "sm_90") == ""


@needs_ptxas
def test_damaged_cubin_is_reported_as_such():
    cubin = assemble(render(plan_for(P, MINE, H200))).cubin
    for damaged in (b"", b"\x7fELF", cubin[:80], cubin[: len(cubin) // 2], b"x" * 999):
        with pytest.raises(CorruptError, match="cubin"):
            sass.digest(damaged)


def test_winners_file_contains_sass_digests(tmp_path):
    code = "13.0.88 sm_90a 0123456789abcdef"
    folder = folder_of(tmp_path, stored(P, sass=code), stored(Q))
    assert {p: m.sass for p, m in winners_of(folder).items()} == {P: code, Q: ""}
    assert from_dict(stored(P, sass=code).as_dict()).sass == code
    assert "sass" not in stored(P).as_dict()
    path = winners_path("emulated", folder)
    path.write_text(path.read_text().replace("sm_90a", "sm_ninety"))
    with pytest.raises(CorruptError, match="sass is"):
        read_winners(path)


# ---- comparing


@needs_ptxas
def test_winner_with_equal_sass_keeps_its_time(tmp_path):
    code = sass.machine_code(render(plan_for(P, MINE, EMULATED)))
    folder = FolderWinners(folder_of(tmp_path, stored(P, 7.0, OLD, sass=code), stored(Q, 8.0)), "def")
    rows = Recheck(EMULATED, 2).compare(folder.read("emulated"))
    assert {row.old.problem: row.state for row in rows} == {P: "text", Q: "current"}
    folder.save(EMULATED, rows)
    now = winners_of(tmp_path)
    assert (now[P].us, now[P].digest, now[P].sass) == (7.0, current_digest(P, MINE, EMULATED), code)
    assert now[Q].sass  # recorded from now on
    assert not winners_path("emulated", tmp_path).with_name("stale.txt").exists()
    header = read_winners(winners_path("emulated", tmp_path))[0]
    assert (header.commit, header.command) == ("def", "ptxgen tune")


def test_winner_with_changed_sass_is_stale(tmp_path):
    other = "13.0.88 sm_90 fedcba9876543210"
    bad = replace(stored(R), config=replace(MINE, ms=3))
    folder = FolderWinners(folder_of(tmp_path, stored(P, 7.0, OLD, sass=other), stored(Q, 8.0, OLD), bad), "def")
    rows = Recheck(EMULATED, 2).compare(folder.read("emulated"))
    assert {row.state for row in rows} == {"stale"}
    assert {row.old.problem: row.reason.split(":")[0][:25] for row in rows} == {
        P: "its machine code was 13.0",
        Q: f"its kernel was {OLD}"[:25],
        R: "no kernel now",
    }
    folder.save(EMULATED, rows)
    assert winners_of(tmp_path) == {}
    assert set(winners_of(tmp_path, "stale.txt")) == {P, Q, R}
    assert len(FolderWinners(tmp_path, "").read("emulated")) == 3


@pytest.mark.parametrize("survived", [0, 1, 2])
def test_kill_between_two_files_loses_no_winner(tmp_path, monkeypatch, survived):
    store = FolderWinners(folder_of(tmp_path, stored(P), stored(Q)), "")
    current, stale = recheck.Rechecked(stored(P), "current", stored(P)), recheck.Rechecked(stored(Q))
    store.save(EMULATED, [current, stale])
    real, calls = write_winners, []

    def killed(*arguments):
        if len(calls) == survived:
            raise KeyboardInterrupt
        calls.append(1)
        real(*arguments)

    monkeypatch.setattr(recheck, "write_winners", killed)
    with pytest.raises(KeyboardInterrupt):
        store.save(EMULATED, [recheck.Rechecked(stored(P)), recheck.Rechecked(stored(Q), "timed", stored(Q, 4.0))])
    assert {m.problem for m in store.read("emulated")} == {P, Q}


# ---- timing


class Fake:
    """A measuring process that answers at once. ``outcomes``, ``times``: by configuration."""

    log: list[tuple[Gemm, Config, str]] = []  # noqa: RUF012
    outcomes: dict[Config, str] = {}  # noqa: RUF012
    times: dict[Config, float] = {}  # noqa: RUF012

    def __init__(self, driver: str, commit: str = "") -> None:
        self.environment = Environment("emulated", "model", commit=commit)

    def measure(self, problem, config, timing, purpose="", full=False) -> Measurement:
        assert full == (purpose == "check")
        Fake.log.append((problem, config, purpose))
        outcome = Fake.outcomes.get(config, "ok")
        us = (Fake.times.get(config, 5.0),) if outcome == "ok" else ()
        digest = current_digest(problem, config, EMULATED)
        return Measurement(problem, config, outcome, self.environment, us, digest, purpose=purpose)

    def stop(self) -> None:
        pass


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(recheck, "Worker", Fake)
    for name, empty in (("log", []), ("outcomes", {}), ("times", {})):
        monkeypatch.setattr(Fake, name, empty)


def retimed(winners: list[Measurement], seconds: float = 1e9) -> tuple[list[recheck.Rechecked], int]:
    work, saved = Recheck(EMULATED, 1), []
    rows = work.compare(winners)
    work.retime(rows, "emulated", lambda rows: saved.append([r.state for r in rows]), seconds)
    assert saved[-1] == [r.state for r in rows]
    return rows, len(saved)


CHOICE = models.model_for(EMULATED).rank(P, EMULATED, 1)[0][0]


@pytest.mark.parametrize(("mine", "state", "rounds"), [(4.9, "timed", 2), (5.1, "replaced", 2), (9.0, "replaced", 1)])
def test_stale_winner_is_timed_alternately_with_the_models_choice(fake, mine, state, rounds):
    Fake.times[MINE] = mine
    [row], _ = retimed([stored(P, 1.0, OLD)])
    assert row.state == state
    assert row.new.config == (MINE if state == "timed" else CHOICE)
    assert row.new.us == min(mine, 5.0)
    assert row.new.digest == current_digest(P, row.new.config, EMULATED)
    assert [purpose for _, _, purpose in Fake.log] == ["check", "check", *["final"] * 2 * rounds]
    assert [config for _, config, _ in Fake.log[2:]] == [MINE, CHOICE] * rounds


def test_wrong_kernel_does_not_win(fake):
    Fake.outcomes[MINE], Fake.times[MINE] = "wrong_result", 0.1
    [row], _ = retimed([stored(P, 1.0, OLD)])
    assert (row.state, row.new.config) == ("replaced", CHOICE)
    assert [(c, w) for _, c, w in Fake.log if w == "final"] == [(CHOICE, "final")]
    Fake.outcomes[CHOICE] = "wrong_result"
    [row], _ = retimed([stored(P, 1.0, OLD)])
    assert (row.state, row.new) == ("failed", None)
    assert "wrong_result" in row.reason


def test_winners_of_handles_are_not_timed_again(fake):
    p = Spmm(40, 16, 30)
    m = stored(replace(p, pattern=p.statistics.rounded().text()), 1.0, OLD)
    m = replace(m, config=parse_config("family=row_split vec_b=4"))
    work = Recheck(EMULATED, 1)
    rows = work.compare([m])
    work.retime(rows, "emulated", lambda rows: None, 1e9)
    assert [row.state for row in rows] == ["stale"]
    assert not Fake.log


def test_check_without_enough_memory_is_repeated_alone(fake):
    Fake.outcomes[CHOICE] = "launch_error"
    [row], _ = retimed([stored(P, 1.0, OLD)])
    assert (row.state, row.new.config) == ("timed", MINE)
    assert [w for _, c, w in Fake.log if c == CHOICE] == ["check", "check"]


def test_a_failing_process_ends_the_checks(fake, monkeypatch):
    """The rows stay stale and are saved; no further check begins, also of rows that threads have begun."""
    begun, failed, ended = threading.Barrier(3, timeout=60), threading.Event(), threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *arguments, **options):
            ended.set()
            super().shutdown(*arguments, **options)

    def contenders(self, m):
        begun.wait()
        if m.problem != stale[0].problem:
            failed.wait(60)
        return [MINE, CHOICE]

    def measure(self, problem, config, *rest, **options):
        Fake.log.append((problem, config, "check"))
        if not failed.is_set():
            failed.set()
            raise LaunchError("the process ended")
        ended.wait(60)

    stale = [stored(Gemm(16 * n, 16, 16, "TN"), 1.0, OLD) for n in range(1, 4)]
    rows = Recheck(EMULATED, 3).compare(stale)
    monkeypatch.setattr(recheck, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(Recheck, "_contenders", contenders)
    monkeypatch.setattr(Fake, "measure", measure)
    saved = []
    with pytest.raises(LaunchError, match="the process ended"):
        Recheck(EMULATED, 3).retime(rows, "emulated", lambda rows: saved.append({row.state for row in rows}), 1e9)
    assert saved == [{"stale"}]
    assert 1 <= len(Fake.log) <= 2  # the second one may have begun before the error of the first one was seen


def test_current_winners_are_not_timed_and_the_budget_ends(fake):
    rows, _ = retimed([stored(P), stored(Q, 1.0, OLD)], seconds=-1.0)
    assert [row.state for row in rows] == ["current", "stale"]
    assert Fake.log == []


def test_results_are_saved_one_by_one(fake):
    many = [stored(Gemm(16 * n, 16, 16, "TN"), 1.0, OLD) for n in range(1, recheck.SAVE_INTERVAL + 2)]
    rows, saves = retimed(many)
    assert saves == 2
    assert {row.new is not None for row in rows} == {True}


# ---- the command


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")

    def call(*words: object) -> tuple[int, str]:
        code = command.run([str(word) for word in words])
        return code, capsys.readouterr().out

    return call


def test_command_times_a_folder_on_the_emulated_device(run, tmp_path):
    folder = folder_of(tmp_path / "out", stored(P, 1e6, OLD), stored(R, 2e6))
    code, out = run("db", "recheck", folder, "--no-time")
    assert code == 1
    assert "stale" in out
    assert set(winners_of(folder, "stale.txt")) == {P}
    code, out = run("db", "recheck", folder, "--jobs", 1)
    assert code == 0, out
    now = winners_of(folder)
    assert set(now) == {P, R}
    assert now[R].us == 2e6
    assert now[P].us < 1e6  # the device's own
    assert now[P].digest == current_digest(P, now[P].config, EMULATED)
    assert not (folder / "emulated" / "stale.txt").exists()


def test_a_driver_that_is_named_and_missing_is_an_error(run, tmp_path, monkeypatch):
    """Winners of other devices are not left untimed in silence."""
    with Database(tmp_path / "tuning.sqlite") as database:
        database.set_winner(Measurement(P, MINE, "ok", Environment("h200", "hardware"), (3.0,), OLD))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    assert run("db", "recheck", "--jobs", 1)[0] == 1
    monkeypatch.setenv("PTXGEN_DRIVER", "pycuda")
    monkeypatch.setitem(sys.modules, "pycuda", None)
    assert run("db", "recheck", "--jobs", 1)[0] == 3


def test_command_marks_and_times_the_winners_of_a_database(run, tmp_path, fake):
    with Database(tmp_path / "tuning.sqlite") as database:
        for m in (stored(P, 3.0, OLD), stored(Q, 2.0)):
            database.set_winner(m)
    code, out = run("db", "recheck", "--no-time")
    assert (code, "its kernel was" in out) == (1, True)
    with Database(tmp_path / "tuning.sqlite") as database:
        assert [key for key, *_ in database.stale()] == [P.key()]
    assert run("db", "recheck", "--jobs", 1)[0] == 0
    with Database(tmp_path / "tuning.sqlite") as database:
        assert database.stale() == []
        assert database.best(P, "emulated", "model").us == 5.0
        assert database.best(Q, "emulated", "model").us == 2.0


def test_winner_stored_by_another_process_stays(tmp_path):
    with Database(tmp_path / "tuning.sqlite") as database:
        database.set_winner(stored(P, 3.0))
        row = recheck.Rechecked(stored(P, 9.0), "timed", stored(P, 8.0))
        DatabaseWinners(database).save(EMULATED, [row])
        assert database.best(P, "emulated", "model").us == 3.0


def test_folder_without_winners_of_the_device_is_refused(run, tmp_path):
    assert run("db", "recheck", tmp_path)[0] == 2
    assert run("db", "recheck", folder_of(tmp_path, stored(P)), "--device", "h200")[0] == 2


def test_command_line_prints_warnings(run, tmp_path, capsys):
    with Database(tmp_path / "tuning.sqlite") as database:
        database.set_winner(stored(P, 3.0, OLD))
    log.warn.cache_clear()
    handlers = list(logging.getLogger("ptxgen").handlers)
    command.run(["select", "--shape", "32,32,64", "--layout", "TN", "--device", "emulated"])
    output = capsys.readouterr()
    assert output.err.startswith(f"warning: the winner of {P.key()} on emulated is stale")
    assert "analytic" in output.out
    assert logging.getLogger("ptxgen").handlers == handlers


# ---- what ships


@pytest.mark.parametrize("name", tuning_files.devices())
def test_no_shipped_winner_is_stale(name, draws):
    """One in 48, or all with --exhaustive. If this fails: python -m ptxgen db recheck tuning_db, on the device."""
    header, winners = read_winners(winners_path(name))
    rows = [
        f"{m.problem.key()}: {reason}"
        for m in winners[:: 48 if draws == 1 else 1]
        if (reason := stale_reason(m, lambda p, c: current_digest(p, c, device(name))))
    ]
    assert not rows, "\n".join(rows)
    assert asdict(header)["device"] == name


def test_text_without_winners() -> None:
    assert recheck_text({"rows": []}) == ["there are no winners to recheck"]
