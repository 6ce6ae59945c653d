"""Makes the tables and the figure of the paper, as text, CSV and charts, from JSON documents of commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ptxgen.cli.pictures import Bars, Chart, Grid, Lines
from ptxgen.cli.report import (
    CONFIG,
    PAPER,
    REGRESSOR,
    Document,
    config_cells,
    operation_in,
    regressor_cells,
    shape_cells,
    shape_titles,
)
from ptxgen.cli.tables import Parts, Table, number
from ptxgen.errors import InputError

#: problem of Table 4 -> M_S, N_S, M_L, N_L, U, K_S, K_L, K_G in the paper's Table 6, in column-major terms
TABLE_6 = {
    "LINPACK 512": (2, 8, 32, 32, 8, 1, 1, 1),
    "LINPACK 2048": (8, 8, 64, 64, 8, 1, 1, 1),
    "DeepBench-F 16": (2, 4, 64, 16, 16, 1, 1, 4),
    "DeepBench-F 128": (4, 4, 64, 32, 8, 1, 1, 2),
    "DeepBench-B 16": (4, 2, 16, 16, 16, 1, 8, 1),
    "DeepBench-B 128": (4, 4, 64, 64, 8, 1, 1, 4),
    "ICA 32": (2, 4, 32, 32, 8, 1, 4, 32),
    "ICA 256": (4, 4, 32, 64, 8, 1, 1, 8),
    "LAPACK 896": (8, 4, 64, 64, 8, 1, 1, 1),
    "LAPACK 4096": (8, 16, 64, 128, 4, 1, 1, 1),
}
#: operation -> fractions of legal draws in the paper's Table 1, by categorical and by uniform sampling
TABLE_1 = {"gemm": (0.20, 0.001), "conv": (0.15, 0.001)}
#: sizes of the hidden layers -> errors in the paper's Table 2, with logarithms of the inputs and without; the paper
#: scales the targets differently
TABLE_2 = {
    (64,): (0.17, 1.2),
    (512,): (0.13, 1.0),
    (32, 64, 32): (0.088, 0.80),
    (64, 128, 64): (0.08, 0.75),
    (32, 64, 128, 64, 32): (0.073, None),
    (64, 128, 256, 128, 64): (0.067, None),
    (64, 128, 192, 256, 192, 128, 64): (0.062, None),
}


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of the paper. ``notes``: lines after the table; ``optional``: titles of columns that are left
    out if the text is too wide."""

    titles: Sequence[str]
    rows: list[list[Any]]
    notes: Sequence[str]
    chart: Chart
    optional: Sequence[str] = ()

    @property
    def parts(self) -> Parts:
        return [Table(self.titles, self.rows, self.optional), *self.notes]


def table1(document: Document) -> PaperTable:
    """Table 1: fractions of draws that are legal, as means over the problems of each operation."""
    rows: list[list[Any]] = []
    for name in dict.fromkeys(r["problem"]["operation"] for r in document["rows"]):
        samplers = [r["samplers"] for r in document["rows"] if r["problem"]["operation"] == name]
        mean = [_acceptance(samplers, sampler) for sampler in ("categorical", "uniform")]
        paper = TABLE_1.get(name, (None, None))
        rows.append([name, len(samplers), *(f"{x:.3%}" for x in mean), *(f"{x:.1%}" if x else None for x in paper)])
    shown = {"categorical": 2, "uniform": 3, "categorical, paper": 4, "uniform, paper": 5}
    series = {name: [_percentage(row[i]) for row in rows] for name, i in shown.items()}
    return PaperTable(
        ("operation", "problems", "categorical", "uniform", "categorical, paper", "uniform, paper"),
        rows,
        [f"fraction of draws that are legal on {document['device']}, mean over the problems of the suite isaac"],
        Bars("Table 1: legal draws", [r[0] for r in rows], series, "% of draws", log=True),
    )


def _acceptance(problems: list[list[Document]], sampler: str) -> float:
    rates = [float(s["acceptance"]) for samplers in problems for s in samplers if s["sampler"] == sampler]
    return sum(rates) / len(rates)


def _percentage(text: str | None) -> float | None:
    return float(text.rstrip("%")) if text else None


def table2(document: Document) -> PaperTable:
    """Table 2: errors of perceptrons and of the trees, trained on the same rows."""
    architectures = document["architectures"]
    rows = []
    for r in architectures:
        paper = [f"{mse:.3f}" if mse else None for mse in TABLE_2.get(tuple(r["hidden"]), (None, None))]
        deviation, plain = r.get("mse_deviation"), r.get("plain_mse")
        rows.append([*regressor_cells(r), deviation and f"{deviation:.4f}", plain and f"{plain:.3f}", *paper])
    labels = [str(r[0]).replace(", ", "-") for r in rows]
    seeds = max(r.get("seeds", 1) for r in architectures)
    return PaperTable(
        (*REGRESSOR, "±", "MSE, no log", "paper", "paper, no log"),
        rows,
        [
            "MSE: mean square of log2(predicted / measured) on problems held out of training",
            *([f"means over {seeds} seeds; ±: standard deviation of the MSE"] if seeds > 1 else []),
            "no log: trained on numbers in place of their logarithms",
            "paper: MSE of a target with another scale, on rows held out of training",
            "first: time of the fastest measured configuration / time of the first choice",
        ],
        Bars(
            f"Table 2: regressors trained on {architectures[0]['samples']} rows",
            labels,
            {"MSE": [r["mse"] for r in architectures]},
            "MSE of log2(time)",
        ),
    )


def figure5(document: Document) -> PaperTable:
    """Figure 5: cross-validated errors by the number of training rows."""
    samples = document["samples"]
    series: dict[str, list[tuple[float, float]]] = {}
    for r in samples:
        name = "-".join(map(str, r["hidden"])) or "trees"
        series.setdefault(name, []).append((r["samples"], r["mse"]))
    chart = Lines("Figure 5: error by number of samples", series, "training samples", "MSE of log2(time)")
    rows = [regressor_cells(r) for r in samples]
    notes = ["MSE: mean square of log2(predicted / measured) on problems held out of training"]
    return PaperTable(REGRESSOR, rows, notes, chart)


def speeds(document: Document, title: str) -> PaperTable:
    """Tables 4 and 5: speeds of ptxgen, of the vendor library's best candidate, and of its heuristic's first choice.
    There is no column for the latter if the library does not report that choice."""
    vendor = _vendor(document)
    known = any(r["vendor_first_us"] is not None for r in document["rows"])
    columns = {"ptxgen": "us", f"{vendor} best candidate": "vendor_us"}
    columns |= {f"{vendor} heuristic": "vendor_first_us"} if known else {}
    speed = {name: [_tflops(r, r[us]) for r in document["rows"]] for name, us in columns.items()}
    ratios = {name: [_ratio(r[us], r["us"]) for r in document["rows"]] for name, us in columns.items() if us != "us"}
    rows = [
        [*shape_cells(r), *(s[i] for s in speed.values()), *(s[i] for s in ratios.values()), r["note"]]
        for i, r in enumerate(document["rows"])
    ]
    heads = (*shape_titles(document), *speed, "ratio", *(["ratio to heuristic"] if known else []), "note")
    chart = Bars(
        f"{title} on {document['device']}, {_arithmetic(document)}",
        [str(r["name"]) for r in document["rows"]],
        speed,
        "TFLOP/s",
    )
    notes = [f"TFLOP/s on {document['device']}; ratio: time of {vendor} / time of ptxgen, measured in the same run"]
    notes += [f"geometric mean of the ratios, {name}: {number(_mean(values))}" for name, values in ratios.items()]
    optional = (
        "note",
        "column-major",
        "ratio to heuristic",
        f"{vendor} heuristic",
        *reversed(shape_titles(document)[1:]),
    )
    return PaperTable(heads, rows, notes, chart, optional)


def _vendor(document: Document) -> str:
    """The title of the vendor's library. InputError: the rows are of several operations, or the document was measured
    without a library."""
    names = sorted({row["problem"]["operation"] for row in document["rows"]})
    if len(names) > 1:
        raise InputError(f"the rows are of {' and '.join(names)}; they must be of one operation")
    known = operation_in(document).baselines
    if document["baseline"] not in known:
        raise InputError(f"baseline is {document['baseline']!r}; it must be {' or '.join(known)}: use bench --baseline")
    return known[document["baseline"]].title


def table4(document: Document) -> PaperTable:
    return speeds(document, "Table 4: GEMM")


def table5(document: Document) -> PaperTable:
    return speeds(document, "Table 5: convolution")


def table6(document: Document) -> PaperTable:
    """Table 6: chosen configurations for problems of Table 4, beside those of the paper, both in column-major terms."""
    chosen = [r for r in document["rows"] if r["name"] in TABLE_6]
    own = [_column_major_axes(r) for r in chosen]
    rows, labels, cells = [], [], []
    for r, axes in zip(chosen, own, strict=True):
        family, *_, settings = config_cells(r)
        paper = TABLE_6[r["name"]]
        rows.append([r["name"], family, *axes, " ".join(map(str, paper)), settings, r["origin"]])
        labels += [str(r["name"]), "in the paper"]
        cells += [axes, list(paper)]
    symbols = [symbol for symbol, _ in PAPER]
    title = f"Table 6: chosen configurations on {document['device']}, {_arithmetic(document)}"
    notes = [
        f"device: {document['device']}; paper: {' '.join(symbols)} of the paper's table",
        "these axes are column-major, as in the paper: --config exchanges M and N; other settings are row-major",
        "an axis that the kernel's family lacks is empty",
    ]
    titles = ("problem", CONFIG[0], *symbols, "paper", CONFIG[-1], "source")
    return PaperTable(titles, rows, notes, Grid(title, labels, symbols, cells), (CONFIG[-1], "source", "family"))


def _column_major_axes(row: Document) -> list[Any]:
    """The values of Table 6's axes for a row's configuration in column-major terms: the axes of M and N are
    exchanged."""
    exchanged = {"ms": "ns", "ml": "nl"}
    exchanged |= {n: m for m, n in exchanged.items()}
    values = row.get("config") or {}
    return [values.get(exchanged.get(name, name)) for _, name in PAPER]


#: splits that are allowed -> the title of their column
SPLITS = {"none": "none", "kg": "K_G", "all": "all"}


def splitting(document: Document) -> PaperTable:
    """The fastest measured times of the problems of Table 4, for each set of allowed splits of the reduction."""
    rows: list[list[Any]] = []
    series: dict[str, list[float | None]] = {"K_G alone": [], "K_S, K_L and K_G": []}
    for r in document["rows"]:
        values = {s["splits"]: s for s in r["splits"]}
        us = [values[s]["us"] if s in values else math.nan for s in SPLITS]
        gains = [us[0] / us[1], us[0] / us[2]]  # NaN if one was not measured
        chosen = values["all"]["config"] if "all" in values else None
        splits = " ".join(str(chosen.get(name, 1)) for name in ("ks", "kl", "kg")) if chosen else ""
        counts = [values[s]["measured"] if s in values else 0 for s in SPLITS]
        rows.append([*shape_cells(r), *us, *gains, splits, *counts])
        for line, gain in zip(series.values(), gains, strict=True):
            line.append(None if math.isnan(gain) else gain)
    counts_titles = [f"measured, {title}" for title in SPLITS.values()]
    heads = (*shape_titles(document), *(f"{title} µs" for title in SPLITS.values()), "gain K_G", "gain all")
    notes = [
        f"fastest measured times on {document['device']}, {_arithmetic(document)}; none: K_S = K_L = K_G = 1; K_G: K_S"
        " = K_L = 1; -: no such configuration was measured",
        "gain: time without splits / time with these; fastest: K_S K_L K_G of the fastest",
        "a search measures few configurations that it expects to be slow, so large gains are upper limits",
    ]
    notes += [f"geometric mean of the gains, {name}: {number(_mean(values))}" for name, values in series.items()]
    chart = Bars(
        f"Splits of the reduction on {document['device']}, {_arithmetic(document)}",
        [str(r["name"]) for r in document["rows"]],
        series,
        "time without splits / time",
    )
    optional = (*counts_titles, *reversed(shape_titles(document)[1:]))
    return PaperTable((*heads, "fastest", *counts_titles), rows, notes, chart, optional)


def _arithmetic(document: Document) -> str:
    """The text with the dtypes and arithmetics of the problems."""
    pairs = dict.fromkeys((r["problem"]["dtype"], r["problem"]["compute"]) for r in document["rows"])
    return ", ".join(compute if compute.startswith(dtype) else f"{dtype} ({compute})" for dtype, compute in pairs)


def _tflops(row: Document, us: float | None) -> float | None:
    """The speed, in TFLOP/s, that corresponds to the time ``us`` of a row's problem."""
    return row["tflops"] * row["us"] / us if us and row["us"] and row["tflops"] else None


def _ratio(us: float | None, own: float | None) -> float | None:
    return us / own if us and own else None


def _mean(ratios: Any) -> float:
    """The geometric mean of the known ratios; NaN if there is none."""
    known = [r for r in ratios if r is not None]
    product = 1.0
    for r in known:
        product *= r ** (1 / len(known))
    return product if known else float("nan")


#: name of a table or figure -> the function that makes it from a document
TABLES: dict[str, Callable[[Document], PaperTable]] = {
    "table1": table1,
    "table2": table2,
    "figure5": figure5,
    "table4": table4,
    "table5": table5,
    "table6": table6,
    "splitting": splitting,
}
#: name of a table or figure -> the field of the document that it needs
CONTENTS = dict.fromkeys(TABLES, "rows") | {"table2": "architectures", "figure5": "samples"}
REMEDIES = dict.fromkeys(TABLES, "it has no problem") | {
    "table2": "use model evaluate --perceptrons",
    "figure5": "use model evaluate --samples",
}
