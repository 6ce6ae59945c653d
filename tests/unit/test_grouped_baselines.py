"""The vendor baselines of grouped products: what they pass to cuBLAS and to PyTorch, with stand-ins for both."""

from __future__ import annotations

import ctypes as ct
import importlib.util
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.grouped import cublas as cublas_grouped
from ptxgen.operations.grouped import cudnn as cudnn_grouped
from ptxgen.operations.grouped import pytorch as torch_grouped
from ptxgen.operations.grouped.cublas import CublasGrouped
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.pytorch import TorchGrouped
from ptxgen.operations.grouped.suites import INCEPTION
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime import vendor_libraries as libraries
from ptxgen.runtime.driver import Timing

SETS = [(1 << 20, 2 << 20, 3 << 20), (4 << 20, 5 << 20, 6 << 20)]
NAMED = [dict(zip("ABC", addresses, strict=True)) for addresses in SETS]
#: items 0 and 2 are equal, item 1 is empty
ITEMS = ((5, 8, 16), (0, 8, 16), (5, 8, 16), (7, 3, 0), (4, 2, 6))


class StandInDriver:
    """Memory that is written but not computed on. ``microseconds``: of each timed list of launches."""

    stream = 77
    index = 0

    def __init__(self, *microseconds: float) -> None:
        self.microseconds = list(microseconds)
        self.memory: dict[int, Any] = {}

    def allocate(self, size: int) -> int:
        at = (100 + len(self.memory)) << 32
        self.memory[at] = size
        return at

    def release(self, address: int) -> None:
        del self.memory[address]

    def upload(self, address: int, array: Any) -> None:
        self.memory[address] = array.copy()

    def context(self, doing: str) -> Any:
        return nullcontext()

    def synchronize(self) -> None:
        pass

    def time(self, launches: Any, timing: Timing) -> list[float]:
        for launch in launches:
            launch()
        return [self.microseconds.pop(0)]


class StandInCublas:
    """Records the calls of cuBLAS; C arrays are read when the call is made. ``status``: what calls return."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.status: dict[str, int] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if name == "cublasGetStatusName":
                return b"CUBLAS_STATUS_NOT_SUPPORTED"
            if name == "cublasCreate_v2":
                arguments[0]._obj.value = 1234
                return 0
            self.calls.append((name, [value_of(a) for a in arguments]))
            return self.status.get(name, 0)

        return call

    def named(self, name: str) -> list[list[Any]]:
        return [arguments for called, arguments in self.calls if called == name]


def value_of(argument: Any) -> Any:
    """A C argument as Python values: arrays as lists, references as what they refer to."""
    if isinstance(argument, ct.Array):
        return list(argument)
    referred = getattr(argument, "_obj", argument)
    return getattr(referred, "value", referred)


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> StandInCublas:
    library = StandInCublas()
    monkeypatch.setattr(cublas_grouped, "load_library", lambda: library)
    return library


def made(problem: GroupedGemm, *microseconds: float) -> tuple[CublasGrouped, StandInDriver]:
    driver: Any = StandInDriver(*microseconds)
    return CublasGrouped(driver, problem), driver


def test_arrays_of_the_grouped_call(cublas: StandInCublas) -> None:
    p = GroupedGemm(ITEMS)
    product, driver = made(p)
    product.run("grouped", NAMED[0])
    [arguments] = cublas.named("cublasSgemmGroupedBatched")
    handle, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count, sizes = arguments
    # groups: items 0 and 2, item 3 with K = 0, item 4. Column-major: m is N, the first operand is B
    assert (handle, count, sizes) == (1234, 3, [2, 1, 1])
    assert (m, n, k) == ([8, 3, 2], [5, 7, 4], [16, 0, 6])
    assert trans_a == trans_b == [0, 0, 0]
    assert (alpha, beta) == ([1.0] * 3, [0.0] * 3)
    assert (lda, ldb, ldc) == ([8, 3, 2], [16, 1, 6], [8, 3, 2])
    # arrays on the device, in the order of the groups, without the empty item
    table = driver.memory[b]
    order = [0, 2, 3, 4]
    assert (a, c) == (b + 8 * len(order), b + 16 * len(order))
    assert table.dtype == np.uint64
    for x in range(3):
        assert table[x].tolist() == [SETS[0][x] + 4 * int(p.starts[i, x]) for i in order]


def test_stream_and_workspace_are_set_before_each_call(cublas: StandInCublas) -> None:
    product, driver = made(GroupedGemm(ITEMS))
    product.run("loop", NAMED[0])
    product.run("grouped", NAMED[0], stream=5)
    names = [name for name, _ in cublas.calls]
    begin = ["cublasSetStream_v2", "cublasSetWorkspace_v2"]
    assert names == [*begin, *["cublasSgemm_v2"] * 4, *begin, "cublasSgemmGroupedBatched"]
    assert [a[1] for a in cublas.named("cublasSetStream_v2")] == [77, 5]
    [space, *_] = driver.memory
    assert cublas.named("cublasSetWorkspace_v2")[0] == [1234, space, cublas_grouped.WORKSPACE]
    assert driver.memory[space] == cublas_grouped.WORKSPACE


def test_calls_of_the_loop(cublas: StandInCublas) -> None:
    p = GroupedGemm(ITEMS)
    made(p)[0].run("loop", NAMED[1])
    calls = cublas.named("cublasSgemm_v2")
    assert [c[3:6] for c in calls] == [[8, 5, 16], [8, 5, 16], [3, 7, 0], [2, 4, 6]]
    for call, i in zip(calls, (0, 2, 3, 4), strict=True):
        handle, trans_a, trans_b, _, _, _, alpha, b, lda, a, ldb, beta, c, ldc = call
        assert (handle, trans_a, trans_b, alpha, beta) == (1234, 0, 0, 1.0, 0.0)
        assert [a, b, c] == [SETS[1][x] + 4 * int(p.starts[i, x]) for x in range(3)]
        assert [ldb, lda, ldc] == p.lds[i].tolist()


@pytest.mark.parametrize(("layout", "first", "second"), [("NN", 0, 0), ("TN", 0, 1), ("NT", 1, 0), ("TT", 1, 1)])
def test_transpositions_swap_with_the_operands(cublas: StandInCublas, layout: str, first: int, second: int) -> None:
    p = GroupedGemm(((4, 8, 16),), layout, ld="20:24:32")
    made(p)[0].run("grouped", NAMED[0])
    arguments = cublas.named("cublasSgemmGroupedBatched")[0]
    assert arguments[1:3] == [[first], [second]]
    assert [arguments[i] for i in (8, 10, 13)] == [[24], [20], [32]]


@pytest.mark.parametrize(
    ("dtype", "compute", "grouped", "single", "compute_code", "code"),
    [
        ("f32", "f32", "cublasSgemmGroupedBatched", "cublasSgemm_v2", None, None),
        ("f64", "f64", "cublasDgemmGroupedBatched", "cublasDgemm_v2", None, None),
        ("f32", "tf32", "cublasGemmGroupedBatchedEx", "cublasGemmEx", 0, 77),
        ("f16", "f32", "cublasGemmGroupedBatchedEx", "cublasGemmEx", 2, 68),
        ("bf16", "f32", "cublasGemmGroupedBatchedEx", "cublasGemmEx", 14, 68),
    ],
)
def test_calls_of_each_type(
    cublas: StandInCublas,
    dtype: str,
    compute: str,
    grouped: str,
    single: str,
    compute_code: int | None,
    code: int | None,
) -> None:
    p = GroupedGemm(((4, 8, 16), (8, 8, 8)), dtype=dtype, compute=compute)
    product, driver = made(p)
    product.run("grouped", NAMED[0])
    product.run("loop", NAMED[0])
    [call], loop = cublas.named(grouped), cublas.named(single)
    assert len(loop) == 2
    if compute_code is None:
        assert (len(call), len(loop[0])) == (16, 14)
        return
    assert (len(call), len(loop[0])) == (20, 19)
    assert [call[i] for i in (8, 11, 15, 19)] == [compute_code, compute_code, compute_code, code]
    assert call[17:19] == [2, [1, 1]]
    assert [loop[0][i] for i in (8, 11, 15, 17, 18)] == [compute_code, compute_code, compute_code, code, -1]
    size = p.element.bytes
    assert loop[1][7] == SETS[0][1] + size * int(p.starts[1, 1])
    assert driver.memory[call[10]][1].tolist() == [SETS[0][1], loop[1][7]]


def test_doubles_are_scaled_by_doubles(cublas: StandInCublas) -> None:
    product, _ = made(GroupedGemm(((4, 4, 4),), dtype="f64"))
    assert isinstance(product._ones, ct.Array)
    assert product._ones._type_ is ct.c_double


def test_addresses_are_copied_once_per_operand_set(cublas: StandInCublas) -> None:
    product, driver = made(GroupedGemm(ITEMS), 9.0, 30.0)
    assert product.best(NAMED, Timing()) == (9.0, 9.0, 9.0)
    assert len(driver.memory) == 1 + len(SETS)  # the workspace, an array of addresses for each set
    assert len({call[9] for call in cublas.named("cublasSgemmGroupedBatched")}) == len(SETS)
    product.close()
    assert not driver.memory
    assert cublas.named("cublasDestroy_v2") == [[1234]]
    product.close()
    assert len(cublas.named("cublasDestroy_v2")) == 1


def test_faster_of_both_counts(cublas: StandInCublas) -> None:
    assert made(GroupedGemm(ITEMS), 50.0, 40.0)[0].best(NAMED, Timing()) == (40.0, 50.0, 40.0)


def test_jagged_problems_are_grouped_by_their_sizes(cublas: StandInCublas) -> None:
    p = GroupedGemm(((24, 8, 16), (0, 8, 16), (8, 8, 16), (24, 8, 16)), dtype="bf16", jagged="m")
    product, driver = made(p)
    product.run("grouped", NAMED[0])
    [call] = cublas.named("cublasGemmGroupedBatchedEx")
    assert (call[4], call[18]) == ([24, 8], [2, 1])
    a, b, c = driver.memory[call[10]].tolist()
    assert [x - SETS[0][0] for x in a] == [0, 2 * 32 * 16, 2 * 24 * 16]
    assert [x - SETS[0][1] for x in b] == [0, 2 * 3 * 8 * 16, 2 * 2 * 8 * 16]
    assert [x - SETS[0][2] for x in c] == [0, 2 * 32 * 8, 2 * 24 * 8]


def test_what_cublas_refuses(cublas: StandInCublas) -> None:
    for problem, error, match in (
        (GroupedGemm(((0, 4, 4), (4, 0, 4))), ShapeError, "all items are empty"),
        (GroupedGemm(((4, 4, 4),), epilogue="relu"), LaunchError, "epilogue is 'relu'"),
        (GroupedGemm(((4, 4, 4),), dtype="f16", out="f32"), LaunchError, "f16 summed in f32 with C of f32"),
        (GroupedGemm(((4, 4, 4),), dtype="f16", compute="f16"), LaunchError, "f16 summed in f16"),
        (GroupedGemm(((4, 4, 8),), dtype="f16", aligned_b=8), LaunchError, "B of item 0 is not aligned to 16 bytes"),
        (
            GroupedGemm(((1, 3, 8), (1, 3, 8)), dtype="bf16", jagged="m"),
            LaunchError,
            "C of item 1 is not aligned to 16 bytes; with K=8 of bf16",
        ),
    ):
        with pytest.raises(error, match=match):
            made(problem)
    made(GroupedGemm(((4, 4, 8),), aligned_b=4))  # the rule is not that of f32
    made(GroupedGemm(((4, 4, 7),), dtype="f16", aligned_b=2))


def test_errors_of_calls_name_the_status(cublas: StandInCublas) -> None:
    product, _ = made(GroupedGemm(ITEMS))
    cublas.status["cublasSgemmGroupedBatched"] = 15
    with pytest.raises(LaunchError, match=r"cuBLAS failed with status 15 \(CUBLAS_STATUS_NOT_SUPPORTED\)"):
        product.run("grouped", NAMED[0])


def test_absent_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(libraries, "_wheels", lambda name: [])
    monkeypatch.setattr(ct, "CDLL", no_library)
    cublas_grouped.load_library.cache_clear()
    with pytest.raises(UnavailableError, match=r"libcublas was not found; .*pip install .*baseline"):
        CublasGrouped(StandInDriver(), GroupedGemm(ITEMS))  # type: ignore[arg-type]
    assert cublas_grouped.available() is None
    monkeypatch.setattr(ct, "CDLL", lambda name: SimpleNamespace())
    with pytest.raises(UnavailableError, match=r"no grouped calls; version 12.5"):
        cublas_grouped.load_library()
    cublas_grouped.load_library.cache_clear()


def test_version_of_cublas(cublas: StandInCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(part: int, value: Any) -> int:
        value._obj.value = (13, 1, 2)[part]
        return 0

    monkeypatch.setattr(cublas, "cublasGetProperty", version, raising=False)
    assert cublas_grouped.available() == "cuBLAS 13.1.2"


def test_wheels_are_searched_first_and_newest_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for package, file in (("cu12", "libcublas.so.12"), ("cu13", "libcublas.so.13"), ("cu13", "libcublasLt.so.13")):
        (tmp_path / package / "lib").mkdir(parents=True, exist_ok=True)
        (tmp_path / package / "lib" / file).touch()
    place = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: place)
    tried: list[str] = []

    def fail(name: str) -> Any:
        tried.append(name)
        raise OSError

    monkeypatch.setattr(ct, "CDLL", fail)
    with pytest.raises(UnavailableError):
        libraries.load("cublas")
    names = [name.rpartition("/")[2] for name in tried]
    assert names == ["libcublas.so.13", "libcublas.so.12", "libcublas.so.13", "libcublas.so.12", "libcublas.so"]
    assert tried[0].startswith(str(tmp_path / "cu13"))


# ---- PyTorch


class Tensor:
    """A strided view of device memory: shape, strides in elements and element type."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None:
        self.address, self.shape, self.strides, self.dtype = address, shape, strides, dtype

    def view(self, dtype: str) -> Tensor:
        return Tensor(self.address, self.shape, self.strides, dtype)

    def __getitem__(self, index: Any) -> Tensor:
        _, columns = index
        return Tensor(self.address, (*self.shape[:-1], columns.stop), self.strides, self.dtype)

    def transpose(self, x: int, y: int) -> Tensor:
        assert (x, y) == (-2, -1)
        swapped = [(*v[:-2], v[-1], v[-2]) for v in (self.shape, self.strides)]
        return Tensor(self.address, swapped[0], swapped[1], self.dtype)

    def __repr__(self) -> str:
        return f"{self.dtype} {self.shape} {self.strides} at {self.address}"


class StandInTorch(SimpleNamespace):
    def __init__(self) -> None:
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []
        self.streams: list[Any] = []
        self.error = ""
        super().__init__(
            bfloat16="bf16",
            float8_e4m3fn="e4m3",
            no_grad=nullcontext,
            cuda=SimpleNamespace(
                ExternalStream=lambda stream, device: stream, stream=self.use, empty_cache=lambda: None
            ),
        )

    def use(self, stream: int) -> Any:
        self.streams.append(stream)
        return nullcontext()

    def as_tensor(self, x: Any, device: str) -> Tensor:
        facts = x.__cuda_array_interface__
        shape = facts["shape"]
        strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        return Tensor(facts["data"][0], shape, strides, facts["typestr"])

    def _scaled_grouped_mm(self, a: Tensor, b: Tensor, *scales: Tensor, **options: Any) -> object:
        self.calls.append((a, b, options["offs"]))
        self.scaled = [(x.address, x.shape, x.dtype) for x in scales], options["out_dtype"], options["use_fast_accum"]
        return object()

    def _grouped_mm(self, a: Tensor, b: Tensor, offs: Tensor) -> object:
        if self.error:
            raise RuntimeError(self.error)
        self.calls.append((a, b, offs))
        return object()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> StandInTorch:
    stand_in = StandInTorch()
    monkeypatch.setattr(torch_grouped, "load_torch", lambda: stand_in)
    return stand_in


def grouped_mm(problem: GroupedGemm, *microseconds: float) -> TorchGrouped:
    driver: Any = StandInDriver(*microseconds)
    return TorchGrouped(driver, problem, {"offsets": 9 << 20})


@pytest.mark.parametrize(
    ("layout", "jagged", "a", "b"),
    [
        ("NN", "m", ((12, 64), (64, 1)), ((3, 64, 32), (2048, 32, 1))),
        ("NT", "m", ((12, 64), (64, 1)), ((3, 64, 32), (2048, 1, 64))),
        ("TN", "m", ((12, 64), (1, 12)), ((3, 64, 32), (2048, 32, 1))),
        ("TN", "k", ((64, 12), (1, 64)), ((12, 32), (32, 1))),
        ("NT", "k", ((64, 12), (12, 1)), ((12, 32), (1, 12))),
    ],
)
def test_tensors_of_the_grouped_product(torch: StandInTorch, layout: str, jagged: str, a: Any, b: Any) -> None:
    sizes = (4, 0, 8)
    items = tuple((s, 32, 64) if jagged == "m" else (64, 32, s) for s in sizes)
    grouped_mm(GroupedGemm(items, layout, "bf16", jagged=jagged)).run(NAMED[0])
    [(x, w, ends)] = torch.calls
    assert (x.shape, x.strides) == a
    assert (w.shape, w.strides) == b
    assert (x.address, w.address, x.dtype, w.dtype) == (*SETS[0][:2], "bf16", "bf16")
    assert (ends.address, ends.shape, ends.dtype) == (9 << 20, (3,), "<i4")
    assert torch.streams == [StandInDriver.stream] * 2  # for the offsets, and for the product


def test_scaled_product_has_scales_of_rows_and_columns(torch: StandInTorch) -> None:
    p = GroupedGemm(((4, 32, 64), (8, 32, 64)), "NT", "e4m3", out="bf16", epilogue="scale_rows", jagged="m")
    driver: Any = StandInDriver()
    product = torch_grouped.torch_grouped(driver, p, {"offsets": 9 << 20})
    product.run({**NAMED[0], "scale_a": 1 << 20, "scale_b": 2 << 20})
    [(x, w, _)] = torch.calls
    assert (x.shape, x.dtype, w.shape, w.strides, w.dtype) == ((12, 64), "e4m3", (2, 64, 32), (2048, 1, 64), "e4m3")
    assert torch.scaled == ([(1 << 20, (12,), "<f4"), (2 << 20, (2, 32), "<f4")], "bf16", False)
    with pytest.raises(LaunchError, match="scaled grouped product takes e4m3 with C of bf16"):
        torch_grouped.torch_grouped(driver, replace(p, epilogue=""), {"offsets": 0})


def test_rows_with_a_pitch_are_views(torch: StandInTorch) -> None:
    grouped_mm(GroupedGemm(((4, 32, 64), (8, 32, 64)), "NN", "bf16", ld="72:40:32", jagged="m")).run(NAMED[0])
    [(x, w, _)] = torch.calls
    assert (x.shape, x.strides, w.shape, w.strides) == ((12, 64), (72, 1), (2, 64, 32), (64 * 40, 40, 1))


def test_every_operand_set_has_a_result(torch: StandInTorch) -> None:
    product = grouped_mm(GroupedGemm(((4, 32, 64),), "NN", "bf16", jagged="m"), 7.5)
    kept = [product.run(addresses) for addresses in NAMED]
    assert list(product._results.values()) == kept
    assert product.best(NAMED, Timing())[0] == 7.5
    assert not product._results


def test_what_pytorch_refuses(torch: StandInTorch) -> None:
    one = ((4, 32, 64),)
    for problem, error, match in (
        (GroupedGemm(one, dtype="bf16"), LaunchError, "jagged is ''"),
        (GroupedGemm(one, dtype="f16", jagged="m"), LaunchError, "takes bf16, not f16"),
        (GroupedGemm(one, dtype="bf16", out="f32", jagged="m"), LaunchError, "with C of f32"),
        (GroupedGemm(one, dtype="bf16", epilogue="silu", jagged="m"), LaunchError, "epilogue is 'silu'"),
        (GroupedGemm(((0, 32, 64),), dtype="bf16", jagged="m"), ShapeError, "all items are empty"),
    ):
        with pytest.raises(error, match=match):
            grouped_mm(problem)
    torch.error = "strides should be multiple of 16 bytes\nand more"
    with pytest.raises(LaunchError, match=r"PyTorch does not compute .*: strides should be multiple of 16 bytes$"):
        grouped_mm(GroupedGemm(one, dtype="bf16", jagged="m")).run(NAMED[0])


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is here")
def test_error_without_pytorch_says_what_to_install() -> None:
    assert torch_grouped.available() is None
    with pytest.raises(UnavailableError, match="pip install torch"):
        grouped_mm(GroupedGemm(((4, 32, 64),), dtype="bf16", jagged="m"))


# ---- cuDNN


def test_items_are_1x1_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers of an Inception module, each timed once, in the order of the items."""
    timed: list[Conv] = []

    class StandInCudnn:
        def __init__(self, driver: Any, problem: Conv) -> None:
            self.problem = problem

        def best(self, sets: Any, timing: Timing) -> VendorTimes:
            timed.append(self.problem)
            return VendorTimes(float(self.problem.k))

    monkeypatch.setattr(cudnn_grouped, "Cudnn", StandInCudnn)
    driver: Any = StandInDriver()
    module = GroupedGemm((*INCEPTION["Inception-9"], (0, 16, 16)), dtype="f16", epilogue="relu")
    us, first, _ = cudnn_grouped.CudnnGrouped(driver, module).best(NAMED, Timing())
    assert us == 192 + 128 + 384 + 192 + 48
    assert np.isnan(first)
    assert [c.k for c in timed] == [192, 128, 384, 48]
    assert {(c.n, c.c, c.h, c.w, c.r, c.s, c.dtype, c.epilogue) for c in timed} == {(1, 192, 7, 7, 1, 1, "f16", "relu")}
    assert all(c.flops == 2 * 49 * 192 * c.k for c in timed)
    line = cudnn_grouped.convolution(GroupedGemm(((50, 8, 4),)), 0)
    assert (line.h, line.w) == (1, 50)
    with pytest.raises(ShapeError, match="all items are empty"):
        cudnn_grouped.CudnnGrouped(driver, GroupedGemm(((0, 4, 4), (4, 4, 0))))
