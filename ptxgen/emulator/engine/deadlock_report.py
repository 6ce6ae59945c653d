"""The report of a launch that cannot make progress or does not end: the position of every warp."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.engine.basic_block import Block
from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.reductions import any_true, count_nonzero
from ptxgen.emulator.warp_batch import WarpBatch, Wave, fault
from ptxgen.errors import DeadlockFault, DivergenceFault

Array = NDArray[Any]


#: the position of lanes: (warp batch, instruction, lanes, state of these lanes)
Place = tuple["WarpBatch", "Instruction", Array, str]


#: largest number of places in a message
MAX_ROWS = 24


def deadlock(waves: list[Wave], blocks: list[Block]) -> NoReturn:
    """Raises the fault of a launch in which no warp can make progress."""
    for wave in waves:
        if wave.async_state is not None:
            wave.async_state.check_stalled()
    places = [p for wave in waves for p in waiting_places(wave, blocks, "polls")]
    for batch, ins, lanes, words in places:
        if words == UNCONVERGED and not other_lanes_wait(places, batch, lanes):
            message = f"the other lanes of the warp never reach this instruction:{table(places)}"
            raise fault(DivergenceFault, message, batch, ins, int(np.argmax(lanes)))
    batch, ins, lanes, _ = places[0]
    raise fault(DeadlockFault, f"no warp can make progress:{table(places)}", batch, ins, int(np.argmax(lanes)))


def other_lanes_wait(places: list[Place], batch: WarpBatch, lanes: Array) -> bool:
    """True if other lanes of the warp wait for something other than the convergence of the warp."""
    missing = batch.live() & np.repeat(batch.warps(lanes), 32) & ~lanes
    return any(any_true(missing & mask) for other, _, mask, words in places if other is batch and words != UNCONVERGED)


def exceeds_watchdog(c: WarpBatch, blocks: list[Block], limit: int) -> NoReturn:
    """Raises the fault of a launch whose warps exceed the watchdog."""
    places = waiting_places(c.wave, blocks, "runs")
    places.sort(key=lambda p: p[0] is not c)
    batch, ins, lanes, _ = places[0]
    message = f"a warp has executed over {limit} instructions, which the option watchdog allows:"
    raise fault(DeadlockFault, message + table(places), batch, ins, int(np.argmax(lanes)))


UNCONVERGED = "waits for the other lanes of its warp"


def waiting_places(wave: Wave, blocks: list[Block], running: str) -> list[Place]:
    """The positions of the warps of a wave; ``running``: the state of warps that do not wait."""
    places: list[Place] = []
    for batch in wave.batches:
        for at, m in sorted(batch.groups.items()):
            blk = blocks[at]
            ins = blk.ins if blk.ins is not None and not blk.steps else blk.contents[0]
            places.append(
                (batch, ins, batch.live() if m is None else m, UNCONVERGED if at in batch.unconverged else running)
            )
    barriers = wave.barriers
    for number, waiting in enumerate(barriers.waiting):
        for w in waiting:
            block = int(np.argmax(w.mask)) // 32
            arrived, expected = barriers.arrived[number, block], int(barriers.expected[number, block])
            expected = barriers.whole if expected < 0 else expected
            places.append((w.batch, w.ins, w.mask, f"barrier {number}: {arrived} of {expected} threads"))
    for (number, _), arrivals in barriers.pending.items():
        places += [(p.batch, p.ins, p.mask, f"barrier {number}: other lanes of its warp are missing") for p in arrivals]
    if wave.async_state is not None:
        places += wave.async_state.waiting_places()
    return places


def table(places: list[Place]) -> str:
    rows = [row(*p) for p in places[:MAX_ROWS]]
    if len(places) > MAX_ROWS:
        rows.append(f"and {len(places) - MAX_ROWS} more")
    return "".join(f"\n    {r}" for r in rows)


def row(batch: WarpBatch, ins: Instruction, lanes: Array, words: str) -> str:
    block, _ = batch.coordinates(int(np.argmax(lanes)))
    blocks = count_nonzero(batch.warps(lanes))
    more = f" and {blocks - 1} more" if blocks > 1 else ""
    return f"warp {batch.warp} of block {block}{more}, line {ins.line}: {' '.join(ins.text.split())[:80]} ({words})"
