"""Reads seeds, known-good configurations, from ``tuning_db/<device>/seeds.txt``. Each line is ``problem |
configuration``, with the text form ``key()`` of the problem.

Seeds were fast when they were timed, but their measurements are not stored. A tuning run measures seeds first; until
then, selection prefers them to the model's choice.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.errors import CorruptError, InputError
from ptxgen.problem.registry import Problem
from ptxgen.settings import shipped_dir

SEEDS = "seeds.txt"


def seeds(problem: Problem, device: str) -> list[Config]:
    """The shipped seeds of ``problem`` on ``device``. The caller must check that they are legal. CorruptError: a line
    is damaged."""
    path, key = shipped_dir() / device / SEEDS, problem.key()
    return [_config(path, number, text) for number, text in _lines(path).get(key, ())] if path.exists() else []


@lru_cache(maxsize=4)
def _lines(path: Path) -> dict[str, list[tuple[int, str]]]:
    """By problem key, the number and the configuration's text of each line. Configurations are not parsed here, because
    that takes 0.1 s."""
    lines: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            key, _, config = line.partition("|")
            lines.setdefault(key.strip(), []).append((number, config))
    return lines


def _config(path: Path, number: int, text: str) -> Config:
    try:
        return parse_config(text)
    except InputError as error:
        raise CorruptError(f"{path}, line {number}: {error}") from error
