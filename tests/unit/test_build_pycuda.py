"""``build-pycuda``: the steps of the build with a stand-in for pip, and the errors before it."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from ptxgen.cli import build_pycuda, command
from ptxgen.errors import InputError, UnavailableError

HEADER = "typedef int CUresult;\n#define cuMemAlloc cuMemAlloc_v2\nCUresult cuInit(unsigned);\nCUresult cuMemAlloc(void **);\n"
WHEEL = "pycuda-1.0-cp312-cp312-linux_x86_64.whl"
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


class Pip:
    """Does what pip does for each step, without a package index. ``text``: the contents of ``pycuda.driver``."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.calls: list[list[str]] = []
        self.configuration: dict[str, object] = {}
        self.stub: Path | None = None

    def __call__(self, *arguments: str | Path) -> None:
        words = [str(a) for a in arguments]
        self.calls.append(words)
        if words[0] == "download":
            folder = Path(words[words.index("--dest") + 1])
            (folder / "made" / "pycuda-1.0").mkdir(parents=True)
            (folder / "made" / "pycuda-1.0" / "setup.py").touch()
            with tarfile.open(folder / "pycuda-1.0.tar.gz", "w:gz") as tar:
                tar.add(folder / "made" / "pycuda-1.0", "pycuda-1.0")
        elif words[0] == "wheel":
            source = Path(words[-1])
            assert (source / "setup.py").exists()
            exec((source / "siteconf.py").read_text(), self.configuration)
            folder = Path(words[words.index("--wheel-dir") + 1])
            folder.mkdir()
            (folder / WHEEL).write_text("contents")
        elif "--target" in words:
            folder = Path(words[words.index("--target") + 1])
            include, package = folder / "nvidia" / "cu13" / "include", folder / "pycuda"
            if folder.name == "toolkit":
                include.mkdir(parents=True)
                (include / "cuda.h").write_text(HEADER)
                (include / "cudaProfiler.h").write_text("CUresult cuProfilerStart(void);\n")
            else:
                package.mkdir(parents=True)
                (package / "__init__.py").touch()
                (package / "driver.py").write_text(self.text)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    made = Pip()
    monkeypatch.setattr(build_pycuda, "_pip", made)
    return made


@needs_compiler
def test_the_build_needs_no_toolkit(pip: Pip, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "wheels"
    name, _ = build_pycuda.build(folder)
    assert (name, (folder / WHEEL).read_text()) == (WHEEL, "contents")
    assert Path(str(pip.configuration["CUDA_ROOT"])).name == "cu13"
    assert pip.configuration["CUDA_ENABLE_CURAND"] is False
    assert pip.configuration["CUDADRV_LIBNAME"] == []
    assert [c for c in pip.calls if "--target" not in c and c[0] == "install"] == []


@needs_compiler
def test_the_wheel_is_installed_in_place_of_another_of_its_version(pip: Pip) -> None:
    build_pycuda.build()
    installed = [c for c in pip.calls if "--target" not in c and c[0] == "install"]
    assert [c[-1].endswith(WHEEL) for c in installed] == [True, True]
    assert "--force-reinstall" in installed[1]


@needs_compiler
def test_what_cannot_be_imported_is_not_installed(pip: Pip, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    pip.text = "raise ImportError('undefined symbol: cuNothing')"
    assert command.run(["build-pycuda"]) == 3
    assert "undefined symbol: cuNothing" in capsys.readouterr().err  # type: ignore[attr-defined]
    assert [c for c in pip.calls if "--target" not in c and c[0] == "install"] == []


@needs_compiler
def test_the_stub_has_the_functions_that_the_headers_declare(tmp_path: Path) -> None:
    (tmp_path / "cuda.h").write_text(HEADER)
    (tmp_path / "cudaProfiler.h").write_text("")
    stub = ctypes.CDLL(str(build_pycuda._stub(["c++"], tmp_path, tmp_path / "stub")))
    assert stub.cuInit() == stub.cuMemAlloc_v2() == -1
    assert not hasattr(stub, "cuMemAlloc")


def test_a_missing_compiler_is_named_before_anything_is_downloaded(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -std=c++17")
    with pytest.raises(UnavailableError, match=r"no-such-compiler, which is missing; .*apt-get install g\+\+"):
        build_pycuda.build()
    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setenv("CC", sys.executable)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: os.path.join("no", "such", "folder"))
    with pytest.raises(UnavailableError, match=r"Python\.h is missing; .*apt-get install python3-dev"):
        build_pycuda.build()
    monkeypatch.setattr(build_pycuda.PathFinder, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="pip, which is missing"):
        build_pycuda.build()
    assert pip.calls == []


def test_a_file_is_no_folder_for_the_wheel(pip: Pip, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"wheel is .*file, which is not a folder"):
        build_pycuda.build(tmp_path / "file")
    assert pip.calls == []


def test_the_reason_of_a_failed_step_is_the_first_line() -> None:
    for output, reason in (
        ("error: no wheel\nERROR: nothing here", "ERROR: nothing here"),
        (
            "x.cpp:1:2: fatal error: Python.h: No such file\nerror: g++ failed",
            "x.cpp:1:2: fatal error: Python.h: No such file",
        ),
    ):
        with pytest.raises(UnavailableError) as caught:
            build_pycuda._run([sys.executable, "-c", f"import sys; sys.exit({output!r})"])
        first, _, rest = str(caught.value).partition("\n")
        assert first.startswith(f"PyCUDA cannot be built: {reason}, from ")
        assert rest == output
    assert build_pycuda._run([sys.executable, "-c", "print(input())"], "text").strip() == "text"
