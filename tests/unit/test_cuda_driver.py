"""The CUDA driver's logic, on a fake GPU that is strict about contexts, buffers, modules and captures."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.source import Source, Step
from ptxgen.errors import AssembleError, DeviceError, InputError, LaunchError, ShapeError, UnavailableError
from ptxgen.runtime import cuda, cuda_bindings, cuda_launch
from ptxgen.runtime import cuda_graph as graph
from ptxgen.runtime.assemble import Assembled
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.open_driver import open_driver
from ptxgen.settings import LIBRARIES, settings
from tests.forks import forked
from tests.threads import join

PRIMARY, FOREIGN = 0x1000, 0x2000  # contexts
INVALID_VALUE, NO_DEVICE, INVALID_CONTEXT, INVALID_HANDLE, ILLEGAL_ADDRESS = 1, 100, 201, 400, 700
CAPTURE_UNSUPPORTED = 900
ENTRIES = ("increment", "copy")
TARGET = "sm_90"
COUNT = 8
COPY = Step("copy", (1, 1, 1), (32, 1, 1), 0, (("u64", "A"), ("u64", "C"), ("u32", COUNT)))
INCREMENT = Step("increment", (1, 1, 1), (32, 1, 1), 0, (("u64", "C"), ("u32", COUNT)))
CLEAR = Step("", (4 * COUNT, 1, 1), arguments=(("u64", "C"),))


class CudaError(Exception):
    """The exception of the fake pycuda."""


class Gpu:
    """The state of both fake modules. ``clock`` counts microseconds of GPU time."""

    def __init__(self) -> None:
        self.count = 1  # GPUs; the primary context of GPU i is PRIMARY + i
        self.memory: dict[int, bytearray] = {}
        self.owners: dict[int, int] = {}  # the context of a stream
        self.waits: list[tuple[int, int]] = []  # (waiting stream, stream that it waits for)
        self.on_queue: Callable[[], None] = lambda: None
        self.next = 0x10000
        self.sticky = 0
        self.retained = 0
        self.local = threading.local()
        self.streams: dict[int, list[Callable[[], None]] | None] = {1: None}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.functions: dict[int, Any] = {}
        self.clock = 0.0
        self.kernel_us = 2.0
        self.attributes: list[list[int]] = []  # of launches by handle
        self.launched: list[tuple[str, int]] = []  # entry and stream of each launch, captured ones too
        self.loaded: list[bytes] = []
        self.unloads: list[str] = []
        self.freed_hosts: list[int] = []  # errors of freed page-locked memory of PyCUDA
        self.shared: dict[str, int] = {}
        self.attribute_limit = 232448
        self.reject = ""
        self.captures: dict[int, tuple[int, list[Callable[[], None]]]] = {}  # by stream: id, the graph's work
        self.owned: dict[int, list[int]] = {}  # by identity of a graph's work: user objects
        self.destructors: dict[int, tuple[int, int]] = {}  # by user object: function, its argument

    @property
    def stack(self) -> list[int]:
        """The calling thread's contexts, as the CUDA driver sees them."""
        return self.local.__dict__.setdefault("stack", [])  # type: ignore[no-any-return]

    @property
    def pycuda_stack(self) -> list[Any]:
        return self.local.__dict__.setdefault("pycuda_stack", [])  # type: ignore[no-any-return]

    def capture(self, stream: int) -> list[Callable[[], None]]:
        """Begins a capture as PyTorch does, in the mode that forbids every thread whose mode is not relaxed to allocate,
        to free and to load."""
        self.next += 1
        self.streams[stream] = work = []
        self.captures[stream] = self.next, work
        return work

    def end(self, stream: int) -> None:
        del self.captures[stream]
        self.streams[stream] = None

    def destroy(self, work: list[Callable[[], None]]) -> None:
        """Destroys a captured graph."""
        for user in self.owned.pop(id(work), []):
            function, argument = self.destructors.pop(user)
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function)(argument)

    @property
    def relaxed(self) -> bool:
        return self.local.__dict__.get("mode", 0) == 2

    def unsafe(self) -> int:
        """The status of a call that a capture may forbid."""
        if self.captures and not self.relaxed:
            return CAPTURE_UNSUPPORTED
        return self.status()

    def status(self) -> int:
        if not self.stack:
            return INVALID_CONTEXT
        return self.sticky or (0 if PRIMARY <= self.stack[-1] < PRIMARY + self.count else INVALID_HANDLE)

    def stream(self) -> int:
        """A new stream of the current context."""
        self.next += 0x100
        self.streams[self.next] = None
        self.owners[self.next] = self.stack[-1]
        return self.next

    def allocate(self, size: int) -> int:
        self.next = (self.next + 0x1FF) // 0x100 * 0x100
        address = self.next
        self.next += size
        self.memory[address] = bytearray(size)
        return address

    def view(self, address: int, size: int) -> memoryview:
        for start, block in self.memory.items():
            if start <= address and address + size <= start + len(block):
                return memoryview(block)[address - start : address - start + size]
        self.sticky = ILLEGAL_ADDRESS
        raise MemoryError

    def queue(self, stream: int, work: Callable[[], None]) -> int:
        """Runs ``work`` at once, or keeps it where ``stream`` is being captured; returns a status."""
        if code := self.status():
            return code
        self.on_queue()
        if stream not in self.streams or self.owners.get(stream, self.stack[-1]) != self.stack[-1]:
            return INVALID_HANDLE
        captured = self.streams[stream]
        if captured is not None:
            captured.append(work)
            return 0
        self.run(work)
        return 0

    def run(self, work: Callable[[], None]) -> None:
        with suppress(MemoryError):  # as on a GPU, the next call reports it
            work()
        self.clock += self.kernel_us

    def kernel(self, function: Any, parameters: bytes) -> Callable[[], None]:
        words = np.frombuffer(parameters, np.uint32)
        addresses = np.frombuffer(parameters[: len(parameters) // 8 * 8], np.uint64)

        def work() -> None:
            assert function.context == self.stack[-1], f"{function.name} is launched in the context of another GPU"
            assert function.module.alive, f"{function.name} runs after its module was unloaded"
            if function.name == "copy":
                count = int(words[4])
                self.view(int(addresses[1]), 4 * count)[:] = self.view(int(addresses[0]), 4 * count)
            else:
                values = np.frombuffer(self.view(int(addresses[0]), 4 * int(words[2])), np.uint32)
                values += 1

        work.function = function  # type: ignore[attr-defined]
        return work


ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 132,
    "CLOCK_RATE": 1_980_000,
    "L2_CACHE_SIZE": 60 << 20,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 << 10,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
}
FUNCTION_ATTRIBUTES = {"NUM_REGS": 17, "LOCAL_SIZE_BYTES": 24, "SHARED_SIZE_BYTES": 4096}


def pretend_pycuda(gpu: Gpu) -> types.ModuleType:
    module: Any = types.ModuleType("pycuda.driver")

    def check(code: int, call: str) -> None:
        if code:
            raise CudaError(f"{call} failed: {code}")

    def dependent() -> None:
        """PyCUDA's objects remember the context on its own stack; without one they cannot be made."""
        check(0 if gpu.pycuda_stack else INVALID_CONTEXT, "explicit_context_dependent")

    class Context:
        def __init__(self, index: int) -> None:
            gpu.retained += 1
            self.handle = PRIMARY + index
            self.thread = threading.get_ident()
            self.valid = True

        def push(self) -> None:
            check(0 if self.valid else INVALID_CONTEXT, "cuCtxPushCurrent")
            if gpu.pycuda_stack:
                gpu.stack.pop()
            gpu.stack.append(self.handle)
            gpu.pycuda_stack.append(self)

        @staticmethod
        def pop() -> None:
            gpu.stack.pop()
            gpu.pycuda_stack.pop()
            if gpu.pycuda_stack:
                gpu.stack.append(gpu.pycuda_stack[-1].handle)

        @staticmethod
        def synchronize() -> None:
            check(CAPTURE_UNSUPPORTED if gpu.captures else gpu.status(), "cuCtxSynchronize")

        def detach(self) -> None:
            assert self.valid
            assert not gpu.pycuda_stack
            self.valid = False
            if threading.get_ident() == self.thread:
                gpu.stack.append(self.handle)  # left there, as PyCUDA leaves it
                gpu.retained -= 1

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        @staticmethod
        def count() -> int:
            return gpu.count

        def name(self) -> str:
            return "NVIDIA H200"

        def compute_capability(self) -> tuple[int, int]:
            return 9, 0

        def get_attribute(self, which: str) -> int:
            return ATTRIBUTES[which]

        def retain_primary_context(self) -> Context:
            return Context(self.index)

    class Stream:
        def __init__(self, flags: int = 0) -> None:
            dependent()
            self.handle = gpu.stream()

        def synchronize(self) -> None:
            check(gpu.status(), "cuStreamSynchronize")

    class Event:
        def __init__(self) -> None:
            dependent()
            self.at = -1.0

        def record(self, stream: Stream) -> None:
            check(gpu.status(), "cuEventRecord")
            self.at = gpu.clock

        def synchronize(self) -> None:
            check(gpu.status(), "cuEventSynchronize")

        def time_since(self, begin: Event) -> float:
            return (self.at - begin.at) * 1e-3

    class DeviceAllocation:
        def __init__(self, size: int) -> None:
            dependent()
            check(gpu.unsafe() or (2 if size > 1 << 40 else 0), "cuMemAlloc")
            self.address = gpu.allocate(size)

        def __int__(self) -> int:
            return self.address

        def free(self) -> None:
            dependent()
            check(gpu.unsafe(), "cuMemFree")
            del gpu.memory[self.address]

    def htod(address: int, data: Any, stream: Stream) -> None:
        raw = bytes(data)
        check(gpu.queue(stream.handle, lambda: gpu.view(address, len(raw)).__setitem__(slice(None), raw)), "htod")
        check(gpu.sticky, "cuMemcpyHtoDAsync")

    def dtoh(data: Any, address: int, stream: Stream) -> None:
        into = memoryview(data).cast("B")
        check(gpu.queue(stream.handle, lambda: into.__setitem__(slice(None), gpu.view(address, len(into)))), "dtoh")
        check(gpu.sticky, "cuMemcpyDtoHAsync")

    def memset(size: int) -> Callable[[int, int, int, Stream], None]:
        def call(address: int, value: int, count: int, stream: Stream) -> None:
            assert address % size == 0
            assert count > 0
            pattern = value.to_bytes(size, "little") * count
            check(
                gpu.queue(stream.handle, lambda: gpu.view(address, len(pattern)).__setitem__(slice(None), pattern)), ""
            )

        return call

    class Module:
        def __init__(self, code: bytes) -> None:
            self.alive = True
            self.thread = threading.get_ident()
            dependent()
            check(gpu.unsafe(), "cuModuleLoadDataEx")
            if gpu.reject:
                raise CudaError(gpu.reject)
            gpu.loaded.append(bytes(code))

        def get_function(self, name: str) -> Function:
            check(0 if name in ENTRIES else 500, "cuModuleGetFunction")
            return Function(self, name)

        def __del__(self) -> None:
            self.alive = False
            here = threading.get_ident() == self.thread or gpu.pycuda_stack
            gpu.unloads.append("done" if here else "could not be cleaned up")

    class Function:
        def __init__(self, module: Module, name: str) -> None:
            self.module, self.name, self.context = module, name, gpu.stack[-1]

        def get_attribute(self, which: str) -> int:
            return FUNCTION_ATTRIBUTES[which]

        def set_attribute(self, which: str, value: int) -> None:
            assert which == "MAX_DYNAMIC_SHARED_SIZE_BYTES"
            check(INVALID_VALUE if value > gpu.attribute_limit else 0, "cuFuncSetAttribute")
            gpu.shared[self.name] = value

        def _launch_kernel(self, grid: Any, block: Any, parameters: bytes, shared: int, stream: Stream) -> None:
            assert isinstance(grid, tuple)
            assert isinstance(block, tuple)
            gpu.launched.append((self.name, stream.handle))
            check(INVALID_VALUE if block[0] > 1024 else 0, "cuLaunchKernel")
            check(gpu.queue(stream.handle, gpu.kernel(self, bytes(parameters))), "cuLaunchKernel")

    def pagelocked_zeros(size: int, dtype: Any) -> np.ndarray[Any, Any]:
        memory = ctypes.create_string_buffer(size)
        weakref.finalize(memory, lambda: gpu.freed_hosts.append(gpu.unsafe()))
        return np.frombuffer(memory, dtype)

    module.Error = CudaError
    module.init = lambda: None
    module.get_driver_version = lambda: 13000
    module.Device, module.Context, module.Stream, module.Event = Device, Context, Stream, Event
    module.mem_alloc = DeviceAllocation
    module.memcpy_htod_async, module.memcpy_dtoh_async = htod, dtoh
    module.memset_d8_async, module.memset_d32_async = memset(1), memset(4)
    module.pagelocked_zeros = pagelocked_zeros
    module.module_from_buffer = Module
    module.DeviceAllocation, module.Module, module.Function = DeviceAllocation, Module, Function

    class Names:
        def __getattr__(self, name: str) -> str:
            return name

    module.device_attribute = module.function_attribute = Names()
    return module  # type: ignore[no-any-return]


def pretend_bindings(gpu: Gpu) -> types.ModuleType:
    module: Any = types.ModuleType("cuda.bindings.driver")

    class Result(IntEnum):
        SUCCESS = 0
        INVALID_VALUE = INVALID_VALUE
        INVALID_CONTEXT = INVALID_CONTEXT
        INVALID_HANDLE = INVALID_HANDLE
        ILLEGAL_ADDRESS = ILLEGAL_ADDRESS
        CAPTURE_UNSUPPORTED = CAPTURE_UNSUPPORTED
        NO_DEVICE = NO_DEVICE
        NOT_FOUND = 500
        OUT_OF_MEMORY = 2

    class Mode(IntEnum):
        CU_STREAM_CAPTURE_MODE_GLOBAL = 0
        CU_STREAM_CAPTURE_MODE_RELAXED = 2

    class CaptureStatus(IntEnum):
        CU_STREAM_CAPTURE_STATUS_NONE = 0
        CU_STREAM_CAPTURE_STATUS_ACTIVE = 1

    class UserFlags(IntEnum):
        CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1

    class RetainFlags(IntEnum):
        CU_GRAPH_USER_OBJECT_MOVE = 1

    class Parameters:
        def __init__(self, function: int) -> None:
            self.func, self.kern = function, 0

    def begin(stream: int, mode: Mode) -> tuple[Result]:
        assert gpu.streams[stream] is None
        gpu.streams[stream] = []
        return (Result(gpu.status()),)

    def end(stream: int) -> tuple[Result, int]:
        captured = gpu.streams[stream]
        assert captured is not None
        gpu.streams[stream] = None
        gpu.next += 1
        gpu.graphs[gpu.next] = captured
        return Result.SUCCESS, gpu.next

    def instantiate(graph: int, flags: int) -> tuple[Result, int]:
        gpu.next += 1
        gpu.graphs[gpu.next] = list(gpu.graphs[graph])
        return Result.SUCCESS, gpu.next

    def replay(graph: int, stream: int) -> tuple[Result]:
        if not gpu.status():
            for work in gpu.graphs[graph]:
                gpu.run(work)
        return (Result(gpu.status()),)

    def destroy(graph: int) -> tuple[Result]:
        del gpu.graphs[graph]
        return (Result.SUCCESS,)

    def nodes(graph: int, most: int) -> tuple[Result, list[int], int]:
        launches = gpu.graphs[graph][:most]
        handles = []
        for work in launches:
            gpu.next += 1
            gpu.functions[gpu.next] = work.function  # type: ignore[attr-defined]
            handles.append(gpu.next)
        return Result.SUCCESS, handles + [0] * (most - len(launches)), len(launches)

    def launch(function: int, *rest: Any) -> tuple[Result]:
        *shape, stream, kernel_parameters, extra = rest
        assert len(shape) == 7
        assert not kernel_parameters
        config = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p * 5)).contents
        assert (config[0], config[2], config[4]) == (1, 2, None)
        size = ctypes.cast(config[3] or 0, ctypes.POINTER(ctypes.c_size_t)).contents.value
        known = gpu.functions[function]
        gpu.launched.append((known.name, stream))
        if shape[3] > 1024:
            return (Result.INVALID_VALUE,)
        return (Result(gpu.queue(stream, gpu.kernel(known, ctypes.string_at(config[1] or 0, size)))),)

    def extended(config_at: int, function: int, parameters: int, extra: int) -> int:
        config = cuda_launch._Configuration.from_address(config_at)
        gpu.attributes.append([config.attributes[i].id for i in range(config.count)])
        return int(launch(function, *config.sizes, config.stream or 0, parameters, extra)[0])

    def is_capturing(stream: int, status_at: int) -> int:
        ctypes.c_int.from_address(status_at).value = int(stream in gpu.captures)
        return gpu.status() if stream in gpu.streams else INVALID_HANDLE

    def capture_info(stream: int) -> tuple[Any, ...]:
        number, work = gpu.captures.get(stream, (0, []))
        return Result.SUCCESS, CaptureStatus(int(bool(number))), number, id(work), [], 0

    def exchange(mode: Mode) -> tuple[Result, Mode]:
        before = Mode(gpu.local.__dict__.get("mode", 0))
        gpu.local.mode = int(mode)
        return Result.SUCCESS, before

    def create(argument: int, function: int, count: int, flags: int) -> tuple[Result, int]:
        assert (count, flags) == (1, 1)
        gpu.next += 1
        gpu.destructors[gpu.next] = function, argument
        return Result.SUCCESS, gpu.next

    def retain_user(graph: int, user: int, count: int, flags: int) -> tuple[Result]:
        assert (count, flags) == (1, 1)
        gpu.owned.setdefault(graph, []).append(user)
        return (Result.SUCCESS,)

    # ---- what serves without PyCUDA

    class Module:
        def __init__(self) -> None:
            self.alive = True

    class Function:
        def __init__(self, loaded: Module, name: str) -> None:
            self.module, self.name, self.context = loaded, name, gpu.stack[-1]

    modules: dict[int, Module] = {}
    events: dict[int, float] = {}
    hosts: dict[int, Any] = {}

    def new(table: dict[int, Any], value: Any) -> int:
        gpu.next += 1
        table[gpu.next] = value
        return gpu.next

    def load_module(handle_at: int, code: bytes, count: int, options: int, values_at: int) -> int:
        assert (ctypes.c_int * count).from_address(options)[:] == [5, 6]
        if failed := gpu.unsafe():
            return failed
        if gpu.reject:
            address, size = (ctypes.c_void_p * 2).from_address(values_at)
            ctypes.memmove(address, gpu.reject.encode() + b"\0", min(size, len(gpu.reject) + 1))
            return INVALID_VALUE
        gpu.loaded.append(code if code == b"cubin" else code + b"\0")  # ctypes ends bytes at the first zero
        ctypes.c_void_p.from_address(handle_at).value = new(modules, Module())
        return 0

    def unload_module(handle: int) -> tuple[Result]:
        gpu.unloads.append("could not be cleaned up" if gpu.unsafe() else "done")
        modules.pop(handle).alive = False
        return (Result(gpu.unsafe()),)

    def get_function(handle: int, name: bytes) -> tuple[Result, int]:
        if name.decode() not in ENTRIES:
            return Result.NOT_FOUND, 0
        return Result.SUCCESS, new(gpu.functions, Function(modules[handle], name.decode()))

    def set_attribute(function: int, which: str, value: int) -> tuple[Result]:
        assert which == "MAX_DYNAMIC_SHARED_SIZE_BYTES"
        if value > gpu.attribute_limit:
            return (Result.INVALID_VALUE,)
        gpu.shared[gpu.functions[function].name] = value
        return (Result.SUCCESS,)

    def retain(index: int) -> tuple[Result, int]:
        gpu.retained += 1
        return Result.SUCCESS, PRIMARY + index

    def release(index: int) -> tuple[Result]:
        assert PRIMARY + index not in gpu.stack[1:], "the context of the GPU is on the stack"
        gpu.retained -= 1
        return (Result.SUCCESS,)

    def push(context: int) -> tuple[Result]:
        gpu.stack.append(context)
        return (Result.SUCCESS,)

    def allocate(size: int) -> tuple[Result, int]:
        if failed := gpu.unsafe() or (2 if size > 1 << 40 else 0):
            return Result(failed), 0
        return Result.SUCCESS, gpu.allocate(size)

    def free(address: int) -> tuple[Result]:
        if failed := gpu.unsafe():
            return (Result(failed),)
        del gpu.memory[address]
        return (Result.SUCCESS,)

    def host_allocate(size: int, flags: int) -> tuple[Result, int]:
        assert flags == 0
        made = ctypes.create_string_buffer(b"\xff" * size, size)
        hosts[ctypes.addressof(made)] = made
        return Result(gpu.unsafe()), ctypes.addressof(made)

    def host_free(address: int) -> tuple[Result]:
        if failed := gpu.unsafe():
            return (Result(failed),)
        del hosts[address]
        return (Result.SUCCESS,)

    def htod(address: int, data: int, size: int, stream: int) -> tuple[Result]:
        raw = ctypes.string_at(data, size)
        done = gpu.queue(stream, lambda: gpu.view(address, size).__setitem__(slice(None), raw))
        return (Result(done or gpu.sticky),)

    def dtoh(data: int, address: int, size: int, stream: int) -> tuple[Result]:
        work = lambda: ctypes.memmove(data, bytes(gpu.view(address, size)), size)  # noqa: E731
        return (Result(gpu.queue(stream, work) or gpu.sticky),)

    def record_event(event: int, stream: int) -> tuple[Result]:
        events[event] = gpu.clock
        module.recorded[event] = stream
        return (Result(gpu.status()),)

    def wait_event(stream: int, event: int, flags: int) -> tuple[Result]:
        assert event in events
        gpu.waits.append((stream, module.recorded[event]))
        return (Result(gpu.status()),)

    class Names:
        def __getattr__(self, name: str) -> str:
            return name.removeprefix("CU_DEVICE_ATTRIBUTE_").removeprefix("CU_FUNC_ATTRIBUTE_")

    #: not yet freed: page-locked memory and events
    module.hosts, module.events = hosts, events
    module.recorded = {}  # the stream of each event
    module.CUdevice_attribute = module.CUfunction_attribute = Names()
    module.cuInit = lambda flags: (Result.SUCCESS,)
    module.cuDriverGetVersion = lambda: (Result.SUCCESS, 13000)
    module.cuDeviceGetCount = lambda: (Result.SUCCESS, gpu.count)
    module.cuDeviceGet = lambda index: (Result.SUCCESS, index)
    module.cuDeviceGetName = lambda size, device: (Result.SUCCESS, b"NVIDIA H200".ljust(size, b"\0"))
    module.cuDeviceGetAttribute = lambda which, device: (Result.SUCCESS, ATTRIBUTES[which])
    module.cuDevicePrimaryCtxRetain, module.cuDevicePrimaryCtxRelease = retain, release
    module.cuCtxPushCurrent = push
    module.cuCtxSynchronize = lambda: (Result(CAPTURE_UNSUPPORTED if gpu.captures else gpu.status()),)
    module.cuStreamCreate = lambda flags: (Result(gpu.status()), gpu.stream())
    module.cuStreamSynchronize = lambda stream: (Result(gpu.status()),)
    module.cuEventCreate = lambda flags: (Result(gpu.status()), new(events, -1.0))
    module.cuEventDestroy = lambda event: (Result(gpu.status()), events.pop(event))[:1]
    module.cuEventRecord = record_event
    module.cuEventSynchronize = lambda event: (Result(gpu.status()),)
    module.cuStreamWaitEvent = wait_event
    module.cuEventElapsedTime = lambda begin, end: (Result.SUCCESS, (events[end] - events[begin]) * 1e-3)
    module.cuMemAlloc, module.cuMemFree = allocate, free
    module.cuMemHostAlloc, module.cuMemFreeHost = host_allocate, host_free
    module.cuMemcpyHtoDAsync, module.cuMemcpyDtoHAsync = htod, dtoh
    module.CUmodule = int
    module.cuModuleGetFunction, module.cuModuleUnload = get_function, unload_module
    module.cuFuncGetAttribute = lambda which, function: (Result.SUCCESS, FUNCTION_ATTRIBUTES[which])
    module.cuFuncSetAttribute = set_attribute

    def get_current(handle_at: int) -> int:
        ctypes.c_void_p.from_address(handle_at).value = gpu.stack[-1] if gpu.stack else 0
        return 0

    where = ctypes.c_void_p
    module.functions = [
        ctypes.CFUNCTYPE(ctypes.c_int, where, where, where, where)(extended),
        ctypes.CFUNCTYPE(ctypes.c_int, where, where)(is_capturing),
        ctypes.CFUNCTYPE(ctypes.c_int, where, ctypes.c_char_p, ctypes.c_uint, where, where)(load_module),
        ctypes.CFUNCTYPE(ctypes.c_int, where)(get_current),
    ]
    names = (b"cuLaunchKernelEx", b"cuStreamIsCapturing", b"cuModuleLoadDataEx", b"cuCtxGetCurrent")
    addresses = {name: ctypes.cast(f, where).value for name, f in zip(names, module.functions, strict=True)}
    module.CUstreamCaptureStatus, module.CUhostFn = CaptureStatus, int
    module.CUuserObject_flags, module.CUuserObjectRetain_flags = UserFlags, RetainFlags
    module.cuStreamGetCaptureInfo, module.cuThreadExchangeStreamCaptureMode = capture_info, exchange
    module.cuUserObjectCreate, module.cuGraphRetainUserObject = create, retain_user

    def memset(size: int) -> Callable[[int, int, int, int], tuple[Result]]:
        def call(address: int, value: int, count: int, stream: int) -> tuple[Result]:
            assert address % size == 0
            pattern = value.to_bytes(size, "little") * count
            work = lambda: gpu.view(address, len(pattern)).__setitem__(slice(None), pattern)  # noqa: E731
            return (Result(gpu.queue(stream, work)),)

        call.__name__ = f"cuMemsetD{8 * size}Async"
        return call

    def set_current(handle: int) -> tuple[Result]:
        gpu.stack[-1:] = [handle]
        return (Result.SUCCESS,)

    def pop() -> tuple[Result, int]:
        return Result.SUCCESS, gpu.stack.pop()

    module.CUstreamCaptureMode = Mode
    module.CUstream = module.CUfunction = module.CUcontext = int
    module.cuStreamBeginCapture, module.cuStreamEndCapture = begin, end
    module.cuGraphInstantiate, module.cuGraphLaunch = instantiate, replay
    module.cuGraphUpload = lambda graph, stream: (Result.SUCCESS,)
    module.cuGraphDestroy = module.cuGraphExecDestroy = destroy
    module.cuGraphGetNodes = nodes
    module.cuGraphKernelNodeGetParams = lambda node: (Result.SUCCESS, Parameters(node))
    module.cuGetProcAddress = lambda name, version, flags: (Result.SUCCESS, addresses[name], 0)
    module.CUresult = Result
    module.cuMemsetD8Async, module.cuMemsetD32Async = memset(1), memset(4)
    module.cuCtxGetDevice = lambda: (Result(gpu.status()), gpu.stack[-1] - PRIMARY)
    module.cuCtxSetCurrent, module.cuCtxPopCurrent = set_current, pop
    module.cuGetErrorString = lambda code: (Result.SUCCESS, f"it is {int(code)}".encode())
    for name, function in vars(module).items():
        if isinstance(function, types.FunctionType):
            function.__name__ = name  # which errors begin with
    return module  # type: ignore[no-any-return]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """The package that loads and launches."""
    return str(request.param)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, library: str) -> Iterator[Gpu]:
    made = Gpu()
    monkeypatch.delenv("PTXGEN_DRIVER", raising=False)
    modules = {"cuda.bindings.driver": pretend_bindings(made)}
    if library == "pycuda":
        modules["pycuda.driver"] = pretend_pycuda(made)
    else:
        absent(monkeypatch, "pycuda")
    for name, module in modules.items():
        *parents, leaf = name.split(".")
        for i in range(len(parents)):
            path = ".".join(parents[: i + 1])
            monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
        setattr(sys.modules[".".join(parents)], leaf, module)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cuda, "find_ptxas", lambda: None)
    looked_up = (cuda_launch._launcher, graph._is_capturing, graph._get_context, cuda_bindings._loader)
    for cached in looked_up:
        cached.cache_clear()
    yield made
    for cached in looked_up:
        cached.cache_clear()


@pytest.fixture
def driver(gpu: Gpu) -> Iterator[CudaDriver]:
    made = CudaDriver()
    yield made
    gc.collect()
    made.close()
    assert not gpu.pycuda_stack, "PyCUDA would abort the process"
    assert gpu.retained == 0


@pytest.fixture
def source() -> Source:
    return Source("// text", ENTRIES, TARGET)


def words(driver: CudaDriver, address: int) -> list[int]:
    out = np.zeros(COUNT, np.uint32)
    driver.download(address, out)
    return out.tolist()


# ---- absence ----


def absent(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for known in [n for n in sys.modules if n.split(".")[0] == name.split(".")[0]]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, name, None)


def test_missing_bindings_name_the_extra(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch, "cuda")
    with pytest.raises(UnavailableError, match=r'cuda-bindings.*pip install "ptxgen\[cuda\]"'):
        CudaDriver()


def test_the_library_is_pycuda_where_it_is_installed(driver: CudaDriver, library: str) -> None:
    assert driver.library == library


def test_a_library_can_be_named(gpu: Gpu, library: str) -> None:
    other = CudaDriver(library="cuda-bindings")
    assert other.library == "cuda-bindings"
    other.close()
    assert gpu.retained == 0
    with pytest.raises(InputError, match="library is 'cupy'; it must be pycuda or cuda-bindings"):
        CudaDriver(library="cupy")


def test_a_library_that_is_named_and_missing_is_an_error(
    gpu: Gpu, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PTXGEN_DRIVER names the library of every driver of the process."""
    names = ("auto", "cuda", "cuda:0", "pycuda", "pycuda:0")
    monkeypatch.setenv("PTXGEN_DRIVER", "PyCUDA")
    for name in names:
        if library == "pycuda":
            with closing(open_driver(name)) as opened:
                assert opened.library == "pycuda"
        elif name != "auto":
            with pytest.raises(UnavailableError, match=r"PyCUDA cannot be imported.*-m ptxgen build-pycuda"):
                open_driver(name)
    with closing(open_driver("cuda-bindings")) as opened:
        assert opened.library == "cuda-bindings"
    monkeypatch.setenv("PTXGEN_DRIVER", "cuda-bindings:0")
    with closing(open_driver(settings().driver)) as opened, closing(open_driver("cuda")) as other:
        assert opened.selector == other.selector == "cuda-bindings:0"
    assert gpu.retained == 0


def test_pycuda_without_nvidias_driver_is_an_error_if_it_is_named(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.startswith("pycuda"):
                raise ImportError("libcuda.so.1: cannot open shared object file")

    absent(monkeypatch, "pycuda")
    monkeypatch.delitem(sys.modules, "pycuda")
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(UnavailableError, match=r"PyCUDA cannot be imported: libcuda.*give this process a GPU"):
        open_driver("pycuda")


def test_gpu_tests_of_a_driver_that_is_named_and_missing_fail() -> None:
    """They are skipped only if no driver is asked for."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(root / "tests/gpu/test_im2col.py")]
    done = subprocess.run(
        command, env={**os.environ, "PTXGEN_DRIVER": "cuda:999"}, cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed" in done.stdout
    assert "skipped" not in done.stdout


def test_missing_gpu_is_reported_as_such(gpu: Gpu, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.count = 0
    with pytest.raises(UnavailableError, match="no GPU was found"):
        CudaDriver()
    no_gpu = "no CUDA-capable device is detected"
    if library == "pycuda":

        def fail() -> None:
            raise CudaError(f"cuInit failed: {no_gpu}")

        monkeypatch.setattr(sys.modules["pycuda.driver"], "init", fail)
    else:
        bindings: Any = sys.modules["cuda.bindings.driver"]
        monkeypatch.setattr(bindings, "cuInit", lambda flags: (bindings.CUresult.NO_DEVICE,))
        no_gpu = "NO_DEVICE"
    with pytest.raises(UnavailableError, match=rf"no GPU was found.*{no_gpu}"):
        CudaDriver()


def test_missing_nvidia_driver_is_reported_as_such(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """PyCUDA cannot be imported then, and cuda-bindings fails at its first call."""

    class Finder:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.startswith("pycuda"):
                raise ImportError("libcuda.so.1: cannot open shared object file")

    def init(flags: int) -> None:
        raise RuntimeError("libcuda can only be found via system search")

    for known in [n for n in sys.modules if n.startswith("pycuda")]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.setattr(sys.modules["cuda.bindings.driver"], "cuInit", init)
    with pytest.raises(UnavailableError, match=r"no GPU was found.*libcuda"):
        CudaDriver()
    assert "PyCUDA cannot be imported" in caplog.text


def test_device_index_too_high(gpu: Gpu) -> None:
    with pytest.raises(DeviceError, match="device is 3; this machine has 1"):
        CudaDriver(3)
    assert gpu.retained == 0


# ---- device and memory ----


def test_the_device_is_described_by_its_attributes(driver: CudaDriver) -> None:
    d = driver.device
    assert (d.name, d.target, d.sms, d.clock, d.l2) == ("h200", "sm_90", 132, 1980, 60 << 20)
    assert (d.shared_block, d.shared_sm, d.bandwidth) == (227 << 10, 228 << 10, 4800)
    assert (driver.version, driver.assembler) == ("CUDA 13.0", "CUDA 13.0")


def test_copies_and_fills(driver: CudaDriver) -> None:
    a = driver.allocate(4 * COUNT)
    driver.upload(a, np.arange(COUNT, dtype=np.uint32).reshape(2, -1))
    driver.fill(a, 8, 0xAB)
    driver.fill(a + 13, 2, 0xFF)
    driver.fill(a + 1, 0, 9)
    assert words(driver, a) == [0xABABABAB, 0xABABABAB, 2, 0x00FFFF03, 4, 5, 6, 7]
    driver.release(a)


def test_freed_memory_is_not_accessible(driver: CudaDriver, gpu: Gpu) -> None:
    a = driver.allocate(16)
    driver.release(a)
    assert not gpu.memory
    with pytest.raises(InputError, match="address"):
        driver.release(a)
    with pytest.raises(LaunchError, match="uploading"):
        driver.upload(a, np.zeros(4, np.uint32))


def test_parts_of_an_allocation_are_aligned_and_freed_at_once(driver: CudaDriver, gpu: Gpu) -> None:
    at = driver.allocate_parts([4, 0, 300, 16])
    assert [x - at[0] for x in at] == [0, 256, 512, 1024]
    assert len(gpu.memory) == 1
    driver.upload(at[3], np.arange(4, dtype=np.uint32))
    with pytest.raises(InputError, match="address"):
        driver.release(at[1])
    driver.release(at[0])
    assert not gpu.memory


def test_invalid_copies_are_refused(driver: CudaDriver) -> None:
    a = driver.allocate(64)
    with pytest.raises(ShapeError, match=r"upload.*C-contiguous"):
        driver.upload(a, np.zeros((4, 4), np.float32)[:, :2])
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        driver.download(a, frozen)
    with pytest.raises(LaunchError, match="allocating"):
        driver.allocate(1 << 50)


def test_empty_arrays_are_not_copied(driver: CudaDriver) -> None:
    driver.upload(0, np.zeros((0, 3), np.float32))
    driver.download(0, np.zeros(0, np.float32))
    driver.release(driver.allocate(0))


def test_host_memory_is_zero_and_freed_with_its_last_array(driver: CudaDriver, gpu: Gpu) -> None:
    """In any thread, while a stream is being captured, and not after its context is released."""
    held = [driver.host_memory(48).view(np.uint32)]
    address = driver.allocate(48)
    held[0][:] = 7
    driver.queue_upload(address, held[0])
    assert words(driver, address) == [7] * COUNT
    assert driver.host_memory(5).tolist() == [0] * 5
    hosts: dict[int, Any] = sys.modules["cuda.bindings.driver"].hosts
    gpu.streams[0xBEEF] = None
    gpu.capture(0xBEEF)
    worker = threading.Thread(target=held.clear, daemon=True)
    worker.start()
    join(worker)
    gpu.end(0xBEEF)
    assert not hosts
    if driver.library == "pycuda":
        assert len(gpu.freed_hosts) == 2
    assert not any(gpu.freed_hosts)
    late = driver.host_memory(8)
    driver.close()
    before = len(hosts)
    del late
    assert len(hosts) == before


# ---- loading ----


def test_driver_assembles_without_ptxas(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    kernel = driver.load(source)
    assert gpu.loaded == [b"// text\0"]
    assert (kernel.registers, kernel.spills) == (17, 24)


@pytest.mark.parametrize(
    ("target", "used"), [("sm_90", "sm_90"), ("sm_90a", "sm_90a"), ("sm_80", "sm_90"), ("sm_100", "sm_90")]
)
def test_ptxas_assembles_for_the_device(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, target: str, used: str) -> None:
    asked: list[str] = []

    def assemble(source: Source, target: str) -> Assembled:
        asked.append(target)
        return Assembled(b"cubin", {"increment": 40, "copy": 8}, {"increment": 4, "copy": 0}, "")

    monkeypatch.setattr(cuda, "find_ptxas", lambda: "ptxas")
    monkeypatch.setattr(cuda, "ptxas_version", lambda path: "13.0.88")
    monkeypatch.setattr(cuda, "assemble", assemble)
    driver = CudaDriver()
    kernel = driver.load(Source("// text", ENTRIES, target))
    assert (asked, gpu.loaded) == ([used], [b"cubin"])
    assert (kernel.registers, kernel.spills, driver.assembler) == (40, 4, "ptxas 13.0.88")
    driver.close()


@pytest.mark.parametrize(("dynamic", "asks"), [(0, False), (44 << 10, False), (45 << 10, True), (200 << 10, True)])
def test_dynamic_shared_memory_beyond_the_default_is_requested(
    driver: CudaDriver, gpu: Gpu, dynamic: int, asks: bool
) -> None:
    driver.load(Source("// text", ENTRIES, TARGET, shared=dynamic))  # 4 KiB more are static
    assert gpu.shared == (dict.fromkeys(ENTRIES, dynamic) if asks else {})


def test_driver_errors_become_launch_errors(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    with pytest.raises(AssembleError, match="rejected"):
        driver.load(Source("// text", ("elsewhere",), TARGET))
    with pytest.raises(AssembleError, match="cuFuncSetAttribute"):
        driver.load(Source("// text", ENTRIES, TARGET, shared=1 << 20))
    gpu.reject = "cuModuleLoadDataEx failed: line 3: no such instruction"
    with pytest.raises(AssembleError) as caught:
        driver.load(source)
    assert "line 3" in caught.value.log


def test_any_thread_unloads_kernels(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    held = [driver.load(source), driver.load(source)]
    held.pop()
    worker = threading.Thread(target=held.clear, daemon=True)
    worker.start()
    join(worker)
    gc.collect()
    assert gpu.unloads == ["done", "done"]


# ---- launching ----


def test_launches_use_the_drivers_stream(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    kernel = driver.load(source)
    a, c = driver.allocate(4 * COUNT), driver.allocate(4 * COUNT)
    values: dict[str, int | float] = {"A": a, "C": c}
    driver.upload(a, np.arange(COUNT, dtype=np.uint32))
    driver.launch(kernel, COPY, COPY.pack(values))
    driver.launch(kernel, INCREMENT, INCREMENT.pack(values))
    assert words(driver, c) == list(range(1, COUNT + 1))
    driver.launch(kernel, CLEAR, CLEAR.pack(values))
    assert words(driver, c) == [0] * COUNT
    assert gpu.launched == [("copy", driver.stream), ("increment", driver.stream)]


def test_foreign_streams_are_checked_once(driver: CudaDriver, gpu: Gpu, source: Source, library: str) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    gpu.streams[0xBEEF] = None
    for stream in (0xBEEF, 1, 0xBEEF):
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}), stream)
    assert words(driver, c) == [3] * COUNT
    launched = gpu.launched
    if library == "pycuda":  # a captured launch looked the handle up
        looked_up, *launched = gpu.launched
        assert looked_up[0] == "increment"
        assert looked_up[1] not in (0xBEEF, 1, driver.stream)
    assert launched == [("increment", 0xBEEF), ("increment", 1), ("increment", 0xBEEF)]
    driver.launch(kernel, CLEAR, CLEAR.pack({"C": c}), 0xBEEF)
    odd = Step("", (3, 1, 1), arguments=(("u64", "C"),))
    driver.launch(kernel, odd, odd.pack({"C": c + 1}), 0xBEEF)
    assert words(driver, c) == [0] * COUNT
    assert not gpu.graphs


def test_pdl_kernels_are_launched_with_the_attribute(
    driver: CudaDriver, gpu: Gpu, source: Source, library: str
) -> None:
    """On the driver's own stream too; other kernels are launched without the attribute."""
    kernel, plain = driver.load(replace(source, pdl_entries=source.entries)), driver.load(source)
    c = driver.allocate(4 * COUNT)
    driver.fill(c, 4 * COUNT)
    gpu.streams[0xBEEF] = None
    for loaded in (kernel, plain):
        for stream in (0, 0, 0xBEEF):
            driver.launch(loaded, INCREMENT, INCREMENT.pack({"C": c}), stream)
    assert words(driver, c) == [6] * COUNT
    own = [[]] if library == "pycuda" else [[]] * 3  # of plain launches, those of PyCUDA have no attributes to see
    assert gpu.attributes == [[6], [6], [6], *own]
    looked_up = 3 if library == "pycuda" else 0
    assert sum(name == "increment" for name, _ in gpu.launched) == 6 + looked_up


def test_each_launch_has_its_own_parameters(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    kernel = driver.load(source)
    a, c = driver.allocate(4 * COUNT), driver.allocate(4 * COUNT)
    driver.fill(a, 4 * COUNT)
    driver.fill(c, 4 * COUNT)
    waiting: list[Callable[[], None]] = []
    gpu.streams[0xBEEF] = waiting  # captured: it runs later, as on a busy GPU
    for address in (a, c, c):
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": address}), 0xBEEF)
    for work in waiting:
        work()
    assert (words(driver, a), words(driver, c)) == ([1] * COUNT, [2] * COUNT)


def test_shapes_that_take_turns_are_launched_with_their_own_sizes(driver: CudaDriver, source: Source) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    driver.fill(c, 4 * COUNT)
    wide = replace(INCREMENT, block=(2048, 1, 1))
    for _ in range(2):
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}), 1)
        with pytest.raises(LaunchError):
            driver.launch(kernel, wide, wide.pack({"C": c}), 1)
    assert words(driver, c) == [2] * COUNT


def test_rejected_launch_names_the_kernel(driver: CudaDriver, source: Source) -> None:
    kernel = driver.load(source)
    bad = Step("increment", (1, 1, 1), (2048, 1, 1), 0, INCREMENT.arguments)
    with pytest.raises(LaunchError, match="increment"):
        driver.launch(kernel, bad, bad.pack({"C": 0}))
    with pytest.raises(LaunchError, match=r"cuLaunchKernel.*it is 400 \(INVALID_HANDLE\)"):
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": 0}), 0xDEAD)


@pytest.mark.parametrize("stream", [0, 1])
def test_thread_without_a_context_gets_one(driver: CudaDriver, gpu: Gpu, source: Source, stream: int) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    driver.fill(c, 4 * COUNT)
    left: list[Any] = []

    def work() -> None:
        for step in (INCREMENT, CLEAR, INCREMENT):
            driver.launch(kernel, step, step.pack({"C": c}), stream)
        left.extend([list(gpu.stack), list(gpu.pycuda_stack)])

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    join(worker)
    assert left == [[PRIMARY], []]
    assert words(driver, c) == [1] * COUNT


@pytest.mark.parametrize("stream", [0, 1])
def test_other_contexts_stay_as_they_are(driver: CudaDriver, gpu: Gpu, source: Source, stream: int) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    gpu.stack.append(FOREIGN)
    driver.fill(c, 4 * COUNT)
    for step in (INCREMENT, CLEAR, INCREMENT):
        driver.launch(kernel, step, step.pack({"C": c}), stream)
    assert words(driver, c) == [1] * COUNT
    assert gpu.stack == [PRIMARY, FOREIGN]
    gpu.stack.pop()


def test_lost_context_is_a_launch_error_everywhere(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    kernel = driver.load(source)
    a = driver.allocate(16)
    packed = INCREMENT.pack({"C": 0x10})
    driver.launch(kernel, INCREMENT, packed)
    with pytest.raises(LaunchError, match="700"):
        driver.synchronize()
    acts: list[Callable[[], object]] = [
        lambda: driver.allocate(16),
        lambda: driver.upload(a, np.zeros(4, np.uint32)),
        lambda: driver.download(a, np.zeros(4, np.uint32)),
        lambda: driver.fill(a, 16),
        lambda: driver.load(source),
        lambda: driver.launch(kernel, INCREMENT, packed),
        lambda: driver.launch(kernel, INCREMENT, packed, 1),
        lambda: driver.launch(kernel, CLEAR, CLEAR.pack({"C": a})),
        lambda: driver.time([lambda: driver.launch(kernel, INCREMENT, packed)], Timing(1, 0.1)),
        lambda: driver.elapsed(lambda: None),
    ]
    for act in acts:
        with pytest.raises(LaunchError):
            act()


# ---- several GPUs ----


def test_streams_are_ordered_by_an_event(driver: CudaDriver, gpu: Gpu) -> None:
    driver.order(0xBEEF, driver.stream)
    assert gpu.waits == [(driver.stream, 0xBEEF)]
    assert not sys.modules["cuda.bindings.driver"].events
    driver.wait(driver.stream)
    gpu.sticky = ILLEGAL_ADDRESS
    for act in (lambda: driver.order(1, driver.stream), lambda: driver.wait(1)):
        with pytest.raises(LaunchError, match="700"):
            act()
    gpu.sticky = 0


def test_drivers_of_several_gpus_share_threads_and_streams(gpu: Gpu, source: Source, library: str) -> None:
    """Each driver launches on its own GPU, whichever is current; the current one stays."""
    gpu.count = 2
    drivers = [CudaDriver(0), CudaDriver(1)]
    assert [(d.index, d.selector) for d in drivers] == [(0, f"{library}:0"), (1, f"{library}:1")]
    kernels = [d.load(source) for d in drivers]
    memory = [d.allocate(4 * COUNT) for d in drivers]
    filled: list[int] = []
    for current in (0, 1):
        gpu.stack[:] = [PRIMARY + current]
        assert graph.current_device() == current
        for i, (d, kernel, c) in enumerate(zip(drivers, kernels, memory, strict=True)):
            d.fill(c, 4 * COUNT)
            for stream in (0, 1):
                for step in (INCREMENT, CLEAR, INCREMENT):
                    gpu.on_queue = lambda: filled.append(gpu.stack[-1] - PRIMARY)
                    d.launch(kernel, step, step.pack({"C": c}), stream)
                assert set(filled) == {i}, "a default stream is that of the current context"
                filled.clear()
                assert gpu.stack == [PRIMARY + current]
            gpu.on_queue = lambda: None
            assert words(d, c) == [1] * COUNT
            bad = Step("increment", (1, 1, 1), (2048, 1, 1), 0, INCREMENT.arguments)
            with pytest.raises(LaunchError, match="increment"):
                d.launch(kernel, bad, bad.pack({"C": c}))
            assert gpu.stack == [PRIMARY + current]
            assert not d.capturing(d.stream)
    for d in drivers:
        d.close()
    assert gpu.retained == 0


# ---- graphs of others, forks ----


def test_captures_elsewhere_forbid_nothing(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    """While another stream, or another thread, captures: to allocate, fill, copy, load and free."""
    gpu.streams[0xBEEF] = None
    work = gpu.capture(0xBEEF)

    def use() -> None:
        c = driver.allocate(4 * COUNT)
        driver.fill(c, 4 * COUNT, 1)
        driver.upload(c, np.arange(COUNT, dtype=np.uint32))
        assert words(driver, c) == list(range(COUNT))
        kernel = driver.load(source)
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}), 0xBEEF)
        assert words(driver, c) == list(range(COUNT))
        driver.release(c)
        assert not gpu.relaxed

    use()
    failures: list[BaseException] = []

    def other() -> None:
        try:
            use()
        except BaseException as e:
            failures.append(e)

    worker = threading.Thread(target=other, daemon=True)
    worker.start()
    join(worker)
    assert not failures
    assert len(work) == 2
    gpu.end(0xBEEF)


def test_capture_is_identified_by_its_id(driver: CudaDriver, gpu: Gpu) -> None:
    gpu.streams[0xBEEF] = None
    assert not driver.capturing(0xBEEF)
    with pytest.raises(LaunchError, match="was invalidated"):
        driver.capture(0xBEEF)
    work = gpu.capture(0xBEEF)
    assert driver.capturing(0xBEEF)
    first = driver.capture(0xBEEF)
    assert driver.capture(0xBEEF).id == first.id
    exists = first.watch()
    gpu.end(0xBEEF)
    assert not driver.capturing(0xBEEF)
    assert exists()
    assert exists()
    gpu.destroy(work)
    assert not exists()
    gpu.capture(0xBEEF)
    assert driver.capture(0xBEEF).id != first.id
    gpu.end(0xBEEF)


def test_thread_without_a_context_queries_captures(driver: CudaDriver, gpu: Gpu) -> None:
    gpu.streams[0xBEEF] = None
    gpu.capture(0xBEEF)
    captures: list[bool] = []
    worker = threading.Thread(target=lambda: captures.append(driver.capturing(0xBEEF)), daemon=True)
    worker.start()
    join(worker)
    assert captures == [True]
    gpu.end(0xBEEF)


def test_forked_process_gets_an_error_that_recommends_spawn(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    """Nothing of the parent is released."""
    kernel = driver.load(source)
    c = driver.allocate(64)
    step = INCREMENT.pack({"C": c})
    driver.launch(kernel, INCREMENT, step, 1)
    attempts: list[Callable[[], object]] = [
        lambda: driver.launch(kernel, INCREMENT, step),
        lambda: driver.launch(kernel, INCREMENT, step, 1),
        lambda: driver.allocate(64),
        lambda: driver.release(c),
        lambda: driver.load(source),
        lambda: driver.device,
        lambda: driver.capturing(1),
        lambda: driver.synchronize(),
    ]

    def child() -> str:
        output = []
        for attempt in attempts:
            with pytest.raises(LaunchError) as caught:
                attempt()
            output.append(str(caught.value))
        driver.close()
        unloads, memory = len(gpu.unloads), len(gpu.memory)
        kernel.__del__()
        assert (len(gpu.unloads), len(gpu.memory)) == (unloads, memory)
        assert len(set(output)) == 1
        return output[0]

    message = forked(child)
    assert 'multiprocessing.get_context("spawn")' in message
    assert words(driver, c)[0] == 1


# ---- time ----


def test_times_are_gpu_times_per_call(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    calls = [0, 0, 0]

    def launch(i: int) -> Callable[[], None]:
        def go() -> None:
            calls[i] += 1
            driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))

        return go

    times = driver.time([launch(i) for i in range(3)], Timing(samples=4, target_ms=1.0))
    assert times == pytest.approx([gpu.kernel_us] * 4)
    # besides warm-up and estimate they are called once per node, in rotation: 399 nodes, the multiple of 3 below 400
    assert [n - e for n, e in zip(calls, (2, 1, 1), strict=True)] == [133] * 3
    assert not sys.modules["cuda.bindings.driver"].events
    # a millisecond of 2 us kernels is 500, so one replay of 399 is nearest; one more came first
    assert words(driver, c)[0] == 4 + 399 * (1 + 4)
    assert not gpu.graphs


def test_a_repeated_call_has_the_time_of_one(
    driver: CudaDriver, gpu: Gpu, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    seconds = iter(())
    monkeypatch.setattr(cuda.time, "monotonic", lambda: next(seconds))
    launch = lambda: driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))  # noqa: E731
    reads: list[int] = []
    # 5 ms between two readings: six replays of 400; 20 ms, which are 25, where a reading takes 10
    for gpu.kernel_us, reading, calls in ((2.0, 0.0, 2400), (2.0, 0.01, 10000), (9000.0, 0.0, 1)):
        before, seconds = words(driver, c)[0], iter((0.0, reading, *range(100)))
        reads.clear()
        assert driver.sustain([launch] * 2, 3, lambda: reads.append(1)) == pytest.approx(gpu.kernel_us)
        assert len(reads) == 3
        assert (words(driver, c)[0] - before) // calls >= 3
    assert not gpu.graphs


@pytest.mark.parametrize(("each", "target", "nodes"), [(1000.0, 4.0, 4), (9000.0, 4.0, 3), (0.01, 0.1, 99)])
def test_graph_runs_for_the_requested_time(
    driver: CudaDriver, gpu: Gpu, source: Source, each: float, target: float, nodes: int
) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    gpu.kernel_us = each
    ring = 1 if nodes == 4 else 3
    calls: list[int] = []

    def launch() -> None:
        calls.append(1)
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))

    assert driver.time([launch] * ring, Timing(2, target)) == pytest.approx([each] * 2)
    assert len(calls) == min(ring, 2) + 2 + nodes


@pytest.mark.parametrize(("each", "samples"), [(9e4, 7), (1.1e5, 3)])
def test_slow_launches_have_fewer_samples(
    driver: CudaDriver, gpu: Gpu, source: Source, each: float, samples: int
) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    gpu.kernel_us = each
    launch = lambda: driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))  # noqa: E731
    assert driver.time([launch] * 2, Timing(samples=7)) == pytest.approx([each] * samples)
    assert words(driver, c)[0] == 2 + 2 + 2 * (
        1 + samples
    )  # two launches before the graph of two, and two replays more
    assert len(driver.time([launch], Timing(samples=2))) == 2


@pytest.mark.parametrize("paused", ["first launches", "first replay"])
def test_a_pause_of_the_host_is_not_a_time(driver: CudaDriver, gpu: Gpu, source: Source, paused: str) -> None:
    """A kernel seems slower than the limit, because the host paused: it is timed again, and then as often as others."""
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    calls: list[int] = []
    replays: list[int] = []
    replay = graph.Graph.launch

    def launch() -> None:
        calls.append(1)
        if paused == "first launches" and len(calls) == 2:
            gpu.clock += 5000.0
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))

    def replayed(captured: Any) -> None:
        replays.append(1)
        if paused == "first replay" and len(replays) == 1:
            gpu.clock += 5000.0
        replay(captured)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph.Graph, "launch", replayed)
        times = driver.time([launch], Timing(samples=3, target_ms=0.1, limit_us=3 * gpu.kernel_us))
    assert times == pytest.approx([gpu.kernel_us] * 3)
    gpu.kernel_us *= 1000
    assert driver.time([launch], Timing(samples=3, target_ms=0.1, limit_us=6.0)) == pytest.approx([gpu.kernel_us])


def test_failed_capture_is_cleaned_up(driver: CudaDriver, gpu: Gpu, source: Source) -> None:
    kernel = driver.load(source)
    c = driver.allocate(4 * COUNT)
    calls: list[int] = []

    def launch() -> None:
        calls.append(1)
        if len(calls) > 5:
            raise LaunchError("on purpose")
        driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))

    with pytest.raises(LaunchError, match="on purpose"):
        driver.time([launch], Timing(1, 1.0))
    assert gpu.streams[driver.stream] is None
    assert not gpu.graphs
    driver.launch(kernel, INCREMENT, INCREMENT.pack({"C": c}))
    with pytest.raises(InputError, match="empty"):
        driver.time([], Timing())


# ---- the end ----


def test_close_releases_everything_once(gpu: Gpu) -> None:
    driver = CudaDriver()
    driver.allocate(64)
    before = list(gpu.stack)
    driver.close()
    driver.close()
    assert (gpu.memory, gpu.retained, gpu.stack) == ({}, 0, before)


def test_close_from_another_thread_keeps_its_contexts(gpu: Gpu) -> None:
    driver = CudaDriver()
    stacks: list[list[int]] = []

    def work() -> None:
        gpu.stack.append(FOREIGN)
        driver.close()
        stacks.append(list(gpu.stack))

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    join(worker)
    assert stacks == [[FOREIGN]]


def test_kernels_that_outlive_the_driver_are_dropped_silently(gpu: Gpu, source: Source, library: str) -> None:
    driver = CudaDriver()
    kernel = driver.load(source)
    driver.close()
    del kernel
    gc.collect()
    assert len(gpu.unloads) == (library == "pycuda")  # which knows that there is no context; then nothing is unloaded


def test_launches_of_two_threads_have_buffers_of_their_own(monkeypatch):
    """The second launch begins while the driver reads the parameters of the first one."""
    seen = []

    def call(config: Any, function: Any, parameters: Any, extra: Any) -> int:
        addresses = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p * 5)).contents
        if len(seen) < 1:
            seen.append(b"")
            handle.launch((1, 1, 1), (32, 1, 1), b"other..!", 0, 1)
        seen.append(ctypes.string_at(addresses[1], 8))
        return 0

    monkeypatch.setattr(cuda_launch, "_launcher", lambda: call)
    handle = cuda_launch.KernelHandle(1, 8)
    handle.launch((1, 1, 1), (32, 1, 1), b"first..!", 0, 1)
    handle.launch((1, 1, 1), (32, 1, 1), b"third..!", 0, 1)
    assert seen == [b"", b"other..!", b"first..!", b"third..!"]
    assert len(handle._buffers) == 2
