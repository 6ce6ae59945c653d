"""The emulated device's clock: microseconds of a launch, from the instructions that the launch executed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.source import Step
from ptxgen.families.common import perf_costs
from ptxgen.families.common.geometry import SECTOR, WARP
from ptxgen.problem.device import Device


@dataclass(frozen=True)
class Counts:
    """The instructions of a launch, and the resources of one block.

    ``warp_instructions``: warp instructions of all classes; ``fma_lanes``: multiply-adds of single lanes in type
    ``fma_type`` (a packed f16 pair counts as two); ``shared_wavefronts``: 128-byte wavefronts of shared memory, with
    bank conflicts; ``global_sectors``: 32-byte sectors of global memory; ``atomics``: reductions and atomics of single
    lanes; ``barriers``: arrivals of whole blocks; ``blocks``: launched blocks; ``threads``, ``registers`` (per thread),
    ``shared`` (bytes): resources of a block.
    """

    warp_instructions: float
    fma_lanes: float
    shared_wavefronts: float
    global_sectors: float
    atomics: float
    barriers: float
    blocks: int
    threads: int
    registers: int
    shared: int
    fma_type: str = "f32"

    @classmethod
    def of(cls, stats: Any, step: Step, registers: int = 64) -> Counts:
        """The counts from the ``Stats`` of the emulated launch of ``step``. ``registers``: an assumed number, because
        the emulated device does not allocate registers."""
        lanes = {
            "f64": stats.lane_instructions["fp64"],
            "f32": stats.lane_instructions["fp32"],
            "f16": 2 * stats.lane_instructions["fp16"],
        }
        fma_type = max(lanes, key=lambda name: lanes[name])
        threads = math.prod(step.block)
        return cls(
            warp_instructions=sum(stats.warp_instructions.values()),
            fma_lanes=lanes[fma_type],
            shared_wavefronts=stats.shared.wavefronts,
            atomics=stats.atomics,
            global_sectors=stats.global_load.sectors + stats.global_store.sectors,
            barriers=stats.barriers / max(-(-threads // WARP), 1),
            blocks=math.prod(step.grid),
            threads=threads,
            registers=registers,
            shared=step.shared,
            fma_type=fma_type,
        )


def from_stats(s: Counts, d: Device) -> float:
    """The microseconds of a launch with counted instructions: the paper's equations (2) and (3).

    ``t = max(t_arith · i_arith, t_mem · i_mem)``, with a term for each unit. i is the number of instructions on the
    busiest multiprocessor; t is ``max(latency / n, 1 / throughput)`` for its n warps, each with OVERLAP instructions in
    flight. Barriers and the first load of each wave are added, because nothing overlaps with them.
    """
    if s.blocks == 0:
        return perf_costs.LAUNCH_US
    fits = max(int(d.blocks_per_sm(s.threads, s.registers, s.shared)), 1)
    busiest = -(-s.blocks // d.sms)
    resident = min(fits, busiest)
    n = resident * max(-(-s.threads // WARP), 1) * perf_costs.OVERLAP
    lanes = {"f64": d.fma64, "f32": d.fma, "f16": d.fma16}[s.fma_type]
    share = busiest / s.blocks
    cycles = share * max(
        max(perf_costs.ALU_LATENCY / n, 1 / perf_costs.ISSUE) * s.warp_instructions,
        s.fma_lanes / lanes,
        max(perf_costs.SHARED_LATENCY / n, 1.0) * s.shared_wavefronts,
        max(perf_costs.GLOBAL_LATENCY / (n * WARP), SECTOR / perf_costs.L2_BYTES) * s.global_sectors,
        perf_costs.RED_CYCLES * s.atomics,
    )
    cycles += perf_costs.BARRIER * s.barriers * share / resident + 1.5 * perf_costs.GLOBAL_LATENCY * -(-busiest // fits)
    return perf_costs.LAUNCH_US + cycles / d.clock
