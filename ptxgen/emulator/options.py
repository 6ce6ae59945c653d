"""The options of a machine: its checks, and the order of operations that PTX does not define."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.errors import InputError


@dataclass(frozen=True)
class Options:
    """The options of one machine.

    ``seed``: seed of the random order in which warps and atomic operations execute.
    ``completion``: asynchronous work takes effect "late" (when no warp can progress without it) or "early" (at once).
    ``races``, ``uninitialised``: whether races and uses of uninitialised values are faults. ``global_races``: with
    ``races``, also races in global memory.
    ``strict``: suspicious behaviour that widely used kernels rely on is a fault; otherwise it adds a note to the
    statistics. ``mma``: "hopper" rounds as tensor cores do, "f32" sums in f64 and rounds once.
    ``stats``: bank conflicts and sectors are "sampled", "full" or "off".
    ``lanes``: largest number of threads of the resident blocks; 0: the emulator decides.
    ``engine``: what executes instructions: "numpy", "llvm" (compiled code), or "auto": compiled code for basic blocks
    that execute often, if llvmlite is installed.
    ``faults``: the number of different faults after which the launch ends; if more than 1, the launch goes on after a
    fault and raises ``Faults`` at its end.
    ``watchdog``: largest number of instructions that one warp may execute; more is a DeadlockFault; 0: no limit.
    """

    seed: int = 0
    completion: str = "late"
    races: bool = True
    global_races: bool = True
    uninitialised: bool = True
    strict: bool = False
    mma: str = "hopper"
    stats: str = "sampled"
    lanes: int = 0
    watchdog: int = 1 << 25
    engine: str = "auto"
    faults: int = 1

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("completion", self.completion, ("late", "early")),
            ("mma", self.mma, ("hopper", "f32")),
            ("stats", self.stats, ("sampled", "full", "off")),
            ("engine", self.engine, ("auto", "numpy", "llvm")),
        ):
            if value not in allowed:
                raise InputError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
        if self.watchdog < 0:
            raise InputError(f"watchdog is {self.watchdog}; it must be at least 0")
        if self.faults < 1:
            raise InputError(f"faults is {self.faults}; it must be at least 1")
