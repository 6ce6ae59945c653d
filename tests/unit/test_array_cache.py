"""Spaces and models on disk: the same as computed ones, read until the package changes, and ignored where they are damaged."""

from __future__ import annotations

import lzma
import shutil
import subprocess
import sys
import threading
from dataclasses import fields, replace

import numpy as np
import pytest

from ptxgen import disk_cache, file_digests
from ptxgen.errors import CorruptError
from ptxgen.families import registry
from ptxgen.families.common import array_cache, perf_model, space, space_bases
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.tuning.model import model_files
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.store import tuning_files

H200 = device("h200")
READ, WRITE = array_cache.read, array_cache.write  # conftest replaces them
ARRAYS = {"a": np.arange(5, dtype=np.int32), "none": np.zeros((0, 3)), "b": np.array([[True], [False], [True]])}
PROBLEMS = ("gemm 100,24,300 NN f16", "gemm 64,8,512 NT f32", "conv N=2,C=16,H=9,W=9,K=16,R=3,S=3 NHWC bf16")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the files; spaces of other tests are not used."""
    array_cache.flush()  # what other tests left to be written
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(array_cache, "read", READ)
    monkeypatch.setattr(array_cache, "write", WRITE)
    forget()
    yield tmp_path / "cache" / "arrays"
    forget()


def forget():
    """As in a new process."""
    space_bases._base.cache_clear()
    perf_model._work_of_classes.cache_clear()
    perf_model._rows_of_classes.cache_clear()


def computed(text: str):
    """The tuple (candidates, their times, the bases, their costs) of a problem."""
    p = lower(parse(text))
    c = space.candidates(p, H200)
    bases = [part.base for part in c.parts]
    arrays = c, perf_model.predict(p, c, H200), bases, [perf_model._work_of_classes(b) for b in bases]
    array_cache.flush()
    return arrays


def same(a, b) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b) and a.dtype == b.dtype


@pytest.mark.parametrize("text", PROBLEMS)
def test_space_from_disk_is_the_computed_one(folder, text, monkeypatch):
    c, us, bases, costs = computed(text)
    assert len(list(folder.iterdir())) == 2 * len(bases)
    forget()
    for name in ("_computed", "_legal_shapes"):
        monkeypatch.setattr(space_bases, name, None)
    monkeypatch.setattr(perf_model, "_work_on_grid", None)
    again, times, read, read_costs = computed(text)
    assert same(c.rows, again.rows)
    assert same(c.cell, again.cell)
    assert same(us, times)
    for first, second in zip(bases, read, strict=True):
        assert first is not second
        assert all(same(getattr(first, n), getattr(second, n)) for n in space_bases._ARRAYS)
        for one, other in ((first.columns, second.columns), (first.tiles, second.tiles)):
            assert len(one) == len(other)
            assert one.columns.keys() == other.columns.keys()
            assert all(same(one.column(n), other.column(n)) for n in one.columns)
    for first, second in zip(costs, read_costs, strict=True):
        assert all(same(getattr(first, f.name), getattr(second, f.name)) for f in fields(first))


def test_model_from_disk_is_the_checked_one(folder, tmp_path, monkeypatch):
    """The cached content is used as long as the file of the model is the same."""
    own = tmp_path / "model"
    own.mkdir()
    path = own / model_files.MODEL
    shutil.copy(tuning_files.model_path("h200"), path)
    first, read = Model.load(own), model_files._read
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(model_files, "_read", None)
    second = Model.load(own)
    assert repr((second.device, second.facts, second.names)) == repr((first.device, first.facts, first.names))
    assert second.booster.save_raw() == first.booster.save_raw()
    [kept] = folder.iterdir()
    kept.write_bytes(kept.read_bytes()[:-8])
    monkeypatch.setattr(model_files, "_read", read)
    assert Model.load(own).booster.save_raw() == first.booster.save_raw()
    path.write_bytes(lzma.compress(model_files.content_of(path).replace(b'"rows":', b'"rows":1', 1), preset=0))
    with pytest.raises(CorruptError, match="digest"):
        Model.load(own)


def test_key_depends_on_the_class_the_device_and_the_package(folder, monkeypatch):
    problem, f = parse(PROBLEMS[1]), registry.SPACES[0]
    neutral = f.neutral(lower(problem))
    key = space_bases.cache_key("base", f, neutral, H200)
    assert key == space_bases.cache_key("base", f, f.neutral(lower(replace(problem, m=72))), H200)
    others = [
        space_bases.cache_key("work", f, neutral, H200),
        space_bases.cache_key("base", registry.SPACES[1], neutral, H200),
        space_bases.cache_key("base", f, f.neutral(lower(replace(problem, dtype="f64", compute="", out=""))), H200),
        space_bases.cache_key("base", f, neutral, replace(H200, sms=100)),
    ]
    monkeypatch.setattr(file_digests, "of_package", lambda: "another version")
    others.append(space_bases.cache_key("base", f, neutral, H200))
    assert len({key, *others}) == 1 + len(others)


def test_families_from_outside_the_package_are_not_cached(folder, monkeypatch):
    class Foreign:
        pass

    monkeypatch.setattr(array_cache, "SPACES", [*registry.SPACES, Foreign()])
    assert array_cache.package_key("x") == ""
    array_cache.write("", ARRAYS)
    assert array_cache.read("") is None
    assert not folder.exists()


def test_arrays_are_read_as_they_were_written(folder):
    array_cache.write("key", ARRAYS)
    stored = array_cache.read("key")
    assert list(stored) == list(ARRAYS)
    assert all(same(stored[n], v) and stored[n].shape == v.shape for n, v in ARRAYS.items())
    assert array_cache.read("another") is None


def test_damaged_files_are_ignored(folder):
    array_cache.write("key", ARRAYS)
    path = folder / "key"
    whole = path.read_bytes()
    renamed = whole.replace(b'"none"', b'"more"')
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    start = whole.index(b"\n") + 1
    words = [whole[i : i + 8] for i in range(0, len(whole), 8)]
    swapped = b"".join([*words[:-2], words[-1], words[-2]])
    assert swapped != whole
    for content in (
        b"",
        b"\n",
        whole[:-8],
        whole[:-3],
        whole[:start],
        bytes(flipped),
        swapped,
        renamed,
        b"[]\n",
        b"x" + whole,
    ):
        path.write_bytes(content)
        assert array_cache.read("key") is None, content
    path.write_bytes(whole)
    assert array_cache.read("key") is not None


@pytest.mark.parametrize("dtype", ["|O", "<U2", "<c8", "<M8[s]", "|V8"])
def test_arrays_of_no_numbers_are_not_read(folder, dtype):
    """Also with a right checksum: an object in a file would be an address."""
    array_cache.write("key", {"a": np.arange(4)})
    path = folder / "key"
    content = path.read_bytes()[8:].replace(b'"<i8"', b'"%s"' % dtype.encode())
    path.write_bytes(array_cache._checksum(content) + content)
    assert array_cache.read("key") is None


def test_folder_that_others_can_write_is_not_used(folder):
    array_cache.write("key", ARRAYS)
    folder.chmod(0o777)
    assert disk_cache.unsafe(folder)
    assert array_cache.read("key") is None
    array_cache.write("more", ARRAYS)
    assert not (folder / "more").exists()


def test_oldest_files_are_removed(folder, monkeypatch):
    monkeypatch.setattr(array_cache, "MOST", 4)
    for number in range(6):
        array_cache.write(f"key{number}", ARRAYS)
    array_cache.write_later("last", ARRAYS)
    array_cache.flush()
    assert len(list(folder.iterdir())) <= 4
    assert array_cache.read("last") is not None


def test_arrays_are_written_after_a_delay(folder, monkeypatch):
    timers = []

    class Timer(threading.Timer):
        def start(self):
            timers.append(self)

    monkeypatch.setattr(threading, "Timer", Timer)
    for name in ("one", "two"):
        array_cache.write_later(name, ARRAYS)
    [timer] = timers
    assert timer.daemon
    assert timer.interval == array_cache.DELAY
    assert not folder.exists()
    timer.function()
    assert all(array_cache.read(name) is not None for name in ("one", "two"))
    array_cache.write_later("three", ARRAYS)
    assert len(timers) == 2
    array_cache.flush()
    assert array_cache.read("three") is not None


def test_arrays_are_written_when_the_process_ends(folder):
    code = "import sys, numpy; from ptxgen.families.common import array_cache; array_cache.write_later('key', {'a': numpy.arange(5)})"
    fork = "; import os; pid = os.fork(); pid and sys.exit(os.waitpid(pid, 0)[1]); sys.exit(len(array_cache._later))"
    for more in ("", fork):
        subprocess.run([sys.executable, "-c", code + more], check=True)
        assert np.array_equal(array_cache.read("key")["a"], np.arange(5))
        (folder / "key").unlink()


def test_arrays_of_any_size_and_order_are_read_as_they_were_written(folder):
    arrays = {f"bytes{n}": np.arange(n, dtype=np.uint8) for n in (1, 7, 8, 9)}
    arrays |= {
        "transposed": np.arange(6, dtype=np.int16).reshape(2, 3).T,
        "repeated": np.broadcast_to(np.float32(3), 5),
    }
    array_cache.write("key", arrays)
    stored = array_cache.read("key")
    assert all(same(stored[name], value) for name, value in arrays.items())
