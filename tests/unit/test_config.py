"""Configurations as text and as columns."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.axes import COMMON, Axis
from ptxgen.codegen.config.config import (
    AXIS,
    FAMILIES,
    Columns,
    Config,
    axes_of,
    config_of_full_text,
    declare,
    family_names,
    parse_config,
    retract,
)
from ptxgen.errors import ConfigError, InputError

NAMES = tuple(family_names())


def random_configs(seed: int, n: int) -> list[Config]:
    """Configurations of every family with values from the search and others, legal or not."""
    rng = np.random.default_rng(seed)
    pool = [*range(-2, 20), 32, 64, 128, 256, 1 << 40]

    def value(a: Axis) -> int:
        return int(rng.integers(len(a.words)) if a.words else rng.choice([*a.values, *pool]))

    families = [NAMES[i % len(NAMES)] for i in range(n)]
    return [Config(family=f, **{a.name: value(a) for a in axes_of(f)}) for f in families]


def test_the_common_axes():
    assert [a.symbol for a in COMMON.values() if a.symbol] == ["M_S", "N_S", "M_L", "N_L", "U", "K_S", "K_L", "K_G"]


@pytest.mark.parametrize("family", NAMES)
def test_the_axes_of_a_family(family):
    axes = axes_of(family)
    assert len({a.name for a in axes}) == len(axes)
    for a in axes:
        assert a.meaning
        assert list(a.values) == sorted(set(a.values))
        assert all(a.in_range(v) and a.is_power_of_two(v) for v in a.values)
        assert getattr(Config(family=family), a.name) == a.default
        assert not a.words or all(v < len(a.words) for v in a.values)


def test_a_configuration_holds_the_axes_of_its_family_alone():
    c = Config(family="wgmma", ml=128)
    assert "family=wgmma" in c.full_text()
    assert [name for name, _ in c.items()] == [a.name for a in axes_of("wgmma")]
    assert c.bounds == COMMON["bounds"].default, "a common axis reads as its default"
    with pytest.raises(AttributeError, match="wgmma has no axis 'long_n'"):
        c.long_n  # noqa: B018
    with pytest.raises(TypeError, match="long_n"):
        Config(family="wgmma", long_n=1)
    with pytest.raises(ConfigError, match="axes of wgmma"):
        replace(c, family="mma")


def test_axes_are_read_only_where_they_are_common_or_the_familys():
    """The same name has the same default and words in every family."""
    with pytest.raises(InputError, match="axis 'ml' with default 5"):
        declare("toy", (Axis("ml", 5, "rows"),))
    with pytest.raises(InputError, match="different identifiers"):
        declare("toy", (Axis("side", 5, "rows"), Axis("side", 5, "rows")))
    assert tuple(FAMILIES) == NAMES
    declare("toy", (Axis("side", 5, "rows"), COMMON["ml"]))
    try:
        assert parse_config("family=toy side=3") == Config(family="toy", side=3)
        assert Columns.of([Config(), Config(family="toy", side=3)]).side.tolist() == [5, 3]
    finally:
        retract("toy")
    assert "side" not in AXIS
    assert "ml" in AXIS
    with pytest.raises(ConfigError, match="family is one of"):
        parse_config("family=toy")


def test_text_round_trips():
    for c in [Config(), *random_configs(1, 500)]:
        assert parse_config(str(c)) == c
        assert parse_config(c.full_text()) == c
        assert parse_config(" ".join(f"{n}={v}" for n, v in c.values().items())) == c
        assert parse_config(str(c).replace(" ", ",")) == c
    assert parse_config("") == Config()


@pytest.mark.parametrize("family", NAMES)
def test_full_text_is_read_word_by_word_and_other_texts_are_not(family):
    for number in range(20):
        config = Config(
            family=family, **{a.name: a.values[number % len(a.values)] for a in axes_of(family) if a.values}
        )
        text = config.full_text()
        assert text == " ".join(f"{name}={value}" for name, value in config.values().items())
        config_read = config_of_full_text(text)
        assert config_read == config
        assert (type(config_read), vars(config_read), hash(config_read)) == (type(config), vars(config), hash(config))
        words = text.split(" ")
        first = words[1]
        for other in (
            str(config) if str(config) != text else "",
            text + " ",
            text.replace(" ", ",", 1),
            " ".join(words[1:]),
            " ".join([words[0], *words[2:], first]),
            text.replace(first, f"{first}=1", 1),
            text.replace(first, "absent=1", 1),
            text.replace(first, f"{first.partition('=')[0]}=08", 1),
            text.replace(f"family={family}", f"FAMILY={family}", 1),
            text.replace(f"family={family}", f"family={family}s", 1),
        ):
            assert config_of_full_text(other) is None, other


def test_text_has_the_papers_axes_and_other_than_defaults():
    assert str(Config()) == "family=simt ms=8 ns=8 ml=64 nl=64 u=8 ks=1 kl=1 kg=1"
    assert str(Config(vec_a=4, stages=3)) == "family=simt ms=8 ns=8 ml=64 nl=64 u=8 ks=1 kl=1 kg=1 vec_a=4"
    assert str(Config(family="wgmma", kg=2, splitk=3)) == "family=wgmma ml=64 nl=64 u=8 kg=2 splitk=last_cta"
    assert str(Config(bounds=2)).endswith("kg=1 bounds=predicate")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("mz=4", "mz"),
        ("ms", "ms"),
        ("ms=", "ms"),
        ("ms=four", "ms"),
        ("ms=4.0", "ms"),
        ("ms=--4", "ms"),
        ("ms=-", "ms"),
        ("ms=²", "ms"),
        ("ms=4 ms=8", "twice"),
        ("=4", "axes of simt are"),
        ("ms=" + "9" * 30, "ms"),
        ("MS=4", "MS"),
        ("stagess=4", "did you mean 'stages'"),
        ("split=3", "did you mean 'splitk'"),
        ("bounds=predicated", "did you mean bounds=predicate"),
        ("pdl=nothing", "one of off, on_exit"),
        (
            "family=wgmma ms=4",
            "'ms', which is an axis of simt, mma, skinny, winograd, winograd_4x4, quantized_mma; the axes of wgmma are ml",
        ),
        ("cluster_x=2", "'cluster_x', which is an axis of wgmma; the axes of simt are ms"),
        ("family=skinny lanes_m=4", "'lanes_m', which is an axis of simt"),
        ("family=mma familly=mma", "familly"),
        ("family=fma", "family is one of simt, mma, [a-z0-9_, ]*$"),  # half of the letters are no suggestion
        ("bounds=last", "bounds is one of none, clamp, predicate$"),
    ],
)
def test_invalid_text_is_refused(text, word):
    with pytest.raises(ConfigError, match=word) as caught:
        parse_config(text)
    assert caught.value.rule == "axis"
    assert "config has" in str(caught.value)


def test_configurations_are_hashable_values():
    a, b = Config(ms=4), Config(ms=4)
    assert a == b
    assert len({a, b, Config()}) == 2
    assert sorted([Config(ms=16), Config(ms=2)])[0].ms == 2
    assert sorted([Config(family="mma"), Config(ms=16)])[0].family == "simt"
    assert pickle.loads(pickle.dumps(a)) == deepcopy(a) == a
    with pytest.raises(AttributeError):
        a.ms = 8


def test_columns_hold_rows():
    configs = random_configs(2, 50)
    c = Columns.of(configs)
    assert len(c) == 50
    assert [c.row(i) for i in range(50)] == configs
    assert [type(v) for _, v in c.row(0).items()] == [int] * len(axes_of(configs[0].family))
    for name, a in AXIS.items():
        assert getattr(c, name).tolist() == [getattr(x, name, a.default) for x in configs]


def test_columns_take_replace_and_join():
    configs = [c for c in random_configs(3, 400) if c.family == "mma"][:20]
    c = Columns.of(configs)
    mask = np.arange(20) % 3 == 0
    assert [c.take(mask).row(i) for i in range(7)] == configs[::3]
    assert [c.take(np.array([5, 1])).row(i) for i in range(2)] == [configs[5], configs[1]]
    r = c.replace(ms=3, kg=np.arange(20))
    assert r.row(7).ms == 3
    assert r.row(7).kg == 7
    assert r.row(7).ns == configs[7].ns
    assert c.row(7) == configs[7]  # the old ones stay
    joined = Columns.concat([c, r])
    assert len(joined) == 40
    assert joined.row(27) == r.row(7)
    with pytest.raises(AttributeError):
        c.nonsense  # noqa: B018


def test_columns_of_a_product_are_every_combination():
    c = Columns.product({"ms": (2, 4), "u": (8, 16, 32)})
    assert len(c) == 6
    assert {(x.ms, x.u) for x in (c.row(i) for i in range(6))} == {(m, u) for m in (2, 4) for u in (8, 16, 32)}
    assert c.row(0).ns == c.ns[0] == AXIS["ns"].default
    assert len(Columns({}, 4)) == 4
    assert len(Columns.of([])) == 0


def test_columns_refuse_an_axis_that_does_not_exist():
    with pytest.raises(ConfigError, match="mz"):
        Columns({"mz": np.arange(3)})
    with pytest.raises(ConfigError, match="vecc"):
        Columns.of([Config()]).replace(vecc=4)
