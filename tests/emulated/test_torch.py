"""``ptxgen.torch`` on tensors of the CPU, by the emulated device."""

from __future__ import annotations

import subprocess
import sys

from tests.torch_checks import Checks


class TestTorch(Checks):
    device = "cpu"


def test_ptxgen_does_not_import_pytorch() -> None:
    code = "import sys, ptxgen; ptxgen.gemm; print('torch' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert output.stdout.split() == ["False"]
