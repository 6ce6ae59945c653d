"""Recording the shapes of a program, tuning them in a block, at first use and in the background; selection digests."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import autotune, choice, drivers, first_call, launches, recording, runners
from ptxgen.api.recording import Recorder
from ptxgen.cli import command
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import CorruptError, InputError, LaunchError
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem import suites
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection
from ptxgen.tuning.choice import models, winners
from ptxgen.tuning.search import acquisition, first_use, tuner
from ptxgen.tuning.search.tuner import Tuned
from ptxgen.tuning.selection import Selection
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement
from tests.forks import forked

EMULATED = device("emulated")
P = Gemm(16, 24, 8)
X, Y = np.ones((16, 8), np.float32), np.ones((8, 24), np.float32)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """The emulated device, a database of the test's own, and no cached call."""
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    caches = (drivers.driver, choice.database, first_call.first_use, first_call._background)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def read(path: Path) -> dict[Any, int]:
    with path.open("rb") as file:
        return {case.problem: int(case.count) for case in suites.read(file, "f", "")}


@pytest.mark.parametrize("content", [b"", b"this is no database" * 20])
def test_calls_warn_once_about_a_damaged_database(tmp_path, content):
    path = tmp_path / "tuning.sqlite"
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=r"tuning\.sqlite.*not used"):
        assert (ptxgen.gemm(X, Y) == 8).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (ptxgen.gemm(Y.T, X.T) == 8).all()
    assert path.read_bytes() == content


# --- PTXGEN_LOG --------------------------------------------------------------------------------------------------


def test_the_first_call_of_a_problem_prints_its_configuration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runners.runners.clear()
    a = np.ones((9, 7), np.float32)
    ptxgen.gemm(a, a.T)
    assert capsys.readouterr().err == ""
    runners.runners.clear()
    monkeypatch.setenv("PTXGEN_LOG", "select")
    for _ in range(2):
        ptxgen.gemm(a, a.T)
    [line] = capsys.readouterr().err.splitlines()
    config = runners.runners[drivers.driver(), Gemm(9, 9, 7, "NT")].plan.config
    assert line.startswith(f"ptxgen: gemm 9,9,7 NT f32: {config} (")
    assert re.search(r"\((analytic|model|seed)[^,]*, predicted [0-9.]+ µs\)$", line)
    monkeypatch.setenv("PTXGEN_LOG", "all")
    with pytest.raises(InputError, match="PTXGEN_LOG is 'all'; it must be one of off, select"):
        ptxgen.gemm(a[:3], a.T)


# --- PTXGEN_RECORD -----------------------------------------------------------------------------------------------


def test_calls_are_recorded_with_counts_in_the_form_that_commands_read(monkeypatch, tmp_path, capsys):
    path = tmp_path / "new" / "shapes.jsonl"
    ptxgen.gemm(X, Y)  # before recording
    monkeypatch.setenv("PTXGEN_RECORD", str(path))
    for _ in range(3):
        ptxgen.gemm(X, Y)
    ptxgen.gemm(X, Y[:, :8].copy())
    ptxgen.conv2d(np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 3, 3), np.float32))
    recording.recorder(path).flush()
    stored = read(path)
    assert stored[P] == 3
    assert stored[Gemm(16, 8, 8)] == 1
    assert sum(isinstance(p, Conv) for p in stored) == 1
    assert json.loads(path.read_text().splitlines()[0])["count"] == 3  # the most frequent first
    ptxgen.gemm(X, Y)
    recording.recorder(path).flush()
    recording.recorder(path).flush()
    assert read(path)[P] == 4
    assert command.run(["select", "--shapes-file", str(path), "--device", "h200", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["problem"]["operation"] for row in rows} == {"gemm", "conv"}
    assert command.run(["select", "--shapes-file", str(path), "--device", "h200"]) == 0
    assert capsys.readouterr().out.count("device: h200") == 2  # a table for each operation


def test_processes_share_the_file(tmp_path):
    """Each adds its counts at exit, also a forked one."""
    path = tmp_path / "shapes.jsonl"
    code = """
    import os, numpy, ptxgen
    x = numpy.ones((16, 8), "f4")
    y = numpy.ones((8, 24), "f4")
    ptxgen.gemm(x, y)
    if os.fork() == 0:
        ptxgen.gemm(x, y)
        from ptxgen.api import recording
        recording.recorder(__import__("pathlib").Path(os.environ["PTXGEN_RECORD"])).flush()
        os._exit(0)
    os.wait()
    """
    env = {**os.environ, "PTXGEN_RECORD": str(path)}
    words = [sys.executable, "-c", textwrap.dedent(code)]
    running = [subprocess.Popen(words, env=env) for _ in range(2)]
    assert [process.wait(timeout=300) for process in running] == [0, 0]
    assert read(path) == {P: 4}


def test_counts_are_written_at_intervals(monkeypatch, tmp_path):
    monkeypatch.setattr(recording, "FLUSH_SECONDS", 0.05)
    recorder, written = Recorder(tmp_path / "shapes.jsonl"), threading.Event()
    flush = recorder.flush
    monkeypatch.setattr(recorder, "flush", lambda: (flush(), written.set()))
    recorder.count(P)
    assert written.wait(60)
    assert read(recorder.path) == {P: 1}


@pytest.mark.parametrize("content", [b"not JSON\n", b'{"m": 1}\n', b"\xff\n"])
def test_a_file_that_is_not_of_shapes_is_left_as_it_is(tmp_path, content):
    """No count is lost: the next write tries again."""
    path = tmp_path / "shapes.jsonl"
    path.write_bytes(content)
    recorder = Recorder(path)
    recorder.count(P)
    recorder.count(P)
    with pytest.warns(RuntimeWarning, match="PTXGEN_RECORD: 2 calls of 1 problem not recorded: "):
        recorder.flush()
    assert path.read_bytes() == content
    path.unlink()
    recorder.flush()
    assert read(path) == {P: 2}


def test_a_shapes_file_keeps_what_people_wrote(tmp_path):
    path = tmp_path / "shapes.jsonl"
    lines = [
        '{"name": "first layer", "m": 784,  "n": 128, "k": 512, "count": 0.5}',
        '{"name": "größte", "m": 16, "n": 24, "k": 8, "count": 2.5}',
        '{"m": 16, "n": 24, "k": 8}',
        '{"m": 8, "n": 8, "k": 8, "dtype": "f16"}',
    ]
    path.write_text("\n".join([*lines[:2], "", *lines[2:]]))  # without an end of the last line
    path.chmod(0o640)
    recorder = Recorder(path)
    for problem in (P, P, Gemm(8, 8, 8, dtype="f16"), Gemm(5, 5, 5)):
        recorder.count(problem)
    recorder.flush()
    first, second, third, fourth, new = path.read_text().splitlines()
    assert (first, third) == (lines[0], lines[2])
    assert second == '{"name": "größte", "m": 16, "n": 24, "k": 8, "count": 4.5}'
    assert json.loads(fourth) == {"m": 8, "n": 8, "k": 8, "dtype": "f16", "count": 2}
    assert json.loads(new).items() >= {"m": 5, "n": 5, "k": 5, "count": 1}.items()
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_recorded_count_can_be_read_again(tmp_path):
    path = tmp_path / "shapes.jsonl"
    path.write_text(json.dumps({"m": 16, "n": 24, "k": 8, "count": suites.MOST_CALLS}))
    recorder = Recorder(path)
    for _ in range(2):
        recorder.count(P)
        recorder.flush()
    assert read(path) == {P: suites.MOST_CALLS}


def made(file_type: str, path: Path) -> Path:
    """A path at which there is no regular file."""
    if file_type == "folder":
        path.mkdir()
    elif file_type == "FIFO":
        os.mkfifo(path)
    elif file_type == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif file_type == "device":
        return Path(os.ttyname(os.openpty()[1]))
    else:
        path.symlink_to(path.with_name("elsewhere"))
        path.with_name("elsewhere").write_text("theirs")
    return path


@pytest.mark.parametrize("file_type", ["folder", "FIFO", "socket", "device", "symbolic link"])
def test_only_a_regular_file_is_recorded_to(tmp_path, monkeypatch, file_type):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    path = made(file_type, Path("shapes.jsonl"))
    before = path.lstat()
    recorder = Recorder(path)
    recorder.count(P)
    with pytest.warns(RuntimeWarning, match=f"is a {file_type}; it must be a regular file"):
        recorder.flush()
    assert path.lstat().st_ino == before.st_ino
    if file_type == "symbolic link":
        assert path.read_text() == "theirs"
    recorder._counts.clear()  # else the end of the process warns


def run_recording(path: Path, code: str) -> None:
    """Runs a program that records. The programs of this file wait for each other's events, and end at once if all is
    well."""
    script = path.with_name("program.py")
    script.write_text(textwrap.dedent(code))
    env = {**os.environ, "PTXGEN_RECORD": str(path), "PYTHONPATH": str(Path(ptxgen.__file__).parents[1])}
    subprocess.run([sys.executable, script], env=env, check=True, timeout=100)


def test_counts_are_kept_if_the_process_ends_during_a_write(tmp_path):
    path = tmp_path / "shapes.jsonl"
    run_recording(
        path,
        """
        import atexit, os, pathlib, threading, time
        from ptxgen.api import recording
        from ptxgen.operations.gemm.problem import Gemm

        add, started, ending = recording.shapes_file.add, threading.Event(), threading.Event()

        def slow(*arguments):
            started.set()
            ending.wait()
            time.sleep(0.1)  # longer than a process that does not wait needs to end
            add(*arguments)

        recording.shapes_file.add = slow
        recording.FLUSH_SECONDS = 0
        recorder = recording.recorder(pathlib.Path(os.environ["PTXGEN_RECORD"]))
        atexit.register(ending.set)
        recorder.count(Gemm(16, 24, 8))
        started.wait()
        recorder.count(Gemm(16, 24, 8))
        """,
    )
    assert read(path) == {P: 2}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_record_at_their_end(tmp_path, method):
    """They end with ``os._exit``."""
    path = tmp_path / "shapes.jsonl"
    run_recording(
        path,
        f"""
        import multiprocessing, os, pathlib
        from ptxgen.api import recording
        from ptxgen.operations.gemm.problem import Gemm

        def work():
            recording.recorder(pathlib.Path(os.environ["PTXGEN_RECORD"])).count(Gemm(16, 24, 8))

        if __name__ == "__main__":
            work()
            child = multiprocessing.get_context("{method}").Process(target=work)
            child.start()
            child.join()
            assert child.exitcode == 0
        """,
    )
    assert read(path) == {P: 2}


def test_the_shapes_file_stays_where_it_is_if_the_program_changes_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(Path("shapes.jsonl"))
    recorder.count(P)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    recorder.flush()
    assert read(tmp_path / "shapes.jsonl") == {P: 1}


def test_a_count_after_the_end_is_written_at_once(tmp_path):
    recorder = Recorder(tmp_path / "shapes.jsonl")
    recorder.finish()
    recorder.count(P)  # by a function of atexit
    assert read(recorder.path) == {P: 1}


def test_a_fork_does_not_wait_for_a_thread_that_counts(tmp_path):
    """The thread holds the lock of the launch cache, for which the fork waits, too."""
    path = tmp_path / "shapes.jsonl"
    run_recording(
        path,
        """
        import os, pathlib, threading
        from ptxgen.api import call_lock, choice, drivers, first_call, launches, recording, runners
        from ptxgen.operations.gemm.problem import Gemm

        def call():
            with call_lock.lock:
                ready.set()
                forking.wait()
                recorder.count(Gemm(16, 24, 8))

        ready, forking = threading.Event(), threading.Event()
        os.register_at_fork(before=forking.set)  # called after that of the recorder
        recorder = recording.recorder(pathlib.Path(os.environ["PTXGEN_RECORD"]))
        thread = threading.Thread(target=call)
        thread.start()
        ready.wait()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        thread.join()
        """,
    )
    assert read(path) == {P: 1}


def test_a_forked_process_does_not_keep_the_lock_of_the_file(tmp_path, monkeypatch):
    def wait(*arguments: Any) -> Any:
        writing.set()
        assert forking.wait(60)
        raise InputError("the write fails, so the file stays")

    def lock() -> None:
        with recorder.path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    writing, forking = threading.Event(), threading.Event()
    recorder = Recorder(tmp_path / "shapes.jsonl")
    os.register_at_fork(before=forking.set)
    monkeypatch.setattr(recording.shapes_file.suites, "read", wait)
    recorder.count(P)
    thread = threading.Thread(target=recorder.flush)
    thread.start()
    assert writing.wait(60)
    with pytest.warns(RuntimeWarning, match="the write fails"):
        assert forked(lock) == "None"
    thread.join()
    recorder._counts.clear()


def test_launches_are_not_wrapped_unless_somebody_observes(monkeypatch):
    def launch(*arguments: Any) -> None:
        seen.append(arguments)

    seen: list[Any] = []
    on = EmulatedDriver()
    assert recording.observed(P, on, launch) is launch
    monkeypatch.setattr(recording, "observers", [lambda problem, stream, on: seen.append((problem, stream))])
    recording.observed(P, on, launch)((1, 2, 3), 77)
    assert seen == [((1, 2, 3), 77, None), (P, 77)]


# --- autotune ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tuned(monkeypatch):
    """A tuner that makes one configuration the winner."""
    calls: list[dict[str, Any]] = []

    def tune(problems, driver, database, *, weights, deadline):
        calls.append({"problems": problems, "driver": driver, "weights": weights, "seconds": deadline.seconds})
        for problem in problems:
            database.set_winner(winner(problem))
        return [Tuned(problem, winner(problem)) for problem in problems]

    monkeypatch.setattr("ptxgen.api.autotune.tune", tune)
    return calls


WON = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")


def winner(problem: Any) -> Measurement:
    digest = winners.current_digest(problem, WON, EMULATED)
    return Measurement(problem, WON, "ok", Environment("emulated", "model"), (1.0,), digest, purpose="final")


def config_of(problem: Any) -> Any:
    return runners.runners[drivers.driver(), problem].plan.config


def test_autotune_tunes_what_the_block_computes(tuned):
    ptxgen.gemm(X, Y)
    before = config_of(P)
    other = np.ones((8, 8), np.float32)
    with ptxgen.autotune(time_limit=7) as results:
        for _ in range(3):
            ptxgen.gemm(X, Y)
        ptxgen.gemm(other, other)
        assert not tuned
    ptxgen.gemm(X, Y)
    [call] = tuned
    assert call["weights"] == {P: 3.0, Gemm(8, 8, 8): 1.0}
    assert (call["driver"], call["seconds"]) == ("emulated", 7)
    assert [t.problem for t in results] == call["problems"]
    assert before != WON == config_of(P)
    assert not recording.observers


def test_autotune_tunes_on_the_emulated_device(tmp_path):
    with ptxgen.autotune(time_limit=4) as results:
        ptxgen.gemm(X, Y)
    assert [t.problem for t in results] == [P]
    with Database(tmp_path / "tuning.sqlite", readonly=True) as database:
        assert database.best(P, "emulated", "model") == results[0].winner
    assert np.array_equal(ptxgen.gemm(X, Y), X @ Y)
    assert config_of(P) == results[0].winner.config


def test_autotune_makes_an_empty_file_a_database(tmp_path, tuned):
    (tmp_path / "tuning.sqlite").touch()
    with ptxgen.autotune():
        ptxgen.gemm(X, Y)
    ptxgen.gemm(X, Y)
    assert config_of(P) == WON


def test_autotune_refuses_a_damaged_database_before_the_block(tmp_path, tuned):
    (tmp_path / "tuning.sqlite").write_bytes(b"this is no database" * 20)
    entered = []
    with pytest.raises(CorruptError, match=r"tuning\.sqlite"), ptxgen.autotune():
        entered.append(True)
    assert not entered


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "5", True, None])
def test_autotune_refuses_a_time_limit_that_is_none(tuned, limit):
    with pytest.raises(InputError, match="time_limit"), ptxgen.autotune(time_limit=limit):
        pass


def test_a_block_that_fails_is_not_tuned(tuned):
    def run() -> None:
        with ptxgen.autotune():
            ptxgen.gemm(X, Y)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run()
    assert not tuned
    assert not recording.observers


def test_nothing_is_tuned_while_a_stream_is_captured(tuned, monkeypatch, caplog):
    monkeypatch.setattr(EmulatedDriver, "capturing", lambda self, stream: stream == 9)
    with ptxgen.autotune():
        for observe in recording.observers:
            observe(P, 9, drivers.driver())
    assert not tuned
    assert "autotune: a stream is being captured" in caplog.text


# --- PTXGEN_TUNE -------------------------------------------------------------------------------------------------


class Choosing:
    """In place of ``FirstUse``: makes ``WON`` the winner. ``seen``: the problems."""

    def __init__(self, *arguments: Any) -> None:
        self.seen: list[Any] = []

    def choose(self, problem: Any, d: Any) -> Measurement:
        self.seen.append(problem)
        with Database(Path(os.environ["PTXGEN_DATABASE"])) as database:
            database.set_winner(winner(problem))
        return winner(problem)


@pytest.fixture
def choosing(monkeypatch):
    one = Choosing()

    class Cached:
        cache_clear = staticmethod(lambda: None)

        def __call__(self, *arguments: Any) -> Choosing:
            return one

    monkeypatch.setattr(first_call, "first_use", Cached())
    return one


def test_the_first_call_times_the_top_few(monkeypatch, choosing):
    monkeypatch.setenv("PTXGEN_TUNE", "first")
    for _ in range(2):
        assert np.array_equal(ptxgen.gemm(X, Y), X @ Y)
    assert choosing.seen == [P]
    assert config_of(P) == WON
    runners.runners.clear()
    ptxgen.gemm(X, Y)
    assert choosing.seen == [P]  # it has a winner now


def test_the_background_thread_replaces_the_kernel_later(monkeypatch, choosing):
    monkeypatch.setenv("PTXGEN_TUNE", "background")
    go = threading.Event()
    choose = choosing.choose
    monkeypatch.setattr(choosing, "choose", lambda *a: go.wait(60) and choose(*a))
    ptxgen.gemm(X, Y)
    assert config_of(P) != WON
    go.set()
    first_call._background(drivers.driver(), Path(os.environ["PTXGEN_DATABASE"])).join()
    assert config_of(P) == WON  # loaded before the next call
    assert np.array_equal(ptxgen.gemm(X, Y), X @ Y)
    assert choosing.seen == [P]


def test_a_captured_call_times_nothing(monkeypatch, choosing):
    monkeypatch.setattr(EmulatedDriver, "capturing", lambda self, stream: stream == 9)
    for mode in ("first", "background"):
        monkeypatch.setenv("PTXGEN_TUNE", mode)
        runners.runners.clear()
        assert runners.runner_for(P, 9).plan.config != WON
    assert not choosing.seen
    runners.runners.clear()
    monkeypatch.setenv("PTXGEN_TUNE", "first")
    assert runners.runner_for(P, 8).plan.config == WON


def test_a_failure_to_tune_is_a_warning(monkeypatch, choosing, caplog):
    def fail(*arguments: Any) -> None:
        raise LaunchError("no device")

    monkeypatch.setattr(choosing, "choose", fail)
    monkeypatch.setenv("PTXGEN_TUNE", "first")
    assert np.array_equal(ptxgen.gemm(X, Y), X @ Y)
    assert "is not tuned: no device" in caplog.text


def test_first_use_times_and_stores_on_the_emulated_device(monkeypatch, tmp_path):
    monkeypatch.setattr(acquisition, "TIMED", 3)
    use = first_use.FirstUse("emulated", tmp_path / "tuning.sqlite")
    try:
        won = use.choose(P, EMULATED)
    finally:
        use.stop()
    with Database(tmp_path / "tuning.sqlite") as database:
        rows = list(database.measurements())
        assert [m.outcome for m in rows] == ["ok"] * 3
        ranked = [s.config for s in selection.select(P, EMULATED, None, k=acquisition.POOL)]
        assert rows[0].config == ranked[0]
        assert {m.config for m in rows} < set(ranked)
        assert database.best(P, "emulated", "model") == won == min(rows, key=lambda m: m.us)


@pytest.mark.parametrize(("paired", "replaced"), [(0.998, False), (0.9, True)])
def test_first_use_keeps_the_present_choice_unless_another_is_faster_beside_it(monkeypatch, tmp_path, paired, replaced):
    class Fake:
        def __init__(self, *arguments: Any) -> None: ...

        def measure(self, problem, config, timing, purpose):
            us = 1.04 if config == first else 1.0
            return Measurement(problem, config, "ok", Environment("emulated"), (us,), "0" * 16, purpose=purpose)

        def compare(self, problem, configs, timing, rounds):
            return [[1.0 if config == first else paired] * rounds for config in configs]

        def compare_with_vendor(self, *given):
            return self.compare(*given), None

    first = selection.select(P, EMULATED)[0].config
    monkeypatch.setattr(first_use, "Worker", Fake)
    use = first_use.FirstUse("emulated", tmp_path / "tuning.sqlite")
    with Database(tmp_path / "tuning.sqlite") as database:
        won = use._choose(P, EMULATED, database)
        assert (won.config != first) == replaced
        assert database.best(P, "emulated").config == won.config


# --- digests -----------------------------------------------------------------------------------------------------


def test_the_selection_digest_is_of_choices(monkeypatch):
    empty = ptxgen.selection_digest()
    ptxgen.gemm(X, Y)
    one = ptxgen.selection_digest()
    ptxgen.gemm(Y.T.copy(), X.T.copy())
    two = ptxgen.selection_digest()
    assert len({empty, one, two}) == 3
    runners.runners.clear()
    ptxgen.gemm(Y.T.copy(), X.T.copy())
    ptxgen.gemm(X, Y)
    assert ptxgen.selection_digest() == two  # in any order
    runners.runners.clear()
    monkeypatch.setattr(selection, "select", lambda *a, **k: [Selection(a[0], WON, "given")])
    ptxgen.gemm(X, Y)
    assert ptxgen.selection_digest() != one


def test_the_state_digest_follows_what_selection_depends_on(tmp_path):
    with Database(tmp_path / "tuning.sqlite") as database:
        before = selection.state_digest(EMULATED, database)
        assert before == selection.state_digest(EMULATED, database) == selection.state_digest(EMULATED)
        assert before != selection.state_digest(device("h200"), database)
        database.set_winner(winner(P))
        after = selection.state_digest(EMULATED, database)
        assert after != before
        folder = models.model_folder(database, "emulated")
        folder.mkdir(parents=True)
        (folder / "model.json.xz").write_text("{}")
        assert selection.state_digest(EMULATED, database) not in (before, after)


def test_commands_print_digests(tmp_path, capsys):
    words = ["select", "--shape", "16,24,8", "--digest"]

    def run(*arguments: str) -> str:
        assert command.run(list(arguments)) in (0, 3)
        return capsys.readouterr().out.strip()

    first = run(*words)
    assert len(first) == 16
    assert run(*words) == first == json.loads(run(*words, "--json"))["digest"]
    assert f"digest {selection.state_digest(EMULATED)} on emulated" in run("doctor")
    with Database(tmp_path / "tuning.sqlite") as database:
        database.set_winner(winner(P))
    assert run(*words) != first


def test_the_tuner_takes_what_autotune_gives():
    """The arguments of the call in ``autotune``, whose tests replace the tuner."""
    assert autotune.tune is tuner.tune
