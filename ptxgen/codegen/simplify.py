"""Removes arithmetic that does nothing: templates add and shift by numbers that a plan may make 0.

Products by 1 stay: ptxas chooses other instructions around the sum that would replace a multiply-add.
"""

from __future__ import annotations

import re

#: an integer instruction whose last operand is 0, with its guard and indentation
_BY_ZERO = re.compile(
    r"^(?P<head> *(?:@!?%\w+ )?)(?P<op>add|sub|shl|shr|or|xor|mad\.lo)\.[usb](?P<bits>32|64)"
    r" (?P<to>%\w+), (?P<operands>[%\w]+(?:, [%\w-]+)?), 0;\n",
    re.M,
)
_ZERO_OFFSET = re.compile(r"(\[%\w+)\+0\]")


def _simpler(m: re.Match[str]) -> str:
    head, to, operands, bits = m["head"], m["to"], m["operands"], m["bits"]
    if m["op"] == "mad.lo":
        return f"{head}mul.lo.u{bits} {to}, {operands};\n"
    return "" if operands == to else f"{head}mov.b{bits} {to}, {operands};\n"


def simplified(text: str) -> str:
    """``text`` without additions of 0, shifts by 0 and offsets of 0. It assembles to the same machine code."""
    return _BY_ZERO.sub(_simpler, _ZERO_OFFSET.sub(r"\1]", text))
