"""Remedies that error messages name: commands that install packages for the running interpreter, and access to a
GPU."""

from __future__ import annotations

import shutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path

GPU_ACCESS = "give this process a GPU and NVIDIA's driver library, libcuda.so.1: in a container, start it with its GPUs"


def install(*requirements: str) -> str:
    """The command that installs packages, such as ``pip install torch``. If the ``pip`` on the PATH is not that of the
    environment, the command has the path of the interpreter; in an environment without pip it uses uv."""
    quoted = (f'"{r}"' if set(r) & set("[]<>=, ") else r for r in requirements)
    return f"{_installer()} {' '.join(quoted)}"


def install_extra(extra: str) -> str:
    """The command that installs ptxgen with the extra ``extra`` ("": without extras): by name if ptxgen is installed,
    else from the checkout."""
    from importlib import metadata  # four hundredths of a second, which all commands would take

    try:
        metadata.version("ptxgen")
        where = "ptxgen"
    except metadata.PackageNotFoundError:
        where = str(Path(__file__).resolve().parents[1])
    return install(f"{where}[{extra}]" if extra else where)


def build_pycuda() -> str:
    """The command that builds PyCUDA and installs it."""
    return f"{'python' if _on_path('python') else sys.executable} -m ptxgen build-pycuda"


def _on_path(name: str) -> bool:
    """True if the PATH finds the program ``name`` in the folder of the running interpreter."""
    path = shutil.which(name)
    return path is not None and Path(path).parent == Path(sys.executable).parent


def _installer() -> str:
    # importlib.util.find_spec("pip") would make setuptools use the standard library's distutils in this process, before
    # Python 3.12; PyTorch's compiler then stops
    if PathFinder.find_spec("pip") is None:
        uv = shutil.which("uv")
        return f"uv pip install --python {sys.executable}" if uv else f"python -m pip --python {sys.executable} install"
    return "pip install" if _on_path("pip") else f"{sys.executable} -m pip install"
