"""Output of commands: JSON documents and tables.

A command builds a document for JSON. The text of the answer is made from the document alone, so both have the same
contents.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from ptxgen.cli.tables import Parts, Predicted, Table
from ptxgen.codegen.config.axes import COMMON
from ptxgen.codegen.config.config import Config, axes_of
from ptxgen.lowering.lower import lower
from ptxgen.problem.operation import Case, Operation, operation_named, operation_names, operation_of, operations
from ptxgen.tuning.progress import counted
from ptxgen.tuning.store.observation import OBSERVERS

Document = dict[str, Any]

#: (symbol, name) of the paper's axes, in the order of its Table 6
PAPER = tuple((a.symbol, a.name) for a in COMMON.values() if a.symbol)

MODEL_CLOCK = "Times of the emulated device are modelled; they do not predict times of a GPU."
PREPARATION_TITLES = ("preparation, products", "pays from calls")
PREPARATION_TIMES = ("preparation µs", "µs without preparation")
#: the fields of a row of bench with ptxgen's time and the vendor's times
VENDOR_TIMES = ("us", "vendor_us", "vendor_first_us", "vendor_same_layout_us")
PREPARATION = ("preparation_us", "unprepared_us", "preparation_products", "pays_from_calls")
#: the fields of a row of bench that relate its speed to a ceiling: shares of the predicted and of the measured ceiling
CEILING = ("ceiling_share", "measured_ceiling_share", "ceiling_steps", "ceiling_clock", "bandwidth")
CEILING_TITLES = ("of ceiling", "of measured", "steps/clock·SM", "MHz", "GB/s")
OBSERVED_TITLES = tuple(title for _, title in OBSERVERS.values())
PREDICTED = "~: predicted, not measured"


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


def problem_fields(case: Case) -> Document:
    """The JSON of a case: its name, its problem, and for cases of the paper the column-major form."""
    out: Document = {"name": case.name, "problem": {"key": case.problem.key(), **case.problem.as_dict()}}
    if case.column_major is not None:
        out["column_major"] = asdict(case.column_major)
    return out


def config_fields(config: Config) -> Document:
    """The JSON of a configuration: the value of every axis, and the text for ``--config``."""
    return {"config": config.values(), "config_text": str(config)}


def selection_fields(case: Case, selection: Any) -> Document:
    """The JSON of a selection. ``us``: the measured or predicted time in microseconds; ``predicted``: True if the time
    is predicted; ``note``: the reason if there is no time."""
    empty = not lower(case.problem).results
    return {
        **problem_fields(case),
        **config_fields(selection.config),
        "origin": selection.origin,
        "scaled_from": selection.scaled_from,
        "us": None if empty else selection.us,
        "predicted": selection.predicted,
        "vendor": vendor_fields(selection.vendor, selection),
        "note": "C has no element: no kernel is launched" if empty else "",
    }


def vendor_fields(vendor: Any, ours: Any) -> Document | None:
    """The JSON of a vendor library's measurement: version, time, and True if calls use the library in place of
    ``ours``; None: the library was not measured."""
    if vendor is None:
        return None
    from ptxgen.tuning.choice.vendor import is_faster

    faster = ours is not None and is_faster(vendor, ours)
    return {"version": vendor.version, "us": _known(vendor.us), "faster": faster, "predicted": vendor.predicted}


def exhaustive_fields(case: Case, search: Any) -> Document:
    """The JSON that compares scoring every legal configuration with the search. ``search_loss``: the predicted time of
    the search's choice divided by that of the best configuration."""
    names = ("scored", "seconds", "search_scored", "search_seconds")
    loss = search.search_us / search.best[0].us if search.best[0].us else math.nan
    return {"name": case.name, **{name: getattr(search, name) for name in names}, "search_loss": _known(loss)}


def exhaustive_lines(document: Document) -> list[str]:
    """The lines on exhaustive scoring, one for each problem of the rows."""
    names, lines = {row["name"] for row in document["rows"]}, []
    for r in document.get("exhaustive", ()):
        if r["name"] not in names:
            continue
        line = (
            f"{r['name']}: all {r['scored']:,} legal configurations scored in {r['seconds']:.2f} s"
            f" ({r['scored'] / r['seconds']:,.0f} a second); the search scores {r['search_scored']:,} in"
            f" {r['search_seconds']:.2f} s"
        )
        loss = r["search_loss"]
        lines.append(line if loss is None else f"{line}; its choice takes {loss:.3f} times as long by prediction")
    return lines


def check_fields(case: Case, selection: Any, results: Sequence[Any]) -> Document:
    """The JSON of a check: the result on each set of inputs."""
    check_results = [{"kind": r.inputs, **deviation_fields(r.deviation)} for r in results]
    return {**selection_fields(case, selection), "results": check_results, "ok": all(r["ok"] for r in check_results)}


def deviation_fields(deviation: Any) -> Document:
    """The JSON of a comparison with float64. ``ratio``: the largest error divided by its tolerance."""
    return {"ok": deviation.ok, "ratio": deviation.ratio, "where": list(deviation.where), "text": str(deviation)}


def observed_fields(observation: Any, names: Sequence[str]) -> Document:
    """The JSON of an observation: the values of the observers ``names``; None for all other observers."""
    return {
        field: getattr(observation, field) if observation is not None and name in names else None
        for name, (field, _) in OBSERVERS.items()
    }


def bench_fields(case: Case, row: Any, observe: Sequence[str] = ()) -> Document:
    """The JSON of one row of bench; None for values that were not measured. ``observe``: names of ``OBSERVERS``."""
    deviation = deviation_fields(row.deviation) if row.deviation is not None else None
    times = {
        name: _known(getattr(row, name))
        for name in (
            *(*VENDOR_TIMES, "ratio", "scheduling_us", *PREPARATION),
            *("ceiling_share", "measured_ceiling_share", "bandwidth"),
        )
    }
    measured = row.measured_ceiling
    return {
        **selection_fields(case, row.selection),
        **times,
        operation_of(case.problem).speed.name: _known(row.speed),
        "ceiling_steps": _known(measured.steps) if measured else None,
        "ceiling_clock": _known(measured.clock) if measured else None,
        **observed_fields(row.observed, observe),
        "pays_from_calls": int(times["pays_from_calls"]) if times["pays_from_calls"] else None,
        "deviation": deviation,
        "note": row.note,
        "ok": times["us"] is not None and deviation is not None and deviation["ok"],
    }


def tuned_fields(case: Case, tuned: Any, observe: Sequence[str] = ()) -> Document:
    """The JSON of the result of tuning one case. ``observe``: names of ``OBSERVERS``."""
    winner = tuned.winner
    fields = config_fields(winner.config) if winner else {"config": None, "config_text": None}
    return {
        **problem_fields(case),
        **fields,
        "us": winner.us if winner else None,
        operation_of(case.problem).speed.name: winner.speed if winner else None,
        **observed_fields(winner.observed if winner else None, observe),
        "measured": tuned.measured,
        "failures": dict(tuned.failures),
        "vendor": vendor_fields(tuned.vendor, winner),
    }


def _known(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) and value > 0 else None


def summary(rows: Sequence[Document]) -> Document:
    """The number, the geometric mean and the smallest of the ratios to the vendor's time. ``same_layout``: the same for
    the vendor's times on operands in the layout of the problem, and how many rows are slower; None: these times are the
    same in all rows."""
    known = [(row["ratio"], row["name"]) for row in rows if row["ratio"] is not None]
    if not known:
        return {"rows": 0, "geometric_mean": None, "worst": None, "same_layout": None}
    ratio, name = min(known)
    mean = statistics.geometric_mean([r for r, _ in known])
    same_layout = None
    if _has_other_layouts(rows):
        both = [(row["vendor_same_layout_us"], row["us"]) for row in rows]
        ratios = [vendor / us for vendor, us in both if vendor is not None and us is not None]
        slower = sum(r < 1 for r in ratios)
        same_layout = {"rows": len(ratios), "geometric_mean": statistics.geometric_mean(ratios), "slower": slower}
    worst = {"name": name, "ratio": ratio}
    return {"rows": len(known), "geometric_mean": mean, "worst": worst, "same_layout": same_layout}


def _has_other_layouts(rows: Sequence[Document]) -> bool:
    """True if in some row the vendor is faster on operands in another layout than on the layout of the problem."""
    return any(row["vendor_same_layout_us"] not in (None, row["vendor_us"]) for row in rows)


# ---- text


def by_operation(parts: Callable[[Document], Parts]) -> Callable[[Document], Parts]:
    """A function that makes the text of a document with one table per operation, because columns differ between
    operations. ``parts``: makes the text for one operation."""

    def all_operations(document: Document) -> Parts:
        groups: dict[str, list[Document]] = {}
        for row in document["rows"]:
            groups.setdefault(row["problem"]["operation"], []).append(row)
        documents = [{**document, "rows": rows} for rows in groups.values()] or [document]
        first, *others = map(parts, documents)
        return [*first, *(part for other in others for part in ("", *other))]

    return all_operations


def predicted_note(rows: Sequence[Document]) -> Parts:
    """The line that explains the mark of predicted times, if a row has a predicted time."""
    return [PREDICTED] if any(r["predicted"] and r["us"] is not None and math.isfinite(r["us"]) for r in rows) else []


def extrapolation_notes(device: str, sources: Sequence[tuple[str, str]]) -> list[str]:
    """The lines that say which choices are based on measurements of another device, or on no measurements. ``sources``:
    for each configuration, its origin and the device that its data was scaled from."""
    counts = Counter(other for origin, other in sources if other or (origin == "analytic" and device != "emulated"))
    lines = []
    for other, n in sorted(counts.items()):
        which = "" if n == len(sources) else f"{n} of {counted(len(sources), 'configuration')}: "
        if other:
            lines.append(f"{which}extrapolated from measurements of {other}, not measured on {device}")
        else:
            lines.append(f"{which}predicted by the performance model, without measurements of any GPU")
    return lines


def time_cell(row: Document, name: str = "us", modelled: bool = False) -> Any:
    """The cell with a time or speed of a row, marked if it is predicted. ``modelled``: True if the clock is a model."""
    value = row[name]
    return Predicted(value) if value is not None and (modelled or row.get("predicted")) else value


def shape_titles(document: Document) -> tuple[str, ...]:
    """The column titles of ``shape_cells``."""
    return ("name", *operation_in(document).titles)


def operation_in(document: Document) -> Operation:
    """The operation of the document's rows, which must all have the same; without rows, the first registered
    operation."""
    [name] = {r["problem"]["operation"] for r in document["rows"]} or set(operation_names()[:1])
    return operation_named(name)


def shape_cells(row: Document) -> list[Any]:
    """The cells that identify the problem of a row."""
    problem = row["problem"]
    name = row["name"] if row["name"] != problem["key"] else ""
    return [name, *operation_named(problem["operation"]).cells(row)]


def source_text(row: Document) -> str:
    """The text with the origin of a configuration, and with the device whose data was scaled, if any."""
    return f"{row['origin']} ({row['scaled_from']})" if row["scaled_from"] else str(row["origin"])


def choice_text(row: Document) -> str:
    """The text with the origin of a configuration, and its time if it has one."""
    us = _known(row["us"])
    return source_text(row) + ("" if us is None else f", {us:.2f} µs{' predicted' * row['predicted']}")


def config_cells(row: Document) -> list[Any]:
    """The cells of a configuration: the family, the axes of the paper's Table 6, and the text of all other axes that
    differ from their defaults."""
    values = row.get("config")
    if values is None:
        return [None] * (1 + len(PAPER)) + [""]
    others = (a for a in axes_of(values["family"]) if not a.symbol and values[a.name] != a.value(a.default))
    settings = " ".join(f"{a.name}={values[a.name]}" for a in others)
    return [values["family"], *(values.get(name) for _, name in PAPER), settings]


CONFIG = ("family", *(symbol for symbol, _ in PAPER), "other settings")
#: the titles of columns that a narrow table leaves out, in this order
OPTIONAL = ("other settings", "K_S", "M_S", "N_S", "K_L", "U", "K_G", "column-major", "M_L", "N_L", "family")


@by_operation
def select_text(document: Document) -> Parts:
    clock = document["clock"]
    modelled, rows = clock == "model", []
    for r in document["rows"]:
        time = time_cell(r, modelled=modelled)
        rows.append([*shape_cells(r), *config_cells(r), time, source_text(r), r["predicted"], clock])
    titles = (*shape_titles(document), *CONFIG, "µs", "source", "predicted", "clock")
    table = Table(titles, rows, OPTIONAL, ("predicted", "clock"))
    notes = list(dict.fromkeys(f"{r['name']}: {r['note']}" for r in document["rows"] if r.get("note")))
    notes += [f"{r['name']}: {_vendor_note(r['vendor'])}" for r in document["rows"] if r.get("vendor")]
    configurations = [f"--config '{r['config_text']}'" for r in document["rows"][:1] if len(rows) == 1]
    note = [f"~: {MODEL_CLOCK}"] if modelled else predicted_note(document["rows"])
    extrapolated = extrapolation_notes(document["device"], [(r["origin"], r["scaled_from"]) for r in document["rows"]])
    costs = exhaustive_lines(document)
    return [table, *configurations, *notes, *costs, *note, *extrapolated, f"device: {document['device']}"]


def _vendor_note(vendor: Document) -> str:
    """The note that calls use the vendor's library in place of the configuration."""
    how = "predicted" if vendor["predicted"] else "measured"
    return f"calls use {vendor['version']}, {how} {vendor['us']:.2f} µs, unless vendor is never"


@by_operation
def check_text(document: Document) -> Parts:
    rows, titles = [], shape_titles(document)
    for r in document["rows"]:
        for i, result in enumerate(r["results"]):
            head = shape_cells(r) if i == 0 else [""] * len(titles)
            rows.append([*head, result["kind"], "ok" if result["ok"] else "WRONG", _error(result)])
    wrong = sum(not r["ok"] for r in document["rows"])
    end = f"{len(document['rows'])} checked on {document['device']}, " + (f"{wrong} wrong" if wrong else "all correct")
    return [Table((*titles, "inputs", "result", "error / tolerance"), rows, ("column-major",)), end]


def _error(result: Document) -> str:
    """The text with the largest error divided by its tolerance, and with the index of its element."""
    return f"{result['ratio']:.3g} at {','.join(map(str, result['where']))}" if result["ratio"] else "exact"


def bench_line(row: Document, document: Document) -> str:
    """The line that is printed when a row of bench is timed. ``document``: the document with the rows so far."""
    if row["us"] is None:
        return f"{row['name']}: {row['note']}"
    times = [f"{row['us']:.2f} µs{' (modelled)' * (document['clock'] == 'model')}"]
    if row["ratio"] is not None:
        title = operation_in({"rows": [row]}).baselines[document["baseline"]].title
        times += [f"{title} {row['vendor_us']:.2f} µs", f"ratio {row['ratio']:.3f}"]
    if row["preparation_products"] is not None:
        times.append(f"preparation {row['preparation_products']:.1f} products")
    notes = ["" if row["ok"] else "WRONG", row["note"]]
    return f"{row['name']}: {', '.join(part for part in (*times, *notes) if part)}"


@by_operation
def bench_text(document: Document) -> Parts:
    modelled, other_layouts = document["clock"] == "model", _has_other_layouts(document["rows"])
    rows, prepared = [], any(r["preparation_us"] is not None for r in document["rows"])
    speed_of_all = operation_in(document).speed
    for r in document["rows"]:
        measured = {**r, "predicted": False}
        vendor_us = [r["vendor_us"], r["vendor_same_layout_us"] if other_layouts else None]
        times = [time_cell(measured, "us", modelled), *vendor_us, r["ratio"]]
        speed = [
            time_cell(measured, speed_of_all.name, modelled),
            *(r[field] for field, _ in OBSERVERS.values()),
            *(time_cell(measured, name, modelled) for name in CEILING),
            r["scheduling_us"],
            *_preparation_cells(r, modelled, prepared),
        ]
        rows.append([*shape_cells(r), *times, *speed, *config_cells(r), source_text(r), document["clock"], r["note"]])
    baseline = operation_in(document).baselines.get(document["baseline"])
    vendor = baseline.title if baseline else "vendor"
    same_layout = f"{vendor}, same layout µs"
    heads = (
        "µs",
        f"{vendor} µs",
        same_layout,
        "ratio",
        speed_of_all.title,
        *OBSERVED_TITLES,
        *CEILING_TITLES,
        "scheduling µs",
        *PREPARATION_TITLES,
        *PREPARATION_TIMES,
    )
    titles = (*shape_titles(document), *heads, *CONFIG, "source", "clock", "note")
    lines: list[Table | str] = [
        Table(titles, rows, (*OPTIONAL, "source", same_layout), ("clock", "note", *PREPARATION_TIMES))
    ]
    lines += [f"{r['name']}: {r['note']}" for r in document["rows"] if r["note"]]
    total = document["summary"]
    if document["baseline"]:
        if total["rows"]:
            worst = total["worst"]
            lines.append(f"geometric mean of {total['rows']} ratios: {total['geometric_mean']:.3f}")
            lines.append(f"worst row: {worst['name']}, {worst['ratio']:.3f}")
            if alike := total["same_layout"]:
                mean, slower = f"{alike['geometric_mean']:.3f}", counted(alike["slower"], "row")
                lines.append(f"with {vendor} in the layout of each problem: {mean} of {alike['rows']}, {slower} slower")
        lines.append(f"ratio: time of the fastest {vendor} candidate / time of ptxgen, measured in the same run")
    if prepared:
        lines.append(
            "preparation: time in units of one product; calls from which it pays, beside the choice without it"
        )
    if any(r[name] is not None for r in document["rows"] for name in CEILING[:2]):
        lines.append("of ceiling: least time by the instructions of a step, predicted or of a measured loop / time")
    if any(r["bandwidth"] is not None for r in document["rows"]):
        lines.append(
            "GB/s: bytes of the operands, or of quantized weights / time; of ceiling is then the share of the data"
            " sheet's bandwidth, of measured that of a copy"
        )
    lines.append(f"device: {document['device']}")
    if modelled:
        lines.append(f"~: {MODEL_CLOCK}")
    return lines


def _preparation_cells(row: Document, modelled: bool, shown: bool) -> list[Any]:
    """The cells of ``PREPARATION_TITLES`` and ``PREPARATION_TIMES``. ``shown``: True if a row without preparation has
    dashes in place of empty cells."""
    if row["preparation_us"] is None:
        return [*[math.nan if shown else None] * 2, None, None]
    calls = row["pays_from_calls"]
    if calls is None:
        calls = "never" if row["unprepared_us"] is not None else math.nan
    measured = {**row, "predicted": False}
    products, *times = (time_cell(measured, name, modelled) for name in (PREPARATION[2], *PREPARATION[:2]))
    return [products, calls, *times]


@by_operation
def tune_text(document: Document) -> Parts:
    modelled, rows, speed = document["clock"] == "model", [], operation_in(document).speed
    for r in document["rows"]:
        failures = " ".join(f"{outcome}={count}" for outcome, count in r["failures"].items())
        times = [time_cell(r, name, modelled) for name in ("us", speed.name)]
        times += [r[field] for field, _ in OBSERVERS.values()]
        rows.append([*shape_cells(r), *times, *config_cells(r), r["measured"], failures, document["clock"]])
    titles = (*shape_titles(document), "µs", speed.title, *OBSERVED_TITLES, *CONFIG, "measured", "failed", "clock")
    lines: list[Table | str] = [Table(titles, rows, OPTIONAL, ("clock",))]
    if timed := [r["vendor"] for r in document["rows"] if r["vendor"] and r["vendor"]["us"]]:
        used = sum(theirs["faster"] for theirs in timed)
        lines.append(
            f"{timed[0]['version']}: timed for {len(timed)} of {len(document['rows'])}; calls use it for {used}"
        )
    lines.append(f"device: {document['device']}; {document['seconds']:.0f} s; stored in {document['database']}")
    if modelled:
        lines.append(f"~: {MODEL_CLOCK}")
    return lines


@by_operation
def sampler_text(document: Document) -> Parts:
    rows = []
    for r in document["rows"]:
        acceptance = {s["sampler"]: s["acceptance"] for s in r["samplers"]}
        categorical, uniform = acceptance["categorical"], acceptance["uniform"]
        ratio = categorical / uniform if uniform else None
        rows.append([*shape_cells(r), f"{categorical:.2%}", f"{uniform:.4%}", ratio])
    return [
        Table((*shape_titles(document), "categorical", "uniform", "ratio"), rows, ("column-major",)),
        f"fraction of draws that are legal on {document['device']}; Table 1 of the paper has 20% and 0.1%",
    ]


def evaluation_text(document: Document) -> Parts:
    heads = ("group", "problems", "first", "5th percentile", "worst", "best of 8")
    columns = ("problems", "first", "fifth", "worst", "top")
    shown = [[f"{s['group']} {s['name']}".strip(), *(_three(s[c]) for c in columns)] for s in document["scores"]]
    lines: list[Table | str] = [Table(heads, shown)]
    if document["curve"]:
        points = [[p["problems"], p["rows"], *(_three(p[c]) for c in ("error", "first"))] for p in document["curve"]]
        lines += ["", Table(("training problems", "rows", "error", "first"), points)]
    for name in ("samples", "architectures"):
        if cells := [regressor_cells(r) for r in document[name]]:
            lines += ["", Table(REGRESSOR, cells)]
    lines += [
        "",
        f"{document['folds']} folds of {document['problems']} problems, {document['rows']} measurements of"
        f" {document['device']}; error: {document['error']:.3f}, root mean square of log2(predicted / measured)",
        "first, best of 8: time of the fastest measured configuration / time of the model's choice, offline",
    ]
    return lines


def validation_text(document: Document) -> Parts:
    columns = {
        "problems": "problems",
        "first": "first",
        "5th pct": "fifth",
        "worst": "worst",
        "best of 8": "top",
        "vendor": "ratio",
        "worst ": "ratio_worst",
        "heuristic": "ratio_first",
        "slower": "slower",
        "same layout": "ratio_same_layout",
        "slower ": "slower_same_layout",
    }
    heads = ("group", *columns)
    names = columns.values()
    rows = [[f"{s['group']} {s['name']}".strip(), *(_three(s[name]) for name in names)] for s in document["scores"]]
    return [
        Table(heads, rows, ("5th pct", "worst ", "heuristic", "same layout", "slower ")),
        "",
        f"{counted(document['problems'], 'problem')} of seed {document['seed']} on {document['device']},"
        f" {counted(document['configurations'], 'configuration')}",
        "first, best of 8: time of the fastest known configuration / time of the model's choice",
        "vendor, heuristic: time of the vendor's best candidate, of its heuristic's / time of the model's choice",
        "slower: fraction of the problems whose choice is slower than the vendor's best candidate",
        "same layout: vendor and slower, where the vendor's operands have the layout of the problem",
    ]


REGRESSOR = ("regressor", "weights", "samples", "MSE", "first")


def regressor_cells(row: Document) -> list[Any]:
    """The cells of a regressor of ``model evaluate``; its name is ``trees``, or the sizes of a perceptron's hidden
    layers."""
    name = ", ".join(map(str, row["hidden"])) or "trees"
    return [name, row["weights"] or None, row["samples"], _three(row["mse"]), _three(row["first"])]


def _three(value: Any) -> Any:
    """The text of a number with three digits after the point; None: the number is NaN. Other values are unchanged."""
    if isinstance(value, float):
        return None if math.isnan(value) else f"{value:.3f}"
    return value


def info_text(document: Document) -> Parts:
    lines: list[Table | str] = [f"{document['path']}: {document['bytes']} bytes, schema version {document['schema']}"]
    lines.append(f"{counted(document['problems'], 'problem')}, {counted(document['measurements'], 'measurement')}")
    if document["unreadable"]:
        lines.append(f"unknown axes: {counted(document['unreadable'], 'measurement')}")
    if document["rows"]:
        rows = [[r["device"], r["clock"], r["outcome"], r["count"]] for r in document["rows"]]
        lines += ["", Table(("device", "clock", "outcome", "measurements"), rows)]
    if document["winners"]:
        rows = [[r["device"], r["clock"], r["count"], r["stale"]] for r in document["winners"]]
        lines += ["", Table(("device", "clock", "winners", "stale"), rows)]
    if document["stale_winners"]:
        rows = [[r["device"], r["problem"], r["reason"]] for r in document["stale_winners"]]
        lines += ["", Table(("device", "stale winner", "reason"), rows)]
    return lines


def list_text(document: Document) -> Parts:
    """The text of ``db list``: a table of the stored winners."""
    rows, modelled = [], False
    known = {operation.speed.name: operation.speed.title for operation in operations()}
    speeds = {name: title for name, title in known.items() if any(name in r for r in document["rows"])}
    for r in document["rows"]:
        emulated = r["clock"] == "model"
        times = [time_cell(r, "us", emulated), *(time_cell(r, n, emulated) if n in r else None for n in speeds)]
        rows.append([r["problem"], r["device"], *times, r["config_text"], r["stale"], r["clock"]])
        modelled |= emulated
    if not rows:
        return ["the database has no winners"]
    titles = ("problem", "device", "µs", *speeds.values(), "configuration", "stale", "clock")
    return [Table(titles, rows, ("configuration",), ("clock",)), *([f"~: {MODEL_CLOCK}"] if modelled else [])]


def recheck_fields(device: str, row: Any) -> Document:
    """The JSON of the recheck of a stored winner. ``us``: the time of the valid winner in microseconds; null: there is
    none."""
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


def recheck_text(document: Document) -> Parts:
    """The text of ``db recheck``: the number of winners by state, the timed winners, and the stale and failed
    winners."""
    rows = document["rows"]
    if not rows:
        return ["there are no winners to recheck"]
    lines: list[Table | str] = [
        Table(("state", "winners"), [list(pair) for pair in sorted(Counter(row["state"] for row in rows).items())])
    ]
    for states, fields in (
        (
            ("timed", "replaced"),
            {"us_before": "µs before", "us": "µs", "state": "state", "config_text": "configuration"},
        ),
        (("stale", "failed"), {"state": "state", "reason": "reason"}),
    ):
        shown = [[r["problem"], *(r[name] for name in fields)] for r in rows if r["state"] in states]
        if shown:
            lines += ["", Table(("problem", *fields.values()), shown, ("configuration",))]
    return lines


def pairs_text(document: Document) -> str:
    """The text with one line ``name: value`` for each field of a document."""
    return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in document.items())


def doctor_text(document: Document) -> Parts:
    """The text of ``doctor``: a table of findings, and the remedies."""
    mark = {"ok": "ok", "missing": "MISSING", "optional": "-"}
    rows = [[r["name"], mark[r["state"]], r["found"], r["remedy"]] for r in document["findings"]]
    lines: list[Table | str] = [Table(("item", "state", "found", "remedy"), rows, csv_only=("remedy",))]
    return [*lines, *(f"{r['name']}: {r['remedy']}" for r in document["findings"] if r["remedy"])]
