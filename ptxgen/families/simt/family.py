"""The family simt: products by multiply-adds of CUDA cores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ptxgen.codegen.config.config import SPLIT_WORKSPACE, Config
from ptxgen.families.common.fma import axes, rules
from ptxgen.families.common.fma.candidates import FmaSpace
from ptxgen.families.common.fma.geometry import counts, geometry
from ptxgen.families.common.tile_family import TileFamily, complex_products
from ptxgen.families.registry import FUSES_EPILOGUES, LOOPS_OVER_ITEMS, READS_ELEMENTS, Probe, function_in, module
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import matrix_product
from ptxgen.problem.device import Device

if TYPE_CHECKING:
    from ptxgen.codegen.mixed_tiles import MixedTiles
    from ptxgen.codegen.plan import Plan


def _probes() -> tuple[Probe, ...]:
    configs = Config(), Config(ms=4, ns=8, ml=32, u=32, kl=2, kg=7, splitk=SPLIT_WORKSPACE)
    return (matrix_product(512, 768, 1024, "TN"), configs), (matrix_product(32, 2560, 5120, "NT"), configs)


def _plan(p: KernelProblem, c: Config) -> type[Plan]:
    from ptxgen.families.simt.plan import GlobalFragmentPlan, SimtPlan

    return SimtPlan if c.stages else GlobalFragmentPlan


def _mixed_tiles(p: KernelProblem, configs: Sequence[Config], d: Device, most_registers: int, grid: bool) -> MixedTiles:
    from ptxgen.families.simt.mixed_tiles import mixed_tiles

    return mixed_tiles(p, configs, d, most_registers, grid)


FAMILY = TileFamily(
    name="simt",
    axes=axes.AXES,
    geometry=geometry,
    counts=counts,
    rules=rules.RULES,
    candidates=FmaSpace("simt"),
    model=module("ptxgen.families.common.fma.perf_model"),
    rate=function_in("ptxgen.families.common.perf_costs", "fma_rate"),
    plan=_plan,
    mixed_tiles=_mixed_tiles,
    provides=READS_ELEMENTS
    | LOOPS_OVER_ITEMS
    | FUSES_EPILOGUES
    | {"complex_plus_times", "packed_operands", "inner_expression", "scatter"},
    grouped_model=module("ptxgen.families.common.perf_grouped"),
    calibrated=function_in("ptxgen.families.common.perf_grouped", "calibrated"),
    training_class=partial(complex_products, "simt"),
    probes=_probes,
)
