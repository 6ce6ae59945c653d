"""The driver for NVIDIA GPUs: PyCUDA loads and launches, on the primary context.

The primary context is the one that PyTorch, CuPy and the CUDA runtime use, so their memory and streams are good here.
It is on PyCUDA's own stack only inside ``context()``: PyCUDA ends the process when a thread ends with a context on it.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ptxgen.codegen.source import Source, Step, TensorMap
from ptxgen.errors import AssembleError, DeviceError, InputError, LaunchError, ShapeError, UnavailableError
from ptxgen.problem.device import Device
from ptxgen.runtime import cuda_fork, cuda_graph, cuda_properties
from ptxgen.runtime import cuda_launch as launches
from ptxgen.runtime.assemble import assemble, find_ptxas
from ptxgen.runtime.assemble import version as ptxas_version
from ptxgen.runtime.driver import Kernel, Timing

#: dynamic shared memory, in bytes, that a kernel may use without asking
SHARED_DEFAULT = 48 << 10
NODES = 400  #: kernels in one timing graph, at the most: more cost time to record and gain no precision
REPLAYS = 100  #: replays in one sample, at the most
NON_BLOCKING = 1


class CudaKernel:
    """A loaded module. ``registers`` a thread and ``spills`` (bytes) are its first entry's; ``functions``: PyCUDA's,
    by entry; ``anywhere``: the same for foreign streams, filled as they are needed. The last reference unloads it."""

    __slots__ = ("__weakref__", "_driver", "anywhere", "functions", "registers", "source", "spills")

    def __init__(
        self, driver: CudaDriver, source: Source, functions: dict[str, Any], registers: int, spills: int
    ) -> None:
        self._driver = driver
        self.source = source
        self.functions = functions
        self.registers = registers
        self.spills = spills
        self.anywhere: dict[str, launches.Function] = {}

    def __del__(self) -> None:
        # PyCUDA cannot unload from another thread than the driver's first, unless the context is on its stack.
        self._driver._unload(self.functions)


class CudaDriver:
    """A GPU, by its index. UnavailableError: PyCUDA, cuda-bindings or every GPU is missing; DeviceError: that one is.

    ``stream`` is the raw handle of the driver's own stream, where everything happens in order unless a launch names
    another. It waits for the legacy default stream and that one for it, as CUDA's blocking streams do. Any thread may
    call.
    """

    name = "cuda"
    clock = "hardware"

    def __init__(self, index: int = 0) -> None:
        self._cuda = cuda = _pycuda()
        cuda_graph.load()
        self._error: type[Exception] = cuda.Error
        count = _count(cuda)
        if not 0 <= index < count:
            raise DeviceError(f"device is {index}; this machine has {count}, counted from 0")
        found = cuda.Device(index)
        self.device: Device = cuda_properties.device(cuda, found)
        major, rest = divmod(cuda.get_driver_version(), 1000)
        self.version = f"CUDA {major}.{rest // 10}"
        self._ptxas = find_ptxas()
        self.assembler = f"ptxas {ptxas_version(self._ptxas)}" if self._ptxas else self.version
        self._memory: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._closed = False
        try:
            self._context = found.retain_primary_context()
        except self._error as e:
            raise UnavailableError(f"the GPU {self.device.name} cannot be used: {e}") from e
        atexit.register(self.close)
        cuda_fork.watch(self)
        if not cuda_graph.current_context():
            cuda_graph.set_context(self._context.handle)
        with self.context("making streams"):
            self._stream = cuda.Stream()
            self._aside = cuda.Stream(NON_BLOCKING)
        self.stream: int = self._stream.handle

    # ---- memory ----

    def allocate(self, size: int) -> int:
        """The address of ``size`` new bytes, a multiple of 256. LaunchError: there is not enough."""
        with self.context(f"allocating {size} bytes"):
            block = self._cuda.mem_alloc(max(size, 1))
        address = int(block)
        self._memory[address] = block
        return address

    def release(self, address: int) -> None:
        """Frees what ``allocate`` returned; waits for what still uses it."""
        block = self._memory.pop(address, None)
        if block is None:
            raise InputError(f"address is {address:#x}; it must be one that allocate returned and release has not seen")
        with self.context("freeing memory"):
            block.free()

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copies ``array`` to the device; on return it may be changed."""
        data = _bytes(array, "upload")
        if data.size:
            with self.context("uploading"):
                self._cuda.memcpy_htod_async(address, data, self._stream)
                self._stream.synchronize()

    def download(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Fills ``array`` from the device, after everything queued on the driver's stream."""
        data = _bytes(array, "download")
        if not data.flags.writeable:
            raise InputError("download: the array is read-only")
        if data.size:
            with self.context("downloading"):
                self._cuda.memcpy_dtoh_async(data, address, self._stream)
                self._stream.synchronize()

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Sets ``size`` bytes to ``byte``, after everything queued on the driver's stream."""
        with self.context("filling"):
            self._fill(address, size, byte)
            self._stream.synchronize()

    def _fill(self, address: int, size: int, byte: int = 0) -> None:
        if (address | size) % 4 and size:
            self._cuda.memset_d8_async(address, byte, size, self._stream)
        elif size:
            self._cuda.memset_d32_async(address, byte * 0x01010101, size // 4, self._stream)

    # ---- kernels ----

    def load(self, source: Source) -> CudaKernel:
        """Assembles with ptxas where there is one, else in the driver, and loads.

        AssembleError: either rejected it, or it needs more than the device has; LaunchError: the context is lost.
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
                    if source.shared + function.get_attribute(facts.SHARED_SIZE_BYTES) > SHARED_DEFAULT:
                        function.set_attribute(facts.MAX_DYNAMIC_SHARED_SIZE_BYTES, source.shared)
                if registers < 0:
                    registers = functions[entry].get_attribute(facts.NUM_REGS)
                    spills = functions[entry].get_attribute(facts.LOCAL_SIZE_BYTES)
            except self._error as e:
                self._cuda.Context.synchronize()  # raises where an earlier kernel destroyed the context
                raise AssembleError(f"the driver rejected the kernel: {e}", str(e)) from e
        for name in source.pdl_entries:
            functions[name] = launches.InPlace(self._handled, functions[name])
        return CudaKernel(self, source, functions, registers, spills)

    def _unload(self, functions: dict[str, Any]) -> None:
        if self._closed:
            functions.clear()
            return
        try:
            with self.context("unloading a kernel"):
                functions.clear()
        except LaunchError:
            pass  # a destroyed context holds no modules

    def tensor_map(self, description: TensorMap, address: int) -> bytes:
        """The map of a matrix at ``address``, as a kernel takes it; those in use are kept."""
        found: bytes = cuda_graph.tensor_map(description, address)
        return found

    def launch(self, kernel: Kernel, step: Step, parameters: bytes, stream: int = 0) -> None:
        """Queues one step on ``stream``, a raw handle; 0: the driver's own.

        The default stream of PyTorch and CuPy, whose handle reads 0, is 1 here (CU_STREAM_LEGACY). LaunchError: the
        driver rejected it, or an earlier launch destroyed the context.
        """
        # Every GEMM comes through here: the shortest way first, and PyCUDA's is the shortest there is.
        entry = step.entry
        try:
            if stream or not entry:
                self._queue(kernel, step, parameters, stream)
            else:
                kernel.functions[entry]._launch_kernel(  # type: ignore[attr-defined]
                    step.grid, step.block, parameters, step.shared, self._stream
                )
        except (self._error, cuda_graph.DriverError) as e:
            self._again(e, kernel, step, parameters, stream)

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
            anywhere = kernel.anywhere.get(step.entry)
            if anywhere is None or anywhere.size != len(parameters):
                anywhere = self._resolve(kernel, step, parameters)
            anywhere.launch(step.grid, step.block, parameters, step.shared, stream)

    def _resolve(self, kernel: CudaKernel, step: Step, parameters: bytes) -> launches.Function:
        """The entry of a step, fit for foreign streams."""
        function = kernel.functions[step.entry]
        dependent = step.entry in kernel.source.pdl_entries
        plain = function.plain if dependent else function
        made = self._handled(plain, step.grid, step.block, parameters, step.shared, dependent)
        kernel.anywhere[step.entry] = made
        return made

    def _handled(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: bytes,
        shared: int,
        dependent: bool,
    ) -> launches.Function:
        """PyCUDA's function, by the driver's handle of it."""
        with self._lock, self.context("looking a kernel up"):
            aside = self._aside
            handle = cuda_graph.function_of(
                aside.handle, lambda: function._launch_kernel(grid, block, parameters, shared, aside)
            )
        return launches.Function(handle, len(parameters), dependent)

    def _again(self, error: Exception, kernel: Kernel, step: Step, parameters: bytes, stream: int) -> None:
        """Queues a step once more where it failed because the thread had no context, or another one."""
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

    def synchronize(self) -> None:
        """Waits for everything queued on the GPU's primary context. LaunchError: something of it failed."""
        with self.context("waiting for the GPU"):
            self._cuda.Context.synchronize()

    def capturing(self, stream: int) -> bool:
        """Whether ``stream``, a raw handle, is being captured into a graph."""
        try:
            return cuda_graph.capturing(stream)
        except cuda_graph.DriverError:  # of a thread without a context, or with another one
            with self.context("looking for a capture"):
                return cuda_graph.capturing(stream)

    def capture(self, stream: int) -> cuda_graph.Capture:
        """The capture in progress on ``stream``. LaunchError: it is no longer valid."""
        return cuda_graph.Capture(stream)

    # ---- time ----

    def elapsed(self, launch: Callable[[], object]) -> float:
        """Microseconds on the driver's stream from before to after one call: a rough figure, gaps included."""
        with self.context("timing"):
            return self._elapsed(launch)

    def _elapsed(self, launch: Callable[[], object]) -> float:
        begin, end = self._cuda.Event(), self._cuda.Event()
        begin.record(self._stream)
        launch()
        end.record(self._stream)
        end.synchronize()
        return float(end.time_since(begin)) * 1e3

    def time(self, launches: Sequence[Callable[[], None]], timing: Timing) -> list[float]:
        """Microseconds of one call, ``timing.samples`` of them; ``launches`` queue on the driver's stream, in turn.

        They are recorded once into a CUDA graph, so the time is the GPU's and not the host's.
        """
        if not launches:
            raise InputError("launches is empty; there is nothing to time")
        ring = len(launches)
        with self.context("timing"):
            for launch in launches[:2]:
                launch()
            self._stream.synchronize()

            def both() -> None:
                launches[0]()
                launches[-1]()

            once = max(self._elapsed(both) / 2, 1.0)
            wanted = timing.target_ms * 1e3
            count = ring * max(1, round(min(wanted / once, NODES) / ring))

            def record() -> None:
                for i in range(count):
                    launches[i % ring]()

            with cuda_graph.Graph(self.stream, record) as replay:
                first = max(self._elapsed(replay.launch), 1e-3)
                repeat = min(max(1, round(wanted / first)), REPLAYS)

                def sample() -> None:
                    for _ in range(repeat):
                        replay.launch()

                return [self._elapsed(sample) / (repeat * count) for _ in range(timing.samples)]

    # ---- the context ----

    @contextmanager
    def context(self, doing: str = "using the GPU") -> Iterator[None]:
        """Inside, the thread is in the primary context, and no capture forbids it to allocate or to load; what PyCUDA
        raises is a LaunchError that begins ``doing``."""
        try:
            self._context.push()
            try:
                with cuda_graph.relaxed():
                    yield
            finally:
                self._cuda.Context.pop()
        except self._error as e:
            raise LaunchError(f"{doing}: {e}") from e

    def close(self) -> None:
        """Frees everything and lets go of the primary context; called at exit. Nothing works afterwards."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        # A context that a kernel destroyed takes nothing back, and PyCUDA would complain of each thing on stderr; once
        # it is detached, PyCUDA's objects are silent.
        try:
            self.synchronize()
            for address in list(self._memory):
                self.release(address)
        except LaunchError:
            pass
        try:
            self._context.detach()
            if threading.get_ident() == self._thread:
                cuda_graph.drop_context()  # in this thread PyCUDA pushes a context to detach it, and leaves it there
        except (self._error, LaunchError):
            pass
        self._memory.clear()


def _pycuda() -> Any:
    try:
        import pycuda.driver
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] == "pycuda":
            raise UnavailableError('PyCUDA is not installed; pip install "ptxgen[cuda]"') from e
        raise UnavailableError(f'PyCUDA lacks {e.name}; pip install "ptxgen[cuda]"') from e
    except ImportError as e:
        raise UnavailableError(f"no GPU was found: PyCUDA cannot load NVIDIA's driver ({e})") from e
    return pycuda.driver


def _count(cuda: Any) -> int:
    try:
        cuda.init()
        count = int(cuda.Device.count())
    except cuda.Error as e:
        raise UnavailableError(f"no GPU was found: {e}") from e
    if not count:
        raise UnavailableError("no GPU was found: NVIDIA's driver counts none")
    return count


def _target(source: Source, device: Device) -> str:
    """What to assemble for: machine code runs on its own major architecture only, text on every later one."""
    digits = source.target.removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz")
    same = digits.isdigit() and int(digits) // 10 == device.sm // 10
    return source.target if same else device.target


def _bytes(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The array's memory; a view, because types such as bfloat16 have no buffer that PyCUDA could read."""
    if not array.flags.c_contiguous:
        raise ShapeError(f"{what}: the array's strides are {array.strides}; it must be C-contiguous")
    return array.reshape(-1).view(np.uint8)
