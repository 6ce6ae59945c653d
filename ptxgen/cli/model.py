"""The commands on the trained model: model evaluate."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ptxgen.cli.command import Answer, Common, command, model


@command(model, "evaluate")
def evaluate(
    options: Common,
    path: Annotated[
        Path | None, typer.Argument(help="A file measurements.jsonl.xz. [default: the shipped one of the device]")
    ] = None,
    device: Annotated[str, typer.Option(help="The device whose measurements are used.")] = "h200",
    folds: Annotated[int, typer.Option(min=2, help="Parts of the problems; each is held out once.")] = 4,
    target: Annotated[str, typer.Option(help="What times are relative to: time, roofline or clock.")] = "clock",
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
    from ptxgen.tuning import evaluation, tuning_files
    from ptxgen.tuning.perceptron import HIDDEN_LAYERS
    from ptxgen.tuning.training import TARGETS, Training

    if target not in TARGETS:
        raise InputError(f"target is {target!r}; it must be one of {', '.join(TARGETS)}")
    file = path or tuning_files.measurements_path(device)
    with report.progress() as progress:
        rows = Training.gather(tuning_files.read_measurements(file)[1], device_named(device))
        if rows.groups < folds:
            raise InputError(
                f"{file} has {rows.groups} problems with usable rows for {device}; {folds} folds need more"
            )
        extra = curve * len(evaluation.FRACTIONS) + samples * evaluation.HALVINGS
        extra += bool(perceptrons) * (len(HIDDEN_LAYERS) + evaluation.HALVINGS)
        progress.phase("train", folds + extra)
        predicted = evaluation.cross_validate(rows, target, folds, progress.step)
        points = evaluation.learning_curve(rows, target, folds, progress.step) if curve else []
        by_samples = evaluation.sample_curve(rows, target, folds, progress.step) if samples else []
        networks: list[evaluation.Regressor] = []
        if perceptrons:
            networks = evaluation.architectures(rows, target, folds, perceptrons, progress.step)
            by_samples += evaluation.perceptron_curve(rows, target, folds, perceptrons, progress.step)
            by_samples += [r for r in networks if r.hidden == HIDDEN_LAYERS[-1]]
    document = {
        "command": "model evaluate",
        "device": device,
        "file": file,
        "folds": folds,
        "problems": rows.groups,
        "rows": len(rows.log_us),
        "error": evaluation.error(rows, predicted),
        "scores": [asdict(s) for s in evaluation.scores(rows, predicted)],
        "curve": [asdict(p) for p in points],
        "samples": [asdict(r) for r in by_samples],
        "architectures": [asdict(r) for r in networks],
    }
    return Answer(document, report.evaluation_text(document))
