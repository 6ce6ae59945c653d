"""The numbers of wgmma kernels: what TMA puts where, what descriptors read, what leaves, how kernels are launched."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.codegen.config import Columns, parse_config
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.cuda_abi import MAP_BYTES
from ptxgen.errors import ConfigError
from ptxgen.families.geometry import geometry
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.rules import broken, legal
from ptxgen.families.wgmma.geometry import owners
from ptxgen.families.wgmma.rules import mapped
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import device
from tests.cases_wgmma import cases

H200 = device("h200")
SPAN = {0: 16, 3: 32, 2: 64, 1: 128}


def plan(problem: KernelGemm, config: str):
    return plan_for(problem, parse_config("family=2 " + config), H200)


def swizzled(address: np.ndarray, span: int) -> np.ndarray:
    """TMA's and wgmma's common pattern: bits 4 and up, as many as the span has chunks, xor those from bit 7 up."""
    return address ^ ((address >> 7) & (span // 16 - 1)) << 4


def brought(x, matrix: np.ndarray) -> np.ndarray:
    """A stage's bytes, after TMA brought ``matrix`` (MN × K of the tile) box by box; unwritten ones stay 0xEE."""
    memory = np.full(1 << 18, 0xEE, np.uint8)
    source = matrix if x.kmajor else matrix.T  # rows are contiguous in global memory
    for box in x.boxes:
        inner, outer = x.box
        for r in range(min(outer, source.shape[0])):
            row = source[r, box.inner : box.inner + inner].tobytes()
            at = np.arange(len(row)) + x.base + box.offset + r * x.span
            memory[swizzled(at, x.span)] = np.frombuffer(row, np.uint8)
    return memory


def read(memory: np.ndarray, x, start: int, rows: int, kind: np.dtype) -> np.ndarray:
    """What wgmma takes from a descriptor at byte ``start``: rows × 32 bytes of K."""
    size = kind.itemsize
    span = SPAN[x.high >> 30]
    stride, leading = (x.high & 0x3FFF) << 4, x.low >> 16 << 4
    mn, k = np.meshgrid(np.arange(rows), np.arange(32 // size), indexing="ij")
    if x.kmajor:
        at = start + mn // 8 * stride + mn % 8 * span + k * size
    else:
        wide = span // size
        at = start + mn // wide * leading + k // 8 * stride + k % 8 * span + mn % wide * size
    at = swizzled(at[..., None], span) + np.arange(size)
    return np.ascontiguousarray(memory[at]).view(kind)[..., 0]


def test_descriptors_read_what_tma_brought():
    """Of random configurations: every product of a stage takes its rows of X and columns of Y, at its part of K."""
    rng = np.random.default_rng(0)
    for p, c in cases(21, 120, H200, limit=600):
        made = plan_for(p, c, H200)
        kind = np.dtype(f"u{p.element.bytes}")
        steps = c.u * p.element.bytes // 32
        for x, extent in ((made.x, made.x_tile), (made.y, made.y_tile)):
            if x.lies or (x.role == "x" and made.fed):
                continue
            matrix = rng.integers(0, 1 << 8 * kind.itemsize, (extent, c.u), kind)
            share = c.cluster_x if x.role == "y" else c.cluster_y
            memory = np.full(1 << 18, 0xEE, np.uint8)
            for rank in range(share):  # each block of the cluster brings its part
                part = slice(rank * x.share, (rank + 1) * x.share)
                lies = brought(x, matrix[:, part] if x.by_depth else matrix[part])
                shift = rank * x.share_offset
                memory[shift:] = np.where(memory[shift:] == 0xEE, lies[: len(memory) - shift], memory[shift:])
            for n, s in enumerate(made.products):
                k, mi = n // made.mi, s.mi
                part = matrix[:, k * 32 // kind.itemsize :][:, : 32 // kind.itemsize]
                if x.role == "y":
                    got = read(memory, x, x.base + 16 * s.y, extent, kind)
                    np.testing.assert_array_equal(got, part, err_msg=f"{p.key()} | {c}")
                    continue
                for wg in range(1 if made.pingpong else c.math_warpgroups):
                    got = read(memory, x, x.base + 16 * s.x + wg * made.x_part, 64, kind)
                    want = part[wg * made.x_own + 64 * mi :][:64]
                    valid = c.tma_rows or 64  # rows that are not loaded are never stored
                    np.testing.assert_array_equal(got[:valid], want[:valid], err_msg=f"{p.key()} | {c}")
            assert x.step(steps - 1) % 16 == 0


def test_stages_hold_what_barriers_expect():
    for p, c in cases(22, 150, H200, limit=600):
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
        assert made.expected == expected < 1 << 20
        assert made.stage_bytes % 1024 == made.y.base % 1024 == 0
        assert made.barriers % 8 == 0
        assert made.shared <= H200.shared_block
        for x in (made.x, made.y):
            assert x.lies or x.box[0] * p.element.bytes == x.span
            assert max(x.box) <= 256


def test_every_word_that_lies_goes_to_its_place():
    """Each thread's moves, of every line and box of a stage once: from its residue's lines to the swizzled tile."""
    seen = 0
    for p, c in cases(23, 150, H200, limit=600):
        made = plan_for(p, c, H200)
        for x in made.lying:
            lines, width = (x.tile, c.u) if x.kmajor else (c.u, x.tile)
            assert x.residue % 128 == 0
            assert x.residue * 8 <= (made.y.base if x is made.x else made.stage_bytes - x.base)
            found, got = set(), set()
            for t in range(128 * made.movers):
                group, word = t >> x.shift, t & x.threads - 1
                further, line = divmod(group, x.together)
                for n, m in enumerate(x.moves):
                    times, box = n // x.ways % x.rounds, n // x.ways // x.rounds
                    residue, nth = line + m.way * x.together, further + times * x.across
                    assert m.partly == ((times + 1) * x.across > x.lines)
                    if nth >= lines // 8:
                        continue
                    first = residue * x.residue + further * x.line + 4 * word + m.got
                    assert first == residue * x.residue + nth * x.line + 4 * (x.threads * box + word)
                    turned = word ^ (residue >> x.turn & x.mask) << 2
                    put = (8 * further + residue) * x.span + 4 * turned + m.put
                    here = 8 * nth + residue
                    assert put == swizzled(np.array(box * lines * x.span + here * x.span + 4 * word), x.span)
                    found.add(put)
                    got.add(first)
            assert len(found) == len(got) == lines * width // 2
            assert found == set(range(0, lines * width * 2, 4))
            seen += 1
    assert seen > 20


def staged_rows(made, values: np.ndarray) -> np.ndarray:
    """A warpgroup's staging after the stmatrix stores of all chunks that have a buffer of their own."""
    s = made.staging
    memory = np.full(s.bytes // 2, 0xFFFF, np.uint16)
    columns = s.sums.shape[1]
    registers = {s.sums[m, i]: (m, i) for m in range(s.mi) for i in range(columns)}
    for chunk in s.chunks[: s.buffers]:
        for put in chunk.puts:
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
    return memory


def row_address(s, lane: int, quarter: int, variant: int) -> int:
    """What tile.mako computes for a lane: where stmatrix finds the matrix row that the lane stands for."""
    if s.transposed:
        q = 2 * quarter + (lane >> 3 & 1) ^ (lane & 7)
        r = 8 * (lane >> 4) + (lane & 7)
    else:
        r = 16 * quarter + (lane & 15)
        q = ((r >> s.shift) ^ (lane >> 4)) & s.mask
    return r * s.span + 16 * (q ^ 2 * variant)


def test_stmatrix_fills_the_boxes_that_tma_stores():
    seen = set()
    for p, c in cases(23, 400, H200, limit=600):
        if not c.epilogue_smem or c.epilogue_buffers != c.epilogue_subtiles:
            continue
        made = plan_for(p, c, H200)
        s = made.staging
        rows = 64 * made.mi
        values = np.arange(rows * made.finish, dtype=np.uint16).reshape(rows, made.finish)
        memory = staged_rows(made, values)
        out = np.zeros_like(values)
        for store in (b for chunk in s.chunks for b in chunk.stores):
            inner, outer = s.box
            for r in range(outer):
                at = swizzled(np.arange(inner) * 2 + store.offset + r * s.span, s.span) // 2
                if s.transposed:
                    out[store.x : store.x + inner, store.y + r] = memory[at]
                else:
                    out[store.x + r, store.y : store.y + inner] = memory[at]
        np.testing.assert_array_equal(out, values, err_msg=f"{p.key()} | {c}")
        seen.add((s.transposed, s.width))
    assert {(True, 64), (False, 64), (False, 32), (False, 16), (False, 8)} <= seen


def test_every_sum_is_sent_once_and_added_once():
    """Cluster sums and meetings: what blocks send covers every accumulator, and lands where it is read."""
    seen = set()
    for p, c in cases(24, 500, H200, limit=600):
        if c.cluster_k == 1 and c.splitk not in (3, 4):
            continue
        made = plan_for(p, c, H200)
        seen.add((c.cluster_k > 1, c.splitk))
        if c.cluster_k > 1:
            names = [r for sent in made.sent for slot in sent for r in slot.into]
            assert sorted(names) == sorted(made.acc.all)
            for sent in made.sent:
                senders = range(c.cluster_k - made.alone)
                places = {slot.offset + sender * made.wg * made.part_wg for sender in senders for slot in sent}
                if c.splitk not in (3, 4):
                    assert places == {slot.offset for slot in made.received}
        if c.splitk in (3, 4):
            names = [r for slot in made.left for r in slot.into]
            assert len(names) == len(set(names))
            read_ = [slot.offset for b in made.batches for slot in b]
            assert len(read_) == len(set(read_))
            assert max(read_) + made.wg * made.part_wg <= made.meet_bytes + made.part
    assert {(True, 0), (False, 3), (False, 4)} <= seen


@pytest.mark.parametrize(
    ("groups", "blocks", "expected"), [(8, 1, 1), (8, 3, 2), (8, 8, 8), (5, 4, 1), (6, 4, 3), (32, 15, 8)]
)
def test_owners(groups, blocks, expected):
    assert owners(groups, blocks) == expected
    assert owners(np.array([groups]), np.array([blocks]))[0] == expected


def test_columns_agree_with_integers():
    for p, c in cases(25, 40, H200, limit=600):
        one, many = geometry(p, c), geometry(p, Columns.of([c, c]))
        for name, value in vars(one).items():
            assert np.all(np.broadcast_to(getattr(many, name), 2) == value), (name, str(c))
        assert legal(p, Columns.of([c]), H200).all()


# ---- launching


def test_the_first_map_lies_where_its_address_is_aligned():
    """Parameters begin at constant-bank address 0x210; a map of 64-byte alignment is first at offset 48."""
    made = plan(KernelGemm(512, 512, 512, "TN", "f16"), "ml=64 nl=64 u=128 stages=4 epilogue_smem=1")
    (step,) = made.launch(made.problem).steps
    values = {"A": 1 << 20, "B": 2 << 20, "C": 3 << 20, "W": 0, "alpha": 1.0, "beta": 0.0}
    packed = step.pack(values)
    assert len(packed) == 48
    seen = []

    def encode(description: TensorMap, address: int) -> bytes:
        seen.append((description.operand, address))
        return bytes([len(seen)]) * MAP_BYTES

    assert step.pack_maps(encode, values) == b"\1" * 128 + b"\2" * 128 + b"\3" * 128
    assert seen == [("A", 1 << 20), ("B", 2 << 20), ("C", 3 << 20)]


def test_longer_lists_of_numbers_leave_a_gap_before_the_maps():
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
        ("ml=128 math_warpgroups=2 nl=64 stages=4 u=64 kg=3 splitk=2", (8, 16, 3)),
        ("ml=128 math_warpgroups=2 nl=64 stages=4 u=64 persistent=1", (128, 1, 1)),
        ("ml=64 nl=64 stages=4 u=64 persistent=1 cluster_x=2", (132, 1, 1)),
        ("ml=64 nl=64 stages=4 u=64 persistent=1 cluster_x=2 cluster_y=2", (120, 1, 1)),
    ],
)
def test_grids(config, grid):
    p = KernelGemm(1024, 1024, 1024, "NT", "f16")
    launch = plan(p, config).launch(p)
    assert launch.steps[0].grid == grid
    assert geometry(p, parse_config("family=2 " + config)).blocks >= np.prod(grid) or "persistent" in config


def test_slices_share_the_passes():
    p = KernelGemm(64, 64, 1000, "NT", "f16")
    made = plan(p, "ml=64 nl=64 u=64 stages=4 kg=3 cluster_k=2 splitk=2")
    step = made.launch(p).steps[0]
    chunk, more = (value for _, value in step.arguments[6:8])
    assert 6 * chunk + more == 16
    assert made.launch(p).workspace == 3 * 64 * 64 * 4


def test_a_product_of_nothing_reads_zeros():
    """K = 0: tensor maps need an extent, so the operands are the workspace, which is zero."""
    p = KernelGemm(64, 64, 0, "NN", "f16")
    launch = plan(p, "ml=64 nl=64 u=64 stages=4").launch(p)
    assert launch.zeroed
    assert launch.workspace
    assert {m.operand for m in launch.steps[0].maps} == {"W"}
    assert plan(p, "ml=64 nl=64 u=64 stages=4").launch(KernelGemm(0, 64, 64, "NN", "f16")).steps == ()


def test_a_lone_row_needs_no_pitch():
    p = KernelGemm(1, 640, 64, "NT", "f16", lda=67)
    assert mapped(p, "a")
    assert not mapped(KernelGemm(2, 640, 64, "NT", "f16", lda=67), "a")
    (first, *_) = plan(p, "ml=64 nl=64 u=64 stages=4").launch(p).steps[0].maps
    assert first.pitches == (128,)


# ---- rules


@pytest.mark.parametrize(
    ("problem", "config", "rule"),
    [
        (KernelGemm(64, 64, 64, "NT", "f16", lda=68), "", "wgmma_map_a"),
        (KernelGemm(64, 64, 64, "NT", "f16", aligned_b=8), "", "wgmma_map_b"),
        *(
            (KernelGemm(64, 64, 65, "NT", "f16"), f"operand_path=12 {text}", "wgmma_lies")
            for text in ("cluster_x=2", "u=256 stages=3", "nl=256", "stages=2")
        ),
        (KernelGemm(64, 64, 65, "NT", "f16"), "operand_path=13", "wgmma_lies"),
        (KernelGemm(64, 64, 7, "NT", "f16"), "operand_path=12", "wgmma_residues"),
        (KernelGemm(64, 64, 65, "NT", "e4m3"), "operand_path=12", "wgmma_lies"),
        (KernelGemm(64, 64, 65, "NT", "f16", batch=2), "operand_path=12", "wgmma_residues"),
        (KernelGemm(64, 60, 64, "NT", "f16", ldc=64, epilogue="residual"), "epilogue_smem=1", "wgmma_stage_c"),
        (KernelGemm(64, 64, 64, "NN", "s8"), "", "wgmma_major"),
        (KernelGemm(64, 64, 64, "NN", "s8"), "transposed_mma=1 u=32", "wgmma_fed"),
        (KernelGemm(64, 64, 64, "TT", "e4m3"), "epilogue_smem=1", "wgmma_fed"),
        (KernelGemm(64, 64, 64, "TN", "s8"), "", "wgmma_major"),
        (KernelGemm(64, 63, 64, "TN", "f16", ldb=63), "operand_path=1", "wgmma_map_b"),
        (KernelGemm(64, 64, 64, "TT", "s8"), "operand_path=4", "wgmma_lies"),
        (KernelGemm(64, 64, 64, "TN", "f32", "f32_bf16x6"), "operand_path=1 u=32", "wgmma_repack"),
        (KernelGemm(64, 64, 64, "NT", "f32"), "", "wgmma_types"),
        (KernelGemm(64, 64, 64, "NT", "f16"), "ms=4", "wgmma_unused"),
        (KernelGemm(64, 64, 64, "NT", "f16"), "nl=36", "wgmma_tile_y"),
        (KernelGemm(64, 64, 64, "NT", "f16"), "ml=96", "wgmma_tile_x"),
        (KernelGemm(64, 64, 64, "NT", "f16"), "ml=256 nl=256 math_warpgroups=2", "wgmma_accumulators"),
        (KernelGemm(64, 64, 256, "NT", "f16"), "stages=1", "wgmma_stages"),
        (KernelGemm(64, 64, 64, "NT", "f16"), "tma_rows=32", "wgmma_rows"),
        (KernelGemm(64, 64, 64, "NT", "f16"), "cluster_k=2", "wgmma_passes"),
        (KernelGemm(64, 64, 256, "NT", "f16"), "cluster_y=2 cluster_k=2", "wgmma_cluster"),
        (KernelGemm(64, 64, 256, "NT", "f16"), "cluster_x=4 cluster_y=4", "wgmma_cluster"),
        (KernelGemm(64, 64, 256, "NT", "f16"), "cluster_y=3", "wgmma_parts_x"),
        (KernelGemm(64, 64, 256, "TN", "f16"), "cluster_y=8 u=32", "wgmma_parts_x"),
        (KernelGemm(32, 64, 256, "NT", "f16"), "cluster_y=8 tma_rows=32", "wgmma_parts_x"),
        (KernelGemm(1024, 512, 4096, "NT", "f16"), "kg=2 splitk=3 cluster_y=4 nl=128", "wgmma_meeting"),
        (KernelGemm(4096, 4096, 4096, "NT", "f16"), "kg=4 splitk=4", "wgmma_meeting"),
        (
            KernelGemm(256, 256, 60000, "TN", "f16"),
            "ml=128 nl=64 transposed_mma=1 cluster_x=4 kg=16 stages=8 splitk=4",
            "wgmma_meeting",
        ),
        (KernelGemm(64, 64, 4096, "NT", "f16"), "kg=4 splitk=1", "wgmma_meeting"),
        (KernelGemm(64, 64, 64, "NT", "f16"), "pingpong=1", "wgmma_pingpong"),
    ],
)
def test_what_is_not_legal(problem, config, rule):
    plain = {"family": "2", "ml": "64", "nl": "64", "u": "64", "stages": "4"}
    values = plain | dict(word.split("=") for word in config.split())
    c = parse_config(" ".join(f"{n}={v}" for n, v in values.items()))
    found = broken(problem, c, H200)
    assert found is not None
    assert found.name == rule
    with pytest.raises(ConfigError, match=rule):
        plan_for(problem, c, H200)


def test_other_devices_have_no_wgmma():
    p, c = KernelGemm(64, 64, 64, "NT", "f16"), parse_config("family=2 ml=64 nl=64 u=64 stages=4")
    assert broken(p, c, H200) is None
    for name in ("a100", "b200", "t4"):
        assert broken(p, c, device(name)).name == "wgmma_target"


def test_a_cluster_fits_its_device():
    """The emulated device has four multiprocessors."""
    p, text = KernelGemm(512, 64, 4096, "NT", "f16"), "family=2 ml=64 nl=64 u=64 stages=4 "
    assert broken(p, parse_config(text + "cluster_k=4"), device("emulated")) is None
    for more in ("cluster_k=8", "cluster_x=8", "cluster_x=4 cluster_y=2"):
        assert broken(p, parse_config(text + more), device("emulated")).name == "wgmma_cluster"
        assert broken(p, parse_config(text + more), H200) is None
