"""The family tap_products: its rules, and the problems that choose it."""

from __future__ import annotations

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ConfigError
from ptxgen.families.common.rules import RULES, first_violation, require
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.device import device
from ptxgen.tuning.model.model import Model

H200 = device("h200")
CONFIG = "family=tap_products tile_height=8 tile_width=16 block_threads=128"
P = Conv(2, 24, 19, 37, 2, 3, 3, padding=1, layout="NHWC", dtype="f16")

#: a rule -> problem, configuration that breaks it and none before it, words of the message
BREAKS = {
    "tap_products_pixels": [(P, f"{CONFIG} thread_pixels=1", "a tile reads 180 pixels; block_threads=128 with")],
    "tap_products_channels": [
        (Conv(2, 24, 19, 37, 2, 3, 3, dtype="f16"), f"{CONFIG} vec_channel=2", "allow vec_channel=1 at most"),
        (P, f"{CONFIG} vec_channel=8 u=4", "vec_channel=8, u=4, filter_channels=128: each must divide the next"),
        (P, f"{CONFIG} u=256", "u=256, filter_channels=128: each must divide the next"),
    ],
    "tap_products_filters": [(P, CONFIG, "filter_channels=128 of 24 channels: half of the taps")],
    "tap_products_mma": [
        (P, f"{CONFIG} vec_channel=8 u=16 tap_mma=1", "u in multiples of 32"),
        (P, f"{CONFIG} vec_channel=4 u=32 tap_mma=1", "vec_channel=8 and"),
        (Conv(2, 24, 9, 9, 2, 3, 3, layout="NHWC"), f"{CONFIG} vec_channel=4 u=32 tap_mma=1", "elements of 16 bits"),
    ],
}


@pytest.mark.parametrize("name", BREAKS)
def test_rules_name_what_they_refuse(name: str) -> None:
    for v, text, words in BREAKS[name]:
        broken = first_violation(lower(v), parse_config(text), H200)
        assert broken is not None
        assert broken.name == name
        with pytest.raises(ConfigError, match=words):
            require(lower(v), parse_config(text), H200)


def test_each_rule_is_broken() -> None:
    assert set(BREAKS) == {rule.name for rule in RULES if rule.family == "tap_products"}


@pytest.mark.parametrize(
    ("v", "chosen"),
    [
        (Conv(256, 128, 19, 19, 1, 3, 3, padding=1, layout="NHWC", dtype="f16"), "tap_products"),
        (Conv(8, 64, 200, 200, 1, 3, 3, padding=1), "tap_products"),
        (Conv(32, 64, 56, 56, 10, 3, 3, padding=1, layout="NHWC", dtype="f16"), "wgmma"),
    ],
    ids=["128 to 1, NHWC f16", "64 to 1, NCHW f32", "64 to 10"],
)
def test_performance_model_takes_the_family_for_few_filters(v: Conv, chosen: str) -> None:
    [(config, _)] = Model(H200).rank(v, H200, 1)
    assert config.family == chosen
