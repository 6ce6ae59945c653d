"""The command on PTX text: emulate."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ptxgen.cli.command import Answer, Common, app, command
from ptxgen.cli.options import Seed
from ptxgen.errors import Fault, InputError, ParseError, UnsupportedError


def _extents(name: str, text: str) -> tuple[int, ...]:
    from ptxgen.arguments import shown

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} is {shown(text)}; it must be one to three integers, as 4,2,1") from None


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Errors in the text name the file."""
    try:
        yield
    except (ParseError, UnsupportedError) as error:
        raise type(error)(f"{'standard input' if str(file) == '-' else file}: {error}") from error


def _switch(name: str, word: str) -> bool:
    if word not in ("on", "off"):
        raise InputError(f"{name} is {word!r}; it must be on or off")
    return word == "on"


@command(app, "emulate")
def emulate(
    options: Common,
    file: Annotated[Path, typer.Argument(help="PTX text; - is standard input.")],
    entry: Annotated[str | None, typer.Option(metavar="NAME", help="The kernel. [default: the only one]")] = None,
    grid: Annotated[str, typer.Option(metavar="X,Y,Z", help="Blocks of the grid.")] = "1",
    block: Annotated[str, typer.Option(metavar="X,Y,Z", help="Threads of a block.")] = "32",
    cluster: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Blocks of a cluster. [default: as the kernel says, else 1]")
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARGUMENT",
            help="In the kernel's order: f32:1.5, u32:7; for a pointer a buffer, f32[1024]=FILL or f32[64x32]=FILL, "
            "FILL one of zeros, ones, iota, random, FILE.npy; :out=FILE.npy saves it after the launch.",
        ),
    ] = None,
    shared_bytes: Annotated[int, typer.Option(min=0, help="Dynamic shared memory of a block.")] = 0,
    seed: Seed = 0,
    completion: Annotated[
        str, typer.Option(help="When asynchronous work takes effect: late or early, as PTX allows.")
    ] = "late",
    mma: Annotated[str, typer.Option(help="Rounding of matrix products: hopper or f32.")] = "hopper",
    statistics: Annotated[
        str, typer.Option(help="Bank conflicts and sectors from a sample (sampled), of every access (full), or off.")
    ] = "sampled",
    races: Annotated[
        str, typer.Option(help="Shared memory that two warps touch with no barrier between is a fault: on or off.")
    ] = "on",
    uninitialised: Annotated[
        str,
        typer.Option(
            help="The use of registers and shared memory that nothing has written, as an address, a predicate or a "
            "stored value, is a fault: on or off."
        ),
    ] = "on",
    engine: Annotated[
        str,
        typer.Option(help="numpy; llvm compiles all it can; auto compiles what runs often, if llvmlite is installed."),
    ] = "auto",
    watchdog: Annotated[
        int | None, typer.Option(min=0, help="Instructions that one warp may execute; 0: any number. [default: 2**25]")
    ] = None,
) -> Answer:
    """Run a kernel of any PTX text on the emulated device. Prints what it does wrong, or else what it did."""
    import sys

    import numpy as np

    from ptxgen.emulator import launch
    from ptxgen.emulator.engine.arguments import parse_argument
    from ptxgen.emulator.engine.summary import fault_fields, stats_fields, text
    from ptxgen.emulator.ptx.parser import parse

    source = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8", errors="replace")
    random = np.random.default_rng(seed)
    arguments = [parse_argument(a, random) for a in arg or ()]
    with _naming(file):
        kernels = {f.name: f for f in parse(source).functions.values() if f.entry}
    if entry is None:
        if len(kernels) != 1:
            raise InputError(f"--entry must name one of the kernels of {file}: {', '.join(kernels) or 'it has none'}")
        [entry] = kernels
    if entry not in kernels:
        raise InputError(f"--entry is {entry!r}; {file} has {', '.join(kernels) or 'no kernel'}")
    parameters = kernels[entry].params
    if len(parameters) != len(arguments):
        wanted = ", ".join(f".{p.type} {p.name}" + (f"[{p.size}]" if p.array else "") for p in parameters) or "none"
        raise InputError(f"{entry} takes {len(parameters)} arguments ({wanted}), {len(arguments)} --arg are given")
    dims = _extents("--grid", grid), _extents("--block", block)
    chosen: dict[str, Any] = {"seed": seed, "completion": completion, "mma": mma, "stats": statistics}
    chosen |= {"races": _switch("--races", races), "uninitialised": _switch("--uninitialised", uninitialised)}
    chosen["engine"] = engine
    blocks = None if cluster is None else _extents("--cluster", cluster)
    if watchdog is not None:
        chosen["watchdog"] = watchdog
    document: dict[str, Any] = {
        "command": "emulate",
        "file": str(file),
        "entry": entry,
        "grid": dims[0],
        "block": dims[1],
        "cluster": blocks,
        "arguments": [
            {"name": p.name, "type": p.type, "given": a.text, "saved": None}
            for p, a in zip(parameters, arguments, strict=True)
        ],
        "statistics": None,
        "fault": None,
        "printed": "",
    }
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            with _naming(file):
                stats = launch(source, entry, *dims, [a.value for a in arguments], shared_bytes, blocks, **chosen)
        except Fault as fault:
            document["fault"] = fault_fields(fault)
    document["printed"] = printed.getvalue()
    if document["fault"] is not None:
        return Answer(document, document["printed"] + text(document), 1)
    document["statistics"] = stats_fields(stats)
    for argument, fields in zip(arguments, document["arguments"], strict=True):
        if argument.save is not None:
            argument.store()
            fields["saved"] = str(argument.save)
    return Answer(document, document["printed"] + text(document))
