"""What makes a command of a function: options out of dataclasses, one printed answer, errors on one line."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from ptxgen.errors import DatabaseError, EmulatorError, InputError, ParseError, PtxgenError, UnavailableError

#: error class -> exit code, the first that fits
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (DatabaseError, 4),
    (UnavailableError, 3),
    (InputError, 2),
    (ParseError, 2),
    (OSError, 2),
    (PtxgenError, 1),
    (MemoryError, 1),
    (KeyboardInterrupt, 130),
)
EPILOG = """Exit codes: 0 done; 1 a check failed, a kernel could not be made or run, a stored winner is stale, or a
figure that was asked for is missing; 2 bad input; 3 something is not installed or not there; 4 the database cannot be
used; 130 interrupted by Ctrl-C."""

app = typer.Typer(
    name="ptxgen",
    help="Input-aware auto-tuning of matrix kernels: generates PTX, measures it, selects by shape.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
db = typer.Typer(
    help="The tuning database: export, import, recheck, info.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(db, name="db")
#: what the parser raises; typer has no public name for it
UsageError: type[Any] = typer.BadParameter.__mro__[1]
#: part of what the parser says -> what helps; else, where its words are listed
HINTS = (
    ("No such command 'gemm'", "it follows a command: select gemm"),
    ("No such command 'conv'", "it follows a command: select conv"),
    ("unexpected extra argument", "extents go by --shape, all else by options too"),
)


@dataclass(frozen=True)
class Answer:
    """What a command came to. ``text``: what is printed without ``--json``."""

    document: dict[str, Any]
    text: str
    code: int = 0


@dataclass(frozen=True)
class Common:
    """Options of every command."""

    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False


def command(group: typer.Typer, name: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Makes a command of a function whose first parameter is a ``Common``, or a dataclass that extends it: the fields
    of such a parameter become options, the same ones in every command that has it."""

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        shared: dict[str, type[Common]] = {}
        parameters: dict[str, inspect.Parameter] = {}
        hints = get_type_hints(function, include_extras=True)
        for p in inspect.signature(function).parameters.values():
            kind = hints[p.name]
            if is_dataclass(kind) and isinstance(kind, type) and issubclass(kind, Common):
                shared[p.name] = kind
                types = get_type_hints(kind, include_extras=True)
                parameters.update({f.name: _parameter(f.name, types[f.name], f.default) for f in fields(kind)})
            else:
                parameters[p.name] = _parameter(p.name, kind, p.default)

        def run(**values: Any) -> None:
            options = {n: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for n, kind in shared.items()}
            common = next(iter(options.values()))
            with _reported(common):
                answer = function(**options, **values)
                _print(answer.document if common.json else answer.text)
            raise typer.Exit(answer.code)

        run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        run.__annotations__ = {n: p.annotation for n, p in parameters.items()}
        run.__doc__ = function.__doc__
        group.command(name, epilog=EPILOG)(run)
        return function

    return register


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _print(answer: dict[str, Any] | str) -> None:
    if isinstance(answer, dict):
        from ptxgen.cli.report import to_json

        answer = to_json(answer)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(answer.rstrip("\n").encode(encoding, "backslashreplace").decode(encoding), flush=True)


@contextmanager
def keeps(told: Callable[[], str]) -> Iterator[None]:
    """Within it, an interruption by Ctrl-C says what the command keeps: ``told()``."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(told()) from interrupt


@contextmanager
def _reported(common: Common) -> Iterator[None]:
    """Errors of ptxgen and of files, and Ctrl-C: one line on standard error, with ``--json`` a document too, an exit
    code."""
    try:
        yield
    except BrokenPipeError:  # whoever read our output has enough
        raise
    except (PtxgenError, OSError, MemoryError, KeyboardInterrupt) as error:
        if common.debug:
            raise
        print(f"error: {one_line(error)}", file=sys.stderr)
        if common.json:
            kind = "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
            _print({"error": {"kind": kind, "message": _said(error)}})
        raise typer.Exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind))) from error


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted; {error}" if str(error) else "interrupted"
    return f"out of memory: {error}" if isinstance(error, MemoryError) else str(error)


def start(arguments: Sequence[str]) -> int:
    """Runs the command that ``arguments`` name. What the parser refuses is an error like any other; what ptxgen warns
    of goes to standard error. Returns a code."""
    warnings = logging.StreamHandler()
    warnings.setFormatter(logging.Formatter("warning: %(message)s"))
    logging.getLogger("ptxgen").addHandler(warnings)
    try:
        return int(app(list(arguments), standalone_mode=False) or 0)
    except UsageError as error:
        text = str(error.format_message()).rstrip(".")
        if text.startswith("Usage:"):  # a group that was named without a command
            error.show()
            return 2
        path = error.ctx.command_path if error.ctx is not None else app.info.name
        hint = next((hint for part, hint in HINTS if part in text), f"{path} --help lists them all")
        print(f"error: {text} ({hint})", file=sys.stderr)
        if "--json" in arguments:
            _print({"error": {"kind": "InputError", "message": text}})
        return 2
    except (typer.Abort, KeyboardInterrupt):  # while arguments are read
        print("error: interrupted", file=sys.stderr)
        if "--json" in arguments:
            _print({"error": {"kind": "Interrupted", "message": "interrupted"}})
        return 130
    finally:
        logging.getLogger("ptxgen").removeHandler(warnings)


def one_line(error: BaseException) -> str:
    """What an error says, on one line: all of it where it names a place in a kernel, else its first line."""
    lines = [line.strip() for line in _said(error).splitlines() if line.strip()] or [type(error).__name__]
    return "; ".join(lines) if isinstance(error, EmulatorError) else lines[0]


def _version(wanted: bool) -> None:
    if wanted:
        from ptxgen import __version__

        print(f"ptxgen {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass
