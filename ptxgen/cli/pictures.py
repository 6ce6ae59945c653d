"""Charts, and their pictures. Only this module imports matplotlib."""

from __future__ import annotations

import datetime
import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.errors import InputError, UnavailableError
from ptxgen.install_advice import install_extra

FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Bars:
    """A chart with groups of bars. ``series``: legend text -> the height of each bar; None: unknown; ``log``: True for
    a logarithmic axis of heights."""

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    unit: str
    log: bool = False


@dataclass(frozen=True)
class Lines:
    """A chart with lines over a logarithmic axis. ``series``: legend text -> the points of a line; ``dates``: True if
    the axis is linear and has dates, in seconds since 1970."""

    title: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    x_unit: str
    unit: str
    dates: bool = False


@dataclass(frozen=True)
class Points:
    """A chart with points over logarithmic axes, or over linear axes if ``linear``. ``series``: legend text -> points
    (x, y, text); a series without points only reserves its colour; ``limits``: legend text -> the corners of a line
    that bounds the points."""

    title: str
    series: Mapping[str, Sequence[tuple[float, float, str]]]
    limits: Mapping[str, Sequence[tuple[float, float]]]
    x_unit: str
    unit: str
    linear: bool = False


@dataclass(frozen=True)
class Heat:
    """A chart with a shaded grid of ratios, blue above 1 and red below. ``cells``: by row and column, (ratio, text), or
    None for an empty cell; the first row is at the bottom."""

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Sequence[tuple[float, str] | None]]
    x_unit: str
    unit: str


@dataclass(frozen=True)
class Grid:
    """A chart with a shaded grid of numbers, one row for each label. Shades are logarithmic; None is an empty cell."""

    title: str
    labels: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[int | None]]


Chart = Bars | Lines | Grid | Points | Heat


def require(path: Path) -> None:
    """Requires a file name for a picture. InputError: its ending is unknown. UnavailableError: matplotlib is
    missing."""
    if path.suffix not in FORMATS:
        raise InputError(f"picture is {str(path)!r}; its name must end in {', '.join(FORMATS)}")
    require_package()


def draw(chart: Chart, path: Path) -> None:
    """Writes the picture of a chart, in the format that the file's ending names. InputError: the ending is unknown.
    UnavailableError: matplotlib is missing."""
    require(path)
    _figure(chart, _size(chart)).savefig(path)


#: placeholder colours of charts in pages; in the SVG text, variables of the page's style sheet replace them
TEXT, GRID = "#010101", "#020202"
SERIES = tuple(f"#0303{10 + i}" for i in range(9))
THEME = {TEXT: "var(--text)", GRID: "var(--grid)"} | {c: f"var(--series-{i})" for i, c in enumerate(SERIES)}
#: size of a chart of a page in inches; text of 8 points is legible on a phone, and wide screens show two columns
PAGE_SIZE = (3.9, 3.0)


def svg(chart: Chart, name: str) -> str:
    """The SVG element of a chart for a page. Its colours are variables of the page's style sheet: ``--text``,
    ``--grid`` and ``--series-0`` to ``--series-8``. ``name``: the prefix of the element's ids, different for each chart
    of a page. UnavailableError: matplotlib is missing."""
    require_package()
    import matplotlib

    out = io.StringIO()
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.size": 8,
        "axes.prop_cycle": f"cycler('color', {list(SERIES)})",
        "text.color": TEXT,
        "axes.labelcolor": TEXT,
        "xtick.color": TEXT,
        "ytick.color": TEXT,
        "axes.edgecolor": GRID,
        "grid.color": GRID,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(style):
        figure = _figure(chart, PAGE_SIZE, titled=False)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
    for colour, variable in THEME.items():
        text = text.replace(colour, variable)
    text = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font: \1px var(--font)", text)
    text = re.sub(r'(id="|href="#|url\(#)', rf"\1{name}-", text)
    for number, (_, _, label) in enumerate(_labelled(chart)):
        mark = f'<g id="{name}-point{number}">'
        text = text.replace(mark, f"{mark}<title>{html.escape(label)}</title>")
    role = f'<svg role="img" aria-label="{html.escape(chart.title)}"'
    return text.replace("<svg", role, 1).replace("\n", " ").strip()


def _labelled(chart: Chart) -> list[tuple[float, float, str]]:
    return [point for points in chart.series.values() for point in points] if isinstance(chart, Points) else []


def _figure(chart: Chart, size: tuple[float, float], titled: bool = True) -> Any:
    figure = require_package().Figure(figsize=size, layout="constrained", dpi=120)
    axes = figure.add_subplot()
    if titled:
        axes.set_title(chart.title, fontsize=10)
    if isinstance(chart, Bars):
        _bars(axes, chart)
    elif isinstance(chart, Lines):
        _lines(axes, chart)
    elif isinstance(chart, Points):
        _points(axes, chart)
    elif isinstance(chart, Heat):
        _heat(axes, chart)
    else:
        _grid(axes, chart)
    return figure


def _size(chart: Chart) -> tuple[float, float]:
    """The width and the height of the picture of a chart, in inches."""
    if isinstance(chart, Bars):
        return max(6.0, 2 + 0.18 * len(chart.labels) * (len(chart.series) + 1)), 4.2
    if not isinstance(chart, Grid):
        return 6.4, 4.2
    return (2.5 + 0.6 * len(chart.columns), 1 + 0.28 * len(chart.labels))


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
        x: list[Any] = [x for x, _ in points]
        if chart.dates:
            x = [datetime.datetime.fromtimestamp(at, datetime.UTC) for at in x]
        axes.plot(x, [y for _, y in points], marker="" if chart.dates else "o", label=name)
    if chart.dates:
        axes.xaxis.set_major_locator(dates_of().AutoDateLocator(minticks=2, maxticks=5))
        axes.xaxis.set_major_formatter(dates_of().ConciseDateFormatter(axes.xaxis.get_major_locator()))
    else:
        axes.set_xscale("log")
    axes.set_xlabel(chart.x_unit)
    axes.set_ylabel(chart.unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if len(chart.series) > 1:
        axes.legend(fontsize=8)


LEAST = 1e-4  #: points below this fraction of the largest y are drawn at the fraction, as triangles


def _points(axes: Any, chart: Points) -> None:
    for name, corners in chart.limits.items():
        axes.plot([x for x, _ in corners], [y for _, y in corners], color="0.5", linewidth=1.2)
        x, y = corners[-1]
        # the name of a slope is above its end, that of a level to the right of its end, where no point is
        level = corners[0][1] == y
        place, aligned = ((3, 0), ("left", "center")) if level else ((-2, 2), ("right", "baseline"))
        axes.annotate(name, (x, y), place, textcoords="offset points", ha=aligned[0], va=aligned[1], fontsize=7)
    least = max((y for points in chart.series.values() for _, y, _ in points), default=1.0) * LEAST
    number = 0
    for i, (name, points) in enumerate(chart.series.items()):
        colour = f"C{i}"
        for x, y, _ in points:
            marker = "o" if y >= least else "v"
            axes.plot([x], [max(y, least)], marker, color=colour, markersize=3.2, alpha=0.75, gid=f"point{number}")
            number += 1
        if points:
            axes.plot([], [], "o", color=colour, markersize=3.2, label=name)
    if not chart.linear:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel(chart.x_unit)
    axes.set_ylabel(chart.unit)
    axes.grid(alpha=0.3)
    axes.figure.legend(loc="outside lower center", ncols=4, fontsize=7, handletextpad=0.1, columnspacing=1)


#: the least and the largest log2 of ratios that shades distinguish
SHADES = (-1.0, 1.0)


def _heat(axes: Any, chart: Heat) -> None:
    values = [[math.nan if c is None else math.log2(c[0]) for c in row] for row in chart.cells]
    corners = ([n - 0.5 for n in range(len(axis) + 1)] for axis in (chart.columns, chart.rows))
    axes.pcolormesh(*corners, values, cmap="RdBu", vmin=SHADES[0], vmax=SHADES[1], alpha=0.85, linewidth=0)
    axes.set_xticks(range(len(chart.columns)), chart.columns, fontsize=7)
    axes.set_yticks(range(len(chart.rows)), chart.rows, fontsize=7)
    axes.set_xlabel(chart.x_unit)
    axes.set_ylabel(chart.unit)
    for y, row in enumerate(chart.cells):
        for x, cell in enumerate(row):
            if cell is not None:
                strong = abs(values[y][x]) > 0.6
                colour = "white" if strong else "black"
                axes.text(x, y, cell[1], ha="center", va="center", fontsize=7, color=colour)


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


def dates_of() -> Any:
    """The module of matplotlib that formats dates."""
    from matplotlib import dates

    return dates


def require_package() -> Any:
    """The module of matplotlib's figures. UnavailableError: matplotlib is missing."""
    try:
        from matplotlib import figure
    except ImportError as error:
        raise UnavailableError(f"pictures need matplotlib: {install_extra('pictures')}") from error
    return figure
