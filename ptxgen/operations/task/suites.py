"""Suites of tasks: the queries of Gamut, semirings, distances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ptxgen.operations.task import pair_suites
from ptxgen.operations.task.gradients import Computed, gradients
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.texts import input_ranks, parse
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.semirings import SEMIRINGS, semiring_program
from ptxgen.problem.base import COMPUTE_MODES
from ptxgen.problem.device import device
from ptxgen.problem.operation import Case, Suite, by_name

#: the queries of the paper. Query 1 has the assignment that its figure 1 implies; query 6 reads R at [j,k]: R[k,j], as
#: the paper writes, holds for square matrices alone. Query 7 here lists the pairs that are not behind a bound
QUERIES = {
    "q1": """where (i in [0, M], j in [0, N]) { accum = 0;
    reduce (k in [0, K]) {
        accum += S[i,k]*W[k,j] + (S[i,k]*W[k,j] > thres[i])*(S[i,k]*W[k,j]-thres[i]);
    } C[i,j] = accum; }""",
    "q2": """where (i in [0, M], j in [0, N]) { accum = 0;
    reduce (k in [0, K]) { accum += P[i,k]*R[k,j]; } C[Pzip[i],Rzip[j]] += accum; }""",
    "q3": """where (i in [0, M], j in [0, N]) { accum = 0;
    reduce (k in [0, K]) { accum += P[i,k]*R[k,j]; } C[Pzip[i],Rzip[j]] += accum > thres; }""",
    "q4": """where (i in [0, M], j in [0, N]) when (Pzip[i] == Rzip[j]) { accum = 0;
    reduce (k in [0, K]) { accum += P[i,k]*R[k,j]; } C[Pzip[i],Rzip[j]] += accum; }""",
    "join": """where (i in [0, M], j in [0, N]) when (Pzip[i] == Rzip[j]) { accum = 0;
    reduce (k in [0, K]) { accum += P[i,k]*R[k,j]; } C[Pzip[i],Rzip[j]] += accum > thres; }""",
    "q5": """where (i in [0, M], j in [0, N]) { accum = 0;
    reduce (k in [0, K]) { accum += P[i,k]*R[k,j]; } accum > thres ? C.add(accum, i, j); }""",
    "q6": """where (i in [0, M], j in [0, N]) { accum = 0;
    reduce (k in [0, K]) { accum += max(R[i,k],R[j,k])*max(R[i,k],R[j,k]); } accum > thres ? C.add(accum, i, j); }""",
    "q7": """where (i in [0, M], j in [0, N]) { accum = 0; reduce (k in [0, K]) { accum += P[i,k]*R[k,j]; }
    not (accum < thres*4.0*sqrt(f32(K))) ? C.add(accum, i, j); }""",
}
#: name -> the step of a distance of rows of P and R
DISTANCES = {
    "l1": "accum += abs(P[i,k] - R[j,k]);",
    "l2": "accum += (P[i,k] - R[j,k])*(P[i,k] - R[j,k]);",
    "linf": "accum = max(accum, abs(P[i,k] - R[j,k]));",
}
PAIRED = ("max_plus", "min_plus", "max_min")  #: semirings that are computed on pairs of 16-bit elements
#: name of a reduction of bits -> type of A and B -> (step, result)
BITS = {
    "or_and": {
        "u8": ("accum |= P[i,k] != 0 and R[k,j] != 0;", "accum != 0"),
        "u32": ("accum |= P[i,k] & R[k,j];", "accum != 0"),
    },
    "hamming": {
        "u8": ("accum += (P[i,k] != 0) != (R[j,k] != 0);", "accum"),
        "u32": ("accum += popcount(P[i,k] ^ R[j,k]);", "accum"),
    },
    "jaccard": {
        "u8": ("accum += P[i,k] != 0 and R[j,k] != 0;", "f32(accum) / f32(p[i] + r[j] - accum)"),
        "u32": ("accum += s32(popcount(P[i,k] & R[j,k]));", "f32(accum) / f32(p[i] + r[j] - accum)"),
    },
}
COUNTS = ("p", "r")  #: the arrays that have the number of ones of each row
WORD = 32  #: the bits of a word
BIT_SIDES = (1024, 4096, 8192)  #: values of M = N, each also the number of bits of a row
SIDES = (1024, 2048, 4096, 8192, 16384)  #: M = N = K
#: (M, N, K) of narrow and deep tasks
NARROW = ((64, 65536, 256), (4096, 64, 4096), (65536, 128, 128), (256, 256, 65536), (16, 16384, 1024))
#: query that lists pairs -> its threshold: for normal values and ``thres`` = 1, one result in 1,000 exceeds it
THRESHOLDS = {"q5": "thres*3.09*sqrt(f32(K))", "q6": "f32(K)+thres*4.37*sqrt(f32(K))"}
#: fraction of pairs that exceed a threshold -> this threshold of query 3
COUNTED = {"half": "thres", "1/1000": THRESHOLDS["q5"]}
KEYS = ("Pzip", "Rzip")
JOINED, KEY_COUNTS = (4096, 8192), (10, 100, 1000)  #: M = N = K of joins; the numbers of different keys
GROUPS = "128,128"  #: the rows and columns of C in queries with keys, as in the released code of Gamut


def types_of(text: str, element_type: str) -> dict[str, str]:
    """Name -> type of the inputs of a text: ``element_type``, but s32 for group keys."""
    return {name: "s32" if name in KEYS else element_type for name in input_ranks(text)}


def typed_text(text: str, element_type: str) -> str:
    return canonical(parse(text, types_of(text, element_type)))


def distance_text(name: str, one_array: bool = False) -> str:
    """The text of a task that computes a distance. ``one_array``: True: both rows are rows of R."""
    step = DISTANCES[name].replace("P[", "R[") if one_array else DISTANCES[name]
    return f"where (i in [0, M], j in [0, N]) {{ reduce (k in [0, K]) {{ {step} }} C[i,j] = accum; }}"


def _cubes(name: str, text: Callable[[str], str], dtype: str = "f32", **fields: Any) -> Iterator[Case]:
    for n in SIDES:
        yield Case(f"{name} {n}", Task(n, n, n, dtype=dtype, text=text(dtype), **fields))


def _semirings(dtype: str = "f32", **fields: Any) -> Iterator[Case]:
    for name in SEMIRINGS:
        if name != "or_and" or dtype.startswith(("s", "u")):
            yield from _cubes(
                name,
                lambda element_type, name=name: canonical(semiring_program(name, element_type)),  # type: ignore[misc]
                dtype,
                **fields,
            )


def _pairs(dtype: str = "f16", **fields: Any) -> Iterator[Case]:
    for name in PAIRED:
        text = partial(semiring_program, name, out=dtype, accum=dtype)
        yield from _cubes(name, lambda element_type, text=text: canonical(text(element_type)), dtype, **fields)  # type: ignore[misc]


def _distances(dtype: str = "f32", **fields: Any) -> Iterator[Case]:
    for name in DISTANCES:
        yield from _cubes(
            name,
            lambda element_type, name=name: typed_text(distance_text(name), element_type),  # type: ignore[misc]
            dtype,
            **fields,
        )
    for name in DISTANCES:
        text = partial(distance_text, name, True)
        yield from _cubes(
            f"{name} of one array",
            lambda element_type, text=text: typed_text(text(), element_type),  # type: ignore[misc]
            dtype,
            **fields,
        )


def gradient_text(element_type: str, text: str, array: str) -> str:
    """The text of the task that computes the gradient of an array. The plan of the gradient must have one step."""
    plan = gradients(parse(text, types_of(text, element_type)), frozenset((array,)), False)
    [step] = plan.steps
    assert isinstance(step, Computed)
    return canonical(step.program)


def _gradients(dtype: str = "f32", **fields: Any) -> Iterator[Case]:
    sources = {name: (distance_text(name), "P") for name in ("l1", "l2")} | {"q1": (QUERIES["q1"], "S")}
    for name, (text, array) in sources.items():
        yield from _cubes(f"gradient of {name}", partial(gradient_text, text=text, array=array), dtype, **fields)


def _narrow(dtype: str = "f32", **fields: Any) -> Iterator[Case]:
    for name in ("max_plus", "max_min"):
        text = canonical(semiring_program(name, dtype))
        for m, n, k in NARROW:
            yield Case(f"{name} {m}x{n}x{k}", Task(m, n, k, dtype=dtype, text=text, **fields))


def _small(dtype: str = "f32", **fields: Any) -> Iterator[Case]:
    for name in ("min_plus", "max_min"):
        text = canonical(semiring_program(name, dtype))
        yield Case(name, Task(48, 40, 33, dtype=dtype, text=text, **fields))
    yield Case("q1", Task(33, 64, 40, dtype=dtype, text=typed_text(QUERIES["q1"], dtype), **fields))
    yield Case("l1", Task(64, 33, 20, dtype=dtype, text=typed_text(distance_text("l1"), dtype), **fields))


def _query(name: str, **fields: Any) -> Iterator[Case]:
    return _cubes(name, lambda element_type: typed_text(QUERIES[name], element_type), **fields)


def _grouped(name: str, **fields: Any) -> Iterator[Case]:
    """The cases of a query with groups. Query 3 counts half of the pairs; for floats, other cases count one in
    1,000."""
    fields = {"dtype": "f32", "groups": GROUPS, **fields}
    shares = {"": "thres"} if name != "q3" else COUNTED if fields["dtype"] in COMPUTE_MODES else {"half": "thres"}
    for share, threshold in shares.items():
        text = QUERIES[name].replace("> thres", f"> {threshold}")
        yield from _cubes(
            f"{name} {share}".strip(),
            lambda element_type, text=text: typed_text(text, element_type),  # type: ignore[misc]
            **fields,
        )


def _joins(**fields: Any) -> Iterator[Case]:
    """The cases of joins: they count the pairs with equal keys whose result is above a threshold."""
    fields = {"dtype": "f32", **fields}
    text = typed_text(QUERIES["join"], fields["dtype"])
    for n in JOINED:
        for keys in KEY_COUNTS:
            groups = {"groups": f"{keys},{keys}", **fields}
            yield Case(f"join {n}, {keys} keys", Task(n, n, n, text=text, **groups))


def _selection(name: str, **fields: Any) -> Iterator[Case]:
    text = QUERIES[name].replace("> thres", f"> {THRESHOLDS[name]}")
    for case in _cubes(name, lambda element_type: typed_text(text, element_type), **fields):
        p = case.problem
        assert isinstance(p, Task)
        p = replace(p, capacity=p.m * p.n // 64)
        yield replace(case, problem=p)
        if p.mirrored:
            yield Case(f"{case.name} all pairs", replace(p, algebra=False))


def _bounded(**fields: Any) -> Iterator[Case]:
    for case in _query("q7", **fields):
        p = case.problem
        assert isinstance(p, Task)
        yield replace(case, problem=replace(p, capacity=p.m * p.n // 64))


def _candidates(**fields: Any) -> Iterator[Case]:
    from ptxgen.operations.task.exact_select import ExactSelect  # it imports kernels

    for case in _selection("q5", **fields):
        p = case.problem
        assert isinstance(p, Task)
        exact = ExactSelect.of(p, device("h100"))
        if exact is not None:
            yield replace(case, name=case.name.replace("q5", "candidates"), problem=exact.stages[-1].problem)


def bit_text(name: str, element_type: str) -> str:
    """The canonical text of a reduction of bits. ``element_type``: u8: a truth value in each byte; u32: 32 bits in a
    word."""
    step, result = BITS[name][element_type]
    text = f"where (i, j) {{ reduce (k) {{ {step} }} C[i,j] = {result}; }}"
    return canonical(parse(text, {x: "s32" if x in COUNTS else element_type for x in input_ranks(text)}))


def _bits(dtype: str = "", **fields: Any) -> Iterator[Case]:
    for name, steps in BITS.items():
        for element_type in steps if not dtype else {dtype} & set(steps):
            for n in BIT_SIDES:
                k = n if element_type == "u8" else n // WORD
                yield Case(
                    f"{name} {element_type} {n}",
                    Task(n, n, k, dtype=element_type, text=bit_text(name, element_type), **fields),
                )


SUITES = by_name(
    Suite("q1", "query 1 of Gamut, cubes from 1024 to 16384", partial(_query, "q1")),
    Suite("q2", "query 2 of Gamut, sums in 128 x 128 groups, cubes from 1024 to 16384", partial(_grouped, "q2")),
    Suite("q3", "query 3 of Gamut, counts half, then 1 of 1,000 pairs in groups", partial(_grouped, "q3")),
    Suite("q4", "query 4 of Gamut, sums of pairs with equal groups", partial(_grouped, "q4")),
    Suite("join", "counts of pairs with equal keys, cubes of 4096 and 8192 with 10, 100 and 1000 keys", _joins),
    *(
        Suite(name, f"query {name[1:]} of Gamut, which lists 1 of 1,000 pairs, cubes from 1024 to 16384", build)
        for name, build in ((name, partial(_selection, name)) for name in THRESHOLDS)
    ),
    Suite(
        "q7", "query 7 of Gamut: lists of the pairs above its bound, 1 of 32,000, cubes from 1024 to 16384", _bounded
    ),
    Suite("candidates", "candidate pairs of query 5 in tf32, cubes from 2048 to 16384", _candidates),
    Suite("semirings16", "products over semirings reduced in 16 bits, cubes from 1024 to 16384", _pairs),
    Suite("semirings", "products over semirings, cubes from 1024 to 16384", _semirings),
    Suite(
        "distances", "L1, L2 and L∞ distances of rows, of two arrays and of one, cubes from 1024 to 16384", _distances
    ),
    Suite(
        "gradients",
        "gradients of the rows in L1, L2 and query 1 (ptxgen.torch.task), cubes from 1024 to 16384",
        _gradients,
    ),
    Suite("narrow", "products over semirings with one or two small extents", _narrow),
    *(
        Suite(f"{name}{suffix}", f"{meaning}, {where}", partial(pair_suites.cases, programs, shapes))
        for name, meaning, programs in (
            ("knn", "nearest rows by L2, L1 and cosine", pair_suites.KNN),
            ("pairwise", "all pairs of rows within a radius, densities, least distances", pair_suites.PAIRWISE),
        )
        for suffix, where, shapes in (
            ("", "65536 x 65536 and 4096 x 1M rows of 3 to 1024 elements", pair_suites.SHAPES),
            ("_small", "small enough for the emulated device", pair_suites.SMALL),
        )
    ),
    Suite("bits", "or-and, Hamming and Jaccard of truth values, one a byte, and of words of 32, cubes of bits", _bits),
    Suite("small", "one task of each form, small enough for the emulated device", _small),
)

TITLES = ("task", "M,N,K", "layout", "dtype", "reduced in", "out")


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    text = p["text"]
    body = text[text.index("where") :] if "where" in text else text
    short = body if len(body) <= 60 else f"{body[:57]}…"
    return [short, f"{p['m']},{p['n']},{p['k']}", p["layout"], p["dtype"], p["compute"], p["out"]]
