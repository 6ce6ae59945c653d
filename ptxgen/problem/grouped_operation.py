"""The operation ``grouped``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.problem.base import ELEMENTWISE_OPERANDS
from ptxgen.problem.grouped import GroupedGemm
from ptxgen.problem.grouped_suites import SUITES
from ptxgen.problem.operation import Baseline, Operation, RandomKind, operation_named
from ptxgen.problem.reference import Array
from ptxgen.problem.strided_arrays import A, B, C, strided


def item_view(p: GroupedGemm, operand: int, memory: Array, i: int) -> Array:
    """Operand A, B or C of item ``i`` in the array that holds those of all items."""
    shape = int(p.rows[i, operand]), int(p.columns[i, operand])
    return strided(memory[int(p.starts[i, operand]) :], shape, (int(p.lds[i, operand]), 1))


def epilogue_view(p: GroupedGemm, name: str, memory: Array, i: int) -> Array:
    """The operand ``name`` of the epilogue of item ``i``."""
    if name in ELEMENTWISE_OPERANDS:
        return item_view(p, C, memory, i)
    starts, size = p.epilogue_sizes(name)
    return memory[int(starts[i]) : int(starts[i + 1]) if i + 1 < len(starts) else size]


def product(p: GroupedGemm, a: Array, b: Array, region: None = None) -> tuple[Array, Array]:
    """Σab and Σ|a||b| of each element of the array that holds C of all items; zero between items."""
    exact, scale = (np.zeros(p.sizes[C]) for _ in range(2))
    gemm = operation_named("gemm")
    for i in range(len(p.items)):
        if p.items[i][0] and p.items[i][1]:
            found = gemm.product(p.item(i), item_view(p, A, a, i), item_view(p, B, b, i), None)
            item_view(p, C, exact, i)[...], item_view(p, C, scale, i)[...] = found
    return exact, scale


def slices(p: GroupedGemm, region: Any = None) -> tuple[slice, ...]:
    """The whole result. Regions are not used: a part of a group is a smaller group."""
    return ()


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    items = np.asarray(p["items"], np.int64).reshape(-1, 3)
    spans = (f"{x.min()}-{x.max()}" if x.min() != x.max() else str(x.min()) for x in items.T) if len(items) else ()
    others = (p[field] if p[field] != p["dtype"] else "" for field in ("compute", "out"))
    return [len(items), ",".join(spans), p["jagged"], p["layout"], p["dtype"], *others]


TITLES = ("items", "M,N,K", "jagged", "layout", "dtype", "compute", "out")

GROUPED = Operation(
    GroupedGemm,
    lowering="ptxgen.lowering.grouped_to_gemm:lower_grouped",
    product=product,
    slices=slices,
    checks="ptxgen.runtime.grouped_check:check_grouped",
    operand_sets="ptxgen.runtime.grouped_check:GroupedOperandSets",
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    baselines={
        "cublas": Baseline(
            "cublas",
            "cuBLAS",
            "ptxgen.runtime.vendor.cublas_grouped:CublasGrouped",
            "ptxgen.runtime.vendor.cublas_grouped:_library",
        ),
        "tlp": Baseline("tlp", "tile policy by TLP", "ptxgen.runtime.tlp_schedule:TlpBaseline"),
        "cudnn": Baseline(
            "cudnn", "cuDNN", "ptxgen.runtime.vendor.cudnn_grouped:CudnnGrouped", "ptxgen.runtime.vendor.cudnn:_torch"
        ),
        "torch": Baseline(
            "torch",
            "torch._grouped_mm",
            "ptxgen.runtime.vendor.torch_grouped:TorchGrouped",
            "ptxgen.runtime.vendor.torch_grouped:_torch",
        ),
    },
    scheduling="ptxgen.runtime.grouped_launch:table_us",
    random_kinds={"grouped": RandomKind("ptxgen.tuning.random_grouped:grouped", 0.0)},
)
