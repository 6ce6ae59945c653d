"""The baseline Triton for reductions of rows: a block computes tiles of results along its rows, and keeps the states of
the rows.

Steps are outer products, as in ``triton_outer``; sums of f32 products are also computed by ``tl.dot``, in the precision
of the task: f32, tf32, or three tf32 products in place of products of bf16 planes. Each block has a part of the
columns, so that there are enough blocks; a second kernel joins the states of the parts. Outer products keep a state for
each element of the tile, which is reduced once, after the last tile; ``tl.dot``, whose tiles are larger, and the
logarithm of a sum reduce each tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ptxgen.errors import LaunchError
from ptxgen.expr.node import constant, substituted
from ptxgen.expr.python_text import TRITON, type_in
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.operations.task.assembling import mapped
from ptxgen.operations.task.baselines.checked import FACTOR, Candidate, TaskBaseline
from ptxgen.operations.task.baselines.libraries import load_triton, module_of
from ptxgen.operations.task.baselines.operands import (
    DEPTH,
    TILE,
    downloaded,
    on_device,
    padded_arrays,
    padded_extents,
    rows_of,
)
from ptxgen.operations.task.baselines.parts import Parts
from ptxgen.operations.task.baselines.tensors import on_stream, tensor
from ptxgen.operations.task.baselines.triton_outer import TILES, Tile, blocks_of, inputs_of
from ptxgen.operations.task.lowering import algebra_of
from ptxgen.operations.task.oracle import Dense, difference, evaluate
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import POSITIONS, RowReduce
from ptxgen.operations.task.text_blocks import filled
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.vendor_libraries import load_torch

#: tiles of ``tl.dot`` on tensor cores; the depth of a step is at most 64, and divides K
DOT_TILES = (Tile(128, 128, 64, 8), Tile(128, 256, 64, 8), Tile(128, 128, 32, 4))
#: the tile of ``tl.dot`` of f32, which Triton unrolls as FMAs: larger ones compile for a minute
F32_DOT_TILES = (Tile(128, 128, 32, 8),)
#: the tiles of outer products with states of elements
SMALL_TILES = (Tile(32, 64, 8, 4), Tile(64, 64, 8, 4))
BLOCKS = 1024  #: the approximate number of blocks of a launch
PARTS = 64  #: the most parts of the columns
LARGEST = 1 << 24  #: the most columns whose indices are different as f32
SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def kernel(A, B, S, «arrays»M, N, K, MP, NP, KP, SPLIT, BM: tl.constexpr, BN: tl.constexpr, STEPS: tl.constexpr,
           DOT: tl.constexpr, BY_ELEMENTS: tl.constexpr):
    block = tl.program_id(0)
    i = block % (MP // BM) * BM + tl.arange(0, BM)
    part = block // (MP // BM)
    «start»
    if BY_ELEMENTS:
        «start_elements»
    for first_j in tl.range(part * SPLIT, tl.minimum((part + 1) * SPLIT, NP), BN):
        j = first_j + tl.arange(0, BN)
        accum = tl.full((BM, BN), «identity», «type»)
        «vectors»
        if DOT:
            step = tl.arange(0, STEPS)
            at_a, at_b = A + i[:, None] * KP + step[None, :], B + step[:, None] + j[None, :] * KP
            for first_k in tl.range(0, KP, STEPS):
                accum = tl.dot(tl.load(at_a), tl.load(at_b), accum, input_precision="«precision»")
                at_a += STEPS
                at_b += STEPS
        else:
            at_a, at_b = A + i, B + j
            for first_k in tl.range(0, KP, STEPS):
                for step in tl.static_range(STEPS):
                    k = first_k + step
                    a = tl.load(at_a + step * MP)[:, None]
                    b = tl.load(at_b + step * NP)[None, :]
                    «along_k»
                    «step»
                at_a += STEPS * MP
                at_b += STEPS * NP
        «elements»
        «value»
        x = «counted»
        if BY_ELEMENTS:
            «join_elements»
        else:
            «of_tile»
            «join»
    if BY_ELEMENTS:
        «of_elements»
        «join»
    at = S + part * («states» * MP) + i
    «store»


@triton.jit
def joined(S, N, C, MP, PARTS, BM: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    «start»
    for part in tl.range(0, PARTS, 1):
        at = S + part * («states» * MP) + i
        «load»
        «join»
    tl.store(C + i, «finish»)
"""


class States(NamedTuple):
    """The texts of a reduction with the states ``s0``, ``s1``. ``start``: the initial states; ``missing``: the value of
    columns beyond N; ``of_tile``: the states ``t0``, ``t1`` of a tile ``x``; ``join``: the lines that join ``t0``,
    ``t1`` to ``s0``, ``s1``; ``finish``: the result. ``elements``: the same with the states ``e0``, ``e1`` of elements:
    the lines that start them, that join a tile ``x``, and that make ``t0``, ``t1``; empty: there is no such form."""

    start: tuple[str, ...]
    missing: str
    of_tile: tuple[str, ...]
    join: tuple[str, ...]
    finish: str = "s0"
    elements: tuple[tuple[str, ...], ...] = ()


_LOWEST, _HIGHEST = 'float("-inf")', 'float("inf")'


def _values(start: str, reduce: str, join: str) -> States:
    elements = (
        (f"e0 = tl.full((BM, BN), {start}, «type»)",),
        (join.format("e0", "x"),),
        (f"t0 = tl.{reduce}(e0, axis=1)",),
    )
    return States((start,), start, (f"tl.{reduce}(x, axis=1)",), (join.format("s0", "t0"),), elements=elements)


def _position(op: str, start: str, test: str) -> States:
    elements = (
        (f"e0 = tl.full((BM, BN), {start}, «type»)", "e1 = tl.full((BM, BN), 0, tl.int32)"),
        (f"better = x {test} e0", "e1 = tl.where(better, first_j, e1)", "e0 = tl.where(better, x, e0)"),
        (
            f"t0 = tl.{op}(e0, axis=1)",
            "columns = e1 + tl.arange(0, BN)[None, :]",
            f"t1 = tl.min(tl.where(e0 == t0[:, None], columns, {LARGEST}), axis=1).to(«type»)",
        ),
    )
    return States(
        (start, "0.0"),
        start,
        (f"tl.{op}(x, axis=1)", f"(first_j + tl.arg{op}(x, axis=1)).to(«type»)"),
        (f"better = t0 {test} s0", "s1 = tl.where(better, t1, s1)", "s0 = tl.where(better, t0, s0)"),
        "s1.to(tl.int32)",
        elements,
    )


_SUM = _values("0.0", "sum", "{0} += {1}")
STATES = {
    "+": _SUM,
    "mean": _SUM._replace(finish="s0 / N"),
    "max": _values(_LOWEST, "max", "{0} = tl.maximum({0}, {1})"),
    "min": _values(_HIGHEST, "min", "{0} = tl.minimum({0}, {1})"),
    "argmin": _position("min", _HIGHEST, "<"),
    "argmax": _position("max", _LOWEST, ">"),
    "logsumexp": States(
        (_LOWEST, "0.0"),
        _LOWEST,
        ("tl.max(x, axis=1)", "tl.sum(tl.exp(x - t0[:, None]), axis=1)"),
        (
            "most = tl.maximum(s0, t0)",
            "s1 = s1 * tl.exp(s0 - most) + t1 * tl.exp(t0 - most)",
            "s0 = most",
        ),
        "s0 + tl.log(s1)",
    ),
}
#: value of ``compute`` -> how Triton multiplies
_PRECISION = {"f32": "ieee", "tf32": "tf32", "f32_bf16x6": "tf32x3"}


def reduced_output(p: Task) -> RowReduce:
    """The output of a task that reduces rows. LaunchError: the task has another output."""
    program, output = p.program, p.program.outputs[0]
    if len(program.outputs) > 1 or not isinstance(output, RowReduce) or output.axis != "i" or p.batch > 1:
        raise LaunchError("the kernel reduces rows of one item; the task has another output")
    if program.when is not None or output.op not in STATES or program.reduction in POSITIONS:
        raise LaunchError(f"the kernel reduces all results of a row by {', '.join(STATES)}; the task does not")
    if not type_of(output.value.type).floating or p.n > LARGEST:
        raise LaunchError(f"the kernel reduces floats of up to {LARGEST} columns; the task does not")
    return output


def uses_dot(p: Task) -> bool:
    """True if steps are products of floats that ``tl.dot`` sums, and K has the depth that it needs."""
    known = algebra_of(p.roles) is PLUS_TIMES and p.compute in _PRECISION and p.roles.use("A").dtype == "f32"
    return known and p.k >= DEPTH


def source_of(parts: Parts) -> str:
    """The source of the module with the kernels. DtypeError: Triton lacks an operator or a type."""
    output = reduced_output(parts.problem)
    value_type, states = type_in(TRITON, parts.value.type), STATES[output.op]
    blocks, words = blocks_of(parts, TRITON, "tl")
    numbers = range(len(states.start))
    blocks |= {
        "start": [f"s{n} = tl.full((BM,), {states.start[n]}, {value_type})" for n in numbers],
        "of_tile": [f"t{n} = {states.of_tile[n].replace('«type»', value_type)}" for n in numbers],
        "join": list(states.join),
        "store": [f"tl.store(at + {n} * MP, s{n})" for n in numbers],
        "load": [f"t{n} = tl.load(at + {n} * MP)" for n in numbers],
    }
    elements = states.elements or (("pass",),) * 3
    for name, lines in zip(("start_elements", "join_elements", "of_elements"), elements, strict=True):
        blocks[name] = [line.replace("«type»", value_type) for line in lines]
    masked = f"tl.where((j < N)[None, :], {words['result']}, {states.missing})"
    words["counted"] = words["result"] if parts.problem.n % TILE == 0 else masked
    words |= {"states": str(len(states.start)), "finish": states.finish}
    return filled(SOURCE, blocks, words | {"precision": _PRECISION.get(parts.problem.compute, "ieee")})


def tiles_of(p: Task) -> list[tuple[bool, Tile]]:
    """The three to five kernels that are timed: each compiles for seconds. (True if steps are ``tl.dot``, tile). Up to
    DEPTH steps are unrolled."""
    dot = uses_dot(p)
    if dot and p.compute != "f32":
        return [(True, tile) for tile in DOT_TILES]
    few = p.k <= DEPTH
    small = SMALL_TILES if STATES[reduced_output(p).op].elements else ()
    outer = (*small, *(TILES[:1] if few or dot else TILES))
    tiles = [(False, tile._replace(steps=p.k) if few else tile) for tile in outer]
    return [*((True, tile) for tile in F32_DOT_TILES if dot), *tiles]


class TritonRows(TaskBaseline):
    """The kernels of ``tiles_of``. Operands are padded to whole tiles, and stored K-major or by rows, before the
    timing."""

    title = "Triton"
    errors: tuple[type[Exception], ...] = (Exception,)  # its compiler raises its own

    def __init__(self, driver: Any, problem: Task, addresses: Mapping[str, int] | None = None) -> None:
        super().__init__(driver, problem, addresses)
        self.parts = Parts(problem)
        try:
            self.states = len(STATES[reduced_output(problem).op].start)
        except LaunchError as error:
            raise LaunchError(f"{self.title} does not compute {problem.key()}: {error}") from error

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        with on_stream(load_torch(), self.driver):
            return super().best(sets, timing)

    def checked(self, sets: Sequence[Mapping[str, int]]) -> Iterator[tuple[Candidate, str]]:
        p, driver = self.problem, self.driver
        arrays, rows = downloaded(driver, p, sets[0]), self.sampled_rows()
        part, some = rows_of(p, arrays, rows)
        program = mapped(p.program, lambda x: substituted(x, {"M": constant(p.m, "s32")}))  # the oracle has fewer
        expected = evaluate(program, {**some, **p.typical_scalars}, {"i": part.m, "j": p.n, "k": p.k})["C"]
        assert isinstance(expected, Dense)
        m, _, _ = padded_extents(p)
        states = self.states * m * PARTS * 8
        whole = padded_arrays(self.parts, arrays)
        if uses_dot(p):
            whole |= {f"{name} by rows": np.ascontiguousarray(whole[name].T) for name in "AB"}
        with on_device(driver, whole, states + 8 * m, len(sets)) as made:
            for candidate in self.candidates(made, states):
                driver.fill(made[0]["C"], states + 8 * m, 0xFF)
                try:
                    candidate.launches[0]()  # compiles
                except self.errors as error:
                    driver.synchronize()  # raises if the context is lost
                    yield candidate, str(error).strip().partition("\n")[0]
                    continue
                driver.synchronize()
                got = np.empty(m, p.output.numpy)
                driver.download(made[0]["C"] + states, got)
                yield candidate, difference(expected, got[rows], FACTOR)

    def candidates(self, sets: Sequence[Mapping[str, int]], states: int) -> Iterator[Candidate]:
        """The candidates of the baseline. ``sets``: addresses of padded arrays and of C; ``states``: bytes of the
        states of parts of rows, which are in C."""
        load_triton()
        torch, p = load_torch(), self.problem
        module = module_of(source_of(self.parts))
        m, n, k = padded_extents(p)
        for dot, tile in tiles_of(p):
            if n % tile.bn or n - p.n >= tile.bn:  # a tile of padding alone has no greatest element
                continue
            tiles, columns = m // tile.bm, n // tile.bn
            split = tile.bn * -(-columns // min(max(BLOCKS // tiles, 1), PARTS, columns))
            parts = -(-n // split)
            steps = math.gcd(k, tile.steps) if dot else tile.steps
            by_elements = not dot and bool(STATES[reduced_output(p).op].elements)
            own = {"STEPS": steps, "DOT": dot, "BY_ELEMENTS": by_elements, "num_warps": tile.warps}
            depth = k if dot else -(-p.k // steps) * steps
            launches: list[Callable[[], object]] = []
            for each in sets:
                a, b, *others = inputs_of(torch, self.parts, each)
                if dot:
                    by_rows = ((name, (rows, k)) for name, rows in (("A", m), ("B", n)))
                    a, b = (tensor(torch, each[f"{name} by rows"], shape, "f32") for name, shape in by_rows)
                s = tensor(torch, each["C"], (parts, self.states, m), self.parts.value.type)
                c = tensor(torch, each["C"] + states, (m,), p.out)
                main = (a, b, s, *others, p.m, p.n, p.k, m, n, depth, split)
                launches.append(partial(_launch, module, tile, tiles, parts, main, own, (s, p.n, c, m, parts)))
            yield Candidate(f"{tile.bm}×{tile.bn}, {tile.warps} warps{', tl.dot' if dot else ''}", launches)


def _launch(
    module: Any, tile: Tile, tiles: int, parts: int, main: tuple[Any, ...], own: Mapping[str, Any], last: Any
) -> None:
    module.kernel[(tiles * parts,)](*main, BM=tile.bm, BN=tile.bn, **own)
    module.joined[(tiles,)](*last, BM=tile.bm, num_warps=4)
