"""Tables whose documents are measured once on a GPU and ship with the package; printing them needs no GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from ptxgen.cli.checks import INPUT_FILE, OUTPUT_FILE
from ptxgen.cli.command import OUTPUT_PANEL, Answer
from ptxgen.cli.options import DatabaseOptions, Target
from ptxgen.cli.paper import PICTURE

if TYPE_CHECKING:
    from ptxgen.cli.paper_tables import PaperTable
    from ptxgen.runtime.cuda import CudaDriver

DEVICE = "h100"  #: the device whose shipped documents are printed by default


@dataclass(frozen=True)
class MeasuredOptions(DatabaseOptions):
    """The options that select the document of a table, and the files to write."""

    panel: ClassVar[str] = OUTPUT_PANEL

    device: Annotated[
        str | None,
        typer.Option(
            help="The device whose shipped times are shown; with --measure, the GPU. [default: h100; the GPU]"
        ),
    ] = None
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Read the JSON document of this command in place."),
        INPUT_FILE,
    ] = None
    measure: Annotated[bool, typer.Option("--measure", help="Measure on the GPU of this machine.")] = False
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON document, too."), OUTPUT_FILE] = None
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw a .png, .svg or .pdf, too."), PICTURE
    ] = None

    def gpu(self, name: str) -> CudaDriver:
        """The driver of the GPU. ``name``: the name of the command, for the error. UnavailableError: there is no
        GPU."""
        from ptxgen.errors import UnavailableError
        from ptxgen.runtime.cuda import CudaDriver

        driver = Target(database=self.database, device=self.device).find_driver()
        if not isinstance(driver, CudaDriver):
            raise UnavailableError(f"{name} --measure times kernels and vendors' libraries, which needs an NVIDIA GPU")
        return driver


def answer(
    options: MeasuredOptions,
    name: str,
    file: str,
    measure: Callable[[], dict[str, Any]],
    table: Callable[[dict[str, Any]], PaperTable],
    shipped: str = DEVICE,
    optional: bool = False,
) -> Answer:
    """The answer with the table of a document: a measured one, that of ``--from``, or a shipped one.

    ``name``: the name of the command, which is in the document; ``file``: the name of the shipped file; ``measure``:
    makes the document; ``table``: makes the table; ``shipped``: the default device of the shipped document;
    ``optional``: True if the table can be made without a document. InputError: there is no document, or the document
    lacks a part."""
    from ptxgen.cli import documents, pictures, report
    from ptxgen.errors import InputError
    from ptxgen.problem.device import device as device_named
    from ptxgen.tuning.store import paper_files
    from ptxgen.tuning.store.exchange import replacing

    if options.measure and options.source is not None:
        raise InputError("measure and from are given; a document is either measured or read")
    device = None if options.device is None else device_named(options.device).name
    source = device or shipped
    if options.measure:
        document = report.plain(measure())
    elif options.source is None and optional and not paper_files.path_of(source, file).exists():
        document = {"command": name, "device": source}
    else:
        remedy = f"On such a GPU: python -m ptxgen {name} --measure --save {file}.json; then use --from"
        path = options.source or paper_files.existing(source, file, remedy)
        document = documents.read(path, name, device=device)
    if options.save is not None:
        with replacing(options.save) as out:
            out.write(report.to_json(document).encode())
    made = table(document)
    if options.picture is not None:
        pictures.draw(made.chart, options.picture)
    return Answer(document, made.parts)
