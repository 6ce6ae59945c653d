"""The main loop of the multistage schedule: every warp copies, computes and stores a part of the tile of C."""

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
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.vectorized import WARP, Last, Log2, Mask
from ptxgen.problem.dtypes import bits_of, dtype


@dataclass(frozen=True)
class TilePart:
    """The part of a warp's tile that a K loop multiplies: the first half of its rows (``a`` = 2) or all of them (1),
    and likewise of its columns (``b``)."""

    a: int = 1
    b: int = 1

    @property
    def label(self) -> str:
        """The label of the loop."""
        return f"K_LOOP{self._suffix}"

    @property
    def entry(self) -> str:
        """The label of the first fragment loads, before the loop."""
        return f"HALF{self._suffix}"

    @property
    def predicate(self) -> str:
        """The predicate of warps that have C in this part alone."""
        if self.a > 1 and self.b > 1:
            return "%p"
        return "%few_a" if self.a > 1 else "%few_b"

    @property
    def _suffix(self) -> str:
        return ("_M" if self.a > 1 else "") + ("_N" if self.b > 1 else "")

    def of(self, name: str) -> int:
        """``a`` or ``b``."""
        return self.a if name == "a" else self.b


WHOLE = TilePart()


class FragmentRead(Protocol):
    """One fragment load from shared memory."""

    @property
    def registers(self) -> str: ...


class StagedLoad(Protocol):
    """One of a thread's global loads of a stage."""

    @property
    def index(self) -> int: ...
    @property
    def oob(self) -> str: ...


@dataclass(frozen=True)
class SharedStore:
    """One store of a global load's data to shared memory, ``offset`` bytes from the thread's address in the stage."""

    offset: int
    ptx_type: str
    registers: str


class StagedOperand(Protocol):
    """How A or B gets from global memory to shared memory and to fragments."""

    name: str
    base: int  #: offset in a stage
    size: int  #: bytes of a stage
    row: int  #: elements of a row in shared memory
    asynchronous: bool  #: whether cp.async copies it
    prefetches: bool  #: whether its fragments are read a step ahead
    shared_pointer: bool  #: whether all loads add offsets to one pointer
    addressing: OperandAddressing
    loads: Sequence[Any]  #: of a thread

    @property
    def copy_bytes(self) -> int:
        """Bytes of a copy of a thread."""

    def buffer(self, k: int) -> int:
        """Which of the fragment buffers holds step ``k``."""

    @property
    def has_halves(self) -> bool:
        """True if the first half of the fragment loads has the first half of the rows (or columns) of a thread."""

    def fragment_loads(self, k: int, buffer: int) -> Sequence[FragmentRead]:
        """The fragment loads of step ``k``."""

    def offset(self, i: int) -> int:
        """Rows (or columns) of C between number ``i`` of a thread's and its first."""


class CopiedTile:
    """Numbers and names of an operand's tile in a stage, which follow from its layout: ``across`` vectors of a row,
    rows of ``row`` elements of ``bytes`` in shared memory, ``depth`` elements of K."""

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
    last_copies: int  #: threads that have the last of a thread's loads; 0: all
    asynchronous: bool
    shared_pointer: bool
    transposed: bool
    widens: bool
    twice: bool
    casts: bool
    extracts: bool
    held: str
    keys: tuple[tuple[int, int], ...] = ()
    thread_runs: Sequence[str] = ()  #: instructions that add a thread's run of loads to its first element
    swizzles: list[int]
    store_ptrs: list[tuple[str, str]]
    addressing: OperandAddressing
    staging: Tile
    converted: Tile
    loads: Sequence[Any]

    def store_ptr(self, p: Any) -> str:
        """The register with the address of a load's data in the stage that is being filled."""
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
        """Bytes of a K-major row in shared memory."""
        return self.depth * self.bytes

    @property
    def depth_global_bytes(self) -> int:
        """The bytes in global memory of the elements along K that one stage has."""
        return self.depth * self.global_bytes

    @property
    def table_step_bytes(self) -> int:
        """Bytes of the entries of K of a stage in an offset table."""
        return self.depth * self.addressing.table_entry_bytes

    # ---- rows and columns

    @property
    def row_axes(self) -> tuple[str, str]:
        """The axes of rows in shared memory, and along them."""
        return ("mn", "k") if self.kmajor else ("k", "mn")

    @property
    def along(self) -> str:
        """The extent along which a thread's vectors are."""
        return "K" if self.kmajor else self.extent

    @property
    def key_shifts(self) -> list[tuple[str, int, int]]:
        """Triples (instruction, bits, mask) of the parts of a row's swizzle."""
        return [("shl.b32" if shift < 0 else "shr.u32", abs(shift), mask) for shift, mask in self.keys]

    @property
    def swizzled_offsets(self) -> list[tuple[str, int]]:
        """The pair (register, bits that differ from those of the first) of each further offset in a stage."""
        return [
            (offset, x ^ self.swizzles[0])
            for (_, offset), x in zip(self.store_ptrs[1:], self.swizzles[1:], strict=False)
        ]

    # ---- copies

    @property
    def copy_title(self) -> str:
        """How a stage is copied, for a banner."""
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
        """The predicate of the threads that have each load; empty: all have it."""
        last = f"%issue_{self.name}" if self.last_copies else ""
        return [""] * (len(self.loads) - 1) + [last]

    @property
    def cache(self) -> str:
        """The caches of ``cp.async``: accesses of 16 bytes bypass the L1."""
        return "cg" if self.copy_bytes == 16 else "ca"

    @property
    def store_registers(self) -> str:
        """The registers with the addresses in the stage that is being filled."""
        return ", ".join(to for to, _ in self.store_ptrs)

    @cached_property
    def copy_targets(self) -> list[str]:
        """The register with the address of each load's data in the stage that is being filled."""
        return [self.store_ptr(p) for p in self.loads]

    @cached_property
    def load_addresses(self) -> list[str]:
        """The register with the address of each load, once the addressing has set it."""
        if self.shared_pointer or not self.addressing.strided:
            return ["%tmp64" for _ in self.loads]
        return self.pointers

    @cached_property
    def pointers(self) -> list[str]:
        """The pointers that advance along K."""
        return [f"%ptr_{self.name}"] if self.shared_pointer else [f"%ptr_{self.name}{p.index}" for p in self.loads]

    @cached_property
    def table_places(self) -> list[tuple[int, int]]:
        """The places of each load among the distinct offsets along M (or N), and along K."""
        x = self.addressing
        return [(x.mn_offsets.index(p.mn), x.k_offsets.index(p.k)) for p in self.loads]

    @cached_property
    def staged(self) -> list[list[str]]:
        """The registers of each load."""
        return [[self.staging[p.index, j] for j in range(self.staging.shape[1])] for p in self.loads]

    @cached_property
    def unpacked_pairs(self) -> list[list[tuple[str, str, str]]]:
        """The tuple (word, its elements to store) of each load; of a vector of one element, the second is the
        first."""
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
        """The bytes of K of a stage, or a register with them."""
        return str(self.depth_global_bytes) if self.kmajor else f"%k_stride_{self.name}"

    @property
    def offset_in_tile(self) -> str:
        """The instruction that makes the 32-bit offset of the element at row %tmp0 and %tmp1 of K."""
        return (
            f"mad.lo.u32 %tmp0, %tmp0, %ld{self.name}, %tmp1;"
            if self.kmajor
            else f"mad.lo.u32 %tmp0, %tmp1, %ld{self.name}, %tmp0;"
        )


class JoinedSums(NamedTuple):
    """A vector of sums added over thread groups: its guard, empty if all threads have one; the vectors from
    there on; offsets of those of each group in shared memory, and of the result in a slice."""

    guard: str
    left: int
    loads: list[int]
    offset: int


def copy_template(asynchronous: bool) -> str:
    """The slot that copies an operand to shared memory."""
    return f"copy/{'cp_async' if asynchronous else 'ldg_sts'}.mako"


@dataclass(frozen=True)
class MultistageMainloop(Part):
    """The main loop of the multistage schedule. ``steps``: K steps of a thread group in a stage. A family adds its
    fragments and its multiply instruction."""

    config: Config
    geometry: MultistageGeometry
    steps: int

    @property
    def operands(self) -> Sequence[StagedOperand]:
        """A and B."""
        raise NotImplementedError

    # ---- parts of the tile of a warp

    WHOLE = WHOLE
    peels_remainder = False  #: whether the iteration that has the remainder of K has instructions of its own

    @cached_property
    def parts(self) -> list[TilePart]:
        """The smaller parts of a warp's tile that have a K loop of their own, the smallest first."""
        a, b = ((2, 1) if x.has_halves else (1,) for x in self.operands)
        parts = itertools.starmap(TilePart, itertools.product(a, b))
        return [part for part in parts if part != WHOLE and self.has_loop(part)]

    @cached_property
    def halved(self) -> set[str]:
        """The operands of which a smaller part has one half."""
        return {name for name in "ab" if any(part.of(name) > 1 for part in self.parts)}

    def has_loop(self, part: TilePart) -> bool:
        """True if a K loop multiplies a part of the tile."""
        return True

    def fragment_loads(self, x: StagedOperand, k: int, buffer: int, part: TilePart) -> Sequence[FragmentRead]:
        """The fragment loads of step ``k`` of a part."""
        loads = x.fragment_loads(k, buffer)
        return loads[: len(loads) // part.of(x.name)]

    last_step = Last("steps")

    @cached_property
    def read_ahead(self) -> dict[str, list[tuple[int, int, str]]]:
        """Operand -> (step, buffer, guard) of the fragment loads that each step issues for the next one."""
        last = self.last_step
        return {
            x.name: [(0 if k == last else k + 1, x.buffer(k + 1), "@%has_next " if k == last else "") for k in steps]
            for x, steps in ((x, range(self.steps)) for x in self.operands)
        }

    # ---- stages

    @property
    def stages(self) -> int:
        return self.config.stages

    @property
    def stages_ahead(self) -> int:
        """Stages that are filled before the first is read."""
        return self.stages - 1

    @property
    def ring_bytes(self) -> int:
        """Bytes of all stages."""
        return self.stages * self.stage_bytes

    @property
    def wrap_bytes(self) -> int:
        """Bytes from the last stage to the first."""
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
        """The instruction that waits for the stage that is read next; copies of those after it may be in flight."""
        return [f"cp.async.wait_group {self.stages - 2};"] if self.asynchronous else []

    @property
    def prefetched(self) -> list[StagedOperand]:
        """The operands whose fragments are read a step ahead."""
        return [x for x in self.operands if x.prefetches]

    @property
    def stage_order(self) -> str:
        """The slot that says when loads are stored to shared memory."""
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
        """The accumulators, in vectors of at most 16 bytes."""
        n = 2 if self.acc.ptx_type == "f64" else 4
        return [self.acc.all[i : i + n] for i in range(0, self.acc.size, n)]

    @cached_property
    def sum_vectors(self) -> list[list[str]]:
        """The vectors of the first set of accumulators."""
        return self.acc_vectors[: len(self.acc_vectors) // self.config.ks]

    @property
    def further_sets(self) -> list[tuple[list[str], list[str]]]:
        """Vectors of the first set of accumulators, each with the one of another set that has the same elements."""
        first = self.sum_vectors
        return [(first[i % len(first)], names) for i, names in enumerate(self.acc_vectors) if i >= len(first)]

    @property
    def joined(self) -> list[str]:
        """The accumulators that reading a row of sums adds to others."""
        return []

    @property
    def vector_access(self) -> str:
        """The type of an access to a vector of accumulators."""
        return width(len(self.acc_vectors[0]), self.acc.ptx_type)

    @property
    def sum_offsets(self) -> range:
        """The offset of each vector of a thread in the sums of a thread group."""
        step = self.group * self.acc_vector_bytes
        return range(0, len(self.sum_vectors) * step, step)

    @property
    def group_sums_count(self) -> int:
        """Vectors of the first set of accumulators of a thread group."""
        return len(self.sum_vectors) * self.group

    @property
    def joined_sums(self) -> list[JoinedSums]:
        """How the block adds the sums of its thread groups, a vector a thread at once."""
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
        """Role of a vector's registers -> the registers."""
        names = ("sum", "group_sum", "of_slice")
        return {name: [f"%{name}{i}" for i in range(len(self.acc_vectors[0]))] for name in names}

    @property
    def acc_vector_bytes(self) -> int:
        return len(self.acc_vectors[0]) * (8 if self.acc.ptx_type == "f64" else 4)

    @property
    def acc_add(self) -> str:
        """The instruction that adds accumulators. Those of type b32 are pairs of f16."""
        ptx_type = self.acc.ptx_type
        return f"add.{ptx_type}" if ptx_type == "s32" else f"add.rn.{'f16x2' if ptx_type == 'b32' else ptx_type}"

    @property
    def acc_zero(self) -> str:
        return bits_of(0.0, dtype(self.acc.ptx_type)) if self.acc.ptx_type in ("f32", "f64") else "0"

    @property
    def defers_sts(self) -> bool:
        """True if loads go to registers one iteration before they are stored to shared memory."""
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
        """Threads of a group; groups split the steps of a stage."""
        return int(self.geometry.group)

    log2_group = Log2("group")

    @property
    def several_warps(self) -> bool:
        """True if warps divide the tile among them, so that one may have no element of C."""
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
        """The map (operand, whether it is the first stage, which holds the remainder of K) -> ``skip`` of each load."""
        return {
            (x.name, first): [self.skip(x, load, first) for load in x.loads]
            for x in self.operands
            for first in (False, True)
        }

    @cached_property
    def copy_operands(self) -> dict[tuple[str, bool], list[str]]:
        """The same -> the bytes of each cp.async, and what skips it."""
        return {
            key: [", ".join([str(x.copy_bytes), *([skip] if skip else [])]) for skip in self.skips[key]]
            for x in self.operands
            for key in ((x.name, False), (x.name, True))
        }

    def skip(self, x: StagedOperand, load: StagedLoad, first: bool) -> str:
        """The predicate that skips a load, once the addressing has set it; "" if nothing does. ``first``: of the first
        stage, which holds the remainder of K."""
        if x.addressing.is_im2col or (first and self.checks_bounds):
            return "%skip"
        return load.oob if self.predicated else ""

    @property
    def group_registers(self) -> list[str]:
        """The registers of sums over thread groups."""
        return [".reg .b32 %group_thread, %sums_addr;", ".reg .pred %adds;"] if self.config.kl > 1 else []
