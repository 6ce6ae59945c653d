"""``ptxgen.torch.pairwise`` on tensors of the CPU, by the emulated device."""

from __future__ import annotations

from tests.torch_pairwise_checks import PairwiseChecks


class TestPairwise(PairwiseChecks):
    device = "cpu"
