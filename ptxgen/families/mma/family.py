"""The family mma: products by the tensor-core instruction mma.sync."""

from __future__ import annotations

from functools import partial

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.common.tile_family import TileFamily, complex_products, thread_products
from ptxgen.families.mma import axes, rules
from ptxgen.families.mma.candidates import MmaSpace
from ptxgen.families.mma.geometry import counts, geometry
from ptxgen.families.registry import (
    FUSES_EPILOGUES,
    LOOPS_OVER_ITEMS,
    READS_ELEMENTS,
    Probe,
    class_in,
    function_in,
    module,
)
from ptxgen.lowering.strided import matrix_product


def _probes() -> tuple[Probe, ...]:
    near = "family=mma vec_a=8 vec_b=8 vec_c=4 "
    configs = (
        parse_config(near + "ms=32 ns=64 ml=64 nl=128 u=32 kg=3 splitk=workspace epilogue_smem=1"),
        parse_config(
            near + "ms=16 ns=16 ml=32 nl=32 u=64 kl=2 fragment_prefetch=0 operand_path_a=pack operand_path_b=pack"
        ),
    )
    return ((matrix_product(512, 768, 4096, "NT", "f16"), configs),)


FAMILY = TileFamily(
    name="mma",
    axes=axes.AXES,
    geometry=geometry,
    counts=counts,
    rules=rules.RULES,
    candidates=MmaSpace(),
    model=module("ptxgen.families.mma.perf_model"),
    rate=function_in("ptxgen.families.common.perf_costs", "mma_rate"),
    thread_products=lambda c: thread_products(c) // WARP,
    plan=class_in("ptxgen.families.mma.plan", "MmaPlan"),
    provides=READS_ELEMENTS
    | LOOPS_OVER_ITEMS
    | FUSES_EPILOGUES
    | {"block_scaled", "common_bits", "complex_plus_times", "different_bits", "truth_words", "scatter"},
    grouped_model=module("ptxgen.families.common.perf_grouped"),
    training_class=partial(complex_products, "mma"),
    probes=_probes,
    instructions=("mma.sync",),
)
