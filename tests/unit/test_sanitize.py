"""scripts/sanitize without a GPU: its list of kernels, and its parser of compute-sanitizer's output."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from mako.lookup import TemplateLookup

from ptxgen.codegen.config.config import FAMILIES, parse_config
from ptxgen.codegen.render import render, render_preparation
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.grouped import checks as grouped_check
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from tests.architecture.source import ROOT
from tests.golden.test_slots import templates_of_handles
from tests.scripts import script as load

script = load("sanitize")

CLEAN = "========= COMPUTE-SANITIZER\nkernels: 6\n========= ERROR SUMMARY: 0 errors\n"
INVALID = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at gemm_f32_tn+0x1e0
=========     by thread (3,0,0) in block (0,0,0)
=========     Address 0x7f1be5400100 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f1be5400000 of size 256 bytes
=========
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call to cuCtxSynchronize.
=========
Traceback (most recent call last):
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""
RACE = """========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at gemm_f16_nn+0x1f0 in kernel.ptx
=========     and Read access at gemm_f16_nn+0x420 in kernel.ptx [24 hazards]
=========
kernels: 4
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
BOTH = "kernels: 4\n========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)\n"
OVERFLOW = """========= COMPUTE-SANITIZER
========= Warning: Detected overflow of tracked cuda::barrier structures. Results might be incorrect. Try using --num-cuda-barriers to fix the issue
kernels: 4
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
ENTRY = """========= COMPUTE-SANITIZER
========= Potential invalid __shared__ read of size 4 bytes
=========     at gemm_f16_nn+0x170
=========     Address 0x1000400 is located in a block that might not have entered yet
kernels: 4
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
UNSUPPORTED = "========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to the documentation.\n"


@pytest.mark.parametrize(
    ("tool", "output", "status", "counts"),
    [
        ("memcheck", CLEAN, 0, (6, 0, 0)),
        ("memcheck", INVALID, 1, (0, 2, 0)),
        ("racecheck", RACE, 0, (4, 0, 1)),
        ("racecheck", BOTH, 0, (4, 1, 2)),
        ("racecheck", OVERFLOW, 0, (4, 0, 1)),
        ("racecheck", ENTRY, 0, (4, 0, 1)),
        ("synccheck", UNSUPPORTED, 1, (0, 1, 0)),
        ("memcheck", CLEAN, 4, (6, 1, 0)),  # a wrong result
        ("memcheck", "kernels: 6\n", 0, (6, 1, 0)),  # no tool ran
        ("memcheck", CLEAN.replace("kernels: 6", ""), 0, (0, 1, 0)),  # no kernel ran
    ],
)
def test_output_is_parsed(tool, output, status, counts):
    got = script.parse_output("simt", tool, output, status)
    assert (got.kernels, got.errors, got.warnings) == counts
    assert got.clean == (counts[1:] == (0, 0))


def test_only_lines_of_the_finding_are_shown():
    assert script.parse_output("wgmma", "racecheck", RACE, 0).lines == (
        "Warning: Race reported between Write access at gemm_f16_nn+0x1f0 in kernel.ptx",
        "and Read access at gemm_f16_nn+0x420 in kernel.ptx [24 hazards]",
    )
    assert script.parse_output("wgmma", "memcheck", INVALID, 1).lines[-1] == "Traceback (most recent call last):"
    assert script.parse_output("wgmma", "memcheck", CLEAN, 0).lines == ()


def test_table_has_a_line_for_each_group_and_tool():
    rows = [
        script.parse_output("simt", "memcheck", CLEAN, 0, 3.4),
        script.parse_output("wgmma", "racecheck", RACE, 0, 12),
    ]
    assert script.table(rows).splitlines() == [
        "group  tool       kernels  errors  warnings  seconds",
        "simt   memcheck         6       0         0        3",
        "wgmma  racecheck        4       0         1       12",
    ]


def plan_of(problem, config):
    """The plan of a line of the list."""
    if name := script.schedule_of(config):
        return script.scheduled(problem, name, device("h200")).choice.plan
    return plan_for(parse(problem), parse_config(config), device("h200"))


@pytest.fixture(scope="module")
def listed():
    """The plan and PTX of every kernel of the list, and their templates."""
    used, real = set(), TemplateLookup.get_template
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TemplateLookup, "get_template", lambda self, uri: used.add(uri.lstrip("/")) or real(self, uri))
        pairs = itertools.chain(*script.cases().values())
        plans = [plan_of(problem, config) for problem, config in pairs]
        texts = [render(plan).text for plan in plans]
        for made in {x for plan in plans for x in plan.preparations}:
            render_preparation(made, device("h200"))
        return plans, texts, used


def test_kernels_of_every_family_are_listed(listed):
    assert {plan.config.family for plan in listed[0]} == set(FAMILIES)


def test_every_template_is_used(listed):
    folder = ROOT / "templates"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.mako")}
    of_handles = set().union(*templates_of_handles().values())  # no check of a problem runs them
    assert {name for name in names if not name.startswith("export/")} == listed[2] | of_handles  # export: C sources


@pytest.mark.parametrize(
    "part",
    [
        "setmaxnreg",
        "st.async",
        "st.shared::cluster",
        ".multicast::cluster",
        ".im2col.",
        "griddepcontrol.wait",
        "cp.async.ca",
        "cp.async.cg",
        "ldmatrix",
        "stmatrix",
        "red.release",
        "barrier.cluster.wait",
    ],
)
def test_every_synchronisation_and_copy_instruction_is_listed(listed, part):
    assert any(part in text for text in listed[1])


def first_kernels():
    """Group -> the first kernel of each operation in the list, and the first one of a schedule."""
    first = {}
    for group, pairs in script.cases().items():
        for problem, config in pairs:
            first.setdefault((problem.split()[0], bool(script.schedule_of(config))), (group, (problem, config)))
    groups = {}
    for group, pair in first.values():
        groups.setdefault(group, []).append(pair)
    return groups


def test_kernels_of_every_operation_run(draws, monkeypatch, capsys):
    """The first kernel of each operation and of the schedules on the emulated device, with alpha and beta; with
    --exhaustive all kernels."""
    groups = script.cases() if draws > 1 else first_kernels()
    monkeypatch.setattr(script, "cases", lambda: groups)
    monkeypatch.setattr(script, "SCALES", script.SCALES[1:])
    monkeypatch.setattr(grouped_check, "CASES", grouped_check.CASES[3:])
    for group, some in groups.items():
        assert script.run(group, "emulated") == 0, group
        launches = int(capsys.readouterr().out.split("kernels: ")[1])
        assert launches >= len(script.SCALES) * len(some), group


def test_wrong_result_is_reported(monkeypatch, capsys):
    import ptxgen.runtime.runner

    real = ptxgen.runtime.runner.Runner.compute
    monkeypatch.setattr(
        ptxgen.runtime.runner.Runner,
        "compute",
        lambda *arguments: {name: 1 + x for name, x in real(*arguments).items()},
    )
    some = [pair for pair in script.cases()["simt split-K"] if pair[0].startswith("gemm 60,64,512")]
    monkeypatch.setattr(script, "cases", lambda: {"simt split-K": some})
    monkeypatch.setattr(script, "SCALES", script.SCALES[:1])
    assert script.run("simt split-K", "emulated") == 4
    assert "wrong result: gemm 60,64,512" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tools", "leakcheck"], "must be some of memcheck"),
        (["--only", "gemm"], "must be one of simt"),
        (["--run", "gemm"], "must be one of simt"),
    ],
)
def test_unknown_words_are_refused(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        script.main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_list_prints_the_kernels(capsys):
    assert script.main(["--list", "--only", "depthwise"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(script.cases()["depthwise"])
    assert all(line.startswith("depthwise | conv ") for line in lines)


def fake(folder, text, status):
    """A program that replaces compute-sanitizer."""
    program = folder / "compute-sanitizer"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint({text!r}, *sys.argv[1:])\nsys.exit({status})\n")
    return program


def test_complete_sanitizer_is_preferred(tmp_path, monkeypatch):
    """In a wheel, whose programs an installer may have left without execute permission."""
    monkeypatch.delenv("COMPUTE_SANITIZER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nvidia" / "cu13"))
    folder = tmp_path / "nvidia" / "cu13" / "compute-sanitizer"
    folder.mkdir(parents=True)
    fake(folder, "", 0)
    elsewhere = script.find_sanitizer()
    assert elsewhere is None or tmp_path not in elsewhere.parents  # what starts the target is missing
    (folder / "TreeLauncherSubreaper").touch()
    assert script.find_sanitizer() == folder / "compute-sanitizer"
    subprocess.run([script.find_sanitizer()], check=True)
    monkeypatch.setenv("COMPUTE_SANITIZER", "/somewhere/compute-sanitizer")
    assert str(script.find_sanitizer()) == "/somewhere/compute-sanitizer"


def test_group_runs_under_the_sanitizer(tmp_path):
    program = fake(tmp_path, RACE, 0)
    program.chmod(0o755)
    result = script.sanitized(program, "depthwise", "racecheck", 3, tmp_path)
    assert (result.kernels, result.errors, result.warnings) == (4, 0, 1)
    command = (tmp_path / "depthwise-racecheck.log").read_text().splitlines()[-1]
    assert "--tool racecheck" in command
    assert command.endswith("--run depthwise")


def test_group_that_does_not_end_is_an_error(tmp_path, monkeypatch):
    program = fake(tmp_path, "", 0)
    program.write_text(program.read_text().replace("sys.exit", "import time; time.sleep(60); sys.exit"))
    program.chmod(0o755)
    monkeypatch.setattr(script, "LIMIT", 0.5)
    result = script.sanitized(program, "depthwise", "racecheck", 3, None)
    assert result.errors == 1
    assert "not finished after 0.5 seconds" in result.lines


def test_a_tool_that_cannot_judge_a_group_is_named_and_not_run(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(script, "find_sanitizer", lambda: tmp_path)
    monkeypatch.setattr(script, "prepare", lambda groups: None)
    monkeypatch.setattr(
        script,
        "sanitized",
        lambda _, group, tool, *__: ran.append((group, tool)) or script.Finding(group, tool, 1, 0, 0, (), 0.0),
    )
    assert script.main(["--only", "grouped multistage", "--only", "grouped"]) == 0
    assert set(ran) == {("grouped", t) for t in script.TOOLS} | {
        ("grouped multistage", t) for t in ("memcheck", "racecheck")
    }
    assert "not run: synccheck of grouped multistage: warps without an element of C" in capsys.readouterr().out
