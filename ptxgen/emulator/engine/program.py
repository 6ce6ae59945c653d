"""A compiled kernel: basic blocks of NumPy steps, and the layout of the registers of its warp batches."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.engine.basic_block import BLOCKING, BRANCH, EXIT, WARP, Block
from ptxgen.emulator.engine.liveness import Liveness, operands_of, unproven
from ptxgen.emulator.engine.loops import conditional
from ptxgen.emulator.ops.instruction_set import find
from ptxgen.emulator.ops.operands.access import Site
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.operands.undefined import Origin, Undefined
from ptxgen.emulator.ops.registry import Row
from ptxgen.emulator.ops.spelling import suggestion
from ptxgen.emulator.ops.synchronisation.proxy_fences import asynchronous
from ptxgen.emulator.options import Options
from ptxgen.emulator.ptx.catalogue import reason
from ptxgen.emulator.ptx.syntax import Function, Instruction, Unit, Variable
from ptxgen.emulator.reductions import any_true, count_nonzero
from ptxgen.emulator.stats import instruction_class
from ptxgen.emulator.sync.wgmma_registers import RegisterSets
from ptxgen.emulator.warp_batch import Step, WarpBatch
from ptxgen.errors import BarrierFault, Fault, UnsupportedError

Mask = NDArray[np.bool_] | None


#: faults that end a launch even if it goes on after others
ENDING = (Fault, BarrierFault)
#: number of faults in one execution of an instruction after which none of its lanes executes it
MOST_TRIES = 64


class RuntimeCompiler(Protocol):
    """The run-time compiler of a program: ``engine.jit_blocks.JitCompiler``."""

    def attach(self, number: int) -> None:
        """Replaces the steps of a block by its compiled functions."""


class Program:
    """A kernel compiled for the NumPy engine."""

    def __init__(self, unit: Unit, function: Function, options: Options, clustered: bool = False) -> None:
        self.unit, self.function, self.options, self.clustered = unit, function, options, clustered
        self.name = function.name
        self.code = function.code
        #: True if the kernel has asynchronous work or accesses other blocks; True if the async proxy accesses shared
        #: memory
        self.asynchronous, self.proxies = asynchronous(unit)
        self.asynchronous |= clustered
        #: True if threads may synchronise through global memory
        self.messages = any(
            (ins.op in ("fence", "membar") and ins.mods[:1] != ("proxy",))
            or {"acquire", "release", "acq_rel"} & set(ins.mods)
            for ins in self.code
        )
        #: True if the kernel calls malloc or free
        self.allocates = any(ins.row in ("*malloc", "*free") for ins in self.code)
        self.builder = Builder(function, options, clustered)
        self.sites: list[Site] = []
        self.builder.sites = self.sites
        self.blocks: list[Block] = []
        self.register_sets = self.builder.register_sets = RegisterSets(self.code)
        self.layout()
        operands: list[tuple[int, int]] = []
        self.bodies: list[dict[str, Any]] = []
        for ins, row in zip(self.code, self.table, strict=True):
            self.bodies.append(self.compile(ins, row))
            operands.append(operands_of(self.builder, ins))
        initial: set[int] = set()
        if options.uninitialised:
            initial = unproven(self.code, operands, self.table, self.starts, self.block_of, len(function.registers))
        self.undefined = Undefined(self, initial)
        self.flags = self.undefined.flags
        self.assemble(self.bodies)
        self.views = self.builder.views
        self.rows = self.builder.rows
        self.keys = len(self.builder.keys)
        #: log2 of the bytes of a unit of the race checks, in shared and in global memory; every access covers whole
        #: units
        self.grains = self.grain("shared"), self.grain("global")
        #: the variables in shared memory
        self.shared_variables: list[Variable] = []
        #: compiles the blocks that execute often
        self.jit_compiler: RuntimeCompiler | None = None

    def grain(self, space: str) -> int:
        sizes = [site.size for site in self.sites if site.space in (space, "generic")]
        return min([16, *sizes]).bit_length() - 1

    def first_of_line(self, line: int) -> Instruction | None:
        """The first instruction of a line of the text; None if the kernel has none there."""
        return next((ins for ins in self.code if ins.line == line), None)

    @cached_property
    def liveness(self) -> Liveness:
        return Liveness(self.bodies, self.table, self.starts, self.block_of)

    # ---- basic blocks

    def layout(self) -> None:
        """Finds the first instructions of basic blocks, ``self.starts``, and the block of each, ``self.block_of``."""
        self.table: list[Row] = []
        leaders = {0, *(i for i in self.function.targets.values())}
        for i, ins in enumerate(self.code):
            row = find(ins)
            if row is None:
                why = reason(ins)
                why = f" ({why})" if why else suggestion(ins)
                raise UnsupportedError(f"line {ins.line}: {ins.name} is not emulated{why}: {ins.text}")
            if ins.refusal:
                why = f" ({reason(ins) or ins.refusal}){suggestion(ins)}"
                raise UnsupportedError(f"line {ins.line}: {ins.name} is not emulated{why}: {ins.text}")
            self.table.append(row)
            if row.execution in ("branch", "exit"):
                leaders.add(i + 1)
            elif row.execution in ("warp", "blocking"):
                leaders.update((i, i + 1))
        self.starts = sorted(leaders)
        self.block_of = {start: n for n, start in enumerate(self.starts)}

    def compile(self, ins: Instruction, row: Row) -> dict[str, Any]:
        """The record of one instruction: its step, its guard, its operands, and the steps that must precede it."""
        b = self.builder
        b.begin(ins)
        b.members, b.single = None, False
        try:
            step = row.compile(b, ins)
        except (IndexError, KeyError, TypeError, ValueError, AttributeError) as e:
            raise b.malformed("the operands are too few, too many, or not of the types of the instruction") from e
        reads, writes = list(b.reads), list(b.writes)
        return {
            "row": row,
            "step": step,
            "before": self.register_sets.watch([*reads, *writes], ins),
            "ins": ins,
            "reads": {reg.slot: reg for reg in reads},
            "writes": {reg.slot: reg for reg in writes},
            "propagation": b.propagation,
            "members": b.members,
            "single": b.single,
            "guard": b.src(ins.pred, "pred") if ins.pred is not None else None,
        }

    def assemble(self, bodies: list[dict[str, Any]]) -> None:
        ends = [*self.starts[1:], len(self.code)]
        for start, end in zip(self.starts, ends, strict=True):
            block = Block(start)
            self.blocks.append(block)
            for i in range(start, end):
                body = bodies[i]
                ins, execution = body["ins"], body["row"].execution
                block.contents.append(ins)
                block.polls |= body["row"].polls
                if execution == "branch":
                    block.end, block.ins = BRANCH, ins
                    block.target = self.block_of[ins.scope]
                    block.uniform = "uni" in ins.mods
                elif execution == "exit":
                    block.end, block.ins = EXIT, ins
                elif execution == "plain":
                    block.steps.append(self.step_of(body))
                    continue
                else:
                    block.end = WARP if execution == "warp" else BLOCKING
                    block.ins, block.step = ins, self.step_of(body)
                    block.aligned = "aligned" in ins.mods or (ins.op == "bar" and ins.mods[:1] != ("warp",))
                    block.members, block.single = body["members"], body["single"]
                block.guard, block.negated, block.check = body["guard"], ins.negated, self.undefined.guard_check(ins)
        # the position after the last instruction is an exit
        last = Block(len(self.code))
        last.end = EXIT
        if self.starts[-1] == len(self.code):
            self.blocks[-1] = last
        else:
            self.block_of[len(self.code)] = len(self.blocks)
            self.blocks.append(last)
        self.count_iterations()
        self.local_size = 0
        for blk in self.blocks:
            blk.length = len(blk.contents)
        visible = [[i for i in blk.contents if not i.hidden] for blk in self.blocks]
        self.histogram = [Counter(i.name for i in some) for some in visible]
        self.classes = [Counter(instruction_class(i.op, i.mods) for i in some) for some in visible]

    def count_iterations(self) -> None:
        """Adds counters to loops whose iterations may skip a barrier, and sets ``self.loops``: barrier -> its
        counter."""
        blocks = self.blocks
        after = []
        for i, blk in enumerate(blocks):
            following = [] if blk.end in (BRANCH, EXIT) and blk.guard is None else [i + 1]
            if blk.end == BRANCH:
                following.append(blk.target)
            after.append([n for n in following if n < len(blocks)])
        barriers = [
            i
            for i, blk in enumerate(blocks)
            if blk.end == BLOCKING
            and blk.ins is not None
            and blk.ins.op in ("bar", "barrier")
            and blk.ins.mods[:1] != ("cluster",)
        ]
        self.loops: dict[int, int] = {}
        self.counters = 0
        for barrier, first in conditional(after, barriers).items():
            if blocks[first].counter < 0:
                blocks[first].counter = self.counters
                self.counters += 1
            self.loops[id(blocks[barrier].ins)] = blocks[first].counter

    def step_of(self, body: dict[str, Any]) -> Step:
        """The step of an instruction, composed with its checks and, if the instruction is plain, with its guard."""
        ins, execution = body["ins"], body["row"].execution
        keys = self.builder.address_slots
        check, guard_check = self.undefined.check(body), self.undefined.guard_check(ins)
        before = body["before"] if check is None else [*body["before"], check]
        after = self.undefined.steps_after(body)
        stale = [k for slot in body["writes"] for k in keys.get(slot, ())]
        if stale:
            after.append(self.forget(stale))
        if execution == "blocking":
            return self.chain([*after, *before, body["step"]], True)
        step = self.chain([*before, body["step"], *after], False)
        if self.options.faults > 1:
            step = self.surviving(step, body, after)
        if execution == "plain" and body["guard"] is not None:
            step = self.guarded(step, body["guard"], ins.negated)
            if guard_check is not None:
                step = self.chain([guard_check, step], False)
        return step

    def surviving(self, step: Step, body: dict[str, Any], after: list[Step]) -> Step:
        """A step that lists its faults instead of raising them; lanes with a fault do not execute the instruction and
        get results 0.

        ``after``: the steps that follow the instruction in ``step``. A warp with a fault does not execute a warp-wide
        instruction.
        """
        rows = [self.builder.place(reg) for reg in body["writes"].values()]
        warps = body["row"].execution == "warp"

        def run(c: WarpBatch, m: Mask) -> None:
            executing = c.live() if m is None else m
            remaining, tries = executing, 0
            while any_true(remaining):
                try:
                    step(c, m if remaining is executing else remaining)
                    break
                except Fault as error:
                    if type(error) in ENDING or body["ins"].op == "wgmma":  # other warps wait for its product
                        raise
                    c.wave.engine.report(error)
                    c.undefined_next.clear()
                    c.undefined_sources.clear()
                    bad = np.zeros(c.n, bool)
                    bad[error.lanes] = True
                    if warps:
                        bad = np.repeat(c.warps(bad), 32)
                    tries += 1
                    remaining = remaining & ~bad if tries < MOST_TRIES and any_true(bad & remaining) else bad & False
            if remaining is not executing:
                dropped = executing & ~remaining
                for width, row in rows:
                    c.file[width][row][dropped] = 0
                for each in after:
                    each(c, dropped)

        return run

    # ---- undefined values

    @cached_property
    def blocks_of_register(self) -> dict[int, set[int]]:
        """Slot of a register -> the basic blocks whose instructions use it."""
        out: dict[int, set[int]] = {}
        for number, (start, end) in enumerate(zip(self.starts, [*self.starts[1:], len(self.code)], strict=True)):
            for body in self.bodies[start:end]:
                guard = [body["ins"].pred.slot] if body["ins"].pred is not None else []
                for slot in (*body["reads"], *body["writes"], *guard):
                    out.setdefault(slot, set()).add(number)
        return out

    def rebuild_steps(self, slots: set[int]) -> None:
        """Builds the steps of all blocks that use these registers again, because their checks have changed."""
        ends = [*self.starts[1:], len(self.code)]
        for number in sorted(set().union(*(self.blocks_of_register.get(slot, ()) for slot in slots))):
            block, start, end = self.blocks[number], self.starts[number], ends[number]
            # in place, since the block may be executing
            plain = [b for b in self.bodies[start:end] if b["row"].execution == "plain"]
            block.steps[:] = [self.step_of(b) for b in plain]
            if self.jit_compiler is not None:
                self.jit_compiler.attach(number)
            last = self.bodies[end - 1]
            if last["row"].execution != "plain":
                block.check = self.undefined.guard_check(last["ins"])
            if last["row"].execution in ("warp", "blocking"):
                block.step = self.step_of(last)

    def mark_undefined(self, c: WarpBatch, loaded: dict[int, tuple[NDArray[Any], int, str]], ins: Instruction) -> None:
        """Marks registers that a load fills with undefined bytes.

        ``loaded``: slot of a register -> (undefined lanes, or the undefined bits of each lane; address of an undefined
        byte; name of the memory).
        """
        registers = self.function.registers
        self.undefined.mark_undefined(
            c,
            {
                slot: (where, Origin(registers[slot].name, ins.line, address, memory))
                for slot, (where, address, memory) in loaded.items()
            },
        )

    # ---- compositions of steps

    @staticmethod
    def chain(steps: list[Step], blocking: bool) -> Step:
        if len(steps) == 1:
            return steps[0]
        if blocking:

            def run_blocking(c: WarpBatch, m: Mask, after: int) -> None:
                for s in steps[:-1]:
                    s(c, m)
                steps[-1](c, m, after)

            return run_blocking
        if len(steps) == 2:
            one, two = steps

            def run_two(c: WarpBatch, m: Mask) -> None:
                one(c, m)
                two(c, m)

            return run_two

        def run(c: WarpBatch, m: Mask) -> None:
            for s in steps:
                s(c, m)

        return run

    @staticmethod
    def guarded(step: Step, guard: int, negated: bool) -> Step:

        def run(c: WarpBatch, m: Mask) -> None:
            p = c.v[guard]
            if m is None:
                m = c.alive
            q = (~p if m is None else m & ~p) if negated else p.copy() if m is None else m & p
            k = count_nonzero(q)
            if k == c.count:
                step(c, None)
            elif k:
                step(c, q)

        return run

    @staticmethod
    def forget(keys: list[int]) -> Step:
        if len(keys) == 1:
            (key,) = keys

            def forget_one(c: WarpBatch, m: Mask) -> None:
                c.addresses[key] = None

            return forget_one

        def forget(c: WarpBatch, m: Mask) -> None:
            for k in keys:
                c.addresses[k] = None

        return forget
