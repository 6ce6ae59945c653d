"""Runs of convolutions on an emulated H200."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.device import Device, device
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner

H200 = device("h200")
TF32 = {"dtype": "f32", "compute": "tf32"}


def verify(
    p: Conv, c: Config, inputs: str, alpha: float = 1.0, beta: float = 0.0, on: Device = H200, **machine: object
) -> None:
    """Executes, and compares with the reference."""
    beta = 0.0 if p.gated else beta
    a, b, before = operands(p, 0, inputs).values()
    if beta == 0:
        before = np.full_like(before, p.output.poison)
    more = epilogue_arrays(p, 0, inputs)
    expected = reference(p, {"A": a, "B": b, "C": before, **more}, alpha, beta)
    out = Runner.of(EmulatedDriver(on, **machine), p, c).compute({"A": a, "B": b, "C": before, **more}, alpha, beta)[
        "C"
    ]
    deviation = compare(out, expected)
    assert deviation.ok, f"{deviation}: {p.key()} | {c}"
    if inputs == "integers" and not p.epilogue:
        assert np.array_equal(out.astype(np.float64), expected.rounded), f"not exact: {p.key()} | {c}"
