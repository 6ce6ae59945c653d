"""The kernel of the tile policy: its configurations, and what a block of it occupies."""

from __future__ import annotations

import pytest

from ptxgen.codegen.config.config import Config
from ptxgen.errors import LaunchError
from ptxgen.operations.grouped import tile_kernel
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tile_kernel import (
    BODIES,
    REGISTERS,
    SPLIT_K,
    WHOLE_K,
    kernel_plan,
    kernel_resources,
    registers_of,
    thread_tile,
    tile_config,
)
from ptxgen.operations.grouped.tlp_policy import TILES, UNIFORM_TILES, Tile, TileSet
from ptxgen.problem.device import DEVICES, device
from ptxgen.runtime.assemble import find_ptxas

ALIGNED, UNALIGNED = GroupedGemm(((64, 64, 64),)), GroupedGemm(((63, 65, 67),))


def test_threads_share_a_tile() -> None:
    assert [thread_tile(t, WHOLE_K) for t in TILES] == [(2, 1, 1), (2, 2, 1), (4, 2, 1), (4, 2, 1), (4, 4, 1)]
    assert [thread_tile(t, SPLIT_K) for t in TILES] == [(4, 2, 4), (4, 4, 4), (4, 4, 2), (4, 4, 2), (4, 4, 1)]
    assert thread_tile(Tile("", 64, 64, 16, 128), WHOLE_K) == (8, 4, 1)
    assert thread_tile(Tile("", 8, 8, 16, 512), WHOLE_K) == (1, 1, 8)  # more threads than elements


@pytest.mark.parametrize("name", ["t4", "a100", "rtx4090", "h200", "b200"])
@pytest.mark.parametrize("bodies", BODIES)
def test_every_tile_has_its_threads_and_legal_kernels(name: str, bodies: str) -> None:
    for problem in (ALIGNED, UNALIGNED):
        for tiles in (TILES, UNIFORM_TILES):
            plan = kernel_plan(problem, device(name), tiles, bodies)
            assert [body.threads for body in plan.bodies] == [t.threads for t in tiles]
            assert plan.threads == max(t.threads for t in tiles)


def test_accesses_are_as_wide_as_the_problem_permits() -> None:
    config = tile_config(ALIGNED, device("h200"), TILES[2])
    assert (config.vec_a, config.vec_b, config.vec_c, config.stages) == (4, 4, 4, 3)
    assert (config.cp_async_a, config.kmajor_smem_a, config.cp_async_b, config.kmajor_smem_b) == (1, 1, 1, 0)
    config = tile_config(UNALIGNED, device("h200"), TILES[2])
    assert (config.vec_a, config.vec_b, config.vec_c, config.stages, config.cp_async_a) == (1, 1, 1, 2, 0)


def test_devices_without_cp_async_have_configurations_of_their_own() -> None:
    for bodies in BODIES:
        for tile in TILES:
            config: Config = tile_config(ALIGNED, device("t4"), tile, bodies)
            assert (config.cp_async_a, config.cp_async_b, config.vec_a, config.vec_b) == (0, 0, 4, 4)


def test_resources_are_those_of_the_module() -> None:
    """All tiles have the registers of the one kernel; each has the shared memory of its body."""
    used = kernel_resources(ALIGNED, device("h100"), TILES)
    plan = kernel_plan(ALIGNED, device("h100"), TILES)
    assert [r.shared for r in used] == [body.shared for body in plan.bodies]
    assert len({r.registers for r in used}) == 1
    assert plan.shared_of(TILES.sides[:, 0] * 0) == used[0].shared < plan.shared == max(r.shared for r in used)


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("name", ["t4", "h100"])
def test_shipped_registers_are_those_that_ptxas_uses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for bodies in BODIES:
        for problem in (ALIGNED, UNALIGNED):
            plan = kernel_plan(problem, device(name), TILES, bodies)
            used = registers_of(plan, bodies)
            with monkeypatch.context() as patch:
                patch.setattr(tile_kernel, "find_ptxas", lambda: None)
                assert registers_of(plan, bodies) == used


def test_every_target_has_shipped_registers() -> None:
    assert {d.target for d in DEVICES.values()} == set(REGISTERS)


def test_kernels_are_made_once_for_problems_alike() -> None:
    few, many = GroupedGemm(((63, 5, 7),)), GroupedGemm(((1, 3, 9), (65, 33, 7)))
    assert kernel_plan(few, device("h200"), TILES) is kernel_plan(many, device("h200"), TILES)
    assert kernel_plan(ALIGNED, device("h200"), TILES) is not kernel_plan(few, device("h200"), TILES)


def test_problems_that_the_kernels_do_not_compute_are_refused() -> None:
    with pytest.raises(LaunchError, match="the tile policy is for lists of products without an epilogue"):
        kernel_plan(GroupedGemm(((64, 64, 64),), jagged="m"), device("h200"), TILES)
    with pytest.raises(LaunchError, match="tile wide of the policy breaks rule"):
        kernel_plan(ALIGNED, device("h200"), TileSet((Tile("wide", 24, 64, 16, 128),)))
