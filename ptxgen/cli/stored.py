"""The commands on what is there: the database, and the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ptxgen.cli.command import Answer, app, command, db, keeps
from ptxgen.cli.options import Stored

if TYPE_CHECKING:
    from ptxgen.config import Config
    from ptxgen.operations import Problem


@command(db, "export")
def export(
    options: Stored,
    folder: Annotated[Path, typer.Argument(help="Where to write: a folder a device.")],
    device: Annotated[str | None, typer.Option(help="This device alone.")] = None,
    raw: Annotated[bool, typer.Option("--raw/--no-raw", help="The measurements too, or the winners alone.")] = True,
) -> Answer:
    """Write what was measured as files. Winners as sorted text, measurements compressed, the regressor."""
    import datetime
    import shutil

    from ptxgen.cli.doctor import revision
    from ptxgen.database import Database
    from ptxgen.dispatch import model_folder
    from ptxgen.shipped import export_text

    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    told = "ptxgen db export" + (f" --device {device}" if device else "") + ("" if raw else " --no-raw")
    partial = f"{folder} may lack files, or have incomplete ones: export again"
    with keeps(lambda: partial), Database(options.path, readonly=True) as database:
        files = export_text(database, folder, device=device, commit=revision(), command=told, date=today, raw=raw)
        for name in sorted({f.parent.name for f in files}):
            trained = model_folder(database, name)
            for path in sorted(trained.glob("model*.json")):
                files.append(Path(shutil.copyfile(path, folder / name / path.name)))
    told = "\n".join(map(str, files)) or "the database has no measurements: nothing was written"
    return Answer({"command": "db export", "files": files}, told)


@command(db, "import")
def import_(
    options: Stored,
    path: Annotated[Path, typer.Argument(help="What db export wrote: the folder, a device's folder, or a file.")],
) -> Answer:
    """Take in exported files. All or nothing; the better of two winners stays."""
    from ptxgen.database import Database
    from ptxgen.device import device
    from ptxgen.generate import plan_for
    from ptxgen.render import render
    from ptxgen.report import pairs_text
    from ptxgen.shipped import import_text

    def current(name: str, problem: Problem, config: Config) -> str:
        return render(plan_for(problem, config, device(name))).digest

    with keeps(lambda: "db info prints what the database holds"), Database(options.path) as database:
        counts = import_text(database, path, current)
    return Answer({"command": "db import", "database": options.path, **counts}, pairs_text(counts))


@command(db, "info")
def info(options: Stored) -> Answer:
    """Print what the database holds."""
    from ptxgen.database import Database
    from ptxgen.report import info_text

    with Database(options.path, readonly=True) as database:
        stale = [dict(zip(("problem", "device", "clock", "reason"), row, strict=True)) for row in database.stale()]
        document = {"command": "db info", **database.info(), "stale_winners": stale}
    return Answer(document, info_text(document))


@command(app, "doctor")
def doctor(options: Stored) -> Answer:
    """Print what this machine has and lacks. With the command that installs what is missing."""
    from ptxgen.cli.doctor import examine
    from ptxgen.report import doctor_text

    findings = examine(options.path)
    document = {"command": "doctor", "findings": findings}
    return Answer(document, doctor_text(document), 3 if any(f["state"] == "missing" for f in findings) else 0)
