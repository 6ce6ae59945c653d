"""Energy, power and clock: observed beside times, stored with them, and the objective of tuning."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import page
from ptxgen.cli.command import run
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import InputError, LaunchError, UnavailableError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.operation import operation_named
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.sensors import GpuSensors
from ptxgen.tuning import selection
from ptxgen.tuning.measure import observing
from ptxgen.tuning.search import tuner
from ptxgen.tuning.search.gain import ProblemQueue
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.observation import Observation, observers, parse
from tests.plugins import fake_sensors
from tests.plugins.fake_vendor import FAST, SLOW

P = Gemm(32, 48, 16)
BENCH = ("bench", "gemm", "--shape", "32,48,16", "--config", SLOW)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Sensors on the emulated device, and a database of the test's own."""
    operation_named("gemm")  # plugins are loaded before the variable is set: it is for children
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_PLUGINS", "tests.plugins.fake_sensors:register")
    monkeypatch.setattr(EmulatedDriver, "sensors", lambda self: fake_sensors.FakeSensors(self))
    return tmp_path / "tuning.sqlite"


def test_bench_shows_what_is_asked_for(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BENCH, "--observe", "clock, energy", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert row["millijoules"] == pytest.approx(fake_sensors.millijoules(row["us"]), rel=1e-3)
    assert (row["megahertz"], row["watts"]) == (fake_sensors.MEGAHERTZ, None)
    assert run([*BENCH, "--observe", "power,energy,clock", "--csv"]) == 0
    titles = capsys.readouterr().out.splitlines()[0].split(",")
    assert {"mJ", "W", "SM MHz"} <= {*titles}
    assert run([*BENCH, "--observe", "energy,heat"]) == 2
    assert "observe is 'heat'; it must be one of energy, power, clock" in capsys.readouterr().err


def test_the_objective_energy_has_a_winner_of_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = parse_config(FAST), parse_config(SLOW)
    monkeypatch.setattr(tuner, "untuned", lambda *given: None)
    with Database(path) as database:
        session = tuner.Session("emulated", database, tuner.Budget(), objective="energy")
        session.begin([ProblemQueue(P, 1.0, [slow])])
        session.measure(P, [fast], "search")
        done = session.finish(P)
        session.close()
        assert done.winner is not None
        assert done.winner.observed is not None
        assert (done.winner.config, done.winner.purpose) == (slow, "energy")
        assert done.winner.observed.millijoules == pytest.approx(fake_sensors.millijoules(done.winner.us), rel=1e-3)
        assert f"{done.winner.observed.millijoules:.4g} mJ at" in tuner.summary(done)
        held = database.best(P, "emulated", "model")
        assert held is not None
        assert held.config == fast
        assert held.us < done.winner.us
        assert database.least_energy(P, "emulated", "model") == done.winner
        assert database.least_energy(Gemm(8, 8, 8), "emulated", "model") is None
        assert len(list(database.measurements(purpose="energy"))) == 2
        again = tuner.Session("emulated", database, tuner.Budget(), observed=True)  # rows of energy are no candidates
        assert {m.purpose for m in again.known.values()} == {"search"}
        winner = again.finish(P).winner
        assert winner is not None
        assert (winner.config, winner.observed is None) == (fast, False)
        again.close()
        here = device("emulated")
        assert selection.select(P, here, database)[0].config == fast
        [chosen] = selection.select(P, here, database, objective="energy")
        assert (chosen.config, chosen.origin, chosen.us) == (slow, "energy", done.winner.us)
        before = selection.state_digest(here, database)
        monkeypatch.setenv("PTXGEN_OBJECTIVE", "energy")
        assert selection.select(P, here, database)[0].config == slow
        assert selection.select(P, here, database, objective="time")[0].config == fast
        assert selection.state_digest(here, database) != before
        with pytest.raises(InputError, match="objective is 'heat'; it must be one of time, energy"):
            selection.select(P, here, database, objective="heat")
    assert run(["select", "gemm", "--shape", "32,48,16", "--objective", "energy"]) == 0
    assert "energy" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    with Database(path, readonly=True) as database:
        from ptxgen.tuning.progress import SILENT

        contents = page._contents("emulated", "model", database, False, SILENT)
    [(chart, _, caption)] = page._energy(contents).charts
    assert caption == "1 shape, 2 configurations"
    assert sorted((x, y) for points in chart.series.values() for x, y, _ in points) == [
        (1.0, pytest.approx(done.winner.us / held.us, rel=1e-2)),
        (pytest.approx(done.winner.us / held.us), 1.0),
    ]
    assert "No energy was observed" in page._energy(page.Contents(here, "model")).notes[0]


def test_a_device_without_sensors_ends_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ((*BENCH, "--observe", "power"), ("tune", "gemm", "--shape", "32,48,16", "--objective", "energy")):
        assert run([*arguments, "--device", "emulated"]) == 3
        assert "observed on an NVIDIA GPU; the emulated device has none" in capsys.readouterr().err
    assert run(["tune", "gemm", "--shape", "32,48,16", "--objective", "heat", "--device", "emulated"]) == 2


def test_an_observation_has_a_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Observation(1.25, 300.0, 1755.0, 4.17)
    assert parse(str(seen)) == seen
    assert [parse(text) for text in ("", "no answer", "watts=3", "watts=a")] == [None] * 4
    assert observers("clock,power") == ("power", "clock")
    monkeypatch.setattr(fake_sensors.FakeSensors, "millijoules", lambda self: 5.0)
    with pytest.raises(LaunchError, match="moved 0 times"):
        observing.observe(EmulatedDriver(), [lambda: None])


def test_sensors_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class NvmlError(Exception):
        pass

    def energy(gpu: bytes) -> int:
        if gpu != b"0000:1b:00.0":
            raise NvmlError("Not Supported")
        return 77

    made: Any = types.ModuleType("pynvml")
    made.NVMLError, made.NVML_CLOCK_SM, made.nvmlInit = NvmlError, 1, lambda: None
    made.nvmlDeviceGetHandleByPciBusId = lambda address: address
    made.nvmlDeviceGetTotalEnergyConsumption, made.nvmlDeviceGetClockInfo = energy, lambda gpu, clock: 1700 + clock
    monkeypatch.setitem(sys.modules, "pynvml", made)
    sensors = GpuSensors("0000:1b:00.0")
    assert (sensors.millijoules(), sensors.megahertz()) == (77.0, 1701.0)
    with pytest.raises(UnavailableError, match=r"GPU at 0000:2b:00.0 does not tell its energy: Not Supported"):
        GpuSensors("0000:2b:00.0")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UnavailableError, match=r"need nvidia-ml-py: .*ptxgen\[energy\]"):
        GpuSensors("0000:1b:00.0")
