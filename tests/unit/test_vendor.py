"""A vendor's library as a candidate: tuning times it, and calls for which it is faster go to it."""

from __future__ import annotations

import json
import lzma
import math
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, drivers, first_call, launches, runners, vendor_calls
from ptxgen.cli import report
from ptxgen.cli.model import _train_vendor
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import CorruptError, DatabaseError, InputError
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection
from ptxgen.tuning.choice.vendor import PredictedVendor, faster_vendor
from ptxgen.tuning.collect import vendor_times
from ptxgen.tuning.collect.collect import MeasuringProcesses
from ptxgen.tuning.deadline import Deadline
from ptxgen.tuning.measure.bench import SEARCH_TIMING, Bench
from ptxgen.tuning.model import vendor_model
from ptxgen.tuning.model.vendor_model import VendorModel
from ptxgen.tuning.search import first_use, tuner
from ptxgen.tuning.search.gain import ProblemQueue
from ptxgen.tuning.store import vendor_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.exchange import Header
from ptxgen.tuning.store.measurement import VendorMeasurement, vendor_from_dict
from ptxgen.tuning.store.vendor_files import VendorTime
from tests.plugins import fake_vendor

FAST, SLOW = map(parse_config, (fake_vendor.FAST, fake_vendor.SLOW))
P = Gemm(32, 48, 16)
EMULATED = device("emulated")
X = np.arange(32 * 16, dtype=np.float32).reshape(32, 16) % 7
Y = np.arange(16 * 48, dtype=np.float32).reshape(16, 48) % 5


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The library on the emulated device, a database of the test's own, and no cached call."""
    path = tmp_path / "tuning.sqlite"
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setenv("PTXGEN_DATABASE", str(path))
    monkeypatch.setenv("PTXGEN_VENDOR", "auto")
    monkeypatch.setenv("PTXGEN_PLUGINS", "tests.plugins.fake_vendor:register")
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(fake_vendor.Kernel, "launches", 0)
    caches = (drivers.driver, choice.database, first_call.first_use, vendor_calls.faster)
    for cached in caches:
        cached.cache_clear()
    fake_vendor.register()
    yield path
    fake_vendor.unregister()
    for cached in caches:
        cached.cache_clear()


def measured(problem: Gemm | Conv = P, theirs: Any = FAST, ours: Any = SLOW) -> VendorMeasurement:
    """The measurements of both in one run."""
    work = Bench(EmulatedDriver())
    winner = work.measure(problem, ours)
    _, vendor = work.compare_with_vendor(problem, [ours])
    assert vendor is not None
    with Database(choice.settings.settings().database) as database:
        database.set_winner(winner)
        database.add_vendor(vendor)
    return vendor


def fakes() -> int:
    """The launches of the library since the last question."""
    count, fake_vendor.Kernel.launches = fake_vendor.Kernel.launches, 0
    return count


def test_rows_of_a_library_are_kept_apart_from_those_of_configurations(path: Path) -> None:
    measured_times = measured()
    assert (measured_times.outcome, measured_times.library, measured_times.version) == ("ok", "fake", "Fake 1.0")
    assert vendor_from_dict(measured_times.as_dict()) == measured_times
    with Database(path) as database:
        assert database.vendor(P, "emulated", "model") == measured_times
        assert database.vendor(Gemm(8, 8, 8), "emulated", "model") is None
        assert list(database.vendors("emulated", "model")) == [measured_times]
        assert [m.config for m in database.measurements()] == [SLOW]
        assert [m.config for m in database.fastest("emulated", "model")] == [SLOW]
        assert database.info()["unreadable"] == 0


def test_calls_use_the_library_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_times = measured()
    exact = (X.astype(np.float64) @ Y).astype(np.float32)
    fakes()
    before = vendor_calls.LAUNCHES["Fake 1.0"]
    for options, count in (
        ({}, 1),
        ({"vendor": "auto"}, 1),
        ({"vendor": "never"}, 0),
        ({"deterministic": True}, 0),
        ({"alpha": 2.0}, 0),
        ({"beta": 1.0, "out": np.zeros_like(exact)}, 0),
    ):
        scale = options.get("alpha", 1.0)
        np.testing.assert_array_equal(ptxgen.gemm(X, Y, **options), scale * exact)
        assert fakes() == count, options
    assert vendor_calls.LAUNCHES["Fake 1.0"] == before + 2
    [chosen] = selection.select(P, device("emulated"), choice.database())
    assert (chosen.config, chosen.vendor) == (SLOW, measured_times)
    digest = ptxgen.selection_digest()
    monkeypatch.setenv("PTXGEN_VENDOR", "never")
    ptxgen.gemm(X, Y)
    assert fakes() == 0
    assert ptxgen.selection_digest() != digest
    with pytest.raises(InputError, match="vendor is 'always'; it must be one of auto, never"):
        ptxgen.gemm(X, Y, vendor="always")


def test_convolutions_use_the_library_where_it_is_faster() -> None:
    images, filters, results = (np.ones(shape, np.float32) for shape in ((2, 4, 6, 6), (8, 4, 3, 3), (2, 8, 6, 6)))
    calls = (
        ("forward", lambda **options: ptxgen.conv2d(images, filters, padding=1, **options)),
        (
            "input_grad",
            lambda **options: ptxgen.conv2d_input_grad(results, filters, images.shape, padding=1, **options),
        ),
        (
            "weight_grad",
            lambda **options: ptxgen.conv2d_weight_grad(images, results, filters.shape, padding=1, **options),
        ),
        ("input_grad", lambda **options: ptxgen.conv_transpose2d(results, filters, padding=1, **options)),
    )
    fake_vendor.register("conv")
    for direction in ("forward", "input_grad", "weight_grad"):
        measured(Conv(2, 4, 6, 6, 8, 3, 3, padding=1, direction=direction))
    fakes()
    for direction, call in calls:
        for options, count in (({}, 1), ({"vendor": "auto"}, 1), ({"vendor": "never"}, 0)):
            call(**options)
            assert fakes() == count, (direction, options)
    with pytest.raises(InputError, match="vendor is 'always'; it must be one of auto, never"):
        ptxgen.conv2d(images, filters, vendor="always")


def test_calls_use_the_kernel_where_it_is_as_fast_or_the_library_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(ours=FAST)  # both have the same time
    ptxgen.gemm(X, Y)
    assert fakes() == 3 - 1  # of the measurement: the check, one sample
    measured()
    fakes()
    runners.reselect([P])
    monkeypatch.setenv("FAKE_VENDOR", "Fake 2.0")
    ptxgen.gemm(X, Y)
    assert fakes() == 0
    runners.reselect([P])
    monkeypatch.setenv("FAKE_VENDOR", "Fake 1.0")
    ptxgen.gemm(X, Y)
    assert fakes() == 1


def test_a_library_with_wrong_results_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_WRONG", "1")
    measured_times = measured()
    assert (measured_times.outcome, measured_times.samples) == ("wrong_result", ())
    fakes()
    ptxgen.gemm(X, Y)
    assert fakes() == 0
    monkeypatch.setenv("FAKE_VENDOR", "")  # it is missing
    work = Bench(EmulatedDriver())
    samples, none = work.compare_with_vendor(P, [FAST], SEARCH_TIMING)
    assert (len(samples), none) == (1, None)


def test_tuning_times_the_library(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(tuner, "untuned", lambda *given: None)
    monkeypatch.setattr(first_use, "select", lambda *given, **options: [selection.Selection(P, SLOW, "model", 1.0)])
    with Database(path) as database:
        session = tuner.Session("emulated", database, tuner.Budget(), vendor="auto")
        session.begin([ProblemQueue(P, 1.0, [SLOW])])
        done = session.finish(P)
        assert done.winner is not None
        theirs = database.vendor(P, "emulated", "model")
        assert theirs is not None
        assert done.vendor == theirs
        assert f"; Fake 1.0 takes ~{theirs.us:.2f} µs: calls use it" in tuner.summary(done)
        session.vendor = "never"
        assert session.finish(P).vendor is None
        first = first_use.FirstUse("emulated", path)
        first.worker, other = session.worker, replace(P, m=64)
        monkeypatch.setenv("PTXGEN_VENDOR", "never")
        first.choose(other, device("emulated"))
        assert database.vendor(other, "emulated", "model") is None
        monkeypatch.setenv("PTXGEN_VENDOR", "auto")
        first.choose(other, device("emulated"))
        assert database.vendor(other, "emulated", "model") is not None
        first.stop()
        session.close()
    monkeypatch.setenv("PTXGEN_LOG", "select")
    ptxgen.gemm(X, Y)
    assert fakes() == 1
    line = f"ptxgen: gemm 32,48,16 NN f32: Fake 1.0 (measured {theirs.us:.1f} µs), faster than "
    assert line in capsys.readouterr().err


def test_times_of_heuristics_are_collected_and_read_again(tmp_path: Path) -> None:
    file, deadline = tmp_path / "vendor-1.jsonl.xz", Deadline()
    problems = [P, Gemm(8, 8, 8), P, Conv(1, 1, 3, 3, 1, 1, 1), Gemm(8, 8, 8, dtype="s8")]
    with MeasuringProcesses("emulated", [0]) as processes:
        done = vendor_times.collect(processes, problems, "model", deadline)
    assert {row.problem for row in done.rows} == {P, Gemm(8, 8, 8)}
    assert done.without == 1
    assert sum(done.failed.values()) == 1  # the configuration is illegal for it
    [theirs] = [row for row in done.rows if row.problem == P]
    assert theirs == (P, "fake", "Fake 1.0", measured().us)
    header = Header("emulated", "model", "c0ffee", "ptxgen model vendor --time-limit 1")
    assert vendor_files.write(file, header, done.rows) == 2
    again = file.read_bytes()
    assert vendor_files.write(file, header, done.rows[::-1]) == 2
    assert file.read_bytes() == again
    assert vendor_files.read(file) == (header, sorted(done.rows, key=lambda row: row.problem.key()))
    file.write_bytes(lzma.compress(lzma.decompress(again).replace(b'"library"', b'"name"')))
    with pytest.raises(
        CorruptError, match=r"vendor-1.jsonl.xz, line 2: has .*; it must have problem, library, version, us"
    ):
        vendor_files.read(file)


def test_shipped_files_have_times_of_heuristics() -> None:
    *collected, validation = vendor_files.files("h200")
    header, rows = vendor_files.read(validation)
    assert header.device == "h200"
    assert {(row.problem.operation, row.library, row.version) for row in rows} == {("gemm", "cublas", "")}
    for path in collected:
        header, rows = vendor_files.read(path)
        assert header.command.startswith("ptxgen model vendor ")
        assert {(row.problem.operation, row.library) for row in rows} == {("gemm", "cublas"), ("conv", "cudnn")}


@pytest.fixture(scope="module")
def predicting() -> dict[str, VendorModel]:
    """The models of a library that takes 2 µs for every product of f32."""
    fake_vendor.register()
    extents = [(m, n, k) for m in (8, 16, 32, 64) for n in (16, 48, 80) for k in (8, 16, 24, 40)]
    rows = [VendorTime(Gemm(*shape), "fake", "Fake 1.0", 2.0) for shape in extents]
    models = vendor_model.train([*rows, VendorTime(Gemm(8, 8, 8, dtype="f64"), "fake", "Fake 1.0", 2.0)], EMULATED)
    fake_vendor.unregister()
    return models


def predicted(models: dict[str, VendorModel], path: Path, ours: Any = SLOW) -> float:
    """Stores the models beside the database, and a winner; returns its time."""
    vendor_model.write(path.with_name("tuning-models") / "emulated" / vendor_model.FILE, "emulated", models, (), ())
    winner = Bench(EmulatedDriver()).measure(P, ours)
    with Database(path) as database:
        database.set_winner(winner)
    return winner.us


def test_calls_use_the_library_where_it_is_predicted_to_be_faster(
    path: Path, predicting: dict[str, VendorModel], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    us = predicted(predicting, path)
    monkeypatch.setenv("PTXGEN_LOG", "select")
    assert us > 3
    for options, count in (({}, 1), ({"vendor": "never"}, 0), ({"deterministic": True}, 0)):
        np.testing.assert_array_equal(ptxgen.gemm(X, Y, **options), (X.astype(np.float64) @ Y).astype(np.float32))
        assert fakes() == count, options
    line = "ptxgen: gemm 32,48,16 NN f32: Fake 1.0 (predicted 2.0 µs), faster than family=simt"
    assert line in capsys.readouterr().err
    [chosen] = selection.select(P, EMULATED, choice.database())
    assert isinstance(chosen.vendor, PredictedVendor)
    assert chosen.vendor.us <= chosen.vendor.most_us < us
    assert report.vendor_fields(chosen.vendor, chosen) == {
        "version": "Fake 1.0",
        "us": chosen.vendor.us,
        "faster": True,
        "predicted": True,
    }


def test_predictions_yield_to_their_margin_to_measurements_and_to_other_versions(
    path: Path, predicting: dict[str, VendorModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    us = predicted(predicting, path)
    [ours] = selection.select(P, EMULATED, choice.database())
    model = predicting["gemm"]
    assert 2 * 2 ** model.margins["f32"] < us
    assert set(model.margins) == {"f32"}  # one time of f64 is too few
    for changed in (
        {"margins": {"f32": 8.0}},  # nine of ten problems may take 512 µs
        {"margins": {"f64": 0.0}},
        {"versions": ("Fake 2.1",)},
        {"library": "cublas"},
        {"names": (*model.names[:-1], "other")},
    ):
        predicted({"gemm": replace(model, **changed)}, path)
        assert selection.select(P, EMULATED, choice.database())[0].vendor is None, changed
    predicted(predicting, path)
    assert faster_vendor(P, EMULATED, choice.database(), ours) is not None
    for other in ({"origin": "analytic"}, {"origin": "seed", "us": math.nan}, {"scaled_from": "h100"}, {"us": 2.0}):
        assert faster_vendor(P, EMULATED, choice.database(), replace(ours, **other)) is None, other
    assert faster_vendor(replace(P, epilogue="relu"), EMULATED, choice.database(), ours) is None
    monkeypatch.setenv("FAKE_VENDOR", "")  # it is missing
    assert faster_vendor(P, EMULATED, choice.database(), ours) is None
    monkeypatch.setenv("FAKE_VENDOR", "Fake 1.9")
    assert faster_vendor(P, EMULATED, choice.database(), ours) is not None
    monkeypatch.setenv("FAKE_VENDOR", "Fake 1.0")
    theirs = replace(measured(), samples=(us,))  # both were measured: they are equally fast
    with Database(path) as database:
        database.add_vendor(replace(theirs, created=0.0))
    assert selection.select(P, EMULATED, choice.database())[0].vendor is None


def test_damaged_models_of_libraries_are_skipped(path: Path, predicting: dict[str, VendorModel], caplog: Any) -> None:
    predicted(predicting, path)
    file = path.with_name("tuning-models") / "emulated" / vendor_model.FILE
    again = file.read_bytes()
    predicted(predicting, path)
    assert file.read_bytes() == again
    loaded = vendor_model.load(file.parent)
    assert not isinstance(loaded, DatabaseError)
    assert loaded["gemm"].predict(P, EMULATED) == predicting["gemm"].predict(P, EMULATED)
    content = json.loads(lzma.decompress(again))
    tree = content["models"]["gemm"]["forest"]["trees"][0]
    for damage, why in ((lambda: tree[0].__setitem__(0, 0), "a child before its parent"), (content.clear, "KeyError")):
        damage()
        file.write_bytes(lzma.compress(json.dumps(content).encode()))
        vendor_model._load.cache_clear()
        assert selection.select(P, EMULATED, choice.database())[0].vendor is None
        assert why in caplog.text


def test_model_train_needs_times_of_the_library(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device is t4; no file has 0 times of vendors' libraries; a model needs 40"):
        _train_vendor(device("t4"), None, tmp_path)


def test_shipped_predictions_are_trained_on_shipped_times() -> None:
    models = vendor_model.load(vendor_files.files("h200")[0].parent)
    assert not isinstance(models, DatabaseError)
    made = models["gemm"].predict(Gemm(4096, 4096, 4096, dtype="f16"), device("h200"))
    assert made is not None
    assert 100 < made.us < 400
    assert 0 < made.margin < 1
