"""``ptxgen.gemm``: arrays of every stride and library, and invalid calls. The driver is the emulated device; for arrays
on a GPU, a subclass that calls itself ``cuda``."""

from __future__ import annotations

import sys
import types
import warnings
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, drivers, launches, on_host, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DeviceError, DtypeError, InputError, OverlapError, ShapeError, UnavailableError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection
from ptxgen.tuning.selection import Selection

#: serves every problem, whatever its alignment
ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")


class Driver(EmulatedDriver):
    """The emulated device, which records the streams of its launches."""

    def __init__(self, name: str = "emulated") -> None:
        super().__init__()
        self.name = name
        self.streams: list[int] = []

    def launch(self, kernel, step, parameters, stream=0) -> None:
        self.streams.append(stream)
        super().launch(kernel, step, parameters, stream)


@pytest.fixture
def fresh(monkeypatch):
    """Empties the call cache; selects one configuration for all problems, which are recorded."""
    asked = []

    def select(problem, device, database=None):
        asked.append(problem)
        return [Selection(problem, ANY, "given")]

    monkeypatch.setattr(selection, "select", select)
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(choice, "database", lambda: None)
    return asked


@pytest.fixture
def host(fresh, monkeypatch):
    on = Driver()
    monkeypatch.setattr(drivers, "driver", lambda: on)
    return SimpleNamespace(driver=on, asked=fresh)


@pytest.fixture
def gpu(fresh, monkeypatch):
    on = Driver("cuda")
    monkeypatch.setattr(drivers, "driver", lambda: on)
    return SimpleNamespace(driver=on, asked=fresh)


def integers(shape: tuple[int, int], dtype: str = "f4", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """The same values with other elements between them."""
    out = np.full((x.shape[0] + 3, 2 * x.shape[1] + 5), 77, x.dtype)
    out[1:-2, 2 : 2 + x.shape[1]] = x
    return out[1:-2, 2 : 2 + x.shape[1]]


def strided(x: np.ndarray) -> np.ndarray:
    out = np.full((2 * x.shape[0], 3 * x.shape[1]), 77, x.dtype)
    out[::2, ::3] = x
    return out[::2, ::3]


#: the same matrix with all kinds of strides
STRIDES = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "part": wide,
    "transposed part": lambda x: wide(np.ascontiguousarray(x.T)).T,
    "every other": strided,
    "upside down": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "mirrored": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "transposed": lambda x: np.ascontiguousarray(x[::-1, ::-1].T)[::-1, ::-1].T,
}


# ---- results


@pytest.mark.parametrize(
    ("a", "b"),
    [*((name, "rows") for name in STRIDES), *(("columns", name) for name in STRIDES), ("transposed", "mirrored")],
)
def test_operands_of_every_stride(host, a, b):
    x, y = integers((19, 23)), integers((23, 18), seed=1)
    left, right = STRIDES[a](x), STRIDES[b](y)
    assert np.array_equal(left, x)
    before = left.copy(), right.copy()
    out = ptxgen.gemm(left, right)
    assert np.array_equal(out, x @ y)
    assert out.dtype == np.float32
    assert out.flags.c_contiguous
    assert np.array_equal(left, before[0])
    assert np.array_equal(right, before[1])


@pytest.mark.each_value
@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize("beta", [0.0, -2.0])
def test_results_of_every_stride(host, name, beta):
    x, y = integers((19, 23)), integers((23, 18), seed=1)
    old = np.full((19, 18), np.nan, np.float32) if beta == 0 else integers((19, 18), seed=2)
    out = STRIDES[name](old.copy())
    assert ptxgen.gemm(x, y, alpha=3, beta=beta, out=out) is out
    assert np.array_equal(out, 3 * (x @ y) + (beta * old if beta else 0))
    if name in ("part", "every other"):  # nothing else was written
        assert (out.base == 77).sum() >= out.base.size - out.size
        out[...] = 77
        assert (out.base == 77).all()


@pytest.mark.parametrize(
    ("dtype", "compute"), [("f2", None), ("f2", "f16"), ("f2", "f32"), ("f4", None), ("f4", "f32"), ("f8", None)]
)
def test_types(host, dtype, compute):
    x, y = integers((9, 10), dtype), integers((10, 11), dtype, 1)
    out = ptxgen.gemm(x, y, compute=compute)
    assert out.dtype == np.dtype(dtype)
    assert np.array_equal(out, x.astype(int) @ y.astype(int))
    assert host.asked[0].compute == (compute or {"f2": "f32", "f4": "f32", "f8": "f64"}[dtype])


def test_half_in_single_out(host):
    x, y = integers((9, 10), "f2"), integers((10, 11), "f2", 1)
    out = np.full((9, 11), np.nan, np.float32)
    assert np.array_equal(ptxgen.gemm(x, y, out=out), x.astype(int) @ y.astype(int))


def test_transposes_are_not_copied_into_other_layouts(host):
    x, y = integers((19, 23)), integers((23, 18), seed=1)
    for left, right, layout in (
        (x, y, "NN"),
        (x, np.asfortranarray(y), "NT"),
        (np.asfortranarray(x), y, "TN"),
        (x.T.copy().T, y.T.copy().T, "TT"),
    ):
        ptxgen.gemm(left, right)
        assert host.asked[-1].layout == layout


def test_deterministic_reaches_the_problem(host):
    x = integers((8, 8))
    ptxgen.gemm(x, x)
    ptxgen.gemm(x, x, deterministic=True)
    assert [p.deterministic for p in host.asked] == [False, True]


@pytest.mark.parametrize("shape", [(0, 5, 6), (5, 0, 6), (5, 6, 0), (0, 0, 0), (1, 1, 1), (1, 7, 1)])
def test_degenerate_shapes(host, shape):
    m, n, k = shape
    x, y = integers((m, k)), integers((k, n), seed=1)
    assert np.array_equal(ptxgen.gemm(x, y), x @ y)
    old = integers((m, n), seed=2)
    out = old.copy()
    ptxgen.gemm(x, y, beta=-1.0, out=out)
    assert np.array_equal(out, x @ y - old)


def test_beta_zero_does_not_read_out(host):
    x = integers((8, 8))
    out = np.full((8, 8), np.nan, np.float32)
    assert np.array_equal(ptxgen.gemm(x, x, out=out), x @ x)
    assert np.isnan(ptxgen.gemm(x, x, beta=1.0, out=np.full((8, 8), np.nan, np.float32))).all()


@pytest.mark.each_value
@pytest.mark.parametrize("beta", [0.0, -2.0])
@pytest.mark.parametrize("name", STRIDES)
def test_alpha_zero_reads_neither_operand(host, name, beta):
    """As in BLAS: beta·out, or what the epilogue makes of a product of zeros."""
    a = STRIDES[name](np.full((19, 23), np.nan, np.float32))
    b, old, bias = a.T, integers((19, 19)), integers((1, 19))[0]
    start = np.full_like(old, np.nan) if beta == 0 else old
    kept = beta * old if beta else np.zeros_like(old)
    assert np.array_equal(ptxgen.gemm(a, b, alpha=0, beta=beta, out=start.copy()), kept)
    out = STRIDES[name](start)
    assert np.array_equal(
        ptxgen.gemm(a, b, alpha=-0.0, beta=beta, out=out, bias=bias, activation="relu"), np.maximum(kept + bias, 0)
    )


def test_alpha_zero_of_batches_and_types(host):
    three = np.full((3, 5, 7), np.inf)
    for a, b in ((three, three[0].T), (three[0], three.swapaxes(1, 2)), (three, three.swapaxes(1, 2))):
        assert np.array_equal(ptxgen.gemm(a, b, alpha=0), np.zeros((3, 5, 5)))
    for dtype in ("f2", "f4", "f8"):
        a = np.full((17, 65), np.nan, dtype)
        assert np.array_equal(ptxgen.gemm(a, a.T, alpha=0), np.zeros((17, 17), dtype))


def test_numbers_of_other_types(host):
    x = integers((8, 8))
    for two in (2, 2.0, np.float32(2), np.int64(2), np.array(2.0), True + 1):
        assert np.array_equal(ptxgen.gemm(x, x, alpha=two), 2 * (x @ x))


def test_interleaved_parts_of_one_array_do_not_overlap(host):
    both = np.zeros((8, 16), np.float32)
    both[:, ::2] = integers((8, 8))
    x = both[:, ::2]
    y = integers((8, 8), seed=1)
    expected = x @ y
    ptxgen.gemm(x, y, out=both[:, 1::2])
    assert np.array_equal(both[:, 1::2], expected)


@pytest.fixture
def real(monkeypatch):
    """Nothing is replaced: selection by the model, generation, the emulated device."""
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(choice, "database", lambda: None)
    drivers.driver.cache_clear()
    yield
    drivers.driver.cache_clear()


def test_gemm_without_replacements(real):
    x, y = integers((33, 65)), integers((65, 31), seed=1)
    assert np.array_equal(ptxgen.gemm(x, y.T.copy().T), x @ y)
    assert drivers.driver().name == "emulated"


def test_int8_sums_wrap_at_32_bits(real):
    x, y = np.full((1, 131072), -128, "i1"), np.full((131072, 1), -128, "i1")
    assert ptxgen.gemm(x, y) == -(1 << 31)  # the sum is 1 << 31
    assert ptxgen.gemm(x[:, :65536], y[:65536], alpha=3) == 3 * (1 << 30) - (1 << 32)


# ---- rejected arguments

A, B = integers((4, 5)), integers((5, 6))


def read_only() -> np.ndarray:
    out = np.zeros((4, 6), np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"a": [[1.0]]}, InputError, "a is list; it must be an array"),
        ({"b": None}, InputError, "b is NoneType"),
        ({"a": A[0]}, ShapeError, r"a has shape \(\d+,\); it must have 2, or with the batch first 3, dimensions"),
        ({"b": B[None, None]}, ShapeError, r"b has shape \(1, 1, \d+, \d+\)"),
        (
            {"a": A[[0, 0, 0], None], "b": B[None][[0, 0]]},
            ShapeError,
            "a has a batch of 3 and b one of 2; they must be equal",
        ),
        ({"b": B[None], "out": np.zeros((4, 6), "f4")}, ShapeError, "out is 4x6; it must be 1x4x6"),
        (
            {"b": B[None], "residual": np.zeros((4, 6), "f4")},
            ShapeError,
            "residual is f32 of 4x6 in host memory; it must be f32 of 1x4x6 in host memory, as out",
        ),
        ({"a": A.astype("f8")}, DtypeError, "a is f64 and b is f32; they must be the same"),
        ({"a": A.astype("i8")}, DtypeError, "a has dtype int64"),
        (
            {"a": A.astype("i4"), "b": B.astype("i4")},
            DtypeError,
            "a and b have dtype int32; it must be one of float16, bf",
        ),
        ({"b": B[:4]}, ShapeError, "a is 4x5 and b is 4x6; the columns of a must be the rows of b"),
        ({"b": B.T}, ShapeError, "a is 4x5 and b is 6x5"),
        ({"beta": 1.0}, InputError, "beta is 1 and out is None"),
        ({"alpha": "two"}, InputError, "alpha is 'two'; it must be a real number"),
        ({"alpha": 1j}, InputError, r"alpha is 0\+1j; with operands of float32 it must be a real number"),
        ({"beta": None}, InputError, "beta is None"),
        ({"compute": "f64"}, DtypeError, "compute is 'f64'; with dtype f32 it must be one of f32"),
        ({"out": np.zeros((6, 4), "f4")}, ShapeError, "out is 6x4; it must be 4x6, the shape of a·b"),
        ({"out": np.zeros((4, 6), "f8")}, DtypeError, "out is f64; with a and b of f32 it must be f32"),
        ({"out": np.zeros(24, "f4")}, ShapeError, r"out has shape \(24,\)"),
        ({"out": [[0.0]]}, InputError, "out is list"),
        ({"out": read_only()}, InputError, "out is read-only"),
        ({"out": np.broadcast_to(np.zeros((1, 6), "f4"), (4, 6))}, InputError, "out is read-only"),
    ],
)
def test_invalid_arguments_are_refused(host, arguments, error, words):
    with pytest.raises(error, match=words):
        ptxgen.gemm(arguments.pop("a", A), arguments.pop("b", B), **arguments)
    assert not host.driver.streams  # nothing was launched


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: x[:]])
@pytest.mark.parametrize("operand", ["a", "b"])
def test_out_must_not_share_memory(host, make, operand):
    x, y = integers((6, 6)), integers((6, 6), seed=1)
    copy = x.copy()
    with pytest.raises(OverlapError, match=f"out shares memory with {operand}"):
        ptxgen.gemm(*((x, y) if operand == "a" else (y, x)), out=make(x))
    assert np.array_equal(x, copy)


def test_out_must_not_share_a_single_element(host):
    memory = np.zeros(100, np.float32)
    x, out = memory[:36].reshape(6, 6), memory[35:71].reshape(6, 6)
    with pytest.raises(OverlapError):
        ptxgen.gemm(x, integers((6, 6)), out=out)
    ptxgen.gemm(x, integers((6, 6)), out=memory[36:72].reshape(6, 6))


def test_out_must_not_overlap_epilogue_operands(host):
    x, out = integers((6, 6)), np.zeros((6, 6), np.float32)
    for given in (
        {"bias": out[0]},
        {"residual": out},
        {"residual": out.T},
        {"scale_a": out[5], "scale_b": x[0]},
        {"scale_a": x[0], "scale_b": out[5]},
    ):
        name = next(n for n, v in given.items() if np.shares_memory(v, out))
        with pytest.raises(OverlapError, match=f"out shares memory with {name}"):
            ptxgen.gemm(x, x, out=out, **given)
    assert not host.driver.streams


def test_elements_of_out_must_not_share_memory(host):
    x, memory = integers((6, 6)), np.zeros(99, np.float32)
    for strides in ((4, 4), (0, 4), (24, 0), (20, 4), (-4, 4)):
        out = np.lib.stride_tricks.as_strided(memory[50:], (6, 6), strides)
        with pytest.raises(
            ShapeError, match=r"out has shape \(6, 6\) and strides .*its elements must not share memory"
        ):
            ptxgen.gemm(x, x, out=out)
    strided = np.lib.stride_tricks.as_strided(memory, (6, 6), (4 * 4, 6 * 4))
    assert len({4 * i + 6 * j for i in range(6) for j in range(6)}) < 36
    with pytest.raises(ShapeError, match="its elements must not share memory"):
        ptxgen.gemm(x, x, out=strided)
    strided = np.lib.stride_tricks.as_strided(memory, (6, 6), (5 * 4, 6 * 4))
    assert len({5 * i + 6 * j for i in range(6) for j in range(6)}) == 36
    assert np.array_equal(ptxgen.gemm(x, x, out=strided), x @ x)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"alpha": 10**400}, "alpha is an integer of 1329 bits; it must be a real number that fits a double"),
        ({"beta": -(10**5000)}, "beta is an integer of 16610 bits"),
        ({"alpha": "1.5"}, "alpha is '1.5'; it must be a real number"),
        ({"deterministic": None}, "deterministic is None; it must be True or False"),
        ({"deterministic": 1}, "deterministic is 1; it must be True or False"),
        ({"compute": 0}, "compute is 0; it must be a string"),
        ({"compute": np.array(["f32", "f32"])}, "compute is array"),
        ({"activation": np.array(["relu", "relu"])}, "activation is array.* must be one of relu, gelu, silu"),
        ({"bias": np.ma.masked_array(B[0], B[0] > 0)}, "bias is a masked array"),
        ({"residual": np.ma.masked_array(A @ B)}, "residual is a masked array"),
        ({"a": np.ma.masked_array(A)}, "a is a masked array"),
    ],
)
def test_values_of_wrong_types_are_refused(host, given, words):
    with pytest.raises(InputError, match=words):
        ptxgen.gemm(**{"a": A, "b": B, **given})
    assert not host.driver.streams
    assert np.array_equal(ptxgen.gemm(A, B, deterministic=np.True_), A @ B)


# ---- arrays of a GPU


class Foreign:
    """A device matrix of a library that only provides __cuda_array_interface__."""

    def __init__(
        self,
        on: Driver,
        x: np.ndarray,
        order: str = "C",
        gap: int = 0,
        offset: int = 0,
        *,
        readonly: bool = False,
        stream: Any = None,
    ) -> None:
        self.on, self.order, self.x = on, order, x
        rows = x if order == "C" else x.T
        self.packed = np.full((rows.shape[0], rows.shape[1] + gap), 99, x.dtype)
        self.packed[:, : rows.shape[1]] = rows
        size = x.dtype.itemsize
        self.at = on.allocate(self.packed.nbytes + 64) + offset * size
        self.put()
        ld = (rows.shape[1] + gap) * size
        self.__cuda_array_interface__ = {
            "shape": x.shape,
            "typestr": x.dtype.str,
            "version": 3,
            "data": (self.at, readonly),
            "strides": (ld, size) if order == "C" else (size, ld),
            "stream": stream,
        }

    def put(self) -> None:
        if self.packed.size:
            self.on.upload(self.at, self.packed)

    @property
    def value(self) -> np.ndarray:
        if self.packed.size:
            self.on.download(self.at, self.packed)
        rows = self.packed[:, : self.x.shape[self.order == "C"]]
        return rows if self.order == "C" else rows.T


@pytest.mark.each_value
@pytest.mark.parametrize("orders", ["CCC", "CCF", "CFC", "FCC", "FFC", "CFF", "FCF", "FFF"])
@pytest.mark.parametrize(("gap", "offset"), [(0, 0), (4, 1), (3, 2)])
def test_device_arrays_of_every_order(gpu, orders, gap, offset):
    """A column-major C is computed as its transpose; strides give leading dimensions, addresses give alignment; padding
    is not read."""
    x, y, old = integers((9, 12)), integers((12, 7), seed=1), integers((9, 7), seed=2)
    a, b, c = (Foreign(gpu.driver, v, o, gap, offset) for v, o in zip((x, y, old), orders, strict=True))
    assert ptxgen.gemm(a, b, alpha=2.0, beta=-1.0, out=c) is c
    assert np.array_equal(c.value, 2 * (x @ y) - old)
    assert (c.packed[:, 7 if orders[2] == "C" else 9 :] == 99).all()
    assert np.array_equal(a.value, x)
    assert np.array_equal(b.value, y)
    p = gpu.asked[0]
    assert (p.m, p.n) == ((9, 7) if orders[2] == "C" else (7, 9))
    assert {p.aligned_a, p.aligned_b, p.aligned_c} == {16 if offset % 4 == 0 else 4 * (offset & -offset)}


def test_launches_use_the_stream_of_the_array(gpu):
    """The legacy default stream, 1, if a library names none."""
    x = integers((8, 8))
    for stream, expected in ((None, 1), (1, 1), (2, 2), (77, 77)):
        a, c = Foreign(gpu.driver, x, stream=stream), Foreign(gpu.driver, x)
        ptxgen.gemm(a, Foreign(gpu.driver, x), out=c)
        assert gpu.driver.streams[-1] == expected
        assert np.array_equal(c.value, x @ x)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 6), (5, 0, 6), (5, 6, 0)])
def test_device_arrays_without_elements(gpu, m, n, k):
    a, b, c = (Foreign(gpu.driver, integers(s)) for s in ((m, k), (k, n), (m, n)))
    ptxgen.gemm(a, b, out=c)
    assert (c.value == 0).all()
    assert bool(gpu.driver.streams) == (k == 0)


def test_invalid_device_arrays_are_refused(gpu):
    x = integers((6, 6))
    a, b = Foreign(gpu.driver, x), Foreign(gpu.driver, x)
    with pytest.raises(InputError, match=r"out is None; with arrays of \w+ out is required"):
        ptxgen.gemm(a, b)
    with pytest.raises(InputError, match=r"a is .* and b is .*; they must be in the same memory"):
        ptxgen.gemm(a, x)
    with pytest.raises(InputError, match=r"out is .* and a is .*; they must be in the same memory"):
        ptxgen.gemm(a, b, out=np.zeros((6, 6), np.float32))
    with pytest.raises(InputError, match="out is read-only"):
        ptxgen.gemm(a, b, out=Foreign(gpu.driver, x, readonly=True))
    with pytest.raises(OverlapError, match="out shares memory with b"):
        ptxgen.gemm(a, b, out=b)
    foreign = Foreign(gpu.driver, x)
    foreign.__cuda_array_interface__["strides"] = (48, 8)
    with pytest.raises(ShapeError, match=r"a has strides \(12, 2\); its rows or its columns must be contiguous"):
        ptxgen.gemm(foreign, b, out=Foreign(gpu.driver, x))
    with pytest.raises(ShapeError, match=r"out has strides \(12, 2\)"):
        ptxgen.gemm(a, b, out=foreign)
    with pytest.raises(ShapeError, match=r"scale_a has shape \(6, 6\); it must have one axis"):  # it has no reshape()
        ptxgen.gemm(a, b, out=Foreign(gpu.driver, x), scale_a=Foreign(gpu.driver, x), scale_b=Foreign(gpu.driver, x))
    assert not gpu.driver.streams


class At:
    """A float32 array at an address of the device; ``strides`` in elements."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.address = address
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "version": 3,
            "data": (address, False),
            "strides": tuple(4 * s for s in strides),
        }

    def reshape(self, *shape: int) -> At:
        [n] = self.__cuda_array_interface__["shape"]
        return At(self.address, (1, n), (n, 1))


def test_out_and_epilogue_operands_on_a_gpu(gpu):
    x = integers((6, 6))
    a, b = Foreign(gpu.driver, x), Foreign(gpu.driver, x)
    start = gpu.driver.allocate(4096)
    out, row = At(start + 1024, (6, 6), (6, 1)), At(start, (6,), (1,))
    for place in (start + 1024, start + 1024 + 35 * 4, start + 1024 - 20):
        over = At(place, (6,), (1,))
        for given in (
            {"bias": over},
            {"scale_a": row, "scale_b": over},
            {"scale_a": over, "scale_b": row},
            {"residual": At(place, (6, 6), (6, 1))},
        ):
            name = next(n for n, v in given.items() if v is not row)
            with pytest.raises(OverlapError, match=f"out shares memory with {name}"):
                ptxgen.gemm(a, b, out=out, **given)
    with pytest.raises(ShapeError, match="its elements must not share memory"):
        ptxgen.gemm(a, b, out=At(start, (6, 6), (5, 1)))
    assert not gpu.driver.streams
    ptxgen.gemm(a, b, out=out, bias=At(start + 1024 + 36 * 4, (6,), (1,)))


def test_interleaved_rows_do_not_overlap_on_a_gpu(gpu):
    x, start = integers((6, 6)), gpu.driver.allocate(4096)
    gpu.driver.upload(start, np.ascontiguousarray(np.stack([x, 0 * x], axis=1)))  # rows of x and of out alternate
    ptxgen.gemm(At(start, (6, 6), (12, 1)), Foreign(gpu.driver, x), out=At(start + 24, (6, 6), (12, 1)))
    both = np.empty((6, 2, 6), np.float32)
    gpu.driver.download(start, both)
    assert np.array_equal(both[:, 0], x)
    assert np.array_equal(both[:, 1], x @ x)
    with pytest.raises(OverlapError, match="out shares memory with a"):
        ptxgen.gemm(At(start, (6, 6), (12, 1)), Foreign(gpu.driver, x), out=At(start + 20, (6, 6), (12, 1)))


def without_driver(monkeypatch, installed):
    """A machine without NVIDIA's driver and without PyCUDA; ``installed``: with cuda-bindings."""

    def fail(*arguments):
        raise RuntimeError("libcuda can only be found via system search")

    bindings, ordinal = types.ModuleType("cuda.bindings"), SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)
    bindings.driver = SimpleNamespace(cuInit=fail, cuPointerGetAttribute=fail, CUpointer_attribute=ordinal)
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings if installed else None)
    for name in ("pycuda", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("installed", [False, True])
def test_device_arrays_need_a_gpu(host, monkeypatch, installed):
    """The emulated driver refuses them before anything is allocated for the result."""
    remedy = (
        r"no GPU was found.*give this process a GPU"
        if installed
        else r"cuda-bindings cannot be imported.*ptxgen\[cuda\]"
    )
    without_driver(monkeypatch, installed)
    x = integers((6, 6))
    a, b = Foreign(host.driver, x), Foreign(host.driver, x)
    for out in (None, Foreign(host.driver, x)):
        with pytest.raises(UnavailableError, match=rf"takes arrays in host memory: {remedy}"):
            ptxgen.gemm(a, b, out=out)


# ---- PyTorch, without PyTorch


class Place(NamedTuple):
    type: str
    index: int


def tensors(on: Driver, stream: int = 0):
    """A module with PyTorch's interface, whose tensors are in the emulated device's memory."""
    torch = types.ModuleType("torch")
    kinds = {
        name: type("dtype", (), {"__repr__": lambda self, n=name: f"torch.{n}"})()
        for name in ("float16", "float32", "float64", "bfloat16", "int8", "int32")
    }
    vars(torch).update(kinds)
    torch.stream = stream
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: torch.stream)
    torch.copies = 0
    torch.recording = True
    torch.is_grad_enabled = lambda: torch.recording

    class Tensor:
        __module__ = "torch"
        requires_grad = negative = False

        def __init__(self, x: np.ndarray, at: int | None = None, strides=None, index: int = 0):
            self.host, self.dtype, self.shape = x, kinds[x.dtype.name], x.shape
            self.device = Place("cuda", index)
            self.at = on.allocate(max(x.nbytes, 1)) if at is None else at
            self.strides = strides or tuple(int(np.prod(x.shape[i + 1 :])) for i in range(x.ndim))
            if at is None and x.size:
                on.upload(self.at, np.ascontiguousarray(x))

        def stride(self):
            return self.strides

        def data_ptr(self) -> int:
            return self.at

        def is_neg(self) -> bool:
            return self.negative

        def is_conj(self) -> bool:
            return False

        def get_device(self) -> int:
            return self.device.index

        def new_empty(self, shape, dtype=None):
            element = next(name for name, k in kinds.items() if k is (dtype or self.dtype))
            return Tensor(np.full(shape, 55, element))

        def contiguous(self):
            torch.copies += 1
            return Tensor(self.value)

        @property
        def value(self) -> np.ndarray:
            out = np.zeros(1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)), self.host.dtype)
            on.download(self.at, out)
            size = out.itemsize
            return np.lib.stride_tricks.as_strided(out, self.shape, [s * size for s in self.strides]).copy()

        @property
        def row(self) -> Tensor:
            """The first row."""
            return Tensor(self.host[0], self.at, self.strides[1:])

        @property
        def T(self) -> Tensor:  # noqa: N802
            return Tensor(self.host.T, self.at, self.strides[::-1])

        def like(self, shape, strides) -> Tensor:
            return Tensor(np.zeros(shape, self.host.dtype), self.at, strides)

        def part(self, rows: int, columns: int, at: int, strides) -> Tensor:
            x = np.zeros((rows, columns), self.host.dtype)
            return Tensor(x, self.at + at * x.itemsize, strides)

    torch.Tensor = Tensor
    return torch


@pytest.fixture
def torch(gpu, monkeypatch):
    made = tensors(gpu.driver)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_second_call_on_tensors_uses_the_cache(gpu, torch):
    x, y = integers((8, 8)), integers((8, 8), seed=1)
    out = ptxgen.gemm(torch.Tensor(x), torch.Tensor(y))
    assert np.array_equal(out.value, x @ y)
    assert out.dtype is torch.float32
    assert len(gpu.asked) == 1
    again = ptxgen.gemm(torch.Tensor(y), torch.Tensor(x))
    assert np.array_equal(again.value, y @ x)
    assert len(gpu.asked) == 1  # remembered
    torch.stream = 42
    ptxgen.gemm(torch.Tensor(y), torch.Tensor(x))
    assert gpu.driver.streams == [1, 1, 42]
    ptxgen.gemm(torch.Tensor(x), torch.Tensor(y), alpha=2.0)
    assert len(launches.launches) == 2


def test_products_with_an_epilogue_use_the_cache(gpu, torch):
    x, y, z = (integers((8, 8), seed=n) for n in range(3))
    bias = integers((1, 8), seed=3)[0]
    for a, b, c, order in ((x, y, z, (8, 1)), (y, z, x, (8, 1)), (z, x, y, (1, 8)), (x, z, y, (1, 8))):
        expected = a @ b + bias + c
        arrays = [torch.Tensor(np.ascontiguousarray(each if order[1] == 1 else each.T)) for each in (c, 0 * c, 0 * c)]
        residual, out, sums = (each.part(8, 8, 0, order) for each in arrays)
        options = {"bias": torch.Tensor(bias), "residual": residual, "activation": "relu"}
        ptxgen.gemm(torch.Tensor(a), torch.Tensor(b), out=out, sums=sums, **options)
        assert np.array_equal(out.value, np.maximum(expected, 0))
        assert np.array_equal(sums.value, expected)
        if order[1] == 1:
            assert np.array_equal(ptxgen.gemm(torch.Tensor(a), torch.Tensor(b), **options).value, out.value)
    assert len(launches.launches) == 3  # with out, without, and with columns of out that are contiguous
    assert len(gpu.asked) == 3
    with pytest.raises(OverlapError, match="out shares memory with residual"):
        ptxgen.gemm(torch.Tensor(x), torch.Tensor(y), out=out, bias=options["bias"], residual=out)
    with pytest.raises(OverlapError, match="sums shares memory with residual"):
        ptxgen.gemm(torch.Tensor(x), torch.Tensor(y), out=out, sums=residual, **options)


def test_products_with_a_function_as_activation_use_the_cache(gpu, torch):
    x, y = integers((8, 8)), integers((8, 8), seed=1)
    for a, b in ((x, y), (y, x)):
        out = ptxgen.gemm(torch.Tensor(a), torch.Tensor(b), activation=lambda c: ptxgen.maximum(c, 2.0) - 1.0)
        assert np.array_equal(out.value, np.maximum(a @ b, 2) - 1)
    assert len(launches.launches) == len(gpu.asked) == 1


def test_arrays_that_are_one_are_no_others(gpu, torch):
    """A call with one array in two places stores no launch, whose order of addresses would be a guess."""
    x, y = integers((8, 8)), integers((8, 8), seed=1)
    t = torch.Tensor(x)
    for first, second in ((t, t), (t, torch.Tensor(y)), (torch.Tensor(y), t)):
        out = ptxgen.gemm(first, second, residual=t)
        assert np.array_equal(out.value, first.value @ second.value + x)
    assert not launches.launches


def test_gradients_of_biases_use_the_cache(gpu, torch):
    for seed, of in ((0, "out"), (1, "out"), (0, "a"), (1, "a"), (0, "b"), (1, "b")):
        x, y = integers((8, 8), seed=seed), integers((8, 8), seed=2)
        out, sums = ptxgen.gemm_bias_grad(torch.Tensor(x), torch.Tensor(y), of=of)
        assert np.array_equal(out.value, x @ y)
        assert np.array_equal(sums.value, {"out": (x @ y).sum(0), "a": x.sum(1), "b": y.sum(0)}[of])
        assert len(launches.launches) == len(gpu.asked) == ("out", "a", "b").index(of) + 1
    alpha = np.array(2.0)
    for value in (2.0, 3.0):
        alpha[...] = value
        out, sums = ptxgen.gemm_bias_grad(torch.Tensor(x), torch.Tensor(y), alpha=alpha)
        assert np.array_equal(sums.value, value * (x @ y).sum(0))
    out, sums = torch.Tensor(x), torch.Tensor(np.ascontiguousarray(x[0]))
    for first, second in ((x, y), (y, x)):
        a, b = torch.Tensor(first), torch.Tensor(second)
        given = ptxgen.gemm_bias_grad(a, b, out=out, bias_grad=sums)
        assert given[0] is out
        assert given[1] is sums
        assert np.array_equal(sums.value, (first @ second).sum(0))
    with pytest.raises(OverlapError, match="bias_grad shares memory with"):
        ptxgen.gemm_bias_grad(a, b, out=out, bias_grad=a.row)
    for of in ("out", "b"):
        with pytest.raises(OverlapError, match="bias_grad shares memory with scale_b"):
            ptxgen.gemm_bias_grad(a, b, of=of, scale_a=torch.Tensor(y[0]), scale_b=sums, bias_grad=sums)


@pytest.mark.parametrize("options", [{}, {"activation": "relu"}, {"bias_grad": None}])
def test_a_cached_call_checks_deterministic(gpu, torch, options):
    """1 equals True, and an array has no hash; both are parts of keys."""
    function = ptxgen.gemm_bias_grad if "bias_grad" in options else ptxgen.gemm
    x, y = (torch.Tensor(integers((8, 8), seed=seed)) for seed in (0, 1))
    for value in (True, False):
        function(x, y, deterministic=value, **options)
        with pytest.raises(InputError, match=f"deterministic is {int(value)}; it must be True or False"):
            function(x, y, deterministic=int(value), **options)
        function(x, y, deterministic=np.array(value), **options)
    assert len(launches.launches) == 2


def test_cache_keys_hold_numbers_by_value(gpu, torch):
    """Not the array that held the number, which may change."""
    x, alpha = integers((8, 8)), np.array(1.0)
    t = torch.Tensor(x)
    for value in (1.0, 2.0, -3.0):
        alpha[...] = value
        assert np.array_equal(ptxgen.gemm(t, t, alpha=alpha).value, value * (x @ x))


def test_cached_calls_check_what_may_change(gpu, torch):
    x = integers((8, 8))
    a, b = torch.Tensor(x), torch.Tensor(x)
    out = torch.Tensor(x)
    ptxgen.gemm(a, b, out=out)
    with pytest.raises(OverlapError):
        ptxgen.gemm(a, b, out=a)
    with pytest.raises(ShapeError):
        ptxgen.gemm(a, b, out=torch.Tensor(integers((8, 9))))
    with pytest.raises(DeviceError, match="b is on GPU 1 and the first operand on GPU 0"):
        ptxgen.gemm(a, torch.Tensor(x, index=1), out=out)
    # another alignment is another problem
    big = torch.Tensor(integers((20, 20)))
    shifted = big.part(8, 8, 1, (8, 1))
    ptxgen.gemm(a, b)
    known = len(gpu.asked)
    assert np.array_equal(ptxgen.gemm(shifted, b).value, shifted.value @ x)
    assert len(gpu.asked) == known + 1
    assert gpu.asked[-1].aligned_a == 4


@pytest.mark.parametrize("named", ["a", "b", "out"])
def test_cached_calls_refuse_subclasses_with_a_hook(gpu, torch, named):
    class Other(torch.Tensor):
        __torch_function__ = classmethod(lambda cls, *_: None)

    x = integers((8, 8))
    given = {name: torch.Tensor(x) for name in ("a", "b", "out")}
    ptxgen.gemm(**given)
    given[named] = Other(x)
    with pytest.raises(InputError, match=f"{named} is a Other, a tensor subclass with its own __torch_function__"):
        ptxgen.gemm(**given)


def test_tensors_that_need_copies_are_copied_in_each_call(gpu, torch):
    x = integers((8, 8))
    every_other = torch.Tensor(integers((8, 16))).part(8, 8, 0, (16, 2))
    for n in (1, 2):
        assert np.array_equal(ptxgen.gemm(every_other, torch.Tensor(x)).value, every_other.value @ x)
        assert torch.copies == n


def test_column_major_tensors(gpu, torch):
    x, y = integers((8, 6)), integers((6, 4), seed=1)
    a = torch.Tensor(np.ascontiguousarray(x.T))
    a = a.part(8, 6, 0, (1, 8))
    out = torch.Tensor(integers((4, 8))).part(8, 4, 0, (1, 8))
    for _ in range(2):
        ptxgen.gemm(a, torch.Tensor(y), out=out)
        assert np.array_equal(out.value, x @ y)
    assert len(gpu.asked) == 1


def test_call_cache_is_bounded(gpu, torch, monkeypatch):
    monkeypatch.setattr(launches, "MAX_CALLS", 3)
    x = integers((8, 8))
    for n in range(8):
        ptxgen.gemm(torch.Tensor(x), torch.Tensor(x), alpha=float(n))
        assert len(launches.launches) <= 3


@pytest.mark.parametrize("named", ["a", "b", "out"])
def test_cached_calls_refuse_gradients_and_negative_views(gpu, torch, named):
    """Each call checks the properties that the cache key does not contain."""
    x = integers((8, 8))
    given = {"a": torch.Tensor(x), "b": torch.Tensor(x), "out": torch.Tensor(x)}

    def call():
        ptxgen.gemm(given["a"], given["b"], out=given["out"])

    call()
    given[named].requires_grad = True
    with pytest.raises(InputError, match=f"{named} requires a gradient, which functions on arrays do not compute"):
        call()
    torch.recording = False
    call()
    assert len(gpu.asked) == 1  # the call is cached if nothing is recorded
    torch.recording = True
    with pytest.raises(InputError, match="requires a gradient"):
        call()
    given[named].requires_grad = False
    given[named].negative = True
    with pytest.raises(InputError, match=f"{named} is a view with the negative bit"):
        call()
    given[named].negative = False
    given[named].at = 0
    with pytest.raises(InputError, match=f"{named} is a Tensor without memory of its own"):
        call()


def test_cached_calls_find_overlap_of_separate_storages(gpu, torch):
    """As DLPack creates them: only addresses show the overlap."""
    memory = torch.Tensor(integers((24, 8)))
    a, out = memory.part(8, 8, 0, (8, 1)), memory.part(8, 8, 64, (8, 1))
    b = torch.Tensor(integers((8, 8), seed=1))
    expected = a.value @ b.value
    for _ in range(2):
        ptxgen.gemm(a, b, out=out)
        assert np.array_equal(out.value, expected)
    assert len(gpu.asked) == 1
    for start in (60, 0, 4):
        for operands in ((a, b), (b, a)):
            with pytest.raises(OverlapError, match="out shares memory with"):
                ptxgen.gemm(*operands, out=memory.part(8, 8, start, (8, 1)))


def test_arguments_that_cannot_be_hashed_are_refused(gpu, torch):
    t = torch.Tensor(integers((8, 8)))
    ptxgen.gemm(t, t)
    with pytest.raises(InputError, match=r"deterministic is \[\]; it must be True or False"):
        ptxgen.gemm(t, t, deterministic=[])
    with pytest.raises(InputError, match=r"compute is \['tf32'\]; it must be a string"):
        ptxgen.gemm(t, t, compute=["tf32"])


def test_numbers_that_require_gradients_are_refused(gpu, torch):
    class Number(float):
        requires_grad = True

    t = torch.Tensor(integers((8, 8)))
    with pytest.raises(InputError, match="alpha requires a gradient"):
        ptxgen.gemm(t, t, alpha=Number(2.0))


# ---- batches


def test_batches_of_host_arrays(host):
    """A matrix, a batch of one and a view with stride zero serve all items; strides show transposes."""
    a, b = integers((3, 9, 10)), integers((3, 10, 7), seed=1)
    for x, y in ((a, b), (a, b[0]), (a[0], b), (a, b[:1]), (a, np.broadcast_to(b[0], b.shape)), (a[:1], b[:1])):
        assert np.array_equal(ptxgen.gemm(x, y), x @ y)
    assert {p.batch for p in host.asked} == {3, 1}
    transposed = np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)
    old, residual, bias = integers((3, 9, 7), seed=2), integers((3, 9, 7), seed=3), integers((1, 7), seed=4)[0]
    out = old.copy()
    ptxgen.gemm(transposed, b, out=out, beta=2.0, residual=residual, bias=bias, activation="relu")
    assert np.array_equal(out, np.maximum(a @ b + 2 * old + residual + bias, 0))
    between = np.zeros((9, 3, 7), "f4").swapaxes(0, 1)
    assert np.array_equal(ptxgen.gemm(a, b, out=between), a @ b)
    for shape in ((0, 9, 10), (3, 0, 10)):
        assert ptxgen.gemm(np.zeros(shape, "f4"), b[: shape[0]]).shape == (*shape[:2], 7)
    with pytest.raises(ShapeError, match=r"out has shape .* strides \(7, 7, 1\); its elements must not share memory"):
        ptxgen.gemm(a, b, out=np.lib.stride_tricks.as_strided(np.zeros(99, "f4"), (3, 9, 7), (28, 28, 4)))


def test_batches_of_tensors(gpu, torch):
    a, b = integers((3, 8, 12)), integers((3, 12, 4), seed=1)
    x, y = torch.Tensor(a), torch.Tensor(b)
    assert np.array_equal(ptxgen.gemm(x, y).value, a @ b)
    assert ptxgen.gemm(x, y).shape == (3, 8, 4)
    assert len(gpu.asked) == 1
    p = gpu.asked[0]
    assert (p.batch, p.strides, p.m) == (3, (96, 48, 32), 8)
    # by columns, between each other's rows
    into = torch.Tensor(np.zeros((4, 3, 8), "f4")).like((3, 8, 4), (8, 1, 24))
    ptxgen.gemm(x, y, out=into)
    assert np.array_equal(into.value, a @ b)
    p = gpu.asked[-1]
    assert (p.layout, p.ldc, p.strides[2]) == ("TT", 24, 8)
    assert torch.copies == 0


def test_batch_with_a_shared_matrix_becomes_one_gemm(gpu, torch):
    """If the items' rows, or columns, have a uniform stride."""
    a, b = integers((3, 8, 12)), integers((12, 4), seed=1)
    x, y = torch.Tensor(a), torch.Tensor(b)
    assert np.array_equal(ptxgen.gemm(x, y).value, a @ b)
    p = gpu.asked[-1]
    assert (p.m, p.n, p.batch) == (24, 4, 1)
    expanded = y.like((3, 12, 4), (0, 4, 1))
    assert np.array_equal(ptxgen.gemm(x, expanded).value, a @ b)
    assert len(gpu.asked) == 1  # the same problem
    # the transposes: columns of all items
    out = torch.Tensor(np.zeros((3, 8, 4), "f4"))
    left = y.like((4, 12), (1, 4))
    ptxgen.gemm(left, x.like((3, 12, 8), (96, 1, 12)), out=out.like((3, 4, 8), (32, 1, 4)))
    assert np.array_equal(out.value, a @ b)
    assert (gpu.asked[-1].m, gpu.asked[-1].batch) == (24, 1)
    # not if rows are elsewhere, or rows of an item have names
    strided = torch.Tensor(np.zeros((3, 9, 4), "f4")).like((3, 8, 4), (36, 4, 1))
    ptxgen.gemm(x, y, out=strided)
    assert np.array_equal(strided.value, a @ b)
    assert (gpu.asked[-1].m, gpu.asked[-1].batch, gpu.asked[-1].stride_b) == (8, 3, 0)
    rows = torch.Tensor(integers((8, 1), seed=3))
    rows.reshape = lambda *shape: rows.like((1, 8), (8, 1))
    result = ptxgen.gemm(x, y, bias=rows)
    assert np.array_equal(result.value, a @ b + rows.value)
    assert gpu.asked[-1].batch == 3


def test_objects_that_are_no_arrays_are_refused(host, monkeypatch):
    monkeypatch.setattr(selection, "select", lambda *args: [])
    with pytest.raises(DtypeError, match="no kernel multiplies f32 summed in f32 into f32 on emulated"):
        ptxgen.gemm(A, B)


def test_slow_call_on_the_emulated_device_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Gemm(4096, 4096, 4096)
    monkeypatch.setattr(on_host, "_warned", False)
    monkeypatch.setattr(drivers, "driver", lambda: SimpleNamespace(clock="model", name="emulated"))
    monkeypatch.setattr(runners, "runner_for", lambda problem: SimpleNamespace(compute=lambda *arrays, bind: "result"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert on_host.compute_on_host(slow, {}) == "result"
        monkeypatch.setenv("PTXGEN_DRIVER", "auto")
        on_host.compute_on_host(Gemm(64, 64, 64), {})
    with pytest.warns(RuntimeWarning, match=r"computes gemm 4096,4096,4096 NN f32, for roughly 76 minutes"):
        on_host.compute_on_host(slow, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_host.compute_on_host(slow, {})
