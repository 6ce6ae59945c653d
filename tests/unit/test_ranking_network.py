"""The network that ranks configurations: its derivatives, what it learns, its form in a file."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from ptxgen.tuning.model import ranking_network
from ptxgen.tuning.model.ranking_network import RankingNetwork, combined, loss, loss_slope

STARTS = np.array([0, 5, 17])
ENDS = (5, 17, 23)


def random_problems(problems: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Features, log2 of the time, baseline and problem of 20 configurations of each; a smooth function of features."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(problems), 20)
    x = rng.standard_normal((len(group), 4)).astype(np.float32)
    base = (3 * rng.standard_normal(problems))[group].astype(np.float32)
    log_us = base + np.float32(0.5) * np.abs(x[:, 0] - x[:, 1]) + np.float32(0.2) * np.sin(2 * x[:, 2])
    return x, log_us.astype(np.float32), base, group


def lost(predicted: np.ndarray, log_us: np.ndarray) -> float:
    """log2 of the time of the choices over the best, in the mean."""
    times = log_us.reshape(-1, 20)
    chosen = predicted.reshape(-1, 20).argmin(axis=1)
    return float((times[np.arange(len(times)), chosen] - times.min(axis=1)).mean())


def test_slope_of_the_loss() -> None:
    rng = np.random.default_rng(1)
    behind = np.abs(rng.standard_normal(23))
    for first, end in zip(STARTS, ENDS, strict=True):
        behind[first:end] -= behind[first:end].min()
    predicted, step = rng.standard_normal(23) / 2, 1e-3
    slopes = loss_slope(predicted, behind, STARTS)
    for i in range(23):
        more, less = predicted.copy(), predicted.copy()
        more[i] += step
        less[i] -= step
        assert slopes[i] == pytest.approx(
            (loss(more, behind, STARTS) - loss(less, behind, STARTS)) / (2 * step), abs=1e-3
        )


def test_gradients_of_weights_and_biases() -> None:
    rng = np.random.default_rng(2)
    widths = (3, 5, 4, 1)
    weights = tuple(rng.standard_normal((n, m)) for n, m in pairwise(widths))
    network = RankingNetwork(np.zeros(3), np.ones(3), weights, tuple(rng.standard_normal(m) for m in widths[1:]))
    x, slope = rng.standard_normal((7, 3)), rng.standard_normal(7)
    inputs = ranking_network._activations(network, x)
    assert np.allclose(inputs.pop()[:, 0], network.predict(x))
    gradients = ranking_network._gradients(network, inputs, slope)
    for array, gradient in zip((*network.weights, *network.biases), gradients, strict=True):
        at = tuple(rng.integers(n) for n in array.shape)
        sums = []
        for step in (1e-4, -2e-4):
            array[at] += step
            sums.append(float(slope @ network.predict(x)))
        array[at] += 1e-4
        assert gradient[at] == pytest.approx((sums[0] - sums[1]) / 2e-4, rel=1e-3, abs=1e-6)


def test_it_learns_the_ranking_of_problems_it_has_not_seen() -> None:
    network = ranking_network.train(*random_problems(400))
    x, log_us, base, _ = random_problems(200, seed=1)
    guess = np.random.default_rng(3).standard_normal(len(x))
    predicted = network.predict(x) + base
    assert lost(predicted, log_us) < 0.05 < 0.2 < lost(guess, log_us)
    assert abs(float((predicted - log_us).mean())) < 0.1  # the level, too


def test_the_same_rows_give_the_same_network() -> None:
    first, second = (ranking_network.train(*random_problems(100)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first.weights, second.weights, strict=True))


def test_features_far_from_the_data_are_clipped() -> None:
    network = ranking_network.train(*random_problems(50))
    far = np.array([[100.0, 0, 0, 0], [1e6, 0, 0, 0]], np.float32)
    assert network.predict(far)[0] == network.predict(far)[1]


def test_a_feature_without_variation_is_not_scaled() -> None:
    x, *rest = random_problems(50)
    x[:, 3] = 7
    network = ranking_network.train(x, *rest)
    assert network.scale[3] == 1
    assert np.isfinite(network.predict(x)).all()


def test_each_value_of_a_code_has_an_input() -> None:
    """The time depends on a code without order."""
    x, log_us, base, group = random_problems(400)
    code = np.random.default_rng(4).integers(0, 8, len(x))
    slower = np.array([0.0, 1.5, 0.2, 1.1, 0.0, 1.8, 0.4, 0.9], np.float32)
    x, log_us = np.column_stack([x, code]).astype(np.float32), log_us + slower[code]
    half = len(x) // 2
    parts = [slice(0, half), slice(half, None)]
    plain, coded = (
        ranking_network.train(x[parts[0]], log_us[parts[0]], base[parts[0]], group[parts[0]], columns)
        for columns in ((), (4,))
    )
    assert plain.codes == ()
    assert coded.codes == ((4, tuple(map(float, range(8)))),)
    errors = [float(np.std(n.predict(x[parts[1]]) + base[parts[1]] - log_us[parts[1]])) for n in (plain, coded)]
    assert errors[1] < errors[0] / 1.5
    assert np.isfinite(coded.predict(np.array([[0, 0, 0, 0, 99]], np.float32))).all()


def test_half_of_a_prediction_is_the_networks() -> None:
    network = ranking_network.train(*random_problems(50))
    x, trees = random_problems(3, seed=5)[0], np.zeros(60, np.float32)
    assert combined(trees, None, x) is trees
    assert np.allclose(combined(trees, network, x), network.predict(x) / 2)


@pytest.mark.parametrize(("rows", "threads"), [(200, 1), (2000, 2)])
def test_few_rows_are_predicted_by_one_thread(rows: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = ThreadpoolController().select(user_api="blas")
    of_numpy = ThreadpoolController().select(
        filepath=[x["filepath"] for x in controller.info() if "numpy" in x["filepath"]]
    )
    used: list[int] = []
    compute = ranking_network._activations

    def recorded(network: RankingNetwork, x: ranking_network.Floats) -> list[ranking_network.Floats]:
        used.extend(each["num_threads"] for each in of_numpy.info())
        return compute(network, x)

    monkeypatch.setattr(ranking_network, "_activations", recorded)
    x = np.ones((rows, 3), np.float32)
    layer = np.ones((3, 1), np.float32)
    network = RankingNetwork(x[0] * 0, x[0], (layer,), (np.zeros(1, np.float32),))
    with controller.limit(limits=2):
        assert network.predict(x).tolist() == [3.0] * rows
        assert {each["num_threads"] for each in of_numpy.info()} == {2}
    assert {*used} == {threads}


def test_its_form_in_a_file() -> None:
    network = ranking_network.train(*random_problems(50))
    again = RankingNetwork.from_dict(network.as_dict(), 4)
    for field in dataclasses.fields(RankingNetwork):
        for a, b in zip(getattr(network, field.name), getattr(again, field.name), strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"widths": [5, 192, 192, 96, 1]}, "the first 4"),
        ({"widths": [4, 192, 192, 96, 2]}, "the last 1"),
        ({"widths": [4, 192, 1 << 20, 96, 1]}, "from 1 to 4096"),
        ({"weights": []}, "weights of the network are not 4 texts"),
        ({"biases": 4}, "biases of the network are not 4 texts"),
        ({"weights": ["\x80"] * 4}, "a layer of the network has 1 weights; it must have 1280"),
        ({"mean": "AAAA"}, "multiple of element size|4 finite numbers"),
        ({"scale": ranking_network._text(np.array([1, 0, 1, 1], np.float32))}, "positive"),
        ({"scale": ranking_network._text(np.array([1, np.nan, 1, 1], np.float32))}, "finite"),
        ({"mean": "?"}, "base64|padding"),
        ({"codes": [[4, [1, 2, 3]]]}, "numbers of the 4 features"),
        ({"codes": [[1, [1, 2, 3]]]}, "the first 7"),
    ],
)
def test_a_damaged_network_is_refused(change: dict[str, object], rule: str) -> None:
    content = ranking_network.train(*random_problems(50)).as_dict()
    with pytest.raises(ValueError, match=rule):
        RankingNetwork.from_dict({**content, **change}, 4)
