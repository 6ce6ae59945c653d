"""Numbers of wgmma kernels: TMA boxes, descriptors, reductions, the epilogue, launches and rules."""

from __future__ import annotations

import itertools
from functools import cache
from math import prod

import numpy as np
import pytest

from ptxgen.codegen.config.config import Columns, Config, parse_config
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.cuda_abi import MAP_BYTES
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.wgmma.geometry import owners
from ptxgen.families.wgmma.rules import mapped
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.problem.device import device
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from tests.cases import SOURCES
from tests.lowered import first_violation, geometry, legal
from tests.unit.test_geometry import flat

H200 = device("h200")


@cache
def random_cases() -> tuple[tuple[Gemm, Config], ...]:
    """Random legal cases, which several tests share."""
    return tuple(SOURCES["wgmma"].cases(24, 300, H200, limit=600))


SPAN = {0: 16, 3: 32, 2: 64, 1: 128}


def plan(problem: Gemm, config: str):
    return plan_for(problem, parse_config("family=wgmma " + config), H200)


def swizzled(address: np.ndarray, span: int) -> np.ndarray:
    """TMA's and wgmma's common pattern: bits 4 and up, as many as the span has chunks, xor those from bit 7 up."""
    return address ^ ((address >> 7) & (span // 16 - 1)) << 4


def loaded_stage(x, matrix: np.ndarray) -> np.ndarray:
    """The bytes of a stage after TMA loaded ``matrix`` (MN × K of the tile) box by box; others stay 0xEE."""
    memory = np.full(1 << 18, 0xEE, np.uint8)
    source = matrix if x.kmajor else matrix.T  # rows are contiguous in global memory
    for box in x.boxes:
        inner, outer = x.box
        for r in range(min(outer, source.shape[0])):
            row = source[r, box.inner : box.inner + inner].tobytes()
            at = np.arange(len(row)) + x.base + box.offset + r * x.span
            memory[swizzled(at, x.span)] = np.frombuffer(row, np.uint8)
    return memory


def read(memory: np.ndarray, x, start: int, rows: int, dtype: np.dtype) -> np.ndarray:
    """What wgmma reads through a descriptor at byte ``start``: rows × 32 bytes of K."""
    size = dtype.itemsize
    span = SPAN[x.desc_high >> 30]
    stride, leading = (x.desc_high & 0x3FFF) << 4, x.desc_low >> 16 << 4
    mn, k = np.meshgrid(np.arange(rows), np.arange(32 // size), indexing="ij")
    if x.kmajor:
        at = start + mn // 8 * stride + mn % 8 * span + k * size
    else:
        wide = span // size
        at = start + mn // wide * leading + k // 8 * stride + k % 8 * span + mn % wide * size
    at = swizzled(at[..., None], span) + np.arange(size)
    return np.ascontiguousarray(memory[at]).view(dtype)[..., 0]


def test_descriptors_read_what_tma_loaded():
    """With random configurations: every product of a stage takes its rows of X and columns of Y, at its part of K."""
    rng = np.random.default_rng(0)
    for p, c in random_cases()[:40]:
        made = plan_for(p, c, H200)
        dtype = np.dtype(f"u{p.element.bytes}")
        steps = c.u * p.element.bytes // 32
        for x, extent in ((made.x, made.scheduler.x_tile), (made.y, made.scheduler.y_tile)):
            if x.realigned or (x.role == "x" and made.mainloop.a_from_registers):
                continue
            rows = int(made.geometry.y.rows) if x.role == "y" else extent  # boxes may be longer than the tile
            matrix = rng.integers(0, 1 << 8 * dtype.itemsize, (rows, c.u), dtype)
            share = c.cluster_x if x.role == "y" else c.cluster_y
            memory = np.full(1 << 18, 0xEE, np.uint8)
            for rank in range(share):  # each block of the cluster loads its slice
                part = slice(rank * x.slice_extent, (rank + 1) * x.slice_extent)
                loaded = loaded_stage(x, matrix[:, part] if x.sliced_along_k else matrix[part])
                shift = rank * x.slice_bytes
                memory[shift:] = np.where(memory[shift:] == 0xEE, loaded[: len(memory) - shift], memory[shift:])
            for n, s in enumerate(made.mainloop.products):
                k, mi = n // made.mainloop.mi, s.mi
                part = matrix[:, k * 32 // dtype.itemsize :][:, : 32 // dtype.itemsize]
                if x.role == "y":
                    got = read(memory, x, x.base + 16 * s.y, extent, dtype)
                    np.testing.assert_array_equal(got, part[:extent], err_msg=f"{p.key()} | {c}")
                    continue
                for wg in range(1 if c.pingpong else c.math_warpgroups):
                    got = read(memory, x, x.base + 16 * s.x + wg * made.mainloop.x_wg_bytes, 64, dtype)
                    want = part[wg * made.mainloop.wg_rows + 64 * mi :][:64]
                    valid = c.tma_rows or 64  # rows that are not loaded are never stored
                    np.testing.assert_array_equal(got[:valid], want[:valid], err_msg=f"{p.key()} | {c}")
            assert x.k_step_offset(steps - 1) % 16 == 0


def test_stages_hold_what_barriers_expect():
    for p, c in random_cases()[:150]:
        made = plan_for(p, c, H200)
        expected = (
            sum(
                b[0] * b[1] * n * s
                for b, n, s in (
                    (made.x.box, len(made.x.boxes), c.cluster_y),
                    (made.y.box, len(made.y.boxes), c.cluster_x),
                )
            )
            * p.element.bytes
        )
        assert made.mainloop.tx_bytes == expected < 1 << 20
        assert made.mainloop.stage_bytes % 1024 == made.y.base % 1024 == 0
        assert made.pipeline.base % 8 == 0
        assert made.shared <= H200.shared_block
        for x in (made.x, made.y):
            assert x.realigned or x.box[0] * p.element.bytes == x.span
            assert max(x.box) <= 256


def test_realignment_moves_every_word_once():
    """The moves of all threads cover every word of a stage once, from the loaded lines to the swizzled tile."""
    seen = 0
    for p, c in random_cases()[:200]:
        made = plan_for(p, c, H200)
        for x in made.mainloop.realign.operands:
            lines, width = (x.tile, c.u) if x.kmajor else (c.u, x.tile)
            assert x.residue_bytes % 128 == 0
            assert x.residue_bytes * 8 <= (made.y.base if x is made.x else made.mainloop.stage_bytes - x.base)
            written, got = set(), set()
            for t in range(128 * made.mainloop.realign.warpgroups):
                group, word = t >> x.log2_line_threads, t & x.line_threads - 1
                further, line = divmod(group, x.residues_at_once)
                for n, m in enumerate(x.moves):
                    times, box = n // x.residue_groups % x.rounds, n // x.residue_groups // x.rounds
                    residue, nth = line + m.residue_group * x.residues_at_once, further + times * x.lines_at_once
                    assert m.guarded == ((times + 1) * x.lines_at_once > x.residue_lines)
                    if nth >= lines // 8:
                        continue
                    first = residue * x.residue_bytes + further * x.line_bytes + 4 * word + m.source
                    assert first == residue * x.residue_bytes + nth * x.line_bytes + 4 * (x.line_threads * box + word)
                    turned = word ^ (residue >> x.swizzle_shift & x.swizzle_mask) << 2
                    put = (8 * further + residue) * x.span + 4 * turned + m.target
                    here = 8 * nth + residue
                    assert put == swizzled(np.array(box * lines * x.span + here * x.span + 4 * word), x.span)
                    written.add(put)
                    got.add(first)
            assert len(written) == len(got) == lines * width // 2
            assert written == set(range(0, lines * width * 2, 4))
            seen += 1
    assert seen > 20


def staged_rows(made, values: np.ndarray) -> np.ndarray:
    """A warpgroup's staging buffers after the stores of all subtiles that have a buffer of their own."""
    s = made.epilogue.staging
    memory = np.full(s.bytes // s.size, 0xFFFF, np.uint16)
    columns = s.sums.shape[1]
    registers = {s.sums[m, i]: (m, i) for m in range(s.mi) for i in range(columns)}
    for subtile in s.subtiles[: s.buffers]:
        for put in subtile.stmatrices:
            for quarter in range(4):
                for n, (low, high) in enumerate(put.registers):
                    for lane in range(32):  # lane of the matrix: row lane / 4, columns 2 (lane mod 4)
                        pair = []
                        for name in (low, high):
                            m, i = registers[name]
                            row = 64 * m + 16 * quarter + lane // 4 + 8 * (i // 2 % 2)
                            pair.append(values[row, 8 * (i // 4) + 2 * (lane % 4) + i % 2])
                        for e, value in enumerate(pair):
                            r, q = (2 * (lane % 4) + e, lane // 4) if s.transposed else (lane // 4, 2 * (lane % 4) + e)
                            memory[(row_address(s, 8 * n + r, quarter, put.variant) + put.offset) // 2 + q] = value
        for batch in subtile.batches:
            put = [(*word, chunk) for chunk, words in batch.chunks for word in words]
            assert batch.column == min(8 * (registers[low][1] // 4) for low, *_ in put)
            for (*pair, offset, chunk), row, lane in itertools.product(put, range(0, 64, 16), range(32)):
                at = (word_address(s, row + lane // 4, lane % 4) ^ chunk) + offset
                for e, (m, i) in enumerate(registers[name] for name in pair):
                    column = 8 * (i // 4) + 2 * (lane % 4) + i % 2
                    memory[at + e] = values[64 * m + row + lane // 4 + 8 * (i // 2 % 2), column]
    return memory


def word_address(s, row: int, word: int) -> int:
    """The address of a lane's first word of 16 bits, as pair_words.mako computes it."""
    return row * s.span + 16 * (row >> s.swizzle_shift & s.swizzle_mask) + 2 * word


def row_address(s, lane: int, quarter: int, variant: int) -> int:
    """The address that a lane gives to stmatrix, as stmatrix_words.mako computes it."""
    if s.transposed:
        q = 2 * quarter + (lane >> 3 & 1) ^ (lane & 7)
        r = 8 * (lane >> 4) + (lane & 7)
    else:
        r = 16 * quarter + (lane & 15)
        q = ((r >> s.swizzle_shift) ^ (lane >> 4)) & s.swizzle_mask
    return r * s.span + 16 * (q ^ 2 * variant)


def test_threads_fill_the_boxes_that_tma_stores():
    seen, p = set(), Gemm(256, 512, 64, "NT", "f16", epilogue="swiglu")
    text = "family=wgmma ml=128 u=64 stages=2 epilogue_smem=1 nl="
    pairs = [(p, parse_config(text + sides)) for sides in ("128", "192 math_warpgroups=2", "96", "176")]
    for p, c in (*random_cases(), *pairs):
        if not c.epilogue_smem or c.epilogue_buffers != c.epilogue_subtiles:
            continue
        made = plan_for(p, c, H200)
        s = made.epilogue.staging
        rows = 64 * made.mainloop.mi
        values = np.arange(rows * made.epilogue.y_columns, dtype=np.uint16).reshape(rows, made.epilogue.y_columns)
        memory = staged_rows(made, values)
        out = np.zeros_like(values)
        for store in (b for subtile in s.subtiles for b in subtile.stores):
            inner, outer = s.box
            for r in range(outer):
                at = swizzled(np.arange(inner) * s.size + store.offset + r * s.span, s.span) // s.size
                if s.transposed:
                    out[store.x : store.x + inner, store.y + r] = memory[at]
                else:
                    out[store.x + r, store.y : store.y + inner] = memory[at]
        np.testing.assert_array_equal(out, values, err_msg=f"{p.key()} | {c}")
        seen.add((s.transposed, s.width, s.size))
    assert {(True, 64, 2), *((False, n // size, size) for size in (1, 2) for n in (128, 64, 32, 16))} <= seen


def test_every_sum_is_sent_once_and_added_once():
    """Cluster reduction and split-K fix-up: blocks send every accumulator once, to the address where it is read."""
    seen = set()
    for p, c in random_cases():
        if c.cluster_k == 1 and c.splitk not in (3, 4):
            continue
        made = plan_for(p, c, H200)
        seen.add((c.cluster_k > 1, c.splitk))
        if c.cluster_k > 1:
            names = [r for sent in made.cluster_reduction.sent for slot in sent for r in slot.registers]
            assert sorted(names) == sorted(made.mainloop.acc.all)
            for sent in made.cluster_reduction.sent:
                senders = range(c.cluster_k - made.cluster_reduction.single_reducer)
                places = {
                    slot.offset + sender * c.math_warpgroups * made.cluster_reduction.wg_bytes
                    for sender in senders
                    for slot in sent
                }
                if c.splitk not in (3, 4):
                    assert places == {slot.offset for slot in made.cluster_reduction.received}
        if c.splitk in (3, 4):
            names = [r for slot in made.fixup.stored for r in slot.registers]
            assert len(names) == len(set(names))
            read_ = [slot.offset for b in made.fixup.loaded for slot in b]
            assert len(read_) == len(set(read_))
            assert (
                max(read_) + c.math_warpgroups * made.fixup.wg_bytes <= made.fixup.tile_bytes + made.fixup.slice_bytes
            )
    assert {(True, 0), (False, 3), (False, 4)} <= seen


@pytest.mark.parametrize(
    ("groups", "blocks", "expected"), [(8, 1, 1), (8, 3, 2), (8, 8, 8), (5, 4, 1), (6, 4, 3), (32, 15, 8)]
)
def test_fixup_owners(groups, blocks, expected):
    assert owners(groups, blocks) == expected
    assert owners(np.array([groups]), np.array([blocks]))[0] == expected


def test_columns_agree_with_integers():
    for p, c in random_cases()[:40]:
        one, many = flat(geometry(p, c)), flat(geometry(p, Columns.of([c, c])))
        for name, value in one.items():
            assert np.all(np.broadcast_to(many[name], 2) == value), (name, str(c))
        assert legal(p, Columns.of([c]), H200).all()


# ---- launching


def test_first_tensor_map_is_aligned():
    """Parameters begin at constant-bank address 0x210; a map with 64-byte alignment is first at offset 48."""
    made = plan(Gemm(512, 512, 512, "TN", "f16"), "ml=64 nl=64 u=128 stages=4 epilogue_smem=1")
    (step,) = made.launch(lower(made.problem)).steps
    values = {"A": 1 << 20, "B": 2 << 20, "C": 3 << 20, "W": 0, "alpha": 1.0, "beta": 0.0}
    packed = step.pack(values)
    assert len(packed) == 48
    seen = []

    def encode(description: TensorMap, address: int) -> bytes:
        seen.append((description.operand, address))
        return bytes([len(seen)]) * MAP_BYTES

    assert step.pack_maps(encode, values) == b"\1" * 128 + b"\2" * 128 + b"\3" * 128
    assert seen == [("A", 1 << 20), ("B", 2 << 20), ("C", 3 << 20)]


def test_longer_parameter_lists_leave_a_gap_before_the_maps():
    m = TensorMap("A", "f16", (8, 8), (16,), (8, 8), 16)
    for words, at in ((0, 48), (12, 48), (13, 112), (28, 112), (29, 176)):
        step = Step("k", (1, 1, 1), arguments=(*(("u32", 7) for _ in range(words)), ("map", m)))
        assert len(step.pack({"A": 0})) == at
        assert (0x210 + at) % 64 == 0


@pytest.mark.parametrize(
    ("config", "grid"),
    [
        ("ml=128 math_warpgroups=2 nl=64 stages=4 u=64", (8, 16, 1)),
        ("ml=128 math_warpgroups=2 nl=64 stages=4 u=64 raster_group=8", (128, 1, 1)),
        ("ml=128 math_warpgroups=2 nl=64 stages=4 u=64 cluster_x=4", (8, 16, 1)),
        ("ml=128 math_warpgroups=2 nl=48 stages=4 u=64 cluster_x=2 cluster_y=2", (8, 22, 1)),
        ("ml=128 math_warpgroups=2 nl=24 stages=4 u=64 cluster_y=4 raster_group=8", (352, 1, 1)),
        ("transposed_mma=1 nl=128 math_warpgroups=2 ml=64 stages=4 u=64", (8, 16, 1)),
        ("ml=128 math_warpgroups=2 nl=64 stages=4 u=64 cluster_k=4", (32, 16, 1)),
        ("ml=128 math_warpgroups=2 nl=64 stages=4 u=64 kg=3 splitk=workspace", (8, 16, 3)),
        ("ml=128 math_warpgroups=2 nl=64 stages=4 u=64 persistent=1", (128, 1, 1)),
        ("ml=64 nl=64 stages=4 u=64 persistent=1 cluster_x=2", (132, 1, 1)),
        ("ml=64 nl=64 stages=4 u=64 persistent=1 cluster_x=2 cluster_y=2", (120, 1, 1)),
    ],
)
def test_grids(config, grid):
    p = Gemm(1024, 1024, 1024, "NT", "f16")
    launch = plan(p, config).launch(lower(p))
    assert launch.steps[0].grid == grid
    assert geometry(p, parse_config("family=wgmma " + config)).blocks >= np.prod(grid) or "persistent" in config


def test_slices_divide_the_iterations_of_k():
    p = Gemm(64, 64, 1000, "NT", "f16")
    made = plan(p, "ml=64 nl=64 u=64 stages=4 kg=3 cluster_k=2 splitk=workspace")
    step = made.launch(lower(p)).steps[0]
    k_iters, extra_iters = (value for _, value in step.arguments[6:8])
    assert 6 * k_iters + extra_iters == 16
    assert made.launch(lower(p)).workspace == 3 * 64 * 64 * 4


def test_zero_k_reads_zeros():
    """K = 0: tensor maps need an extent, so the operands are zeros at the start of the workspace, which each launch
    clears: other launches need not find it zeroed."""
    p = Gemm(64, 64, 0, "NN", "f16")
    launch = plan(p, "ml=64 nl=64 u=64 stages=4").launch(lower(p))
    clear, main = launch.steps
    assert not launch.zeroed
    assert (clear.entry, clear.arguments) == ("", (("u64", "W"),))
    assert {m.operand for m in main.maps} == {"W"}
    assert launch.workspace >= clear.grid[0] >= max(2 * prod(m.extents) for m in main.maps)
    assert plan(p, "ml=64 nl=64 u=64 stages=4").launch(lower(Gemm(0, 64, 64, "NN", "f16"))).steps == ()


def test_sums_of_columns_without_terms_leave_no_zeroed_workspace():
    p = Gemm(200, 304, 0, "NT", "f16", epilogue="sum_columns")
    config = parse_config("family=wgmma ml=64 nl=64 u=64 stages=2")
    assert all(r.ok for r in check(EmulatedDriver(H200, mma="f32"), p, config))


def test_single_row_needs_no_pitch():
    p = Gemm(1, 640, 64, "NT", "f16", lda=67)
    assert mapped(lower(p), "a")
    assert not mapped(lower(Gemm(2, 640, 64, "NT", "f16", lda=67)), "a")
    (first, *_) = plan(p, "ml=64 nl=64 u=64 stages=4").launch(lower(p)).steps[0].maps
    assert first.pitches == (128,)


# ---- rules


@pytest.mark.parametrize(
    ("problem", "config", "rule"),
    [
        (Gemm(64, 64, 64, "NT", "f16", lda=68), "", "wgmma_tensor_map_a"),
        (Gemm(64, 64, 64, "NT", "f16", aligned_b=8), "", "wgmma_tensor_map_b"),
        *(
            (
                Gemm(64, 64, 65, "NT", "f16"),
                f"operand_path_a=realign operand_path_b=realign {text}",
                "wgmma_realign",
            )
            for text in ("cluster_x=2", "u=256 stages=3", "nl=256", "stages=2")
        ),
        (Gemm(64, 64, 7, "NT", "f16"), "operand_path_a=realign operand_path_b=realign", "wgmma_realign_k"),
        (Gemm(64, 64, 65, "NT", "e4m3"), "operand_path_a=realign operand_path_b=realign", "wgmma_realign"),
        (
            Gemm(64, 64, 65, "NT", "f16", batch=2),
            "operand_path_a=realign operand_path_b=realign",
            "wgmma_realign_k",
        ),
        (Gemm(64, 60, 64, "NT", "f16", ldc=64, epilogue="residual"), "epilogue_smem=1", "wgmma_epilogue_smem"),
        (Gemm(64, 64, 64, "NN", "s8"), "", "wgmma_kmajor_y"),
        (Gemm(64, 64, 64, "NN", "s8"), "transposed_mma=1 u=32", "wgmma_x_from_registers"),
        (Gemm(64, 64, 64, "TT", "e4m3"), "epilogue_smem=1", "wgmma_x_from_registers"),
        (QuantizedGemm(64, 64, 256, weights="s4", group=128), "u=128", "wgmma_quantized"),
        (QuantizedGemm(64, 64, 256, weights="s4", group=128), "transposed_mma=1 u=64", "wgmma_quantized"),
        (QuantizedGemm(64, 64, 0, weights="s8"), "transposed_mma=1", "wgmma_k"),
        (Gemm(64, 64, 64, "TN", "s8"), "", "wgmma_kmajor_y"),
        (
            Gemm(64, 63, 64, "TN", "f16", ldb=63),
            "operand_path_a=pack operand_path_b=direct",
            "wgmma_tensor_map_b",
        ),
        (Gemm(64, 64, 64, "TT", "s8"), "operand_path_a=realign operand_path_b=direct", "wgmma_realign"),
        (
            Gemm(64, 64, 64, "TN", "f32", "f32_bf16x6"),
            "operand_path_a=pack operand_path_b=direct u=32",
            "wgmma_operand_path",
        ),
        (Gemm(64, 64, 64, "NT", "f32"), "", "wgmma_dtype"),
        (Gemm(64, 64, 64, "NT", "f16"), "math_warpgroups=4", "range"),
        (Gemm(64, 64, 64, "NT", "f16"), "math_warpgroups=3", "wgmma_tile_x"),
        (Gemm(64, 64, 64, "NT", "f16"), "persistent=2", "range"),
        (Gemm(64, 64, 64, "NT", "f16"), "nl=36", "wgmma_tile_y"),
        (Gemm(64, 64, 64, "NT", "f16"), "ml=96", "wgmma_tile_x"),
        (Gemm(64, 64, 64, "NT", "f16"), "ml=256 nl=256 math_warpgroups=2", "wgmma_accumulators"),
        (Gemm(64, 64, 64, "NT", "f16"), "ml=192 nl=208 math_warpgroups=3", "wgmma_accumulators"),
        (Gemm(64, 64, 64, "NT", "f16"), "ml=192 nl=32 math_warpgroups=3 pingpong=1 persistent=1", "wgmma_pingpong"),
        (Gemm(64, 64, 256, "NT", "f16"), "stages=1", "wgmma_stages"),
        (Gemm(64, 64, 64, "NT", "f16"), "tma_rows=32", "wgmma_tma_rows"),
        (Gemm(64, 64, 64, "NT", "f16"), "nl=80 y_boxes=padded", "wgmma_y_boxes"),
        (Gemm(64, 64, 64, "NN", "f16"), "nl=128 y_boxes=padded", "wgmma_y_boxes"),
        (Gemm(64, 64, 64, "NN", "f16"), "nl=96 cluster_x=4 u=16 y_boxes=padded", "wgmma_y_boxes"),
        (Gemm(64, 64, 64, "NT", "f16"), "cluster_k=2", "wgmma_k_iters"),
        (Gemm(64, 64, 256, "NT", "f16"), "cluster_y=2 cluster_k=2", "wgmma_cluster"),
        (Gemm(64, 64, 256, "NT", "f16"), "cluster_x=4 cluster_y=4", "wgmma_cluster"),
        (Gemm(64, 64, 256, "NT", "f16"), "cluster_y=3", "wgmma_multicast_x"),
        (Gemm(64, 64, 256, "TN", "f16"), "cluster_y=8 u=32", "wgmma_multicast_x"),
        (Gemm(32, 64, 256, "NT", "f16"), "cluster_y=8 tma_rows=32", "wgmma_multicast_x"),
        (Gemm(1024, 512, 4096, "NT", "f16"), "kg=2 splitk=last_cta cluster_y=4 nl=128", "wgmma_splitk"),
        (Gemm(4096, 4096, 4096, "NT", "f16"), "kg=4 splitk=distributed", "wgmma_splitk"),
        (
            Gemm(256, 256, 60000, "TN", "f16"),
            "ml=128 nl=64 transposed_mma=1 cluster_x=4 kg=16 stages=8 splitk=distributed",
            "wgmma_splitk",
        ),
        (Gemm(64, 64, 4096, "NT", "f16"), "kg=4 splitk=flag_red", "wgmma_splitk"),
        (Gemm(64, 64, 64, "NT", "f16"), "pingpong=1", "wgmma_pingpong"),
        (Gemm(64, 64, 64, "NT", "f16"), "listed_tiles=1", "wgmma_listed_tiles"),
        (Gemm(64, 64, 64, "NT", "f16"), "stream_waves=1", "wgmma_stream"),
        (Gemm(64, 64, 64, "NT", "f16", batch=2), "stream_waves=1 persistent=1", "wgmma_stream"),
        (Gemm(64, 64, 1 << 18, "NT", "s8"), "stream_waves=1 persistent=1", "wgmma_stream_k"),
        (Gemm(64, 64, 64, "NT", "f16"), "l2_evict_first=b_once", "wgmma_b_once"),
        (Gemm(64, 64, 256, "NT", "f16"), "promotion_buffers=2 u=256", "wgmma_promotion_buffers"),
        (Gemm(64, 64, 256, "NT", "e4m3"), "promotion_buffers=2 u=128", "wgmma_promotion_buffers"),
        (Gemm(64, 64, 256, "NT", "e4m3"), "promotion_buffers=2 u=32", "wgmma_promotion_buffers"),
        (Gemm(64, 64, 256, "TN", "e4m3"), "promotion_buffers=2 u=256 operand_path_b=pack", "wgmma_promotion_buffers"),
        (
            Gemm(192, 64, 13, "TN", "bf16"),
            "ml=192 nl=16 u=32 math_warpgroups=3 operand_path_a=realign operand_path_b=realign",
            "wgmma_realign",
        ),
        (GroupedGemm(((64, 64, 64),), "TN", "f16", jagged="k"), "l2_evict_first=b_once persistent=1", "wgmma_b_once"),
    ],
)
def test_illegal_configurations_break_the_expected_rule(problem, config, rule):
    plain = {"family": "wgmma", "ml": "64", "nl": "64", "u": "64", "stages": "4"}
    values = plain | dict(word.split("=") for word in config.split())
    c = parse_config(" ".join(f"{n}={v}" for n, v in values.items()))
    violation = first_violation(problem, c, H200)
    assert violation is not None
    assert violation.name == rule
    with pytest.raises(ConfigError, match=rule):
        plan_for(problem, c, H200)


def test_other_devices_have_no_wgmma():
    p, c = Gemm(64, 64, 64, "NT", "f16"), parse_config("family=wgmma ml=64 nl=64 u=64 stages=4")
    assert first_violation(p, c, H200) is None
    for name in ("a100", "b200", "t4"):
        assert first_violation(p, c, device(name)).name == "wgmma_target"


def test_clusters_fit_the_device():
    """The emulated device has four multiprocessors."""
    p, text = Gemm(512, 64, 4096, "NT", "f16"), "family=wgmma ml=64 nl=64 u=64 stages=4 "
    assert first_violation(p, parse_config(text + "cluster_k=4"), device("emulated")) is None
    for more in ("cluster_k=8", "cluster_x=8", "cluster_x=4 cluster_y=2"):
        assert first_violation(p, parse_config(text + more), device("emulated")).name == "wgmma_cluster"
        assert first_violation(p, parse_config(text + more), H200) is None


def test_owners_of_columns_are_those_of_each_configuration():
    groups, blocks = (x.ravel() for x in np.meshgrid(np.arange(1, 33), np.arange(1, 40)))
    assert owners(groups, blocks).tolist() == [owners(int(g), int(b)) for g, b in zip(groups, blocks, strict=True)]
