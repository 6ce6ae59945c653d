"""Code outside a kernel family does not ask which family it has, and reads common axes only."""

from __future__ import annotations

import ast
import re

import pytest

from ptxgen.codegen.axes import COMMON
from ptxgen.codegen.config import AXIS, family_names

from .source import modules

FAMILIES = tuple(family_names())
#: modules of no family
OUTSIDE = sorted(
    m
    for m in modules()
    if not m.startswith(("emulator", *(f"families.{f}." for f in FAMILIES))) and m != "codegen.config_migration"
)


def attributes(text: str) -> set[str]:
    """The attributes that a module reads of variables named ``c``, ``config`` or ``columns``."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
    return {n.attr for n in nodes if isinstance(n.value, ast.Name) and n.value.id in ("c", "config", "columns")}


def family_queries(text: str) -> list[str]:
    """Comparisons of a family with one that is named, and look-ups of one by name."""
    return re.findall(
        r"family\w*(?:\.code|\.name)?\s*(?:==|!=|in)\s*[\[(]?[\"'\d].*|FAMILIES(?:\.index\(|\[)[\"'].*", text
    )


@pytest.mark.parametrize("module", OUTSIDE)
def test_module_outside_the_families_reads_common_axes_and_names_no_family(module: str) -> None:
    text = modules()[module].read_text()
    assert attributes(text) & (set(AXIS) - set(COMMON)) == set()
    assert family_queries(text) == []


def test_checks_find_violations() -> None:
    assert attributes("x = c.long_n + config.ml") == {"long_n", "ml"}
    for wrong in ('if c.family == "mma":', "rows = c.family == 1", 'code = FAMILIES.index("simt")', 'FAMILIES["mma"]'):
        assert family_queries(wrong), wrong
    assert family_queries("rows = c.family == code") == []
