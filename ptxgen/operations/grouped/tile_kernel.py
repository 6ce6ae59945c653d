"""The kernel of the tile policy (``tlp_policy``), one module with a body for each tile, and the resources of its
blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ptxgen.arguments import word
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.mixed_tiles import MixedTiles
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Source
from ptxgen.errors import LaunchError
from ptxgen.families import registry
from ptxgen.families.common.fma.geometry import warp_rows
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import mixed_plan_for
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.operations.grouped.lowering import SMALL_LD
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tlp_policy import Resources, Tile, TileSet
from ptxgen.problem.device import Device
from ptxgen.runtime.assemble import assemble, find_ptxas

WHOLE_K, SPLIT_K = "whole_k", "split_k"  #: how the threads of a block share a tile: values of ``bodies``
BODIES = SPLIT_K, WHOLE_K  #: the first is the default
THREAD_ELEMENTS = 16  #: elements of C of a thread, if groups of threads split K
WIDE = 16  #: accesses of at least so many bytes are copied by cp.async
#: target -> registers per thread that ptxas 13.0 used for the tiles of Table 3, f32, layout NN; used where ptxas is not
#: installed. In order: whole_k with narrow accesses, whole_k with 16-byte accesses, split_k with narrow accesses,
#: split_k with 16-byte accesses
REGISTERS = {
    "sm_75": (79, 80, 78, 80),
    "sm_80": (79, 80, 78, 80),
    "sm_86": (64, 64, 78, 80),
    "sm_89": (64, 64, 78, 80),
    "sm_90": (64, 64, 80, 80),
    "sm_100": (64, 64, 80, 80),
    "sm_120": (78, 80, 78, 80),
}


def thread_tile(tile: Tile, bodies: str) -> tuple[int, int, int]:
    """The rows and columns of C of a thread, and the number of groups of threads that split K.

    ``whole_k``: every thread has m·n / threads elements, which no other thread has. ``split_k``: a thread has up to 16
    elements, and several groups of threads add their sums in shared memory; a thread then loads fewer elements of A and
    B for each multiply-add. InputError: ``bodies`` is another word.
    """
    word("bodies", bodies, BODIES)
    elements = max(tile.m * tile.n // tile.threads, 1)
    if bodies == SPLIT_K:
        while elements < THREAD_ELEMENTS and tile.m * tile.n // (2 * elements) >= 32:
            elements *= 2
    bits = elements.bit_length() - 1
    return 1 << -(-bits // 2), 1 << bits // 2, tile.threads * elements // (tile.m * tile.n)


def tile_config(problem: GroupedGemm, device: Device, tile: Tile, bodies: str = SPLIT_K) -> Config:
    """The configuration of a tile, with the widest accesses that the problem permits, and cp.async where accesses are
    wide and the device has the instruction. LaunchError: the kernels do not support the problem."""
    p, broken = lower(problem), None
    for config in _configs(p, device, tile, bodies):
        broken = first_violation(p, config, device)
        if broken is None:
            return config
    assert broken is not None
    raise LaunchError(f"tile {tile.name} breaks rule {broken.name!r} for {problem.key()}")


def _configs(p: KernelProblem, device: Device, tile: Tile, bodies: str) -> Iterator[Config]:
    """The configurations of a tile, the fastest first."""
    ms, ns, kl = thread_tile(tile, bodies)
    c_smem = kl > 1 or p.vectors[2] * p.output.bytes < WIDE
    text = f"ms={ms} ns={ns} ml={tile.m} nl={tile.n} u={tile.k} kl={kl} vec_c={p.vectors[2]} store_policy=streaming"
    base = parse_config(f"{text} epilogue_smem={int(c_smem)} cp_async_a=0 cp_async_b=0 stages=2")
    lanes_m = int(warp_rows(base))
    base = base.replace(lanes_m=lanes_m, lane_interleave=int(1 < lanes_m < 32))
    a, b = p.vectors[:2]
    wide = [vec * x.element.bytes >= WIDE for vec, x in zip((a, b), p.operands, strict=True)]
    if device.has_async_copy and any(wide):
        kmajor = p.layout[0] == "N", p.layout[1] == "T"
        yield base.replace(
            stages=3,
            vec_a=a,
            vec_b=b,
            cp_async_a=int(wide[0]),
            cp_async_b=int(wide[1]),
            kmajor_smem_a=int(wide[0] and kmajor[0]),
            kmajor_smem_b=int(wide[1] and kmajor[1]),
        )
    yield base.replace(vec_a=a, vec_b=b)
    for modes in registry.of(base).candidates.copy_modes(p):
        if device.has_async_copy or not modes["cp_async_a"] + modes["cp_async_b"]:
            yield base.replace(**modes)


def most_registers(problem: GroupedGemm, device: Device, configs: Sequence[Config], bodies: str) -> int:
    """The registers per thread that ptxas may use: the least of 64, 80 and 128 with which kernels spill at most a few
    bytes. Four, three and two blocks of 256 threads fit a multiprocessor, respectively."""
    rows = problem.layout == "NT" and all(c.cp_async_a and c.cp_async_b for c in configs)  # along K, in shared memory
    if problem.element.bytes == 8 or rows or max(c.ms * c.ns for c in configs) > THREAD_ELEMENTS:
        return 128
    if problem.element.bytes < 4:
        return 128 if bodies == SPLIT_K else 80
    return 64 if bodies == WHOLE_K and problem.layout == "NN" and 86 <= device.sm <= 100 else 80


# ---- the module, and what a block of it occupies


def kernel_plan(
    problem: GroupedGemm, device: Device, tiles: TileSet, bodies: str = SPLIT_K, grid: bool = False
) -> MixedTiles:
    """The kernel for lists like ``problem``. Tile numbers in its tables are indices into ``tiles``. ``grid``: True:
    every item has the grid of the largest one. LaunchError: the kernels do not support the problem."""
    return _kernel_plan(_Class.of(problem), device, tiles, bodies, grid)


def kernel_resources(
    problem: GroupedGemm, device: Device, tiles: TileSet, bodies: str = SPLIT_K
) -> tuple[Resources, ...]:
    """The resources of a block of each tile: the registers of the module (``registers_of``) and the shared memory of
    the tile's body."""
    return _kernel_resources(_Class.of(problem), device, tiles, bodies)


@lru_cache(64)
def kernel_source(plan: MixedTiles) -> Source:
    """The rendered module of a plan."""
    return render(plan)


def registers_of(plan: MixedTiles, bodies: str) -> int:
    """The registers per thread of a module, as ptxas reports them. Without ptxas: its registers for f32 by REGISTERS,
    otherwise an estimate."""
    if find_ptxas() is not None:
        return max(assemble(kernel_source(plan)).registers.values())
    if plan.problem.element.name == "f32" and plan.problem.layout == "NN" and plan.target in REGISTERS:
        wide = any(n >= WIDE for n in plan.access_bytes[:2])
        return REGISTERS[plan.target][(2 if bodies == SPLIT_K else 0) + wide]
    return min(plan.most_registers, int(plan.geometry.registers))


@dataclass(frozen=True)
class _Class:
    """The properties of a problem on which kernels depend. ``aligned``: the bytes of the widest accesses to A, B and C;
    ``large``: for each of A, B and C, True if leading dimensions require 64-bit offsets."""

    layout: str
    dtype: str
    dtype_b: str
    compute: str
    out: str
    deterministic: bool
    aligned: tuple[int, ...]
    large: tuple[bool, ...]

    @classmethod
    def of(cls, p: GroupedGemm) -> _Class:
        """The class of a problem. LaunchError: the tile policy does not support the problem."""
        if p.jagged or p.epilogue_ops:
            raise LaunchError(f"{p.key()}: the tile policy is for lists of products without an epilogue")
        aligned = tuple(vec * x.bytes for vec, x in zip(p.vectors, p.types, strict=True))
        large = tuple(bool(x) for x in p.lds.max(axis=0, initial=1) > SMALL_LD)
        return cls(p.layout, p.dtype, p.dtype_b, p.compute, p.out, p.deterministic, aligned, large)

    def problem(self, side: int) -> GroupedGemm:
        """A problem of the class with one item."""
        ld = ":".join(str(2 * SMALL_LD if large else side) for large in self.large)
        a, b, c = self.aligned
        return GroupedGemm(
            ((side, side, side),),
            self.layout,
            self.dtype,
            self.compute,
            ld,
            a,
            b,
            c,
            deterministic=self.deterministic,
            out=self.out,
            dtype_b=self.dtype_b,
        )


@lru_cache(256)
def _kernel_plan(kernel_class: _Class, device: Device, tiles: TileSet, bodies: str, grid: bool) -> MixedTiles:
    problem = kernel_class.problem(int(tiles.sides.max()))
    configs = [tile_config(problem, device, tile, bodies) for tile in tiles]
    most = most_registers(problem, device, configs, bodies)
    return mixed_plan_for(problem, configs, device, most, grid)


@lru_cache(256)
def _kernel_resources(kernel_class: _Class, device: Device, tiles: TileSet, bodies: str) -> tuple[Resources, ...]:
    plan = _kernel_plan(kernel_class, device, tiles, bodies, False)
    registers = registers_of(plan, bodies)
    return tuple(Resources(registers, body.shared) for body in plan.bodies)
