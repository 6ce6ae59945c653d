"""The main loop of the multistage schedule, in which every warp copies, and multiplies and stores a part of the
tile."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from ptxgen.codegen.config.config import BOUNDS_NONE, BOUNDS_PREDICATE, Config
from ptxgen.codegen.geometry import MultistageGeometry
from ptxgen.codegen.parts.addressing import OperandAddressing
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.vectorized import WARP, Last, Log2, Mask
from ptxgen.problem.dtypes import bits_of, dtype


@dataclass(frozen=True)
class TilePart:
    """The part of a warp's tile that one K loop multiplies. ``a``: 1 for all rows of the tile, 2 for the first half of
    them; ``b``: the same for columns."""

    a: int = 1
    b: int = 1

    @property
    def label(self) -> str:
        """The label of the K loop."""
        return f"K_LOOP{self._suffix}"

    @property
    def entry(self) -> str:
        """The label of the first fragment loads, before the K loop."""
        return f"HALF{self._suffix}"

    @property
    def predicate(self) -> str:
        """The predicate that is true in warps whose elements of C are all in this part."""
        if self.a > 1 and self.b > 1:
            return "%p"
        return "%few_a" if self.a > 1 else "%few_b"

    @property
    def _suffix(self) -> str:
        return ("_M" if self.a > 1 else "") + ("_N" if self.b > 1 else "")

    def of(self, name: str) -> int:
        """The field ``a`` or ``b``, by name."""
        return self.a if name == "a" else self.b


WHOLE = TilePart()
SUMS_IN_FLIGHT = 8  #: vectors of another block's sums that a thread loads at a time


class FragmentRead(Protocol):
    """One fragment load from shared memory."""

    @property
    def registers(self) -> str: ...


class StagedLoad(Protocol):
    """One of the global loads of a thread for a stage."""

    @property
    def index(self) -> int: ...
    @property
    def oob(self) -> str: ...


@dataclass(frozen=True)
class SharedStore:
    """One store to shared memory of data from a global load. ``offset``: bytes from the thread's address in the
    stage."""

    offset: int
    ptx_type: str
    registers: str


class StagedOperand(Protocol):
    """How A or B is copied from global to shared memory, and from there to fragments."""

    name: str
    base: int  #: byte offset of the operand in a stage
    size: int  #: bytes of a stage
    row: int  #: elements of a row in shared memory
    asynchronous: bool  #: True if cp.async copies the operand
    prefetches: bool  #: True if fragments are read one step ahead
    shared_pointer: bool  #: True if all loads of a thread use one pointer, with offsets
    addressing: OperandAddressing
    loads: Sequence[Any]  #: the global loads of a thread for a stage

    @property
    def copy_bytes(self) -> int:
        """The number of bytes of one copy by a thread."""

    def buffer(self, k: int) -> int:
        """The index of the fragment buffer that holds step ``k``."""

    @property
    def has_halves(self) -> bool:
        """True if the first half of the fragment loads reads the first half of a thread's rows (or columns)."""

    def fragment_loads(self, k: int, buffer: int) -> Sequence[FragmentRead]:
        """The fragment loads of step ``k``."""

    def offset(self, i: int) -> int:
        """The distance, in rows (or columns) of C, of a thread's row (or column) ``i`` from its first."""


class CopiedTile:
    """Numbers and names of an operand's tile in a stage, which follow from the operand's layout. ``across``: vectors of
    a row; ``row``: elements from one row to the next in shared memory; ``bytes``: bytes of an element there; ``depth``:
    elements along K."""

    name: str
    extent: str
    kmajor: bool
    across: int
    chunk: int
    tile: int
    row: int
    bytes: int
    global_bytes: int
    depth: int
    vec: int
    copy_bytes: int
    last_copies: int  #: the number of threads that execute the last load; 0: all threads
    asynchronous: bool
    shared_pointer: bool
    transposed: bool
    widens: bool
    twice: bool
    casts: bool
    extracts: bool
    held: str
    keys: tuple[tuple[int, int], ...] = ()
    thread_runs: Sequence[str] = ()  #: instructions that advance a thread's first element to its run of loads
    swizzles: list[int]
    store_ptrs: list[tuple[str, str]]
    addressing: OperandAddressing
    staging: Tile
    converted: Tile
    loads: Sequence[Any]

    def store_ptr(self, p: Any) -> str:
        """The register with the address, in the stage that is being filled, of the data of load ``p``."""
        raise NotImplementedError

    # ---- masks and bytes

    across_mask = Mask("across")
    chunk_mask = Mask("chunk")
    tile_mask = Mask("tile")

    @property
    def row_bytes(self) -> int:
        return self.row * self.bytes

    @property
    def depth_bytes(self) -> int:
        """The number of bytes of a K-major row in shared memory."""
        return self.depth * self.bytes

    @property
    def depth_global_bytes(self) -> int:
        """The number of bytes in global memory of the elements of one stage along K."""
        return self.depth * self.global_bytes

    @property
    def table_step_bytes(self) -> int:
        """The number of bytes of the entries in the offset table along K that belong to one stage."""
        return self.depth * self.addressing.table_entry_bytes

    # ---- rows and columns

    @property
    def row_axes(self) -> tuple[str, str]:
        """The axis across the rows of shared memory, and the axis along a row, each ``mn`` or ``k``."""
        return ("mn", "k") if self.kmajor else ("k", "mn")

    @property
    def along(self) -> str:
        """The name of the extent along which vectors are contiguous."""
        return "K" if self.kmajor else self.extent

    @property
    def key_shifts(self) -> list[tuple[str, int, int]]:
        """The parts of a row's swizzle: shift instruction, number of bits, mask of each."""
        return [("shl.b32" if shift < 0 else "shr.u32", abs(shift), mask) for shift, mask in self.keys]

    @property
    def swizzled_offsets(self) -> list[tuple[str, int]]:
        """For each offset in a stage except the first: its register, and the bits in which it differs from the
        first."""
        return [
            (offset, x ^ self.swizzles[0])
            for (_, offset), x in zip(self.store_ptrs[1:], self.swizzles[1:], strict=False)
        ]

    # ---- copies

    @property
    def copy_title(self) -> str:
        """The text for a banner that says how a stage is copied."""
        name, size = self.name.upper(), self.copy_bytes
        return f"{name}: {len(self.loads)} copies of {size} bytes per thread and stage, {self._copy_path}"

    @property
    def _copy_path(self) -> str:
        transposed = ", transposed" if self.transposed else ""
        if self.asynchronous:
            return f"cp.async{transposed}"
        if self.widens:
            change = ", widened to f32"
        elif self.twice:
            change = ", each element twice"
        elif self.casts:
            change = f", cast to {self.held}"
        else:
            change = ", widened to 32 bits" if self.extracts else ""
        return f"through registers{transposed}{change}"

    @cached_property
    def issues(self) -> list[str]:
        """For each load, the predicate of the threads that execute it; empty: all threads do."""
        last = f"%issue_{self.name}" if self.last_copies else ""
        return [""] * (len(self.loads) - 1) + [last]

    @property
    def cache(self) -> str:
        """The cache operator of ``cp.async``: ``cg`` for copies of 16 bytes, which bypass L1, else ``ca``."""
        return "cg" if self.copy_bytes == 16 else "ca"

    @property
    def store_registers(self) -> str:
        """The registers with addresses in the stage that is being filled, separated by commas."""
        return ", ".join(to for to, _ in self.store_ptrs)

    @cached_property
    def copy_targets(self) -> list[str]:
        """For each load, the register with the address of its data in the stage that is being filled."""
        return [self.store_ptr(p) for p in self.loads]

    @cached_property
    def load_addresses(self) -> list[str]:
        """For each load, the register with its global address, after the addressing code has set the register."""
        if self.shared_pointer or not self.addressing.strided:
            return ["%tmp64" for _ in self.loads]
        return self.pointers

    @cached_property
    def pointers(self) -> list[str]:
        """The registers of the pointers that advance along K."""
        return [f"%ptr_{self.name}"] if self.shared_pointer else [f"%ptr_{self.name}{p.index}" for p in self.loads]

    @cached_property
    def table_places(self) -> list[tuple[int, int]]:
        """For each load, the indices of its offsets in ``mn_offsets`` and in ``k_offsets`` of the addressing."""
        x = self.addressing
        return [(x.mn_offsets.index(p.mn), x.k_offsets.index(p.k)) for p in self.loads]

    @cached_property
    def staged(self) -> list[list[str]]:
        """The destination registers of each load."""
        return [[self.staging[p.index, j] for j in range(self.staging.shape[1])] for p in self.loads]

    @cached_property
    def unpacked_pairs(self) -> list[list[tuple[str, str, str]]]:
        """For each load: each loaded word with the registers of its two elements. In a vector of one element, both are
        the same."""
        return [
            [
                (
                    self.staging[p.index, j // 2],
                    self.converted[p.index, j],
                    self.converted[p.index, min(j + 1, self.vec - 1)],
                )
                for j in range(0, self.vec, 2)
            ]
            for p in self.loads
        ]

    @property
    def pointer_step(self) -> str:
        """The bytes by which a pointer advances from one stage to the next: a number, or a register."""
        return str(self.depth_global_bytes) if self.kmajor else f"%k_stride_{self.name}"

    @property
    def offset_in_tile(self) -> str:
        """The instruction that sets %tmp0 to the 32-bit offset of the element at index %tmp0 of M (or N) and %tmp1 of
        K."""
        return (
            f"mad.lo.u32 %tmp0, %tmp0, %ld{self.name}, %tmp1;"
            if self.kmajor
            else f"mad.lo.u32 %tmp0, %tmp1, %ld{self.name}, %tmp0;"
        )


class JoinedSums(NamedTuple):
    """A vector of sums that a thread adds over the thread groups. Its fields are: the guard (empty if all threads have
    such a vector), the number of vectors from this one on, the offsets of the vectors of each group in shared memory,
    and the offset of the result in the sums of a slice."""

    guard: str
    left: int
    loads: list[int]
    offset: int


@dataclass(frozen=True)
class SumWord:
    """A word of the workspace that holds one accumulator of stream-K; zero: it is not written. ``type``: its PTX type;
    ``inverted``: the bits that a store inverts; ``payloads``: True if arithmetic keeps the payload of a NaN, so that a
    sum may have the bits that invert to zero; ``registers``: the registers that hold words."""

    type: str
    inverted: str
    payloads: bool
    registers: int

    @property
    def unsigned(self) -> str:
        return self.type.replace("b", "u")

    @property
    def names(self) -> list[str]:
        return [f"%word{n}" for n in range(self.registers)]


class LoadedSums(NamedTuple):
    """A vector of sums of another block. Its fields are: the type of its access, the registers of its words, its offset
    in the sums of a block, as many zeros, and for each word, the register and the accumulator to which it is added."""

    access: str
    words: str
    offset: int
    zeros: str
    pairs: list[tuple[str, str]]


class SumBatch(list[LoadedSums]):
    """The vectors that a thread has in flight."""

    @property
    def later_words(self) -> list[str]:
        """The registers of all words but the first."""
        return [word for x in self for word, _ in x.pairs][1:]


def copy_template(asynchronous: bool) -> str:
    """The slot that copies an operand to shared memory."""
    return f"copy/{'cp_async' if asynchronous else 'ldg_sts'}.mako"


@dataclass(frozen=True)
class MultistageMainloop(Part):
    """The main loop of the multistage schedule. A family adds its fragments and its multiply instruction. ``steps``: K
    steps of a thread group in a stage."""

    config: Config
    geometry: MultistageGeometry
    steps: int

    @property
    def operands(self) -> Sequence[StagedOperand]:
        """The operands A and B."""
        raise NotImplementedError

    # ---- parts of the tile of a warp

    WHOLE = WHOLE
    peels_remainder = False  #: True if the iteration with the remainder of K has separate instructions
    #: True if the last stage holds the remainder of K, so that stages begin at multiples of their depth; else the first
    #: stage does, and loads of other stages need no comparison
    remainder_last = False

    @cached_property
    def parts(self) -> list[TilePart]:
        """The smaller parts of a warp's tile that have their own K loop, the smallest first."""
        a, b = ((2, 1) if x.has_halves else (1,) for x in self.operands)
        parts = itertools.starmap(TilePart, itertools.product(a, b))
        return [part for part in parts if part != WHOLE and self.has_loop(part)]

    @cached_property
    def halved(self) -> set[str]:
        """The names of the operands that some smaller part halves."""
        return {name for name in "ab" if any(part.of(name) > 1 for part in self.parts)}

    def has_loop(self, part: TilePart) -> bool:
        """True if ``part`` has its own K loop."""
        return True

    def fragment_loads(self, x: StagedOperand, k: int, buffer: int, part: TilePart) -> Sequence[FragmentRead]:
        """The fragment loads of operand ``x`` in step ``k`` that ``part`` needs."""
        loads = x.fragment_loads(k, buffer)
        return loads[: len(loads) // part.of(x.name)]

    last_step = Last("steps")

    @cached_property
    def read_ahead(self) -> dict[str, list[tuple[int, int, str]]]:
        """Operand -> for each step, the loads that fill the fragments of the next step meanwhile: the number of the
        next step, the fragment buffer, and the guard."""
        last = self.last_step
        return {
            x.name: [(0 if k == last else k + 1, x.buffer(k + 1), "@%has_next " if k == last else "") for k in steps]
            for x, steps in ((x, range(self.steps)) for x in self.operands)
        }

    # ---- stages

    @property
    def remainder_text(self) -> str:
        return f"the {'last' if self.remainder_last else 'first'} holds the remainder of K"

    @property
    def masks_every_stage(self) -> bool:
        """True if the loads of every stage are compared with the end of K."""
        return self.remainder_last and self.checks_bounds

    @cached_property
    def k_left(self) -> dict[str, str]:
        """Operand -> the register with the elements of K from the stage on that is loaded; %k_rem has those of the
        first stage."""
        return {x.name: f"%k_left_{x.name}" if self.masks_every_stage else "%k_rem" for x in self.operands}

    @property
    def stages(self) -> int:
        return self.config.stages

    @property
    def stages_ahead(self) -> int:
        """The number of stages that are filled before the first one is read."""
        return self.stages - 1

    @property
    def ring_bytes(self) -> int:
        """The number of bytes of all stages."""
        return self.stages * self.stage_bytes

    @property
    def wrap_bytes(self) -> int:
        """The byte offset from the last stage to the first, a negative number."""
        return -self.stages_ahead * self.stage_bytes

    group_mask = Mask("group")

    @cached_property
    def stage_bytes(self) -> int:
        return int(self.geometry.stage_bytes)

    @property
    def commit(self) -> list[str]:
        """The instruction after the copies of a stage, if cp.async copies an operand."""
        return ["cp.async.commit_group;"] if self.asynchronous else []

    @property
    def wait(self) -> list[str]:
        """The instruction that waits for the stage that is read next. Copies of later stages may still be in flight."""
        return [f"cp.async.wait_group {self.stages - 2};"] if self.asynchronous else []

    @property
    def prefetched(self) -> list[StagedOperand]:
        """The operands whose fragments are read a step ahead."""
        return [x for x in self.operands if x.prefetches]

    @property
    def stage_order(self) -> str:
        """The slot that orders loads to registers and stores to shared memory: in the same or in the next iteration."""
        return f"kernel/{'deferred' if self.defers_sts else 'stored'}_stages.mako"

    @property
    def asynchronous(self) -> bool:
        """True if cp.async copies an operand."""
        return any(x.asynchronous for x in self.operands)

    # ---- accumulators as vectors

    @property
    def acc(self) -> Tile:
        """The accumulators of a thread."""
        raise NotImplementedError

    @cached_property
    def acc_vectors(self) -> list[list[str]]:
        """The accumulators of a thread, in vectors of at most 16 bytes, each of one set."""
        n, size = 2 if self.acc.ptx_type == "f64" else 4, self.acc.size // self.config.ks
        sets = (self.acc.all[i : i + size] for i in range(0, self.acc.size, size))
        return [names[i : i + n] for names in sets for i in range(0, size, n)]

    @cached_property
    def sum_vectors(self) -> list[list[str]]:
        """The vectors of the first set of accumulators."""
        return self.acc_vectors[: len(self.acc_vectors) // self.config.ks]

    @property
    def further_sets(self) -> list[tuple[list[str], list[str]]]:
        """For each vector of the other sets of accumulators: the vector of the first set with the same elements of C,
        and that vector."""
        first = self.sum_vectors
        return [(first[i % len(first)], names) for i, names in enumerate(self.acc_vectors) if i >= len(first)]

    @cached_property
    def word(self) -> SumWord:
        """The words that hold sums which other blocks add."""
        ptx_type = self.acc.ptx_type
        word = "b64" if ptx_type == "f64" else "b32"
        inverted = "0x80000000" if ptx_type == "s32" else "-1"
        return SumWord(word, inverted, ptx_type == "f64", SUMS_IN_FLIGHT * len(self.acc_vectors[0]))

    @cached_property
    def sum_batches(self) -> list[SumBatch]:
        """The sums of one block that another block adds."""
        vectors = list(zip(self.sum_vectors, self.sum_offsets, strict=True))
        return [
            SumBatch(self._loaded(n, *vector) for n, vector in enumerate(vectors[i : i + SUMS_IN_FLIGHT]))
            for i in range(0, len(vectors), SUMS_IN_FLIGHT)
        ]

    def _loaded(self, n: int, names: list[str], offset: int) -> LoadedSums:
        size = len(self.acc_vectors[0])
        words = self.word.names[n * size : n * size + len(names)]
        access, zeros = width(len(names), self.word.type), braces(["%no_word"] * len(names))
        return LoadedSums(access, braces(words), offset, zeros, list(zip(words, names, strict=True)))

    @property
    def joined(self) -> list[str]:
        """The accumulators that are added to others when a row of sums is read."""
        return []

    @property
    def vector_access(self) -> str:
        """The type suffix of an access to a vector of accumulators."""
        return width(len(self.acc_vectors[0]), self.acc.ptx_type)

    @property
    def sum_offsets(self) -> range:
        """The byte offset of each vector of a thread in the sums of a thread group."""
        step = self.group * self.acc_vector_bytes
        return range(0, len(self.sum_vectors) * step, step)

    @property
    def group_sums_count(self) -> int:
        """The number of vectors in the sums of a thread group."""
        return len(self.sum_vectors) * self.group

    @property
    def joined_sums(self) -> list[JoinedSums]:
        """The rounds in which the block adds the sums of its thread groups. In a round, each thread adds one vector."""
        count, size, threads = self.group_sums_count, self.acc_vector_bytes, self.group * self.config.kl
        return [
            JoinedSums(
                "@%adds " if j + threads > count else "",
                count - j,
                [(g * count + j) * size for g in range(self.config.kl)],
                j * size,
            )
            for j in range(0, count, threads)
        ]

    @property
    def vector_names(self) -> dict[str, list[str]]:
        """Role -> the registers of a vector with this role."""
        names = ("sum", "group_sum", "of_slice")
        return {name: [f"%{name}{i}" for i in range(len(self.acc_vectors[0]))] for name in names}

    @property
    def acc_vector_bytes(self) -> int:
        return len(self.acc_vectors[0]) * (8 if self.acc.ptx_type == "f64" else 4)

    @property
    def acc_add(self) -> str:
        """The instruction that adds accumulators. Accumulators of type b32 are pairs of f16."""
        ptx_type = self.acc.ptx_type
        return f"add.{ptx_type}" if ptx_type == "s32" else f"add.rn.{'f16x2' if ptx_type == 'b32' else ptx_type}"

    @property
    def acc_zero(self) -> str:
        return bits_of(0.0, dtype(self.acc.ptx_type)) if self.acc.ptx_type in ("f32", "f64") else "0"

    @property
    def defers_sts(self) -> bool:
        """True if data is loaded to registers one iteration before it is stored to shared memory."""
        return bool(self.config.deferred_sts) and not all(x.asynchronous for x in self.operands)

    @property
    def shared_map(self) -> list[str]:
        a, b = self.operands
        return [
            f"{self.stages} stages of {self.stage_bytes} bytes: A at 0 ({a.size} bytes, rows of {a.row}),"
            f" B at {b.base} ({b.size} bytes, rows of {b.row})"
        ]

    # ---- threads

    @property
    def group(self) -> int:
        """The number of threads of a thread group. Thread groups split the K steps of a stage."""
        return int(self.geometry.group)

    log2_group = Log2("group")

    @property
    def several_warps(self) -> bool:
        """True if several warps divide the tile, so that a warp may have no element of C."""
        return self.group > WARP

    # ---- bounds and addresses

    @cached_property
    def predicated(self) -> bool:
        """True if loads outside M and N are predicated off; else their addresses are clamped."""
        return self.config.bounds == BOUNDS_PREDICATE

    @cached_property
    def checks_bounds(self) -> bool:
        return self.config.bounds != BOUNDS_NONE

    @cached_property
    def skips(self) -> dict[tuple[str, bool], list[str]]:
        """The ``skip`` predicate of each load. The key is (name of the operand, True for the first stage)."""
        return {
            (x.name, first): [self.skip(x, load, first) for load in x.loads]
            for x in self.operands
            for first in (False, True)
        }

    @cached_property
    def copy_operands(self) -> dict[tuple[str, bool], list[str]]:
        """The last operands of each cp.async: its bytes, and the predicate that skips it. The keys are those of
        ``skips``."""
        return {
            key: [", ".join([str(x.copy_bytes), *([skip] if skip else [])]) for skip in self.skips[key]]
            for x in self.operands
            for key in ((x.name, False), (x.name, True))
        }

    def skip(self, x: StagedOperand, load: StagedLoad, first: bool) -> str:
        """The predicate that skips a load, after the addressing code has set it; empty: the load is never skipped.
        ``first``: True for the first stage."""
        if x.addressing.is_im2col or (first and self.checks_bounds) or self.masks_every_stage:
            return "%skip"
        return load.oob if self.predicated else ""

    @property
    def group_registers(self) -> list[str]:
        """The declarations of the registers for sums over thread groups."""
        return [".reg .b32 %group_thread, %sums_addr;", ".reg .pred %adds;"] if self.config.kl > 1 else []
