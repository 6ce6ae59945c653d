"""Prints tables as text of a given width, and as CSV."""

from __future__ import annotations

import csv
import io
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

GAP = 2  #: spaces between columns
NARROWEST = 8  #: the least width to which a column of text is shortened
WRAPPED = 20  #: the least width to which the last column is wrapped


class Predicted(float):
    """A time that a model computed, or a number that follows from such a time. Texts mark it with ``~``."""


@dataclass(frozen=True)
class Table:
    """A table with rows below titles. Empty columns are not printed.

    ``optional``: titles of the columns that are left out, in this order, if the text is too wide; ``csv_only``: titles
    of columns that only CSV has.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[Any]]
    optional: Sequence[str] = ()
    csv_only: Sequence[str] = ()

    def text(self, width: int | None = None) -> str:
        """The text of the table in at most ``width`` columns; None: any width.

        If the table is too wide, columns that have the same value in all rows become lines below the table, then
        ``optional`` columns are left out, then the text of the last column is wrapped, then other text is shortened.
        Lines below the table say so.
        """
        cells = [[_cell(v) for v in row] for row in self.rows]
        shown = [i for i, t in enumerate(self.titles) if t not in self.csv_only]
        shown = [i for i in shown if not cells or any(row[i] for row in cells)]
        widths = {i: max(len(line[i]) for line in (self.titles, *cells)) for i in shown}
        same: list[int] = []
        omitted: list[str] = []

        def fits() -> bool:
            return width is None or sum(widths[i] + GAP for i in shown) - GAP <= width

        for i in shown[1:] if len(cells) > 1 else ():
            if not fits() and len({row[i] for row in cells}) == 1:
                shown, same = [j for j in shown if j != i], [*same, i]
        for title in self.optional:
            if not fits() and (dropped := [i for i in shown if self.titles[i] == title]):
                shown, omitted = [j for j in shown if j not in dropped], [*omitted, title]
        numeric = {i for i in shown if cells and all(_is_number(row[i]) for row in self.rows)}
        last = shown[-1]
        if width is not None and not fits() and last not in numeric:
            widths[last] = max(width - sum(widths[i] + GAP for i in shown[:-1]), len(self.titles[last]), WRAPPED)
        for i in sorted(set(shown[:-1]) - numeric, key=lambda i: (i == shown[0], -widths[i])):
            if width is not None and not fits():
                over = sum(widths[j] + GAP for j in shown) - GAP - width
                least = max(NARROWEST, len(self.titles[i]))
                if widths[i] > least:
                    widths[i] = max(widths[i] - over, least)
                    omitted.append(f"part of {self.titles[i]}")
        out = []
        for line in (self.titles, *cells):
            first, *more = wrap(line[last], widths[last], break_on_hyphens=False) or [""]
            texts = [*(_short(line[i], widths[i]) for i in shown[:-1]), first]
            aligned = [
                text.rjust(widths[i]) if i in numeric else text.ljust(widths[i])
                for i, text in zip(shown, texts, strict=True)
            ]
            out.append((" " * GAP).join(aligned).rstrip())
            indent = " " * sum(widths[i] + GAP for i in shown[:-1])
            out += [indent + text for text in more]
        if same:
            constant = ", ".join(f"{self.titles[i]} {cells[0][i]}" for i in same)
            out += lines_of(f"all rows: {constant}", width)
        if omitted:
            out += lines_of(f"not shown: {', '.join(omitted)}; --wide shows all", width)
        return "\n".join(out)

    def csv(self) -> str:
        """The CSV text (RFC 4180) of all columns, with a line of titles. Numbers have all their digits; unknown numbers
        are empty."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.titles)
        writer.writerows([[_value(v) for v in row] for row in self.rows])
        return out.getvalue()


#: the parts of a command's text: tables, and lines between them
Parts = Sequence[Table | str]


def text_of(parts: Parts, width: int | None = None) -> str:
    """The text of an answer in at most ``width`` columns; None: any width."""
    return "\n".join(p.text(width) if isinstance(p, Table) else "\n".join(lines_of(p, width)) for p in parts)


def csv_of(parts: Parts) -> str:
    """The tables of an answer as CSV, separated by empty lines. Other lines are left out."""
    return "\n".join(p.csv() for p in parts if isinstance(p, Table))


def lines_of(text: str, width: int | None) -> list[str]:
    """``text`` in lines of at most ``width`` columns; the lines after the first are indented."""
    if width is None or len(text) <= width:
        return [text]
    return wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def terminal_width() -> int:
    """The number of columns of the terminal; 80 if standard output is no terminal and COLUMNS is not set."""
    return shutil.get_terminal_size((80, 24)).columns


def number(value: Any) -> str:
    """The text of a number with about four digits, without an exponent; ``~`` precedes a predicted number."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "-"
    size = abs(value)
    text = f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}"
    return f"~{text}" if isinstance(value, Predicted) else text


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else str(value)


def _value(value: Any) -> str:
    """The text of a value in CSV."""
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""
    return _cell(value)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
