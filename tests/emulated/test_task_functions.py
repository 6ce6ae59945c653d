"""Tasks that are Python functions, called with arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import ptxgen

i, j, k = ptxgen.axes("i j k")
scale = 3.0


@ptxgen.task
def near(p: Any, r: Any, limit: Any, far: Any = None) -> Any:
    d = p[i, k] - r[j, k]
    c = ptxgen.sum(k, d * d)
    return ptxgen.where(c > limit, ptxgen.sqrt(c) if far is None else far, 0.0) * scale


def test_a_function_is_called_with_arrays_and_numbers() -> None:
    global scale
    rng = np.random.default_rng(0)
    p, r = rng.integers(-4, 5, (10, 7)).astype(np.float32), rng.integers(-4, 5, (12, 7)).astype(np.float32)
    d = ((p[:, None] - r[None]) ** 2).sum(-1)
    for scale in (3.0, -2.0):  # a number around the function
        expected = np.where(d > 50, np.sqrt(d), 0) * scale
        np.testing.assert_allclose(near(p, r, 50.0), expected, rtol=1e-6)
        np.testing.assert_array_equal(near(p=p, r=r, limit=50, far=7.0), np.where(d > 50, 7, 0) * scale)
