"""Run-time compilation: a compiled function executes consecutive instructions of a basic block in one call.

Races, bounds and undefined registers are checked before the call, by the code that the NumPy steps use. Loads belong to
a compiled function if their addresses are known before it; stores never do. Where a check finds something unusual, the
NumPy steps execute instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.emulator.engine import jit_integer  # noqa: F401  (filling the table of instructions)
from ptxgen.emulator.engine.basic_block import Block
from ptxgen.emulator.engine.jit_emitter import Emitter, able, emit
from ptxgen.emulator.engine.program import Program
from ptxgen.emulator.memory.address_map import GLOBAL_BASE, SHARED_BASE
from ptxgen.emulator.ops.access import Place, Site, global_access, info_of, sample_global, sample_shared, shared
from ptxgen.emulator.ptx.syntax import SIZES
from ptxgen.emulator.sync.touch import Touch, page_bits
from ptxgen.emulator.warp_batch import AddressInfo, Mask, Step, WarpBatch
from ptxgen.errors import UnavailableError

#: executions of an instruction, by lanes, after which it pays to compile it; and for engine "llvm"
WARM = {"auto": 40_000, "llvm": -1, "numpy": 1 << 62}


#: lanes that a step of NumPy costs besides those that it works on
STEP = 2048


#: instructions in a run, at least
SHORTEST = {"auto": 4, "llvm": 1}


def address_of(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def nothing(c: WarpBatch, m: Mask) -> None:
    """Replaces the step of an instruction that a compiled function has executed."""


def available() -> bool:
    """Whether llvmlite is there."""
    try:
        from ptxgen.emulator.engine import llvm  # noqa: F401
    except ImportError:
        return False
    return True


class JitCompiler:
    """Compiles the blocks of one program that run often."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.engine = program.options.engine
        if self.engine == "llvm" and not available():
            raise UnavailableError('llvmlite is not installed; pip install "ptxgen[emu]"')
        self.compiler: Any = None
        self.heat: dict[int, int] = {}
        self.found: dict[int, list[JitBlock]] = {}
        self.left_out: set[int] = set()  # loads that stay with NumPy
        self.sites = {id(site.ins): site for site in program.sites}
        for number in range(len(program.blocks)):
            self.attach(number)

    def attach(self, number: int) -> None:
        """Installs the compiled functions of a block, or a counter that finds out whether the block runs often."""
        block = self.program.blocks[number]
        if number in self.found:
            for run in self.found[number]:
                run.bind(block)
        elif block.steps and self.engine != "numpy":
            self.watch(number, block)

    def watch(self, number: int, block: Block) -> None:
        first = block.steps[0]

        def count(c: WarpBatch, m: Mask) -> None:
            heat = self.heat[number] = self.heat.get(number, 0) + c.n + STEP
            if heat > WARM[self.engine]:
                block.steps[0] = first
                self.compile(number, block)
                block.steps[0](c, m)
            else:
                first(c, m)

        block.steps[0] = count

    def leave_out(self, number: int, sites: list[Site]) -> None:
        """Some loads of a block have addresses that are unusual: it is made anew without them."""
        self.left_out |= {id(site.ins) for site in sites}
        block = self.program.blocks[number]
        block.steps[:] = [self.program.step_of(body) for body in self.plain(number)]
        self.compile(number, block)

    def plain(self, number: int) -> list[Any]:
        """The instructions of a block that have steps."""
        program = self.program
        start, end = program.starts[number], [*program.starts[1:], len(program.code)][number]
        return [b for b in program.bodies[start:end] if b["row"].kind == "plain"]

    def compile(self, number: int, block: Block) -> None:
        try:
            from ptxgen.emulator.engine import llvm
        except ImportError:
            self.engine = "numpy"
            return
        runs = self.found[number] = self.split(number)
        if runs:
            self.compiler = self.compiler or llvm.Compiler()
            for run, function in zip(runs, self.compiler.compile([r.emitter for r in runs]), strict=True):
                run.function = function
                run.bind(block)

    def split(self, number: int) -> list[JitBlock]:
        """The runs of a block."""
        program = self.program
        bodies = self.plain(number)
        runs: list[JitBlock] = []
        some: list[Any] = []
        written: set[int] = set()

        def close(before: int) -> None:
            if len(some) >= SHORTEST[self.engine]:
                runs.append(JitBlock(self, number, before - len(some), list(some)))
            some.clear()
            written.clear()

        for i, body in enumerate(bodies):
            ins = body["ins"]
            site = self.sites.get(id(ins))
            # lanes whose guard is false may have no valid global address
            guarded_load = site is not None and site.space == "global" and ins.pred is not None
            if guarded_load or id(ins) in self.left_out or not able(program.builder, ins):
                close(i)
                continue
            early = set()  # registers that must be known before the run
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


class Group:
    """Loads through one address register, all of one size: checked together in the common case."""

    def __init__(self, space: str, key: int, size: int, unit: int) -> None:
        self.space, self.key, self.size, self.unit = space, key, size, unit
        self.sites: list[Site] = []
        self.low, self.high, self.ored = 1 << 62, -(1 << 62), 0

    def add(self, site: Site) -> None:
        self.sites.append(site)
        self.low, self.high = min(self.low, site.offset), max(self.high, site.offset + site.size)
        self.ored |= site.offset

    def info(self, c: WarpBatch) -> AddressInfo:
        found = c.addresses[self.key]
        if found is None:
            found = info_of(c, self.sites[0], c.shared_base if self.space == "shared" else -GLOBAL_BASE)
        return found

    def inside(self, c: WarpBatch) -> bool:
        """Whether all lanes have addresses within the block's memory, or within one allocation, and aligned."""
        info = self.info(c)
        low, high = info.lo + self.low, info.hi + self.high
        if (info.ored | self.ored) & (self.size - 1):
            return False
        if self.space == "shared":
            return (low >= SHARED_BASE and high <= c.chunk.end) or c.chunk.windows is not None
        if not (info.start <= low and high <= info.end):
            found = c.chunk.engine.memory.extent(low)
            if found is None or high > found[1]:
                return False
            info.start, info.end = found
        return True

    def check_together(self, c: WarpBatch, m: Mask) -> bool:
        """Does what `shared` and `global_access` do for all loads; False, and nothing done, where one may fault."""
        engine = c.chunk.engine
        if m is None:
            m = c.alive
        info = self.info(c)
        if self.space == "global" and engine.shadow is not None:
            return False
        if self.space == "shared":
            checks = c.chunk.checks
            if c.chunk.windows is not None or checks.hook is not None:
                return False
            pages = page_bits(info.lo + self.low, info.hi + self.high)
            if pages & (checks.copy_pages | ~checks.valid_pages):
                return False
            if checks.races:
                index = info.index
                touches = [Touch(pages, index, s.offset, self.size, m, s.ins) for s in self.sites]
                for touch in touches:
                    checks.record(c, touch, "read")
            sample = sample_shared
        else:
            sample = sample_global
        if engine.sampling:
            for site in self.sites:
                if engine.sampling == 2 or site.count + c.blocks >= site.next_sample:
                    sample(c, site, Place(info.unit(self.unit), site.offset // self.unit, None, m), self.unit)
                else:
                    site.count += c.blocks
        return True


#: one thing that is done before the function runs: hooks, and perhaps loads that belong together, under a guard
Early = tuple[list[Step], Any, int | None, bool, Any]


class JitBlock:
    """Consecutive instructions of one block."""

    def __init__(self, owner: JitCompiler, number: int, first: int, bodies: list[Any]) -> None:
        self.owner = owner  # which keeps the code
        self.program = program = owner.program
        self.number, self.first, self.bodies = number, first, bodies
        self.function: Any = None
        self.unusual: list[Site] = []  # loads that turned out to be
        self.emitter = Emitter(program.builder)
        for body in bodies:
            emit(self.emitter, body["ins"])
        self.sites = [owner.sites.get(id(body["ins"])) for body in bodies]
        self.registers = {slot for body in bodies for slot in (*body["reads"], *body["writes"])}
        self.registers |= {body["ins"].pred.slot for body in bodies if body["ins"].pred is not None}
        self.steps: list[Step] = []  # of NumPy, where undefined values are about, with as many registers tracked
        self.tracked = -1
        self.positions = [n for key, n in self.emitter.table.items() if key[0] == "index"]

    def bind(self, block: Block) -> None:
        """Puts the function in the place of the steps."""
        plain = self.bodies
        block.steps[self.first : self.first + len(plain)] = [self.step(block), *[nothing] * (len(plain) - 1)]

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
            notes = [known.note(slot) for slot in body["writes"] if slot in known.suspects]
            what: Any = None
            if site is not None:
                which = (site.space, site.key, site.size, SIZES[body["ins"].mods[-1]])
                alone = guard is not None or hooks
                group = None if alone else groups.get(which)
                if group is None:
                    what = group = Group(*which)
                    if not alone:
                        groups[which] = group
                group.add(site)
            if what is not None or hooks or check:
                out.append((list(hooks), what, guard, negated, check))
            if notes:
                out.append((notes, None, guard, negated, None))
        return out

    def step(self, block: Block) -> Step:
        program, function = self.program, self.function
        table_of, positions = self.emitter.table, self.positions
        loads = bool(positions)
        stale = sorted(
            {k for body in self.bodies for s in body["writes"] for k in program.builder.address_slots.get(s, ())}
        )
        before = self.before()
        groups: list[Group] = [what for _, what, *_ in before if what is not None]
        count_nonzero = np.count_nonzero

        flags = program.flags
        late = sorted(flags[slot] for slot in self.registers & program.undefined.late)

        def run_steps(c: WarpBatch, m: Mask, tracked: int) -> None:
            """The steps do it all, from the first one, with their checks; `tracked`: as many registers were, before.

            The notes of earlier instructions stay: nothing that was read before them was undefined.
            """
            c.undefined_next.clear()
            c.written[tracked:] = program.undefined.fresh[tracked:]
            for i in range(len(self.bodies)):
                if len(self.steps) != len(self.bodies) or self.tracked != len(flags):
                    self.steps = [program.step_of(body) for body in self.bodies]
                    self.tracked = len(flags)
                self.steps[i](c, m)

        def run(c: WarpBatch, m: Mask) -> None:
            for group in groups:
                if self.unusual or not group.inside(c):
                    self.owner.leave_out(self.number, self.unusual or group.sites)
                    block.steps[self.first](c, m)
                    return
            tracked = len(flags)
            for flag in late:  # guards are known too late to follow undefined values here
                if c.written[flag] is not True:
                    run_steps(c, m, tracked)
                    return
            table, where = c.tables.get(self) or self.table(c)
            for n in positions:
                table[n] = table[0]
            kept = []  # so that it stays where it is
            for hooks, what, guard, negated, check in before:
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
                if what is None:
                    continue
                space, unit = what.space, what.unit
                n = table_of["index", space, what.key, unit]
                if what.check_together(c, q):
                    table[n] = what.info(c).pointer(unit)
                    continue
                for site in what.sites:
                    place = (shared if space == "shared" else global_access)(c, site, q, unit)
                    if place.lanes is not None or len(flags) != tracked or c.undefined_next:
                        run_steps(c, m, tracked)
                        if place.lanes is not None:
                            self.unusual = [site]
                        return
                    kept.append(place.index)
                    table[n] = address_of(place.index)
            mask = c.alive if m is None and loads else m
            function(0, c.n, None if mask is None else address_of(mask), where)
            addresses = c.addresses
            for n in stale:
                addresses[n] = None

        return run

    def table(self, c: WarpBatch) -> tuple[Any, int]:
        """The pointers to a warp batch's rows, and where they are; positions are filled in each time."""
        zeros = c.tables.setdefault("zeros", np.zeros(max(c.n, 16), np.int64))  # the first of all
        out = np.full(len(self.emitter.table), address_of(zeros), np.uint64)
        for key, n in self.emitter.table.items():
            if key[0] == "row":
                out[n] = address_of(c.file[key[1]][key[2]])
            elif key[0] == "special":
                out[n] = address_of(c.specials[key[1]])
            elif key[0] == "arena":
                out[n] = address_of((c.chunk if key[1] == "shared" else c.chunk.engine.memory).views[1])
        found = c.tables[self] = out, int(out.ctypes.data)
        return found
