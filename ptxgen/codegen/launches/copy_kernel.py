"""The kernel that makes packed copies of operands. The description of a copy (``lowering.packed_copy``) determines the
method by which threads copy; ``templates/copy/pack.mako`` has the code of each method.

* ``Gather``, for copies with padding of zeros: a thread loads the elements of 16 bytes of the copy one by one, except
those outside the operand.
* ``Shift``, if the elements of a row are adjacent in the operand, at any alignment, and a row number has one digit: a
thread loads the two aligned chunks that hold 16 bytes of the copy, and shifts them.
* ``Exchange``, for all other copies: a block loads adjacent elements of the operand, and exchanges words through
shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

from ptxgen.codegen.config.config import Config, packs
from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Step
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW, PackedCopy

CHUNK = 16  #: bytes of a chunk, which a thread stores to the copy at once
WORD = 4  #: bytes of a register
ROUNDS = 4  #: chunks that a thread shifts in copies of more than LARGE chunks, so that many loads are in flight
LARGE = 1 << 18
TILE = 2048  #: words that a block exchanges
WORDS = (8, 16, 32)  #: the possible numbers of words per row in a block's exchange


class CopyCode:
    """The code of the copy kernel for ``copy``, with elements of ``size`` bytes. The same code makes every copy that
    differs only in numbers. Names that begin with % are registers."""

    THREADS, CHUNK, WORD, ROW, ROUNDS = AUX_KERNEL_THREADS, CHUNK, WORD, ROW, ROUNDS
    method = title = ""
    tiles: list[Tile]  #: registers that hold elements
    shared = 0  #: bytes of shared memory of a block

    def __init__(self, copy: PackedCopy, size: int) -> None:
        self.copy, self.size, self.contiguous = copy, size, copy.contiguous
        self.chunk_elements = CHUNK // size
        last = len(copy.digits) - 1
        #: the registers of the digits of a row number; the first digit is the last quotient
        self.digits = ["%quotient1" if last else "%row", *(f"%digit{n}" for n in range(1, last + 1))]
        numbers = ["%row", *(f"%quotient{n}" for n in range(last, 0, -1))]
        #: one division per digit, the last digit first: (remainder, which is the digit; dividend; quotient; divisor)
        self.divisions = [
            (self.digits[n], numbers[last - n], numbers[last - n + 1], f"%extent{n}") for n in range(last, 0, -1)
        ]
        #: axis with bounds -> the register of the position on the axis; the digit itself if the first position is 0
        self.bounds = {
            d.axis: self.digits[n] if copy.axes[d.axis].first is None else f"%position{d.axis}"
            for n, d in enumerate(copy.digits)
            if copy.axes[d.axis].extent is not None
        }
        #: the indices of digits along axes without bounds
        self.free = [n for n, d in enumerate(copy.digits) if d.axis not in self.bounds]
        #: the digits that are added to positions: (position, digit, step); an empty step is 1
        self.moves = [
            (self.bounds[d.axis], self.digits[n], "" if d.step == 1 else f"%step{n}")
            for n, d in enumerate(copy.digits)
            if copy.axes[d.axis].first is not None
        ]
        #: the terms of the offset of a row in the operand: (digit or position, stride)
        self.terms = [(self.digits[n], f"%stride{n}") for n in self.free]
        self.terms += [(register, f"%axis_stride{a}") for a, register in self.bounds.items()]
        #: the digits that are added to the position along the row: (digit, step)
        self.shifts = [(self.digits[n], f"%along{n}") for n, d in enumerate(copy.digits) if d.along]
        #: the comparisons that set %inside, one per axis with bounds: (comparison, position, extent, the predicate so
        #: far)
        self.inside = [
            ("lt.and" if n else "lt", register, f"%axis_extent{a}", ", %inside" if n else "")
            for n, (a, register) in enumerate(self.bounds.items())
        ]
        self.along_stride = "1" if copy.contiguous else "%along_stride"
        #: the type of offsets, which are signed if positions may be negative
        self.offset_type = "u32" if copy.along.first is None else "s32"

    def numbers(self, copy: PackedCopy) -> dict[str, Any]:
        """Name -> value of the parameters of a copy, 32 bits each. Strides are in elements."""
        out = {"count": self.count(copy)}
        out |= {f"extent{n}": d.extent for n, d in enumerate(copy.digits) if n}
        out |= {f"stride{n}": copy.axes[copy.digits[n].axis].stride for n in self.free}
        out |= {
            step[1:]: copy.digits[self.digits.index(digit)].step & 0xFFFFFFFF for _, digit, step in self.moves if step
        }
        out |= {f"along{n}": d.along & 0xFFFFFFFF for n, d in enumerate(copy.digits) if d.along}
        for a in self.bounds:
            axis = copy.axes[a]
            out |= {f"axis_extent{a}": axis.extent, f"axis_stride{a}": axis.stride}
            out |= {} if axis.first is None else {f"position{a}": axis.first & 0xFFFFFFFF}
        out["depth"] = copy.depth
        out |= {} if copy.along.first is None else {"first": copy.along.first & 0xFFFFFFFF}
        out |= {} if self.contiguous else {"along_stride": copy.along.stride}
        return out | ({"within_stride": copy.within.stride} if copy.padded > 1 else {})

    def row_parts(self, copy: PackedCopy) -> Any:
        """The number of chunks of a row of the copy, each of which one thread makes."""
        return -(-copy.pitch // self.chunk_elements)

    def count(self, copy: PackedCopy) -> Any:
        """The number of chunks of the copy."""
        return copy.row_count * self.row_parts(copy)

    def blocks(self, copy: PackedCopy, rounds: int) -> Any:
        """The number of blocks of a launch. ``rounds``: the chunks that each thread of ``Shift`` makes."""
        return -(-self.count(copy) // self.THREADS)


class Gather(CopyCode):
    """The method in which each thread makes 16 bytes of the copy from elements that it loads one by one."""

    method, title = "gather", "a thread loads the elements of 16 bytes of the copy one by one"

    def __init__(self, copy: PackedCopy, size: int) -> None:
        super().__init__(copy, size)
        self.places = self.chunk_elements // copy.padded  #: places of a chunk, each with one padded group of elements
        self.loaded = Tile("element", f"b{8 * max(size, 2)}", (self.places, copy.padded))
        self.tiles = [self.loaded]
        names = self.loaded.all
        #: pairs of registers with adjacent bytes; the first register of a pair receives both bytes
        self.byte_pairs = list(zip(names[::2], names[1::2], strict=True)) if size == 1 else []
        names = names[:: 2 if size == 1 else 1]
        #: for elements of up to 2 bytes: the operand of the two halves of each word
        self.halves = [braces(names[n : n + 2]) for n in range(0, len(names), 2)] if size <= 2 else []
        names = [f"%word{n}" for n in range(4)] if self.halves else names
        self.store, self.stored = width(len(names), "b64" if size == 8 else "b32"), braces(names)
        #: the type of a load; True if the address advances from place to place
        self.load, self.steps = f"b{8 * size}", not self.contiguous
        #: the comparison of the position along the row, and the predicate that it is combined with
        self.compare, self.and_inside = ("lt.and", ", %inside") if self.bounds else ("lt", "")
        #: for each place: the loads of its elements, and True if another place follows
        self.loads = [([self._load(j, e) for e in range(copy.padded)], j + 1 < self.places) for j in range(self.places)]

    def _load(self, place: int, element: int) -> tuple[str, str, str]:
        """The register of an element, its address (empty in the padding), and the address from which the address of the
        next element is computed (empty if there is none)."""
        channels = self.copy.within.extent or 0
        at = f"%global_addr+{place * self.size}" if self.contiguous else "%element_addr" if element else "%global_addr"
        return self.loaded[place, element], at if element < channels else "", at if element + 1 < channels else ""


class Shift(CopyCode):
    """The method in which each thread makes 16 bytes of the copy from adjacent elements, in one or several rounds."""

    method, title = "shift", "a thread shifts the two aligned chunks that hold 16 bytes of the copy"
    all = range(ROUNDS)

    def __init__(self, copy: PackedCopy, size: int) -> None:
        super().__init__(copy, size)
        #: the 8 words of two aligned chunks, per round. They are shifted by 0 or 8 bytes, by 0 or 4, then by 0 to 3
        self.loaded, self.bits = Tile("loaded", "b32", (ROUNDS, 8)), 8 * size
        self.register_bits, self.chunk_mask = max(self.bits, 16), CHUNK - 1
        self.shifted_8, self.shifted_4 = Tile("shifted_by8_", "b32", (6,)), Tile("shifted_by4_", "b32", (5,))
        self.stored = Tile("stored", "b32", (4,)) if size < WORD else self.shifted_4
        self.tiles = [self.loaded, self.shifted_8, self.shifted_4, *([self.stored] if size < WORD else [])]
        #: the selections that shift by 8 and by 4 bytes: (shifted word, the word if shifted, the word if not)
        self.by_8 = [
            [(self.shifted_8[n], self.loaded[j, n + 2], self.loaded[j, n]) for n in range(6)] for j in self.all
        ]
        self.by_4 = [(self.shifted_4[n], self.shifted_8[n + 1], self.shifted_8[n]) for n in range(5)]
        self.by_bytes = [(self.stored[n], self.shifted_4[n], self.shifted_4[n + 1]) for n in range(4)] * (size < WORD)
        #: the operands of the two chunks that each round loads
        self.chunks = [(self.loaded.vector(j, 0, n=4), self.loaded.vector(j, 4, n=4)) for j in self.all]
        self.vector = self.stored.vector(0, n=4)

    def numbers(self, copy: PackedCopy) -> dict[str, Any]:
        return super().numbers(copy) | {"row_bytes": copy.pitch * self.size}

    def row_parts(self, copy: PackedCopy) -> Any:
        return -(-copy.depth // self.chunk_elements)

    def blocks(self, copy: PackedCopy, rounds: int) -> Any:
        return -(-self.count(copy) // (self.THREADS * rounds))


class Exchange(CopyCode):
    """The method in which a block makes ``words`` words of each of ``columns`` rows, through shared memory. Rows there
    have a pitch of ``pitch`` words, so that loads and stores have no bank conflicts. Digits are in the order of the
    operand's axes."""

    method, title = "exchange", "a block exchanges words through shared memory"

    def __init__(self, copy: PackedCopy, size: int) -> None:
        super().__init__(copy.in_operand_order[0], size)
        self.vec, self.word_elements = index(copy.vec), WORD // size
        self.words = next((w for w in WORDS if w * self.word_elements >= copy.depth), WORDS[-1])
        self.columns, self.pitch = TILE // self.words, self.words + 1
        self.shared = WORD * self.columns * self.pitch
        #: the registers of a thread's indices along adjacent elements of the operand, and across; threads along
        self.across, self.down, self.threads_across = "%row_thread", "%word_thread", self.columns // self.vec
        if self.contiguous:
            self.across, self.down, self.threads_across = "%word_thread", "%row_thread", self.words
        threads_down, rounds = self.THREADS // self.threads_across, TILE // self.vec // self.THREADS
        #: the step from one round to the next, in rows and in words of a row
        self.round_rows, self.round_words = (threads_down, 0) if self.contiguous else (0, threads_down)
        #: elements from the last one of a word to the first one of the next round's word
        self.round_elements = (threads_down - 1) * self.word_elements + 1
        #: chunks of a row; the block stores ``rows_at_once`` rows at once
        self.chunks = self.words * WORD // CHUNK
        self.rows_at_once = self.THREADS // self.chunks
        registers, ptx_type = -(-self.vec * size // WORD), "b16" if self.vec * size < WORD else "b32"
        self.loaded, self.load = (
            Tile("loaded", ptx_type, (rounds, self.word_elements, registers)),
            width(registers, ptx_type),
        )
        self.tiles = [self.loaded]
        self.loads = [[self._load(r, e) for e in range(self.word_elements)] for r in range(rounds)]
        #: for each word: the instruction that makes it from loaded registers, and its offset in shared memory
        self.words_of = [
            (self._word(r, q), WORD * ((q + r * self.round_rows) * self.pitch + r * self.round_words))
            for r in range(rounds)
            for q in range(self.vec)
        ]
        #: for each row of which a thread stores 16 bytes: the words' (register, offset in shared memory)
        row_bytes = WORD * self.rows_at_once * self.pitch
        self.row_words = [
            [(f"%word{k}", n * row_bytes + k * WORD) for k in range(CHUNK // WORD)]
            for n in range(self.columns // self.rows_at_once)
        ]
        self.row_step, self.chunk_words = self.vec * self.pitch, CHUNK // WORD
        self.across_mask, self.chunk_mask = self.threads_across - 1, self.chunks - 1
        self.rows_of = [(digit, f"%rows{n}") for n, digit in enumerate(self.digits) if n]

    def _load(self, r: int, e: int) -> tuple[list[str], str, int, str, str]:
        """A load: its registers, its operand, its element relative to the thread's first, its address, and the register
        with the step to the next load."""
        registers = [self.loaded[r, e, q] for q in range(self.loaded.shape[2])]
        element = (r * self.round_words) * self.word_elements + e
        if self.contiguous:
            return registers, braces(registers), element, f"%global_addr+{e * self.size}", ""
        step = "%round_step" if e + 1 == self.word_elements else "%along_step"
        return registers, braces(registers), element, "%global_addr", step

    def _word(self, r: int, q: int) -> str:
        """The instruction that makes word ``q`` of round ``r`` in %word0."""
        if self.size == WORD:
            return f"mov.b32 %word0, {self.loaded[r, 0, q]}"
        if self.vec == 1:
            return f"mov.b32 %word0, {{{self.loaded[r, 0, 0]}, {self.loaded[r, 1, 0]}}}"
        halves = "0x7632" if q % 2 else "0x5410"
        return f"prmt.b32 %word0, {self.loaded[r, 0, q // 2]}, {self.loaded[r, 1, q // 2]}, {halves}"

    def numbers(self, copy: PackedCopy) -> dict[str, Any]:
        ordered, rows = copy.in_operand_order
        rows_of = {f"rows{n}": each for n, each in enumerate(rows)}
        return super().numbers(ordered) | rows_of | {"row_bytes": copy.pitch * self.size}

    def row_parts(self, copy: PackedCopy) -> int:
        return -(-copy.pitch // (self.words * self.word_elements))

    def count(self, copy: PackedCopy) -> int:
        return copy.row_count

    def blocks(self, copy: PackedCopy, rounds: int) -> int:
        return self.row_parts(copy) * -(-copy.row_count // self.columns)


def code_of(copy: PackedCopy, size: int) -> CopyCode:
    """The code that makes ``copy``, with elements of ``size`` bytes."""
    if copy.zeros:
        return Gather(copy, size)
    return Shift(copy, size) if copy.contiguous and len(copy.digits) == 1 else Exchange(copy, size)


@dataclass(frozen=True)
class CopyPacking(Packing):
    """The packing kernel that copies the operands ``names``."""

    template = "copy/pack.mako"
    THREADS = AUX_KERNEL_THREADS

    def copy(self, p: KernelProblem, name: str) -> PackedCopy:
        """The description of the copy of an operand of ``p``."""
        raise NotImplementedError

    @property
    def copied(self) -> list[str]:
        """The operands that the copy kernel packs."""
        return self.names

    @property
    def batched(self) -> bool:
        """True if each block packs operands of one batch item."""
        return self.batch.active

    @cached_property
    def codes(self) -> dict[str, CopyCode]:
        """Operand -> the code that copies it."""
        return {x: code_of(self.copy(self.problem, x), self.problem.element.bytes) for x in self.copied}

    def copy_bytes(self, p: KernelProblem, name: str) -> Any:
        """The number of bytes from the copy of one batch item to the copy of the next."""
        return -(-self.copy(p, name).size * p.element.bytes // ROW) * ROW

    def item_bytes(self, p: KernelProblem, name: str) -> Any:
        """The number of bytes from the operand of one batch item to that of the next; 0: all items have the same
        operand."""
        return p.offsets["ab".index(name)] if self.batched else 0

    def items(self, p: KernelProblem, name: str, items: int) -> Any:
        """The number of different operands ``name`` among ``items`` batch items."""
        return items if self.item_bytes(p, name) else min(items, 1)

    def offset(self, x: Launched, name: str) -> Any:
        """The offset in the workspace of the copy of the launch's first batch item."""
        return x.buffers.packed.get(name, 0)

    # ---- the parameters

    def _numbers(self, x: Launched, name: str) -> dict[int, dict[str, Any]]:
        """The parameters for an operand: bits -> name -> value."""
        copy, code = self.copy(x.p, name), self.codes[name]
        numbers, wide = {**code.numbers(copy), "copy_offset128": self.offset(x, name) // ROW}, {}
        if self.batched:
            numbers |= {"copy_item128": self.copy_bytes(x.p, name) // ROW, "items": self.items(x.p, name, x.run.items)}
            wide["batch_stride"] = self.item_bytes(x.p, name)
        if isinstance(code, Shift):
            numbers["chunk_stride"] = self._blocks(x.p)[self.copied.index(name)] * self.THREADS
            wide["bytes"] = copy.span * code.size
        # last: beside another one, ptxas divides by it in uniform registers, which takes more instructions
        return {32: {**numbers, "row_parts": code.row_parts(copy)}, 64: wide}

    def registers(self, name: str) -> dict[int, list[str]]:
        """The registers of the parameters for an operand: bits -> registers."""
        of_plan = self._numbers(Launched(self.problem, BatchRange(0, 1)), name)
        return {bits: [f"%{each}" for each in numbers] for bits, numbers in of_plan.items() if numbers}

    def _operand(self, name: str, bits: int) -> Parameters:
        names = tuple(f"{register[1:]}_{name}" for register in self.registers(name).get(bits, []))
        return Parameters(f"u{bits}", names, lambda x: self._numbers(x, name)[bits].values())

    @property
    def parameters(self) -> list[Parameters]:
        """The parameters of the copy kernel after the addresses."""
        first = Parameters("u32", ("blocks_a",), lambda x: self._blocks(x.p)[:1])
        item = Parameters("u32", ("first_item",), lambda x: (x.run.first,))
        operands = [self._operand(name, bits) for name in self.copied for bits in (32, 64)]
        return [*([first] if len(self.copied) > 1 else []), *([item] if self.batched else []), *operands]

    # ---- launches

    def _blocks(self, p: KernelProblem) -> list[Any]:
        """The number of blocks for each operand."""
        copies = [(code, self.copy(p, name)) for name, code in self.codes.items()]
        chunks = sum(code.count(copy) for code, copy in copies)
        return [code.blocks(copy, ROUNDS if chunks > LARGE else 1) for code, copy in copies]

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        return {name: self.copy_bytes(p, name) * self.items(p, name, run.items) for name in self.names}, {}

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        if not self.copied or not self.packs(launched.p):
            return ()
        p, run = launched.p, launched.run
        items = run.items if any(self.item_bytes(p, name) for name in self.copied) else 1
        grid, shared = (max(sum(self._blocks(p)), 1), 1, items), max(code.shared for code in self.codes.values())
        block = (self.THREADS, 1, 1)
        return (Step(f"{self.entry}_pack", grid, block, shared, self.parameter_list.arguments(launched)),)


@dataclass(frozen=True)
class PathPacking(CopyPacking):
    """The packing of the operands whose axis ``operand_path`` is ``pack``. The main kernel gets the offsets of their
    copies in the workspace."""

    config: Config

    packs_empty = True

    @cached_property
    def names(self) -> list[str]:
        return [name for name in "ab" if packs(self.config, name)]

    @property
    def product_parameters(self) -> list[Parameters]:
        names = tuple(f"copy_offset128_{name}" for name in self.names)
        return [Parameters("u32", names, lambda x: (offset // ROW for offset in x.buffers.packed.values()))]
