"""Configurations worth trying first: ``tuning_db/<device>/seeds.txt``, a line each, ``problem | configuration``.

They did well when somebody timed them, with no measurement kept: a tuning run measures them, and until one has, they
answer before the regressor does.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ptxgen.codegen.config import Config, parse_config
from ptxgen.errors import CorruptError, InputError
from ptxgen.problem.registry import Problem, parse
from ptxgen.settings import shipped_dir


def seeds(problem: Problem, device: str) -> list[Config]:
    """The configurations that ship for ``problem`` on ``device``, which need not be legal any more."""
    path = shipped_dir() / device / "seeds.txt"
    return list(_read(path).get(problem.key(), ())) if path.exists() else []


@lru_cache(maxsize=4)
def _read(path: Path) -> dict[str, list[Config]]:
    found: dict[str, list[Config]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, _, config = line.partition("|")
        try:
            found.setdefault(parse(key).key(), []).append(parse_config(config))
        except InputError as error:
            raise CorruptError(f"{path}, line {number}: {error}") from error
    return found
