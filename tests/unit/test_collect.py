"""The command collect, on the emulated device: resumption, limits, several devices, executors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import command
from ptxgen.cli.options import warn_if_emulated
from ptxgen.errors import DatabaseError, InputError, LaunchError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import DEVICES
from ptxgen.problem.registry import parse
from ptxgen.runtime.device_lock import DeviceLock
from ptxgen.tuning.collect import collect, executor, problem_groups
from ptxgen.tuning.collect.collect import CollectBudget, Collector, DevicePool, DeviceThread, Preparer
from ptxgen.tuning.collect.executor import DevicePoolOptions, ExecutorPool
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.draws import Limits
from ptxgen.tuning.problem_generator import ProblemGenerator
from ptxgen.tuning.progress import Progress
from ptxgen.tuning.store.database import Database, config_text
from ptxgen.tuning.store.tuning_files import shipped_winners

BUDGET = CollectBudget(configurations=3, nearest=0)
PROBLEMS = [Gemm(m, 6, 5, dtype="f32") for m in (3, 5, 7, 9)]
RANDOM = ("--mixture", "gemm", "--dtypes", "f32", "--max-extent", "8")
SMALL = ("--configurations", "3", "--jobs", "1")
#: the command collect with a log of its measurements: problem and configuration
LOGGED = """
import sys
from ptxgen.cli import main
from ptxgen.tuning.collect.collect import Collector
from ptxgen.tuning.store.database import config_text
measured = Collector._measured
def logged(self, m):
    print(m.problem.key(), config_text(m.config), file=log, flush=True)
    measured(self, m)
if __name__ == "__main__":  # not in child processes, which import this file
    log, Collector._measured = open(sys.argv.pop(1), "a"), logged
    main()
"""


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        out: dict[str, Any] = json.loads(self.out)
        return out


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command collect in this process, on a database of the test's own."""

    def call(*arguments: object) -> Done:
        words = ["collect", "--database", str(tmp_path / "tuning.sqlite"), *map(str, arguments)]
        code = command.run(words)
        output = capsys.readouterr()
        return Done(code, output.out, output.err)

    return call


@pytest.fixture
def prepared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems are prepared in a thread of this process, which need not import the package again."""

    def pool(jobs: int, context: object, start: object, arguments: tuple[Any, ...]) -> ThreadPoolExecutor:
        stopping, *first = arguments
        monkeypatch.setattr(collect, "_preparer", Preparer(*first, stopping.is_set))
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(collect, "ProcessPoolExecutor", pool)


def rows(path: Path) -> Counter[tuple[str, str]]:
    """Problem and configuration of the stored measurements."""
    with contextlib.suppress(DatabaseError), Database(path, readonly=True) as database:
        return Counter((m.problem.key(), config_text(m.config)) for m in database.measurements())
    return Counter()


@pytest.mark.usefixtures("prepared_here")
def test_a_repeated_run_measures_only_what_is_missing(run: Run, tmp_path: Path) -> None:
    first = run("--problems", 2, *RANDOM, *SMALL, "--json").document
    assert (first["problems"], first["measurements"], first["outcomes"]) == (2, 6, {"ok": 6})
    assert (first["device"], first["clock"]) == ("emulated", "model")
    second = run("--problems", 3, *RANDOM, *SMALL, "--json").document
    assert (second["problems"], second["skipped"]) == (1, 2)
    stored = rows(tmp_path / "tuning.sqlite")
    assert sum(stored.values()) == 6 + second["measurements"] >= 9
    assert set(stored.values()) == {1}
    assert {key for key, _ in stored} == {
        p.key() for p in islice(ProblemGenerator(0, {"gemm": 1}, {"f32": 1}, Limits(8, 1 << 20, 1 << 18), 8), 3)
    }


def test_one_seed_draws_the_same_problems() -> None:
    def drawn(seed: int) -> list[str]:
        return [p.key() for p in islice(ProblemGenerator(seed), 200)]

    assert drawn(3) == drawn(3)
    assert len(set(drawn(3)) & set(drawn(4))) < 20
    assert ProblemGenerator(3).problem(150).key() == drawn(3)[150]


def test_a_killed_run_keeps_what_it_measured_and_continues(tmp_path: Path) -> None:
    path, log, script = tmp_path / "tuning.sqlite", tmp_path / "log", tmp_path / "logged.py"
    script.write_text(LOGGED)
    shapes = tmp_path / "shapes.jsonl"
    shapes.write_text('{"m": 32, "n": 32, "k": 32}\n')
    words = ["collect", "--database", path, "--shapes-file", shapes, "--jobs", "1", "--configurations"]

    child = subprocess.Popen([sys.executable, script, log, *map(str, words), "1000"], stderr=subprocess.DEVNULL)
    try:
        while not (before := rows(path)) and child.poll() is None:
            time.sleep(0.1)
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    stored = rows(path)
    assert before
    assert set(before) <= set(stored)

    log.unlink()
    again = [sys.executable, script, log, *map(str, words), str(len(stored) + 1), "--json"]
    done = subprocess.run(again, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["measurements"] == len(log.read_text().splitlines()) > 0
    assert set(rows(path).values()) == {1}


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("name", "code", "how"), [("SIGTERM", 143, "ended by SIGTERM"), ("SIGINT", 130, "interrupted")]
)
def test_a_signal_stores_the_measurements_in_progress(tmp_path: Path, name: str, code: int, how: str) -> None:
    path = tmp_path / "tuning.sqlite"
    words = ["collect", "--database", str(path), *RANDOM, *SMALL]
    child = subprocess.Popen([sys.executable, "-m", "ptxgen", *words], stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not rows(path) and time.monotonic() < until:
            time.sleep(0.1)
        child.send_signal(getattr(signal, name))
        _, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == code, err
    stored = sum(rows(path).values())
    expected = f"error: {how}; {stored} measurements of this run are stored in {path}; repeat the command to continue"
    assert err.splitlines()[-1] == expected


@pytest.mark.usefixtures("prepared_here")
def test_the_time_limit_ends_a_run_without_end(run: Run) -> None:
    began = time.monotonic()
    done = run("--time-limit", 1, *RANDOM, *SMALL, "--json")
    assert done.code == 0
    assert 1.0 <= done.document["seconds"] < 5.0
    assert time.monotonic() - began < 20.0


@pytest.mark.usefixtures("prepared_here")
def test_emulated_device_that_nobody_asked_for_is_a_warning(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr("ptxgen.cli.collect.warn_if_emulated", lambda *words: asked.append(words))
    run("--problems", 1, "--time-limit", 60, *RANDOM, *SMALL)
    assert asked == [("model", "for at most 60 s", "PTXGEN_DRIVER=emulated")]
    warn_if_emulated(*asked[0])
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("PTXGEN_DRIVER", "auto")
    warn_if_emulated(*asked[0])
    err = capsys.readouterr().err
    assert err.startswith("warning: there is no usable NVIDIA GPU")
    assert "for at most 60 s; times are modelled. PTXGEN_DRIVER=emulated hides this warning" in err


@pytest.mark.usefixtures("prepared_here")
def test_problems_of_a_file(run: Run, tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.jsonl"
    shapes.write_text(
        '{"m": 3, "n": 4, "k": 5, "count": 7}\n'
        '{"operation": "conv", "n": 1, "c": 2, "h": 4, "w": 4, "k": 2, "r": 3, "s": 3}\n'
        '{"m": 0, "n": 4, "k": 5}\n'
    )
    done = run("--shapes-file", shapes, *SMALL, "--json").document
    assert (done["problems"], done["failed"]) == (2, 0)
    assert {key.split(" ")[0] for key, _ in rows(tmp_path / "tuning.sqlite")} == {"gemm", "conv"}
    assert run("--shapes-file", shapes, "--problems", 1, *SMALL, "--json").document["skipped"] == 1


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--time-limit", "0"), "time-limit is 0; it must be positive"),
        (("--configurations", "0"), "configurations is 0; it must be at least 1"),
        (("--model-share", "1.5"), "model-share is 1.5; it must be from 0 to 1"),
        (("--mixture", "gem=1"), "mixture has 'gem'; it must be one of gemm, thin, batch, conv"),
        (("--mixture", "gemm=x"), "mixture has 'gemm=x'; it must be names with weights, as f32=2,f16=1"),
        (("--mixture", "gemm=-1"), "mixture has gemm=-1; a weight must be finite and not negative"),
        (("--dtypes", "f32=0"), "dtypes has no positive weight; one of f32, tf32, bf16, f16, f64 must have one"),
        (("--dtypes", "f8"), "dtypes has 'f8'; it must be one of f32, tf32, bf16, f16, f64"),
        (("--devices", "a"), "devices is 'a'; it must be numbers and ranges, as 0-3 or 0,2"),
        (("--devices", "0-1,1"), "devices is '0-1,1'; it must name at least one device, and each one once"),
        (("--devices", "3-1"), "devices is '3-1'; it must name at least one device, and each one once"),
        (("--executor", "tcp://h:1"), "executor is 'tcp://h:1'; it must be dask://HOST:PORT or dask://FILE"),
        (("--group", "0"), "group is 0; it must be at least 1"),
        (("--children", "0"), "'--children'"),
        (("--problems", "0"), "'--problems'"),
        (("--jobs", "0"), "'--jobs'"),
        (("--max-extent", "0"), "'--max-extent'"),
        (("--shapes-file", "/absent.jsonl"), "shapes-file /absent.jsonl cannot be read"),
        (("--shapes-file", "/dev/null"), "shapes-file /dev/null has no problem; it must have one JSON object per line"),
    ],
)
def test_invalid_options_are_named_with_their_rule(run: Run, words: tuple[str, ...], rule: str) -> None:
    done = run("--problems", 1, *words) if words[0] != "--problems" else run(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert rule in done.err


def test_device_that_cuda_visible_devices_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert collect.visible_device(1) == {"CUDA_VISIBLE_DEVICES": "6"}
    with pytest.raises(InputError, match="devices has 2; CUDA_VISIBLE_DEVICES lists 2, counted from 0"):
        collect.visible_device(2)


@pytest.mark.usefixtures("prepared_here")
def test_several_devices_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    share: Counter[str] = Counter()
    measure = DeviceThread._measure

    def counted(self: DeviceThread, *arguments: Any) -> None:
        measure(self, *arguments)
        share[self.worker.variables["CUDA_VISIBLE_DEVICES"]] += 1

    monkeypatch.setattr(DeviceThread, "_measure", counted)
    with Database(tmp_path / "d.sqlite") as database, DevicePool(BUDGET, "emulated", (0, 1), 1) as device_pool:
        done = Collector(database, device_pool, BUDGET).run(PROBLEMS)
    assert (done.problems, done.measurements, done.outcomes) == (4, 12, {"ok": 12})
    assert set(share) == {"0", "1"}
    assert sum(share.values()) == 4
    assert set(rows(tmp_path / "d.sqlite").values()) == {1}


# ---- groups of problems that share kernels


def test_groups_have_one_kernel_class_and_near_extents() -> None:
    problems = [Gemm(m, 64, 64, layout, dtype="f16") for m in (8, 8192, 16, 4096, 7) for layout in ("NN", "TT")]
    groups = list(problem_groups.groups([*problems, problems[0]], 2))
    assert [[(p.m, p.layout) for p in group] for group in groups] == [
        [(8, "NN"), (7, "NN")],
        [(8, "TT"), (16, "TT")],
        [(8192, "NN"), (4096, "NN")],
        [(8192, "TT"), (4096, "TT")],
        [(16, "NN")],
        [(7, "TT")],  # its rows of A begin at unaligned addresses
    ]
    assert [len(group) for group in problem_groups.groups(iter(problems), 4, ahead=3)] == [2, 2, 2, 2, 1, 1]
    assert list(problem_groups.groups(problems, 1)) == [[p] for p in problems]
    batches = [replace(problems[0], batch=2), replace(problems[0], batch=3), problems[0]]
    assert list(problem_groups.groups(batches, 3)) == [batches[:2], batches[2:]]


@pytest.mark.parametrize("name", ["gemm", "thin", "batch", "conv"])
def test_random_groups_have_one_kernel_class(name: str) -> None:
    generator, other_classes = ProblemGenerator(2, {name: 1}, group=4), 0
    for number in range(0, 24, 4):
        group = [generator.problem(number + i) for i in range(4)]
        other_classes += len({problem_groups.kernel_class(p) for p in group}) - 1
        assert len(set(group)) == 4
        assert {p.problem_class == "batch" for p in group} == {name == "batch"}
    assert other_classes <= (1 if name == "conv" else 0)  # of few layers no variant is found
    assert generator.problem(0) == ProblemGenerator(2, {name: 1}).problem(0)


def test_random_grouped_products_are_lists_and_experts_within_the_limits() -> None:
    limits = Limits(256, 1 << 24, 1 << 34)
    drawn = [ProblemGenerator(5, {"grouped": 1}, limits=limits).problem(i) for i in range(120)]
    assert {p.jagged for p in drawn} == {"", "m", "k"}
    assert {p.layout for p in drawn if p.jagged == "k"} == {"TN"}
    assert {p.layout[0] for p in drawn if p.jagged == "m"} == {"N"}
    assert {p.layout for p in drawn if not p.jagged} == {"NN", "NT", "TN", "TT"}
    assert all(limits.admits(p) and max(max(item) for item in p.items) <= 4 * 256 for p in drawn)
    assert all(parse(p.key()) == p for p in drawn)
    aligned = [all(extent % 8 == 0 for item in p.items for extent in item) for p in drawn if not p.jagged]
    assert 0.3 < sum(aligned) / len(aligned) < 0.7


def test_large_layers_shrink_to_the_limits() -> None:
    limits = Limits(8192, 1 << 15, 1 << 22)
    drawn = [ProblemGenerator(5, {"conv": 1}, limits=limits).problem(i) for i in range(60)]
    assert all(limits.admits(p) for p in drawn)
    assert len(set(drawn)) > 30


def test_a_group_shares_kernels_and_keeps_the_first_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[str] = []
    monkeypatch.setattr(collect, "assemble", lambda source: kernels.append(source.digest))
    budget, h200 = CollectBudget(configurations=8, group=4), DEVICES["h200"]
    preparer = Preparer(h200, None, budget, assembles=True)
    problems = tuple(Gemm(m, 1024, 512, dtype="f32") for m in (256, 512, 1024, 2048))
    absent = Gemm(16, 16, 16, dtype="f64", epilogue="")
    monkeypatch.setattr(preparer, "_chosen", raise_for(absent, preparer._chosen))
    *group_choices, failed = preparer.prepare(collect.Job((*problems, absent)))
    assert isinstance(failed, collect.Failed)
    assert (failed.problem, failed.why) == (absent, "ValueError: no")
    for problem, one in zip(problems, group_choices, strict=True):
        assert isinstance(one, collect.Prepared)
        configs = [config for config, _ in one.configs]
        assert len(configs) == len(set(configs)) == 8
        assert configs[0] == preparer.model.rank(problem, h200, 1)[0][0]
        assert all(source is not None for _, source in one.configs)
    assert len(kernels) == len(set(kernels)) <= 4 * budget.own(5) < 32


def raise_for(problem: Gemm, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(p: Gemm, *arguments: Any) -> Any:
        if p == problem:
            raise ValueError("no")
        return function(p, *arguments)

    return call


@pytest.mark.parametrize(("name", "own"), [("h200", True), ("h100", True), ("h100", False)])
def test_the_shipped_winner_is_measured_also_that_of_the_nearest_device(name: str, own: bool) -> None:
    """``own``: whether the device has a winner of the problem."""
    winners = shipped_winners("h200")
    key = next(key for key in winners if (key in shipped_winners(name)) == own and key.startswith("gemm"))
    problem, winner = winners[key].problem, shipped_winners(name if own else "h200")[key]
    choices = Preparer(DEVICES[name], None, CollectBudget(configurations=2), assembles=False).choose(
        collect.Job((problem,))
    )
    assert isinstance(choices[0], list)
    assert winner.config in choices[0]


def blas_threads() -> str:
    return os.environ.get("OPENBLAS_NUM_THREADS", "")


def test_processes_that_prepare_have_one_blas_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    with DevicePool(BUDGET, "emulated", jobs=1) as pool:
        assert pool.preparing.pool.submit(blas_threads).result() == "1"
    assert blas_threads() == "7"
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    with collect.one_blas_thread():
        assert blas_threads() == "1"
    assert blas_threads() == ""


def test_the_threads_of_a_device_pool_end_with_it() -> None:
    before = set(threading.enumerate())
    with DevicePool(BUDGET, "emulated", jobs=1) as pool:
        pool.preparing.pool.submit(os.getpid).result()
        manager = pool.preparing.pool._executor_manager_thread
        assert manager is not None
        assert manager.is_alive()
        pool.preparing.pool.submit(time.sleep, 0.2)
    assert not manager.is_alive()
    assert not [t for t in set(threading.enumerate()) - before if not t.daemon]


def test_jobs_of_a_killed_process_are_prepared_again(tmp_path: Path) -> None:
    with Database(tmp_path / "d.sqlite") as database, DevicePool(BUDGET, "emulated", jobs=1) as device_pool:
        first = device_pool.preparing.pool
        os.kill(first.submit(os.getpid).result(), signal.SIGKILL)
        done = Collector(database, device_pool, BUDGET).run(PROBLEMS)
        assert device_pool.preparing.pool is not first
    assert (done.problems, done.failed) == (len(PROBLEMS), 0)
    assert len(rows(tmp_path / "d.sqlite")) == done.measurements == 3 * len(PROBLEMS)


class KilledProcesses:
    """A pool of processes of which one is killed by every job."""

    def __init__(self, *arguments: object) -> None:
        pass

    def submit(self, *call: object) -> Future[Any]:
        lost: Future[Any] = Future()
        lost.set_exception(BrokenProcessPool("a process was terminated abruptly"))
        return lost

    def shutdown(self, **options: object) -> None:
        pass


def test_a_job_that_kills_twice_is_skipped_and_kills_in_succession_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "ProcessPoolExecutor", KilledProcesses)
    processes = collect.PreparingProcesses(1, DEVICES["h200"], None, BUDGET, False)
    events: list[Any] = []
    for problem in PROBLEMS[:2]:
        processes.submit(collect.Job((problem,)), events.extend)
    failed, error = events
    assert failed == collect.Failed(PROBLEMS[0], "BrokenProcessPool: a process was terminated abruptly")
    assert isinstance(error, LaunchError)
    assert "ended 4 times in succession" in str(error)
    processes.stop()
    processes.submit(collect.Job((PROBLEMS[2],)), events.extend)
    assert len(events) == 2


def test_preparing_ends_when_the_run_ends() -> None:
    preparer = Preparer(DEVICES["h200"], None, BUDGET, assembles=False, stopping=lambda: True)
    with pytest.raises(CancelledError):
        preparer.prepare(collect.Job((PROBLEMS[0],)))


# ---- several children of a device


@pytest.mark.usefixtures("prepared_here")
def test_children_of_a_device_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget, share = CollectBudget(configurations=3, nearest=0, group=2), Counter[Any]()
    measure = DeviceThread._measure

    def counted(self: DeviceThread, *arguments: Any) -> None:
        share[self] += 1
        measure(self, *arguments)

    monkeypatch.setattr(DeviceThread, "_measure", counted)
    with Database(tmp_path / "d.sqlite") as database, DevicePool(budget, "emulated", jobs=1, children=2) as device_pool:
        done = Collector(database, device_pool, budget).run(PROBLEMS)
    assert (done.problems, done.measurements, done.outcomes) == (4, 12, {"ok": 12})
    assert len(share) == 2
    assert set(rows(tmp_path / "d.sqlite").values()) == {1}
    usage = done.usage
    assert 0 < usage.locked <= done.seconds
    assert usage.queued > 0
    assert usage.locked + usage.queued < usage.measured
    assert min(usage.choosing, usage.waited) > 0
    assert f"{usage.locked:.1f} with the device" in collect.usage_summary(usage)


def in_child(code: str, lock: int) -> subprocess.Popen[str]:
    """Starts Python code with ``lock``, a DeviceLock."""
    head = f"import time\nfrom ptxgen.runtime import device_lock\nlock = device_lock.DeviceLock({lock})\n"
    return subprocess.Popen([sys.executable, "-c", head + code], stdout=subprocess.PIPE, text=True, pass_fds=(lock,))


def test_only_one_process_has_the_device() -> None:
    lock = DeviceLock.create()
    hold = "with lock:\n    a = time.monotonic()\n    time.sleep(0.5)\n    print(a, time.monotonic(), flush=True)\n"
    try:
        children = [in_child(hold, lock) for _ in range(2)]
        first, second = sorted(tuple(map(float, child.communicate(timeout=60)[0].split())) for child in children)
    finally:
        os.close(lock)
    assert first[1] <= second[0]


def test_a_process_takes_the_device_again_and_keeps_it() -> None:
    lock = DeviceLock.create()
    again = (
        "with lock:\n    a = time.monotonic()\n    with lock: pass\n    time.sleep(0.5)\n    print(a, time.monotonic())"
    )
    try:
        children = [in_child(again, lock) for _ in range(2)]
        first, second = sorted(tuple(map(float, child.communicate(timeout=60)[0].split())) for child in children)
    finally:
        os.close(lock)
    assert first[1] <= second[0]


def test_a_process_that_has_the_device_for_too_long_is_ended() -> None:
    lock = DeviceLock.create()
    try:
        stuck = in_child("device_lock.LOCKED_SECONDS = 0.3\nwith lock:\n    time.sleep(60)", lock)
        assert stuck.wait(timeout=30) == -signal.SIGALRM
        assert in_child("with lock: pass", lock).wait(timeout=30) == 0
    finally:
        os.close(lock)


class Refusing:
    """A device pool that cannot prepare one of the problems."""

    device, clock, capacity, usage = DEVICES["emulated"], "model", 8, collect.Usage()

    def submit(self, job: collect.Job, notify: collect.Notify) -> None:
        for problem in job.problems:
            notify(collect.Failed(problem, "no kernel") if problem == PROBLEMS[1] else collect.Finished(problem))

    def stop(self) -> None:
        pass


def test_a_problem_that_cannot_be_prepared_is_skipped_and_free_for_others(tmp_path: Path) -> None:
    class Messages(Progress):
        def message(self, text: str) -> None:
            messages.append(text)

    messages: list[str] = []
    with Database(tmp_path / "d.sqlite") as database:
        done = Collector(database, Refusing(), BUDGET, Messages()).run(PROBLEMS)
        assert (done.problems, done.failed) == (3, 1)
        assert f"{PROBLEMS[1].key()} is skipped: no kernel" in messages
        assert database.claimants() == []


# ---- executors


@pytest.fixture
def device_pools() -> Iterator[None]:
    """Stops the device pools that jobs in this process have started."""
    yield
    for shared in executor._shared.values():
        shared.stop()
    executor._shared.clear()


@pytest.mark.usefixtures("device_pools", "prepared_here")
def test_jobs_run_in_threads_of_an_executor(tmp_path: Path) -> None:
    options = DevicePoolOptions(BUDGET, "emulated", jobs=1)
    path = tmp_path / "d.sqlite"
    with ThreadPoolExecutor(3) as threads, Database(path) as database:
        done = Collector(database, ExecutorPool(threads, options, 3), BUDGET).run(PROBLEMS)
        assert (done.problems, done.measurements, done.failed) == (4, 12, 0)
        assert done.usage.waited > 0
        assert set(rows(path).values()) == {1}
        [shared] = executor._shared.values()  # one device pool for all jobs
        again = Collector(database, ExecutorPool(threads, options, 3), BUDGET).run(PROBLEMS)
        assert (again.problems, again.skipped) == (0, 4)
        assert shared.device_pool is not None
        shared.stop()
        assert shared.device_pool is None


@pytest.mark.usefixtures("device_pools", "prepared_here")
def test_a_stopped_executor_pool_waits_for_its_jobs(tmp_path: Path) -> None:
    """The time limit passes while jobs run: their measurements are stored."""
    options = DevicePoolOptions(BUDGET, "emulated", jobs=1)
    with ThreadPoolExecutor(2) as threads, Database(tmp_path / "d.sqlite") as database:
        done = Collector(database, ExecutorPool(threads, options, 2), BUDGET).run(PROBLEMS, Deadline(0.01))
    assert done.measurements == sum(rows(tmp_path / "d.sqlite").values()) == 6


@pytest.mark.usefixtures("device_pools", "prepared_here")
def test_a_device_pool_that_cannot_continue_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = DevicePoolOptions(BUDGET, "emulated", jobs=1)
    measure = DeviceThread._measure

    def broken(self: DeviceThread, *arguments: Any) -> None:
        raise LaunchError("the device is lost")

    monkeypatch.setattr(DeviceThread, "_measure", broken)
    with ThreadPoolExecutor(2) as threads, Database(tmp_path / "d.sqlite") as database:
        with pytest.raises(LaunchError, match="the device is lost"):
            Collector(database, ExecutorPool(threads, options, 2), BUDGET).run(PROBLEMS)
        monkeypatch.setattr(DeviceThread, "_measure", measure)
        done = Collector(database, ExecutorPool(threads, options, 2), BUDGET).run(PROBLEMS)
        assert (done.problems, done.measurements) == (4, 12)


@pytest.mark.usefixtures("device_pools")
def test_machines_must_have_devices_of_one_model() -> None:
    options = DevicePoolOptions(BUDGET, "emulated", jobs=1)
    with pytest.raises(InputError, match="devices are h200 and emulated; they must be one model"):
        executor.run_job(options, collect.Job((PROBLEMS[0],)), "h200", "hardware")


def test_dask_cluster_of_a_process(run: Run, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    import dask

    shapes = tmp_path / "shapes.jsonl"
    shapes.write_text("".join(f'{{"m": {m}, "n": 6, "k": 5}}\n' for m in range(1, 9)))
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PTXGEN_DRIVER": "emulated"}
    with (
        dask.config.set({"distributed.worker.daemon": False, "distributed.nanny.environ": environment}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        done = run("--executor", address, "--shapes-file", shapes, *SMALL, "--group", 2, "--json")
        assert (done.document["problems"], done.document["measurements"]) == (8, 24)
        with distributed.Client(cluster) as client:
            used = client.run(lambda: [s.device_pool is not None for s in executor._shared.values()])
            client.run(lambda: [s.stop() for s in executor._shared.values()])
        assert list(used.values()) == [[True]]  # the process of the cluster has measured
    assert set(rows(tmp_path / "tuning.sqlite").values()) == {1}


def test_dask_scheduler_that_does_not_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")
    monkeypatch.setattr(executor, "CONNECT_SECONDS", 1.0)
    done = run("--executor", "dask://127.0.0.1:1", "--problems", 1)
    assert done.code == 3
    assert "the Dask scheduler at 127.0.0.1:1 does not answer" in done.err


def test_dask_scheduler_file_that_does_not_exist(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")
    done = run("--executor", f"dask://{tmp_path}/absent.json", "--problems", 1)
    assert done.code == 3
    assert f"the scheduler file {tmp_path}/absent.json does not exist" in done.err


def test_missing_distributed_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = run("--executor", "dask://127.0.0.1:1", "--problems", 1)
    assert done.code == 3
    assert "executor needs the package distributed: " in done.err
    assert 'pip install "ptxgen[dask]"' in done.err
