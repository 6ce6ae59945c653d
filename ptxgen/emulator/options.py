"""What a machine is asked to check, and how it orders what hardware leaves open."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.errors import InputError


@dataclass(frozen=True)
class Options:
    """Choices of one machine.

    seed: of the order in which warps run. completion: asynchronous work takes effect "late" (at the
    wait that orders it) or "early" (at once). races, uninitialised: whether to look for them;
    global_races: with races, whether to look for them in global memory, too.
    mma: "hopper" rounds as tensor cores do, "f32" in plain float32. stats: "sampled", "full" or
    "off" (the costly part: bank conflicts and sectors). lanes: of one chunk. engine: "numpy".
    watchdog: instructions that one warp may execute before the launch counts as endless; 0: any number.
    """

    seed: int = 0
    completion: str = "late"
    races: bool = True
    global_races: bool = True
    uninitialised: bool = True
    mma: str = "hopper"
    stats: str = "sampled"
    lanes: int = 32768
    watchdog: int = 1 << 25
    engine: str = "auto"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("completion", self.completion, ("late", "early")),
            ("mma", self.mma, ("hopper", "f32")),
            ("stats", self.stats, ("sampled", "full", "off")),
            ("engine", self.engine, ("auto", "numpy", "llvm")),
        ):
            if value not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.watchdog < 0:
            raise InputError(f"watchdog must not be negative, got {self.watchdog}")
