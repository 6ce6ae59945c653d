"""Random legal tasks whose bits are counted by tensor cores: of words, and of bytes with a truth value each."""

from __future__ import annotations

import numpy as np

from ptxgen.lowering.bit_products import FIRST, LAST
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from tests.cases import mma
from tests.cases.source import RandomCases, extents

#: type of A and B -> the steps
STEPS = {
    "u32": ("accum+=popcount(A[i,k]&B[k,j])", "accum+=popcount(A[i,k]^B[k,j])", "accum|=A[i,k]&B[k,j]"),
    "u8": ("accum|=A[i,k]!=0 and B[k,j]!=0", "accum+=(A[i,k]!=0)!=(B[k,j]!=0)"),
    "s8": ("accum+=A[i,k]!=0 and B[k,j]!=0", "accum|=(A[i,k]!=0)!=(B[k,j]!=0)"),
}
OUTPUTS = (
    "C[i,j]=accum!=0",
    "C[i,j]=VALUE",
    "accum!=0?L.add(i,j)",
    "C[i]=max(C[i],VALUE)",
    "C[j]argmin=VALUE",
    "C[g[i],h[j]]+=VALUE",
)


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A random task: step, type, layout, extents, output. A reduction of words by | is only compared with 0."""
    m, n, k = extents(rng, limit)
    name = list(STEPS)[rng.integers(len(STEPS))]
    step = STEPS[name][rng.integers(len(STEPS[name]))]
    value = "s32(accum!=0)" if "|" in step else "accum"
    output = OUTPUTS[rng.integers(len(OUTPUTS))].replace("VALUE", value)
    keys = "g:s32[i];h:s32[j];" if "g[i]" in output else ""
    text = f"A:{name}[i,k];B:{name}[k,j];{keys}where(i,j){{reduce(k){{{step};}}{output};}}"
    capacity = m * n if "L.add" in output else 0
    return Task(m, n, k, LAYOUTS[rng.integers(4)], text=text, capacity=capacity, groups="5,3" if keys else "")


SOURCE = RandomCases("task_bits", problem, mma.config, limit=90, sms=range(FIRST, LAST + 1), seeds=(47,))
