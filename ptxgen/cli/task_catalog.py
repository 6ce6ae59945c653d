"""The catalogue of tasks that have stored times, or texts in the disk cache, and how a command line names a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from ptxgen.arguments import closest, shown
from ptxgen.arguments import word as one_of
from ptxgen.codegen.config.config import Config
from ptxgen.errors import DtypeError, InputError
from ptxgen.expr.node import variable
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.texts import input_ranks, kept_programs, parse
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.roles import roles_of, with_variables
from ptxgen.operations.task.semirings import SEMIRINGS, semiring_program
from ptxgen.operations.task.suites import DISTANCES, QUERIES, distance_text, typed_text
from ptxgen.operations.task.task_hash import SHOWN, task_hash
from ptxgen.operations.task.typed import INPUT_TYPES
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Measurement

LEAST = 4  #: the least digits of a hash that name a task
KEPT = "kept"  #: the value of ``TaskRow.source`` for a text in the disk cache


@lru_cache(maxsize=64)
def known_programs(element_type: str) -> Mapping[str, Program]:
    """Name -> program, for the tasks with names: semirings, distances, the queries of Gamut's paper. ``element_type``:
    the type of all inputs."""
    programs: dict[str, Program] = {}
    for name in SEMIRINGS:
        with suppress(DtypeError):
            programs[name] = semiring_program(name, element_type)
    texts = {**{name: distance_text(name) for name in DISTANCES}, **QUERIES}
    for name, text in texts.items():
        with suppress(InputError):
            programs[name] = parse(typed_text(text, element_type))
    return programs


@lru_cache(maxsize=64)
def _names(element_type: str) -> dict[str, str]:
    """Hash -> name, for the tasks with names."""
    names: dict[str, str] = {}
    for name, program in known_programs(element_type).items():
        names.setdefault(task_hash(program), name)
    return names


@dataclass(frozen=True)
class TaskRow:
    """A task of the catalogue. ``program``: the program with arrays indexed as they are stored; ``hash``: the hash of
    the task; ``source``: ``winner`` or ``measured`` (in the database), ``shipped``, or ``kept``; ``problem``: a problem
    of the task with a stored time, and ``measured``, its measurement; None: there is no time."""

    program: Program
    hash: str
    source: str
    problem: Task | None = None
    measured: Measurement | None = None

    @cached_property
    def name(self) -> str:
        """The name of the task if it has one, else the first digits of its hash."""
        return _names(self.program.inputs[0].dtype).get(self.hash, "") or self.hash[:SHOWN]

    @property
    def as_indexed(self) -> bool:
        """True if the arrays of the problem are stored as the text indexes them."""
        return self.problem is None or self.problem.layout == roles_of(parse(self.problem.text)).layout

    @property
    def device(self) -> str:
        return "" if self.measured is None else self.measured.environment.device

    @property
    def config(self) -> Config | None:
        return None if self.measured is None else self.measured.config


def rows(database: Database | None, device: str | None = None) -> list[TaskRow]:
    """The rows of the tasks with a winner or a measurement in the database, or a shipped winner: one for each problem
    and device. ``device``: the only device; None: all devices."""
    known: dict[tuple[str, str, str], TaskRow] = {}

    def add(source: str, measurements: Iterator[Measurement]) -> None:
        for m in measurements:
            e, p = m.environment, m.problem
            if isinstance(p, Task):
                own = task_hash(parse(p.text))
                known.setdefault((p.key(), e.device, e.clock), TaskRow(as_stored(p), own, source, p, m))

    if database is not None:
        add("winner", database.winners(device))
        for name, clock in database.devices():
            if device in (None, name):
                add("measured", database.fastest(name, clock))
    for name in tuning_files.devices():
        if device in (None, name):
            shipped = tuning_files.shipped_winners(name)
            add("shipped", (shipped[key] for key in shipped if key.startswith(f"{Task.operation} ")))
    return sorted(known.values(), key=lambda row: (row.name, _size(row.problem), row.device))


def _size(p: Task | None) -> tuple[int, ...]:
    return () if p is None else (p.m * p.n * p.k, p.m, p.n, p.k)


def kept_rows(catalogue: Sequence[TaskRow]) -> list[TaskRow]:
    """The rows of tasks that are not in ``catalogue``, but whose texts the disk cache has kept from calls and commands.
    If a task has several texts, the one with a user's names is taken."""
    known = {row.hash for row in catalogue}
    kept: dict[str, TaskRow] = {}
    for program in kept_programs():
        with suppress(InputError):
            if "%" in canonical(program):
                continue  # it is made of another one
            row = TaskRow(program, task_hash(program), KEPT)
            before = kept.get(row.hash)
            if row.hash not in known and (before is None or _has_roles(before.program)):
                kept[row.hash] = row
    return sorted(kept.values(), key=lambda row: row.name)


def _has_roles(program: Program) -> bool:
    """True if the inputs of a program have the names of kernel operands."""
    return roles_of(program).program.inputs == program.inputs


def as_stored(p: Task) -> Program:
    """The program of a problem, with arrays indexed as they are stored."""
    program = parse(p.text)
    roles, changes = roles_of(program), {}
    swapped = {roles.use(role).name for role, a, b in zip("AB", p.layout, roles.layout, strict=True) if a != b}
    inputs = []
    for x in program.inputs:
        uses = tuple(axes[::-1] for axes in x.uses) if x.name in swapped else x.uses
        for axes, other in zip(x.uses, uses, strict=True):
            changes[f"{x.name}[{','.join(axes)}]"] = variable(f"{x.name}[{','.join(other)}]", x.dtype)
        inputs.append(replace(x, uses=uses))
    if not swapped:
        return program
    outputs = tuple(with_variables(x, changes) for x in program.outputs)
    made: Program = with_variables(replace(program, inputs=tuple(inputs), outputs=outputs), changes)
    return made


@dataclass(frozen=True)
class Named:
    """A task that a command line names. ``name``: its name; empty: it has none; ``order``: its inputs in the order of
    arguments; ``rows``: its rows of the catalogue."""

    program: Program
    name: str
    order: tuple[str, ...]
    rows: Sequence[TaskRow]


def of_text(text: str, types: Mapping[str, str], default: str | None) -> tuple[Program, tuple[str, ...]]:
    """The program of a text, or of a file with the text, and the names of its inputs in the order of arguments.
    ``types``: types of inputs that the text does not declare; ``default``: the type of all others; None: there is no
    default. InputError: ``types`` has a name that is no input, or there is no such file. TaskError: a type is
    missing."""
    text = str(Task.checked_fields({"text": text})["text"])
    ranks = input_ranks(text)
    for name in types:
        if name not in ranks:
            raise InputError(f"type is {name}={types[name]}; the inputs of the task are {', '.join(ranks)}")
    every = dict(types) if default is None else {**dict.fromkeys(ranks, default), **types}
    return parse(text, every), tuple(ranks)


def named(
    word: str, catalogue: Sequence[TaskRow], dtype: str | None = None, types: Mapping[str, str] | None = None
) -> Named:
    """The task with the name or hash ``word``, or the task in the file ``word``. ``dtype``: the type of the inputs of a
    task with a name; ``types``: as in ``of_text``. InputError: there is no such task, or there are several."""
    if dtype is not None:
        one_of("dtype", dtype, INPUT_TYPES)
    if Path(word).is_file():
        return with_rows(*of_text(word, types or {}, dtype), catalogue)
    known = known_programs(dtype or "f32").get(word)
    matches = _matching(word, catalogue, dtype)
    if not matches and known is None and is_hash(word):
        matches = _matching(word, kept_rows(catalogue), dtype)
    hashes = {row.hash: row for row in matches}
    if len(hashes) > 1:
        each = ", ".join(f"{row.hash[:SHOWN]} ({row.program.inputs[0].dtype})" for row in hashes.values())
        raise InputError(f"task is {word}; it is the name of several: {each}; write the hash of one, or --dtype")
    if matches:
        row = next((x for x in matches if x.as_indexed), matches[0])
        known = known_programs(row.program.inputs[0].dtype).get(word)
        program = row.program if known is None else known
    elif known is None:
        near = closest(word, {*known_programs("f32"), *(row.name for row in catalogue)})
        rule = "the name of a semiring, a distance or a query, the hash of a task that task list prints, or a file"
        raise InputError(f"task is {shown(word)}; it must be {rule}{f': write {near}' if near else ''}")
    else:
        program = known
    return Named(program, word if known is not None else "", tuple(x.name for x in program.inputs), matches)


def is_hash(word: str) -> bool:
    """True if a word may be the beginning of a hash."""
    return len(word) >= LEAST and all(x in "0123456789abcdef" for x in word)


def _matching(word: str, catalogue: Sequence[TaskRow], dtype: str | None) -> list[TaskRow]:
    """The rows with the name ``word``, or with a hash that begins with it. ``dtype``: the type of the first input;
    None: any."""
    matches = [row for row in catalogue if row.name == word or (is_hash(word) and row.hash.startswith(word))]
    return [row for row in matches if dtype in (None, row.program.inputs[0].dtype)]


def with_rows(program: Program, order: tuple[str, ...], catalogue: Sequence[TaskRow]) -> Named:
    """The task of a program, with its rows of the catalogue."""
    own = task_hash(program)
    return Named(program, "", order, [row for row in catalogue if row.hash == own])


def body(program: Program) -> str:
    """The canonical text of a program without the declarations of inputs."""
    text = canonical(program)
    return text[text.index("where(") :]
