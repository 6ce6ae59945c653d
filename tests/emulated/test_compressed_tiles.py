"""Kernels that multiply compressed tiles, and their preparation, executed with checks for races, bounds and uninitialised
reads; every element is compared."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.families.compressed_tiles.layout import bit_fields, number, offset_fields, pieces, word_fields
from ptxgen.families.compressed_tiles.tiles import CompressedTiles
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.device import device
from ptxgen.problem.reference import Array, reference, verdict
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.prepared_operands import PreparedOperands
from ptxgen.runtime.runner import Buffers, Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import check_some

CONFIG = parse_config("family=compressed_tiles b_columns=8 tile_warps=2 stages=2")
OFFSETS = CONFIG.replace(tile_index=1)
KINDS = ("f16", "f32")


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(18))
def test_random_problems_and_configurations(n: int) -> None:
    on = ("emulated", "a100", "h200", "b200")[n % 4]
    for p, c in SOURCES["compressed_tiles"].cases(900 + n, 1, device(on), threads=128):
        wrong = [
            f"{r.inputs}: {r.deviation}"
            for r in check_some(EmulatedDriver(), p, c, n, (0, 3)[n % 2] if c.vec_b == 1 else 0)
            if not r.ok
        ]
        assert not wrong, f"{p.key()} | {c}"


def with_rows(rows: list[list[int]], k: int, n: int, dtype: str = "f16") -> tuple[Spmm, Any]:
    """A problem and its arrays, with a matrix whose rows have these columns, in this order."""
    nnz = sum(map(len, rows))
    arrays = arrays_of(Spmm(len(rows), n, k, dtype=dtype, pattern=f"even:nnz={nnz}"), 3, "integers")
    arrays["indptr"] = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    arrays["indices"] = np.array([column for row in rows for column in row], np.int32)
    return Spmm(len(rows), n, k, dtype=dtype, pattern="bernoulli:density=0.1", calls=1000), arrays


RNG = np.random.default_rng(5)
ROWS: dict[str, list[list[int]]] = {
    "empty_rows": [[], [1], [], [], [0, 2, 3], [], [], [], [], [5], []],
    "empty_tiles": [[33]] + [[]] * 63 + [[4]],
    "no_nonzeros": [[]] * 5,
    "no_zeros": [list(range(97))] * 33,
    "unsorted": [[3, 2, 1, 9], [2, 0, 1], [96, 0, 36], list(range(96, -1, -1))],
    "random": [RNG.permutation(97)[: RNG.integers(60)].tolist() for _ in range(70)],
}


@pytest.mark.parametrize(
    ("rows", "config", "dtype"),
    [
        pytest.param(rows, (CONFIG, OFFSETS)[n // 2 % 2], KINDS[(n + n // 2 % 2) % len(KINDS)], id=name)
        for n, (name, rows) in enumerate(ROWS.items())
    ],
)
def test_rows_of_every_kind(rows: list[list[int]], config: Config, dtype: str) -> None:
    """Configurations and types in turn."""
    p, arrays = with_rows(rows, 97, 11, dtype)
    runner = Runner.of(EmulatedDriver(), p, config)
    for alpha, beta in ((1.0, 0.0), (2.0, -1.0)):
        given = dict(arrays)
        if beta == 0:
            given["C"] = np.full_like(arrays["C"], np.nan)
        got = runner.compute(given, alpha, beta)["C"]
        assert verdict("integers", got, reference(p, given, alpha, beta)).ok


def test_more_than_32_tiles_of_a_warp() -> None:
    """The places of further tiles are loaded when a lane is needed again."""
    p = Spmm(33, 3, 1100, dtype="f16", pattern="bernoulli:density=0.1", calls=1000)
    assert all(r.ok for r in check_some(EmulatedDriver(), p, CONFIG.replace(tile_warps=1, stages=3)))


@pytest.mark.parametrize(("k", "dtype"), [(31, "f16"), (64, "bf16"), (203, "f16")])
def test_vectors_are_copied_by_16_bytes(dtype: str, k: int) -> None:
    """The end of B is not a multiple of 16 bytes."""
    p = Spmm(40, 1, k, dtype=dtype, pattern="bernoulli:density=0.4", calls=1000)
    for config in (CONFIG, OFFSETS):
        assert all(r.ok for r in check_some(EmulatedDriver(), p, config.replace(vector_b=1)))


def test_alpha_0_reads_neither_a_nor_b() -> None:
    p = Spmm(9, 8, 7, dtype="f16", pattern="banded:width=3", calls=1000)
    for config in (CONFIG, CONFIG.replace(vec_b=8)):
        arrays = arrays_of(p)
        expected = 2 * arrays["C"].astype(np.float64)
        arrays["values"][:], arrays["B"][:] = np.nan, np.nan
        got = Runner.of(EmulatedDriver(), p, config).compute(arrays, 0.0, 2.0)["C"]
        np.testing.assert_array_equal(got.astype(np.float64), expected)


def test_the_same_inputs_give_the_same_bits() -> None:
    """Sums of the same tiles do not depend on stages and copies, nor on the order in which warps run."""
    p = Spmm(40, 8, 200, dtype="f16", pattern="bernoulli:density=0.3", calls=1000)
    arrays = arrays_of(p)
    configs = [CONFIG, CONFIG.replace(stages=4, vec_b=8), CONFIG.replace(b_columns=16), OFFSETS]
    first, *others = (Runner.of(EmulatedDriver(seed=i), p, c).compute(arrays)["C"] for i, c in enumerate(configs))
    for x in others:
        np.testing.assert_array_equal(x, first)


def test_extents_of_0() -> None:
    for m, n, k in ((0, 4, 5), (4, 0, 5), (4, 3, 0)):
        p = Spmm(m, n, k, dtype="f16", pattern="even:nnz=0", calls=1000)
        arrays = {**arrays_of(p), "C": np.full((m, n), np.nan, np.float16)}
        got = Runner.of(EmulatedDriver(), p, CONFIG).compute(arrays)["C"]
        np.testing.assert_array_equal(got, np.zeros((m, n)))


# ---- the preparation


def prepared(p: Spmm, arrays: Mapping[str, Array], offsets: int = 0) -> tuple[Array, bytes]:
    """The places of the tiles, and their bytes."""
    driver = EmulatedDriver()
    with Buffers(driver, arrays) as buffers:
        [made] = PreparedOperands(driver, buffers.addresses).make((CompressedTiles(p.dtype, offsets),), lower(p))
        starts = np.empty(-(-p.m // 32) * -(-p.k // 32) + 1, np.uint32)
        driver.download(made.arrays["tile_starts"].address, starts)
        data = np.zeros(16 * made.sizes["pieces"], np.uint8)
        if data.size:
            driver.download(made.arrays["tile_data"].address, data)
    return starts, data.tobytes()


def expected_tiles(p: Spmm, arrays: Mapping[str, Array]) -> tuple[list[int], bytes]:
    """The same by NumPy."""
    rows = np.repeat(np.arange(p.m), np.diff(arrays["indptr"]))
    starts, data, size = [0], b"", p.element.bytes
    for i in range(-(-p.m // 32)):
        for j in range(-(-p.k // 32)):
            inside = (rows // 32 == i) & (arrays["indices"] // 32 == j)
            places = [
                (number(word_fields(size), r, c), number(bit_fields(size), r, c))
                for r, c in zip(rows[inside] % 32, arrays["indices"][inside] % 32, strict=True)
            ]
            bitmap = np.zeros(32, np.uint32)
            for word, bit in places:
                bitmap[word] |= np.uint32(1 << int(bit))
            values = arrays["values"][inside][sorted(range(len(places)), key=lambda n: places[n])]
            tile = bitmap.tobytes() + values.tobytes()
            data += tile + bytes(-len(tile) % 16)
            starts.append(len(data) // 16)
    return starts, data


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_tiles_have_the_nonzeros_in_the_order_of_their_bits(rows: list[list[int]], dtype: str) -> None:
    p, arrays = with_rows(rows, 97, 8, dtype)
    starts, data = prepared(p, arrays)
    places, tiles = expected_tiles(p, arrays)
    assert starts.tolist() == places
    assert data == tiles


@pytest.mark.parametrize("dtype", KINDS)
def test_tiles_with_offsets_have_each_nonzero_once(dtype: str) -> None:
    p, arrays = with_rows(ROWS["random"], 97, 8, dtype)
    starts, data = prepared(p, arrays, 1)
    size, kinds = p.element.bytes, p.element.numpy
    rows = np.repeat(np.arange(p.m), np.diff(arrays["indptr"]))
    for tile, (begin, end) in enumerate(pairwise(16 * starts.astype(int))):
        inside = np.flatnonzero((rows // 32 == tile // 4) & (arrays["indices"] // 32 == tile % 4))
        expected = {
            number(offset_fields(size), rows[n] % 32, arrays["indices"][n] % 32): arrays["values"][n] for n in inside
        }
        [count] = np.frombuffer(data[begin : begin + 4], np.uint32)
        offsets = np.frombuffer(data[begin + 4 : begin + 4 + 2 * count], np.uint16)
        values = np.frombuffer(data[end - size * count : end], kinds)[::-1]
        assert dict(zip(offsets.tolist(), values, strict=True)) == expected
        assert end - begin == 16 * pieces(size, len(inside), 1)


def test_many_tiles_are_scanned_in_several_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompressedTiles, "scan_each", 1)
    p, arrays = with_rows([[700 * i % 33_000] for i in range(60)], 33_000, 1)
    assert prepared(p, arrays)[0].tolist() == expected_tiles(p, arrays)[0]


@pytest.mark.parametrize("config", [CONFIG, OFFSETS], ids=["bitmap", "offsets"])
def test_changed_values_are_prepared_again(config: Config) -> None:
    p, arrays = with_rows(ROWS["random"], 97, 8)
    driver = EmulatedDriver()
    runner = Runner.of(driver, p, config)
    with Buffers(driver, arrays) as buffers:
        operands = PreparedOperands(driver, buffers.addresses)
        ready = runner.on(operands)
        changed = {**arrays, "values": (2 * arrays["values"]).astype(arrays["values"].dtype)}
        driver.upload(buffers.addresses["values"], changed["values"])
        operands.update()
        ready.bind(buffers.addresses)()
        got = np.empty_like(arrays["C"])
        driver.download(buffers.addresses["C"], got)
    assert verdict("integers", got, reference(p, changed)).ok


# ---- handles


def test_handles_multiply_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    p = Spmm(64, 8, 512, dtype="f16", pattern="bernoulli:density=0.5")
    arrays = arrays_of(p, 1, "integers")
    a = ptxgen.SparseMatrix(arrays["indptr"], arrays["indices"], arrays["values"], (64, 512))
    handle = ptxgen.spmm_prepare(a, calls=10_000)
    monkeypatch.setattr(handle, "_tuned", {8: CONFIG})
    zero = {**arrays, "C": np.zeros_like(arrays["C"])}
    assert verdict("integers", handle(arrays["B"]), reference(p, zero)).ok
    assert handle.config == CONFIG
    changed = (2 * arrays["values"]).astype(np.float16)
    handle.update(changed)
    assert verdict("integers", handle(arrays["B"]), reference(p, {**zero, "values": changed})).ok
