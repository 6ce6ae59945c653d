"""Names of the memory at an address, for messages: the variable or the buffer, and the element of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from ptxgen.emulator.ptx.demangle import demangled
from ptxgen.emulator.ptx.syntax import SIZES, Instruction, Variable, Vec

#: the text of a buffer or a variable with type and extents, for example "x, f32[4x8]"
_TYPED = re.compile(r"(.*), (\w+)(?:\[([\dx]*)\])?")


def readable(name: str, entry: str) -> str:
    """The C++ name of a variable or a parameter, without the prefix that names the kernel ``entry``."""
    if entry.startswith("_Z") and name.startswith(f"{entry}_param_"):
        return f"parameter {name.removeprefix(f'{entry}_param_')}"
    return demangled(name).removeprefix(f"{demangled(entry)}::")


def typed(v: Variable) -> str:
    """The name of a variable with its type, for example "table, u16[5]"."""
    count = v.size // SIZES[v.type]
    return f"{demangled(v.name)}, {v.type}" + (f"[{count}]" if count != 1 else "")


def access_size(ins: Instruction) -> tuple[int, int]:
    """The pair (bytes, elements) of the access of an instruction to memory; (1, 1) if its types do not tell."""
    size = SIZES[ins.types[-1]] if ins.types else 1
    count = max((len(op.items) for op in ins.operands if isinstance(op, Vec)), default=1)
    return (size or 1, count if ins.op in ("ld", "st", "ldu") else 1)


def element(name: str, offset: int, size: int, count: int) -> str:
    """``count`` elements of ``size`` bytes at an offset of a buffer; ``name``: for example "x, f32[4x8]"."""
    match = _TYPED.fullmatch(name)
    extents = [int(n) for n in (match[3] or "").split("x") if n] if match else []
    unit = SIZES.get(match[2], 0) if match else 0
    if match and unit == size and offset % unit == 0 and (match[2] != "b8" or not extents):
        if not extents:
            return name
        first, last = offset // unit, offset // unit + count - 1
        which = f"element {index(first, extents)}"
        return f"{which if first == last else f'elements {index(first, extents)} to {index(last, extents)}'} of {name}"
    return f"{bytes_of(offset, size * count)} of {name}"


def index(number: int, extents: list[int]) -> str:
    """The indices of element ``number`` of an array with these extents, as text: 5, or [1][2]."""
    if len(extents) == 1:
        return str(number)
    out = []
    for i in range(len(extents)):
        inner = math.prod(extents[i + 1 :])
        out.append(f"[{number // inner}]")
        number %= inner
    return "".join(out)


def bytes_of(offset: int, size: int) -> str:
    return f"bytes {offset} to {offset + size - 1}" if size > 1 else f"byte {offset}"


def shared_element(variables: Iterable[Variable], entry: str, end: int, address: int, size: int, count: int) -> str:
    """The elements of the variable at an address of shared memory, in the form of ``element``; empty if no variable is
    there. ``end``: the end of shared memory.

    nvcc declares arrays as bytes with the alignment of their elements; an access of that size then counts as one
    element.
    """
    for v in variables:
        past = end if v.extern else v.address + v.size
        if not v.address <= address < past:
            continue
        name, offset, length = readable(v.name, entry), address - v.address, past - v.address
        if v.type != "b8":
            extent = length // SIZES[v.type]
            return element(f"{name}, {v.type}" + (f"[{extent}]" if extent != 1 else ""), offset, size, count)
        where = f"{bytes_of(offset, size * count)} of {length}"
        if size == v.align > 1 and count == 1 and offset % size == 0 and length > size:
            return f"element {offset // size} of {name} ({where})"
        return f"{name} ({where})"
    return ""


def past_shared(variables: Iterable[Variable], entry: str, address: int, end: int) -> str:
    """The position of an address past the shared memory of a block, relative to its last variable."""
    last = max(variables, key=lambda v: (v.address, v.size), default=None)
    if last is None or address < end:
        return ""
    return f", {address - end} bytes past the end of {readable(last.name, entry)}"
