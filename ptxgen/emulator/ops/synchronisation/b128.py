"""Instructions on 128-bit registers, which ``ptx.b128`` has replaced by pairs of 64-bit registers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.data_movement.load_store import SPACES, space_of
from ptxgen.emulator.ops.data_movement.move import copies
from ptxgen.emulator.ops.operands.access import Site
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ops.synchronisation.atomic import WORDS, arena_positions, serialized_lanes
from ptxgen.emulator.ptx.syntax import Instruction, Vec
from ptxgen.emulator.reductions import any_true
from ptxgen.emulator.warp_batch import Step, WarpBatch, spread

Mask = NDArray[np.bool_] | None


@instruction("*mov.b128")
def mov(b: Builder, ins: Instruction) -> Step:
    """Copies between two vectors of two or four registers."""
    to, source = ins.operands
    assert isinstance(to, Vec)
    assert isinstance(source, Vec)
    sizes = {len(to.items), len(source.items)}
    if sizes == {2}:
        return copies(b, [(b.dst(d, "u64"), b.src(a, "u64")) for d, a in zip(to.items, source.items, strict=True)])
    if sizes != {2, 4}:
        raise b.unsupported("this packing")
    if len(to.items) == 4:
        return copies(
            b, [(b.dst(d, "u32"), b.part(source.items[i // 2], "u32", i % 2, False)) for i, d in enumerate(to.items)]
        )
    return copies(
        b, [(b.part(to.items[i // 2], "u32", i % 2, True), b.src(a, "u32")) for i, a in enumerate(source.items)]
    )


@instruction("*atom.b128", polls=True)
def atom(b: Builder, ins: Instruction) -> Step:
    """atom.cas and atom.exch. Operands: (destination, address, value) or (destination, address, comparison, value)."""
    operation = next((m for m in ins.mods if m in ("cas", "exch")), "")
    for m in ins.mods:
        if m not in WORDS | {"b128", operation} and m.split("::")[0] not in SPACES:
            raise b.unsupported(f".{m}")
    if len(ins.operands) != {"cas": 4, "exch": 3}.get(operation) or space_of(ins) not in (
        "global",
        "shared",
        "generic",
    ):
        raise b.unsupported()
    d, address, *rest = ins.operands
    site = Site(b, ins, address, space_of(ins), 16, "write")
    b.sites.append(site)
    values = [[b.src(half, "u64") for half in v.items] for v in rest if isinstance(v, Vec)]
    assert isinstance(d, Vec)
    dst = [b.dst(half, "u64") for half in d.items]

    def step(c: WarpBatch, m: Mask) -> None:
        engine = c.wave.engine
        for views, index, lanes in arena_positions(c, site, m, 8):
            engine.stats.atomics += len(lanes)
            where = index[:, None] + np.arange(2)
            given = [np.stack([spread(c.v[h], c.n)[lanes] for h in v], axis=1) for v in values]
            for group in serialized_lanes(engine, index):
                at = where[group]
                old = views[8][at]
                new = given[-1][group]
                if operation == "cas":
                    new = np.where((old == given[0][group]).all(axis=1)[:, None], new, old)
                views[8][at] = new
                for h in range(2):
                    c.v[dst[h]][lanes[group]] = old[:, h]
                if any_true(new != old):
                    engine.progress += 1

    return step
