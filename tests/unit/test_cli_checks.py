"""Arguments that are cheap to check end a command before it works: paths, and packages that are not installed."""

from __future__ import annotations

import ctypes as ct
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from ptxgen import cli, settings
from ptxgen.cli import command, page, problems
from ptxgen.cli.checks import Check, input_file, output_file, output_folder
from ptxgen.cli.options import DatabaseOptions, Target
from ptxgen.emulator.engine import jit_blocks
from ptxgen.errors import InputError
from ptxgen.problem.device import device
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.exchange import replacing

#: options and arguments whose files every command reads first, by its own code
READ_FIRST = {"database", "shapes-file", "emulate file", "db import path", "db merge others", "db recheck folder"}
READ_FIRST |= {"model train folder", "run program"}


def commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The functions of all commands, by the words that call them."""
    group = group or cli.app
    for registered in group.registered_commands:
        yield prefix + registered.name, registered.callback
    for inner in group.registered_groups:
        yield from commands(inner.typer_instance, f"{inner.typer_instance.info.name} ")


def paths() -> Iterator[tuple[str, str, Any]]:
    """The triple (command, option, annotation) of each option and argument that is a path."""
    for name, function in commands():
        for option, hint in function.__annotations__.items():
            of = get_args(hint)[0] if get_args(hint) else hint
            if Path in (of, *get_args(of), *(inner for part in get_args(of) for inner in get_args(part))):
                yield name, command._option(option, hint), hint


def test_every_path_has_a_check() -> None:
    options = list(paths())
    assert {"report", "bench", "export", "paper table2", "model train", "emulate"} <= {name for name, _, _ in options}
    for name, option, hint in options:
        checked = any(isinstance(part, Check) for part in get_args(hint))
        assert checked != bool({option, f"{name} {option}"} & READ_FIRST), f"{name}: {option}"


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder, and commands that fail if they work."""

    def works(*arguments: Any, **others: Any) -> Any:
        raise AssertionError("the command works")

    monkeypatch.setattr(settings, "settings", works)
    monkeypatch.setattr(tuning_files, "existing_measurements", works)
    for name in ("find_driver", "find_device", "cases"):
        monkeypatch.setattr(Target, name, works)
    monkeypatch.setattr(DatabaseOptions, "path", property(works))
    monkeypatch.setattr(DatabaseOptions, "reading", works)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    return tmp_path


WORK = ("gemm", "--shape", "64,64,64", "--device", "h200")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", *WORK, "--save", "none/b.json"), "save is none/b.json; its folder must exist"),
        (("bench", *WORK, "--save", "folder"), "save is folder, a folder; it must be a file"),
        (("bench", *WORK, "--save", "/dev/null"), "save is /dev/null; it must be a regular file"),
        (("report", "--out", "none/r.html"), "out is none/r.html; its folder must exist"),
        (("report", "--from", "none.json"), "from is none.json; there is no such file"),
        (("report", "--from", "file"), "from file must be the output of bench"),
        (("explain", *WORK, "--from", "none.json"), "from is none.json; there is no such file"),
        (("export", *WORK, "--folder", "file"), "folder is file; "),
        (("db", "export", "file/x"), "folder is file/x; "),
        (("db", "export", "x", "--format", "csv"), "format is 'csv'; it must be text, jsonl or parquet"),
        (("model", "train", "--out", "file"), "out is file; "),
        (("model", "evaluate", "none.xz"), "path is none.xz; there is no such file"),
        (("model", "validate", "--rows", "folder"), "rows is folder, a folder"),
        (("model", "validate", "--from", "none"), "from is none; there is no such file"),
        (("paper", "table1", "--picture", "none/t.png"), "picture is none/t.png; its folder must exist"),
        (("paper", "table1", "--picture", "t.jpg"), "picture is 't.jpg'; its name must end in .png, .svg, .pdf"),
        (("paper", "table2", "--from", "none.json"), "from is none.json; there is no such file"),
        (("emulate", "file", "--arg", "f32[4]=ones:out=none/y.npy"), "arg is none/y.npy; its folder must exist"),
        (("collect", "--executor", "tcp://x"), "executor is 'tcp://x'; it must be dask://"),
        (("build-pycuda", "--wheel", "file"), "wheel is file; "),
    ],
)
def test_paths_are_checked_before_work(words: tuple[str, ...], message: str, idle: Path, capsys: Any) -> None:
    assert command.run(words) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert sorted(path.name for path in idle.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("words", "package", "message"),
    [
        (("paper", "table2"), "sklearn", "scikit-learn"),
        (("paper", "figure5"), "sklearn", "scikit-learn"),
        (("model", "evaluate", "--perceptrons", "9"), "sklearn", "scikit-learn"),
        (("paper", "table6", "--picture", "t.png"), "matplotlib", "pictures need matplotlib"),
        (("report",), "matplotlib", "pictures need matplotlib"),
        (("db", "export", "x", "--format", "parquet"), "pyarrow", "Parquet files need pyarrow"),
        (("collect", "--executor", "dask://x:1"), "distributed", "executor needs the package distributed"),
        (("emulate", "file", "--engine", "llvm"), "llvmlite", "llvmlite is not installed"),
    ],
)
def test_packages_are_checked_before_work(
    words: tuple[str, ...], package: str, message: str, idle: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "llvmlite":
        monkeypatch.setattr(jit_blocks, "available", lambda: False)  # its own module may be imported
    assert command.run(words) == 3
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in idle.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("operation", "shape", "baseline"),
    [
        ("gemm", "8,8,8", "cublas"),
        ("conv", "N=1,C=1,H=5,W=5,K=1,R=1,S=1", "cudnn"),
        ("grouped", "8,8,8+8,8,8", "cublas"),
        ("grouped", "8,8,8+8,8,8", "cudnn"),
        ("grouped", "8,8,8+8,8,8", "torch"),
    ],
)
def test_a_missing_vendor_library_ends_bench_before_it_times(
    operation: str, shape: str, baseline: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def missing(name: str, *rest: Any) -> Any:
        raise OSError

    def works(*arguments: Any) -> Any:
        raise AssertionError("the command times kernels")

    driver = SimpleNamespace(clock="hardware", device=device("h200"))
    monkeypatch.setattr(Target, "find_driver", lambda self: driver)
    monkeypatch.setattr(ct, "CDLL", missing)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("ptxgen.tuning.measure.bench.bench", works)
    assert command.run(["bench", operation, "--shape", shape, "--baseline", baseline]) == 3
    assert "install" in capsys.readouterr().err


def test_a_file_that_exists_keeps_its_content_until_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    output_file("out", path)
    output_folder("folder", tmp_path / "new" / "inner")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    with replacing(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match=r"fifo is not a regular file"), replacing(tmp_path / "fifo"):
        pass
    assert (tmp_path / "fifo").is_fifo()


@pytest.mark.parametrize("function", [input_file, output_file, output_folder])
def test_the_rights_of_the_user_are_checked(function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may do everything
    with pytest.raises(InputError, match=r"^out is .*; this user must be able to (read|write)"):
        function("out", tmp_path if function is output_folder else path)


def test_checks_precede_a_command_that_another_one_calls(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"save is .*; its folder must exist"):
        problems.bench(Target(device="h200"), save=tmp_path / "none" / "b.json")
    with pytest.raises(InputError, match=r"out is .*; its folder must exist"):
        page.report(DatabaseOptions(), tmp_path / "none" / "r.html")
