"""Choices on disk: read where all that they depend on is the same, and ignored where they are damaged or foreign."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace

import pytest

from ptxgen import disk_cache, file_digests
from ptxgen.families import registry
from ptxgen.families.common import array_cache
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.settings import shipped_dir
from ptxgen.tuning import selection
from ptxgen.tuning.choice import choice_cache
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from tests.forests import first_trees

H200 = device("h200")
P = Gemm(100, 24, 300, "NN")
WRITE = choice_cache.write  # conftest replaces it


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """The file of a model of few trees, which is read quickly."""
    shipped = Model.load(shipped_dir() / "h200")
    folder = tmp_path_factory.mktemp("model")
    Model(H200, shipped.facts, first_trees(shipped, 20), shipped.names).save(folder)
    return folder / "model.json.xz"


@pytest.fixture
def chosen(small_model, tmp_path, monkeypatch):
    """The problems that a model ranked; the cache and the shipped files are this test's."""
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(choice_cache, "write", WRITE)
    shipped = tmp_path / "shipped"
    (shipped / "h200").mkdir(parents=True)
    shutil.copy(small_model, shipped / "h200")
    monkeypatch.setattr(tuning_files, "shipped_dir", lambda: shipped)
    seen, search = [], Model.search

    def counted(model, problem, *arguments, **options):
        seen.append(problem)
        return search(model, problem, *arguments, **options)

    monkeypatch.setattr(Model, "search", counted)
    return seen


def files(tmp_path):
    return sorted((tmp_path / "cache" / "choices").glob("*.json"))


def test_a_choice_is_read_until_something_that_it_depends_on_changes(chosen, tmp_path, monkeypatch):
    first = selection.select(P, H200, k=2)
    assert selection.select(P, H200, k=2) == first
    assert len(chosen) == len(files(tmp_path)) == 1
    assert [s.source for s in first] == ["model", "model"]
    others = (
        lambda: selection.select(P, H200),  # another number of configurations
        lambda: selection.select(replace(P, lda=301), H200, k=2),
        lambda: selection.select(P, replace(H200, bandwidth=1), k=2),
        lambda: selection.select(P, device("h100"), k=2),
    )
    for call in others:
        before = len(chosen)
        call()
        assert len(chosen) == before + 1
        call()
        assert len(chosen) == before + 1
    for path in (
        tmp_path / "shipped" / "h200" / "model.json.xz",
        tmp_path / "tuning-models" / "h200" / "model.json.xz",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")  # the model is damaged, or there is another one
        before = len(chosen)
        with Database(tmp_path / "tuning.sqlite") as database:
            selection.select(P, H200, database, k=2)
            selection.select(P, H200, database, k=2)
        assert len(chosen) == before + 1
    monkeypatch.setattr(file_digests, "of_package", lambda: "another version")
    before = len(chosen)
    selection.select(P, H200, k=2)
    assert len(chosen) == before + 1


def test_choices_of_the_nearest_device_say_so_when_they_are_read(chosen):
    other = replace(H200, name="h20")
    computed = selection.select(P, other)
    read = selection.select(P, other)
    assert len(chosen) == 1
    assert computed == read
    assert read[0].source == "model (h200)"
    assert read[0].predicted


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[[]]",
        '[["family=simt", "model", 1, ""]',
        "3",
        '[["ms=77", "model", 1, ""]]',
        '[[1, "model", 1, ""]]',
        "[" * 100000,
    ],
    ids=["empty", "no fields", "cut", "number", "illegal", "no text", "deep"],
)
def test_damaged_choices_are_made_again(chosen, tmp_path, content):
    first = selection.select(P, H200)
    [path] = files(tmp_path)
    before = path.read_text()
    path.write_text(content)
    assert selection.select(P, H200) == first
    assert len(chosen) == 2
    assert path.read_text() == before


def test_illegal_choices_are_made_again(chosen, tmp_path):
    first = selection.select(P, H200)
    [path] = files(tmp_path)
    [[text, *rest]] = json.loads(path.read_text())
    path.write_text(json.dumps([[text.replace(f"kg={first[0].config.kg}", "kg=4096"), *rest]]))
    assert selection.select(P, H200) == first
    assert len(chosen) == 2


def test_errors_of_the_file_system_are_ignored(chosen, tmp_path, monkeypatch, caplog):
    disk_cache._warn.cache_clear()

    def fail(*_):
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(disk_cache, "replace", fail)
        selection.select(P, H200)
    assert not files(tmp_path)
    (tmp_path / "cache" / "choices").chmod(0o777)  # other users could write it
    selection.select(P, H200)
    assert not files(tmp_path)
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "shipped" / "h200" / "model.json.xz"))  # no folder
    with caplog.at_level("WARNING", "ptxgen"):
        for _ in range(2):
            selection.select(P, H200)
    assert len(chosen) == 4
    assert [r.getMessage() for r in caplog.records if "PTXGEN_CACHE" in r.getMessage()] == [
        f"nothing is cached: {tmp_path}/shipped/h200/model.json.xz, the folder of PTXGEN_CACHE, cannot be created:"
        " File exists"
    ]


def test_families_from_outside_are_not_cached(chosen, tmp_path, monkeypatch):
    class Outside(type(registry.SPACES[0])):
        __module__ = "elsewhere"

    monkeypatch.setattr(array_cache, "SPACES", [*registry.SPACES, Outside("outside")])
    selection.select(P, H200)
    assert not files(tmp_path)


def test_the_number_of_files_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(choice_cache, "MOST", 20)
    for n in range(60):
        WRITE(f"{n:04x}", [])
        if (path := tmp_path / "cache" / "choices" / f"{n:04x}.json").exists():
            os.utime(path, ns=(n, n))
    left = files(tmp_path)
    assert len(left) <= 20 + 16
    assert left[-1].stem == f"{59:04x}"
    assert choice_cache.read(f"{59:04x}") == []
    assert choice_cache.read("0000") is None


def test_digests_of_files_are_kept_until_a_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_digests, "SETTLED_NS", 0)
    root, kept = tmp_path / "tree", tmp_path / "cache" / "digests"
    (root / "inner").mkdir(parents=True)
    (root / "a.py").write_text("one")
    (root / "inner" / "b.py").write_text("two")
    (root / "c.txt").write_text("another suffix")
    files, read_bytes, read = ((root,), (".py",)), type(root).read_bytes, []
    monkeypatch.setattr(type(root), "read_bytes", lambda path: read.append(path.name) or read_bytes(path))

    def digest():
        read.clear()
        file_digests._digest_of.cache_clear()  # as in a new process
        time.sleep(0.02)  # time stamps of files are coarse
        return file_digests.of_tree(*files)

    first = digest()
    assert read == ["a.py", "b.py"]
    assert (digest(), read) == (first, [])
    assert len(list(kept.iterdir())) == 1
    times = (root / "a.py").stat()
    (root / "a.py").write_text("six")  # of the same size and time of modification
    os.utime(root / "a.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digest() != first
    (root / "a.py").write_text("one")
    assert (digest(), read) == (first, ["a.py", "b.py"])  # the digest is of the content
    (root / "d.py").write_text("")
    assert digest() != first
    (root / "d.py").unlink()
    for path in kept.iterdir():
        path.write_text("damaged")
    assert (digest(), read) == (first, ["a.py", "b.py"])
    (root / "a.py").unlink()
    (root / "inner" / "b.py").rename(root / "b.py")
    assert digest() not in (first, file_digests.of_tree((tmp_path / "absent",), (".py",)))


def test_digests_of_files_that_just_changed_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.py").write_text("one")
    file_digests.of_tree((tmp_path,), (".py",))
    assert not (tmp_path / "cache" / "digests").exists()


def test_few_digests_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_digests, "SETTLED_NS", 0)
    monkeypatch.setattr(file_digests, "MOST_DIGESTS", 4)
    (tmp_path / "a.py").write_text("one")
    time.sleep(0.02)
    for name in "abcdef":
        file_digests.of_files([(name, str(tmp_path / "a.py"))])
    assert 2 <= len(list((tmp_path / "cache" / "digests").iterdir())) <= 4
