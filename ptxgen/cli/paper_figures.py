"""The commands for the ISAAC paper's Figures 6 to 11, which show speeds of the problems of Tables 4 and 5 on two
devices, and for its section 8.1, which compares kernels.

The figures are drawn from shipped documents of ``bench``, or from those of ``--from``; the commands measure nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ptxgen.cli.checks import INPUT_FILE
from ptxgen.cli.command import OUTPUT_PANEL, Answer, Common, command, paper
from ptxgen.cli.measured import MeasuredOptions, answer
from ptxgen.cli.paper import PICTURE


@dataclass(frozen=True)
class FigureOptions(Common):
    """The options that select the documents of speeds and the file of the picture."""

    panel: ClassVar[str] = OUTPUT_PANEL

    device: Annotated[
        str | None, typer.Option(help="The device whose shipped times are shown. [default: that of the figure]")
    ] = None
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="FILE", help="Read a document of bench --save in place. Repeatable."),
        INPUT_FILE,
    ] = None
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw a .png, .svg or .pdf, too."), PICTURE
    ] = None


@dataclass(frozen=True)
class Speeds:
    """A figure of speeds. ``device``: the default device; ``documents``: the names of the shipped documents,
    ``operation-dtype``; ``shown(name, dtype)``: True if the figure has the problem with this name and dtype."""

    title: str
    device: str
    documents: Sequence[str]
    shown: Callable[[str, str], bool] = lambda name, dtype: True


def _half_or_double(name: str, dtype: str) -> bool:
    """True if the paper shows the problem in this dtype: f16 for LINPACK and DeepBench, f64 for all others."""
    return dtype == ("f16" if name.startswith(("LINPACK", "DeepBench")) else "f64")


FIGURES = {
    "figure6": Speeds("Figure 6: SGEMM", "h200", ("gemm-f32",)),
    "figure7": Speeds("Figure 7: SGEMM", "h100", ("gemm-f32",)),
    "figure8": Speeds("Figure 8: H/DGEMM", "h100", ("gemm-f16", "gemm-f64"), _half_or_double),
    "figure9": Speeds("Figure 9: SCONV", "h200", ("conv-f32",)),
    "figure10": Speeds("Figure 10: SCONV", "h100", ("conv-f32",)),
    "figure11": Speeds("Figure 11: HCONV", "h100", ("conv-f16",)),
}
#: document -> the arguments of bench that make it. f32 images have the paper's layout, f16 images the layout that
#: tensor cores need
BENCHES = {
    **{f"gemm-{dtype}": f"gemm --suite isaac --dtype {dtype} --baseline cublas" for dtype in ("f32", "f16", "f64")},
    "conv-f32": "conv --suite isaac --dtype f32 --layout CHWN --baseline cudnn",
    "conv-f16": "conv --suite isaac --dtype f16 --layout NHWC --baseline cudnn",
}


def measuring(document: str) -> str:
    """The command that makes a shipped document."""
    return f"python -m ptxgen bench {BENCHES[document]} --save {document}.json"


def _figure(options: FigureOptions, name: str) -> Answer:
    from ptxgen.cli import documents, paper_tables, pictures
    from ptxgen.errors import InputError
    from ptxgen.problem.device import device as device_named
    from ptxgen.tuning.store import paper_files

    figure = FIGURES[name]
    device = None if options.device is None else device_named(options.device).name
    paths = options.source or [
        paper_files.existing(device or figure.device, d, f"On such a GPU: {measuring(d)}; then use --from")
        for d in figure.documents
    ]
    runs = [documents.read(path, "bench", device=device) for path in paths]
    for other in runs[1:]:
        for field in ("device", "baseline"):
            if other[field] != runs[0][field]:
                raise InputError(f"the documents are of {field} {runs[0][field]} and {other[field]}; it must be one")
    rows = [r for d in runs for r in d["rows"] if figure.shown(r["name"], r["problem"]["dtype"])]
    document: dict[str, Any] = {**runs[0], "rows": rows}
    if not rows:
        remedy = measuring(figure.documents[0])
        raise InputError(f"{paths[0]} has no row of {figure.title}; it must be of the suite isaac: {remedy}")
    table = paper_tables.speeds(document, figure.title)
    if options.picture is not None:
        pictures.draw(table.chart, options.picture)
    return Answer(document, table.parts)


@command(paper, "figure6", "--picture figure6.png", "--from gemm-f32.json")
def figure6(options: FigureOptions) -> Answer:
    """Print Figure 6: the speed of SGEMM on an H200.

    Shows the problems of Table 4 in f32, beside cuBLASLt's best candidate and its heuristic's choice. The paper's
    figure is for a GTX 980 Ti. Reads shipped times; needs no GPU.
    """
    return _figure(options, "figure6")


@command(paper, "figure7", "--picture figure7.png", "--from gemm-f32.json")
def figure7(options: FigureOptions) -> Answer:
    """Print Figure 7: the speed of SGEMM on an H100.

    Shows what Figure 6 shows. The paper's figure is for a Tesla P100. Reads shipped times; needs no GPU.
    """
    return _figure(options, "figure7")


@command(paper, "figure8", "--picture figure8.png", "--from gemm-f16.json --from gemm-f64.json")
def figure8(options: FigureOptions) -> Answer:
    """Print Figure 8: the speed of HGEMM and DGEMM on an H100.

    Shows what Figure 6 shows, in f16 for LINPACK and DeepBench and in f64 for ICA and LAPACK, as in the paper. Reads
    shipped times; needs no GPU.
    """
    return _figure(options, "figure8")


@command(paper, "figure9", "--picture figure9.png", "--from conv-f32.json")
def figure9(options: FigureOptions) -> Answer:
    """Print Figure 9: the speed of SCONV on an H200.

    Shows the problems of Table 5 in f32, beside cuDNN's fastest algorithm. The paper's figure is for a GTX 980 Ti.
    Reads shipped times; needs no GPU.
    """
    return _figure(options, "figure9")


@command(paper, "figure10", "--picture figure10.png", "--from conv-f32.json")
def figure10(options: FigureOptions) -> Answer:
    """Print Figure 10: the speed of SCONV on an H100.

    Shows what Figure 9 shows. The paper's figure is for a Tesla P100. Reads shipped times; needs no GPU.
    """
    return _figure(options, "figure10")


@command(paper, "figure11", "--picture figure11.png", "--from conv-f16.json")
def figure11(options: FigureOptions) -> Answer:
    """Print Figure 11: the speed of HCONV on an H100.

    Shows what Figure 9 shows, in f16. Reads shipped times; needs no GPU.
    """
    return _figure(options, "figure11")


@command(paper, "anatomy", "--picture anatomy.png", "--measure --save anatomy.json")
def anatomy(options: MeasuredOptions) -> Answer:
    """Print what differs from cuBLASLt's fastest kernel for 2560×32×2560.

    Prints the properties of section 8.1: tile, grid, registers, shared memory, occupancy and hit rate of the L2 cache,
    beside those of the paper on a P100. With --measure, ncu reads the counters, if ncu is installed; without, no GPU is
    needed.
    """
    from ptxgen.cli import paper_anatomy

    def measure() -> dict[str, Any]:
        return paper_anatomy.measured(options.gpu("paper anatomy"))

    return answer(options, "paper anatomy", "anatomy", measure, paper_anatomy.table)
