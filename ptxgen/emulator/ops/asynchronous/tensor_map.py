"""tensormap.replace, which changes one field of a tensor map, and tensormap.cp_fenceproxy, which publishes one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory.tensormap import ALIGNMENT, FIELDS, REPLACED_TYPES, SIZE, replaced
from ptxgen.emulator.ops.data_movement.load_store import explicit
from ptxgen.emulator.ops.matrix.ldmatrix import whole_warps
from ptxgen.emulator.ops.operands.access import Site, global_access_at, shared_at
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ops.synchronisation.proxy_fences import release_maps
from ptxgen.emulator.ptx.syntax import Imm, Instruction, Operand
from ptxgen.emulator.reductions import any_true, flatnonzero
from ptxgen.emulator.warp_batch import Step, WarpBatch, active, fault, spread
from ptxgen.errors import Fault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


BYTES = np.arange(SIZE)


def map_site(b: Builder, ins: Instruction, op: Operand, space: str, operation: str) -> Site:
    """The memory operand of a tensor map, which has 128 bytes at a multiple of 64."""
    site = Site(b, ins, op, space, SIZE, operation)
    site.alignment = ALIGNMENT
    return site


@instruction("tensormap.replace")
def replace(b: Builder, ins: Instruction) -> Step:
    field = next((m for m in ins.mods if m in FIELDS), "")
    space = "global" if "global" in ins.mods else "shared" if "shared::cta" in ins.mods else "generic"
    if not field:
        raise b.unsupported()
    ordinal, new = (ins.operands[1], ins.operands[2]) if len(ins.operands) == 3 else (Imm(0), ins.operands[1])
    assert isinstance(ordinal, Imm)
    if field == "elemtype" and isinstance(new, Imm) and new.value >= len(REPLACED_TYPES):
        raise b.unsupported(f"an elemtype of {new.value}")
    reading, writing = (map_site(b, ins, ins.operands[0], space, operation) for operation in ("read", "write"))
    value = b.src(new, "u64" if "b64" in ins.mods else "u32")

    def step(c: WarpBatch, m: Mask) -> None:
        every = flatnonzero(active(c, m))
        values = spread(c.v[value], c.n)
        c.wave.engine.progress += 1
        # lane by lane: several lanes may change fields of one map
        for lane in every:
            lanes = np.array([lane])
            at = reading.addresses(c, lanes)
            for views, place in explicit(c, reading, at, lanes, 1):
                where = int(place.index[0] + place.shift)
                old = views[1][where : where + SIZE].tobytes()
                data = replaced(old, field, ordinal.value, int(values[lane]))
                if data is None:
                    text = "the address holds no tensor map, or one for im2col copies"
                    raise fault(Fault, text, c, ins, int(lane), int(at[0]))
                ((views, place),) = explicit(c, writing, at, lanes, 1)
                views[1][where : where + SIZE] = np.frombuffer(data, np.uint8)

    return step


@instruction("tensormap.cp_fenceproxy", execution="warp")
def cp_fenceproxy(b: Builder, ins: Instruction) -> Step:
    destination = map_site(b, ins, ins.operands[0], "global", "write")
    source = map_site(b, ins, ins.operands[1], "shared", "read")

    def step(c: WarpBatch, m: Mask) -> None:
        warps = whole_warps(c, m, ins)
        first = 32 * (np.arange(c.blocks) if warps is None else warps)
        lanes = (first[:, None] + np.arange(32)).reshape(-1)
        for site in (destination, source):
            at = site.addresses(c, lanes).reshape(-1, 32)
            bad = (at != at[:, :1]).any(axis=1)
            if any_true(bad):
                text = "lanes of one warp have different addresses at an .aligned instruction"
                raise fault(Fault, text, c, ins, int(first[np.argmax(bad)]))
        memory = c.wave.engine.memory
        place = shared_at(c, source, source.addresses(c, first), first, 1)
        data = c.wave.shared[(place.index + place.shift)[:, None] + BYTES]
        # all lanes of a warp write the map, so that any of them may use it
        target = global_access_at(c, destination, None, 1, destination.addresses(c, lanes), lanes)
        memory.buffer[(target.index + target.shift)[::32, None] + BYTES] = data
        c.wave.engine.progress += 1
        release_maps(c, m, ins)

    return step
