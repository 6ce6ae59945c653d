"""Loads Triton and Gluon, and the generated modules that call them."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from ptxgen.errors import UnavailableError
from ptxgen.install_advice import install
from ptxgen.runtime.vendor_libraries import load_torch


@functools.cache
def load_triton() -> Any:
    """The module ``triton``. Raises UnavailableError if Triton is missing, or PyTorch, whose tensors Triton takes, or a
    GPU."""
    load_torch()
    try:
        import triton
    except ImportError as error:
        raise UnavailableError(f"Triton cannot be imported ({error}); {install('triton')}") from error
    return triton


@functools.cache
def load_gluon() -> Any:
    """The module Gluon, a part of Triton. UnavailableError: it is missing."""
    load_triton()
    try:
        from triton.experimental import gluon
    except ImportError as error:
        raise UnavailableError(f"Gluon cannot be imported ({error}); it is a part of Triton 3.4 and newer") from error
    return gluon


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ptxgen-baselines-")


def module_of(source: str) -> Any:
    """The module with the Python text ``source``, which is stored in a file, because Triton reads the text of kernels
    from files."""
    name = f"ptxgen_baseline_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        path = Path(_folder().name) / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
