"""The commands on what is there: the database, and the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ptxgen.cli.command import Answer, app, command, db, keeps
from ptxgen.cli.options import Stored

if TYPE_CHECKING:
    from ptxgen.codegen.config import Config
    from ptxgen.problem.registry import Problem
    from ptxgen.runtime.driver import Driver


@command(db, "export")
def export(
    options: Stored,
    folder: Annotated[Path, typer.Argument(help="Where to write: a folder a device.")],
    device: Annotated[str | None, typer.Option(help="This device alone.")] = None,
    raw: Annotated[bool, typer.Option("--raw/--no-raw", help="The measurements too, or the winners alone.")] = True,
) -> Answer:
    """Write what was measured as files. Winners as sorted text, measurements compressed, the regressor."""
    import datetime

    from ptxgen.cli.doctor import revision
    from ptxgen.tuning.database import Database
    from ptxgen.tuning.exchange import replacing
    from ptxgen.tuning.selection import model_folder
    from ptxgen.tuning.tuning_files import export_text

    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    told = "ptxgen db export" + (f" --device {device}" if device else "") + ("" if raw else " --no-raw")
    partial = f"{folder} may lack files, or have incomplete ones: export again"
    with keeps(lambda: partial), Database(options.path, readonly=True) as database:
        files = export_text(database, folder, device=device, commit=revision(), command=told, date=today, raw=raw)
        for name in sorted({f.parent.name for f in files}):
            trained = model_folder(database, name)
            for path in sorted(trained.glob("model*.json")):
                with replacing(folder / name / path.name) as file:
                    file.write(path.read_bytes())
                files.append(folder / name / path.name)
    told = "\n".join(map(str, files)) or "the database has no measurements: nothing was written"
    return Answer({"command": "db export", "files": files}, told)


@command(db, "import")
def import_(
    options: Stored,
    path: Annotated[Path, typer.Argument(help="What db export wrote: the folder, a device's folder, or a file.")],
) -> Answer:
    """Take in exported files. All or nothing; the better of two winners stays."""
    from ptxgen.cli.report import pairs_text
    from ptxgen.codegen.render import render
    from ptxgen.families.plan_factory import plan_for
    from ptxgen.problem.device import device
    from ptxgen.tuning.database import Database
    from ptxgen.tuning.tuning_files import import_text

    def current(name: str, problem: Problem, config: Config) -> str:
        return render(plan_for(problem, config, device(name))).digest

    with keeps(lambda: "db info prints what the database holds"), Database(options.path) as database:
        counts = import_text(database, path, current)
    return Answer({"command": "db import", "database": options.path, **counts}, pairs_text(counts))


@command(db, "recheck")
def recheck(
    options: Stored,
    folder: Annotated[
        Path | None, typer.Argument(help="A folder that db export wrote. [default: the database's winners]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Winners of this device alone.")] = None,
    timing: Annotated[
        bool, typer.Option("--time/--no-time", help="Time stale winners again, where their device is here.")
    ] = True,
    seconds: Annotated[float, typer.Option(min=0, help="After which no other winner is timed.")] = 3600.0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Kernels assembled at once. [default: cores]")] = None,
) -> Answer:
    """Compare stored winners with the kernels of this version.

    A winner whose machine code is the same keeps its time. One whose machine code changed is stale: it is checked and
    timed again on its device, beside the model's choice, and the faster one is stored. In a folder, stale winners are
    in stale.txt until then. Exits with 1 while a winner is stale.
    """
    import os
    from contextlib import ExitStack

    from ptxgen.cli import report
    from ptxgen.cli.doctor import revision
    from ptxgen.problem import device as devices
    from ptxgen.tuning.database import Database
    from ptxgen.tuning.recheck import DatabaseWinners, FolderWinners, Recheck

    rows = []
    with ExitStack() as stack:
        store = (
            FolderWinners(folder, revision())
            if folder
            else DatabaseWinners(stack.enter_context(Database(options.path)))
        )
        progress = stack.enter_context(report.progress())
        for name in store.devices(device):
            driver = _driver_of(name)
            facts = driver.device if driver is not None else devices.device(name)
            work = Recheck(facts, jobs or os.cpu_count() or 1, progress)
            found = work.compare(store.read(name))
            store.save(facts, found)
            if timing and driver is not None:
                work.retime(found, driver.name, lambda rows, to=facts: store.save(to, rows), seconds, revision())  # type: ignore[misc]
            rows += [report.recheck_fields(name, row) for row in found]
    document = {"command": "db recheck", "rows": rows}
    return Answer(document, report.recheck_text(document), int(any(r["us"] is None for r in rows)))


def _driver_of(device: str) -> Driver | None:
    """The driver of a device, if that device is here."""
    from ptxgen.errors import UnavailableError
    from ptxgen.runtime.open_driver import open_driver
    from ptxgen.settings import settings

    try:
        driver = open_driver("emulated" if device == "emulated" else settings().driver)
    except UnavailableError:
        return None
    return driver if driver.device.name == device else None


@command(db, "info")
def info(options: Stored) -> Answer:
    """Print what the database holds."""
    from ptxgen.cli.report import info_text
    from ptxgen.tuning.database import Database

    with Database(options.path, readonly=True) as database:
        stale = [dict(zip(("problem", "device", "clock", "reason"), row, strict=True)) for row in database.stale()]
        document = {"command": "db info", **database.info(), "stale_winners": stale}
    return Answer(document, info_text(document))


@command(app, "doctor")
def doctor(options: Stored) -> Answer:
    """Print what this machine has and lacks. With the command that installs what is missing."""
    from ptxgen.cli.doctor import examine
    from ptxgen.cli.report import doctor_text

    findings = examine(options.path)
    document = {"command": "doctor", "findings": findings}
    return Answer(document, doctor_text(document), 3 if any(f["state"] == "missing" for f in findings) else 0)
