"""Makes commands from functions: dataclasses become options, the answer is printed once, and errors are one line."""

from __future__ import annotations

import gc
import inspect
import logging
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo, TyperInfo

from ptxgen.arguments import closest
from ptxgen.cli.checks import Check
from ptxgen.cli.commands import COMMANDS, load
from ptxgen.cli.plain_values import keep_plain_values
from ptxgen.cli.progress import running
from ptxgen.cli.tables import Parts, Table, csv_of, terminal_width, text_of
from ptxgen.errors import DatabaseError, EmulatorError, InputError, ParseError, PtxgenError, TaskError, UnavailableError
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

#: titles of command groups in the help, in this order
TUNE_COMMANDS, USE_COMMANDS = "Tune", "Use kernels"
UNDERSTAND_COMMANDS, STORE_COMMANDS = "Understand", "Data and installation"
COMMAND_PANELS = (USE_COMMANDS, TUNE_COMMANDS, UNDERSTAND_COMMANDS, STORE_COMMANDS)


class GroupedCommands(TyperGroup):
    """A command group whose help lists commands by panel."""

    def get_params(self, ctx: Any) -> list[Any]:
        return keep_plain_values(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        width = max(map(len, self.commands), default=0)
        for name in self.list_commands(ctx):
            command = self.commands[name]
            if not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Commands"
                text = command.get_short_help_str(limit=formatter.width - width - 6)
                panels.setdefault(panel, []).append((name.ljust(width), text))
        for title in sorted(panels, key=lambda t: COMMAND_PANELS.index(t) if t in COMMAND_PANELS else 0):
            with formatter.section(title):
                formatter.write_dl(panels[title])


class GroupWithDefault(GroupedCommands):
    """A command group with a default command, ``run``, for arguments that do not begin with the name of a command."""

    DEFAULT: ClassVar[str] = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names}
        given: list[str] = super().parse_args(ctx, args if not args or args[0] in known else [self.DEFAULT, *args])
        return given


def _group(group_class: type[TyperGroup] = GroupedCommands, **options: Any) -> typer.Typer:
    return typer.Typer(
        cls=group_class,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


app = _group(
    name="ptxgen",
    help="Input-aware auto-tuning of GEMM and convolution kernels: generates PTX, times it, selects by shape.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
)
task = _group(
    GroupWithDefault,
    name="task",
    help="Compute, list and export matmul-like tasks. Without a command: task run, as task FILE or task --expr TEXT.",
)
app.add_typer(task, rich_help_panel=USE_COMMANDS)
db = _group(name="db", help="Export, import, recheck and describe the tuning database.")
app.add_typer(db, rich_help_panel=STORE_COMMANDS)
model = _group(name="model", help="Evaluate the model that predicts times.")
app.add_typer(model, rich_help_panel=UNDERSTAND_COMMANDS)
paper = _group(name="paper", help="Print tables of the paper, measured with ptxgen.")
app.add_typer(paper, rich_help_panel=UNDERSTAND_COMMANDS)
#: base class of the errors of the argument parser; typer does not export it
UsageError: type[Any] = typer.BadParameter.__mro__[1]
#: part of a parser message -> hint
HINTS = (("unexpected extra argument", "use --shape for extents, and options for other fields"),)


#: titles of the option groups in the help, in the order of ``PANELS``; other groups precede these
PROBLEM_PANEL, SELECT_PANEL = "Problem fields", "Problems and device"
DATABASE_PANEL, OUTPUT_PANEL = "Database", "Output and errors"
PANELS = ("Arguments", "Options", SELECT_PANEL, PROBLEM_PANEL, DATABASE_PANEL, OUTPUT_PANEL)


@dataclass(frozen=True)
class Answer:
    """The result of a command. ``document``: the JSON object for ``--json``; ``text``: the answer without ``--json``: a
    string, or tables and lines that are fitted to the width of the terminal; ``code``: the exit code."""

    document: dict[str, Any]
    text: Parts | str
    code: int = 0


@dataclass(frozen=True)
class Common:
    """The options of every command. ``panel``: the title of the class's option group in the help."""

    panel: ClassVar[str] = OUTPUT_PANEL

    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False
    csv: Annotated[bool, typer.Option("--csv", help="Print the tables as CSV, with all columns.")] = False
    wide: Annotated[bool, typer.Option("--wide", help="Print all columns. [default: those that fit the terminal]")] = (
        False
    )
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False
    own: dict[str, Any] = field(default_factory=dict)  #: the values of ``more_options``, by name

    @classmethod
    def more_options(cls) -> dict[str, tuple[Any, Any]]:
        """Further options, which are determined only when a command line is parsed: name -> (annotation, default)."""
        return {}


#: the options that only commands with tables have
TABLE_OPTIONS = ("csv", "wide")


def command(
    group: typer.Typer, name: str, *examples: str, panel: str = "", tables: bool = True, verbatim: bool = False
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Registers a function as a command. The first parameter of the function is a ``Common``, or a dataclass that
    extends ``Common``; the fields of this class become options, the same in every command that uses the class.

    ``examples``: arguments of two useful calls, for the help; ``panel``: the title of the command's group in the help;
    ``tables``: False if the command prints no table and lacks ``TABLE_OPTIONS``; ``verbatim``: True if all words after
    the first argument are arguments, even if they look like options.
    """

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        path = name if group is app else f"{group.info.name} {name}"
        shared: dict[str, type[Common]] = {}
        parameters: dict[str, inspect.Parameter] = {}
        hints = get_type_hints(function, include_extras=True)
        checked = _checked(function, hints)
        for p in inspect.signature(function).parameters.values():
            annotation = hints[p.name]
            if is_dataclass(annotation) and isinstance(annotation, type) and issubclass(annotation, Common):
                shared[p.name] = annotation
                types = _hints(hints[p.name])
                for f in _fields(annotation, tables):
                    parameters[f.name] = _parameter(
                        f.name, _in_panel(types[f.name], _panel(annotation, f.name)), f.default
                    )
            else:
                parameters[p.name] = _parameter(p.name, annotation, p.default)

        def execute(**values: Any) -> None:
            options = {
                n: option_class(
                    **{f.name: values.pop(f.name) for f in _fields(option_class, tables)}, own=dict(command_class.own)
                )
                for n, option_class in shared.items()
            }
            common = next(iter(options.values()))
            if not gc.isenabled():  # since ``main``
                gc.freeze()
                gc.enable()
            with _reported(common):
                if common.json and common.csv:
                    raise InputError("--json and --csv are given; give one of them")
                with running(path):
                    answer = checked(**options, **values)
                _print(answer.document if common.json else shown(answer, common))
            raise typer.Exit(answer.code)

        execute.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        execute.__annotations__ = {n: p.annotation for n, p in parameters.items()}
        execute.__doc__ = function.__doc__
        given = tuple(f"{path} {e}".strip() for e in examples)
        command_class: type[GroupedCommand] = type(
            "Command", (GroupedCommand,), {"examples": given, "option_classes": tuple(shared.values())}
        )
        context = {"allow_interspersed_args": not verbatim}
        group.command(name, cls=command_class, rich_help_panel=panel or None, context_settings=context)(execute)
        return checked

    return register


@cache
def _hints(options: type[Any]) -> dict[str, Any]:
    """The type hints of a class of options, cached because many commands share the class."""
    return get_type_hints(options, include_extras=True)


def _checked(function: Callable[..., Answer], hints: dict[str, Any]) -> Callable[..., Answer]:
    """A function that runs the checks of the options (see ``cli.checks``), in the order of the parameters, and then
    calls ``function``."""
    signature = inspect.signature(function)

    def values_of(name: str, value: Any) -> Iterator[tuple[str, Any, Any]]:
        if is_dataclass(value) and not isinstance(value, type):
            for field, hint in _hints(type(value)).items():
                yield field, hint, getattr(value, field)
        else:
            yield name, hints[name], value

    @wraps(function)
    def checked(*positional: Any, **named: Any) -> Answer:
        for parameter, given in signature.bind(*positional, **named).arguments.items():
            for name, hint, value in values_of(parameter, given):
                for check in (part for part in get_args(hint) if isinstance(part, Check)):
                    check(_option(name, hint), value)
        return function(*positional, **named)

    return checked


def _option(name: str, hint: Any) -> str:
    """The name of an option in error messages, without dashes."""
    information = get_args(hint)[1]
    declared = (information.default, *(information.param_decls or ()))  # Typer holds the first name as the default
    option = next((d for d in declared if isinstance(d, str) and d.startswith("--")), name.replace("_", "-"))
    return option.removeprefix("--")


def shown(answer: Answer, common: Common) -> str:
    """The printed text of an answer, in the form that the options in ``common`` select. InputError: ``--csv`` is given,
    and the answer has no table."""
    parts: Parts = [answer.text] if isinstance(answer.text, str) else answer.text
    if common.csv:
        if not any(isinstance(part, Table) for part in parts):
            raise InputError("--csv is given; this answer has no table")
        return csv_of(parts)
    return answer.text if isinstance(answer.text, str) else text_of(parts, None if common.wide else terminal_width())


def _fields(options: type[Common], tables: bool) -> list[Field[Any]]:
    omitted = ("own", *(() if tables else TABLE_OPTIONS))
    return [f for f in fields(options) if f.name not in omitted]


class GroupedCommand(TyperCommand):
    """A command whose help lists options by panel and has examples. ``option_classes``: the dataclasses of its options;
    ``own``: the values of the ``more_options`` of these classes in this call."""

    examples: ClassVar[tuple[str, ...]] = ()
    option_classes: ClassVar[tuple[type[Common], ...]] = ()
    own: ClassVar[dict[str, Any]] = {}
    _params: list[Any]
    _more: list[Any] | None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments. A command line without further options is parsed without the options of
        ``more_options``, for which all operations would be imported."""
        known = {option for p in self._params for option in (*p.opts, *p.secondary_opts)}
        given = (word.partition("=")[0] for word in args if word.startswith("-"))
        if self._more is not None or not known.issuperset(given):
            return super().parse_args(ctx, args)
        self._more = []
        try:
            return super().parse_args(ctx, args)
        finally:
            self._more = None

    @property
    def params(self) -> list[Any]:
        """The parameters of the command. The options of ``more_options`` are appended at the first use."""
        if self._more is None:
            self._more = _more_parameters(self.option_classes)
            self._params += self._more
        return self._params

    @params.setter
    def params(self, params: list[Any]) -> None:
        self._params, self._more = params, None

    def get_params(self, ctx: Any) -> list[Any]:
        return keep_plain_values(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. The values of ``more_options`` are removed from Typer's parameters before, because Typer's
        callback takes only the parameters of its signature."""
        type(self).own = {p.name: ctx.params.pop(p.name) for p in self._more or () if p.name in ctx.params}
        return super().invoke(ctx)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    for line in _continued(f"python -m ptxgen {example}", formatter.width - 6):
                        formatter.write(f"{' ' * formatter.current_indent}{line}\n")
        with formatter.section("Exit codes"):
            formatter.write_text("python -m ptxgen --help lists them.")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                record = re.sub(r" <[^>]*>+$", "", record[0]), _with_default(_filled(record[1]), parameter, argument)
                default = "Arguments" if argument else "Options"
                panel = default if argument else getattr(parameter, "rich_help_panel", None) or default
                panels.setdefault(panel, []).append(record)
        for title in sorted(panels, key=lambda title: PANELS.index(title) if title in PANELS else 0):
            with formatter.section(title):
                formatter.write_dl(panels[title])


def _more_parameters(option_classes: tuple[type[Common], ...]) -> list[Any]:
    """The options of ``more_options`` of the classes, as parameters of a command."""
    fields = {
        name: _parameter(name, _in_panel(annotation, _panel(options, "more_options")), default)
        for options in option_classes
        for name, (annotation, default) in options.more_options().items()
    }
    if not fields:
        return []

    def function(**values: Any) -> None: ...

    function.__signature__ = inspect.Signature(list(fields.values()))  # type: ignore[attr-defined]
    function.__annotations__ = {name: p.annotation for name, p in fields.items()}
    made = typer.Typer(add_completion=False)
    made.command()(function)
    return list(typer.main.get_command(made).params)


def _with_default(text: str, parameter: Any, argument: bool) -> str:
    """The help text of a parameter with its default, and with ranges in words."""
    text = re.sub(r"\[x>=([\d.]+)\]", r"[at least \1]", text)
    text = re.sub(r"; x>=([\d.]+)\]", r", at least \1]", text)
    silent = argument or getattr(parameter, "is_flag", False) or parameter.name == "help"
    return text if silent or "[default" in text else f"{text} [default: none]"


def _continued(line: str, width: int) -> list[str]:
    """A command line split into lines of at most ``width`` columns; all lines except the last end with a backslash."""
    lines = ["$"]
    for word in re.split(r" (?=--?[a-z])", line):
        if len(lines[-1]) + 1 + len(word) > width - 2 and lines[-1] != "$":
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return lines


def _filled(text: str) -> str:
    """A help text in which each name in braces is replaced by the result of the function with this name in
    ``help_lists``."""
    from ptxgen.cli import help_lists  # its functions import NumPy, which other help does without

    return re.sub(r"\{(\w+)\}", lambda m: str(getattr(help_lists, m[1])()), text)


def _panel(options: type[Common], name: str) -> str:
    """The option group of a field: the panel of the class that declares the field."""
    bases = (base for base in options.__mro__ if issubclass(base, Common))
    return next(base.panel for base in bases if name in inspect.get_annotations(base) or name in vars(base))


def _in_panel(annotation: Any, panel: str) -> Any:
    """The annotation of an option with ``panel`` set. Annotations of arguments are returned unchanged."""
    value_type, information, *checks = get_args(annotation)
    if not isinstance(information, OptionInfo):
        return annotation
    information = copy(information)
    information.rich_help_panel = panel
    return Annotated[(value_type, information, *checks)]


#: type of an option -> the name of its value in the help
METAVARS = {int: "N", float: "X", Path: "FILE"}


def exit_code(error: BaseException) -> int:
    """The exit code of a command that ends with ``error``, whose class must be in ``EXIT_CODES``."""
    return next(code for error_class, code in EXIT_CODES if isinstance(error, error_class))


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """The parameter of a command's signature for an option or argument. An option without a declared name gets the name
    of the parameter, because some versions of Typer would derive a name in capitals from the metavar. An option without
    a metavar gets the metavar of its type, else its name in capitals."""
    if get_origin(annotation) is Annotated:
        of, information, *checks = get_args(annotation)
        types = [t for t in (of, *get_args(of)) if t is not type(None)]
        if isinstance(information, OptionInfo):
            information = copy(information)
            if not information.param_decls and information.default is ...:  # Typer holds a declared name as the default
                information.param_decls = (f"--{name.replace('_', '-')}",)
            if information.metavar is None and bool not in types:
                known = [METAVARS[t] for t in types if t in METAVARS]
                information.metavar = known[0] if known else name.upper()
            annotation = Annotated[(of, information, *checks)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _print(answer: dict[str, Any] | str) -> None:
    if isinstance(answer, dict):
        from ptxgen.cli.report import to_json

        answer = to_json(answer)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(answer.rstrip("\n").encode(encoding, "backslashreplace").decode(encoding), flush=True)


@contextmanager
def explain_interrupt(text: Callable[[], str]) -> Iterator[None]:
    """Within the ``with`` block, Ctrl-C and SIGTERM end the command with the message ``text()``, which says what
    results are stored."""
    try:
        yield
    except KeyboardInterrupt as interrupt:  # includes Terminated
        raise type(interrupt)(text()) from interrupt


@contextmanager
def _reported(common: Common) -> Iterator[None]:
    """Within the ``with`` block, errors of ptxgen and of files, and Ctrl-C, are printed as one line on standard error,
    and set the exit code. An error in the text of a task also has the line of the text. With ``--json``, the error is
    also printed as a document."""
    try:
        yield
    except BrokenPipeError:  # the reader closed the pipe
        raise
    except (PtxgenError, OSError, MemoryError, KeyboardInterrupt) as error:
        if common.debug:
            raise
        print("\n".join((f"error: {one_line(error)}", *_excerpt(error))), file=sys.stderr)
        if common.json:
            error_name = "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
            _print({"error": {"kind": error_name, "message": _message(error)}})
        raise typer.Exit(exit_code(error)) from error


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, KeyboardInterrupt):
        how = "ended by SIGTERM" if isinstance(error, Terminated) else "interrupted"
        return f"{how}; {error}" if str(error) else how
    return f"out of memory: {error}" if isinstance(error, MemoryError) else str(error)


_arguments: list[str] = []


def command_line(without: str = "") -> str:
    """The current command line, quoted for a shell. ``without``: an option to leave out, together with its value."""
    words = iter(_arguments)
    shown = []
    for word in words:
        if without and word == without:
            next(words, None)
        elif not (without and word.startswith(f"{without}=")):
            shown.append(word)
    return shlex.join(["python", "-m", "ptxgen", *shown])


def run(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code. Parser errors are reported like other errors. Warnings go to standard
    error. SIGTERM ends the command as Ctrl-C does, unless the program handles it."""
    _arguments[:] = arguments
    with _printed_warnings(), _terminable():
        return _run(arguments)


@contextmanager
def _terminable() -> Iterator[None]:
    """Within the ``with`` block, SIGTERM raises Terminated in the main thread, unless SIGTERM already has a handler."""
    default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not default or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def whole_app() -> typer.Typer:
    """The program with all commands, in the order of ``COMMANDS``."""
    load(*COMMANDS)
    order = list(COMMANDS)
    app.registered_commands.sort(key=lambda each: order.index(each.name or ""))
    return app


@cache
def parser(name: str = "") -> Any:
    """The parser of the command or group ``name``; the parser of all commands if ``name`` is no command. Building the
    parser of all commands would take longer than parsing."""
    if name not in COMMANDS:
        return typer.main.get_command(whole_app())
    load(name)
    program = copy(app)
    program.registered_commands = [each for each in app.registered_commands if each.name == name]
    program.registered_groups = [each for each in app.registered_groups if _group_name(each) == name]
    return typer.main.get_command(program)


def _group_name(group: TyperInfo) -> str | None:
    return None if group.typer_instance is None else group.typer_instance.info.name


def _run(arguments: Sequence[str]) -> int:
    try:
        name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
        return int(parser(name)(list(arguments), standalone_mode=False) or 0)
    except UsageError as error:
        if options := getattr(error, "possibilities", None):
            error.possibilities = [option for option in options if closest(error.option_name, [option])]
        text = str(error.format_message()).rstrip(".")
        if text.startswith("Usage:"):  # a group without a command
            error.show()
            return 2
        path = error.ctx.command_path if error.ctx is not None else app.info.name
        hint = next((hint for part, hint in (*HINTS, *_operation_hints(text)) if part in text), f"see {path} --help")
        print(f"error: {text} ({hint})", file=sys.stderr)
        if "--json" in arguments:
            _print({"error": {"kind": "InputError", "message": text}})
        return 2
    except (typer.Abort, KeyboardInterrupt):  # while the arguments are parsed
        print("error: interrupted", file=sys.stderr)
        if "--json" in arguments:
            _print({"error": {"kind": "Interrupted", "message": "interrupted"}})
        return 130


def _operation_hints(text: str) -> list[tuple[str, str]]:
    """Hints for an error "No such command" whose word is an operation: one (part of the message, hint) per
    operation."""
    if "No such command" not in text:
        return []
    from ptxgen.cli.help_lists import registered

    names = [operation.name for operation in registered()]
    return [(f"No such command '{name}'", f"the command precedes the operation: select {name}") for name in names]


@contextmanager
def _printed_warnings() -> Iterator[None]:
    """Within the ``with`` block, Python's warnings and those of ptxgen's logger are lines "warning: …" on standard
    error."""

    def show(message: Warning | str, *place: object, **others: object) -> None:
        print(f"warning: {message}", file=sys.stderr, flush=True)

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    logging.getLogger("ptxgen").addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        logging.getLogger("ptxgen").removeHandler(handler)


def one_line(error: BaseException) -> str:
    """The message of an error in one line: the whole text for errors of the emulated device, else the first line.
    Control characters, which file names may have, are escaped."""
    lines = [" ".join(line.split()) for line in _message(error).splitlines() if line.strip()] or [type(error).__name__]
    text = "; ".join(lines) if isinstance(error, EmulatorError) else lines[0]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _excerpt(error: BaseException) -> list[str]:
    """The lines that show where the text of a task breaks a rule: the line of the text, and a caret below the place."""
    lines = _message(error).splitlines()[1:] if isinstance(error, TaskError) else []
    return ["".join(c if c.isprintable() else "?" for c in line) for line in lines]


def _version(wanted: bool) -> None:
    if wanted:
        from ptxgen.cli.revision import version

        print(version())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
