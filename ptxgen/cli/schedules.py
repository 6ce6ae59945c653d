"""The commands on problems with ``--schedule tlp``: the tile policy of Zhang et al. for grouped products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ptxgen.cli.command import Answer
from ptxgen.cli.options import Target
from ptxgen.cli.progress import progress as shown_progress
from ptxgen.errors import InputError, LaunchError

if TYPE_CHECKING:
    from ptxgen.cli.tables import Parts
    from ptxgen.operations.grouped.tlp_schedule import TlpSchedule
    from ptxgen.problem.grouped import GroupedGemm
    from ptxgen.problem.suites import Case

SCHEDULES = ("tlp",)


def require(schedule: str, config: str | None = None) -> None:
    """InputError: there is no such schedule, or a configuration is given with it."""
    if schedule not in SCHEDULES:
        raise InputError(f"schedule is {schedule!r}; it must be {' or '.join(SCHEDULES)}")
    if config is not None:
        raise InputError(f"config and schedule are given; schedule {schedule} has a configuration for each tile")


def select(target: Target) -> Answer:
    """The tiles that Algorithm 1 chooses for each problem."""
    from ptxgen.operations.grouped.tlp_schedule import TlpSchedule, threshold_of

    device = target.find_device()
    limit = threshold_of(device, target.path)
    rows = [_fields(case, TlpSchedule.choose(p, device, limit)) for case, p in _stepped("select", _groups(target))]
    document = {"command": "select", "schedule": "tlp", "device": device.name, "threshold": limit, "rows": rows}
    return Answer(document, _text(document, (), lambda row: []))


def emit(target: Target) -> Answer:
    """The PTX of the kernel of each tile that occurs, the largest first."""
    from ptxgen.cli import report
    from ptxgen.operations.grouped.tlp_schedule import TlpSchedule, threshold_of

    cases, device = _groups(target), target.find_device()
    if len(cases) != 1:
        raise InputError(f"{len(cases)} problems are given; emit takes one")
    [(case, problem)] = cases
    schedule = TlpSchedule.choose(problem, device, threshold_of(device, target.path))
    kernels = [{"tile": name, "digest": source.digest, "ptx": source.text} for name, source in schedule.sources()]
    document = {
        "command": "emit",
        "schedule": "tlp",
        "device": device.name,
        **report.problem_fields(case),
        "kernels": kernels,
    }
    return Answer(document, "\n".join(str(kernel["ptx"]) for kernel in kernels))


def check(target: Target, seed: int) -> Answer:
    """Compares the results of the schedule with float64."""
    from ptxgen.cli import report
    from ptxgen.operations.grouped.tlp_schedule import TlpBaseline, TlpSchedule, threshold_of

    driver, rows = target.find_driver(), []
    limit = threshold_of(driver.device, target.path)
    for case, problem in _stepped("check", _groups(target)):
        schedule = TlpSchedule.choose(problem, driver.device, limit)
        results = [
            {"kind": r.kind, **report.deviation_fields(r.deviation)}
            for r in TlpBaseline(driver, problem, schedule=schedule).check(seed)
        ]
        rows.append({**_fields(case, schedule), "results": results, "ok": all(r["ok"] for r in results)})
    document = {
        "command": "check",
        "schedule": "tlp",
        "device": driver.device.name,
        "clock": driver.clock,
        "rows": rows,
    }
    return Answer(document, report.check_text(document), int(not all(row["ok"] for row in rows)))


def bench(target: Target) -> Answer:
    """Times the schedule, after a check of its results, and the host's choice of tiles."""
    from ptxgen.operations.grouped.tlp_schedule import TlpSchedule, choice_us, threshold_of

    driver, rows = target.find_driver(), []
    limit = threshold_of(driver.device, target.path)
    for case, problem in _stepped("bench", _groups(target)):
        schedule = TlpSchedule.choose(problem, driver.device, limit)
        [(us, deviation)] = _timed(driver, [schedule])
        rows.append(
            {
                **_fields(case, schedule),
                "us": us,
                "tflops": problem.flops / us * 1e-6 if us else None,
                "scheduling_us": choice_us(problem, driver.device),
                "deviation": deviation,
                "ok": deviation["ok"],
            }
        )
    document = {
        "command": "bench",
        "schedule": "tlp",
        "device": driver.device.name,
        "clock": driver.clock,
        "threshold": limit,
        "rows": rows,
    }
    titles = ("µs", "TFLOP/s", "scheduling µs")
    text = _text(document, titles, lambda r: [r["us"], r["tflops"], r["scheduling_us"]])
    return Answer(document, text, int(not all(row["ok"] for row in rows)))


def tune(target: Target) -> Answer:
    """Times every schedule that Algorithm 1 visits, and stores the device's threshold with the least mean time."""
    from ptxgen.cli import report
    from ptxgen.lowering.tlp_policy import tune_threshold
    from ptxgen.operations.grouped.tlp_schedule import TlpSchedule, threshold_file, thresholds
    from ptxgen.tuning.store.exchange import replacing

    driver, rows, measured = target.find_driver(), [], []
    name = driver.device.name
    known = thresholds(target.path)
    cases = _groups(target, "small" if driver.clock == "model" else "batchgemm")
    lists = [(case, problem) for case, problem in cases if not problem.jagged]
    if not lists:
        raise InputError("every problem is jagged; schedule tlp is for lists of products")
    for case, problem in _stepped("tune", lists):
        schedules = list(TlpSchedule.every(problem, driver.device))
        times = [us for us, _ in _timed(driver, schedules)]
        measured.append([(s.scheme.tlp, us) for s, us in zip(schedules, times, strict=True)])
        fastest = min(range(len(times)), key=times.__getitem__)
        rows.append({**_fields(case, schedules[fastest]), "us": times[fastest], "measured": len(times)})
    limit = tune_threshold(measured)
    path = threshold_file(target.path)
    with replacing(path) as file:
        file.write(report.to_json({**known, name: limit}).encode())
    document = {
        "command": "tune",
        "schedule": "tlp",
        "device": name,
        "clock": driver.clock,
        "threshold": limit,
        "stored": path,
        "rows": rows,
    }
    parts = _text(document, ("µs", "measured"), lambda r: [r["us"], r["measured"]])
    return Answer(document, [*parts, f"stored in {path}"])


def _groups(target: Target, suite: str = "") -> list[tuple[Case, GroupedGemm]]:
    """The cases, with their problems. ``suite``: the one to take without a problem. InputError: one has another
    operation."""
    from ptxgen.problem.grouped import GroupedGemm

    found = []
    for case in target.cases(suite):
        if not isinstance(case.problem, GroupedGemm):
            raise InputError(f"schedule tlp is for grouped; operation {case.problem.operation} has none")
        found.append((case, case.problem))
    return found


def _stepped(name: str, groups: list[tuple[Case, GroupedGemm]]) -> Iterator[tuple[Case, GroupedGemm]]:
    """``groups``, each of which is a step of a phase of the progress."""
    with shown_progress(name, len(groups)) as progress:
        for case, problem in groups:
            yield case, problem
            progress.step(case.name)


def _timed(driver: Any, schedules: list[TlpSchedule]) -> Iterator[tuple[float, dict[str, Any]]]:
    """(microseconds, deviation from float64) of each schedule of one problem. LaunchError: a result is wrong."""
    from ptxgen.cli import report
    from ptxgen.operations.grouped.tlp_schedule import TlpBaseline
    from ptxgen.tuning.measure.bench import FINAL_TIMING, Bench, full_check_elements

    problem = schedules[0].problem
    operands = Bench(driver).operand_sets_for(problem, FINAL_TIMING)
    try:
        for schedule in schedules:
            launches = TlpBaseline(driver, problem, schedule=schedule)
            operands.poison()
            launches.run(launches.steps(operands.sets[0]))
            driver.synchronize()
            deviation = operands.deviation(full_check_elements(problem))
            if not deviation.ok:
                raise LaunchError(f"{problem.key()}: the result of schedule tlp is wrong: {deviation}")
            yield launches.best(operands.sets, FINAL_TIMING).best, report.deviation_fields(deviation)
    finally:
        operands.release()


def _fields(case: Case, schedule: TlpSchedule) -> dict[str, Any]:
    from ptxgen.cli import report

    return {**report.problem_fields(case), **schedule.facts()}


def _text(document: dict[str, Any], titles: tuple[str, ...], cells: Callable[[dict[str, Any]], list[Any]]) -> Parts:
    """A table of schedules, with further columns, and the threshold."""
    from ptxgen.cli import report
    from ptxgen.cli.tables import Table

    rows = []
    for r in document["rows"]:
        tiles = ", ".join(f"{t['items']} {t['tile']}" for t in r["tiles"])
        blocks = sum(t["blocks"] for t in r["tiles"])
        rows.append([*report.shape_cells(r), tiles, blocks, r["idle_blocks"], r["tlp"], *cells(r)])
    heads = (*report.shape_titles(document), "items by tile", "blocks", "idle blocks", "TLP", *titles)
    notes = [report.MODEL_CLOCK] if document.get("clock") == "model" else []
    limit = f"threshold of TLP: {document['threshold']}"
    return [Table(heads, rows, ("column-major",)), limit, f"device: {document['device']}", *notes]
