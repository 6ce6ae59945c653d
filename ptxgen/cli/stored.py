"""The commands ``db export``, ``db import``, ``db merge``, ``db recheck``, ``db list``, ``db info``, ``doctor`` and
``build-pycuda``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ptxgen.cli.checks import OUTPUT_FOLDER, Check
from ptxgen.cli.command import STORE_COMMANDS, Answer, Common, app, command, db, explain_interrupt
from ptxgen.cli.options import DatabaseOptions
from ptxgen.cli.progress import progress as shown_progress
from ptxgen.errors import InputError

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.problem.registry import Problem
    from ptxgen.runtime.driver import Driver


def form_available(name: str, form: str) -> None:
    """Requires a file format that can be written. InputError: there is no such format. UnavailableError: its package is
    missing."""
    from ptxgen.tuning.store.result_files import require_form

    if form != "text":
        require_form(form)


FORM = Check(form_available)


@command(db, "export", "results", "results --device h200 --format parquet", tables=False)
def export(
    options: DatabaseOptions,
    folder: Annotated[Path, typer.Argument(help="Output folder; it gets one folder per device."), OUTPUT_FOLDER],
    device: Annotated[str | None, typer.Option(help="Export only results of this device.")] = None,
    raw: Annotated[bool, typer.Option("--raw/--no-raw", help="Include all measurements, or only winners.")] = True,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="text: winners as sorted text, compressed measurements and the trained model, one folder per device;"
            " jsonl, parquet: one table of all measurements, for other programs.",
        ),
        FORM,
    ] = "text",
) -> Answer:
    """Export the database to files.

    db import reads every format.
    """
    import datetime

    from ptxgen.cli.revision import revision
    from ptxgen.tuning.choice.models import model_folder
    from ptxgen.tuning.store.database import Database
    from ptxgen.tuning.store.exchange import replacing
    from ptxgen.tuning.store.result_files import write_results
    from ptxgen.tuning.store.tuning_files import export_text

    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    command_text = "ptxgen db export" + (f" --device {device}" if device else "") + ("" if raw else " --no-raw")
    partial = f"{folder} may be incomplete; repeat the export"
    with (
        explain_interrupt(lambda: partial),
        Database(options.path, readonly=True) as database,
        shown_progress("export"),
    ):
        if form != "text":
            path = write_results(database, folder, form, device, raw)
            return Answer({"command": "db export", "files": [path]}, str(path))
        files = export_text(
            database, folder, device=device, commit=revision(), command=command_text, date=today, raw=raw
        )
        for name in sorted({f.parent.name for f in files}):
            trained = model_folder(database, name)
            for path in sorted(trained.glob("model*.json")):
                with replacing(folder / name / path.name) as file:
                    file.write(path.read_bytes())
                files.append(folder / name / path.name)
    text = "\n".join(map(str, files)) or "the database has no measurements; nothing was written"
    return Answer({"command": "db export", "files": files}, text)


@command(db, "import", "results", "results/h200/winners.txt", tables=False)
def import_(
    options: DatabaseOptions,
    path: Annotated[
        Path, typer.Argument(help="An exported folder, the folder of one device, or one file, of any format.")
    ],
) -> Answer:
    """Import exported files.

    If a file is invalid, nothing is imported. Of two winners of a problem, the faster one is stored.
    """
    from ptxgen.cli.report import pairs_text
    from ptxgen.tuning.store.database import destination
    from ptxgen.tuning.store.result_files import import_files

    if not path.exists():
        raise InputError(f"path is {path}; there is no such file or folder")
    interrupted = explain_interrupt(lambda: "part of the rows may be stored; repeat the command to add the others")
    with interrupted, destination(options.path) as database, shown_progress("import"):
        counts = import_files(database, path, _current_digest)
    return Answer({"command": "db import", "database": options.path, **counts}, pairs_text(counts))


def _current_digest(name: str, problem: Problem, config: Config) -> str:
    """The digest of the kernel that this version generates for the device called ``name``."""
    from ptxgen.codegen.render import render
    from ptxgen.families.plan_factory import plan_for
    from ptxgen.problem.device import device

    return render(plan_for(problem, config, device(name))).digest


@command(db, "merge", "other.sqlite", "node1.sqlite node2.sqlite --database all.sqlite", tables=False)
def merge(
    options: DatabaseOptions,
    others: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Databases to read.")],
) -> Answer:
    """Add the measurements and winners of other databases.

    Skips rows that are already present. Of two winners of a problem, the faster one is stored.
    """
    from collections import Counter

    from ptxgen.cli.report import pairs_text
    from ptxgen.tuning.store.database import Database, destination

    for path in others:
        Database(path, readonly=True).close()
    counts: Counter[str] = Counter()
    interrupted = explain_interrupt(lambda: "repeat the command to continue")
    with interrupted, destination(options.path) as database, shown_progress("merge", len(others)) as shown:
        for path in others:
            with Database(path, readonly=True) as other:
                counts.update(database.merge(other.measurements(), other.winners(), _current_digest))
            shown.step(str(path))
    return Answer({"command": "db merge", "database": options.path, **counts}, pairs_text(counts))


@command(db, "recheck", "", "results --device h200 --time-limit 480")
def recheck(
    options: DatabaseOptions,
    folder: Annotated[
        Path | None, typer.Argument(help="An exported folder. [default: the winners in the database]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Recheck only this device.")] = None,
    timing: Annotated[
        bool, typer.Option("--time/--no-time", help="Time stale winners again if this machine has their device.")
    ] = True,
    time_limit: Annotated[
        int, typer.Option("--time-limit", min=0, metavar="SECONDS", help="Begin no timing after this time.")
    ] = 3600,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Kernels to assemble in parallel. [default: number of cores]")
    ] = None,
) -> Answer:
    """Check stale winners and time them again.

    Compares stored winners with the kernels that this version generates. A winner with the same machine code keeps its
    time. A winner with different machine code is stale: on its device, it is checked and timed again together with the
    configuration that the model selects, and the faster one is stored. In a folder, stale winners are in stale.txt
    until they are timed. The exit code is 1 while a winner is stale.
    """
    import os
    from contextlib import ExitStack

    from ptxgen.cli import report
    from ptxgen.cli.revision import revision
    from ptxgen.problem import device as devices
    from ptxgen.tuning.measure.recheck import DatabaseWinners, FolderWinners, Recheck
    from ptxgen.tuning.store.database import Database

    rows = []
    if folder is None:
        Database(options.path, readonly=True).close()  # opened to write, a missing one would be created
    with ExitStack() as stack:
        store = (
            FolderWinners(folder, revision())
            if folder
            else DatabaseWinners(stack.enter_context(Database(options.path)))
        )
        progress = stack.enter_context(shown_progress())
        for name in store.devices(device):
            driver = _driver_of(name)
            facts = driver.device if driver is not None else devices.device(name)
            work = Recheck(facts, jobs or os.cpu_count() or 1, progress)
            compared = work.compare(store.read(name))
            store.save(facts, compared)
            if timing and driver is not None:
                work.retime(compared, driver.name, lambda rows, to=facts: store.save(to, rows), time_limit, revision())  # type: ignore[misc]
            rows += [report.recheck_fields(name, row) for row in compared]
    document = {"command": "db recheck", "rows": rows}
    return Answer(document, report.recheck_text(document), int(any(r["us"] is None for r in rows)))


def _driver_of(device: str) -> Driver | None:
    """The driver of a device. None: this machine does not have the device. UnavailableError: the driver that
    PTXGEN_DRIVER names is missing."""
    from ptxgen.runtime.open_driver import open_driver
    from ptxgen.settings import settings

    driver = open_driver("emulated" if device == "emulated" else settings().driver)
    return driver if driver.device.name == device else None


@command(db, "list", "", "--device h200")
def list_(
    options: DatabaseOptions,
    device: Annotated[str | None, typer.Option(help="List only results of this device.")] = None,
) -> Answer:
    """Print the stored winners.

    Prints one row for each problem, device and clock; stale winners have the reason.
    """
    from ptxgen.cli.report import list_text
    from ptxgen.problem.operation import operation_of
    from ptxgen.tuning.store.database import Database

    with Database(options.path, readonly=True) as database:
        reasons = {row[:3]: row[3] for row in database.stale(device)}
        winners = sorted(database.winners(device, stale=True), key=lambda m: (m.environment.device, m.problem.key()))
    rows = [
        {
            "problem": m.problem.key(),
            "device": m.environment.device,
            "clock": m.environment.clock,
            "us": m.us,
            operation_of(m.problem).speed.name: m.speed,
            "config_text": str(m.config),
            "stale": reasons.get((m.problem.key(), m.environment.device, m.environment.clock), ""),
        }
        for m in winners
    ]
    document = {"command": "db list", "rows": rows}
    return Answer(document, list_text(document))


@command(db, "info", "", "--database other.sqlite --json")
def info(options: DatabaseOptions) -> Answer:
    """Print the contents of the database."""
    from ptxgen.cli.report import info_text
    from ptxgen.tuning.store.database import Database

    with Database(options.path, readonly=True) as database, shown_progress("read"):
        stale = [dict(zip(("problem", "device", "clock", "reason"), row, strict=True)) for row in database.stale()]
        document = {"command": "db info", **database.info(), "stale_winners": stale}
    return Answer(document, info_text(document))


@command(app, "doctor", "", "--json", panel=STORE_COMMANDS)
def doctor(options: DatabaseOptions) -> Answer:
    """Examine the installation.

    Lists packages, tools and devices, and the commands that install missing ones.
    """
    from ptxgen.cli.doctor import examine
    from ptxgen.cli.report import doctor_text

    with shown_progress() as shown:
        findings = examine(options.path, shown)
    document = {"command": "doctor", "findings": findings}
    return Answer(document, doctor_text(document), 3 if any(f["state"] == "missing" for f in findings) else 0)


@command(app, "build-pycuda", "", "--wheel wheels", panel=STORE_COMMANDS, tables=False)
def build_pycuda(
    options: Common,
    wheel: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the wheel to this folder and do not install it."),
        OUTPUT_FOLDER,
    ] = None,
) -> Answer:
    """Build PyCUDA and install it.

    Needs a C++ compiler and a package index, and neither a CUDA toolkit nor a GPU. Takes a few minutes.
    """
    from ptxgen.cli.build_pycuda import build

    with shown_progress() as shown:
        built, imports = build(wheel, shown)
    text = f"{built} is in {wheel}" if wheel else f"{built} is installed"
    if not imports:
        text += "\nThis machine lacks NVIDIA's driver library, libcuda.so.1, without which PyCUDA cannot be imported."
    document = {"command": "build-pycuda", "wheel": built, "folder": wheel and str(wheel), "imports_here": imports}
    return Answer(document, text)
