"""Examines the installation: packages, tools, devices, tuning data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxgen.errors import PtxgenError, UnavailableError
from ptxgen.install_advice import build_pycuda, install, install_extra
from ptxgen.settings import GPU_DRIVER, settings
from ptxgen.tuning.progress import SILENT, Progress, counted

if TYPE_CHECKING:
    from ptxgen.problem.operation import Installation

Finding = dict[str, Any]

#: the packages: (distribution, the extra that installs it, purpose); an empty extra: always required; None: optional,
#: without an extra
PACKAGES: tuple[tuple[str, str | None, str], ...] = (
    ("mako", "", "templates"),
    ("lark", "", "the language of tasks"),
    ("numpy", "", "arrays, exhaustive search"),
    ("ml_dtypes", "", "bfloat16"),
    ("xgboost-cpu", "", "the model"),
    ("platformdirs", "", "locations of files"),
    ("rich", "", "progress bars"),
    ("threadpoolctl", "", "one thread for small products"),
    ("typer", "", "the command line"),
    ("cuda-bindings", "cuda", "tensor maps and graphs; the driver for NVIDIA GPUs where PyCUDA is not installed"),
    ("nvidia-cuda-nvcc", "cuda", "ptxas"),
    ("nvidia-cublas", "baseline", "bench --baseline cublas"),
    ("nvidia-cusparse", "baseline", "bench --baseline cusparse"),
    ("nvidia-ml-py", "energy", "bench --observe, tune --objective energy"),
    ("torch", None, "ptxgen.torch, bench --baseline cudnn and torch"),
    ("llvmlite", "emu", "compiled kernels on the emulated device"),
    ("distributed", "dask", "collect --executor"),
    ("pyarrow", "parquet", "db export --format parquet"),
    ("matplotlib", "pictures", "paper --picture"),
    ("scikit-learn", "evaluation", "model evaluate --perceptrons, paper table2"),
)
ONLY_WITH_GPU = "  (only with an NVIDIA GPU)"
#: distribution -> equivalent distributions; xgboost-cpu is xgboost without GPU code
EQUIVALENT = {"xgboost-cpu": ("xgboost",)}


def finding(name: str, state: str, value: str, remedy: str = "") -> Finding:
    """A finding. ``name``: what was examined; ``state``: ``ok``, ``missing`` (required and absent), or ``optional``
    (absent and needed only by some uses); ``value``: what was found; ``remedy``: what to do."""
    return {"name": name, "state": state, "found": value, "remedy": remedy}


def examine(database: Path, progress: Progress = SILENT) -> list[Finding]:
    """Examines the installation and returns all findings."""
    gpu = _gpu_name()
    rows = [_python(), *(_package(*row, gpu=bool(gpu)) for row in PACKAGES), _pycuda(bool(gpu))]
    checks: dict[str, Callable[[], Finding]] = {
        "GPU": lambda: _gpu(gpu),
        "ptxas": lambda: _ptxas(bool(gpu)),
        **_vendor_libraries(bool(gpu)),
        "database": lambda: _database(database),
        "cache": _cache,
        "shipped tuning data": _shipped,
        "selection": lambda: _selection(database),
        "templates": _templates,
    }
    progress.phase("examine", len(checks))
    for name, check in checks.items():
        progress.step(name)
        rows.append(_guarded(name, check))
    return [*rows, _environment()]


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except PtxgenError as error:
        return finding(name, "missing", str(error).splitlines()[0])


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    enough = sys.version_info >= (3, 11)
    return finding("Python", "ok" if enough else "missing", version, "" if enough else "install Python 3.11 or newer")


def _package(name: str, extra: str | None, purpose: str, gpu: bool) -> Finding:
    for other in (name, *EQUIVALENT.get(name, ())):
        try:
            return finding(name, "ok", f"{metadata.version(other)}{'' if other == name else f' ({other})'}")
        except metadata.PackageNotFoundError:
            continue
    needed = extra == "" or (extra == "cuda" and gpu)
    remedy = install_extra(extra) if extra else install(name)
    if extra in ("cuda", "baseline") and not gpu:
        remedy += ONLY_WITH_GPU
    return finding(name, "missing" if needed else "optional", f"not installed: {purpose}", remedy)


def _pycuda(gpu: bool) -> Finding:
    """The finding on PyCUDA. No extra installs PyCUDA, because pip would compile it with headers of a CUDA toolkit."""
    try:
        return finding("pycuda", "ok", metadata.version("pycuda"))
    except metadata.PackageNotFoundError:
        state = "missing" if settings().driver.startswith("pycuda") else "optional"
        remedy = build_pycuda() + ("" if gpu else ONLY_WITH_GPU)
        return finding("pycuda", state, "not installed: the driver for NVIDIA GPUs; compiled from source", remedy)


def _gpu_name() -> str:
    """The name and the driver version of the first GPU, from nvidia-smi; empty: there is no GPU."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ""
    command = [smi, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = result.stdout.strip().splitlines()
    return lines[0] if result.returncode == 0 and lines else ""


def _gpu(name: str) -> Finding:
    from ptxgen.runtime.open_driver import open_driver

    try:
        opened = open_driver("cuda")
        device, library = opened.device, getattr(opened, "library", "")
    except UnavailableError as error:
        if name:
            return finding("GPU", "missing", f"{name}, but it is not usable: {error}")
        if GPU_DRIVER.fullmatch(settings().driver):
            return finding("GPU", "missing", f"PTXGEN_DRIVER is {settings().driver}, and it is not usable: {error}")
        return finding("GPU", "optional", "none: kernels run on the emulated device")
    except PtxgenError as error:
        return finding("GPU", "missing", str(error).splitlines()[0])
    description = f"{device.name}, {device.target}, {device.sms} multiprocessors, through {library}"
    return finding("GPU", "ok", f"{description} ({name})" if name else description)


def _ptxas(gpu: bool) -> Finding:
    from ptxgen.runtime.assemble import find_ptxas, version

    path = find_ptxas()
    if path is not None:
        return finding("ptxas", "ok", f"{version(path)}, {path}")
    advice = (
        "none: the CUDA driver assembles kernels, which is slower"
        if gpu
        else "none: kernels are emitted and emulated without being assembled"
    )
    return finding("ptxas", "optional", advice, install("nvidia-cuda-nvcc>=13.0,<14"))


def _vendor_libraries(gpu: bool) -> dict[str, Callable[[], Finding]]:
    """Title -> check, for each vendor library that operations compare with; empty if a plugin cannot be loaded, which
    the finding "selection" reports."""
    from ptxgen.problem.operation import operations

    with suppress(PtxgenError):
        baselines = [b for operation in operations() for b in operation.baselines.values()]
        return {b.title: partial(_vendor_library, b.title, b.installation, gpu) for b in baselines if b.installation}
    return {}


def _vendor_library(name: str, library: Installation, gpu: bool) -> Finding:
    version = library.version()
    if version:
        return finding(name, "ok", version)
    if gpu:
        return finding(name, "optional", library.absent, library.remedy())
    return finding(name, "optional", "none: it requires an NVIDIA GPU")


def _database(path: Path) -> Finding:
    from ptxgen.tuning.store.database import Database

    if not path.exists():
        return finding("database", "optional", f"{path}: absent; the first tune creates it")
    with Database(path, readonly=True) as database:
        counts = database.info()
    text = f"{counted(counts['measurements'], 'measurement')} of {counted(counts['problems'], 'problem')}"
    return finding("database", "ok", f"{path}: {text}")


def _cache() -> Finding:
    from ptxgen import disk_cache
    from ptxgen.settings import settings

    path = settings().cache
    try:
        disk_cache.create(path / "digests")
    except OSError as error:
        return finding("cache", "optional", f"{path}: nothing is cached: {error.strerror}", "set PTXGEN_CACHE")
    reason = disk_cache.unsafe(path)
    return finding(
        "cache", "optional" if reason else "ok", f"{path}: nothing is cached: {reason}" if reason else str(path)
    )


def _shipped() -> Finding:
    from ptxgen.problem.device import DEVICES
    from ptxgen.tuning.choice.models import model_from
    from ptxgen.tuning.store import tuning_files

    devices = []
    for device in tuning_files.devices():
        facts = model_from(DEVICES[device], None).facts if device in DEVICES else None
        model = "no model" if facts is None else f"a model of {' and '.join([str(facts.device['name']), *facts.also])}"
        devices.append(f"{device}: {counted(len(tuning_files.shipped_winners(device)), 'winner')}, {model}")
    return finding(
        "shipped tuning data", "ok" if devices else "optional", "; ".join(devices) or "none in this installation"
    )


def _selection(path: Path) -> Finding:
    from ptxgen.runtime.open_driver import open_driver
    from ptxgen.tuning.selection import state_digest
    from ptxgen.tuning.store.database import readable

    device = open_driver(settings().driver).device
    with readable(path) or nullcontext() as database:
        digest = state_digest(device, database)
    return finding(
        "selection",
        "ok",
        f"digest {digest} on {device.name}; machines with the same digest select the same configurations",
    )


def _templates() -> Finding:
    from ptxgen.settings import templates_dir

    return finding("templates", "ok", str(templates_dir()))


def _environment() -> Finding:
    from ptxgen.settings import VARIABLES

    given = [f"{v.name}={os.environ[v.name]}" for v in VARIABLES if os.environ.get(v.name)]
    return finding("environment", "ok", " ".join(given) or "no variable of ptxgen is set")
