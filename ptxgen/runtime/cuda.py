"""The driver for NVIDIA GPUs: PyCUDA loads and launches kernels, or cuda-bindings where PyCUDA is not installed.

It uses the primary context, as PyTorch, CuPy and the CUDA runtime do, so it can use their memory and streams. The
context is on the stack of the thread only inside ``context()``: PyCUDA aborts the process if a thread ends with a
context on its stack.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np

from ptxgen.codegen.source import Source, Step, TensorMap
from ptxgen.errors import AssembleError, DeviceError, InputError, LaunchError, ShapeError, UnavailableError
from ptxgen.install_advice import GPU_ACCESS, build_pycuda
from ptxgen.problem.device import Device
from ptxgen.runtime import cuda_fork, cuda_graph, cuda_properties
from ptxgen.runtime import cuda_launch as launches
from ptxgen.runtime.assemble import assemble, find_ptxas
from ptxgen.runtime.assemble import version as ptxas_version
from ptxgen.runtime.driver import Kernel, NoLock, Timing
from ptxgen.runtime.sensors import GpuSensors, Sensors
from ptxgen.settings import GPU_DRIVER, LIBRARIES, settings

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

#: bytes of shared memory above which a kernel must set MAX_DYNAMIC_SHARED_SIZE_BYTES
STATIC_SHARED_LIMIT = 48 << 10
MAX_GRAPH_NODES = 400  #: nodes of a timing graph; more nodes take time to capture without adding precision
READ_US = 5000.0  #: microseconds between two readings of sensors
MAX_REPLAYS = 100  #: graph replays in one sample
SLOW_US, SLOW_SAMPLES = 1e5, 3  #: launches that take more microseconds have at most so many samples
LAUNCH_GAPS_US = 200  #: microseconds above which gaps between launches are a small part of a time without a graph
NON_BLOCKING = 1
ALIGNMENT = 256  #: bytes, of the addresses of allocations and of their parts


class CudaKernel:
    """A loaded module, which is unloaded with its last reference. ``registers`` (per thread) and ``spills`` (bytes) are
    those of the first entry; ``functions``: function objects of the library, by entry; ``stream_handles``: handles for
    launches on foreign streams, by entry, created on demand."""

    __slots__ = ("__weakref__", "_driver", "functions", "registers", "source", "spills", "stream_handles")

    def __init__(
        self, driver: CudaDriver, source: Source, functions: dict[str, Any], registers: int, spills: int
    ) -> None:
        self._driver = driver
        self.source = source
        self.functions = functions
        self.registers = registers
        self.spills = spills
        self.stream_handles: dict[str, launches.KernelHandle] = {}

    def __del__(self) -> None:
        # PyCUDA itself unloads only in the thread that created the driver, or with the context on the stack.
        self._driver._drop(self.functions)


class CudaDriver:
    """The driver of the GPU with an index. UnavailableError: cuda-bindings, the library or any GPU is missing.
    DeviceError: there is no GPU with this index.

    ``library``: one of ``LIBRARIES``; default: the one that PTXGEN_DRIVER names, else PyCUDA if it can be imported.
    ``stream``: the raw handle of the driver's own stream, for launches that name no other. This stream synchronises
    with the legacy default stream, as CUDA's blocking streams do. Thread-safe.
    """

    name = "cuda"
    clock = "hardware"

    def __init__(self, index: int = 0, library: str = "") -> None:
        cuda_graph.load()
        self.library, self._cuda = _library(library)
        cuda = self._cuda
        self._error: type[Exception] = cuda.Error
        count = _gpu_count(cuda)
        if not 0 <= index < count:
            raise DeviceError(f"device is {index}; this machine has {count}, counted from 0")
        gpu = cuda.Device(index)
        self._gpu = gpu
        self.index, self.selector, self._several = index, f"{self.library}:{index}", count > 1
        self.device: Device = cuda_properties.device(cuda, gpu)
        major, rest = divmod(cuda.get_driver_version(), 1000)
        self.version = f"CUDA {major}.{rest // 10}"
        self._ptxas = find_ptxas()
        self.assembler = f"ptxas {ptxas_version(self._ptxas)}" if self._ptxas else self.version
        self.lock = NoLock()
        self._memory: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._closed = False
        try:
            self._context = gpu.retain_primary_context()
        except self._error as e:
            raise UnavailableError(f"the GPU {self.device.name} cannot be used: {e}") from e
        atexit.register(self.close)
        cuda_fork.watch(self)
        if not cuda_graph.current_context():  # as the CUDA runtime does
            cuda_graph.set_context(self._context.handle)
        with self.context("making streams"):
            self._stream = cuda.Stream()
            self._capture_stream = cuda.Stream(NON_BLOCKING)
        self.stream: int = self._stream.handle

    # ---- memory ----

    def allocate(self, size: int) -> int:
        """The address of ``size`` new bytes, a multiple of 256. LaunchError: out of memory."""
        with self.context(f"allocating {size} bytes"):
            block = self._cuda.mem_alloc(max(size, 1))
        address = int(block)
        self._memory[address] = block
        return address

    def allocate_parts(self, sizes: Sequence[int]) -> list[int]:
        """The addresses of several arrays in one allocation, multiples of 256."""
        places = [0, *accumulate(-(-max(n, 1) // ALIGNMENT) * ALIGNMENT for n in sizes)]
        first = self.allocate(places[-1])
        return [first + n for n in places[:-1]]

    def release(self, address: int) -> None:
        """Frees memory from ``allocate``, after the work that uses it."""
        block = self._memory.pop(address, None)
        if block is None:
            raise InputError(f"address is {address:#x}; it must be an address from allocate that is not released")
        with self.context("freeing memory"):
            block.free()

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copies ``array`` to the device. The copy is complete when the call returns."""
        data = _as_bytes(array, "upload")
        if data.size:
            with self.context("uploading"):
                self._cuda.memcpy_htod_async(address, data, self._stream)
                self._stream.synchronize()

    def download(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copies from the device into ``array``, after all work on the driver's stream."""
        data = _as_bytes(array, "download")
        if not data.flags.writeable:
            raise InputError("download: the array is read-only")
        if data.size:
            with self.context("downloading"):
                self._cuda.memcpy_dtoh_async(data, address, self._stream)
                self._stream.synchronize()

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Sets ``size`` bytes to ``byte``, after all work on the driver's stream."""
        with self.context("filling"):
            self._fill(address, size, byte)
            self._stream.synchronize()

    def _fill(self, address: int, size: int, byte: int = 0) -> None:
        if (address | size) % 4 and size:
            self._cuda.memset_d8_async(address, byte, size, self._stream)
        elif size:
            self._cuda.memset_d32_async(address, byte * 0x01010101, size // 4, self._stream)

    def host_memory(self, size: int) -> np.ndarray[Any, Any]:
        """An array of page-locked bytes, which are freed with the last array that views them."""
        count = max(size, 1)
        with self.context("allocating host memory"):
            held = {"memory": self._cuda.pagelocked_zeros(count, np.uint8)}
        # PyCUDA itself frees in the mode of the thread, and so would end a stream capture
        block: Any = (ctypes.c_ubyte * count).from_address(held["memory"].ctypes.data)
        weakref.finalize(block, self._drop, held).atexit = False
        memory: np.ndarray[Any, Any] = np.frombuffer(block, np.uint8)
        return memory[:size]

    def queue_upload(self, address: int, array: np.ndarray[Any, Any], stream: int = 0) -> None:
        """Queues a copy of ``array``. The driver has read pageable memory when the call returns, and reads page-locked
        memory when the stream runs."""
        data = _as_bytes(array, "queue_upload")
        if data.size:
            with self.context("uploading"):
                cuda_graph.upload(address, data, stream or self.stream)

    # ---- kernels ----

    def load(self, source: Source) -> CudaKernel:
        """Assembles and loads a source: with ptxas, or in the CUDA driver if there is no ptxas.

        AssembleError: ptxas or the driver rejected the text, or it exceeds a limit of the device. LaunchError: the
        context is lost.
        """
        entry = source.entries[0]
        registers = spills = -1
        if self._ptxas:
            made = assemble(source, _target(source, self.device))
            code, registers, spills = made.cubin, made.registers.get(entry, -1), made.spills.get(entry, -1)
        else:
            code = source.text.encode() + b"\0"
        facts = self._cuda.function_attribute
        with self.context("loading a kernel"):
            try:
                module = self._cuda.module_from_buffer(code)
                functions = {name: module.get_function(name) for name in source.entries}
                for function in functions.values():
                    if source.shared + function.get_attribute(facts.SHARED_SIZE_BYTES) > STATIC_SHARED_LIMIT:
                        function.set_attribute(facts.MAX_DYNAMIC_SHARED_SIZE_BYTES, source.shared)
                if registers < 0:
                    registers = functions[entry].get_attribute(facts.NUM_REGS)
                    spills = functions[entry].get_attribute(facts.LOCAL_SIZE_BYTES)
            except self._error as e:
                self._cuda.Context.synchronize()  # raises LaunchError if an earlier kernel destroyed the context
                raise AssembleError(f"the driver rejected the kernel: {e}", str(e)) from e
        for name in source.pdl_entries:
            functions[name] = launches.DependentFunction(self._kernel_handle, functions[name])
        return CudaKernel(self, source, functions, registers, spills)

    def _drop(self, objects: dict[str, Any]) -> None:
        """Clears ``objects``, whose destructors call the driver."""
        if self._closed:
            objects.clear()
            return
        try:
            with self.context("freeing"):
                objects.clear()
        except LaunchError:
            pass  # a destroyed context holds neither modules nor memory

    def tensor_map(self, description: TensorMap, address: int) -> bytes:
        """The encoded tensor map of ``description`` at ``address``; recent ones are cached. DriverError: it exceeds a
        limit of TMA."""
        try:
            encoded: bytes = cuda_graph.tensor_map(description, address)
        except cuda_graph.DriverError:  # also without a context, as in a thread of autograd that has queued no kernel
            if cuda_graph.current_context():
                raise
            cuda_graph.set_context(self._context.handle)  # as the CUDA runtime does
            encoded = cuda_graph.tensor_map(description, address)
        return encoded

    def launch(self, kernel: Kernel, step: Step, parameters: bytes, stream: int = 0) -> None:
        """Queues one step on ``stream``, a raw handle; 0: the driver's own stream. Another GPU may be current.

        For the default stream of PyTorch and CuPy, whose handle is 0 there, pass 1 (CU_STREAM_LEGACY). LaunchError: the
        driver rejected the launch, or an earlier launch destroyed the context.
        """
        # The library's own call has the least overhead, so it is tried first. But the handles of default streams, 1 and
        # 2, mean streams of the current GPU.
        if self._several and cuda_graph.current_context() != self._context.handle:
            self._launch_in_context(kernel, step, parameters, stream)
            return
        entry = step.entry
        try:
            if stream or not entry:
                handle = kernel.stream_handles.get(entry)  # type: ignore[attr-defined]
                if handle is not None and handle.size == len(parameters):
                    handle.launch(step.grid, step.block, parameters, step.shared, stream)
                else:
                    self._queue(kernel, step, parameters, stream)
            else:
                kernel.functions[entry]._launch_kernel(  # type: ignore[attr-defined]
                    step.grid, step.block, parameters, step.shared, self._stream
                )
        except (self._error, cuda_graph.DriverError) as e:
            self._retry_in_context(e, kernel, step, parameters, stream)

    def _launch_in_context(self, kernel: Kernel, step: Step, parameters: bytes, stream: int) -> None:
        """Queues a step in a thread in which another context is current, or none. Another context stays current."""
        before = cuda_graph.current_context()
        cuda_graph.set_context(self._context.handle)
        try:
            self._queue(kernel, step, parameters, stream)
        except (self._error, cuda_graph.DriverError) as e:
            raise LaunchError(f"{step.entry or 'memset'}: {e}") from e
        finally:
            if before:
                cuda_graph.set_context(before)

    def _queue(self, kernel: Kernel, step: Step, parameters: bytes, stream: int) -> None:
        assert isinstance(kernel, CudaKernel)
        if not step.entry:
            address = int.from_bytes(parameters[:8], sys.byteorder)
            if stream:
                cuda_graph.fill(address, step.grid[0], stream)
            else:
                self._fill(address, step.grid[0])
        elif not stream:
            function = kernel.functions[step.entry]
            function._launch_kernel(step.grid, step.block, parameters, step.shared, self._stream)
        else:
            stream_handles = kernel.stream_handles.get(step.entry)
            if stream_handles is None or stream_handles.size != len(parameters):
                stream_handles = self._stream_handle(kernel, step, parameters)
            stream_handles.launch(step.grid, step.block, parameters, step.shared, stream)

    def _stream_handle(self, kernel: CudaKernel, step: Step, parameters: bytes) -> launches.KernelHandle:
        """The handle of a step's entry, for launches on foreign streams."""
        function = kernel.functions[step.entry]
        dependent = step.entry in kernel.source.pdl_entries
        plain = function.plain if dependent else function
        handle = self._kernel_handle(plain, step.grid, step.block, parameters, step.shared, dependent)
        kernel.stream_handles[step.entry] = handle
        return handle

    def _kernel_handle(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: bytes,
        shared: int,
        dependent: bool,
    ) -> launches.KernelHandle:
        """The CUDA driver's handle of ``function``, an object of the library. PyCUDA does not expose the handle: it is
        read from a captured launch."""
        if handle := getattr(function, "handle", 0):
            return launches.KernelHandle(handle, len(parameters), dependent)
        with self._lock, self.context("querying a kernel handle"):
            capture_stream = self._capture_stream
            handle = cuda_graph.captured_function(
                capture_stream.handle, lambda: function._launch_kernel(grid, block, parameters, shared, capture_stream)
            )
        return launches.KernelHandle(handle, len(parameters), dependent)

    def _retry_in_context(self, error: Exception, kernel: Kernel, step: Step, parameters: bytes, stream: int) -> None:
        """Queues a step again if it failed because the thread had no context or a different one."""
        try:
            current = cuda_graph.current_context()
        except cuda_graph.DriverError:
            current = self._context.handle
        if current == self._context.handle:
            raise LaunchError(f"{step.entry or 'memset'}: {error}") from error
        if not current:
            cuda_graph.set_context(self._context.handle)
        with self.context(step.entry or "memset"):
            self._queue(kernel, step, parameters, stream)

    def order(self, before: int, after: int) -> None:
        """Work that is queued on the stream ``after`` from now on begins after the work that ``before`` now holds."""
        with self.context("ordering streams"):
            cuda_graph.order(before, after)

    def wait(self, stream: int) -> None:
        """Waits for the work on ``stream``. LaunchError: part of it failed, or it is being captured."""
        with self.context("waiting for a stream"):
            cuda_graph.call(cuda_graph.load().cuStreamSynchronize, stream)

    def synchronize(self) -> None:
        """Waits for all work in the primary context. LaunchError: part of it failed."""
        with self.context("waiting for the GPU"):
            self._cuda.Context.synchronize()

    def capturing(self, stream: int) -> bool:
        """True if ``stream``, a raw handle, is being captured into a graph."""
        try:
            return cuda_graph.capturing(stream)
        except cuda_graph.DriverError:  # the thread has no context, or a different one
            with self.context("querying the capture status"):
                return cuda_graph.capturing(stream)

    def capture(self, stream: int) -> cuda_graph.Capture:
        """The capture in progress on ``stream``. LaunchError: an earlier error invalidated it."""
        with self.context("querying the capture"):
            return cuda_graph.Capture(stream)

    # ---- time ----

    def now_us(self) -> float:
        """The microseconds by the clock of the host."""
        return 1e6 * time.perf_counter()

    def elapsed(self, launch: Callable[[], object]) -> float:
        """The microseconds of one call on the driver's stream, measured with events, idle gaps included."""
        with self.context("timing"):
            return self._elapsed(launch)

    def _elapsed(self, launch: Callable[[], object]) -> float:
        begin, end = self._cuda.Event(), self._cuda.Event()
        begin.record(self._stream)
        launch()
        end.record(self._stream)
        end.synchronize()
        return float(end.time_since(begin)) * 1e3

    def _repeated(self, launch: Callable[[], object], limit: float) -> float:
        """The microseconds of one call. If a first measurement exceeds ``limit``, the call is measured again and the
        shorter time counts, because the host may have paused."""
        us = self._elapsed(launch)
        return us if us <= limit else min(us, self._elapsed(launch))

    def time(self, launches: Sequence[Callable[[], None]], timing: Timing) -> list[float]:
        """Microseconds per call, ``timing.samples`` values, at most ``SLOW_SAMPLES`` of calls slower than ``SLOW_US``;
        ``launches`` queue on the driver's stream and are called in rotation.

        The launches are captured into a CUDA graph once, so host overhead is excluded. ``lock`` is held while kernels
        run, not during the capture.
        """
        if not launches:
            raise InputError("launches is empty; it must have at least one launch")
        period = len(launches)
        with self.context("timing"):

            def both() -> None:
                launches[0]()
                launches[-1]()

            limit = max(timing.limit_us, LAUNCH_GAPS_US)
            with self.lock:
                for launch in launches[:2]:
                    launch()
                self._stream.synchronize()
                once = max(self._repeated(both, 2 * limit) / 2, 1.0)
            if once > limit:
                return [once]
            wanted = timing.target_ms * 1e3
            count = period * max(1, round(min(wanted / once, MAX_GRAPH_NODES) / period))

            def record() -> None:
                for i in range(count):
                    launches[i % period]()

            with cuda_graph.Graph(self.stream, record) as replay, self.lock:
                first = max(self._repeated(replay.launch, timing.limit_us * count), 1e-3)
                if first / count > timing.limit_us:
                    return [first / count]
                repeat = min(max(1, round(wanted / first)), MAX_REPLAYS)

                def sample() -> None:
                    for _ in range(repeat):
                        replay.launch()

                samples = timing.samples if once <= SLOW_US else min(timing.samples, SLOW_SAMPLES)
                return [self._elapsed(sample) / (repeat * count) for _ in range(samples)]

    def sensors(self) -> Sensors:
        """The sensors of the GPU. UnavailableError: nvidia-ml-py is missing, or the GPU has none."""
        return GpuSensors(self._gpu.pci_bus_id())

    def sustain(self, launches: Sequence[Callable[[], None]], seconds: float, read: Callable[[], None]) -> float:
        """Repeats a CUDA graph of ``launches`` for about ``seconds``; returns microseconds per launch. ``read`` is
        called after each run of replays, while the device executes the next run, so the device is never idle. A run
        takes ``READ_US``, or twice as long as a call of ``read``. ``lock`` is held meanwhile."""
        [once] = self.time(launches, Timing(samples=1, target_ms=READ_US / 1e3))
        began = time.monotonic()
        read()
        each = max(READ_US, 2e6 * (time.monotonic() - began))
        count = max(1, min(round(each / once), MAX_GRAPH_NODES))
        repeat = max(1, round(each / (once * count)))

        def record() -> None:
            for i in range(count):
                launches[i % len(launches)]()

        with self.context("observing"), cuda_graph.Graph(self.stream, record) as replay, self.lock:
            first, until = self._cuda.Event(), time.monotonic() + seconds
            first.record(self._stream)
            ends = [self._queued(replay, repeat)]
            while time.monotonic() < until:
                ends.append(self._queued(replay, repeat))
                ends[-2].synchronize()
                read()
            ends[-1].synchronize()
            return float(ends[-1].time_since(first)) * 1e3 / (count * repeat * len(ends))

    def _queued(self, replay: cuda_graph.Graph, repeat: int) -> Any:
        """Queues ``repeat`` replays and returns an event at their end."""
        for _ in range(repeat):
            replay.launch()
        end = self._cuda.Event()
        end.record(self._stream)
        return end

    def kernels_of(self, launch: Callable[[], object]) -> list[cuda_graph.CapturedKernel]:
        """The kernels that ``launch`` queues on the driver's stream. The call is captured, not run. The call must have
        run before, so that its library has loaded the kernels."""
        with self.context("listing kernels"):
            return cuda_graph.captured_kernels(self.stream, launch)

    # ---- the context ----

    @contextmanager
    def context(self, doing: str = "using the GPU") -> Iterator[None]:
        """Makes the primary context current, in relaxed capture mode: the block may allocate and load during
        captures. Errors of the library become LaunchErrors that begin with ``doing``."""
        try:
            self._context.push()
            try:
                with cuda_graph.relaxed_capture():
                    yield
            finally:
                self._cuda.Context.pop()
        except self._error as e:
            raise LaunchError(f"{doing}: {e}") from e

    def is_current(self) -> bool:
        """True if the context of the device is current in this thread, so that other libraries launch on this
        device."""
        current: bool = cuda_graph.current_context() == self._context.handle
        return current

    def close(self) -> None:
        """Frees everything and releases the primary context; called at exit. The driver is unusable afterwards."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        # In a context destroyed by a kernel, memory cannot be freed, and PyCUDA warns for each object until the context
        # is detached.
        try:
            self.synchronize()
            for address in list(self._memory):
                self.release(address)
        except LaunchError:
            pass
        try:
            self._context.detach()
            if self.library == "pycuda" and threading.get_ident() == self._thread:
                cuda_graph.drop_context()  # PyCUDA pushes the context in this thread to detach it
        except (self._error, LaunchError):
            pass
        self._memory.clear()


def _library(name: str) -> tuple[str, Any]:
    """The name of a library and its module. ``name`` empty: the library that PTXGEN_DRIVER names, else PyCUDA if it can
    be imported, else cuda-bindings. UnavailableError: PyCUDA is named and cannot be imported."""
    if name not in ("", *LIBRARIES):
        raise InputError(f"library is {name!r}; it must be {' or '.join(LIBRARIES)}")
    named = GPU_DRIVER.fullmatch(settings().driver)
    if not name and named and named[1] in LIBRARIES:
        name = named[1]
    if name != "cuda-bindings":
        try:
            import pycuda.driver

            return "pycuda", pycuda.driver
        except ImportError as e:
            remedy = GPU_ACCESS if "libcuda" in str(e) else build_pycuda()
            if name:
                raise UnavailableError(f"PyCUDA cannot be imported: {e}; {remedy}") from e
            if (e.name or "").split(".")[0] != "pycuda":
                _log.warning("PyCUDA cannot be imported, so cuda-bindings is used instead: %s; %s", e, remedy)
    from ptxgen.runtime import cuda_bindings

    return "cuda-bindings", cuda_bindings


def _gpu_count(cuda: Any) -> int:
    try:
        cuda.init()
        count = int(cuda.Device.count())
    except cuda.Error as e:
        raise UnavailableError(f"no GPU was found: {e}; {GPU_ACCESS}") from e
    if not count:
        raise UnavailableError(f"no GPU was found: the NVIDIA driver reports none; {GPU_ACCESS}")
    return count


def _target(source: Source, device: Device) -> str:
    """The target to assemble for: the source's target if its major architecture is the device's, else the device's
    target."""
    digits = source.target.removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz")
    same = digits.isdigit() and int(digits) // 10 == device.sm // 10
    return source.target if same else device.target


def _as_bytes(array: np.ndarray[Any, Any], operation: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The array as a view of bytes. PyCUDA does not accept buffers of dtypes such as bfloat16."""
    if not array.flags.c_contiguous:
        raise ShapeError(f"{operation}: the array's strides are {array.strides}; it must be C-contiguous")
    return array.reshape(-1).view(np.uint8)
