"""Basic blocks: consecutive steps, and the instruction that ends them."""

from __future__ import annotations

from ptxgen.emulator.ptx.syntax import Instruction
from ptxgen.emulator.warp_batch import Step

FALL, BRANCH, EXIT, WARP, BLOCKING = range(5)


class Block:
    """One basic block: steps that execute in order, and the instruction that ends it."""

    __slots__ = (
        "aligned",
        "check",
        "contents",
        "counter",
        "end",
        "first",
        "guard",
        "ins",
        "lanes",
        "length",
        "members",
        "negated",
        "polls",
        "single",
        "step",
        "steps",
        "target",
        "uniform",
        "warps",
    )

    def __init__(self, first: int) -> None:
        self.steps: list[Step] = []
        self.end = FALL
        self.ins: Instruction | None = None
        self.target = -1
        self.guard: int | None = None
        self.negated = False
        self.uniform = False
        self.aligned = False
        self.single = False
        self.members: int | None = None
        self.step: Step | None = None
        self.lanes = self.warps = self.length = 0
        self.contents: list[Instruction] = []
        self.first = first
        self.polls = False
        self.check: Step | None = None
        self.counter = -1  # in the first block of a loop: the number of its iteration counter
