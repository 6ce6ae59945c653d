"""The wgmma products of a warpgroup that are in flight, in groups, and the registers that belong to them.

A product begins when all four warps have issued it. It reads its operands from memory at once ("early"), or when the
first warp waits for it ("late"). Until its own wait, no warp may access the registers of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.sync.events import Access, Event, Events
from ptxgen.emulator.sync.happens_before import HappensBefore
from ptxgen.emulator.sync.wgmma_operands import matrix, put_accumulator, region, take_accumulator, take_left, within
from ptxgen.emulator.warp_batch import Chunk, WarpBatch, fault
from ptxgen.errors import DivergenceFault, OutOfBoundsFault

Array = NDArray[Any]


WARPS = 4


@dataclass(frozen=True, eq=False)
class Form:
    """One wgmma instruction of a program.

    ``result``: rows of the register file of D, ``left``: of A or None; ``d_set``, ``a_set``: numbers of those sets of
    registers; ``dtype``: of D; ``bits``: an unsigned type of the size of A's and B's elements; ``across``: whether A
    and B are transposed; ``multiply(a, b, d or None)`` gives D.
    """

    ins: Instruction
    n: int
    result: Array
    left: Array | None
    d_set: int
    a_set: int | None
    dtype: Any
    bits: Any
    across: tuple[bool, bool]
    multiply: Callable[[Array, Array, Array | None], Array]


class Product:
    """A product that some blocks have issued: arrays by [warp and] block."""

    def __init__(self, form: Form, exists: Array, actors: int) -> None:
        blocks = len(exists)
        self.form, self.exists = form, exists
        self.issued, self.retired = np.zeros((WARPS, blocks), bool), np.zeros((WARPS, blocks), bool)
        self.done = np.zeros(blocks, bool)
        self.a, self.b = np.zeros(blocks, np.uint64), np.zeros(blocks, np.uint64)
        self.adds = np.zeros(blocks, bool)
        self.group = np.zeros(blocks, np.int64)
        # what all four warps have acquired
        self.clocks = np.full((actors, blocks), np.iinfo(np.int32).max, np.int32)
        self.fenced = self.clocks.copy()
        self.known = np.full(blocks, ~np.uint64(0), np.uint64)
        self.events: list[tuple[Event, Array]] = []


class Accumulators:
    """A set of registers as matrices [block, 64, N], while products follow one another on it."""

    def __init__(self, blocks: int, n: int, dtype: Any) -> None:
        self.data = np.zeros((blocks, 64, n), dtype)
        self.here = np.zeros((WARPS, blocks), bool)  # newer than the registers


class Warpgroup:
    """Four warps of every block of a chunk."""

    def __init__(self, chunk: Chunk, order: HappensBefore, events: Events, number: int) -> None:
        self.chunk, self.order, self.events, self.number = chunk, order, events, number
        self.batches = chunk.batches[WARPS * number : WARPS * number + WARPS]
        self.products: list[Product] = []
        self.committed = np.zeros((WARPS, chunk.blocks), np.int64)
        self.accumulators: dict[int, Accumulators] = {}
        self.waiting: list[tuple[WarpBatch, Instruction, Array, int, int]] = []
        self.late = chunk.engine.late

    # ---- issue

    def issue(self, c: WarpBatch, blocks: Array, form: Form, a: Array, b: Array, adds: Array) -> None:
        """Warp `c` of some blocks (a mask) issues a product; descriptors and whether D is added, by block."""
        w = c.warp % WARPS
        rest = blocks.copy()
        for product in self.products:
            take = rest & product.exists & ~product.issued[w]
            if take.any():
                self.check_agreement(c, take, product, form, a, b, adds)
                self.record_issue(c, take, product)
                rest &= ~take
        if rest.any():
            product = Product(form, rest, self.order.actors)
            product.a[rest], product.b[rest], product.adds[rest] = a[rest], b[rest], adds[rest]
            product.group[rest] = self.committed[w][rest]
            self.products.append(product)
            self.record_issue(c, rest, product)
        self.chunk.engine.progress += 1

    def check_agreement(
        self, c: WarpBatch, take: Array, product: Product, form: Form, a: Array, b: Array, adds: Array
    ) -> None:
        """Faults unless this warp issues the same product as the other warps of its warpgroup."""
        if product.form is not form:
            block = int(np.argmax(take))
            text = f"another warp of the warpgroup executes the wgmma of line {product.form.ins.line} instead"
            raise fault(DivergenceFault, text, c, form.ins, 32 * block)
        for mine, theirs, what in (
            (a, product.a, "descriptor of A"),
            (b, product.b, "descriptor of B"),
            (adds, product.adds, "scale-d"),
            (self.committed[c.warp % WARPS], product.group, "number of groups before it"),
        ):
            bad = take & (mine != theirs)
            if bad.any():
                text = f"the warps of the warpgroup give different values of the {what}"
                raise fault(DivergenceFault, text, c, form.ins, 32 * int(np.argmax(bad)))

    def record_issue(self, c: WarpBatch, take: Array, product: Product) -> None:
        order = self.order
        w = c.warp
        product.issued[w % WARPS] |= take
        at = np.flatnonzero(take)
        product.clocks[:, at] = np.minimum(product.clocks[:, at], order.clocks[w][:, at])
        product.fenced[:, at] = np.minimum(product.fenced[:, at], order.fenced[w, : order.actors][:, at])
        product.known[at] &= order.events[w, at]
        for number in (product.form.d_set, product.form.a_set):
            if number is not None:
                held = c.busy_registers.get(number)
                c.busy_registers[number] = take.copy() if held is None else held | take
        full = take & product.issued.all(axis=0)
        if full.any():
            self.begin(c, product, np.flatnonzero(full))
            self.retry_waits()

    def begin(self, c: WarpBatch, product: Product, blocks: Array) -> None:
        """All four warps have issued the product: its operands in memory must not change from now on."""
        events = self.events
        form = product.form
        sides = [(product.b, form.n, form.across[1])]
        if form.left is None:
            sides.append((product.a, 64, form.across[0]))
        known = product.clocks, product.fenced, product.known
        accesses = []
        for descriptors, rows, across in sides:
            found = descriptors[blocks]
            for descriptor in np.unique(found).tolist():
                which = blocks[found == descriptor]
                where = region(descriptor, rows, across)
                if not within(where, self.chunk.end):
                    text = (
                        f"an operand lies at {where.first << 4:#x} to {(where.last + 1) << 4:#x}, outside the block's "
                    )
                    text += f"shared memory of {self.chunk.end:#x}"
                    raise fault(OutOfBoundsFault, text, c, form.ins, 32 * int(which[0]), where.first << 4)
                granules = where.granules.reshape(-1) + (which * (self.chunk.stride >> 4))[:, None]
                access = Access(form.ins, 32 * which, granules, where.pages)
                mine = known[0][:, which], known[1][:, which], known[2][which]
                events.check(c, access, "wgmma", False, mine)
                accesses.append((access, which))
        for group in np.unique(product.group[blocks]).tolist():
            event = events.event(("wgmma", self.number, group), form.ins, "wgmma", False)
            some = blocks[product.group[blocks] == group]
            for access, which in accesses:
                events.start(event, access.subset(np.flatnonzero(np.isin(which, some))))
            product.events.append((event, some))
        self.chunk.engine.stats.mma += len(blocks)
        if not self.late:
            self.perform(product, blocks)

    # ---- arithmetic

    def perform(self, product: Product, blocks: Array) -> None:
        """Operands are read, D is computed."""
        form = product.form
        chunk = self.chunk
        store = self.load(form, blocks)
        arena = chunk.shared.view(np.uint64).reshape(-1, 2)
        left: Array | None = None
        if form.left is not None:
            assert form.a_set is not None
            self.flush_below(form.a_set)
            left = np.concatenate(
                [take_left(t.file[4][form.left], chunk.blocks, form.bits) for t in self.batches], axis=1
            )
        for block in blocks.tolist():
            base = block * (chunk.stride >> 4)
            if left is None:
                found = region(int(product.a[block]), 64, form.across[0])
                a = matrix(arena, found.granules + base, form.across[0], form.bits)
            else:
                a = left[block]
            found = region(int(product.b[block]), form.n, form.across[1])
            b = matrix(arena, found.granules + base, form.across[1], form.bits)
            old = store.data[block] if product.adds[block] else None
            store.data[block] = form.multiply(a, b, old)
        store.here[:, blocks] = True
        product.done[blocks] = True

    def load(self, form: Form, blocks: Array) -> Accumulators:
        """D of some blocks, from registers unless it is here already."""
        self.flush_below(form.d_set)
        store = self.accumulators.get(form.d_set)
        if store is None or store.data.shape[2] != form.n or store.data.dtype != form.dtype:
            if store is not None:
                self.flush(form.d_set, store, [np.ones(self.chunk.blocks, bool)] * WARPS)
            store = self.accumulators[form.d_set] = Accumulators(self.chunk.blocks, form.n, form.dtype)
        for w, batch in enumerate(self.batches):
            need = blocks[~store.here[w, blocks]]
            if len(need):
                words = batch.file[4][form.result]
                got = take_accumulator(words, self.chunk.blocks, form.dtype == np.float16).view(form.dtype)
                store.data[need, 16 * w : 16 * w + 16] = got[need]
        return store

    def flush_below(self, number: int) -> None:
        """Other sets that share registers with one go back to the registers."""
        for other in self.chunk.program.register_sets.overlaps[number]:
            store = self.accumulators.get(other)
            if store is not None:
                self.flush(other, store, [np.ones(self.chunk.blocks, bool)] * WARPS)

    def flush(self, number: int, store: Accumulators, where: list[Array]) -> None:
        """Accumulators go back to the registers; `where`: in which blocks, by warp."""
        rows = self.chunk.program.register_sets.rows[number]
        for w, batch in enumerate(self.batches):
            which = store.here[w] & where[w]
            if not which.any():
                continue
            words = put_accumulator(store.data[:, 16 * w : 16 * w + 16])
            if which.all():
                batch.file[4][rows] = words
            else:
                lanes = np.flatnonzero(np.repeat(which, 32))
                batch.file[4][rows[:, None], lanes] = words[:, lanes]
            store.here[w] &= ~which

    # ---- groups

    def commit(self, c: WarpBatch, blocks: Array) -> None:
        self.committed[c.warp % WARPS] += blocks

    def wait(self, c: WarpBatch, ins: Instruction, lanes: Array, after: int, keep: int) -> None:
        """Lanes wait until at most `keep` of the newest groups of their warpgroup are in flight."""
        w = c.warp % WARPS
        blocks = c.warps(lanes)
        limit = self.committed[w] - keep
        mine = [(p, blocks & p.exists & (p.group < limit) & ~p.retired[w]) for p in self.products]
        mine = [(p, due) for p, due in mine if due.any()]
        short = np.zeros(len(blocks), bool)
        for product, due in mine:
            short |= due & ~product.issued.all(axis=0)
        if short.any():
            self.waiting.append((c, ins, lanes & np.repeat(short, 32), after, keep))
            if (short | ~blocks).all():
                return
            lanes = lanes & ~np.repeat(short, 32)
        order, events = self.order, self.events
        for product, due in mine:
            due = due & ~short
            todo = np.flatnonzero(due & ~product.done)
            if len(todo):
                self.perform(product, todo)
            product.retired[w] |= due
            for event, some in product.events:
                if events.keys.get(event.key) is event:
                    order.events[c.warp, some[due[some]]] |= event.bit
        self.release_registers(c)
        self.products = [p for p in self.products if not (p.retired | ~p.exists).all()]
        c.add(after, lanes)

    def release_registers(self, c: WarpBatch) -> None:
        """Registers that no product of this warp holds any longer."""
        w = c.warp % WARPS
        held: dict[int, Array] = {}
        for product in self.products:
            busy = product.issued[w] & ~product.retired[w]
            if busy.any():
                for number in (product.form.d_set, product.form.a_set):
                    if number is not None:
                        held[number] = held[number] | busy if number in held else busy
        c.busy_registers = held
        for number, store in self.accumulators.items():
            free = store.here[w] & ~held[number] if number in held else store.here[w]
            if free.any():
                where = [np.zeros(len(free), bool)] * WARPS
                where[w] = free
                self.flush(number, store, where)
                c.forget_addresses(number)

    def retry_waits(self) -> None:
        """Continues waits that depend on what another warp has just issued."""
        waiting, self.waiting = self.waiting, []
        for c, ins, lanes, after, keep in waiting:
            self.wait(c, ins, lanes, after, keep)

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        return [(c, ins, lanes, "waits for the other warps of its warpgroup") for c, ins, lanes, _, _ in self.waiting]
