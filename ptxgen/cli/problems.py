"""The commands on problems: ``tune``, ``select``, ``emit``, ``check``, ``bench`` and ``sampler``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ptxgen.cli.checks import OUTPUT_FILE
from ptxgen.cli.command import (
    TUNE_COMMANDS,
    UNDERSTAND_COMMANDS,
    USE_COMMANDS,
    Answer,
    app,
    command,
    command_line,
    exit_code,
    explain_interrupt,
)
from ptxgen.cli.options import (
    ConfigOption,
    ModelOption,
    ScheduleOption,
    SeedOption,
    ShardOption,
    Target,
    TimeLimitOption,
    emulated_time,
    note,
    time_limit_text,
)
from ptxgen.cli.progress import progress as shown_progress
from ptxgen.errors import ConfigError, InputError, UnavailableError

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.problem.device import Device
    from ptxgen.problem.operation import Case
    from ptxgen.problem.registry import Problem
    from ptxgen.tuning.selection import Selection
    from ptxgen.tuning.store.database import Database

#: arguments of a tuning budget of about two minutes on the emulated device
EMULATED_BUDGET = {
    "samples": 42,
    "search": 8,
    "refine_rounds": 1,
    "refine": 8,
    "keep": 1,
    "final": 1,
    "seconds": 100,
}


ObserveOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Observe energy, power or clock, separated by commas, while a kernel is repeated for a second: millijoules"
        " of a call, average watts, the clock of the multiprocessors.",
    ),
]
BENCH_LAUNCHES = 2  #: launches per problem of bench on the emulated device: the check, and one sample


def _given(text: str | None) -> Config | None:
    """The configuration that ``--config`` describes; None: the option is not given. ConfigError: ``text`` is no
    configuration."""
    from ptxgen.codegen.config.config import default_family, parse_config

    if text is None:
        return None
    if not text.strip():
        raise ConfigError(
            f"config is {text!r}; it must set an axis: 'family={default_family()}' is the default configuration", "axis"
        )
    return parse_config(text)


def _observers(observe: str | None) -> tuple[str, ...]:
    """The names of observers that ``--observe`` lists. InputError: a name is unknown."""
    from ptxgen.tuning.store.observation import observers

    return () if observe is None else observers(observe)


def _select(
    problem: Problem, device: Device, database: Database | None, config: Config | None, use_model: bool = False
) -> Selection:
    """The selection for a problem: ``config`` if given, else the stored or predicted configuration. ``use_model``: True
    ignores stored winners. ConfigError: ``config`` breaks a rule."""
    from ptxgen.families.common import rules
    from ptxgen.lowering.lower import lower
    from ptxgen.tuning import selection as dispatch

    if config is None:
        return dispatch.require(problem, device, database, use_model)[0]
    rules.require(lower(problem), config, device)
    return dispatch.Selection(problem, config, "given")


@command(
    app,
    "tune",
    "gemm --shape 784,128,512 --dtype f16",
    "gemm --shapes-file shapes.jsonl --time-limit 600",
    panel=TUNE_COMMANDS,
)
def tune(
    target: Target,
    samples: Annotated[
        int | None,
        typer.Option(min=0, help="Random configurations to time per problem. [default: 60; emulated device: 42]"),
    ] = None,
    search: Annotated[
        int | None,
        typer.Option(min=0, help="Top-ranked candidates to time per problem. [default: 100; emulated device: 8]"),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=0, help="Refinement rounds: time neighbours of the fastest. [default: 3; emulated device: 1]"),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            min=1, help="Configurations that a refinement round starts from. [default: 3; emulated device: 1]"
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Kernels to assemble in parallel. [default: number of cores]")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat measurements that failed in earlier runs.")] = False,
    time_limit: TimeLimitOption = None,
    shard: ShardOption = None,
    seed: SeedOption = 0,
    schedule: ScheduleOption = None,
    vendor: Annotated[
        str | None,
        typer.Option(help="Time the vendor's library, too: auto, never. [default: PTXGEN_VENDOR]"),
    ] = None,
    observe: ObserveOption = None,
    objective: Annotated[
        str, typer.Option(help="time, or energy: the winner is the one of the 16 fastest with the least energy.")
    ] = "time",
) -> Answer:
    """Find and store the fastest kernels.

    Times sampled configurations, trains a model on them, ranks every legal configuration with it, and times the best.
    The problem with the largest expected saving is measured next: its count in the shapes file, times its time, times
    the predicted gain. A problem is finished when the predicted gain is less than 1 %. Every measured problem has a
    winner at any time, which is never slower than the choice that it replaces. The default problems are the suite isaac
    on a GPU, and the suite small, for at most two minutes, on the emulated device. SIGINT (Ctrl-C) and SIGTERM end the
    run after the measurement in progress. Measurements in the database are not repeated: the same command continues the
    run.

    With --observe or --objective energy, the finalists are measured again while the GPU reports its energy; rows of the
    database have time and energy. Calls and select use the winner by time, unless PTXGEN_OBJECTIVE=energy.

    If cuBLASLt is installed, it is timed in the last comparison of a product; calls use it if it is faster. If calls
    compute a problem by several kernels, as sums in groups, these kernels are tuned. With --schedule, the settings of
    the schedule are tuned, on the problems of --shard, in random order until --time-limit.
    """
    if schedule is not None:
        from ptxgen.cli import schedules

        schedules.require(schedule)
        return schedules.tune(target, schedule, shard, time_limit, seed)
    import time
    from dataclasses import replace

    from ptxgen.arguments import word
    from ptxgen.cli import report
    from ptxgen.cli.revision import revision
    from ptxgen.problem.suites import as_called
    from ptxgen.settings import OBJECTIVES, VENDORS
    from ptxgen.tuning.deadline import Deadline, stop_on_signals
    from ptxgen.tuning.search import tuner
    from ptxgen.tuning.search.shard import Shard
    from ptxgen.tuning.store.database import Database

    part = Shard.parse(shard) if shard is not None else Shard()
    if vendor is not None:
        word("vendor", vendor, VENDORS)
    word("objective", objective, OBJECTIVES)
    observed = _observers("energy,power,clock" if objective == "energy" and observe is None else observe)
    driver = target.find_driver()
    if observed:
        driver.sensors()  # before the work
    emulated = driver.clock == "model"
    every = as_called(target.cases("small" if emulated else "isaac"))
    cases = [case for case in every if part.contains(case.problem)]
    chosen: dict[str, Any] = {
        "samples": samples,
        "search": search,
        "refine_rounds": rounds,
        "keep": keep,
        "seconds": time_limit,
    }
    start = tuner.Budget(**EMULATED_BUDGET) if emulated else tuner.Budget()
    budget = replace(start, **{name: value for name, value in chosen.items() if value is not None})
    target.warn_if_emulated(driver, time_limit_text(budget.seconds))
    weights: dict[Problem, float] = {}
    for case in cases:
        weights[case.problem] = weights.get(case.problem, 0.0) + case.count
    began, deadline = time.monotonic(), Deadline(budget.seconds)
    with Database(target.path) as database:
        before = database.info()["measurements"]

        def stored() -> str:
            new = database.info()["measurements"] - before
            winners = {m.problem for m in database.winners(driver.device.name, driver.clock)}
            return (
                f"{new} measurements of this run and winners of {sum(p in winners for p in weights)} of {len(weights)}"
                f" problems are stored in {database.path}; to continue: {command_line()}"
            )

        def notify(name: str) -> None:
            print(f"{name}: the run ends after this measurement; a second signal ends it at once", file=sys.stderr)

        with explain_interrupt(stored), shown_progress() as progress, stop_on_signals(deadline, notify):
            if emulated:
                progress.message(f"Tuning on the emulated device. {report.MODEL_CLOCK}")
            problems = [case.problem for case in cases]
            done = tuner.tune(
                problems,
                driver.name,
                database,
                budget,
                seed,
                progress,
                jobs,
                revision(),
                retry=retry,
                weights=weights,
                deadline=deadline,
                vendor=vendor,
                objective=objective,
                observed=bool(observed),
            )
            deadline.raise_for_signal()
    document = {
        "command": "tune",
        "device": driver.device.name,
        "clock": driver.clock,
        "database": target.path,
        "seconds": time.monotonic() - began,
        "rows": [report.tuned_fields(case, tuned, observed) for case, tuned in zip(cases, done, strict=True)],
    }
    missing = any(tuned.winner is None and (tuned.measured or not deadline.passed) for tuned in done)
    return Answer(document, report.tune_text(document), int(missing))


@command(
    app,
    "select",
    "gemm --shape 2560,16,2560 --column-major --device h200",
    "conv --suite isaac --layout NHWC --dtype f16 --device h200 --wide",
    panel=USE_COMMANDS,
)
def select(
    target: Target,
    model: ModelOption = False,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Score every legal configuration by the model; print what that costs.")
    ] = False,
    count: Annotated[int, typer.Option("--count", "-k", min=1, help="Number of configurations, best first.")] = 1,
    digest: Annotated[
        bool, typer.Option("--digest", help="Print only a digest of the choices, to compare machines or ranks.")
    ] = False,
    objective: Annotated[
        str | None,
        typer.Option(
            help="energy: the configuration with the least measured energy, if there is one; or time. [default:"
            " PTXGEN_OBJECTIVE]"
        ),
    ] = None,
    schedule: ScheduleOption = None,
) -> Answer:
    """Print the configuration that computes a problem.

    Stored winners have measured times; other configurations have the time that the model predicts. A problem that calls
    compute by several kernels, as sums in groups, has a row for each kernel. Needs no GPU: use --device h200.

    --exhaustive implies --model. It takes seconds, because the search otherwise scores only representatives of the
    configurations that may be fast.
    """
    if exhaustive and schedule is not None:
        raise InputError(f"exhaustive and schedule are given; schedule {schedule} has no configurations to score")
    if schedule is not None:
        from ptxgen.cli import schedules

        schedules.require(schedule)
        return schedules.select(target, schedule)
    from ptxgen.cli import report
    from ptxgen.problem.suites import as_called
    from ptxgen.tuning import selection
    from ptxgen.tuning.choice import winners
    from ptxgen.tuning.store.tuning_files import clock_of

    cases, device = as_called(target.cases()), target.find_device()
    selected, costs = [], []
    with target.reading() as database, shown_progress() as progress:
        progress.phase("select", len(cases))
        for case in cases:
            if exhaustive:
                every = selection.exhaustive(case.problem, device, database, count)
                selected += [(case, s) for s in every.best]
                costs.append(report.exhaustive_fields(case, every))
            else:
                selected += [
                    (case, s) for s in selection.require(case.problem, device, database, model, count, objective)
                ]
            progress.step(case.name)
    rows = [report.selection_fields(case, selection) for case, selection in selected]
    document: dict[str, Any] = {
        "command": "select",
        "device": device.name,
        "clock": clock_of(device.name),
        "rows": rows,
    }
    if exhaustive:
        document["exhaustive"] = costs
    if digest:
        kernels = ((s.problem, s.config, winners.current_digest(s.problem, s.config, device)) for _, s in selected)
        document["digest"] = selection.digest_of(kernels)
        return Answer(document, str(document["digest"]))
    return Answer(document, report.select_text(document))


@command(
    app,
    "emit",
    "gemm --shape 512,512,512 --layout TN --device sm_86",
    "gemm --shape 512,512,512 --device h200 --config 'ms=8 ns=8 ml=64 nl=64 u=16'",
    panel=USE_COMMANDS,
    tables=False,
)
def emit(target: Target, config: ConfigOption = None, schedule: ScheduleOption = None) -> Answer:
    """Print the PTX of the kernel for a problem.

    Needs no GPU: use --device h200.
    """
    if schedule is not None:
        from ptxgen.cli import schedules

        schedules.require(schedule, config)
        return schedules.emit(target, schedule)
    from ptxgen.cli import report
    from ptxgen.codegen.render import render, render_preparation
    from ptxgen.families.plan_factory import plan_for
    from ptxgen.lowering.lower import lower

    given, cases = _given(config), target.cases()
    if len(cases) != 1:
        raise InputError(f"{len(cases)} problems are given; emit takes one")
    [case], device = cases, target.find_device()
    with target.reading() as database, shown_progress("select", 1):
        selection = _select(case.problem, device, database, given)
    for line in report.extrapolation_notes(device.name, [(selection.origin, selection.scaled_from)]):
        note(f"the configuration is {line}")
    plan = plan_for(case.problem, selection.config, device)
    fields = report.selection_fields(case, selection)
    choice = report.choice_text(fields).replace("µ", "u")  # ptxas takes ASCII alone
    source, p = render(plan, choice), lower(case.problem)
    prepared = {type(each).__name__: render_preparation(each, device).text for each in plan.preparations}
    document = {
        "command": "emit",
        "device": device.name,
        **fields,
        "target": source.target,
        "digest": source.digest,
        "entries": source.entries,
        **({"preparations": prepared} if prepared else {}),
        "launch": plan.launch(p),
        "ptx": source.text,
    }
    return Answer(document, "\n".join((source.text, *prepared.values())))


@command(
    app,
    "check",
    "gemm --shape 33,65,127 --layout NT --device emulated",
    "conv --shape N=2,C=8,H=9,W=7,K=8,R=3,S=3,pad=1 --device emulated",
    panel=USE_COMMANDS,
)
def check(target: Target, config: ConfigOption = None, seed: SeedOption = 0, schedule: ScheduleOption = None) -> Answer:
    """Compare results with float64 references.

    Every element is compared, on inputs that expose errors.
    """
    if schedule is not None:
        from ptxgen.cli import schedules

        schedules.require(schedule, config)
        return schedules.check(target, schedule, seed)
    from ptxgen.cli import report
    from ptxgen.runtime.check import CASES
    from ptxgen.runtime.check import check as run

    given, driver, cases, rows = _given(config), target.find_driver(), target.cases(), []
    target.warn_if_emulated(driver, emulated_time(cases, len(CASES)))
    with target.reading() as database, shown_progress() as progress:
        progress.phase("check", len(cases))
        for case in cases:
            selection = _select(case.problem, driver.device, database, given)
            rows.append(report.check_fields(case, selection, run(driver, case.problem, selection.config, seed)))
            progress.step(case.name)
    document = {"command": "check", "device": driver.device.name, "clock": driver.clock, "rows": rows}
    return Answer(document, report.check_text(document), int(not all(row["ok"] for row in rows)))


@command(
    app,
    "bench",
    "gemm --suite isaac --baseline cublas",
    "gemm --shape 64,64,64 --dtype f16 --device emulated",
    panel=USE_COMMANDS,
)
def bench(
    target: Target,
    config: ConfigOption = None,
    model: ModelOption = False,
    baseline: Annotated[
        str | None,
        typer.Option(help="What to compare with in the same run. {baselines}."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the JSON document, too: for report, explain and paper --from."),
        OUTPUT_FILE,
    ] = None,
    schedule: ScheduleOption = None,
    ceiling: Annotated[
        bool,
        typer.Option("--ceiling", help="Also time a loop of the steps of each task, or a copy for quantized weights."),
    ] = False,
    top: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Time the N first configurations of each problem: the winner's, if there "
            "is one, and the model's. [default: 1]",
        ),
    ] = 1,
    observe: ObserveOption = None,
) -> Answer:
    """Time kernels, after a check of their results.

    With --baseline, the best candidate of the vendor library is timed in the same run. If there are several problems,
    each row is printed on standard error, and written to the file of --save, as soon as it is timed; Ctrl-C and SIGTERM
    keep the rows that are timed.

    Problems that calls compute by several kernels, as sums in groups, are timed with all of them, unless --config names
    the configuration of one kernel.

    If operands are prepared, two more columns show the time of the preparation in units of one product, and the number
    of calls from which the preparation pays, compared with the kernel that is chosen without preparation.
    """
    if config is not None and model:
        raise InputError("config and model are given; a given configuration is not the model's")
    if top > 1 and (config is not None or schedule is not None):
        raise InputError(f"top is {top} and config or schedule is given; it must be 1 for one configuration")
    if schedule is not None:
        from ptxgen.cli import schedules

        schedules.require(schedule, config)
        return schedules.bench(target, schedule)
    from ptxgen.cli import report
    from ptxgen.problem.operation import operation_named
    from ptxgen.tuning import selection
    from ptxgen.tuning.measure.bench import bench as run
    from ptxgen.tuning.store.exchange import replacing

    observed = _observers(observe)
    given, cases = _given(config), target.cases()
    names = sorted({case.problem.operation for case in cases})
    for name in names:
        if ceiling and operation_named(name).ceiling is None:
            raise InputError(f"ceiling is given; {name} has none, so it must be left out")
        known = operation_named(name).baselines
        if baseline is not None and baseline not in known:
            raise InputError(f"baseline is {baseline!r}; for {name} it must be {' or '.join(known)}")
    driver = target.find_driver()
    rows: list[dict[str, Any]] = []
    for compared in [operation_named(name).baselines[baseline] for name in names if baseline]:
        if driver.clock == "model" and not compared.emulated:
            raise UnavailableError(f"baseline is {baseline!r}; the vendor's library needs an NVIDIA GPU")
        compared.require()
    if ceiling and driver.clock == "model":
        raise UnavailableError("ceiling is given; its loop needs an NVIDIA GPU")
    if observed:
        driver.sensors()  # before the work
    target.warn_if_emulated(driver, emulated_time(cases, BENCH_LAUNCHES))
    with target.reading() as database, shown_progress() as progress:
        progress.phase("bench", top * len(cases))

        asked = {case.problem for case in cases}

        def choose(problem: Problem, device: Device) -> Selection:
            return _select(problem, device, database, given if problem in asked else None, model)

        def fixed(selected: Selection, problem: Problem, device: Device) -> Selection:
            return selected if problem == selected.problem else choose(problem, device)

        def ranked() -> Iterator[tuple[list[Case], Callable[[Problem, Device], Selection]]]:
            """The runs of ``bench``: one run of all cases, or with --top one run for each configuration of each
            case."""
            if top == 1:
                yield cases, choose
                return
            for case in cases:
                for n, each in enumerate(selection.select(case.problem, driver.device, database, model, top), 1):
                    yield [replace(case, name=f"{case.name} #{n}")], partial(fixed, each)

        def document() -> dict[str, Any]:
            return {
                "command": "bench",
                "device": driver.device.name,
                "clock": driver.clock,
                "baseline": baseline,
                "rows": rows,
                "summary": report.summary(rows),
            }

        code = 0
        try:
            whole = given is None and top == 1
            timed_as = partial(run, ceiling=ceiling, in_parts=whole, observed=bool(observed))
            for case, row in (
                timed
                for each, pick in ranked()
                for timed in zip(each, timed_as(each, driver, pick, baseline), strict=True)
            ):
                rows.append(report.bench_fields(case, row, observed))
                progress.step(case.name)
                if top * len(cases) > 1:
                    progress.message(report.bench_line(rows[-1], document()))
                if save is not None:
                    with replacing(save) as file:
                        file.write(f"{report.to_json(document())}\n".encode())
        except KeyboardInterrupt as interrupt:  # the rows that were timed are printed
            if not rows:
                raise
            code = exit_code(interrupt)
            progress.message(f"interrupted: {len(rows)} of {len(cases)} rows were timed")
    incomplete = any(not row["ok"] or (baseline and row["ratio"] is None) for row in rows)
    return Answer(document(), report.bench_text(document()), code or int(incomplete))


@command(
    app,
    "sampler",
    "gemm --shape 64,64,64 --device h200",
    "conv --suite isaac --device h200 --draws 20000",
    panel=UNDERSTAND_COMMANDS,
)
def sampler(
    target: Target,
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of each sampler.")] = 200_000,
    seed: SeedOption = 0,
) -> Answer:
    """Print the acceptance rates of the samplers.

    Compares the categorical sampler with uniform sampling, as in Table 1 of the paper.
    """
    from ptxgen.cli import report
    from ptxgen.lowering.lower import lower
    from ptxgen.tuning.search.sampler import table

    device, cases, rows = target.find_device(), target.cases(), []
    with shown_progress() as progress:
        progress.phase("sampler", len(cases))
        for case in cases:
            rows.append({**report.problem_fields(case), "samplers": table(lower(case.problem), device, draws, seed)})
            progress.step(case.name)
    document = {"command": "sampler", "device": device.name, "rows": rows}
    return Answer(document, report.sampler_text(document))
