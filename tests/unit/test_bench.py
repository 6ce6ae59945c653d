"""scripts/bench: the configurations whose checks of bounds are compared; lists by tiles."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.article_times import ListCase
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tlp_schedule import VARIANTS
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from tests.scripts import script as load

script = load("bench")


def test_configurations_are_legal_with_every_check():
    for m, n, k, layout, text in script.BOUNDS:
        config = script.bounds_config(layout, text)
        for checks in range(3):
            assert first_violation(lower(Gemm(m, n, k, layout)), replace(config, bounds=checks), device("h100")) is None


def test_lists_are_timed_by_mixed_tiles_and_by_each_alone(monkeypatch, capsys) -> None:
    for name in set(VARIANTS) - {"tlp", "tile_16x16", "tile_64x64"}:
        monkeypatch.delitem(VARIANTS, name)
    cases = [ListCase("two", GroupedGemm(((20, 17, 9), (64, 64, 5))))]
    script.tiles(EmulatedDriver(device("h200")), cases)
    lines = capsys.readouterr().out.splitlines()
    [row] = [line for line in lines if line.startswith("tiles: two: ")]
    assert all(f"{name} " in row for name in ("ptxgen", *VARIANTS))
    assert any(line.startswith("tiles: fastest tile alone over tlp: geometric mean ") for line in lines)
    assert lines[-4].startswith("tiles: mixed tiles of tlp are faster than every tile alone in ")
    assert len(script.tile_lists()) == 15
