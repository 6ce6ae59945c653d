"""The baselines of tasks on a GPU: each computes small tasks, and their results are those of the oracle."""

from __future__ import annotations

import pytest

from ptxgen.errors import LaunchError, UnavailableError
from ptxgen.lowering.lower import lower
from ptxgen.lowering.step_rate import ceiling
from ptxgen.operations.task.checks import TaskOperandSets
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.semirings import semiring_program
from ptxgen.operations.task.step_loop import measured
from ptxgen.operations.task.suites import QUERIES, distance_text, typed_text
from ptxgen.problem.operation import operation_named
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.open_driver import open_driver

pytestmark = pytest.mark.gpu

BRIEF = Timing(samples=3, target_ms=0.5)
BASELINES = ("torch", "compile", "triton", "gluon", "cuda")
MATRICES = {
    **{name: canonical(semiring_program(name, "f32")) for name in ("plus_times", "max_plus", "max_min")},
    **{name: typed_text(distance_text(name), "f32") for name in ("l1", "l2", "linf")},
    "q1": typed_text(QUERIES["q1"], "f32"),
    "bf16": canonical(semiring_program("min_plus", "bf16")),
    "f16": typed_text(distance_text("l2"), "f16"),
    "everything": (
        "A:f16[i,k];B:f32[j,k];u:f16[i];v:f32[k];w:f32[i,j];x:f32[j];s:f32;accum:f32;"
        "where(i,j){accum=1.0;reduce(k){accum+=f32(A[i,k])*B[j,k]*v[k]+s*abs(x[j]-f32(i))*0.5;}"
        "C[i,j]=accum*f32(u[i])+max(w[i,j],0.25)+(accum>2.0?f32(j):sqrt(abs(accum)));}"
    ),
}
KINDS = {"bf16": "bf16", "f16": "f16", "everything": "f16"}


@pytest.fixture(scope="module")
def driver() -> CudaDriver:
    opened = open_driver("cuda")
    assert isinstance(opened, CudaDriver)
    return opened


def best(driver: CudaDriver, baseline: str, p: Task) -> float:
    """The time of a baseline, which compares its result before."""
    library = operation_named("task").baselines[baseline]
    try:
        library.require()
    except UnavailableError as error:
        pytest.skip(str(error))
    sets = TaskOperandSets(driver, p, BRIEF)
    try:
        return library.best(driver, p, sets.sets, BRIEF).best
    finally:
        sets.release()


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("baseline", BASELINES)
def test_results_are_those_of_the_oracle(driver: CudaDriver, baseline: str, name: str) -> None:
    for m, n, k in ((256, 384, 64), (150, 129, 80)):
        p = Task(m, n, k, dtype=KINDS.get(name, "f32"), text=MATRICES[name])
        assert 0 < best(driver, baseline, p) < 1e6


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("baseline", BASELINES)
def test_layouts_and_leading_dimensions(driver: CudaDriver, baseline: str, layout: str) -> None:
    p = Task(150, 129, 80, layout, text=MATRICES["max_plus"], lda=160, ldb=160)
    assert best(driver, baseline, p) > 0


@pytest.mark.parametrize("name", ["plus_times", "max_plus", "max_min", "l1", "l2", "linf", "q1"])
def test_the_measured_ceiling_is_near_the_predicted_one(driver: CudaDriver, name: str) -> None:
    p = Task(4096, 4096, 4096, text=MATRICES[name])
    measured_times = measured(driver, p)
    assert measured_times is not None
    assert 300 < measured_times.clock < driver.device.clock * 1.1
    if driver.device.sm == 90:
        assert measured_times.steps == pytest.approx(ceiling(lower(p), driver.device), rel=0.1)


OUTPUTS = {
    "groups": "accum += P[i,k]*R[k,j]; } C[g[i],h[j]] += accum; }",
    "rows": "accum += P[i,k]*R[k,j]; } C[i] max= accum; }",
    "list": "accum += P[i,k]*R[k,j]; } accum > 9.0 ? C.add(accum, i, j); }",
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("baseline", ["torch", "compile"])
def test_other_outputs_of_pytorch(driver: CudaDriver, baseline: str, name: str) -> None:
    text = f"where (i in [0, M], j in [0, N]) {{ reduce (k in [0, K]) {{ {OUTPUTS[name]}"
    types = {"P": "f32", "R": "f32"} | ({"g": "s32", "h": "s32"} if name == "groups" else {})
    groups = "5,7" if name == "groups" else ""
    p = Task(150, 129, 80, text=canonical(parse(text, types)), groups=groups)
    assert best(driver, baseline, p) > 0
    for other in ("triton", "gluon", "cuda"):
        with pytest.raises((LaunchError, UnavailableError)):
            operation_named("task").baselines[other].load()(driver, p)
