"""Exported libraries make the launches that Python makes, with a driver that records calls. Compiled with sanitizers."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ptxgen.cli.command import run as run_command
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import InputError
from ptxgen.export import files, manifest
from ptxgen.export.c_source import form
from ptxgen.export.files import write
from ptxgen.export.library import Library, key_of
from ptxgen.export.operations import CLASS_FIELDS, in_c
from ptxgen.export.operations import words as c_words
from ptxgen.operations.conv.problem import FILTERS, Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import device
from ptxgen.problem.reference import reference
from ptxgen.problem.registry import Problem
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.choice.models import model_for
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.selection import Selection, require
from tests import exports
from tests.architecture.source import ROOT

needs_compiler = pytest.mark.skipif(exports.compiler() is None, reason="there is no gcc")
H200 = device("h200")
SHAPES = 40  #: random shapes of each class

#: with a configuration where the choice would not have the property that its name says
PROBLEMS: dict[str, tuple[Problem, str]] = {
    "wgmma": (Gemm(512, 512, 512, dtype="f16"), ""),
    "few_rows": (Gemm(64, 2560, 2560, dtype="f16"), ""),
    "split_bf16x3": (Gemm(256, 128, 320, compute="f32_bf16x6"), ""),
    "epilogue": (Gemm(256, 384, 128, "NT", "f16", epilogue="bias_column,residual,relu"), ""),
    "relu_grad": (Gemm(256, 384, 128, "NT", "f16", epilogue="residual,relu_grad"), ""),
    "batch": (Gemm(64, 64, 64, "TN", "f16", batch=7), ""),
    "unaligned": (Gemm(63, 65, 67, "TT", aligned_a=4, ldb=70), ""),
    "integers": (Gemm(64, 128, 256, "NT", "s8"), ""),
    "im2col": (Conv(4, 64, 14, 14, 64, 3, 3, padding=1, layout="NHWC", dtype="f16", epilogue="bias,relu"), ""),
    "row_taps": (
        Conv(3, 64, 14, 12, 64, 3, 3, padding=1, layout="NHWC", dtype="bf16"),
        "family=wgmma ml=64 nl=64 u=64 stages=3 row_taps=3",
    ),
    "tables": (Conv(2, 3, 20, 22, 5, 3, 3, stride=2), "family=simt"),
    "phases": (Conv(2, 8, 9, 9, 8, 3, 3, stride=2, direction="input_grad"), ""),
    "dependent": (Gemm(128, 128, 128), "family=simt pdl=on_exit"),
    "skinny": (Gemm(4, 5000, 5000), ""),
    "less_aligned": (Gemm(4, 5000, 5000, "NT", "f16", aligned_a=2, aligned_b=2), ""),  # than the operands of the call
    "sparse": (Spmm(64, 32, 48, dtype="f16", pattern="bernoulli:density=0.1"), "family=row_split vec_b=8"),
    "sparse_by_columns": (
        Spmm(65, 3, 48, "NT", "f64", pattern="banded:width=3", layout_c="T", index="i64", ldb=50),
        "family=row_split row_lanes=4",
    ),
    "packed": (
        Gemm(369, 956, 861, "NN", epilogue="bias_column"),
        "family=simt ms=8 ns=8 ml=64 nl=64 u=16 stages=3 vec_a=4 vec_b=4 operand_path_a=pack operand_path_b=pack",
    ),
    "packed_within_launch": (
        Gemm(368, 956, 64, "NT"),
        "family=simt ms=8 ns=8 ml=64 nl=64 u=16 stages=3 vec_a=4 vec_b=4 vec_c=4 pdl=within_launch operand_path_a=pack"
        " operand_path_b=pack",
    ),
    "zeroed": (Gemm(128, 128, 256), "family=simt kg=2 splitk=flag_red"),
    "stream": (
        Gemm(328, 136, 2048, "NT", "bf16"),
        "family=wgmma ml=64 nl=64 u=64 stages=3 persistent=1 stream_waves=2 cluster_x=2",
    ),
    "stream_threads": (Gemm(328, 136, 2048, "NT", "f64"), "family=mma ms=16 ns=32 ml=32 nl=32 u=16 stream_k=1"),
}


def choose(problem: Problem) -> Selection:
    text = next((config for known, config in PROBLEMS.values() if known == problem), "")
    return Selection(problem, parse_config(text), "given") if text else require(problem, H200)[0]


@pytest.fixture(scope="module")
def library() -> Library:
    return Library.of([problem for problem, _ in PROBLEMS.values()], H200, choose, model_for(H200), form)


@pytest.fixture(scope="module")
def folder(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    write(library, folder, version="1", command="export --folder '/*/*/'")
    return folder


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    return exports.build(folder)


@needs_compiler
def test_launches_are_those_of_python(library: Library, program: Path) -> None:
    created, calls = exports.run(program, [exports.request(p.problem) for p in library.problems])
    assert created["create"] == 0
    assert created["bytes"] == library.tables.size > 0
    for p, call in zip(library.problems, calls, strict=True):
        entries = p.module.source.pdl_entries
        made = exports.expected(library, p.launch, entries, swapped=p.swapped, tables=created["upload"])
        assert call == exports.Call(0, 0, max(p.launch.workspace, p.empty.launch.workspace), made), p.problem.key()
    made_dependent = {line["dependent"] for call in calls for line in call.driver if "launch" in line}
    assert made_dependent == {0, 1}
    assert any(p.swapped for p in library.problems)


@needs_compiler
def test_other_shapes_get_the_choice_of_python(library: Library, program: Path) -> None:
    """The choice among the exported kernels is the model's, and every launch is Python's."""
    classes = {key_of(kernel.problem)[: len(CLASS_FIELDS)]: kernel.problem for kernel in library.kernels}
    problems = [p for seed, known in enumerate(classes.values()) for p in exports.random_shapes(known, SHAPES, seed)]
    requests = [exports.request(p, **exports.addresses(p)) for p in problems]
    _, calls = exports.run(program, requests)
    served = set()
    for problem, call in zip(problems, calls, strict=True):
        choice = exports.chosen(library, problem)
        if choice is None:
            assert (call.status, call.driver) == (2, []), problem.key()
            continue
        kernel, launch = choice
        served.add(kernel.number)
        entries = kernel.module.source.pdl_entries
        made = exports.expected(library, launch, entries, **exports.addresses(problem))
        size = max(launch.workspace, exports.empty_sum(library, kernel, problem)[0].workspace)
        assert call == exports.Call(0, 0, size, made), f"{problem.key()}: {kernel.general.config}"
    assert served == {kernel.number for kernel in library.kernels}


@needs_compiler
def test_alpha_zero_launches_sums_without_terms(library: Library, program: Path) -> None:
    """With the exported problems and of other shapes. A query of the workspace returns the size that serves all alphas,
    as a caller may not have set alpha yet."""
    kernels = {key_of(kernel.problem)[: len(CLASS_FIELDS)]: kernel.problem for kernel in library.kernels}
    others = [p for seed, known in enumerate(kernels.values()) for p in exports.random_shapes(known, 6, seed)]
    lines = [exports.request(p.problem, alpha=alpha) for p in library.problems for alpha in (0.0, -0.0, 2.0)]
    lines += [exports.request(p, alpha=0.0, **exports.addresses(p)) for p in others]
    _, calls = exports.run(program, lines)
    for n, p in enumerate(library.problems):
        made = exports.expected(library, p.empty.launch, p.empty.module.source.pdl_entries, alpha=0)
        zero, negative, two = calls[3 * n : 3 * n + 3]
        assert (zero.status, zero.driver) == (0, made), p.problem.key()
        assert zero.bytes == negative.bytes == two.bytes
        assert len(negative.driver) == len(made)
    served = 0
    for problem, call in zip(others, calls[3 * len(library.problems) :], strict=True):
        choice = exports.chosen(library, problem)
        if choice is not None:
            launch, entries = exports.empty_sum(library, choice[0], problem)
            made = exports.expected(library, launch, entries, alpha=0, **exports.addresses(problem))
            assert (call.status, call.driver) == (0, made), problem.key()
            served += 1
    assert served > len(library.kernels)


@pytest.mark.each_value
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_sums_without_terms_are_convolutions_with_alpha_zero(layout: str, direction: str) -> None:
    """C and the operands of the epilogue are where those of the convolution are."""
    epilogue = "" if direction == "weight_grad" else "bias,residual,relu"
    for extents in ((3, 4, 5, 6, 8, 3, 2), (3, 4, 3, 2, 8, 3, 2), (1, 1, 5, 5, 1, 1, 1)):
        p = Conv(*extents, layout=layout, filters=FILTERS[layout], direction=direction, epilogue=epilogue)
        empty = in_c("conv").form.without_sum(p)
        rng = np.random.default_rng(0)
        a, b, c = (rng.integers(-3, 4, shape).astype(np.float32) for shape in p.stored)
        more = {n: rng.integers(-3, 4, s).astype(np.float32) for n, (s, _) in p.broadcast_shapes.items()}
        wanted = reference(p, {"A": a, "B": b, "C": c, **more}, 0.0, 2.0).exact
        on = EmulatedDriver(device("emulated"))
        runner = Runner.of(on, empty, require(empty, on.device)[0].config)
        nothing = np.empty(0, np.float32)
        got = runner.compute({"A": nothing, "B": nothing, "C": c.reshape(empty.stored[2]), **more}, 0.0, 2.0)["C"]
        assert np.array_equal(got.reshape(c.shape), wanted)


@needs_compiler
def test_equivalent_fields_find_the_problem(library: Library, program: Path) -> None:
    packed = Gemm(512, 512, 512, dtype="f16")
    line = exports.request(packed)
    assert line.count(" 512 512 512 512 512 512 1 -1 -1 -1 ") == 1
    other = line.replace(" 512 512 512 512 512 512 1 -1 -1 -1 ", " 512 512 512 0 0 0 0 7 8 9 ")
    _, (first, second) = exports.run(program, [line, other])
    assert first.status == 0
    assert first == second


@needs_compiler
def test_layouts_of_filters_with_the_same_memory_find_the_problem(tmp_path: Path) -> None:
    """The fields of a problem have one of them; a C program may have named another one when it was exported."""
    problems = [
        Conv(2, 8, 5, 5, 16, 1, 1, layout="NHWC", filters="KCRS"),
        Conv(2, 1, 6, 6, 4, 3, 3, filters="KRSC"),
        Conv(2, 8, 6, 6, 1, 3, 3, filters="CRSK"),
        Conv(2, 6, 6, 6, 6, 3, 3, groups=6, layout="CHWN"),
        Conv(2, 1, 6, 6, 1, 1, 1, filters="CRSK"),
    ]
    library = Library.of(problems, H200, lambda p: require(p, H200)[0], Model.analytic(H200), form)
    write(library, tmp_path, version="1", command="export")
    at = [f.name for f in in_c("conv").fields].index("filters")
    lines, same = [], []
    for p in problems:
        for name in (*FILTERS.values(), "NN"):
            words = exports.request(p).split()
            words[2 + at] = str(c_words().index(name))
            lines.append(" ".join(words))
            same.append(name != "NN" and replace(p, filters=name) == p)
    _, calls = exports.run(exports.build(tmp_path), lines)
    assert [call.status for call in calls] == [0 if equal else 2 for equal in same]
    assert len(problems) < sum(same) < len(same) - len(problems)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "options", "status"),
    [
        ("wgmma", {"A": exports.ADDRESSES["A"] + 8}, 2),  # not aligned as the kernel needs
        ("split_bf16x3", {"workspace": 1000}, 3),
        ("split_bf16x3", {"W": 0}, 3),
        ("split_bf16x3", {"W": exports.ADDRESSES["W"] + 128}, 1),
    ],
)
def test_bad_operands_are_errors(name: str, options: dict[str, int], status: int, program: Path) -> None:
    problem = PROBLEMS[name][0]
    _, [call] = exports.run(program, [exports.request(problem, **options)])
    assert (call.status, call.driver) == (status, [])


@needs_compiler
def test_other_problems_are_errors(program: Path) -> None:
    problem = PROBLEMS["batch"][0]
    lines = [
        exports.request(replace(problem, batch=8)),
        exports.request(replace(problem, layout="NN")),
        exports.request(Conv(4, 64, 14, 14, 64, 3, 3, padding=1, dtype="f16")),
        exports.request(problem).replace(" 64 64 64 ", " 64 -1 64 ", 1),
        exports.request(problem).replace(" 64 64 64 ", f" 64 {1 << 40} {1 << 40} ", 1),
        exports.request(PROBLEMS["integers"][0]).replace(" 2.0 3.0", " 2.5 3.0"),
        exports.request(PROBLEMS["wgmma"][0]).replace(" 2.0 3.0", " 1e39 3.0"),
    ]
    _, calls = exports.run(program, lines)
    assert [(c.status, c.driver) for c in calls] == [(s, []) for s in (2, 2, 2, 1, 1, 1, 1)]


@needs_compiler
def test_zero_workspace_is_not_cleared(library: Library, program: Path) -> None:
    p = next(p for p in library.problems if p.problem == PROBLEMS["zeroed"][0])
    _, (cleared, kept) = exports.run(program, [exports.request(p.problem), exports.request(p.problem, zero=True)])
    assert cleared.driver[0].keys() == {"memset", "byte", "bytes", "stream"}
    assert cleared.driver[1:] == kept.driver


@needs_compiler
@pytest.mark.parametrize(
    ("environment", "status"),
    [
        ({"STUB_CUDA_SMS": "131"}, 6),
        ({"STUB_CUDA_FAIL": "cuCtxGetDevice"}, 8),
        ({"STUB_CUDA_FAIL": "cuMemAlloc_v2"}, 8),
        ({"LD_LIBRARY_PATH": "/nowhere"}, 4),
    ],
)
def test_errors_of_create(environment: dict[str, str], status: int, program: Path) -> None:
    created, _ = exports.run(program, [], **environment)
    assert created["create"] == status
    assert created["result"] == (2 if status == 8 else 0)


@needs_compiler
@pytest.mark.parametrize("failing", ["cuLaunchKernelEx", "cuTensorMapEncodeTiled"])
def test_driver_error_of_a_call_is_returned(failing: str, program: Path) -> None:
    _, [call] = exports.run(program, [exports.request(PROBLEMS["wgmma"][0])], STUB_CUDA_FAIL=failing)
    assert call.status == 8


@needs_compiler
def test_missing_and_short_files_are_errors(folder: Path, program: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    tables = copied / "kernels" / "tables.bin"
    tables.write_bytes(tables.read_bytes()[:-1])
    assert exports.run(copied / program.name, [])[0]["create"] == 5
    next((copied / "kernels").glob("*.cubin")).unlink()
    created, _ = exports.run(copied / program.name, [])
    assert (created["create"], created["result"]) == (5, 0)


@needs_compiler
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no CMake")
def test_example_builds_with_cmake_and_runs(folder: Path, tmp_path: Path) -> None:
    exports.build_stub(tmp_path)
    quiet = {"cwd": tmp_path, "check": True, "capture_output": True}
    subprocess.run(["cmake", "-S", str(folder), "-B", "build", "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"], **quiet)  # type: ignore[call-overload]
    subprocess.run(["cmake", "--build", "build"], **quiet)  # type: ignore[call-overload]
    problem = PROBLEMS["wgmma"][0]
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(bytes(512 * 512 * 2))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    words = [tmp_path / "build" / "example", folder, "a", "b", "c"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert f"{problem.m * problem.n * 2} bytes of results" in done.stdout  # type: ignore[attr-defined]
    assert (tmp_path / "c").stat().st_size == 512 * 512 * 2
    subprocess.run(["cmake", "--install", "build", "--prefix", "installed"], **quiet)  # type: ignore[call-overload]
    source, prefix = ROOT / "examples" / "c_program", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}"
    subprocess.run(["cmake", "-S", str(source), "-B", "program", prefix, "-DCMAKE_C_FLAGS=-Wall -Werror"], **quiet)  # type: ignore[call-overload]
    subprocess.run(["cmake", "--build", "program"], **quiet)  # type: ignore[call-overload]
    subprocess.run(["cmake", "--install", "program", "--prefix", "installed"], **quiet)  # type: ignore[call-overload]
    words = [tmp_path / "installed" / "bin" / "c_program"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert "the bits 0x0000" in done.stdout.splitlines()[-1]  # type: ignore[attr-defined] the stub computes nothing
    assert '"launch"' in done.stdout  # type: ignore[attr-defined]


@needs_compiler
def test_examples_of_sparse_products_read_all_arrays(tmp_path: Path) -> None:
    p, _ = PROBLEMS["sparse"]
    write(Library.of([p], H200, choose, model_for(H200), form), tmp_path, version="1", command="")
    text = (tmp_path / "example.c").read_text()
    assert "example FOLDER A B INDPTR INDICES C" in text
    nnz = p.nnz if isinstance(p, Spmm) else 0
    assert f"bytes[ARRAYS] = {{{2 * nnz}, {2 * 48 * 32}, {2 * 64 * 32}, {4 * 65}, {4 * nnz}}}" in text
    subprocess.run([str(exports.compiler()), *exports.WARNINGS, "-c", "example.c"], cwd=tmp_path, check=True)


def test_manifest_describes_kernels_and_launches(library: Library, folder: Path) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    assert document["format"] == manifest.FORMAT
    assert document["device"]["name"] == "h200"
    for module in document["modules"]:
        assert hashlib.sha256((folder / module["file"]).read_bytes()).hexdigest() == module["sha256"]
    sizes = {"u32": "I", "u64": "Q", "f32": "f", "f64": "d", "s32": "i"}
    for p, row in zip(library.problems, document["problems"], strict=True):
        assert row["problem"] == p.problem.key()
        for step, launch in zip(p.launch.steps, row["launches"], strict=True):
            assert (launch["grid"], launch["block"]) == (list(step.grid), list(step.block))
            plain = [x for x in launch["parameters"] if x["type"] != "tensor_map"]
            packed = struct.calcsize("@" + "".join(sizes[x["type"]] for x in plain))
            names = dict.fromkeys([*exports.ADDRESSES, *exports.ARRAYS, "values", "alpha", "beta"], 0)
            step = step.with_table_addresses(library.tables.offsets.__getitem__)
            assert packed <= len(step.pack(names))
            assert len(launch["parameters"]) - len(plain) == len(step.maps)


@cache
def small(*names: str) -> Library:
    return Library.of([PROBLEMS[name][0] for name in names], H200, choose, model_for(H200), form)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_interrupted_export_leaves_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of an export do not meet the source of an earlier one; the next export removes those of both."""

    def fail(path: Path, content: bytes) -> None:
        if path.suffix == ".cubin":
            fails.append(path)
        if len(fails) > 1:
            raise OSError(28, "no space left")
        store(path, content)

    fails: list[Path] = []
    store = files._store
    write(small("tables"), tmp_path, version="1", command="first")
    assert (tmp_path / "ptxgen_kernels.c").exists()
    monkeypatch.setattr(files, "_store", fail)
    with pytest.raises(OSError, match="no space left"):
        write(small("skinny", "zeroed"), tmp_path, version="1", command="second")
    assert (tmp_path / "kernels" / "tables.bin").exists()
    assert not (tmp_path / "ptxgen_kernels.c").exists()
    assert not (tmp_path / "ptxgen_kernels.h").exists()
    monkeypatch.undo()
    write(small("zeroed"), tmp_path, version="1", command="third")
    write(small("zeroed"), tmp_path / "new", version="1", command="third")
    new = contents(tmp_path / "new")
    assert {name: text for name, text in contents(tmp_path).items() if not name.startswith("new/")} == new


def test_export_into_a_used_folder_leaves_no_file_of_the_earlier_one(tmp_path: Path) -> None:
    write(small("tables"), tmp_path, version="1", command="first", ptx=True)
    (tmp_path / "kernels" / "notes.cubin").write_text("mine")
    made = write(small("zeroed"), tmp_path, version="1", command="second")
    assert set(contents(tmp_path)) == {"kernels/notes.cubin", *(str(path.relative_to(tmp_path)) for path in made)}


@pytest.mark.parametrize("name", [*files.TEMPLATES, "manifest.json", "kernels/tables.bin", "kernels"])
@pytest.mark.parametrize("used", [False, True])
def test_export_never_replaces_a_file_of_others(tmp_path: Path, name: str, used: bool) -> None:
    if used:  # with a manifest that does not list the file
        (tmp_path / "manifest.json").write_text(manifest.incomplete("1", ()))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"mine": 1}')
    before = contents(tmp_path)
    with pytest.raises(InputError, match=rf"folder is .*{re.escape(name)} is (not of an earlier export|a file)"):
        write(small("tables"), tmp_path, version="1", command="export")
    assert contents(tmp_path) == before


def test_a_manifest_lists_no_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "victim.cubin").write_text("theirs")
    folder = tmp_path / "folder"
    listed = ["../victim.cubin", "kernels/../../victim.cubin", str(tmp_path / "victim.cubin"), "kernels/x.cubin\n"]
    folder.mkdir()
    (folder / "manifest.json").write_text(manifest.incomplete("1", listed))
    assert manifest.files_of(folder / "manifest.json") == {"manifest.json"}
    write(small("zeroed"), folder, version="1", command="export")
    assert (tmp_path / "victim.cubin").read_text() == "theirs"


@pytest.mark.parametrize("content", ["", "[1]", "[" * 100_000, '{"files": ["example.c"]}', '{"ptxgen": 1}'])
def test_other_manifests_list_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    assert manifest.files_of(tmp_path / "manifest.json") == set()


def test_command_refuses_a_used_folder_before_it_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Library, "of", None)
    (tmp_path / "CMakeLists.txt").write_text("mine")
    arguments = ["export", "gemm", "--shape", "64,64,64", "--device", "h200", "--folder", str(tmp_path)]
    assert run_command(arguments) == 2
    assert "its file CMakeLists.txt is not of an earlier export" in capsys.readouterr().err


@needs_compiler
def test_library_without_a_choice_is_small_and_computes_the_exported_problems(tmp_path: Path) -> None:
    problems = [PROBLEMS[name][0] for name in ("wgmma", "zeroed")]
    made = Library.of(problems, H200, choose, model_for(H200), form, chooses=False)
    write(made, tmp_path / "one", version="3.14.2", command="export")
    write(made, tmp_path / "two", version="3.14.2", command="export")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    source = (tmp_path / "one" / "ptxgen_kernels.c").read_text()
    assert source.count("\n") < 1000
    assert "#define PTXGEN_VERSION 31402\n" in (tmp_path / "one" / "ptxgen_kernels.h").read_text()
    requests = [exports.request(p) for p in (*problems, Gemm(512, 512, 520, dtype="f16"))]
    _, calls = exports.run(exports.build(tmp_path / "one"), requests)
    assert [call.status for call in calls] == [0, 0, 2]
    for p, call in zip(made.problems, calls, strict=False):
        assert call.driver == exports.expected(made, p.launch, p.module.source.pdl_entries)


@pytest.mark.parametrize(("version", "numbers"), [("1", (1, 0, 0)), ("0.12.3.dev4+abc", (0, 12, 3)), ("?", (0, 0, 0))])
def test_version_numbers(version: str, numbers: tuple[int, int, int]) -> None:
    assert files.version_numbers(version) == numbers


@needs_compiler
def test_choice_without_learnt_trees_is_the_fastest_by_the_performance_model(tmp_path: Path) -> None:
    """With two kernels for small and large products, each computes the shapes near its own."""
    small, large = Gemm(32, 32, 64, "TN"), Gemm(1024, 1024, 512, "TN")
    configs = {small: "ms=2 ns=2 ml=16 nl=16 u=8", large: "ms=8 ns=8 ml=128 nl=128 u=8"}
    library = Library.of(
        list(configs),
        H200,
        lambda p: Selection(p, parse_config(configs[p]), "given") if p in configs else require(p, H200)[0],
        Model.analytic(H200),
        form,
    )
    assert not any(kernel.general.learnt for kernel in library.kernels)
    write(library, tmp_path, version="1", command="export")
    problems = [*exports.random_shapes(small, 20, 1), Gemm(33, 32, 72, "TN"), Gemm(1030, 1024, 520, "TN")]
    _, calls = exports.run(exports.build(tmp_path), [exports.request(p, **exports.addresses(p)) for p in problems])
    served = []
    for problem, call in zip(problems, calls, strict=True):
        choice = exports.chosen(library, problem)
        assert choice is not None
        served.append(choice[0].number)
        made = exports.expected(library, choice[1], choice[0].module.source.pdl_entries, **exports.addresses(problem))
        assert call == exports.Call(0, 0, choice[1].workspace, made), problem.key()
    assert set(served) == {kernel.number for kernel in library.kernels}


def test_command_writes_the_library(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["export", "gemm", "--shape", "64,64,64", "--device", "h200", "--json"]
    folder = str(tmp_path / "made")
    assert run_command([*arguments, "--folder", folder, "--ptx"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["device"], document["problems"], document["folder"]) == ("h200", 1, folder)
    assert {"ptxgen_kernels.c", "ptxgen_kernels.h"} <= {path.name for path in Path(folder).iterdir()}
    assert list(Path(folder).glob("kernels/*.ptx"))
    assert run_command(["export", "gemm", "--shape", "64,64,64", "--device", "h200", "--out", "build"]) == 2
    assert "--folder build names the output folder" in capsys.readouterr().err


def test_problems_without_a_c_function_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    deep = Conv(1, 4, 8, 8, 4, 3, 3, d=4, t=3)
    with pytest.raises(InputError, match="three dimensions"):
        Library.of([deep], H200, choose, model_for(H200), form)
    with pytest.raises(InputError, match="calls is 9; it must be 0"):
        Library.of([Spmm(64, 32, 48, calls=9)], H200, choose, model_for(H200), form)
    arguments = ["export", "grouped", "--shape", "4x8,8,8", "--device", "h200", "--folder", str(tmp_path / "x")]
    assert run_command(arguments) == 2
    assert "operation is 'grouped'; export takes gemm and conv and spmm" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
