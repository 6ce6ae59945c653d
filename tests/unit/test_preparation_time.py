"""The predicted time of preparations, and how choices weigh it against the number of products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import Columns, Config, parse_config
from ptxgen.codegen.preparation import PreparationCost
from ptxgen.families import registry
from ptxgen.families.common.perf_model import predict
from ptxgen.families.common.perf_preparation import preparation_us, share_of_call
from ptxgen.families.common.space import base, candidates
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import device
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.selection import select

H100 = device("h100")
P = Spmm(4096, 128, 4096, dtype="f16", pattern="zipf:mean=40,exponent=1,empty=0", calls=1000)
CALLS = (0, 1, 10, 100, 1000, 100_000)
NATURAL, BY_LENGTH = (parse_config(f"family=row_split vec_b=8 row_order={order}") for order in ("natural", "length"))
WINDOWS, WARPS = parse_config("family=vector_mma vec_b=8"), parse_config("family=tca vec_b=8")


def share(p: Spmm, config: Config) -> float:
    return float(share_of_call(lower(p), config, H100))


def prepares(p: Spmm, config: Config) -> bool:
    family = registry.of(config)
    return bool(family.preparations(family.form(lower(p)), config))


def test_each_call_has_its_share() -> None:
    assert share(P, NATURAL) == 0
    for config in (BY_LENGTH, WINDOWS, WARPS):
        assert share(P, config) > 0
        assert share(replace(P, calls=10), config) == pytest.approx(100 * share(P, config))
        assert share(replace(P, calls=0), config) == 0
    assert share_of_call(lower(Gemm(64, 64, 64)), Columns.of([Config()]), H100).tolist() == [0]


def test_columns_of_all_families_have_the_shares_of_their_configurations() -> None:
    p = lower(P)
    c = candidates(p, H100)
    rows = np.random.default_rng(0).choice(len(c), 60, replace=False)
    some = c.take(np.sort(rows))
    shares = share_of_call(p, some, H100)
    assert len(set(shares.tolist())) > 4
    for i in range(len(some)):
        config = some.row(i)
        family = registry.of(config)
        form = family.form(p)
        us = preparation_us(family.preparations(form, config), form, H100)
        assert shares[i] == pytest.approx(us / 1000, rel=1e-5)


def test_costs_count_launches_allocations_reads_and_bytes() -> None:
    costs = {}
    for name, config in (("order", BY_LENGTH), ("windows", WINDOWS), ("warps", WARPS)):
        family = registry.of(config)
        form = family.form(lower(P))
        [made] = family.preparations(form, config)
        costs[name] = made.cost(form)
    assert (costs["order"].launches, costs["order"].allocations, costs["order"].reads) == (3, 1, 1)
    assert (costs["windows"].launches, costs["windows"].allocations, costs["windows"].reads) == (3, 2, 1)
    assert (costs["warps"].launches, costs["warps"].allocations, costs["warps"].reads) == (3, 2, 1)
    values = P.nnz * 2
    assert costs["order"].bytes < values < costs["windows"].bytes < 40 * values
    assert costs["windows"].bytes > costs["warps"].bytes
    [dense] = lower(replace(P, dense_bytes=1 << 30)).forms
    cost = dense.operands[0].prepared.cost(dense)
    assert cost == PreparationCost(2, 1, 0, 2 * 4096 * 4096 * 2)


def test_a_choice_is_the_best_for_its_number_of_calls() -> None:
    """With the performance model alone, and with the trained one."""
    for model in (Model.analytic(H100), None):
        chosen = {}
        for calls in CALLS:
            p = replace(P, calls=calls)
            if model is None:
                [selections] = select(p, H100)
                chosen[calls] = selections.config, selections.us
            else:
                [chosen[calls]] = model.rank(p, k=1)
        assert not prepares(P, chosen[0][0])
        assert chosen[1] == chosen[0]
        assert prepares(P, chosen[100_000][0])
        for calls in CALLS[1:]:
            totals = {n: us + share(replace(P, calls=calls), config) for n, (config, us) in chosen.items()}
            assert totals[calls] <= min(totals.values()) * 1.0001
        assert len(set(chosen.values())) > 1


def test_the_fastest_kernel_is_not_chosen_for_few_calls() -> None:
    p = replace(P, calls=100_000)
    fastest = [c for c, _ in Model.analytic(H100).rank(p, k=50)]
    assert all(prepares(p, c) for c in fastest[:5])
    few = Model.analytic(H100).rank(replace(p, calls=2), k=50)
    assert not any(prepares(p, c) for c, _ in few[:5])
    us = [us + share(replace(p, calls=2), c) for c, us in few]
    assert us == sorted(us)
    assert predict(lower(p), few[0][0], H100) == pytest.approx(few[0][1], rel=1e-5)  # of one product alone


def test_candidates_are_shared_by_all_numbers_of_calls() -> None:
    for family in ("row_split", "vector_mma", "shared_slab", "tca"):
        space = registry.FAMILIES[family].candidates
        first, second = (base(space, lower(replace(P, calls=n)), H100) for n in (1, 100_000))
        assert first is second
