"""Run-time compilation: a compiled function executes consecutive instructions of a basic block in one call.

Races, bounds and undefined registers are checked before the call, by the code that the NumPy steps use. Loads belong to
a compiled function if their addresses are known before it; stores never do. If the checks cannot decide a case, the
NumPy steps execute instead.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ptxgen.emulator.engine.basic_block import Block
from ptxgen.emulator.engine.program import Program
from ptxgen.emulator.memory.address_map import GLOBAL_BASE
from ptxgen.emulator.ops.operands.access import (
    Positions,
    Site,
    global_access,
    info_of,
    sample_global,
    sample_shared,
    shared,
)
from ptxgen.emulator.ops.operands.emitter import LOWER, Emitter, Row, can_compile, emit
from ptxgen.emulator.ptx.syntax import SIZES, Instruction
from ptxgen.emulator.reductions import count_nonzero
from ptxgen.emulator.sync.touch import Reads, page_bits
from ptxgen.emulator.warp_batch import AddressInfo, Mask, Step, WarpBatch
from ptxgen.errors import UnavailableError
from ptxgen.install_advice import install_extra

#: time of a NumPy step by instruction: (microseconds, nanoseconds per lane), measured on an AMD EPYC with Zen 5
STEP_TIMES = {
    **dict.fromkeys(("mad", "mul"), (1.3, 0.3)),
    "cvt": (0.8, 0.25),
    "selp": (1.1, 0.5),
    "fma": (3.5, 0.9),
    "ld": (1.2, 0.45),
    "lop3": (5.0, 1.0),
    "prmt": (10.0, 2.0),
}
#: the time of other NumPy steps: with f32 operands, with operands of 16-bit types or f64, without floating-point
#: operands
REAL_TIME, ROUNDED_TIME, PLAIN_TIME = (1.4, 0.15), (12.0, 4.0), (0.5, 0.1)
GLOBAL_LOAD_TIME = (0.6, 0.3)
#: the time of a call of a compiled function, which reads and writes its registers once; of each of its instructions
CALL_TIME, COMPILED_TIME = (4.0, 1.8), (0.05, 0.15)
#: microseconds to compile a function, and for each of its instructions
COMPILATION_TIME = (1200.0, 60.0)
ROUNDED = {"f16", "bf16", "f16x2", "bf16x2", "f64"}


def step_time(ins: Instruction) -> tuple[float, float]:
    """The time of the NumPy step of an instruction: (microseconds, nanoseconds per lane)."""
    if ins.op == "ld" and "global" in ins.mods:  # most of its time are checks
        return GLOBAL_LOAD_TIME
    if ROUNDED & set(ins.mods) and ins.op not in ("ld", "mov", "selp"):
        return ROUNDED_TIME
    return STEP_TIMES.get(ins.op) or (REAL_TIME if "f32" in ins.mods and ins.op != "mov" else PLAIN_TIME)


def time_saved(instructions: list[Instruction]) -> tuple[float, float]:
    """The time that one call of a compiled function saves: (microseconds, nanoseconds per lane)."""
    times = [step_time(ins) for ins in instructions]
    fixed, lane = (sum(time[i] - COMPILED_TIME[i] for time in times) - CALL_TIME[i] for i in (0, 1))
    return fixed, lane


def address_of(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def available() -> bool:
    """True if llvmlite is installed."""
    try:
        from ptxgen.emulator.engine import llvm  # noqa: F401
    except ImportError:
        return False
    return True


def require(engine: str) -> None:
    """UnavailableError: the engine is ``llvm``, and llvmlite is not installed."""
    if engine == "llvm" and not available():
        raise UnavailableError(f"llvmlite is not installed; {install_extra('emu')}")


class JitCompiler:
    """Compiles the blocks of one program that execute often."""

    def __init__(self, program: Program) -> None:
        self.program = weakref.proxy(program)  # which owns this object
        self.engine = program.options.engine
        require(self.engine)
        self.compiler: Any = None
        self.saved: dict[int, float] = {}  # by block: the microseconds that a compiled function would have saved
        self.compiled: dict[int, list[JitBlock]] = {}
        self.able: dict[int, bool] = {}  # by instruction: whether it can be compiled
        self.sites = {id(site.ins): site for site in program.sites}
        for number in range(len(program.blocks)):
            self.attach(number)

    def attach(self, number: int) -> None:
        """Installs the compiled functions of a block, or a counter of its executions."""
        block = self.program.blocks[number]
        if number in self.compiled:
            self.bind(number, block)
        elif block.steps and self.engine != "numpy":
            self.count_executions(number, block)

    def count_executions(self, number: int, block: Block) -> None:
        """Counts an execution of a block, and compiles the block once its executions would have saved the time of
        compiling it."""
        first = block.steps[0]
        able = [ins for ins in block.contents if ins.op in LOWER and "param" not in ins.mods]
        fixed, lane = time_saved(able)
        lane /= 1000
        if self.engine == "llvm":
            limit = -1.0
        elif fixed <= 0 and lane <= 0:
            return
        else:
            limit = COMPILATION_TIME[0] + COMPILATION_TIME[1] * len(able)

        def count(c: WarpBatch, m: Mask) -> None:
            saved = self.saved[number] = self.saved.get(number, 0.0) + max(fixed + lane * c.n, 0.0)
            if saved > limit:
                block = self.program.blocks[number]
                block.steps[0] = first
                self.compile(number, block, c.n)
                block.steps[0](c, m)
            else:
                first(c, m)

        block.steps[0] = count

    def plain(self, number: int) -> list[Any]:
        """The instructions of a block that execute for any set of lanes (``plain`` rows of the instruction table)."""
        program = self.program
        start, end = program.starts[number], [*program.starts[1:], len(program.code)][number]
        return [b for b in program.bodies[start:end] if b["row"].execution == "plain"]

    def compile(self, number: int, block: Block, lanes: int) -> None:
        """Compiles the sequences of instructions of a block that are faster compiled, for warp batches with ``lanes``
        lanes."""
        try:
            from ptxgen.emulator.engine import llvm
        except ImportError:
            self.engine = "numpy"
            return
        runs = self.compiled[number] = self.split(number, lanes)
        if runs:
            self.compiler = self.compiler or llvm.Compiler()
            for run, function in zip(runs, self.compiler.compile([(r.emitter, r.live()) for r in runs]), strict=True):
                run.function, run.compiler = function, self.compiler
            self.bind(number, block)

    def bind(self, number: int, block: Block) -> None:
        """Replaces steps of a block by its compiled functions, from the last to the first, because each replaces
        several steps."""
        for run in reversed(self.compiled[number]):
            block.steps[run.first : run.first + len(run.bodies)] = [run.step()]

    def split(self, number: int, lanes: int) -> list[JitBlock]:
        """The sequences of instructions of a block, each of which is compiled to one function."""
        program = self.program
        bodies = self.plain(number)
        runs: list[JitBlock] = []
        some: list[Any] = []
        written: set[int] = set()

        def close(before: int) -> None:
            fixed, lane = time_saved([body["ins"] for body in some])
            if some and (self.engine == "llvm" or fixed + lane * lanes / 1000 > 0):
                runs.append(JitBlock(self, number, before - len(some), list(some)))
            some.clear()
            written.clear()

        for i, body in enumerate(bodies):
            ins = body["ins"]
            site = self.sites.get(id(ins))
            if not self.can_compile(ins, site):
                close(i)
                continue
            early = set()  # registers whose values must be known before the function is called
            if site is not None:
                early |= {slot for slot, keys in program.builder.address_slots.items() if site.key in keys}
            if ins.pred is not None and (site is not None or body["before"] or program.undefined.early(body)):
                early.add(ins.pred.slot)
            if early & written:
                close(i)
            some.append(body)
            written |= set(body["writes"])
        close(len(bodies))
        return runs

    def can_compile(self, ins: Instruction, site: Site | None) -> bool:
        """True if an instruction can be compiled; ``site``: its memory operand."""
        able = self.able.get(id(ins))
        if able is None:
            able = can_compile(self.program.builder, ins)
            if site is not None and able:  # the function adds the offset to a number of elements
                able = site.offset % SIZES[ins.mods[-1]] == 0
            self.able[id(ins)] = able
        return able


class Group:
    """Loads of one size through one address register. One check covers all of them in the common case."""

    def __init__(self, space: str, key: int, size: int, unit: int) -> None:
        self.space, self.key, self.size, self.unit = space, key, size, unit
        self.sites: list[Site] = []
        self.accesses: list[tuple[int, Instruction]] = []
        self.low, self.high, self.ored = 1 << 62, -(1 << 62), 0

    def add(self, site: Site) -> None:
        self.sites.append(site)
        self.accesses.append((site.offset, site.ins))
        self.low, self.high = min(self.low, site.offset), max(self.high, site.offset + site.size)
        self.ored |= site.offset

    def info(self, c: WarpBatch) -> AddressInfo:
        info = c.addresses[self.key]
        if info is None:
            info = info_of(c, self.sites[0], c.shared_base if self.space == "shared" else -GLOBAL_BASE)
        return info

    def inside(self, c: WarpBatch, info: AddressInfo) -> bool:
        """True if all addresses are aligned and in the shared memory of the block, or in one allocation."""
        low, high = info.lo + self.low, info.hi + self.high
        if (info.ored | self.ored) & (self.size - 1):
            return False
        if self.space == "shared":
            return low >= c.wave.base and high <= c.wave.end
        if not (info.start <= low and high <= info.end):
            extent = c.wave.engine.memory.extent(low)
            if extent is None or high > extent[1]:
                return False
            info.start, info.end = extent
        return True

    def check_together(self, c: WarpBatch, m: Mask) -> bool:
        """Applies the checks of ``shared`` and ``global_access`` to all loads. Returns False, without effect, if a load
        may fault."""
        engine = c.wave.engine
        if (engine.shadow is not None) if self.space == "global" else (c.wave.windows is not None):
            return False
        if m is None:
            m = c.alive
        info = self.info(c)
        if not self.inside(c, info):
            return False
        if self.space == "shared":
            checks = c.wave.checks
            if checks.hook is not None:
                return False
            pages = page_bits(info.lo + self.low, info.hi + self.high)
            if pages & (checks.copy_pages | ~checks.valid_pages):
                return False
            if checks.races:
                checks.record_reads(c, Reads(pages, info.index, self.accesses, self.size, m))
            sample = sample_shared
        else:
            sample = sample_global
        if engine.sampling:
            for site in self.sites:
                if engine.sampling == 2 or site.count + c.blocks >= site.next_sample:
                    sample(c, site, Positions(info.unit(self.unit), site.offset // self.unit, None, m), self.unit)
                else:
                    site.count += c.blocks
        return True


#: a check that runs before the function: (steps, group of loads or None, guard, whether it is negated, check of the
#: guard)
Early = tuple[list[Step], Any, int | None, bool, Any]


class JitBlock:
    """A sequence of instructions of one basic block that one compiled function executes."""

    def __init__(self, owner: JitCompiler, number: int, first: int, bodies: list[Any]) -> None:
        self.compiler: Any = None  # owns the compiled code
        self.program = program = owner.program
        self.number, self.first, self.bodies = number, first, bodies
        self.function: Any = None
        self.emitter = Emitter(program.builder)
        for body in bodies:
            emit(self.emitter, body["ins"])
        self.sites = [owner.sites.get(id(body["ins"])) for body in bodies]
        self.registers = {slot for body in bodies for slot in (*body["reads"], *body["writes"])}
        self.registers |= {body["ins"].pred.slot for body in bodies if body["ins"].pred is not None}
        self.steps: list[Step] = []  # NumPy steps for undefined values, built for ``tracked`` tracked registers
        self.tracked = -1
        self.positions = [n for key, n in self.emitter.table.items() if key[0] == "index"]

    def live(self) -> set[Row]:
        """The rows of registers that the function writes and later instructions may use."""
        last = self.program.starts[self.number] + self.first + len(self.bodies) - 1
        slots = self.program.liveness.after(self.number, last)
        registers = {slot: reg for body in self.bodies for slot, reg in body["writes"].items()}
        return {self.program.builder.place(reg) for slot, reg in registers.items() if slots >> slot & 1}

    def before(self) -> list[Early]:
        """The checks that run before the function, in order."""
        known = self.program.undefined
        out: list[Early] = []
        groups: dict[Any, Group] = {}
        for body, site in zip(self.bodies, self.sites, strict=True):
            guard, negated = body["guard"], body["ins"].negated
            check = known.guard_check(body["ins"])
            if check is not None and body["ins"].pred.slot in known.late:
                check = None
            probe = known.probe(body)
            hooks = body["before"] if probe is None else [*body["before"], probe]
            recording = [known.record_write(slot) for slot in body["writes"] if slot in known.initial]
            group_added: Any = None
            if site is not None:
                which = (site.space, site.key, site.size, SIZES[body["ins"].mods[-1]])
                separate = guard is not None or hooks
                group = None if separate else groups.get(which)
                if group is None:
                    group_added = group = Group(*which)
                    if not separate:
                        groups[which] = group
                group.add(site)
            if group_added is not None or hooks or check:
                out.append((list(hooks), group_added, guard, negated, check))
            if recording:
                out.append((recording, None, guard, negated, None))
        return out

    def step(self) -> Step:
        program, function = self.program, self.function
        table_of, positions = self.emitter.table, self.positions
        loads = bool(positions)
        stale = sorted(
            {k for body in self.bodies for s in body["writes"] for k in program.builder.address_slots.get(s, ())}
        )
        before = self.before()

        flags = program.flags
        late = sorted(flags[slot] for slot in self.registers & program.undefined.late)

        def run_steps(c: WarpBatch, m: Mask, tracked: int) -> None:
            """Executes all instructions by their NumPy steps with all checks.

            ``tracked``: the number of tracked registers at the start. Recorded writes of earlier instructions remain
            valid, since these instructions read no undefined register.
            """
            c.undefined_next.clear()
            c.written[tracked:] = program.undefined.fresh[tracked:]
            for i in range(len(self.bodies)):
                if len(self.steps) != len(self.bodies) or self.tracked != len(flags):
                    self.steps = [program.step_of(body) for body in self.bodies]
                    self.tracked = len(flags)
                self.steps[i](c, m)

        def run(c: WarpBatch, m: Mask) -> None:
            tracked = len(flags)
            for flag in late:  # undefined values depend on guards that the function computes
                if c.written[flag] is not True:
                    run_steps(c, m, tracked)
                    return
            table, where = c.tables.get(self) or self.table(c)
            for n in positions:
                table[n] = table[0]
            for hooks, group, guard, negated, check in before:
                q = m
                if guard is not None:
                    if check is not None:
                        check(c, m)
                    p = c.v[guard]
                    base = c.alive if m is None else m
                    q = (~p if base is None else base & ~p) if negated else p.copy() if base is None else base & p
                    k = count_nonzero(q)
                    if k == c.count:
                        q = None
                    elif not k:
                        continue
                for hook in hooks:
                    if hook(c, q):
                        run_steps(c, m, tracked)
                        return
                if group is None:
                    continue
                unit = group.unit
                if not group.check_together(c, q):
                    for site in group.sites:
                        (shared if group.space == "shared" else global_access)(c, site, q, unit)
                        if len(flags) != tracked or c.undefined_next:
                            run_steps(c, m, tracked)
                            return
                # the positions of lanes that do not execute have not been checked; the function does not use them
                table[table_of["index", group.space, group.key, unit]] = group.info(c).pointer(unit)
            mask = c.alive if m is None and loads else m
            function(0, c.n, None if mask is None else address_of(mask), where)
            addresses = c.addresses
            for n in stale:
                addresses[n] = None

        return run

    def table(self, c: WarpBatch) -> tuple[Any, int]:
        """The pair (pointer table of a warp batch, its address). Each call fills in the pointers to positions."""
        zeros = c.tables.setdefault("zeros", np.zeros(max(c.n, 16), np.int64))  # entry 0 of the table
        out = np.full(len(self.emitter.table), address_of(zeros), np.uint64)
        for key, n in self.emitter.table.items():
            if key[0] == "row":
                out[n] = address_of(c.file[key[1]][key[2]])
            elif key[0] == "special":
                out[n] = address_of(c.specials[key[1]])
            elif key[0] == "arena":
                out[n] = address_of((c.wave if key[1] == "shared" else c.wave.engine.memory).views[1])
        entry = c.tables[self] = out, int(out.ctypes.data)
        return entry
