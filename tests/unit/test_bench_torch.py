"""scripts/bench-torch: the models, their results and the tables."""

from __future__ import annotations

import copy
import json
import time

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; the extra [test] installs it")

from ptxgen.api import recording
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from tests.scripts import script as load

script = load("bench-torch")
SMALL = ["--device", "cpu", "--size", "tiny", "--dtype", "f32", "--batch", "1", "--repeats", "1", "--calls", "1"]


@pytest.fixture
def launched(monkeypatch):
    """The problems that ptxgen computed."""
    launches = []
    monkeypatch.setattr(recording, "observers", [lambda problem, stream, on: launches.append(problem)])
    return launches


def test_replaced_decoder_has_the_results_of_pytorch(capsys, launched):
    assert script.main([*SMALL, "--model", "decoder", "--mode", "eager", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    entry = document["models"]["decoder"]
    assert [(row["mode"], row["step"]) for row in entry["times"]] == [("eager", "infer"), ("eager", "train")]
    assert entry["difference"]["stock"] == {"output": 0, "gradients": 0}
    assert max(entry["difference"]["ours"].values()) < 1e-5
    assert {(16, 24), (24, 16), (16, 32)} <= {(p.k, p.n) for p in launched}  # gate and up, down, words
    steps = ["forward", "recorded forward", "forward and backward"]
    assert [(row["call"], row["step"]) for row in document["host"]] == [
        (c, s) for c in ("linear", "conv2d") for s in steps
    ]


def test_rows_are_printed_when_they_are_known_and_a_mode_that_fails_has_an_error(capsys, monkeypatch):
    seen = []

    def times_of(what, models, x, mode, step, arguments):
        assert what == f"decoder, {mode}, {step}"
        seen.append(capsys.readouterr().out)
        if mode == "compile":
            raise RuntimeError("no compiler\nfurther lines")
        return {"stock": 3.0, "ours": 2.0}

    monkeypatch.setattr(script, "times_of", times_of)
    assert script.main([*SMALL, "--model", "decoder", "--part", "times"]) == 1
    assert seen[0].splitlines()[-1].split() == ["mode", "step", "stock,", "ms", "ours,", "ms", "ratio"]
    assert seen[1].split() == ["eager", "infer", "3.000", "2.000", "1.50"]
    assert seen[3].split(maxsplit=2) == ["compile", "infer", "error: RuntimeError: no compiler\n"]
    assert len(seen) == 6


def test_parts_steps_and_layers(capsys):
    one = ["--model", "decoder", "--mode", "eager", "--step", "infer", "--layers", "2"]
    assert script.main([*SMALL, *one, "--part", "times", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["models"]
    (row,) = document["models"]["decoder"].pop("times")
    assert (row["mode"], row["step"]) == ("eager", "infer")
    assert not document["models"]["decoder"]
    assert script.main([*SMALL, "--part", "host", "--json"]) == 0
    assert {len(rows) for rows in json.loads(capsys.readouterr().out).values()} == {0, 6}
    for name, layers in (("decoder", 3 + 3), ("resnet50", 3 + 7)):  # three, and what surrounds them
        model, _ = script.build(name, "tiny", 1, script.torch.float32, "cpu", 3)
        assert len(model) == layers
    for option, value in (("--layers", "0"), ("--limit", "-1"), ("--limit", "nan")):
        with pytest.raises(SystemExit):
            script.main([*SMALL, option, value])
        assert f"{option} must be" in capsys.readouterr().err.replace(", --repeats and --calls", "")


def test_a_row_over_the_limit_has_an_error_and_the_next_is_measured(capsys, monkeypatch):
    def times_of(what, models, x, mode, step, arguments):
        try:
            if step == "infer":
                time.sleep(30)
        except Exception:  # as PyTorch's compiler
            pass
        return {"stock": 3.0, "ours": 2.0}

    monkeypatch.setattr(script, "times_of", times_of)
    begin = time.monotonic()
    words = ["--model", "decoder", "--mode", "compile", "--part", "times", "--limit", "0.2"]
    assert script.main([*SMALL, *words]) == 1
    assert time.monotonic() - begin < 20
    rows = capsys.readouterr().out.splitlines()[2:4]
    assert rows[0].split(maxsplit=2)[2] == "error: TimeLimitError: not measured within 0.2 s"
    assert rows[1].split() == ["compile", "train", "3.000", "2.000", "1.50"]
    assert script.signal.getitimer(script.signal.ITIMER_REAL)[0] == 0


def test_long_work_is_announced(capsys, monkeypatch):
    monkeypatch.setattr(script, "ANNOUNCED_AFTER", 0.05)
    with script.phase("compiling"):
        time.sleep(0.3)
        assert capsys.readouterr().err == "compiling: runs\n"
    assert capsys.readouterr().err == "compiling: 0.3 s\n"
    with script.phase("short"):
        pass
    assert capsys.readouterr().err == ""


def test_resnet50_has_the_layers_of_the_paper_and_the_results_of_pytorch(launched):
    assert sum(p.numel() for p in script.resnet().parameters()) == 25_557_032
    stock, x = script.build("resnet50", "tiny", 1, script.torch.float32, "cpu")
    ours = script.ptxgen.torch.replace_modules(copy.deepcopy(stock))
    assert max(script.differences(stock, ours, x)["ours"].values()) < 1e-5
    assert {type(p) for p in launched} == {Conv, Gemm}  # the layers of the network, and the last one
