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


def test_arrays_with_two_uses_keep_their_places() -> None:
    """The kernel's text may read the second use of an array after another array."""
    rng = np.random.default_rng(1)
    x, y, v, e = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((7, 5), (7, 5), 7, (7, 7)))
    d = abs(x[:, None] - y)
    steps = {
        "abs(X[i,k] - Y[j,k]) * X[j,k]": (d * x).sum(-1),
        "abs(Y[i,k] - X[j,k]) * X[i,k]": (abs(y[:, None] - x) * x[:, None]).sum(-1),
    }
    for step, expected in steps.items():
        task = ptxgen.task(f"where (i, j) {{ reduce (k) {{ accum += {step}; }} C[i,j] = accum; }}")
        np.testing.assert_array_equal(task(X=x, Y=y), expected)
    task = ptxgen.task(
        "where (i, j) { reduce (k) { accum += X[i,k] * Y[j,k]; } C[i,j] = accum * v[j] + e[i,j] * v[i]; }"
    )
    np.testing.assert_array_equal(task(X=x, Y=y, v=v, e=e), x @ y.T * v + e * v[:, None])
