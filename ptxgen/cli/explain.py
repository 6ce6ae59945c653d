"""The command ``explain``, which prints why a problem gets its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ptxgen.cli.checks import INPUT_FILE
from ptxgen.cli.command import UNDERSTAND_COMMANDS, Answer, app, command
from ptxgen.cli.options import Target
from ptxgen.cli.progress import progress as shown_progress

if TYPE_CHECKING:
    from ptxgen.problem.registry import Problem


@command(
    app,
    "explain",
    "gemm --shape 2560,16,2560 --layout NN --device h200",
    "gemm --shape 512,512,512 --device h200 --from bench.json",
    panel=UNDERSTAND_COMMANDS,
    tables=False,
)
def explain(
    target: Target,
    count: Annotated[int, typer.Option("--count", "-k", min=1, help="Number of candidates, the choice included.")] = 5,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="A document that bench --baseline wrote with --save, for the vendor's times."
        ),
        INPUT_FILE,
    ] = None,
) -> Answer:
    """Print why a problem gets its configuration.

    Prints the choice and its runners-up with predicted and measured times, the roofline floor, occupancy and waves, the
    resource that limits resident blocks, the number of candidates that each rule rejected, and the nearest problems
    that were measured. Needs no GPU: use --device h200.
    """
    from ptxgen.cli import explanation_report
    from ptxgen.tuning import explanation
    from ptxgen.tuning.store.tuning_files import clock_of

    cases, device = target.cases(), target.find_device()
    vendor = vendor_times(source, device.name) if source is not None else {}
    with target.reading() as database, shown_progress() as progress:
        progress.phase("explain", len(cases))
        rows = []
        for case in cases:
            explained = explanation.explain(case.problem, device, database, count, vendor)
            rows.append(explanation_report.fields(case, explained))
            progress.step(case.name)
    document = {"command": "explain", "device": device.name, "clock": clock_of(device.name), "rows": rows}
    return Answer(document, explanation_report.text(document))


def vendor_times(path: Path, device: str) -> dict[Problem, float]:
    """Problem -> the vendor library's time in microseconds, from a document of ``bench``. ``device``: the device that
    the document must be of. InputError: the file has no such document."""
    from ptxgen.cli import documents
    from ptxgen.problem.registry import parse

    document = documents.read(path, "bench", device=device)
    return {parse(r["problem"]["key"]): r["vendor_us"] for r in document["rows"] if r["vendor_us"] is not None}
