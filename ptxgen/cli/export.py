"""The command export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptxgen.cli.command import USE_COMMANDS, Answer, app, command, command_line
from ptxgen.cli.options import Target


@command(
    app,
    "export",
    "gemm --shape 512,512,512 --dtype f16 --device h200 --folder kernels",
    "conv --suite isaac --layout NHWC --dtype f16 --device h200 --ptx",
    panel=USE_COMMANDS,
    tables=False,
)
def export(
    target: Target,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Output folder.")] = Path("ptxgen_kernels"),
    ptx: Annotated[bool, typer.Option("--ptx", help="Write the PTX of each kernel, too.")] = False,
) -> Answer:
    """Export kernels for C programs.

    Writes cubins, a manifest, and a C library that chooses the kernel for a shape and launches it through the CUDA
    driver, with a CMake example. Needs no GPU: use --device h200.
    """
    from ptxgen import __version__
    from ptxgen.export.c_source import form
    from ptxgen.export.files import write
    from ptxgen.export.library import Library
    from ptxgen.tuning import selection

    cases, device = target.cases(), target.find_device()
    with target.reading() as database:
        library = Library.of(
            [case.problem for case in cases],
            device,
            lambda problem: selection.require(problem, device, database)[0],
            selection.model_for(device, database),
            form,
        )
    files = write(library, folder, version=__version__, command=command_line(), ptx=ptx)
    document = {
        "command": "export",
        "device": device.name,
        "folder": folder,
        "problems": len(library.problems),
        "modules": len(library.modules),
        "files": files,
    }
    text = f"{folder}: {len(library.problems)} problems, {len(library.modules)} kernel modules, {len(files)} files"
    return Answer(document, text)
