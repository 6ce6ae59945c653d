"""The tree of errors, and the attributes of each."""

from __future__ import annotations

import inspect
import re

import pytest

from ptxgen import errors
from ptxgen.errors import ConfigError, Fault, InputError, PtxgenError

CLASSES = {n: c for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, Exception)}


def drawn() -> dict[str, str]:
    """Class -> parent, as drawn at the top of the module."""
    stack: list[tuple[int, str]] = []
    out = {}
    for line in errors.__doc__.splitlines():
        match = re.match(r"^([│├└─ ]*)([A-Z]\w+)", line)
        if match and match[2] in CLASSES:
            depth = len(match[1])
            stack = [s for s in stack if s[0] < depth]
            out[match[2]] = stack[-1][1] if stack else ""
            stack.append((depth, match[2]))
    return out


def test_tree_matches_the_drawing():
    tree = drawn()
    assert set(tree) == set(CLASSES)
    for name, parent in tree.items():
        base = CLASSES[name].__bases__[0]
        assert base is (CLASSES[parent] if parent else Exception)
        assert CLASSES[name].__doc__
    assert issubclass(InputError, ValueError)  # a violated rule is an invalid value


def test_config_error_has_its_rule():
    assert ConfigError("x", "threads").rule == "threads"
    assert ConfigError("x").rule == ""


def test_fault_has_its_location():
    at = {"block": (1, 2, 3), "thread": (4, 5, 6), "address": 0xABC}
    fault = Fault("one byte too far", entry="k", line=7, instruction="  st.global.u8 [%d0], %r1; ", **at)
    text = str(fault)
    for word in (
        "one byte too far",
        "kernel       k",
        "line         7",
        "st.global.u8 [%d0], %r1;",
        "(1, 2, 3)",
        "(4, 5, 6)",
        "0xabc",
    ):
        assert word in text
    assert (fault.entry, fault.line, fault.block, fault.thread, fault.address) == ("k", 7, (1, 2, 3), (4, 5, 6), 0xABC)
    assert "address" not in str(Fault("x"))


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_error_is_caught_by_the_base(name):
    with pytest.raises(PtxgenError):
        raise CLASSES[name]((Fault("why"),) if name == "Faults" else "why")
