"""The seeds: shipped configurations to try first."""

from __future__ import annotations

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import CorruptError
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.settings import shipped_dir
from ptxgen.tuning.selection import select
from ptxgen.tuning.store import seeds as module


def test_every_shipped_seed_is_legal():
    for path in shipped_dir().glob("*/seeds.txt"):
        for key in module._lines(path):
            problem, name = parse(key), path.parent.name
            assert problem.key() == key
            configs = module.seeds(problem, name)
            assert configs, key
            for config in configs:
                rule = first_violation(lower(problem), config, device(name))
                assert rule is None, f"{key} | {config}: {rule and rule.name}"


def test_seed_is_selected_before_the_model(tmp_path, monkeypatch):
    folder = tmp_path / "h200"
    folder.mkdir()
    (folder / "seeds.txt").write_text("# why\n\ngemm 48,64,32 TN f32 | ms=4 ns=4 ml=16 nl=32\n")
    monkeypatch.setattr(module, "shipped_dir", lambda: tmp_path)
    selections = select(parse("gemm 48,64,32 TN f32"), device("h200"), k=2)
    assert (selections[0].origin, selections[0].config) == ("seed", parse_config("ms=4 ns=4 ml=16 nl=32"))
    assert selections[1].origin != "seed"
    assert select(parse("gemm 48,64,32 TN f32"), device("h200"), use_model=True)[0].origin != "seed"


def test_invalid_line_is_named(tmp_path, monkeypatch):
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "seeds.txt").write_text("gemm 48,64,32 TN f32 | mss=4\n")
    monkeypatch.setattr(module, "shipped_dir", lambda: tmp_path)
    with pytest.raises(CorruptError, match=r"seeds.txt, line 1: .*'mss'"):
        module.seeds(parse("gemm 48,64,32 TN f32"), "h200")
