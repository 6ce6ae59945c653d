"""The family tap_products: convolutions with few results per pixel."""

from __future__ import annotations

from ptxgen.families.registry import Family, class_in, module
from ptxgen.families.tap_products import axes, rules
from ptxgen.families.tap_products.candidates import TapSpace
from ptxgen.families.tap_products.geometry import geometry
from ptxgen.lowering.tap_products import LEAST_CHANNELS, MAX_PRODUCTS

FAMILY = Family(
    name="tap_products",
    axes=axes.AXES,
    geometry=geometry,
    rules=rules.RULES,
    candidates=TapSpace(),
    model=module("ptxgen.families.tap_products.perf_model"),
    plan=class_in("ptxgen.families.tap_products.plan", "TapPlan"),
    provides=frozenset(("plus_times", "store_tile", "store_sums", "few_results", "few_results_output")),
    scope="convolutions of NCHW and NHWC, and input gradients with stride 1, without groups, of two dimensions, from 2"
    f" to {MAX_PRODUCTS} taps of all filters and {LEAST_CHANNELS} or more channels",
    instructions=("fma", "mma.sync"),
)
