"""The emulated device: memory, modules, launches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ptxgen.emulator.engine.arguments import TYPES
from ptxgen.emulator.engine.cluster_size import extents
from ptxgen.emulator.engine.engine import Engine
from ptxgen.emulator.engine.module import Entry, Module
from ptxgen.emulator.memory.address_map import SHARED_LIMIT
from ptxgen.emulator.memory.device_heap import DeviceHeap
from ptxgen.emulator.memory.global_memory import GlobalMemory
from ptxgen.emulator.memory.tensormap import TensorMap
from ptxgen.emulator.memory.texture import Texture
from ptxgen.emulator.memory.variables import readable
from ptxgen.emulator.options import Options
from ptxgen.emulator.ptx.demangle import demangled
from ptxgen.emulator.stats import Stats
from ptxgen.emulator.sync.shadow import Shadow
from ptxgen.errors import InputError

Dims = tuple[int, int, int]


def dims(name: str, value: Any, limits: Dims) -> Dims:
    """Three extents from ``value``; missing extents are 1. InputError: an extent exceeds ``limits``."""
    try:
        extents = [int(x) for x in (value if isinstance(value, (tuple, list)) else (value,))]
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; it must be one to three integers") from None
    if not 1 <= len(extents) <= 3:
        raise InputError(f"{name} is {value!r}; it must be one to three integers")
    extents += [1] * (3 - len(extents))
    for x, limit, axis in zip(extents, limits, "xyz", strict=True):
        if not 1 <= x <= limit:
            raise InputError(f"{name}.{axis} is {x}; it must be 1 to {limit}")
    return extents[0], extents[1], extents[2]


def type_of(dtype: np.dtype[Any]) -> str:
    """The PTX type of the elements of an array, or the NumPy name if PTX has no such type."""
    return next((name for name, known in TYPES.items() if known == dtype), dtype.name)


class Machine:
    """Device memory and the engine that runs kernels on it.

    The keyword arguments are the fields of ``Options``.
    """

    def __init__(self, **options: Any) -> None:
        known = [field.name for field in fields(Options)]
        for name in options:
            if name not in known:
                raise InputError(f"{name} is no option of the emulated device; the options are {', '.join(known)}")
        self.options = Options(**options)
        self.memory = GlobalMemory()
        #: the heap of malloc in device code; None before the first launch of a kernel that calls malloc
        self.heap: DeviceHeap | None = None
        #: the race checks of earlier launches that a dependent launch may overlap with
        self.running: list[Shadow] = []

    # ---- memory

    def alloc(self, nbytes: int) -> int:
        """The address of a new allocation of ``nbytes`` zero bytes."""
        return self.memory.alloc(int(nbytes))

    def free(self, address: int) -> None:
        """Releases an allocation."""
        self.memory.free(int(address))

    def write(self, address: int, buffer: Any) -> None:
        """Copies bytes to the device. InputError: they do not fit in one allocation."""
        self.running = []
        if isinstance(buffer, np.ndarray):
            data = np.frombuffer(np.ascontiguousarray(buffer).tobytes(), np.uint8)
        else:
            data = np.frombuffer(buffer, np.uint8)
        self.memory.buffer[self.memory.span(int(address), len(data))] = data

    def read(self, address: int, nbytes: int) -> bytes:
        """Copies bytes from the device."""
        self.running = []
        return self.memory.buffer[self.memory.span(int(address), int(nbytes))].tobytes()

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Sets bytes on the device."""
        self.running = []
        self.memory.buffer[self.memory.span(int(address), int(nbytes))] = byte

    def texture(self, description: Texture, address: int | None = None, handle: int | None = None) -> int:
        """The handle of a new texture or surface that reads memory at ``address`` (default: the base of
        ``description``).

        ``handle``: the address of a .texref or .surfref variable, which then denotes the texture.
        """
        base = int(description.base) if address is None else address
        extent = self.memory.extent(base)
        if extent is None or base + description.nbytes > extent[1]:
            raise InputError(f"the texture of {description.nbytes} bytes is outside the allocation at {base:#x}")
        handle = self.memory.reserve(0) if handle is None else handle
        self.memory.textures[handle] = replace(description, base=base)
        return handle

    # ---- kernels

    def load(self, ptx: str) -> Module:
        """The module of a PTX text. Raises ParseError or UnsupportedError."""
        return Module(ptx, self.memory)

    def launch(
        self,
        module: Module,
        entry: str,
        grid: Any,
        block: Any,
        params: bytes,
        shared_bytes: int = 0,
        cluster: Any = None,
        dependent: bool = False,
    ) -> Stats:
        """Runs a kernel to its end.

        ``dependent``: the kernel may begin before those launched ahead of it have ended (programmatic dependent
        launch); with ``global_races``, an access to memory that they write, before griddepcontrol.wait, is a fault.
        ``params``: the parameter buffer (``Entry.parameters`` has the offsets); ``cluster``: the cluster size, if the
        kernel declares none. InputError: an argument breaks a rule. Fault: the kernel has undefined behaviour.
        """
        kernel: Entry = module[entry]
        entry = kernel.name
        grid = dims("grid", grid, (2**31 - 1, 65535, 65535))
        block = dims("block", block, (1024, 1024, 64))
        threads = block[0] * block[1] * block[2]
        if threads > 1024:
            raise InputError(f"block has {threads} threads; it must have at most 1024")
        limit = kernel.function.directives.get("maxntid")
        if limit is not None and threads > int(np.prod(limit)):
            raise InputError(
                f"block has {threads} threads; it must have at most {int(np.prod(limit))}, .maxntid of {entry}"
            )
        wanted = kernel.function.directives.get("reqntid")
        if wanted is not None and (*wanted, 1, 1)[:3] != block:
            raise InputError(f"block is {block}; it must be {wanted}, .reqntid of {entry}")
        cluster = extents(kernel.function.directives, cluster, entry)
        if "blocksareclusters" in kernel.function.directives:
            grid = (grid[0] * cluster[0], grid[1] * cluster[1], grid[2] * cluster[2])
        for g, k, axis in zip(grid, cluster, "xyz", strict=True):
            if g % k:
                raise InputError(f"grid.{axis} is {g}; it must be a multiple of the cluster size {k}")
        if len(params) < kernel.param_bytes:
            raise InputError(
                f"params has {len(params)} bytes; it must have {kernel.param_bytes}, the parameters of {entry}"
            )
        if shared_bytes < 0 or kernel.shared + shared_bytes > SHARED_LIMIT:
            raise InputError(
                f"shared_bytes is {shared_bytes}; with {kernel.shared} static bytes the limit is {SHARED_LIMIT}"
            )
        pointers: dict[int, str] = {}
        self.memory.pointers = pointers
        self.memory.null_pointers = []
        for p in kernel.parameters:
            if p.size == 8 and not p.array:
                value = int.from_bytes(params[p.offset : p.offset + 8], "little")
                name = readable(p.name, kernel.name)
                if not value:
                    self.memory.null_pointers.append(name)
                extent = self.memory.extent(value)
                if extent is not None:
                    pointers.setdefault(extent[0], name)
        program = kernel.program(self.options, cluster != (1, 1, 1))
        if program.allocates and self.heap is None:
            self.heap = DeviceHeap(self.memory)
        engine = Engine(
            program,
            self.memory,
            self.options,
            grid,
            block,
            bytes(params),
            shared_bytes,
            kernel.shared + shared_bytes,
            cluster,
            self.running if dependent else [],
            self.heap if program.allocates else None,
        )
        running, self.running = self.running, []
        stats = engine.run()
        shadow, engine.shadow = engine.shadow, None  # without this cycle, its arrays are freed with it
        if shadow is not None:
            self.running = [shadow]
            if dependent and not shadow.waits:
                self.running += running
        return stats


#: digest of a PTX text -> its module with compiled kernels, for the last texts that ``launch`` has run
_LOADED: dict[bytes, Module] = {}
MOST_LOADED = 8


def launch(
    ptx: str,
    entry: str,
    grid: Any,
    block: Any,
    args: Sequence[Any],
    shared_bytes: int = 0,
    cluster: Any = None,
    variables: Mapping[str, np.ndarray[Any, Any] | Texture] | None = None,
    **options: Any,
) -> Stats:
    """Runs one kernel of a PTX text.

    ``entry``: the symbol of the kernel, or its C++ name, with or without parameters and template arguments. ``args``:
    one value per parameter. A NumPy array is a device buffer, updated in place unless it is read-only. A NumPy scalar
    is passed by value; so are 0-d or 1-d arrays of void or uint8, and tensor maps, to parameters that are .b8 arrays. A
    texture is passed as a handle. ``cluster``: the cluster size, unless the kernel declares it. ``variables``: contents
    of .global (also managed) and .const variables by name; others have their initial values. An array has the size of
    its variable, and is updated in place unless it is read-only. A .texref or .surfref variable takes a texture.

    InputError: an argument breaks a rule. Fault: the kernel has undefined behaviour. Faults: it has, and the option
    ``faults`` lets the launch go on.
    """
    machine = Machine(**options)
    digest = hashlib.sha256(ptx.encode()).digest()
    module = _LOADED.pop(digest, None)
    if module is None or not module.move(machine.memory):
        machine = Machine(**options)
        module = machine.load(ptx)
    kernel = module[entry]
    entry = kernel.name
    if len(args) != len(kernel.parameters):
        listed = ", ".join(f".{p.type} {readable(p.name, entry)}" for p in kernel.parameters)
        raise InputError(
            f"args has {len(args)} elements; it must have {len(kernel.parameters)}, the parameters of "
            f"{demangled(entry)}" + (f": {listed}" if listed else "")
        )
    params = bytearray(kernel.param_bytes)
    buffers: list[tuple[np.ndarray[Any, Any], int]] = []

    names = machine.memory.names

    def buffer(array: np.ndarray[Any, Any], name: str, parameter: str) -> int:
        """The address of a device copy of an array; ``name``, ``parameter``: its variable or parameter, for
        messages."""
        if not array.flags.c_contiguous:
            raise InputError(f"{name} has strides {array.strides}; it must be C-contiguous")
        for known, address in buffers:
            if known is array:
                parameters, _, type_and_shape = names[address].rpartition(", ")
                names[address] = f"{parameters} and {parameter}, {type_and_shape}"
                return address
        address = machine.alloc(array.nbytes)
        machine.write(address, array)
        buffers.append((array, address))
        names[address] = f"{parameter}, {type_of(array.dtype)}[{'x'.join(map(str, array.shape))}]"
        if not array.flags.writeable:
            machine.memory.readonly.add(address)
        return address

    def handle(value: Texture, name: str, parameter: str, variable: int | None = None) -> int:
        """The handle of a texture or surface."""
        base = value.base
        at = buffer(base, f"the array of {name}", f"the array of {parameter}") if isinstance(base, np.ndarray) else None
        return machine.texture(value, at, variable)

    for i, (value, p) in enumerate(zip(args, kernel.parameters, strict=True)):
        parameter = readable(p.name, entry)
        argument = f"argument {i} ({parameter}, .{p.type})"
        if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
            raise InputError(f"{argument} is a Python {type(value).__name__}; it must be a NumPy scalar")
        if p.array and isinstance(value, (np.ndarray, np.void)):
            data = value.tobytes()
        elif isinstance(value, TensorMap):
            base = value.base
            tensor = f"the tensor of argument {i}"
            data = value.encode(
                buffer(base, tensor, f"the tensor of {parameter}") if isinstance(base, np.ndarray) else None
            )
        elif isinstance(value, Texture):
            data = handle(value, argument, parameter).to_bytes(8, "little")
        elif isinstance(value, np.ndarray):
            if p.size != 8:
                raise InputError(f"{argument} is an array; it must be a NumPy scalar, as the parameter is no pointer")
            data = buffer(value, argument, parameter).to_bytes(8, "little")
        elif isinstance(value, np.generic):
            data = value.tobytes()
        else:
            raise InputError(f"{argument} is a {type(value).__name__}; it must be a NumPy array or scalar")
        if len(data) != p.size:
            raise InputError(f"{argument} has {len(data)} bytes; it must have {p.size}")
        params[p.offset : p.offset + p.size] = data
    for name, array in (variables or {}).items():
        variable = module.variable(name)
        if isinstance(array, Texture):
            handle(array, f"variable {name}", name, variable.address)
            continue
        if not array.flags.c_contiguous or array.nbytes != variable.size:
            raise InputError(
                f"variable {name} is an array of {array.nbytes} bytes; it must be C-contiguous and have {variable.size}"
            )
        machine.write(variable.address, array)
        buffers.append((array, variable.address))
    try:
        stats = machine.launch(module, entry, grid, block, bytes(params), shared_bytes, cluster)
        if len(_LOADED) >= MOST_LOADED:
            _LOADED.pop(next(iter(_LOADED)))
        if len(kernel.programs) <= MOST_LOADED:  # each combination of options has a program
            _LOADED[digest] = module
        return stats
    finally:
        for array, address in buffers:
            if array.flags.writeable:
                raw = machine.memory.buffer[machine.memory.span(address, array.nbytes)]
                array.reshape(-1).view(np.uint8)[:] = raw
