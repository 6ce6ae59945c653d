"""The family quantized_mma: products with quantized weights, dequantized in registers."""

from __future__ import annotations

from typing import Any

from ptxgen.families.common.tile_family import TileFamily
from ptxgen.families.quantized_mma import axes, rules
from ptxgen.families.quantized_mma.candidates import QuantizedMmaSpace
from ptxgen.families.quantized_mma.geometry import counts, geometry
from ptxgen.families.registry import STORES_PRODUCTS, class_in, function_in, module


def _thread_products(c: Any) -> Any:
    """The multiply-adds per iteration for the sums that a lane holds."""
    return c.ms * c.ns * c.u // c.kl


FAMILY = TileFamily(
    name="quantized_mma",
    axes=axes.AXES,
    geometry=geometry,
    counts=counts,
    rules=rules.RULES,
    candidates=QuantizedMmaSpace(),
    model=module("ptxgen.families.quantized_mma.perf_model"),
    rate=function_in("ptxgen.families.quantized_mma.perf_model", "rate"),
    thread_products=_thread_products,
    plan=class_in("ptxgen.families.quantized_mma.plan", "QuantizedMmaPlan"),
    provides=STORES_PRODUCTS | {"strided", "quantized_rows", "store_gated", "item_rows", "item_rows_output"},
    instructions=("mma.sync",),
    scope="products of 16-bit activations and quantized weights",
)
