"""Suites of grouped products: the random batches and Inception layers of Zhang et al., and layers of experts of public
language models. Random problems have seeds, so a suite is the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.operation import Case, Suite, by_name
from ptxgen.problem.public_shapes import public_shapes

#: M, N, K
Item = tuple[int, int, int]


@dataclass(frozen=True)
class Group:
    """A named group of products. ``dtype``: the type of A and B, unless another type is requested; ``jagged``: the axis
    along which the items are parts of one array, "" for separate matrices."""

    name: str
    items: tuple[Item, ...]
    dtype: str
    jagged: str = ""


# ---- batchgemm: Zhang et al., Journal of Systems Architecture 160 (2025) 103341, sections 5.1 and 5.7

#: upper bounds of M and N, and of K. The lower bound is 16. Section 5.1 says that there are 12 ranges, and sections 5.1
#: and 5.2 name these two; the ten others are chosen here
NAMED_RANGES = ((512, 128), (128, 128))
RANGES = tuple((mn, k) for k in (128, 256, 512, 1024) for mn in (128, 256, 512))
LEAST_EXTENT = 16
BATCH_SIZES = (8, 16, 32, 64, 128, 256)

#: Table 6: the 1x1 convolutions of an Inception module. M is the number of pixels, N the number of output channels, K
#: that of input channels
INCEPTION: dict[str, tuple[Item, ...]] = {
    f"Inception-{number}": tuple((m, n, 192) for n in channels)
    for number, (m, channels) in enumerate(
        (
            (784, (96, 64, 32, 16)),
            (784, (64, 32, 128)),
            (196, (192, 16, 96, 64)),
            (196, (64, 24, 160)),
            (196, (64, 128, 24)),
            (196, (112, 144, 32, 64)),
            (196, (256, 160, 128)),
            (49, (160, 128, 256, 160, 32)),
            (49, (192, 128, 384, 192, 48)),
        ),
        1,
    )
}


def random_items(count: int, max_mn: int, max_k: int, seed: int = 0) -> tuple[Item, ...]:
    """``count`` random items, with M and N uniform from 16 to ``max_mn``, and K uniform from 16 to ``max_k``, bounds
    included."""
    rng = np.random.default_rng((seed, count, max_mn, max_k))
    upper = np.array([max_mn, max_mn, max_k]) + 1
    return tuple((int(m), int(n), int(k)) for m, n, k in rng.integers(LEAST_EXTENT, upper, (count, 3)))


def batchgemm(seed: int = 0) -> Iterator[Group]:
    """The groups of the 12 ranges with each batch size, then the Inception modules."""
    for max_mn, max_k in RANGES:
        for count in BATCH_SIZES:
            yield Group(f"{max_mn}/{max_k} x{count}", random_items(count, max_mn, max_k, seed), "f32")
    for name, items in INCEPTION.items():
        yield Group(name, items, "f32")


#: the batch sizes of section 5.4, whose overhead of choosing tiles is measured, and the range of extents of the
#: authors' list
OVERHEAD_SIZES, OVERHEAD_RANGE = (8, 16, 32, 64, 128, 256, 512, 1024), (512, 128)


def batch_sizes(seed: int = 0) -> Iterator[Group]:
    """Groups of all sizes in OVERHEAD_SIZES, in one range of extents."""
    for count in OVERHEAD_SIZES:
        yield Group(f"x{count}", random_items(count, *OVERHEAD_RANGE, seed), "f32")


# ---- moe


@dataclass(frozen=True)
class Experts:
    """The layer of experts of a model, from the configuration that its authors published: ``hidden_size``, the
    intermediate size of an expert, the number of routed experts and of experts per token.

    ``gpus``: the number of GPUs over which the experts are distributed. Every GPU has its own batch of tokens, and
    computes those tokens of all GPUs that are routed to its experts.
    """

    model: str
    hidden: int
    intermediate: int
    experts: int
    per_token: int
    gpus: int = 1


#: https://huggingface.co/<organisation>/<model>/blob/main/config.json. ``gpus`` keeps the weights of a layer below 2 GB
MODELS = (
    Experts("Mixtral-8x7B", 4096, 14336, 8, 2),  # mistralai/Mixtral-8x7B-v0.1
    Experts("Mixtral-8x22B", 6144, 16384, 8, 2, gpus=2),  # mistralai/Mixtral-8x22B-v0.1
    Experts("DeepSeek-V2", 5120, 1536, 160, 6, gpus=8),  # deepseek-ai/DeepSeek-V2
    Experts("DeepSeek-V3", 7168, 2048, 256, 8, gpus=32),  # deepseek-ai/DeepSeek-V3
    Experts("Qwen1.5-MoE-A2.7B", 2048, 1408, 60, 4),  # Qwen/Qwen1.5-MoE-A2.7B
    Experts("Qwen3-30B-A3B", 2048, 768, 128, 8),  # Qwen/Qwen3-30B-A3B
    Experts("Qwen3-235B-A22B", 4096, 1536, 128, 8, gpus=8),  # Qwen/Qwen3-235B-A22B
    Experts("gpt-oss-20b", 2880, 2880, 32, 4),  # openai/gpt-oss-20b
    Experts("gpt-oss-120b", 2880, 2880, 128, 4, gpus=4),  # openai/gpt-oss-120b
    Experts("Llama-4-Scout", 5120, 8192, 16, 1, gpus=2),  # meta-llama/Llama-4-Scout-17B-16E
    Experts("Llama-4-Maverick", 5120, 8192, 128, 1, gpus=16),  # meta-llama/Llama-4-Maverick-17B-128E
)
TOKENS = (64, 2048)  #: tokens per GPU: decoding and prompts
#: routing -> exponent s: the expert of rank r is chosen with a probability proportional to 1 / r**s
ROUTINGS = {"uniform": 0.0, "zipf": 1.0}


@cache
def routed_rows(layer: Experts, tokens: int, exponent: float, seed: int = 0) -> tuple[int, ...]:
    """The number of rows of each expert of one GPU. ``tokens``: tokens per GPU; ``exponent``: see ROUTINGS.

    Every token chooses ``per_token`` different experts, one after the other, each in proportion to the probabilities of
    the experts that are left.
    """
    rng = np.random.default_rng((seed, layer.experts, layer.per_token, tokens, round(1000 * exponent)))
    weights = rng.permutation(-exponent * np.log(np.arange(1, layer.experts + 1)))
    # the largest sums of logarithms and Gumbel noise are a sample without replacement
    scores = weights + rng.gumbel(size=(tokens * layer.gpus, layer.experts))
    chosen = np.argpartition(-scores, layer.per_token - 1, axis=1)[:, : layer.per_token]
    rows = np.bincount(chosen.ravel(), minlength=layer.experts)
    return tuple(int(m) for m in rows[: layer.experts // layer.gpus])


def moe(seed: int = 0) -> Iterator[Group]:
    """The two products of every model's experts, fused gate and up projections and down projection, with each routing
    and number of tokens."""
    for layer in MODELS:
        for routing, exponent in ROUTINGS.items():
            for tokens in TOKENS:
                rows = routed_rows(layer, tokens, exponent, seed)
                for part, n, k in (
                    ("gate+up", 2 * layer.intermediate, layer.hidden),
                    ("down", layer.hidden, layer.intermediate),
                ):
                    name = f"{layer.model} {part} {routing} {tokens}"
                    yield Group(name, tuple((m, n, k) for m in rows), "bf16", "m")


def public(seed: int = 0) -> Iterator[Group]:
    """Layers of experts that public documents report. Each row goes to any expert with equal probability."""
    for x in public_shapes("grouped"):
        experts, rows, n, k = (x.fields[name] for name in ("experts", "rows", "n", "k"))
        parts = np.random.default_rng((seed, rows, experts)).multinomial(rows, [1 / experts] * experts)
        yield Group(x.name, tuple((int(m), n, k) for m in parts), x.fields["dtype"], "m")


# ---- the suites


#: one group of each form, small enough for the emulated device
SMALL = (
    Group("random", ((20, 17, 33), (0, 9, 12), (48, 31, 5), (1, 1, 1), (16, 64, 64)), "f32"),
    Group("equal", ((32, 32, 32),) * 4, "f32"),
    Group("long K", ((8, 8, 16), (16, 16, 512), (8, 8, 16)), "f32"),
    Group("experts", ((24, 64, 32), (0, 64, 32), (7, 64, 32), (33, 64, 32)), "bf16", "m"),
    Group("gradient of experts", ((32, 64, 24), (32, 64, 0), (32, 64, 7)), "bf16", "k"),
)


def _suite(name: str, meaning: str, groups: Callable[[], Iterable[Group]]) -> Suite:
    def build(**fields: Any) -> Iterator[Case]:
        return (
            Case(g.name, GroupedGemm(g.items, **{"dtype": g.dtype, "jagged": g.jagged, **fields})) for g in groups()
        )

    return Suite(name, meaning, build)


SUITES = by_name(
    _suite(
        "batchgemm",
        "random batches of 8 to 256 items in 12 ranges of extents (the article names two), nine Inception modules",
        batchgemm,
    ),
    _suite("batch_sizes", "random batches of 8 to 1,024 items, M and N up to 512 and K up to 128", batch_sizes),
    _suite("moe", "experts of public language models, uniform and Zipf routing, decoding and prompts", moe),
    _suite("public", "layers of experts that people reported as slow, rows in random parts", public),
    _suite("small", "one group of each form, small enough for the emulated device", lambda: SMALL),
)
