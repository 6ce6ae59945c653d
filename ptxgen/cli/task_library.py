"""The commands ``task list``, ``task show`` and ``task export``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ptxgen.cli.checks import Check
from ptxgen.cli.command import Answer, command, task
from ptxgen.cli.export import DEFAULT_FOLDER, OWN_FOLDER, ChoiceOption, PtxOption
from ptxgen.cli.options import DatabaseOptions, Target
from ptxgen.cli.progress import progress as shown_progress
from ptxgen.errors import InputError

if TYPE_CHECKING:
    from ptxgen.cli.task_catalog import Named, TaskRow
    from ptxgen.export.task_in_c import TaskInC
    from ptxgen.operations.task.problem import Task
    from ptxgen.problem.device import Device
    from ptxgen.tuning.store.database import Database


def given_type(name: str, text: str) -> None:
    """Requires the text NAME=TYPE. InputError: ``text`` has another form."""
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise InputError(f"{name} is {text}; it must be NAME=TYPE, as P=f16")


TYPE = Check(given_type)
SHORT = 60  #: the most characters of a task's text in tables
DtypeOption = Annotated[str | None, typer.Option(help="Type of the inputs that have none.")]
DeviceOption = Annotated[str | None, typer.Option(help="List only results of this device.")]
ShapeOption = Annotated[
    list[str] | None, typer.Option(metavar="M,N,K", help="Extents of i, j and k of every task. Repeatable.")
]
GroupsOption = Annotated[
    str, typer.Option(metavar="G,H", help="Rows and columns of results whose elements keys select.")
]
AlgebraOption = Annotated[
    bool,
    typer.Option("--algebra/--no-algebra", help="Rewrite tasks by laws that hold for finite numbers, or do not."),
]


@command(task, "list", "", "--device h100 --json")
def list_(
    options: DatabaseOptions,
    device: DeviceOption = None,
    kept: Annotated[
        bool, typer.Option("--kept", help="List also the texts that the disk cache keeps of earlier calls.")
    ] = False,
) -> Answer:
    """Print the tasks that have stored times.

    Prints one row for each task, extents and device: winners and measurements in the database, and shipped winners. The
    name is that of a known task, else the beginning of the hash, which is the same for texts that differ only in names.
    task show and task export take both.
    """
    from ptxgen.cli import task_catalog
    from ptxgen.cli.tables import Predicted, Table
    from ptxgen.problem.device import device as device_named

    if device is not None:
        device_named(device)  # a device without stored times is no error, unless there is no such device
    with options.reading() as database:
        rows = task_catalog.rows(database, device)
    if kept and device is None:
        rows += task_catalog.kept_rows(rows)
    titles = ("name", "M,N,K", "layout", "types", "device", "µs", "family", "source", "task", "text", "hash")
    documents = [_fields(row) for row in rows]
    cells = [
        (
            x["name"],
            x["extents"] and ",".join(map(str, x["extents"])),
            x["layout"],
            x["types"],
            x["device"],
            Predicted(x["us"]) if x["clock"] == "model" else x["us"],
            x["family"],
            x["source"],
            x["text"] if len(x["text"]) <= SHORT else f"{x['text'][: SHORT - 1]}…",
            x["text"],
            x["hash"],
        )
        for x in documents
    ]
    document = {"command": "task list", "rows": documents}
    table = Table(titles, cells, ("source", "layout", "types"), ("text", "hash"))
    none = "there are no tasks with stored times" + (f" on {device}" if device else "")
    return Answer(document, [table] if cells else [none])


def _fields(row: TaskRow) -> dict[str, Any]:
    """The JSON of a row of the catalogue."""
    from ptxgen.cli.task_catalog import body
    from ptxgen.operations.task.language.canonical import canonical

    p, m = row.problem, row.measured
    return {
        "name": row.name,
        "hash": row.hash,
        "text": body(row.program),
        "canonical": canonical(row.program),
        "types": ", ".join(f"{x.name} {x.dtype}" for x in row.program.inputs),
        "layout": "" if p is None else p.layout,
        "extents": None if p is None else [p.m, p.n, p.k],
        "problem": None if p is None else p.key(),
        "device": row.device,
        "clock": "" if m is None else m.environment.clock,
        "us": None if m is None else m.us,
        "family": "" if row.config is None else row.config.family,
        "config_text": "" if row.config is None else str(row.config),
        "source": row.source,
    }


@command(
    task,
    "show",
    "min_plus --device h100",
    "--task distances.task --shape 4096,4096,64 --device h200",
    tables=False,
)
def show(
    options: DatabaseOptions,
    name: Annotated[str | None, typer.Argument(help="A name or a hash of task list, or a file with a text.")] = None,
    text: Annotated[str | None, typer.Option("--task", metavar="TEXT", help="The text of the task, or a file.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Type of the inputs that have none. [default: that of stored results, or f32]")
    ] = None,
    shape: ShapeOption = None,
    groups: GroupsOption = "",
    algebra: AlgebraOption = True,
    device: Annotated[str | None, typer.Option(help="Show only this device.")] = None,
) -> Answer:
    """Print a task: its text, its inputs and their roles, what is rewritten, and its kernels.

    The text has types of all inputs. For each stored time the configuration and the kernels follow, those of --shape
    with the configuration that select prints. Needs no GPU: use --device h200.
    """
    from ptxgen.cli import task_catalog
    from ptxgen.operations.task.explanation import explanation
    from ptxgen.operations.task.language.canonical import canonical
    from ptxgen.operations.task.language.readable import readable
    from ptxgen.operations.task.task_hash import task_hash
    from ptxgen.problem.device import device as device_named

    if (name is None) == (text is None):
        raise InputError("a name or --task must be given, and not both")
    with options.reading() as database, shown_progress("select", len(shape or ())):
        catalogue = task_catalog.rows(database)
        given = text if text is not None or not Path(str(name)).is_file() else name
        if given is not None:
            named = task_catalog.with_rows(*task_catalog.of_text(given, {}, dtype or "f32"), catalogue)
        else:
            named = task_catalog.named(str(name), catalogue, dtype)
        rows = [_stored_fields(x) for x in named.rows if x.problem is not None and device in (None, x.device)]
        if shape:
            on = Target(database=options.database, device=device).find_device()
            problems = _problems(_functions(named, "", algebra=algebra), list(map(_extents, shape)), groups)
            outputs = {f: f"{f.output.name} of " * (len(problems) > 1) for f in problems}
            rows += [_chosen_fields(p, on, database, outputs[f]) for f, each in problems.items() for p in each]
        elif device is not None:
            device_named(device)  # a device without stored times is no error, unless there is no such device
    program, own = named.program, task_hash(named.program)
    document: dict[str, Any] = {
        "command": "task show",
        "name": named.name,
        "hash": own,
        "text": canonical(program),
        "readable": readable(program),
        "explanation": explanation(program, algebra),
        "rows": rows,
    }
    lines = [" ".join(filter(None, ("task", named.name, own))), "", document["readable"], "", *document["explanation"]]
    for row in rows:
        time = "" if row["us"] is None else f", {'~' * row['predicted']}{row['us']:.4g} µs"
        lines += ["", f"{row['problem_text']} on {row['device']} ({row['source']}){time}", f"  {row['config_text']}"]
        lines += [f"  kernel {kernel}" for kernel in row["kernels"]]
    if not rows:
        lines += ["", "there is no stored time; --shape M,N,K shows the configuration that is chosen"]
    return Answer(document, "\n".join(lines))


def _stored_fields(row: TaskRow) -> dict[str, Any]:
    from ptxgen.problem.device import device as device_named

    assert row.problem is not None
    assert row.measured is not None
    on, config = device_named(row.device), row.measured.config
    return {
        **_problem_fields(row.problem),
        "device": row.device,
        "source": row.source,
        "us": row.measured.us,
        "predicted": row.measured.environment.clock == "model",
        "config_text": str(config),
        "kernels": _kernels(row.problem, config, on),
    }


def _chosen_fields(p: Task, on: Device, database: Database | None, what: str) -> dict[str, Any]:
    """The JSON of a row of ``task show`` with the selected configuration. ``what``: words before the extents."""
    from ptxgen.tuning import selection

    selected = selection.require(p, on, database)[0]
    return {
        **_problem_fields(p, what),
        "device": on.name,
        "source": selected.source,
        "us": None if selected.us != selected.us else selected.us,
        "predicted": selected.predicted,
        "config_text": str(selected.config),
        "kernels": _kernels(p, selected.config, on),
    }


def _problem_fields(p: Task, what: str = "") -> dict[str, Any]:
    text = f"{what}{p.m},{p.n},{p.k} {p.layout}" + (f" groups {p.groups}" if p.groups else "")
    return {"problem": p.key(), "problem_text": text}


def _kernels(p: Task, config: Any, on: Device) -> list[str]:
    """The names and digests of a configuration's kernels. Empty: this version does not generate the kernels."""
    from ptxgen.codegen.render import render
    from ptxgen.errors import PtxgenError
    from ptxgen.families.plan_factory import plan_for
    from ptxgen.runtime import kept_sources

    try:
        plan = plan_for(p, config, on)
        kept = kept_sources.read(kept_sources.key(plan))
        source: Any = render(plan) if kept is None else kept
    except PtxgenError:
        return []
    return [f"{entry} {source.digest}" + (" (kept)" if kept else "") for entry in source.entries]


def _extents(text: str) -> tuple[int, int, int]:
    """The extents M, N and K in ``text``, as 512x512x64. ShapeError: ``text`` is no shape."""
    from ptxgen.operations.task.problem import Task

    extents = Task.read_shape(text)
    return extents["m"], extents["n"], extents["k"]


def _functions(task: Named, name: str, output: str | None = None, **options: Any) -> list[TaskInC]:
    from ptxgen.export.task_in_c import functions_of

    return functions_of(name or task.name, task.program, output, order=task.order, **options)


def _problems(
    functions: Sequence[TaskInC], extents: Sequence[tuple[int, int, int]], groups: str
) -> dict[TaskInC, list[Task]]:
    """C function -> its problems. ``extents``: M, N, K of each problem; ``groups``: the groups of functions whose
    output is grouped. ShapeError: ``groups`` is missing, or no output is grouped."""
    any_grouped = any(f.grouped for f in functions)
    return {f: [f.problem(*x, groups if f.grouped or not any_grouped else "") for x in extents] for f in functions}


@command(
    task,
    "export",
    "min_plus --dtype f32 --shape 1024,1024,1024 --device h200 --folder kernels",
    "close.task --name close --type X=f16 --shape 4096,4096,96 --device h200",
    tables=False,
)
def export(
    options: DatabaseOptions,
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="TASK", help="Names or hashes of task list, or files with texts.")
    ] = None,
    texts: Annotated[
        list[str] | None, typer.Option("--task", metavar="TEXT", help="The text of a task, or a file. Repeatable.")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name of the C function, after ptxgen_task_: one for each task, in order. [default: that of a known"
            " task, or the beginning of the hash]",
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="NAME=TYPE", help="Type of an input, if the text has none. Repeatable."),
        TYPE,
    ] = None,
    dtype: DtypeOption = None,
    shape: ShapeOption = None,
    groups: GroupsOption = "",
    output: Annotated[
        str | None, typer.Option(help="Export this output alone. [default: a function for each output]")
    ] = None,
    compute: Annotated[str, typer.Option(help="tf32: sums of products of f32 on tensor cores.")] = "",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Use only kernels whose results are bitwise reproducible.")
    ] = False,
    algebra: AlgebraOption = True,
    device: Annotated[
        str | None, typer.Option(help="A device, as of select. [default: the GPU, else emulated]")
    ] = None,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Output folder."), OWN_FOLDER] = DEFAULT_FOLDER,
    ptx: PtxOption = False,
    choice: ChoiceOption = True,
) -> Answer:
    """Export tasks for C programs.

    Writes cubins, a manifest, and a C library with a function ptxgen_task_NAME for each task, or for each output of a
    task with several. Kernels are chosen for the extents of --shape, or for all extents with stored times on the
    device; most kernels also serve other extents. Needs no GPU: use --device h200.
    """
    from ptxgen.cli import task_catalog
    from ptxgen.cli.export import exported

    target = Target(database=options.database, device=device)
    given = [*(tasks or ()), *(texts or ())]
    if not given:
        raise InputError("no task is given; give a name, a hash or a file, or --task")
    if names and len(names) != len(given):
        raise InputError(f"name is given {len(names)} times; it must be given once for each of {len(given)} tasks")
    given_types = {key: value for key, _, value in (x.partition("=") for x in types or ())}
    on = target.find_device()
    with options.reading() as database:
        catalogue = task_catalog.rows(database)
        chosen = [task_catalog.named(word, catalogue, dtype, given_types) for word in tasks or ()]
        chosen += [task_catalog.with_rows(*task_catalog.of_text(x, given_types, dtype), catalogue) for x in texts or ()]
        functions: dict[TaskInC, Sequence[Task]] = {}
        options_of: dict[str, Any] = {"compute": compute, "deterministic": deterministic, "algebra": algebra}
        for n, each in enumerate(chosen):
            extents = list(map(_extents, shape or ())) or _stored_extents(each, on.name)
            functions |= _problems(_functions(each, names[n] if names else "", output, **options_of), extents, groups)
        return exported("task export", (), functions, on, database, folder, ptx, choice)


def _stored_extents(task: Named, device: str) -> list[tuple[int, int, int]]:
    """The extents for which there are stored results on a device, with arrays stored as the program indexes them.
    InputError: there are none."""
    from ptxgen.operations.task.roles import roles_of

    layout = roles_of(task.program).layout
    every = [row.problem for row in task.rows if row.problem is not None and row.device == device]
    problems = [p for p in every if p.layout == layout]
    if not problems:
        what = task.name or "the task"
        raise InputError(f"no extents are given, and {what} has no stored times on {device}; use --shape M,N,K")
    return list(dict.fromkeys((p.m, p.n, p.k) for p in problems))
