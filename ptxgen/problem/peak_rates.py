"""Peak rates of dense multiply-adds: hardware facts, independent of the instructions that ptxgen generates.

The tensor-core rates are the TFLOPS of the vendor's architecture papers and data sheets (T4, A100, GA102, AD102, H100,
Blackwell, RTX Blackwell), without sparsity, divided by multiprocessors and clock. GeForce GPUs sum f16 and fp8 products
in f32 at half the rate of sums in f16, and multiply f64 at the rate of their scalar units.
"""

from __future__ import annotations

from ptxgen.problem.base import SUMS
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import Dtype, dtype

#: (type of the factors, type of the sums) -> multiply-adds per clock of one multiprocessor's tensor cores
Rates = dict[tuple[str, str], int]


def _rates(
    f16: int, f16_sums: int, s8: int, bf16: int = 0, tf32: int = 0, f64: int = 0, fp8: int = 0, b1: int = 0
) -> Rates:
    """The rates of one architecture by (type of the factors, type of the sums); 0: tensor cores do not have the type.

    ``b1``: words of 32 bits per clock; eight bits take as long as one s8 multiply-add of mma.sync. sm_100 and later
    emulate b1. No paper states the rate of sm_90; the rate of sm_80 is used.
    """
    rates = {
        ("f16", "f32"): f16,
        ("f16", "f16"): f16_sums,
        ("bf16", "f32"): bf16,
        ("tf32", "f32"): tf32,
        ("f64", "f64"): f64,
        ("fp8", "f32"): fp8,
        ("s8", "s32"): s8,
        ("b1", "s32"): b1,
    }
    return {types: rate for types, rate in rates.items() if rate}


#: rates by target; a target without a row has the rates of the nearest target below
TENSOR_RATES = {
    75: _rates(f16=512, f16_sums=512, s8=1024, f64=2),
    80: _rates(f16=1024, f16_sums=1024, s8=2048, bf16=1024, tf32=512, f64=64, b1=512),
    86: _rates(f16=256, f16_sums=512, s8=1024, bf16=256, tf32=128, f64=2, b1=256),
    89: _rates(f16=256, f16_sums=512, s8=1024, bf16=256, tf32=128, f64=2, fp8=512, b1=256),
    90: _rates(f16=2048, f16_sums=2048, s8=4096, bf16=2048, tf32=1024, f64=128, fp8=4096, b1=512),
    100: _rates(f16=4096, f16_sums=4096, s8=8192, bf16=4096, tf32=2048, f64=64, fp8=8192),
    120: _rates(f16=256, f16_sums=512, s8=1024, bf16=256, tf32=128, f64=2, fp8=512),
}

#: value of ``compute`` -> (type that tensor cores multiply, multiply-adds of that type per multiply-add), where the
#: type is not that of A and B
FACTORS = {"tf32": ("tf32", 1), "f32_bf16x6": ("bf16", 6), "b1": ("b1", 1)}


def tensor_rates(sm: int) -> Rates:
    """The tensor-core rates of target ``sm``."""
    return TENSOR_RATES[max((known for known in TENSOR_RATES if known <= sm), default=75)]


def scalar_rate(sums: Dtype, d: Device) -> int:
    """The number of scalar multiply-adds per clock and multiprocessor if sums have the type ``sums``, which may be
    complex."""
    return {8: d.fma64, 2: d.fma16}.get(sums.bytes // sums.parts, d.fma)


def tensor_types(element: Dtype, compute: str) -> tuple[str, str]:
    """The key of ``Rates`` for A and B of type ``element`` and arithmetic ``compute``."""
    factors, _ = FACTORS.get(compute, ("fp8" if element.fp8 else element.real, 1))
    return factors, SUMS.get(compute, compute)


def peak_rate(element: Dtype, compute: str, d: Device) -> float:
    """The most multiply-adds per clock and multiprocessor for ``compute``, over tensor cores and scalar units."""
    types = tensor_types(element, compute)
    _, parts = FACTORS.get(compute, ("", 1))
    return max(tensor_rates(d.sm).get(types, 0) / parts, scalar_rate(dtype(types[1]), d))


def peak_flops(element: Dtype, compute: str, d: Device) -> float:
    """Floating-point operations per second at ``peak_rate``."""
    return 2e6 * d.clock * d.sms * peak_rate(element, compute, d)
