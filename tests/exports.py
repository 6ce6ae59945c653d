"""Builds exported libraries with a CUDA driver that records calls, and compares the calls with those of Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns
from ptxgen.codegen.render import render
from ptxgen.codegen.source import Launch, Source, Step, TensorMap
from ptxgen.cuda_abi import MAP_BYTES, MAP_SWIZZLES, MAP_TYPES
from ptxgen.export.general import FIELDS
from ptxgen.export.library import ExportedKernel, Library, key_of
from ptxgen.export.operations import CLASS_FIELDS, COperation, exported, in_c
from ptxgen.families.common import rules
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.problem.registry import Problem
from ptxgen.runtime.emulated import EmulatedDriver

STUB = Path(__file__).parent / "data" / "stub_cuda.c"
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

ADDRESSES = {"A": 0x10_0000_0000, "B": 0x20_0000_0000, "C": 0x30_0000_0000, "W": 0x40_0000_0000}
#: of the arrays of the epilogue, one after the other
OTHERS = 0x50_0000_0000
#: by member of ptxgen_operands
ARRAYS = ("scale_a", "scale_b", "bias", "residual", "aux", "indptr", "indices")
STREAM = 77

RUNNER = """
#include "ptxgen_kernels.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{{
    ptxgen_library *library = NULL;
    char name[32];
    int64_t v[32];
    int status = ptxgen_create(arguments[1], &library);
    printf("{{\\"create\\": %d, \\"result\\": %d}}\\n", status, ptxgen_driver_result());
    while (!status && scanf("%31s", name) == 1) {{
        ptxgen_operands o = {{0}};
        uint64_t at[11];
        size_t bytes = 0;
        int fields = 0, given = 0, zero = 0;
        if (scanf("%d", &fields) != 1 || fields > 32)
            return 2;
        for (int i = 0; i < fields; i++)
            given += scanf("%" SCNd64, &v[i]);
        for (int i = 0; i < 11; i++)
            given += scanf("%" SCNu64, &at[i]);
        given += scanf("%zu %d %lf %lf", &o.workspace_bytes, &zero, &o.alpha, &o.beta);
        if (given != fields + 15)
            return 2;
        o.a = (void *)at[0], o.b = (void *)at[1], o.c = (void *)at[2], o.workspace = (void *)at[3];
        o.scale_a = (void *)at[4], o.scale_b = (void *)at[5], o.bias = (void *)at[6], o.residual = (void *)at[7];
        o.aux = (void *)at[8], o.indptr = (void *)at[9], o.indices = (void *)at[10];
        o.workspace_is_zero = zero;
        int query = -1, call = -1;
{cases}
        printf("{{\\"call\\": %d, \\"query\\": %d, \\"bytes\\": %zu}}\\n", call, query, bytes);
    }}
    ptxgen_destroy(library);
    return count != 2;
}}
"""
CASE = """        if (!strcmp(name, "{name}")) {{
            ptxgen_{name}_problem p;
            memset(&p, 0, sizeof p);
            {fields}
            query = ptxgen_{name}_workspace(library, &p, &o, &bytes);
            call = ptxgen_{name}(library, (struct CUstream_st *){stream}, &p, &o);
        }}"""


@dataclass
class Call:
    """What a call of the C library did: the status of the call and of the query, the bytes of workspace that the query
    returned, and the calls of the driver."""

    status: int
    query: int
    bytes: int
    driver: list[dict[str, Any]] = field(default_factory=list)


def compiler() -> str | None:
    return shutil.which("gcc")


def build(folder: Path, *, flags: Sequence[str] = SANITIZED) -> Path:
    """Compiles the library in ``folder`` with a program that calls it, and the recording driver. Returns the program."""
    cases = [
        CASE.format(
            name=o.form.name,
            stream=STREAM,
            fields=" ".join(f"p.{f.name} = ({f.c_type})v[{i}];" for i, f in enumerate(o.fields)),
        )
        for o in map(in_c, exported())
    ]
    (folder / "runner.c").write_text(RUNNER.format(cases="\n".join(cases)))
    build_stub(folder)
    program = folder / "runner"
    sources = [str(folder / "runner.c"), str(folder / "ptxgen_kernels.c")]
    command = [str(compiler()), *WARNINGS, *flags, "-ffp-contract=off", f"-I{folder}", *sources, "-o", str(program)]
    subprocess.run([*command, "-ldl", "-lm"], check=True)
    return program


def build_stub(folder: Path) -> None:
    """Compiles the recording driver to ``libcuda.so.1`` in ``folder``."""
    command = [str(compiler()), "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", str(STUB)]
    subprocess.run([*command, "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")], check=True)


def request(
    problem: Problem, *, workspace: int = 1 << 40, zero: bool = False, alpha: float = 2.0, **addresses: int
) -> str:
    """A line for the program: a call of ``problem``. ``addresses``: of A, B, C, W, where they are not ADDRESSES."""
    at = {**ADDRESSES, **addresses}
    others = [OTHERS + i * (1 << 32) for i in range(len(ARRAYS))]
    numbers = [*key_of(problem), at["A"], at["B"], at["C"], at["W"], *others, workspace, int(zero), alpha, 3.0]
    count = len(in_c(problem.operation).fields)
    return f"{in_c(problem.operation).form.name} {count} {' '.join(map(str, numbers))}"


def run(program: Path, requests: Iterable[str], **environment: str) -> tuple[dict[str, Any], list[Call]]:
    """What the library does for each request. AssertionError: a sanitizer found an error.

    Returns the result of creating the library, with the address of the offset tables, and its calls.
    """
    done = subprocess.run(
        [program, program.parent],
        input="\n".join(requests),
        env={**os.environ, "LD_LIBRARY_PATH": str(program.parent), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    created: dict[str, Any] = {}
    out: list[Call] = []
    driver: list[dict[str, Any]] = []
    for line in lines:
        if "create" in line or "upload" in line:
            created |= line
        elif "call" in line:
            out.append(Call(line["call"], line["query"], line["bytes"], driver))
            driver = []
        else:
            driver.append(line)
    return created, out


def expected(
    library: Library,
    launch: Launch,
    dependent: Sequence[str],
    *,
    swapped: bool = False,
    tables: int = 0,
    alpha: int = 2,
    beta: int = 3,
    stream: int = STREAM,
    **addresses: float,
) -> list[dict[str, Any]]:
    """The calls of the driver by which Python's launch path computes ``launch`` on the addresses of ``request``, the
    workspace not zero. ``addresses``: others, and numbers. ``tables``: address of the offset tables. Tensor maps are bytes of zero, as the recording driver
    encodes them."""
    at: dict[str, Any] = {**ADDRESSES, **addresses, "alpha": alpha, "beta": beta}
    if swapped:
        at["A"], at["B"] = at["B"], at["A"]
    at |= {name: OTHERS + i * (1 << 32) for i, name in enumerate(ARRAYS)}
    at["values"] = at["A"]
    out: list[dict[str, Any]] = []
    if launch.workspace and launch.zeroed:
        out.append({"memset": at["W"], "byte": 0, "bytes": launch.workspace, "stream": stream})
    for step in launch.steps:
        if not step.entry:
            array = at[str(step.arguments[0][1])]
            out.append({"memset": array, "byte": 0, "bytes": step.grid[0], "stream": stream})
            continue
        step = step.with_table_addresses(lambda table: tables + library.tables.offsets[table])
        maps: list[dict[str, Any]] = []
        tail = step.pack_maps(lambda m, address, maps=maps: maps.append(_map(m, address)) or bytes(MAP_BYTES), at)
        out += maps
        out.append(
            {
                "launch": step.entry,
                "stream": stream,
                "shared": step.shared,
                "grid": list(step.grid),
                "block": list(step.block),
                "dependent": int(step.entry in dependent),
                "parameters": (step.pack(at) + tail).hex(),
            }
        )
    return out


def _map(m: TensorMap, address: int) -> dict[str, Any]:
    out: dict[str, Any] = {
        "map": MAP_TYPES[m.dtype],
        "address": address,
        "extents": list(m.extents),
        "pitches": list(m.pitches),
        "box": list(m.box),
        "steps": [1] * len(m.extents),
    }
    if m.pixel_box is not None:
        out |= {
            "steps": [1, *m.pixel_box.strides, 1],
            "lower": list(m.pixel_box.lower),
            "upper": list(m.pixel_box.upper),
        }
    return {**out, "modes": [0, MAP_SWIZZLES[m.swizzle], 2, 0]}


def kernel_files(folder: Path) -> list[str]:
    """The kernel files of a library, in the order of its modules."""
    return [m["file"] for m in json.loads((folder / "manifest.json").read_text())["modules"]]


def random_shapes(problem: Any, count: int, seed: int) -> list[Any]:
    """Random problems of the class of a GEMM: extents from 1 to 20,000, leading dimensions and alignments, many of them
    of the exported problem."""
    random = np.random.default_rng(seed)
    out: list[Any] = []
    size = problem.element.bytes
    while len(out) < count:
        m, n, k = (int(2 ** random.uniform(0, limit)) for limit in (14.3, 14.3, 14.3))
        grain = int(random.choice([1, 8, 8, 64]))
        m, n, k = (-(-x // grain) * grain for x in (m, n, k))
        changed = replace(problem, m=m, n=n, k=k, lda=0, ldb=0, ldc=0)
        gaps = [int(random.choice([0] * 9 + [1, 8, 8])) for _ in range(3)]
        aligned = [int(random.choice([problem.aligned_a] * 9 + [max(size, 4)])) for _ in range(2)]
        out.append(
            replace(
                changed,
                lda=changed.lda + gaps[0],
                ldb=changed.ldb + gaps[1],
                ldc=changed.ldc + gaps[2],
                aligned_a=aligned[0],
                aligned_b=aligned[1],
            )
        )
    return out


def addresses(problem: Any) -> dict[str, int]:
    """Addresses of A, B and C with exactly the alignments of a GEMM."""
    aligned = {"A": problem.aligned_a, "B": problem.aligned_b, "C": problem.aligned_c}
    return {name: ADDRESSES[name] + (n if n < 16 else 0) for name, n in aligned.items()}


def chosen(library: Library, problem: Any) -> tuple[ExportedKernel, Launch] | None:
    """Python's choice among the exported kernels: of those that are legal for the problem and whose code is the same,
    and of whose problem the same numbers are 1, the one that the model predicts to be fastest, and its launches."""
    lowered, kinds, device = lower(problem), len(CLASS_FIELDS), library.device
    legal = [
        kernel
        for kernel in library.kernels
        if key_of(kernel.problem)[:kinds] == key_of(problem)[:kinds]
        and all((getattr(problem, n) == 1) == (getattr(kernel.problem, n) == 1) for n in FIELDS)
        and rules.first_violation(lowered, kernel.general.config, device) is None
        and render(plan_for(problem, kernel.general.config, device)).digest == kernel.module.source.digest
    ]
    if not legal:
        return None
    us = library.model.predict(problem, Columns.of([kernel.general.config for kernel in legal]))
    best = legal[int(np.argmin(us))]
    return best, plan_for(problem, best.general.config, device).launch(lowered)


def empty_sum(library: Library, kernel: ExportedKernel, problem: Any) -> tuple[Launch, Sequence[str]]:
    """The launch that computes a GEMM of the class of ``kernel`` if alpha is 0, and the entries of its module that may
    start early."""
    known = next(p.empty for p in library.problems if p.kernel is kernel)
    empty = in_c(problem.operation).form.without_sum(problem)
    plan = plan_for(empty, known.config, library.device)
    assert render(plan).digest == known.module.source.digest
    return plan.launch(lower(empty)), known.module.source.pdl_entries


# ---- tasks: their calls are executed on the emulated device

TASK_RUNNER = """
#include "ptxgen_kernels.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{{
    ptxgen_library *library = NULL;
    char name[64];
    int status = ptxgen_create(arguments[1], &library);
    printf("{{\\"create\\": %d, \\"result\\": %d}}\\n", status, ptxgen_driver_result());
    while (!status && scanf("%63s", name) == 1) {{
        int query = -1, call = -1;
        size_t bytes = 0;
        double v[32];
        int given = 0;
        if (scanf("%d", &given) != 1 || given > 32)
            return 2;
        for (int i = 0; i < given; i++)
            if (scanf("%lf", &v[i]) != 1)
                return 2;
{cases}
        printf("{{\\"call\\": %d, \\"query\\": %d, \\"bytes\\": %zu}}\\n", call, query, bytes);
    }}
    ptxgen_destroy(library);
    return count != 2;
}}
"""
TASK_CASE = """        if (!strcmp(name, "{name}")) {{
            ptxgen_{name}_problem p = {{0}};
            ptxgen_{name}_operands o = {{0}};
            {fields}
            query = ptxgen_{name}_workspace(library, &p, &o, &bytes);
            call = ptxgen_{name}(library, NULL, &p, &o);
        }}"""


def build_tasks(library: Library, folder: Path, *, flags: Sequence[str] = SANITIZED) -> Path:
    """As ``build``, with a program that calls tasks. Requests are those of ``task_request``."""
    cases = []
    for of in library.tasks:
        lines = [f"p.{f.name} = ({f.c_type})v[{i}];" for i, f in enumerate(of.fields)]
        for i, x in enumerate(of.arguments, len(of.fields)):
            value = f"(void *)(uintptr_t)v[{i}]" if x.c_type.endswith("*") else f"({x.c_type})v[{i}]"
            lines.append(f"o.{x.name} = {value};")
        cases.append(TASK_CASE.format(name=of.form.name, fields=" ".join(lines)))
    (folder / "runner.c").write_text(TASK_RUNNER.format(cases="\n".join(cases)))
    build_stub(folder)
    program = folder / "runner"
    sources = [str(folder / "runner.c"), str(folder / "ptxgen_kernels.c")]
    command = [str(compiler()), *WARNINGS, *flags, "-ffp-contract=off", f"-I{folder}", *sources, "-o", str(program)]
    subprocess.run([*command, "-ldl", "-lm"], check=True)
    return program


def task_request(of: COperation, fields: Sequence[int], **operands: float) -> str:
    """A line for the program: a call of a task. ``fields``: of its problem, ``operands``: by member; others are 0."""
    values = [*fields, *(operands.get(x.name, 0) for x in of.arguments)]
    assert operands.keys() <= {x.name for x in of.arguments}
    return f"{of.form.name} {len(values)} {' '.join(map(str, values))}"


def execute(driver: EmulatedDriver, sources: Sequence[Source], calls: Iterable[dict[str, Any]]) -> None:
    """Executes recorded calls of the driver, whose kernels are those of ``sources``."""
    kernels = {entry: kernel for source in sources for kernel in [driver.load(source)] for entry in source.entries}
    for line in calls:
        if "memset" in line:
            driver.fill(line["memset"], line["bytes"], line["byte"])
        else:
            x, y, z = line["grid"]
            a, b, c = line["block"]
            step = Step(line["launch"], (x, y, z), (a, b, c), line["shared"])
            driver.launch(kernels[step.entry], step, bytes.fromhex(line["parameters"]))
