"""``ptxgen.torch.enabled`` on tensors of the CPU, by the emulated device, and the programs that it is enabled for."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxgen.api import choice, runners
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from tests.emulated.test_torch import SHORT
from tests.torch_override_checks import OverrideChecks

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys, torch; print(sys.argv[1:], (torch.ones(2, 3) @ torch.ones(3, 2)).sum().item())"


@pytest.fixture(autouse=True, scope="module")
def _short_kernels() -> Iterator[None]:
    choose = choice.choose
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            choice,
            "choose",
            lambda problem, on: choose(problem, on) if first_violation(lower(problem), SHORT, on.device) else SHORT,
        )
        patch.setattr(runners, "runners", OrderedDict())
        yield


class TestOverride(OverrideChecks):
    device = "cpu"


def program(folder: Path, *arguments: str, **variables: str) -> tuple[str, str]:
    """The pair (standard output, last line of standard error) of a program. The settings of the test are not changed."""
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PTXGEN_DRIVER": "emulated", **variables}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment, cwd=folder)
    return done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]


def test_the_command_run(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    out, line = program(tmp_path, "-m", "ptxgen", "run", "program.py", "--epochs", "3", PYTHONPATH=path)
    assert out == "['--epochs', '3'] 12.0"
    assert line == "ptxgen.torch: ptxgen computed matmul 1; torch computed nothing"


def test_the_entry_point_of_pytorch(tmp_path: Path) -> None:
    """A distribution with the entry point of this one, wherever ptxgen is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "ptxgen_entry-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ptxgen_entry\nVersion: 0\n")
    entry = project["entry-points"]["torch.backends"]["ptxgen"]
    (folder / "entry_points.txt").write_text(f"[torch.backends]\nptxgen_entry = {entry}\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    lines = program(tmp_path, "program.py", PYTHONPATH=path, PTXGEN_TORCH="1")
    assert lines == ("[] 12.0", "ptxgen.torch: ptxgen computed matmul 1; torch computed nothing")
