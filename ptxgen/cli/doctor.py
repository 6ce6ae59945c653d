"""The state of this machine: packages, tools, devices, data of ptxgen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from ptxgen.errors import PtxgenError, UnavailableError

Finding = dict[str, Any]

#: distribution, extra that installs it ("": always required), purpose
PACKAGES = (
    ("mako", "", "templates"),
    ("numpy", "", "arrays, exhaustive search"),
    ("ml_dtypes", "", "bfloat16"),
    ("xgboost-cpu", "", "the model"),
    ("platformdirs", "", "locations of files"),
    ("rich", "", "progress bars"),
    ("typer", "", "the command line"),
    ("pycuda", "cuda", "the driver for NVIDIA GPUs"),
    ("cuda-bindings", "cuda", "CUDA graphs"),
    ("nvidia-cuda-nvcc", "cuda", "ptxas"),
    ("nvidia-cublas", "baseline", "bench --baseline cublas"),
    ("distributed", "dask", "collect --executor"),
)
#: equivalent distributions: xgboost-cpu is xgboost without GPU code
EQUIVALENT = {"xgboost-cpu": ("xgboost",)}


def finding(name: str, state: str, found: str, remedy: str = "") -> Finding:
    """One finding. ``state``: ``ok``, ``missing`` (required), ``optional`` (absent, and required only by some uses)."""
    return {"name": name, "state": state, "found": found, "remedy": remedy}


def revision() -> str:
    """The commit of a checkout, with ``+`` if files differ from it; without a checkout, the content of the file
    ``.commit``, else the version."""
    from ptxgen import __version__

    here = Path(__file__).resolve().parents[2]
    if (here / ".git").exists() and (git := shutil.which("git")):
        asked = [git, "-C", str(here), "describe", "--always", "--dirty=+", "--exclude=*"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.strip():
            return told.stdout.strip()
    note = here / ".commit"
    return note.read_text().strip() if note.exists() else f"v{__version__}"


def examine(database: Path) -> list[Finding]:
    """All findings."""
    gpu = _gpu_name()
    rows = [_python(), *(_package(*row, gpu=bool(gpu)) for row in PACKAGES)]
    rows += [_gpu(gpu), _guarded("ptxas", lambda: _ptxas(bool(gpu)))]
    rows += [_guarded("cuBLASLt", lambda: _cublaslt(bool(gpu))), _guarded("cuDNN", lambda: _cudnn(bool(gpu)))]
    rows += [_guarded("database", lambda: _database(database))]
    rows += [_guarded("shipped tuning data", _shipped), _guarded("selection", lambda: _selection(database))]
    rows += [_guarded("templates", _templates), _environment()]
    return rows


def _guarded(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except PtxgenError as error:
        return finding(name, "missing", str(error).splitlines()[0])


def _python() -> Finding:
    told = ".".join(map(str, sys.version_info[:3]))
    enough = sys.version_info >= (3, 11)
    return finding("Python", "ok" if enough else "missing", told, "" if enough else "install Python 3.11 or newer")


def _package(name: str, extra: str, purpose: str, gpu: bool) -> Finding:
    for other in (name, *EQUIVALENT.get(name, ())):
        try:
            return finding(name, "ok", f"{metadata.version(other)}{'' if other == name else f' ({other})'}")
        except metadata.PackageNotFoundError:
            continue
    needed = not extra or (extra == "cuda" and gpu)
    install = f'pip install "ptxgen[{extra}]"' if extra else f"pip install {name}"
    remedy = install if needed else f"{install}  (only with an NVIDIA GPU)" if extra == "cuda" else install
    return finding(name, "missing" if needed else "optional", f"not installed: {purpose}", remedy)


def _gpu_name() -> str:
    """Name and driver of the first GPU, from nvidia-smi; empty: none."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ""
    asked = [smi, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = told.stdout.strip().splitlines()
    return lines[0] if told.returncode == 0 and lines else ""


def _gpu(name: str) -> Finding:
    from ptxgen.runtime.open_driver import open_driver

    try:
        device = open_driver("cuda").device
    except UnavailableError as error:
        if name:
            return finding("GPU", "missing", f"{name}, but it is not usable: {error}", 'pip install "ptxgen[cuda]"')
        return finding("GPU", "optional", "none: kernels run on the emulated device")
    except PtxgenError as error:
        return finding("GPU", "missing", str(error).splitlines()[0])
    return finding("GPU", "ok", f"{device.name}, {device.target}, {device.sms} multiprocessors ({name or 'PyCUDA'})")


def _ptxas(gpu: bool) -> Finding:
    from ptxgen.runtime.assemble import find_ptxas, version

    found = find_ptxas()
    if found is not None:
        return finding("ptxas", "ok", f"{version(found)}, {found}")
    told = (
        "none: the CUDA driver assembles kernels, which is slower"
        if gpu
        else "none: kernels are emitted and emulated without being assembled"
    )
    return finding("ptxas", "optional", told, 'pip install "nvidia-cuda-nvcc>=13.0,<14"')


def _cublaslt(gpu: bool) -> Finding:
    from ptxgen.runtime.vendor.cublaslt import available

    found = available()
    if found:
        return finding("cuBLASLt", "ok", found)
    return _no_library("cuBLASLt", gpu, "not installed", 'pip install "ptxgen[baseline]"')


def _cudnn(gpu: bool) -> Finding:
    from ptxgen.runtime.vendor.cudnn import available

    found = available()
    if found:
        return finding("cuDNN", "ok", found)
    return _no_library("cuDNN", gpu, "not installed with PyTorch", "pip install torch")


def _no_library(name: str, gpu: bool, found: str, remedy: str) -> Finding:
    if gpu:
        return finding(name, "optional", found, remedy)
    return finding(name, "optional", "none: it requires an NVIDIA GPU")


def _database(path: Path) -> Finding:
    from ptxgen.tuning.database import Database

    if not path.exists():
        return finding("database", "optional", f"{path}: absent; the first tune creates it")
    with Database(path, readonly=True) as database:
        told = database.info()
    counts = f"{told['measurements']} measurements of {told['problems']} problems"
    return finding("database", "ok", f"{path}: {counts}")


def _shipped() -> Finding:
    from ptxgen.tuning import tuning_files

    told = []
    for device in tuning_files.devices():
        model = "a model" if tuning_files.model_path(device).exists() else "no model"
        told.append(f"{device}: {len(tuning_files.shipped_winners(device))} winners, {model}")
    return finding("shipped tuning data", "ok" if told else "optional", "; ".join(told) or "none in this installation")


def _selection(path: Path) -> Finding:
    from ptxgen.runtime.open_driver import open_driver
    from ptxgen.settings import settings
    from ptxgen.tuning.database import Database
    from ptxgen.tuning.selection import state_digest

    device = open_driver(settings().driver).device
    if path.exists():
        with Database(path, readonly=True) as database:
            told = state_digest(device, database)
    else:
        told = state_digest(device)
    return finding("selection", "ok", f"digest {told} on {device.name}; machines with the same digest choose alike")


def _templates() -> Finding:
    from ptxgen.settings import templates_dir

    return finding("templates", "ok", str(templates_dir()))


def _environment() -> Finding:
    from ptxgen.settings import VARIABLES

    given = [f"{v.name}={os.environ[v.name]}" for v in VARIABLES if os.environ.get(v.name)]
    return finding("environment", "ok", " ".join(given) or "no variable of ptxgen is set")
