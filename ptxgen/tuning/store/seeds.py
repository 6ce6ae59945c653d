"""Known-good configurations: ``tuning_db/<device>/seeds.txt``, one per line, ``problem | configuration``,
the problem as its ``key()`` writes it.

They were fast when they were timed, but no measurement is stored. A tuning run measures them first; until then,
selection prefers them to the model's choice.
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
    """The shipped seeds of ``problem`` on ``device``. Later rules may reject them. CorruptError: a line is damaged."""
    path, key = shipped_dir() / device / SEEDS, problem.key()
    return [_config(path, number, text) for number, text in _lines(path).get(key, ())] if path.exists() else []


@lru_cache(maxsize=4)
def _lines(path: Path) -> dict[str, list[tuple[int, str]]]:
    """The pair (number of the line, text of the configuration) of each line, by problem: parsing all takes 0.1 s."""
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
