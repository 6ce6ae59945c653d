"""The command line: shared options, answers, documents, errors and exit codes."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

import ptxgen
from ptxgen.cli import app, command, doctor, options, problems, report
from ptxgen.cli.plain_values import PlainValue
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import (
    ConfigError,
    CorruptError,
    DatabaseError,
    Fault,
    InputError,
    RenderError,
    SchemaError,
    UnavailableError,
)
from ptxgen.families.common.space import candidates
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.tlp_schedule import setting_of
from ptxgen.problem.base import COMPUTE_MODES
from ptxgen.problem.device import device
from ptxgen.problem.operation import Baseline, Case, operation_named, operation_names
from ptxgen.problem.reference import Deviation
from ptxgen.runtime.check import CheckResult
from ptxgen.tuning import selection
from ptxgen.tuning.choice import winners
from ptxgen.tuning.measure.bench import BenchRow
from ptxgen.tuning.search.sampler import Categorical
from ptxgen.tuning.search.tuner import Budget
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement

ON_PROBLEMS = ("tune", "select", "explain", "emit", "check", "bench", "sampler")
H200 = ("--device", "h200")
CONFIG = "ms=2 ns=2 ml=16 nl=32 u=8"


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        out: dict[str, Any] = json.loads(self.out)
        return out


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, on a database of the test's own and the emulated device."""
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    with Database(tmp_path / "tuning.sqlite"):
        pass
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")

    def call(*arguments: object) -> Done:
        code = command.run([str(a) for a in arguments])
        output = capsys.readouterr()
        return Done(code, output.out, output.err)

    return call


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler estimates its probabilities from few draws."""
    monkeypatch.setattr(Categorical, "learn", partial(Categorical.learn, wanted=20, limit=1 << 16))


def options_of(name: str) -> dict[str, Any]:
    group: Any = command.parser()
    for part in name.split():
        group = group.commands[part]
    return {p.name: (p.opts, p.help, p.default, p.multiple if hasattr(p, "multiple") else None) for p in group.params}


# ---- common to all commands


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("selct",), "No such command 'selct'"),
        (("db", "inf"), "No such command 'inf'"),
        (("conv", "--shape", "1,2,3"), "No such command 'conv' (the command precedes the operation: select conv)"),
        (("select", "gemm", "1,2,3"), "(1,2,3) (use --shape for extents"),
        (("select", "gemm", "--devise", "h200"), "No such option: --devise (Possible options: --device)"),
        (("select", "gemm", "--config", "ms=2"), "No such option: --config (see"),
        (("select", "gemm", "--count", "0"), "'--count'"),
        (("select", "gemm", "--count", "many"), "'--count'"),
        (("check", "--shape", "5,5,5", "--seed", "-1"), "'--seed'"),
        (("emulate",), "argument"),  # and its name, which Typer has in capitals or not
    ],
)
def test_parser_errors_have_the_common_form(run: Run, arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert message in done.err
    done = run(*arguments, "--json")
    assert done.code == 2
    assert done.document["error"]["kind"] == "InputError"


def test_group_without_a_command_prints_its_help(run: Run) -> None:
    assert "import" in run("db").err + run("db").out
    assert run().code in (0, 2)  # before click 8.2, and since
    assert "emulate" in run().err + run().out


def test_control_characters_of_file_names_are_escaped(run: Run, tmp_path: Path) -> None:
    done = run("emulate", tmp_path / "no\x1b[31m.ptx")
    assert done.err == f"error: {tmp_path}/no\\x1b[31m.ptx: No such file or directory\n"


def test_missing_file_is_named_with_the_reason(run: Run, tmp_path: Path) -> None:
    done = run("emulate", tmp_path / "no.ptx", "--json")
    assert done.code == 2
    assert done.err == f"error: {tmp_path}/no.ptx: No such file or directory\n"
    assert done.document["error"]["message"] == f"{tmp_path}/no.ptx: No such file or directory"


def test_file_without_shapes_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("\n")
    done = run("select", "--shapes-file", tmp_path / "none.jsonl", *H200)
    assert done.code == 2
    assert "none.jsonl has no problem" in done.err


def test_check_fits_80_columns(run: Run) -> None:
    done = run("check", "gemm", "--shape", "33,65,127", "--layout", "NT", "--device", "emulated")
    lines = done.out.splitlines()
    assert lines[0].split() == ["M,N,K", "layout", "dtype", "inputs", "error", "/", "tolerance"]
    assert len(lines) == 8  # one line for each kind of input
    assert max(map(len, lines)) <= 80
    assert re.search(r"normal +0\.\d+ at \d+,\d+$", lines[2])


def test_missing_and_empty_databases(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tuning.sqlite").unlink()
    done = run("db", "info")
    assert done.code == 4
    assert "does not exist; tune and db import create it" in done.err
    with Database(tmp_path / "tuning.sqlite"):
        pass
    done = run("db", "export", tmp_path / "out")
    assert (done.code, done.out) == (0, "the database has no measurements; nothing was written\n")


def test_problem_without_results_has_no_time_and_a_reason(run: Run) -> None:
    assert "exact" in run("check", "--shape", "0,16,16").out
    done = run("bench", "--shape", "0,16,16", "--json")
    assert done.code == 1
    assert done.document["rows"][0]["note"] == "C has no element: there is nothing to time"


def test_missing_package_is_named() -> None:
    gone = "import runpy, sys; sys.modules['typer'] = None; runpy.run_module('ptxgen', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", gone], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 3
    assert done.stderr.startswith("error: typer is not installed for ")
    assert done.stderr.count("\n") == 1


def test_commands_on_problems_take_the_same_options() -> None:
    for name in ON_PROBLEMS:  # a command line of gemm is parsed without the options of other operations
        command.parser().commands[name].make_context(name, ["--shape", "64,64,64"])
    shared = {f.name for f in fields(options.Target)} - {"own"} | set(options.Target.more_options())
    assert {"operation", "shape", "suite", "shapes_file", "layout", "dtype", "device", "json", "database"} <= shared
    first = options_of("select")
    for name in ON_PROBLEMS:
        mine = options_of(name)
        here = shared - (set() if "csv" in mine else set(command.TABLE_OPTIONS))
        assert {n: mine[n] for n in here} == {n: first[n] for n in here}, name


def every_command() -> dict[str, Any]:
    group: Any = command.parser()
    groups = {n: g.commands for n, g in group.commands.items() if hasattr(g, "commands")}
    return {n: c for n, c in group.commands.items() if n not in groups} | {
        f"{g} {n}": c for g in groups for n, c in groups[g].items()
    }


def test_every_command_has_two_examples_that_parse_and_fit_80_columns() -> None:
    group: Any = command.parser()
    for name, parsed in every_command().items():
        assert len(parsed.examples) == 2, name
        for example in parsed.examples:
            words = shlex.split(example)[len(name.split()) :]
            assert example.startswith(name)
            parsed.make_context(name, words)
        text = parsed.get_help(typer.Context(parsed, info_name=f"python -m ptxgen {name}", terminal_width=80))
        assert max(map(len, text.splitlines())) <= 80, name
        assert "Examples:" in text
    assert group.get_help(typer.Context(group)).index("Use kernels:") > 0


def test_each_option_has_one_lower_case_name() -> None:
    for name, parsed in every_command().items():
        for p in parsed.params:
            if p.param_type_name == "option":
                names = [*p.opts, *p.secondary_opts]
                assert len(names) == len(set(names)), (name, names)
                assert all(n == n.lower() for n in names if n.startswith("--")), (name, names)


def test_help_has_every_default() -> None:
    for name, parsed in every_command().items():
        text = " ".join(parsed.get_help(typer.Context(parsed, info_name=name, terminal_width=200)).split())
        wanted = [p for p in parsed.params if p.param_type_name == "option" and not p.is_flag and not p.required]
        assert text.count("[default: ") >= len(wanted), name
    values = {"samples": "samples", "search": "search", "rounds": "refine_rounds", "keep": "keep"}
    tune = options_of("tune")
    for option, field in values.items():
        usual, emulated = getattr(Budget(), field), problems.EMULATED_BUDGET[field]
        assert f"[default: {usual}; emulated device: {emulated}]" in tune[option][1]
    assert f"emulated device: {problems.EMULATED_BUDGET['seconds']}]" in tune["time_limit"][1]


def test_csv_has_all_columns_and_excludes_json(run: Run) -> None:
    words = ("select", "--suite", "isaac", *H200)
    [head, *rows] = list(csv.reader(io.StringIO(run(*words, "--csv").out)))
    assert len(rows) == 17
    wide = run(*words, "--wide").out
    csv_alone = {"compute", "out", "epilogue", "predicted", "clock"}
    assert all(title in wide.splitlines()[0] for title in set(head) - csv_alone)
    assert max(map(len, run(*words).out.splitlines())) <= 80
    assert run(*words, "--csv", "--json").code == 2
    done = run("select", "--shape", "5,5,5", "--digest", "--csv", *H200)
    assert (done.code, done.err) == (2, "error: --csv is given; this answer has no table\n")


def test_emulated_device_that_nobody_asked_for_is_a_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxgen.runtime import cuda

    def absent(*_: object) -> None:
        raise UnavailableError("no GPU")

    monkeypatch.setattr(cuda, "CudaDriver", absent)
    words = ("check", "--shape", "17,19,23", "--config", CONFIG)
    assert run(*words).err == ""
    monkeypatch.setenv("PTXGEN_DRIVER", "auto")
    done = run(*words)
    assert done.code == 0
    assert done.err.count("warning: there is no usable NVIDIA GPU") == 1
    assert "for roughly 1 s" in done.err
    assert run(*words, "--device", "emulated").err == ""
    large = [Case("large", Gemm(4096, 4096, 4096))]
    assert options.emulated_time(large, 1) == "for roughly 76 minutes"
    assert options.emulated_time(large * 100, 2) == "for roughly 11 days"


def test_times_of_the_emulated_device_are_marked_as_modelled(run: Run, tmp_path: Path) -> None:
    """Also those of stored winners, which are not predicted."""
    problem, config, emulated = Gemm(17, 19, 23), parse_config(CONFIG), device("emulated")
    digest = winners.current_digest(problem, config, emulated)
    winner = Measurement(problem, config, "ok", Environment("emulated", "model"), (3.5,), digest)
    with Database(tmp_path / "tuning.sqlite") as database:
        database.set_winner(winner)
    words = ("--shape", "17,19,23")
    out = run("select", *words).out
    assert re.search(r"~3.50* +winner", out)
    assert "do not predict times" in " ".join(out.split())
    assert run("select", *words, "--csv").out.splitlines()[1].endswith(",3.5,winner,no,model")
    assert [run(name, *words, "--json").document["clock"] for name in ("select", "explain")] == ["model", "model"]
    out = run("explain", *words).out
    assert "choice: winner, 3.50 µs (modelled)" in out
    assert "measured µs" not in out
    assert "do not predict times" in out
    out = run("select", *words, *H200).out
    assert "do not predict times" not in out


def test_first_command_of_the_readme_finds_a_tuned_shape(run: Run) -> None:
    readme = Path(ptxgen.__file__).parents[1] / "README.md"
    first = next(line for line in readme.read_text().splitlines() if line.startswith("$ python -m ptxgen select"))
    done = run(*shlex.split(first)[4:], "--csv")
    [row] = csv.DictReader(io.StringIO(done.out))
    assert (row["source"], row["predicted"]) == ("shipped", "no")
    assert float(row["µs"]) > 0


def test_column_major_shapes_are_the_same_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--shape", "2560,16,2560", "--layout", "tn", "--column-major", "--lda", 3000, "--epilogue", "bias_row")
    [row] = run("select", *words, "--json", *H200).document["rows"]
    problem = Gemm(16, 2560, 2560, "NT", ldb=3000, epilogue="bias_column")
    assert row["problem"]["key"] == problem.key()
    assert row["column_major"] == {"m": 2560, "n": 16, "k": 2560, "a_t": True, "b_t": False}
    monkeypatch.setattr("sys.stdin", io.StringIO('{"m": 2560, "n": 16, "k": 2560, "name": "x"}'))
    [row] = run("select", "--shapes-file", "-", "--column-major", "--json", *H200).document["rows"]
    assert (row["name"], row["problem"]["key"], row["origin"]) == ("x", "gemm 16,2560,2560 NN f32", "shipped")
    for words in (("conv", "--shape", "N=1,C=1,H=4,W=4,K=1,R=1,S=1"), ("gemm", "--suite", "isaac")):
        assert "--column-major is given" in run("select", *words, "--column-major").err


def test_every_field_of_a_problem_is_an_option() -> None:
    every = {name for o in map(operation_named, operation_names()) for name in o.options}
    assert every == {*options.PROBLEM_FIELDS, *options.Target.more_options()}
    assert every <= set(options_of("select"))
    assert operation_named("gemm").options == tuple(f.name for f in fields(Gemm) if f.name not in ("m", "n", "k"))


def test_every_command_takes_json_and_debug() -> None:
    names = list(every_command())
    assert {"tune", "db info", "paper table4"} <= set(names)
    for name in names:
        assert {"json", "debug"} <= set(options_of(name)), name


def test_options_become_fields_of_the_problem(run: Run) -> None:
    types = ("--layout", "TN", "--dtype", "f16", "--compute", "f16", "--deterministic")
    done = run("select", "--shape", "10,20,30", *types, "--lda", 12, "--aligned-b", 4, "--json", *H200)
    [row] = done.document["rows"]
    expected = Gemm(10, 20, 30, "TN", "f16", "f16", lda=12, aligned_b=4, deterministic=True)
    assert row["problem"] == {"key": expected.key(), **expected.as_dict()}


SPMM_GROUPS = ("--shape", "64,8,64", "--groups")
CONV = ("conv", "--shape", "N=2,C=8,H=5,W=5,K=16,R=1,S=1", "--layout", "NHWC")


def test_conv_takes_options_of_its_own(run: Run) -> None:
    done = run("select", *CONV, "--filters", "CRSK", "--direction", "input_grad", "--dtype", "f64", "--json", *H200)
    [row] = done.document["rows"]
    expected = Conv(2, 8, 5, 5, 16, 1, 1, layout="NHWC", filters="CRSK", direction="input_grad", dtype="f64")
    assert row["problem"]["key"] == expected.key()
    assert run("select", *CONV, "--lda", 9, *H200).code == 2
    assert "--lda is given; conv takes --layout" in run("select", *CONV, "--lda", 9, *H200).err
    assert "--direction is given; gemm takes" in run("select", "--shape", "1,2,3", "--direction", "forward").err
    assert "baseline is 'cublas'; for conv it must be cudnn" in run("bench", *CONV, "--baseline", "cublas").err


def test_operations_read_an_option_of_their_own_types(run: Run) -> None:
    assert "--groups is 'x'; for spmm it must be an integer" in run("select", "spmm", *SPMM_GROUPS, "x", *H200).err
    assert run("select", "spmm", *SPMM_GROUPS, "2", *H200).code == 0


def test_the_lines_of_a_file_decide_what_bench_compares(run: Run, tmp_path: Path) -> None:
    product = '{"operation": "gemm", "m": 8, "n": 8, "k": 8}'
    task = '{"operation": "task", "m": 8, "n": 8, "k": 8, "text": "where (i, j) { reduce (k) { c += A[i,k]*B[k,j]; } C[i,j] = c; }"}'
    file = tmp_path / "lines.jsonl"
    file.write_text(task)
    device = ("--shapes-file", file, "--device", "emulated")
    assert "baseline is 'cuda'; the vendor's library needs" in run("bench", *device, "--baseline", "cuda").err
    assert "ceiling is given; its loop needs" in run("bench", *device, "--ceiling").err
    file.write_text(f"{task}\n{product}")
    assert "baseline is 'cuda'; for gemm it must be" in run("bench", *device, "--baseline", "cuda").err
    assert "ceiling is given; gemm has none" in run("bench", *device, "--ceiling").err


@pytest.mark.usefixtures("few_draws")
def test_conv_on_the_emulated_device(run: Run) -> None:
    """A problem is tuned, stored, selected, emitted, checked and timed."""
    budget = ("--samples", 0, "--search", 1, "--rounds", 0)
    tuned = run("tune", *CONV, *budget, "--json")
    assert tuned.code == 0, tuned.err
    [row] = run("select", *CONV, "--json").document["rows"]
    assert row["origin"] == "winner"
    assert row["config"] == tuned.document["rows"][0]["config"]
    emitted = run("emit", *CONV)
    again = next(line for line in emitted.out.splitlines() if "again" in line)
    assert "ptxgen emit conv --shape N=2,C=8,H=5,W=5,K=16,R=1,S=1 --layout NHWC --dtype f32 --device" in again
    for name, column in (("check", "adjoint"), ("bench", "TFLOP/s"), ("select", "M_S")):
        done = run(name, *CONV)
        assert done.code == 0, done.err
        assert column in done.out
        assert done.out.split()[:2] == ["N,C,HxW", "K,RxS"]
    assert "uniform" in run("sampler", *CONV, "--draws", 1000).out


def test_shapes_suites_and_files_combine(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "shapes.jsonl"
    file.write_text('{"name": "mine", "m": 1, "n": 2, "k": 3}\n')
    done = run(
        "select", "--shape", "4,4,4", "--shape", "5,5,5", "--shapes-file", file, "--suite", "small", "--json", *H200
    )
    names = [row["name"] for row in done.document["rows"]]
    assert names[:4] == ["gemm 4,4,4 NN f32", "gemm 5,5,5 NN f32", "mine", "square"]


def test_shapes_come_from_standard_input_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", iter(['{"m": 7, "n": 8, "k": 9}\n']))
    done = run("select", "--shapes-file", "-", "--layout", "NT", "--json", *H200)
    assert done.document["rows"][0]["problem"]["key"] == "gemm 7,8,9 NT f32"


def test_version_and_help() -> None:
    for words, output in (
        (["--version"], f"ptxgen {ptxgen.__version__}"),
        (["--help"], "Exit codes"),
        (["db"], "export"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ptxgen", *words], capture_output=True, text=True, check=False, timeout=300
        )
        assert output in done.stdout + done.stderr


def test_the_version_of_a_checkout_has_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxgen.cli import revision

    monkeypatch.setattr(revision, "__file__", str(tmp_path / "ptxgen/cli/revision.py"))
    plain = f"ptxgen {ptxgen.__version__}"
    assert (revision.version(), revision.revision()) == (plain, f"v{ptxgen.__version__}")
    (tmp_path / ".commit").write_text("0123abc\n")
    assert (revision.version(), revision.revision()) == (f"{plain} (0123abc)", "0123abc")


def test_help_lists_the_types_of_the_registry() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ptxgen", "select", "--help"], capture_output=True, text=True, check=True, timeout=300
    )
    text = " ".join(done.stdout.split())
    assert f"Dtype of A and B: one of {', '.join(COMPUTE_MODES)}. [default: f32]" in text
    assert "Arithmetic of products and sums: " in text
    assert f"f32 takes {', '.join(COMPUTE_MODES['f32'])}" in text


# ---- select


def winner(problem: Gemm, config: Config, name: str = "h200", us: float = 12.5) -> Measurement:
    env = Environment(name, "model" if name == "emulated" else "hardware", "driver", "ptxas", "policy", "commit")
    digest = render(plan_for(problem, config, device(name))).digest
    return Measurement(problem, config, "ok", env, (us,), digest, purpose="final")


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Gemm, Config]:
    """A database with a winner that no model would choose."""
    path, problem, config = tmp_path / "stored.sqlite", Gemm(100, 200, 300, "TN"), parse_config(CONFIG)
    with Database(path) as database:
        database.set_winner(winner(problem, config))
    return path, problem, config


def test_select_returns_the_stored_winner_or_the_models_choice(run: Run, stored: tuple[Path, Gemm, Config]) -> None:
    path, problem, config = stored
    words = ["select", "--shape", "100,200,300", "--layout", "TN", "--database", path, "--json", *H200]
    [row] = run(*words).document["rows"]
    assert (row["origin"], row["us"], row["config"]) == ("winner", 12.5, config.values())
    [row] = run(*words, "--model").document["rows"]
    assert row["origin"] != "winner"
    assert row["config"] != config.values()
    assert row["config"] == selection.select(problem, device("h200"), use_model=True)[0].config.values()


def test_select_returns_the_requested_count(run: Run) -> None:
    rows = run("select", "--shape", "100,200,300", "--model", "--count", 3, "--json", *H200).document["rows"]
    assert len(rows) == 3
    assert len({row["config_text"] for row in rows}) == 3
    assert [row["us"] for row in rows] == sorted(row["us"] for row in rows)


def test_select_prints_the_columns_of_table_6(run: Run) -> None:
    done = run("select", "--suite", "isaac", "--wide", *H200)
    lines = done.out.splitlines()
    titles = lines[0].split()
    assert [t for t in titles if t in dict(report.PAPER)] == ["M_S", "N_S", "M_L", "N_L", "U", "K_S", "K_L", "K_G"]
    assert len(lines) == 1 + 17 + 1
    assert done.err == ""


# ---- emit


def test_emit_prints_the_ptx_and_nothing_else(run: Run) -> None:
    done = run("emit", "--shape", "100,200,300", "--layout", "TN", "--config", CONFIG, *H200)
    source = render(plan_for(Gemm(100, 200, 300, "TN"), parse_config(CONFIG), device("h200")), "given")
    assert "// choice   given\n" in source.text
    assert (done.code, done.out, done.err) == (0, source.text, "")


@pytest.mark.parametrize(
    "words",
    [
        ["--shape", "100,200,300"],
        ["--shape", "64,64,4096", "--layout", "NT", "--dtype", "f16", "--compute", "f16"],
        ["--shape", "31,33,35", "--layout", "TT", "--dtype", "f64", "--lda", "37", "--deterministic"],
        ["--shape", "32,32,32", "--aligned-a", "4", "--aligned-c", "8"],
    ],
)
def test_command_in_the_header_emits_the_same_text(run: Run, words: list[str]) -> None:
    """Except for the source of the configuration, which it gives."""
    first = run("emit", *words, *H200).out
    [line] = [x for x in first.splitlines() if x.startswith("// again ")]
    again = shlex.split(line.removeprefix("// again "))
    assert again[:3] == ["python", "-m", "ptxgen"]
    assert re.sub("(?m)^// choice .*", "// choice   given", first) == run(*again[3:]).out
    assert first.isascii()  # ptxas takes no other text


def test_emit_prints_the_launch(run: Run) -> None:
    document = run("emit", "--shape", "100,200,300", "--config", CONFIG, "--json", *H200).document
    [step] = document["launch"]["steps"]
    assert step["entry"] in document["entries"]
    assert step["grid"] == [7, 7, 1]
    assert document["ptx"].count(".entry") == len(document["entries"])
    assert document["digest"] == render(plan_for(Gemm(100, 200, 300), parse_config(CONFIG), device("h200"))).digest


def test_emit_takes_one_problem(run: Run) -> None:
    done = run("emit", "--shape", "1,1,1", "--shape", "2,2,2", *H200)
    assert (done.code, done.out) == (2, "")
    assert "2 problems" in done.err


# ---- check and bench


def test_check_runs_against_float64(run: Run) -> None:
    done = run("check", "--shape", "17,19,23", "--layout", "NT", "--config", CONFIG, "--json")
    assert done.code == 0
    assert done.document["clock"] == "model"
    [row] = done.document["rows"]
    assert row["ok"]
    assert {"integers", "normal", "scaled", "positive"} <= {r["kind"] for r in row["results"]}
    assert all(r["ok"] and r["ratio"] <= 1 for r in row["results"])


def test_wrong_result_fails_the_check(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import ptxgen.runtime.check

    wrong = [CheckResult("integers", Deviation(0.0, (0, 0), 0.0)), CheckResult("normal", Deviation(7.0, (1, 2), 9.0))]
    monkeypatch.setattr(ptxgen.runtime.check, "check", lambda *arguments: wrong)
    done = run("check", "--shape", "17,19,23", "--config", CONFIG)
    assert done.code == 1
    assert "WRONG" in done.out
    assert "1 wrong" in done.out
    assert run("check", "--shape", "17,19,23", "--config", CONFIG, "--json").document["rows"][0]["ok"] is False


def test_fault_is_one_line_with_its_location(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import ptxgen.runtime.check

    def fail(*arguments: object) -> None:
        raise Fault("read past the end", entry="gemm", line=7, instruction="ld.global", thread=(3, 0, 0), address=16)

    monkeypatch.setattr(ptxgen.runtime.check, "check", fail)
    done = run("check", "--shape", "17,19,23", "--config", CONFIG)
    assert (done.code, done.out) == (1, "")
    [line] = done.err.splitlines()
    place = "kernel gemm; line 7; instruction ld.global; thread (3, 0, 0); address 0x10"
    assert line == f"error: read past the end; {place}"


def test_bench_says_that_the_clock_is_a_model(run: Run) -> None:
    words = ["bench", "--shape", "17,19,23", "--config", CONFIG]
    done = run(*words)
    assert done.code == 0
    assert f"~: {report.MODEL_CLOCK}" in " ".join(done.out.split())
    assert done.out.splitlines()[1].split()[3].startswith("~")
    document = run(*words, "--json").document
    assert (document["clock"], document["rows"][0]["origin"]) == ("model", "given")
    assert document["rows"][0]["us"] > 0
    assert document["rows"][0]["deviation"]["ok"]


def on_hardware(monkeypatch: pytest.MonkeyPatch, times: list[tuple[float, float]]) -> None:
    """A driver that calls itself a GPU, and a bench that returns (ours, theirs)."""
    import ptxgen.tuning.measure.bench

    class Fake:
        clock, device = "hardware", device("h200")

    def rows(cases: Any, driver: Any, choose: Any, baseline: Any, **named: Any) -> Any:
        for case, (us, vendor) in zip(cases, times, strict=True):
            yield BenchRow(
                case.name,
                case.problem,
                choose(case.problem, driver.device),
                us,
                vendor,
                deviation=Deviation(0.1, (0, 0), 0.1),
            )

    monkeypatch.setattr(options.Target, "find_driver", lambda self: Fake())
    monkeypatch.setattr(ptxgen.tuning.measure.bench, "bench", rows)
    monkeypatch.setattr(Baseline, "require", lambda self: None)


def test_bench_compares(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    on_hardware(monkeypatch, [(10, 20), (10, 5)])
    done = run("bench", "--shape", "64,64,64", "--shape", "65,65,65", "--baseline", "cublas")
    assert done.code == 0
    assert "geometric mean of 2 ratios: 1.000" in done.out
    assert "worst row: gemm 65,65,65 NN f32, 0.500" in done.out
    assert report.MODEL_CLOCK not in done.out


def test_bench_of_the_models_choice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    on_hardware(monkeypatch, [(10, 20)])
    words = ("bench", "--shape", "16,2560,2560", "--json")  # a winner ships
    assert run(*words).document["rows"][0]["origin"] == "shipped"
    assert run(*words, "--model").document["rows"][0]["origin"] == "model"
    done = run(*words, "--model", "--config", CONFIG)
    assert done.code == 2
    assert "config and model are given" in done.err


def test_bench_of_several_configurations(run: Run) -> None:
    done = run("bench", "gemm", "--shape", "16,16,16", "--device", "emulated", "--top", "2", "--json")
    first, second = done.document["rows"]
    assert (first["name"], second["name"]) == ("gemm 16,16,16 NN f32 #1", "gemm 16,16,16 NN f32 #2")
    assert first["config"] != second["config"]
    done = run("bench", "gemm", "--shape", "16,16,16", "--top", "2", "--config", "family=simt")
    assert (done.code, "top is 2 and config or schedule is given" in done.err) == (2, True)


def test_bench_fails_if_a_ratio_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    on_hardware(monkeypatch, [(10, 20), (10, float("nan"))])
    done = run("bench", "--shape", "64,64,64", "--shape", "65,65,65", "--baseline", "cublas", "--json")
    assert done.code == 1
    assert [row["ratio"] for row in done.document["rows"]] == [2.0, None]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_rows_of_bench_are_printed_and_saved_one_by_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, code: int
) -> None:
    on_hardware(monkeypatch, [(10, 20), (10, 5)])
    from ptxgen.tuning.measure import bench

    timed = bench.bench

    def interrupted(*arguments: Any, **named: Any) -> Any:
        yield next(iter(timed(*arguments, **named)))
        [row] = json.loads(saved.read_text())["rows"]
        assert row["us"] == 10
        signal.raise_signal(getattr(signal, name))

    saved = tmp_path / "rows.json"
    monkeypatch.setattr(bench, "bench", interrupted)
    words = ("bench", "--shape", "64,64,64", "--shape", "65,65,65", "--baseline", "cublas", "--save", saved)
    done = run(*words)
    assert done.code == code
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert done.err.splitlines()[0] == "gemm 64,64,64 NN f32: 10.00 µs, cuBLASLt 20.00 µs, ratio 2.000"
    assert len(json.loads(saved.read_text())["rows"]) == 1
    assert "geometric mean of 1 ratio" in done.out
    assert "65,65,65" not in done.out
    assert "interrupted: 1 of 2 rows were timed" in done.err


def test_emulated_device_has_no_vendor_baseline(run: Run) -> None:
    done = run("bench", "--shape", "64,64,64", "--baseline", "cublas")
    assert done.code == 3
    assert "NVIDIA GPU" in done.err


# ---- tune and its results


GROUP = ("grouped", "--shape", "33,17,5+32,16,3+0,5,5", "--device", "emulated", "--schedule", "tlp", "--json")


def test_every_command_takes_the_tile_policy_of_the_paper(run: Run) -> None:
    """The tuned threshold and bodies are used by the other commands."""
    chosen = run("select", *GROUP).document
    [row] = chosen["rows"]
    assert sum(t["items"] for t in row["tiles"]) == 2
    assert chosen["threshold"] is setting_of(device("emulated")).threshold is None
    assert "threshold of TLP: not tuned" in run("select", *GROUP[:-1]).out
    tuned = run("tune", *GROUP).document
    again = run("select", *GROUP).document
    policy = {name: tuned[name] for name in ("threshold", "bodies")}
    assert {name: again[name] for name in policy} == policy
    assert json.loads(Path(tuned["stored"]).read_text()) == {"emulated": {"tlp": policy}}
    assert run("check", *GROUP).document["rows"][0]["ok"]
    timed = run("bench", *GROUP).document["rows"][0]
    assert timed["us"] == tuned["rows"][0]["us"]
    assert 0 < timed["scheduling_percent"] < 100
    assert timed["scheduling_us"] > 0
    [kernel] = run("emit", *GROUP).document["kernels"]
    assert kernel["tile"] == "small, small-medium, medium, medium-large, large"
    assert run("emit", *GROUP[:-1]).out.count(".version") == 1
    other = run("bench", *GROUP[:-2], "vbatched", "--json").document["rows"][0]
    assert [t["items"] for t in other["tiles"]] == [2]


def test_tuning_of_a_schedule_takes_a_part_of_the_problems(run: Run) -> None:
    words = ("tune", "grouped", "--shape", "9,7,5", "--shape", "5,9,7", *GROUP[3:-2], "tile_16x16")
    assert "1 of 2 problems were timed within 0 s" in run(*words, "--time-limit", 0).out
    parts = [run(*words, "--json", "--shard", f"{i}/5") for i in range(1, 6)]
    assert sum(len(done.document["rows"]) for done in parts if not done.code) == 2
    assert "none of the problems is in it" in next(done.err for done in parts if done.code)


def test_schedule_names_the_problems_that_it_skips(run: Run) -> None:
    small = ("grouped", "--suite", "small", "--device", "emulated", "--schedule", "tlp")
    done = run("check", *small, "--json")
    assert done.code == 0, done.err
    assert [row["ok"] for row in done.document["rows"]] == [True, True, True]
    assert [row["name"] for row in done.document["skipped"]] == ["experts", "gradient of experts"]
    lines = " ".join(run("select", *small).out.split())
    assert lines.count("the tile policy is for lists of products") == 2
    jagged = run("select", *small[:1], "--shape", "24,64,32", "--jagged", "m", *small[3:])
    assert (jagged.code != 0, "the tile policy is for lists" in jagged.err) == (True, True)


def test_bench_compares_with_a_baseline_of_ptxgen_on_the_emulated_device(run: Run) -> None:
    words = ("grouped", "--shape", "17,16,5", "--device", "emulated", "--json", "--baseline")
    [row] = run("bench", *words, "tlp").document["rows"]
    assert row["ratio"] == pytest.approx(row["vendor_us"] / row["us"], rel=0.01)
    assert "needs an NVIDIA GPU" in run("bench", *words, "cublas").document["error"]["message"]


@pytest.mark.usefixtures("few_draws")
def test_model_of_a_device_without_shipped_measurements_is_trained_on_the_database(run: Run, tmp_path: Path) -> None:
    train = ("model", "train", "--device", "emulated", "--target", "clock", "--json")
    message = run(*train).document["error"]["message"]
    assert f"{tmp_path / 'tuning.sqlite'} has none either: tune" in message
    run("tune", "--shape", "17,19,23", "--samples", 8, "--search", 1, "--rounds", 0, "--keep", 1)
    trained = run(*train).document
    assert (trained["devices"], trained["problems"]) == (["emulated"], 1)
    assert Path(trained["file"]).is_relative_to(tmp_path)


def test_select_scores_every_legal_configuration(run: Run) -> None:
    """With a trained model, the search scores fewer, and its choice is not predicted to be faster."""
    words = ("select", "--shape", "512,512,512", "--layout", "TN", "--dtype", "e4m3", *H200, "--exhaustive")
    document = run(*words, "--count", 3, "--json").document
    assert [row["origin"] for row in document["rows"]] == ["model"] * 3
    [cost] = document["exhaustive"]
    legal = len(candidates(lower(Gemm(512, 512, 512, "TN", "e4m3")), device("h200")))
    assert cost["search_scored"] < cost["scored"] == legal
    assert cost["search_loss"] >= 1 - 1e-6
    assert cost["seconds"] > 0
    assert f"all {legal:,} legal configurations scored" in " ".join(run(*words).out.split())
    done = run("select", *GROUP, "--exhaustive")
    assert "exhaustive and schedule are given" in done.document["error"]["message"]


def test_bench_reports_what_the_host_spends_before_a_launch(run: Run) -> None:
    rows = [
        run("bench", operation, "--shape", "8,8,8", "--json").document["rows"][0] for operation in ("grouped", "gemm")
    ]
    assert rows[0]["scheduling_us"] > 0
    assert rows[1]["scheduling_us"] is None


@pytest.mark.usefixtures("few_draws")
def test_select_returns_what_tune_stored(run: Run) -> None:
    words = ["--shape", "17,19,23"]
    budget = ["--samples", 2, "--search", 1, "--rounds", 0, "--keep", 1]
    done = run("tune", *words, *budget, "--json")
    assert done.code == 0
    assert report.MODEL_CLOCK in done.err
    [row] = done.document["rows"]
    assert 1 <= row["measured"] <= 3
    assert (done.document["device"], done.document["clock"]) == ("emulated", "model")

    [chosen] = run("select", *words, "--json").document["rows"]
    assert (chosen["origin"], chosen["config"], chosen["us"]) == ("winner", row["config"], row["us"])

    again = run("tune", *words, *budget, "--json")
    assert again.document["rows"][0]["measured"] == 0

    info = run("db", "info", "--json").document
    assert info["rows"][0]["device"] == "emulated"
    assert info["winners"] == [{"device": "emulated", "clock": "model", "count": 1, "stale": 0}]


def test_tune_without_a_problem_takes_the_small_suite(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import ptxgen.tuning.search.tuner
    from ptxgen.problem.suites import cases

    asked: list[Any] = []

    def fake(
        tasks: list[Gemm], driver: str, database: Any, budget: Any, *rest: Any, retry: bool, **others: Any
    ) -> list[Any]:
        asked.extend((tasks, driver, budget, retry))
        return [ptxgen.tuning.search.tuner.Tuned(p) for p in tasks]

    monkeypatch.setattr(ptxgen.tuning.search.tuner, "tune", fake)
    done = run("tune")
    assert asked[0] == [c.problem for c in cases("small")]
    assert asked[1] == "emulated"
    assert asked[2] == ptxgen.tuning.search.tuner.Budget(**problems.EMULATED_BUDGET)
    assert asked[3] is False
    assert done.code == 1  # nothing ran
    run("tune", "--retry")
    assert asked[7] is True


def test_export_and_import_move_winners(run: Run, stored: tuple[Path, Gemm, Config], tmp_path: Path) -> None:
    path, folder, other = stored[0], tmp_path / "results", tmp_path / "other.sqlite"
    done = run("db", "export", folder, "--database", path, "--json")
    assert {Path(f).name for f in done.document["files"]} == {"winners.txt", "measurements.jsonl.xz", "fastest.txt.xz"}
    done = run("db", "import", folder, "--database", other, "--json")
    assert (done.code, done.document["winners"], done.document["stale"]) == (0, 1, 0)
    [row] = run("select", "--shape", "100,200,300", "--layout", "TN", "--database", other, "--json", *H200).document[
        "rows"
    ]
    assert (row["origin"], row["us"]) == ("winner", 12.5)


def test_imported_winner_of_a_changed_kernel_is_stale(run: Run, tmp_path: Path) -> None:
    path, folder, other = tmp_path / "a.sqlite", tmp_path / "results", tmp_path / "b.sqlite"
    old = Measurement(**{**vars(winner(Gemm(1, 2, 3), parse_config(CONFIG))), "digest": "0123456789abcdef"})
    with Database(path) as database:
        database.set_winner(old)
    run("db", "export", folder, "--no-raw", "--database", path)
    assert run("db", "import", folder, "--database", other, "--json").document["stale"] == 1
    output = run("db", "info", "--database", other)
    assert "0123456789abcdef" in output.out


# ---- errors


def check_error(done: Done, code: int, *message: str) -> None:
    assert done.code == code
    assert done.out == ""
    [line] = done.err.splitlines()
    assert line.startswith("error: ")
    assert all(text in line for text in message), line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["select", "--shape", "1,2"], ["shape is '1,2'", "M,N,K"]),
        (["select", "--shape", "1,2,-3"], ["shape"]),
        (["select", "--shape", "1,2,3", "--schedule", "tlp"], ["schedule tlp is for grouped", "gemm"]),
        (["select", "grouped", "--shape", "1,2,3", "--schedule", "x"], ["schedule is 'x'", "tlp"]),
        (["check", "grouped", "--shape", "1,2,3", "--schedule", "tlp", "--config", "ms=2"], ["config and schedule"]),
        (["select", "--shape", "1,2,3", "--layout", "XY"], ["layout is 'XY'", "NT"]),
        (["select", "--shape", "1,2,3", "--dtype", "f99"], ["dtype is 'f99'", "f32"]),
        (["select", "--shape", "1,2,3", "--compute", "f16"], ["compute is 'f16'"]),
        (["select", "--shape", "8,8,8", "--lda", "7"], ["lda is 7", "8"]),
        (["select"], ["--shape", "--suite"]),
        (["select", "spam", "--shape", "1,2,3"], ["operation is 'spam'", "gemm"]),
        (["select", "--suite", "spam"], ["suite is 'spam'", "isaac"]),
        (["select", "--shapes-file", "absent.jsonl"], ["absent.jsonl", "No such file"]),
        (["emit", "--shape", "64,64,64", "--config", "ms=3"], ["axis", "ms=3"]),
        (["emit", "--shape", "64,64,64", "--config", "spam=3"], ["spam", "axes"]),
        *(
            ([name, "--shape", "64,64,64", "--config", text], [f"config is {text!r}; it must set an axis"])
            for name, text in (("emit", ""), ("check", " "), ("bench", ""))
        ),
        (["select", "conv", "--shape", "N=1,C=1,H=5,W=5,K=1,R=1,S=1,pad=-1"], ["padding is -1", "from 0 to"]),
        (["select", "conv", "--shape", "N=1,C=-1,H=5,W=5,K=1,R=1,S=1"], ["c is -1", "from 0 to"]),
        (["model", "evaluate", "--device", "spam"], ["device is 'spam'", "h200"]),
        (["model", "evaluate", "--device", "t4"], ["device is 't4'", "measurements: h100, h200"]),
        (["model", "train", "--device", "t4"], ["device is 't4'", "measurements: h100, h200"]),
        (["check", "--shape", "64,64,64", "--config", "ml=256 nl=256 ms=2 ns=2 u=8"], ["threads", "1024"]),
        (["bench", "--shape", "64,64,64", "--baseline", "spam"], ["baseline is 'spam'", "cublas"]),
        (["db", "import", "absent"], ["absent"]),
        (["select", "--shape", f"{'9' * 5000},1,1"], ["shape is '999", "0 to 2147483647"]),
        (["select", "--shape", "1,1,1", "--lda", "9" * 5000], ["'--lda'"]),
        (["select", "--shape", "2147483648,1,1"], ["m is 2147483648", "2147483647"]),
        (["select", "--shape", "2147483647,2147483647,1"], ["c spans", "140737488355328"]),
        (["emit", "--shape", "100000,100000,100000", "--batch", "2147483647"], ["a spans", "140737488355328"]),
        (["select", "--shape", "\u0663,5,5"], ["shape is"]),
        (["select", "conv", "--shape", f"N=1,C=1,H=5,W=5,K=1,R=1,S=1,pad={2**31 - 1}"], ["padding is", "2147483647"]),
        (["select", "conv", "--shape", "N=1,C=1,H=5,W=5,K=1,R=1,S=1,pad=600000000"], ["results have", "bytes"]),
        (["select", "conv", "--shape", f"N={'9' * 5000},C=1,H=5,W=5,K=1,R=1,S=1"], ["shape has 'N=999"]),
    ],
)
def test_invalid_input_is_one_line_with_argument_and_rule(run: Run, words: list[str], message: list[str]) -> None:
    check_error(run(*words, *(() if words[0] in ("db", "check", "bench", "model") else H200)), 2, *message)


@pytest.mark.parametrize(
    ("operation", "line", "message"),
    [
        ("gemm", b"[" * 100_000, "is nested too deeply"),
        ("gemm", b'{"m": 1, "n": 2, "k": 3, "name": "\xff"}', "the line is not UTF-8: byte 0xff, column 35"),
        ("gemm", b'{"m": ' + b"9" * 5000 + b', "n": 2, "k": 3}', "has an integer of too many digits"),
        ("gemm", b'{"m": 1e999, "n": 2, "k": 3}', "m is inf; it must be an integer"),
        (
            "gemm",
            b'{"m": 1, "n": 2, "k": 3, "name": "\\ud800"}',
            "name is '\\ud800'; it must be text of printable characters",
        ),
        (
            "gemm",
            b'{"m": 1, "n": 2, "k": 3, "name": "a\\u001b[31mb"}',
            "name is 'a\\x1b[31mb'; it must be text of printable characters",
        ),
        ("gemm", b'{"m": 1, "n": 2, "k": 3, "operation": ["gemm"]}', "operation is ['gemm']"),
        ("gemm", b'{"m": 1, "n": 2, "k": 3, "deterministic": null}', "deterministic is None; it must be True or False"),
        ("gemm", b'{"m": 1, "n": 2, "k": 3, "epilogue": null}', "epilogue is None; it must be a string"),
        ("conv", b'"stride": "ab"', "stride is 'ab'; it must be an integer"),
        ("conv", b'"stride": [null, 1]', "stride is [None, 1]; it must be an integer"),
        ("conv", b'"padding": 1.5', "padding is 1.5; it must be an integer"),
        ("conv", b'"dilation": [1.5, true]', "dilation is [1.5, True]; it must be an integer"),
    ],
)
def test_invalid_lines_of_a_shapes_file_are_named(
    run: Run, tmp_path: Path, operation: str, line: bytes, message: str
) -> None:
    if operation == "conv":
        line = b'{"n": 1, "c": 1, "h": 3, "w": 3, "k": 1, "r": 1, "s": 1, ' + line + b"}"
    file = tmp_path / "shapes.jsonl"
    file.write_bytes(b"\n" + line + b"\n")
    check_error(run("select", operation, "--shapes-file", file, *H200), 2, f"{file}, line 2: ", message)


def test_database_of_the_variable_that_does_not_exist_is_a_warning(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tunning.sqlite"))
    done = run("select", "--shape", "5,5,5", *H200)
    assert done.code == 0
    assert done.err == (
        f"warning: PTXGEN_DATABASE is '{tmp_path}/tunning.sqlite', which does not exist: only shipped winners and models"
        " select; tune creates it\n"
    )
    check_error(run("select", "--shape", "5,5,5", "--database", tmp_path / "tunning.sqlite"), 4, "tunning.sqlite")


def test_select_of_an_empty_problem_says_that_nothing_is_launched(run: Run) -> None:
    shapes = [word for shape in ("0,8,8", "8,8,0") for word in ("--shape", shape)]
    done = run("select", *shapes, *H200)
    assert [line for line in done.out.splitlines() if "no element" in line] == [
        "gemm 0,8,8 NN f32: C has no element: no kernel is launched"
    ]
    empty, other = run("select", *shapes, "--json", *H200).document["rows"]
    assert empty["us"] is None
    assert other["us"] > 0


@pytest.mark.parametrize("name", ["PTXGEN_CACHE", "PTXGEN_DATABASE", "PTXGEN_PTXAS"])
def test_variable_with_an_unknown_user_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "~nosuchuser/x")
    for words in (["check", "--shape", "5,5,5"], ["doctor"], ["db", "info"]):
        check_error(run(*words), 2, f"{name} is '~nosuchuser/x'; it must be a path")


def test_out_of_memory_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise MemoryError("Unable to allocate 37.3 GiB")

    monkeypatch.setattr("ptxgen.runtime.check.check", fail)
    check_error(run("check", "--shape", "5,5,5", "--config", CONFIG), 1, "out of memory: Unable to allocate 37.3 GiB")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_output_of_any_encoding(encoding: str, tmp_path: Path) -> None:
    """Characters that it cannot encode are escaped, among them bytes of a file name that are not UTF-8."""
    import os

    words = [sys.executable, "-m", "ptxgen", "select", "--shape", "5,5,5", *H200]
    output = subprocess.run(
        words, capture_output=True, check=True, timeout=300, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert ("µs" if encoding == "utf-8" else "\\xb5s") in output.stdout.decode()
    words = [sys.executable, "-m", "ptxgen", "emulate", b"\xff.ptx", "--json"]
    output = subprocess.run(
        words, capture_output=True, check=False, timeout=300, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert output.returncode == 2
    assert json.loads(output.stdout)["error"]["message"] == "\udcff.ptx: No such file or directory"


# ---- Ctrl-C


def interrupted(done: Done, *message: str) -> None:
    check_error(done, 130, "error: interrupted", *message)


def test_interrupted_tune_reports_what_is_stored(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: tuple[Path, Gemm, Config]
) -> None:
    import ptxgen.tuning.search.tuner

    def tune(problems: Any, driver: str, database: Database, *rest: Any, **options: Any) -> None:
        for us in (1.0, 2.0):
            database.add(winner(stored[1], stored[2], us=us))
        raise KeyboardInterrupt

    monkeypatch.setattr(ptxgen.tuning.search.tuner, "tune", tune)
    output = (
        f"2 measurements of this run and winners of 0 of 1 problems are stored in {tmp_path}/tuning.sqlite;"
        " to continue: python -m ptxgen tune --shape 5,5,5"
    )
    for _ in range(2):
        done = run("tune", "--shape", "5,5,5")
        assert (done.code, done.out) == (130, "")
        assert done.err.splitlines()[-1] == f"error: interrupted; {output}"
    document = run("tune", "--shape", "5,5,5", "--json").document
    assert document == {"error": {"kind": "Interrupted", "message": f"interrupted; {output} --json"}}


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("name", "code", "how"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "ended by SIGTERM")]
)
def test_a_signal_ends_tune_after_the_measurement_in_progress(
    run: Run, tmp_path: Path, name: str, code: int, how: str
) -> None:
    """A real process on the emulated device; its measurements and winners are stored."""
    words = ["tune", "--shape", "40,40,40", "--shape", "48,40,40", "--samples", "0"]
    child = subprocess.Popen([sys.executable, "-m", "ptxgen", *words], stderr=subprocess.PIPE, text=True)
    path = tmp_path / "tuning.sqlite"

    def count() -> int:
        with contextlib.suppress(DatabaseError), Database(path, readonly=True) as database:
            return len(list(database.measurements()))
        return 0

    try:
        until = time.monotonic() + 240
        while count() < 4 and time.monotonic() < until:
            time.sleep(0.1)
        child.send_signal(getattr(signal, name))
        _, err = child.communicate(timeout=240)
    finally:
        child.kill()
    assert child.returncode == code, err
    stored = count()
    assert f"{name}: the run ends after this measurement" in err
    expected = f"error: {how}; {stored} measurements of this run and winners of 2 of 2 problems are stored in {path}"
    assert err.splitlines()[-1] == f"{expected}; to continue: python -m ptxgen {' '.join(words)}"
    with Database(path, readonly=True) as database:
        assert all(m.outcome == "ok" for m in database.measurements())
    [row, _] = run("select", *words[1:5], "--json").document["rows"]
    assert row["origin"] == "winner"


def test_tune_has_a_time_limit_and_weights(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ptxgen.tuning.search.tuner

    seen: dict[str, Any] = {}

    def fake(tasks: list[Gemm], driver: str, database: Any, budget: Any, *rest: Any, **options: Any) -> list[Any]:
        seen.update(tasks=tasks, budget=budget, **options)
        return [ptxgen.tuning.search.tuner.Tuned(p) for p in tasks]

    monkeypatch.setattr(ptxgen.tuning.search.tuner, "tune", fake)
    lines = [{"m": 8 * n, "n": 8, "k": 8, "count": n} for n in range(1, 9)]
    shapes = tmp_path / "shapes.jsonl"
    shapes.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    words = ("tune", "--shapes-file", shapes, "--shape", "8,8,8")
    assert run(*words, "--time-limit", 0).code == 0  # no problem was reached
    assert seen["budget"].seconds == seen["deadline"].seconds == 0
    assert seen["weights"] == {Gemm(8 * n, 8, 8): n + (n == 1) for n in range(1, 9)}
    whole = set(seen["tasks"])
    parts = []
    for i in (1, 2, 3):
        run(*words, "--shard", f"{i}/3")
        parts.append(set(seen["tasks"]))
    assert set.union(*parts) == whole
    assert sum(map(len, parts)) == len(whole)
    done = run(*words, "--shard", "4/3")
    assert done.code == 2
    assert "shard is '4/3'" in done.err


@pytest.mark.parametrize("name", ["winners.txt", "measurements.jsonl.xz", "results.jsonl", "results.parquet"])
def test_an_import_of_a_damaged_file_makes_no_database(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / name).write_bytes(b"damaged")
    new = tmp_path / "new.sqlite"
    check_error(run("db", "import", tmp_path / "source", "--database", new), 4, name)
    check_error(run("db", "merge", tmp_path / "source" / name, "--database", new), 4, name)
    assert not list(tmp_path.glob("new.sqlite*"))


def test_a_recheck_makes_no_database(run: Run, tmp_path: Path) -> None:
    check_error(run("db", "recheck", "--database", tmp_path / "new.sqlite"), 4, "new.sqlite does not exist")
    assert not (tmp_path / "new.sqlite").exists()


def test_merge_reads_every_database_before_it_stores_rows(
    run: Run, tmp_path: Path, stored: tuple[Path, Gemm, Config]
) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"this is no database" * 20)
    new = tmp_path / "new.sqlite"
    check_error(run("db", "merge", stored[0], bad, "--database", new), 4, "bad.sqlite")
    assert not new.exists()
    assert run("db", "merge", stored[0], "--database", new, "--json").document["winners"] == 1
    assert not list(tmp_path.glob("new.sqlite?*"))


def test_merge_adds_the_rows_of_other_databases(run: Run, tmp_path: Path, stored: tuple[Path, Gemm, Config]) -> None:
    other = tmp_path / "other.sqlite"
    with Database(other) as database:
        database.set_winner(winner(stored[1], stored[2], us=3.0))
        database.add(winner(Gemm(7, 7, 7), stored[2], us=1.0))
    done = run("db", "merge", other, other, "--json")
    assert done.code == 0, done.err
    assert done.document["measurements"] == 2
    assert done.document["already_present"] == 2
    with Database(tmp_path / "tuning.sqlite") as database:
        assert {m.problem for m in database.measurements()} >= {stored[1], Gemm(7, 7, 7)}
    assert run("db", "merge", tmp_path / "absent.sqlite").code == 4


@pytest.mark.parametrize(
    ("words", "place"),
    [
        *(([name, "--shape", "5,5,5"], "ptxgen.cli.options.Target.find_driver") for name in ("tune", "check", "bench")),
        *(
            ([name, "--shape", "5,5,5"], "ptxgen.cli.options.Target.find_device")
            for name in ("select", "explain", "emit", "sampler")
        ),
        (["collect", "--problems", "1"], "ptxgen.tuning.collect.collect.DevicePool.__init__"),
        (["paper", "table4"], "ptxgen.cli.options.Target.find_driver"),
        (["emulate", "kernel.ptx"], "pathlib.Path.read_text"),
        (["doctor"], "ptxgen.cli.doctor.examine"),
        (["db", "info"], "ptxgen.tuning.store.database.Database.info"),
        (["db", "export", "out"], "ptxgen.tuning.store.tuning_files.export_text"),
        (["db", "import", "."], "ptxgen.tuning.store.tuning_files.import_text"),
    ],
)
def test_every_command_can_be_interrupted(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], place: str
) -> None:
    with Database(tmp_path / "tuning.sqlite"):
        pass

    def interrupt(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    interrupted(run(*words))
    done = run(*words, "--json")
    assert done.code == 130
    assert done.document["error"]["kind"] == "Interrupted"
    assert done.document["error"]["message"].startswith("interrupted")


@pytest.mark.usefixtures("run")
def test_signal_interrupts_a_command() -> None:
    code = (
        "import os, signal, sys, ptxgen.tuning.selection\n"
        "ptxgen.tuning.selection.select = lambda *a, **b: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv[1:] = ['select', '--shape', '5,5,5', '--device', 'h200', '--json']\n"
        "from ptxgen.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "error: interrupted")
    assert json.loads(done.stdout) == {"error": {"kind": "Interrupted", "message": "interrupted"}}


def test_problem_without_a_kernel_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxgen.tuning.selection.select", lambda *a, **b: [])
    for name in ("select", "emit"):
        check_error(
            run(name, "--shape", "1,2,3", *H200), 2, "gemm 1,2,3 NN f32", "no kernel supports this problem", "h200"
        )


def test_exit_codes_of_unknown_and_absent_devices(run: Run) -> None:
    check_error(run("select", "--shape", "1,2,3", "--device", "spam"), 2, "device is 'spam'", "h200")
    check_error(run("check", "--shape", "1,2,3", *H200), 3, "h200", "emulated")


def test_database_errors_have_their_own_exit_code(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"this is no database" * 20)
    for words in (["db", "info"], ["select", "--shape", "1,2,3", *H200], ["db", "import", tmp_path]):
        check_error(run(*words, "--database", bad), 4, "bad.sqlite")
    assert bad.read_bytes() == b"this is no database" * 20
    check_error(run("db", "info", "--database", tmp_path / "none.sqlite"), 4, "none.sqlite")


def test_a_damaged_default_database_is_a_warning_unless_the_command_needs_it(run: Run, tmp_path: Path) -> None:
    chosen = run("select", "--shape", "64,64,64", *H200).out
    bad = tmp_path / "tuning.sqlite"
    bad.write_bytes(b"this is no database" * 20)
    done = run("select", "--shape", "64,64,64", *H200)
    assert (done.code, done.out) == (0, chosen)
    assert re.fullmatch(r"warning: .*tuning\.sqlite is not an SQLite database.*\n", done.err)
    for words in (["db", "info"], ["tune", "--shape", "8,8,8"], ["db", "merge", bad]):
        check_error(run(*words), 4, "tuning.sqlite")
    assert bad.read_bytes() == b"this is no database" * 20


def test_errors_are_json_documents_too(run: Run) -> None:
    done = run("emit", "--shape", "64,64,64", "--config", "ms=3", "--json", *H200)
    assert done.code == 2
    assert done.document["error"]["kind"] == "ConfigError"
    assert "ms=3" in done.document["error"]["message"]
    assert done.err.startswith("error: ")


def test_template_error_is_one_line_without_debug(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fail(*arguments: object) -> None:
        raise RenderError("kernel/multistage.mako failed: a name\nTraceback of the template\n  line 7")

    monkeypatch.setattr("ptxgen.codegen.render.render", fail)
    words = ["emit", "--shape", "64,64,64", "--config", CONFIG, *H200]
    check_error(run(*words), 1, "a name")
    with pytest.raises(RenderError, match="line 7"):
        app([*words, "--debug"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("x"), 2),
        (ConfigError("x"), 2),
        (UnavailableError("x"), 3),
        (SchemaError("x"), 4),
        (CorruptError("x"), 4),
        (RenderError("x"), 1),
        (Fault("x"), 1),
        (FileNotFoundError(2, "x"), 2),
    ],
)
def test_each_error_class_has_its_exit_code(error: Exception, code: int) -> None:
    assert next(c for error_class, c in command.EXIT_CODES if isinstance(error, error_class)) == code


def test_internal_errors_are_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxgen.tuning.selection.select", lambda *a, **b: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        app(["select", "--shape", "1,2,3", *H200])


# ---- doctor


def test_doctor_lists_what_is_installed(run: Run) -> None:
    done = run("doctor", "--json")
    findings = {f["name"]: f for f in done.document["findings"]}
    assert done.code == 0
    assert findings["numpy"]["state"] == findings["Python"]["state"] == "ok"
    assert "PTXGEN_DRIVER=emulated" in findings["environment"]["found"]
    assert findings["database"]["state"] == findings["cache"]["state"] == "ok"
    assert "a model of h200 and h100" in findings["shipped tuning data"]["found"]
    assert all(f["remedy"] or f["state"] != "missing" for f in findings.values())


def test_doctor_says_why_nothing_is_cached(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "file"))
    finding = {f["name"]: f for f in run("doctor", "--json").document["findings"]}["cache"]
    assert finding["state"] == "optional"
    assert f"{tmp_path}/file: nothing is cached: " in finding["found"]


def test_doctor_lists_missing_packages_and_how_to_install_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    real = metadata.version

    def version(name: str) -> str:
        if name in ("mako", "cuda-bindings", "pycuda"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(doctor, "_gpu_name", lambda: "")
    done = run("doctor")
    assert done.code == 3
    assert "pip install mako" in " ".join(done.out.split())
    assert "MISSING" in done.out
    assert 'pip install "ptxgen[cuda]"' in " ".join(done.out.split())  # a long path of the interpreter wraps
    monkeypatch.setattr(doctor, "_gpu_name", lambda: "NVIDIA H200, 580.1")
    states = {f["name"]: f["state"] for f in run("doctor", "--json").document["findings"]}
    assert (states["cuda-bindings"], states["pycuda"], states["mako"]) == ("missing", "optional", "missing")


def test_doctor_says_how_pycuda_is_built(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional unless PTXGEN_DRIVER names it; then the GPU is missing too."""
    real = doctor.metadata.version

    def version(name: str) -> str:
        if name == "pycuda":
            raise doctor.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setitem(sys.modules, "pycuda", None)
    for driver, state in (("emulated", "optional"), ("pycuda", "missing"), ("pycuda:1", "missing")):
        monkeypatch.setenv("PTXGEN_DRIVER", driver)
        findings = {f["name"]: f for f in run("doctor", "--json").document["findings"]}
        assert findings["pycuda"]["state"] == findings["GPU"]["state"] == state
        assert "-m ptxgen build-pycuda" in findings["pycuda"]["remedy"]


def test_doctor_works_with_a_damaged_database(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"x" * 200)
    done = run("doctor", "--database", bad, "--json")
    [findings] = [f for f in done.document["findings"] if f["name"] == "database"]
    assert (done.code, findings["state"]) == (3, "missing")


def test_an_export_does_not_tell_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (["--folder", "a b"], ["--folder=a"], []):
        monkeypatch.setattr(command, "_arguments", ["export", *folder, "--shape", "8,8,8"])
        assert command.command_line(without="--folder") == "python -m ptxgen export --shape 8,8,8"
    monkeypatch.setattr(command, "_arguments", ["export", "--folder", "a b"])
    assert command.command_line() == "python -m ptxgen export --folder 'a b'"


def test_text_and_defaults_need_no_conversion() -> None:
    sampler = command.parser.__wrapped__("sampler").commands["sampler"]  # no other test has used this one

    def plain() -> set[str]:
        return {p.name for p in sampler.params if isinstance(getattr(p, "_runtime_param", None), PlainValue)}

    arguments = ["gemm", "--device", "h200", "--shape", "8,8,8"]
    assert "lda" not in sampler.make_context("sampler", [*arguments]).params  # no operation has been imported for it
    given = sampler.make_context("sampler", [*arguments, "--ldb", "9"]).params
    assert (given["operation"], given["device"], given["shape"], given["lda"]) == ("gemm", "h200", ["8,8,8"], None)
    assert {"operation", "device", "shape", "draws", "lda"} <= plain()
    assert sampler.make_context("sampler", ["--draws", "5"]).params["draws"] == 5
    assert "draws" not in plain()
