"""Tasks whose bits tensor cores count, and the packing of truth values, executed on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DtypeError, ShapeError
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right

RNG = np.random.default_rng(5)
CONFIG = parse_config("family=mma ms=16 ns=16 ml=32 nl=32 u=16 vec_a=4 vec_b=4 vec_c=1")
HAMMING = "where (i, j) { reduce (k) { accum += P[i,k] != R[j,k]; } D[i,j] = accum; }"


@pytest.mark.parametrize(("on", "count"), [("h200", 3), ("a100", 1)])
def test_random_tasks_of_bits(on: str, count: int) -> None:
    for n, (p, c) in enumerate(SOURCES["task_bits"].cases(1, count, device(on), limit=30, threads=64)):
        right(p, c, n, on)


def truths(shape: tuple[int, ...], share: float) -> Any:
    """Bytes, of which about ``share`` are true, with any value but 0."""
    return np.where(RNG.random(shape) < share, RNG.integers(1, 256, shape), 0).astype(np.uint8)


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("NN", (17, 21, 65)), ("TT", (17, 21, 65)), ("NT", (20, 24, 304)), ("TN", (20, 24, 304)), ("TN", (5, 3, 0))],
)
def test_bytes_that_are_not_zero_are_true(layout: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = truths((m, k), 0.15), truths((k, n), 0.15)
    text = "where (i, j) { reduce (k) { accum |= P[i,k] != 0 and R[k,j] != 0; } C[i,j] = accum != 0; }"
    p = Task(m, n, k, layout, "u8", text=text)
    given = [x if letter == "N" else np.ascontiguousarray(x.T) for x, letter in zip((a, b), layout, strict=True)]
    runner = Runner.of(EmulatedDriver(device("h200")), p, CONFIG)
    assert len(runner.launch.steps) == 2
    result = runner.compute({"A": given[0], "B": given[1], "C": np.full((m, n), 7, np.uint8)})["C"]
    assert np.array_equal(result, (a != 0) @ (b != 0))


def test_or_and_of_truth_values_gives_truth_values() -> None:
    a, b = RNG.random((40, 70)) < 0.1, RNG.random((70, 33)) < 0.1
    result = ptxgen.matmul_over("or_and", a, b)
    assert result.dtype == bool
    assert np.array_equal(result, a @ b)
    out = np.zeros((40, 33), bool)
    assert ptxgen.matmul_over("or_and", a.astype(np.uint8).view(bool), b, out) is out
    assert np.array_equal(out, a @ b)
    assert ptxgen.matmul_over("or_and", a, b.astype(np.uint8)).dtype == np.uint8  # bits of integers


def test_differences_of_truth_values_are_hamming_distances() -> None:
    p, r = RNG.random((37, 90)) < 0.5, RNG.random((29, 90)) < 0.5
    hamming = ptxgen.task(HAMMING)
    for x, y in ((p, r), (p[:, ::2], r[:, ::2]), (p, p)):
        expected = (x[:, None] != y).sum(-1)
        assert np.array_equal(hamming(P=x, R=y), expected)
        assert np.array_equal(hamming(P=x, R=y, algebra=False), expected)
    steps = {problem.text: runner.plan.config.family for (_, problem), runner in runners.runners.items()}
    assert {"mma"} <= {family for text, family in steps.items() if "u8" in text}
    bytes_of = [x.astype(np.uint8) * 3 for x in (p, r)]
    bytes_of[0][0, 0] = 2  # differs from 3, though both are true
    assert np.array_equal(hamming(*bytes_of), (bytes_of[0][:, None] != bytes_of[1]).sum(-1))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8], ids=lambda x: x.__name__)
def test_packed_bits_are_those_of_numpy(dtype: Any) -> None:
    for m, k in ((5, 31), (33, 64), (7, 129), (130, 300), (0, 4), (4, 0)):
        a = truths((m, k), 0.4).astype(dtype)
        bits = np.packbits(a != 0, axis=1, bitorder="little")
        padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4)))
        for x in (a, np.asfortranarray(a)):
            result = ptxgen.pack_bits(x)
            assert (result.dtype, result.shape) == (np.uint32, (m, -(-k // 32)))
            assert np.array_equal(result, np.ascontiguousarray(padded).view(np.uint32))
    out = np.empty((130, 10), np.uint32)
    assert ptxgen.pack_bits(np.repeat(a, 2, axis=0)[::2], np.empty((4, 0), np.uint32)).shape == (4, 0)
    assert ptxgen.pack_bits(truths((130, 600), 0.5)[:, ::2], out) is out


def test_words_have_the_distances_of_their_bits() -> None:
    p, r = RNG.random((26, 70)) < 0.5, RNG.random((19, 70)) < 0.5
    words = [ptxgen.pack_bits(x) for x in (p, r)]
    of_words = HAMMING.replace("P[i,k] != R[j,k]", "popcount(P[i,k] ^ R[j,k])")
    assert np.array_equal(ptxgen.task(of_words)(*words), (p[:, None] != r).sum(-1))


def test_errors_of_pack_bits_name_the_argument() -> None:
    with pytest.raises(DtypeError, match="a is f32; it must be bool, u8 or s8: pass a != 0"):
        ptxgen.pack_bits(np.zeros((2, 3), np.float32))
    with pytest.raises(ShapeError, match=r"a has shape \(3,\); it must have 2 dimensions"):
        ptxgen.pack_bits(np.zeros(3, bool))
    with pytest.raises(ShapeError, match=r"out has shape \(2, 3\); it must be \(2, 1\)"):
        ptxgen.pack_bits(np.zeros((2, 3), bool), np.zeros((2, 3), np.uint32))
    with pytest.raises(DtypeError, match="out is s32; it must be u32"):
        ptxgen.pack_bits(np.zeros((2, 3), bool), np.zeros((2, 1), np.int32))
