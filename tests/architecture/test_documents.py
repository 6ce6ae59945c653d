"""Documents agree with the code: tables, versions, every example of the README and the guide."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import ptxgen
from ptxgen import settings
from ptxgen.cli import command, doctor
from ptxgen.codegen.config.config import AXIS, axes_of, family_names
from ptxgen.families.common import space
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.operations.spmm.patterns import described_forms
from ptxgen.problem.base import COMPUTE_MODES, OUT_DTYPES
from ptxgen.problem.device import DEVICES, Device, device
from ptxgen.problem.epilogue_ops import ACTIVATION, EPILOGUE_OPS, NUMBERED_OPS, PLACES
from ptxgen.problem.operation import operations
from ptxgen.tuning.choice.models import model_for

from . import ptx_forms
from .source import PACKAGE, REFERENCE, ROOT, fenced, modules, own_imports, table

README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
PTX = ROOT / "docs" / "ptx.md"
GLOSSARY, EXTENDING = ROOT / "docs" / "glossary.md", ROOT / "docs" / "extending.md"


def axes() -> list[list[str]]:
    """A row for each axis; families that have the same axis share the row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    families, order = family_names(), {name: n for n, name in enumerate(AXIS)}
    for family in families:
        for a in axes_of(family):
            values = " ".join(a.text(v) for v in a.values)
            cells = (f"`{a.name}`", a.symbol, a.text(a.default), values, "yes" if a.refined else "", a.meaning)
            rows.setdefault(cells, []).append(f"`{family}`")
    ordered = sorted(rows.items(), key=lambda row: order[row[0][0].strip("`")])
    return [[name, " ".join(having), *rest] for (name, *rest), having in ordered]


def variables() -> list[list[str]]:
    return [[f"`{name}`", default, meaning] for name, default, meaning in settings.docs()]


def types() -> list[list[str]]:
    return [
        [f"`{name}`", *(", ".join(f"`{v}`" for v in t[name]) for t in (COMPUTE_MODES, OUT_DTYPES))]
        for name in COMPUTE_MODES
    ]


def epilogue_operations() -> list[list[str]]:
    """In the order of execution."""
    rows: list[list[str]] = []
    for place in PLACES:
        rows += [
            [f"`{op.name}`", op.place, " ".join(f"`{name}`" for name in op.arrays), op.meaning]
            for op in EPILOGUE_OPS.values()
            if op.place == place
        ]
        if place == ACTIVATION:
            rows += [[f"`{op.form}`", place, "", op.meaning] for op in NUMBERED_OPS.values()]
    return rows


def named_suites() -> list[list[str]]:
    return [[o.name, f"`{s.name}`", s.meaning] for o in operations() for s in o.suites.values()]


def named_patterns() -> list[list[str]]:
    return [[f"`{form}`", meaning] for form, meaning in described_forms().items()]


#: columns of the tables of devices: (dtype, compute)
ARITHMETIC = (
    ("f16", "f32"),
    ("bf16", "f32"),
    ("f32", "tf32"),
    ("e4m3", "f32"),
    ("s8", "s32"),
    ("f64", "f64"),
    ("f32", "f32"),
    ("f32", "f32_bf16x6"),
)
LISTED = [d for d in DEVICES.values() if d.name != "emulated"]


@cache
def instructions(element: str, compute: str, d: Device) -> list[str]:
    """The instructions of products of this arithmetic that are not small, the fastest first. ``e4m3`` stands for
    ``e5m2``, too."""
    rates: dict[str, float] = {}
    for layout, extra in itertools.product(LAYOUTS, (0, 1)):
        p = Gemm(512, 512, 512, layout, element, compute)
        p = lower(replace(p, lda=p.columns_a + extra, ldb=p.columns_b + extra))
        for columns in space.families(p, d):
            family = FAMILIES[columns.name]
            rates |= dict.fromkeys(family.instructions, family.rate(p, d))
    return sorted(rates, key=lambda name: -rates[name])


def choices(d: Device) -> str:
    """The measurements on which choices for a device rest."""
    source = model_for(d).measured_on
    return "its own" if source == d.name else f"`{source}`, extrapolated"


def devices() -> list[list[str]]:
    return [
        [
            f"`{d.name}`",
            f"`{d.target}`",
            *(", ".join(instructions(*types, d)) or "–" for types in ARITHMETIC),
            choices(d),
        ]
        for d in LISTED
    ]


def targets() -> list[list[str]]:
    """A row for each target, with the fastest instructions; the device that is assumed for it comes first."""
    rows = []
    for target in dict.fromkeys(d.target for d in LISTED):
        assumed = device(target)
        names = [assumed.name, *(d.name for d in LISTED if d.target == target and d is not assumed)]
        sources = dict.fromkeys(choices(device(name)) for name in names)
        cells = [(instructions(*types, assumed) or ["–"])[0] for types in ARITHMETIC[:-1]]
        rows.append([f"`{target}`", ", ".join(f"`{name}`" for name in names), *cells, ", ".join(sources)])
    return rows


@pytest.mark.parametrize(
    ("page", "heading", "made"),
    [
        (REFERENCE, "Configurations", axes),
        (REFERENCE, "Environment variables", variables),
        (REFERENCE, "Patterns", named_patterns),
        (REFERENCE, "Epilogue operations", epilogue_operations),
        (REFERENCE, "Suites", named_suites),
        (REFERENCE, "Types", types),
        (REFERENCE, "Devices", devices),
        (README, "GPUs", targets),
        (PTX, "Instructions", ptx_forms.instructions),
        (PTX, "Instructions that are not taken", ptx_forms.not_taken),
        (PTX, "Instructions of later targets", ptx_forms.later),
        (PTX, "Directives", ptx_forms.directives),
        (PTX, "Special registers", ptx_forms.special_registers),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_table_matches_the_code(page: Path, heading, made, request) -> None:
    """``pytest --update-golden`` rewrites the table."""
    if request.config.getoption("--update-golden"):
        head, tail = page.read_text().split(f"# {heading}\n", 1)
        lines = tail.splitlines(keepends=True)
        first = next(i for i, line in enumerate(lines) if line.startswith("|")) + 2
        last = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
        rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in made()]
        page.write_text(f"{head}# {heading}\n" + "".join([*lines[:first], *rows, *lines[last:]]))
    assert table(page.read_text(), heading) == made()


def test_kernels_have_the_instructions_of_their_family() -> None:
    """Those of goldens; products of integers have integer instructions."""
    spelled, seen = {"fma": r"\bfma\.", "mma.sync": r"\bmma\.sync\.", "wgmma": r"\bwgmma\.mma_async\."}, set()
    for path in (ROOT / "tests" / "golden" / "ptx").glob("*.ptx"):
        text = path.read_text()
        if path.name.startswith(("prepare_", "pair_", "nearest_", "sampled_", "top_", "key_")):
            continue
        family = FAMILIES[re.search(r"family=(\w+)", text)[1]]  # type: ignore[index]
        written = {name for name, pattern in spelled.items() if re.search(pattern, text)}
        used = written - {"fma"} or written
        assert used <= set(family.instructions), path.name
        seen |= {(family.name, name) for name in used}
    assert seen == {(name, used) for name, family in FAMILIES.items() for used in family.instructions}


def test_reference_lists_every_exit_code_and_command() -> None:
    codes = {int(row[0]) for row in table(REFERENCE.read_text(), "Exit codes")}
    assert codes == {0, *(code for _, code in command.EXIT_CODES)}
    rows = " ".join(row[0] for row in table(REFERENCE.read_text(), "Commands"))
    group = command.parser()
    groups = {n: g.commands for n, g in group.commands.items() if hasattr(g, "commands")}  # type: ignore[attr-defined]
    names = {n for n in group.commands if n not in groups} | {f"{g} {n}" for g in groups for n in groups[g]}  # type: ignore[attr-defined]
    assert set(re.findall(r"`([\w -]+)`", rows)) == names


def test_doctor_lists_the_declared_packages() -> None:
    """Those of the extras docs, test and dev are installed by the scripts of developers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {"": project["dependencies"], **project["optional-dependencies"]}
    names = {
        (re.split(r"[<>=\[]", requirement)[0], extra)
        for extra in declared.keys() - {"docs", "test", "dev"}
        for requirement in declared[extra]
        if not requirement.startswith("ptxgen[")
    }
    assert {(name, extra) for name, extra, _ in doctor.PACKAGES if extra is not None} == names


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == ptxgen.__version__
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] in ("Unreleased", ptxgen.__version__)
    assert len(headings) == len(set(headings))


def terms() -> list[list[str]]:
    """The names of each entry of the glossary."""
    heads = re.findall(r"^- ((?:\*\*[^*]+\*\*(?:, )?)+): \S", GLOSSARY.read_text(), re.M)
    return [[name.strip("`") for name in re.findall(r"\*\*([^*]+)\*\*", head)] for head in heads]


def test_glossary_has_every_axis_and_family() -> None:
    known = {name for names in terms() for name in names}
    assert set(family_names()) - known == set()
    assert set(AXIS) - known == set()
    assert {a.symbol for a in AXIS.values() if a.symbol} - known == set()


def test_glossary_is_alphabetical_and_has_each_term_once() -> None:
    entries = terms()
    assert len(entries) == len(re.findall(r"^- ", GLOSSARY.read_text(), re.M)), "an entry has no **term**: and text"
    names = [name for entry in entries for name in entry]
    assert len(names) == len(set(names))
    keys = [re.sub(r"[^a-z0-9]+", " ", entry[0].lower()) for entry in entries]
    assert keys == sorted(keys)


# ---- extending

SECTIONS = ("An operation", "A family", "An element type", "An epilogue operation", "An operator")


def section(heading: str) -> str:
    """The text of a section of the page on extending."""
    return EXTENDING.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def listed(heading: str) -> list[str]:
    """The files that a section lists."""
    rows = table(EXTENDING.read_text(), heading)
    return [path.strip("`") for path, *_ in rows]


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_file_listed_in_extending_exists(heading: str) -> None:
    assert listed(heading)
    for path in listed(heading):
        folder = path.partition("<")[0].rpartition("/")[0]
        assert (ROOT / (folder if "<" in path else path)).exists(), path
    for path in re.findall(r"`(tests/[^`]+)`", section(heading)):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("row", table(EXTENDING.read_text(), "Registries"), ids=lambda row: row[0])
def test_extending_names_the_module_of_each_registry(row: list[str]) -> None:
    module, _, name = row[0].strip("`").rpartition(".")
    registry = getattr(importlib.import_module(f"ptxgen.{module}"), name)
    assert len(registry) > 1
    described = {
        "name of the operation": {"gemm", "conv"},
        "name of the type": {"f16"},
        "name of the epilogue operation": {"relu", "bias"},
        "name of the operator": {"+", "max"},
        "name of the family": set(family_names()),
    }
    assert described.get(row[2], set()) <= set(registry)


def test_modules_that_import_a_family_are_listed() -> None:
    outside = {m for m in modules() if not m.startswith("families.depthwise")}
    users = {m for m in outside if any(i.startswith("families.depthwise") for _, i in own_imports(m))}
    assert {str(modules()[m].relative_to(ROOT)) for m in users} - set(listed("A family")) == set()


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("conv", r"operations\.grouped\.(cudnn|operation)|api\.conv_layouts"),
        (
            "grouped",
            r"api\.(grouped_calls|(quantized_)?jagged(_calls)?)|operations\.quantized_jagged\.\w+|cli\.batchgemm(_tables)?",
        ),
    ],
)
def test_modules_that_import_an_operation_are_listed(name: str, others: str) -> None:
    """``others``: modules of its functions on arrays, of operations that use it, and of an article about it."""
    own = re.compile(rf"operations\.{name}(\.\w+)?|api\.{name}|{others}")
    users = {m for m in modules() if any(re.match(rf"operations\.{name}\b", i) for _, i in own_imports(m))}
    paths = {str(modules()[m].relative_to(ROOT)) for m in users if not own.fullmatch(m)}
    assert paths - set(listed("An operation")) == set()


@pytest.mark.parametrize(
    ("names", "heading"),
    [(r"\bsilu\b", "An epilogue operation"), (r"\be5m2\b|\bFP8\b|[\"']fp8[\"']\s*:", "An element type")],
)
def test_files_that_name_an_entry_are_listed(names: str, heading: str) -> None:
    """Those of the emulator are listed as one folder."""
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "templates").rglob("*.mako")]
    users = {str(p.relative_to(ROOT)) for p in files if re.search(names, p.read_text())}
    assert {path for path in users if not path.startswith("ptxgen/emulator/")} - set(listed(heading)) == set()


# ---- examples


PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]


def lines_of(block: str) -> list[tuple[str, list[str]]]:
    """The command lines of a console block, each with the lines of its output that the page shows."""
    out: list[tuple[str, list[str]]] = []
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            out.append((line[2:].partition("  #")[0].strip(), []))
        elif line.strip() and out:
            out[-1][1].append(line)
    return out


def commands() -> list[str]:
    """Every command line of the documents."""
    blocks = (block for path in PAGES for block in fenced(path.read_text(), "console"))
    return list(dict.fromkeys(line for block in blocks for line, _ in lines_of(block)))


def parsed(arguments: list[str]) -> None:
    """Parses arguments as the command line does, and runs nothing. Raises the parser's error."""
    group = command.parser()
    context = group.make_context("ptxgen", list(arguments))
    while hasattr(group, "resolve_command"):
        first = next((n for n in ("_protected_args", "protected_args") if hasattr(context, n)), "")  # click renamed it
        rest = [*getattr(context, first, ()), *context.args]
        name, group, rest = group.resolve_command(context, rest)  # type: ignore[assignment]
        context = group.make_context(name, rest, parent=context)


def test_readme_begins_with_the_two_scripts() -> None:
    typed = [c for c in commands() if c.startswith("./")]
    assert typed[:2] == ["./scripts/tune", "./scripts/test"]


@pytest.mark.parametrize("line", commands())
def test_documented_command_parses(line: str) -> None:
    words = shlex.split(line)
    words = words[: words.index("|")] if "|" in words else words
    words = words[: words.index(">")] if ">" in words else words
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        assert words.pop(0).partition("=")[0] in {v.name for v in settings.VARIABLES}
    if words[0].startswith(("./scripts/", "./examples/")):
        assert os.access(ROOT / words[0], os.X_OK)
        if words[0] == "./scripts/tune":
            parsed(["tune", *words[1:]])
    elif words[0] == "ptxgen":
        parsed(words[1:])
    elif words[:3] == ["python", "-m", "ptxgen"]:
        parsed(words[3:])
    elif words[0] == ".":
        assert words[1:] == [".venv/bin/activate"]
    else:
        assert words[0] in ("pip", "git", "cd", "cp", "rm", "cmake", "build/example", "nvcc", "dask")


def test_invalid_command_fails_to_parse() -> None:
    for wrong in (["select", "--shapes", "1,2,3"], ["db", "export"], ["nonsense"], ["select", "--count", "none"]):
        with pytest.raises(Exception, match=r"."):
            parsed(wrong)


#: commands that are fast and need neither a GPU nor a database; a whole suite takes an interpreter too long
QUICK = re.compile(
    r"python -m ptxgen (select|explain|emit|check|doctor|sampler|emulate|paper table6)\b"
    r"(?!.*(--suite|bench.json))"
)
#: (language, file that the block is, contents) of each fenced block; a title makes the block a file
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?[^\n]*\n(.*?)^```$', re.M | re.S)
#: for each line of its input, (folder, environment, blocks), runs the blocks as programs with names of their own, and
#: answers with the traceback of the one that failed; imports take no time from the second page on
INTERPRETER = """
import json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for line in sys.stdin:
    folder, environment, blocks = json.loads(line)
    os.chdir(folder)
    os.environ.update(environment)
    try:
        for block in blocks:
            exec(compile(block, block, "exec"), {"__name__": "__main__"})
        print(json.dumps(""), file=answers)
    except BaseException:
        print(json.dumps(traceback.format_exc()), file=answers)
"""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", INTERPRETER]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PTXGEN_DRIVER": "emulated"}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        yield process


def run_python(process: subprocess.Popen[str], environment: dict[str, str], blocks: list[str]) -> None:
    """Runs the blocks in this folder, and removes them from the list."""
    if blocks:
        print(json.dumps((os.getcwd(), environment, blocks)), file=process.stdin, flush=True)  # type: ignore[arg-type]
        failed = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        assert not failed, failed
    blocks.clear()


@pytest.mark.parametrize("path", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
def test_snippets_of_a_page_run(
    path: Path,
    interpreter: subprocess.Popen[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one folder, in order: blocks with a title become files, and quick commands print what the page shows below
    them, with an exit code that is 0 unless that is an error or a fault. Python runs at the end of the page, or before the
    first command that needs a file that does not exist; that of all pages in one process."""
    variables = {"PTXGEN_DATABASE": str(tmp_path / "none.sqlite"), "PTXGEN_DRIVER": "emulated", "COLUMNS": "100"}
    for name, value in {**variables, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    blocks: list[str] = []
    for language, title, block in BLOCK.findall(path.read_text()):
        if title:
            Path(title).write_text(block)
        if language == "python" and ("torch" not in block or find_spec("torch")):
            blocks.append(block)
        for line, shown in lines_of(block) if language == "console" else ():
            arguments, _, file = line.partition(" > ")
            words = shlex.split(arguments.partition(" | ")[0])[3:]
            if not QUICK.match(line):
                continue
            if words[0] == "emulate" and not Path(words[1]).exists():
                run_python(interpreter, variables, blocks)
                if not Path(words[1]).exists():
                    continue
            code, printed = command.run(words), capsys.readouterr()
            failed = any(re.search("^error: |Fault: ", expected) for expected in shown)
            assert code == (1 if failed else 0), f"{line}\n{printed.out}{printed.err}"
            output = " ".join((printed.out + printed.err).split())
            assert output, line
            for expected in shown:
                assert " ".join(expected.split()) in output, f"{line}\n{printed.out}{printed.err}"
            if file:
                Path(file).write_text(printed.out)
    run_python(interpreter, variables, blocks)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """Design decisions are added by the hook, docs/site.py."""
    named = set(re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert {p.name for p in (ROOT / "docs").glob("*.md")} == named - {"index.md", "changelog.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_have_targets(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
