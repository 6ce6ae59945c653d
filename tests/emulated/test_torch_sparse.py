"""The sparse products of ``ptxgen.torch`` on tensors of the CPU, by the emulated device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptxgen.api import choice
from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.spmm import sampled_products
from tests.torch_sparse_checks import SparseChecks

#: a short kernel of one warp, which the emulated device runs in little time
SHORT = parse_config("family=row_split row_lanes=2 block_groups=16 nonzeros_in_flight=2 vec_b=1")


@pytest.fixture(autouse=True, scope="module")
def _short_kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "choose", lambda problem, on: SHORT)
        patch.setattr(sampled_products, "THREADS", 32)
        yield


class TestSparse(SparseChecks):
    device = "cpu"
