"""Finds the shared libraries of the vendor: in NVIDIA's wheels, else on the library path; and PyTorch."""

from __future__ import annotations

import ctypes as ct
import functools
import importlib.util
from pathlib import Path
from typing import Any

from ptxgen.errors import UnavailableError
from ptxgen.install_advice import install, install_extra


def load(name: str) -> ct.CDLL:
    """The newest shared library ``lib<name>.so``; ``name`` is for example ``cublasLt``. UnavailableError: none is
    found."""
    for file in [*_wheels(name), f"lib{name}.so.13", f"lib{name}.so.12", f"lib{name}.so"]:
        try:
            return ct.CDLL(file)
        except OSError:
            continue
    raise UnavailableError(f"lib{name} was not found; {install_extra('baseline')}")


def _wheels(name: str) -> list[str]:
    """The paths of a library in NVIDIA's wheels, newest first."""
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    paths = [path for folder in folders for path in Path(folder).glob(f"*/lib/lib{name}.so.*")]
    return [str(p) for p in sorted(paths, key=lambda p: (_number(p), str(p)), reverse=True)]


def _number(path: Path) -> int:
    tail = path.name.rpartition(".")[2]
    return int(tail) if tail.isdigit() else 0


@functools.cache
def load_torch() -> Any:
    """The module ``torch``. UnavailableError: PyTorch is missing, or has no GPU."""
    try:
        import torch
    except ImportError as error:
        raise UnavailableError(f"PyTorch cannot be imported ({error}); {install('torch')}") from error
    if not torch.cuda.is_available():
        raise UnavailableError(f"PyTorch {torch.__version__} has no GPU; install a build with CUDA")
    return torch
