"""The wgmma operations in flight of a warpgroup, their groups, and the registers that they use.

A product starts when all four warps have issued it. It reads its operands from memory at once ("early"), or when the
first warp waits for it ("late"). A warp may access the registers of a product only after it has waited for the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import all_true, any_true, flatnonzero
from ptxgen.emulator.sync.events import Access, Event, Events
from ptxgen.emulator.sync.happens_before import HappensBefore
from ptxgen.emulator.sync.wgmma_operands import matrix, put_accumulator, region, take_a, take_accumulator, within
from ptxgen.emulator.warp_batch import WarpBatch, Wave, fault
from ptxgen.errors import DivergenceFault, OutOfBoundsFault

Array = NDArray[Any]


WARPS = 4


@dataclass(frozen=True, eq=False)
class Form:
    """One wgmma instruction of a program.

    ``rows_d``, ``rows_a``: rows of the register file that hold D, and A (None: A is in shared memory); ``d_set``,
    ``a_set``: the numbers of these register sets; ``dtype``: the type of D; ``bits``: an unsigned type with the size of
    the elements of A and B; ``transposed``: whether A and B are transposed; ``multiply(a, b, d or None)`` computes D;
    ``stored``: the number of columns of a sparse A that are stored, half of k, else 0. For a sparse A, ``multiply``
    also takes the numbers of these columns.
    """

    ins: Instruction
    n: int
    rows_d: Array
    rows_a: Array | None
    d_set: int
    a_set: int | None
    dtype: Any
    bits: Any
    transposed: tuple[bool, bool]
    multiply: Callable[..., Array]
    stored: int = 0


class Product:
    """A product that some blocks have issued; arrays are [block] or [warp, block]. ``exists``: the blocks that issue
    the product.

    ``columns``: the columns of the stored elements of a sparse A, [block, 64, stored column].
    """

    def __init__(self, form: Form, exists: Array, actors: int) -> None:
        blocks = len(exists)
        self.form, self.exists = form, exists
        self.issued, self.retired = np.zeros((WARPS, blocks), bool), np.zeros((WARPS, blocks), bool)
        self.done = np.zeros(blocks, bool)
        self.a, self.b = np.zeros(blocks, np.uint64), np.zeros(blocks, np.uint64)
        self.adds = np.zeros(blocks, bool)
        self.group = np.zeros(blocks, np.int64)
        self.columns = np.zeros((blocks, 64, form.stored), np.int64) if form.stored else None
        # the state that all four warps have acquired
        self.clocks = np.full((actors, blocks), np.iinfo(np.int32).max, np.int32)
        self.fenced = self.clocks.copy()
        self.known = np.full(blocks, ~np.uint64(0), np.uint64)
        self.events: list[tuple[Event, Array]] = []


class Accumulators:
    """A register set as matrices [block, 64, N], while several products accumulate in it."""

    def __init__(self, blocks: int, n: int, dtype: Any) -> None:
        self.data = np.zeros((blocks, 64, n), dtype)
        self.current = np.zeros((WARPS, blocks), bool)  # whether ``data`` is newer than the registers


class Warpgroup:
    """Four warps of every block of a wave."""

    def __init__(self, wave: Wave, order: HappensBefore, events: Events, number: int) -> None:
        self.wave, self.order, self.events, self.number = wave, order, events, number
        self.batches = wave.batches[WARPS * number : WARPS * number + WARPS]
        self.products: list[Product] = []
        self.committed = np.zeros((WARPS, wave.blocks), np.int64)
        self.accumulators: dict[int, Accumulators] = {}
        self.waiting: list[tuple[WarpBatch, Instruction, Array, int, int]] = []
        self.late = wave.engine.late

    # ---- issue

    def issue(
        self, c: WarpBatch, blocks: Array, form: Form, a: Array, b: Array, adds: Array, columns: Array | None
    ) -> None:
        """Warp ``c`` of some blocks (a mask) issues a product.

        The arrays have an element for each block: ``a``, ``b``: descriptors; ``adds``: whether D is added; ``columns``:
        the columns of the stored elements of the warp's 16 rows of a sparse A.
        """
        w = c.warp % WARPS
        rest = blocks.copy()
        for product in self.products:
            take = rest & product.exists & ~product.issued[w]
            if any_true(take):
                self.check_agreement(c, take, product, form, a, b, adds)
                self.record_issue(c, take, product, columns)
                rest &= ~take
        if any_true(rest):
            product = Product(form, rest, self.order.actors)
            product.a[rest], product.b[rest], product.adds[rest] = a[rest], b[rest], adds[rest]
            product.group[rest] = self.committed[w][rest]
            self.products.append(product)
            self.record_issue(c, rest, product, columns)
        self.wave.engine.progress += 1

    def check_agreement(
        self, c: WarpBatch, take: Array, product: Product, form: Form, a: Array, b: Array, adds: Array
    ) -> None:
        """Faults if this warp issues a product that differs from that of the other warps of its warpgroup."""
        if product.form is not form:
            block = int(np.argmax(take))
            text = f"another warp of the warpgroup executes the wgmma of line {product.form.ins.line} instead"
            raise fault(DivergenceFault, text, c, form.ins, 32 * block)
        for mine, theirs, operand_name in (
            (a, product.a, "descriptor of A"),
            (b, product.b, "descriptor of B"),
            (adds, product.adds, "scale-d"),
            (self.committed[c.warp % WARPS], product.group, "number of groups before it"),
        ):
            bad = take & (mine != theirs)
            if any_true(bad):
                text = f"the warps of the warpgroup give different values of the {operand_name}"
                raise fault(DivergenceFault, text, c, form.ins, 32 * int(np.argmax(bad)))

    def record_issue(self, c: WarpBatch, take: Array, product: Product, columns: Array | None) -> None:
        order = self.order
        w = c.warp
        if product.columns is not None and columns is not None:
            product.columns[take, 16 * (w % WARPS) : 16 * (w % WARPS) + 16] = columns[take]
        product.issued[w % WARPS] |= take
        at = flatnonzero(take)
        product.clocks[:, at] = np.minimum(product.clocks[:, at], order.clocks[w][:, at])
        product.fenced[:, at] = np.minimum(product.fenced[:, at], order.fenced[w, : order.actors][:, at])
        product.known[at] &= order.events[w, at]
        for number in (product.form.d_set, product.form.a_set):
            if number is not None:
                busy = c.busy_registers.get(number)
                c.busy_registers[number] = take.copy() if busy is None else busy | take
        complete = take & product.issued.all(axis=0)
        if any_true(complete):
            self.begin(c, product, flatnonzero(complete))
            self.retry_waits()

    def begin(self, c: WarpBatch, product: Product, blocks: Array) -> None:
        """Starts a product that all four warps have issued: from now on its operands in memory must not change."""
        events = self.events
        form = product.form
        operands = [(product.b, form.n, form.transposed[1], 2 if form.stored else 1)]
        if form.rows_a is None:
            operands.append((product.a, 64, form.transposed[0], 1))
        known = product.clocks, product.fenced, product.known
        accesses = []
        for descriptors, rows, transposed, depth in operands:
            values = descriptors[blocks]
            for descriptor in np.unique(values).tolist():
                which = blocks[values == descriptor]
                where = region(descriptor, rows, transposed, depth)
                if not within(where, self.wave.end):
                    first, end = where.first << 4, (where.last + 1) << 4
                    text = f"an operand extends from {first:#x} to {end:#x}, outside the shared memory of the block, "
                    text += f"which ends at {self.wave.end:#x}"
                    raise fault(OutOfBoundsFault, text, c, form.ins, 32 * int(which[0]), where.first << 4)
                chunks = where.chunks.reshape(-1) + (which * (self.wave.stride >> 4))[:, None]
                access = Access(form.ins, 32 * which, chunks, where.pages)
                mine = known[0][:, which], known[1][:, which], known[2][which]
                events.check(c, access, "wgmma", False, mine)
                accesses.append((access, which))
        for group in np.unique(product.group[blocks]).tolist():
            event = events.event(("wgmma", self.number, group), form.ins, "wgmma", False)
            some = blocks[product.group[blocks] == group]
            for access, which in accesses:
                events.start(event, access.subset(flatnonzero(np.isin(which, some))))
            product.events.append((event, some))
        self.wave.engine.stats.mma += len(blocks)
        if not self.late:
            self.perform(product, blocks)

    # ---- arithmetic

    def perform(self, product: Product, blocks: Array) -> None:
        """Reads the operands and computes D."""
        form = product.form
        wave = self.wave
        store = self.load(form, blocks)
        arena = wave.shared.view(np.uint64).reshape(-1, 2)
        a_of_blocks: Array | None = None
        if form.rows_a is not None:
            assert form.a_set is not None
            self.flush_overlapping(form.a_set)
            a_of_blocks = np.concatenate(
                [take_a(t.file[4][form.rows_a], wave.blocks, form.bits) for t in self.batches], axis=1
            )
        for block in blocks.tolist():
            base = block * (wave.stride >> 4)
            if a_of_blocks is None:
                where = region(int(product.a[block]), 64, form.transposed[0])
                a = matrix(arena, where.chunks + base, form.transposed[0], form.bits)
            else:
                a = a_of_blocks[block]
            where = region(int(product.b[block]), form.n, form.transposed[1], 2 if form.stored else 1)
            b = matrix(arena, where.chunks + base, form.transposed[1], form.bits)
            old = store.data[block] if product.adds[block] else None
            selected = () if product.columns is None else (product.columns[block],)
            store.data[block] = form.multiply(a, b, old, *selected)
        store.current[:, blocks] = True
        product.done[blocks] = True

    def load(self, form: Form, blocks: Array) -> Accumulators:
        """The accumulators of some blocks, loaded from registers where these are newer."""
        self.flush_overlapping(form.d_set)
        store = self.accumulators.get(form.d_set)
        if store is None or store.data.shape[2] != form.n or store.data.dtype != form.dtype:
            if store is not None:
                self.flush(form.d_set, store, [np.ones(self.wave.blocks, bool)] * WARPS)
            store = self.accumulators[form.d_set] = Accumulators(self.wave.blocks, form.n, form.dtype)
        for w, batch in enumerate(self.batches):
            need = blocks[~store.current[w, blocks]]
            if len(need):
                words = batch.file[4][form.rows_d]
                values = take_accumulator(words, self.wave.blocks, form.dtype == np.float16).view(form.dtype)
                store.data[need, 16 * w : 16 * w + 16] = values[need]
        return store

    def flush_overlapping(self, number: int) -> None:
        """Writes the accumulators of other register sets that share registers with set ``number`` to the registers."""
        for other in self.wave.program.register_sets.overlaps[number]:
            store = self.accumulators.get(other)
            if store is not None:
                self.flush(other, store, [np.ones(self.wave.blocks, bool)] * WARPS)

    def flush(self, number: int, store: Accumulators, where: list[Array]) -> None:
        """Writes accumulators to the registers; ``where``: the blocks, by warp."""
        rows = self.wave.program.register_sets.rows[number]
        for w, batch in enumerate(self.batches):
            which = store.current[w] & where[w]
            if not any_true(which):
                continue
            words = put_accumulator(store.data[:, 16 * w : 16 * w + 16])
            if all_true(which):
                batch.file[4][rows] = words
            else:
                lanes = flatnonzero(np.repeat(which, 32))
                batch.file[4][rows[:, None], lanes] = words[:, lanes]
            store.current[w] &= ~which

    # ---- groups

    def commit(self, c: WarpBatch, blocks: Array) -> None:
        """Warp ``c`` of some blocks ends its current group."""
        self.committed[c.warp % WARPS] += blocks

    def wait(self, c: WarpBatch, ins: Instruction, lanes: Array, after: int, keep: int) -> None:
        """Lanes wait until at most the ``keep`` newest groups of their warp are in flight."""
        w = c.warp % WARPS
        blocks = c.warps(lanes)
        limit = self.committed[w] - keep
        mine = [(p, blocks & p.exists & (p.group < limit) & ~p.retired[w]) for p in self.products]
        mine = [(p, due) for p, due in mine if any_true(due)]
        unissued = np.zeros(len(blocks), bool)  # blocks in which another warp has not issued a product yet
        for product, due in mine:
            unissued |= due & ~product.issued.all(axis=0)
        if any_true(unissued):
            self.waiting.append((c, ins, lanes & np.repeat(unissued, 32), after, keep))
            if all_true(unissued | ~blocks):
                return
            lanes = lanes & ~np.repeat(unissued, 32)
        order, events = self.order, self.events
        for product, due in mine:
            due = due & ~unissued
            todo = flatnonzero(due & ~product.done)
            if len(todo):
                self.perform(product, todo)
            product.retired[w] |= due
            for event, some in product.events:
                if events.keys.get(event.key) is event:
                    order.events[c.warp, some[due[some]]] |= event.bit
        self.release_registers(c)
        self.products = [p for p in self.products if not all_true(p.retired | ~p.exists)]
        c.add(after, lanes)

    def release_registers(self, c: WarpBatch) -> None:
        """Releases the registers that no product of this warp uses any longer."""
        w = c.warp % WARPS
        in_use: dict[int, Array] = {}
        for product in self.products:
            busy = product.issued[w] & ~product.retired[w]
            if any_true(busy):
                for number in (product.form.d_set, product.form.a_set):
                    if number is not None:
                        in_use[number] = in_use[number] | busy if number in in_use else busy
        c.busy_registers = in_use
        for number, store in self.accumulators.items():
            free = store.current[w] & ~in_use[number] if number in in_use else store.current[w]
            if any_true(free):
                where = [np.zeros(len(free), bool)] * WARPS
                where[w] = free
                self.flush(number, store, where)
                c.forget_addresses(number)

    def retry_waits(self) -> None:
        """Repeats waits that were blocked by a product which another warp had not issued yet."""
        waiting, self.waiting = self.waiting, []
        for c, ins, lanes, after, keep in waiting:
            self.wait(c, ins, lanes, after, keep)

    def waiting_places(self) -> list[tuple[WarpBatch, Instruction, Array, str]]:
        return [(c, ins, lanes, "waits for the other warps of its warpgroup") for c, ins, lanes, _, _ in self.waiting]
