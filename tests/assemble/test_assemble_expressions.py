"""ptxas assembles each row of the table of instructions for each target."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ptxgen.expr.instructions import rows
from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import VALUE_TYPES
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import find_ptxas
from tests.expression_kernels import kernel


def expressions(sm: int, type: str) -> list[Node]:
    """Each row of this type of operands, of variables and of constants."""
    nodes: list[Node] = []
    number = constant(1, type)
    for (operator, operand, result), chosen in rows().items():
        if operand != type or chosen[-1].first > sm:
            continue
        if operator == "cast":
            forms = [(variable("a", type),), (number,)]
        elif operator == "select":
            forms = [(variable("p", "pred"), variable("a", type), number), (variable("p", "pred"), number, number)]
        else:
            n = 3 if operator == "mad" else OPERATORS[operator].operands
            forms = [tuple(variable(x, type) for x in "abc"[:n])]
            forms += [(*(variable(x, type) for x in "abc"[:k]), *(number,) * (n - k)) for k in range(n)]
            forms.append((*(number,) * (n - 1), variable("a", type)))
        nodes += [node(operator, result, *form) for form in forms]
    return nodes


@pytest.mark.parametrize("sm", [75, 80, 90, 100])
def test_rows_assemble(sm: int, tmp_path: Path) -> None:
    ptxas = find_ptxas()
    assert ptxas is not None
    for type in VALUE_TYPES:
        text = kernel(expressions(sm, type), {"a": type, "b": type, "c": type, "p": "pred"}, sm)
        file = tmp_path / f"{type}.ptx"
        file.write_text(text)
        command = [str(ptxas), "-O0", f"-arch={device(f'sm_{sm}').target}", str(file), "-o", str(tmp_path / "k.cubin")]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, f"{type}\n{made.stderr[:3000]}"
