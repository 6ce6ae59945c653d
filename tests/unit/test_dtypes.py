"""Element types: one row each, and exact literals."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.errors import DtypeError
from ptxgen.problem.dtypes import DTYPES, bits_of, dtype, from_numpy


def test_types_agree_with_numpy():
    for name, kind in DTYPES.items():
        assert dtype(name) is kind
        assert str(kind) == name
        assert kind.bytes == kind.numpy.itemsize
        assert kind.bits == 8 * kind.bytes
        assert from_numpy(kind.numpy, "a") is kind
        if not kind.integer:
            one = np.array(1.0, kind.numpy)
            step = np.array(1.0 + 2 * kind.roundoff, kind.numpy)
            assert step > one
            half = np.array(1.0 + kind.roundoff, np.float64).astype(kind.numpy)
            assert half == one  # a tie, to even


def test_types_have_every_field():
    assert [kind.name for kind in DTYPES.values() if kind.fp8] == ["e4m3", "e5m2"]
    assert len({kind.cuda for kind in DTYPES.values()}) == len(DTYPES)
    for kind in DTYPES.values():
        assert kind.cuda >= 0
        assert bool(kind.tma) == (not kind.part)
        assert kind.torch == f"torch.{kind.numpy.name}"
        assert bool(kind.compute) == bool(kind.outputs) == bool(kind.mma or kind.part)
        assert kind.bytes == kind.parts * dtype(kind.real).bytes
        for name in (*kind.outputs, *([kind.widened] if kind.widened else [])):
            assert name in DTYPES
    assert [name for name, kind in DTYPES.items() if not kind.native_numpy] == ["bf16", "e4m3", "e5m2"]


@pytest.mark.parametrize("name", ["f31", "", "F32", "float32", None, 4, ["f32"]])
def test_unknown_names_are_refused(name):
    with pytest.raises(DtypeError, match="must be one of f16"):
        dtype(name)


@pytest.mark.parametrize("kind", ["<i8", ">f4", "c32", "O", "U3", "?", [("a", "f4")]])
def test_numpy_types_without_a_row(kind):
    with pytest.raises(DtypeError, match=r"left has dtype.*must be one of float16"):
        from_numpy(np.dtype(kind), "left")


def test_literals_are_exact():
    rng = np.random.default_rng(0)
    for name, prefix in (("f16", "0x"), ("bf16", "0x"), ("f32", "0f"), ("f64", "0d")):
        kind = dtype(name)
        values = [0.0, -0.0, 1.0, -1.5, np.inf, np.nan, 1 / 3, *rng.standard_normal(50), kind.largest, kind.smallest]
        for value in values:
            text = bits_of(float(value), kind)
            assert text.startswith(prefix)
            assert len(text) == 2 + 2 * kind.bytes
            back = np.frombuffer(int(text[2:], 16).to_bytes(kind.bytes, "little"), kind.numpy)[0]
            assert back.tobytes() == np.array(value, kind.numpy).tobytes()
    assert bits_of(1.0, dtype("f32")) == "0f3F800000"
    assert bits_of(-2.0, dtype("f64")) == "0dC000000000000000"
    assert bits_of(7.0, dtype("s32")) == "7"
