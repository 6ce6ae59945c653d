"""Handles of sparse matrices: calls, updates, graphs, tuning, checks on the device."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, converted_matrices, drivers, prepared_spmm, recording, streams
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DeviceError, DtypeError, InputError, OverlapError, ShapeError
from ptxgen.families import registry
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.operations.spmm.sampled_products import Sampled, SampledProducts, Shape, sampled_products
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.prepared_operands import scratch
from ptxgen.tuning.store.database import Database
from tests.tensors import LIBRARY, Tensor

Array = np.ndarray[Any, Any]
STREAM = 42
F32, INT = np.float32, np.int32


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")


def matrix(m: int, k: int, text: str = "bernoulli:density=0.2", dtype: str = "f32") -> ptxgen.SparseMatrix:
    arrays = arrays_of(Spmm(m, 1, k, dtype=dtype, pattern=text), 1, "integers")
    return ptxgen.SparseMatrix(arrays["indptr"], arrays["indices"], arrays["values"], (m, k))


def integers(*shape: int, seed: int = 0, dtype: Any = F32) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def dense(a: ptxgen.SparseMatrix) -> Array:
    out = np.zeros(a.shape)
    rows = np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))
    np.add.at(out, (rows, a.indices), a.values.astype(np.float64))
    return out


# ---- arrays in host memory


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("calls", [0, 50, 1000])
def test_products_of_many_shapes(dtype: str, calls: int) -> None:
    a = matrix(23, 31, "lognormal:density=0.2,sigma=1", dtype)
    p = ptxgen.spmm_prepare(a, calls=calls, n=8)
    assert (p.shape, p.nnz) == (a.shape, len(a.values))
    assert p.config is not None
    assert p.bytes >= 4 * (len(a.indptr) + len(a.indices))
    assert p.prepare_us > 0
    for n in (1, 8, 33):
        b = integers(31, n, dtype=a.values.dtype)
        got = p(b)
        assert got.dtype == a.values.dtype
        np.testing.assert_array_equal(got.astype(np.float64), dense(a) @ b.astype(np.float64))
    out = np.ones_like(got)
    assert p(b, out, 2, -1) is out
    np.testing.assert_array_equal(out.astype(np.float64), 2 * dense(a) @ b.astype(np.float64) - 1)


def test_vectors_and_other_strides_of_b() -> None:
    a = matrix(12, 9)
    p, b = ptxgen.spmm_prepare(a), integers(9, 6)
    for x in (
        b[:, 0],
        b.T.copy().T,
        b[:, ::2],
        b[::-1],
        np.broadcast_to(b[:1], (9, 6)),
        np.broadcast_to(b[0, 0], (9,)),
    ):
        for multiply in (p, lambda x: ptxgen.spmm(a, x)):
            got = multiply(x)
            assert got.shape == (12, *x.shape[1:])
            np.testing.assert_array_equal(got, dense(a) @ x)
    out = np.zeros((6, 12), F32).T
    p(b, out=out)
    np.testing.assert_array_equal(out, dense(a) @ b)


def test_update_replaces_the_values() -> None:
    a, b = matrix(12, 9), integers(9, 5)
    p = ptxgen.spmm_prepare(a, n=5)
    p(b)
    p.update(3 * a.values)
    np.testing.assert_array_equal(p(b), 3 * dense(a) @ b)
    for wrong, error, message in (
        (a.values[:-1], ShapeError, r"values has shape .*; it must be .*, the nonzeros of the matrix"),
        (a.values.astype(np.float64), DtypeError, "values is f64; it must be f32"),
        (np.repeat(a.values, 2)[::2], ShapeError, "values has strides"),
    ):
        with pytest.raises(error, match=message):
            p.update(wrong)


#: configurations of families that read prepared arrays; True: the arrays contain values
PREPARED = {
    "family=row_split row_lanes=4 nonzeros_in_flight=2 vec_b=8 row_order=length longest_part=32": False,
    "family=vector_mma blocks_in_flight=2 vec_b=8": True,
    "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=8 epilogue_smem=1": True,
    "family=tca": False,
}


@pytest.mark.parametrize("text", PREPARED)
def test_update_makes_formats_with_values_again(text: str) -> None:
    a, b = matrix(70, 64, "bernoulli:density=0.4", "f16"), integers(64, 64, dtype=np.float16)
    p = ptxgen.spmm_prepare(a)
    p._tuned[64] = parse_config(text)
    plain = p.bytes
    for factor in (1, -2):
        if factor != 1:
            p.update(factor * a.values)
        expected = factor * dense(a) @ b.astype(np.float64)
        np.testing.assert_array_equal(p(b).astype(np.float64), expected)
        np.testing.assert_array_equal(p(b, np.ones((70, 64), np.float16), 2, 3).astype(np.float64), 2 * expected + 3)
    assert str(p.config).split()[0] == text.split()[0]
    assert p.bytes > plain
    assert any(each.preparation.reads_values for each in p._prepared._made.values()) >= PREPARED[text]


def test_calls_of_handles_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their problems state statistics, from which no matrix to time can be made."""
    seen: list[Any] = []
    monkeypatch.setattr(recording, "observers", [lambda problem, stream, on: seen.append(problem)])
    a, b = matrix(12, 9), integers(9, 5)
    ptxgen.spmm_prepare(a)(b)
    assert not seen
    ptxgen.spmm(a, b)
    assert [p.measurable for p in seen] == [True]


def test_tune_keeps_the_fastest_configuration() -> None:
    a, b = matrix(40, 30), integers(30, 16)
    p = ptxgen.spmm_prepare(a)
    with pytest.raises(InputError, match="n is None and no product was computed"):
        p.tune()
    p(b)
    best = p.tune()
    assert p.config == best
    np.testing.assert_array_equal(p(b), dense(a) @ b)
    assert p.tune(8) == p.config
    np.testing.assert_array_equal(p(b[:, :8]), dense(a) @ b[:, :8])


def test_times_of_tune_are_stored_for_handles_of_like_matrices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    choice.database.cache_clear()
    a, b = matrix(40, 30), integers(30, 16)
    p = ptxgen.spmm_prepare(a)
    p(b)
    first, slow = p.config, {}

    def time(self: Any, runner: Any) -> list[float]:  # the choice is slow, the last one timed is the fastest
        slow[runner.plan.config] = len(slow)
        return [100.0 - len(slow)] * 3

    monkeypatch.setattr(prepared_spmm.PreparedSpmm, "_time", time)
    best = p.tune()
    assert len(slow) > 1
    assert best == list(slow)[-1] != first
    with Database(tmp_path / "tuning.sqlite") as database:
        problem = p._for(16)
        winner = database.best(problem, "emulated", "model")
        assert winner is not None
        assert (winner.config, winner.samples, winner.purpose) == (best, (100.0 - len(slow),) * 3, "final")
        assert len(list(database.measurements())) == len(slow)
    indices = a.indices.copy()
    at = int(np.flatnonzero(np.diff(indices) > 1)[0])
    indices[at] += 1  # another pattern with the same rounded statistics
    other = a._replace(values=3 * a.values, indices=indices)
    q = ptxgen.spmm_prepare(other)
    np.testing.assert_array_equal(q(b), dense(other) @ b)
    assert q.config == best
    assert ptxgen.spmm_prepare(a, calls=3, n=16).config != best  # another problem
    (tmp_path / "broken").write_text("no database")
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "broken"))
    assert p.tune() in slow
    assert "are not stored" in caplog.text
    choice.database.cache_clear()


def test_tune_weighs_the_preparation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    choice.database.cache_clear()
    monkeypatch.setattr(prepared_spmm, "TUNED", 60)
    a = matrix(40, 30)
    for calls, prepared in ((1, False), (1_000_000, True)):
        p = ptxgen.spmm_prepare(a, calls=calls, dense_bytes=0)
        monkeypatch.setattr(p, "_time", lambda runner: [1.0 if runner.prepared else 1.001])
        best = p.tune(8)
        family = registry.of(best)
        assert bool(family.preparations(lower(p._for(8)), best)) == prepared
    choice.database.cache_clear()


def test_dense_bytes_limits_the_dense_matrix() -> None:
    a, b = matrix(64, 96, "bernoulli:density=0.9", "f16"), integers(96, 32, dtype=np.float16)
    held = {n: ptxgen.spmm_prepare(a, n=32, dense_bytes=n) for n in (None, 64 * 96 * 2, 0)}
    families = {n: p.config.family for n, p in held.items() if p.config is not None}
    assert families[None] == families[64 * 96 * 2] != families[0]
    assert held[None].bytes >= 64 * 96 * 2
    for p in held.values():
        np.testing.assert_array_equal(p(b), (dense(a) @ b.astype(np.float64)).astype(np.float16))
    with pytest.raises(InputError, match="dense_bytes is -1; it must be"):
        ptxgen.spmm_prepare(a, dense_bytes=-1)


def test_formats_of_scipy() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    a, b = matrix(12, 15), integers(15, 7)
    x = scipy.csr_matrix((a.values, a.indices, a.indptr), a.shape)
    for form in ("csr", "csc", "coo", "bsr"):
        np.testing.assert_array_equal(ptxgen.spmm_prepare(x.asformat(form))(b), dense(a) @ b)
    wide = scipy.csr_array((a.values, a.indices.astype(np.int64), a.indptr.astype(np.int64)), a.shape)
    assert wide.indices.dtype == np.int64
    p = ptxgen.spmm_prepare(wide)
    np.testing.assert_array_equal(p(b), dense(a) @ b)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_spmm_uses_the_handle_of_unchanged_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    a, b = matrix(12, 15), integers(15, 7)
    x = torch.sparse_csr_tensor(*(torch.from_numpy(np.array(v)) for v in a[:3]), a.shape)
    y = torch.from_numpy(b)
    calls: list[int] = []
    multiply = prepared_spmm.PreparedSpmm._multiply
    monkeypatch.setattr(
        prepared_spmm.PreparedSpmm, "_multiply", lambda self, *rest: (calls.append(1), multiply(self, *rest))[1]
    )
    np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), dense(a) @ b)
    assert not calls
    p = ptxgen.spmm_prepare(x)
    np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), dense(a) @ b)
    assert len(calls) == 1
    x.values().mul_(2)
    np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), 2 * dense(a) @ b)  # of the changed tensors
    assert len(calls) == 1
    p.update(x.values())
    np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), 2 * dense(a) @ b)
    assert len(calls) == 2
    p.update(torch.ones(len(a.values)))  # the handle has other values than x
    np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), 2 * dense(a) @ b)
    del p
    gc.collect()
    assert not prepared_spmm._handles


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("form", ["coo", "csc", "bsr", "bsc"])
def test_tensors_in_other_formats_are_converted_once(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = matrix(12, 16), integers(16, 7)
    plain = torch.from_numpy(dense(a).astype(F32))
    x = getattr(plain, f"to_sparse_{form}")(*([(4, 4)] if form.startswith("bs") else []))
    y, converted = torch.from_numpy(b), []
    convert = torch.Tensor.to_sparse_csr
    monkeypatch.setattr(torch.Tensor, "to_sparse_csr", lambda self: (converted.append(1), convert(self))[1])
    for _ in range(3):
        np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), dense(a) @ b)
    assert len(converted) == 1
    (x._values() if form == "coo" else x.values()).mul_(2)
    np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), 2 * dense(a) @ b)
    assert len(converted) == 2
    p = ptxgen.spmm_prepare(x)
    assert len(converted) == 2
    assert prepared_spmm.handle_of(p._csr, "") is p
    np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), 2 * dense(a) @ b)  # by the handle
    (x._values() if form == "coo" else x.values()).mul_(0.5)
    np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), dense(a) @ b)
    assert len(converted) == 3
    del x, p
    gc.collect()
    assert not converted_matrices._converted


def test_conversions_on_a_gpu_are_complete_unless_captured(gpu: Gpu) -> None:
    a, b = matrix(12, 16), integers(16, 7)
    converted: list[CsrTensor] = []

    class Coo(CsrTensor):
        layout = "torch.sparse_coo"

        def _indices(self) -> Tensor:
            return self.parts[1]

        def _values(self) -> Tensor:
            return self.parts[2]

        def to_sparse_csr(self) -> CsrTensor:
            converted.append(CsrTensor(gpu, a))
            return converted[-1]

    Coo.__module__ = "torch"
    x, y = Coo(gpu, a), Tensor(gpu, b)
    gpu.graph = []
    ptxgen.spmm(x, y)
    ptxgen.spmm(x, y)
    assert len(converted) == 2  # in the graph
    gpu.graph = None
    gpu.calls.clear()
    for _ in range(2):
        np.testing.assert_array_equal(ptxgen.spmm(x, y).numpy(), dense(a) @ b)
    assert len(converted) == 3
    assert gpu.calls["wait"] == 1


# ---- edge cases


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 5), (4, 0, 5), (4, 3, 0), (0, 0, 0)])
def test_empty_extents(m: int, n: int, k: int) -> None:
    a = ptxgen.SparseMatrix(np.zeros(m + 1, INT), np.zeros(0, INT), np.zeros(0, F32), (m, k))
    p, b, out = ptxgen.spmm_prepare(a), np.ones((k, n), F32), np.ones((m, n), F32)
    assert not p(b).any()
    np.testing.assert_array_equal(p(b, out, beta=3), np.full((m, n), 3))


ROWS: dict[str, list[list[int]]] = {
    "empty_rows_and_columns": [[], [1], [], [], [0, 2, 3], []],
    "no_nonzeros": [[]] * 5,
    "one_row_has_all": [[], list(range(37)), []],
    "unsorted_and_repeated": [[3, 3, 1, 3], [2, 0, 1], [36, 0, 36]],
}


@pytest.mark.each_value
@pytest.mark.parametrize("n", [1, 7, 16])
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_every_kind(name: str, n: int) -> None:
    rows = ROWS[name]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(INT)
    indices = np.array([column for row in rows for column in row], INT)
    a = ptxgen.SparseMatrix(indptr, indices, integers(len(indices), seed=1), (len(rows), 37))
    b, out = integers(37, n), np.full((len(rows), n), np.nan, F32)
    ptxgen.spmm_prepare(a)(b, out)  # beta = 0 does not read C
    np.testing.assert_array_equal(out, dense(a) @ b)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_exact_nonfinite_keeps_absent_products_out(bad: float) -> None:
    a = ptxgen.SparseMatrix(np.array([0, 1, 2, 2], INT), np.array([0, 2], INT), np.array([0, 1], F32), (3, 3))
    b = np.ones((3, 4), F32)
    b[1, 1], b[0, 2] = bad, bad
    got = ptxgen.spmm_prepare(a, exact_nonfinite=True)(b)
    expected = np.array([[0, 0, np.nan, 0], [1, 1, 1, 1], [0, 0, 0, 0]], F32)  # the explicit zero stays
    np.testing.assert_array_equal(got, expected)


# ---- errors

A = ptxgen.SparseMatrix(np.array([0, 1, 2], INT), np.array([0, 2], INT), np.ones(2, F32), (2, 3))
B = np.ones((3, 4), F32)


@pytest.mark.each_value
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": [0, 2, 1]}, "a.indptr is from 0 to 1; it must be from 0 to 2"),
        ({"indptr": [1, 2, 2]}, "a.indptr is from 1 to 2; it must be from 0 to 2"),
        ({"indptr": [0, 3, 2]}, r"a.indptr\[2\] is 2; it must be at least a.indptr\[1\], 3"),
        ({"indices": [0, 3]}, r"a.indices\[1\] is 3; it must be at least 0 and less than 3"),
        ({"indices": [-1, 2]}, r"a.indices\[0\] is -1; it must be at least 0"),
    ],
)
def test_the_device_checks_the_pattern(changes: dict[str, list[int]], message: str, wide: bool) -> None:
    dtype = np.int64 if wide else INT
    a = A._replace(indptr=A.indptr.astype(dtype), indices=A.indices.astype(dtype))
    a = a._replace(**{name: np.array(x, dtype) for name, x in changes.items()})
    with pytest.raises(InputError, match=message):
        ptxgen.spmm_prepare(a)
    ptxgen.spmm_prepare(a, validate=False)


@pytest.mark.parametrize(
    ("a", "named", "message"),
    [
        (B, {}, "a is ndarray; it must be a sparse matrix"),
        (A, {"calls": -1}, "calls is -1; it must be an integer from 0"),
        (A, {"n": 1.5}, "n is 1.5; it must be an integer"),
        (A, {"validate": 1}, "validate is 1; it must be True or False"),
        (A, {"exact_nonfinite": None}, "exact_nonfinite is None; it must be True or False"),
        (A, {"compute": "f16"}, "compute is 'f16'; with dtype f32 it must be one of"),
        (A._replace(values=np.ones(2, np.int8)), {}, "a has dtype s8; it must be one of f16"),
    ],
)
def test_errors_of_the_preparation(a: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ptxgen.spmm_prepare(a, **named)


@pytest.mark.parametrize(
    ("b", "named", "error", "message"),
    [
        (B.astype(np.float64), {}, DtypeError, "a is f32 and b is f64; they must be the same"),
        (np.ones((4, 4), F32), {}, ShapeError, "a has 3 columns and b has 4 rows"),
        (B, {"beta": 1}, InputError, "beta is 1 and out is None"),
        (B, {"out": np.ones((2, 3), F32)}, ShapeError, r"out has shape \(2, 3\); it must be \(2, 4\)"),
        (B, {"out": B[:2]}, OverlapError, "out shares memory with b"),
        (np.ones((3, 1), F32), {"out": A.values[:, None]}, OverlapError, "out shares memory with a.values"),
        (B, {"alpha": "x"}, InputError, "alpha is 'x'; it must be a real number"),
    ],
)
def test_errors_of_calls(b: Any, named: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ptxgen.spmm_prepare(A)(b, **named)


# ---- tensors on a GPU, for which the emulated device stands


class Gpu(EmulatedDriver):
    """The emulated device as a GPU. ``graph``: a list that receives the launches instead, as a capture does;
    ``calls``: how often each function of the driver was called, a launch that clears memory as ``clear``."""

    name = "cuda"
    COUNTED = "allocate release upload download fill queue_upload load synchronize wait order launch"

    def __init__(self) -> None:
        super().__init__()
        self.graph: list[Callable[[], None]] | None = None
        self.calls: Counter[str] = Counter()
        for name in self.COUNTED.split():
            setattr(self, name, self._counted(name, getattr(self, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls["clear" if name == "launch" and not arguments[1].entry else name] += 1
            return function(*arguments, **named)

        return call

    @property
    def made(self) -> int:
        return self.calls["allocate"]

    def launch(self, kernel: Any, step: Any, parameters: bytes, stream: int = 0) -> None:
        if self.graph is not None and stream == STREAM:
            self.graph.append(lambda: EmulatedDriver.launch(self, kernel, step, parameters))
        else:
            super().launch(kernel, step, parameters)

    def capturing(self, stream: int) -> bool:
        return self.graph is not None and stream == STREAM

    def capture(self, stream: int) -> Any:
        return SimpleNamespace(id=id(self.graph), watch=lambda: lambda: True)


class Integers(Tensor):
    """A tensor of int32 or int64."""

    def __init__(self, driver: EmulatedDriver, x: Array) -> None:
        super().__init__(driver, x)
        self.dtype = f"torch.{x.dtype.name}"

    def view(self, dtype: str) -> Integers:
        """The tensor as int32."""
        assert (dtype, self.dtype) == ("torch.int32", "torch.int64")
        out = object.__new__(Integers)
        out.__dict__.update(self.__dict__)
        out.dtype, out.shape = dtype, (2 * self.shape[0],)
        return out


class CsrTensor:
    """The part of PyTorch's sparse tensors that calls use."""

    requires_grad, layout = False, "torch.sparse_csr"

    def __init__(self, driver: EmulatedDriver, a: ptxgen.SparseMatrix, dtype: Any = INT) -> None:
        self.shape = a.shape
        self.parts = (
            Integers(driver, a.indptr.astype(dtype)),
            Integers(driver, a.indices.astype(dtype)),
            Tensor(driver, a.values),
        )

    def crow_indices(self) -> Tensor:
        return self.parts[0]

    def col_indices(self) -> Tensor:
        return self.parts[1]

    def values(self) -> Tensor:
        return self.parts[2]


CsrTensor.__module__ = Integers.__module__ = "torch"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(drivers, "driver", lambda: made)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    monkeypatch.setattr(streams, "current_stream", lambda x: STREAM)
    return made


#: what a preparation calls besides ``wait`` and ``synchronize``, by configuration
DRIVER_CALLS = {
    "family=row_split vec_b=4": {},
    "family=row_split vec_b=4 row_order=length longest_part=32": {"allocate": 1, "launch": 3, "download": 1},
    "family=vector_mma vec_b=4": {"allocate": 2, "launch": 3, "download": 1},
    "family=vector_mma vec_b=4 row_order=length longest_part=4": {"allocate": 3, "launch": 6, "download": 2},
    "family=shared_slab tile_k=64 vec_b=4 k_tiles=several": {"allocate": 1, "launch": 1},
    "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=4 vec_b=4 vec_c=4 epilogue_smem=1": {
        "allocate": 1,
        "clear": 1,
        "fill": 1,
        "launch": 1,
    },
}
PATTERN = {"clear": 1, "fill": 1, "launch": 3, "download": 1}


@pytest.mark.parametrize("text", DRIVER_CALLS)
def test_preparations_call_the_driver_a_few_times(gpu: Gpu, text: str) -> None:
    """A matrix after the first one, for which kernels are loaded and scratch memory is allocated: each stage allocates
    once, and the host waits once for each sizes that it reads, and at the end."""
    a, held = matrix(70, 96, "lognormal:density=0.4,sigma=1"), []
    for first in (True, False):
        x = CsrTensor(gpu, a)
        gpu.calls.clear()
        p = ptxgen.spmm_prepare(x, compute="tf32")
        held.append(p)  # so that none of its memory is released
        if not first:
            assert gpu.calls == {"wait": 1, **PATTERN}
        p._tuned[32] = parse_config(text)
        gpu.calls.clear()
        p.prepare(32)
        gpu.calls.pop("load", None)  # of the product
        if not first:
            once = {"wait": 1, "synchronize": 1} if DRIVER_CALLS[text] else {}
            assert gpu.calls == {**once, **DRIVER_CALLS[text]}
    b = integers(96, 32)
    np.testing.assert_array_equal(p(Tensor(gpu, b)).numpy(), dense(a) @ b)


def test_predicted_costs_are_those_of_the_calls_of_the_driver() -> None:
    p = lower(Spmm(70, 32, 96, "NN", "f32", "tf32", "lognormal:density=0.4,sigma=1", calls=1000))
    for text, calls in DRIVER_CALLS.items():
        family = registry.of(config := parse_config(text))
        form = family.form(p)
        costs = [each.cost(form) for each in family.preparations(form, config)]
        assert sum(x.launches for x in costs) == calls.get("launch", 0) + calls.get("clear", 0)
        assert sum(x.allocations for x in costs) == calls.get("allocate", 0)
        assert sum(x.reads for x in costs) == calls.get("download", 0)


def test_host_arrays_take_one_allocation(gpu: Gpu) -> None:
    ptxgen.spmm_prepare(matrix(12, 9))
    gpu.calls.clear()
    ptxgen.spmm_prepare(matrix(12, 9))
    assert {name: n for name, n in gpu.calls.items() if name not in PATTERN} == {
        "allocate": 1,
        "upload": 3,
        "release": 1,
    }


def test_scratch_memory_is_kept_and_grows(gpu: Gpu) -> None:
    first = scratch(gpu, {"a": 8, "b": 0})
    gpu.calls.clear()
    assert scratch(gpu, {"c": 4, "d": 1}) == {"c": first["a"], "d": first["b"]}
    assert scratch(gpu, {}) == {}
    assert not gpu.calls
    scratch(gpu, {"a": 4}, 1)  # of another stage
    assert scratch(gpu, {"a": 8}) == {"a": first["a"]}
    scratch(gpu, {"a": 4, "b": 2, "c": 1})
    assert gpu.calls == {"allocate": 2, "release": 1}
    with pytest.raises(InputError, match="not inside one allocation"):
        gpu.upload(first["a"] + 8, np.zeros(4, np.uint8))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_known_pattern_is_not_read_again(gpu: Gpu, dtype: Any) -> None:
    a, b = matrix(20, 17), integers(17, 8)
    x = CsrTensor(gpu, a, dtype)
    y = CsrTensor(gpu, a._replace(values=2 * a.values), dtype)
    p = ptxgen.spmm_prepare(x)
    y.parts = (*x.parts[:2], y.parts[2])  # the same index tensors
    gpu.calls.clear()
    q = ptxgen.spmm_prepare(y)
    assert gpu.calls == {"wait": 1}
    assert q._problem == p._problem
    np.testing.assert_array_equal(q(Tensor(gpu, b)).numpy(), 2 * dense(a) @ b)
    x.parts[1]._version = 1  # they changed
    gpu.calls.clear()
    ptxgen.spmm_prepare(y)
    assert gpu.calls["download"] == 1
    x.parts[1]._version = 0
    del p, q
    gc.collect()
    assert not prepared_spmm._patterns
    gpu.calls.clear()
    ptxgen.spmm_prepare(y)
    assert gpu.calls["download"] == 1


def test_a_wrong_pattern_that_is_known_is_refused(gpu: Gpu) -> None:
    x = CsrTensor(gpu, A._replace(indices=np.array([0, 3], INT)))
    held = ptxgen.spmm_prepare(x, validate=False)
    with pytest.raises(InputError, match=r"a.indices\[1\] is 3"):
        ptxgen.spmm_prepare(x)
    assert held.nnz == 2


def test_inference_tensors_are_prepared_each_time() -> None:
    torch = pytest.importorskip("torch")
    a, b = matrix(12, 15), integers(15, 7)
    with torch.inference_mode():
        parts = [torch.from_numpy(np.array(v)).clone() for v in a[:3]]
    p = ptxgen.spmm_prepare(ptxgen.SparseMatrix(*parts, a.shape))
    np.testing.assert_array_equal(p(b), dense(a) @ b)
    assert not p.current("")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_later_calls_only_launch(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    a, b = matrix(20, 17), integers(17, 8)
    p = ptxgen.spmm_prepare(CsrTensor(gpu, a, dtype), n=8)
    assert p.bytes >= (0 if dtype is INT else 4 * (21 + len(a.indices)))
    np.testing.assert_array_equal(p(Tensor(gpu, b)).numpy(), dense(a) @ b)
    monkeypatch.setattr(prepared_spmm.PreparedSpmm, "_multiply", None)
    for seed in (3, 4):
        x, made = Tensor(gpu, integers(17, 8, seed=seed)), Tensor.made
        np.testing.assert_array_equal(p(x).numpy(), dense(a) @ x.numpy())
        assert Tensor.made == made + 1


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("order_b", "order_c"), [((0, 1), (1, 0)), ((1, 0), (0, 1)), ((1, 0), (1, 0))])
def test_column_major_tensors_are_not_copied(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, order_b: tuple[int, int], order_c: tuple[int, int], dtype: Any
) -> None:
    monkeypatch.setattr(Tensor, "contiguous", None)
    a, b, c = matrix(20, 17), integers(17, 8), integers(20, 8, seed=2)
    x = CsrTensor(gpu, a, dtype)

    def unprepared(*rest: Any) -> Any:
        return ptxgen.spmm(x, *rest[:2], alpha=rest[2], beta=rest[3])

    for multiply in (unprepared, ptxgen.spmm_prepare(CsrTensor(gpu, a, dtype))):
        for _ in range(2):
            out = Tensor(gpu, c, order_c)
            multiply(Tensor(gpu, b, order_b), out, 2.0, -1.0)
            np.testing.assert_array_equal(out.numpy(), 2 * dense(a) @ b - c)


def test_broadcast_tensors_are_copied(gpu: Gpu) -> None:
    a, b = matrix(20, 17), integers(1, 8)
    wide = Tensor(gpu, b)
    wide.shape, wide.strides = (17, 8), (0, 1)
    wide.contiguous = lambda: Tensor(gpu, np.repeat(b, 17, 0))  # type: ignore[method-assign]
    np.testing.assert_array_equal(ptxgen.spmm_prepare(CsrTensor(gpu, a))(wide).numpy(), dense(a) @ np.repeat(b, 17, 0))


def test_cached_calls_check_for_overlap(gpu: Gpu) -> None:
    a = matrix(17, 17)
    x = CsrTensor(gpu, a)
    p, b = ptxgen.spmm_prepare(x), Tensor(gpu, integers(17, 8))
    out = Tensor(gpu, np.zeros((17, 8), F32))
    for _ in range(2):
        assert p(b, out) is out
    np.testing.assert_array_equal(out.numpy(), dense(a) @ b.numpy())
    with pytest.raises(OverlapError, match="out shares memory with b"):
        p(b, b)
    column = x.values().permute((0,))
    column.shape, column.strides = (17, 1), (1, 1)
    with pytest.raises(OverlapError, match=r"out shares memory with a\.values"):
        p(Tensor(gpu, integers(17, 1)), column)


def test_update_takes_the_array_of_the_caller(gpu: Gpu) -> None:
    a, b = matrix(20, 17), Tensor(gpu, integers(17, 8))
    x = CsrTensor(gpu, a)
    p = ptxgen.spmm_prepare(x)
    p(b)
    made = gpu.made
    p.update(Tensor(gpu, 2 * a.values))
    assert gpu.made == made + 1  # that of the test
    np.testing.assert_array_equal(p(b).numpy(), 2 * dense(a) @ b.numpy())
    gpu.upload(x.values().address, 5 * a.values)
    p.update(x.values())
    np.testing.assert_array_equal(p(b).numpy(), 5 * dense(a) @ b.numpy())


def test_graphs_capture_prepared_calls(gpu: Gpu) -> None:
    a, b = matrix(20, 17), Tensor(gpu, integers(17, 8))
    p, out = ptxgen.spmm_prepare(CsrTensor(gpu, a), n=8), Tensor(gpu, np.zeros((20, 8), F32))
    gpu.graph, made = [], gpu.made
    p(b, out)
    p(b, out, 2.0, 1.0)
    work, gpu.graph = gpu.graph, None
    assert gpu.made == made
    kept = next(iter(p._runners.values()))
    assert kept.holds[0].values.origin is p._csr.values.origin  # a graph keeps the runner, and so the matrix
    assert not out.numpy().any()
    for _ in range(2):
        for launch in work:
            launch()
        np.testing.assert_array_equal(out.numpy(), 3 * dense(a) @ b.numpy())


def test_a_captured_call_does_not_prepare(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = CsrTensor(gpu, matrix(20, 17)), Tensor(gpu, integers(17, 8))
    p = ptxgen.spmm_prepare(a)
    monkeypatch.setattr(p._prepared, "has", lambda preparations: False)
    gpu.graph = []
    with pytest.raises(InputError, match=r"products with 8 columns need a preparation; call once before"):
        p(b)
    with pytest.raises(InputError, match="spmm_prepare must be called before"):
        ptxgen.spmm_prepare(a)


def test_arrays_on_several_gpus_are_refused(gpu: Gpu) -> None:
    a, b = CsrTensor(gpu, matrix(20, 17)), Tensor(gpu, integers(17, 8))
    p = ptxgen.spmm_prepare(a)
    b.device = b.device._replace(index=1)
    with pytest.raises(DeviceError, match="b is on GPU 1"):
        p(b)
    a.parts[1].device = a.parts[1].device._replace(index=1)
    with pytest.raises(DeviceError, match=r"a\.indices is on GPU 1"):
        ptxgen.spmm_prepare(a)
    with pytest.raises(InputError, match=r"a\.indptr is .* and b is .*; they must be in the same memory"):
        p(integers(17, 8))


# ---- transposes


def repeated(m: int, k: int, nnz: int, seed: int = 0) -> ptxgen.SparseMatrix:
    """A matrix with empty rows, unsorted columns and several nonzeros of one place."""
    draw = np.random.default_rng(seed)
    rows = np.sort(draw.integers(0, m, nnz) // 2 * 2)
    indptr = np.searchsorted(rows, np.arange(m + 1)).astype(INT)
    return ptxgen.SparseMatrix(indptr, draw.integers(0, k, nnz).astype(INT), integers(nnz, seed=seed), (m, k))


@pytest.mark.parametrize(
    ("m", "k", "nnz"), [(13, 9, 60), (40, 300, 2100), (3, 70_000, 40), (1, 1, 3), (5, 4, 0), (0, 3, 0), (4, 0, 0)]
)
def test_products_of_the_transpose(m: int, k: int, nnz: int) -> None:
    a, b = repeated(m, k, nnz), integers(m, 5)
    p = ptxgen.spmm_prepare(a, calls=0)
    expected = dense(a).T @ b
    np.testing.assert_array_equal(p.t(b), expected)
    out = np.ones((k, 5), F32)
    assert p.t(b, out, 2, -1) is out
    np.testing.assert_array_equal(out, 2 * expected - 1)
    if nnz in (60, 0):  # calls without a handle, and of vectors
        np.testing.assert_array_equal(ptxgen.spmm(a, b, transpose=True), expected)
        np.testing.assert_array_equal(p.t(b[:, 0]), expected[:, 0])
    assert p.transposed.shape == (k, m)
    assert p.bytes > p.transposed.bytes


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_types_of_transposes_and_their_formats(dtype: str) -> None:
    a = matrix(30, 40, "bernoulli:density=0.3", dtype)
    b = integers(30, 32, dtype=a.values.dtype)
    p, expected = ptxgen.spmm_prepare(a), dense(a).T @ b.astype(np.float64)
    np.testing.assert_array_equal(p.t(b).astype(np.float64), expected)
    p.update(-a.values)  # formats that contain values are made again
    np.testing.assert_array_equal(p.t(b).astype(np.float64), -expected)
    with pytest.raises(InputError, match="is the transpose of another one; values must be given to that one"):
        p.transposed.update(a.values)


def test_order_of_the_nonzeros_in_transposes_is_that_of_rows() -> None:
    """Values whose sums depend on their order: a sequential sum in the order of rows has the same bits."""
    a = repeated(40, 3, 1500)
    a = a._replace(values=np.random.default_rng(1).standard_normal(1500).astype(F32))
    p = ptxgen.spmm_prepare(a, calls=0)
    first = p.t(np.ones((40, 4), F32))
    np.testing.assert_array_equal(ptxgen.spmm_prepare(a, calls=0).t(np.ones((40, 4), F32)), first)
    assert p._pattern.transposed is not None
    places = np.empty(1500, INT)
    p._on.download(p._pattern.transposed["places"].address, places)
    np.testing.assert_array_equal(places, np.argsort(a.indices, kind="stable"))


def test_matrices_in_csc_are_their_own_transposes(monkeypatch: pytest.MonkeyPatch) -> None:
    scipy = pytest.importorskip("scipy.sparse")
    made: list[Any] = []
    monkeypatch.setattr(prepared_spmm, "transpose", lambda *x: made.append(x))
    a, b = matrix(12, 15), integers(12, 7)
    x = scipy.csr_matrix((a.values, a.indices, a.indptr), a.shape).tocsc()
    p = ptxgen.spmm_prepare(x)
    for _ in range(2):
        np.testing.assert_array_equal(p.t(b), dense(a).T @ b)
        np.testing.assert_array_equal(ptxgen.spmm(x, b, transpose=True), dense(a).T @ b)
    assert not made
    monkeypatch.undo()
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    p.update(2 * a.values)  # in the order of the matrix in CSR
    np.testing.assert_array_equal(p.t(b), 2 * dense(a).T @ b)


def test_symmetric_patterns_are_shared() -> None:
    rows = np.array([0, 1, 0, 2, 3, 3]), np.array([1, 0, 2, 0, 3, 1])
    pairs = sorted({*zip(*map(np.ndarray.tolist, rows), strict=True), (1, 3)})
    indptr = np.searchsorted([i for i, _ in pairs], np.arange(6)).astype(INT)
    a = ptxgen.SparseMatrix(indptr, np.array([j for _, j in pairs], INT), integers(len(pairs), seed=3), (5, 5))
    p, b = ptxgen.spmm_prepare(a, symmetric=True), integers(5, 7)
    np.testing.assert_array_equal(p.t(b), dense(a).T @ b)
    assert p.transposed._at["indices"] == p._at["indices"]
    assert p.transposed._pattern is p._pattern
    p.update(3 * a.values)
    np.testing.assert_array_equal(p.t(b), 3 * dense(a).T @ b)
    other = a._replace(indices=np.where(np.arange(len(pairs)) == 0, 4, a.indices).astype(INT))
    for wrong, error, message in (
        (other._replace(indices=a.indices[::-1].copy()), InputError, "columns do not increase; with symmetric=True"),
        (matrix(4, 5), ShapeError, r"a has shape \(4, 5\); with symmetric=True it must have as many rows"),
        (
            ptxgen.SparseMatrix(np.array([0, 1, 1], INT), np.array([1], INT), np.ones(1, F32), (2, 2)),
            InputError,
            r"a.indices\[0\] is 1, and row 1 has no nonzero in the column of that row; with symmetric=True it must",
        ),
    ):
        with pytest.raises(error, match=message):
            ptxgen.spmm_prepare(wrong, symmetric=True).transposed  # noqa: B018 it makes the transpose


def test_dense_matrices_times_sparse_ones() -> None:
    a, x = matrix(12, 9), integers(5, 12)
    np.testing.assert_array_equal(ptxgen.spmm(x, a), x @ dense(a))
    np.testing.assert_array_equal(ptxgen.spmm(x[0], a), x[0] @ dense(a))
    np.testing.assert_array_equal(ptxgen.spmm(x[:, :9], a, transpose=True), x[:, :9] @ dense(a).T)
    out = np.ones((5, 9), F32)
    assert ptxgen.spmm(x, a, out, alpha=2, beta=3) is out
    np.testing.assert_array_equal(out, 2 * x @ dense(a) + 3)
    with pytest.raises(ShapeError, match="a has 11 columns and b has 12 rows; they must be as many"):
        ptxgen.spmm(x[:, :11], a)
    with pytest.raises(ShapeError, match=r"out has shape \(4, 9\); it must be \(5, 9\), the shape of a·b"):
        ptxgen.spmm(x, a, out[:4])
    with pytest.raises(DtypeError, match="a is float64 and b is float32; they must be the same"):
        ptxgen.spmm(x.astype(np.float64), a)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_transposes_of_tensors_are_kept() -> None:
    torch = pytest.importorskip("torch")
    a, b = matrix(12, 15), integers(12, 7)
    x = torch.sparse_csr_tensor(*(torch.from_numpy(np.array(v)) for v in a[:3]), a.shape)
    y, expected = torch.from_numpy(b), dense(a).T @ b
    for _ in range(2):
        np.testing.assert_array_equal(ptxgen.spmm(x, y, transpose=True).numpy(), expected)
    [(_, kept)] = prepared_spmm._kept.values()
    np.testing.assert_array_equal(ptxgen.spmm(y.T, x).numpy(), expected.T)
    x.values().mul_(2)
    np.testing.assert_array_equal(ptxgen.spmm(x, y, transpose=True).numpy(), 2 * expected)
    [(_, other)] = prepared_spmm._kept.values()
    assert other is not kept
    np.testing.assert_array_equal(ptxgen.spmm(x.to_sparse_csc(), y, transpose=True).numpy(), 2 * expected)
    p = ptxgen.spmm_prepare(x)
    np.testing.assert_array_equal(ptxgen.spmm(x, y, transpose=True).numpy(), 2 * expected)
    assert p._transposed is not None
    del x, kept, other, p
    gc.collect()
    assert not prepared_spmm._kept


def test_graphs_capture_products_of_the_transpose(gpu: Gpu) -> None:
    a, b = matrix(12, 9), integers(12, 6)
    for dtype in (INT, np.int64):
        x, y = CsrTensor(gpu, a, dtype), Tensor(gpu, b)
        p = ptxgen.spmm_prepare(x)
        gpu.graph = []
        with pytest.raises(InputError, match=r"the transpose must be made; call p.t\(b\) once before"):
            p.t(y)
        gpu.graph = None
        np.testing.assert_array_equal(p.t(y).numpy(), dense(a).T @ b)
        gpu.graph, gpu.calls = [], Counter()
        got = p.t(y)
        assert gpu.calls == {"launch": 1, "allocate": 1, "upload": 1}  # the result
        for launch in gpu.graph:
            launch()
        gpu.graph = None
        np.testing.assert_array_equal(got.numpy(), dense(a).T @ b)
        values = Tensor(gpu, 2 * a.values)
        p.update(values)
        np.testing.assert_array_equal(p.t(y).numpy(), 2 * dense(a).T @ b)
        q = ptxgen.spmm_prepare(x)  # another handle of the pattern: it is not transposed again
        gpu.calls.clear()
        np.testing.assert_array_equal(q.t(y).numpy(), dense(a).T @ b)
        assert q._pattern is p._pattern
        assert q.transposed._pattern is p.transposed._pattern


# ---- sampled products


def at_nonzeros(a: ptxgen.SparseMatrix, x: Array, y: Array) -> Array:
    rows = np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))
    return (x.astype(np.float64)[rows] * y.astype(np.float64)[a.indices]).sum(1)


@pytest.mark.parametrize(("dtype", "n"), [("f32", 64), ("f16", 34), ("bf16", 7), ("f64", 34), ("f32", 1)])
def test_sampled_products(dtype: str, n: int) -> None:
    a = repeated(40, 30, 200)
    a = a._replace(values=a.values.astype(matrix(1, 1, dtype=dtype).values.dtype))
    x, y = (integers(rows, n, seed=i, dtype=a.values.dtype) for i, rows in enumerate(a.shape))
    p, expected = ptxgen.spmm_prepare(a, calls=0), at_nonzeros(a, x, y)
    got = p.sddmm(x, y)
    assert got.dtype == a.values.dtype
    np.testing.assert_array_equal(got.astype(np.float64), expected)
    out = np.zeros_like(got)
    assert ptxgen.sddmm(a, x, y, out, scaled=True) is out
    np.testing.assert_array_equal(out.astype(np.float64), (expected * a.values).astype(out.dtype).astype(np.float64))
    if n == 7:
        np.testing.assert_array_equal(
            p.transposed.sddmm(y, x), at_nonzeros(a, x, y)[np.argsort(a.indices, kind="stable")]
        )
        np.testing.assert_array_equal(p.sddmm(x[:, 0], y[:, ::7][:, 0]), at_nonzeros(a, x[:, :1], y[:, :1]))


#: (kernel, chunk of a warp; 0: a row)
SAMPLED = [
    (SampledProducts("f32", 4, 8, 4, 2, whole=True), 16),
    (SampledProducts("f32", 4, 8, 4, 2, whole=True, rows=True, scaled=True), 0),
    (SampledProducts("f32", 4, 32, 1, 4), 32),
    (SampledProducts("f32", 4, 8, 4, 2, whole=True, rows=True, synced=4, threads=512), 0),
    (SampledProducts("f32", 4, 4, 2, 2, wide=True), 64),
    (SampledProducts("f32", 1, 16, 2, 2, wide=True, rows=True), 0),
    (SampledProducts("f32", 2, 32, 2, 1, whole=True), 2),
]


@pytest.mark.parametrize(("kernel", "chunk"), SAMPLED)
def test_kernels_of_sampled_products(kernel: SampledProducts, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that begin in rows, and after runs of empty rows that a warp does not see at once."""
    m, n, nnz = 1500, 128, 150
    rows = np.sort(np.random.default_rng(5).choice([0, 1, 2, 3, 700, 701, 760, 1498], nnz))
    a = ptxgen.SparseMatrix(
        np.searchsorted(rows, np.arange(m + 1)).astype(INT),
        np.random.default_rng(6).integers(0, 20, nnz).astype(INT),
        integers(nnz),
        (m, 20),
    )
    x, y = integers(m, n), integers(20, n, seed=1)

    def chosen(dtype: str, shape: Any, n: int, ldx: int, ldy: int, *rest: Any) -> Any:
        return kernel, kernel.step(Sampled(m, n, nnz, ldx, ldy, chunk))

    monkeypatch.setattr(prepared_spmm, "sampled_products", chosen)
    expected = at_nonzeros(a, x, y) * (a.values if kernel.scaled else 1)
    np.testing.assert_array_equal(ptxgen.sddmm(a, x, y, scaled=kernel.scaled), expected)


def test_choice_of_the_kernel_of_sampled_products() -> None:
    h200 = device("h200")
    for (m, n, nnz, longest, vec), (lanes, vectors, unrolled, rows, synced) in {
        (4096, 128, 1_677_721, 480, 4): (8, 4, 2, True, 256),
        (1 << 16, 64, 1 << 20, 5000, 4): (8, 2, 4, False, 0),
        (1 << 17, 64, 1 << 21, 20, 4): (8, 2, 4, True, 0),
        (512, 512, 26_000, 70, 4): (32, 4, 2, False, 0),
        (1 << 16, 3, 1 << 20, 5000, 1): (4, 1, 4, False, 0),
    }.items():
        made, step = sampled_products("f32", Shape(m, m, nnz, longest), n, n, n, vec, False, h200)
        numbers = made.lanes, made.vectors, made.unrolled, made.rows, made.synced
        assert numbers == (lanes, vectors, unrolled, rows, synced)
        assert made.columns >= n
        assert step.grid[0] >= h200.sms // 2
    with pytest.raises(DtypeError, match="a is bf16; on t4 it must be of another type: sm_80 converts it"):
        sampled_products("bf16", Shape(8, 8, 8, 1), 8, 8, 8, 8, False, device("t4"))


def test_sampled_products_refuse_what_does_not_fit() -> None:
    a = matrix(6, 5)
    p, x, y = ptxgen.spmm_prepare(a), integers(6, 4), integers(5, 4)
    for args, error, message in (
        ((x[:5], y), ShapeError, "x has 5 rows; it must have 6, the rows of a"),
        ((x, y[1:]), ShapeError, "y has 4 rows; it must have 5, the columns of a"),
        ((x, y[:, 1:]), ShapeError, "x has 4 columns and y has 3; they must be as many"),
        ((x, y.astype(np.float64)), DtypeError, "y is f64; it must be f32, as a"),
        ((x, y, np.zeros(3, F32)), ShapeError, r"out has shape \(3,\); it must be"),
        ((x, y, np.zeros(p.nnz)), DtypeError, "out is f64; it must be f32, as x and y"),
        ((x, y, a.values), OverlapError, "out"),
    ):
        with pytest.raises(error, match=message):
            p.sddmm(*args)
    with pytest.raises(InputError, match="scaled is 1; it must be True or False"):
        p.sddmm(x, y, scaled=1)
    empty = ptxgen.SparseMatrix(np.zeros(7, INT), np.zeros(0, INT), np.zeros(0, F32), (6, 5))
    assert ptxgen.sddmm(empty, x, y).shape == (0,)
    assert not p.sddmm(x[:, :0], y[:, :0]).any()


def test_sampled_products_on_a_gpu(gpu: Gpu) -> None:
    a, x, y = repeated(12, 9, 50), integers(12, 6), integers(9, 6, seed=2)
    for dtype in (INT, np.int64):
        p = ptxgen.spmm_prepare(CsrTensor(gpu, a, dtype))
        tx, ty = Tensor(gpu, x), Tensor(gpu, y)
        expected = at_nonzeros(a, x, y)
        np.testing.assert_array_equal(p.sddmm(tx, ty).numpy(), expected)
        assert len(p._sampled) == 1
        gpu.graph = []
        gpu.calls.clear()
        got = p.sddmm(tx, ty)
        assert gpu.calls == {"launch": 1, "allocate": 1, "upload": 1}  # the result
        for launch in gpu.graph:
            launch()
        gpu.graph = None
        np.testing.assert_array_equal(got.numpy(), expected)
        np.testing.assert_array_equal(p.sddmm(Tensor(gpu, x, (1, 0)), ty, scaled=True).numpy(), expected * a.values)
