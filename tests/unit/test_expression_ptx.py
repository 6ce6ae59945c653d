"""The printer of PTX: fused multiply-adds, common expressions, results, guards and temporaries."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from ptxgen.errors import DtypeError, InputError
from ptxgen.expr.cost import instructions_by_pipe
from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.instructions import Row, literal, register, rows, unregister
from ptxgen.expr.node import Node, constant, node, select, variable
from ptxgen.expr.operators import Operator
from ptxgen.expr.ptx import Temporaries, check, reduced, statements
from ptxgen.expr.value_types import PRED
from tests.expression_kernels import computed

A, B, C, ACC = (variable(x, "f32") for x in ("a", "b", "c", "acc"))
REGISTERS = {A: "%a", B: "%b", C: "%c", ACC: "%acc"}


def f32(op: str, *arguments: Node) -> Node:
    return node(op, "f32", *arguments)


def lines(root: Node, result: str | None = "%r", **options: object) -> list[str]:
    return statements([root], REGISTERS, [result], **{"sm": 90, "temporaries": Temporaries(), **options}).lines  # type: ignore[arg-type]


def test_products_and_sums_become_fma() -> None:
    product = f32("*", A, B)
    assert lines(f32("+", C, product)) == lines(f32("+", product, C)) == ["fma.rn.f32 %r, %a, %b, %c;"]
    assert lines(f32("-", product, constant(2, "f32"))) == ["fma.rn.f32 %r, %a, %b, 0fC0000000;"]
    assert lines(f32("-", product, C)) == ["neg.f32 %t_f32_0, %c;", "fma.rn.f32 %r, %a, %b, %t_f32_0;"]
    assert lines(f32("-", C, product)) == ["neg.f32 %t_f32_0, %a;", "fma.rn.f32 %r, %t_f32_0, %b, %c;"]
    assert lines(f32("+", C, product), contract=False) == [
        "mul.rn.f32 %t_f32_0, %a, %b;",
        "add.rn.f32 %r, %c, %t_f32_0;",
    ]


def test_a_product_that_is_used_twice_is_not_fused() -> None:
    product = f32("*", A, B)
    made = lines(f32("max", f32("+", product, C), product))
    assert [x.split()[0] for x in made] == ["mul.rn.f32", "add.rn.f32", "max.NaN.f32"]
    both = statements([f32("+", product, C), product], REGISTERS, sm=90, temporaries=Temporaries())
    assert [x.split()[0] for x in both.lines] == ["mul.rn.f32", "add.rn.f32"]


def test_integer_products_become_mad() -> None:
    i, j = variable("i", "s32"), variable("j", "s32")
    root = node("+", "s32", node("*", "s32", i, j), constant(-3, "s32"))
    made = statements([root], {i: "%i", j: "%j"}, ["%r"], sm=75, temporaries=Temporaries(), contract=False)
    assert made.lines == ["mad.lo.s32 %r, %i, %j, -3;"]


def test_a_reduction_writes_its_accumulator() -> None:
    assert lines(reduced("+", ACC, f32("*", A, B)), "%acc") == ["fma.rn.f32 %acc, %a, %b, %acc;"]
    assert lines(reduced("max", ACC, f32("+", A, B)), "%acc") == [
        "add.rn.f32 %t_f32_0, %a, %b;",
        "max.NaN.f32 %acc, %acc, %t_f32_0;",
    ]
    with pytest.raises(DtypeError, match="the step is f64; it must be f32"):
        reduced("+", ACC, variable("x", "f64"))


def test_guards_precede_the_writes_of_results_only() -> None:
    made = lines(reduced("min", ACC, f32("*", A, B)), "%acc", guard="@%valid", sm=75)
    assert made == [
        "mul.rn.f32 %t_f32_0, %a, %b;",
        "min.f32 %t_f32_1, %acc, %t_f32_0;",
        "setp.nan.f32 %t_pred_0, %acc, %t_f32_0;",
        "@%valid selp.f32 %acc, 0f7FFFFFFF, %t_f32_1, %t_pred_0;",
    ]
    shared = f32("+", A, B)
    both = statements(
        [shared, f32("*", shared, C)], REGISTERS, ["%x", None], sm=90, temporaries=Temporaries(), guard="@%p "
    )
    assert both.lines == [
        "add.rn.f32 %t_f32_0, %a, %b;",
        "mul.rn.f32 %t_f32_1, %t_f32_0, %c;",
        "@%p mov.f32 %x, %t_f32_0;",
    ]
    assert both.operands == ["%x", "%t_f32_1"]


def test_expressions_in_registers_are_not_computed() -> None:
    wide = node("cast", "f32", variable("P[i,k]", "f16"))
    made = statements([f32("+", wide, A)], {wide: "%p", A: "%a"}, ["%r"], sm=90, temporaries=Temporaries())
    assert made.lines == ["add.rn.f32 %r, %p, %a;"]


def test_casts_between_registers_of_one_content_cost_nothing() -> None:
    x = variable("x", "u8")
    made = statements([node("cast", "s32", x)], {x: "%x"}, sm=90, temporaries=Temporaries())
    assert (made.lines, made.operands) == ([], ["%x"])
    moved = statements([node("cast", "s32", x)], {x: "%x"}, ["%y"], sm=90, temporaries=Temporaries())
    assert moved.lines == ["mov.b32 %y, %x;"]


def test_temporaries_are_used_again_and_declared_once() -> None:
    t = Temporaries()
    root = f32("max", f32("*", f32("-", A, B), f32("-", B, C)), C)
    first = statements([root], REGISTERS, ["%r"], sm=90, temporaries=t).lines
    assert statements([root], REGISTERS, ["%r"], sm=90, temporaries=t).lines == first
    assert t.declarations == [".reg .f32 %t_f32_<2>;"]
    kept = statements([f32("-", A, B)], REGISTERS, sm=90, temporaries=t)
    t.keep()
    assert kept.operands == ["%t_f32_0"]
    assert "%t_f32_0" not in " ".join(statements([root], REGISTERS, ["%r"], sm=90, temporaries=t).lines)


def test_errors_name_the_operator_and_the_types() -> None:
    with pytest.raises(DtypeError, match="the operand of exp is s32; it must be f64 or f32 or f16 or bf16"):
        check([node("exp", "s32", variable("x", "s32"))], 90)
    with pytest.raises(DtypeError, match=r"the target is sm_75; it must be sm_80 or newer for \+ of bf16"):
        check([node("+", "bf16", variable("x", "bf16"), variable("y", "bf16"))], 75)
    with pytest.raises(DtypeError, match=r"\+ of f32 is f64; it must be another type"):
        check([node("+", "f64", A, B)], 90)
    with pytest.raises(DtypeError, match="operator is 'sin'; it must be one of"):
        check([f32("sin", A)], 90)
    with pytest.raises(DtypeError, match="the operands of max are f32, f64; they must have one type"):
        check([f32("max", A, variable("x", "f64"))], 90)
    with pytest.raises(InputError, match="variable x has no register"):
        lines(variable("x", "f32"))
    with pytest.raises(InputError, match="results are %r, %r; each must be another register"):
        statements([A, B], REGISTERS, ["%r", "%r"], sm=90, temporaries=Temporaries())


OPERATIONS = {
    "add.rn.f32": lambda a, b: a + b,
    "mul.rn.f32": lambda a, b: a * b,
    "max.NaN.f32": lambda a, b: max(a, b),
    "mov.f32": lambda a: a,
}


def executed(text: list[str], registers: dict[str, float], holds: bool) -> None:
    """Runs lines on a dictionary of registers."""
    for line in text:
        words = line.rstrip(";").replace(",", "").split()
        if words[0].startswith("@"):
            if not holds:
                continue
            words = words[1:]
        registers[words[1]] = OPERATIONS[words[0]](*(registers[x] for x in words[2:]))


def test_results_may_be_any_registers_of_variables() -> None:
    """Exchanged variables, one root twice, roots that are variables, guards: all roots have the values of before."""
    rng = random.Random(5)
    leaves = [variable(x, "f32") for x in "abcd"]
    names = {x: f"%{x.value}" for x in leaves}
    values = {x: float(n + 2) for n, x in enumerate(leaves)}
    for _ in range(3000):
        pool = list(leaves)
        for _ in range(rng.randrange(5)):
            pool.append(f32(rng.choice(["+", "*", "max"]), rng.choice(pool), rng.choice(pool)))
        roots = [rng.choice(pool) for _ in range(rng.randrange(1, 4))]
        results = rng.sample([None, None, None, "%r", *names.values()], len(roots))
        guard = rng.choice(["", "@%p "])
        made = statements(roots, names, results, sm=90, temporaries=Temporaries(), guard=guard, contract=False)
        for holds in (True, False):
            registers = {**{names[x]: values[x] for x in leaves}, "%r": -1.0}
            before = dict(registers)
            executed(made.lines, registers, holds)
            for root, result, operand in zip(roots, results, made.operands, strict=True):
                if guard and result and not holds:
                    assert registers[result] == before[result]
                elif not (guard and not holds and operand in before and operand in results):
                    assert registers[operand] == value(root, values), (made.lines, roots, results)
            kept = set(before) - {r for r in results if r}
            assert all(registers[x] == before[x] for x in kept)


def value(x: Node, values: dict[Node, float]) -> float:
    if x in values:
        return values[x]
    a, b = (value(y, values) for y in x.arguments)
    return {"+": a + b, "*": a * b, "max": max(a, b)}[x.op]


def test_selections_of_predicates() -> None:
    p, q = variable("p", PRED), variable("q", PRED)
    made = statements([select(p, q, constant(True, PRED))], {p: "%p", q: "%q"}, sm=90, temporaries=Temporaries())
    assert made.lines[0] == "mov.pred %t_pred_0, 1;"
    assert np.all([x.split()[0].endswith(".pred") for x in made.lines])


def test_calls_that_are_alike_differ_in_names_only() -> None:
    half = variable("h", "bf16")
    root = f32("+", node("cast", "f32", half), A)
    t = Temporaries()

    def printed(h: str, a: str, r: str, guard: str) -> list[str]:
        return statements([root], {half: h, A: a}, [r], sm=80, temporaries=t, guard=guard).lines

    first, second = printed("%h", "%a", "%r", "@%p "), printed("%h1", "%b", "%s", "@!%q ")
    assert first[1:] == ["mov.b32 %t_f32_0, {%t_b16_0, %h};", "@%p add.rn.f32 %r, %t_f32_0, %a;"]
    assert second[1:] == ["mov.b32 %t_f32_0, {%t_b16_0, %h1};", "@!%q add.rn.f32 %s, %t_f32_0, %b;"]
    # a result that is an operand is another text than one that is not
    assert printed("%h", "%a", "%a", "")[-1] == "add.rn.f32 %a, %t_f32_0, %a;"
    both = [A, f32("neg", A)]
    swapped = statements(both, {A: "%a"}, ["%b", "%a"], sm=80, temporaries=Temporaries()).lines
    assert swapped == ["mov.f32 %t_f32_0, %a;", "neg.f32 %a, %a;", "mov.f32 %b, %t_f32_0;"]


def test_an_operator_from_outside_the_package() -> None:
    sine = Operator("sin", 1, frozenset(("float",)), np.sin)
    row = Row("sin", "f32", "f32", 75, ("sin.approx.f32 {d}, {a}",), (("xu", 1),), absolute=2.0**-20)
    before = dict(rows())
    register(sine, row)
    try:
        root = f32("*", f32("sin", A), B)
        assert lines(root) == ["sin.approx.f32 %t_f32_0, %a;", "mul.rn.f32 %r, %t_f32_0, %b;"]
        assert instructions_by_pipe([root], 90) == {"xu": 1, "fma": 1}
        assert evaluate(root, {"a": 0.5, "b": 2.0}) == 2 * np.sin(0.5)
        x = np.linspace(-3, 3, 64, dtype=np.float32)
        [got] = computed([root], {"a": ("f32", x), "b": ("f32", np.ones(1))}, 75)
        np.testing.assert_allclose(got, np.sin(x), atol=2.0**-20)
        unregister("sin")
        register(sine, replace(row, lines=("sin.approx.ftz.f32 {d}, {a}",)))
        assert lines(f32("sin", A)) == ["sin.approx.ftz.f32 %r, %a;"]  # no text of before
        with pytest.raises(DtypeError, match="the operand of sin is f64; it must be f32"):
            check([node("sin", "f64", variable("x", "f64"))], 90)
        with pytest.raises(InputError, match="operator is 'sin'; it must be a name that no other has"):
            register(sine, row)
    finally:
        unregister("sin")
    assert rows() == before
    with pytest.raises(InputError, match=r"operator is 'other'; it must be .* that of its rows"):
        register(Operator("other", 1, frozenset(("float",)), np.sin), row)


def test_every_nan_is_one_constant() -> None:
    negative = constant(-math.nan, "f32")
    assert negative is constant(math.nan, "f32")
    assert literal(negative) == "0f7FC00000"
