"""The command ``collect``, which collects measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ptxgen.cli.checks import Check
from ptxgen.cli.command import TUNE_COMMANDS, Answer, app, command, explain_interrupt
from ptxgen.cli.options import DatabaseOptions, SeedOption, no_problem, open_lines, time_limit_text, warn_if_emulated
from ptxgen.cli.progress import progress as shown_progress
from ptxgen.tuning.deadline import Deadline, stop_on_signals

if TYPE_CHECKING:
    from ptxgen.problem.registry import Problem
    from ptxgen.tuning.collect.collect import JobRunner
    from ptxgen.tuning.draws import Limits
    from ptxgen.tuning.problem_generator import ProblemGenerator

#: limits of generated problems on the emulated device
EMULATED_LIMITS = {"extent": 32, "bytes": 1 << 20, "flops": 1 << 18}


MixtureOption = Annotated[
    str | None,
    typer.Option(
        metavar="WEIGHTS", help="Kinds of random problems. [default: gemm=0.45,thin=0.25,batch=0.08,conv=0.22]"
    ),
]
DtypesOption = Annotated[
    str | None,
    typer.Option(
        metavar="WEIGHTS", help="Arithmetic of random problems. [default: f32=1,tf32=1,bf16=1.5,f16=1,f64=0.7]"
    ),
]
MaxExtentOption = Annotated[
    int | None, typer.Option(min=1, help="Largest extent of a random GEMM. [default: 8192; emulated device: 32]")
]
DevicesOption = Annotated[str, typer.Option(metavar="NUMBERS", help="GPUs to use, as 0-3 or 0,2.")]
JobsOption = Annotated[
    int | None, typer.Option(min=1, help="Processes that rank and assemble. [default: cores minus GPUs]")
]
ChildrenOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes per GPU that check and time, in turn. [default: one per 4 cores of a GPU, 4 at most]"
    ),
]


def executor_available(name: str, address: str) -> None:
    """Requires an address of an executor that can be used. InputError: the address has another form. UnavailableError:
    a package or file that the executor needs is missing."""
    from ptxgen.tuning.collect import executor

    executor.require(address)


EXECUTOR = Check(executor_available)


def generator(seed: int, mixture: str | None, dtypes: str | None) -> ProblemGenerator:
    """The generator of random problems that the options describe."""
    from ptxgen.tuning.problem_generator import ProblemGenerator, read_weights

    random = ProblemGenerator(seed)
    if mixture is not None:
        random = replace(random, mixture=read_weights("mixture", mixture))
    return random if dtypes is None else replace(random, arithmetic=read_weights("dtypes", dtypes))


def limits_of(clock: str, max_extent: int | None) -> Limits:
    """The limits of generated problems. ``clock``: the clock of the device; ``max_extent``: the largest extent; None:
    the default."""
    from ptxgen.tuning.draws import Limits

    limits = Limits(**EMULATED_LIMITS) if clock == "model" else Limits()
    return limits if max_extent is None else replace(limits, extent=max_extent)


@command(
    app,
    "collect",
    "--time-limit 3600",
    "--devices 0-3 --dtypes f16=2,bf16=1 --mixture gemm,thin",
    panel=TUNE_COMMANDS,
    tables=False,
)
def collect(
    options: DatabaseOptions,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End after this time. [default: no limit]")
    ] = None,
    problems: Annotated[
        int | None, typer.Option(min=1, help="Number of problems, the first of the seed or file. [default: no limit]")
    ] = None,
    shapes_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Measure the problems of this file, one JSON object per line, not random ones."
        ),
    ] = None,
    seed: SeedOption = 0,
    mixture: MixtureOption = None,
    dtypes: DtypesOption = None,
    max_extent: MaxExtentOption = None,
    configurations: Annotated[int, typer.Option(help="Configurations to time per problem.")] = 28,
    model_share: Annotated[
        float, typer.Option(help="Fraction of them that the model ranks first; the others are random.")
    ] = 0.7,
    group: Annotated[
        int,
        typer.Option(
            "--group", metavar="N", help="Most problems that share kernels; random ones are drawn in such groups."
        ),
    ] = 8,
    devices: DevicesOption = "0",
    jobs: JobsOption = None,
    children: ChildrenOption = None,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Measure on the machines of a Dask cluster: dask://HOST:PORT or dask://FILE."
        ),
        EXECUTOR,
    ] = None,
) -> Answer:
    """Measure many problems as training data.

    Times the model's choices and random configurations of random problems, or of the problems of a file, with a policy
    shorter than that of tune. Problems that are measured already are skipped, so a run that ended for any reason
    continues with the same command; measurements are stored every half second. Several runs may share a database.
    Ctrl-C and SIGTERM finish the kernels that are being timed, store their times and exit with 130 and 143.
    """
    from ptxgen.cli.revision import revision
    from ptxgen.errors import InputError
    from ptxgen.problem.suites import read
    from ptxgen.settings import settings
    from ptxgen.tuning.choice.models import model_folder
    from ptxgen.tuning.collect import collect as collector
    from ptxgen.tuning.collect.executor import DevicePoolOptions, ExecutorPool, dask_executor
    from ptxgen.tuning.store.database import Database

    if time_limit is not None and not time_limit > 0:
        raise InputError(f"time-limit is {time_limit:g}; it must be positive")
    budget = collector.CollectBudget(configurations, model_share, seed=seed, group=group)
    numbers = collector.read_devices(devices)
    random = replace(generator(seed, mixture, dtypes), group=group)
    given: Iterable[Problem] | None = None
    if shapes_file is not None:
        with open_lines(shapes_file) as lines:
            given = [case.problem for case in read(lines, str(shapes_file), "")]
        if not given:
            raise no_problem(shapes_file)
    with ExitStack() as stack:
        cluster = None if executor is None else stack.enter_context(dask_executor(executor))
        database, progress = stack.enter_context(Database(options.path)), stack.enter_context(shown_progress())
        models = model_folder(database, "").parent
        arguments = DevicePoolOptions(budget, settings().driver, numbers, jobs, models, revision(), children)
        device_pool: JobRunner
        if cluster is None:
            device_pool = stack.enter_context(arguments.start())
        else:
            device_pool = stack.enter_context(ExecutorPool(cluster[0], arguments, cluster[1]))
        seconds = math.inf if time_limit is None else time_limit
        warn_if_emulated(device_pool.clock, time_limit_text(seconds), "PTXGEN_DRIVER=emulated")
        if given is None:
            given = replace(random, limits=limits_of(device_pool.clock, max_extent))
        run = collector.Collector(database, device_pool, budget, progress)

        def stored() -> str:
            return (
                f"{run.result.measurements} measurements of this run are stored in {database.path}; repeat the"
                " command to continue"
            )

        deadline = Deadline(seconds)
        with explain_interrupt(stored), stop_on_signals(deadline):
            done = run.run(islice(given, problems), deadline)
            deadline.raise_for_signal()
        device, clock = device_pool.device.name, device_pool.clock
    values = {f.name: getattr(done, f.name) for f in fields(done)}
    values |= {"outcomes": dict(done.outcomes), "usage": asdict(done.usage)}
    document = {"command": "collect", "device": device, "clock": clock, "database": options.path, **values}
    text = (collector.summary(done), collector.usage_summary(done.usage), f"device: {device}; stored in {options.path}")
    return Answer(document, "\n".join(text))
