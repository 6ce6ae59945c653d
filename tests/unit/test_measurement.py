"""A measurement as plain data."""

from __future__ import annotations

import json
import math

from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.tuning.store.measurement import OUTCOMES, Environment, Measurement, from_dict

HERE = Environment("h200", "hardware", "CUDA 13.0", "ptxas 13.0.88", "graph", "abc")


def test_json_round_trip():
    for n, outcome in enumerate(OUTCOMES):
        m = Measurement(
            Gemm(n, 4, 5, "TN", "f16", "f16", lda=80),
            Config(ms=4, vec_a=2),
            outcome,
            HERE,
            (1.5, 2.25) if outcome == "ok" else (),
            "0123456789abcdef",
            64,
            0,
            "why",
            "search",
            12.5,
        )
        back = from_dict(json.loads(json.dumps(m.as_dict())))
        assert back == m
        assert back.created == 12.5
        assert isinstance(back.samples, tuple)


def test_time_and_speed():
    m = Measurement(Gemm(100, 100, 100), Config(), "ok", HERE, (4.0, 1.0, 2.0))
    assert m.us == 2.0
    assert m.tflops == 2e6 / 2.0 * 1e-6
    failed = Measurement(Gemm(100, 100, 100), Config(), "timeout", HERE)
    assert failed.us == math.inf
    assert failed.tflops == 0.0
    assert failed == Measurement(Gemm(100, 100, 100), Config(), "timeout", HERE, created=99.0)  # when does not matter
