"""A multi-layer perceptron that ranks the configurations of a problem, in NumPy.

Trees split a feature at thresholds, and so predict the same time for configurations that differ a little. A network is
smooth, and its errors differ from those of the trees, so the average of both chooses better than either. The network
learns with Adam (Kingma & Ba, 2015) and a listwise loss (Cao et al., ICML 2007).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.tuning.model import number_text

Floats = NDArray[np.float32]

HIDDEN = (320, 320, 128)  #: sizes of the hidden layers
SHARE = 0.5  #: the weight of the network in the prediction; the rest is the weight of the trees
FARTHEST = 6.0  #: features are clipped at so many standard deviations: a network extrapolates badly
CONSTANT = 1e-6  #: a feature with a smaller standard deviation is not scaled
EPOCHS, BATCH = 40, 64  #: passes over the problems; problems per step
ROWS_MOST = 200  #: rows of a problem in a step, drawn at random
RATE, WARM_UP, DECAY = 2.5e-3, 0.15, 1e-2  #: largest step size, fraction of training that reaches it, weight decay
MOMENTS, TINY = (0.9, 0.999), 1e-8  #: Adam's decay rates and epsilon
#: weights of two terms of the loss: the order of a problem's configurations, and the mean of their times
LISTWISE, LEVEL = 0.1, 0.05
SHARPNESS = 12.0  #: a configuration's chance to be the best is 2 to the power of 1.44 · SHARPNESS · log2(best / time)
SEED = 11
ROWS_OF_A_CHOICE = 1024  #: up to so many rows are predicted by one thread
LAYERS_MOST, WIDTH_MOST = 8, 4096
#: trained weights are multiples of WEIGHT_STEP, so that files are small: a fortieth of their standard deviation
WEIGHT_STEP, WEIGHT_MOST = 2.0**-9, 16.0


Codes = tuple[tuple[int, tuple[float, ...]], ...]  #: for features that are codes: the column and its values


@dataclass(frozen=True)
class RankingNetwork:
    """A perceptron with rectified linear units, whose last layer has one output. ``mean``, ``scale``: by which each
    input is normalised; ``weights``, ``biases``: those of each layer; ``codes``: the features of which each value has
    an input of its own, besides the features."""

    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    codes: Codes = ()

    def predict(self, x: Floats) -> Floats:
        """log2 of (time / baseline) for each row of features."""
        if len(x) > ROWS_OF_A_CHOICE:
            return _activations(self, self.scaled(x))[-1][:, 0]
        from ptxgen.tuning.model.blas_threads import one_thread  # it takes 10 ms to import

        with one_thread():
            return _activations(self, self.scaled(x))[-1][:, 0]

    def scaled(self, x: Floats) -> Floats:
        """The inputs of the first layer: features and indicators of codes, normalised and clipped."""
        inputs = _inputs(x, self.codes)
        out: Floats = np.clip((inputs - self.mean) / self.scale, np.float32(-FARTHEST), np.float32(FARTHEST))
        return out

    def as_dict(self) -> dict[str, Any]:
        """The network as JSON values: ``weights``: by layer, the multiples of WEIGHT_STEP as a column of numbers; each
        other array is the base64 text of its little-endian bytes."""
        return {
            "widths": [len(self.mean), *(len(bias) for bias in self.biases)],
            "codes": [[column, list(values)] for column, values in self.codes],
            "mean": _text(self.mean),
            "scale": _text(self.scale),
            "weights": [number_text.signed_text(_rounded(weight) / WEIGHT_STEP) for weight in self.weights],
            "biases": [_text(bias) for bias in self.biases],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], features: int) -> RankingNetwork:
        """The network that ``as_dict`` wrote. ``features``: the number of features. ValueError, TypeError, KeyError: a
        value is missing or invalid."""
        widths, codes = values["widths"], _codes(values.get("codes", []), features)
        inputs = features + sum(len(known) for _, known in codes)
        if not isinstance(widths, list) or not 2 <= len(widths) <= LAYERS_MOST or widths[0] != inputs:
            raise ValueError(
                f"widths of the network are {widths!r}; they must be a list of 2 to {LAYERS_MOST}, the first {inputs}"
            )
        if not all(isinstance(n, int) and 1 <= n <= WIDTH_MOST for n in widths) or widths[-1] != 1:
            raise ValueError(f"widths of the network are {widths}; they must be from 1 to {WIDTH_MOST}, the last 1")
        mean, scale = (_array(values[name], (inputs,)) for name in ("mean", "scale"))
        if not (scale > 0).all():
            raise ValueError(f"scale of the network has {scale.min()}; it must be positive")
        for name in ("weights", "biases"):
            if not isinstance(values[name], list) or len(values[name]) != len(widths) - 1:
                raise ValueError(f"{name} of the network are not {len(widths) - 1} texts, as widths says")
        weights = [_weights(text, shape) for text, shape in zip(values["weights"], pairwise(widths), strict=True)]
        biases = [_array(text, (count,)) for text, count in zip(values["biases"], widths[1:], strict=True)]
        return cls(mean, scale, tuple(weights), tuple(biases), codes)


def _codes(values: Any, features: int) -> Codes:
    """The checked ``codes`` of a file."""
    codes = tuple((column, tuple(map(float, known))) for column, known in values)
    if not all(isinstance(column, int) and 0 <= column < features for column, _ in codes):
        raise ValueError(f"codes of the network are {values!r}; the columns must be numbers of the {features} features")
    return codes


def _inputs(x: Floats, codes: Codes) -> Floats:
    """The features and, for each value of each code, 1 in the rows that have it and 0 in the others."""
    if not codes:
        return x
    columns = np.repeat([column for column, _ in codes], [len(known) for _, known in codes])
    known = np.array([value for _, values in codes for value in values], np.float32)
    return np.concatenate([x, (x[:, columns] == known).astype(np.float32)], axis=1)


def _text(a: Floats) -> str:
    return base64.b64encode(a.astype("<f4").tobytes()).decode()


def _array(text: str, shape: tuple[int, ...]) -> Floats:
    out = np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)
    if out.size != math.prod(shape) or not np.isfinite(out).all():
        raise ValueError(f"an array of the network has {out.size} numbers; it must have {math.prod(shape)} finite ones")
    return out.reshape(shape)


def _weights(text: str, shape: tuple[int, int]) -> Floats:
    multiples = number_text.signed_numbers(text)
    if multiples.size != math.prod(shape):
        raise ValueError(f"a layer of the network has {multiples.size} weights; it must have {math.prod(shape)}")
    return np.asarray(multiples * WEIGHT_STEP, np.float32).reshape(shape)


def _rounded(weights: Floats) -> Floats:
    multiples = np.rint(np.clip(weights, -WEIGHT_MOST, WEIGHT_MOST) / np.float32(WEIGHT_STEP))
    return np.asarray(multiples * np.float32(WEIGHT_STEP), np.float32)


def combined(trees: Floats, network: RankingNetwork | None, x: Floats) -> Floats:
    """The prediction of a model for rows ``x`` of features, from ``trees``, the prediction of its trees. ``network``:
    None: the model has only trees."""
    return trees if network is None else np.float32(1 - SHARE) * trees + np.float32(SHARE) * network.predict(x)


def train(
    x: Floats, log_us: Floats, base: Floats, group: NDArray[np.int64], codes: Sequence[int] = ()
) -> RankingNetwork:
    """A network that has learnt ``log_us - base`` from the features ``x``. ``base``: log2 of the baseline of each row;
    ``group``: the number of the problem of each row; ``codes``: the columns of features that are codes. The same rows
    give the same network up to rounding."""
    values = ((column, np.unique(x[:, column])) for column in codes)
    read = tuple((column, tuple(map(float, known))) for column, known in values if len(known) > 2)
    x = _inputs(x, read)
    deviation = x.std(axis=0)
    mean, scale = x.mean(axis=0), np.where(deviation > CONSTANT, deviation, np.float32(1))
    rng = np.random.default_rng(SEED)
    widths = (x.shape[1], *HIDDEN, 1)
    layers = [(np.sqrt(2.0 / n) * rng.standard_normal((n, m))).astype(np.float32) for n, m in pairwise(widths)]
    network = RankingNetwork(mean, scale, tuple(layers), tuple(np.zeros(m, np.float32) for m in widths[1:]))
    x = network.scaled(x)  # which has the indicators already
    _, number, count = np.unique(group, return_inverse=True, return_counts=True)
    rows, ends = np.argsort(number, kind="stable"), np.cumsum(count)
    members = [rows[end - n : end] for end, n in zip(ends, count, strict=True)]
    best = np.full(len(count), np.inf, np.float32)
    np.minimum.at(best, number, log_us)
    behind, level = log_us - best[number], base - best[number]
    steps = list(_batches(members, rng))
    adam = _Adam(network, len(steps))
    for batch in steps:
        drawn = [m if len(m) <= ROWS_MOST else rng.choice(m, ROWS_MOST, replace=False) for m in batch]
        rows, starts = np.concatenate(drawn), np.cumsum([0, *map(len, drawn[:-1])])
        inputs = _activations(network, x[rows])
        predicted = inputs.pop()[:, 0] + level[rows]
        adam.step(_gradients(network, inputs, loss_slope(predicted, behind[rows], starts)))
    return replace(network, weights=tuple(map(_rounded, network.weights)), codes=read)


def _batches(members: Sequence[NDArray[np.intp]], rng: np.random.Generator) -> Iterator[list[NDArray[np.intp]]]:
    """For each step of training, the rows of each of its problems."""
    for _ in range(EPOCHS):
        order = rng.permutation(len(members))
        for at in range(0, len(order), BATCH):
            yield [members[i] for i in order[at : at + BATCH]]


def loss(predicted: Floats, behind: Floats, starts: NDArray[np.int64]) -> float:
    """The loss of some problems. ``predicted``, ``behind``: log2 of (time / best measured time), predicted and
    measured; ``starts``: the first row of each problem. The loss is the mean over the problems of the sum of three
    terms: the weighted variance of the error, the cross entropy of the distributions of the best configuration, and the
    square of the mean error. Fast rows have more weight."""
    weight, _, chance, expected, mean, inside = _parts(predicted, behind, starts)
    each = np.add.reduceat(weight * inside**2 - LISTWISE * expected * np.log(chance), starts) + LEVEL * mean**2
    return float(each.mean())


def loss_slope(predicted: Floats, behind: Floats, starts: NDArray[np.int64]) -> Floats:
    """The derivatives of ``loss`` with respect to ``predicted``."""
    weight, number, chance, expected, mean, inside = _parts(predicted, behind, starts)
    slope = 2 * weight * (inside + LEVEL * mean[number]) + LISTWISE * SHARPNESS * (expected - chance)
    return np.asarray(slope / len(starts), np.float32)


def _parts(predicted: Floats, behind: Floats, starts: NDArray[np.int64]) -> tuple[Any, ...]:
    number = np.repeat(np.arange(len(starts)), np.diff([*starts, len(predicted)]))

    def normalized(values: Floats) -> Floats:
        return np.asarray(values / np.add.reduceat(values, starts)[number], np.float32)

    weight = normalized(np.exp2(-behind))
    mean = np.add.reduceat(weight * (predicted - behind), starts)
    least = np.minimum.reduceat(predicted, starts)[number]
    chance = np.maximum(normalized(np.exp(SHARPNESS * (least - predicted))), np.float32(1e-30))
    expected = normalized(np.exp(-SHARPNESS * behind))
    return weight, number, chance, expected, mean, predicted - behind - mean[number]


def _activations(network: RankingNetwork, x: Floats) -> list[Floats]:
    """The input of each layer, and the output of the last."""
    out = [x]
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        out.append(np.maximum(out[-1] @ weight + bias, np.float32(0)))
    out.append(out[-1] @ network.weights[-1] + network.biases[-1])
    return out


def _gradients(network: RankingNetwork, inputs: list[Floats], slope: Floats) -> list[Floats]:
    """The gradients of the loss with respect to all weights, then to all biases. ``inputs``: the input of each layer;
    ``slope``: the derivative of the loss with respect to the output."""
    weights: list[Floats] = []
    biases: list[Floats] = []
    back = slope[:, None]
    for weight, x in zip(reversed(network.weights), reversed(inputs), strict=True):
        weights.append(x.T @ back)
        biases.append(back.sum(axis=0))
        back = (back @ weight.T) * (x > 0)
    return [*reversed(weights), *reversed(biases)]


class _Adam:
    """The optimiser Adam, which changes the arrays of a network in place. The step size rises to RATE and falls to
    zero, along cosines."""

    def __init__(self, network: RankingNetwork, steps: int) -> None:
        self.arrays = [*network.weights, *network.biases]
        self.decayed = len(network.weights)
        self.first, self.second = ([np.zeros_like(a) for a in self.arrays] for _ in range(2))
        self.steps, self.done = steps, 0

    def step(self, gradients: list[Floats]) -> None:
        part = self.done / self.steps
        rise = part / WARM_UP if part < WARM_UP else (1 - part) / (1 - WARM_UP)
        rate = RATE * (1 - math.cos(math.pi * rise)) / 2
        self.done += 1
        b1, b2 = MOMENTS
        size = rate * math.sqrt(1 - b2**self.done) / (1 - b1**self.done)
        for i, (array, gradient) in enumerate(zip(self.arrays, gradients, strict=True)):
            first, second = self.first[i], self.second[i]
            first += np.float32(1 - b1) * (gradient - first)
            second += np.float32(1 - b2) * (gradient * gradient - second)
            if i < self.decayed:
                array *= np.float32(1 - rate * DECAY)
            array -= np.float32(size) * first / (np.sqrt(second) + np.float32(TINY))
