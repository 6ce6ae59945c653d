"""The tables and figures of Zhang et al. as text, CSV and charts, made from the document of ``paper batchgemm``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import Any

from ptxgen.cli.paper_tables import PaperTable
from ptxgen.cli.pictures import Bars, Heat, Lines
from ptxgen.cli.report import Document
from ptxgen.cli.tables import number
from ptxgen.errors import InputError
from ptxgen.operations.grouped.suites import INCEPTION, NAMED_RANGES
from ptxgen.operations.grouped.tlp_policy import TILES, UNIFORM_TILES

#: method or library, as documents name it -> its title
METHODS = {
    "tlp": "method",
    "ptxgen": "ptxgen",
    "tlp_blocks": "old TLP",
    "tlp_uniform": "128 threads",
    "tlp_near": "tiles that nearly fit",
    "tlp_fits": "tiles that fit",
    "tlp_single": "item by item",
    "tlp_grid": "largest item's grid",
    "vbatched": "MAGMA's launch",
    "cublas_calls": "cuBLAS loop",
    "cublas_loop": "cuBLAS loop, graph",
    "cublas_grouped": "cuBLAS grouped",
    "cutlass": "CUTLASS grouped",
    "cudnn": "cuDNN",
}
SINGLE = tuple(f"tile_{t.m}x{t.n}" for t in TILES)  #: the methods with one tile for all items
METHODS |= {f"tile_{t.m}x{t.n}": f"{t.m}×{t.n} alone" for t in TILES}
MEANINGS = (
    "method: Algorithm 1, one launch of one kernel with five tiles; 128 threads: with the tiles of Table 2",
    "MAGMA's launch: one tile for all items, grid of the largest item; cuBLAS loop: a call an item, with the host's"
    " part; graph: without",
)
#: the methods of Figures 4, 5 and 10; ``ARTICLE`` has the article's speedups over some of them on an A800
COMPARED = (
    "tlp",
    "ptxgen",
    "tlp_near",
    "tlp_uniform",
    "vbatched",
    "cublas_calls",
    "cublas_loop",
    "cublas_grouped",
    "cutlass",
)
ARTICLE = {"cublas_calls": 7.18, "cutlass": 4.64, "vbatched": 3.63}
ARTICLE_LATENCY = {"cublas_calls": 3.02, "vbatched": 2.59, "cutlass": 2.45}
#: (tile, T_k) -> the workloads W_CP and W_DL in the article
TABLE_2 = {("small", 8): (2, 4), ("small", 16): (2, 6), ("medium", 8): (8, 12), ("medium", 16): (8, 16)}
TABLE_2 |= {("large", 8): (32, 40), ("large", 16): (32, 48)}
TABLE_3 = {"small": (2, 6), "small-medium": (4, 10), "medium": (8, 16), "medium-large": (8, 14), "large": (16, 24)}
#: number of items -> percent of the run time that the choice of tiles takes on an A800, in the article
ARTICLE_OVERHEAD = {8: "6.37", 1024: "< 1"}
FEW, MANY = 16, 32  #: the article compares lists of at most 16 items with lists of 32 or more


@dataclass(frozen=True)
class Shown:
    """A table or figure that the command prints. ``times``: False if it needs no measured times; ``device``: the device
    of the shipped times; None: the default."""

    table: Callable[[Document], PaperTable]
    times: bool = True
    device: str | None = None


def table2(document: Document) -> PaperTable:
    """Table 2: the uniform design of earlier work, with 128 threads for each tile."""
    rows: list[list[Any]] = []
    for tile in UNIFORM_TILES:
        for k in (8, 16):
            compute = tile.m * tile.n / tile.threads
            load = (tile.m * tile.n + tile.m * k + k * tile.n) / tile.threads
            rows.append([tile.name, tile.m, tile.n, k, tile.threads, compute, load, *TABLE_2[tile.name, k]])
    return _workloads(document, "Table 2: 128 threads", rows)


def table3(document: Document) -> PaperTable:
    """Table 3: the multi-thread design, with 128 or 256 threads."""
    rows = [[t.name, t.m, t.n, t.k, t.threads, t.compute_workload, t.load_workload, *TABLE_3[t.name]] for t in TILES]
    return _workloads(document, "Table 3: 128 or 256 threads", rows)


def _workloads(document: Document, title: str, rows: list[list[Any]]) -> PaperTable:
    titles = ("tile", "T_m", "T_n", "T_k", "threads", "W_CP", "W_DL", "article's W_CP", "article's W_DL")
    labels = [f"{r[0]}, T_k {r[3]}" for r in rows]
    notes = ["W_CP, W_DL: elements of C that a thread computes, and elements that it loads (Equations 1 and 2)"]
    ratios = [
        r["us"]["tlp_uniform"] / r["us"]["tlp"] for r in _lists(document) if {"tlp_uniform", "tlp"} <= set(r["us"])
    ]
    if ratios:
        notes.append(
            f"on {document['device']}, {len(ratios)} lists take {number(geometric_mean(ratios))} times as long with the"
            " tiles of Table 2 as with those of Table 3 (geometric mean)"
        )
    chart = Bars(title, labels, {"W_CP": [r[5] for r in rows], "W_DL": [r[6] for r in rows]}, "elements of a thread")
    return PaperTable(titles, rows, notes, chart)


def table6(document: Document) -> PaperTable:
    """Table 6: the products of Inception modules."""
    rows = [[name, ", ".join(f"{m}×{n}×{k}" for m, n, k in items)] for name, items in INCEPTION.items()]
    work = [sum(2 * m * n * k for m, n, k in items) * 1e-6 for items in INCEPTION.values()]
    chart = Bars("Table 6: Inception modules", list(INCEPTION), {"work": work}, "MFLOP")
    return PaperTable(("module", "M×N×K"), rows, ["the article's Table 6"], chart)


def figure3(document: Document) -> PaperTable:
    """Figure 3: speeds of tiles by the number of threads."""
    swept = document.get("sweep") or []
    if not swept:
        raise InputError("the document has no sweep: measure it again")
    threads = sorted({r["threads"] for r in swept})
    speeds = {(r["m"], r["n"], r["threads"]): r["gflops"] for r in swept}
    design = {(t.m, t.n): t.threads for t in TILES}
    rows: list[list[Any]] = []
    tiles = sorted({(r["m"], r["n"]) for r in swept}, key=lambda t: (t[0] * t[1], t))
    for m, n in tiles:
        values = [speeds.get((m, n, t)) for t in threads]
        known = [(speed, t) for speed, t in zip(values, threads, strict=True) if speed]
        rows.append([f"{m}×{n}", *values, max(known)[1] if known else None, design.get((m, n))])
    labels = [row[0] for row in rows]
    series = {f"{t} threads": [row[1 + i] for row in rows] for i, t in enumerate(threads)}
    notes = [
        f"GFLOP/s on {document['device']}, of many products of 512×512×512; fastest: threads; Table 3: the article's",
        "the article's text names 8×8, 32×32 and 64×64 of the nine tiles",
    ]
    failed = {(r["m"], r["n"], r["threads"]): r["note"] for r in swept if r["gflops"] is None and r["note"]}
    notes += [f"{m}×{n}, {t} threads: {note}" for (m, n, t), note in failed.items()]
    chart = Bars(f"Figure 3: tiles on {document['device']}", labels, series, "GFLOP/s")
    return PaperTable(("tile", *(f"{t} threads" for t in threads), "fastest", "Table 3"), rows, notes, chart)


def speeds(document: Document, title: str) -> PaperTable:
    """Figures 4 and 5: speeds by the number of items."""
    lists = _random_lists(document)
    methods = _known(lists, COMPARED)
    rows: list[list[Any]] = []
    for r in lists:
        gflops = [_gflops(r, m) for m in methods]
        faster = [_ratio(r, m, "tlp") for m in methods[1:]]
        rows.append([_range(r), r["named"], r["items"], *gflops, *faster])
    heads = [f"× {METHODS[m]}" for m in methods[1:]]
    notes = [f"GFLOP/s on {document['device']}, f32; ×: time of the other / time of the method", *MEANINGS]
    notes += _named_means(lists, methods[1:], ARTICLE)
    if single := [r for r in lists if {"tlp", *SINGLE} <= set(r["us"])]:
        beaten = sum(r["us"]["tlp"] < min(r["us"][m] for m in SINGLE) for r in single)
        notes.append(f"the method is faster than every tile alone on {beaten} of {len(single)} lists")
    series = {METHODS[m]: _by_items(lists, lambda r, m=m: _gflops(r, m)) for m in methods}  # type: ignore[misc]
    chart = Lines(f"{title} on {document['device']}: speed by batch size", series, "items", "GFLOP/s, geometric mean")
    titles = ("range", "named", "items", *(METHODS[m] for m in methods), *heads)
    return PaperTable(titles, rows, notes, chart, (*reversed(heads[1:]), *(METHODS[m] for m in reversed(methods[2:]))))


def figure6(document: Document) -> PaperTable:
    """Figure 6: occupancy by the number of items."""
    lists = _random_lists(document)
    variants = [m for m in METHODS if any(m in r["occupancy"] for r in lists)]
    counts = _counts(lists)
    rows: list[list[Any]] = []
    for count in counts:
        columns = [[r["occupancy"][m] for r in lists if r["items"] == count and m in r["occupancy"]] for m in variants]
        rows.append([count, *(100 * fmean(x) if x else None for x in columns)])
    series = {
        METHODS[m]: [(float(row[0]), row[1 + i]) for row in rows if row[1 + i] is not None]
        for i, m in enumerate(variants)
    }
    notes = [
        f"percent of the warps of {document['device']} that are active at once, by Equation 12, mean over the ranges"
    ]
    chart = Lines(f"Figure 6: occupancy on {document['device']}", series, "items", "%")
    return PaperTable(("items", *(METHODS[m] for m in variants)), rows, notes, chart)


def figure7(document: Document) -> PaperTable:
    """Figure 7: the overhead of the choice of tiles, in the ranges of sizes that the article names."""
    lists = [r for r in _random_lists(document, many=True) if r["named"] and "tlp" in r["host_us"] and "tlp" in r["us"]]
    if not lists:
        raise InputError("the document has no list of a range that the article names: measure it again")
    rows: list[list[Any]] = []
    for count in _counts(lists):
        same = [r for r in lists if r["items"] == count]
        host, us = fmean(r["host_us"]["tlp"] for r in same), fmean(r["us"]["tlp"] for r in same)
        calls = [r["us"]["cublas_calls"] for r in same if "cublas_calls" in r["us"]]
        percent = [100 * host / (host + us), 100 * host / fmean(calls) if calls else None]
        rows.append([count, host, us, *percent, ARTICLE_OVERHEAD.get(count)])
    named = " and ".join(f"{mn}/{k}" for mn, k in NAMED_RANGES)
    notes = [
        f"on {document['device']}, mean of the ranges {named}; overhead: choice / (choice + launch); the article does"
        " not say what its run time holds",
        "a list is chosen for once, and may be computed many times",
    ]
    titles = ("items", "choice µs", "launch µs", "overhead %", "% of cuBLAS loop", "article %")
    series = {"choice / (choice + launch)": [(float(r[0]), r[3]) for r in rows]}
    if any(r[4] is not None for r in rows):
        series["choice / cuBLAS loop"] = [(float(r[0]), r[4]) for r in rows if r[4] is not None]
    return PaperTable(titles, rows, notes, Lines(f"Figure 7: overhead on {document['device']}", series, "items", "%"))


def old_tlp(document: Document, title: str, article: float) -> PaperTable:
    """Figures 8 and 9: the gain of the new definition of TLP over the old one."""
    lists = [r for r in _random_lists(document) if {"tlp", "tlp_blocks"} <= set(r["us"])]
    if not lists:
        raise InputError("the document has no times by the old TLP: measure it again")
    gains = {(_range(r), r["items"]): r["us"]["tlp_blocks"] / r["us"]["tlp"] for r in lists}
    ranges, counts = list(dict.fromkeys(_range(r) for r in lists)), _counts(lists)
    named = {_range(r): r["named"] for r in lists}
    rows = [[name, named[name], *(gains.get((name, count)) for count in counts)] for name in ranges]
    few, many = ([g for (_, n), g in gains.items() if keep(n)] for keep in (FEW.__ge__, MANY.__le__))
    notes = [
        f"time by the old TLP (Equation 3) / time by the new one (Equation 4) on {document['device']}, each with its"
        " tuned threshold",
        f"geometric mean {number(geometric_mean(gains.values()))} (article: {article}); at most {FEW} items"
        f" {_mean_text(few)}, at least {MANY} {_mean_text(many)} (article: 1.04 and {1.1 if article < 1.08 else 1.11})",
        f"{sum(g == 1 for g in gains.values())} of {len(gains)} lists get the same tiles",
    ]
    cells = [[None if g is None else (g, f"{g:.2f}") for g in row[2:]] for row in rows]
    chart = Heat(f"{title} on {document['device']}", [str(c) for c in counts], ranges, cells, "items", "M, N / K up to")
    return PaperTable(("range", "named", *(f"{c} items" for c in counts)), rows, notes, chart)


def figure10(document: Document) -> PaperTable:
    """Figure 10: latencies by the number of items."""
    lists = _random_lists(document)
    methods = _known(lists, COMPARED)
    rows: list[list[Any]] = []
    for count in _counts(lists):
        same = [r for r in lists if r["items"] == count]
        rows.append([count, *(_mean_of(r["us"].get(m) for r in same) for m in methods)])
    series = {METHODS[m]: _by_items(lists, lambda r, m=m: r["us"].get(m)) for m in methods}  # type: ignore[misc]
    notes = [f"µs on {document['device']}, geometric mean over the ranges", *MEANINGS]
    notes += _named_means(lists, methods[1:], ARTICLE_LATENCY)
    chart = Lines(f"Figure 10: latency on {document['device']}", series, "items", "µs, geometric mean")
    return PaperTable(("items", *(f"{METHODS[m]} µs" for m in methods)), rows, notes, chart)


def figure11(document: Document) -> PaperTable:
    """Figure 11: speedups over cuDNN in Inception modules."""
    lists = [r for r in _lists(document) if not r["max_mn"]]
    if not lists:
        raise InputError("the document has no Inception module: measure it again")
    methods = _known(lists, ("tlp", "ptxgen", "cudnn", "cublas_grouped"))
    gains = {m: [_ratio(r, "cudnn", m) for r in lists] for m in methods if m != "cudnn"}
    rows = [
        [r["name"], *(r["us"].get(m) for m in methods), *(gain[i] for gain in gains.values())]
        for i, r in enumerate(lists)
    ]
    notes = [f"µs on {document['device']}; ×: time of cuDNN, item after item, / time of the method"]
    for m, gain in gains.items():
        if known := [g for g in gain if g]:
            article = " (article: 1.87 on an A800)" if m == "tlp" else ""
            notes.append(f"geometric mean of the speedups over cuDNN, {METHODS[m]}: {_mean_text(known)}{article}")
    titles = ("module", *(f"{METHODS[m]} µs" for m in methods), *(f"× {METHODS[m]}" for m in gains))
    series = {METHODS[m]: gain for m, gain in gains.items() if any(gain)}
    shown = series or {METHODS[m]: [r["us"].get(m) for r in lists] for m in methods}
    unit = "time of cuDNN / time" if series else "µs"
    chart = Bars(f"Figure 11: Inception modules on {document['device']}", [r["name"] for r in lists], shown, unit)
    return PaperTable(titles, rows, notes, chart)


TABLES = {
    "table2": Shown(table2, times=False),
    "table3": Shown(table3, times=False),
    "table6": Shown(table6, times=False),
    "figure3": Shown(figure3),
    "figure4": Shown(lambda d: speeds(d, "Figure 4"), device="h200"),
    "figure5": Shown(lambda d: speeds(d, "Figure 5")),
    "figure6": Shown(figure6),
    "figure7": Shown(figure7),
    "figure8": Shown(lambda d: old_tlp(d, "Figure 8: gain of the new TLP", 1.077), device="h200"),
    "figure9": Shown(lambda d: old_tlp(d, "Figure 9: gain of the new TLP", 1.085)),
    "figure10": Shown(figure10),
    "figure11": Shown(figure11),
}


def _lists(document: Document) -> list[Document]:
    return list(document.get("lists") or ())


def _random_lists(document: Document, many: bool = False) -> list[Document]:
    """The rows of random lists. ``many``: True includes lists with more items than the suite has. InputError: the
    document has no random list."""
    lists = [r for r in _lists(document) if r["max_mn"] and (many or r["items"] < 1000)]
    if not lists:
        raise InputError("the document has no random list: measure it again")
    return lists


def _known(lists: Sequence[Document], methods: Iterable[str]) -> list[str]:
    """The methods for which some list has a time. InputError: the article's own method is not among them."""
    timed = [m for m in methods if any(m in r["us"] for r in lists)]
    if "tlp" not in timed:
        raise InputError("the document has no time of the method: measure it again")
    return timed


def _counts(lists: Sequence[Document]) -> list[int]:
    return sorted({r["items"] for r in lists})


def _range(row: Document) -> str:
    return f"{row['max_mn']}/{row['max_k']}"


def _gflops(row: Document, method: str) -> float | None:
    us = row["us"].get(method)
    return row["flops"] / us * 1e-3 if us else None


def _ratio(row: Document, slower: str, faster: str) -> float | None:
    us = row["us"]
    return us[slower] / us[faster] if slower in us and faster in us else None


def _mean_of(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the values that are not None; None: there are none."""
    known = [v for v in values if v]
    return geometric_mean(known) if known else None


def _mean_text(values: Sequence[float]) -> str:
    return number(geometric_mean(values)) if values else "-"


def _by_items(lists: Sequence[Document], value: Callable[[Document], float | None]) -> list[tuple[float, float]]:
    """Pairs of a number of items, and the geometric mean of ``value`` over the lists with this number."""
    means = ((c, _mean_of(value(r) for r in lists if r["items"] == c)) for c in _counts(lists))
    return [(float(count), mean) for count, mean in means if mean is not None]


def _named_means(lists: Sequence[Document], methods: Sequence[str], article: dict[str, float]) -> list[str]:
    """Lines with the mean time of each other method relative to the article's method, in the ranges of sizes that the
    article names, and in the ranges chosen here."""
    lines = []
    for m in methods:
        parts = []
        for text, named in (("named ranges", True), ("others", False)):
            known = [x for r in lists if r["named"] == named and (x := _ratio(r, m, "tlp"))]
            if known:
                parts.append(f"{text} {_mean_text(known)}")
        other = f" (article: {article[m]} on an A800)" if m in article else ""
        lines.append(f"geometric mean of × {METHODS[m]}: {', '.join(parts)}{other}")
    return lines
