"""A kernel family that is registered from outside the package works through every command, the measuring child process
included, and next to an operation from outside."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxgen import plugins
from ptxgen.cli import command
from ptxgen.codegen.config.axes import Axis
from ptxgen.codegen.config.config import AXIS, FAMILIES, Columns, Config, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError, InputError
from ptxgen.families import registry
from ptxgen.families.common import rules
from ptxgen.families.common.features import all_names, default_names, features
from ptxgen.families.common.space import candidates, explain, refinements
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.search.sampler import Categorical
from ptxgen.tuning.selection import select
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from tests.plugins import diagonal, toy

H200 = device("h200")
P = Gemm(16, 24, 32)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toy family and the toy operation, here and in child processes."""
    plugins.load()
    monkeypatch.setenv("PTXGEN_PLUGINS", "tests.plugins.toy:register, tests.plugins.diagonal:register_it")
    toy.register()
    diagonal.register_it()
    yield
    diagonal.unregister_it()
    toy.unregister()


def test_a_family_leaves_nothing_behind() -> None:
    before = list(FAMILIES), dict(AXIS), list(registry.RULES), list(registry.SPACES)
    toy.register()
    assert parse_config("family=toy threads=32") == Config(family="toy", threads=32)
    with pytest.raises(InputError, match="registered already"):
        toy.register()
    with pytest.raises(InputError, match="families after it"):
        registry.unregister("simt")
    toy.unregister()
    assert before == (list(FAMILIES), dict(AXIS), list(registry.RULES), list(registry.SPACES))
    with pytest.raises(ConfigError, match="family is one of simt"):
        parse_config("family=toy")


def test_the_axes_are_the_familys_own(registered: None) -> None:
    assert str(Config(family="toy")) == "family=toy"
    with pytest.raises(
        ConfigError,
        match="'ms', which is an axis of simt, mma, skinny, winograd, winograd_4x4, quantized_mma; the axes of toy are threads",
    ):
        parse_config("family=toy ms=4")
    with pytest.raises(ConfigError, match="threads=48 must be a multiple of a warp"):
        plan_for(P, Config(family="toy", threads=48), H200)
    with pytest.raises(ConfigError, match="threads=2048 must be an integer from 32 to 1024"):
        plan_for(P, Config(family="toy", threads=2048), H200)


def test_the_template_is_from_outside_the_package(registered: None) -> None:
    text = render(plan_for(P, Config(family="toy"), H200)).text
    assert "config   family=toy" in text
    assert ".visible .entry gemm_f32_nn(" in text


def test_the_search_visits_the_family(registered: None) -> None:
    c = candidates(lower(P), H200)
    mine = c.take(np.flatnonzero(c.family == FAMILIES.index("toy")))
    assert sorted(mine.row(i).threads for i in range(len(mine))) == [32, 64, 128]
    near = refinements(lower(P), H200, Config(family="toy", threads=64))
    assert [near.row(i).threads for i in range(len(near))] == [32, 128]
    assert features(lower(P), mine, H200).shape == (3, len(default_names()))


def test_a_family_without_tiles_has_no_rules_of_tiles(registered: None) -> None:
    """The other common rules hold for it, in the same order and with the same indices."""
    mine, tiled = (dict(rules.rules_of(name)) for name in ("toy", "simt"))
    assert {rule.name for i, rule in tiled.items() if i not in mine and not rule.family} == {
        "offset_table_end", "grouped_slices", "stream_k", "l2_prefetch", "listed_tiles", "vec_c", "bounds", "kg", "splitk", "positions", "grid", "gated",
    }  # fmt: skip
    common = [i for i, rule in mine.items() if not rule.family]
    assert common == [i for i, rule in tiled.items() if not (rule.family or rule.tiles)]
    c = Columns.of([Config(family="toy", threads=threads) for threads in (16, 32, 48, 64, 2048)])
    for p in (P, Gemm(8192, 8192, 32)):
        broken = rules.rejections(lower(p), c, H200)
        assert [rules.RULES[i].name if i >= 0 else "" for i in broken] == ["range", "", "toy_warps", "", "range"]
        assert rules.legal(lower(p), c, H200).tolist() == [False, True, False, True, False]
    assert explain(lower(Gemm(16, 24, 32, dtype="f64")), H200)["toy_types"] == 1


def test_features_of_tiles_are_0_without_tiles(registered: None) -> None:
    c = Columns.of([Config(family="toy", threads=32), Config()])
    values = features(lower(P), c, H200, None, all_names())
    mine, tiled = (dict(zip(all_names(), row, strict=True)) for row in values.tolist())
    known = {"threads": 5, "registers": 24, "blocks": np.log2(12), "blocks_sm": 1, "m": 4, "n": np.log2(24), "k": 5}
    assert {name: mine[name] for name in known} == pytest.approx(known)
    assert all(mine[name] == tiled[name] for name in ("m", "n", "k", "flops", "roofline", "problem_intensity"))
    of_tiles = ("tiles", "tiles_m", "iterations", "padding", "operand_bytes", "reduction_bytes", "tile_intensity")
    assert {mine[n] for n in (*of_tiles, "issuer_products", "loads_a", "peak_rate", "thread_work")} == {0}
    assert tiled["padding"] > 0
    assert tiled["issuer_products"] > 0


def test_the_family_gives_its_features_to_the_model(registered: None) -> None:
    family = registry.FAMILIES["toy"]
    axes = (*family.axes, Axis("colours", 4, "has no effect"))
    parity = {"parity": lambda c: c.threads // 32 % 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(AXIS, "colours", axes[-1])
        patch.setitem(registry.FAMILIES, "toy", replace(family, axes=axes, features=parity))
        assert {"colours", "parity"} <= set(default_names())
        c = Columns.of([Config(family="toy", threads=96), Config(family="skinny")])
        assert features(lower(P), c, H200, None, ("colours", "parity")).tolist() == [[2.0, 1.0], [2.0, 0.0]]
    assert not {"colours", "parity"} & set(all_names())


def test_the_shipped_model_stays_valid(registered: None) -> None:
    """It ranks a family that it was not trained on by the performance model, and the others as before."""
    model = Model.load(tuning_files.model_path("h200").parent)
    assert model.trained
    best = model.rank(P, H200, 4, exhaustive=True)
    assert [c.family for c, _ in best[:3]] == ["toy"] * 3
    toy.unregister()
    try:
        plain = Model.load(tuning_files.model_path("h200").parent).rank(P, H200, 1, exhaustive=True)
    finally:
        toy.register()
    assert plain == best[3:]


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_the_kernel_is_right(registered: None, layout: str) -> None:
    p = Gemm(13, 21, 17, layout, ldc=24)
    assert all(r.ok for r in check(EmulatedDriver(), p, Config(family="toy", threads=32)))


@pytest.mark.each_value
@pytest.mark.parametrize("operation", ["gemm", "diagonal_gemm"])
@pytest.mark.parametrize("name", ["select", "emit", "check", "bench", "tune"])
def test_commands_know_the_family(
    registered: None,
    name: str,
    operation: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    words = [name, operation, "--shape", "16,24,32", "--device", "emulated", "--json"]
    monkeypatch.setattr(Categorical, "learn", partial(Categorical.learn, wanted=20, limit=1 << 16))
    few = ["--samples", "4", "--search", "1", "--rounds", "1"]
    code = command.run([*words, *(few if name == "tune" else [])])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document: dict[str, Any] = json.loads(printed.out)
    [row] = document.get("rows", [document])
    if name != "tune":  # the performance model puts the family first
        assert row["config"]["family"] == "toy"
        return
    with Database(tmp_path / "tuning.sqlite") as database:
        rows = list(database.measurements())
        assert {m.outcome for m in rows} == {"ok"}
        assert "toy" in {m.config.family for m in rows}, "the child process does not know the family"
        [best] = select(rows[0].problem, device("emulated"), database)
        assert best.origin == "winner"


BROKEN = {
    "no_such_module": "ModuleNotFoundError",
    "tests.plugins.toy:no_such_function": "AttributeError",
    "raises_when_imported": "ValueError: broken",
    "is_not_python": "SyntaxError",
    "os:system": "TypeError",
    "..x:y": "",
}


@pytest.mark.parametrize("name", BROKEN)
def test_plugin_that_cannot_be_loaded_is_named_at_every_call(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A plugin is never left out, whatever it raises; the ones before it register once."""
    monkeypatch.setattr(plugins, "_state", {"begun": False, "loaded": False})
    monkeypatch.setattr(plugins, "_called", set())
    (tmp_path / "raises_when_imported.py").write_text("raise ValueError('broken')\n")
    (tmp_path / "is_not_python.py").write_text("def (\n")
    (tmp_path / "registers_once.py").write_text("calls = []\ndef register():\n    calls.append(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PTXGEN_PLUGINS", f"registers_once:register, {name}")
    for _ in range(2):
        with pytest.raises(InputError, match=f"plugin '{re.escape(name)}' cannot be loaded: .*{BROKEN[name]}"):
            plugins.load()
    monkeypatch.setenv("PTXGEN_PLUGINS", "registers_once:register")
    plugins.load()
    assert sys.modules.pop("registers_once").calls == [1]
