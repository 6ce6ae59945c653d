"""The operation ``grouped``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.operations.grouped import random_problems
from ptxgen.operations.grouped.lowering import lower_grouped
from ptxgen.operations.grouped.problem import GroupedGemm, write_leading_dimensions
from ptxgen.operations.grouped.reference import product, slices
from ptxgen.operations.grouped.suites import SUITES
from ptxgen.problem.operation import Baseline, NamedSchedule, Operation, RandomProblems, Schedule

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.operations.grouped.checks import GroupedOperandSets
    from ptxgen.problem.device import Device
    from ptxgen.runtime.check import CheckResult
    from ptxgen.runtime.driver import Driver, Timing


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    items = np.asarray(p["items"], np.int64).reshape(-1, 3)
    spans = (f"{x.min()}-{x.max()}" if x.min() != x.max() else str(x.min()) for x in items.T) if len(items) else ()
    others = (p[field] if p[field] != p["dtype"] else "" for field in ("compute", "out"))
    return [len(items), ",".join(spans), p["jagged"], p["layout"], p["dtype"], *others]


TITLES = ("items", "M,N,K", "jagged", "layout", "dtype", "compute", "out")


def _checks(driver: Driver, p: GroupedGemm, config: Config, seed: int, row_padding: int) -> Iterable[CheckResult]:
    from ptxgen.operations.grouped.checks import check_grouped

    return check_grouped(driver, p, config, seed, row_padding)


def _operand_sets(driver: Driver, p: GroupedGemm, timing: Timing) -> GroupedOperandSets:
    from ptxgen.operations.grouped.checks import GroupedOperandSets

    return GroupedOperandSets(driver, p, timing)


def _table_us(p: GroupedGemm, config: Config, device: Device) -> float:
    from ptxgen.operations.grouped.launch import table_us

    return table_us(p, config, device)


def plain(p: GroupedGemm) -> GroupedGemm:
    """The products without an epilogue. Their C has N columns, where C of a gated activation has half as many."""
    if not p.gated:
        return replace(p, epilogue="")
    ld = write_leading_dimensions(p.lds * np.array([1, 1, 0])) if p.ld else ""  # 0: contiguous
    return replace(p, epilogue="", ld=ld)


def _cublas() -> Callable[..., Any]:
    from ptxgen.operations.grouped import cublas

    cublas.load_library()
    return cublas.CublasGrouped


def _tlp() -> Callable[..., Any]:
    from ptxgen.operations.grouped.tlp_schedule import TlpBaseline

    return TlpBaseline


#: schedules by the tile policy -> their description in help texts
_SCHEDULES = {
    "tlp": "the tile policy of Zhang et al. with its tile for each item",
    "tlp_blocks": "the same with TLP counted by blocks",
    "tlp_single": "the same, whose items take smaller tiles one after the other",
    "tlp_near": "the same with initial tiles that cover at most a quarter more than the smallest one",
    "tlp_fits": "the same with initial tiles that need not divide the extents",
    "tlp_uniform": "the same with tiles that all have 128 threads",
    "tlp_grid": "the same in a grid of the largest item",
    "vbatched": "one tile for all items in a grid of the largest item, as MAGMA",
    **{f"tile_{m}x{n}": f"a kernel of {m} x {n} alone" for m, n in ((16, 16), (16, 32), (32, 32), (32, 64), (64, 64))},
}


def _tlp_schedule(name: str) -> Schedule:
    from ptxgen.operations.grouped.tlp_schedule import VARIANTS, TlpPolicy

    return TlpPolicy(VARIANTS[name])


def _cudnn() -> Callable[..., Any]:
    from ptxgen.operations.conv import cudnn
    from ptxgen.operations.grouped.cudnn import CudnnGrouped

    cudnn.load_torch()
    return CudnnGrouped


def _cutlass() -> Callable[..., Any]:
    from ptxgen.operations.grouped import cutlass
    from ptxgen.operations.task.baselines.cuda_staged import find_nvcc

    find_nvcc(), cutlass.find_headers()
    return cutlass.CutlassGrouped


def _torch() -> Callable[..., Any]:
    from ptxgen.operations.grouped import pytorch

    pytorch.load_torch()
    return pytorch.torch_grouped


_BASELINES = (
    Baseline("cublas", "cuBLAS", _cublas),
    Baseline("tlp", "tile policy by TLP", _tlp, emulated=True),
    Baseline("cudnn", "cuDNN", _cudnn),
    Baseline("torch", "torch._grouped_mm", _torch),
    Baseline("cutlass", "CUTLASS", _cutlass),
)

GROUPED = Operation(
    GroupedGemm,
    lowering=lower_grouped,
    product=product,
    slices=slices,
    plain=plain,
    checks=_checks,
    operand_sets=_operand_sets,
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    baselines={baseline.name: baseline for baseline in _BASELINES},
    scheduling=_table_us,
    schedules={name: NamedSchedule(text, partial(_tlp_schedule, name)) for name, text in _SCHEDULES.items()},
    random_problems={"grouped": RandomProblems(random_problems.grouped, 0.0)},
)
