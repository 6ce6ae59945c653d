"""The producer loads of plain matrices: the coordinates of a stage along K, and the tensor maps of A and B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Allocator, Part
from ptxgen.codegen.source import TensorMap
from ptxgen.codegen.vectorized import Last
from ptxgen.families.wgmma import bf16x3
from ptxgen.families.wgmma.geometry import WARPGROUP, WgmmaGeometry
from ptxgen.families.wgmma.layout import Multicast, OperandPath
from ptxgen.families.wgmma.operand_packing import realigns
from ptxgen.families.wgmma.packing.smem_realign import RealignedOperand
from ptxgen.families.wgmma.packing.split_bf16x3 import SplitOperand
from ptxgen.families.wgmma.tensor_maps import matrix_map, stored
from ptxgen.lowering.kernel_problem import KernelProblem

ZEROS, WIDEST = 16, 4  #: elements of the matrices of zeros that are read if K is 0, and the most bytes of an element


@dataclass(frozen=True)
class MatrixLoads(Part):
    """The loads of A and B as matrices. The coordinate along K is the register %k."""

    problem: KernelProblem
    config: Config
    geometry: WgmmaGeometry
    batched: bool

    template = "addr/tensormap.mako"
    units = 1  #: number of units of K in a stage; each unit has coordinates of its own

    last_unit = Last("units")

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        """The path of operand ``name``."""
        outer = self.item_coordinates(name)
        if realigns(self.config, name):
            threads = WARPGROUP * (1 if self.config.pingpong else self.config.math_warpgroups)
            return RealignedOperand(role, name, self.geometry, self.config, base, threads, outer)
        operand_class = SplitOperand if bf16x3.planes(self.problem) > 1 else OperandPath
        return operand_class(role, name, self.geometry, self.config, base, multicast, outer)

    def item_coordinates(self, name: str) -> Sequence[str]:
        """The registers with the coordinates of an item of operand ``name``."""
        return (f"%item_{name}",) if self.batched else ()

    def tensor_map(self, p: KernelProblem, x: OperandPath, element_type: str) -> TensorMap:
        """The tensor map of an operand of ``p``, with elements of type ``element_type``."""
        size = p.operand(x.name.upper()).element.bytes
        if p.k == 0:  # maps must have an extent: the zeros that ``claim`` allocates
            return matrix_map(p, "W", element_type, (ZEROS, 1, ZEROS, 0), size, x.box, x.span, self.batched)
        return matrix_map(p, x.name.upper(), element_type, stored(p, x.name), size, x.box, x.span, self.batched)

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        if p.k == 0 and not workspace.bytes:
            workspace.claim(ZEROS * WIDEST, "zeros in place of A and B", cleared=True)

    def box_text(self, x: OperandPath) -> str:
        return f"{x.box[0]} x {x.box[1]}"

    @property
    def parameters(self) -> list[Parameters]:
        """The kernel parameters in addition to those of every product."""
        return []
