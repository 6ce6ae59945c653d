"""The command ``export``, which writes a C library of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from ptxgen.cli.checks import Check, output_folder
from ptxgen.cli.command import SELECT_PANEL, USE_COMMANDS, Answer, app, command, command_line
from ptxgen.cli.help_lists import with_c_form
from ptxgen.cli.options import Target
from ptxgen.cli.progress import progress as shown_progress
from ptxgen.errors import InputError

if TYPE_CHECKING:
    from ptxgen.export.task_in_c import TaskInC
    from ptxgen.operations.task.problem import Task
    from ptxgen.problem.device import Device
    from ptxgen.problem.operation import Operation
    from ptxgen.problem.registry import Problem
    from ptxgen.tuning.selection import Selection
    from ptxgen.tuning.store.database import Database


def own_folder(name: str, path: Path) -> None:
    """Requires a folder to export to. InputError: the folder cannot be written, or the export would replace files that
    no earlier export wrote."""
    from ptxgen.export.files import require_own

    output_folder(name, path)
    require_own(path)


OWN_FOLDER, DEFAULT_FOLDER = Check(own_folder), Path("ptxgen_kernels")


PtxOption = Annotated[bool, typer.Option("--ptx", help="Write the PTX of each kernel, too.")]
ChoiceOption = Annotated[
    bool,
    typer.Option(
        "--choice/--no-choice",
        help="Also compute shapes that are not exported, by the kernel that the model chooses; or exported problems"
        " alone: the library is small. [default: --choice]",
    ),
]


@dataclass(frozen=True)
class ExportTarget(Target):
    """The options of problems and device of ``export``: operations that have a C function."""

    panel: ClassVar[str] = SELECT_PANEL

    operation: Annotated[
        str | None,
        typer.Argument(metavar="OPERATION", help="{exported}. [default: gemm, and in a shapes file that of each line]"),
    ] = None
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="EXTENTS", help="Extents: {exported_shapes}. Repeatable."),
    ] = None

    @classmethod
    def operations(cls) -> list[Operation]:
        return with_c_form()


@command(
    app,
    "export",
    "gemm --shape 512,512,512 --dtype f16 --device h200 --folder kernels",
    "conv --suite isaac --layout NHWC --dtype f16 --device h200 --ptx",
    panel=USE_COMMANDS,
    tables=False,
)
def export(
    target: ExportTarget,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Output folder (--out is the dtype of C)."), OWN_FOLDER
    ] = DEFAULT_FOLDER,
    ptx: PtxOption = False,
    choice: ChoiceOption = True,
) -> Answer:
    """Export kernels for C programs.

    Writes cubins, a manifest, and a C library that chooses the kernel for a shape and launches it through the CUDA
    driver, with a CMake example. Files of an earlier export into the folder are replaced or removed; other files are
    never replaced. Needs no GPU: use --device h200.
    """
    from ptxgen.problem.dtypes import DTYPES, canonical

    if target.out is not None and canonical(target.out) not in DTYPES:
        raise InputError(f"out is {target.out!r}; it is the dtype of C: --folder {target.out} names the output folder")
    problems, device = [case.problem for case in target.cases()], target.find_device()
    with target.reading() as database:
        return exported("export", problems, {}, device, database, folder, ptx, choice)


def exported(
    name: str,
    problems: Sequence[Problem],
    tasks: Mapping[TaskInC, Sequence[Task]],
    device: Device,
    database: Database | None,
    folder: Path,
    ptx: bool,
    choice: bool,
) -> Answer:
    """Writes the exported library of problems and tasks, and returns the answer. ``name``: the name of the command;
    ``choice``: True if the library also computes other shapes."""
    from ptxgen import __version__
    from ptxgen.cli.report import extrapolation_notes
    from ptxgen.export.c_source import form
    from ptxgen.export.files import write
    from ptxgen.export.library import Library
    from ptxgen.tuning import selection
    from ptxgen.tuning.choice import models
    from ptxgen.tuning.progress import counted

    with shown_progress("select", len(problems) + sum(map(len, tasks.values()))) as progress:

        def choose(problem: Problem) -> Selection:
            selected = selection.require(problem, device, database)[0]
            progress.step(problem.key())
            return selected

        library = Library.of(problems, device, choose, models.model_for(device, database), form, tasks, choice)
    with shown_progress("assemble"):
        files = write(library, folder, version=__version__, command=command_line(without="--folder"), ptx=ptx)
    sources = [(p.selection.origin, p.selection.scaled_from) for p in library.problems]
    document: dict[str, Any] = {
        "command": name,
        "device": device.name,
        "folder": folder,
        "problems": len(library.problems),
        "modules": len(library.modules),
        "functions": [f"ptxgen_{task.form.name}" for task in library.tasks],
        "files": files,
        "notes": extrapolation_notes(device.name, sources),
    }
    numbers = ((library.problems, "problem"), (library.modules, "kernel module"), (files, "file"))
    text = f"{folder}: {', '.join(counted(len(items), noun) for items, noun in numbers)}"
    return Answer(document, "\n".join([text, *document["functions"], *document["notes"]]))
