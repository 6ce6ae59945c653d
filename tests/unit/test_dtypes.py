"""Element types: one row each, and exact literals."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.errors import DtypeError
from ptxgen.problem.dtypes import DTYPES, bits_of, dtype, from_numpy


def test_types_agree_with_numpy():
    for name, element in DTYPES.items():
        assert dtype(name) is element
        assert str(element) == name
        assert element.bytes == element.numpy.itemsize
        assert element.bits == 8 * element.bytes
        assert from_numpy(element.numpy, "a") is element
        if not element.integer:
            one = np.array(1.0, element.numpy)
            step = np.array(1.0 + 2 * element.roundoff, element.numpy)
            assert step > one
            half = np.array(1.0 + element.roundoff, np.float64).astype(element.numpy)
            assert half == one  # a tie, to even


def test_types_have_every_field():
    assert [element.name for element in DTYPES.values() if element.fp8] == ["e4m3", "e5m2"]
    assert len({element.cuda for element in DTYPES.values()}) == len(DTYPES)
    for element in DTYPES.values():
        assert element.cuda >= 0
        assert bool(element.tma) == (not element.part)
        assert element.torch == f"torch.{element.numpy.name}"
        assert bool(element.compute) == bool(element.outputs) == bool(element.mma or element.part)
        assert element.bytes == element.parts * dtype(element.real).bytes
        for name in (*element.outputs, *([element.widened] if element.widened else [])):
            assert name in DTYPES
    assert [name for name, element in DTYPES.items() if not element.native_numpy] == ["bf16", "e4m3", "e5m2"]


@pytest.mark.parametrize("name", ["f31", "", "F32", "float32", None, 4, ["f32"]])
def test_unknown_names_are_refused(name):
    with pytest.raises(DtypeError, match="must be one of f16"):
        dtype(name)


@pytest.mark.parametrize("dtype", ["<i8", ">f4", "c32", "O", "U3", "?", [("a", "f4")]])
def test_numpy_types_without_a_row(dtype):
    with pytest.raises(DtypeError, match=r"left has dtype.*must be one of float16"):
        from_numpy(np.dtype(dtype), "left")


def test_literals_are_exact():
    rng = np.random.default_rng(0)
    for name, prefix in (("f16", "0x"), ("bf16", "0x"), ("f32", "0f"), ("f64", "0d")):
        element = dtype(name)
        values = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            np.inf,
            np.nan,
            1 / 3,
            *rng.standard_normal(50),
            element.largest,
            element.smallest,
        ]
        for value in values:
            text = bits_of(float(value), element)
            assert text.startswith(prefix)
            assert len(text) == 2 + 2 * element.bytes
            back = np.frombuffer(int(text[2:], 16).to_bytes(element.bytes, "little"), element.numpy)[0]
            assert back.tobytes() == np.array(value, element.numpy).tobytes()
    assert bits_of(1.0, dtype("f32")) == "0f3F800000"
    assert bits_of(-2.0, dtype("f64")) == "0dC000000000000000"
    assert bits_of(7.0, dtype("s32")) == "7"
