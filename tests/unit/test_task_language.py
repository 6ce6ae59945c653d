"""The text of tasks: programs of the paper's queries, rules with the place of each error, the canonical text, mutated texts."""

from __future__ import annotations

import os
import random

import pytest

from ptxgen.errors import TaskError
from ptxgen.expr.node import constant, node, select, variable, walk
from ptxgen.operations.task.assembling import roots
from ptxgen.operations.task.language.canonical import canonical, digest, erased
from ptxgen.operations.task.language.parser import input_ranks, parse
from ptxgen.operations.task.program import Aggregate, Input, Program, RowReduce, Select, Store

RANGES = "where (i in [0, M], j in [0, N])"
SUM = "accum = 0; reduce (k in [0, K]) { accum += P[i, k] * R[k, j]; }"
TYPES = {
    "P": "f32",
    "R": "f32",
    "Pzip": "s32",
    "Rzip": "s32",
    "thres": "f32",
    "h": "f16",
    "b": "u8",
    "n": "s32",
    "u": "u32",
}
HEAD = "P:f32[i,k];R:f32[k,j];"
CANONICAL_SUM = "reduce(k){accum+=P[i,k]*R[k,j];}"

#: query -> its text, and its canonical text
QUERIES = {
    1: (
        RANGES + " { accum = 0; reduce (k in [0, K]) { accum += P[i, k] * R[k, j] +"
        " (P[i, k] * R[k, j] > t[i]) * (P[i, k] * R[k, j] - t[i]); } N[i, j] = accum; }",
        f"{HEAD}t:f32[i];accum:f32;where(i,j){{reduce(k){{t0=P[i,k]*R[k,j];accum+=t0+f32(t[i]<t0)*(t0-t[i]);}}N[i,j]=accum;}}",
    ),
    2: (
        f"{RANGES} {{ {SUM} C[Pzip[i], Rzip[j]] += accum; }}",
        f"{HEAD}Pzip:s32[i];Rzip:s32[j];accum:f32;where(i,j){{{CANONICAL_SUM}C[Pzip[i],Rzip[j]]+=accum;}}",
    ),
    3: (
        f"{RANGES} {{ {SUM} accum = accum > thres; C[Pzip[i], Rzip[j]] += accum; }}",
        f"{HEAD}Pzip:s32[i];Rzip:s32[j];thres:f32;accum:f32;where(i,j){{{CANONICAL_SUM}C[Pzip[i],Rzip[j]]+=s32(thres<accum);}}",
    ),
    4: (
        f"{RANGES} when (Pzip[i] == Rzip[j]) {{ {SUM} C[Pzip[i], Rzip[j]] += accum; }}",
        f"Pzip:s32[i];Rzip:s32[j];{HEAD}accum:f32;where(i,j)when(Pzip[i]==Rzip[j]){{{CANONICAL_SUM}C[Pzip[i],Rzip[j]]+=accum;}}",
    ),
    5: (
        f"{RANGES} {{ {SUM} accum > thres ? hits.add(accum, i, j); }}",
        f"{HEAD}thres:f32;accum:f32;where(i,j){{{CANONICAL_SUM}thres<accum?hits.add(accum,i,j);}}",
    ),
    6: (
        RANGES + " { accum = 0; reduce (k in [0, K]) { accum += max(R[i, k], R[j, k]) * max(R[i, k], R[j, k]); }"
        " accum > thres ? C_sparse.add(accum); }",
        "R:f32[i,k];thres:f32;accum:f32;where(i,j){reduce(k){t0=max(R[i,k],R[j,k]);accum+=t0*t0;}thres<accum?C_sparse.add(accum);}",
    ),
}


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_paper(query: int) -> None:
    text, wanted = QUERIES[query]
    program = parse(text, {**TYPES, "t": "f32"})
    assert canonical(program) == wanted
    assert parse(wanted) == program


def test_a_program_has_the_nodes_of_its_text() -> None:
    program = parse(QUERIES[5][0], TYPES)
    p, r, c, t = (variable(name, "f32") for name in ("P[i,k]", "R[k,j]", "accum", "thres"))
    i, j = variable("i", "s32"), variable("j", "s32")
    hits = Select("hits", c, node("<", "pred", t, c), (c, i, j))
    inputs = (Input("P", "f32", (("i", "k"),)), Input("R", "f32", (("k", "j"),)), Input("thres", "f32"))
    assert program == Program(inputs, node("*", "f32", p, r), "+", "f32", (hits,))
    two = parse(f"{RANGES} {{ {SUM} C[j, i] = accum + bias[j]; D[i] argmin= accum; }}", {**TYPES, "bias": "f64"})
    assert two.outputs == (
        Store("C", node("+", "f64", node("cast", "f64", c), variable("bias[j]", "f64")), ("j", "i")),
        RowReduce("D", c, "i", "argmin"),
    )
    group = parse(f"{RANGES} {{ {SUM} C[i, Rzip[j]] max= accum; }}", TYPES).outputs
    assert group == (Aggregate("C", c, i, variable("Rzip[j]", "s32"), "max"),)


@pytest.mark.parametrize(
    ("statement", "reduction", "step", "accumulator"),
    [
        ("accum *= P[i, k]", "*", "P[i,k]", "f32"),
        ("accum = accum + P[i, k]", "+", "P[i,k]", "f32"),
        ("accum = (P[i, k] + accum)", "+", "P[i,k]", "f32"),
        ("accum = max(accum, P[i, k])", "max", "P[i,k]", "f32"),
        ("accum = fmin(P[i, k], accum)", "fmin", "P[i,k]", "f32"),
        ("accum min= P[i, k]", "min", "P[i,k]", "f32"),
        ("accum |= b[i, k] & b[k, j]", "|", "u32(b[i,k])&u32(b[k,j])", "u32"),
        ("accum ^= n[i, k]", "^", "n[i,k]", "s32"),
        ("accum += h[i, k]", "+", "f32(h[i,k])", "f32"),
        ("accum += b[i, k] * b[k, j]", "+", "s32(b[i,k])*s32(b[k,j])", "s32"),
        ("accum += popcount(b[i, k] ^ b[k, j])", "+", "popcount(u32(b[i,k])^u32(b[k,j]))", "u32"),
        ("accum += P[i, k] > 0", "+", "s32(0<P[i,k])", "s32"),
        ("accum = argmax(accum, (P[i, k], k))", "argmax", "P[i,k]", "s32"),
        ("accum argmin= P[i, k]", "argmin", "P[i,k]", "s32"),
        ("accum = mean(accum, P[i, k])", "mean", "P[i,k]", "f32"),
        ("d = P[i, k] - R[k, j]; accum += d * d", "+", "(P[i,k]-R[k,j])*(P[i,k]-R[k,j])", "f32"),
        ("accum += k < 3 ? P[i, k] : 0", "+", "k<3?P[i,k]:0", "f32"),
        ("accum += not (P[i, k] < 1 and R[k, j] < 2) ? 1.5 : 2", "+", "not((P[i,k]<1)&(R[k,j]<2))?f32(1.5):f32(2)", "f32"),
        ("accum += 2 * (1 + 0.5) * P[i, k]", "+", "3*P[i,k]", "f32"),
        ("accum += P[i, k] * 0.1", "+", "P[i,k]*0.1", "f32"),
        ("accum += n[i, k] << 3", "+", "n[i,k]<<3", "s32"),
        ("accum += -f64(P[i, k])", "+", "-f64(P[i,k])", "f64"),
        ("accum += P[i, k] / K", "+", None, None),
        ("accum += P[i, k] / f32(K)", "+", "P[i,k]/f32(K)", "f32"),
        ("accum += b[i, k] * P[i, k]", "+", "f32(b[i,k])*P[i,k]", "f32"),
    ],
)  # fmt: skip
def test_reductions(statement: str, reduction: str, step: str | None, accumulator: str | None) -> None:
    text = f"{RANGES} {{ reduce (k in [0, K]) {{ {statement}; }} C[i, j] = accum; }}"
    if step is None:
        with pytest.raises(TaskError, match=r"write f32\(K\)"):
            parse(text, TYPES)
        return
    program = parse(text, TYPES)
    assert (program.reduction, program.accumulator) == (reduction, accumulator)
    names = canonical(program).split("reduce(k){")[1].split("}")[0]
    if "t0=" in names:
        first, names = names.split(";", 1)
        names = names.replace("t0", f"({first.removeprefix('t0=')})")
    assert step in names
    assert parse(canonical(program)) == program


def test_f16_accumulators_keep_arithmetic_in_f16() -> None:
    text = f"accum: f16; {RANGES} {{ reduce (k) {{ accum += h[i, k] * h[k, j] + (h[i, k] > 1) * 0.1; }} C[i, j] = accum * 2; }}"
    program = parse(text, TYPES)
    assert {x.type for x in walk(program.step)} == {"f16", "pred"}
    assert program.outputs[0].value.type == "f32"
    assert parse(canonical(program)) == program
    mixed = text.replace("h[k, j]", "f16(f32(h[k, j]) * h[i, k])")
    assert {x.type for x in walk(parse(mixed, TYPES).step)} == {"f16", "f32", "pred"}
    assert parse(canonical(parse(mixed, TYPES))) == parse(mixed, TYPES)
    with pytest.raises(TaskError, match=r"accumulator of f16 cannot hold; write f16\("):
        parse(text.replace("h[k, j]", "P[k, j]"), TYPES)


@pytest.mark.parametrize(
    ("statement", "initial", "wanted"),
    [
        ("accum += P[i, k]", "0", None),
        ("accum += P[i, k]", "0.0", None),
        ("accum *= P[i, k]", "1", None),
        ("accum max= P[i, k]", "-inf", None),
        ("accum max= P[i, k]", "0", constant(0, "f32")),
        ("accum max= n[i, k]", "-inf", None),
        ("accum min= n[i, k]", "2147483647", None),
        ("accum &= n[i, k]", "-1", None),
        ("accum += P[i, k]", "bias[j]", variable("bias[j]", "f32")),
        ("accum = mean(accum, P[i, k])", "0", None),
    ],
)
def test_initial_values(statement: str, initial: str, wanted: object) -> None:
    text = f"{RANGES} {{ accum = {initial}; reduce (k) {{ {statement}; }} C[i, j] = accum; }}"
    program = parse(text, {**TYPES, "bias": "f32"})
    assert program.initial is wanted
    assert parse(canonical(program)) == program


def test_names_of_axes_bounds_and_accumulator_are_free() -> None:
    text = "where (row in [0, m), col in [0, n)) { c = 0; reduce (q in [0, d)) { c += P[row, q] * R[q, col]; } out[row, col] = c / f32(d); }"
    other = f"{RANGES} {{ {SUM} out[i, j] = accum / f32(K); }}"
    assert parse(text, TYPES) == parse(other, TYPES)
    assert input_ranks(text) == {"P": 2, "R": 2}


def test_python_numbers_take_the_type_of_what_they_meet() -> None:
    text = f"{RANGES} {{ {SUM} accum > t ? hits.add(accum * t); }}"
    assert parse(text, {**TYPES, "t": "float"}).inputs[2] == Input("t", "f32")
    assert parse(text, {**TYPES, "P": "f64", "t": "float"}).inputs[2] == Input("t", "f64")
    assert parse(text, {**TYPES, "P": "s32", "R": "s32", "t": "int"}).inputs[2] == Input("t", "s32")
    assert parse(text, {**TYPES, "P": "u32", "R": "u32", "t": "int"}).inputs[2] == Input("t", "u32")
    with pytest.raises(TaskError, match="t is f32"):
        parse(text, {**TYPES, "P": "s32", "R": "s32", "t": "float"})


#: what is wrong -> a text with a mark before the place, and a part of the message
ERRORS = {
    "three axes": ("where (i in [0, M], j in [0, N], ‸l in [0, L]) { reduce (k) { accum += P[i, k]; } }", "must be 2"),
    "one axis": ("where (‸i in [0, M]) { reduce (k) { accum += P[i, k]; } }", "must be 2"),
    "four axes": (RANGES + " { reduce (k, ‸l) { accum += P[i, k]; } }", "must be 1"),
    "two reductions": (RANGES + " { reduce (k) { accum += P[i, k]; } reduce (‸l) { b += P[i, l]; } }", "second reduction"),
    "no reduction": ("‸" + RANGES + " { C[i, j] = P[i, j]; }", "no reduction"),
    "lower bound": ("where (i in [‸1, M], j in [0, N]) { reduce (k) { accum += P[i, k]; } C[i, j] = accum; }", "begin at 0"),
    "number as bound": ("where (i in [0, ‸128], j in [0, N]) { reduce (k) { accum += P[i, k]; } C[i, j] = accum; }", "write M"),
    "equal bounds": ("where (i in [0, N], j in [0, ‸N]) { reduce (k) { accum += P[i, k]; } C[i, j] = accum; }", "another name"),
    "output without i": (f"{RANGES} {{ {SUM} ‸C[Rzip[j], Rzip[j]] += accum; }}", "no key of the axis i"),
    "output with k": (f"{RANGES} {{ {SUM} C[i, ‸k] = accum; }}", "write C[i, j]"),
    "output with one key": (f"{RANGES} {{ {SUM} C[‸Pzip[i]] += accum; }}", "both spatial axes"),
    "output before the reduction": (f"{RANGES} {{ ‸C[i, j] = 1; {SUM} }}", "must be after it"),
    "output in the reduction": (RANGES + " { reduce (k) { ‸C[i, j] = P[i, k]; accum += P[i, k]; } }", "must be after it"),
    "no output": (f"{RANGES} {{ {SUM} ‸}}", "write C[i, j] = accum;"),
    "store with op": (f"{RANGES} {{ {SUM} C[i, j] ‸+= accum; }}", "has one value; write ="),
    "row without op": (f"{RANGES} {{ {SUM} C[i] = ‸accum; }}", "write C[i] += …"),
    "float key": (f"{RANGES} {{ {SUM} C[‸P[i], Rzip[j]] += accum; }}", "read with 2 axes"),
    "key of floats": (f"{RANGES} {{ {SUM} C[‸thres[i], Rzip[j]] += accum; }}", "or declare thres: s32[i];"),
    "read early": (RANGES + " { reduce (k) { accum += P[i, k] * ‸accum; } C[i, j] = accum; }", "before it is complete"),
    "read before": (RANGES + " { x = ‸accum; reduce (k) { accum += x; } C[i, j] = accum; }", "before it is reduced"),
    "when reads accum": (RANGES + f" when (‸accum > 0) {{ {SUM} C[i, j] = accum; }}", "when must not read it"),
    "when is a number": (RANGES + f" when (‸P[i, j]) {{ {SUM} C[i, j] = accum; }}", "write P[i,j] != 0"),
    "when reads k": (RANGES + f" when (‸k < 1) {{ {SUM} C[i, j] = accum; }}", "must be read in reduce"),
    "k after": (f"{RANGES} {{ {SUM} C[i, j] = accum + ‸P[i, k]; }}", "must be read in reduce"),
    "name of reduce after": (RANGES + " { reduce (k) { x = P[i, k]; accum += x; } C[i, j] = accum + ‸x; }", "no value after reduce"),
    "minus": (RANGES + " { reduce (k) { accum ‸-= P[i, k]; } C[i, j] = accum; }", "write accum += -(…)"),
    "minus spelt out": (RANGES + " { reduce (k) { accum = ‸accum - P[i, k]; } C[i, j] = accum; }", "not associative"),
    "divide": (RANGES + " { reduce (k) { accum ‸/= P[i, k]; } C[i, j] = accum; }", "write accum *= 1.0 / (…)"),
    "shift": (RANGES + " { reduce (k) { accum ‸<<= n[i, k]; } C[i, j] = accum; }", "not associative"),
    "recurrence": (RANGES + " { reduce (k) { accum = ‸accum * 2 + P[i, k]; } C[i, j] = accum; }", "no reduction"),
    "or": (RANGES + " { reduce (k) { accum = ‸accum or P[i, k] > 0; } C[i, j] = accum; }", "write |="),
    "sum=": (RANGES + " { reduce (k) { accum ‸sum= P[i, k]; } C[i, j] = accum; }", "write +="),
    "pair": (RANGES + " { reduce (k) { accum += ‸(P[i, k], k); } C[i, j] = accum; }", "only argmin"),
    "pair without k": (RANGES + " { reduce (k) { accum argmin= (P[i, k], ‸i); } C[i, j] = accum; }", "write k"),
    "initial position": (RANGES + " { accum = ‸0; reduce (k) { accum argmin= P[i, k]; } C[i, j] = accum; }", "remove it"),
    "initial type": (RANGES + " { accum = ‸0.5; reduce (k) { accum += n[i, k]; } C[i, j] = accum; }", "no value of s32"),
    "s32 and f32": (f"{RANGES} {{ {SUM} C[i, j] = ‸accum * Pzip[i]; }}", "write f32(Pzip[i])"),
    "s32 and u32": (f"{RANGES} {{ {SUM} C[i, j] = ‸n[i, j] + u[i, j]; }}", "write s32(u[i,j]) or u32(n[i,j])"),
    "integer division": (f"{RANGES} {{ {SUM} C[i, j] = ‸n[i, j] / 2; }}", "write f32(n[i,j]) / f32("),
    "division of numbers": (f"{RANGES} {{ {SUM} C[i, j] = accum * (‸1 / 3); }}", "write 1.0 / 3"),
    "float and integer": (f"{RANGES} {{ {SUM} C[i, j] = ‸n[i, j] + 0.5; }}", "no value of s32"),
    "inexact integer": (f"{RANGES} {{ {SUM} C[i, j] = ‸accum + 16777217; }}", "write 16777217.0"),
    "range of integer": (f"{RANGES} {{ {SUM} C[i, j] = ‸n[i, j] + 4294967296; }}", "must be from -2147483648"),
    "float function": (f"{RANGES} {{ {SUM} C[i, j] = ‸exp(n[i, j]); }}", "write exp(f32(n[i,j]))"),
    "popcount": (f"{RANGES} {{ {SUM} C[i, j] = ‸popcount(n[i, j]); }}", "write popcount(u32(n[i,j]))"),
    "bits of floats": (f"{RANGES} {{ {SUM} C[i, j] = ‸accum & 1.0; }}", "must be an integer"),
    "not of a number": (f"{RANGES} {{ {SUM} C[i, j] = ‸not accum; }}", "write accum != 0"),
    "and of numbers": (f"{RANGES} {{ {SUM} C[i, j] = ‸accum and accum > 0; }}", "write accum != 0"),
    "chain": (f"{RANGES} {{ {SUM} C[i, j] = 0 < accum ‸< 1; }}", "write a < b and b < c"),
    "arguments": (f"{RANGES} {{ {SUM} C[i, j] = ‸fma(accum, 1); }}", "must have 3 arguments"),
    "unknown name": (f"{RANGES} {{ {SUM} C[i, j] = ‸acum; }}", "write accum, or declare acum: f32; before where"),
    "unknown array": (f"{RANGES} {{ {SUM} C[i, j] = accum + ‸Z[i, j]; }}", "declare Z: f32[i, j];"),
    "unknown function": (f"{RANGES} {{ {SUM} C[i, j] = ‸sqr(accum); }}", "write sqrt"),
    "sum in 64 bits": (RANGES + " { reduce (k) { accum ‸+= s64(n[i, j]) * s64(P[i, k]); } C[i, j] = accum; }", "write f64(s64(n[i,j])"),
    "declared 64 bits": ("accum: s64; " + RANGES + " { reduce (k) { accum ‸+= s32(P[i, k]); } C[i, j] = accum; }", "is s64; it must be one of f64"),
    "stored in 64 bits": (f"{RANGES} {{ {SUM} C[i, j] = ‸u64(accum); }}", "write f64(u64(accum))"),
    "unknown type": ("P: ‸float32[i, k]; " + RANGES + f" {{ {SUM} C[i, j] = accum; }}", "write f32"),
    "unused definition": (f"{RANGES} {{ ‸acum = 0; reduce (k) {{ accum += P[i, k]; }} C[i, j] = accum; }}", "write accum, or remove it"),
    "unused declaration": ("‸Q: f32[i, k]; " + RANGES + f" {{ {SUM} C[i, j] = accum; }}", "is declared and not read"),
    "declared otherwise": ("P: f32[‸k, i]; " + RANGES + f" {{ {SUM} C[i, j] = accum; }}", "read as P[i, k]"),
    "declared rank": ("P: f32[i]; " + RANGES + " { reduce (k) { accum += ‸P[i, k]; } C[i, j] = accum; }", "declared with one axis"),
    "two ranks": (RANGES + " { reduce (k) { accum += P[i, k] * ‸P[k]; } C[i, j] = accum; }", "read with 2 axes before"),
    "diagonal": (RANGES + " { reduce (k) { accum += P[‸k, k]; } C[i, j] = accum; }", "must be written once"),
    "index arithmetic": (RANGES + " { reduce (k) { accum += P[‸i + 1, k]; } C[i, j] = accum; }", "must be an axis"),
    "gather": (RANGES + " { reduce (k) { accum += P[‸n[i], k]; } C[i, j] = accum; }", "gather rows of P"),
    "cube": (RANGES + " { reduce (k) { accum += P[i, j, ‸k]; } C[i, j] = accum; }", "one or two"),
    "unknown axis": (RANGES + " { reduce (k) { accum += P[‸l, k]; } C[i, j] = accum; }", "is no axis"),
    "reserved input": (RANGES + " { reduce (k) { accum += P[i, k] * ‸max; } C[i, j] = accum; }", "word of the language"),
    "output is an input": (RANGES + " { reduce (k) { accum += ‸P[i, k]; } P[i, j] = accum; }", "is an output and has no value"),
    "output is declared": ("P: f32[i, k]; " + f"{RANGES} {{ {SUM.replace('P', 'R')} ‸P[i, j] = accum; }}", "is an input"),
    "two outputs": (f"{RANGES} {{ {SUM} C[i, j] = accum; ‸C[j, i] = accum; }}", "another name"),
    "heap": (f"{RANGES} {{ {SUM} ‸min_heap_128.add(accum); }}", "write best.top(128, accum, i, j)"),
    "top of pairs": (f"{RANGES} {{ {SUM} L.‸top(3, accum); }}", "the indices: L.top(n, accum, i, j)"),
    "top of columns": (f"{RANGES} {{ {SUM} L[j].‸bottom(3, accum, j); }}", "the indices: L[j].bottom(n, accum, i)"),
    "top of k": (f"{RANGES} {{ {SUM} ‸L[k].top(3, accum, j); }}", "or one of each i or j"),
    "top of many": (f"{RANGES} {{ {SUM} L[i].top(‸65537, accum, j); }}", "must be from 0 to 65536"),
    "top of a fraction": (f"{RANGES} {{ {SUM} L[i].top(‸2.5, accum, j); }}", "the number of values is 2.5; it must be an integer"),
    "top of an element": (f"{RANGES} {{ {SUM} L[i].top(‸n[i, j], accum, j); }}", "it must be an integer, or a scalar"),
    "later distinct": (f"{RANGES} {{ {SUM} accum > 0 ? L.‸add_distinct(accum); }}", "not supported yet"),
    "method": (f"{RANGES} {{ {SUM} accum > 0 ? L.‸push(accum); }}", "write add"),
    "near method": (f"{RANGES} {{ {SUM} L.‸topp(3, accum, i, j); }}", "add, bottom, distinct, put, top: write top"),
    "semicolon": (RANGES + " { reduce (k) { accum += P[i, k]‸ } C[i, j] = accum; }", "write ; here"),
    "semicolon before a name": (RANGES + " { accum = 0‸ reduce (k) { accum += P[i, k]; } C[i, j] = accum; }", "write ; here"),
    "C and": (f"{RANGES} {{ {SUM} accum > 0 &‸& accum < 1 ? L.add(accum); }}", "write and"),
    "C not": (f"{RANGES} {{ {SUM} ‸!accum ? L.add(accum); }}", "write not"),
    "power": (f"{RANGES} {{ {SUM} C[i, j] = accum *‸* 2; }}", "write pow(x, y)"),
    "for": ("‸for (i = 0; i < M; i++)", "write where"),
    "empty": ("‸", "the text ends early"),
    "character": (RANGES + " { reduce (k) { accum += P[i, k] ‸@ 2; } }", "no character of the language"),
    "unclosed": (f"{RANGES} {{ {SUM} C[i, j] = accum;‸", "ends early"),
    "nesting": (f"{RANGES} {{ {SUM} C[i, j] = {'(' * 300}1{')' * 300}; }}", "are nested here"),
    "long sum": (f"{RANGES} {{ {SUM} C[i, j] = accum{' + 1.0' * 150}; }}", "nests more than 100 operators"),
    "integer of many digits": (f"{RANGES} {{ {SUM} C[i, j] = accum + ‸{'9' * 5000}; }}", "more than 64 bits"),
}  # fmt: skip


@pytest.mark.parametrize("rule", ERRORS)
def test_errors_show_the_place_and_what_to_write(rule: str) -> None:
    marked, message = ERRORS[rule]
    text = marked.replace("‸", "")
    types = TYPES if rule != "key of floats" else {**TYPES, "thres": "f32"}
    with pytest.raises(TaskError) as caught:
        parse(text, types)
    assert message in str(caught.value)
    if "‸" in marked:
        assert (caught.value.line, caught.value.column) == (1, marked.index("‸") + 1)
    first, line, carets = str(caught.value).split("\n")
    assert first.startswith(f"line {caught.value.line}, column {caught.value.column}: ")
    if marked.strip("‸") and len(text) < 120:
        assert line == f"    {text}"
        assert carets.index("^") - 4 == caught.value.column - 1


def test_a_text_is_a_string() -> None:
    for wrong in (None, b"where", 3):
        with pytest.raises(TaskError, match="it must be a string"):
            parse(wrong)  # type: ignore[arg-type]


def test_errors_of_later_lines_show_their_line() -> None:
    text = f"P: f32[i, k];\n{RANGES} {{\n  {SUM}\n\tC[i, j] = acum;\n}}"
    with pytest.raises(TaskError) as caught:
        parse(text, TYPES)
    assert str(caught.value).split("\n")[1:] == ["     C[i, j] = acum;", "               ^^^^"]
    assert (caught.value.line, caught.value.column) == (4, 12)


def test_canonical_text_names_what_is_used_twice() -> None:
    """Otherwise the text would have 2³⁰ terms."""
    body = "x0 = P[i, k]; " + " ".join(f"x{n} = x{n - 1} * x{n - 1};" for n in range(1, 31))
    program = parse(f"{RANGES} {{ reduce (k) {{ {body} accum += x30; }} C[i, j] = accum; }}", TYPES)
    text = canonical(program)
    assert len(text) < 600
    assert not set(text) & set(" \t\n")
    assert parse(text) == program
    assert digest(program)


def test_digest_forgets_names_and_the_order_of_commutative_operands() -> None:
    first = f"{RANGES} {{ {SUM} accum * scale[i] + bias[j] > t ? hits.add(accum, i, j); }}"
    second = (
        "where (y in [0, Y), x in [0, X)) { s = 0; reduce (z in [0, Z)) { s = B[z, x] * A[y, z] + s; }"
        " d[x] + c[y] * s > limit ? list.add(s, y, x); }"
    )
    one = parse(first, {**TYPES, "scale": "f32", "bias": "f32", "t": "f32"})
    two = parse(second, dict.fromkeys(("A", "B", "c", "d", "limit"), "f32"))
    assert one != two
    assert digest(one) == digest(two)
    program, names = erased(one)
    assert program == erased(two)[0]
    assert set(names) == {"P", "R", "scale", "bias", "t", "hits"}
    other = parse(first.replace("+ bias", "- bias"), {**TYPES, "scale": "f32", "bias": "f32", "t": "f32"})
    assert digest(other) != digest(one)


def test_digest_tells_arrays_apart() -> None:
    text = f"{RANGES} {{ reduce (k) {{ accum += (A[i, k] - B[i, k]) * C[k, j]; }} D[i, j] = accum * E; }}"
    names = ("A", "B", "C")
    one = digest(parse(text, dict.fromkeys((*names, "E"), "f32")))
    assert one == digest(
        parse(text.replace("A[", "Z[").replace("B[", "A[").replace("Z[", "B["), dict.fromkeys((*names, "E"), "f32"))
    )
    assert one != digest(parse(text.replace("C[k, j]", "(A[i, k] * C[k, j])"), dict.fromkeys((*names, "E"), "f32")))
    assert one != digest(parse(text, {**dict.fromkeys((*names, "E"), "f32"), "C": "f16"}))
    assert one != digest(parse(text.replace("B[i", "A[i"), dict.fromkeys((*names, "E"), "f32")))


def test_no_arrays_of_one_use_and_type_mix_in_the_digest() -> None:
    """A*B + A is B*A + B with other names, and is not A*B + C."""

    def of(step: str) -> str:
        text = f"{RANGES} {{ reduce (k) {{ accum += {step}; }} D[i, j] = accum; }}"
        return digest(parse(text, dict.fromkeys("ABC", "f32")))

    assert of("A[i, k] * B[i, k] + A[i, k]") == of("A[i, k] * B[i, k] + B[i, k]")
    assert of("A[i, k] * B[i, k] + A[i, k]") != of("A[i, k] * B[i, k] + C[i, k]")


def test_constants_are_printed_exactly() -> None:
    values = {
        "f32": (0.1, 1e-30, 3.0, -2.5, 16777216.0, -0.0, float("inf"), float("nan")),
        "f16": (0.1, 65504.0),
        "bf16": (0.3, 1e38),
    }
    for type, numbers in values.items():
        for number in numbers:
            text = f"{RANGES} {{ {SUM} C[i, j] = {type}({number!r}); D[j, i] = x[i] * {number!r}; }}"
            program = parse(text, {**TYPES, "x": "f32"})
            assert parse(canonical(program)) == program
            value = program.outputs[0].value
            assert (value.op, value.type) == ("constant", type)
    half = parse(f"{RANGES} {{ {SUM} C[i, j] = f16(0.1); D[i, j] = bf16(0.1); }}", TYPES)
    assert [x.value.value for x in half.outputs] == [0.0999755859375, 0.10009765625]


def test_select_of_numbers_takes_the_type_of_the_other_operand() -> None:
    program = parse(f"{RANGES} {{ {SUM} C[i, j] = accum * (accum > 0 ? 1 : 0); }}", TYPES)
    c = variable("accum", "f32")
    positive = node("<", "pred", constant(0, "f32"), c)
    assert program.outputs[0].value is node("*", "f32", c, select(positive, constant(1, "f32"), constant(0, "f32")))


TOKENS = (
    *"[](){};,.?:=+-*/<>&|^~!%@#$'\"\\ \n\t", "where", "when", "reduce", "in", "accum", "i", "j", "k", "M", "K", "P", "R[k, j]",
    "C[i, j]", "C[Pzip[i], Rzip[j]]", "L.add(accum)", "top", "max", "fmin", "argmax", "mean", "f16", "u8", "f64", "bf16", "s64", "0",
    "1e999", "1.5", "0xFF", "99999999999999999999999", "inf", "nan", "true", "not", "and", "or", "==", "<=", "+=", "-=", "<<", ">>=",
    "popcount(", "exp(", "min(", "fma(", "accum > thres ? ", "P: f16[i, k];", "accum: bf16;", "é", "\x00", "//", "(accum, k)",
)  # fmt: skip


def mutated(text: str, draw: random.Random) -> str:
    """The text with 1 to 4 random changes."""
    for _ in range(draw.randint(1, 4)):
        at, end = sorted(draw.randrange(len(text) + 1) for _ in range(2))
        short = min(end, at + draw.randint(1, 8))
        change = draw.randrange(6)
        if change == 0:
            text = text[:at] + text[short:]
        elif change == 1:
            text = text[:at] + draw.choice(TOKENS) + text[at:]
        elif change == 2:
            text = text[:at] + draw.choice(TOKENS) + text[short:]
        elif change == 3:
            text = text[:end] + text[at:end] + text[end:]
        elif change == 4:
            text = text[:at]
        else:
            words = text.split(" ")
            a, b = (draw.randrange(len(words)) for _ in range(2))
            words[a], words[b] = words[b], words[a]
            text = " ".join(words)
    return text


def outcome(text: str, types: dict[str, str]) -> Program | TaskError:
    try:
        return parse(text, types)
    except TaskError as error:
        return error


def test_mutated_texts_are_programs_or_errors_with_a_place() -> None:
    """``PTXGEN_TEST_MUTATIONS`` is the number of texts; 100,000 in a long run."""
    texts = [text for text, _ in QUERIES.values()] + [
        text.replace("‸", "") for text, _ in ERRORS.values() if len(text) < 400
    ]
    programs = 0
    for seed in range(int(os.environ.get("PTXGEN_TEST_MUTATIONS", "2000"))):
        draw = random.Random(seed)
        text = mutated(draw.choice(texts), draw)
        ending = outcome(text, {**TYPES, "thres": draw.choice(("f32", "float", "int"))})
        if isinstance(ending, TaskError):
            assert ending.line > 0, text
            assert "^" in str(ending).split("\n")[-1], text
            continue
        programs += 1
        assert parse(canonical(ending)) == ending, text
        assert roots(ending)
        assert digest(ending)
    assert programs
