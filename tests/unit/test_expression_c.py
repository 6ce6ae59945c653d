"""C prints expressions whose values are those of NumPy."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import DtypeError
from ptxgen.expr.c_text import Expressions, c_type
from ptxgen.expr.evaluate import values
from ptxgen.expr.node import Node, constant, node, variable, walk
from tests.exports import WARNINGS, compiler
from tests.expressions import random_expression, random_values

TEMPLATE = Path(__file__).parents[2] / "templates" / "export" / "ptxgen_kernels.c.mako"
#: operators that C text does not have, or whose value C leaves to the compiler
LEFT_OUT = {"popcount", "rsqrt", "fmin", "fmax", "min", "max", "<<", ">>", "abs"}
TYPES = ("f32", "f64", "s32", "u8", "pred")


def functions() -> str:
    """The functions that exported sources define."""
    text = TEMPLATE.read_text()
    matches = re.findall(r"^static inline \w+ (?:floor_div|max_\w+|min_\w+)\(.*?^}", text, re.M | re.S)
    return "\n".join(matches)


def usable(root: Node) -> bool:
    """True if C defines every value: no integers of floats, which may be beyond their range."""
    for x in walk(root):
        if x.op in LEFT_OUT or x.type == "f16":
            return False
        if x.op == "cast" and x.arguments[0].type in ("f32", "f64", "f16") and x.type not in ("f32", "f64", "pred"):
            return False
        if x.type == "s32" and x.op in ("+", "-", "*", "neg"):  # overflow
            return False
    return True


@pytest.mark.skipif(compiler() is None, reason="there is no gcc")
def test_values_are_those_of_numpy(tmp_path: Path) -> None:
    rng = random.Random(1)
    roots: list[Node] = []
    while len(roots) < 60:
        root = random_expression(rng, rng.choice(TYPES), rng.randrange(2, 5))
        if root.arguments and usable(root):
            roots.append(root)
    rows = 40
    inputs = {k: v for k, v in random_values(np.random.default_rng(2), rows).items() if not k.startswith("f16")}
    text = Expressions(roots, "in->")
    lines = [f"out[{n}] = (double)({text(x)});" for n, x in enumerate(roots)]
    members = " ".join(f"{c_type(variable('x', name.split('_')[0]))} {name};" for name in inputs)
    body = "\n    ".join([*text.definitions, *lines])
    source = f"""#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
{functions()}
typedef struct {{ {members} }} row;
static row rows[{rows}] = {{ {", ".join(_row(inputs, n) for n in range(rows))} }};
static void compute(const row *in, double *out)
{{
    {body}
}}
int main(void)
{{
    double out[{len(roots)}];
    (void)max_integer; (void)min_integer; (void)max_double; (void)min_double; (void)floor_div;
    for (int i = 0; i < {rows}; i++) {{
        compute(&rows[i], out);
        for (int n = 0; n < {len(roots)}; n++)
            printf("%a\\n", out[n]);
    }}
}}
"""
    (tmp_path / "e.c").write_text(source)
    quiet = [*WARNINGS, "-Wno-unused-variable", "-Wno-type-limits", "-Wno-bool-operation", "-Wno-error", "-w"]
    command = [str(compiler()), *quiet, "-ffp-contract=off", str(tmp_path / "e.c"), "-o", str(tmp_path / "e"), "-lm"]
    subprocess.run(command, check=True)
    out = subprocess.run([tmp_path / "e"], check=True, capture_output=True, text=True).stdout
    got = np.array([float.fromhex(x) for x in out.split()]).reshape(rows, len(roots))
    for n, want in enumerate(values(roots, inputs, exact=False)):
        expected = np.broadcast_to(np.asarray(want).astype(np.float64), rows)
        np.testing.assert_array_equal(got[:, n], expected, err_msg=repr(roots[n]))


def _row(inputs: dict[str, Any], n: int) -> str:
    def word(x: Any) -> str:
        value = float(x[n])
        return str(int(x[n])) if x.dtype.kind in "iub" else "NAN" if value != value else _finite(value)

    return "{" + ", ".join(word(x) for x in inputs.values()) + "}"


def _finite(value: float) -> str:
    return value.hex() if np.isfinite(value) else "INFINITY" if value > 0 else "-INFINITY"


def test_types_and_operators_that_c_lacks() -> None:
    half = variable("h", "f16")
    with pytest.raises(DtypeError, match="type is f16; it must be one that C has: s64"):
        Expressions([node("cast", "f16", variable("x", "f32"))], "")(node("cast", "f16", variable("x", "f32")))
    with pytest.raises(DtypeError, match="type is f16"):
        Expressions([half], "")
    with pytest.raises(DtypeError, match="operator is 'rsqrt'; it must be one that C has"):
        Expressions([], "")(node("rsqrt", "f64", constant(2.0, "f64")))


def test_constants() -> None:
    text = Expressions([], "")
    assert text(constant(0.1, "f64")) == "0x1.999999999999ap-4"
    assert text(constant(0.5, "f32")) == "0x1.0000000000000p-1f"
    assert text(constant(1 << 40, "s64")) == "INT64_C(1099511627776)"
    assert text(constant((1 << 64) - 1, "u64")) == "UINT64_C(18446744073709551615)"
    assert text(constant(-np.inf, "f32")) == "-INFINITY"
