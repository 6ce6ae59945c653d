"""The kinds and the memory orders of accesses."""

from __future__ import annotations

from ptxgen.emulator.ptx.syntax import Instruction

#: kinds of accesses: weak, strong, atomic, and a weak write by several lanes of one warp in one instruction
WEAK, STRONG, ATOMIC, MANY = range(4)


_STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}


class MemoryOrder:
    """The memory order of an access, from its modifiers."""

    def __init__(self, ins: Instruction) -> None:
        mods = set(ins.mods)
        self.kind = ATOMIC if ins.op in ("atom", "red") else STRONG if mods & _STRONG else WEAK
        self.acquires, self.releases = bool(mods & {"acquire", "acq_rel"}), bool(mods & {"release", "acq_rel"})
        self.reads = ins.op != "red"
        self.cluster_scope = not mods & {"gpu", "sys"} and bool(mods & {"cta", "cluster"})
