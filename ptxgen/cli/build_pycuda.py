"""Builds PyCUDA, which is distributed as source, without a CUDA toolkit. The headers come from NVIDIA's wheels; the
part that uses cuRAND is left out."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path
from tempfile import TemporaryDirectory

from ptxgen.errors import InputError, UnavailableError
from ptxgen.install_advice import install
from ptxgen.tuning.progress import SILENT, Progress

PYCUDA = "pycuda>=2025.1"
#: the packages with headers. PyCUDA uses the functions of this version, and cannot be imported if the driver lacks
#: one. The ptxas of the extra ``cuda`` also needs a driver for CUDA 13.0
HEADERS = ("nvidia-cuda-runtime>=13.0,<13.1", "nvidia-cuda-profiler-api>=13.0,<13.1")
INCLUDED = "#include <cuda.h>\n#include <cudaProfiler.h>\n"
LIBRARY = "libcuda.so.1"
COMPILER_ERROR = re.compile(r"^.*(?:fatal error|: error): .*$", re.M)


def build(folder: Path | None = None, progress: Progress = SILENT) -> tuple[str, bool]:
    """Builds PyCUDA and installs it in the running environment. Returns the wheel's name, and True if the machine has
    NVIDIA's driver library, which PyCUDA's import needs. ``folder``: the folder to write the wheel to, in place of the
    installation.

    UnavailableError: a compiler, the headers of Python or pip are missing, or a step failed; the message has the output
    of the step.
    """
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"wheel is {folder}, which is not a folder; it must be a folder or a new name")
    compiler = _compiler()
    with TemporaryDirectory(prefix="ptxgen-pycuda-") as made:
        work = Path(made)
        progress.message("downloading the headers of CUDA")
        _pip("install", "--no-deps", "--target", work / "toolkit", *HEADERS)
        [header] = (work / "toolkit").rglob("cuda.h")
        progress.message("downloading the source of PyCUDA")
        _pip("download", "--no-deps", "--no-binary", "pycuda", "--dest", work, PYCUDA)
        source = _unpacked(work)
        stub = _stub(compiler, header.parent, work / "stub")
        # siteconf.py is PyCUDA's own configuration file
        settings = {
            "CUDA_ROOT": str(header.parents[1]),
            "CUDA_ENABLE_CURAND": False,
            "CUDADRV_LIBNAME": [],
            "LDFLAGS": [str(stub)],
        }
        (source / "siteconf.py").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
        progress.message("compiling PyCUDA, for a few minutes")
        _pip("wheel", "--no-deps", "--wheel-dir", work / "wheel", source)
        [wheel] = (work / "wheel").glob("*.whl")
        progress.message("importing PyCUDA")
        _pip("install", "--target", work / "site", wheel)
        has_driver = _check_import(work / "site", stub.parent)
        progress.message(f"writing the wheel to {folder}" if folder else "installing PyCUDA")
        if folder is None:
            _pip("install", wheel)
            _pip(
                "install", "--force-reinstall", "--no-deps", wheel
            )  # pip keeps an installed PyCUDA of the same version
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheel, folder)
        return wheel.name, has_driver


def _compiler() -> list[str]:
    """The command of the C++ compiler. UnavailableError: pip, a compiler or the headers of Python are missing."""
    if PathFinder.find_spec("pip") is None:
        raise UnavailableError(f"PyCUDA is built with pip, which is missing; {install('pip')}")
    for variable, default in (("CC", "cc"), ("CXX", "c++")):
        command = shlex.split(os.environ.get(variable) or sysconfig.get_config_var(variable) or default)
        if shutil.which(command[0]) is None:
            raise UnavailableError(
                f"PyCUDA is compiled with {command[0]}, which is missing; install a C++ compiler (Debian, Ubuntu:"
                f" apt-get install g++), or name yours in the environment variables CC and CXX"
            )
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        raise UnavailableError(
            f"PyCUDA is compiled with the headers of Python, and {header} is missing; install them (Debian, Ubuntu:"
            f" apt-get install python3-dev)"
        )
    return command


def _pip(*arguments: str | Path) -> None:
    _run([sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)])


def _run(command: list[str], text: str = "", **variables: str) -> str:
    """Runs a command with ``text`` as its input, and returns its output. UnavailableError: the command failed."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).strip() or f"exit status {done.returncode}"
        reason = COMPILER_ERROR.search(output)
        line = reason[0].strip() if reason else output.splitlines()[-1]
        raise UnavailableError(f"PyCUDA cannot be built: {line}, from {shlex.join(command)}\n{output}")
    return done.stdout


def _unpacked(folder: Path) -> Path:
    """Unpacks the archive of PyCUDA in ``folder``, and returns the folder of the source."""
    [archive] = folder.glob("pycuda-*.tar.gz")
    _run([sys.executable, "-m", "tarfile", "--extract", str(archive), str(folder)])
    return folder / archive.name.removesuffix(".tar.gz")


def _stub(compiler: list[str], include: Path, folder: Path) -> Path:
    """Builds a library with the name and the functions of NVIDIA's driver library, with which PyCUDA can be linked and
    imported on machines without a GPU. All its functions fail."""
    declared = _run([*compiler, "-E", "-I", str(include), "-x", "c++", "-"], INCLUDED)
    names = sorted(set(re.findall(r"\bcu[A-Z]\w*(?=\()", declared)))
    code = "".join(f'extern "C" int {name}() {{ return -1; }}\n' for name in names)
    folder.mkdir()
    stub = folder / LIBRARY
    _run([*compiler, "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-o", str(stub), "-x", "c++", "-"], code)
    return stub


def _check_import(site: Path, stub: Path) -> bool:
    """Imports PyCUDA from ``site``, with NVIDIA's driver library if there is one, else with the one in ``stub``.
    Returns True for NVIDIA's. UnavailableError: PyCUDA cannot be imported."""
    path = os.pathsep.join([str(site), *(p for p in sys.path if p)])
    command = [sys.executable, "-c", "import pycuda.driver"]
    done = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({LIBRARY!r})"], capture_output=True, check=False
    )
    if done.returncode == 0:
        _run(command, PYTHONPATH=path)
    else:
        _run(command, PYTHONPATH=path, LD_LIBRARY_PATH=str(stub))
    return done.returncode == 0
