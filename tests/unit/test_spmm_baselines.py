"""The vendor baselines of sparse products: what they pass to cuSPARSE, PyTorch and cuBLASLt, with stand-ins for all of
them. The emulated device holds the operands; the stand-ins compute, so that results are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxgen.cli import command
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.operations.spmm import cusparse as cusparse_module
from ptxgen.operations.spmm import dense as dense_module
from ptxgen.operations.spmm import pytorch as torch_module
from ptxgen.operations.spmm.checked_rows import checked_rows
from ptxgen.operations.spmm.checks import SpmmOperandSets
from ptxgen.operations.spmm.cusparse import Cusparse, CusparseTransposed
from ptxgen.operations.spmm.dense import DenseProduct, densified
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.pytorch import TorchSparse
from ptxgen.operations.spmm.reference import product
from ptxgen.problem.device import Device
from ptxgen.problem.operation import Case, VendorTimes, operation_named
from ptxgen.runtime import vendor_libraries
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.measure.bench import FINAL_TIMING, Bench, bench

P = Spmm(70, 24, 50, dtype="f16", pattern="lognormal:density=0.2,sigma=1", ldb=40, ldc=32)


class StandInDriver(EmulatedDriver):
    """Memory of the emulated device. ``microseconds``: of each timed list of launches; ``once``: of single launches."""

    stream = 77

    def __init__(self, *microseconds: float, once: float = 1.0) -> None:
        super().__init__()
        self.microseconds, self.once, self.timed = list(microseconds), once, 0
        self.held: set[int] = set()
        self.operands: list[SpmmOperandSets] = []

    def allocate(self, size: int) -> int:
        address = super().allocate(size)
        self.held.add(address)
        return address

    def release(self, address: int) -> None:
        super().release(address)
        self.held.discard(address)

    @contextmanager
    def context(self, doing: str) -> Iterator[None]:
        yield

    def elapsed(self, launch: Callable[[], object]) -> float:
        launch()
        return self.once

    def time(self, launches: Any, timing: Timing) -> list[float]:
        for launch in launches:
            launch()
        self.timed += 1
        return [self.microseconds.pop(0)]


def sets_of(driver: Any, p: Spmm) -> SpmmOperandSets:
    """Two operand sets of a problem."""
    out = SpmmOperandSets(driver, p, Timing())
    more = SpmmOperandSets(driver, p, Timing())
    out._memory += more._memory
    out.sets += more.sets
    driver.operands.append(out)  # whose memory is freed with it
    return out


class StandInCusparse:
    """Records calls and computes products in the memory of a driver. ``status``: what calls return; ``wrong``:
    algorithms whose results are wrong."""

    def __init__(self, driver: StandInDriver, p: Spmm) -> None:
        self.driver, self.problem = driver, p
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.described: dict[int, tuple[Any, ...]] = {}
        self.status: dict[tuple[str, int], int] = {}
        self.wrong: set[int] = set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if name == "cusparseGetErrorName":
                return b"CUSPARSE_STATUS_NOT_SUPPORTED"
            for a, c_type in zip(arguments, cusparse_module._SIGNATURES[name], strict=True):
                c_type.from_param(a)  # ctypes converts it
            if name == "cusparseCreate":
                arguments[0]._obj.value = 1234
            elif name.startswith("cusparseCreate"):
                arguments[0]._obj.value = key = 5000 + len(self.described)
                self.described[key] = arguments[1:]
            values = tuple(getattr(getattr(a, "_obj", a), "value", a) for a in arguments)
            self.calls.append((name, values))
            if "SpMM" in name:
                if name.endswith("bufferSize"):
                    arguments[-1]._obj.value = 100
                if status := self.status.get((name, values[9]), 0):
                    return status
                if name == "cusparseSpMM":
                    self.multiply(*values)
            return 0

        return call

    def multiply(self, *values: Any) -> None:
        p, (_, _, _, alpha, a, b, beta, c, _, algorithm, _) = self.problem, values
        assert (alpha, beta) == (1, 0)
        rows_a, columns_a, nnz, *pattern = self.described[a][:6]
        m = rows_a
        names = ("indptr", "indices", "values")
        sizes = {"indptr": m + 1, "indices": nnz, "values": nnz}
        arrays = {n: np.empty(sizes[n], p.element.numpy if n == "values" else np.int32) for n in names}
        for n, address in zip(names, pattern, strict=True):
            self.driver.download(address, arrays[n])
        if values[1]:  # the operand is transposed
            m, order = columns_a, np.argsort(arrays["indices"], kind="stable")
            indptr = np.searchsorted(arrays["indices"][order], np.arange(m + 1)).astype(np.int32)
            rows = np.repeat(np.arange(rows_a), np.diff(arrays["indptr"]))
            arrays = {"indptr": indptr, "indices": rows[order].astype(np.int32), "values": arrays["values"][order]}
        rows, columns, ld, address, *_ = self.described[b]
        stored = np.empty((rows, ld), p.element.numpy)
        self.driver.download(address, stored)
        exact, _ = product(p, arrays | {"B": stored[:, :columns]})
        rows, columns, ld, address, *_ = self.described[c]
        assert (rows, columns) == exact.shape == (m, p.n)
        out = np.full((rows, ld), 7, p.output.numpy)
        out[:, :columns] = exact
        if algorithm in self.wrong:
            out[np.diff(arrays["indptr"]).argmax(), 0] += 1
        self.driver.upload(address, out)
        self.driver.synchronize()

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [values for called, values in self.calls if called == name]


@pytest.fixture
def cusparse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[StandInCusparse, StandInDriver]]:
    def made(p: Spmm, *microseconds: float, once: float = 1.0) -> tuple[StandInCusparse, StandInDriver]:
        driver = StandInDriver(*microseconds, once=once)
        library = StandInCusparse(driver, p)
        monkeypatch.setattr(cusparse_module, "load_library", lambda: library)
        return library, driver

    return made


#: dtype -> cudaDataType of A, B and C, and of sums
CODES = {"f16": (2, 0), "bf16": (14, 0), "f32": (0, 0), "f64": (1, 1)}


@pytest.mark.parametrize("dtype", CODES)
def test_arguments_of_cusparse(cusparse: Any, dtype: str) -> None:
    p = Spmm(70, 24, 50, dtype=dtype, pattern=P.pattern, ldb=40, ldc=32)
    library, driver = cusparse(p, 9.0, 5.0, 7.0)
    sets = sets_of(driver, p).sets
    assert Cusparse(driver, p).best(sets, Timing()).best == 5.0
    values, sums = CODES[dtype]
    csr, dense = library.named("cusparseCreateCsr"), library.named("cusparseCreateDnMat")
    assert (len(csr), len(dense)) == (3 * 2, 3 * 4)
    for i, addresses in enumerate(sets):
        pattern = tuple(addresses[n] for n in ("indptr", "indices", "values"))
        assert csr[i][1:] == (70, 50, p.nnz, *pattern, 2, 2, 0, values)
        assert dense[2 * i][1:] == (50, 24, 40, addresses["B"], values, 2)
        assert dense[2 * i + 1][1:] == (70, 24, 32, addresses["C"], values, 2)
    for name in ("cusparseSpMM_bufferSize", "cusparseSpMM_preprocess", "cusparseSpMM"):
        calls = library.named(name)
        assert list(dict.fromkeys(c[9] for c in calls)) == [4, 6, 12]
        for handle, op_a, op_b, alpha, a, b, beta, c, compute, *_ in calls:
            assert (handle, op_a, op_b, alpha, beta, compute) == (1234, 0, 0, 1, 0, sums)
            assert (library.described[a][0], library.described[b][0], library.described[c][0]) == (70, 50, 70)
    assert library.named("cusparseSetStream") == [(1234, 77)]


def test_the_transposed_operand_of_cusparse(cusparse: Any) -> None:
    library, driver = cusparse(P, 9.0, 8.0, 5.0)
    library.status = {("cusparseSpMM_preprocess", 0): 10, ("cusparseSpMM_bufferSize", 12): 10}
    assert CusparseTransposed(driver, P).best(sets_of(driver, P).sets, Timing()).best == 5.0
    assert {values[9] for values in library.named("cusparseSpMM")} == {0, 4, 6}
    assert {values[1:4] for values in library.named("cusparseCreateCsr")} == {(P.k, P.m, P.nnz)}
    assert {values[1:3] for values in library.named("cusparseSpMM")} == {(1, 0)}
    wide = replace(P, index="i64")
    with pytest.raises(LaunchError, match="int32 indices alone"):
        CusparseTransposed(driver, wide).best([], Timing())


def test_batches_of_graphs_are_one_matrix_for_cusparse(cusparse: Any) -> None:
    """Its columns name rows of B; the result is compared with the products of the graphs."""
    p = Spmm(70, 24, 70, pattern="uniform:degree=4", groups=5)
    library, driver = cusparse(replace(p, groups=0), 9.0, 5.0, 7.0)
    sets, before = sets_of(driver, p).sets, set(driver.held)
    assert Cusparse(driver, p).best(sets, Timing()).best == 5.0
    assert not {values[5] for values in library.named("cusparseCreateCsr")} & {each["indices"] for each in sets}
    assert driver.held == before


def test_each_product_has_descriptors_and_a_workspace_of_its_own(cusparse: Any) -> None:
    library, driver = cusparse(P, 9.0, 5.0, 7.0)
    operands = sets_of(driver, P)
    before = set(driver.held)
    with Cusparse(driver, P) as vendor:
        assert vendor.best(operands.sets, Timing())[0] == 5.0
    calls = [(values[4], values[9], values[10]) for values in library.named("cusparseSpMM_preprocess")]
    assert len({a for a, *_ in calls}) == len(calls) == 6
    assert {(values[4], values[9], values[10]) for values in library.named("cusparseSpMM")} == set(calls)
    assert driver.held == before
    freed = [values[0] for name in ("SpMat", "DnMat") for values in library.named(f"cusparseDestroy{name}")]
    assert sorted(freed) == sorted(library.described)
    assert library.named("cusparseDestroy") == [(1234,)]


def test_an_algorithm_with_a_wrong_result_does_not_count(cusparse: Any) -> None:
    library, driver = cusparse(P, 9.0, 7.0)
    library.wrong = {6}
    assert Cusparse(driver, P).best(sets_of(driver, P).sets, Timing())[0] == 7.0
    library, driver = cusparse(P)
    library.wrong = {4, 6, 12}
    with pytest.raises(LaunchError, match=r"does not compute spmm .*: ALG1: its result is wrong: worst error .*; ALG2"):
        Cusparse(driver, P).best(sets_of(driver, P).sets, Timing())


def test_an_algorithm_that_is_not_supported_is_left_out(cusparse: Any) -> None:
    library, driver = cusparse(P, 9.0, 7.0)
    library.status["cusparseSpMM_bufferSize", 4] = 10
    assert Cusparse(driver, P).best(sets_of(driver, P).sets, Timing())[0] == 7.0
    library.status |= {("cusparseSpMM_preprocess", 6): 10, ("cusparseSpMM", 12): 10}
    with pytest.raises(LaunchError, match=r"ALG3: cuSPARSE failed with status 10 \(CUSPARSE_STATUS_NOT_SUPPORTED\)"):
        Cusparse(driver, P).best(sets_of(driver, P).sets, Timing())


def test_slow_algorithms_run_once(cusparse: Any) -> None:
    _, driver = cusparse(P, 9.0, once=100.0)
    assert Cusparse(driver, P).best(sets_of(driver, P).sets, Timing())[0] == 9.0
    assert driver.timed == 1


def test_what_has_no_products_is_refused(cusparse: Any) -> None:
    for p in (Spmm(0, 8, 8), Spmm(8, 0, 8), Spmm(8, 8, 8, pattern="even:nnz=0")):
        _, driver = cusparse(p)
        for library in (Cusparse, TorchSparse, DenseProduct):
            with pytest.raises(ShapeError, match="an extent or the number of nonzeros is 0"):
                library(driver, p)


# ---- a dense A


class StandInCublas:
    """Computes products in the memory of a driver."""

    wrong = False

    def __init__(self, driver: StandInDriver, problem: Any) -> None:
        self.driver, self.problem = driver, problem

    def __enter__(self) -> StandInCublas:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, index: int, addresses: dict[str, int]) -> None:
        p = self.problem
        a, b, c = (np.zeros(shape, p.element.numpy) for shape in ((p.m, p.k), (p.k, p.ldb), (p.m, p.ldc)))
        self.driver.download(addresses["A"], a)
        self.driver.download(addresses["B"], b)
        c[:, : p.n] = a.astype(np.float64) @ b[:, : p.n].astype(np.float64) + self.wrong
        self.driver.upload(addresses["C"], c)

    def best(self, sets: Any, timing: Timing) -> VendorTimes:
        assert len({s["A"] for s in sets}) == len({s["B"] for s in sets}) == len(sets) == 2
        self.run(0, sets[1])
        return VendorTimes(3.0, 4.0, 3.0)


def test_cublas_multiplies_a_dense_a(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Spmm(70, 24, 50, dtype="bf16", pattern="banded:width=9", ldb=40, ldc=32, aligned_b=8)
    driver: Any = StandInDriver()
    monkeypatch.setattr(dense_module, "CublasLt", StandInCublas)
    operands = sets_of(driver, p)
    assert DenseProduct(driver, p).best(operands.sets, Timing()) == (3.0, 4.0, 3.0)
    gemm = DenseProduct(driver, p).gemm
    assert (gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldc, gemm.aligned_b) == (70, 24, 50, 50, 40, 32, 8)
    monkeypatch.setattr(StandInCublas, "wrong", True)
    with pytest.raises(LaunchError, match="its result is wrong"):
        DenseProduct(driver, p).best(operands.sets, Timing())


def test_a_dense_a_has_sums_of_duplicates() -> None:
    p = Spmm(3, 8, 4, pattern="even:nnz=5")
    arrays = {"indptr": np.array([0, 3, 3, 5]), "indices": np.array([1, 1, 0, 3, 2])}
    arrays["values"] = np.array([1, 2, 4, 8, 16], np.float32)
    assert densified(p, arrays).tolist() == [[4, 3, 0, 0], [0, 0, 0, 0], [0, 0, 16, 8]]
    with pytest.raises(LaunchError, match="A has 8193×8192 elements; dense it must have at most 67108864"):
        DenseProduct(StandInDriver(), Spmm(8193, 8, 8192, pattern="banded:width=1"))  # type: ignore[arg-type]


# ---- PyTorch


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_pytorch_multiplies_the_operands_of_the_set(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """``as_tensor`` reads the memory of the emulated device; PyTorch computes on the CPU."""
    torch = pytest.importorskip("torch")
    p = Spmm(70, 24, 50, dtype=dtype, pattern=P.pattern, ldb=40)
    driver: Any = StandInDriver(6.0)

    def as_tensor(memory: Any, device: str) -> Any:
        interface = memory.__cuda_array_interface__
        array = np.empty(interface["shape"], interface["typestr"])
        driver.download(interface["data"][0], array)
        return torch.from_numpy(array)

    def multiplied(a: Any, b: Any) -> Any:
        return (a.to_dense().double() @ b.double()).to(b.dtype)

    cuda = SimpleNamespace(
        ExternalStream=lambda *x: x, stream=lambda s: nullcontext(), empty_cache=lambda: None, is_available=lambda: True
    )
    stand_in = SimpleNamespace(
        cuda=cuda,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))),
        as_tensor=as_tensor,
        sparse=SimpleNamespace(mm=multiplied),
        **{name: getattr(torch, name) for name in ("no_grad", "sparse_csr_tensor", p.element.numpy.name)},
    )
    monkeypatch.setattr(torch_module, "load_torch", lambda: stand_in)
    operands = sets_of(driver, p)
    assert TorchSparse(driver, p).best(operands.sets, Timing()).best == 6.0
    assert driver.timed == 1
    stand_in.sparse.mm = lambda a, b: multiplied(a, b) + 1
    with pytest.raises(LaunchError, match="its result is wrong"):
        TorchSparse(driver, p).best(operands.sets, Timing())

    def refused(a: Any, b: Any) -> Any:
        raise RuntimeError("no kernel\nfor this")

    stand_in.sparse.mm = refused
    with pytest.raises(LaunchError, match=r"PyTorch does not compute spmm .*: no kernel$"):
        TorchSparse(driver, p).best(operands.sets, Timing())


# ---- commands


def test_absent_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(vendor_libraries, "_wheels", lambda name: [])
    monkeypatch.setattr(vendor_libraries.ct, "CDLL", no_library)
    cusparse_module.load_library.cache_clear()
    assert cusparse_module.available() is None
    baselines = operation_named("spmm").baselines
    assert list(baselines) == ["cusparse", "cusparse_transposed", "torch", "dense", "tca"]
    with pytest.raises(UnavailableError, match=r"libcusparse was not found; .*baseline"):
        baselines["cusparse"].require()


def test_bench_names_what_it_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    words = ["bench", "spmm", "--suite", "graphs", "--dtype", "f16", "--device", "emulated", "--baseline"]
    assert command.run([*words, "cusparse"])
    assert "baseline is 'cusparse'; the vendor's library needs an NVIDIA GPU" in capsys.readouterr().err
    assert command.run([*words, "cublas"])
    assert "for spmm it must be cusparse or cusparse_transposed or torch or dense" in capsys.readouterr().err


@pytest.mark.parametrize("prepared", [True, False])
def test_bench_times_the_preparation_beside_the_choice_without_it(prepared: bool) -> None:
    order = "row_order=length longest_part=32" if prepared else "row_order=natural"
    given = parse_config(f"family=row_split row_lanes=8 vec_b=2 {order}")
    asked: list[Spmm] = []

    def choose(problem: Spmm, device: Device) -> SimpleNamespace:
        asked.append(problem)
        return SimpleNamespace(config=given if problem.calls else given.replace(row_order=0, longest_part=0))

    p = replace(P, dtype="f32", compute="", out="", calls=1000)
    driver = EmulatedDriver()
    [row] = bench([Case("x", p)], driver, choose)
    assert row.deviation is not None
    assert row.deviation.ok
    if not prepared:
        assert asked == [p]
        assert math.isnan(row.preparation_us)
        assert math.isnan(row.pays_from_calls)
        return
    assert asked == [p, replace(p, calls=0)]
    plain = Bench(driver).measure(asked[1], choose(asked[1], driver.device).config, FINAL_TIMING)
    assert row.unprepared_us == pytest.approx(plain.us)
    assert row.preparation_us == pytest.approx(preparation_us(driver, p, given))


def preparation_us(driver: EmulatedDriver, p: Spmm, config: Config) -> float:
    """The modelled time of the launches of a preparation."""
    runner, sets = Runner.of(driver, p, config), SpmmOperandSets(driver, p, Timing())
    driver.modelled_us.clear()
    runner.on(sets.sets[0])
    assert len(driver.modelled_us) == 3
    return sum(driver.modelled_us)


def test_the_longest_row_and_rows_of_all_parts_are_compared() -> None:
    lengths = np.ones(1000, np.int64)
    lengths[777] = 50
    rows = [i for part in checked_rows(lengths, 80) for i in range(*part.indices(1000))]
    assert 777 in rows
    assert (min(rows), max(rows)) == (0, 999)
    assert 80 <= len(rows) <= 90
    assert max(np.diff(sorted(rows))) < 150
    assert checked_rows(lengths, 1000) == [slice(0, 1000)]
