"""ptxas assembles random legal configurations of these families for targets that have their instructions, without
spills, or with few where a configuration asks for three blocks or more a multiprocessor."""

from __future__ import annotations

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.runtime.assemble import assemble
from tests.cases import SOURCES

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
#: case source -> how many cases for a target
COUNTS = {
    "compressed_tiles": 1,
    "element_groups": 1,
    "mma": 1,
    "mma_scaled": 1,
    "grouped_mma_scaled": 1,
    "simt": 1,
    "skinny": 1,
    "spmm": 1,
    "spmm shared_slab": 1,
    "task": 1,
    "task_bits": 1,
    "task_pairs": 1,
    "task_reduce": 1,
    "task_select": 1,
    "tca": 1,
    "vector_mma": 1,
    "winograd": 1,
    "winograd_4x4": 1,
}
#: bytes that ptxas may spill where min_ctas_per_sm leaves a thread few registers
FEW_BYTES = 32
#: sources with targets, each with every third one of the others
PAIRS = [
    (name, t)
    for i, name in enumerate(COUNTS)
    for j, t in enumerate(TARGETS)
    if (i + j) % 3 == 0 and SOURCES[name].supports(device(t))
]


@pytest.mark.parametrize(("family", "target"), PAIRS)
def test_random_configurations_assemble_without_spills(family, target, draws, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d = device(target)
    for p, c in SOURCES[family].cases(100 + int(target[3:]), draws * COUNTS[family], d, limit=600):
        made = assemble(render(plan_for(p, c, d)))
        assert made.cubin
        most = FEW_BYTES if c.min_ctas_per_sm > 2 else 0
        assert max(made.spills.values(), default=0) <= most, f"{p.key()} | {c}: {made.spills}"


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_packing_kernels_assemble_for_the_oldest_target(dtype: str, tmp_path, monkeypatch) -> None:
    """Exchanged and shifted copies."""
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    vec, d = (4 if dtype == "f32" else 8), device("sm_75")
    c = parse_config(
        f"family=simt ms=4 ns=4 ml=32 nl=32 u=16 cp_async_a=0 cp_async_b=0 vec_a={vec} vec_b={vec}"
        " operand_path_a=pack operand_path_b=pack"
    )
    for extents, layout in (("41,75,67", "NT"), ("41,75,68", "NT"), ("41,75,67", "TN")):
        made = assemble(render(plan_for(parse(f"gemm {extents} {layout} {dtype}"), c, d)))
        assert made.cubin, made.log
        assert not any(made.spills.values()), made.log
