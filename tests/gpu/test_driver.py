"""The CUDA driver and the cuBLASLt baseline on a real GPU."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.source import Source, Step, TensorMap
from ptxgen.cuda_abi import MAP_BYTES
from ptxgen.errors import AssembleError, InputError, LaunchError, ShapeError
from ptxgen.operations.gemm import cublaslt
from ptxgen.operations.gemm.cublaslt import CublasLt
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.runtime.cuda import CudaDriver, CudaKernel
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.open_driver import open_driver
from tests.gpu import TESTED
from tests.threads import join

pytestmark = pytest.mark.gpu

PTX = """\
.version 7.0
.target sm_75
.address_size 64
.extern .shared .align 16 .b8 scratch[];

.visible .entry copy(.param .u64 from, .param .u64 to, .param .u32 count) {
    .reg .u64 %a, %b, %o;
    .reg .u32 %i, %n, %t;
    .reg .pred %p;
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %i, %n, %t;
    ld.param.u32 %n, [count];
    setp.lt.u32 %p, %i, %n;
    ld.param.u64 %a, [from];
    ld.param.u64 %b, [to];
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    add.u64 %b, %b, %o;
    @%p ld.global.u32 %t, [%a];
    @%p st.global.u32 [%b], %t;
    ret;
}

.visible .entry increment(.param .u64 values, .param .u32 count) {
    .reg .u64 %a, %o;
    .reg .u32 %i, %n, %t;
    .reg .pred %p;
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %i, %n, %t;
    ld.param.u32 %n, [count];
    setp.lt.u32 %p, %i, %n;
    ld.param.u64 %a, [values];
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    @%p ld.global.u32 %t, [%a];
    add.u32 %t, %t, 1;
    @%p st.global.u32 [%a], %t;
    ret;
}

.visible .entry far(.param .u64 value, .param .u32 last) {
    .reg .u64 %a;
    .reg .u32 %s, %o, %v;
    mov.u32 %s, scratch;
    ld.param.u32 %o, [last];
    add.u32 %s, %s, %o;
    mov.u32 %v, 7;
    st.shared.u32 [%s], %v;
    ld.volatile.shared.u32 %v, [%s];
    ld.param.u64 %a, [value];
    st.global.u32 [%a], %v;
    ret;
}
"""
SOURCE = Source(PTX, ("copy", "increment", "far"), "sm_75")
COUNT = 1000
COPY = Step("copy", (4, 1, 1), (256, 1, 1), 0, (("u64", "A"), ("u64", "C"), ("u32", COUNT)))
INCREMENT = Step("increment", (4, 1, 1), (256, 1, 1), 0, (("u64", "C"), ("u32", COUNT)))
CLEAR = Step("", (4 * COUNT, 1, 1), arguments=(("u64", "C"),))


@pytest.fixture(scope="module", params=TESTED)
def library(request: pytest.FixtureRequest) -> str:
    """The package that loads and launches."""
    return str(request.param)


@pytest.fixture(scope="module")
def driver(library: str) -> Iterator[CudaDriver]:
    made = CudaDriver(library=library)
    yield made
    gc.collect()  # kernels of failed tests
    made.close()


@pytest.fixture(scope="module")
def kernel(driver: CudaDriver) -> CudaKernel:
    return driver.load(SOURCE)


@pytest.fixture
def memory(driver: CudaDriver) -> Iterator[tuple[int, int]]:
    """Two allocations of COUNT words."""
    a, c = driver.allocate(4 * COUNT), driver.allocate(4 * COUNT)
    yield a, c
    driver.release(a)
    driver.release(c)


def words(driver: CudaDriver, address: int, count: int = COUNT) -> np.ndarray:
    out = np.empty(count, np.uint32)
    driver.download(address, out)
    return out


def child(code: str, library: str) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` in a process of its own, with this file's names imported; its driver uses ``library``."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, *(p for p in sys.path if p)])
    code = textwrap.dedent(code).replace("CudaDriver()", f"CudaDriver(library={library!r})")
    text = f"from test_driver import *\n{code}"
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# ---- the device and its memory ----


def test_device_describes_itself(driver: CudaDriver) -> None:
    device = driver.device
    assert device.sm >= 75
    assert device.sms > 0
    assert 100 < device.clock < 10_000
    assert device.l2 >= 1 << 20
    assert 48 << 10 <= device.shared_block <= device.shared_sm
    assert (driver.name, driver.clock) == ("cuda", "hardware")
    assert driver.version.startswith("CUDA ")
    assert driver.assembler


def test_auto_opens_the_gpu(driver: CudaDriver) -> None:
    other = open_driver("auto")
    assert other.name == "cuda"
    other.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
def test_upload_and_download_round_trip(driver: CudaDriver, dtype: type) -> None:
    sent: np.ndarray = np.arange(77).reshape(7, 11).astype(dtype)
    address = driver.allocate(sent.nbytes)
    driver.upload(address, sent)
    back = np.zeros_like(sent)
    driver.download(address, back)
    driver.release(address)
    assert np.array_equal(sent, back)


def test_upload_of_a_type_without_buffer_protocol(driver: CudaDriver) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    sent = np.arange(8).astype(ml_dtypes.bfloat16)
    address = driver.allocate(sent.nbytes)
    driver.upload(address, sent)
    back = np.zeros_like(sent)
    driver.download(address, back)
    driver.release(address)
    assert np.array_equal(sent.view(np.uint16), back.view(np.uint16))


def test_source_of_an_upload_may_be_overwritten_at_once(driver: CudaDriver) -> None:
    sent = np.full(1 << 22, 5, np.uint32)
    address = driver.allocate(sent.nbytes)
    driver.upload(address, sent)
    sent[:] = 9
    assert np.all(words(driver, address, 1 << 22) == 5)
    driver.release(address)


def test_fill_sets_bytes_at_any_address_and_size(driver: CudaDriver, memory: tuple[int, int]) -> None:
    a, _ = memory
    driver.fill(a, 4 * COUNT)
    driver.fill(a + 4, 8, 0xAB)
    driver.fill(a + 101, 3, 0xFF)
    driver.fill(a + 200, 0, 0xFF)
    expected = np.zeros(4 * COUNT, np.uint8)
    expected[4:12], expected[101:104] = 0xAB, 0xFF
    assert np.array_equal(words(driver, a).view(np.uint8), expected)


def test_only_contiguous_arrays_are_copied(driver: CudaDriver, memory: tuple[int, int]) -> None:
    a, _ = memory
    with pytest.raises(ShapeError, match="C-contiguous"):
        driver.upload(a, np.zeros((4, 4), np.float32).T[1:])
    with pytest.raises(ShapeError, match="C-contiguous"):
        driver.download(a, np.zeros(8, np.float32)[::2])
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        driver.download(a, frozen)


def test_out_of_memory_and_double_release_are_errors(driver: CudaDriver) -> None:
    with pytest.raises(LaunchError, match="allocating"):
        driver.allocate(1 << 50)
    address = driver.allocate(4)
    driver.release(address)
    with pytest.raises(InputError, match="address"):
        driver.release(address)


# ---- kernels ----


def test_launches_copies_and_fills_keep_their_order(
    driver: CudaDriver, kernel: CudaKernel, memory: tuple[int, int]
) -> None:
    a, c = memory
    sent = np.arange(COUNT, dtype=np.uint32)
    values: dict[str, int | float] = {"A": a, "C": c}
    driver.upload(a, sent)
    driver.fill(c, 4 * COUNT, 0xFF)
    driver.launch(kernel, COPY, COPY.pack(values))
    for _ in range(10):
        driver.launch(kernel, INCREMENT, INCREMENT.pack(values))
    assert np.array_equal(words(driver, c), sent + 10)
    driver.launch(kernel, CLEAR, CLEAR.pack(values))
    driver.launch(kernel, INCREMENT, INCREMENT.pack(values))
    driver.synchronize()
    assert np.all(words(driver, c) == 1)


def test_kernel_reports_registers(driver: CudaDriver) -> None:
    made = driver.load(SOURCE)
    assert 0 < made.registers <= 255
    assert made.spills == 0


def test_driver_assembles_without_ptxas(
    driver: CudaDriver, memory: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, c = memory
    monkeypatch.setattr(driver, "_ptxas", None)
    made = driver.load(SOURCE)
    assert 0 < made.registers <= 255
    driver.fill(c, 4 * COUNT)
    driver.launch(made, INCREMENT, INCREMENT.pack({"C": c}))
    assert np.all(words(driver, c) == 1)
    with pytest.raises(AssembleError) as caught:
        driver.load(Source(PTX.replace("mul.wide.u32", "mul.wild.u32"), SOURCE.entries, "sm_75"))
    assert "mul" in caught.value.log or "wild" in caught.value.log


def test_dynamic_shared_memory_beyond_the_default(driver: CudaDriver, memory: tuple[int, int]) -> None:
    _, c = memory
    size = driver.device.shared_block
    made = driver.load(Source(PTX, SOURCE.entries, "sm_75", shared=size))
    step = Step("far", (1, 1, 1), (1, 1, 1), size, (("u64", "C"), ("u32", size - 4)))
    driver.launch(made, step, step.pack({"C": c}))
    assert words(driver, c)[0] == 7
    with pytest.raises(AssembleError):
        driver.load(Source(PTX, SOURCE.entries, "sm_75", shared=size + 4096))


def test_bad_text_and_missing_entries_are_assemble_errors(driver: CudaDriver, kernel: CudaKernel) -> None:
    with pytest.raises(AssembleError) as caught:
        driver.load(Source(PTX.replace("mul.wide.u32", "mul.wild.u32"), SOURCE.entries, "sm_75"))
    assert "wild" in caught.value.log
    with pytest.raises(AssembleError, match="rejected"):
        driver.load(Source(PTX, ("missing",), "sm_75"))
    driver.synchronize()


def test_rejected_launch_is_an_error(driver: CudaDriver, kernel: CudaKernel, memory: tuple[int, int]) -> None:
    _, c = memory
    bad = Step("increment", (1, 1, 1), (2048, 1, 1), 0, INCREMENT.arguments)
    with pytest.raises(LaunchError, match="increment"):
        driver.launch(kernel, bad, bad.pack({"C": c}))
    driver.fill(c, 4 * COUNT)
    driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))
    assert np.all(words(driver, c) == 1)


def test_any_thread_unloads_kernels(driver: CudaDriver, recwarn: pytest.WarningsRecorder) -> None:
    held = [driver.load(SOURCE)]
    worker = threading.Thread(target=held.clear, daemon=True)
    worker.start()
    join(worker)
    gc.collect()
    driver.synchronize()
    assert not [w for w in recwarn if "could not be cleaned up" in str(w.message)]


def test_a_thread_without_a_context_encodes_a_tensor_map(driver: CudaDriver) -> None:
    """A thread of autograd has no context before its first kernel."""
    address = driver.allocate(1 << 16)
    maps: list[Any] = []
    for gap in (0, 8):  # the second has a limit of TMA: pitches are multiples of 16 bytes
        description = TensorMap("A", "f16", (64, 64), (128 + gap,), (64, 32), 128)

        def work(description: TensorMap = description) -> None:
            try:
                maps.append(len(driver.tensor_map(description, address)))
            except Exception as e:
                maps.append(str(e))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        join(thread)
    driver.release(address)
    assert maps[0] == MAP_BYTES
    assert "invalid argument" in maps[1]


def test_threads_share_a_driver(driver: CudaDriver, kernel: CudaKernel) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            c = driver.allocate(4 * COUNT)
            driver.fill(c, 4 * COUNT)
            for _ in range(50):
                driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))
            assert np.all(words(driver, c) == 50)
            driver.release(c)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for t in threads:
        t.start()
    join(*threads)
    assert not failures


# ---- streams of other libraries ----


def test_launches_on_the_legacy_stream(driver: CudaDriver, kernel: CudaKernel, memory: tuple[int, int]) -> None:
    _, c = memory
    driver.fill(c, 4 * COUNT, 1)
    driver.launch(kernel, CLEAR, CLEAR.pack({"C": c}), 1)
    driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}), 1)
    assert np.all(words(driver, c) == 1)


def test_launches_on_torch_streams(driver: CudaDriver, kernel: CudaKernel) -> None:
    torch = pytest.importorskip("torch")
    a = torch.arange(COUNT, dtype=torch.int32, device="cuda")
    c = torch.zeros_like(a)
    torch.cuda.synchronize()
    values = {"A": a.data_ptr(), "C": c.data_ptr()}
    side = torch.cuda.Stream()
    for stream in (torch.cuda.current_stream(), side):
        with torch.cuda.stream(stream):
            handle = stream.cuda_stream or 1
            a.add_(5)
            driver.launch(kernel, COPY, COPY.pack(values), handle)
            driver.launch(kernel, INCREMENT, INCREMENT.pack(values), handle)
            c.mul_(3)
            stream.synchronize()
            assert torch.equal(c, (a + 1) * 3)
            driver.launch(kernel, CLEAR, CLEAR.pack(values), handle)
            stream.synchronize()
            assert not c.any()


def test_torch_captures_launches(driver: CudaDriver) -> None:
    torch = pytest.importorskip("torch")
    fresh = driver.load(SOURCE)  # its functions are looked up while torch captures
    c = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    step = INCREMENT.pack({"C": c.data_ptr()})
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        for _ in range(3):
            driver.launch(fresh, INCREMENT, step, torch.cuda.current_stream().cuda_stream)
    assert not c.any()
    recorded.replay()
    recorded.replay()
    torch.cuda.synchronize()
    assert torch.all(c == 6)


def test_threads_share_a_kernel_on_their_own_streams(driver: CudaDriver, kernel: CudaKernel) -> None:
    torch = pytest.importorskip("torch")
    outs = [torch.zeros(COUNT, dtype=torch.int32, device="cuda") for _ in range(4)]
    torch.cuda.synchronize()
    failures: list[BaseException] = []

    def work(c: Any) -> None:
        try:
            stream = torch.cuda.Stream()
            for _ in range(200):
                driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c.data_ptr()}), stream.cuda_stream)
            stream.synchronize()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(c,), daemon=True) for c in outs]
    for t in threads:
        t.start()
    join(*threads)
    assert not failures
    assert all(torch.all(c == 200) for c in outs)


@pytest.mark.usefixtures("driver")
def test_torch_works_after_close(library: str) -> None:
    pytest.importorskip("torch")
    done = child(
        """
        import torch
        t = torch.ones(8, device="cuda")
        d = CudaDriver()
        k = d.load(SOURCE)
        d.close()
        assert float((t + 1).sum()) == 16
        print("done")
    """,
        library,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


# ---- errors that end a process ----


@pytest.mark.usefixtures("driver")
def test_bad_address_is_a_launch_error_from_then_on(library: str) -> None:
    done = child(
        """
        d = CudaDriver()
        k = d.load(SOURCE)
        a = d.allocate(16)
        d.launch(k, INCREMENT, INCREMENT.pack({"C": 1 << 20}))
        def fails(act):
            try:
                act()
            except LaunchError as e:
                return print("LaunchError", e) or True
            return False
        assert fails(d.synchronize)
        assert fails(lambda: d.allocate(16))
        assert fails(lambda: d.load(SOURCE))
        assert fails(lambda: d.download(a, np.zeros(4, np.uint32)))
        assert fails(lambda: d.time([lambda: d.launch(k, INCREMENT, INCREMENT.pack({"C": a}))], Timing(1, 0.1)))
        assert fails(lambda: (d.launch(k, INCREMENT, INCREMENT.pack({"C": a})), d.synchronize()))
        print("done")
    """,
        library,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["done"]), done.stderr


@pytest.mark.usefixtures("driver")
def test_thread_that_opened_a_driver_may_end(library: str) -> None:
    done = child(
        """
        made = []
        def work():
            d = CudaDriver()
            c = d.allocate(4 * COUNT)
            d.fill(c, 4 * COUNT)
            k = d.load(SOURCE)
            d.launch(k, INCREMENT, INCREMENT.pack({"C": c}))
            made.extend([d, k, c])
        t = threading.Thread(target=work)
        t.start()
        t.join()
        d, k, c = made
        d.launch(k, INCREMENT, INCREMENT.pack({"C": c}))
        assert np.all(words(d, c) == 2)
        d.release(c)
        print("done")
    """,
        library,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
    assert "PyCUDA" not in done.stderr


# ---- time ----


def test_times_are_plausible(driver: CudaDriver, kernel: CudaKernel) -> None:
    count = 1 << 20
    a, c = driver.allocate(4 * count), driver.allocate(4 * count)
    driver.upload(a, np.arange(count, dtype=np.uint32))
    driver.fill(c, 4 * count)
    step = Step("copy", (count // 256, 1, 1), (256, 1, 1), 0, (("u64", "A"), ("u64", "C"), ("u32", count)))
    there, back = step.pack({"A": a, "C": c}), step.pack({"A": c, "C": a})
    launches = [lambda: driver.launch(kernel, step, there), lambda: driver.launch(kernel, step, back)]
    times = driver.time(launches, Timing(samples=3, target_ms=1.0))
    assert len(times) == 3
    assert all(0.1 < t < 1e5 for t in times)
    assert np.array_equal(words(driver, c, count), np.arange(count))
    for address in (a, c):
        driver.release(address)


def test_driver_works_after_a_failed_timing(driver: CudaDriver, kernel: CudaKernel, memory: tuple[int, int]) -> None:
    _, c = memory
    calls: list[int] = []

    def launch() -> None:
        calls.append(1)
        if len(calls) > 6:  # warm-up and estimate are over: a graph is being recorded
            raise LaunchError("on purpose")
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))

    with pytest.raises(LaunchError, match="on purpose"):
        driver.time([launch], Timing(1, 1.0))
    driver.fill(c, 4 * COUNT)
    driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))
    assert np.all(words(driver, c) == 1)
    with pytest.raises(InputError, match="empty"):
        driver.time([], Timing())


# ---- cuBLASLt ----


def operand(rows: int, columns: int, ld: int, dtype: np.dtype, seed: int) -> np.ndarray:
    """A stored matrix of ``ld`` columns; NaN beyond ``columns`` exposes reads there."""
    out = np.full((rows, ld), np.nan, dtype)
    out[:, :columns] = np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)
    return out


def up(driver: CudaDriver, array: np.ndarray) -> int:
    address = driver.allocate(array.nbytes)
    driver.upload(address, array)
    return address


def needs_cublaslt() -> None:
    if cublaslt.available() is None:
        pytest.skip('no cuBLASLt; pip install "ptxgen[baseline]"')


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(("dtype", "compute"), [("f32", "f32"), ("f64", "f64"), ("f16", "f32"), ("f16", "f16")])
@pytest.mark.parametrize("odd", [True, False])
def test_cublaslt_is_right(driver: CudaDriver, layout: str, dtype: str, compute: str, odd: bool) -> None:
    needs_cublaslt()
    m, n, k = (37, 53, 29) if odd else (64, 48, 32)
    packed = Gemm(m, n, k, layout, dtype)
    aligned = packed.element.bytes if odd else 16
    problem = replace(
        packed,
        compute=compute,
        lda=packed.lda + 2 * odd,
        ldb=packed.ldb + 6 * odd,
        ldc=packed.ldc + 4 * odd,
        aligned_a=aligned,
        aligned_b=aligned,
        aligned_c=aligned,
    )
    element = problem.element.numpy
    a = operand(m if layout[0] == "N" else k, problem.columns_a, problem.lda, element, 1)
    b = operand(k if layout[1] == "N" else n, problem.columns_b, problem.ldb, element, 2)
    c = np.full((m, problem.ldc), np.nan, element)
    wide_a, wide_b = a[:, : problem.columns_a].astype(float), b[:, : problem.columns_b].astype(float)
    wide_a, wide_b = wide_a if layout[0] == "N" else wide_a.T, wide_b if layout[1] == "N" else wide_b.T
    bound = 8 * np.sqrt(k) * problem.accumulator.roundoff * (np.abs(wide_a) @ np.abs(wide_b))
    bound += 2 * problem.element.roundoff * (np.abs(wide_a) @ np.abs(wide_b))  # slices may be added in the type of C
    addresses = [up(driver, x) for x in (a, b, c)]
    ran = 0
    with CublasLt(driver, problem) as lt:
        assert 1 <= len(lt.algorithms) <= 256
        for i in range(min(len(lt.algorithms), 8)):
            driver.fill(addresses[2], c.nbytes, 0xFF)
            try:
                lt.run(i, dict(zip("ABC", addresses, strict=True)))
            except LaunchError:
                continue
            out = np.empty_like(c)
            driver.download(addresses[2], out)
            assert np.all(np.abs(out[:, :n].astype(float) - wide_a @ wide_b) <= bound), f"algorithm {i}"
            assert np.all(np.isnan(out[:, n:].astype(float)))
            ran += 1
    for address in addresses:
        driver.release(address)
    assert ran


def test_cublaslt_returns_the_best(driver: CudaDriver) -> None:
    needs_cublaslt()
    problem = Gemm(256, 128, 192, "NT")
    sets = []
    for seed in range(3):
        a, b = operand(256, 192, 192, np.dtype(np.float32), seed), operand(128, 192, 192, np.dtype(np.float32), seed)
        sets.append({"A": up(driver, a), "B": up(driver, b), "C": driver.allocate(4 * 256 * 128)})
    with CublasLt(driver, problem) as lt:
        best, first, _ = lt.best(sets, Timing(samples=3, target_ms=0.5))
        assert 0.5 < best <= first < 1e6
        assert 0 <= lt.failed < len(lt.algorithms)
    held = len(driver._memory)
    CublasLt(driver, problem).run(0, sets[0])
    gc.collect()
    assert len(driver._memory) == held
    for addresses in sets:
        for address in addresses.values():
            driver.release(address)


def test_cublaslt_refuses_unsupported_problems(driver: CudaDriver) -> None:
    needs_cublaslt()
    assert (cublaslt.available() or "").startswith("cuBLASLt 1")
    with pytest.raises(ShapeError, match="extent"):
        CublasLt(driver, Gemm(0, 4, 4))


# ---- the price of a launch ----


def test_launch_overhead_is_microseconds(driver: CudaDriver, kernel: CudaKernel, memory: tuple[int, int]) -> None:
    """Not a speed test: it prints the host time of a launch, and detects a tenfold regression."""
    import time

    _, c = memory
    step = Step("increment", (1, 1, 1), (32, 1, 1), 0, INCREMENT.arguments)
    packed = struct.pack("@QI", c, 1)
    streams = {"own": 0, "legacy": 1}
    try:
        import torch

        side = torch.cuda.Stream()
        streams["torch"] = side.cuda_stream
    except ImportError:
        pass
    for name, handle in streams.items():
        best = float("inf")
        for _ in range(10):
            driver.synchronize()
            begin = time.perf_counter()
            for _ in range(200):
                driver.launch(kernel, step, packed, handle)
            best = min(best, (time.perf_counter() - begin) / 200)
        print(f"{name}: {best * 1e6:.2f} us a launch")
        assert best < 100e-6
