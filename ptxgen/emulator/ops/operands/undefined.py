"""Undefined values in registers: their origins, their propagation, and the uses of them that are faults.

A register is defined or undefined in each lane. In an undefined lane, each bit is defined or undefined, because
programs fill bit fields one by one. An instruction that only computes makes its results undefined in the lanes in which
they depend on an undefined operand. An instruction that moves bits makes only the dependent bits undefined. Any other
use of an undefined operand is a fault: as an address, as the predicate of a branch or a guard, as a value that global
memory receives, as an operand of a barrier. A store to shared memory makes the bytes undefined, a store to local memory
the bits.

Registers that a path through the program may read before it writes them are tracked from the start. Other registers are
tracked as soon as an undefined value may reach them; until then they cost nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ptx.dtypes import FLOATS
from ptxgen.emulator.ptx.syntax import Instruction, Mem, Reg, Vec
from ptxgen.emulator.reductions import any_true, count_nonzero, flatnonzero
from ptxgen.emulator.warp_batch import Launch, Step, WarpBatch, fault, fresh_terms
from ptxgen.errors import UninitialisedFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


#: the undefined operands of an instruction, each with the lanes in which it is undefined
Operands = list[tuple[Reg, Array]]


#: a function of (warp batch, undefined operands) that gives for each destination, in the order of the instruction's
#: writes, the undefined lanes or the undefined bits of each lane; None: an undefined operand of this instruction is a
#: fault
Propagation = Callable[["WarpBatch", Operands], list[Array] | None]


#: plain instructions that affect control flow
CONTROL_FLOW = {"call", "brx", "case"}


#: integer instructions whose result may be independent of an operand: x - x, x & 0
SELECTIVE = {
    "and",
    "or",
    "xor",
    "lop3",
    "sub",
    "mul",
    "mul24",
    "mad",
    "mad24",
    "shl",
    "shr",
    "selp",
    "slct",
    "prmt",
    "bfe",
    "bfi",
    "min",
    "max",
    "rem",
    "sad",
}


#: instructions that move bits -> the operands whose undefined bits reach only some bits of the result (None: all
#: operands)
MOVES_BITS = {
    **dict.fromkeys(("and", "or", "xor", "not", "lop3", "mov", "cvt", "brev")),
    **dict.fromkeys(("shl", "shr", "bfe"), (1,)),
    **dict.fromkeys(("bfi", "prmt", "selp", "shf"), (1, 2)),
}


#: the undefined bits of a register about which nothing is known: all bits
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)


#: values substituted for undefined operands to test if a result depends on them; small values for shifts
TRIALS = (0, 0xFFFFFFFFFFFFFFFF, 1, 2, 3, 7, 12, 31, 0x5A5A5A5A5A5A5A5A, 0x0123456789ABCDEF, 0x8000000080000000)


@dataclass(frozen=True)
class Origin:
    """The origin of an undefined value: the first instruction that reads the register, or the load that fills the
    register from ``memory`` at ``address``."""

    name: str
    line: int
    address: int | None = None
    memory: str = "uninitialised shared memory"

    @property
    def shared(self) -> bool:
        """True if ``address`` is in shared memory."""
        return self.address is not None and not self.memory.startswith(("local memory", "a parameter"))

    def fault_text(self, name: str) -> str:
        """The message of a fault at a use of register ``name``."""
        if self.address is None:
            if name == self.name:
                return f"register {name} is read before it is written"
            return f"{name} is used; it depends on {self.name}, which line {self.line} reads before it is written"
        loaded = f"line {self.line} loaded it from {self.memory}"
        return f"{name} is used; {loaded if name == self.name else f'it depends on {self.name}, and {loaded}'}"


def across_warp(c: WarpBatch, operands: Operands) -> list[Array] | None:
    """The propagation for an instruction that combines the lanes of a warp: all its results depend on all lanes."""
    return [np.repeat(union(operands).reshape(-1, 32).any(axis=1), 32)]


def union(operands: Operands) -> Array:
    """The lanes in which any of the operands is undefined."""
    out = operands[0][1]
    for _, bad in operands[1:]:
        out = out | bad
    return out


class Compiled(Protocol):
    """The program whose registers are tracked: ``engine.program.Program``."""

    builder: Builder
    bodies: list[dict[str, Any]]

    def rebuild_steps(self, slots: set[int]) -> None:
        """Builds the steps that use these registers again, because their checks have changed."""


class Undefined:
    """The tracked registers of one program.

    ``flags``: for each tracked slot, the index into ``WarpBatch.written``; ``initial``: the slots tracked from the
    start; ``late``: those tracked later; ``fresh``: the initial ``WarpBatch.written`` of a block.
    """

    def __init__(self, program: Compiled, initial: set[int]) -> None:
        self.program, self.initial = weakref.proxy(program), initial  # the program owns this object
        self.flags = {slot: i for i, slot in enumerate(sorted(initial))}
        self.fresh = [False] * len(self.flags)
        self.late: set[int] = set()

    # ---- the checks of an instruction

    def check(self, body: dict[str, Any]) -> Step | None:
        """The check that runs before an instruction which reads tracked registers; None: it reads none."""
        regs = [reg for slot, reg in body["reads"].items() if slot in self.flags]
        return self.checked(body["ins"], regs, self.propagation_of(body), list(body["writes"])) if regs else None

    def fault_text(self, c: WarpBatch, reg: Reg, ins: Instruction) -> str:
        """The message of a fault at the use of an undefined register."""
        return self.origin(c, reg, ins).fault_text(reg.name)

    def shared_address(self, c: WarpBatch, reg: Reg, ins: Instruction) -> int | None:
        """The address in shared memory from which an undefined register was loaded; None if it was not loaded from
        there."""
        origin = self.origin(c, reg, ins)
        return origin.address if origin.shared else None

    def origin(self, c: WarpBatch, reg: Reg, ins: Instruction) -> Origin:
        return c.undefined_origins.get(self.flags[reg.slot]) or Origin(reg.name, ins.line)

    def guard_check(self, ins: Instruction) -> Step | None:
        """The check that runs before an instruction whose guard is tracked; None: it has no such guard."""
        tracked = ins.pred is not None and ins.pred.slot in self.flags
        return self.checked(ins, [ins.pred], None, []) if tracked else None

    def probe(self, body: dict[str, Any]) -> Callable[[WarpBatch, Mask], bool] | None:
        """A function that tests if an operand tracked from the start is undefined; None: the instruction has no such
        operand."""
        flags = [self.flags[slot] for slot in body["reads"] if slot in self.initial]

        def probe(c: WarpBatch, m: Mask) -> bool:
            return any(c.written[flag] is not True and undefined(c, m, flag) is not None for flag in flags)

        return probe if flags else None

    def steps_after(self, body: dict[str, Any]) -> list[Step]:
        """The steps that run after an instruction which writes tracked registers."""
        return [self.record_write(slot) for slot in body["writes"] if slot in self.flags]

    def early(self, body: dict[str, Any]) -> bool:
        """True if an instruction reads or writes a register that is tracked from the start."""
        return not (self.initial.isdisjoint(body["reads"]) and self.initial.isdisjoint(body["writes"]))

    def propagation_of(self, body: dict[str, Any]) -> Propagation | None:
        """The propagation to the results of an instruction; None: an undefined operand is a fault."""
        ins: Instruction = body["ins"]
        if body["propagation"] is not None or body["row"].execution != "plain" or not body["writes"]:
            propagation: Propagation | None = body["propagation"]
            return propagation
        if ins.op in CONTROL_FLOW or any(isinstance(op, Mem) for op in ins.operands):
            return None

        linear = is_linear(ins)

        def elementwise(c: WarpBatch, operands: Operands) -> list[Array]:
            if self.moves_bits(c, body, operands):
                return self.dependent_bits(c, body, operands)
            if linear:
                return self.combined(c, body, operands)
            trial = all(selective(ins, reg) for reg, _ in operands)
            return [self.dependent(c, body, operands) if trial else union(operands)] * len(body["writes"])

        return elementwise

    def moves_bits(self, c: WarpBatch, body: dict[str, Any], operands: Operands) -> bool:
        """True if an instruction moves undefined bits, and other bits of its results are defined."""
        ins: Instruction = body["ins"]
        if ins.op not in MOVES_BITS or len(operands) > 3 or not FLOATS.isdisjoint(ins.mods) or "sat" in ins.mods:
            return False
        if any(reg.type == "pred" for reg in (*(reg for reg, _ in operands), *body["writes"].values())):
            return False
        places = MOVES_BITS[ins.op]
        others = [op for i, op in enumerate(ins.operands[1:], 1) if places is not None and i not in places]
        if any(reg in others for reg, _ in operands):
            return False
        partial = any(self.flags[reg.slot] in c.undefined_bits for reg, _ in operands)
        return partial or ins.op != "mov" or any(isinstance(op, Vec) for op in ins.operands)

    def dependent_bits(self, c: WarpBatch, body: dict[str, Any], operands: Operands) -> list[Array]:
        """The bits of each destination and lane that depend on undefined bits of the operands. The step is executed
        with these bits all 0 and all 1."""
        place = self.program.builder.place
        regs = [*(reg for reg, _ in operands), *body["writes"].values()]
        rows = [c.file[width][row] for width, row in map(place, regs)]
        saved = [row.copy() for row in rows]
        bad = union(operands)
        masks = [
            c.undefined_bits[self.flags[reg.slot]][where].astype(row.dtype)
            if self.flags[reg.slot] in c.undefined_bits
            else row.dtype.type(ALL_BITS >> np.uint64(64 - 8 * row.itemsize))
            for row, (reg, where) in zip(rows, operands, strict=False)
        ]
        first: list[Array] = []
        bits = [np.zeros(len(bad), np.uint64) for _ in body["writes"]]
        for ones in product((False, True), repeat=len(operands)):
            for one, row, old, mask, (_, where) in zip(ones, rows, saved, masks, operands, strict=False):
                row[where] = old[where] | mask if one else old[where] & ~mask
            body["step"](c, bad)
            results = [row.astype(np.uint64) for row in rows[len(operands) :]]
            for row, old in zip(rows, saved, strict=True):
                row[...] = old
            first = first or results
            for changed, one_result, other in zip(bits, first, results, strict=True):
                changed |= one_result ^ other
        return [np.where(bad, changed, np.uint64(0)) for changed in bits]

    def combined(self, c: WarpBatch, body: dict[str, Any], operands: Operands) -> list[Array]:
        """The undefined lanes of a sum, a difference or a copy: those in which the unknown values in its operands do
        not cancel."""
        ins: Instruction = body["ins"]
        total = np.zeros(c.n, np.uint64)
        undefined_lanes = {reg.slot: where for reg, where in operands}
        for op, negative in zip(ins.operands[1:], (False, ins.op == "sub"), strict=False):
            if isinstance(op, Reg) and op.slot in undefined_lanes:
                terms = np.where(undefined_lanes[op.slot], terms_of(c, self.flags[op.slot]), np.uint64(0))
                total = total - terms if negative else total + terms
        (slot,) = body["writes"]
        c.undefined_sums[slot] = total
        return [union(operands) & (total != 0)]

    def dependent(self, c: WarpBatch, body: dict[str, Any], operands: Operands) -> Array:
        """The lanes in which a result depends on undefined operands. The step is executed with several values of these
        operands."""
        place = self.program.builder.place
        regs = [*(reg for reg, _ in operands), *body["writes"].values()]
        rows = [c.file[width][row] for width, row in map(place, regs)]
        saved = [row.copy() for row in rows]
        bad = union(operands)
        first: list[Array] = []
        differs = np.zeros_like(bad)
        for i in range(len(TRIALS)):
            for j, (row, (_, where)) in enumerate(zip(rows, operands, strict=False)):
                # several registers: all 0, all ones, then different values
                value = TRIALS[i if i < 2 else 2 + (i + 3 * j) % (len(TRIALS) - 2)]
                if row.dtype == bool:
                    row[where] = i >> j & 1
                    continue
                trial = row.dtype.type(value & ((1 << 8 * row.itemsize) - 1))
                known = c.undefined_bits.get(self.flags[operands[j][0].slot])
                mask = known[where].astype(row.dtype) if known is not None else ~row.dtype.type(0)
                row[where] = (saved[j][where] & ~mask) | (trial & mask)
            body["step"](c, bad)
            results = [row.copy() for row in rows[len(operands) :]]
            for row, old in zip(rows, saved, strict=True):
                row[...] = old
            first = first or results
            for one, other in zip(first, results, strict=True):
                differs |= one != other
        return bad & differs

    def checked(
        self,
        ins: Instruction,
        regs: Sequence[Reg | None],
        propagation: Propagation | None,
        writes: list[int],
    ) -> Step:
        addresses = {slot for op in ins.operands if isinstance(op, Mem) for slot in slots_of(op)}
        tracked = [(self.flags[reg.slot], reg) for reg in regs if reg is not None]

        def check(c: WarpBatch, m: Mask) -> None:
            operands: Operands = []
            origin = None
            for flag, reg in tracked:
                bad = None if c.written[flag] is True else undefined(c, m, flag)
                if bad is not None:
                    operands.append((reg, bad))
                    origin = origin or c.undefined_origins.get(flag) or Origin(reg.name, ins.line)
            if origin is None:
                return
            results = propagation(c, operands) if propagation is not None else None
            if results is None:
                reg, bad = operands[0]
                text = origin.fault_text(reg.name)
                every = flatnonzero(union(operands))
                at, lane = origin.address if origin.shared else None, int(np.argmax(bad))
                error = fault(UninitialisedFault, text, c, ins, lane, at, lanes=every)
                if c.wave.engine.options.faults > 1:
                    self.define(c, operands)  # each undefined value is listed once
                    if not addresses & {reg.slot for reg, _ in operands}:
                        c.wave.engine.report(error)
                        return
                raise error
            reached = {
                slot: where if m is None else np.where(m, where, where.dtype.type(0))
                for slot, where in zip(writes, results, strict=True)
            }
            self.mark_undefined(c, {slot: (where, origin) for slot, where in reached.items() if any_true(where)})

        return check

    def define(self, c: WarpBatch, operands: Operands) -> None:
        """Makes each of the undefined ``operands`` defined in the lanes in which it is undefined."""
        for reg, bad in operands:
            flag = self.flags[reg.slot]
            state = c.written[flag]
            c.written[flag] = bad if state is False else state | bad

    def record_write(self, slot: int) -> Step:
        flag = self.flags[slot]

        def step(c: WarpBatch, m: Mask) -> None:
            state = c.written[flag]
            if c.undefined_next and flag in c.undefined_next:
                bad = c.undefined_next.pop(flag)
                executing = c.live() if m is None else m
                old = c.live() if state is True else state
                c.written[flag] = (executing if old is False else old | executing) & ~bad
            elif state is True:
                pass
            elif m is None:  # lanes that do not execute have exited
                c.written[flag] = True
            else:
                now = m if state is False else m | state
                c.written[flag] = True if count_nonzero(now & c.live()) == c.count else now

        return step

    # ---- propagation

    def mark_undefined(self, c: WarpBatch, reached: dict[int, tuple[Array, Origin]]) -> None:
        """Records that the executing instruction makes registers, or some of their bits, undefined in some lanes.

        ``reached``: slot of a register -> (undefined lanes, or undefined bits of each lane; origin).
        """
        new = reached.keys() - self.flags.keys()
        if new:
            self.track(new, c.wave.engine)
        for slot, (where, origin) in reached.items():
            flag = self.flags[slot]
            where = mark_bits(c, flag, where)
            terms = c.undefined_sums.get(slot)
            terms_of(c, flag)[where] = (fresh_terms(c.n) if terms is None else terms)[where]
            if slot in new:
                c.written[flag] = c.live() & ~where  # the executing step does not record writes of this register yet
            else:
                c.undefined_next[flag] = where
            c.undefined_origins[flag] = origin
        c.undefined_sums.clear()

    def track(self, slots: set[int], engine: Launch) -> None:
        """Starts to track registers, and all registers that their values may reach."""
        new, todo = set(slots), list(slots)
        while todo:
            for slot in self.reached_from.get(todo.pop(), ()):
                if slot not in new and slot not in self.flags:
                    new.add(slot)
                    todo.append(slot)
        for added in sorted(new):
            self.flags[added] = len(self.flags)
            self.fresh.append(True)
        self.late |= new
        for wave in engine.waves():
            for batch in wave.batches:
                batch.written += [True] * len(new)
        self.program.rebuild_steps(new)

    @cached_property
    def reached_from(self) -> dict[int, set[int]]:
        """Register -> the registers that an instruction which propagates undefined values computes from it."""
        out: dict[int, set[int]] = {}
        for body in self.program.bodies:
            if self.propagation_of(body) is not None:
                for slot in body["reads"]:
                    out.setdefault(slot, set()).update(body["writes"])
        return out


def mark_bits(c: WarpBatch, flag: int, undefined: Array) -> Array:
    """Records the undefined bits of a register; returns its undefined lanes.

    ``undefined``: the lanes in which all bits are undefined, or the undefined bits of each lane.
    """
    where: Array = undefined != 0
    known = c.undefined_bits.get(flag)
    if undefined.dtype == bool:
        if known is not None:
            known[where] = ALL_BITS
    else:
        if known is None:
            known = c.undefined_bits[flag] = np.full(c.n, ALL_BITS)
        known[where] = undefined[where]
    return where


def terms_of(c: WarpBatch, flag: int) -> Array:
    """For each lane in which a register is undefined, the sum of the numbers of the unknown values that it is the sum
    of."""
    terms = c.undefined_terms.get(flag)
    if terms is None:
        terms = c.undefined_terms[flag] = fresh_terms(c.n)
    return terms


def is_linear(ins: Instruction) -> bool:
    """True if an instruction adds, subtracts or copies integers, so that unknown terms of its operands may cancel."""
    words = {"u32", "s32", "b32", "u64", "s64", "b64"}
    return (
        ins.op in ("add", "sub", "mov")
        and set(ins.mods) <= words
        and not any(isinstance(op, Vec) for op in ins.operands)
    )


def bits_of(c: WarpBatch, flag: int, where: Array) -> Array:
    """The undefined bits of a register in each lane; ``where``: the lanes in which it is undefined."""
    return np.where(where, c.undefined_bits.get(flag, ALL_BITS), np.uint64(0))


def undefined(c: WarpBatch, m: Mask, flag: int) -> Array | None:
    """The executing lanes in which a register is undefined; None if there are none."""
    state = c.written[flag]
    if m is None:
        m = c.live()
    bad: Array = m if state is False else m & ~state
    return bad if any_true(bad) else None


def slots_of(op: Mem) -> set[int]:
    """The registers of an address."""
    coordinates = op.coords.items if op.coords is not None else ()
    return {part.slot for part in (op.base, *coordinates) if isinstance(part, Reg)}


def selective(ins: Instruction, reg: Reg) -> bool:
    """True if the result of an instruction may be independent of one of its source registers."""
    if reg.type == "pred":
        return True
    if ins.op not in SELECTIVE or "cc" in ins.mods:
        return False
    return ins.op in ("selp", "slct") or FLOATS.isdisjoint(ins.mods)
