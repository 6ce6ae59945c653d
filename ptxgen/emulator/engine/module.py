"""A loaded PTX text: the addresses of its variables, and its kernels, compiled at their first launch."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ptxgen.emulator.engine.jit_blocks import JitCompiler
from ptxgen.emulator.engine.program import Program
from ptxgen.emulator.memory.address_map import SHARED_BASE, SHARED_LIMIT
from ptxgen.emulator.memory.global_memory import GlobalMemory
from ptxgen.emulator.memory.variables import typed
from ptxgen.emulator.options import Options
from ptxgen.emulator.ptx.demangle import demangled, named
from ptxgen.emulator.ptx.dtypes import DTYPES
from ptxgen.emulator.ptx.flatten import flatten, function_address
from ptxgen.emulator.ptx.parameters import variables
from ptxgen.emulator.ptx.parser import parse
from ptxgen.emulator.ptx.syntax import SIZES, Address, Flt, Function, Imm, Parameter, Reg, Variable
from ptxgen.errors import InputError, ParseError, UnsupportedError

#: largest size in bytes of a variable
LARGEST = 1 << 32


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pauses the garbage collector while many lasting objects are made: collections would take half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Entry:
    """One kernel of a module.

    ``parameters``: in order, each with name, type, size and offset in the parameter buffer. ``maxntid``: the declared
    block size or None. ``shared``: the bytes of shared memory that the kernel declares.
    """

    def __init__(self, module: Module, function: Function) -> None:
        self.unit, self.variables, self.function = module.unit, module.variables, function
        self.failure: UnsupportedError | None = None
        try:
            self.function = flatten(module.unit, function)
        except UnsupportedError as error:
            self.failure = error
        self.name = function.name
        self.parameters: list[Parameter] = function.params
        size = function.directives.get("maxntid") or function.directives.get("reqntid")
        self.maxntid: tuple[int, ...] | None = size
        self.param_bytes = max((p.offset + p.size for p in function.params), default=0)
        self.shared, self.local = self.layout()
        if self.shared > SHARED_LIMIT:
            raise ParseError(
                f"line {function.line}: {demangled(self.name)} has {self.shared} bytes of shared memory; "
                f"it must have at most {SHARED_LIMIT}"
            )
        self.programs: dict[tuple[Options, bool], Program] = {}

    def layout(self) -> tuple[int, int]:
        """Assigns the addresses of shared and local variables; returns the pair (bytes of shared memory, bytes of local
        memory).

        A kernel has those shared variables of the module that its code, or a function that it calls, names.
        """
        named = {
            id(v)
            for ins in self.function.code
            for op in ins.operands
            if not isinstance(op, (Reg, Imm))
            for v in variables(op)
        }
        shared = [v for v in self.variables if v.space == "shared" and id(v) in named]
        shared += [v for v in self.function.variables if v.space == "shared"]
        self.shared_variables = shared
        at = SHARED_BASE
        for v in shared:
            if not v.extern:
                at = -(-at // v.align) * v.align
                v.address = at
                at += v.size
        for v in shared:
            if v.extern:
                at = -(-at // v.align) * v.align
        for v in shared:
            if v.extern:
                v.address = at
        local = 0
        for v in self.function.variables:
            if v.space == "local":
                local = -(-local // v.align) * v.align
                v.address = local
                local += v.size
        return at - SHARED_BASE, -(-local // 16) * 16

    @collection_paused()
    def program(self, options: Options, clustered: bool = False) -> Program:
        program = self.programs.get((options, clustered))
        if program is None:
            if self.failure is not None:
                raise self.failure
            self.layout()
            program = Program(self.unit, self.function, options, clustered)
            program.local_size = self.local
            program.shared_variables = self.shared_variables
            if options.engine != "numpy" and options.faults == 1:
                program.jit_compiler = JitCompiler(program)
            self.programs[options, clustered] = program
        return program


class Module:
    """A loaded PTX text. ``variables`` are in device memory, ``entries`` are its kernels by name."""

    @collection_paused()
    def __init__(self, text: str, memory: GlobalMemory) -> None:
        self.unit = parse(text)
        self.variables = self.unit.variables
        self.target = self.unit.target
        self.version = self.unit.version
        functions = self.unit.functions.values()
        self.stored = [v for v in self.variables if v.space in ("global", "const")]
        self.stored += [v for f in functions for v in f.variables if v.space in ("global", "const")]
        self.symbols = {v.name: v for v in self.stored}
        for v in self.stored:
            if v.size > LARGEST:
                raise UnsupportedError(
                    f"line {v.line}: {demangled(v.name)} has {v.size} bytes; at most {LARGEST} are emulated"
                )
            v.address = memory.alloc(v.size)
        self.addresses = [v.address for v in self.stored]
        self.initialise(memory)
        self.entries = {f.name: Entry(self, f) for f in functions if f.entry}

    def move(self, memory: GlobalMemory) -> bool:
        """Allocates the variables in another memory. Returns False if their addresses differ from those in compiled
        kernels."""
        if [memory.alloc(v.size) for v in self.stored] != self.addresses:
            return False
        self.initialise(memory)
        return True

    def initialise(self, memory: GlobalMemory) -> None:
        """Gives the allocations of the variables their names and initial values."""
        for v in self.stored:
            memory.names[v.address] = typed(v)
        for v in self.stored:
            if v.init is not None:
                data = self.initial(v)
                span = memory.span(v.address, v.size)
                memory.buffer[span][: len(data)] = np.frombuffer(data, np.uint8)
            if v.space == "const":
                memory.readonly.add(v.address)
                memory.constants[v.address] = v.address + v.size

    def initial(self, v: Variable) -> bytes:
        """The initial bytes of a variable."""
        dtype: Any = DTYPES[v.type]
        out = b""
        for value in v.init or []:
            if isinstance(value, Flt):
                size = SIZES[v.type]
                if size == value.size:
                    out += value.bits.to_bytes(size, "little")
                else:
                    number = (
                        np.array(value.bits, "<u8").view("<f8")
                        if value.size == 8
                        else np.array(value.bits, "<u4").view("<f4")
                    )
                    out += number.astype(dtype).tobytes()
            elif isinstance(value, Address):
                size = SIZES[v.type]
                address = self.address(v, value) >> value.shift & (value.mask or (1 << 8 * size) - 1)
                out += address.to_bytes(size, "little")
            elif isinstance(value, int):
                bits = 8 * SIZES[v.type]
                out += (value & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
        if len(out) > v.size:
            raise ParseError(f"line {v.line}: {v.name} has more initial values than elements")
        return out

    def variable(self, name: str) -> Variable:
        """The .global or .const variable with this name, its ``address``, and its ``size`` in bytes. InputError: there
        is none."""
        symbols = named(self.symbols, name)
        if len(symbols) != 1:
            known = ", ".join(sorted(map(demangled, symbols or self.symbols))) or "none"
            raise InputError(f"no variable {name!r}; there are: {known}")
        return self.symbols[symbols[0]]

    def address(self, v: Variable, value: Address) -> int:
        """The number that an address as initial value of the variable ``v`` denotes."""
        if value.name in self.unit.functions:
            if value.generic or value.offset:
                raise ParseError(
                    f"line {v.line}: the initialiser of {v.name} computes with the address of {value.name}; "
                    "that of a function must stand alone"
                )
            return function_address(self.unit, value.name)
        if value.name not in self.symbols:
            raise ParseError(
                f"line {v.line}: the initialiser of {v.name} has the address of {value.name}; "
                "it must be a .global or .const variable or a function"
            )
        return (self.symbols[value.name].address + value.offset) & 0xFFFFFFFFFFFFFFFF

    def __getitem__(self, name: str) -> Entry:
        symbols = named(self.entries, name)
        if len(symbols) != 1:
            names = "; ".join(map(demangled, symbols or sorted(self.entries))) or "there is none"
            raise InputError(f"entry is {name!r}; it must name one of the kernels of the text: {names}")
        return self.entries[symbols[0]]
