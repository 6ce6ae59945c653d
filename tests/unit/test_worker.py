"""The measuring child process: one that works, and ones that crash, hang or send invalid answers."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import LaunchError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure import bench, worker
from ptxgen.tuning.measure.worker import Worker
from ptxgen.tuning.store.measurement import Environment, Measurement

P = Gemm(16, 16, 16)
C = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
HELLO = {"environment": asdict(Environment("emulated", "model")), "device": {"name": "emulated"}}
GOOD = Measurement(P, C, "ok", Environment("emulated", "model"), (2.0,), "0123456789abcdef")


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Makes the worker start a script. ``each``: its reaction to an order, ``first``: its actions before the greeting."""

    def make(each: str = "", first: str = "", **options) -> Worker:
        script = tmp_path / "child"
        script.write_text(
            f"#!{sys.executable}\nimport json, os, signal, sys, time\n"
            f"STARTS = {str(tmp_path / 'starts')!r}\n"
            "open(STARTS, 'a').write('x')\n"
            "first_time = len(open(STARTS).read()) == 1\n"
            f"GOOD = {GOOD.as_dict()!r}\n"
            f"{textwrap.dedent(first)}\n"
            f"print({json.dumps(HELLO)!r}, flush=True)\n"
            "for line in sys.stdin:\n"
            "    order = json.loads(line)\n"
            f"{textwrap.indent(textwrap.dedent(each), '    ')}\n"
            "    print(json.dumps(GOOD), flush=True)\n"
        )
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))
        return Worker("emulated", **options)

    make.starts = lambda: len((tmp_path / "starts").read_text())
    return make


def test_real_child_measures():
    with Worker("emulated", commit="abc") as w:
        hello = w.start()
        assert hello["device"]["name"] == "emulated"
        assert (w.environment.clock, w.environment.commit) == ("model", "abc")
        measurement = w.measure(P, C, purpose="sample")
        assert (measurement.problem, measurement.config, measurement.outcome, measurement.purpose) == (
            P,
            C,
            "ok",
            "sample",
        )
        assert measurement.environment == w.environment
        assert len(measurement.samples) == 1
        assert len(measurement.digest) == 16
        illegal = w.measure(P, replace(C, lanes_m=32))
        assert illegal.outcome == "launch_error"
        assert "simt_tile_m" in illegal.message
        assert w.measure(P, C).samples == measurement.samples  # the same child
    assert w.child is None


def test_output_of_libraries_is_no_answer(tmp_path, monkeypatch):
    script = tmp_path / "noisy"
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "sys.argv = ['', *sys.argv[5:]]\n"
        "from ptxgen.tuning.measure import worker\nfrom ptxgen.tuning.measure.bench import Bench\n"
        "real = Bench.measure\n"
        "def measure(*args):\n"
        "    print('noise', flush=True)\n"
        "    os.system('echo more noise')\n"
        "    return real(*args)\n"
        "Bench.measure = measure\n"
        "worker.main()\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with Worker("emulated") as w:
        assert w.measure(P, C).outcome == "ok"
        assert "noise" in "".join(w.log)


def test_orders_contain_every_field(child):
    each = "GOOD['message'] = line"
    with child(each) as w:
        order = json.loads(w.measure(P, C, worker.SEARCH_TIMING, "search", full=True).message)
    assert order["problem"] == P.key()
    assert parse_config(order["config"]) == C
    assert (order["purpose"], order["full"]) == ("search", True)
    assert order["timing"] == asdict(worker.SEARCH_TIMING)


@pytest.mark.parametrize(
    ("each", "outcome", "words"),
    [
        ("sys.stderr.write('the GPU is gone\\n'); sys.stderr.flush(); os._exit(3)", "crashed", "the GPU is gone"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "ended by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGALRM)", "timeout", "the kernel ran for 20 s"),
        ("os._exit(9)", "crashed", "ended with status 9"),
        ("raise RuntimeError('out of luck')", "crashed", "out of luck"),
        ("time.sleep(60)", "timeout", "no answer in 0.7 s"),
        ("print('what?', flush=True)", "crashed", "invalid"),
        ("print('[1, 2]', flush=True)", "crashed", "invalid"),
        ("print('{}', flush=True)", "crashed", "invalid"),
        ('print(\'{"problem": "gemm 1"}\', flush=True)', "crashed", "invalid"),
        ("GOOD['problem'] = 'gemm 16,16,17 NN f32'", "crashed", "another configuration"),
        ("GOOD['config'] = 'ms=4'", "crashed", "another configuration"),
        ("GOOD['surprise'] = 1", "crashed", "surprise"),
        ("GOOD['samples'] = 'many'; GOOD['environment'] = 5", "crashed", "invalid"),
    ],
)
def test_failing_child_is_an_outcome_and_is_replaced(child, each, outcome, words):
    body = "if first_time:\n" + textwrap.indent(each, "    ")
    with child(body, seconds=0.7 if outcome == "timeout" else 30.0) as w:
        began = time.monotonic()
        measurement = w.measure(P, C, purpose="search")
        assert (measurement.outcome, measurement.problem, measurement.config, measurement.purpose) == (
            outcome,
            P,
            C,
            "search",
        )
        assert measurement.environment.device == "emulated"
        assert measurement.samples == ()
        assert words in measurement.message
        assert time.monotonic() - began < 25
        assert w.child is None  # the one that failed is gone
        w.seconds = 30.0
        assert w.measure(P, C) == GOOD
        assert child.starts() == 2


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_external_signal_is_inconclusive(child, name):
    with child(f"if first_time: os.kill(os.getpid(), signal.{name}); time.sleep(60)") as w:
        measurement = w.measure(P, C)
        assert (measurement.outcome, measurement.inconclusive) == ("crashed", True)
        assert measurement.message == f"the measuring process was ended from outside, by {name}"
        assert w.measure(P, C) == GOOD


@pytest.mark.parametrize("each", ["os.kill(os.getpid(), signal.SIGSEGV)", "os._exit(9)", "os.abort()", "1 / 0"])
def test_crash_of_the_kernel_is_conclusive(child, each):
    with child(each) as w:
        measurement = w.measure(P, C)
        assert (measurement.outcome, measurement.inconclusive) == ("crashed", False)


def test_module_in_the_current_folder_is_not_imported(tmp_path, monkeypatch):
    for name in ("statistics", "queue", "numpy"):
        (tmp_path / f"{name}.py").write_text("open('it ran', 'w').close()\nraise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    with Worker("emulated") as w:
        assert w.measure(P, C).outcome == "ok"
    assert not (tmp_path / "it ran").exists()


def test_child_imports_the_ptxgen_of_its_parent(tmp_path, monkeypatch):
    """Another one is first on the search path, and the parent's folder may not be on it at all."""
    (tmp_path / "ptxgen").mkdir()
    (tmp_path / "ptxgen" / "__init__.py").write_text("raise SystemExit('another ptxgen')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with Worker("emulated") as w:
        assert w.start()["device"]["name"] == "emulated"


PARENT = """
import sys
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure import bench, worker
sys.executable = sys.argv[1]
worker.Worker("emulated").measure(worker.parse(sys.argv[2]), worker.parse_config(sys.argv[3]))
"""
HANGING = """
import ctypes, os
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure import bench, worker
from ptxgen.tuning.measure.bench import Bench
def hang(*_):
    with open(FIFO, "w") as fifo:
        fifo.write(str(os.getpid()))
    ctypes.PyDLL(None).sleep(600)  # keeps the interpreter's lock, as a call of the driver may
Bench.measure = hang
worker.main()
"""


def test_hanging_kernel_ends_with_its_killed_parent(tmp_path):
    script, fifo = tmp_path / "child", tmp_path / "fifo"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv = ['', *sys.argv[5:]]\nFIFO = {str(fifo)!r}\n{HANGING}"
    )
    script.chmod(0o755)
    os.mkfifo(fifo)
    command = [sys.executable, "-c", PARENT, str(script), P.key(), str(C)]
    root, other = str(Path(worker.__file__).parents[3]), os.environ.get("PYTHONPATH", "")
    parent = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join([root, other])})
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([reader], [], [], 60)[0], "the measuring process did not start"
    child = os.pidfd_open(int(os.read(reader, 100)))
    os.close(reader)
    parent.kill()
    parent.wait(60)
    try:
        assert select.select([child], [], [], 30)[0]  # readable once the child has ended
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)


def test_late_answer_is_not_used_for_the_next_order(child):
    """A child that exceeds its time is killed, so that its answer is not read as that of another configuration."""
    with child("if first_time: time.sleep(1.5)", seconds=0.7) as w:
        assert w.measure(P, C).outcome == "timeout"
        time.sleep(1.0)
        w.seconds = 30.0
        assert w.measure(P, C) == GOOD


def test_child_that_died_between_orders_is_replaced(child):
    with child("if first_time:\n    print(json.dumps(GOOD), flush=True)\n    os._exit(0)") as w:
        assert w.measure(P, C) == GOOD
        assert w.child is not None
        w.child.wait(60)
        assert w.measure(P, C) == GOOD
        assert child.starts() == 2


def test_child_with_a_poisoned_context_is_replaced(child):
    with child("GOOD['poisoned'] = first_time; GOOD['outcome'] = 'launch_error'; GOOD['samples'] = []") as w:
        assert w.measure(P, C).outcome == "launch_error"
        assert w.child is None
        assert w.measure(P, C).outcome == "launch_error"
        assert child.starts() == 2
        assert w.child is not None


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("sys.exit('no GPU was found')", "no GPU was found"),
        ("time.sleep(60)", "no answer in 0.7 s"),
        ("print('Welcome!', flush=True)", "invalid"),
        ('print(\'{"environment": {"planet": 3}}\', flush=True)', "invalid"),
        ("print('{}', flush=True)", "invalid"),
    ],
)
def test_child_that_does_not_start(child, monkeypatch, first, words):
    monkeypatch.setattr(worker, "START_SECONDS", 0.7 if "sleep" in first else 30.0)
    w = child(first=first)
    with pytest.raises(LaunchError, match="did not start") as caught:
        w.start()
    assert words in str(caught.value)
    assert w.child is None


def test_worker_may_be_stopped_twice(child):
    w = child()
    w.stop()
    w.start()
    process = w.child
    w.stop()
    w.stop()
    assert process.poll() is not None


@pytest.mark.parametrize(
    ("cores", "given", "threads"), [(16, None, "4"), (2, None, "1"), (None, None, "1"), (16, "7", "7")]
)
def test_child_leaves_cores_to_the_assembler(child, monkeypatch, cores, given, threads):
    monkeypatch.setattr(worker.os, "cpu_count", lambda: cores)
    if given is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    first = "assert os.environ['OPENBLAS_NUM_THREADS'] == " + repr(threads)
    with child(first=first) as working:
        assert working.start() == HELLO


# --- paired comparisons ------------------------------------------------------------------------------------------


def test_compare_times_every_configuration():
    other = replace(C, ml=32)
    with Worker("emulated") as w:
        one, two = w.compare(P, [C, other], rounds=5)
        assert [one, two] == [list(w.measure(P, c).samples) for c in (C, other)]  # one round: the model has no noise
        assert w.compare(P, [replace(C, ml=1 << 20)]) == []
        assert w.measure(P, C).outcome == "ok"


@pytest.mark.parametrize("each", ["sys.exit(1)", "print('[]', flush=True)", "time.sleep(60)"])
def test_comparison_that_fails_is_empty(child, each):
    w = child(each, seconds=1.0)
    assert w.compare(P, [C, C]) == []
    assert w.child is None


def test_rounds_alternate(monkeypatch):
    """A B, B A, …: a drift of the clock rate affects both alike."""
    order = []

    class Driver(EmulatedDriver):
        clock = "hardware"

        def time(self, launches, timing):
            order.append(launches[0])
            return [1.0]

    class Bound:
        def __init__(self, config):
            self.config = config

        def bind(self, addresses):
            return self.config

    monkeypatch.setattr(bench.Runner, "of", lambda driver, problem, config, workspace: Bound(config))
    work = bench.Bench(Driver())
    assert work.compare(P, ["A", "B"], rounds=4) == [[1.0] * 4] * 2
    assert "".join(order) == "ABBAABBA"
