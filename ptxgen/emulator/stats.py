"""The statistics of a launch: the counts that the performance model of the device and the tests use."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_CLASSES = {
    "fp32": {"f32"},
    "fp64": {"f64"},
    "fp16": {"f16", "bf16", "f16x2", "bf16x2"},
}


_FLOAT_OPS = {"add", "sub", "mul", "fma", "mad", "min", "max", "abs", "neg", "div", "setp", "set", "selp"}


_SPECIAL_OPS = {"rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"}


def instruction_class(op: str, mods: tuple[str, ...]) -> str:
    """The class of an instruction: the execution pipe that it uses."""
    if op in (
        "ld",
        "st",
        "ldu",
        "red",
        "atom",
        "prefetch",
        "prefetchu",
        "ldmatrix",
        "stmatrix",
        "multimem",
        "st.async",
    ):
        space = next(
            (m.split("::")[0] for m in mods if m.split("::")[0] in ("global", "shared", "param", "const", "local")),
            "generic",
        )
        operation = "atomic" if op in ("red", "atom") else "store" if op in ("st", "stmatrix") else "load"
        return f"{space}_{operation}"
    if op == "cp":
        return "async_copy"
    if op in ("mma", "wgmma"):
        return op
    if op == "wmma":
        return "mma" if "mma" in mods else instruction_class("ld" if "load" in mods else "st", mods)
    if op in ("bar", "barrier", "mbarrier"):
        return "barrier"
    if op in ("bra", "brx", "ret", "exit", "call"):
        return "branch"
    if op == "cvt":
        return "convert"
    if op in _SPECIAL_OPS:
        return "special"
    if op in ("shfl", "vote", "match", "redux", "elect", "activemask"):
        return "warp"
    if op in _FLOAT_OPS:
        for name, types in _CLASSES.items():
            if types & set(mods):
                return name
    return "integer"


@dataclass
class Access:
    """Counts of the accesses to one state space, by one instruction or in a whole launch. Counts of a sample are scaled
    up."""

    requests: float = 0  # warp-instructions
    wavefronts: float = 0  # wavefronts: cycles of the 32 banks of shared memory
    ideal: float = 0  # wavefronts without bank conflicts
    sectors: float = 0  # 32-byte sectors of global memory
    bytes: float = 0  # bytes that lanes request
    distinct: float = 0  # bytes of global memory that the lanes of a warp request, each counted once


@dataclass
class Stats:
    """Counts of one launch.

    ``lane_instructions`` and ``warp_instructions`` count issued instructions, by class (see ``instruction_class``);
    ``opcodes`` counts warp-instructions by full name. Lanes under a false guard count as issued. Shared wavefronts and
    global sectors are measured on a sample of the executions of each instruction and scaled to all of them.
    """

    lane_instructions: Counter[str] = field(default_factory=Counter)
    warp_instructions: Counter[str] = field(default_factory=Counter)
    opcodes: Counter[str] = field(default_factory=Counter)
    shared: Access = field(default_factory=Access)
    global_load: Access = field(default_factory=Access)
    global_store: Access = field(default_factory=Access)
    barriers: int = 0  # warps that arrived at a barrier
    atomics: int = 0  # lanes that did an atomic or a reduction
    mma: int = 0  # warp-level (mma) or warpgroup-level (wgmma) products
    blocks: int = 0
    threads: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)  # suspicious behaviour that is not a fault; each once

    def note(self, text: str) -> None:
        """Adds a note once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def lanes(self) -> int:
        """The number of executed lane-instructions of all classes."""
        return sum(self.lane_instructions.values())

    @property
    def bank_conflicts(self) -> float:
        """The number of shared-memory wavefronts beyond those that accesses without bank conflicts would take."""
        return self.shared.wavefronts - self.shared.ideal
