"""Kernel problems: extents may be columns; needs and forms."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.lowering.strided import matrix_product
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_extents_may_be_columns(layout: str) -> None:
    extents = np.array([[64, 48, 32], [1, 7, 5], [100, 130, 500]])
    m, n, k = extents.T
    columns = matrix_product(m, n, k, layout, "f16", batch=3)
    for i, row in enumerate(extents.tolist()):
        one = matrix_product(*row, layout, "f16", batch=3)
        assert one == lower(Gemm(*row, layout, "f16", batch=3))
        assert (one.flops, one.bytes, one.results) == (columns.flops[i], columns.bytes[i], columns.results[i])
        for name in "ABC":
            a, b = one.operand(name).access, columns.operand(name).access
            assert (a.rows, a.columns, a.ld, a.stride, a.vec) == (
                b.rows[i],
                b.columns[i],
                b.ld[i],
                b.stride[i],
                b.vec[i],
            )


def test_a_family_computes_the_first_form_that_it_provides() -> None:
    p = lower(Conv(8, 64, 28, 28, 64, 3, 3, padding=1))
    forms = {name: f.form(p) for name, f in FAMILIES.items()}
    assert forms["simt"] is p
    assert forms["winograd"] is not forms["winograd_4x4"]
    assert all(FAMILIES[name].computes(p) == (forms[name].needs <= FAMILIES[name].provides) for name in FAMILIES)
    assert {name for name, f in FAMILIES.items() if f.computes(p)} == {
        "simt",
        "mma",
        "wgmma",
        "winograd",
        "winograd_4x4",
    }
    assert "im2col" in forms["wgmma"].needs
    assert forms["wgmma"].like(p) is forms["wgmma"]
    assert p.like(forms["wgmma"]) is forms["wgmma"]


def test_bindings_are_those_of_swapped_operands() -> None:
    assert lower(Gemm(8, 8, 8)).bindings == {}
    swapped = lower(Conv(1, 4, 6, 6, 5, 3, 3))
    assert swapped.bindings == {"A": "B", "B": "A"}
    assert swapped.arrays == ("A", "B", "C")
    with pytest.raises(KeyError):
        swapped.operand("D")
