"""Plans into PTX: owns Mako."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxgen.codegen.plan import Plan
from ptxgen.codegen.simplify import simplified
from ptxgen.codegen.source import Source
from ptxgen.errors import RenderError
from ptxgen.settings import templates_dir

if TYPE_CHECKING:
    from mako.lookup import TemplateLookup

_ENTRY = re.compile(r"\.entry\s+(\w+)")


def emitted(value: Any) -> str:
    """The text of an expression of a template: of text or an integer. RenderError on None, bool and float, which are
    always mistakes in PTX."""
    if type(value) is str:  # nearly all are
        return value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(f"an expression gave {value!r}; a template may write text and integers only")
    return str(value)


@cache
def lookup(*folders: str) -> TemplateLookup:
    """The templates of the first folder that has them."""
    from mako.lookup import TemplateLookup  # it imports pygments

    return TemplateLookup(
        directories=list(folders),
        strict_undefined=True,
        default_filters=["emitted"],
        imports=[
            "from ptxgen.codegen.registers import braces as operand_list",
            "from ptxgen.codegen.render import emitted",
        ],
        filesystem_checks=False,
        input_encoding="utf-8",
    )


def header(plan: Plan) -> list[str]:
    """The header of a module: problem, configuration, launch, shared-memory map, registers, the emit command."""
    c = plan.config
    lines = [
        *plan.source_problem.description,
        f"{plan.source_problem.RUNTIME_PARAMETERS}, alpha and beta are parameters; {plan.accesses}",
        "",
        f"config   {c}",
        f"launch   grid {plan.scheduler.grid_text}, tile {plan.block_tile}; block ({plan.threads}, 1, 1);"
        f" {plan.shared} bytes of dynamic shared memory",
    ]
    lines += [("shared   " if n == 0 else "         ") + line for n, line in enumerate(plan.shared_map)]
    lines.append("registers")
    lines += [f"         %{t.name}<{t.size}> .{t.kind}: {meaning}" for t, meaning in plan.register_table]
    return [*lines, f"again    {plan.command}"]


def tidy(text: str) -> str:
    """The text without instructions that do nothing, and with a blank line before a phase, an entry and directives."""
    lines = simplified([line.rstrip() for line in text.splitlines() if not line.isspace()])
    opens = (".version", ".extern", ".visible", "    // ----", "// C =")
    out = [
        f"\n{line}" if line.startswith(opens) and not before.startswith("// C =") else line
        for line, before in zip(lines, ["", *lines], strict=False)
    ]
    return "\n".join(out).strip() + "\n"


def render(plan: Plan) -> Source:
    """The PTX of a plan. RenderError, with the template's own traceback, if a template fails."""
    folders = [str(Path(folder)) for folder in (plan.templates, templates_dir()) if folder]
    try:
        out = lookup(*folders).get_template(plan.kernel).render(plan=plan, header_lines=header(plan))
    except Exception as error:
        import mako.exceptions

        trace = mako.exceptions.text_error_template().render()
        kernel = f"{plan.kernel} of {plan.problem.key()} with {plan.config}"
        raise RenderError(f"{kernel} failed: {error}\n{trace}") from error
    text = tidy(out)
    entries, registers = tuple(_ENTRY.findall(text)), int(plan.geometry.registers)
    return Source(text, entries, plan.target, plan.shared, registers, plan.pdl_entries(entries))
