"""Random programs of tasks, called with arrays on the emulated device: every element is that of the oracle."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

import ptxgen
from ptxgen.expr.node import walk
from ptxgen.operations.task.assembling import roots
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.oracle import difference, evaluate
from tests.random_programs import Choices, random_arrays, random_program, square

#: what kernels have
KERNELS = Choices(
    reductions=("+", "*", "max", "min", "fmax", "fmin", "&", "|", "^", "mean", "argmin", "argmax"),
    outputs=("store", "aggregate", "rows"),
    step_axes=(("i",), ("j",), ("k",), ("i", "j"), ("j", "i")),
    sides=True,
    narrow=False,
    most=1,
)
TYPES = (("f32",), ("bf16",), ("f32", "s32", "u8"), ("f16", "u16", "s16"))
PARTS = 4
#: functions of finite numbers that are not always finite: laws of finite numbers do not hold for their values
PARTIAL = {"/", "sqrt", "rsqrt", "exp", "exp2", "log", "log2"}


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part: int) -> None:
    """``PTXGEN_TEST_PROGRAMS`` is their number."""
    for seed in range(part, int(os.environ.get("PTXGEN_TEST_PROGRAMS", "16")), PARTS):
        draw = Random(seed)
        program = random_program(draw, replace(KERNELS, types=TYPES[seed // PARTS % len(TYPES)]))
        extents = {axis: n for group in square(program) for n in [draw.choice((0, 1, 7, 16, 17, 33))] for axis in group}
        special = draw.choice((0.0, 0.0, 0.1))
        arrays = random_arrays(program, extents, draw, special=special)
        given = {x.name: arrays[x.name] if x.uses else arrays[x.name][()] for x in program.inputs}
        finite = not special and PARTIAL.isdisjoint(x.op for x in walk(*roots(program)))
        got = ptxgen.task(canonical(program))(**given, algebra=finite)
        wrong = difference(evaluate(program, arrays, extents)["C0"], got)
        assert not wrong, f"{seed}: {canonical(program)}, {extents}: {wrong}"
