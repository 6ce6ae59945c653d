"""The baselines of tasks: what is printed for PyTorch, Triton, Gluon and CUDA C++ computes the program.

Stand-ins run the kernels of Triton and Gluon in NumPy, PyTorch computes on the CPU, and the emulated device runs what
nvcc compiles, if it is there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxgen.cli import command
from ptxgen.emulator import launch
from ptxgen.errors import DtypeError, LaunchError, ShapeError, UnavailableError
from ptxgen.expr.node import constant, node, variable
from ptxgen.expr.python_text import TORCH, TRITON, PythonText
from ptxgen.operations.task.baselines import (
    cuda_staged,
    cuda_text,
    gluon_staged,
    keops,
    libraries,
    tensors,
    torch_arrays,
    torch_text,
    triton_outer,
    triton_rows,
)
from ptxgen.operations.task.baselines.operands import downloaded, padded_arrays, padded_extents
from ptxgen.operations.task.baselines.parts import Parts, order_of
from ptxgen.operations.task.checks import TaskOperandSets, random_arrays
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.oracle import difference, evaluate
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.semirings import SEMIRINGS, semiring_program
from ptxgen.operations.task.suites import DISTANCES, QUERIES, SUITES, distance_text, typed_text
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.operation import operation_named
from ptxgen.runtime import vendor_libraries
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from tests import tile_languages

EVERYTHING = (
    "A:f16[i,k];B:f32[j,k];u:f16[i];v:f32[k];w:f32[i,j];x:f32[j];s:f32;accum:f32;"
    "where(i,j){accum=1.0;reduce(k){accum+=f32(A[i,k])*B[j,k]*v[k]+s*abs(x[j]-f32(i))*0.5;}"
    "C[i,j]=accum*f32(u[i])+max(w[i,j],0.25)+(accum>2.0?f32(j):sqrt(abs(accum)));}"
)
#: steps that read arrays along two axes, and indices
MORE = (
    "A:f32[i,k];B:f32[k,j];D:f32[i,k];E:f32[j,k];F:f32[i,j];accum:f32;"
    "where(i,j){reduce(k){accum+=abs(A[i,k]-B[k,j])*D[i,k]+E[j,k]*F[i,j]*f32(k-i);}C[i,j]=accum+F[i,j];}"
)
SEMIRING_TEXTS = {name: canonical(semiring_program(name, "f32")) for name in SEMIRINGS if name != "or_and"}
DISTANCE_TEXTS = {name: typed_text(distance_text(name), "f32") for name in DISTANCES}
#: programs with a matrix as output, by name
MATRICES = {
    **SEMIRING_TEXTS,
    **DISTANCE_TEXTS,
    "q1": typed_text(QUERIES["q1"], "f32"),
    "f64": typed_text(distance_text("l2"), "f64"),
    "bf16": canonical(semiring_program("max_plus", "bf16")),
    "s32": canonical(semiring_program("max_plus", "s32")),
    "mean": "A:f32[i,k];B:f32[k,j];accum:f32;where(i,j){reduce(k){accum mean=A[i,k]*B[k,j]+1.0;}C[j,i]=accum;}",
    "everything": EVERYTHING,
    "more": MORE,
}


def task(name: str, m: int = 70, n: int = 90, k: int = 48, **fields: Any) -> Task:
    dtype = name if name in ("f64", "bf16", "s32") else "f16" if name == "everything" else "f32"
    return Task(m, n, k, dtype=dtype, text=MATRICES[name], **fields)


class StandInDriver(EmulatedDriver):
    """Memory of the emulated device. ``microseconds``: of each timed candidate."""

    stream, index = 77, 0

    def __init__(self, *microseconds: float, once: float = 1.0) -> None:
        super().__init__()
        self.microseconds, self.once = list(microseconds), once
        self.held: set[int] = set()

    def allocate(self, size: int) -> int:
        address = super().allocate(size)
        self.held.add(address)
        return address

    def release(self, address: int) -> None:
        super().release(address)
        self.held.discard(address)

    @contextmanager
    def context(self, doing: str) -> Iterator[None]:
        yield

    def elapsed(self, launch: Callable[[], object]) -> float:
        launch()
        return self.once

    def time(self, launches: Any, timing: Timing) -> list[float]:
        for each in launches:
            each()
        return [self.microseconds.pop(0)]


# ---- the printer


def test_python_text_names_common_parts_and_rejects_what_a_library_lacks() -> None:
    a, b = variable("a", "f32"), variable("b", "f32")
    product = node("*", "f32", a, b)
    root = node("+", "f32", product, node("max", "f32", product, constant(0.0, "f32")))
    for library, text in ((TORCH, "(t0 + t0.clamp(min=0.0))"), (TRITON, "(t0 + tl.maximum(t0, 0.0))")):
        printed = PythonText([root], {a: "x", b: "y"}, library)
        assert printed.definitions == ["t0 = (x * y)"]
        assert printed(root) == text
    with pytest.raises(DtypeError, match="operator is 'popcount'; it must be one of"):
        PythonText([], {variable("u", "u32"): "u"}, TORCH)(node("popcount", "u32", variable("u", "u32")))
    with pytest.raises(DtypeError, match="type is u32; it must be one of"):
        PythonText([], {a: "x"}, TORCH)(node("cast", "u32", a))
    with pytest.raises(DtypeError, match="variable b has no text"):
        PythonText([], {a: "x"}, TORCH)(product)
    infinite = PythonText([], {}, TORCH)(constant(float("-inf"), "f32"))
    assert infinite == 'float("-inf")'


# ---- operands


@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("name", ["l1", "everything"])
def test_operands_are_read_from_sets_and_padded_by_tiles(name: str, layout: str) -> None:
    p = task(name, k=33, layout=layout, ldb=96)
    driver: Any = StandInDriver()
    sets = TaskOperandSets(driver, p, Timing())
    arrays = downloaded(driver, p, sets.sets[0])
    for role, x in random_arrays(p).items():
        np.testing.assert_array_equal(arrays[role], x)
    if name == "everything":
        with pytest.raises(LaunchError, match="K is 33; it must be a multiple of 16"):
            padded_arrays(Parts(p), arrays)
        return
    padded = padded_arrays(Parts(p), arrays)
    assert padded_extents(p) == (128, 128, 48)
    assert (padded["A"].shape, padded["B"].shape) == ((48, 128), (48, 128))
    np.testing.assert_array_equal(padded["A"][:33, :70], arrays["A"].T)
    np.testing.assert_array_equal(padded["B"][:33, :90], arrays["B"].T)
    assert not padded["A"][33:].any()


def test_idempotent_reductions_repeat_the_last_step() -> None:
    p = task("max_plus", k=33)
    arrays = random_arrays(p)
    padded = padded_arrays(Parts(p), arrays)
    np.testing.assert_array_equal(padded["B"][33:, :90], np.repeat(arrays["B"][-1:], 15, 0))


# ---- Triton and Gluon


@pytest.fixture
def languages(monkeypatch: pytest.MonkeyPatch) -> None:
    tile_languages.install(monkeypatch)
    monkeypatch.setattr(libraries, "module_of", libraries.module_of)

    def module_of(source: str) -> Any:
        module = SimpleNamespace()
        exec(compile(source, "kernel", "exec"), module.__dict__)
        return module

    for module in (triton_outer, triton_rows, gluon_staged):
        monkeypatch.setattr(module, "module_of", module_of)
        monkeypatch.setattr(module, "load_torch", lambda: None)
    monkeypatch.setattr(triton_outer, "load_triton", lambda: None)
    monkeypatch.setattr(triton_rows, "load_triton", lambda: None)
    monkeypatch.setattr(triton_rows, "on_stream", lambda torch, driver: nullcontext())
    monkeypatch.setattr(gluon_staged, "load_gluon", lambda: None)
    monkeypatch.setattr(triton_outer, "on_stream", lambda torch, driver: nullcontext())


def stand_in_tensors(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def tensor(torch: Any, address: int, shape: tuple[int, ...], element: str) -> Any:
        return tile_languages.Memory(driver, address, shape, dtype(element).numpy)

    monkeypatch.setattr(triton_outer, "tensor", tensor)
    monkeypatch.setattr(triton_rows, "tensor", tensor)


OF_TILES = {"triton": triton_outer.TritonOuter, "gluon": gluon_staged.GluonStaged}


@pytest.mark.each_value
@pytest.mark.parametrize("baseline", OF_TILES)
@pytest.mark.parametrize("name", MATRICES)
def test_kernels_of_tiles_compute_the_program(
    name: str, baseline: str, languages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = task(name)
    form = OF_TILES[baseline]
    modules = {"triton": triton_outer, "gluon": gluon_staged}
    tiles = modules[baseline].TILES
    driver: Any = StandInDriver(*(9.0 - n for n in range(len(tiles))))
    stand_in_tensors(driver, monkeypatch)
    sets = TaskOperandSets(driver, p, Timing())
    before = set(driver.held)
    best = form(driver, p).best(sets.sets, Timing())
    assert best.best == best.same_layout == 10.0 - len(tiles)
    assert driver.held == before
    assert {x["BM"] for x in tile_languages.Kernel.launches} == {tile.bm for tile in tiles}


ROWS = {
    **{case.name.partition(" 40")[0]: case.problem.text for case in SUITES["knn_small"].build() if " 40" in case.name},
    "density": "A:f32[i,k];B:f32[j,k];accum:f32;where(i,j){reduce(k){accum+=A[i,k]*B[j,k];}C[i]logsumexp=accum;}",
    "mean": "A:f32[i,k];B:f32[j,k];u:f32[j];accum:f32;where(i,j){reduce(k){accum+=abs(A[i,k]-B[j,k]);}C[i]mean=accum*u[j];}",
    "greatest": "A:f32[i,k];B:f32[j,k];accum:f32;where(i,j){reduce(k){accum max=A[i,k]-B[j,k];}C[i]argmax=accum;}",
}


@pytest.mark.parametrize("name", ROWS)
def test_kernels_of_rows_compute_the_program(name: str, languages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    products = name in ("1nn fast", "1nn cosine", "density")
    p = Task(130, 384 if name == "greatest" else 380, 16 if products else 3, text=ROWS[name])  # 384: whole tiles
    monkeypatch.setattr(triton_rows, "SMALL_TILES", triton_rows.SMALL_TILES[1:])
    elements = triton_rows.STATES[triton_rows.reduced_output(p).op].elements
    monkeypatch.setattr(triton_rows, "TILES", () if elements else triton_outer.TILES[:1])
    monkeypatch.setattr(triton_rows, "BLOCKS", 4)  # two parts of the columns
    driver: Any = StandInDriver(3.0, 2.0)
    stand_in_tensors(driver, monkeypatch)
    sets = TaskOperandSets(driver, p, Timing())
    before = set(driver.held)
    dot = triton_rows.uses_dot(p)
    assert dot == products
    assert triton_rows.TritonRows(driver, p).best(sets.sets, Timing()).best == (2.0 if dot else 3.0)
    assert driver.held == before


def test_tiles_walk_over_all_blocks(languages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    p = task("max_min", 1200, 200, 16)  # more than GROUP rows of tiles
    driver: Any = StandInDriver(*range(1, 5))
    stand_in_tensors(driver, monkeypatch)
    sets = TaskOperandSets(driver, p, Timing())
    for form in OF_TILES.values():
        driver.microseconds = [4.0, 3.0, 2.0, 1.0]
        form(driver, p).best(sets.sets, Timing())


@pytest.mark.parametrize("baseline", OF_TILES)
def test_wrong_results_do_not_count(baseline: str, languages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    p = task("max_min")
    driver: Any = StandInDriver(1.0)
    stand_in_tensors(driver, monkeypatch)
    module = {"triton": triton_outer, "gluon": gluon_staged}[baseline]
    monkeypatch.setattr(module, "source_of", lambda parts: ORIGINAL[baseline](Parts(task("max_plus"))))
    sets = TaskOperandSets(driver, p, Timing())
    with pytest.raises(LaunchError, match=r"does not compute task .*: .*elements are wrong"):
        OF_TILES[baseline](driver, p).best(sets.sets, Timing())


ORIGINAL = {"triton": triton_outer.source_of, "gluon": gluon_staged.source_of}


def test_slow_candidates_run_once(languages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = StandInDriver(once=3e5)
    stand_in_tensors(driver, monkeypatch)
    p = task("max_min")
    sets = TaskOperandSets(driver, p, Timing())
    assert triton_outer.TritonOuter(driver, p).best(sets.sets, Timing()).best == 3e5


# ---- CUDA C++


class StandInLibrary:
    """The driver library: records launches, and computes in the memory of a driver. ``wrong``: added to results."""

    wrong = 0.0

    def __init__(self, driver: StandInDriver, p: Task) -> None:
        self.driver, self.problem = driver, p
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            if name == "cuLaunchKernel":
                self.launch(*arguments)
            return 0

        return call

    def launch(self, function: Any, *rest: Any) -> None:
        import ctypes as ct

        blocks, _, _, threads, _, _, shared, stream, table, _ = rest
        p = self.problem
        parts = Parts(p)
        names = ["A", "B", "C", *triton_outer.array_names(parts)]
        pointers = [ct.cast(table[n], ct.POINTER(ct.c_uint64))[0] for n in range(len(names))]
        sizes = [ct.cast(table[len(names) + n], ct.POINTER(ct.c_int))[0] for n in range(6)]
        m, n, k = padded_extents(p)
        assert sizes == [p.m, p.n, p.k, m, n, k]
        assert (blocks.value, threads.value, shared.value, stream.value) == (m // 128 * (n // 128), 256, 0, 77)
        at = dict(zip(names, pointers, strict=True))
        arrays, axes = {}, {u.role: u.axes for u in p.roles.uses}
        for u in p.roles.uses:
            order = order_of(u.axes)
            extents = {"i": (m, p.m), "j": (n, p.n), "k": (k, p.k)}
            x = np.empty([extents[axis][0] for axis in order], dtype(u.dtype).numpy)
            self.driver.download(at[u.role], x)
            x = x[tuple(slice(extents[axis][1]) for axis in order)]
            arrays[u.role] = x.transpose([order.index(axis) for axis in axes[u.role]])
        value: Any = evaluate(p.program, {**arrays, **p.typical_scalars}, {"i": p.m, "j": p.n, "k": p.k})["C"]
        out = np.zeros((m, n), p.output.numpy)
        out[: p.m, : p.n] = value.values.astype(p.output.numpy) + self.wrong
        self.driver.upload(at["C"], out)


@pytest.mark.parametrize("name", ["max_plus", "everything", "bf16"])
def test_launches_of_cuda_have_the_padded_operands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = task(name)
    driver: Any = StandInDriver(5.0)
    library = StandInLibrary(driver, p)
    sources = []
    monkeypatch.setattr(cuda_staged, "load_library", lambda: library)
    monkeypatch.setattr(cuda_staged, "compiled", lambda source, target: sources.append((source, target)) or b"cubin")
    sets = TaskOperandSets(driver, p, Timing())
    assert cuda_staged.CudaStaged(driver, p).best(sets.sets, Timing()).best == 5.0
    assert [target for _, target in sources] == ["sm_90a"]
    assert [name for name, _ in library.calls if name != "cuLaunchKernel"] == [
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuModuleUnload",
    ]
    library.wrong = 100.0
    with pytest.raises(LaunchError, match=r"CUDA C\+\+ does not compute task .*: 128×128: .*elements are wrong"):
        cuda_staged.CudaStaged(driver, p).best(sets.sets, Timing())


def test_cuda_text_has_the_step_in_c() -> None:
    text = cuda_text.source_of(Parts(task("max_min")))
    assert "accum = fmaxf(accum, fminf(a, b));" in text
    assert "enum { BM = 128, BN = 128, BK = 16, STAGES = 3, GROUP = 16 };" in text
    assert "«" not in text
    q1 = cuda_text.source_of(Parts(task("q1")))
    assert "float input0_i[8];" in q1
    assert "input0_i[i]" in q1
    with pytest.raises(DtypeError, match="A and B are f64 and f64; elements must have at most 4 bytes"):
        cuda_text.source_of(Parts(task("f64")))
    hamming = "A:u32[i,k];B:u32[j,k];accum:u32;where(i,j){reduce(k){accum+=popcount(A[i,k]^B[j,k]);}C[i,j]=accum;}"
    assert "__popc(" in cuda_text.source_of(Parts(Task(8, 8, 8, dtype="u32", text=hamming)))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("name", "m", "n", "k"),
    [
        ("everything", 200, 130, 64),
        ("bf16", 70, 90, 80),
        ("s32", 2100, 130, 16),
        ("q1", 70, 90, 48),
        ("more", 70, 90, 48),
    ],
)
def test_kernels_of_cuda_compute_the_program(name: str, m: int, n: int, k: int, tmp_path: Path) -> None:
    """The emulated device runs the PTX of nvcc."""
    p = task(name, m, n, k)
    text, ptx = tmp_path / "task.cu", tmp_path / "task.ptx"
    text.write_text(cuda_text.source_of(Parts(p)))
    subprocess.run(["nvcc", "-arch=sm_90a", "-O3", "-std=c++17", "-ptx", "-o", ptx, text], check=True)
    arrays = random_arrays(p)
    padded = padded_arrays(Parts(p), arrays)
    mp, np_, kp = padded_extents(p)
    c = np.zeros((mp, np_), p.output.numpy)
    given = [padded["A"], padded["B"], c, *(padded[name] for name in triton_outer.array_names(Parts(p)))]
    raw = [x.view(np.uint16) if x.itemsize == 2 else x for x in given]
    launch(ptx.read_text(), "task", mp // 128 * (np_ // 128), 256, [*raw, *map(np.int32, (m, n, k, mp, np_, kp))], 0)
    expected = evaluate(p.program, {**arrays, **p.typical_scalars}, {"i": m, "j": n, "k": k})["C"]
    assert difference(expected, c[:m, :n], 8.0) == ""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvcc_makes_cubins() -> None:
    assert cuda_staged.compiled(cuda_text.source_of(Parts(task("max_min"))), "sm_90a").startswith(b"\x7fELF")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_errors_of_nvcc_are_told() -> None:
    with pytest.raises(LaunchError, match=r"nvcc failed: .*error"):
        cuda_staged.compiled("this is not C++", "sm_90a")


# ---- PyTorch

OUTPUTS = {
    **MATRICES,
    "groups": "accum += P[i,k]*R[k,j]; } C[g[i],h[j]] += accum; }",
    "groups of columns": "accum += P[k,i]*R[j,k]; } C[h[j],g[i]] += accum*0.5; }",
    "greatest": "accum += P[i,k]*R[k,j]; } C[g[i],h[j]] max= accum; }",
    "by_index": "accum += P[i,k]*R[k,j]; } C[g[i],j] += accum > 1.0; }",
    "rows": "accum += P[i,k]*R[k,j]; } C[i] max= accum + b[j]; }",
    "columns": "accum max= P[i,k]+R[k,j]; } C[j] argmin= accum; }",
    "logsumexp": "accum += P[i,k]*R[k,j]; } C[i] logsumexp= accum; }",
    "list": "accum += P[i,k]*R[k,j]; } accum > 9.0 ? C.add(accum, i, j); }",
    "two": "accum += P[i,k]*R[k,j]; } C[i,j] = accum; D[i] += abs(accum); }",
}
WHEN = {
    "groups where": ("i < j", OUTPUTS["groups"]),
    "groups equal": ("g[i] == h[j]", OUTPUTS["groups"]),
    "rows where": ("g[i] == h[j]", OUTPUTS["rows"]),
    "list where": ("i != j", OUTPUTS["list"]),
}


def any_task(name: str) -> Task:
    if name in MATRICES:
        return task(name)
    condition, body = WHEN.get(name, ("", OUTPUTS.get(name, "")))
    when = f" when ({condition})" if condition else ""
    text = f"where (i in [0, M], j in [0, N]){when} {{ reduce (k in [0, K]) {{ {body}"
    types = dict.fromkeys(("P", "R", "b"), "f32") | {"g": "s32", "h": "s32"}
    program = parse(text, {name: dtype for name, dtype in types.items() if f"{name}[" in text})
    groups = {"by_index": "5,90"}.get(name, "5,7" if "group" in name or name == "greatest" else "")
    return Task(70, 90, 48, text=canonical(program), groups=groups)


@pytest.mark.parametrize("name", [*OUTPUTS, *WHEN])
def test_functions_of_pytorch_compute_the_program(name: str) -> None:
    torch = pytest.importorskip("torch")
    p = any_task(name)
    arrays = random_arrays(p, seed=3)
    groups = torch_arrays.groups_of(p)
    expected = evaluate(p.program, {**arrays, **p.typical_scalars}, {"i": p.m, "j": p.n, "k": p.k}, groups)
    given = [tensor_of(torch, p, u.role, arrays) for u in p.roles.uses]
    modules = torch_text.sources(Parts(p))
    sums = {"index_add of rows and columns", "one-hot products"}
    assert (sums <= set(modules)) == (name in ("groups", "groups of columns", "groups equal"))
    squares = {"cdist", "cdist by products", "cube"}
    assert set(modules) == {"plus_times": {"matmul"}, "mean": {"cube"}, "l2": squares, "f64": squares}.get(
        name, {"cdist", "cube"} if name in DISTANCES else {"cube"} if name in MATRICES else set(modules)
    )
    for source in modules.values():
        compute = libraries.module_of(source).compute
        for slab in (7, p.k):
            result = compute(*given, p.m, p.n, p.k, slab, groups)
            for output, got in zip(p.program.outputs, result, strict=True):
                actual = tuple(map(host, got)) if isinstance(got, tuple) else host(got)
                assert difference(expected[output.name], actual, 8.0) == ""


def tensor_of(torch: Any, p: Task, role: str, arrays: dict[str, Any]) -> Any:
    axes, x = p.roles.use(role).axes, arrays[role]
    x = np.ascontiguousarray(x.T if (role, axes) in (("A", ("k", "i")), ("B", ("j", "k"))) else x)
    return (
        torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype.name == "bfloat16" else torch.from_numpy(x)
    )


def host(x: Any) -> Any:
    return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()


def test_what_pytorch_lacks_is_told() -> None:
    bits = Task(8, 8, 8, dtype="s32", text=canonical(semiring_program("or_and", "s32")))
    with pytest.raises(DtypeError, match=r"the reduction is \|; PyTorch has \+, \*"):
        torch_text.sources(Parts(bits))
    masked = parse(
        "where (i, j) when (i < j) { reduce (k) { accum += A[i,k]*B[k,j]; } C[i,j] = accum; }", {"A": "f32", "B": "f32"}
    )
    with pytest.raises(DtypeError, match="leaves elements unwritten"):
        torch_text.sources(Parts(Task(8, 8, 8, text=canonical(masked))))


@pytest.fixture
def torch_on_cpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch on the CPU: tensors of device memory are copies."""
    torch = pytest.importorskip("torch")
    stand_in = SimpleNamespace(
        cuda=SimpleNamespace(empty_cache=lambda: None),
        compile=lambda compute, dynamic: compute,
        **{name: getattr(torch, name) for name in ("from_numpy", "bfloat16", "cat")},
    )
    monkeypatch.setattr(torch_arrays, "load_torch", lambda: stand_in)
    monkeypatch.setattr(torch_arrays, "on_stream", lambda torch, driver, tf32: nullcontext())
    monkeypatch.setattr(torch_arrays, "_device", lambda torch_, x, element: copied(torch, x))
    return torch


def copied(torch: Any, x: Any) -> Any:
    return (
        torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype.name == "bfloat16" else torch.from_numpy(x)
    )


@pytest.mark.each_value
@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("name", ["plus_times", "l2", "bf16", "everything"])
def test_pytorch_reads_the_operands_of_sets(
    name: str, layout: str, torch_on_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = task(name, layout=layout, lda=96, ldb=96)
    driver: Any = StandInDriver(9.0, 4.0, 3.5)
    sets = TaskOperandSets(driver, p, Timing())
    given = []

    def tensor(torch: Any, address: int, shape: tuple[int, ...], element: str) -> Any:
        out = np.empty(shape, dtype(element).numpy)
        driver.download(address, out)
        given.append(shape)
        return copied(torch_on_cpu, out)

    monkeypatch.setattr(torch_arrays, "tensor", tensor)
    forms = len(torch_text.sources(Parts(p)))
    best = torch_arrays.TorchEager(driver, p).best(sets.sets, Timing())
    assert best.best == (9.0, 4.0, 3.5)[forms - 1]
    assert given[:2] == [((70, 48)[layout[0] == "T"], 96), ((48, 90)[layout[1] == "T"], 96)]
    compiled = torch_arrays.TorchCompiled(driver, p)
    assert compiled.slab(1) == p.k
    driver.microseconds = [3.0, 2.0, 1.5]
    assert compiled.best(sets.sets, Timing()).best == (3.0, 2.0, 1.5)[forms - 1]


def test_a_wrong_result_of_pytorch_does_not_count(torch_on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p = task("l2")
    driver: Any = StandInDriver(1.0)
    monkeypatch.setattr(torch_arrays, "tensor", lambda torch, address, shape, element: torch_on_cpu.zeros(shape))
    right = torch_text.sources(Parts(p))
    wrong = {name: text.replace("return [out0]", "return [out0 + 100]") for name, text in right.items()}
    monkeypatch.setattr(torch_arrays, "sources", lambda parts: {**wrong, "cube": right["cube"]})
    sets = TaskOperandSets(driver, p, Timing())
    assert torch_arrays.TorchEager(driver, p).best(sets.sets, Timing()).best == 1.0
    monkeypatch.setattr(torch_arrays, "sources", lambda parts: wrong)
    with pytest.raises(
        LaunchError, match=r"PyTorch does not compute task .*: its result is wrong: .*; cube: its result"
    ):
        torch_arrays.TorchEager(driver, p).best(sets.sets, Timing())


def test_pytorch_may_use_tf32_where_the_task_does() -> None:
    matmul = SimpleNamespace(allow_tf32=True)
    torch: Any = SimpleNamespace(
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul)),
        cuda=SimpleNamespace(ExternalStream=lambda *x: x, stream=lambda stream: nullcontext()),
        no_grad=nullcontext,
    )
    for permitted in (True, False):
        with tensors.on_stream(torch, StandInDriver(), permitted):
            assert matmul.allow_tf32 is permitted
        assert matmul.allow_tf32 is True


def test_slabs_and_rows_fit_memory(torch_on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = StandInDriver()
    assert torch_arrays.TorchEager(driver, task("max_plus", 4096, 4096, 4096)).slab(1 << 24) == 16
    assert torch_arrays.TorchEager(driver, task("max_plus", 64, 64, 100)).slab(1 << 12) == 100
    large = {"m": 1 << 16, "n": 1 << 16, "ldb": 0, "ldc": 0}
    assert torch_arrays.chunk_rows(replace(any_task("rows"), **large)) == 1 << 10
    assert torch_arrays.chunk_rows(replace(any_task("columns"), **large)) == 1 << 16
    few = torch_arrays.TorchEager(driver, replace(any_task("rows"), k=3, lda=0, **large)).forms(
        {"cdist": "", "cube": ""}
    )
    many = torch_arrays.TorchEager(driver, replace(any_task("rows"), **large)).forms({"cdist": "", "cube": ""})
    assert (set(few), set(many)) == ({"cdist", "cube"}, {"cdist"})
    modules = {"cdist": "text", "cube": "text"}
    compiled = [torch_arrays.TorchCompiled(driver, replace(any_task("rows"), k=k, lda=0, **large)) for k in (3, 48)]
    rows_of_cube = [each.forms(modules)["cube"][1] for each in compiled]
    assert rows_of_cube == [1 << 16, 1 << 10]
    assert compiled[0].forms(modules)["cdist"] == ("text", 1 << 10)


@pytest.mark.parametrize("order", [("slow", "quick"), ("quick", "slow")])
@pytest.mark.parametrize("baseline", [torch_arrays.TorchEager, torch_arrays.TorchCompiled])
@pytest.mark.parametrize(("large", "us", "whole"), [(True, 3000.0, False), (True, 2000.0, True), (False, 3000.0, True)])
def test_slow_forms_of_large_problems_compute_few_rows(
    large: bool,
    us: float,
    whole: bool,
    baseline: Any,
    order: tuple[str, ...],
    torch_on_cpu: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A form whose first rows take much longer than those of another form, 10 us, computes no other rows."""
    p, computed = any_task("rows"), list[tuple[str, int]]()
    compute = libraries.module_of(torch_text.sources(Parts(p))["matmul"]).compute

    def run(name: str, *arguments: Any) -> Any:
        if len(arguments) > len(p.roles.uses) + 5:  # a chunk
            computed.append((name, int(arguments[-1])))
        return compute(*arguments)

    def elapsed(launch: Callable[[], object]) -> float:
        launch()
        return us if computed[-1][0] == "slow" else 10.0

    monkeypatch.setattr(torch_arrays, "LARGE", p.m * p.n * p.k if large else p.m * p.n * p.k + 1)
    monkeypatch.setattr(torch_arrays, "chunk_rows", lambda p: 16)
    monkeypatch.setattr(torch_arrays, "tensor", lambda torch, address, shape, element: torch_on_cpu.ones(shape))
    monkeypatch.setattr(torch_arrays, "sources", lambda parts: {name: name for name in order})
    monkeypatch.setattr(torch_arrays, "module_of", lambda name: SimpleNamespace(compute=partial(run, name)))
    for name in ("tensor", "int32"):
        monkeypatch.setattr(torch_arrays.load_torch(), name, getattr(torch_on_cpu, name), raising=False)
    driver: Any = StandInDriver(5.0, 5.0)
    monkeypatch.setattr(driver, "elapsed", elapsed)
    assert baseline(driver, p).best(TaskOperandSets(driver, p, Timing()).sets, Timing()).best == 5.0
    rows = {name: [row for other, row in computed if other == name] for name in order}
    tried = [0, 0] if large else []
    assert rows["quick"] == tried + [0, 16, 32, 48, 64] * 3  # compiled, timed once and more often
    assert rows["slow"][: len(tried)] == tried
    assert (set(rows["slow"]) == {0, 16, 32, 48, 64}) is whole


@pytest.mark.parametrize("name", ["rows", "list where", "logsumexp"])
def test_rows_after_others_have_the_results_of_all(
    name: str, torch_on_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = any_task(name)
    arrays = random_arrays(p, seed=3)
    given = [tensor_of(torch_on_cpu, p, u.role, arrays) for u in p.roles.uses]
    numbers: set[tuple[Any, ...]] = set()  # the arguments for which the compiler would compile

    def compiled(compute: Any, dynamic: bool) -> Any:
        def call(*arguments: Any) -> Any:
            numbers.add(tuple(x for x in arguments if isinstance(x, int)))
            return compute(*arguments)

        return call

    tensors = {name: getattr(torch_on_cpu, name) for name in ("tensor", "int32", "cat")}
    monkeypatch.setattr(torch_arrays, "load_torch", lambda: SimpleNamespace(compile=compiled, **tensors))
    driver: Any = StandInDriver()
    prepared = torch_arrays.TorchCompiled(driver, p).prepared
    for source in torch_text.sources(Parts(p)).values():
        compute = libraries.module_of(source).compute
        arguments = (*given, p.m, p.n, p.k, 7, {})
        for function in (compute, prepared(compute)):
            by_rows = torch_arrays.by_rows(function, p, 16)(*arguments)
            for one, other in zip(compute(*arguments), by_rows, strict=True):
                for x, y in zip(*((z if isinstance(z, tuple) else (z,)) for z in (one, other)), strict=True):
                    np.testing.assert_allclose(host(x), host(y), rtol=1e-6)
    assert numbers == {(rows, p.n, p.k, 7) for rows in (16, p.m % 16) if rows}


# ---- KeOps


class LazyTensor:
    """A stand-in: the whole array of all pairs."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __or__(self, other: Any) -> LazyTensor:
        return LazyTensor((self.x * other.x).sum(-1, keepdim=True))

    def sqdist(self, other: Any) -> LazyTensor:
        return LazyTensor((self.x - other.x).square().sum(-1, keepdim=True))

    def _reduced(self, op: str, axis: int | None, dim: int | None) -> Any:
        if axis is None:
            return getattr(self.x, op)(dim)
        return LazyTensor(getattr(self.x, op)(axis, keepdim=True))

    def sum(self, axis: int | None = None, dim: int | None = None) -> Any:
        return self._reduced("sum", axis, dim)

    def max(self, axis: int | None = None, dim: int | None = None) -> Any:
        return self._reduced("amax", axis, dim)

    def min(self, axis: int | None = None, dim: int | None = None) -> Any:
        return self._reduced("amin", axis, dim)

    def argmin(self, dim: int) -> Any:
        return self.x.argmin(dim)

    def logsumexp(self, dim: int) -> Any:
        return self.x.logsumexp(dim)


def _operator(name: str) -> Any:
    def apply(self: LazyTensor, *others: Any) -> LazyTensor:
        return LazyTensor(getattr(self.x, name)(*(y.x if isinstance(y, LazyTensor) else y for y in others)))

    return apply


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg"):
    setattr(LazyTensor, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("abs", "exp", "relu", "square"):
    setattr(LazyTensor, _name, _operator(_name))


@pytest.fixture
def keops_on_cpu(torch_on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    package = ModuleType("pykeops")
    package.torch = ModuleType("pykeops.torch")  # type: ignore[attr-defined]
    package.torch.LazyTensor = LazyTensor
    package.set_verbose = lambda value: None  # type: ignore[attr-defined]
    package.config = SimpleNamespace(gpu_available=True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pykeops", package)
    monkeypatch.setitem(sys.modules, "pykeops.torch", package.torch)
    monkeypatch.setattr(keops, "load_torch", lambda: torch_on_cpu)
    monkeypatch.setattr(keops, "on_default_stream", lambda torch, driver: nullcontext())
    return torch_on_cpu


KEOPS = {
    **{case.name.partition(" 40")[0]: case.problem.text for case in SUITES["knn_small"].build()},
    **{case.name.partition(" 40")[0]: case.problem.text for case in SUITES["pairwise_small"].build()},
    "weighted": "A:f16[i,k];B:f16[j,k];w:f32[k];u:f32[i];accum:f32;where(i,j){reduce(k){"
    "accum max=abs(f32(A[i,k])-f32(B[j,k]))*w[k];}C[j]mean=fma(u[i],accum,min(u[i],accum))/f32(K);}",
}


@pytest.mark.parametrize("name", [name for name in KEOPS if "33" not in name])
def test_formulas_of_keops_compute_the_program(name: str, keops_on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p = Task(40, 56, 3, dtype="f16" if name == "weighted" else "f32", text=KEOPS[name])
    driver: Any = StandInDriver()
    monkeypatch.setattr(torch_arrays, "tensor", partial(tensor_in, keops_on_cpu, driver))
    sets = TaskOperandSets(driver, p, Timing())
    baseline = keops.Keops(driver, p)
    if name.startswith("range"):
        with pytest.raises(LaunchError, match=r"KeOps does not compute .* the task has another output"):
            baseline.best(sets.sets, Timing())
        return
    assert baseline.best(sets.sets, Timing()).best > 0
    products, others = ("fast", "cosine"), ("l1", "weighted")
    form = "dot product" if name.endswith(products) else "formula" if name.endswith(others) else "sqdist"
    assert list(keops.sources(Parts(p))) == [form]


def tensor_in(torch_on_cpu: Any, driver: Any, torch: Any, address: int, shape: tuple[int, ...], element: str) -> Any:
    out = np.empty(shape, dtype(element).numpy)
    driver.download(address, out)
    return copied(torch_on_cpu, out)


def test_keops_without_cuda_is_no_baseline(keops_on_cpu: Any) -> None:
    keops.load_keops.cache_clear()
    sys.modules["pykeops"].config.gpu_available = False
    with pytest.raises(UnavailableError, match=r"KeOps was imported without CUDA; LD_LIBRARY_PATH must have"):
        keops.load_keops()


def test_what_keops_lacks_is_told() -> None:
    def refused(body: str, message: str) -> None:
        text = f"where (i, j) {{ reduce (k) {{ {body} }}"
        program = parse(text, dict.fromkeys((x for x in "PRW" if f"{x}[" in text), "f32"))
        with pytest.raises(LaunchError, match=message):
            keops.sources(Parts(Task(8, 8, 8, text=canonical(program))))

    refused("accum += P[i,k] * R[k,j]; } C[i,j] = accum;", "another output")
    refused("accum *= P[i,k] * R[k,j]; } C[i] += accum;", "the reductions are")
    refused("accum += P[i,k] * R[k,j]; } C[i] += accum * W[i,j];", r"an array at \[i,j\]")
    refused("accum += P[i,k] * R[k,j] * f32(k); } C[i] += accum;", "reads the index k")
    refused("accum += P[i,k] * R[k,j]; } C[i] += accum > 1 ? accum : 2;", "the task has")


# ---- commands and rules


def test_what_cannot_be_timed_is_refused() -> None:
    driver: Any = StandInDriver()
    kinds = (*OF_TILES.values(), cuda_staged.CudaStaged, torch_arrays.TorchEager)
    for baseline in kinds:
        with pytest.raises(ShapeError, match="an extent is 0, which is not timed"):
            baseline(driver, task("max_plus", m=0))
    for baseline in kinds[:3]:
        with pytest.raises(LaunchError, match="stores one matrix, all of its elements; the task has another output"):
            baseline(driver, any_task("groups"))
        with pytest.raises(LaunchError, match="batch is 2; the kernel has one item"):
            baseline(driver, replace(task("max_plus"), batch=2))
    for name, message in {"columns": "reduces rows", "rows where": "all results of a row", "groups": "rows"}.items():
        with pytest.raises(LaunchError, match=rf"Triton does not compute .*{message}"):
            triton_rows.TritonRows(driver, any_task(name))


def test_baselines_have_names_and_missing_libraries_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    baselines = operation_named("task").baselines
    assert list(baselines) == ["torch", "compile", "triton", "gluon", "cuda", "keops"]
    for cached in (vendor_libraries.load_torch, libraries.load_triton, libraries.load_gluon, cuda_staged.find_nvcc):
        cached.cache_clear()
    monkeypatch.setattr(cuda_staged.shutil, "which", lambda name: None)
    monkeypatch.setattr(cuda_staged.Path, "is_file", lambda path: False)
    with pytest.raises(UnavailableError, match="nvcc is not on PATH; install the CUDA toolkit"):
        baselines["cuda"].require()
    cuda_staged.find_nvcc.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("torch", "compile", "triton", "gluon"):
        with pytest.raises(UnavailableError, match="PyTorch cannot be imported"):
            baselines[name].require()
    vendor_libraries.load_torch.cache_clear()
    monkeypatch.setattr(keops, "load_torch", lambda: None)
    monkeypatch.setitem(sys.modules, "pykeops", None)
    keops.load_keops.cache_clear()
    with pytest.raises(UnavailableError, match=r"KeOps cannot be imported .* install pykeops; it compiles with g\+\+"):
        baselines["keops"].require()


def test_bench_names_the_baselines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    words = ["bench", "task", "--suite", "small", "--device", "emulated", "--baseline"]
    assert command.run([*words, "gluon"])
    assert "baseline is 'gluon'; the vendor's library needs an NVIDIA GPU" in capsys.readouterr().err
    assert command.run([*words, "cublas"])
    assert "for task it must be torch or compile or triton or gluon or cuda" in capsys.readouterr().err
