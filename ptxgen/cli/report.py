"""Output of commands: JSON documents, tables, progress. Owns rich.

A command builds a document for JSON. Its text is derived only from the document, so both have the same contents.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from ptxgen.codegen.axes import COMMON
from ptxgen.codegen.config import Config, axes_of, default_family
from ptxgen.errors import InputError
from ptxgen.problem.operation import Case, Operation, operation_named, operation_names
from ptxgen.tuning.progress import Progress

Document = dict[str, Any]

#: the paper's axes, in the order of its Table 6, as (symbol, name)
PAPER = tuple((a.symbol, a.name) for a in COMMON.values() if a.symbol)

MODEL_CLOCK = "Times of the emulated device are modelled; they do not predict times of a GPU."


# ---- plain data


def plain(value: Any) -> Any:
    """``value`` converted for JSON: dataclasses to objects, NumPy scalars to numbers, NaN and infinity to null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def to_json(document: Document) -> str:
    return json.dumps(plain(document), indent=1, allow_nan=False)  # ASCII fits every output encoding


def read_document(path: Path, *commands: str, device: str | None = None) -> Document:
    """The document that one of ``commands`` printed to a file with ``--json``. ``device``: that it must be of.
    InputError: it is another one, or none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not a JSON document: {error}") from error
    if not isinstance(document, dict) or document.get("command") not in commands:
        raise InputError(f"{path} must be the output of {' or '.join(commands)} --json")
    if device is not None and document["device"] != device:
        raise InputError(f"{path} is of device {document['device']}; it must be of {device}")
    return document


def problem_fields(case: Case) -> Document:
    """The name of a case, its column-major form for cases of the paper, and the problem."""
    out: Document = {"name": case.name, "problem": {"key": case.problem.key(), **case.problem.as_dict()}}
    if case.column_major is not None:
        out["column_major"] = asdict(case.column_major)
    return out


def config_fields(config: Config) -> Document:
    """The value of every axis, and the text for ``--config``."""
    return {"config": config.values(), "config_text": str(config)}


def selection_fields(case: Case, selection: Any) -> Document:
    """The selected configuration. ``us``: microseconds, measured or predicted; ``predicted``: whether the model
    predicted them."""
    return {
        **problem_fields(case),
        **config_fields(selection.config),
        "origin": selection.origin,
        "scaled_from": selection.scaled_from,
        "us": selection.us,
        "predicted": selection.predicted,
    }


def check_fields(case: Case, selection: Any, results: Sequence[Any]) -> Document:
    """The results of one configuration on every kind of input."""
    check_results = [{"kind": r.kind, **deviation_fields(r.deviation)} for r in results]
    return {**selection_fields(case, selection), "results": check_results, "ok": all(r["ok"] for r in check_results)}


def deviation_fields(deviation: Any) -> Document:
    """The result of the comparison with float64. ``ratio``: the largest error divided by its tolerance."""
    return {"ok": deviation.ok, "ratio": deviation.ratio, "where": list(deviation.where), "text": str(deviation)}


def bench_fields(case: Case, row: Any) -> Document:
    """One row of bench; None for values that were not measured."""
    deviation = deviation_fields(row.deviation) if row.deviation is not None else None
    times = {name: _known(getattr(row, name)) for name in ("us", "vendor_us", "vendor_first_us", "ratio", "tflops")}
    return {
        **selection_fields(case, row.selection),
        **times,
        "deviation": deviation,
        "note": row.note,
        "ok": times["us"] is not None and deviation is not None and deviation["ok"],
    }


def tuned_fields(case: Case, tuned: Any) -> Document:
    """The result of tuning one case."""
    winner = tuned.winner
    found = config_fields(winner.config) if winner else {"config": None, "config_text": None}
    return {
        **problem_fields(case),
        **found,
        "us": winner.us if winner else None,
        "tflops": winner.tflops if winner else None,
        "measured": tuned.measured,
        "failures": dict(tuned.failures),
    }


def _known(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) and value > 0 else None


def summary(rows: Sequence[Document]) -> Document:
    """The number, the geometric mean and the smallest of the ratios."""
    known = [(row["ratio"], row["name"]) for row in rows if row["ratio"] is not None]
    if not known:
        return {"rows": 0, "geometric_mean": None, "worst": None}
    mean = math.exp(sum(math.log(r) for r, _ in known) / len(known))
    ratio, name = min(known)
    return {"rows": len(known), "geometric_mean": mean, "worst": {"name": name, "ratio": ratio}}


# ---- text


def by_operation(text: Callable[[Document], str]) -> Callable[[Document], str]:
    """Prints one table per operation, because columns differ between operations."""

    def all_operations(document: Document) -> str:
        groups: dict[str, list[Document]] = {}
        for row in document["rows"]:
            groups.setdefault(row["problem"]["operation"], []).append(row)
        documents = [{**document, "rows": rows} for rows in groups.values()] or [document]
        return "\n\n".join(map(text, documents))

    return all_operations


def table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A text table. Columns of numbers are right-aligned; empty columns are omitted."""
    cells = [[_cell(v) for v in row] for row in rows]
    columns = [i for i, title in enumerate(titles) if not rows or any(row[i] for row in cells)]
    lines = [[titles[i] for i in columns], *([row[i] for i in columns] for row in cells)]
    widths = [max(len(line[j]) for line in lines) for j in range(len(columns))]
    right = [all(isinstance(row[i], (int, float)) or row[i] is None for row in rows) and bool(rows) for i in columns]
    out = []
    for line in lines:
        padded = (text.rjust(w) if r else text.ljust(w) for text, w, r in zip(line, widths, right, strict=True))
        out.append("  ".join(padded).rstrip())
    return "\n".join(out)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    return str(value)


def number(value: Any) -> str:
    """A number with about four digits, without an exponent."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "-"
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}"


def shape_titles(document: Document) -> tuple[str, ...]:
    """The column titles of ``shape_cells``."""
    return ("name", *operation_in(document).titles)


def operation_in(document: Document) -> Operation:
    """The operation of all rows of the document; without rows, the first one."""
    [name] = {r["problem"]["operation"] for r in document["rows"]} or set(operation_names()[:1])
    return operation_named(name)


def shape_cells(row: Document) -> list[Any]:
    """The cells that identify the problem of a row."""
    problem = row["problem"]
    name = row["name"] if row["name"] != problem["key"] else ""
    return [name, *operation_named(problem["operation"]).cells(row)]


def source_text(row: Document) -> str:
    """The origin of a configuration, the device whose data was scaled, and a mark of predicted times."""
    notes = [row["scaled_from"], "predicted" if row["predicted"] and math.isfinite(row["us"]) else ""]
    note = ", ".join(filter(None, notes))
    return f"{row['origin']} ({note})" if note else str(row["origin"])


def config_cells(row: Document) -> list[Any]:
    """The axes of Table 6 of the paper, then all other axes that differ from their defaults."""
    values = row.get("config")
    if values is None:
        return [None] * len(PAPER) + [""]
    others = (a for a in axes_of(values["family"]) if not a.symbol and values[a.name] != a.value(a.default))
    named = [f"family={values['family']}"] if values["family"] != default_family() else []
    settings = [*named, *(f"{a.name}={values[a.name]}" for a in others)]
    return [values.get(name) for _, name in PAPER] + [" ".join(settings)]


CONFIG = (*(symbol for symbol, _ in PAPER), "other settings")


@by_operation
def select_text(document: Document) -> str:
    rows = [[*shape_cells(r), *config_cells(r), r["us"], source_text(r)] for r in document["rows"]]
    return table((*shape_titles(document), *CONFIG, "µs", "source"), rows) + f"\ndevice: {document['device']}"


@by_operation
def check_text(document: Document) -> str:
    rows, titles = [], shape_titles(document)
    for r in document["rows"]:
        for i, result in enumerate(r["results"]):
            head = shape_cells(r) if i == 0 else [""] * len(titles)
            rows.append([*head, result["kind"], "ok" if result["ok"] else "WRONG", result["text"]])
    wrong = sum(not r["ok"] for r in document["rows"])
    end = f"{len(document['rows'])} checked on {document['device']}, " + (f"{wrong} wrong" if wrong else "all correct")
    return table((*titles, "inputs", "result", "error against float64"), rows) + f"\n{end}"


@by_operation
def bench_text(document: Document) -> str:
    rows = []
    for r in document["rows"]:
        times = [r["us"], r["vendor_us"], r["ratio"], r["tflops"]]
        rows.append([*shape_cells(r), *times, *config_cells(r), r["origin"], r["note"]])
    baseline = operation_in(document).baselines.get(document["baseline"])
    vendor = baseline.title if baseline else "vendor"
    titles = (*shape_titles(document), "µs", f"{vendor} µs", "ratio", "TFLOP/s", *CONFIG, "source", "note")
    lines = [table(titles, rows)]
    total = document["summary"]
    if document["baseline"]:
        if total["rows"]:
            worst = total["worst"]
            lines.append(f"geometric mean of {total['rows']} ratios: {total['geometric_mean']:.3f}")
            lines.append(f"worst row: {worst['name']}, {worst['ratio']:.3f}")
        lines.append(f"ratio: time of the fastest {vendor} candidate / time of ptxgen, measured in the same run")
    lines.append(f"device: {document['device']}")
    if document["clock"] == "model":
        lines.append(MODEL_CLOCK)
    return "\n".join(lines)


@by_operation
def tune_text(document: Document) -> str:
    rows = []
    for r in document["rows"]:
        failures = " ".join(f"{outcome}={count}" for outcome, count in r["failures"].items())
        rows.append([*shape_cells(r), r["us"], r["tflops"], *config_cells(r), r["measured"], failures])
    lines = [table((*shape_titles(document), "µs", "TFLOP/s", *CONFIG, "measured", "failed"), rows)]
    lines.append(f"device: {document['device']}; {document['seconds']:.0f} s; stored in {document['database']}")
    if document["clock"] == "model":
        lines.append(MODEL_CLOCK)
    return "\n".join(lines)


@by_operation
def sampler_text(document: Document) -> str:
    rows = []
    for r in document["rows"]:
        acceptance = {s["sampler"]: s["acceptance"] for s in r["samplers"]}
        categorical, uniform = acceptance["categorical"], acceptance["uniform"]
        rows.append(
            [*shape_cells(r), f"{categorical:.2%}", f"{uniform:.4%}", number(categorical / uniform) if uniform else "-"]
        )
    lines = [table((*shape_titles(document), "categorical", "uniform", "ratio"), rows)]
    lines.append(f"fraction of draws that are legal on {document['device']}; Table 1 of the paper has 20% and 0.1%")
    return "\n".join(lines)


def evaluation_text(document: Document) -> str:
    heads = ("group", "problems", "first", "5th percentile", "worst", "best of 8")
    columns = ("problems", "first", "fifth", "worst", "top")
    shown = [[f"{s['group']} {s['name']}".strip(), *(_three(s[c]) for c in columns)] for s in document["scores"]]
    lines = [table(heads, shown)]
    if document["curve"]:
        points = [[p["problems"], p["rows"], *(_three(p[c]) for c in ("error", "first"))] for p in document["curve"]]
        lines += ["", table(("training problems", "rows", "error", "first"), points)]
    for name in ("samples", "architectures"):
        if found := [regressor_cells(r) for r in document[name]]:
            lines += ["", table(REGRESSOR, found)]
    lines += [
        "",
        f"{document['folds']} folds of {document['problems']} problems, {document['rows']} measurements of"
        f" {document['device']}; error: {document['error']:.3f}, root mean square of log2(predicted / measured)",
        "first, best of 8: time of the fastest measured configuration / time of the model's choice, offline",
    ]
    return "\n".join(lines)


def validation_text(document: Document) -> str:
    heads = ("group", "problems", "first", "5th pct", "worst", "best of 8", "vendor", "worst", "heuristic", "slower")
    columns = ("problems", "first", "fifth", "worst", "top", "ratio", "ratio_worst", "ratio_first", "slower")
    rows = [[f"{s['group']} {s['name']}".strip(), *(_three(s[c]) for c in columns)] for s in document["scores"]]
    return "\n".join(
        [
            table(heads, rows),
            "",
            f"{document['problems']} problems of seed {document['seed']} on {document['device']},"
            f" {document['configurations']} configurations",
            "first, best of 8: time of the fastest known configuration / time of the model's choice",
            "vendor, heuristic: time of the vendor's best candidate, of its heuristic's / time of the model's choice",
            "slower: fraction of the problems whose choice is slower than the vendor's best candidate",
        ]
    )


REGRESSOR = ("regressor", "weights", "samples", "MSE", "first")


def regressor_cells(row: Document) -> list[Any]:
    """A regressor of ``model evaluate``: the trees, or the sizes of the hidden layers of a perceptron."""
    name = ", ".join(map(str, row["hidden"])) or "trees"
    return [name, row["weights"] or None, row["samples"], _three(row["mse"]), _three(row["first"])]


def _three(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value


def info_text(document: Document) -> str:
    lines = [f"{document['path']}: {document['bytes']} bytes, schema version {document['schema']}"]
    lines.append(f"{document['problems']} problems, {document['measurements']} measurements")
    if document["unreadable"]:
        lines.append(f"{document['unreadable']} measurements have unknown axes")
    if document["rows"]:
        rows = [[r["device"], r["clock"], r["outcome"], r["count"]] for r in document["rows"]]
        lines += ["", table(("device", "clock", "outcome", "measurements"), rows)]
    if document["winners"]:
        rows = [[r["device"], r["clock"], r["count"], r["stale"]] for r in document["winners"]]
        lines += ["", table(("device", "clock", "winners", "stale"), rows)]
    if document["stale_winners"]:
        rows = [[r["device"], r["problem"], r["reason"]] for r in document["stale_winners"]]
        lines += ["", table(("device", "stale winner", "reason"), rows)]
    return "\n".join(lines)


def recheck_fields(device: str, row: Any) -> Document:
    """The result for a stored winner. ``us``: microseconds of the valid winner; null: there is none."""
    new = row.new
    return {
        "device": device,
        "problem": row.old.problem.key(),
        "state": row.state,
        "us_before": row.old.us,
        "us": None if new is None else new.us,
        "config_text": str(row.old.config if new is None else new.config),
        "digest": "" if new is None else new.digest,
        "reason": row.reason,
    }


def recheck_text(document: Document) -> str:
    """The number of winners by state, then the timed winners, then the stale and failed ones."""
    rows = document["rows"]
    lines = [table(("state", "winners"), sorted(Counter(row["state"] for row in rows).items()))]
    for states, heads in (
        (("timed", "replaced"), ("us_before", "us", "state", "config_text")),
        (("stale", "failed"), ("state", "reason")),
    ):
        found = [[r["problem"], *(r[head] for head in heads)] for r in rows if r["state"] in states]
        if found:
            lines += ["", table(("problem", *(h.replace("_", " ") for h in heads)), found)]
    return "\n".join(lines)


def pairs_text(document: Document) -> str:
    """One line ``name: value`` per entry."""
    return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in document.items())


def doctor_text(document: Document) -> str:
    mark = {"ok": "ok", "missing": "MISSING", "optional": "-"}
    rows = [[r["name"], mark[r["state"]], r["found"]] for r in document["findings"]]
    lines = [table(("item", "state", "found"), rows)]
    for r in document["findings"]:
        if r["remedy"]:
            lines.append(f"\n{r['name']}: {r['remedy']}")
    return "\n".join(lines)


# ---- progress


class Lines:
    """Progress output without a terminal: messages, one per line."""

    def phase(self, name: str, total: int) -> None: ...

    def step(self, text: str = "") -> None: ...

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar:
    """Progress output on a terminal: a bar for the current phase, and messages above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Live

        columns = (
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            "left",
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False),
        )
        self.live = Live(*columns, console=Console(stderr=True), transient=True)
        self.task = self.live.add_task("", total=None, visible=False, text="")

    def phase(self, name: str, total: int) -> None:
        from rich.markup import escape

        self.live.reset(self.task, description=escape(name), total=total or None, visible=True, text="")

    def step(self, text: str = "") -> None:
        self.live.advance(self.task)
        if text:
            self.live.update(self.task, text=text)

    def message(self, text: str) -> None:
        self.live.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress on standard error: a bar on a terminal, else messages only."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    bar = Bar()
    with bar.live:
        yield bar
