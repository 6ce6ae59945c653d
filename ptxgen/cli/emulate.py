"""The command ``emulate``, which runs a PTX file on the emulated device."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ptxgen.cli.checks import Check, output_file
from ptxgen.cli.command import UNDERSTAND_COMMANDS, Answer, Common, app, command
from ptxgen.cli.options import SeedOption
from ptxgen.errors import Fault, InputError, ParseError, UnsupportedError


def _extents(name: str, text: str) -> tuple[int, ...]:
    from ptxgen.arguments import shown

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} is {shown(text)}; it must be one to three integers, for example 4,2,1") from None


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Within the ``with`` block, the messages of errors in the PTX text begin with the name of the file."""
    try:
        yield
    except (ParseError, UnsupportedError) as error:
        raise type(error)(f"{'standard input' if str(file) == '-' else file}: {error}") from error


def _switch(name: str, word: str) -> bool:
    if word not in ("on", "off"):
        raise InputError(f"{name} is {word!r}; it must be on or off")
    return word == "on"


def _symbol(kernels: list[str], entry: str | None, file: Path) -> str:
    """The symbol of the kernel that --entry names by symbol or C++ name; without --entry, of the only kernel.
    InputError: there is no such kernel, or there are several."""
    from ptxgen.emulator.ptx.demangle import demangled, named

    symbols = kernels if entry is None else named(kernels, entry)
    if len(symbols) == 1:
        return symbols[0]
    names = "; ".join(map(demangled, symbols or kernels)) or "it has none"
    if entry is None:
        raise InputError(f"--entry must name one of the kernels of {file}: {names}")
    raise InputError(f"--entry is {entry!r}; it must name one of the kernels of {file}: {names}")


def saved_argument(name: str, text: str) -> None:
    """Requires an argument whose output file, if it has one, can be written. InputError: it cannot."""
    _, out, file = text.partition(":out=")
    if out and file:
        output_file(name, Path(file))


def engine_available(name: str, engine: str) -> None:
    """Requires an engine that can be used. UnavailableError: the engine is llvm, and llvmlite is missing."""
    from ptxgen.emulator.engine import jit_blocks

    jit_blocks.require(engine)


ARGUMENT, ENGINE = Check(saved_argument), Check(engine_available)


@command(
    app,
    "emulate",
    "saxpy.ptx --grid 4 --block 256 --arg u32:1000 --arg f32:2 --arg 'f32[1000]=iota' --arg 'f32[1000]=ones:out=y.npy'",
    "kernel.ptx --entry main --block 128 --statistics full --json",
    panel=UNDERSTAND_COMMANDS,
    tables=False,
)
def emulate(
    options: Common,
    file: Annotated[Path, typer.Argument(help="PTX file; - reads standard input.")],
    entry: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kernel to run, by symbol or C++ name. [default: the only one]")
    ] = None,
    grid: Annotated[str, typer.Option(metavar="X,Y,Z", help="Grid size in blocks.")] = "1",
    block: Annotated[str, typer.Option(metavar="X,Y,Z", help="Block size in threads.")] = "32",
    cluster: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Cluster size in blocks. [default: that of the kernel, else 1]")
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARGUMENT",
            help="A kernel argument, in order. Number: f32:1.5, u32:7. Buffer for a pointer: f32[1024]=FILL or "
            "f32[64x32]=FILL, where FILL is zeros, ones, iota, random or FILE.npy; :out=FILE.npy saves it at the end.",
        ),
        ARGUMENT,
    ] = None,
    shared_bytes: Annotated[int, typer.Option(min=0, help="Dynamic shared memory of a block in bytes.")] = 0,
    seed: SeedOption = 0,
    completion: Annotated[
        str, typer.Option(help="Completion of asynchronous operations: late (at the wait) or early; PTX allows both.")
    ] = "late",
    mma: Annotated[
        str, typer.Option(help="Accumulation of mma instructions: hopper (measured truncation) or f32.")
    ] = "hopper",
    statistics: Annotated[
        str,
        typer.Option(
            help="Count bank conflicts and sectors: of sampled accesses (sampled), of all accesses (full), or off."
        ),
    ] = "sampled",
    races: Annotated[str, typer.Option(help="Detect races in shared and global memory: on or off.")] = "on",
    uninitialised: Annotated[
        str,
        typer.Option(
            help="Detect uninitialised registers and shared memory used as an address, a predicate or a stored value: "
            "on or off."
        ),
    ] = "on",
    strict: Annotated[
        bool, typer.Option("--strict", help="Report suspicious behaviour as a fault, not as a note.")
    ] = False,
    engine: Annotated[
        str,
        typer.Option(help="numpy: interpret; llvm: compile; auto: compile hot code if llvmlite is installed."),
        ENGINE,
    ] = "auto",
    watchdog: Annotated[
        int | None, typer.Option(min=0, help="Limit of instructions per warp; 0: none. [default: 2**25]")
    ] = None,
    faults: Annotated[
        int,
        typer.Option(
            "--continue",
            min=1,
            metavar="N",
            help="Go on after a fault, without the accesses that have it, and list the first N different faults. "
            "[default: stop at the first]",
            show_default=False,
        ),
    ] = 1,
) -> Answer:
    """Run a PTX kernel on the emulated device.

    Prints the fault of the kernel, or statistics of its execution.
    """
    import sys

    import numpy as np

    from ptxgen.emulator import launch
    from ptxgen.emulator.engine.arguments import parse_argument
    from ptxgen.emulator.engine.summary import fault_text, faults_fields, stats_fields, text
    from ptxgen.emulator.memory.variables import readable
    from ptxgen.emulator.ptx.demangle import demangled
    from ptxgen.emulator.ptx.parser import parse

    source = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8", errors="replace")
    random = np.random.default_rng(seed)
    arguments = [parse_argument(a, random) for a in arg or ()]
    with _naming(file):
        kernels = {f.name: f for f in parse(source).functions.values() if f.entry}
    entry = _symbol(list(kernels), entry, file)
    kernel, parameters = demangled(entry), kernels[entry].params
    if len(parameters) != len(arguments):
        names = [f".{p.type} {readable(p.name, entry)}" + (f"[{p.size}]" if p.array else "") for p in parameters]
        wanted = ", ".join(names) or "none"
        raise InputError(f"{kernel} takes {len(parameters)} arguments ({wanted}), {len(arguments)} --arg are given")
    dims = _extents("--grid", grid), _extents("--block", block)
    chosen: dict[str, Any] = {"seed": seed, "completion": completion, "mma": mma, "stats": statistics}
    chosen |= {"races": _switch("--races", races), "uninitialised": _switch("--uninitialised", uninitialised)}
    chosen |= {"engine": engine, "faults": faults, "strict": strict}
    blocks = None if cluster is None else _extents("--cluster", cluster)
    if watchdog is not None:
        chosen["watchdog"] = watchdog
    document: dict[str, Any] = {
        "command": "emulate",
        "file": str(file),
        "entry": entry,
        "kernel": kernel,
        "grid": dims[0],
        "block": dims[1],
        "cluster": blocks,
        "arguments": [
            {"name": p.name, "type": p.type, "given": a.text, "saved": None}
            for p, a in zip(parameters, arguments, strict=True)
        ],
        "statistics": None,
        "fault": None,
        "faults": [],
        "printed": "",
    }
    failure: Fault | None = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            with _naming(file):
                stats = launch(source, entry, *dims, [a.value for a in arguments], shared_bytes, blocks, **chosen)
        except Fault as fault:
            failure, document["faults"] = fault, faults_fields(fault)
            document["fault"] = document["faults"][0]
    document["printed"] = printed.getvalue()
    if failure is not None:
        return Answer(document, document["printed"] + fault_text(failure, str(file)), 1)
    document["statistics"] = stats_fields(stats)
    for argument, fields in zip(arguments, document["arguments"], strict=True):
        if argument.save is not None:
            argument.store()
            fields["saved"] = str(argument.save)
    return Answer(document, document["printed"] + text(document))
