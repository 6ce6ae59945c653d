"""``ptxgen.torch`` on tensors of the CPU, by the emulated device."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator

import pytest

from ptxgen.api import choice, runners
from ptxgen.codegen.config.config import parse_config
from tests.torch_checks import Checks

#: a short kernel, which the emulated device parses and runs in little time
SHORT = parse_config("ms=2 ns=2 ml=16 nl=16 u=4 cp_async_a=0 cp_async_b=0 stages=2")
PAIRS = SHORT.replace(vec_c=2)  #: for gated activations


@pytest.fixture(autouse=True, scope="module")
def _short_kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "choose", lambda problem, on: PAIRS if problem.gated else SHORT)
        patch.setattr(runners, "runners", OrderedDict())
        yield


class TestTorch(Checks):
    device = "cpu"


def test_ptxgen_does_not_import_pytorch() -> None:
    code = "import sys, ptxgen; ptxgen.gemm; print('torch' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert output.stdout.split() == ["False"]
