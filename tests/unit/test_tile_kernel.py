"""The kernel of the tile policy: its configurations, and what a block of it occupies."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxgen.codegen.config.config import Config
from ptxgen.errors import CorruptError, InputError, LaunchError
from ptxgen.operations.grouped import tile_kernel, tlp_schedule
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.suites import batchgemm
from ptxgen.operations.grouped.tile_kernel import (
    BODIES,
    REGISTERS,
    SPLIT_K,
    WHOLE_K,
    kernel_plan,
    kernel_resources,
    kernel_source,
    registers_of,
    thread_tile,
    tile_config,
)
from ptxgen.operations.grouped.tlp_policy import TILES, UNIFORM_TILES, Tile, TileSet
from ptxgen.operations.grouped.tlp_schedule import (
    SHIPPED,
    Setting,
    TlpPolicy,
    TlpSchedule,
    setting_of,
    settings_file,
)
from ptxgen.problem.device import DEVICES, device
from ptxgen.runtime.assemble import assemble, find_ptxas

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
@pytest.mark.parametrize(
    ("layout", "dtype"), [("NN", "f32"), ("NT", "f32"), ("TT", "f32"), ("NN", "f16"), ("NT", "bf16"), ("TN", "f64")]
)
def test_kernels_do_not_spill(layout: str, dtype: str) -> None:
    for bodies in BODIES:
        plan = kernel_plan(GroupedGemm(((64, 64, 64),), layout, dtype), device("h100"), TILES, bodies)
        assert max(assemble(kernel_source(plan)).spills.values()) == 0


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
    with pytest.raises(LaunchError, match="tile wide breaks rule"):
        kernel_plan(ALIGNED, device("h200"), TileSet((Tile("wide", 24, 64, 16, 128),)))
    with pytest.raises(InputError, match="bodies is 'x'; it must be one of split_k, whole_k"):
        kernel_plan(ALIGNED, device("h200"), TILES, "x")


# ---- the settings of a device


def test_the_time_of_a_choice_is_that_with_the_settings_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "tuning.sqlite"
    settings_file(database).write_text('{"h100": {"tlp": {"threshold": 7, "bodies": "whole_k"}}}')
    thresholds = []
    monkeypatch.setattr(tlp_schedule, "choose_tiles", lambda extents, d, limit, *rest: thresholds.append(limit))
    TlpPolicy().choice_us(ALIGNED, device("h100"), database)
    assert set(thresholds) == {7}


def test_settings_are_the_users_or_else_the_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped, database = tmp_path / "shipped", tmp_path / "tuning.sqlite"
    (shipped / "h100").mkdir(parents=True)
    (shipped / "h100" / SHIPPED).write_text('{"h100": {"tlp": {"threshold": 7, "bodies": "whole_k"}}}')
    monkeypatch.setattr(tlp_schedule, "shipped_dir", lambda: shipped)
    tlp_schedule.shipped_settings.cache_clear()
    try:
        assert setting_of(device("h100"), "tlp", database) == Setting(7, WHOLE_K)
        assert setting_of(device("h100"), "tlp_grid", database) == Setting(7, WHOLE_K)  # the same criterion and tiles
        assert setting_of(device("h100"), "tlp_blocks", database) == Setting(None, WHOLE_K)
        assert setting_of(device("h200"), "tlp", database) == Setting()
        settings_file(database).write_text('{"h100": {"tlp": {"threshold": 9, "bodies": "split_k"}}}')
        assert setting_of(device("h100"), "tlp", database) == Setting(9, SPLIT_K)
        settings_file(database).write_text('{"h100": {"tlp": {"threshold": 9, "bodies": "?"}}}')
        with pytest.raises(CorruptError, match=r"is damaged: bodies is '.'; it must be split_k or whole_k"):
            setting_of(device("h100"), "tlp", database)
    finally:
        tlp_schedule.shipped_settings.cache_clear()


def test_tuning_finds_the_threshold_and_the_bodies(tmp_path: Path) -> None:
    """``whole_k`` is faster on the small list, by more than ``split_k`` is on the large one."""
    d, policy, database = device("h100"), TlpPolicy(), tmp_path / "tuning.sqlite"
    small, large = GroupedGemm(((64, 64, 64),) * 2), GroupedGemm(((512, 512, 64),) * 64)
    measured = []
    for problem, factor in ((small, 4.0), (large, 0.9)):
        choices = list(TlpSchedule.every(problem, d))
        assert len(choices) == len(BODIES) * len(TILES)
        us = [float(max(c.scheme.tiles)) + 10 for c in choices]  # smaller tiles are faster
        measured.append([(c, t * (factor if c.bodies == SPLIT_K else 1)) for c, t in zip(choices, us, strict=True)])
    tuned, path, stored = policy.tuned(measured, d, database)
    assert tuned["bodies"] == WHOLE_K
    assert tuned["threshold"] > max(c.scheme.tlp for c, _ in measured[1] if c.bodies == WHOLE_K)
    assert (path, stored) == (settings_file(database), {"h100": {"tlp": tuned}})


def test_most_lists_of_the_suite_have_several_tiles() -> None:
    """With one kernel's registers, half of the threads of a full device is no longer the TLP of the smallest tile."""
    counts = [len(TlpSchedule.choose(GroupedGemm(g.items), device("h100")).facts()["tiles"]) for g in batchgemm()]
    assert sum(n > 1 for n in counts) > len(counts) // 2
