"""Warp batches: the lanes that execute together. A batch has one warp of every block of a wave.

Lane ``i`` of a batch belongs to block ``i // 32`` of the wave. Registers are rows of arrays over these lanes. A group
is the set of lanes at one position of the program. Steps name the batch ``c`` and the mask of executing lanes ``m``; a
mask of None means every live lane.

The protocols declare what ``sync`` and ``ops`` use of the engine, of the program and of the checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.address_map import (
    GLOBAL_BASE,
    LOCAL_BITS,
    LOCAL_END,
    LOCAL_WINDOW,
    OFFSET,
    SHARED_BASE,
    SHARED_WINDOW,
    WINDOW,
)
from ptxgen.emulator.memory.device_heap import DeviceHeap
from ptxgen.emulator.memory.global_memory import GlobalMemory, typed_views
from ptxgen.emulator.memory.tensormap import TensorRegion
from ptxgen.emulator.memory.variables import access_size, element, shared_element
from ptxgen.emulator.options import Options
from ptxgen.emulator.ptx.demangle import demangled
from ptxgen.emulator.ptx.dtypes import DTYPES, SPECIAL_PREDICATES, SPECIALS_64
from ptxgen.emulator.ptx.syntax import SIZES, Function, Instruction, Reg, Unit, Variable
from ptxgen.emulator.reductions import count_nonzero
from ptxgen.emulator.stats import Stats
from ptxgen.errors import Fault, OutOfBoundsFault, Place

Array = NDArray[Any]
Mask = NDArray[np.bool_] | None


#: matches a line number of the PTX text in a message
LINE = re.compile(r"\bline (\d+)")


#: a step: executes one instruction; called with a warp batch and a mask
Step = Callable[..., None]


@dataclass(frozen=True, slots=True)
class View:
    """A typed view of one row of the register file. ``width``: bytes per lane (0: truth values); ``type``: the PTX
    type.

    If the type is smaller than a register, ``part`` is the number of the part that the view shows, 0 for the lowest.
    """

    width: int
    row: int
    type: str
    part: int = 0


#: last word of %reserved_smem_offset_* -> offset in reserved shared memory
RESERVED_OFFSETS = {"begin": 0, "end": SHARED_BASE, "cap": SHARED_BASE, "0": 0, "1": 16}

#: generator of the random numbers that stand for unknown values
_NUMBERS = np.random.default_rng(0)


def fresh_terms(count: int) -> Array:
    """Random numbers that stand for new unknown values."""
    return _NUMBERS.integers(1, 1 << 63, count, np.uint64)


class AddressInfo:
    """Facts about the addresses in one register of a warp batch: smallest, largest, alignment, and positions in an
    arena."""

    __slots__ = ("elements", "end", "hi", "index", "lo", "ored", "pointers", "start")

    def __init__(self, lo: int, hi: int, ored: int, index: Array) -> None:
        self.lo, self.hi, self.ored, self.index = lo, hi, ored, index
        self.elements: dict[int, Array] = {1: index}
        self.pointers: dict[int, int] = {}
        self.start, self.end = 1, 0  # the allocation that contained them last

    def pointer(self, size: int) -> int:
        """The host address of the array of positions in elements of ``size`` bytes."""
        pointer = self.pointers.get(size)
        if pointer is None:
            pointer = self.pointers[size] = self.unit(size).__array_interface__["data"][0]
        return pointer

    def unit(self, size: int) -> Array:
        """The positions in elements of ``size`` bytes, rounded down."""
        positions = self.elements.get(size)
        if positions is None:
            positions = self.elements[size] = self.index >> (size.bit_length() - 1)
        return positions


def spread(values: Array, lanes: int) -> Array:
    """An array with an element for each lane, from one that may have a single value of all lanes."""
    return values if values.ndim else np.broadcast_to(values, (lanes,))


def any_lane(mask: Array) -> Array:
    """True for each warp of which the mask has a lane; several times faster than ``any``."""
    words = mask.view(np.uint64).reshape(-1, 4)
    out: Array = (words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]) != 0
    return out


class RegisterSets(Protocol):
    """The registers that wgmma instructions use: see ``sync.wgmma_registers``."""

    rows: dict[int, Array]
    overlaps: list[list[int]]
    of: dict[int, list[int]]


class UndefinedRegisters(Protocol):
    """The tracked registers of a program: see ``ops.operands.undefined``."""

    fresh: list[bool]
    flags: dict[int, int]

    def fault_text(self, c: WarpBatch, reg: Reg, ins: Instruction) -> str: ...

    def shared_address(self, c: WarpBatch, reg: Reg, ins: Instruction) -> int | None: ...


class AddressSlots(Protocol):
    """The registers that hold addresses: slot of a register -> the keys of its address caches."""

    address_slots: dict[int, list[int]]


class Kernel(Protocol):
    """The compiled kernel that a wave executes: ``engine.program.Program``."""

    name: str
    unit: Unit
    function: Function
    rows: dict[int, int]
    views: list[Any]
    keys: int
    counters: int
    local_size: int
    asynchronous: bool
    proxies: bool
    messages: bool
    grains: tuple[int, int]
    flags: dict[int, int]
    loops: dict[int, int]
    shared_variables: list[Variable]

    def first_of_line(self, line: int) -> Instruction | None: ...

    @property
    def builder(self) -> AddressSlots: ...

    @property
    def undefined(self) -> UndefinedRegisters: ...

    @property
    def register_sets(self) -> RegisterSets: ...

    def mark_undefined(self, c: WarpBatch, loaded: dict[int, tuple[Array, int, str]], ins: Instruction) -> None: ...


class GlobalChecks(Protocol):
    """The checks for races in global memory: ``sync.shadow.Shadow``."""

    def access(self, c: WarpBatch, ins: Instruction, operation: str, size: int, at: Array, lanes: Array) -> None: ...

    def store(
        self, c: WarpBatch, ins: Instruction, at: Array, lanes: Array, size: int, old: Array, values: Array
    ) -> None: ...

    def bulk(self, c: WarpBatch, ins: Instruction, lane: int, low: int, high: int, writes: bool) -> None: ...

    def box(self, c: WarpBatch, ins: Instruction, lane: int, region: TensorRegion, writes: bool) -> None: ...

    def use_map(self, c: WarpBatch, ins: Instruction, lane: int, address: int) -> None: ...

    def wait(self, c: WarpBatch, warps: Array) -> None: ...


class Launch(Protocol):
    """The launch that a wave belongs to: ``engine.engine.Engine``."""

    memory: GlobalMemory
    heap: DeviceHeap | None
    options: Options
    stats: Stats
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    cluster_blocks: int
    clustered: bool
    blocks: int
    threads: int
    params: bytes
    param_bytes: NDArray[np.uint8]
    shared_size: int
    dynamic_size: int
    grid_workspace: int
    uses_reserved: bool
    undefined_bytes: dict[int, str]
    progress: int
    late: bool
    sampling: int
    random: Random
    generator: np.random.Generator

    @property
    def program(self) -> Kernel: ...

    @property
    def shadow(self) -> GlobalChecks | None: ...

    def block_coordinates(self, first: int, count: int) -> tuple[Array, Array]: ...

    def report(self, error: Fault) -> None: ...

    def waves(self) -> list[Wave]: ...


class SharedChecks(Protocol):
    """The checks of shared memory: ``sync.checks.Checks``."""

    hook: Callable[[WarpBatch, Any, str], None] | None
    races: bool
    size: int
    base: Array
    blocks: Array
    clocks: Array
    copy_pages: int
    valid_pages: int
    valid_views: dict[int, Array]
    maybe_uninitialised: bool
    lanes: list[Any]
    exchanged: list[Any]

    def clock_of(self, warp: int) -> Array: ...

    def record(self, c: WarpBatch, touch: Any, operation: str) -> None: ...

    def record_reads(self, c: WarpBatch, reads: Any) -> None: ...

    def check_read(self, c: WarpBatch, touch: Any, slots: list[int] | None) -> None: ...

    def check_copies(self, c: WarpBatch, touch: Any, operation: str) -> None: ...

    def begin_copy(self, touch: Any) -> None: ...

    def end_copy(self, touch: Any) -> None: ...

    def mark_written(self, pages: int, positions: Array, size: int) -> None: ...

    def mark_undefined(self, positions: Array, size: int, source: str, terms: Array | None = None) -> None: ...

    def refresh(self, pages: int) -> None: ...

    def close(self, c: WarpBatch) -> None: ...

    def finish(self, c: WarpBatch) -> None: ...

    def synchronise_lanes(self, c: WarpBatch, members: Array) -> None: ...

    def synchronise_warps(self, c: WarpBatch, warps: Array) -> None: ...

    def exchange(self, c: WarpBatch, members: Array | None, event: str = "exchange") -> None: ...

    def synchronise_clocks(self, releasing: Array, acquiring: Array) -> None: ...

    def release_clocks(self, c: WarpBatch, blocks: Array) -> Any: ...

    def acquire_clocks(self, acquiring: Array, released: Any, blocks: Array) -> None: ...


class MessageChecks(Protocol):
    """The messages between threads: ``sync.messages.Messages``."""

    publications: Any

    def apply_received(self, c: WarpBatch, blocks: Array) -> None: ...

    def fence(self, c: WarpBatch, blocks: Array, scope: Any) -> None: ...

    def carried(self, c: WarpBatch, lanes: Array) -> Array: ...

    def receive(self, c: WarpBatch, lanes: Array, numbers: Array, acquires: bool) -> None: ...

    def acquired_clock(self, warp: int, block: int, cluster: int, actor: int, row: int = 0) -> int: ...

    def other_clusters(self, warp: int, block: int) -> dict[int, Array]: ...


class NamedBarriers(Protocol):
    """The named barriers: ``sync.barriers.Barriers``."""

    waiting: list[list[Any]]
    pending: dict[tuple[int, int], list[Any]]
    arrived: Array
    expected: Array
    whole: int

    def arrive_lanes(self, arrival: Any) -> None: ...

    def arrive_complete_warps(self, c: WarpBatch) -> None: ...

    def warps_exited(self, blocks: Array) -> None: ...


class AsyncWork(Protocol):
    """The asynchronous work of a wave: ``sync.async_state.AsyncState``."""

    in_flight: list[Any]

    def advance(self) -> bool: ...

    def finish(self) -> None: ...

    def time_out(self) -> bool: ...

    def check_stalled(self) -> None: ...

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]: ...

    def exit_blocks(self, c: WarpBatch, mask: Array, warps: Array, ins: Instruction) -> None: ...


class WarpBatch:
    """One warp of every block of a wave."""

    def __init__(self, wave: Wave, warp: int) -> None:
        program = wave.program
        self.wave, self.warp = wave, warp
        self.blocks = wave.blocks
        self.n = 32 * wave.blocks
        rows = program.rows
        # rows begin at different offsets of cache lines, which avoids conflict misses
        self.file = {
            w: np.zeros((rows[w], self.n + 192 // (w or 1)), DTYPES[f"u{8 * w}"] if w else bool)[:, : self.n]
            for w in (0, 1, 2, 4, 8)
        }
        self.lane = np.tile(np.arange(32, dtype=np.uint32), wave.blocks)
        self.row = np.repeat(np.arange(wave.blocks, dtype=np.int64), 32)
        self.every_lane = np.arange(self.n)
        self.all_true = np.ones(self.n, bool)
        self.all_true.flags.writeable = False
        self.shared_base = self.row * wave.stride
        self.specials: dict[str, Array] = {}
        self.typed: dict[tuple[int, str], Array] = {}  # ``file`` by width and type of its elements
        self.v: list[Array] = [self.make(view) for view in program.views]
        self.addresses: list[AddressInfo | None] = [None] * program.keys
        self.written: list[Any] = list(program.undefined.fresh)
        self.tables: dict[Any, Any] = {}  # pointer tables of compiled functions

    def make(self, view: View | Array | str) -> Any:
        if isinstance(view, View):
            typed = self.typed.get((view.width, view.type))
            if typed is None:
                typed = self.typed[view.width, view.type] = self.file[view.width].view(DTYPES[view.type])
            size = SIZES[view.type]
            return typed[view.row, view.part :: view.width // size] if size < view.width else typed[view.row]
        if isinstance(view, str):
            name, ptx_type = view.split()
            native: Any = np.uint64 if name[1:] in SPECIALS_64 else bool if name in SPECIAL_PREDICATES else np.uint32
            row = self.specials.setdefault(name, np.zeros(self.n, native))
            if ptx_type == "pred":
                return row
            size = SIZES[ptx_type]
            if size > row.itemsize:
                wide = self.specials.setdefault(f"{name} wide", np.zeros(self.n, np.uint64))
                return wide.view(DTYPES[ptx_type])
            return row.view(DTYPES[ptx_type])[:: row.itemsize // size]
        return np.tile(view, self.n) if view.ndim else view

    # ---- start of a wave

    def reset(self) -> None:
        wave = self.wave
        threads = wave.engine.threads
        first = self.warp * 32
        self.alive: Mask = None
        self.count = self.n
        if first + 32 > threads:
            self.alive = np.tile(np.arange(first, first + 32) < threads, self.blocks)
            self.count = count_nonzero(self.alive)
        self.groups: dict[int, Mask] = {0: None}
        #: positions at which lanes wait for the other lanes of their warp
        self.unconverged: set[int] = set()
        #: targets of backward branches that lanes took after they polled memory
        self.polling: set[int] = set()
        self.ready = True
        self.polled = False
        self.executed = 0  # instructions since the wave began
        self.quiet = 0
        #: for each loop with a counter: the number of iterations of each lane
        self.iterations = np.zeros((self.wave.program.counters, self.n), np.int32)
        for i in range(len(self.addresses)):
            self.addresses[i] = None
        self.written = list(self.wave.program.undefined.fresh)
        self.undefined_origins: dict[int, Any] = {}
        self.undefined_next: dict[int, Array] = {}
        #: flag of a register -> for each lane, the bits that are undefined if the register is; no entry: all bits
        self.undefined_bits: dict[int, Array] = {}
        #: flag of a register -> for each lane in which it is undefined, the sum of the numbers of its unknown terms;
        #: slot -> the same sum for a result of the executing instruction
        self.undefined_terms: dict[int, Array] = {}
        self.undefined_sums: dict[int, Array] = {}
        #: source register of the executing store -> for each lane its undefined bits, the message of its fault, and the
        #: sum of its unknown terms
        self.undefined_sources: dict[int, tuple[Array, str, Array]] = {}
        self.segment: Any = None  # of the race checks: ``sync.checks.Segment``
        self.copies: list[Any] = []
        self.copy_group: int | Array = 0
        self.copy_pages = 0
        self.state: dict[str, Any] = {}
        #: register set -> blocks in which a wgmma in flight uses it; -> blocks in which it was accessed since the last
        #: wgmma.fence
        self.busy_registers: dict[int, Array] = {}
        self.touched_registers: dict[int, Array | bool] = {}
        self.fill_specials()

    def fill_specials(self) -> None:
        for name in list(self.specials):
            if not name.endswith(" wide"):
                self.specials[name][:] = self.special(name)
                wide = self.specials.get(f"{name} wide")
                if wide is not None:
                    wide[:] = self.specials[name]

    def special(self, name: str) -> Array | int:
        """The value of a special register: an array with an element for each lane, or one value for all lanes."""
        engine = self.wave.engine
        word, _, axis = name[1:].partition(".")
        k = "xyz".find(axis) if axis else 0
        if word == "tid":
            thread = self.warp * 32 + self.lane.astype(np.int64)
            x, y, _ = engine.block
            return (thread % x, thread // x % y, thread // (x * y))[k]
        if word == "ntid":
            return engine.block[k]
        if word == "nctaid":
            return engine.grid[k]
        if word in ("ctaid", "clusterid", "cluster_ctaid"):
            ids = self.wave.block_ids[:, k][self.row]
            size = engine.cluster[k]
            return ids if word == "ctaid" else ids // size if word == "clusterid" else ids % size
        if word == "nclusterid":
            return engine.grid[k] // engine.cluster[k]
        if word == "cluster_nctaid":
            return engine.cluster[k]
        if word == "cluster_ctarank":
            return self.wave.ranks[self.row]
        if word == "cluster_nctarank":
            return engine.cluster[0] * engine.cluster[1] * engine.cluster[2]
        if word == "is_explicit_cluster":
            return int(engine.clustered)
        if word.startswith(("window:", "reserved_smem_offset")):
            ranks = self.wave.ranks[self.row] if self.wave.windows is not None else 0
            offset = int(word[7:]) if word[6] == ":" else RESERVED_OFFSETS.get(word.rpartition("_")[2], 0)
            return offset + (ranks << 24)
        if word == "laneid":
            return self.lane
        if word == "warpid":
            return self.warp
        if word == "nwarpid":
            return 64
        if word == "smid":
            return (self.wave.first + self.row) % 132
        if word == "nsmid":
            return 132
        if word.startswith("lanemask"):
            bit = np.uint32(1) << self.lane
            relation = word[-2:]
            below = bit - np.uint32(1)
            return {"eq": bit, "lt": below, "le": below | bit, "gt": ~(below | bit), "ge": ~below}[relation]
        if word == "total_smem_size":
            return -(-engine.shared_size // 128) * 128
        if word == "aggr_smem_size":
            return SHARED_BASE + engine.shared_size
        if word == "dynamic_smem_size":
            return engine.dynamic_size
        if word in ("envreg1", "envreg2"):  # the halves of the address of a cooperative launch's workspace
            return engine.grid_workspace >> 32 if word == "envreg1" else engine.grid_workspace & 0xFFFFFFFF
        return 0

    def local_windows(self) -> Array:
        """The first generic address of the local memory of each lane; it differs from thread to thread."""
        windows: Array | None = self.state.get("local windows")
        if windows is None:
            threads = ((self.wave.first + self.row) * len(self.wave.batches) + self.warp) * 32 + self.lane
            number = threads % ((LOCAL_END - LOCAL_WINDOW >> LOCAL_BITS) - 1)
            windows = self.state["local windows"] = (LOCAL_WINDOW + (number << LOCAL_BITS)).astype(np.uint64)
        return windows

    def forget_addresses(self, number: int) -> None:
        """Drops the cached addresses in the registers of a register set, because the registers have changed."""
        program = self.wave.program
        slots, keys = program.register_sets.of, program.builder.address_slots
        for slot in keys.keys() & slots:
            if number in slots[slot]:
                for key in keys[slot]:
                    self.addresses[key] = None

    # ---- positions

    def live(self) -> Array:
        return self.alive if self.alive is not None else self.all_true

    def add(self, at: int, mask: Mask) -> None:
        """Adds lanes to the group at a position."""
        self.ready = True
        groups = self.groups
        if mask is not None and at in groups:
            group = groups[at]
            assert group is not None
            mask = mask | group
        self.unconverged.discard(at)
        if mask is not None and count_nonzero(mask) == self.count:
            mask = None
        groups[at] = mask

    def add_unconverged(self, at: int, mask: Mask) -> None:
        """Adds lanes at a position where they wait for the other lanes of their warp."""
        self.add(at, mask)
        self.unconverged.add(at)

    def retire(self, mask: Mask) -> None:
        """Removes lanes that have exited."""
        if mask is None:
            mask = self.live()
        alive = self.live() & ~mask
        self.alive = alive
        self.count = count_nonzero(alive)
        self.unconverged.clear()
        for at, group in self.groups.items():
            if group is not None and count_nonzero(group) == self.count:
                self.groups[at] = None

    def warps(self, mask: Mask) -> Any:
        """True for each block of the wave of which the mask has a lane."""
        if mask is None:
            mask = self.alive
        if mask is None:
            return np.ones(self.blocks, bool)
        return any_lane(mask)

    def coordinates(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The pair (coordinates of the block, coordinates of the thread) of a lane."""
        block = self.wave.block_ids[lane // 32]
        x, y, _ = self.wave.engine.block
        t = self.warp * 32 + lane % 32
        return (int(block[0]), int(block[1]), int(block[2])), (t % x, t // x % y, t // (x * y))


class Wave:
    """Consecutive blocks that are resident together, with their shared memory.

    The engine attaches the checks, the barriers and the asynchronous state after each reset.
    """

    checks: SharedChecks
    barriers: NamedBarriers
    messages: MessageChecks | None
    async_state: AsyncWork | None

    def __init__(self, engine: Launch, program: Kernel, blocks: int) -> None:
        self.engine, self.program, self.blocks = engine, program, blocks
        self.stride = -(-(SHARED_BASE + engine.shared_size) // 128) * 128
        #: the range of shared-memory addresses that a block may access
        self.base, self.end = 0 if engine.uses_reserved else SHARED_BASE, SHARED_BASE + engine.shared_size
        self.shared = np.zeros(blocks * self.stride, np.uint8)
        self.views = typed_views(self.shared)
        self.batches = [WarpBatch(self, w) for w in range((engine.threads + 31) // 32)]

    def reset(self, first: int) -> None:
        """Starts the blocks of the launch from number ``first`` on."""
        self.first = first
        self.block_ids, self.ranks = self.engine.block_coordinates(first, self.blocks)
        #: for each block: its rank in the cluster, shifted as in addresses of .shared::cluster; None without clusters
        self.windows = self.ranks << 24 if self.engine.cluster_blocks > 1 else None
        if self.engine.options.uninitialised:
            self.shared[:] = 0xFF
        if not self.base:
            self.shared.reshape(self.blocks, self.stride)[:, :SHARED_BASE] = 0
        self.state: dict[str, Any] = {}
        self.messages = None
        self.async_state = None
        #: for each warp: its clock when it executed griddepcontrol.wait
        self.waited = np.zeros((len(self.batches), self.blocks), np.int32)
        for batch in self.batches:
            batch.reset()

    @property
    def finished(self) -> bool:
        return all(not batch.count for batch in self.batches)


def fault(
    fault_class: type[Fault],
    message: str,
    c: WarpBatch,
    ins: Instruction,
    lane: int,
    address: int | None = None,
    other: Place | None = None,
    lanes: Array | None = None,
    named: bool = True,
) -> Fault:
    """A fault of the given class at one lane of a warp batch.

    ``other``: the other access of a race; ``lanes``: all lanes with the fault; ``named``: True if the message names the
    variable or buffer at the address; False for local memory and parameters.
    """
    program = c.wave.program
    place = place_of(program, "", ins, *c.coordinates(lane))
    lines = {int(line) for line in LINE.findall(message)} - {ins.line, 0 if other is None else other.line}
    mentioned = [place_of(program, "", first) for first in map(program.first_of_line, sorted(lines)) if first]
    inside = named and address is not None and (fault_class is not OutOfBoundsFault or address >= GLOBAL_BASE)
    out = fault_class(
        message,
        entry=program.name,
        line=ins.line,
        instruction=place.instruction,
        block=place.block,
        thread=place.thread,
        address=address,
        frames=place.frames,
        kernel=demangled(program.name),
        variable=variable_at(c.wave, ins, address) if inside and address is not None else "",
        other=other,
        mentioned=tuple(each for each in mentioned if each.frames),
    )
    out.lanes = np.array([lane]) if lanes is None else lanes
    out.count = len(out.lanes) if c.wave.engine.options.faults > 1 else 1
    return out


def place_of(
    program: Kernel,
    name: str,
    ins: Instruction,
    block: tuple[int, int, int] | None = None,
    thread: tuple[int, int, int] | None = None,
) -> Place:
    """The place of an instruction of a program and of the thread that executes it; ``name``: the role of the place in a
    fault."""
    frames = program.unit.frames(ins, program.name)
    return Place(name, ins.line, " ".join(ins.text.split()), frames, block, thread)


def variable_at(wave: Wave, ins: Instruction, address: int) -> str:
    """The element of a variable or of a buffer that an instruction accesses; empty if the address is in none."""
    size, count = access_size(ins)
    program, memory = wave.program, wave.engine.memory
    if {"local", "param", "const"} & set(ins.mods) or address < 0:
        return ""
    if GLOBAL_BASE <= address < SHARED_WINDOW:
        extent = memory.extent(address)
        return "" if extent is None else element(memory.name(extent[0]), address - extent[0], size, count)
    if address < GLOBAL_BASE or address < SHARED_WINDOW + WINDOW:
        return shared_element(program.shared_variables, program.name, wave.end, address & OFFSET, size, count)
    return ""


def suspect(
    fault_class: type[Fault], message: str, c: WarpBatch, ins: Instruction, lane: int, address: int | None = None
) -> None:
    """Reports suspicious behaviour: as a note in the statistics, or, with the option ``strict``, as a fault."""
    if c.wave.engine.options.strict:
        c.wave.engine.report(fault(fault_class, message, c, ins, lane, address))
    else:
        c.wave.engine.stats.note(f"line {ins.line}: {message}")


def active(c: WarpBatch, m: Mask) -> Array:
    """The mask of the executing lanes."""
    return c.live() if m is None else m
