"""An index from each template to the goldens that use it: ``slots.md``. ``--update-golden`` rewrites it."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.plan import Kernel, Plan
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from tests.golden.test_golden import GOLDEN, HANDLES

TEMPLATES = Path(__file__).parents[2] / "templates"
INDEX = Path(__file__).parent / "slots.md"
NAMED = re.compile(r"""file=["']/?([\w/]+\.mako)["']""")
CHOSEN = re.compile(r"""file="/\$\{context\['plan'\]\.([\w.]+)\}""")


def templates_of(plan: Plan) -> set[str]:
    """The templates that render a plan's kernels: its schedule, its bodies, those of its preparations, and every
    template that one of them includes."""
    kernels = (plan, *plan.bodies, *plan.other_kernels, *plan.preparations)
    return set().union(*(_templates_of(kernel) for kernel in kernels))


def _templates_of(kernel: Kernel) -> set[str]:
    used: set[str] = set()
    waiting = [kernel.kernel]
    while waiting:
        name = waiting.pop()
        if name in used:
            continue
        used.add(name)
        text = (TEMPLATES / name).read_text()
        near = [n if (TEMPLATES / n).exists() else str(Path(name).parent / n) for n in NAMED.findall(text)]
        waiting += [*near, *(attrgetter(attribute)(kernel) for attribute in CHOSEN.findall(text))]
    return used


def templates_of_handles() -> dict[str, set[str]]:
    """Golden -> the templates of a kernel that no configuration chooses."""
    return {
        name: templates_of(kernel) if isinstance(kernel, Plan) else _templates_of(kernel)
        for name, kernel in HANDLES.items()
    }


def test_every_template_has_a_golden(request):
    names = [str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*.mako")]
    users: dict[str, list[str]] = {name: [] for name in names if not name.startswith("export/")}  # C sources
    for name, (where, problem, config) in sorted(GOLDEN.items()):
        for template in templates_of(plan_for(parse(problem), parse_config(config), device(where))):
            users[template].append(name)
    for name, templates in templates_of_handles().items():
        for template in templates:
            users[template].append(name)
    rows = [f"| `{template}` | {' '.join(names)} |" for template, names in sorted(users.items())]
    text = "\n".join(
        ["# Templates and the goldens that use them", "", "| Template | Goldens |", "|---|---|", *rows, ""]
    )
    if request.config.getoption("--update-golden"):
        INDEX.write_text(text)
    assert text == INDEX.read_text(), "slots.md changed; if intended: pytest --update-golden"
    assert not [template for template, names in users.items() if not names]
