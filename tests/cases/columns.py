"""Random columns of one family, legal or not."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.axes import Axis
from ptxgen.codegen.config.config import FAMILIES, Columns, axes_of


def choices(axis: Axis) -> tuple[int, ...]:
    """The values that the search visits, else all that have words, else the default."""
    return axis.values or tuple(range(len(axis.words))) or (axis.default,)


def random_columns(family: str, rng: np.random.Generator, n: int) -> Columns:
    """``n`` rows with random values of every axis of the family."""
    values = {
        a.name: rng.choice(np.array(choices(a)), n).astype(np.int64)
        for a in axes_of(family)
        if a.name != "listed_tiles"
    }
    return Columns(values, n).replace(family=FAMILIES.index(family))
