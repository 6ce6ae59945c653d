"""Nsight Compute (ncu): hardware counters of one kernel of a program, in a process of its own."""

from __future__ import annotations

import csv
import functools
import io
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ptxgen.errors import LaunchError, UnavailableError

SECONDS = 120  #: time limit of a profile
#: ncu's metrics by their names here: hit rate of the L2 cache, and active warps per cycle, both in percent
METRICS = {
    "l2_hit_rate": "lts__t_sector_hit_rate.pct",
    "active_warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}


@functools.cache
def find_ncu() -> str:
    """The path of ncu. UnavailableError: ncu is missing."""
    path = shutil.which("ncu")
    if path is None and Path("/usr/local/cuda/bin/ncu").is_file():
        path = "/usr/local/cuda/bin/ncu"
    if path is None:
        raise UnavailableError("ncu is not on PATH; install Nsight Compute to read hardware counters")
    return path


def profiled(program: Sequence[str], kernel: str, metrics: Mapping[str, str] = METRICS) -> dict[str, float]:
    """Metrics of the first launch of a kernel, with an empty L2 cache. ``program``: the words of a command that
    launches the kernel; ``kernel``: its mangled name; ``metrics``: name in the result -> ncu's name.

    UnavailableError: ncu is missing. LaunchError: ncu fails (for example without permission to read counters), or the
    program does not launch the kernel.
    """
    words = [find_ncu(), "--csv", "--page", "raw", "--clock-control", "none", "--metrics", ",".join(metrics.values())]
    words += ["--kernel-name-base", "mangled", "--kernel-name", kernel, "--launch-count", "1", *program]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"ncu took more than {SECONDS} s") from error
    try:
        return read_metrics(done.stdout, metrics)
    except LaunchError:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERR" in line or "rror" in line]
        raise LaunchError(f"ncu failed: {lines[0] if lines else f'{kernel} was not launched'}") from None


def read_metrics(text: str, metrics: Mapping[str, str] = METRICS) -> dict[str, float]:
    """The metrics in ncu's CSV output, which has a line of titles, a line of units, and a line for the kernel.
    LaunchError: the output has no kernel."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    if len(rows) < 2:
        raise LaunchError("ncu printed no kernel")
    try:
        return {name: float(rows[1][column].replace(",", "")) for name, column in metrics.items()}
    except (KeyError, ValueError) as error:
        raise LaunchError(f"ncu printed no number for a metric: {error}") from error
