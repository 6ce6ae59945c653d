"""An exported library, built with CMake, computes on the GPU what NumPy computes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxgen.export.c_source import form
from ptxgen.export.files import write
from ptxgen.export.library import Library
from ptxgen.export.task_in_c import functions_of
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.task.language.texts import input_ranks, parse
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


def build(folder: Path) -> None:
    """Builds the library in ``folder`` with CMake."""
    quiet = {"cwd": folder, "check": True, "capture_output": True}
    subprocess.run(["cmake", "-S", "library", "-B", "build"], **quiet)  # type: ignore[call-overload]
    subprocess.run(["cmake", "--build", "build"], **quiet)  # type: ignore[call-overload]


def run_example(folder: Path, *files: str) -> None:
    words = [folder / "build" / "example", "library", *files]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
    build(tmp_path)
    a, b, c = operands(problem, 0, "integers").values()
    for name, x in (("a", a), ("b", b)):
        (tmp_path / name).write_bytes(x.tobytes() if alpha else b"\xff" * x.nbytes)
    run_example(tmp_path, "a", "b", "c")
    result = np.frombuffer((tmp_path / "c").read_bytes(), c.dtype).reshape(c.shape)
    assert verdict("integers", result, reference(problem, {"A": a, "B": b}, alpha=alpha)).ok


SUMS = "reduce (k) { accum += P[i, k] * R[k, j]; }"


def best(x: Any) -> list[Any]:
    """The 300 greatest elements, the first of equal ones first, and their rows and columns."""
    order = np.argsort(-x.ravel(), kind="stable")[:300]
    return [x.ravel()[order], *(y.astype(np.int32) for y in np.unravel_index(order, x.shape))]


def best_of_rows(x: Any) -> list[Any]:
    """The 5 greatest elements of each row, and their columns."""
    order = np.argsort(-x, axis=1, kind="stable")[:, :5]
    return [np.take_along_axis(x, order, 1), order.astype(np.int32)]


TASKS: dict[str, tuple[str, Callable[[Any], list[Any]]]] = {
    "matrix": (f"where (i, j) {{ {SUMS} C[i, j] = max(accum, 3); }}", lambda x: [np.maximum(x, 3)]),
    "rows": (f"where (i, j) {{ {SUMS} C[i] argmax= accum; }}", lambda x: [x.argmax(1).astype(np.int32)]),
    "list": (
        f"where (i, j) {{ {SUMS} accum > s * 60 ? hits.add(i, j); }}",
        lambda x: [y.astype(np.int32) for y in np.nonzero(x > 60)],
    ),
    "best": (f"where (i, j) {{ {SUMS} best.top(300, accum, i, j); }}", best),
    "best_of_rows": (f"where (i, j) {{ {SUMS} best[i].top(5, accum, j); }}", best_of_rows),
    "kept": (f"where (i, j) {{ {SUMS} best[i].top(5, accum, j); }}", best_of_rows),
}
DEPTHS = {"kept": 8}  #: K of tasks; 64 of others


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no CMake")
@pytest.mark.parametrize("name", TASKS)
def test_example_computes_a_task(name: str, tmp_path: Path) -> None:
    """Numbers of an example are 1; a list has the results in any order, and then their count."""
    device = open_driver("cuda").device
    text, computes = TASKS[name]
    [task] = functions_of(name, parse(text, dict.fromkeys(input_ranks(text), "f32")))
    depth = DEPTHS.get(name, 64)
    tasks = {task: [task.problem(96, 128, depth)]}
    library = Library.of([], device, lambda p: require(p, device)[0], model_for(device), form, tasks)
    write(library, tmp_path / "library", version="1", command="test")
    build(tmp_path)
    rng = np.random.default_rng(0)
    p, r = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((96, depth), (depth, 128)))
    for file, x in (("P", p), ("R", r)):
        (tmp_path / file).write_bytes(x.tobytes())
    wanted = computes(p @ r)
    files = [f"out{n}" for n in range(len(wanted) + (name == "list"))]
    run_example(tmp_path, "P", "R", *files)
    made = [np.frombuffer((tmp_path / file).read_bytes(), x.dtype) for file, x in zip(files, wanted, strict=False)]
    if name == "list":
        count = int(np.frombuffer((tmp_path / files[-1]).read_bytes(), np.int64)[0])
        assert count == len(wanted[0])
        order = np.lexsort((made[1][:count], made[0][:count]))
        made = [x[:count][order] for x in made]
    for x, y in zip(made, wanted, strict=True):
        assert np.array_equal(x.reshape(y.shape), y)
