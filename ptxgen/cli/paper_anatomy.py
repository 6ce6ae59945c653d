"""The comparison of kernels in the ISAAC paper's section 8.1: its document and its table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ptxgen.cli.paper_tables import PaperTable
from ptxgen.cli.pictures import Bars
from ptxgen.cli.report import Document, problem_fields

if TYPE_CHECKING:
    from ptxgen.runtime.cuda import CudaDriver

PROBLEM = "DeepBench-F 32"  #: 2560×32×2560 column-major, of the suite isaac
#: property -> the paper's values on a Tesla P100, for ISAAC and for cuBLAS's best kernel
PAPER: dict[str, tuple[Any, Any]] = {
    "TFLOP/s": (3.73, 2.56),
    "M_L": (64, 128),
    "N_L": (32, 64),
    "K_L": (4, 5),
    "U": (16, 8),
    "shared memory, KiB": (12.25, 12.25),
    "registers": (72, 120),
    "occupancy, %": (17.0, 10.0),
    "L2 hit rate, %": (32.0, 24.0),
}


def measured(driver: CudaDriver) -> Document:
    """Measures the document of ``paper anatomy`` on a GPU."""
    from ptxgen.operations.gemm import anatomy
    from ptxgen.operations.gemm.problem import Gemm
    from ptxgen.problem.suites import cases
    from ptxgen.tuning.measure.bench import FINAL_TIMING

    [case] = [case for case in cases("isaac", "gemm") if case.name == PROBLEM]
    assert isinstance(case.problem, Gemm)
    rows = [each.as_dict() for each in anatomy.compared(driver, case.problem, FINAL_TIMING)]
    for row in rows:
        row["tflops"] = case.problem.flops / row["us"] * 1e-6
    head = {"command": "paper anatomy", "device": driver.device.name, "assembler": driver.assembler}
    return {**head, **problem_fields(case), "libraries": rows}


def table(document: Document) -> PaperTable:
    """The table with a row for each property, a column for each measured library, and a column for each library in the
    paper."""
    own = [_properties(row) for row in document["libraries"]]
    names = [str(row["name"]) for row in document["libraries"]]
    properties = list(dict.fromkeys(name for column in (*own, PAPER) for name in column))
    order = [*own[0], *(name for name in properties if name not in own[0])]
    rows = [[name, *(column.get(name) for column in own), *PAPER.get(name, (None, None))] for name in order]
    shown = [name for name in ("occupancy, %", "L2 hit rate, %") if name in order]
    columns = {name: [column.get(p) for p in shown] for name, column in zip(names, own, strict=True)}
    for i, name in enumerate(("ISAAC, P100", "cuBLAS, P100")):
        columns[name] = [PAPER[p][i] for p in shown]
    problem = document["column_major"]
    extents = "×".join(str(problem[x]) for x in "mnk")
    notes = [
        f"{extents}, column-major, on {document['device']}; the paper's on a Tesla P100",
        "occupancy: warps that are resident at the beginning / warps that the device holds; active: mean over the time",
        *(f"{row['name']}: {row['main']['name']}" for row in document["libraries"]),
        *(f"{row['name']}: {row['note']}" for row in document["libraries"] if row["note"]),
    ]
    chart = Bars(
        f"Section 8.1: {extents} on {document['device']}", [p.removesuffix(", %") for p in shown], columns, "%"
    )
    return PaperTable(("property", *names, "ISAAC, P100", "cuBLAS, P100"), rows, notes, chart)


def _properties(row: Document) -> dict[str, Any]:
    """Property -> value for a library's kernel, in the order of the table."""
    config, main, tile = row.get("config") or {}, row["main"], row.get("tile") or (None, None)
    return {
        "µs": row["us"],
        "TFLOP/s": row["tflops"],
        "M_L": tile[0],
        "N_L": tile[1],
        "U": config.get("u"),
        "K_L": config.get("kl"),
        "K_G": row["splits"],
        "grid": "×".join(map(str, main["grid"])),
        "threads": math.prod(main["block"]),
        "registers": main["registers"],
        "shared memory, KiB": main["shared"] / 1024,
        "blocks of a multiprocessor": main["blocks_sm"],
        "occupancy, %": 100 * row["occupancy"],
        "active, %": row["profile"].get("active_warps"),
        "L2 hit rate, %": row["profile"].get("l2_hit_rate"),
        "kernels of a call": len(row["kernels"]),
    }
