"""The package itself: its public names, and what importing it costs."""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import ptxgen

ROOT = Path(__file__).resolve().parents[2]


def test_public_names_are_listed_and_imported_once() -> None:
    public = {*ptxgen.__all__, *ptxgen._TASK_WORDS}
    assert public == {name for name in dir(ptxgen) if not name.startswith("_")}
    assert set(ptxgen._MODULES) == public
    assert not {*ptxgen.__all__} & {*dir(builtins)}, "import * would replace a function of Python"
    for name in public:
        assert getattr(ptxgen, name) is vars(ptxgen)[name]
    with pytest.raises(AttributeError, match="module 'ptxgen' has no attribute 'gem'"):
        ptxgen.gem  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_of_pytorch_lists_its_public_names() -> None:
    torch = pytest.importorskip("ptxgen.torch")
    assert [name for name in dir(torch) if not name.startswith("_")] == sorted(torch.__all__)


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, ptxgen; dir(ptxgen); print(*(m for m in sys.modules if m.startswith(('ptxgen.', 'numpy'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


PROGRAM = """
import numpy as np
from numpy.typing import NDArray

import ptxgen
from ptxgen.errors import PtxgenError


def product(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    result: NDArray[np.float32] = ptxgen.gemm(a, b, alpha=2.0, activation="relu")
    return result


try:
    with ptxgen.autotune(time_limit=5) as tuned:
        product(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))
    for winner in tuned:
        print(winner.problem.key())
except PtxgenError as error:
    print(error)
print(ptxgen.Gemm(16, 16, 16).flops)
"""


def test_a_users_program_passes_mypy_strict(tmp_path: Path) -> None:
    """In an environment in which ptxgen is installed, so that py.typed counts; a wrong use is reported."""
    pytest.importorskip("mypy")
    venv.create(tmp_path / "env", with_pip=False)
    [packages] = (tmp_path / "env").glob("lib/python*/site-packages")
    numpy = Path(importlib.util.find_spec("numpy").origin).parents[1]  # type: ignore[union-attr, arg-type]
    (packages / "found.pth").write_text(f"{ROOT}\n{numpy}\n")
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text("import ptxgen\n\nptxgen.gem(1, 2)\nptxgen.gemm(1, 2, alpha='x')\n")
    options = [
        "--strict",
        "--python-executable",
        tmp_path / "env" / "bin" / "python",
        "--cache-dir",
        tmp_path / "cache",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert [line.rpartition("[")[2] for line in lines[:-1]] == ["attr-defined]", "arg-type]"], done.stdout + done.stderr
    assert all(line.startswith("wrong.py") for line in lines[:-1])


def test_a_wheel_has_everything_that_a_program_needs(tmp_path: Path) -> None:
    """Unpacked elsewhere, it selects a shipped winner and renders its kernel, and doctor prints the digest of the
    checkout."""
    builder = pytest.importorskip("hatchling.builders.wheel")
    [wheel] = builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    wheel_bytes = Path(wheel).stat().st_size
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        facts = archive.read(next(n for n in archive.namelist() if n.endswith("/METADATA"))).decode()
        names = set(archive.namelist())
    assert {"ptxgen/py.typed", f"ptxgen-{ptxgen.__version__}.dist-info/licenses/LICENSE"} <= names
    assert re.search("^Summary: .*GEMM and convolution", facts, re.M)
    for line in ("License-Expression: MIT", "Author: the ptxgen developers", "Requires-Python: >=3.11"):
        assert line in facts.splitlines()
    required = [line for line in facts.splitlines() if line.startswith("Requires-Dist: ")]
    assert [line for line in required if line.endswith("extra == 'cuda'")]
    assert not [line for line in required if "pycuda" in line], "pip stops where there is no CUDA toolkit"
    variables = {"PTXGEN_CACHE": str(tmp_path), "PTXGEN_DATABASE": str(tmp_path / "absent.sqlite")}

    def run(package: Path, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ptxgen", *arguments],
            cwd=tmp_path,
            env={**os.environ, **variables, "PTXGEN_DRIVER": "emulated", "PYTHONPATH": str(package)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.stdout, done.stderr
        return done.stdout

    installed = tmp_path / "site"
    assert ".visible .entry" in run(installed, "emit", "gemm", "--shape", "2560,16,2560", "--device", "h200")
    assert (installed / "ptxgen" / "_tuning_db").is_dir()
    assert not [name for name in names if re.search(r"_tuning_db/.*/(measurements|validation|vendor-|paper)", name)]
    assert [name for name in names if name.endswith("h200/vendor.json.xz")]
    assert wheel_bytes < 5 << 20
    findings = [
        {f["name"]: f["found"] for f in json.loads(run(p, "doctor", "--json"))["findings"]} for p in (installed, ROOT)
    ]
    assert findings[0]["templates"] != findings[1]["templates"]
    assert findings[0]["selection"] == findings[1]["selection"]
