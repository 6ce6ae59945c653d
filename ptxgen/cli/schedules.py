"""The commands on problems with ``--schedule``, which selects a way to compute them other than one tuned kernel."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ptxgen.cli.command import Answer
from ptxgen.cli.options import Target
from ptxgen.cli.progress import progress as shown_progress
from ptxgen.errors import InputError, LaunchError

if TYPE_CHECKING:
    from pathlib import Path

    from ptxgen.cli.tables import Parts
    from ptxgen.problem.device import Device
    from ptxgen.problem.operation import Schedule
    from ptxgen.problem.suites import Case


def require(schedule: str, config: str | None = None) -> None:
    """Requires the name of a schedule, and no configuration. InputError: there is no such schedule, or ``config`` is
    given."""
    from ptxgen.arguments import word
    from ptxgen.problem.operation import operations

    word("schedule", schedule, dict.fromkeys(name for operation in operations() for name in operation.schedules))
    if config is not None:
        raise InputError(f"config and schedule are given; schedule {schedule} has a configuration for each tile")


def select(target: Target, name: str) -> Answer:
    """The answer of ``select --schedule``: what the schedule chooses for each problem."""
    device = target.find_device()
    schedule, cases = _cases(target, name)
    skipped = Skipped()
    rows = [_fields(*chosen) for chosen in _chosen("select", schedule, cases, device, target.path, skipped)]
    document = {**_head("select", name, device.name), **schedule.settings(device, target.path), "rows": rows, **skipped}
    return Answer(document, _text(schedule, document, (), lambda row: []))


def emit(target: Target, name: str) -> Answer:
    """The answer of ``emit --schedule``: the PTX of each kernel."""
    from ptxgen.cli import report

    (schedule, cases), device = _cases(target, name), target.find_device()
    if len(cases) != 1:
        raise InputError(f"{len(cases)} problems are given; emit takes one")
    [case] = cases
    sources = schedule.choose(case.problem, device, target.path).sources()
    kernels = [{"tile": tile, "digest": source.digest, "ptx": source.text} for tile, source in sources]
    document = {**_head("emit", name, device.name), **report.problem_fields(case), "kernels": kernels}
    return Answer(document, "\n".join(str(kernel["ptx"]) for kernel in kernels))


def check(target: Target, name: str, seed: int) -> Answer:
    """The answer of ``check --schedule``: the comparison of the results with float64."""
    from ptxgen.cli import report

    driver, rows, skipped = target.find_driver(), [], Skipped()
    schedule, cases = _cases(target, name)
    for case, choice in _chosen("check", schedule, cases, driver.device, target.path, skipped):
        deviation = schedule.launches(driver, choice).check(seed)
        results = [{"kind": r.inputs, **report.deviation_fields(r.deviation)} for r in deviation]
        rows.append({**_fields(case, choice), "results": results, "ok": all(r["ok"] for r in results)})
    document = {**_head("check", name, driver.device.name), "clock": driver.clock, "rows": rows, **skipped}
    text = [*report.check_text(document), *_skipped_lines(document)]
    return Answer(document, text, int(not all(row["ok"] for row in rows)))


def bench(target: Target, name: str) -> Answer:
    """The answer of ``bench --schedule``: times of the schedule, after a check of its results, and of the host's
    choice."""
    driver, rows, skipped = target.find_driver(), [], Skipped()
    schedule, cases = _cases(target, name)
    for case, choice in _chosen("bench", schedule, cases, driver.device, target.path, skipped):
        problem = case.problem
        [(us, deviation)] = _timed(driver, schedule, [choice])
        choice_us = schedule.choice_us(problem, driver.device, target.path)
        rows.append(
            {
                **_fields(case, choice),
                "us": us,
                "tflops": problem.flops / us * 1e-6 if us else None,
                "scheduling_us": choice_us,
                "scheduling_percent": 100 * choice_us / (choice_us + us),
                "deviation": deviation,
                "ok": deviation["ok"],
            }
        )
    head = {**_head("bench", name, driver.device.name), "clock": driver.clock}
    document = {**head, **schedule.settings(driver.device, target.path), "rows": rows, **skipped}
    titles = ("µs", "TFLOP/s", "scheduling µs", "scheduling %")

    def cells(row: dict[str, Any]) -> list[Any]:
        return [row["us"], row["tflops"], row["scheduling_us"], row["scheduling_percent"]]

    text = _text(schedule, document, titles, cells)
    return Answer(document, text, int(not all(row["ok"] for row in rows)))


def tune(target: Target, name: str, shard: str | None = None, seconds: float | None = None, seed: int = 0) -> Answer:
    """Times every choice of the schedule, and stores the settings with the least mean time for the device. ``shard``:
    the part of the problems to measure; ``seconds``: the time after which no further problem is started; problems are
    then in random order, from ``seed``."""
    from ptxgen.cli import report
    from ptxgen.tuning.deadline import Deadline
    from ptxgen.tuning.search.shard import Shard
    from ptxgen.tuning.store.exchange import replacing

    part = Shard.parse(shard) if shard is not None else Shard()
    driver = target.find_driver()
    rows: list[dict[str, Any]] = []
    measured: list[list[tuple[Any, float]]] = []
    schedule, cases = _cases(target, name, driver.clock)
    tuned = [case for case in cases if schedule.tunes(case.problem)]
    if not tuned:
        raise InputError(schedule.none_tuned)
    tuned = [case for case in tuned if part.contains(case.problem)]
    if not tuned:
        raise InputError(f"shard is {shard}; none of the problems is in it")
    if seconds is not None:
        random.Random(seed).shuffle(tuned)
    deadline = Deadline(math.inf if seconds is None else seconds)
    for case in _stepped("tune", tuned):
        if measured and deadline.passed:
            break
        choices = list(schedule.every(case.problem, driver.device))
        times = [us for us, _ in _timed(driver, schedule, choices)]
        measured.append(list(zip(choices, times, strict=True)))
        fastest = min(range(len(times)), key=times.__getitem__)
        rows.append({**_fields(case, choices[fastest]), "us": times[fastest], "measured": len(times)})
    settings, path, stored = schedule.tuned(measured, driver.device, target.path)
    with replacing(path) as file:
        file.write(report.to_json(stored).encode())
    head = {**_head("tune", name, driver.device.name), "clock": driver.clock}
    document = {**head, **settings, "stored": path, "problems": len(tuned), "rows": rows}
    parts = _text(schedule, document, ("µs", "measured"), lambda r: [r["us"], r["measured"]])
    limited = (
        [f"{len(rows)} of {len(tuned)} problems were timed within {seconds:g} s"] if len(rows) < len(tuned) else []
    )
    return Answer(document, [*parts, *limited, f"stored in {path}"])


def _head(command: str, schedule: str, device: str) -> dict[str, Any]:
    return {"command": command, "schedule": schedule, "device": device}


def _cases(target: Target, name: str, clock: str = "") -> tuple[Schedule, list[Case]]:
    """The schedule ``name``, and the selected cases. ``clock``: the clock of the driver, which determines the default
    suite; empty: there is no default. InputError: the operation of a problem does not have the schedule."""
    from ptxgen.problem.operation import operation_of, operations

    having = [operation for operation in operations() if name in operation.schedules]
    schedule = having[0].schedules[name].load()
    cases = target.cases({"": "", "model": "small"}.get(clock, schedule.suite))
    for case in cases:
        if name not in operation_of(case.problem).schedules:
            names = " or ".join(operation.name for operation in having)
            raise InputError(f"schedule {name} is for {names}; operation {case.problem.operation} has none")
    return schedule, cases


def _stepped(name: str, cases: list[Case]) -> Iterator[Case]:
    """Yields ``cases``, and shows their progress as the phase ``name``."""
    with shown_progress(name, len(cases)) as progress:
        for case in cases:
            yield case
            progress.step(case.name)


class Skipped(dict[str, list[dict[str, str]]]):
    """The field ``skipped`` of a document: name and reason of each problem that the schedule does not compute. Without
    such a problem the dictionary is empty, and the document has no such field."""

    def add(self, case: Case, reason: str) -> None:
        self.setdefault("skipped", []).append({"name": case.name, "reason": reason})


def _chosen(
    command: str, schedule: Schedule, cases: list[Case], device: Device, database: Path, skipped: Skipped
) -> Iterator[tuple[Case, Any]]:
    """Yields each case with the schedule's choice, and adds cases that the schedule does not compute to ``skipped``.
    LaunchError: the schedule computes none of the cases."""
    refused = None
    for case in _stepped(command, cases):
        try:
            choice = schedule.choose(case.problem, device, database)
        except LaunchError as error:
            skipped.add(case, str(error))
            refused = error
            continue
        yield case, choice
    if refused is not None and len(skipped["skipped"]) == len(cases):
        raise refused


def _skipped_lines(document: dict[str, Any]) -> list[str]:
    return [f"skipped {row['name']}: {row['reason']}" for row in document.get("skipped", ())]


def _timed(driver: Any, schedule: Schedule, choices: list[Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    """For each choice for one problem: its time in microseconds, and its deviation from float64. LaunchError: a result
    is wrong."""
    from ptxgen.cli import report
    from ptxgen.tuning.measure.bench import CHECKED_ELEMENTS, FINAL_TIMING, Bench, full_check_elements

    problem = choices[0].problem
    elements = full_check_elements(problem) if len(choices) == 1 else CHECKED_ELEMENTS
    operands = Bench(driver).operand_sets_for(problem, FINAL_TIMING)
    try:
        for choice in choices:
            launches = schedule.launches(driver, choice)
            operands.poison()
            launches.run(launches.steps(operands.sets[0]))
            driver.synchronize()
            deviation = operands.deviation(elements)
            if not deviation.ok:
                raise LaunchError(f"{problem.key()}: the result of schedule {schedule.name} is wrong: {deviation}")
            yield launches.best(operands.sets, FINAL_TIMING).best, report.deviation_fields(deviation)
    finally:
        operands.release()


def _fields(case: Case, choice: Any) -> dict[str, Any]:
    from ptxgen.cli import report

    return {**report.problem_fields(case), **choice.facts()}


def _text(
    schedule: Schedule,
    document: dict[str, Any],
    titles: tuple[str, ...],
    cells: Callable[[dict[str, Any]], list[Any]],
) -> Parts:
    """The text with a table of choices, and with the settings. ``titles``, ``cells``: further columns."""
    from ptxgen.cli import report
    from ptxgen.cli.tables import Table

    rows = [[*report.shape_cells(r), *schedule.cells(r), *cells(r)] for r in document["rows"]]
    heads = (*report.shape_titles(document), *schedule.titles, *titles)
    notes = [report.MODEL_CLOCK] if document.get("clock") == "model" else []
    limits = schedule.settings_text(document)
    return [
        Table(heads, rows, ("column-major",)),
        limits,
        f"device: {document['device']}",
        *notes,
        *_skipped_lines(document),
    ]
