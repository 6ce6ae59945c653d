"""Random legal tasks with one array on both sides, of which the pairs with i ≤ j are computed."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from tests.cases import mma, simt, wgmma
from tests.cases.source import RandomCases, extents

#: what each k adds, with the reduction; X is the array, of floats or integers
STEPS = (
    "accum+=max(X[i,k],X[j,k])*max(X[i,k],X[j,k])",
    "accum+=abs(X[i,k]-X[j,k])",
    "accum=max(accum,(X[j,k]-X[i,k])*(X[j,k]-X[i,k]))",
    "accum=min(accum,w[k]+(X[i,k]+X[j,k]))",
    "accum+=X[i,k]*X[j,k]*w[k]",
    "accum+=(v[i,j]+v[j,i])*min(X[i,k],X[j,k])",
    "accum=max(accum,r[i]*r[j]-abs(X[i,k]-X[j,k]))",
    "accum=argmin(accum,(abs(X[i,k]-X[j,k]),k))",
)
PRODUCT = "accum+=X[i,k]*X[j,k]"
PAIRS = ("", "", "", "i!=j", "abs(i-j)<20", "r[i]<r[j] or r[j]<r[i]")
#: results need not be symmetric
OUTPUTS = (
    "C[i,j]=accum",
    "C[i,j]=accum+c[j]",
    "C[i,j]=r[i]<c[j]?v[i,j]:v[j,i]",
    "C[i,j]=accum>s",
    "accum>s?L.add(accum,i,j)",
    "accum>s and i<j+3?L.add(j,i)",
    "accum<=r[i]?L.add(i,accum,c[j])",
    "true?L.add(i,j,v[i,j])",
    "false?L.add(accum)",
    "C[i]=min(C[i],accum+c[j])",
    "C[j]=argmin(C[j],accum)",
    "C[i]=argmax(C[i],accum*r[i]-c[j])",
    "C[j]+=accum>s",
    "C[j]=mean(C[j],f32(accum))",
    "C[i]=logsumexp(C[i],f32(accum))",
    "C[g[i],h[j]]=max(C[g[i],h[j]],accum+c[j])",
    "C[h[j],g[i]]+=accum>s",
)
AXES = {"w": "k", "r": "i", "c": "j", "v": "i,j", "g": "i", "h": "j"}
GROUPS = "9,9"


def text(step: str, pairs: str, output: str, dtype: str, kmajor: bool) -> str:
    """The program of a step, the pairs that are computed and an output. ``kmajor``: rows of X are contiguous."""
    if "arg" in step:  # a position is an integer
        output = output.replace("accum", f"{dtype}(accum)")
    body = f"{pairs} {step} {output}"
    kinds = {name: "s32" if name in "gh" else dtype for name in AXES}
    arrays = [f"{name}:{kinds[name]}[{axes}];" for name, axes in AXES.items() if f"{name}[" in body]
    scalar = f"s:{dtype};" if ">s" in body else ""
    when = f"when({pairs})" if pairs else ""
    program = f"X:{dtype}[i,k];{''.join(arrays)}{scalar}where(i,j){when}{{reduce(k){{{step};}}{output};}}"
    return (
        program
        if kmajor
        else program.replace("X[i,k]", "X[k,i]").replace("X[j,k]", "X[k,j]").replace("[i,k];", "[k,i];")
    )


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A random task of one array."""
    m, _, k = extents(rng, limit)
    dtype = ("f32", "f32", "f64", "s32")[rng.integers(4)]
    step, output = STEPS[rng.integers(len(STEPS))], OUTPUTS[rng.integers(len(OUTPUTS))]
    compute = ""
    if rng.random() < 0.3 and dtype != "s32":
        step, output = PRODUCT, OUTPUTS[rng.integers(1, len(OUTPUTS))]  # C[i,j]=accum is a GEMM
        compute = "tf32" if dtype == "f32" and d.sm >= 80 else ""
    program = text(step, PAIRS[rng.integers(len(PAIRS))], output, dtype, rng.random() < 0.5)
    capacity = int(rng.choice([0, 1, m * m // 3, m * m]))
    groups = GROUPS if "g[" in output else ""
    task = Task(m, m, k, "", dtype, compute, text=program, capacity=capacity, groups=groups)
    assert task.mirrored, program
    return task


def config(p: Task, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    if p.compute == "tf32" and d.sm in wgmma.SMS and rng.random() < 0.5:
        return wgmma.config(p, d, rng, threads)
    product = p.compute == "tf32" or (p.dtype == "f64" and p.program.step.op == "*" and d.sm >= 80)
    return (mma if product and lower(p).algebra is PLUS_TIMES else simt).config(p, d, rng, threads)


SOURCE = RandomCases("task_mirrored", problem, config, seeds=(47,))
