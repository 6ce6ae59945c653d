"""The data of the suites of grouped products."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.operations.grouped import suites as suites
from ptxgen.operations.grouped.suites import Experts
from ptxgen.problem.suites import cases


def test_batchgemm_has_each_range_with_each_batch_size_and_the_inception_modules() -> None:
    groups = list(suites.batchgemm())
    assert len(groups) == 12 * 6 + 9
    assert len({g.name for g in groups}) == len(groups)
    assert {g.dtype for g in groups} == {"f32"}
    names = {(g.name, len(g.items)) for g in groups}
    assert {("128/128 x8", 8), ("512/1024 x256", 256), ("Inception-9", 5)} <= names


def test_extents_are_uniform_in_their_range() -> None:
    items = np.array(suites.random_items(20_000, 512, 128))
    assert items.min(axis=0).tolist() == [16, 16, 16]
    assert items.max(axis=0).tolist() == [512, 512, 128]
    assert np.abs(items.mean(axis=0) - [264, 264, 72]).max() < 3


def test_random_items_depend_on_every_argument_and_on_nothing_else() -> None:
    first = suites.random_items(8, 128, 128)
    assert first == suites.random_items(8, 128, 128)
    assert first[:2] == ((60, 126, 48), (32, 106, 74))
    others = [suites.random_items(*a) for a in ((8, 256, 128), (8, 128, 256), (9, 128, 128), (8, 128, 128, 1))]
    assert all(o[:8] != first for o in others)


def test_inception_modules_are_those_of_table_6() -> None:
    assert suites.INCEPTION["Inception-1"] == ((784, 96, 192), (784, 64, 192), (784, 32, 192), (784, 16, 192))
    assert suites.INCEPTION["Inception-8"][-1] == (49, 32, 192)
    assert [len(v) for v in suites.INCEPTION.values()] == [4, 3, 4, 3, 3, 4, 3, 5, 5]
    # the sums of N
    assert [sum(n for _, n, _ in v) for v in suites.INCEPTION.values()] == [208, 224, 368, 248, 216, 352, 544, 736, 944]


def test_moe_has_both_products_of_every_model() -> None:
    groups = list(suites.moe())
    assert len(groups) == len(suites.MODELS) * 2 * 2 * 2
    assert len({g.name for g in groups}) == len(groups)
    assert {(g.dtype, g.jagged) for g in groups} == {("bf16", "m")}
    for up, down in zip(groups[::2], groups[1::2], strict=True):
        assert [m for m, _, _ in up.items] == [m for m, _, _ in down.items]
        assert len({item[1:] for item in up.items}) == len({item[1:] for item in down.items}) == 1
        assert up.items[0][1] == 2 * down.items[0][2]
        assert up.items[0][2] == down.items[0][1]
    mixtral = next(g for g in groups if g.name == "Mixtral-8x7B gate+up uniform 2048")
    assert len(mixtral.items) == 8
    assert mixtral.items[0][1:] == (28672, 4096)
    assert sum(m for m, _, _ in mixtral.items) == 2 * 2048


def test_weights_of_a_layer_fit() -> None:
    for g in suites.moe():
        assert 2 * len(g.items) * g.items[0][1] * g.items[0][2] < 2 << 30


@pytest.mark.parametrize("layer", suites.MODELS, ids=lambda x: x.model)
def test_experts_are_distributed_evenly(layer: Experts) -> None:
    assert layer.experts % layer.gpus == 0
    rows = np.array(suites.routed_rows(layer, 2048, 0.0))
    mean = 2048 * layer.per_token * layer.gpus / layer.experts
    assert len(rows) == layer.experts // layer.gpus
    assert np.abs(rows - mean).max() < 6 * mean**0.5


def test_zipf_routing() -> None:
    one = Experts("", 1, 1, 16, 1)
    rows = np.sort(np.array(suites.routed_rows(one, 100_000, 1.0)))[::-1]
    expected = 100_000 / np.arange(1, 17) / (1 / np.arange(1, 17)).sum()
    assert rows.sum() == 100_000
    assert np.abs(rows - expected).max() < 6 * expected.max() ** 0.5
    # a token chooses an expert once
    every = Experts("", 1, 1, 16, 16)
    assert suites.routed_rows(every, 100, 1.0) == (100,) * 16
    pair = np.array(suites.routed_rows(Experts("", 1, 1, 16, 2), 1000, 1.0))
    assert pair.sum() == 2000
    assert pair.max() <= 1000


def test_few_tokens_leave_experts_without_rows() -> None:
    empty = [g.name for g in suites.moe() if any(m == 0 for m, _, _ in g.items)]
    assert "Llama-4-Maverick down zipf 64" in empty


@pytest.mark.parametrize("name", suites.SUITES)
def test_suites_are_cases_of_the_operation(name: str) -> None:
    listed = cases(name, "grouped")
    assert len({c.name for c in listed}) == len(listed)
    assert {c.problem.operation for c in listed} == {"grouped"}
    assert {c.problem.dtype for c in cases(name, "grouped", dtype="f16")} == {"f16"}


def test_small_suite_suits_the_emulated_device() -> None:
    listed = cases("small", "grouped")
    assert all(c.problem.flops < 1e6 for c in listed)
    assert {c.problem.problem_class for c in listed} == {"grouped", "jagged"}
