"""Exported tasks compute what NumPy computes: the calls of their C functions are executed on the emulated device."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import InputError, ShapeError
from ptxgen.export.c_source import form
from ptxgen.export.files import write
from ptxgen.export.general import GROUPS
from ptxgen.export.library import ExportedProblem, Library
from ptxgen.export.task_in_c import TaskInC, functions_of, place
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.language.texts import input_ranks, parse
from ptxgen.operations.task.task_hash import task_hash
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.registry import Problem
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.selection import Selection
from tests import exports

needs_compiler = pytest.mark.skipif(exports.compiler() is None, reason="there is no gcc")
H200 = device("h200")
CONFIG = "family=simt ms=2 ns=2 ml=16 nl=16 u=8"
Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """A task, extents, and what NumPy computes: arrays by member of the structure of operands."""

    text: str
    computes: Callable[[Arrays], dict[str, Any]]
    extents: tuple[int, int, int] = (20, 24, 12)
    other: tuple[int, int, int] = (35, 20, 8)
    types: Mapping[str, str] | None = None
    scalars: Mapping[str, float] | None = None
    groups: str = ""
    other_groups: str = ""
    config: str = CONFIG


def listed(x: Any, t: float) -> dict[str, Any]:
    i, j = np.nonzero(x > t)
    order = np.lexsort((j, i))
    return {"hits_value": x[i, j][order], "hits_i": i[order], "hits_j": j[order], "hits_count": np.array([len(i)])}


def grouped(x: Any, g: Any, h: Any, t: float, groups: tuple[int, int]) -> dict[str, Any]:
    made = np.zeros(groups, np.int32)
    valid = (g < groups[0])[:, None] & (h < groups[1])
    i, j = np.nonzero(valid)
    np.add.at(made, (g[i], h[j]), (x > t)[i, j])
    return {"C": made, "C_rejected": np.array([(~valid).sum()])}


def at_keys(x: Any, g: Any, h: Any) -> Any:
    """Elements without a pair are 7, as the tests store before; one row of keys is out of range."""
    made = np.full((3, 4), 7, np.float32)
    for i, key in enumerate(g):
        if key < 3:
            made[key, h[2]] = x[i, 2]
    return made


def summed(x: Any, g: Any) -> dict[str, Any]:
    made = np.zeros((3, x.shape[1]), np.float32)
    np.add.at(made, g[g < 3], x[g < 3])
    return {"C": made, "C_rejected": np.array([(g >= 3).sum() * x.shape[1]])}


def best(x: Any, n: int) -> dict[str, Any]:
    """The ``n`` greatest values, those of the first pairs first. Places without a pair have the least value."""
    order = np.argsort(-x.ravel(), kind="stable")[:n]
    values, i, j = x.ravel()[order], *np.unravel_index(order, x.shape)
    more = (0, n - len(order))
    indices = {f"best_{axis}": np.pad(y, more, constant_values=-1) for axis, y in zip("ij", (i, j), strict=True)}
    return {"best_value": np.pad(values, more, constant_values=-np.inf), **indices}


def near_rows(x: Arrays) -> Any:
    """Squared distances, infinite for pairs that do not count."""
    d = ((x["P"][:, None] - x["R"]) ** 2).sum(2)
    counts = (d < x["s"] * x["t"][:, None]) & (x["w"][:, None] != np.arange(len(x["R"])))
    return np.where(counts, d * x["u"], np.inf)


def best_of_rows(x: Any, n: int, sign: int = 1) -> dict[str, Any]:
    """The ``n`` least values of each row, times ``sign``, and their columns. Infinite values do not count."""
    order = np.argsort(x, axis=1, kind="stable")[:, :n]
    values = np.take_along_axis(x, order, 1)
    return {"best_value": sign * values, "best_j": np.where(np.isinf(values), -1, order)}


SUMS = "reduce (k) { accum += P[i, k] * R[k, j]; }"
EXAMPLES = {
    "matrix": Example(
        "where (i, j) { reduce (k) { accum max= P[i, k] + R[j, k]; } C[i, j] = accum * s + t[i] - bias[i, j]; }",
        lambda x: {"C": (x["P"][:, None] + x["R"][None]).max(2) * x["s"] + x["t"][:, None] - x["bias"]},
        scalars={"s": 2},
    ),
    "by_columns": Example(
        "where (i, j) { reduce (k) { accum min= P[i, k] * R[k, j]; } C[j, i] = f16(accum + t[j]); }",
        lambda x: {"C": ((x["P"][:, :, None] * x["R"][None]).min(1) + x["t"]).T.astype(np.float16)},
    ),
    "product": Example(f"where (i, j) {{ {SUMS} C[i, j] = accum; }}", lambda x: {"C": x["P"] @ x["R"]}),
    "rows": Example(
        "where (i, j) { reduce (k) { accum += abs(P[i, k] - R[j, k]); } C[i] argmin= accum; }",
        lambda x: {"C": abs(x["P"][:, None] - x["R"]).sum(2).argmin(1)},
    ),
    "columns": Example(f"where (i, j) {{ {SUMS} C[j] max= accum; }}", lambda x: {"C": (x["P"] @ x["R"]).max(0)}),
    "list": Example(
        f"where (i, j) {{ {SUMS} accum > thres ? hits.add(accum, i, j); }}",
        lambda x: listed(x["P"] @ x["R"], x["thres"]),
        scalars={"thres": 5},
    ),
    "one_array": Example(
        "where (i, j) { reduce (k) { accum += abs(P[i, k] - P[j, k]); } accum > thres ? hits.add(accum, i, j); }",
        lambda x: listed(abs(x["P"][:, None] - x["P"]).sum(2), x["thres"]),
        extents=(20, 20, 12),
        other=(36, 36, 8),
        scalars={"thres": 20},
    ),
    "groups": Example(
        f"where (i, j) {{ {SUMS} C[g[i], h[j]] += accum > t; }}",
        lambda x: grouped(x["P"] @ x["R"], x["g"], x["h"], x["t"], x["groups"]),
        types={"g": "s32", "h": "s32"},
        scalars={"t": 2},
        groups="3,4",
        other_groups="2,5",
    ),
    "bits": Example(
        "where (i, j) { reduce (k) { accum += P[i, k] != 0 and R[k, j] != 0; } C[i, j] = accum; }",
        lambda x: {"C": (x["P"] != 0).astype(np.int32) @ (x["R"] != 0)},
        extents=(20, 24, 300),
        other=(35, 20, 5000),
        types={"P": "u8", "R": "u8"},
        config="family=mma ms=16 ns=16 ml=32 nl=32 u=16 vec_a=4 vec_b=4 vec_c=1",
    ),
    "keys": Example(
        f"where (i, j) when (j == 2) {{ {SUMS} C.put(accum, g[i], h[j]); }}",
        lambda x: {"C": at_keys(x["P"] @ x["R"], x["g"], x["h"])},
        extents=(4, 8, 12),
        other=(4, 8, 16),
        types={"g": "s32", "h": "s32"},
        groups="3,4",
    ),
    "best": Example(  # with equal values, and more of them than pairs
        f"where (i, j) {{ {SUMS} best.top(500, accum, i, j); }}",
        lambda x: best(x["P"] @ x["R"], 500),
    ),
    "least_f64": Example(
        f"where (i, j) {{ {SUMS} best.bottom(7, accum, i, j); }}",
        lambda x: {k: -y if k == "best_value" else y for k, y in best(-(x["P"] @ x["R"]), 7).items()},
        other=(70, 40, 8),
        types={"P": "f64", "R": "f64"},
    ),
    "nearest": Example(
        "where (i, j) { reduce (k) { accum += (P[i, k] - R[j, k]) * (P[i, k] - R[j, k]); } C[i] argmin= accum; }",
        lambda x: {"C": ((x["P"][:, None] - x["R"]) ** 2).sum(2).argmin(1)},
        extents=(20, 40, 6),
        other=(35, 20, 6),
        config="family=resident_rows resident_k=6 thread_rows=1 row_warps=1 columns_at_once=1 tile_columns=32",
    ),
    "least_of_rows": Example(
        "where (i, j) when (i != j) { reduce (k) { accum += abs(P[i, k] - P[j, k]); } best[i].bottom(3, accum * s, j); }",
        lambda x: best_of_rows(np.where(np.eye(len(x["P"])), np.inf, abs(x["P"][:, None] - x["P"]).sum(2) * x["s"]), 3),
        extents=(20, 20, 40),  # K is too large for the kernel that keeps the best values
        other=(36, 36, 33),
        scalars={"s": 2},
    ),
    "kept_of_rows": Example(  # arrays have other numbers than in the list of all pairs
        "where (i, j) when (w[i] != j) { reduce (k) { accum += (P[i, k] - R[j, k]) * (P[i, k] - R[j, k]); }"
        " accum < s * t[i] ? best[i].bottom(3, accum * u, j); }",
        lambda x: best_of_rows(near_rows(x), 3),
        extents=(20, 40, 6),
        other=(35, 20, 6),
        types={"w": "s32"},
        scalars={"s": 9, "u": 2},
        config="family=resident_rows resident_k=6 thread_rows=1 row_warps=1 columns_at_once=1 tile_columns=32",
    ),
    "best_of_columns": Example(  # each column has more than two runs of records; half of the pairs count
        f"where (i, j) {{ {SUMS} accum > t ? best[j].top(4, accum, i); }}",
        lambda x: {
            name.replace("_j", "_i"): made
            for name, made in best_of_rows(
                -np.where(x["P"] @ x["R"] > x["t"], x["P"] @ x["R"], -np.inf).T, 4, -1
            ).items()
        },
        other=(5000, 3, 4),
        scalars={"t": 0},
    ),
    "elements": Example(  # of a family that serves the exported extents alone
        f"where (i, j) {{ {SUMS} C[g[i], j] += X[i, j]; }}",
        lambda x: summed(x["X"], x["g"]),
        other=(20, 24, 12),
        types={"g": "s32"},
        groups="3,24",
        config="family=private_groups",
    ),
}


def task_in_c(name: str) -> TaskInC:
    text, types = EXAMPLES[name].text, EXAMPLES[name].types or {}
    [made] = functions_of(name, parse(text, {x: types.get(x, "f32") for x in input_ranks(text)}))
    return made


def choose(problem: Problem) -> Selection:
    bits = problem.dtype == "u8"
    return Selection(problem, parse_config(EXAMPLES["bits"].config if bits else CONFIG), "given")


def given(tasks: Mapping[TaskInC, Any]) -> Callable[[Problem], Selection]:
    """The configurations of the examples."""
    configs = {p: parse_config(EXAMPLES[f.name].config) for f, each in tasks.items() for p in each}
    return lambda p: Selection(p, configs[p], "given")


def library_of(*names: str, extents: tuple[int, int, int] | None = None) -> Library:
    tasks = {
        f: [f.problem(*(extents or EXAMPLES[f.name].extents), EXAMPLES[f.name].groups)] for f in map(task_in_c, names)
    }
    return Library.of([], H200, given(tasks), Model.analytic(H200), form, tasks)


@pytest.fixture(scope="module")
def library() -> Library:
    return library_of(*EXAMPLES)


@pytest.fixture(scope="module")
def folder(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    write(library, folder, version="1", command="task export")
    return folder


@pytest.fixture(scope="module")
def program(library: Library, folder: Path) -> Path:
    return exports.build_tasks(library, folder)


def inputs_of(task: TaskInC, extents: tuple[int, int, int], example: Example) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    of = dict(zip("ijk", extents, strict=True))
    inputs: dict[str, Any] = dict(example.scalars or {})
    for x in task.program.inputs:
        if x.uses:
            shape = [of[axis] for axis in x.uses[0]]
            keys = {"g": 4, "h": 4}  # a key 3 of g is out of range
            inputs[x.name] = (
                rng.permuted(np.arange(shape[0]) % keys[x.name]).astype(np.int32)
                if x.name in keys
                else rng.integers(-3, 4, shape).astype(dtype(x.dtype).numpy)
            )
    return inputs


@dataclass
class Memory:
    """Arrays on the emulated device, by member. ``operands``: their addresses, and numbers."""

    driver: EmulatedDriver
    operands: dict[str, float]

    def put(self, member: str, x: Any) -> None:
        if isinstance(x, np.ndarray):
            self.operands[member] = self.driver.allocate(x.nbytes)
            self.driver.upload(int(self.operands[member]), x)
        else:
            self.operands[member] = x

    def get(self, member: str, like: Any) -> Any:
        made = np.empty_like(like)
        self.driver.download(int(self.operands[member]), made)
        return made


def checked_call(program: Path, p: ExportedProblem, fields: Mapping[str, int], memory: Memory) -> None:
    """Executes a call, with the workspace that a query asks for."""
    given = [fields.get(f.name, 0) for f in p.operation.fields]
    _, [query] = exports.run(program, [exports.task_request(p.operation, given, **memory.operands)])
    assert query.query == 0
    if query.bytes:
        memory.put("workspace", np.zeros(query.bytes, np.uint8))
        memory.put("workspace_bytes", query.bytes)
    _, [call] = exports.run(program, [exports.task_request(p.operation, given, **memory.operands)])
    assert (call.status, call.bytes) == (0, query.bytes)
    exports.execute(memory.driver, [x.source for x in p.modules], call.driver)


TYPES = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "f16": np.float16}


@needs_compiler
@pytest.mark.parametrize("name", EXAMPLES)
def test_calls_compute_what_numpy_computes(name: str, library: Library, program: Path) -> None:
    """With the exported extents, and of others, which the same kernel serves, with gaps between rows of P and of C."""
    example, task = EXAMPLES[name], task_in_c(name)
    [p] = [x for x in library.problems if x.operation.form.name == f"task_{name}"]
    assert (p.kernel is None) == (name == "elements")
    kinds = {x.name: TYPES.get(x.meaning.split(",")[0], np.int64) for x in p.operation.arguments}
    calls = [(example.extents, example.groups, 0)]
    if p.kernel is not None:
        calls.append((example.other, example.other_groups or example.groups, 4))
    for extents, groups, gap in calls:
        fields, sizes = dict(zip("mnk", extents, strict=True)), [int(x) for x in groups.split(",") if x]
        fields |= dict(zip(GROUPS, sizes, strict=False))
        values = inputs_of(task, extents, example)
        wanted = example.computes({**values, "groups": sizes})
        memory = Memory(EmulatedDriver(H200), {})
        for member, x in values.items():
            memory.put(member, np.pad(x, ((0, 0), (0, gap))) if member == "P" else x)
        stored = {}
        for member, x in wanted.items():
            padded = np.pad(x, ((0, 0), (0, gap))) if member == "C" and x.ndim == 2 and not groups else x
            stored[member] = np.full(padded.shape, 7, kinds[member])
            memory.put(member, stored[member])
        if "hits_count" in wanted:
            memory.put("hits_capacity", len(wanted["hits_i"]))
        if gap:
            fields |= {"ld_P": extents[2] + gap, "ld_C": stored["C"].shape[-1] if "C" in stored else 0}
        checked_call(program, p, fields, memory)
        made = {member: memory.get(member, x) for member, x in stored.items()}
        for member, x in wanted.items():
            if made[member].shape != x.shape:
                assert (made[member][:, x.shape[1] :] == 7).all()  # between rows
                made[member] = made[member][:, : x.shape[1]]
        if "hits_count" in made:
            order = np.lexsort((made["hits_j"], made["hits_i"]))
            made |= {member: made[member][order] for member in ("hits_value", "hits_i", "hits_j")}
        for member, x in wanted.items():
            assert np.array_equal(made[member], x), (member, extents)


@needs_compiler
def test_launches_on_tensor_cores_are_those_of_python(tmp_path: Path) -> None:
    """With the exported extents, and of others."""
    text = (
        f"P: f16[i, k]; R: f16[k, j]; t: f32; accum: f32; where (i, j) {{ {SUMS} accum > t ? hits.add(accum, i, j); }}"
    )
    [task] = functions_of("hits", parse(text))
    config = parse_config("family=wgmma ml=128 nl=64 u=64 stages=3")
    exported, other = task.problem(256, 128, 192), task.problem(72, 520, 136)
    library = Library.of(
        [], H200, lambda p: Selection(p, config, "given"), Model.analytic(H200), form, {task: [exported]}
    )
    write(library, tmp_path, version="1", command="")
    of = library.tasks[0]
    operands = {x.name: n << 36 if x.c_type.endswith("*") else n for n, x in enumerate(of.arguments, 1)}
    requests = [exports.task_request(of, of.key(p), **operands) for p in (exported, other)]
    _, calls = exports.run(exports.build_tasks(library, tmp_path), requests)
    places = {y: operands[x.name] for x in of.arguments for y in x.places}
    for p, call in zip((exported, other), calls, strict=True):
        launch = plan_for(p, config, H200).launch(lower(p))
        roles = {str(v) for step in launch.steps for _, v in step.arguments if isinstance(v, str)} - {"W", "capacity"}
        names = {role: places[place(role)] for role in {*roles, "A", "B", "C"}}
        names |= {"W": operands["workspace"], "capacity": operands["hits_capacity"]}
        entries = library.modules[0].source.pdl_entries
        made = exports.expected(library, launch, entries, beta=0, stream=0, alpha=1, **names)
        assert (call.status, call.driver) == (0, made)
        assert any("map" in line for line in made)


@needs_compiler
def test_calls_with_bad_arguments_are_errors(library: Library, program: Path) -> None:
    of = {x.form.name.removeprefix("task_"): x for x in library.tasks}
    good = {"P": 256, "R": 512, "hits_value": 768, "hits_i": 1024, "hits_j": 1280, "hits_capacity": 9, "hits_count": 64}
    lines = [
        exports.task_request(of["list"], (20, 24, 12, 0, 0), **good | {"hits_capacity": -1}),
        exports.task_request(of["list"], (20, 24, 12, 0, 0), **good | {"hits_count": 0}),
        exports.task_request(of["list"], (20, 24, 12, 11, 0), **good),  # rows of P overlap
        exports.task_request(of["list"], (20, 1 << 31, 12, 0, 0), **good),
        exports.task_request(of["list"], (0, 24, 12, 0, 0), **good),  # nothing to compute was exported
        exports.task_request(of["one_array"], (20, 24, 12, 0), hits_count=64),  # P has one extent
        exports.task_request(of["groups"], (20, 24, 12, 1, 5, 0, 0), C_rejected=64),  # one group was not exported
        exports.task_request(of["rows"], (20, 24, 12, 0, 0), P=256, R=512, C=1024),
        exports.task_request(of["list"], (20, 24, 12, 0, 0), **good),
    ]
    _, calls = exports.run(program, lines)
    assert [call.status for call in calls] == [1, 1, 2, 1, 2, 2, 2, 3, 0]
    assert all(not call.driver for call in calls[:-1])
    assert calls[7].bytes > 0  # rows need a workspace, which a query tells without one


def test_bytes_repeat(tmp_path: Path) -> None:
    one, two = (
        write(library_of("list", "groups"), tmp_path / name, version="1", command="") for name in ("one", "two")
    )
    for path, other in zip(one, two, strict=True):
        assert path.read_bytes() == other.read_bytes(), path


def test_manifest_lists_tasks(folder: Path) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    assert [x["function"] for x in document["tasks"]] == [f"ptxgen_task_{name}" for name in EXAMPLES]
    assert parse(document["tasks"][0]["text"]) == task_in_c("matrix").program
    row = next(x for x in document["problems"] if x["function"] == "ptxgen_task_list")
    assert row["alpha_zero"] is None
    assert [x["function"] is None for x in row["launches"]] == [True, False]  # the count is set to zero first


@needs_compiler
def test_example_computes_a_task(tmp_path: Path) -> None:
    write(library_of("list"), tmp_path, version="1", command="")
    exports.build_stub(tmp_path)
    sources = ["example.c", "ptxgen_kernels.c"]
    command = [str(exports.compiler()), *exports.WARNINGS, *sources, "-o", "example", "-ldl", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    for name, count in (("P", 20 * 12), ("R", 12 * 24)):
        (tmp_path / name).write_bytes(bytes(4 * count))
    outputs = ["hits_value", "hits_i", "hits_j", "hits_count"]
    done = subprocess.run(
        ["./example", ".", "P", "R", *outputs],
        cwd=tmp_path,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert f"{3 * 480 * 4 + 8} bytes of results" in done.stdout  # with room for all pairs
    assert [(tmp_path / name).stat().st_size for name in outputs] == [1920, 1920, 1920, 8]


LIST = EXAMPLES["list"].text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a-b", LIST, "name is 'a-b'; it must have letters, digits and _ alone"),
        ("", LIST, ""),
        ("a_workspace", LIST, "name is a_workspace; it must not end in _workspace"),
        ("a", LIST.replace("P[", "register["), "register is a word of C; the text must have another name"),
        ("a", LIST.replace("hits", "while"), "while is a word of C"),
        ("a", LIST.replace("thres", "_Bool"), "_Bool is a word of C"),
        ("a", LIST.replace("thres", "size_t"), "size_t is a word of C"),
        ("a", LIST.replace("thres", "workspace"), "workspace is the name of two members"),
        ("a", LIST.replace("thres", "hits_count"), "hits_count is the name of two members"),
        (
            "a",
            f"where (i, j) {{ {SUMS} best[i].top(n, accum, j); }}",
            "best has n values; the text for a C function must have their number, from 1 on",
        ),
        ("a", f"where (i, j) {{ {SUMS} best.top(0, accum, i, j); }}", "best has 0 values; the text"),
        (
            "a",
            f"where (i, j) {{ {SUMS} accum > 0 ? seen.distinct(g[i], h[j]); }}",
            "of which the host makes lists; a C function marks pairs of keys in a matrix",
        ),
    ],
)
def test_names_that_c_does_not_take_are_errors(name: str, text: str, message: str) -> None:
    program = parse(text, dict.fromkeys(input_ranks(text), "f32") | dict.fromkeys("ghn", "s32"))
    if not message:  # a task without a name has that of its digest
        assert [f.name for f in functions_of(name, program)] == [task_hash(program)[:12]]
        return
    with pytest.raises(InputError, match=re.escape(message)):
        functions_of(name, program)


def test_each_output_has_a_function() -> None:
    text = f"where (i, j) {{ {SUMS} C[i, j] = accum; best[i] max= accum; }}"
    program = parse(text, {"P": "f32", "R": "f32"})
    assert [f.name for f in functions_of("scores", program)] == ["scores_C", "scores_best"]
    assert [f.name for f in functions_of("scores", program, "best")] == ["scores_best"]
    with pytest.raises(InputError, match="output is hits; the outputs of the task are C, best"):
        functions_of("scores", program, "hits")


def test_extents_that_arrays_cannot_have_are_errors() -> None:
    with pytest.raises(InputError, match="n is 21; it must be 20, as m"):
        task_in_c("one_array").problem(20, 21, 12)
    with pytest.raises(InputError, match="m × n is 2147516416 pairs; best values in C must have less than 2147483648"):
        library_of("best", extents=(65537, 32768, 64))
    with pytest.raises(ShapeError, match="m is 0"):
        task_in_c("list").problem(0, 21, 12)
    tasks = {f: [f.problem(20, 24, 12)] for f in (task_in_c("list"), replace(task_in_c("rows"), name="list"))}
    with pytest.raises(InputError, match="name is list; it must not be that of another task"):
        Library.of([], H200, choose, Model.analytic(H200), form, tasks)
