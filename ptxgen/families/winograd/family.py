"""The families winograd and winograd_4x4: 3x3 convolutions with fewer multiplications on CUDA cores, over tiles of 2x2
and of 4x4 results."""

from __future__ import annotations

from functools import partial

from ptxgen.codegen.config.config import Config
from ptxgen.families import registry
from ptxgen.families.common.fma.geometry import counts, geometry
from ptxgen.families.common.tile_family import TileFamily
from ptxgen.families.registry import Probe, class_in, function_in, module
from ptxgen.families.winograd import axes, rules
from ptxgen.families.winograd.axes import TILES
from ptxgen.families.winograd.candidates import WinogradSpace
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.lowering.winograd import capability, winograd
from ptxgen.problem.registry import parse


def _training_class(family: str, p: KernelProblem) -> str:
    algorithm = winograd(registry.FAMILIES[family].form(p))
    return f"{family} weight_grad" if algorithm is not None and algorithm.weight_grad else ""


def _probes(family: str) -> tuple[Probe, ...]:
    configs = Config(family=family), Config(family=family, ml=128, nl=128, vec_a=4, vec_b=4, vec_c=4)
    return ((lower(parse("conv N=8,C=64,H=56,W=56,K=64,R=3,S=3,pad=1 NCHW f32")), configs),)


def _family(name: str) -> TileFamily:
    return TileFamily(
        name=name,
        axes=axes.AXES,
        geometry=geometry,
        counts=counts,
        rules=rules.rules_of(name),
        candidates=WinogradSpace(name),
        model=module("ptxgen.families.winograd.perf_model"),
        rate=function_in("ptxgen.families.common.perf_costs", "fma_rate"),
        plan=class_in("ptxgen.families.winograd.plan", "WinogradPlan"),
        provides=frozenset(("plus_times", "store_tile", *(capability(TILES[name]) + x for x in ("", "_output")))),
        scope=rules.scope(name),
        exact_integers=TILES[name] == 2,
        training_class=partial(_training_class, name),
        probes=partial(_probes, name),
    )


FAMILY, FAMILY_4X4 = _family("winograd"), _family("winograd_4x4")
