"""The commands ``model train``, ``model evaluate`` and ``model validate``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ptxgen.cli.checks import INPUT_FILE, OUTPUT_FILE, OUTPUT_FOLDER, Check
from ptxgen.cli.collect import ChildrenOption, DevicesOption, DtypesOption, JobsOption, MaxExtentOption, MixtureOption
from ptxgen.cli.command import Answer, Common, command, model
from ptxgen.cli.options import DatabaseOptions, SeedOption, no_problem, open_lines, warn_if_emulated
from ptxgen.cli.progress import progress as shown_progress

if TYPE_CHECKING:
    from ptxgen.errors import InputError
    from ptxgen.problem.device import Device
    from ptxgen.tuning.collect.validation import Validated
    from ptxgen.tuning.model.training import Training
    from ptxgen.tuning.store.measurement import Measurement


def perceptrons_available(name: str, rows: int) -> None:
    """Requires scikit-learn if ``rows`` is not 0, so that perceptrons are trained. UnavailableError: it is missing."""
    from ptxgen.tuning.model import perceptron

    if rows:
        perceptron.require()


PERCEPTRONS = Check(perceptrons_available)
LEAST_PROBLEMS = 1_000  #: the least problems of a comparison of regressors, so that enough are held out


@command(
    model,
    "train",
    "--device h200 --also h100 --folder tuning_db --out models",
    "--vendor --device h200",
)
def train(
    options: DatabaseOptions,
    device: Annotated[str, typer.Option(help="The device that the model is for.")] = "h200",
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE", help="Another device whose measurements train the model, too. Repeatable."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder with <device>/measurements.jsonl.xz of each device. [default: the shipped one]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder; <device>/model.json.xz is written. [default: the models next to the database]"),
        OUTPUT_FOLDER,
    ] = None,
    target: Annotated[
        str, typer.Option(help="Baseline of times: time (none), roofline, clock (the performance model) or average.")
    ] = "average",
    operation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Train the model of one operation, in the folder <device>/NAME. [default: of all others]",
        ),
    ] = None,
    vendor: Annotated[
        bool,
        typer.Option(
            "--vendor", help="Train the models of vendors' libraries, on <device>/vendor*.jsonl.xz, in vendor.json.xz."
        ),
    ] = False,
) -> Answer:
    """Train the model on the measurements of one device or of several.

    With --also, facts of the device are features, and one model serves all of these devices. The same measurements give
    the same trees. Takes minutes, and needs no GPU. select uses the model of the default folder. If no measurements of
    a device ship, those in the database are used. --vendor trains
    models of the time of vendors' libraries in place of it, in seconds: calls use a library where it is predicted to be
    faster by more than the error.
    """
    import json

    from ptxgen.errors import InputError
    from ptxgen.families.common.features import operation_names_of
    from ptxgen.families.registry import FAMILIES
    from ptxgen.lowering.lower import lower
    from ptxgen.problem.device import device as device_named
    from ptxgen.problem.operation import operation_named
    from ptxgen.tuning.choice.models import models_folder
    from ptxgen.tuning.model import model_files
    from ptxgen.tuning.model.model import Model
    from ptxgen.tuning.store import tuning_files

    if vendor:
        if also or operation is not None:
            raise InputError("vendor is given; it takes one device, and neither also nor operation")
        return _train_vendor(device_named(device), folder, out or models_folder(options.path))
    part = "" if operation is None else operation_named(operation).name
    names = [device, *(also or ())]
    if len(set(names)) < len(names):
        raise InputError(f"also is {', '.join(also or ())}; the devices must be different from each other and {device}")
    given: dict[Device, Iterable[Measurement]] = {}
    for facts in map(device_named, names):
        try:
            files = tuning_files.existing_measurements(str(Path(facts.name, part)), folder)
        except InputError as error:
            if folder is not None:
                raise
            given[facts] = _stored(options, facts.name, error)
        else:
            given[facts] = tuning_files.read_all(files)
    features: tuple[str, ...] = ()

    def of_problem(m: Measurement) -> bool:
        """True if the family computes the problem in its first form; other forms are predicted by the common model."""
        p = lower(m.problem)
        return FAMILIES[m.config.family].form(p) is p

    if part:
        given = {d: [m for m in rows if m.problem.operation == part and of_problem(m)] for d, rows in given.items()}
        features = operation_names_of(part, {m.config.family for rows in given.values() for m in rows})
    first, *others = given
    fitted = Model.fit(given[first], first, target=target, names=features, also={d: given[d] for d in others})
    written = tuning_files.model_path(str(Path(device, part)), out or models_folder(options.path))
    fitted.save(written.parent)
    trained = fitted.facts
    assert trained is not None
    document = {
        "command": "model train",
        "devices": names,
        "file": written,
        "rows": trained.rows,
        "problems": trained.problems,
        "skipped": trained.skipped,
        "digest": json.loads(model_files.content_of(written))["digest"],
    }
    return Answer(
        document,
        f"{written}: trained on {trained.rows} measurements of {trained.problems} problems on {', '.join(names)},"
        f" {trained.skipped} skipped; digest {document['digest']}",
    )


def _train_vendor(device: Device, folder: Path | None, out: Path) -> Answer:
    """Trains the models of vendors' libraries. InputError: too few times of libraries are known."""
    from ptxgen.errors import InputError
    from ptxgen.tuning.model import vendor_model
    from ptxgen.tuning.store import vendor_files

    files = vendor_files.files(device.name, folder)
    headers, rows = [], []
    for path in files:
        header, some = vendor_files.read(path)
        headers.append(header)
        rows += some
    models = vendor_model.train(rows, device)
    if not models:
        named = ", ".join(path.name for path in files) or "no file"
        raise InputError(
            f"device is {device.name}; {named} has {len(rows)} times of vendors' libraries; a model needs"
            f" {vendor_model.FEW} of one arithmetic, and model vendor measures some"
        )
    written = out / device.name / vendor_model.FILE
    commits, commands = [h.commit for h in headers if h.commit], [h.command for h in headers if h.command]
    vendor_model.write(written, device.name, models, commits, commands)
    facts = {
        name: {"library": m.library, "versions": m.versions, "rows": m.rows, "error": m.error, "margins": m.margins}
        for name, m in models.items()
    }
    document = {"command": "model train", "devices": [device.name], "file": written, "models": facts}
    lines = [f"{written}: trained on {len(rows)} times of {', '.join(path.name for path in files)}"]
    for name, m in models.items():
        percents = ", ".join(f"{each} {2**margin - 1:.0%}" for each, margin in m.margins.items())
        lines.append(f"{name}: {m.rows} times; 9 of 10 held-out ones exceed their prediction by at most: {percents}")
    return Answer(document, "\n".join(lines))


def _stored(options: DatabaseOptions, device: str, error: InputError) -> list[Measurement]:
    """The measurements of a device in the database. ``error``: the error about missing shipped measurements.
    InputError: the database has none either."""
    from ptxgen.errors import InputError

    with options.reading() as database:
        rows = list(database.measurements(device=device)) if database is not None else []
    if not rows:
        raise InputError(f"{error}; {options.path} has none either: tune or collect adds them, --folder reads others")
    return rows


@command(
    model, "vendor", "vendor-1.jsonl.xz --time-limit 120", "vendor-2.jsonl.xz --seed 1 --mixture conv=1", tables=False
)
def vendor(
    options: Common,
    out: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The file that is written: <device>/vendor-NAME.jsonl.xz."),
        OUTPUT_FILE,
    ],
    problems: Annotated[int | None, typer.Option(min=1, help="Number of problems. [default: no limit]")] = None,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End after this time. [default: no limit]")
    ] = None,
    shapes_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The problems of this file, one JSON object per line, not random ones."),
    ] = None,
    seed: SeedOption = 0,
    mixture: MixtureOption = None,
    dtypes: DtypesOption = None,
    max_extent: MaxExtentOption = None,
    devices: DevicesOption = "0",
    children: ChildrenOption = None,
) -> Answer:
    """Time the vendors' libraries on random problems.

    Times the algorithm that the heuristic of a library names, after a check of its result: what a program without
    tuning gets. model train --vendor trains a model on such files, by which calls use the library where it is predicted
    to be faster.
    """
    import datetime
    import math
    from dataclasses import replace
    from itertools import islice

    from ptxgen.cli.collect import generator, limits_of
    from ptxgen.cli.revision import revision
    from ptxgen.errors import InputError, UnavailableError
    from ptxgen.problem.operation import operations
    from ptxgen.problem.suites import read
    from ptxgen.runtime.open_driver import open_driver
    from ptxgen.settings import settings
    from ptxgen.tuning.collect.collect import MeasuringProcesses, read_devices
    from ptxgen.tuning.collect.vendor_times import collect as collect_times
    from ptxgen.tuning.deadline import Deadline, stop_on_signals
    from ptxgen.tuning.store import vendor_files
    from ptxgen.tuning.store.exchange import Header

    if time_limit is not None and not time_limit > 0:
        raise InputError(f"time-limit is {time_limit:g}; it must be positive")
    if time_limit is None and problems is None and shapes_file is None:
        raise InputError("problems, time-limit and shapes-file are absent; one of them must end the run")
    numbers, driver = read_devices(devices), settings().driver
    opened = open_driver(driver)
    clock, device = opened.clock, opened.device.name
    libraries = [
        b for o in operations() for b in o.baselines.values() if b.calls and (clock == "hardware" or b.emulated)
    ]
    versions = sorted({version for b in libraries if b.calls and (version := b.calls.version())})
    if not versions:
        names = ", ".join(sorted({b.title for o in operations() for b in o.baselines.values() if b.calls}))
        raise UnavailableError(f"no library of {names} is there for {device}; doctor says what is missing")
    given: Iterable[Any] = replace(generator(seed, mixture, dtypes), limits=limits_of(clock, max_extent))
    if shapes_file is not None:
        with open_lines(shapes_file) as lines:
            given = [case.problem for case in read(lines, str(shapes_file), "")]
        if not given:
            raise no_problem(shapes_file)
    deadline = Deadline(math.inf if time_limit is None else time_limit)
    with (
        shown_progress() as progress,
        MeasuringProcesses(driver, numbers, children, revision()) as processes,
        stop_on_signals(deadline),
    ):
        progress.phase("vendor", problems or 0)
        done = collect_times(processes, islice(given, problems), clock, deadline, progress)
    parts = {"problems": problems, "time-limit": time_limit, "shapes-file": shapes_file and shapes_file.name}
    parts |= {"seed": seed or None, "mixture": mixture, "dtypes": dtypes, "max-extent": max_extent}
    command_text = " ".join(
        [
            "ptxgen model vendor",
            *(
                f"--{name} {value:g}" if isinstance(value, float) else f"--{name} {value}"
                for name, value in parts.items()
                if value
            ),
        ]
    )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    count = vendor_files.write(out, Header(device, clock, revision(), command_text, today), done.rows)
    failed = dict(done.failed.most_common())
    document = {
        "command": "model vendor",
        "device": device,
        "clock": clock,
        "file": out,
        "libraries": versions,
        "measurements": count,
        "failed": failed,
        "without": done.without,
    }
    text = [f"{out}: {count} times of {', '.join(versions)} on {device}"]
    text += [f"{number} failed: {why}" for why, number in failed.items()]
    text += [f"{done.without} problems of operations without a library for calls"] if done.without else []
    deadline.raise_for_signal()
    return Answer(document, "\n".join(text))


@command(model, "evaluate", "--no-curve", "--device h200 --samples --perceptrons 10000 --json")
def evaluate(
    options: Common,
    path: Annotated[
        Path | None,
        typer.Argument(help="A file measurements.jsonl.xz. [default: the shipped one of the device]"),
        INPUT_FILE,
    ] = None,
    device: Annotated[str, typer.Option(help="The device whose measurements are used.")] = "h200",
    folds: Annotated[int, typer.Option(min=2, help="Parts of the problems; each is held out once.")] = 4,
    target: Annotated[
        str, typer.Option(help="Baseline of times: time (none), roofline, clock (the performance model) or average.")
    ] = "average",
    curve: Annotated[bool, typer.Option("--curve/--no-curve", help="Train on fractions of the problems, too.")] = True,
    samples: Annotated[
        bool, typer.Option("--samples/--no-samples", help="Train on growing numbers of rows, too (Figure 5).")
    ] = False,
    perceptrons: Annotated[
        int,
        typer.Option(
            metavar="ROWS",
            min=0,
            help="Train the perceptrons of Table 2, and the trees, on this number of random rows, too; 0: do not.",
        ),
        PERCEPTRONS,
    ] = 0,
) -> Answer:
    """Cross-validate the model on problems held out of training.

    Ranks the measured configurations of each problem with a model that was trained without it, and compares the choice
    with the fastest. All numbers are offline: nothing is timed. Takes minutes, and needs no GPU. Figure 5 and Table 2
    are those of the paper; `paper figure5 --from` and `paper table2 --from` draw them from the JSON document.
    """
    from ptxgen.cli import report
    from ptxgen.errors import InputError
    from ptxgen.problem.device import device as device_named
    from ptxgen.tuning.model import evaluation
    from ptxgen.tuning.model.perceptron import HIDDEN_LAYERS
    from ptxgen.tuning.model.training import TARGETS, Training
    from ptxgen.tuning.store import tuning_files

    if target not in TARGETS:
        raise InputError(f"target is {target!r}; it must be one of {', '.join(TARGETS)}")
    facts = device_named(device)
    files = [path] if path else tuning_files.existing_measurements(facts.name)
    with shown_progress() as progress:
        rows = Training.gather(tuning_files.read_all(files), facts)
        if rows.groups < folds:
            raise InputError(
                f"{files[0]} has {rows.groups} problems with usable rows for {device}; {folds} folds need more"
            )
        extra = curve * len(evaluation.FRACTIONS) + samples * evaluation.HALVINGS * folds
        extra += bool(perceptrons) * (2 * len(HIDDEN_LAYERS) + 1 + evaluation.HALVINGS * folds)
        progress.phase("train", folds + extra)
        predicted = evaluation.cross_validate(rows, target, folds, progress.step)
        points = evaluation.learning_curve(rows, target, folds, progress.step) if curve else []
        by_samples = evaluation.sample_curve(rows, target, folds, progress.step) if samples else []
        networks: list[evaluation.Regressor] = []
        if perceptrons:
            networks = evaluation.architectures(rows, target, folds, perceptrons, progress.step)
            by_samples += evaluation.sample_curve(rows, target, folds, progress.step, HIDDEN_LAYERS[-1], perceptrons)
    document = {
        **_evaluated(device, files[0], folds, rows),
        "error": evaluation.error(rows, predicted),
        "scores": [asdict(s) for s in evaluation.scores(rows, predicted)],
        "curve": [asdict(p) for p in points],
        "samples": [asdict(r) for r in by_samples],
        "architectures": [asdict(r) for r in networks],
    }
    return Answer(document, report.evaluation_text(document))


def _evaluated(device: str, file: Any, folds: int, rows: Any) -> dict[str, Any]:
    """The fields of a document that describe the measurements on which regressors are evaluated."""
    counts = {"problems": rows.groups, "rows": len(rows.log_us)}
    return {"command": "model evaluate", "device": device, "file": file, "folds": folds, **counts}


def compare_regressors(device: str, folds: int, target: str, samples: int, seeds: int, jobs: int) -> Answer:
    """The part of ``model evaluate`` that compares perceptrons with the trees (Table 2). ``samples``: the number of
    training rows; twice as many problems are read; ``seeds``, ``jobs``: arguments of ``evaluation.architectures``.
    InputError: there are too few measurements. UnavailableError: scikit-learn is missing."""
    from ptxgen.tuning.model import evaluation
    from ptxgen.tuning.model.perceptron import HIDDEN_LAYERS

    perceptrons_available("perceptrons", samples)
    with shown_progress() as progress:
        rows, head = _drawn_problems(device, folds, samples)
        progress.phase("train", seeds * (2 * len(HIDDEN_LAYERS) + 1))
        compared = evaluation.architectures(rows, target, folds, samples, progress.step, seeds, jobs)
    return Answer({**head, "architectures": [asdict(r) for r in compared]}, "")


def compare_sample_curves(
    device: str, folds: int, target: str, samples: int | None, perceptron: bool, jobs: int
) -> Answer:
    """The part of ``model evaluate`` with errors by the number of training rows (Figure 5), of the trees and of the
    largest perceptron of Table 2. ``samples``: the most rows; None: all; ``perceptron``: False leaves out the
    perceptron; ``jobs``: an argument of ``evaluation.architectures``. InputError: there are too few measurements.
    UnavailableError: scikit-learn is missing."""
    from ptxgen.tuning.model import evaluation
    from ptxgen.tuning.model.perceptron import HIDDEN_LAYERS

    perceptrons_available("perceptrons", int(perceptron))
    regressors = ((), HIDDEN_LAYERS[-1]) if perceptron else ((),)
    curves = []
    with shown_progress() as progress:
        rows, head = _drawn_problems(device, folds, samples)
        progress.phase("train", len(regressors) * evaluation.HALVINGS * folds)
        for hidden in regressors:
            curves += evaluation.sample_curve(rows, target, folds, progress.step, hidden, samples, jobs)
    return Answer({**head, "samples": [asdict(r) for r in curves]}, "")


def _drawn_problems(device: str, folds: int, samples: int | None) -> tuple[Training, dict[str, Any]]:
    """The measurements of random problems, twice as many as ``samples`` (None: all problems), and the fields of a
    document that describe them. InputError: there are too few problems for ``folds``."""
    import numpy as np

    from ptxgen.errors import InputError
    from ptxgen.problem.device import device as device_named
    from ptxgen.problem.registry import parse
    from ptxgen.tuning.model.training import SEED, Training
    from ptxgen.tuning.store import tuning_files

    facts = device_named(device)
    files = tuning_files.existing_measurements(facts.name)
    keys = tuning_files.measured_problems(files)
    count = len(keys) if samples is None else min(max(LEAST_PROBLEMS, 2 * samples), len(keys))
    drawn = np.random.default_rng(SEED).permutation(len(keys))[:count]
    rows = Training.gather(tuning_files.read_all(files, {parse(keys[i]) for i in drawn}), facts)
    if rows.groups < folds:
        raise InputError(
            f"{files[0]} has {rows.groups} problems with usable rows for {device}; {folds} folds need more"
        )
    return rows, _evaluated(device, files[0], folds, rows)


@command(model, "validate", "--problems 100 --time-limit 600", "--from rows.jsonl")
def validate(
    options: DatabaseOptions,
    problems: Annotated[int, typer.Option(min=1, help="Number of random problems.")] = 450,
    seed: SeedOption = 0,
    mixture: MixtureOption = None,
    dtypes: DtypesOption = None,
    max_extent: MaxExtentOption = None,
    configurations: Annotated[int, typer.Option(min=1, help="Configurations to time per problem.")] = 100,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End the measurements before the comparison after this time."),
    ] = None,
    vendor: Annotated[bool, typer.Option("--vendor/--no-vendor", help="Time the vendor's library, too.")] = True,
    devices: DevicesOption = "0",
    jobs: JobsOption = None,
    children: ChildrenOption = None,
    rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one JSON object per problem, as soon as it is complete."),
        OUTPUT_FILE,
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Summarize a file that --rows wrote; time nothing."),
        INPUT_FILE,
    ] = None,
) -> Answer:
    """Time the model's choices for problems that were never measured.

    Draws random problems that are not in the shipped measurements, and times many configurations of each. Then times
    in turn the model's choice, the fastest of the 8 configurations that PTXGEN_TUNE=first times, the fastest of all
    configurations, and the best candidate of the vendor's library. The measurements are stored in the database.
    """
    import json
    import math
    from contextlib import ExitStack
    from dataclasses import replace
    from itertools import islice

    from ptxgen.cli.collect import generator, limits_of
    from ptxgen.cli.revision import revision
    from ptxgen.errors import InputError
    from ptxgen.runtime.open_driver import open_driver
    from ptxgen.settings import settings
    from ptxgen.tuning.choice.models import model_folder
    from ptxgen.tuning.collect import collect, validation
    from ptxgen.tuning.collect.executor import DevicePoolOptions
    from ptxgen.tuning.progress import counted
    from ptxgen.tuning.store import tuning_files
    from ptxgen.tuning.store.database import Database

    if source is not None:
        return _validated(*validation.read_rows(source))
    if time_limit is not None and not time_limit > 0:
        raise InputError(f"time-limit is {time_limit:g}; it must be positive")
    budget, numbers = collect.CollectBudget(configurations, seed=seed), collect.read_devices(devices)
    random, driver = generator(seed, mixture, dtypes), settings().driver
    opened = open_driver(driver)
    limits, device = limits_of(opened.clock, max_extent), opened.device.name
    warn_if_emulated(opened.clock, f"for {counted(problems, 'problem')}", "PTXGEN_DRIVER=emulated")
    vendor = vendor and opened.clock == "hardware"
    known = {m.problem for m in tuning_files.read_all(tuning_files.measurement_files(device))}
    drawn = list(islice((p for p in replace(random, limits=limits) if p not in known), problems))
    with ExitStack() as stack:
        database, progress = stack.enter_context(Database(options.path)), stack.enter_context(shown_progress())
        header = {"device": device, "seed": seed, "commit": revision()}
        lines = stack.enter_context(rows.open("w", buffering=1)) if rows is not None else None
        if lines is not None:
            lines.write(json.dumps(header) + "\n")

        def keep(row: validation.Validated) -> None:
            if lines is not None:
                lines.write(json.dumps(row.as_dict()) + "\n")

        models = model_folder(database, "").parent
        arguments = DevicePoolOptions(budget, driver, numbers, jobs, models, revision(), children)
        validated = validation.Validator(database, arguments, vendor, progress).run(drawn, time_limit or math.inf, keep)
    return _validated(header, validated)


def _validated(header: dict[str, Any], rows: list[Validated]) -> Answer:
    from ptxgen.cli import report
    from ptxgen.tuning.collect import validation

    document = {
        "command": "model validate",
        "device": header["device"],
        "seed": header.get("seed"),
        "problems": len(rows),
        "configurations": sum(row.measured for row in rows),
        "scores": [asdict(s) for s in validation.summaries(rows)],
    }
    return Answer(document, report.validation_text(document))
