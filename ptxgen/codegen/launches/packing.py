"""Kernels that pack operands into the workspace before the product: one mechanism for every packing.

A packing claims its buffers in the workspace, launches its kernels, and gives the product the addresses of the buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ptxgen.codegen.launches.launched import BatchRange, Buffers, Launched
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, addresses
from ptxgen.codegen.parts.part import Allocator, Part
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.lowering.kernel_problem import KernelProblem

ROW = 128  #: bytes that packed rows and buffers start at a multiple of


class MappedOperand(Protocol):
    """An operand that TMA loads. ``box``: extents of a box, ``span``: bytes of its rows."""

    @property
    def name(self) -> str: ...
    @property
    def box(self) -> tuple[int, ...]: ...
    @property
    def span(self) -> int: ...


@dataclass(frozen=True)
class Packing(Part):
    """No packing: the product reads A and B directly. ``entry``: name of the product's kernel."""

    problem: KernelProblem
    entry: str
    batch: Batch

    template = "copy/no_packing.mako"
    packs_empty = False  #: whether it runs where K is zero
    ROW = ROW

    @property
    def names(self) -> list[str]:
        """The operands that it packs."""
        return []

    @property
    def summary(self) -> str:
        """Its part of the header."""
        return ""

    def packs(self, p: KernelProblem) -> bool:
        """True if a launch of ``p`` runs the packing kernels."""
        return bool(self.names) and (p.k > 0 or self.packs_empty)

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes of the packed operands, and of those that one packing kernel stores for the next, by operand."""
        raise NotImplementedError

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        """The buffers of a launch."""
        if not self.packs(p):
            return Buffers()
        packed, staging = self.buffer_bytes(p, run)
        return Buffers(
            {name: workspace.claim(n, f"packed {name.upper()}", ROW).offset for name, n in packed.items()},
            {name: workspace.claim(n, f"rows of {name.upper()}", ROW).offset for name, n in staging.items()},
        )

    def product_problem(self, p: KernelProblem) -> KernelProblem:
        """The problem that the product's kernel computes on packed operands."""
        return p

    @property
    def product_parameters(self) -> list[Parameters]:
        """Parameters of the product's kernel: where the packed operands are."""
        return []

    def tensor_map(self, launched: Launched, x: MappedOperand, element_type: str, direct: TensorMap) -> TensorMap:
        """The tensor map by which the product's kernel loads an operand, if it loads by TMA. ``element_type``: type of
        its elements, ``direct``: the map of the operand itself."""
        return direct

    @property
    def parameters(self) -> list[Parameters]:
        """Parameters of the packing kernel after the addresses."""
        return []

    @property
    def parameter_list(self) -> ParameterList:
        """All parameters of the packing kernel."""
        return ParameterList((*addresses(self.problem), *self.parameters))

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        """The launches of the packing kernels."""
        return ()
