"""The strengths and the memory orders of accesses."""

from __future__ import annotations

from enum import IntEnum

from ptxgen.emulator.ptx.syntax import Instruction

#: strengths of accesses: weak, strong, atomic, and a weak write by several lanes of one warp in one instruction
WEAK, STRONG, ATOMIC, MANY = range(4)


_STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}


class Scope(IntEnum):
    """The threads that observe a release or a fence: those of the block, of the cluster, or all."""

    BLOCK, CLUSTER, DEVICE = range(3)

    @classmethod
    def of(cls, mods: tuple[str, ...], default: Scope) -> Scope:
        """The scope that the modifiers of an instruction name."""
        if {"gpu", "gl", "sys"} & set(mods):
            return cls.DEVICE
        return cls.CLUSTER if "cluster" in mods else cls.BLOCK if "cta" in mods else default


class MemoryOrder:
    """The memory order of an access, from its modifiers."""

    def __init__(self, ins: Instruction) -> None:
        mods = set(ins.mods)
        self.strength = ATOMIC if ins.op in ("atom", "red") else STRONG if mods & _STRONG else WEAK
        self.acquires, self.releases = bool(mods & {"acquire", "acq_rel"}), bool(mods & {"release", "acq_rel"})
        self.reads = ins.op != "red"
        self.scope = Scope.of(ins.mods, Scope.DEVICE)
