"""Renders plans as PTX. Only this module imports Mako."""

from __future__ import annotations

import hashlib
import os
import py_compile
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING, Any

import mako

from ptxgen import __version__, disk_cache
from ptxgen.codegen.key_table import KeyTable
from ptxgen.codegen.nearest_pairs import NearestPairs
from ptxgen.codegen.pair_products import PairProducts
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.preparation import Preparation, PreparationModule
from ptxgen.codegen.simplify import simplified
from ptxgen.codegen.source import Source
from ptxgen.codegen.top_records import TopRecords
from ptxgen.errors import RenderError
from ptxgen.problem.device import Device
from ptxgen.settings import settings, templates_dir

if TYPE_CHECKING:
    from mako.lookup import TemplateLookup

#: Mako's options for every template
OPTIONS: dict[str, Any] = {
    "strict_undefined": True,
    "default_filters": ["emitted"],
    "imports": [
        "from ptxgen.codegen.registers import braces as operand_list",
        "from ptxgen.codegen.render import emitted",
    ],
}
PYGMENTS = "mako.ext.pygmentplugin"  #: the module of Mako that imports Pygments if Pygments is installed
_ENTRY = re.compile(r"\.entry\s+(\w+)")


def emitted(value: Any) -> str:
    """The text of an expression of a template, which must be a string or an integer. TypeError: the value has another
    type; None, bool and float are always mistakes in PTX."""
    if type(value) is str:  # nearly all are
        return value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(f"an expression gave {value!r}; a template may write text and integers only")
    return str(value)


@contextmanager
def _without_pygments() -> Iterator[None]:
    """Within the ``with`` block, Mako cannot import Pygments. The import would take longer than rendering a kernel, and
    serves only to highlight tracebacks in HTML."""
    absent: dict[str, Any] = {} if PYGMENTS in sys.modules else {PYGMENTS: None}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)


def _templates(*folders: str, **cache_options: Any) -> TemplateLookup:
    """The template lookup over ``folders``, which are searched in their order. ``cache_options``: arguments of Mako."""
    with _without_pygments():
        from mako.lookup import TemplateLookup

    return TemplateLookup(
        directories=list(folders), filesystem_checks=False, input_encoding="utf-8", **OPTIONS, **cache_options
    )


@cache
def lookup(*folders: str) -> TemplateLookup:
    """The template lookup over ``folders``, which are searched in their order. Compiled templates are stored in the
    disk cache."""
    return _templates(*folders, modulename_callable=_compiled_file, module_writer=_write_compiled)


def _compiled_folder() -> Path:
    return settings().cache / "compiled_templates"


def _compiled_file(filename: str, uri: str) -> str | None:
    """The file of the disk cache for the compiled code of a template; its name is a digest of everything that the code
    depends on. None: the folder cannot be used, and the template is compiled in memory."""
    folder = _compiled_folder()
    try:
        disk_cache.create(folder)
    except OSError:
        return None
    if disk_cache.unsafe(folder):
        return None
    facts = (mako.__version__, sys.implementation.cache_tag, OPTIONS, uri, Path(filename).read_bytes())
    return str(folder / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}.pyc")


def _write_compiled(source: bytes, path: str) -> None:
    """Compiles ``source``, the Python code of a template, to bytecode in ``path``. Python itself would not write
    bytecode if PYTHONDONTWRITEBYTECODE is set."""
    text, code = Path(path).with_suffix(".py"), Path(f"{path}.{os.getpid()}")  # other processes may write them too
    disk_cache.replace(text, source)
    py_compile.compile(str(text), str(code), doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    code.replace(path)


def header(plan: Plan, choice: str = "") -> list[str]:
    """The header of a module: problem, preconditions, version, configuration, launch, prepared arrays, shared-memory
    map, registers, parameters, the emit command. ``choice``: the text on where the configuration comes from."""
    lines = [
        *plan.source_problem.description,
        f"{plan.numbers} are parameters; {plan.accesses}",
        *(("requires " if n == 0 else "         ") + line for n, line in enumerate(plan.preconditions)),
        "",
        f"version  ptxgen {__version__}",
        *(("config   " if n == 0 else "         ") + line for n, line in enumerate(plan.configs)),
        *([f"choice   {choice}"] if choice else []),
        f"launch   grid {plan.scheduler.grid_text}, tile {plan.block_tile}; block ({plan.threads}, 1, 1);"
        f" {plan.shared} bytes of dynamic shared memory",
    ]
    lines += [f"prepared {line}" for each in plan.preparations for line in each.description]
    lines += [("shared   " if n == 0 else "         ") + line for n, line in enumerate(plan.shared_map)]
    lines.append("registers")
    lines += [f"         %{t.name}<{t.size}> .{t.ptx_type}: {meaning}" for t, meaning in plan.register_table]
    if table := plan.parameter_table:
        lines += ["parameters", *(f"         {line}" for line in table)]
    return [*lines, f"again    {plan.command}"]


def tidy(text: str) -> str:
    """``text`` without instructions that do nothing, and with blank lines before sections, entries and directives."""
    lines = simplified([line.rstrip() for line in text.splitlines() if not line.isspace()])
    opens = (".version", ".extern", ".visible", "    // ----", "// C =")
    out = [
        f"\n{line}" if line.startswith(opens) and not before.startswith("// C =") else line
        for line, before in zip(lines, ["", *lines], strict=False)
    ]
    return "\n".join(out).strip() + "\n"


def _remove_compiled() -> None:
    for path in _compiled_folder().glob("*.py*"):
        with suppress(OSError):
            path.unlink()


def render(plan: Plan, choice: str = "") -> Source:
    """The PTX of a plan. ``choice``: the text for the header on where the configuration comes from. RenderError: a
    template failed; the message has the template's traceback."""
    try:
        return rendered(plan, choice)
    except Exception:  # a template failed, or a file of the disk cache is damaged
        text = _text_or_traceback(plan, choice)
        _remove_compiled()
        return _source(plan, text)


def rendered(plan: Plan, choice: str = "") -> Source:
    """The PTX of a plan. Errors in templates are raised unchanged."""
    return _source(plan, _text(plan, lookup(*_folders(plan)), choice))


def _folders(plan: Plan) -> list[str]:
    return [str(Path(folder)) for folder in (plan.templates, plan.problem.sink.templates, templates_dir()) if folder]


def _source(plan: Plan, text: str) -> Source:
    entries, registers = tuple(_ENTRY.findall(text)), int(plan.geometry.registers)
    return Source(text, entries, plan.target, plan.shared, registers, plan.pdl_entries(entries))


def render_preparation(preparation: Preparation, device: Device) -> Source:
    """The PTX of the kernels of a preparation."""
    folders = [str(Path(folder)) for folder in (preparation.templates, templates_dir()) if folder]
    module = PreparationModule(preparation, device.target, device.ptx_version)
    lines = [*preparation.description, "", f"version  ptxgen {__version__}"]
    text = tidy(lookup(*folders).get_template(preparation.kernel).render(plan=module, header_lines=lines))
    return Source(text, tuple(_ENTRY.findall(text)), device.target)


def render_pairs(plan: PairProducts | NearestPairs) -> Source:
    """The PTX of the kernels of listed pairs."""
    folders = [str(Path(folder)) for folder in (plan.problem.sink.templates, templates_dir()) if folder]
    lines = [*plan.description, "", f"version  ptxgen {__version__}"]
    text = tidy(lookup(*folders).get_template(plan.kernel).render(plan=plan, header_lines=lines))
    return Source(text, tuple(_ENTRY.findall(text)), plan.target)


def render_records(plan: TopRecords | KeyTable) -> Source:
    """The PTX of the kernels that order records, or number keys."""
    lines = [*plan.description, "", f"version  ptxgen {__version__}"]
    text = tidy(lookup(str(templates_dir())).get_template(plan.kernel).render(plan=plan, header_lines=lines))
    return Source(text, tuple(_ENTRY.findall(text)), plan.target)


def render_file(template: str, **values: Any) -> str:
    """The text of a file of an exported library. ``template``: a template of the package; ``values``: its variables."""
    text: str = lookup(str(templates_dir())).get_template(template).render(**values)
    return text


def _text(plan: Plan, templates: TemplateLookup, choice: str) -> str:
    bodies = [templates.get_template(each.kernel).render(plan=each) for each in plan.bodies]
    main = templates.get_template(plan.kernel).render(plan=plan, header_lines=header(plan, choice), bodies=bodies)
    return tidy(main + "".join(templates.get_template(each.kernel).render(plan=each) for each in plan.other_kernels))


def _text_or_traceback(plan: Plan, choice: str) -> str:
    """The PTX text of a plan. Templates are compiled in memory, so that a traceback shows their lines. RenderError: a
    template failed."""
    try:
        return _text(plan, _templates(*_folders(plan)), choice)
    except Exception as error:
        import mako.exceptions

        trace = mako.exceptions.text_error_template().render()
        kernel = f"{plan.kernel} of {plan.source_problem.key()} with {plan.config}"
        raise RenderError(f"{kernel} failed: {error}\n{trace}") from error
