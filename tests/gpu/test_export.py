"""An exported library, built with CMake, computes on the GPU what NumPy computes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ptxgen.export.c_source import form
from ptxgen.export.files import write
from ptxgen.export.library import Library
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.reference import operands, reference, verdict
from ptxgen.problem.registry import Problem
from ptxgen.runtime.open_driver import open_driver
from ptxgen.tuning.choice.models import model_for
from ptxgen.tuning.selection import require

pytestmark = pytest.mark.gpu

PROBLEMS: dict[str, Problem] = {
    "f32": Gemm(130, 70, 200),
    "f16": Gemm(512, 256, 512, "TN", "f16"),
    "batch": Gemm(64, 64, 64, "NT", "f16", batch=5),
    "split": Gemm(64, 64, 20000),
    "s8": Gemm(100, 60, 64, "NT", "s8"),
    "conv": Conv(2, 16, 14, 14, 32, 3, 3, padding=1, layout="NHWC", dtype="f16"),
}


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no CMake")
@pytest.mark.parametrize("alpha", [1, 0])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_example_computes_the_product(problem: Problem, alpha: int, tmp_path: Path) -> None:
    """If alpha is 0, A and B, which hold NaN, are not read."""
    device = open_driver("cuda").device
    library = Library.of([problem], device, lambda p: require(p, device)[0], model_for(device), form)
    write(library, tmp_path / "library", version="1", command="test")
    example = tmp_path / "library" / "example.c"
    assert ".alpha = 1.0," in example.read_text()
    example.write_text(example.read_text().replace(".alpha = 1.0,", f".alpha = {alpha}.0,"))
    quiet = {"cwd": tmp_path, "check": True, "capture_output": True}
    subprocess.run(["cmake", "-S", "library", "-B", "build"], **quiet)  # type: ignore[call-overload]
    subprocess.run(["cmake", "--build", "build"], **quiet)  # type: ignore[call-overload]
    a, b, c = operands(problem, 0, "integers").values()
    for name, x in (("a", a), ("b", b)):
        (tmp_path / name).write_bytes(x.tobytes() if alpha else b"\xff" * x.nbytes)
    done = subprocess.run(
        [tmp_path / "build" / "example", "library", "a", "b", "c"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = np.frombuffer((tmp_path / "c").read_bytes(), c.dtype).reshape(c.shape)
    assert verdict("integers", found, reference(problem, {"A": a, "B": b}, alpha=alpha)).ok
