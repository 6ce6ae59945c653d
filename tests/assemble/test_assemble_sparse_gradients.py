"""ptxas assembles the kernels of transposes and of sampled products for every target, without spills."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxgen.codegen.render import render_preparation
from ptxgen.operations.spmm.sampled_products import Shape, sampled_products
from ptxgen.operations.spmm.transposition import GatherValues, SymmetricPlaces, TransposeCsr
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble

#: dtype, elements of an access, N, nonzeros of 8192 x 8192, those of the longest row
SAMPLED = [
    ("f32", 4, 64, 1 << 17, 5000),
    ("f32", 4, 128, 1 << 23, 1100),
    ("f32", 1, 1000, 1 << 17, 20),
    ("f16", 8, 96, 1 << 17, 20),
    ("f16", 1, 7, 1 << 17, 5000),
    ("f64", 2, 64, 1 << 23, 1100),
    ("f64", 2, 1000, 1 << 17, 5000),
]


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90"])
def test_kernels_assemble_without_spills(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    d = device(target)
    kernels = [TransposeCsr(), SymmetricPlaces(), GatherValues(2)]
    for dtype, vec, n, nnz, longest in SAMPLED:
        kernels.append(sampled_products(dtype, Shape(8192, 8192, nnz, longest), n, n, n, vec, True, d)[0])
    assert any(getattr(x, "synced", 0) for x in kernels)
    for each in kernels:
        made = assemble(render_preparation(each, d))
        assert made.cubin, each
        assert not any(made.spills.values()), each
