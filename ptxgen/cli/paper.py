"""The commands that reproduce tables and figures of the paper: paper table1, table2, figure5, table4, table5, table6;
and paper splitting, which shows the value of splits of the reduction.

Each command runs another command (sampler, model evaluate, bench, select) on the paper's problems, and prints the
document of that command as a table; --from reads such a document from a file instead. splitting has its own document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from ptxgen.cli.checks import INPUT_FILE, Check, output_file
from ptxgen.cli.command import OUTPUT_PANEL, Answer, command, paper
from ptxgen.cli.options import DatabaseOptions, SeedOption, Target

DeviceOption = Annotated[str | None, typer.Option(help="Device name. [default: the GPU, else emulated]")]
GpuOption = Annotated[
    str | None, typer.Option(help="The GPU that must be in this machine, or that --from has. [default: any]")
]
DtypeOption = Annotated[str | None, typer.Option(help="Dtype of A and B. [default: f32]")]
ComputeOption = Annotated[str | None, typer.Option(help="Accumulation. [default: the first of the dtype]")]
FoldsOption = Annotated[int, typer.Option(min=2, help="Parts of the problems that are held out of training.")]
PerceptronsOption = Annotated[
    int, typer.Option(metavar="ROWS", min=1, help="Random rows that each perceptron is trained on.")
]

JobsOption = Annotated[int, typer.Option(min=1, help="Regressors to train at a time, each in a process.")]


def picture_file(name: str, path: Path) -> None:
    """Requires a file to which a picture can be written. InputError: the file cannot be written, or its ending names no
    format. UnavailableError: matplotlib is missing."""
    from ptxgen.cli import pictures

    output_file(name, path)
    pictures.require(path)


PICTURE = Check(picture_file)


@dataclass(frozen=True)
class TableOptions(DatabaseOptions):
    """The options that select the document of a table, and the files to write."""

    panel: ClassVar[str] = OUTPUT_PANEL

    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Read the JSON document of this command, or of the one it runs."),
        INPUT_FILE,
    ] = None
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Draw a .png, .svg or .pdf, too."),
        PICTURE,
    ] = None


def _answer(
    options: TableOptions, name: str, source: tuple[str, ...], run: Callable[[], Answer], device: str | None = None
) -> Answer:
    """The answer with the table ``name`` as text, and with the document that the table is made from; the requested
    picture is drawn. ``source``: the commands whose documents can be read; ``run``: runs the first of these commands;
    ``device``: the device that the document must be of; None: any."""
    from ptxgen.cli import documents, paper_tables, pictures
    from ptxgen.errors import InputError
    from ptxgen.problem.device import device as device_named

    answer = Answer(documents.read(options.source, *source), "") if options.source is not None else run()
    if device is not None and answer.document["device"] != device_named(device).name:
        raise InputError(f"device is {device!r}; {options.source} is of {answer.document['device']}")
    if not answer.document.get(paper_tables.CONTENTS[name]):
        raise InputError(f"{options.source} has no {paper_tables.CONTENTS[name]}: {paper_tables.REMEDIES[name]}")
    try:
        table = paper_tables.TABLES[name](answer.document)
    except InputError as error:
        raise InputError(f"{options.source or name}: {error}") from error
    if options.picture is not None:
        pictures.draw(table.chart, options.picture)
    return Answer(answer.document, table.parts, answer.code)


@command(paper, "table1", "--device h200", "--device h200 --picture table1.png")
def table1(
    options: TableOptions,
    device: DeviceOption = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws of each sampler per problem.")] = 50_000,
    seed: SeedOption = 0,
) -> Answer:
    """Print Table 1: fractions of draws that are legal.

    Prints means over the problems of the suites isaac of GEMMs and of convolutions. Runs `sampler`; needs no GPU.
    """
    from ptxgen.cli.problems import sampler

    def run() -> Answer:
        samplers = [sampler(Target(operation=o, suite="isaac", device=device), draws, seed) for o in ("gemm", "conv")]
        rows = [row for answer in samplers for row in answer.document["rows"]]
        return Answer({**samplers[0].document, "rows": rows}, "")

    return _answer(options, "table1", ("sampler",), run)


@command(paper, "table2", "--picture table2.png", "--from evaluation.json --csv")
def table2(
    options: TableOptions,
    device: Annotated[str, typer.Option(help="The device whose shipped measurements are used.")] = "h200",
    folds: FoldsOption = 4,
    perceptrons: PerceptronsOption = 10_000,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of the rows and of the initial weights.")] = 1,
    jobs: JobsOption = 1,
) -> Answer:
    """Print Table 2: errors of perceptrons and trees.

    All regressors are trained on the same rows. Runs this part of `model evaluate`, on twice as many problems as rows,
    at least 1,000: seconds for 500 rows, minutes for 10,000. Needs scikit-learn and no GPU. With --seeds, errors are
    means, and have a standard deviation.
    """
    from ptxgen.cli.model import compare_regressors

    def run() -> Answer:
        return compare_regressors(device, folds, "clock", perceptrons, seeds, jobs)

    return _answer(options, "table2", ("model evaluate",), run)


@command(paper, "figure5", "--picture figure5.png", "--from evaluation.json --csv")
def figure5(
    options: TableOptions,
    device: Annotated[str, typer.Option(help="The device whose shipped measurements are used.")] = "h200",
    folds: FoldsOption = 4,
    samples: Annotated[
        int | None, typer.Option(metavar="ROWS", min=1, help="Most training rows. [default: all]")
    ] = None,
    perceptron: Annotated[
        bool, typer.Option("--perceptron/--no-perceptron", help="Train the largest perceptron of Table 2, too.")
    ] = True,
    jobs: JobsOption = 1,
) -> Answer:
    """Print Figure 5: error by number of training samples.

    Prints cross-validated errors of the trees and of the largest perceptron of Table 2. Runs these parts of `model
    evaluate`: a minute for 2,000 rows, an hour for all rows; needs scikit-learn and no GPU.
    """
    from ptxgen.cli.model import compare_sample_curves

    def run() -> Answer:
        return compare_sample_curves(device, folds, "clock", samples, perceptron, jobs)

    return _answer(options, "figure5", ("model evaluate",), run)


def _speeds(options: TableOptions, name: str, target: Target, baseline: str) -> Answer:
    """The answer with a table of speeds. UnavailableError: the device is not a GPU of this machine."""
    from ptxgen.cli.problems import bench
    from ptxgen.errors import UnavailableError

    def run() -> Answer:
        if target.find_driver().clock == "model":
            raise UnavailableError(
                f"{name} compares speeds with the vendor's library, which needs an NVIDIA GPU; the emulated device has"
                f" none. Use --from FILE with the results of a GPU"
            )
        return bench(target, None, baseline)

    return _answer(options, name, ("bench",), run, target.device)


@command(paper, "table4", "--dtype f16", "--from bench.json --picture table4.png")
def table4(
    options: TableOptions, dtype: DtypeOption = None, compute: ComputeOption = None, device: GpuOption = None
) -> Answer:
    """Print Table 4: the speed of GEMMs and of cuBLASLt.

    Prints speeds of cuBLASLt's best candidate and of its heuristic's choice. Runs `bench gemm --suite isaac --baseline
    cublas`; needs a GPU, or the document of that command with --from.
    """
    target = Target(
        database=options.database, dtype=dtype, compute=compute, operation="gemm", suite="isaac", device=device
    )
    return _speeds(options, "table4", target, "cublas")


@command(paper, "table5", "--dtype f16 --layout NHWC", "--from bench.json --picture table5.png")
def table5(
    options: TableOptions,
    dtype: DtypeOption = None,
    compute: ComputeOption = None,
    layout: Annotated[str | None, typer.Option(help="Layout of images: NCHW, NHWC or CHWN. [default: NCHW]")] = None,
    device: GpuOption = None,
) -> Answer:
    """Print Table 5: the speed of convolutions and of cuDNN.

    PyTorch, through which cuDNN is called, does not report the choice of cuDNN's heuristic, so the table has no column
    for that choice. Runs `bench conv --suite isaac --baseline cudnn`; needs a GPU, or the document of that command with
    --from.
    """
    target = Target(
        database=options.database,
        dtype=dtype,
        compute=compute,
        layout=layout,
        operation="conv",
        suite="isaac",
        device=device,
    )
    return _speeds(options, "table5", target, "cudnn")


@command(paper, "table6", "--device h200", "--device h200 --dtype f16 --csv")
def table6(
    options: TableOptions, device: DeviceOption = None, dtype: DtypeOption = None, compute: ComputeOption = None
) -> Answer:
    """Print Table 6: the configurations chosen for Table 4.

    Runs `select gemm --suite isaac`; needs no GPU with --device.
    """
    from ptxgen.cli.problems import select

    target = Target(
        database=options.database, dtype=dtype, compute=compute, operation="gemm", suite="isaac", device=device
    )
    return _answer(options, "table6", ("select", "bench"), lambda: select(target))


@command(paper, "splitting", "--device h100", "--dtype f64 --csv")
def splitting(
    options: TableOptions,
    device: Annotated[str, typer.Option(help="The device whose shipped measurements are used.")] = "h200",
    dtype: DtypeOption = None,
    compute: ComputeOption = None,
) -> Answer:
    """Print what splits of the reduction are worth.

    Prints, for each problem of Table 4, the fastest measured time without splits (K_S = K_L = K_G = 1), with splits
    among blocks alone (K_S = K_L = 1), and with all splits. A dash means that no such configuration was measured. Reads
    the shipped measurements; needs no GPU.
    """
    from ptxgen.cli.report import config_fields, problem_fields
    from ptxgen.problem.device import device as device_named
    from ptxgen.tuning.store import splitting as measured

    def run() -> Answer:
        target = Target(database=options.database, dtype=dtype, compute=compute, operation="gemm", suite="isaac")
        cases, name = target.cases(), device_named(device).name
        winners = measured.shipped(name, [case.problem for case in cases])
        rows = []
        for case in cases:
            times = winners.get(case.problem, {})
            splits = [
                {"splits": s, "us": t.us, "measured": t.measured, **config_fields(t.config)} for s, t in times.items()
            ]
            rows.append({**problem_fields(case), "splits": splits})
        return Answer({"command": "paper splitting", "device": name, "rows": rows}, "")

    return _answer(options, "splitting", ("paper splitting",), run)
