"""The interface of packing kernels, which pack operands into the workspace before the product.

A packing part claims its buffers in the workspace, launches its kernels, and passes the buffers' addresses to the
product.
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
from ptxgen.lowering.packed_copy import ROW


class MappedOperand(Protocol):
    """An operand that TMA loads. ``box``: extents of a box; ``span``: bytes of a row of the box."""

    @property
    def name(self) -> str: ...
    @property
    def box(self) -> tuple[int, ...]: ...
    @property
    def span(self) -> int: ...


@dataclass(frozen=True)
class Packing(Part):
    """The base class of packing parts. It packs nothing: the product reads A and B directly. ``entry``: the name of the
    product's kernel."""

    problem: KernelProblem
    entry: str
    batch: Batch

    template = "copy/no_packing.mako"
    packs_empty = False  #: True if the packing kernels also run for K = 0
    ROW = ROW

    @property
    def names(self) -> list[str]:
        """The operands that are packed."""
        return []

    @property
    def summary(self) -> str:
        """The text on packing in the module's header; empty: nothing is packed."""
        return ""

    def packs(self, p: KernelProblem) -> bool:
        """True if a launch of ``p`` runs the packing kernels."""
        return bool(self.names) and (p.k > 0 or self.packs_empty)

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        """The bytes of the buffers, by operand: first those of packed operands, then those of operands that one packing
        kernel stores for the next."""
        raise NotImplementedError

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        """Claims the buffers of a launch in ``workspace``, and returns their offsets."""
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
        """Parameters of the product's kernel that locate the packed operands."""
        return []

    def tensor_map(self, launched: Launched, x: MappedOperand, element_type: str, direct: TensorMap) -> TensorMap:
        """The tensor map with which the product's kernel loads operand ``x``, packed or not. ``element_type``: the type
        of its elements; ``direct``: the map of the operand that is not packed."""
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
