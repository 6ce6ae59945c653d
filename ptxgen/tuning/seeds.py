"""Known-good configurations: ``tuning_db/<device>/seeds.txt``, one per line, ``problem | configuration``.

They were fast when they were timed, but no measurement is stored. A tuning run measures them first; until then,
selection prefers them to the model's choice.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ptxgen.codegen.config import Config, parse_config
from ptxgen.errors import CorruptError, InputError
from ptxgen.problem.registry import Problem, parse
from ptxgen.settings import shipped_dir

SEEDS = "seeds.txt"


def seeds(problem: Problem, device: str) -> list[Config]:
    """The shipped seeds of ``problem`` on ``device``. Later rules may reject them."""
    path = shipped_dir() / device / SEEDS
    return list(_read(path).get(problem.key(), ())) if path.exists() else []


@lru_cache(maxsize=4)
def _read(path: Path) -> dict[str, list[Config]]:
    seeds: dict[str, list[Config]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, _, config = line.partition("|")
        try:
            seeds.setdefault(parse(key).key(), []).append(parse_config(config))
        except InputError as error:
            raise CorruptError(f"{path}, line {number}: {error}") from error
    return seeds
