"""The document and the text of ``explain``. The text fits 80 columns."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import wrap
from typing import Any

from ptxgen.cli.report import MODEL_CLOCK, Document, config_fields, problem_fields, source_text
from ptxgen.cli.tables import Table, number
from ptxgen.problem.operation import Case
from ptxgen.tuning.explanation import Candidate, Explanation
from ptxgen.tuning.progress import counted

WIDTH = 80


def fields(case: Case, explanation: Explanation) -> Document:
    """The JSON of one explained problem. Times are in microseconds; null: unknown."""
    e = explanation
    return {
        **problem_fields(case),
        "candidates": [_candidate(c) for c in e.candidates],
        "model": e.model,
        "floor": {**asdict(e.floor), "bound": e.floor.bound},
        "floor_fraction": e.floor.us / e.candidates[0].us,
        "legal": e.legal,
        "rejected": e.rejected,
        "dominated": e.dominated,
        "nearest": [
            {
                "problem": n.problem.key(),
                "distance": n.distance,
                "us": n.us,
                "device": n.device,
                **config_fields(n.config),
            }
            for n in e.nearest
        ],
        "vendor_us": e.vendor_us,
    }


def _candidate(c: Candidate) -> Document:
    return {
        **config_fields(c.selection.config),
        "origin": c.selection.origin,
        "scaled_from": c.selection.scaled_from,
        "us": c.us,
        "predicted": c.measured_us != c.measured_us,
        "predicted_us": c.predicted_us,
        "measured_us": c.measured_us,
        "residency": asdict(c.residency),
    }


def text(document: Document) -> str:
    measured = "modelled" if document["clock"] == "model" else "measured"
    out = ["\n".join(_lines(row, document["device"], measured)) for row in document["rows"]]
    return "\n\n".join([*out, *([MODEL_CLOCK] if measured == "modelled" else [])])


def _lines(row: Document, device: str, measured: str) -> list[str]:
    """The lines of text on one explained problem. ``measured``: the word after measured times."""
    key = row["problem"]["key"]
    head = f"{row['name']}: {key}" if row["name"] != key else key
    out = _wrapped(f"{head} on {device}", "", "  ")
    best = row["candidates"][0]
    origin = source_text(best)
    out += _wrapped(f"choice: {origin}, {_time(best, measured)}", "", "  ")
    out += _wrapped(best["config_text"], "  ", "  ")
    out += [*_wrapped(_floor(row), "", "  "), *_wrapped(_vendor(row, best), "", "  "), ""]
    out += [f"Candidates; predictions are of the {row['model']}", *_candidates(row["candidates"], measured)]
    out += ["", "Choice on a multiprocessor", *_residency(best["residency"])]
    out += ["", *_rejections(row)]
    if row["nearest"]:
        out += ["", *_nearest(row["nearest"], measured)]
    return out


def _wrapped(line: str, first: str, following: str) -> list[str]:
    return wrap(line, WIDTH, initial_indent=first, subsequent_indent=following, break_on_hyphens=False)


def _time(candidate: Document, measured: str) -> str:
    return f"{number(candidate['us'])} µs ({'predicted' if candidate['predicted'] else measured})"


def _floor(row: Document) -> str:
    f = row["floor"]
    work = f"{number(f['bytes'] / 1e6)} MB" if f["bound"] == "memory" else f"{number(f['flops'] / 1e9)} GFLOP"
    return (
        f"roofline floor: {number(f['us'])} µs, bound by {f['bound']} ({work}); it is"
        f" {row['floor_fraction']:.0%} of the choice's time"
    )


def _vendor(row: Document, best: Document) -> str:
    us = row["vendor_us"]
    if us != us:
        return (
            "vendor's best candidate: unknown; bench --baseline NAME --save FILE times it, explain --from FILE reads it"
        )
    return f"vendor's best candidate: {number(us)} µs (measured), {us / best['us']:.2f} times the choice's time"


def _candidates(rows: list[Document], measured: str) -> list[str]:
    lines = []
    for i, r in enumerate(rows):
        us = None if r["measured_us"] != r["measured_us"] else r["measured_us"]
        where = r["residency"]
        lines.append([i + 1, r["origin"], r["predicted_us"], us, f"{where['occupancy']:.0%}", where["waves"]])
    out = Table(("", "source", "predicted µs", f"{measured} µs", "occupancy", "waves"), lines).text().split("\n")
    for i, r in enumerate(rows[1:]):
        out += _wrapped(f"{i + 2}: {_differences(rows[0], r)}", "", "   ")
    return out


def _differences(best: Document, other: Document) -> str:
    """The text of the axes in which a runner-up differs from the choice; all its axes if the family differs."""
    mine, theirs = best["config"], other["config"]
    if mine["family"] != theirs["family"]:
        return str(other["config_text"])
    changed = [f"{name}={value}" for name, value in theirs.items() if mine.get(name) != value]
    return "as 1, but " + " ".join(changed)


def _residency(r: Document) -> list[str]:
    source = "ptxas" if r["registers_measured"] else "estimated"
    used = {
        "registers": f"{r['registers']} per thread ({source})",
        "shared memory": f"{r['shared']} bytes",
        "warps": f"{-(-r['threads'] // 32)}",
        "blocks": "",
    }
    rows = [[n, used[n], k, "limits" if n in r["binding"] else ""] for n, k in r["limits"].items()]
    lines = Table(("resource", "used by a block", "blocks that fit", ""), rows).text().split("\n")
    unit = "tiles per resident block" if r["persistent"] else "waves"
    lines += _wrapped(
        f"{counted(r['resident'], 'resident block')}, occupancy {r['occupancy']:.0%};"
        f" {r['blocks']} {'tiles' if r['persistent'] else 'blocks'}: {number(r['waves'])} {unit}"
        + (", fewer blocks than the device can run at once" if r["waves"] < 1 else ""),
        "",
        "  ",
    )
    return lines


def _rejections(row: Document) -> list[str]:
    rejected: dict[str, Any] = row["rejected"]
    lines = [f"{row['legal']} legal candidates; {sum(rejected.values())} rejected"]
    if row["dominated"]:
        families = ", ".join(row["dominated"])
        lines.append(f"not searched, as others are as fast or there are no measurements: {families}")
    return [*lines, *Table(("rule", "rejected"), [[name, n] for name, n in rejected.items()]).text().split("\n")]


def _nearest(rows: list[Document], measured: str) -> list[str]:
    lines = [
        f"Nearest problems measured on {rows[0]['device']}",
        "distance: sum of |log2| of the ratios of m, n, k, batch",
    ]
    shown = [[n["problem"], n["distance"], n["us"], n["config"]["family"]] for n in rows]
    widest = WIDTH - 36
    shown = [[key if len(key) <= widest else key[: widest - 1] + "…", *rest] for key, *rest in shown]
    return lines + Table(("problem", "distance", f"{measured} µs", "family"), shown).text().split("\n")
