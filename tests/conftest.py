"""Options and the GPU marker."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the committed PTX of tests/golden")


def _gpu() -> bool:
    tool = shutil.which("nvidia-smi")
    return tool is not None and subprocess.run([tool, "-L"], capture_output=True).returncode == 0


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here; scripts/gpu runs these where there is one"))
