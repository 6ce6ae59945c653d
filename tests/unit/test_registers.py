"""Register handles: the names that a template may use."""

from __future__ import annotations

import itertools

import pytest

from ptxgen.codegen.registers import Tile, braces, width


def test_a_tile_names_each_register_once_in_row_order():
    t = Tile("acc", "f32", (2, 4, 8))
    names = [t[i] for i in itertools.product(range(2), range(4), range(8))]
    assert names == t.all == [f"%acc{i}" for i in range(64)]
    assert t.size == 64
    assert t.declaration == ".reg .f32 %acc<64>;"
    assert Tile("x", "b16", (3,))[2] == "%x2"


@pytest.mark.parametrize("index", [(2, 0), (0, 4), (-1, 0), (0, -1), (2, 4)])
def test_index_out_of_range_is_an_error(index):
    with pytest.raises(IndexError, match=r"%e.*outside its shape \[2, 4\]"):
        Tile("e", "f32", (2, 4))[index]


@pytest.mark.parametrize("index", [0, (0,), (0, 0, 0)])
def test_index_of_wrong_rank_is_an_error(index):
    with pytest.raises(IndexError, match="has 2 dimensions"):
        Tile("e", "f32", (2, 4))[index]


def test_vectors_stay_within_a_row():
    t = Tile("e", "f32", (2, 4))
    assert t.vector(1, 0, n=4) == "{%e4, %e5, %e6, %e7}"
    assert t.vector(0, 2, n=2) == "{%e2, %e3}"
    assert t.vector(1, 3, n=1) == "%e7"
    for index, n in (((0, 2), 4), ((1, 3), 2), ((1, 0), 5)):
        with pytest.raises(IndexError, match="outside"):
            t.vector(*index, n=n)


def test_operands_and_types():
    assert braces(["%a"]) == "%a"
    assert braces(["%a", "%b"]) == "{%a, %b}"
    assert width(1, "f32") == "f32"
    assert width(4, "b32") == "v4.b32"
