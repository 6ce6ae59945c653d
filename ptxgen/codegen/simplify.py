"""Removes arithmetic without effect: additions of 0 and shifts by 0, which occur where a number of a plan is 0.

Multiplications by 1 stay: if an add replaced a multiply-add, ptxas would choose other instructions around it.
"""

from __future__ import annotations

import re

#: an integer instruction whose last operand is 0, with its guard and indentation
_BY_ZERO = re.compile(
    r"(?P<head> *(?:@!?%\w+ )?)(?P<op>add|sub|shl|shr|or|xor|mad\.lo)\.[usb](?P<bits>32|64)"
    r" (?P<to>%\w+), (?P<operands>[%\w]+(?:, [%\w-]+)?), 0;"
)
_END = ", 0;"


def _simpler(line: str) -> str:
    """The line without its addition of 0 or shift by 0; empty: the instruction has no effect."""
    m = _BY_ZERO.fullmatch(line)
    if m is None:
        return line
    head, to, operands, bits = m["head"], m["to"], m["operands"], m["bits"]
    if m["op"] == "mad.lo":
        return f"{head}mul.lo.u{bits} {to}, {operands};"
    return "" if operands == to else f"{head}mov.b{bits} {to}, {operands};"


def simplified(lines: list[str]) -> list[str]:
    """The lines of a PTX text without additions of 0, shifts by 0 and offsets of 0. The machine code is the same."""
    out = [_simpler(line) if line.endswith(_END) else line for line in lines]
    return [line.replace("+0]", "]") if line.endswith("+0];") or "+0]," in line else line for line in out if line]
