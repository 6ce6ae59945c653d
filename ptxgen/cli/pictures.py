"""Charts of tables, written as pictures. Owns matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.errors import InputError, UnavailableError

FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Bars:
    """Groups of bars. ``series``: the legend's text and the heights of each series, None where one is unknown;
    ``log``: logarithmic heights."""

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    unit: str
    log: bool = False


@dataclass(frozen=True)
class Lines:
    """Lines over a logarithmic axis. ``series``: the legend's text, and the points of each line."""

    title: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    x_unit: str
    unit: str


@dataclass(frozen=True)
class Grid:
    """A shaded grid of numbers, a row for each label; shades are logarithmic. None: an empty cell."""

    title: str
    labels: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[int | None]]


Chart = Bars | Lines | Grid


def require(path: Path) -> None:
    """InputError: the name of a picture has an unknown ending. UnavailableError: matplotlib is missing."""
    if path.suffix not in FORMATS:
        raise InputError(f"picture is {str(path)!r}; its name must end in {', '.join(FORMATS)}")
    _matplotlib()


def draw(chart: Chart, path: Path) -> None:
    """Writes a picture, in the format that the name of the file says. Errors: as ``require``."""
    require(path)
    figures = _matplotlib()
    figure = figures.Figure(figsize=_size(chart), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    axes.set_title(chart.title, fontsize=10)
    if isinstance(chart, Bars):
        _bars(axes, chart)
    elif isinstance(chart, Lines):
        _lines(axes, chart)
    else:
        _grid(axes, chart)
    figure.savefig(path)


def _size(chart: Chart) -> tuple[float, float]:
    """Inches."""
    if isinstance(chart, Bars):
        return max(6.0, 2 + 0.18 * len(chart.labels) * (len(chart.series) + 1)), 4.2
    return (6.4, 4.2) if isinstance(chart, Lines) else (2.5 + 0.6 * len(chart.columns), 1 + 0.28 * len(chart.labels))


def _bars(axes: Any, chart: Bars) -> None:
    width = 0.8 / len(chart.series)
    for i, (name, heights) in enumerate(chart.series.items()):
        at = [n + (i - (len(chart.series) - 1) / 2) * width for n in range(len(heights))]
        axes.bar(at, [math.nan if h is None else h for h in heights], width, label=name)
    slanted = max(map(len, chart.labels)) > 6
    turn = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axes.set_xticks(range(len(chart.labels)), chart.labels, fontsize=8, **turn)
    axes.set_ylabel(chart.unit)
    if chart.log:
        axes.set_yscale("log")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    if len(chart.series) > 1:
        axes.figure.legend(loc="outside lower center", ncols=len(chart.series), fontsize=8)


def _lines(axes: Any, chart: Lines) -> None:
    for name, points in chart.series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_xlabel(chart.x_unit)
    axes.set_ylabel(chart.unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _grid(axes: Any, chart: Grid) -> None:
    shades = [[math.nan if v is None else math.log2(max(v, 1)) for v in row] for row in chart.cells]
    axes.imshow(shades, cmap="Blues", aspect="auto", vmin=0, vmax=10)
    axes.set_xticks(range(len(chart.columns)), chart.columns, fontsize=8)
    axes.set_yticks(range(len(chart.labels)), chart.labels, fontsize=8)
    axes.xaxis.tick_top()
    for y, row in enumerate(chart.cells):
        for x, value in enumerate(row):
            if value is not None:
                dark = shades[y][x] > 6
                axes.text(x, y, str(value), ha="center", va="center", fontsize=8, color="white" if dark else "black")


def _matplotlib() -> Any:
    try:
        from matplotlib import figure
    except ImportError as error:
        raise UnavailableError("pictures need matplotlib: pip install 'ptxgen[pictures]'") from error
    return figure
