"""The command ``report``, which writes the results of tuning as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ptxgen.cli.checks import INPUT_FILE, OUTPUT_FILE
from ptxgen.cli.command import UNDERSTAND_COMMANDS, Answer, app, command
from ptxgen.cli.options import DatabaseOptions
from ptxgen.errors import InputError

if TYPE_CHECKING:
    from ptxgen.cli.pictures import Chart
    from ptxgen.problem.device import Device
    from ptxgen.problem.registry import Problem
    from ptxgen.tuning.progress import Progress
    from ptxgen.tuning.store.history import Attempt, Ratio
    from ptxgen.tuning.store.measurement import Measurement, VendorMeasurement


SAME_PEAK = 0.15  #: peak rates that differ by less than this fraction share one line of the roofline


@dataclass
class Contents:
    """The data of the page, all for one device. ``winners``: winners; ``attempts``: all measurements; ``vendors``:
    times of the vendor's library from tuning; ``observed``: measurements with an energy; ``ratios``: ratios to the
    vendor's time; ``curve``: points (number of training problems, error) of the model's learning curve; ``sources``:
    texts on where the data comes from."""

    device: Device
    clock: str
    winners: list[Measurement] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    vendors: list[VendorMeasurement] = field(default_factory=list)
    observed: list[Measurement] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


@command(
    app,
    "report",
    "--device h200 --out report.html",
    "--out report.html --from bench.json --from evaluation.json",
    panel=UNDERSTAND_COMMANDS,
    tables=False,
)
def report(
    options: DatabaseOptions,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write."), OUTPUT_FILE] = Path("report.html"),
    device: Annotated[
        str | None, typer.Option(help="Device of the results. [default: the device of most winners in the database]")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A document of bench --baseline (vendor's times) or model evaluate (learning curve), or a file of "
            "model validate --rows. Repeatable.",
        ),
        INPUT_FILE,
    ] = None,
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Show all measurements over time, or only winners.")
    ] = True,
) -> Answer:
    """Write the results of tuning as an HTML page.

    The page shows the roofline of all tuned shapes, the ratio to the vendor's library by shape, time against energy,
    the accuracy of the model, measurements over time, winners with their parameters, and failures by error. It has no
    scripts and loads nothing. The results are from the database; if it has none of the device, shipped results are
    used.
    """
    from ptxgen.cli import pictures
    from ptxgen.cli.progress import progress
    from ptxgen.problem.device import device as device_named
    from ptxgen.tuning.progress import counted
    from ptxgen.tuning.store import tuning_files

    pictures.require_package()
    sources = [read_source(path) for path in source or ()]
    with progress("read") as shown, options.reading() as database:
        clock = None
        if device is None:
            winners = [] if database is None else database.info()["winners"]
            largest = max(winners, key=lambda r: r["count"], default=None)
            name, clock = (largest["device"], largest["clock"]) if largest else ("", "")
            device = name or next(iter(tuning_files.devices()), "h200")
        for s in sources:
            s.require(device_named(device).name)
        contents = _contents(device, clock or tuning_files.clock_of(device), database, history, shown)
        for s in sources:
            s.add_to(contents)
        shown.phase("draw", 0)
        text = page(contents)
    out.write_text(text, encoding="utf-8")
    document = {
        "command": "report",
        "device": contents.device.name,
        "file": out,
        "bytes": len(text.encode()),
        "winners": len(contents.winners),
        "measurements": len(contents.attempts),
        "ratios": len(contents.ratios),
        "sources": contents.sources,
    }
    parts = ((contents.winners, "winner"), (contents.attempts, "measurement"), (contents.ratios, "time"))
    counts = ", ".join(counted(len(rows), noun) for rows, noun in parts)
    return Answer(
        document,
        [f"{out}: {counts} of the vendor; device {contents.device.name}", *(f"from {s}" for s in contents.sources)],
    )


def _contents(name: str, clock: str, database: Any, history: bool, progress: Progress) -> Contents:
    """The contents of the page of the device ``name``, from the database, or from the shipped files if it has no
    results. ``history``: False leaves out measurements that are no winners."""
    from ptxgen.problem.device import device
    from ptxgen.tuning.store import tuning_files
    from ptxgen.tuning.store.history import EVALUATION, VALIDATION, attempt, shipped_attempts
    from ptxgen.tuning.store.measurement import ENERGY

    out = Contents(device(name), clock)
    name = out.device.name
    if database is not None:
        out.winners = list(database.winners(name, clock))
        out.vendors = list(database.vendors(name, clock))
        rows = database.measurements(device=name, clock=clock, outcome="ok", purpose=ENERGY)
        out.observed = [m for m in rows if m.observed is not None]
        rows = database.measurements(device=name, clock=clock) if history else ()
        out.attempts = _counted((attempt(m) for m in rows), progress)
        if out.winners or out.attempts:
            out.sources.append(f"the database {database.path.name}")
            return out
    shipped = tuning_files.shipped_winners(name)
    out.winners = [shipped[key] for key in shipped]
    if out.winners:
        out.sources.append("the shipped winners")
    measured = tuning_files.measurement_files(name)
    if history and measured:
        out.attempts = _counted(shipped_attempts(measured), progress)
        out.sources.append("the shipped measurements")
    for file, title in ((VALIDATION, "validation"), (EVALUATION, "evaluation")):
        if (path := tuning_files.measurements_path(name).with_name(file)).exists():
            read_source(path, f"the shipped {title} of the model").add_to(out)
    return out


def _counted(attempts: Iterable[Attempt], progress: Progress) -> list[Attempt]:
    progress.phase("read measurements", 0)
    out = []
    for a in attempts:
        out.append(a)
        if len(out) % 1000 == 0:
            progress.step(f"{len(out)}")
    return out


@dataclass(frozen=True)
class Source:
    """The data that a file adds to the page of ``device``. ``title``: the name of the file on the page."""

    path: Path
    title: str
    device: str
    ratios: list[Ratio] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)

    def require(self, device: str) -> None:
        """Requires results of ``device``. InputError: the results are of another device."""
        if self.device != device:
            raise InputError(f"from {self.path} is of device {self.device}; it must be of {device}")

    def add_to(self, page: Contents) -> None:
        self.require(page.device.name)
        page.ratios += self.ratios
        page.curve = self.curve or page.curve
        page.sources.append(self.title)


def read_source(path: Path, title: str = "") -> Source:
    """The vendor's times or the learning curve in a file. InputError: the file has neither, or is damaged."""
    import math

    from ptxgen.cli import documents
    from ptxgen.problem.registry import parse
    from ptxgen.tuning.collect.validation import read_rows
    from ptxgen.tuning.store.history import Ratio

    title = title or path.name
    try:
        documents.load(path)
    except InputError:  # not one JSON object: lines
        try:
            header, rows = read_rows(path)
        except InputError as error:
            raise InputError(
                f"from {path} must be the output of bench --json or model evaluate --json, or a file of model validate"
                f" --rows: {error}"
            ) from error
        return Source(
            path, title, header["device"], [Ratio(r.problem, r.ratio) for r in rows if math.isfinite(r.ratio)]
        )
    document = documents.read(path, "bench", "model evaluate")
    if document["command"] == "bench":
        known = [r for r in document["rows"] if r["ratio"] is not None]
        ratios = [Ratio(parse(r["problem"]["key"]), r["ratio"]) for r in known]
        return Source(path, title, document["device"], ratios)
    curve = [(p["problems"], p["error"]) for p in document["curve"]]
    return Source(path, title, document["device"], curve=curve)


# ---- the page


def page(contents: Contents) -> str:
    """The HTML text of the page."""
    import math
    from importlib import resources

    from mako.template import Template

    from ptxgen.cli.pictures import svg
    from ptxgen.cli.report import MODEL_CLOCK
    from ptxgen.cli.tables import number
    from ptxgen.tuning.choice.vendor import is_faster

    d = contents.device
    tiles = {"tuned shapes": f"{len(contents.winners):,}"}
    if contents.ratios:
        mean = math.exp(sum(math.log(r.ratio) for r in contents.ratios) / len(contents.ratios))
        slower = sum(r.ratio < 1 for r in contents.ratios)
        tiles |= {
            "shapes compared with the vendor's library": f"{len(contents.ratios):,}",
            "geometric mean of vendor's time / time of ptxgen": number(mean),
            "shapes slower than with the vendor's library": f"{slower / len(contents.ratios):.0%}",
        }
    if contents.vendors:
        ours = {m.problem: m for m in contents.winners}
        both = [(theirs, ours[theirs.problem]) for theirs in contents.vendors if theirs.problem in ours]
        used = sum(is_faster(*pair) for pair in both)
        tiles["shapes that calls leave to the vendor's library"] = f"{used:,} of {len(both):,}"
    if contents.attempts:
        failed = sum(a.outcome != "ok" for a in contents.attempts)
        tiles |= {"measurements": f"{len(contents.attempts):,}", "failed measurements": f"{failed:,}"}
    facts = f"{d.name}, {d.target}, {d.sms} multiprocessors, {d.clock} MHz, {d.bandwidth} GB/s"
    subtitle = f"{facts}. From {', '.join(contents.sources) or 'nothing: no results are stored'}."
    if contents.clock == "model":
        subtitle += f" {MODEL_CLOCK}"
    made = [
        _roofline(contents),
        _ratios(contents),
        _energy(contents),
        _search(contents),
        _winners(contents),
        _failures(contents),
    ]
    text = resources.files("ptxgen.cli").joinpath("page.html.mako").read_text(encoding="utf-8")
    rendered: str = Template(text, default_filters=["h"]).render_unicode(
        title=f"ptxgen on {d.name}", subtitle=subtitle, tiles=tiles, sections=made, svg=svg, number=number, Code=Code
    )
    return rendered


class Code(str):
    """A cell of a table that is set in a typewriter font, as a configuration."""


@dataclass(frozen=True)
class HtmlTable:
    """A table of the page, with rows below titles. Numbers are right-aligned. ``summary``: the line on which a reader
    clicks to unfold the table; empty: the table is always open."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Any]]
    summary: str = ""

    @property
    def numeric(self) -> list[bool]:
        """For each column, True if all its cells are numbers."""
        return [all(isinstance(x, (int, float)) for x in column) for column in zip(*self.rows, strict=True)]


@dataclass(frozen=True)
class Section:
    """A section of the page. ``charts``: charts, each with a name (the prefix of its ids) and a caption; ``notes``:
    texts in which commands are between backticks."""

    title: str
    text: str
    charts: Sequence[tuple[Chart, str, str]] = ()
    tables: Sequence[HtmlTable] = ()
    notes: Sequence[str] = ()


def _operations(problems: Iterable[Problem]) -> list[str]:
    """The names of the operations of problems, in the order of the registry."""
    from ptxgen.problem.operation import operation_names

    names = {p.operation for p in problems}
    return [name for name in operation_names() if name in names]


def _shapes(count: int) -> str:
    return f"{count:,} shape{'' if count == 1 else 's'}"


def _roofline(contents: Contents) -> Section:
    from ptxgen.cli.pictures import Points
    from ptxgen.cli.tables import number
    from ptxgen.lowering.lower import lower
    from ptxgen.problem.dtypes import DTYPES
    from ptxgen.problem.operation import operation_of
    from ptxgen.tuning.model.evaluation import arithmetic
    from ptxgen.tuning.roofline import peak_flops

    text = (
        "Speed of every tuned shape by its arithmetic intensity: floating-point operations per byte of its operands,"
        " each read or written once. The lines are the memory bandwidth and the peak rate of the device for each"
        " arithmetic. A shape"
        " is above the bandwidth if its operands stay in the L2 cache, or if it is a convolution whose padding is"
        " counted."
        " Triangles are shapes below the axis."
    )
    charts: list[tuple[Chart, str, str]] = []
    for operation in _operations(m.problem for m in contents.winners):
        series: dict[str, list[tuple[float, float, str]]] = {}
        peaks: dict[str, float] = {}
        for m in contents.winners:
            p = lower(m.problem)
            if operation_of(m.problem).name == operation and p.flops and p.bytes and m.us > 0:
                name, family = arithmetic(m.problem), m.config.values()["family"]
                unit = operation_of(m.problem).speed.title
                label = f"{m.problem.key()}: {number(m.us)} µs, {number(m.speed)} {unit}, {family}"
                series.setdefault(name, []).append((p.flops / p.bytes, m.tflops, label))
                peaks[name] = max(peaks.get(name, 0.0), peak_flops(p, contents.device) / 1e12)
        if series:
            names = (*(name for name, element in DTYPES.items() if element.compute), *DTYPES["f32"].compute)
            known = {name: series.get(name, []) for name in names}
            chart = Points(
                f"Roofline, {operation}", known, _roofs(known, peaks, contents.device), "FLOP/byte", "TFLOP/s"
            )
            charts.append((chart, f"roofline-{operation}", f"{operation}: {_shapes(sum(map(len, series.values())))}"))
    if not charts:
        return Section("Roofline", text, notes=["There are no winners. `python -m ptxgen tune` finds some."])
    return Section("Roofline", text, charts)


def _roofs(
    series: dict[str, list[tuple[float, float, str]]], peaks: dict[str, float], device: Device
) -> dict[str, list[tuple[float, float]]]:
    """Legend text -> corners of a line, for the roofs above the points: the bandwidth, and the peak rate of each
    arithmetic. Nearly equal peaks share a line."""
    x = [x for points in series.values() for x, _, _ in points]
    low, high, bandwidth, top = min(x) / 2, max(x) * 2, device.bandwidth / 1e3, max(peaks.values())
    shared: dict[float, list[str]] = {}
    for name, peak in sorted(peaks.items(), key=lambda item: item[1]):
        near = next((other for other in shared if abs(peak / other - 1) < SAME_PEAK), peak)
        shared.setdefault(near, []).append(name)
    limits = {f"{device.bandwidth} GB/s": [(low, low * bandwidth), (top / bandwidth, top)]}
    for peak, names in shared.items():
        limits[", ".join(names)] = [(peak / bandwidth, peak), (max(high, 2 * top / bandwidth), peak)]
    return limits


def _ratios(contents: Contents) -> Section:
    from ptxgen.cli.pictures import Heat
    from ptxgen.problem.operation import operation_named, operation_of
    from ptxgen.tuning.store.history import heat_map

    title = "Ratio to the vendor's library"
    text = (
        "Time of the best candidate of the vendor's library over the time of ptxgen, measured in one run: above 1,"
        " ptxgen is faster. Each cell is the geometric mean of a class of shapes, with the number of shapes."
    )
    if not contents.ratios:
        command = "python -m ptxgen bench gemm --suite isaac --baseline cublas --save bench.json"
        shown = "`python -m ptxgen report --from bench.json` shows them"
        return Section(title, text, notes=[f"No times of the vendor are stored. `{command}` measures some; {shown}."])
    charts = []
    for name in _operations(r.problem for r in contents.ratios):
        chosen = [r for r in contents.ratios if operation_of(r.problem).name == name]
        grid = heat_map(chosen)
        cells = [[None if c is None else (c[0], f"{c[0]:.2f}\n{c[1]}") for c in row] for row in grid.cells]
        columns, rows = ([f"$2^{{{n}}}$" for n in axis] for axis in (grid.columns, grid.rows))
        chart = Heat(f"Ratios, {name}", columns, rows, cells, "elements of C, from", "K, from")
        own = operation_named(name).problem.SHAPE == ("m", "n", "k")
        lowered = "" if own else ", of the GEMM that kernels compute"
        charts.append((chart, f"ratio-{name}", f"{name}: {_shapes(len(chosen))}{lowered}"))
    worst = sorted(contents.ratios, key=lambda r: r.ratio)[:10]
    table = HtmlTable(("ratio", "slowest shapes"), [[float(r.ratio), Code(r.problem.key())] for r in worst])
    return Section(title, text, charts, [table])


def _energy(contents: Contents) -> Section:
    from ptxgen.cli.pictures import Points
    from ptxgen.cli.tables import number

    title = "Time and energy"
    text = (
        "The fastest configurations of each shape, by their time over that of the fastest and the energy of a call over"
        " the least: a point far to the right on the axis saves energy at the cost of time."
    )
    last = {(m.problem, m.config): m for m in contents.observed}
    fastest: dict[Problem, float] = {}
    least: dict[Problem, float] = {}
    for m in last.values():
        if m.observed is not None:
            fastest[m.problem] = min(fastest.get(m.problem, m.us), m.us)
            least[m.problem] = min(least.get(m.problem, m.observed.millijoules), m.observed.millijoules)
    series: dict[str, list[tuple[float, float, str]]] = {}
    for m in last.values():
        if (seen := m.observed) is not None:
            place = m.us / fastest[m.problem], seen.millijoules / least[m.problem]
            label = (
                f"{m.problem.key()}: {number(m.us)} µs, {number(seen.millijoules)} mJ, {seen.watts:.0f} W, {m.config}"
            )
            series.setdefault(str(m.config.values()["family"]), []).append((*place, label))
    if not series:
        command = "python -m ptxgen tune --objective energy"
        return Section(title, text, notes=[f"No energy was observed. `{command}` observes that of the fastest."])
    chart = Points(title, series, {}, "time / least time", "energy / least energy", linear=True)
    return Section(title, text, [(chart, "energy", f"{_shapes(len(fastest))}, {len(last):,} configurations")])


def _search(contents: Contents) -> Section:
    from ptxgen.cli.pictures import Lines
    from ptxgen.tuning.store.history import counts_over_time, search_curve

    charts: list[tuple[Chart, str, str]] = []
    if contents.attempts:
        over_time: dict[str, Any] = dict(counts_over_time(contents.attempts))
        chart = Lines("Measurements over time", over_time, "", "measurements", dates=True)
        charts.append((chart, "history", "Measurements of each family until a time."))
        points = [(float(n), 100 * y) for n, y in search_curve(contents.attempts)]
        line = Lines(
            "Progress of the search", {"all problems": points}, "measurements of a problem", "% of the fastest"
        )
        caption = (
            "Fastest time of a problem over the fastest of its first measurements, geometric mean over the problems."
        )
        charts.append((line, "search", caption))
    notes = []
    if contents.curve:
        curve = Lines("Learning curve", {"trees": contents.curve}, "training problems", "error")
        caption = "Error of the model on problems held out of training: root mean square of log2(predicted / measured)."
        charts.append((curve, "learning", caption))
    else:
        first, second = "python -m ptxgen model evaluate --json > evaluation.json", "report --from evaluation.json"
        notes.append(f"The learning curve of the model: `{first}`, then `{second}`.")
    text = "Measurements over time, the progress of the search, and the error of the model."
    return Section("Search and model", text, charts, notes=notes)


def _winners(contents: Contents) -> Section:
    from ptxgen.lowering.lower import lower
    from ptxgen.problem.operation import operation_of
    from ptxgen.tuning.model.evaluation import arithmetic
    from ptxgen.tuning.roofline import roofline_us

    groups: dict[tuple[str, str], list[list[Any]]] = {}
    for m in sorted(contents.winners, key=lambda m: m.problem.flops):
        operation = operation_of(m.problem)
        floor = roofline_us(lower(m.problem), contents.device) / m.us
        family, _, axes = str(m.config).partition(" ")
        row = [Code(m.problem.key()), m.us, m.speed, f"{floor:.0%}", family.partition("=")[2], Code(axes)]
        groups.setdefault((f"{operation.name}, {arithmetic(m.problem)}", operation.speed.title), []).append(row)
    tables = []
    for (name, unit), rows in sorted(groups.items()):
        titles = ("problem", "µs", unit, "roofline", "family", "configuration")
        tables.append(HtmlTable(titles, rows, f"{name}: {_shapes(len(rows))}"))
    text = "The fastest measured configuration of each shape. Roofline: the least possible time over the measured one."
    return Section("Winners", text, tables=tables, notes=() if tables else ["There are none."])


def _failures(contents: Contents) -> Section:
    from ptxgen.tuning.store.history import failures

    rows = [
        [f.outcome, f.family, f.count, f.message.splitlines()[0][:120] if f.message else ""]
        for f in failures(contents.attempts)
    ]
    text = (
        "Measurements that failed, by outcome and family, with the most frequent message. They never train the model."
    )
    if not rows:
        none = "None of the measurements failed." if contents.attempts else "No measurements were read."
        return Section("Failures", text, notes=[none])
    titles = ("outcome", "family", "count", "most frequent message")
    return Section("Failures", text, tables=[HtmlTable(titles, rows)])
