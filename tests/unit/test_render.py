"""The emitted text: what a template may write, and properties of every kernel."""

from __future__ import annotations

import errno
import multiprocessing
import os
import platform
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen import render as render_module
from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.codegen.render import emitted, header, lookup, render, tidy
from ptxgen.errors import RenderError
from ptxgen.families.common.fma.mainloop import ThreadTile
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from tests.cases import SOURCES
from tests.golden.test_golden import GOLDEN
from tests.lowered import first_violation

EACH = 2  #: random kernels of each source and device
SPLITS = [
    ("h200", parse("gemm 512,512,512 TN f32"), parse_config(f"kg=4 splitk={split} vec_c=4 kl={kl}"))
    for split in ("memset_red", "flag_red", "workspace")
    for kl in (1, 2)
]
COUNT = 6 * EACH + len(SPLITS)


@cache
def kernels() -> list[tuple[str, Gemm, Config]]:
    pairs = [
        (name, p, c)
        for n, name in enumerate(("h200", "t4", "rtx4090"))
        for source, seed in (("simt", 30), ("simt_wide", 40))
        for p, c in SOURCES[source].cases(seed + n, EACH, device(name))
    ]
    assert len(pairs) + len(SPLITS) == COUNT
    return pairs + SPLITS


@cache
def text(n: int) -> str:
    where, p, c = kernels()[n]
    return render(plan_for(p, c, device(where))).text


def code(n: int) -> list[str]:
    """Lines without comments."""
    return [line for line in (re.sub(r"//.*", "", x).strip() for x in text(n).splitlines()) if line]


every = pytest.mark.parametrize("n", range(COUNT))


WITHOUT_PYGMENTS = """
import sys
from ptxgen.codegen.render import PYGMENTS, lookup
lookup("anywhere")
assert "mako.lookup" in sys.modules and not any(name.startswith("pygments") for name in sys.modules)
assert PYGMENTS not in sys.modules
import mako.ext.pygmentplugin
"""


def test_rendering_does_not_import_pygments():
    subprocess.run([sys.executable, "-c", WITHOUT_PYGMENTS], timeout=60, check=True)


def test_expressions_may_be_text_and_integers_only():
    assert emitted("x") == "x"
    assert emitted(5) == "5"
    for value in (None, True, False, 1.0, [1], np.int64(5), np.float32(1), b"x"):
        with pytest.raises(TypeError, match="text and integers only"):
            emitted(value)


@pytest.mark.parametrize("value", [None, True, 0.5, np.int64(4)])
def test_none_is_an_error_with_template_and_line(value, monkeypatch):
    plan = plan_for(Gemm(64, 64, 64), Config(), device("h200"))
    monkeypatch.setattr(type(plan.mainloop), "stage_bytes", value)
    with pytest.raises(RenderError) as caught:
        render(plan)
    words = str(caught.value)
    assert "gemm 64,64,64 NN f32" in words
    assert "ms=8 ns=8" in words
    if value is None or isinstance(value, bool | np.int64):
        assert re.search(r"text and integers only|unsupported operand", words)
    assert re.search(r'File ".*\.mako", line \d+', words), words


def test_missing_attribute_is_an_error_with_template(monkeypatch):
    plan = plan_for(Gemm(64, 64, 64), Config(), device("h200"))
    monkeypatch.delattr(ThreadTile, "products")
    with pytest.raises(RenderError, match=r"(?s)products.*math/fma\.mako") as caught:
        render(plan)
    assert isinstance(caught.value.__cause__, AttributeError)


def test_register_out_of_range_is_an_error_with_template():
    plan = plan_for(Gemm(64, 64, 64), Config(), device("h200"))
    plan.mainloop.products.append((8, 0))
    with pytest.raises(RenderError, match=r"(?s)outside its shape.*fma\.mako"):
        render(plan)


@every
def test_no_python_value_in_the_text(n):
    for line in code(n):
        if line.startswith(".version"):
            continue
        assert not re.search(
            r"\b(None|True|False|nan|inf|Undefined|object)\b|\d\.\d|\d\.\B|\b\de[+-]?\d|'|\(\)", line
        ), line
        assert "${" not in line
        assert not line.startswith(("%", "##"))


@every
def test_no_time_host_or_path_in_the_text(n):
    here = text(n)
    for word in (platform.node(), str(Path.home()), str(Path.cwd()), os.environ.get("USER", "\0"), "/tmp", "mako"):
        assert not word or word not in here
    assert not re.search(r"\b20\d\d-\d\d|\d\d:\d\d", here)


def scopes(lines: list[str]) -> list[tuple[int, ...]]:
    """The chain of open braces around each line; operand lists close theirs on the line."""
    out, open_, count = [], [], 0
    for line in lines:
        bare = re.sub(r"\{[^{}]*\}", "", line)
        for brace in re.findall(r"[{}]", bare):
            if brace == "{":
                count += 1
                open_.append(count)
            else:
                open_.pop()
        out.append(tuple(open_))
    assert not open_
    return out


@every
def test_labels_and_registers_are_declared_once_in_scope(n):
    lines = code(n)
    where = scopes(lines)
    labels: dict[tuple[tuple[int, ...], str], int] = {}
    declared: set[tuple[tuple[int, ...], str]] = set()
    for at, (line, scope) in enumerate(zip(lines, where, strict=True)):
        if match := re.fullmatch(r"([A-Z]\w*):", line):
            assert (scope, match[1]) not in labels
            labels[scope, match[1]] = at
        for kinds, names in re.findall(r"\.reg \.(\w+) ([^;]+);", line):
            assert kinds in ("pred", "b16", "b32", "b64", "f32", "f64"), line
            for name in names.split(","):
                key = scope, re.sub(r"<\d+>", "", name.strip())
                assert key not in declared, line
                declared.add(key)
    for line, scope in zip(lines, where, strict=True):
        if match := re.search(r"\bbra(?:\.uni)? (\w+);", line):
            assert any((scope[:depth], match[1]) in labels for depth in range(len(scope) + 1)), line
        for register in set(re.findall(r"%(?!tid|ctaid|nctaid)\w+", re.sub(r"\.reg [^;]+;", "", line))):
            base = re.sub(r"\d+$", "", register)
            assert any(
                (scope[:depth], name) in declared for depth in range(len(scope) + 1) for name in (register, base)
            ), line


@every
def test_no_branch_around_a_single_access(n):
    """Bounds checks are predicates: a divergent branch skips no access or several. A packing kernel skips the shift of a
    chunk, and its store."""
    entries = "\n".join(code(n)).split(".visible .entry ")
    lines = [line for entry in entries if "_pack(" not in entry.split("\n")[0] for line in entry.split("\n")]
    target = {m[1]: at for at, line in enumerate(lines) if (m := re.fullmatch(r"([A-Z]\w*):", line))}
    for at, line in enumerate(lines):
        match = re.match(r"@!?%\w+ bra (\w+);", line)
        if match and target[match[1]] > at:
            skipped = lines[at + 1 : target[match[1]]]
            accesses = [x for x in skipped if re.match(r"(@!?%\w+ )?(ld|st|red|atom|cp)\.(?!param)", x)]
            assert len(accesses) != 1, skipped


@every
def test_checked_kernels_guard_every_store_of_c(n):
    c = kernels()[n][2]
    main = "\n".join(code(n)).split(".visible .entry")[1]
    stores = re.findall(r"^.*\b(?:st|red)\.global\S*.*$", main, re.M)
    assert stores
    for line in stores:
        if c.bounds != 0:
            assert line.startswith("@%"), line


@every
def test_header_of_a_module(n):
    where, p, c = kernels()[n]
    plan = plan_for(p, c, device(where))
    source = render(plan)
    lines = source.text.splitlines()
    assert lines[0].startswith(f"// gemm: C = alpha A B + beta C, layout {p.layout}")
    assert f"// config   {c}" in lines
    assert f"// again    {plan.command}" in lines
    assert f".target sm_{device(where).sm}" in lines
    assert source.entries[0] == plan.entry
    assert source.entries == tuple(re.findall(r"\.entry (\w+)", source.text))
    assert f"{plan.shared} bytes of dynamic shared memory" in source.text
    assert f"// version  ptxgen {ptxgen.__version__}" in lines
    assert not any(line.startswith("// choice") for line in lines)
    chosen = render(plan, "shipped, 2.50 µs measured")
    assert chosen.text.splitlines()[lines.index(f"// config   {c}") + 1] == "// choice   shipped, 2.50 µs measured"
    assert chosen.digest == source.digest
    for tile, _ in plan.register_table:
        assert f"%{tile.name}<{tile.size}> .{tile.ptx_type}" in source.text.partition(".version")[0]
        assert tile.declaration in source.text
    assert all(line == line.rstrip() for line in lines)
    assert source.text.endswith("\n")
    assert "\n\n\n" not in source.text
    assert len(header(plan)) > 5


@pytest.mark.parametrize("name", GOLDEN)
def test_header_explains_every_parameter(name):
    where, problem, config = GOLDEN[name]
    text = render(plan_for(parse(problem), parse_config(config), device(where))).text
    head, _, kernel = text.partition(".version")
    table = head.partition("// parameters\n")[2].partition("// again")[0].splitlines()
    meanings = {
        name: meaning
        for line in table
        for names, _, meaning in [line[2:].strip().partition(": ")]
        for name in names.split(", ")
    }
    declared = re.search(r"\.entry \w+\((.*?)\n\)", kernel, re.S)[1]
    assert list(meanings) == re.findall(r"\.param (?:\.align \d+ )?\.\w+ (\w+)", declared)
    assert all(meanings.values())


@pytest.mark.parametrize("name", [name for name, row in GOLDEN.items() if row[1].startswith("gemm")])
def test_header_states_preconditions_that_the_problem_fulfils(name):
    """And no stricter ones: with half the alignment the configuration breaks a rule, or gives another kernel."""
    where, problem, config = GOLDEN[name]
    p, c, d = parse(problem), parse_config(config), device(where)
    source = render(plan_for(p, c, d))
    [line] = [line for line in source.text.splitlines() if line.startswith("// requires ")]
    needed = [int(n) for n in re.search(r"of A, B, C in multiples of (\d+), (\d+), (\d+) bytes", line).groups()]
    rows = (re.search("lengths of rows of (.*) likewise", line) or [""] * 2)[1].split(", ")
    sizes = p.element.bytes, p.element.bytes, p.output.bytes
    stored = (p.aligned_a, p.lda, p.columns_a), (p.aligned_b, p.ldb, p.columns_b), (p.aligned_c, p.ldc, p.n)
    for operand, need, size, (start, ld, columns) in zip("abc", needed, sizes, stored, strict=True):
        assert start % need == ld * size % need == 0
        assert operand.upper() not in rows or columns * size % need == 0
        if need > size and where != "emulated":
            weaker = replace(p, **{f"aligned_{operand}": need // 2})
            other = first_violation(lower(weaker), c, d) or render(plan_for(weaker, c, d)).digest != source.digest
            assert other, f"{operand} may be aligned to {need // 2}"


@pytest.mark.parametrize(
    ("v", "words"),
    [
        (
            Conv(2, 8, 9, 9, 8, 3, 3),
            "A is filters, B images, C results; M counts filters (K), N results (N P Q), K channels and taps (C R S)",
        ),
        (
            Conv(2, 8, 9, 9, 8, 3, 3, layout="NHWC"),
            "A is images, B filters, C results; M counts results (N P Q), N filters",
        ),
        (
            Conv(2, 8, 9, 9, 8, 3, 3, layout="NHWC", direction="input_grad"),
            "A is gradients of results, B filters, C input gradients; M counts pixels of images (N H W), N channels",
        ),
        (
            Conv(2, 8, 9, 9, 8, 3, 3, d=4, t=2, direction="weight_grad"),
            "A is gradients of results, B images, C weight gradients; M counts filters (K), N channels and taps"
            " (C T R S), K results (N Z P Q)",
        ),
    ],
)
def test_header_of_a_convolution(v, words):
    first, second = render(plan_for(v, Config(vec_c=1, cp_async_a=0), device("h200"))).text.splitlines()[:2]
    assert first.startswith(f"// conv {v.direction}: images {v.layout}, filters {v.filters}, f32")
    assert words in second


def test_rendering_is_repeatable():
    for where, p, c in kernels()[::9]:
        plan = plan_for(p, c, device(where))
        assert render(plan).text == render(plan).text == render(plan_for(p, c, device(where))).text


def test_blank_lines_precede_phases_only():
    plain = ".version 8.1\n\n\n  x  \n    // ---- phase\n// C = beta C\n.visible .entry k()\n"
    assert tidy(plain) == ".version 8.1\n  x\n\n    // ---- phase\n\n// C = beta C\n.visible .entry k()\n"


def test_undefined_name_is_an_error(tmp_path):
    """Mako would print ``Undefined``, or nothing."""
    (tmp_path / "x.mako").write_text("mov.u32 %r0, ${nobody};\n% if nothing:\n% endif\n")
    with pytest.raises(NameError, match=r"nobody|nothing"):
        lookup(str(tmp_path)).get_template("x.mako").render()
    (tmp_path / "y.mako").write_text("mov.u32 %r0, ${number};\n")
    made = lookup(str(tmp_path)).get_template("y.mako")
    assert made.render(number=5) == "mov.u32 %r0, 5;\n"
    with pytest.raises(TypeError, match="text and integers only"):
        made.render(number=None)


# ---- the disk cache of compiled templates


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The folder of compiled templates of a new cache. No template is loaded."""
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    lookup.cache_clear()
    yield tmp_path / "cache" / "compiled_templates"
    lookup.cache_clear()


@pytest.fixture
def written(monkeypatch):
    """The paths of compiled templates that are written."""
    paths: list[str] = []
    write = render_module._write_compiled
    monkeypatch.setattr(
        render_module, "_write_compiled", lambda source, path: (paths.append(path), write(source, path))
    )
    return paths


def one_kernel():
    return render(plan_for(Gemm(64, 64, 64), Config(), device("h200"))).text


def test_another_process_does_not_compile_templates(folder, written):
    text = one_kernel()
    assert sorted(written) == sorted(str(path) for path in folder.glob("*.pyc"))
    assert len(written) > 5
    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())} == {0}
    count = len(written)
    lookup.cache_clear()
    assert one_kernel() == text
    assert len(written) == count


@pytest.mark.parametrize("damage", ["empty", "cut", "other"])
def test_damaged_compiled_templates_are_replaced(damage, folder, written):
    text = one_kernel()
    count = len(written)
    for path in folder.iterdir():
        code = path.read_bytes()
        path.write_bytes({"empty": b"", "cut": code[: len(code) // 2], "other": b"x" * len(code)}[damage])
    lookup.cache_clear()
    assert one_kernel() == text
    lookup.cache_clear()
    assert one_kernel() == text
    assert len(written) == 2 * count
    lookup.cache_clear()
    assert one_kernel() == text
    assert len(written) == 2 * count


def test_edited_template_is_compiled_again(folder, tmp_path):
    template = tmp_path / "x.mako"
    for text in ("one", "two", "one"):
        template.write_text(text)
        os.utime(template, (1, 1))  # the time of the file does not count
        lookup.cache_clear()
        assert lookup(str(tmp_path)).get_template("x.mako").render() == text
    assert len(list(folder.glob("*.pyc"))) == 2


def test_compiled_templates_that_others_can_write_are_not_used(folder, written):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert one_kernel()
    assert written == list(folder.iterdir()) == []


@pytest.mark.parametrize("problem", ["file", "full"])
def test_cache_without_space_is_no_error(problem, folder, monkeypatch):
    text = one_kernel()
    lookup.cache_clear()
    if problem == "file":
        monkeypatch.setenv("PTXGEN_CACHE", __file__)
    else:
        for path in folder.iterdir():
            path.unlink()

        def full(source: bytes, path: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(render_module, "_write_compiled", full)
    assert one_kernel() == text
    assert list(folder.glob("*.pyc")) == [] or problem == "file"


def test_processes_may_compile_templates_at_the_same_time(folder):
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        texts = pool.starmap(one_kernel, [()] * 4, chunksize=1)
    assert len(set(texts)) == 1
    assert {path.suffix for path in folder.iterdir()} == {".py", ".pyc"}
