"""The operation ``task``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.lowering.lower import lower
from ptxgen.lowering.sink import ValueSink
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.reference import slices
from ptxgen.operations.task.features import FEATURES
from ptxgen.operations.task.lowering import lower_task
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.random_problems import RANDOM_PROBLEMS
from ptxgen.operations.task.speed import SPR, least_us
from ptxgen.operations.task.suites import SUITES, TITLES, cells
from ptxgen.problem.base import ProblemBase
from ptxgen.problem.operation import Baseline, Ceiling, MeasuredCeiling, Operation, Parts

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.operations.task.checks import TaskOperandSets
    from ptxgen.problem.device import Device
    from ptxgen.runtime.check import CheckResult
    from ptxgen.runtime.driver import Driver, Timing

DIAGONAL = 256  #: in about so many columns, tiles on the diagonal compute twice the pairs that are used


def _checks(driver: Driver, p: Task, config: Config, seed: int, row_padding: int) -> Iterable[CheckResult]:
    from ptxgen.operations.task.checks import check_task

    return check_task(driver, p, config, seed, row_padding)


def _operand_sets(driver: Driver, p: Task, timing: Timing) -> TaskOperandSets:
    from ptxgen.operations.task.checks import TaskOperandSets

    return TaskOperandSets(driver, p, timing)


def _product(p: Task, arrays: Mapping[str, Any], region: None = None) -> tuple[Any, Any]:
    from ptxgen.operations.task.checks import expected
    from ptxgen.operations.task.oracle import Dense

    result = expected(p, arrays, p.typical_scalars)
    assert isinstance(result, Dense)
    return result.values, abs(result.values)


def _torch() -> Callable[..., Any]:
    from ptxgen.operations.task.baselines.torch_arrays import TorchEager
    from ptxgen.runtime.vendor_libraries import load_torch

    load_torch()
    return TorchEager


def _compile() -> Callable[..., Any]:
    from ptxgen.operations.task.baselines.torch_arrays import TorchCompiled
    from ptxgen.runtime.vendor_libraries import load_torch

    load_torch()
    return TorchCompiled


def _triton() -> Callable[..., Any]:
    from ptxgen.operations.task.baselines.libraries import load_triton
    from ptxgen.operations.task.baselines.triton_outer import TritonOuter
    from ptxgen.operations.task.baselines.triton_rows import TritonRows
    from ptxgen.operations.task.program import RowReduce

    load_triton()

    def baseline(driver: Any, problem: Task, addresses: Mapping[str, int] | None = None) -> Any:
        of_rows = isinstance(problem.program.outputs[0], RowReduce)
        return (TritonRows if of_rows else TritonOuter)(driver, problem, addresses)

    return baseline


def _gluon() -> Callable[..., Any]:
    from ptxgen.operations.task.baselines.gluon_staged import GluonStaged
    from ptxgen.operations.task.baselines.libraries import load_gluon

    load_gluon()
    return GluonStaged


def _cuda() -> Callable[..., Any]:
    from ptxgen.operations.task.baselines.cuda_staged import CudaStaged, find_nvcc, load_library

    find_nvcc()
    load_library()
    return CudaStaged


def _keops() -> Callable[..., Any]:
    from ptxgen.operations.task.baselines.keops import Keops, load_keops

    load_keops()
    return Keops


_BASELINES = (
    Baseline("torch", "PyTorch", _torch),
    Baseline("compile", "torch.compile", _compile),
    Baseline("triton", "Triton", _triton),
    Baseline("gluon", "Gluon", _gluon),
    Baseline("cuda", "CUDA C++", _cuda),
    Baseline("keops", "KeOps", _keops),
)


def _measured(driver: Driver, p: Task) -> MeasuredCeiling | None:
    from ptxgen.operations.task.step_loop import measured

    return measured(driver, p)


def _parts(p: Task, d: Device | None) -> Parts | None:
    from ptxgen.operations.task.join_parts import parts_of_join
    from ptxgen.operations.task.sum_parts import parts_of

    if (parts := parts_of(p) or parts_of_join(p)) is not None or d is None:
        return parts
    from ptxgen.operations.task.exact_parts import parts_of_filter

    return parts_of_filter(p, d)


def _plain(p: Task) -> ProblemBase:
    """The GEMM with the same loop over K, if the step is a product that GEMMs sum; else the task itself. If kernels
    compute half of the pairs, the GEMM has half of the columns, plus those of tiles on the diagonal."""
    lowered = lower(p)
    if lowered.algebra is not PLUS_TIMES or not isinstance(lowered.sink, ValueSink):
        return p
    names = ("lda", "ldb", "aligned_a", "aligned_b", "batch", "stride_a", "stride_b")
    fields: dict[str, Any] = {name: getattr(p, name) for name in names}
    columns = min((p.n + DIAGONAL) // 2, p.n) if p.mirrored else p.n
    return Gemm(p.m, columns, p.k, p.layout, p.dtype, lowered.compute, **fields)


def _separate(p: Task) -> Mapping[str, Task]:
    from ptxgen.operations.task.output_problems import problems_of

    return problems_of(p)


TASK = Operation(
    Task,
    lowering=lower_task,
    product=_product,
    slices=slices,
    checks=_checks,
    operand_sets=_operand_sets,
    operands="the inputs",
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    random_problems=RANDOM_PROBLEMS,
    features=FEATURES,
    speed=SPR,
    ceiling=Ceiling(least_us, _measured),
    baselines={baseline.name: baseline for baseline in _BASELINES},
    parts=_parts,
    separate=_separate,
    plain=_plain,
)
