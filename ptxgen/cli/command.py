"""Converts functions to commands: options from dataclasses, one printed answer, one-line errors."""

from __future__ import annotations

import inspect
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from ptxgen.errors import DatabaseError, EmulatorError, InputError, ParseError, PtxgenError, UnavailableError
from ptxgen.tuning.deadline import Terminated

#: error class -> exit code; the first match applies
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (DatabaseError, 4),
    (UnavailableError, 3),
    (InputError, 2),
    (ParseError, 2),
    (OSError, 2),
    (PtxgenError, 1),
    (MemoryError, 1),
    (Terminated, 143),
    (KeyboardInterrupt, 130),
)
EPILOG = """Exit codes: 0 success; 1 a check failed, a kernel could not be generated, assembled or run, a stored winner
is stale, or a requested result is missing; 2 invalid input; 3 a package, tool or device is not available; 4 the
database cannot be used; 130 interrupted by Ctrl-C (SIGINT); 143 ended by SIGTERM."""

app = typer.Typer(
    name="ptxgen",
    help="Input-aware auto-tuning of matrix kernels: generates PTX, times it on the GPU, selects by shape.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
db = typer.Typer(
    help="Export, import, recheck and describe the tuning database.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(db, name="db")
model = typer.Typer(help="Evaluate the model that predicts times.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(model, name="model")
paper = typer.Typer(
    help="Print tables of the paper, measured with ptxgen.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(paper, name="paper")
#: base class of the errors of the argument parser; typer does not export it
UsageError: type[Any] = typer.BadParameter.__mro__[1]
#: part of a parser message -> hint
HINTS = (
    ("No such command 'gemm'", "the command precedes the operation: select gemm"),
    ("No such command 'conv'", "the command precedes the operation: select conv"),
    ("unexpected extra argument", "use --shape for extents, and options for other fields"),
)


#: titles of option groups in the help; other groups precede these
PROBLEM_PANEL, SELECT_PANEL = "Problem fields", "Problems and device"
DATABASE_PANEL, OUTPUT_PANEL = "Database", "Output and errors"
PANELS = ("Arguments", "Options", SELECT_PANEL, PROBLEM_PANEL, DATABASE_PANEL, OUTPUT_PANEL)


@dataclass(frozen=True)
class Answer:
    """The result of a command. ``document``: printed with ``--json``; ``text``: printed otherwise; ``code``: exit
    code."""

    document: dict[str, Any]
    text: str
    code: int = 0


@dataclass(frozen=True)
class Common:
    """Options of every command. ``panel``: title of the option group of the class in the help."""

    panel: ClassVar[str] = OUTPUT_PANEL

    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False


def command(group: typer.Typer, name: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Registers a function as a command. Its first parameter is a ``Common`` or a dataclass that extends it; the
    fields of that class become options, the same in every command that uses it."""

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        shared: dict[str, type[Common]] = {}
        parameters: dict[str, inspect.Parameter] = {}
        hints = get_type_hints(function, include_extras=True)
        for p in inspect.signature(function).parameters.values():
            kind = hints[p.name]
            if is_dataclass(kind) and isinstance(kind, type) and issubclass(kind, Common):
                shared[p.name] = kind
                types = get_type_hints(kind, include_extras=True)
                for f in fields(kind):
                    parameters[f.name] = _parameter(f.name, _in_panel(types[f.name], _panel(kind, f.name)), f.default)
            else:
                parameters[p.name] = _parameter(p.name, kind, p.default)

        def execute(**values: Any) -> None:
            options = {n: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for n, kind in shared.items()}
            common = next(iter(options.values()))
            with _reported(common):
                answer = function(**options, **values)
                _print(answer.document if common.json else answer.text)
            raise typer.Exit(answer.code)

        execute.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        execute.__annotations__ = {n: p.annotation for n, p in parameters.items()}
        execute.__doc__ = function.__doc__
        group.command(name, cls=GroupedCommand, epilog=EPILOG)(execute)
        return function

    return register


class GroupedCommand(TyperCommand):
    """A command whose help lists options by panel, in the order in which panels first occur."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                record = record[0], _filled(record[1])
                argument = parameter.param_type_name == "argument"
                default = "Arguments" if argument else "Options"
                panel = default if argument else getattr(parameter, "rich_help_panel", None) or default
                panels.setdefault(panel, []).append(record)
        for title in sorted(panels, key=lambda title: PANELS.index(title) if title in PANELS else 0):
            with formatter.section(title):
                formatter.write_dl(panels[title])


def _filled(text: str) -> str:
    """A help text with the lists of the registry of types in place of ``{dtypes}`` and ``{compute_modes}``."""
    if "{dtypes}" not in text and "{compute_modes}" not in text:
        return text
    from ptxgen.problem.base import COMPUTE_MODES  # it imports NumPy, which other help does without

    choices = {name: modes for name, modes in COMPUTE_MODES.items() if len(modes) > 1}
    listed = "; ".join(f"{name} takes {', '.join(modes)}" for name, modes in choices.items())
    return text.replace("{dtypes}", ", ".join(COMPUTE_MODES)).replace("{compute_modes}", listed)


def _panel(kind: type[Common], name: str) -> str:
    """The option group of a field: the panel of the class that declares it."""
    bases = (base for base in kind.__mro__ if issubclass(base, Common))
    return next(base.panel for base in bases if name in inspect.get_annotations(base))


def _in_panel(annotation: Any, panel: str) -> Any:
    """The annotation of an option with ``panel`` set. Annotations of arguments are returned unchanged."""
    kind, information = get_args(annotation)
    if not isinstance(information, OptionInfo):
        return annotation
    information = copy(information)
    information.rich_help_panel = panel
    return Annotated[kind, information]


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _print(answer: dict[str, Any] | str) -> None:
    if isinstance(answer, dict):
        from ptxgen.cli.report import to_json

        answer = to_json(answer)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(answer.rstrip("\n").encode(encoding, "backslashreplace").decode(encoding), flush=True)


@contextmanager
def explain_interrupt(text: Callable[[], str]) -> Iterator[None]:
    """Within the block, Ctrl-C and SIGTERM print ``text()``, which names the stored results."""
    try:
        yield
    except KeyboardInterrupt as interrupt:  # includes Terminated
        raise type(interrupt)(text()) from interrupt


@contextmanager
def _reported(common: Common) -> Iterator[None]:
    """Prints errors of ptxgen and of files, and Ctrl-C, as one line on standard error, with ``--json`` also as a
    document, and sets the exit code."""
    try:
        yield
    except BrokenPipeError:  # the reader closed the pipe
        raise
    except (PtxgenError, OSError, MemoryError, KeyboardInterrupt) as error:
        if common.debug:
            raise
        print(f"error: {one_line(error)}", file=sys.stderr)
        if common.json:
            kind = "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
            _print({"error": {"kind": kind, "message": _message(error)}})
        raise typer.Exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind))) from error


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, KeyboardInterrupt):
        how = "ended by SIGTERM" if isinstance(error, Terminated) else "interrupted"
        return f"{how}; {error}" if str(error) else how
    return f"out of memory: {error}" if isinstance(error, MemoryError) else str(error)


_arguments: list[str] = []


def command_line() -> str:
    """The current command line, quoted for a shell."""
    return shlex.join(["python", "-m", "ptxgen", *_arguments])


def run(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code. Parser errors are reported like other errors. Warnings of ptxgen go to
    standard error."""
    _arguments[:] = arguments
    warnings = logging.StreamHandler()
    warnings.setFormatter(logging.Formatter("warning: %(message)s"))
    logging.getLogger("ptxgen").addHandler(warnings)
    try:
        return int(app(list(arguments), standalone_mode=False) or 0)
    except UsageError as error:
        text = str(error.format_message()).rstrip(".")
        if text.startswith("Usage:"):  # a group without a command
            error.show()
            return 2
        path = error.ctx.command_path if error.ctx is not None else app.info.name
        hint = next((hint for part, hint in HINTS if part in text), f"see {path} --help")
        print(f"error: {text} ({hint})", file=sys.stderr)
        if "--json" in arguments:
            _print({"error": {"kind": "InputError", "message": text}})
        return 2
    except (typer.Abort, KeyboardInterrupt):  # while the arguments are parsed
        print("error: interrupted", file=sys.stderr)
        if "--json" in arguments:
            _print({"error": {"kind": "Interrupted", "message": "interrupted"}})
        return 130
    finally:
        logging.getLogger("ptxgen").removeHandler(warnings)


def one_line(error: BaseException) -> str:
    """An error as one line: the whole text for errors of the emulated device, else the first line."""
    lines = [line.strip() for line in _message(error).splitlines() if line.strip()] or [type(error).__name__]
    return "; ".join(lines) if isinstance(error, EmulatorError) else lines[0]


def _version(wanted: bool) -> None:
    if wanted:
        from ptxgen import __version__

        print(f"ptxgen {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
