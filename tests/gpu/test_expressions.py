"""Each row of the table of instructions gives the value that NumPy computes, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.value_types import VALUE_TYPES
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.open_driver import open_driver
from tests.expression_kernels import computed
from tests.expression_rows import compare_rows
from tests.expressions import random_roots, random_values

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    made = open_driver()
    yield made
    made.close()


@pytest.mark.parametrize("type", VALUE_TYPES)
def test_rows_give_numpys_values(driver: Driver, type: str) -> None:
    sm = driver.device.sm
    compare_rows(type, sm, lambda roots, values: computed(roots, values, sm, driver))


@pytest.mark.parametrize("seed", range(5))
def test_random_expressions_give_the_values_of_numpy(driver: Driver, seed: int) -> None:
    sm, inputs = driver.device.sm, random_values(np.random.default_rng(seed), 200)
    named = {name: (name.split("_")[0], x) for name, x in inputs.items()}
    roots = random_roots(seed, 60)
    for root, got in zip(roots, computed(roots, named, sm, driver, contract=False), strict=True):
        want = np.broadcast_to(evaluate(root, inputs, exact=False), got.shape)
        np.testing.assert_array_equal(got, want, err_msg=repr(root))
