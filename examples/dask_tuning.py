#!/usr/bin/env python3
"""Tunes problems on the GPUs of a Dask cluster, one problem a worker at a time, and stores the winners here.

    examples/dask_tuning.py SCHEDULER [--shape 2560,16,2560]... [--dtype f32] [--seconds 60] [--database tuning.sqlite]

Start ``dask worker SCHEDULER --nthreads 1 --no-nanny`` once for each GPU, with PTXGEN_DRIVER=cuda:N. All machines must
have the same version of ptxgen. ``python -m ptxgen collect --executor dask://SCHEDULER`` collects training data so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from ptxgen import Gemm  # noqa: E402
from ptxgen.settings import settings  # noqa: E402
from ptxgen.tuning.deadline import Deadline  # noqa: E402
from ptxgen.tuning.search.tuner import tune  # noqa: E402
from ptxgen.tuning.store.database import Database  # noqa: E402
from ptxgen.tuning.store.measurement import Measurement  # noqa: E402


def tuned(problem: Gemm, seconds: float) -> tuple[list[Measurement], Measurement | None]:
    """The measurements of a problem and its winner, from the GPU of the worker that executes this."""
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "tuning.sqlite") as database:
        (done,) = tune([problem], settings().driver, database, deadline=Deadline(seconds))
        return list(database.measurements()), done.winner


def tune_on(executor: Executor, problems: Sequence[Gemm], seconds: float, database: Database) -> int:
    """Tunes the problems on an executor, stores what comes back, and returns the number of winners."""
    winners = 0
    waiting = {executor.submit(tuned, problem, seconds): problem for problem in problems}
    for done in as_completed(waiting):
        rows, winner = done.result()
        database.add_all(rows)
        if winner is not None:
            database.set_winner(winner)
            winners += 1
        print(f"{waiting[done].key()}: {len(rows)} measured, {f'{winner.us:.1f} µs' if winner else 'no winner'}")
    return winners


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scheduler", help="HOST:PORT")
    parser.add_argument("--shape", action="append", help="M,N,K")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--database", type=Path, default=settings().database)
    given = parser.parse_args(arguments)
    from distributed import Client

    shapes = [tuple(map(int, text.split(","))) for text in given.shape or ("2560,16,2560", "512,512,512")]
    problems = [Gemm(*shape, "NN", given.dtype) for shape in shapes]
    with Client(given.scheduler) as client, Database(given.database) as database:
        return 0 if tune_on(client.get_executor(), problems, given.seconds, database) == len(problems) else 1


if __name__ == "__main__":
    sys.exit(main())
