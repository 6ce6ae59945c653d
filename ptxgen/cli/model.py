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
    target: Annotated[
        str, typer.Option(help="Baseline of times: time (none), roofline or clock (the performance model).")
    ] = "clock",
    curve: Annotated[bool, typer.Option("--curve/--no-curve", help="Train on fractions of the problems, too.")] = True,
) -> Answer:
    """Cross-validate the model on problems held out of training.

    Ranks the measured configurations of each problem with a model that was trained without it, and compares the choice
    with the fastest. All numbers are offline: nothing is timed. Takes minutes, and needs no GPU.
    """
    from ptxgen.cli import report
    from ptxgen.errors import InputError
    from ptxgen.problem.device import device as device_named
    from ptxgen.tuning import evaluation, tuning_files
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
        progress.phase("train", folds + curve * len(evaluation.FRACTIONS))
        predicted = evaluation.cross_validate(rows, target, folds, progress.step)
        points = evaluation.learning_curve(rows, target, folds, progress.step) if curve else []
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
    }
    return Answer(document, report.evaluation_text(document))
