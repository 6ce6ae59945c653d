"""The configuration of a problem, from the tuning database of the user and the selection."""

from __future__ import annotations

import math
import os
import sys
from functools import cache, lru_cache
from typing import Any

from ptxgen import settings
from ptxgen.api import launches
from ptxgen.codegen.config.config import Config
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver
from ptxgen.tuning import selection
from ptxgen.tuning.store.database import Database, readable


@cache
def database() -> Database | None:
    """The user's tuning database, opened for reading. None: there is no database, or it cannot be used, of which a
    warning is given."""
    return readable(settings.settings().database)


def choose(problem: Problem, on: Driver) -> Config | None:
    """The configuration of a problem: the stored winner of the problem; else the configuration of its typical problem,
    if that is legal for this problem; else the configuration that is selected for the problem itself. None: no
    configuration is legal. ``PTXGEN_LOG=select`` prints the choice."""
    selected = chosen(problem, on)
    if selected is not None and settings.settings().log == "select":
        source = "predicted" if selected.predicted else "measured"
        time = "" if math.isnan(selected.us) else f", {source} {selected.us:.1f} µs"
        like = "" if selected.problem == problem else f", as {selected.problem.key()}"
        line = f"{selected.config} ({selected.source}{time}{like})"
        if selected.vendor is not None and settings.settings().vendor == "auto":
            how = "predicted" if selected.vendor.predicted else "measured"
            line = f"{selected.vendor.version} ({how} {selected.vendor.us:.1f} µs), faster than {line}"
        print(f"ptxgen: {problem.key()}: {line}", file=sys.stderr, flush=True)
    return None if selected is None else selected.config


def chosen(problem: Problem, on: Driver) -> selection.Selection | None:
    """The selection that ``choose`` makes: the configuration with its source and its time. None: no configuration is
    legal."""
    typical = problem.typical()
    if typical != problem:
        selected = selection.stored(problem, on.device, database()) or _choose_typical(typical, on)
        if selected is not None and first_violation(lower(problem), selected.config, on.device) is None:
            return selected
    chosen = selection.select(problem, on.device, database())
    return chosen[0] if chosen else None


@lru_cache(maxsize=launches.MAX_CALLS)
def _choose_typical(problem: Problem, on: Driver) -> selection.Selection | None:
    """The selection of a typical problem, which many problems share."""
    chosen = selection.select(problem, on.device, database())
    return chosen[0] if chosen else None


def refresh() -> None:
    """Later choices see new rows of the database."""
    reopen_database()
    _choose_typical.cache_clear()


def reopen_database() -> None:
    """Makes the next look-up open the database again if there was none before."""
    if database() is None and hasattr(database, "cache_clear"):
        database.cache_clear()


def _after_fork(opened: Any = database) -> None:
    """Opens the database again in the child: SQLite connections must not be used after a fork."""
    if opened.cache_info().currsize:
        _parent_databases.append(opened())
        opened.cache_clear()


_parent_databases: list[Database | None] = []  #: the parent's databases: kept, so that a child does not close them
os.register_at_fork(after_in_child=_after_fork)
