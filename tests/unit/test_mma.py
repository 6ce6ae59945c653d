"""Layouts of mma.sync kernels: what every lane loads, multiplies and holds, and bank conflicts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.families.common.matrix_instructions import Instruction, instruction
from ptxgen.families.mma.geometry import BYTES, SINGLE, VECTOR
from ptxgen.families.mma.plan import MmaPlan
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.device import device
from ptxgen.tuning import selection
from tests.cases import SOURCES
from tests.lowered import first_violation, space

H200 = device("h200")
TYPES = (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("f32", "tf32"), ("f64", "f64"), ("s8", "s32"))
DEPTH = {16: 8, 1: 64, 2: 32, 4: 16, 8: 16}


def at_a(i: Instruction, lane: int, register: int, n: int = 0) -> tuple[int, int]:
    """The pair (row, k) of element ``n`` of a lane's fragment register of A, k counted within an instruction of ``depth``."""
    g, t = divmod(lane, 4)
    return g + 8 * (register % 2), i.run * (t + 4 * (register // 2)) + n


def at_b(i: Instruction, lane: int, register: int, n: int = 0) -> tuple[int, int]:
    """The pair (k, column) of element ``n`` of a lane's fragment register of B."""
    g, t = divmod(lane, 4)
    return i.run * (t + 4 * register) + n, g


def at_c(lane: int, n: int) -> tuple[int, int]:
    """The pair (row, column) of sum ``n`` of a lane."""
    g, t = divmod(lane, 4)
    return g + 8 * (n // 2), 2 * t + n % 2


def plan(dtype: str, compute: str, layout: str, config: str, target: str = "h200") -> MmaPlan:
    p = Gemm(256, 256, 256, layout, dtype, compute)
    a, b, c = p.vectors
    text = f"family=mma u={DEPTH[p.element.bytes]} vec_a={a} vec_b={b} vec_c={min(c, 2)} {config}"
    made = plan_for(p, parse_config(text), device(target))
    assert isinstance(made, MmaPlan)
    return made


def stage(x, values):
    """An operand's part of a stage in shared memory: the element at each byte at which one starts."""
    memory = {}
    for (mn, k), value in np.ndenumerate(values):
        at = x.at(mn, k)
        assert at not in memory
        memory[at] = value
    assert max(memory) < x.size
    return memory


def lane_start(x, lane: int) -> tuple[int, int]:
    return sum(t.of(lane) for t in x.lane_mn), sum(t.of(lane) for t in x.lane_k)


def address(x, read, lane: int) -> int:
    """The address that a lane reads: its base with flipped bits, and an offset."""
    return (x.at(*lane_start(x, lane)) ^ read.swizzle) + read.offset


def names(registers: str) -> list[str]:
    return registers.strip("{}").split(", ")


def load(x, memory, step: int, buffer: int) -> dict[str, list[list[float]]]:
    """The elements in all lanes' registers after the fragment loads of a step."""
    held: dict[str, list[list[float]]] = {}
    run = max(4 // x.bytes, 1)
    for read in x.fragment_loads(step, buffer):
        if read.ptx_type in ("x2", "x4"):
            for n, name in enumerate(names(read.registers)):
                rows = [address(x, read, 8 * n + i) for i in range(8)]
                held[name] = []
                for lane in range(32):
                    g, t = divmod(lane, 4)
                    if x.kmajor:
                        held[name].append([memory[rows[g] + 4 * t + x.bytes * e] for e in range(run)])
                    else:  # transposed pairs of bytes
                        held[name].append(
                            [
                                memory[rows[2 * t + h] + 2 * g + x.bytes * e]
                                for h in range(2)
                                for e in range(2 // x.bytes)
                            ]
                        )
        else:
            for n, name in enumerate(names(read.registers)):
                held[name] = [[memory[address(x, read, lane) + n * x.bytes]] for lane in range(32)]
    for to, low, high, selector in x.byte_permutes(buffer):
        picks = [int(c) for c in reversed(selector[2:])]
        held[to] = [[(held[low][lane] + held[high][lane])[i] for i in picks] for lane in range(32)]
    return held


#: sides that are no powers of two
UNEVEN = "ms=48 ns=24 ml=96 nl=48"
POWERS = ("ms=32 ns=32 ml=32 nl=64", "ms=16 ns=16 ml=64 nl=32")


@pytest.mark.each_value
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "compute", "target", "tile"),
    [
        *((*t, "h200", tile) for t, tile in product(TYPES, (*POWERS, UNEVEN)) if (t[0], tile) != ("s8", UNEVEN)),
        *(("f64", "f64", "sm_80", tile) for tile in (*POWERS, UNEVEN)),
    ],
)
def test_fragments_give_the_product(dtype, compute, layout, tile, target):
    """Fragments of both operands, loaded as planned and multiplied by the instruction's tables, are the product, at
    each lane's rows and columns."""
    p = plan(dtype, compute, layout, tile, target)
    rng, ins = np.random.default_rng(1), p.mainloop.instruction
    a = rng.integers(-8, 8, (p.a.tile, p.config.u)).astype(float)
    b = rng.integers(-8, 8, (p.b.tile, p.config.u)).astype(float)
    memories = stage(p.a, a), stage(p.b, b)
    sums: dict[str, np.ndarray] = {}
    for step in range(p.mainloop.steps):
        fa, fb = (load(x, m, step, x.buffer(step)) for x, m in zip(p.mainloop.operands, memories, strict=True))
        for i, j in p.mainloop.products:
            for to, rows, columns in p.mainloop.issues(i, j, step):
                left, right = np.zeros((ins.m, ins.k)), np.zeros((ins.k, 8))
                halves = ins.m // 8
                for lane in range(32):
                    for r, name in enumerate(names(rows)):
                        for e, v in enumerate(fa[name][lane]):
                            row, k = at_a(ins, lane, r, e) if halves == 2 else (lane // 4, lane % 4 + 4 * r)
                            left[row, k] = v
                    for r, name in enumerate(names(columns)):
                        for e, v in enumerate(fb[name][lane]):
                            k, column = at_b(ins, lane, r, e)
                            right[k, column] = v
                multiplied = left @ right
                for n, name in enumerate(to):
                    if p.mainloop.packed:
                        at = [[at_c(lane, 2 * n + e) for e in range(2)] for lane in range(32)]
                        add = np.array([[multiplied[place] for place in two] for two in at])
                    else:
                        add = np.array([multiplied[at_c(lane, n)] for lane in range(32)])
                    sums[name] = sums.get(name, 0) + add
    whole = a[: p.a.thread] @ b[: p.b.thread].T
    seen = np.zeros_like(whole)
    for lane in range(32):
        for i in range(p.mainloop.ms):
            for j in range(p.mainloop.ns):
                row = p.a.lane_of_c.of(lane) + p.a.offset(i)
                column = p.b.lane_of_c.of(lane) + p.b.offset(j)
                value = sums[p.mainloop.sum_at(i, j)][lane]
                assert (value[p.b.c_positions[j][2]] if p.mainloop.packed else value) == whole[row, column]
                seen[row, column] += 1
    assert (seen == 1).all()


def conflicts(starts: list[int], width: int) -> int:
    """Wavefronts beyond the minimum: accesses of ``width`` bytes by the lanes of a warp, in order."""
    per = 128 // width
    extra = 0
    for first in range(0, len(starts), per):
        words: dict[int, set[int]] = {}
        for at in starts[first : first + per]:
            for w in range(max(width // 4, 1)):
                words.setdefault((at // 4 + w) % 32, set()).add(at // 4 + w)
        extra += max(len(s) for s in words.values()) - 1
    return extra


SHAPES = [
    f"ms={ms} ns={ns} ml={ml} nl={nl}"
    for ms, ns, ml, nl in ((16, 16, 32, 32), (32, 16, 64, 32), (16, 32, 64, 64), (16, 32, 32, 128))
]
UNEVEN_SHAPES = [UNEVEN, "ms=80 ns=24 ml=80 nl=96", "ms=16 ns=40 ml=32 nl=80"]
#: 8-bit operands that are not K-major have tiles of powers of two
SHAPES_OF_TYPES = [(*t, s) for t in TYPES for s in (*SHAPES, *UNEVEN_SHAPES) if t[0] != "s8" or s in SHAPES]


@pytest.mark.each_value
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "compute", "shape"), SHAPES_OF_TYPES)
def test_fragment_loads_have_no_bank_conflicts(dtype, compute, shape, layout):
    p = plan(dtype, compute, layout, shape)
    for x in p.mainloop.operands:
        for step in range(2):
            for read in x.fragment_loads(step, 0):
                at = [address(x, read, lane) for lane in range(32)]
                width = 16 if read.ptx_type.startswith("x") else x.bytes * len(names(read.registers))
                few = x.fragment_load == BYTES and x.tile < 64  # two chunks a row: pairs of rows share banks
                assert conflicts(at[: 16 if read.ptx_type == "x2" else 32], width) <= (4 if few else 0), (x.name, read)


@pytest.mark.each_value
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "compute", "shape"), SHAPES_OF_TYPES)
def test_stores_to_stages_have_no_bank_conflicts(dtype, compute, shape, layout):
    p = plan(dtype, compute, layout, shape)
    for x in p.mainloop.operands:
        for load in x.loads[:2]:
            starts = []
            for thread in range(min(32, x.vectors)):
                row, column = thread // x.across, thread % x.across * x.vec
                mn, k = (row, column) if x.kmajor else (column, row)
                starts.append((x.at(mn, k) ^ x.swizzles[load.pointer]) + load.offset)
            short = x.run_vectors < x.vectors and dtype != "f64"  # two rows of a few chunks share banks
            assert conflicts(starts, x.copy_bytes) <= (4 if short else 0)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90"])
def test_loads_cover_the_stage(target, draws):
    """Over random legal configurations: the threads' copies of a stage are the tile, each element once, in place."""
    for p, c in SOURCES["mma"].cases(3, 30 * draws, device(target)):
        made = plan_for(p, c, device(target))
        for x in made.mainloop.operands:
            seen = set()
            assert x.last_copies == x.vectors % made.threads
            for thread, load in product(range(made.threads), x.loads):
                if load is x.loads[-1] and x.last_copies and thread >= x.last_copies:
                    continue
                run, place = divmod(thread, x.run_vectors)
                assert not run or x.thread_runs
                row, column = place // x.across, (run * x.across + place % x.across) * x.vec
                mn, k = (row, column) if x.kmajor else (column, row)
                at = (x.at(mn, k) ^ x.swizzles[load.pointer]) + load.offset
                assert at == x.at(mn + load.mn, k + load.k)
                seen.add(at)
            assert len(seen) == x.vectors == x.tile * c.u // x.vec


@pytest.mark.parametrize(("dtype", "compute"), TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_staged_c_has_few_bank_conflicts(dtype, compute, layout):
    for shape in (*SHAPES, *(UNEVEN_SHAPES[:1] if dtype != "s8" else [])):
        p = plan(dtype, compute, layout, f"{shape} epilogue_smem=1 stages=2")
        width = p.epilogue.sts_vec * p.arithmetic.bytes
        at = [
            (p.a.lane_of_c.of(lane) * p.epilogue.row_pitch + p.b.lane_of_c.of(lane)) * p.arithmetic.bytes
            for lane in range(32)
        ]
        assert conflicts(at, width) <= (0 if p.a.adjacent == p.b.adjacent == 1 else 4)
        assert p.epilogue.row_pitch * p.arithmetic.bytes % (p.c.vec * p.arithmetic.bytes) == 0


def test_lanes_hold_neighbours_if_vectors_load_them():
    assert plan("f32", "tf32", "NN", "ms=32 ns=32 ml=32 nl=32").mainloop.contiguous == 8
    assert plan("f32", "tf32", "NT", "ms=32 ns=32 ml=32 nl=32").mainloop.contiguous == 2
    assert plan("s8", "s32", "NN", "ms=32 ns=32 ml=32 nl=32").mainloop.contiguous == 4
    assert [plan("f64", "f64", x, "ms=32 ns=32 ml=32 nl=32").b.fragment_load for x in ("NT", "NN")] == [SINGLE, VECTOR]


@pytest.mark.parametrize("layout", ["TN", "NT", "CN", "RT"])
def test_operands_of_complex_products_begin_as_they_are_loaded(layout):
    """On sm_90, eight rows of a step take one instruction. B, and A unless it is conjugated, are not moved between
    registers: their parts are in the order of the loads."""
    p = plan("c128", "f64", layout, "ms=32 ns=16 ml=32 nl=32")
    issued = p.mainloop.issued(0, p.mainloop.WHOLE)
    assert len(issued) == 2 * p.a.tiles * p.b.tiles
    first, second = ([names(r.registers) for r in x.fragment_loads(0, 0)] for x in p.mainloop.operands)
    for sums, a, b in issued:
        assert (len(sums), len(names(a))) == (4, 4)
        assert (names(a)[:2] in first) is (layout[0] in "TN")
        assert names(b) in second


def test_f64_needs_a_target_with_f64_mma():
    p = Gemm(64, 64, 64, "NT", "f64")
    assert (instruction(p, device("sm_80")).m, instruction(p, H200).m) == (8, 16)


@pytest.mark.parametrize(
    ("problem", "config", "target", "rule"),
    [  # config: what is changed of a good one
        (Gemm(64, 64, 64, "NT", "f32"), "", "h200", "mma_dtype"),
        (Gemm(64, 64, 64, "NT", "bf16"), "", "t4", "mma_dtype"),
        (Gemm(64, 64, 64, "NT", "e4m3"), "u=64", "sm_80", "mma_dtype"),
        (Gemm(64, 64, 64, "NT", "e4m3"), "u=64", "sm_90", "mma_native"),
        (
            Gemm(64, 64, 63, "NT", "e4m3"),
            "u=64 cp_async_a=0 cp_async_b=0 vec_a=1 vec_b=1 ms=16 ns=16 ml=32 nl=32",
            "sm_90",
            None,
        ),
        (Gemm(64, 64, 64, "NT", "e4m3"), "u=64", "sm_89", None),
        (Gemm(64, 64, 64, "NT", "f16"), "ms=8", "h200", "mma_tile"),
        (Gemm(64, 64, 64, "NN", "s8"), "ns=8 u=64", "h200", "mma_ns"),
        (Gemm(64, 64, 64, "NT", "f16"), "u=16", "h200", "mma_depth"),
        (Gemm(64, 64, 64, "NT", "f16"), "vec_a=1 cp_async_a=1", "h200", "mma_cp_async_a"),
        (Gemm(64, 64, 63, "TT", "f16"), "vec_b=2", "h200", "mma_vec_b"),
        (Gemm(64, 64, 64, "NT", "f16"), "cp_async_a=0 vec_a=1 ms=64 ns=64 u=64", "h200", "mma_loads_per_thread"),
        (Gemm(64, 64, 64, "NT", "f16"), "deferred_sts=1", "h200", "mma_deferred_sts"),
    ],
)
def test_illegal_configurations_break_the_expected_rule(problem, config, target, rule):
    text = f"family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=2 {config}"
    values = dict(word.split("=") for word in text.split())
    c = parse_config(" ".join(f"{name}={value}" for name, value in values.items()))
    violation = first_violation(problem, c, device(target))
    assert (violation and violation.name) == rule


FP8_WITHOUT_WGMMA = (
    GroupedGemm(((64, 64, 64), (32, 48, 32)), "NT", "e4m3"),
    GroupedGemm(((64, 64, 64), (64, 64, 32)), "TN", "e5m2", jagged="k"),
    GroupedGemm(((64, 64, 0), (32, 64, 0)), "NT", "e4m3", jagged="m"),
    Conv(2, 64, 3, 3, 64, 1, 1, dtype="e4m3"),
    Conv(2, 64, 4, 4, 64, 3, 3, dtype="e5m2"),
    Conv(2, 64, 3, 3, 64, 1, 1, dtype="e4m3", direction="input_grad"),
    Conv(1, 64, 400, 400, 64, 3, 3, dilation=150, dtype="e4m3", layout="NHWC", filters="KRSC"),
)


@pytest.mark.parametrize("problem", FP8_WITHOUT_WGMMA, ids=lambda p: p.key())
def test_mma_computes_fp8_of_hopper_that_wgmma_does_not(problem):
    assert selection.require(problem, H200)[0].config.family == "mma"


def test_mma_leaves_other_fp8_of_hopper_to_wgmma():
    for problem in (
        Gemm(64, 64, 64, "NT", "e4m3"),
        GroupedGemm(((64, 64, 64), (32, 64, 64)), "NT", "e4m3", jagged="m"),
        Conv(2, 64, 4, 4, 64, 3, 3, dtype="e4m3", layout="NHWC", filters="KRSC"),
    ):
        assert "mma" not in [f.name for f in space.families(lower(problem), H200)]
