"""Random legal tasks: programs of several reductions, arrays of every axis, and configurations of the SIMT family."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from tests.cases import simt
from tests.cases.source import RandomCases, extents

#: what each k adds, with the reduction
STEPS = (
    "accum=min(accum,A[i,k]+B[k,j])",
    "accum=max(accum,A[i,k]+B[k,j])",
    "accum=max(accum,A[i,k]*B[k,j])",
    "accum=max(accum,min(A[i,k],B[k,j]))",
    "accum+=abs(A[i,k]-B[k,j])",
    "accum=max(accum,abs(A[i,k]-B[k,j]))",
    "accum+=A[i,k]*B[k,j]+max(A[i,k]*B[k,j]-r[i],0)",
    "accum+=w[k]*(A[i,k]-B[k,j])*(A[i,k]-B[k,j])",
    "accum=min(accum,w[k]+A[i,k]*B[k,j]-c[j])",
    "accum+=A[i,k]*B[k,j]",
    "accum=max(accum,A[i,k]*d[i,k]-B[k,j]*e[j,k])",
    "accum+=t[i,j]*abs(A[i,k]-B[k,j])",
    "accum=argmin(accum,(A[i,k]+B[k,j],k))",
    "accum=argmax(accum,(w[k]*abs(A[i,k]-B[k,j]),k))",
    "accum=min(accum,v[j,i]+A[i,k]+B[k,j]+KIND(i+2*j-k))",
)
VALUES = ("accum", "accum+v[j,i]", "accum*s", "max(accum,t[i,j])+r[i]", "accum>c[j]?accum:s-accum", "accum+t[i,j]*c[j]")
AXES = {"r": "i", "c": "j", "w": "k", "t": "i,j", "v": "j,i", "d": "i,k", "e": "j,k"}


def text(step: str, value: str, dtype: str) -> str:
    """The program of a step and a value, of arrays of one type."""
    step = step.replace("KIND", dtype)
    if "arg" in step:  # a position is an integer
        value = value.replace("accum", f"{dtype}(accum)")
    body = step + value
    arrays = [f"{name}:{dtype}[{axes}];" for name, axes in AXES.items() if f"{name}[" in body]
    scalar = f"s:{dtype};" if "accum*s" in value or "s-accum" in value else ""
    head = f"A:{dtype}[i,k];B:{dtype}[k,j];{''.join(arrays)}{scalar}"
    return f"{head}where(i,j){{reduce(k){{{step};}}C[i,j]={value};}}"


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A random task: program, type, layout, extents, leading dimensions longer than rows."""
    m, n, k = extents(rng, limit)
    dtype = ("f32", "f32", "f64")[rng.integers(3)]
    program = text(STEPS[rng.integers(len(STEPS))], VALUES[rng.integers(len(VALUES))], dtype)
    return Task(m, n, k, LAYOUTS[rng.integers(4)], dtype, text=program)


def config(p: Task, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    return simt.config(p, d, rng, threads)


SOURCE = RandomCases("task", problem, config, seeds=(41,))
