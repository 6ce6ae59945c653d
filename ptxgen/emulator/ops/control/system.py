"""The system calls of device code: vprintf prints, __assertfail is a fault, malloc and free allocate."""

from __future__ import annotations

import re
import struct
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import (
    GLOBAL_BASE,
    LOCAL_END,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_BASE,
    SHARED_WINDOW,
    WINDOW,
)
from ptxgen.emulator.memory.device_heap import DeviceHeap
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import flatnonzero
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault, spread
from ptxgen.errors import Fault, OutOfBoundsFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?"
    r"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<type>[a-zA-Z%])"
)


def memory_at(c: WarpBatch, ins: Instruction, lane: int, address: int) -> Array:
    """The bytes from a generic address of one lane to the end of the allocation or state space that contains the
    address."""
    engine, wave = c.wave.engine, c.wave
    base, at = address // WINDOW * WINDOW, address % WINDOW
    data: Array = np.zeros(0, np.uint8)
    if base == SHARED_WINDOW:
        at &= (1 << 24) - 1
        first = int(c.shared_base[lane])
        data = wave.shared[first + at : first + wave.end] if at >= SHARED_BASE else data
    elif LOCAL_WINDOW <= address < LOCAL_END:
        size, at = wave.program.local_size, address - int(c.local_windows()[lane])
        if "local" in c.state and 0 <= at < size:
            data = c.state["local"][1][lane * size + at : (lane + 1) * size]
    elif base == PARAM_WINDOW:
        data = engine.param_bytes[at:]
    else:
        extent = engine.memory.extent(address)
        if extent is not None:
            data = engine.memory.buffer[address - GLOBAL_BASE : extent[1] - GLOBAL_BASE]
    if not len(data):
        raise fault(OutOfBoundsFault, f"{address:#x} is not an address of any memory", c, ins, lane, address)
    return data


def string_at(c: WarpBatch, ins: Instruction, lane: int, address: int) -> str:
    """The zero-terminated string at a generic address."""
    data = memory_at(c, ins, lane, address)
    ends = flatnonzero(data == 0)
    if not len(ends):
        raise fault(OutOfBoundsFault, "a string without a terminating zero", c, ins, lane, address)
    return data[: int(ends[0])].tobytes().decode("utf-8", "replace")


class Arguments:
    """The argument buffer of vprintf, in which each argument is at a multiple of its size."""

    def __init__(self, c: WarpBatch, ins: Instruction, lane: int, address: int) -> None:
        self.c, self.ins, self.lane, self.address = c, ins, lane, address
        self.at = self.count = 0

    def take(self, size: int, code: str) -> Any:
        """The next argument; ``code``: its format for ``struct``."""
        self.at = -(-self.at // size) * size
        self.count += 1
        data = memory_at(self.c, self.ins, self.lane, self.address + self.at)[:size].tobytes()
        if len(data) < size:
            raise fault(
                OutOfBoundsFault,
                f"argument {self.count} of printf is outside the argument buffer",
                self.c,
                self.ins,
                self.lane,
                self.address + self.at,
            )
        self.at += size
        return struct.unpack(code, data)[0]

    def convert(self, match: re.Match[str]) -> str:
        """The text of one conversion of the format, as C prints it."""
        conversion, length = match["type"], match["length"] or ""
        if conversion == "%":
            return "%"
        flags, width, precision = match["flags"], match["width"] or "", match["precision"]
        if width == "*":
            width = str(self.take(4, "<i"))
        if precision == "*":
            precision = str(max(self.take(4, "<i"), 0))
        style = f"%{flags}{width}" + ("" if precision is None else f".{precision}")
        if conversion in "diouxX":
            value = self.take(*((8, "<q") if length in ("ll", "l", "j", "z", "t") else (4, "<i")))
            bits = {"hh": 8, "h": 16, "": 32}.get(length, 64)
            value &= (1 << bits) - 1
            if conversion in "di" and value >> (bits - 1):
                value -= 1 << bits
            return str((style + ("d" if conversion == "u" else conversion)) % value)
        if conversion in "fFeEgG":
            return str((style + conversion) % self.take(8, "<d"))
        if conversion in "aA":
            text = re.sub(r"\.?0*p", "p", float(self.take(8, "<d")).hex())
            return f"%{flags}{width}s" % (text.upper() if conversion == "A" else text)
        if conversion == "c":
            return (style + "c") % chr(self.take(4, "<i") & 255)
        if conversion == "s":
            return (style + "s") % string_at(self.c, self.ins, self.lane, self.take(8, "<Q"))
        if conversion == "p":
            return f"%{flags}{width}s" % hex(self.take(8, "<Q"))
        return match.group()


@instruction("*vprintf")
def vprintf(b: Builder, ins: Instruction) -> Step:
    """vprintf with the operands (result, format, arguments): prints to standard output, lanes in ascending order; the
    result is the number of arguments."""
    dst = b.dst(ins.operands[0], "u32")
    views = [b.src(op, "u64") for op in ins.operands[1:]]

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(c.live() if m is None else m)
        formats, buffers = (spread(c.v[view], c.n)[lanes].tolist() for view in views)
        out = []
        for lane, text, buffer in zip(lanes.tolist(), formats, buffers, strict=True):
            arguments = Arguments(c, ins, lane, buffer)
            out.append(_CONVERSION.sub(arguments.convert, string_at(c, ins, lane, text)))
            c.v[dst][lane] = arguments.count
        sys.stdout.write("".join(out))

    return step


@instruction("*assertfail")
def assertfail(b: Builder, ins: Instruction) -> Step:
    """__assertfail. The operands are the expression, its file, line and function, and the bytes of a character."""
    expression, file, line, function = (
        b.src(op, ptx_type) for op, ptx_type in zip(ins.operands, ("u64", "u64", "u32", "u64"), strict=False)
    )

    def step(c: WarpBatch, m: Mask) -> None:
        lane = int(np.argmax(c.live() if m is None else m))
        number = int(spread(c.v[line], c.n)[lane])
        condition, path, name = (
            string_at(c, ins, lane, int(spread(c.v[v], c.n)[lane])) for v in (expression, file, function)
        )
        raise fault(Fault, f"{path}:{number}: {name}: assertion `{condition}` failed", c, ins, lane)

    return step


def heap(c: WarpBatch) -> DeviceHeap:
    """The heap of the device, which exists since the launch began."""
    device_heap = c.wave.engine.heap
    assert device_heap is not None
    return device_heap


@instruction("*malloc")
def malloc(b: Builder, ins: Instruction) -> Step:
    """malloc with the operands (result, bytes); the result is the address of an allocation, or 0 if the bytes do not
    fit."""
    dst, size = b.dst(ins.operands[0], "u64"), b.src(ins.operands[1], "u64")

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        sizes = spread(c.v[size], c.n)[lanes].tolist()
        c.v[dst][lanes] = [heap(c).malloc(n, ins.line) for n in sizes]
        c.wave.engine.progress += 1

    return step


@instruction("*free")
def free(b: Builder, ins: Instruction) -> Step:
    """free, whose operand is the address of an allocation, or 0."""
    pointer = b.src(ins.operands[0], "u64")

    def step(c: WarpBatch, m: Mask) -> None:
        lanes = flatnonzero(active(c, m))
        addresses: dict[int, None] = {}
        # all lanes are checked before memory is freed: a launch that goes on after a fault repeats the call without
        # that lane
        for lane, address in zip(lanes.tolist(), spread(c.v[pointer], c.n)[lanes].tolist(), strict=True):
            wrong = heap(c).refusal(address) if address else ""
            if address in addresses:
                wrong = f"two lanes free {c.wave.engine.memory.names[address]}"
            if wrong:
                raise fault(Fault, wrong, c, ins, lane, address)
            if address:
                addresses[address] = None
        for address in addresses:
            heap(c).free(address, ins.line)
        for wave in c.wave.engine.waves():
            for batch in wave.batches:
                for info in batch.addresses:
                    if info is not None:  # the allocation that contained the addresses may no longer exist
                        info.start, info.end = 1, 0

    return step
