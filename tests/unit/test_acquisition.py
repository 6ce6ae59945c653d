"""Which configurations tuning at first use times: promising ones, that differ, corrected by the times of the others."""

from __future__ import annotations

import math

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.tuning.search.acquisition import BATCH, TIMED, explore, next_to_time

WIDE = [parse_config(f"family=simt ms=8 ns=8 ml=64 nl=128 u={u} stages={s}") for u in (8, 16) for s in (2, 3, 4)]
TALL = [
    parse_config(f"family=simt ms=4 ns=4 ml=128 nl=32 kl=2 vec_a=4 u={u} stages={s}") for u in (8, 16) for s in (2, 3)
]
OTHER = [parse_config("family=mma ml=64 nl=64"), parse_config("family=skinny")]


def test_the_first_is_the_fastest_by_prediction_and_an_unknown_time_counts_as_the_least():
    assert next_to_time(WIDE, [3.0, 2.0, 1.0, 4.0, 5.0, 6.0], {}, 1) == [WIDE[2]]
    assert next_to_time(WIDE, [3.0, 2.0, 2.0, 4.0, math.nan, 6.0], {}, 3)[0] == WIDE[1]
    assert WIDE[4] in next_to_time(WIDE, [3.0, 2.0, 2.0, 4.0, math.nan, 6.0], {}, 3)
    assert next_to_time(WIDE[:2], [math.nan, math.nan], {}, 2) == WIDE[:2]


def test_among_equal_predictions_different_configurations_come_first():
    configs = [*WIDE, *TALL, *OTHER]
    chosen = next_to_time(configs, [1.0] * len(configs), {}, 4)
    assert chosen[0] == WIDE[0]
    assert {c.family for c in chosen} == {"simt", "mma", "skinny"}
    assert any(c in TALL for c in chosen)


def test_much_slower_ones_are_not_chosen_for_being_different():
    chosen = next_to_time([*WIDE, *OTHER], [1.0] * 6 + [2.0, 2.0], {}, 6)
    assert set(chosen) == set(WIDE)


@pytest.mark.parametrize("slow", [WIDE, TALL])
def test_a_slow_measurement_makes_similar_configurations_less_promising(slow):
    fast = TALL if slow is WIDE else WIDE
    configs = [*WIDE, *TALL]
    measured = {slow[0]: 1.3, slow[1]: 1.3, fast[0]: 1.0}
    assert next_to_time(configs, [1.0] * len(configs), measured, 1)[0] in fast


def test_measured_and_failed_ones_are_not_timed_again():
    measured = {WIDE[0]: 1.0, WIDE[1]: math.nan, WIDE[2]: math.inf}
    assert set(next_to_time(WIDE, [1.0] * 6, measured, 10)) == set(WIDE[3:])
    assert next_to_time(WIDE, [1.0] * 6, dict.fromkeys(WIDE, math.nan), 10) == []


def test_exploration_times_the_present_choice_first_in_batches():
    batches = []

    def measure(configs):
        batches.append(list(configs))
        return {c: 1.0 if c in TALL else 2.0 for c in configs}

    pool = dict.fromkeys([*WIDE, *TALL], 1.0)
    times = explore([OTHER[0]], pool, measure)
    assert batches[0][0] == OTHER[0]
    assert [len(b) for b in batches] == [BATCH, TIMED - BATCH]
    assert set(times) == {c for b in batches for c in b}
    assert len(times) == TIMED
    assert sum(c in TALL for c in batches[1]) >= 3
    assert explore([WIDE[0]], {WIDE[0]: 1.0}, measure) == {WIDE[0]: 2.0}
