"""``ptxgen.torch.mlp`` on tensors of the CPU, by the emulated device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pytest

from ptxgen.api import choice, runners
from tests.emulated.test_torch import PAIRS, SHORT
from tests.torch_mlp_checks import MlpChecks


@pytest.fixture(autouse=True, scope="module")
def _short_kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "choose", lambda problem, on: PAIRS if problem.gated else SHORT)
        patch.setattr(runners, "runners", OrderedDict())
        yield


class TestMlp(MlpChecks):
    device = "cpu"
