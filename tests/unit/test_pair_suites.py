"""The suites of all pairs of rows."""

from __future__ import annotations

import numpy as np

from ptxgen.operations.task import pair_suites
from ptxgen.operations.task.checks import check_task, random_arrays
from ptxgen.operations.task.suites import SUITES
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.selection import require


def test_suites_have_every_task_in_every_shape() -> None:
    for name, programs in (("knn", pair_suites.KNN), ("pairwise", pair_suites.PAIRWISE)):
        cases = list(SUITES[name].build())
        assert len(cases) == len(programs) * len(pair_suites.SHAPES)
        assert {(c.problem.m, c.problem.n, c.problem.k) for c in cases} == set(pair_suites.SHAPES)
        assert {c.problem.compute for c in cases if " fast" in c.name and c.problem.k >= 64} == {"f32_bf16x6"}
        assert len({c.problem for c in SUITES[f"{name}_small"].build()}) == 2 * len(programs)
        assert {c.problem.dtype for c in SUITES[name].build(dtype="f16")} == {"f16"}


def test_lists_have_one_pair_in_a_thousand() -> None:
    k = 64
    rows = np.random.default_rng(0).standard_normal((2, 20_000, k))
    share = (((rows[0] - rows[1]) ** 2).sum(-1) < pair_suites.NEAR[k]).mean()
    assert 0.0005 < share < 0.002


def test_kernels_of_small_suites_are_right() -> None:
    driver = EmulatedDriver()
    for case in SUITES["knn_small"].build():
        if case.name not in ("1nn cosine 40x56x3", "1nn fast 33x70x24"):
            continue
        config = require(case.problem, driver.device)[0].config
        assert all(x.ok for x in check_task(driver, case.problem, config)), case.name
    planes = next(c.problem for c in SUITES["knn_small"].build() if c.problem.compute == "f32_bf16x6")
    special = random_arrays(planes, "special")
    assert np.isnan(special["A"]).any()
    assert not np.isinf(special["A"]).any()  # their products would be NaN
    assert require(next(SUITES["knn"].build()).problem, device("h100"))
