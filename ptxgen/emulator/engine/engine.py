"""The scheduler of one launch: waves of blocks in launch order, warp batches in a seeded random order.

A batch runs until it must wait. So some warp is always far ahead of the others, and a missing barrier has an effect.
"""

from __future__ import annotations

import random
import re
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.engine.basic_block import BLOCKING, BRANCH, EXIT, FALL, Block
from ptxgen.emulator.engine.deadlock_report import deadlock, exceeds_watchdog
from ptxgen.emulator.engine.program import Program
from ptxgen.emulator.memory.device_heap import DeviceHeap
from ptxgen.emulator.memory.global_memory import GlobalMemory
from ptxgen.emulator.ops.arithmetic.numerics import UNDERFLOW
from ptxgen.emulator.ops.operands.access import add_access_stats
from ptxgen.emulator.options import Options
from ptxgen.emulator.reductions import any_true, count_nonzero
from ptxgen.emulator.stats import Stats
from ptxgen.emulator.sync.async_state import AsyncState
from ptxgen.emulator.sync.barriers import Barriers
from ptxgen.emulator.sync.checks import Checks
from ptxgen.emulator.sync.happens_before import HappensBefore
from ptxgen.emulator.sync.messages import Messages, Publications
from ptxgen.emulator.sync.shadow import Shadow
from ptxgen.emulator.warp_batch import LINE, WarpBatch, Wave, any_lane, fault, place_of, spread
from ptxgen.errors import DeadlockFault, DivergenceFault, Fault, Faults, RaceFault, UninitialisedFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


#: basic blocks that a warp batch executes before it yields to another batch
SLICE = 20_000


#: rounds without progress after which polling counts as a deadlock; a thread may try so many slots of a hash table
POLL_ROUNDS = 64


#: largest number of resident lanes while blocks wait for later blocks
RESIDENT = 1 << 19


#: number of threads of a wave by default; number of blocks up to which a wave may have more threads
WAVE_THREADS, WAVE_BLOCKS = 1 << 15, 256


#: largest numbers of bytes of shared memory and of registers for a wave with more than WAVE_THREADS threads
WAVE_SHARED_BYTES, WAVE_REGISTER_BYTES = 1 << 24, 1 << 27


#: bytes of the workspace of a cooperative launch
GRID_WORKSPACE = 64


FINISHED, BLOCKED, YIELDED = range(3)


def fault_key(error: Fault) -> tuple[Any, ...]:
    """The properties by which faults count as the same one. A race is the same from either of its two accesses."""
    if error.other is None:
        return type(error), error.line, error.instruction, error.frames
    sides = {(each.line, each.instruction, each.frames) for each in (error.place, error.other)}
    return type(error), frozenset(sides), error.message.rpartition(" with no ")[2]


class Engine:
    """The execution of one launch."""

    def __init__(
        self,
        program: Program,
        memory: GlobalMemory,
        options: Options,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: bytes,
        dynamic: int,
        shared_size: int,
        cluster: tuple[int, int, int] = (1, 1, 1),
        earlier: list[Shadow] | None = None,
        heap: DeviceHeap | None = None,
    ) -> None:
        self.program, self.memory, self.options, self.heap = program, memory, options, heap
        self.grid, self.block = grid, block
        self.threads = block[0] * block[1] * block[2]
        self.blocks = grid[0] * grid[1] * grid[2]
        self.cluster = cluster
        self.cluster_blocks = cluster[0] * cluster[1] * cluster[2]
        directives = program.function.directives
        self.clustered = "reqnctapercluster" in directives or "explicitcluster" in directives or self.cluster_blocks > 1
        #: address of the counters of grid-wide barriers; 0 if the kernel does not use them
        self.grid_workspace = 0
        #: True if the kernel may access the reserved shared memory of its blocks, below SHARED_BASE
        self.uses_reserved = any(
            isinstance(view, str) and view.startswith("%reserved_smem_offset") for view in program.views
        )
        #: position in global memory -> the strong store that made this byte undefined
        self.undefined_bytes: dict[int, str] = {}
        self.params = params
        self.param_bytes = np.frombuffer(params, np.uint8)
        self.shared_size, self.dynamic_size = shared_size, dynamic
        self.random = random.Random(options.seed)
        self.generator = np.random.default_rng(options.seed)
        self.stats = Stats(blocks=self.blocks, threads=self.blocks * self.threads)
        self.progress = 0
        self.late = options.completion == "late"
        self.sampling = {"off": 0, "sampled": 1, "full": 2}[options.stats]
        self.shadow = Shadow(self, earlier or []) if options.races and options.global_races else None
        #: the different faults so far, if the launch goes on after faults
        self.faults: list[Fault] = []
        self.resident: list[Wave] = []
        self.spare: dict[int, list[Wave]] = {}
        self.wave_blocks = max(self.wave_size() // self.cluster_blocks, 1) * self.cluster_blocks

    def wave_size(self) -> int:
        """The number of blocks of a wave, which are resident at once.

        A larger wave divides the fixed cost of a step among more blocks; a smaller wave has batches whose registers fit
        in the caches.
        """
        threads = (self.threads + 31) // 32 * 32
        most_shared = WAVE_SHARED_BYTES // (self.shared_size + 1)
        size = self.options.lanes // threads
        if not self.options.lanes:
            registers = sum(max(width, 1) * rows for width, rows in self.program.rows.items())
            more = min(WAVE_BLOCKS, most_shared, WAVE_REGISTER_BYTES // (threads * (registers + 1)))
            size = max(WAVE_THREADS // threads, more)
        return max(min(size, most_shared) if self.program.asynchronous else size, 1)

    def block_coordinates(self, first: int, count: int) -> tuple[Array, Array]:
        """The pair (block coordinates (x, y, z), ranks in the cluster) of ``count`` blocks in launch order, in which
        the blocks of a cluster follow each other."""
        cx, cy, cz = self.cluster
        gx, gy, _ = self.grid
        n = np.arange(first, first + count, dtype=np.int64)
        rank = n % (cx * cy * cz)
        c = n // (cx * cy * cz)
        kx, ky = gx // cx, gy // cy
        x = c % kx * cx + rank % cx
        y = c // kx % ky * cy + rank // cx % cy
        z = c // (kx * ky) * cz + rank // (cx * cy)
        return np.stack([x, y, z], axis=1), rank

    def waves(self) -> list[Wave]:
        return [*self.resident, *(c for spare in self.spare.values() for c in spare)]

    # ---- the launch

    def run(self) -> Stats:
        began = time.perf_counter()
        for blk in self.program.blocks:
            blk.lanes = blk.warps = 0
        for site in self.program.sites:
            site.clear()
        if any(isinstance(view, str) and view.startswith("%envreg") for view in self.program.views):
            self.grid_workspace = self.memory.alloc(GRID_WORKSPACE)
        try:
            with np.errstate(all="ignore", under="call", call=UNDERFLOW):
                self.loop()
        except Fault as error:
            if self.options.faults > 1:
                raise self.listed(error) from error
            raise
        finally:
            if self.grid_workspace:
                self.memory.free(self.grid_workspace)
        if self.faults:
            raise self.listed()
        self.gather_stats()
        for store in dict.fromkeys(self.undefined_bytes.values()):
            self.stats.note(f"global memory keeps undefined {store}")
        self.release_waves()
        for leak in self.heap.leaks() if self.heap is not None else ():
            self.stats.note(leak)
        self.stats.seconds = time.perf_counter() - began
        return self.stats

    # ---- faults

    def report(self, error: Fault) -> None:
        """Raises a fault that ends the launch. If the launch goes on after faults, a new fault is listed, and a known
        one is counted."""
        if self.options.faults == 1:
            raise error
        key = fault_key(error)
        for known in self.faults:
            if fault_key(known) == key:
                known.count += error.count
                return
        if len(self.faults) == self.options.faults:
            raise error
        self.faults.append(error)

    def listed(self, last: Fault | None = None) -> Faults:
        """The faults of a launch that went on after them. ``last``: the fault that ended the launch."""
        faults, end = self.faults, ""
        if last is not None:
            end = f"{type(last).__name__}, {last.message.partition(chr(10))[0].rstrip(':')}"
            if len(faults) == self.options.faults:
                end = f"it has more than {len(faults)} different faults"
            elif not faults or not isinstance(last, DeadlockFault):  # a dropped access may be the reason of a deadlock
                faults, end = [*faults, last], "no thread can go on after the last fault"
        racing = {line for f in faults if isinstance(f, RaceFault) and f.other for line in (f.line, f.other.line)}
        kept = [
            f
            for f in faults
            if not isinstance(f, UninitialisedFault)
            or f.address is None
            or racing.isdisjoint(map(int, LINE.findall(f.message)))  # the race is the reason
        ]
        for f in kept:
            f.args = (f.report(),)  # with its count
        return Faults(tuple(kept), end)

    def release_waves(self) -> None:
        """Breaks the reference cycles of the waves, so that their arrays are freed at once."""
        for wave in self.waves():
            for batch in wave.batches:
                vars(batch).clear()
            vars(wave).clear()
        self.resident.clear()
        self.spare.clear()

    def new_wave(self, first: int) -> Wave:
        size = min(self.wave_blocks, self.blocks - first)
        spare = self.spare.get(size)
        wave = spare.pop() if spare else Wave(self, self.program, size)
        wave.reset(first)
        self.attach(wave)
        return wave

    def attach(self, wave: Wave) -> None:
        """Gives a wave its checks, barriers and asynchronous state."""
        checks = HappensBefore(wave) if self.program.asynchronous else Checks(wave)
        wave.checks = checks
        wave.barriers = Barriers(wave)
        if checks.races and self.program.messages:
            publications = Publications() if self.shadow is None else self.shadow.publications
            wave.messages = Messages(wave, checks, publications)
        if isinstance(checks, HappensBefore):
            wave.async_state = AsyncState(wave, checks)

    def loop(self) -> None:
        next_block = 0
        resident = self.resident
        stuck = 0
        limit = self.options.watchdog or 1 << 62
        while True:
            if not resident:
                if next_block >= self.blocks:
                    return
                resident.append(self.new_wave(next_block))
                next_block += resident[-1].blocks
            ready = [t for c in resident for t in c.batches if t.ready]
            fresh = [t for t in ready if t.quiet != self.progress + 1]
            if not fresh:
                # every batch is blocked, or polls memory that no batch changes
                if self.complete_late(resident):
                    stuck = 0
                    continue
                if next_block < self.blocks and sum(c.blocks for c in resident) * self.threads < RESIDENT:
                    resident.append(self.new_wave(next_block))
                    next_block += resident[-1].blocks
                    stuck = 0
                    continue
                stuck += 1
                resumed = stuck <= POLL_ROUNDS and self.time_out(resident)
                if not resumed and (not ready or stuck > POLL_ROUNDS):
                    deadlock(resident, self.program.blocks)
                for t in ready:
                    t.quiet = 0
                continue
            batch = fresh[self.random.randrange(len(fresh))] if len(fresh) > 1 else fresh[0]
            before = self.progress
            try:
                outcome = self.run_batch(batch)
            except UninitialisedFault as error:
                if error.address is not None:
                    self.look_for_race(batch)
                raise
            if self.progress != before:
                stuck = 0
            if batch.executed > limit:
                exceeds_watchdog(batch, self.program.blocks, limit)
            if outcome == YIELDED:
                batch.quiet = self.progress + 1 if self.progress == before else 0
            elif outcome == FINISHED and batch.wave.finished:
                resident.remove(batch.wave)
                if batch.wave.async_state is not None:
                    batch.wave.async_state.finish()
                self.spare.setdefault(batch.wave.blocks, []).append(batch.wave)

    def look_for_race(self, batch: WarpBatch) -> None:
        """Raises a RaceFault if another warp writes the memory that a batch has read uninitialised.

        The other batches run up to their next synchronisation.
        """
        checks = batch.wave.checks
        checks.close(batch)
        for other in batch.wave.batches:
            if other is not batch and other.ready:
                try:
                    self.run_batch(other)
                except RaceFault:
                    raise
                except Fault:  # the fault of the launch is the uninitialised read
                    pass
                checks.close(other)

    def complete_late(self, resident: list[Wave]) -> bool:
        """Completes one piece of asynchronous work when no warp can make progress without it."""
        busy = [c.async_state for c in resident if c.async_state is not None and c.async_state.in_flight]
        return bool(busy) and busy[self.random.randrange(len(busy))].advance()

    @staticmethod
    def time_out(resident: list[Wave]) -> bool:
        """Ends the suspended try_waits with a false result. False: there are none."""
        resumed = [c.async_state.time_out() for c in resident if c.async_state is not None]
        return any(resumed)

    def run_batch(self, c: WarpBatch) -> int:
        """Runs a warp batch until it is blocked, has finished, or yields."""
        blocks = self.program.blocks
        budget = SLICE
        groups = c.groups
        while True:
            # ---- choose a group: the lowest position that can run
            if not groups:
                c.ready = False
                return FINISHED if not c.count else BLOCKED
            if len(groups) == 1 and not c.unconverged and not c.polling:
                at, m = groups.popitem()
                limit = None
            else:
                converged = [p for p in groups if p not in c.unconverged]
                if not converged:
                    c.ready = False
                    return BLOCKED
                runnable = [p for p in converged if p not in c.polling]
                if not runnable:
                    c.polling.clear()
                    return YIELDED
                at = min(runnable)
                m = groups.pop(at)
                runnable.remove(at)
                limit = min(runnable) if runnable else 1 << 30
            # ---- run it until it joins another group, splits, or waits
            while True:
                blk = blocks[at]
                budget -= 1
                c.executed += blk.length
                if m is None:
                    k = c.count
                    blk.lanes += k
                    blk.warps += c.blocks if c.alive is None else count_nonzero(c.warps(None))
                else:
                    k = count_nonzero(m)
                    blk.lanes += k
                    blk.warps += count_nonzero(c.warps(m))
                if blk.counter >= 0:
                    c.iterations[blk.counter] += 1 if m is None else m
                for step in blk.steps:
                    step(c, m)
                end = blk.end
                if blk.polls:
                    c.polled = True
                if end == FALL:
                    after = at + 1
                elif end == BRANCH:
                    after = blk.target
                    if blk.guard is not None:
                        if blk.check is not None:
                            blk.check(c, m)
                        base = c.alive if m is None else m
                        p = c.v[blk.guard]
                        taken = p if base is None else p & base
                        t = count_nonzero(taken)
                        if blk.negated:
                            t = k - t
                        if t == 0:
                            after = at + 1
                        elif t != k:
                            self.split(c, blk, at, base, taken)
                            break
                elif end == EXIT:
                    if self.exit_lanes(c, blk, at, m):
                        break
                    after = at + 1
                else:
                    if self.converge(c, blk, at, m):
                        break
                    after = at + 1
                if after <= at and (c.polled or budget <= 0):
                    c.add(after, m)
                    if c.polled:
                        c.polling.add(after)
                        c.polled = False
                        break
                    c.polling.clear()
                    self.progress += 1
                    return YIELDED
                at = after
                if limit is not None and (at > limit or at in groups):
                    c.add(at, m)
                    break

    def split(self, c: WarpBatch, blk: Block, at: int, base: Mask, taken: Array) -> None:
        """Splits a group at a branch that only some of its lanes take."""
        live = base if base is not None else np.ones(c.n, bool)
        if blk.negated:
            taken = live & ~taken
        rest = live & ~taken
        if blk.uniform:
            mixed = taken.reshape(-1, 32).any(axis=1) & rest.reshape(-1, 32).any(axis=1)
            if any_true(mixed):
                warp = int(np.argmax(mixed))
                lane = 32 * warp + int(np.argmax(rest[32 * warp : 32 * warp + 32]))
                assert blk.ins is not None
                raise fault(
                    DivergenceFault, "some lanes of one warp take a .uni branch, and others do not", c, blk.ins, lane
                )
        if taken is c.v[blk.guard or 0]:
            taken = taken.copy()
        c.add(blk.target, taken)
        c.add(at + 1, rest)
        if blk.target <= at and c.polled:
            c.polling.add(blk.target)
            c.polled = False

    def guard_split(self, c: WarpBatch, blk: Block, at: int, m: Mask) -> tuple[Mask, bool]:
        """The pair (lanes whose guard is true, True if there is such a lane). The other lanes continue after the
        instruction."""
        if blk.guard is None:
            return m, True
        if blk.check is not None:
            blk.check(c, m)
        base = c.live() if m is None else m
        p = c.v[blk.guard]
        yes = base & (~p if blk.negated else p)
        n = count_nonzero(yes)
        if n == c.count:
            return None, True
        rest = base & ~yes
        if n and any_true(rest):
            c.add(at + 1, rest)
        return yes, n > 0

    def exit_lanes(self, c: WarpBatch, blk: Block, at: int, m: Mask) -> bool:
        """Executes an exit; False if no lane exits."""
        exiting, some = self.guard_split(c, blk, at, m)
        if not some:
            return False
        before = c.warps(None)
        lanes = c.live() if exiting is None else exiting
        c.wave.checks.close(c)
        c.retire(exiting)
        if not c.count:
            c.wave.checks.finish(c)
        exited = before & ~c.warps(None)
        self.progress += 1
        if c.wave.barriers.pending:
            c.wave.barriers.arrive_complete_warps(c)
        if any_true(exited):
            if c.wave.async_state is not None:
                c.wave.async_state.exit_blocks(c, lanes, exited, blk.ins or self.program.code[-1])
            c.wave.barriers.warps_exited(exited)
        return True

    def converge(self, c: WarpBatch, blk: Block, at: int, m: Mask) -> bool:
        """Executes a warp-wide or blocking instruction. Returns True if the group has ended, because its lanes wait or
        have moved."""
        if blk.guard is not None:
            inside, some = self.guard_split(c, blk, at, m)
            if not some:
                return False
            split = (inside is not None and m is None) or inside is not m
            m = inside
        else:
            split = False
        if m is not None and not blk.single:
            ready = self.convergent(c, blk, m)
            if ready is not m:
                assert m is not None
                waiting = m & ~ready
                c.add_unconverged(at, waiting)
                if not any_true(ready):
                    return True
                m, split = ready, True
        assert blk.step is not None
        if blk.end == BLOCKING:
            blk.step(c, m, at + 1)
            return True
        blk.step(c, m)
        if split:
            c.add(at + 1, m)
            return True
        return False

    def convergent(self, c: WarpBatch, blk: Block, m: Array) -> Any:
        """The lanes of ``m`` that belong to complete warps; ``m`` itself if all warps are complete. A warp is complete
        if ``m`` has all of its lanes that must converge."""
        live: Any = c.live()
        if blk.members is not None and not blk.aligned:
            here = m.reshape(-1, 32)
            wanted = c.v[blk.members]
            bits = spread(wanted, c.n).reshape(-1, 32)
            every = np.bitwise_or.reduce(np.where(here, bits, np.uint32(0)), axis=1)
            named = (every[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1) != 0
            live = live & named.reshape(-1)
        missing = any_lane(live & ~m) & any_lane(m)
        if not any_true(missing):
            return m
        return m & ~np.repeat(missing, 32)

    # ---- the end

    def gather_stats(self) -> None:
        stats, program = self.stats, self.program
        for blk, names, classes in zip(program.blocks, program.histogram, program.classes, strict=True):
            if not blk.lanes:
                continue
            for name, times in names.items():
                stats.opcodes[name] += times * blk.warps
            for name, times in classes.items():
                stats.warp_instructions[name] += times * blk.warps
                stats.lane_instructions[name] += times * blk.lanes
        add_access_stats(stats, program.sites)
        stats.notes = [LINE.sub(self.with_source, note) for note in stats.notes]

    def with_source(self, line: re.Match[str]) -> str:
        """The text of a line number in a note, followed by its position in the source."""
        ins = self.program.first_of_line(int(line[1]))
        source = place_of(self.program, "", ins).source if ins is not None else ""
        return f"{line[0]} ({source})" if source else line[0]
