"""The parameters of a wgmma kernel: tensor maps in place of the addresses of A and B."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.arithmetic import Arithmetic
from ptxgen.codegen.batch import BatchRange
from ptxgen.codegen.fused_ops import FusedOps
from ptxgen.codegen.packing import Buffers, Packing
from ptxgen.codegen.parts import Part
from ptxgen.codegen.source import Argument, TensorMap
from ptxgen.families.wgmma import grouped_rows
from ptxgen.families.wgmma.epilogue import Epilogue
from ptxgen.families.wgmma.layout import OperandPath
from ptxgen.families.wgmma.loads import MatrixLoads
from ptxgen.families.wgmma.scheduler import TileScheduler
from ptxgen.families.wgmma.smem_realign import RealignedOperand
from ptxgen.families.wgmma.tensor_batch import TensorBatch
from ptxgen.families.wgmma.tensor_maps import matrix_map, stored
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import tma_n
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.base import ELEMENTWISE_OPERANDS

MAP_BYTES = 128  #: of a tensor map
#: pattern of names -> meaning, for the header of a module
MEANINGS = {
    "k_iters": "iterations of the K loop of each slice of K",
    "extra_iters": "number of slices that have one more, the first ones",
    "map_[xyc]|map_residual|map_aux": "tensor maps of X, of Y (operands of wgmma), of C and of epilogue operands",
    "last_[ab]": "last batch item of the tensors of A and B",
    "channels|taps|units_per_tap": "channels, taps of a filter, boxes of channels of a tap",
    "(positions|lower_corner|stride|taps|filter_extent|dilation)[0-2]": "along an axis, 0 the innermost: results, first"
    " coordinate, stride, taps, extent of the dilated filter, dilation",
    "stages_per_(image|row)|image_pixels": "iterations of the K loop along an image or a row, pixels of an image",
    "(image_)?step_(rows|columns)[0-2]?": "elements from one row or column of C to the next, along an axis or in a run",
    "run_gap_(rows|columns)": "elements between runs of rows or columns of C",
    "phase_table|phases": "address of the table of phases, their number",
    "tap_step[0-2]": "coordinates from one tap of a phase to the next, along an axis",
}


@dataclass(frozen=True)
class TmaParameters(Part):
    """Parameters of kernels that load A and B by TMA."""

    arithmetic: Arithmetic
    batch: TensorBatch
    fused_ops: FusedOps
    loads: MatrixLoads
    x: OperandPath
    y: OperandPath
    epilogue: Epilogue
    scheduler: TileScheduler
    packing: Packing

    @property
    def maps(self) -> list[str]:
        """Names of the tensor maps, in the order of the parameters."""
        return ["map_x", "map_y", *self.epilogue.maps]

    @property
    def realigns(self) -> bool:
        """Whether the kernel takes the addresses of A and B, to realign their rows."""
        return self.x.realigned or self.y.realigned

    @property
    def declarations(self) -> list[str]:
        """The parameter declarations, in lines."""
        kind = self.arithmetic.type
        return [
            *([".param .u64 A, .param .u64 B,"] if self.realigns else []),
            ".param .u64 C, .param .u64 W,",
            *self.fused_ops.parameters,
            *self.batch.parameters,
            *([".param .u32 lda, .param .u32 ldb,"] if self.realigns else []),
            ".param .u32 M, .param .u32 N, .param .u32 K, .param .u32 ldc,",
            ".param .u32 k_iters, .param .u32 extra_iters,",
            *self.scheduler.parameters,
            f".param .{kind} alpha, .param .{kind} beta,",
            *self.loads.parameters,
            ", ".join(f".param .align 64 .b8 {n}[{MAP_BYTES * self._map_count(n)}]" for n in self.maps),
        ]

    def arguments(self, p: KernelProblem, run: BatchRange, buffers: Buffers) -> tuple[Argument, ...]:
        """The values of ``declarations`` for the batch items of ``run``."""
        maps = [m for name in self.maps for m in self._tensor_maps(p, run, name, buffers)]
        return (
            *((("u64", "A"), ("u64", "B")) if self.realigns else ()),
            ("u64", "C"),
            ("u64", "W"),
            *self.fused_ops.arguments,
            *self.batch.arguments(p, run),
            *((("u32", p.operand("A").access.ld), ("u32", p.operand("B").access.ld)) if self.realigns else ()),
            *(("u32", n) for n in (p.m, tma_n(p), p.k, p.operand("C").access.ld, *self.scheduler.k_iters(p))),
            *self.scheduler.arguments(p, buffers),
            (self.arithmetic.type, "alpha"),
            (self.arithmetic.type, "beta"),
            *self.loads.arguments(p),
            *(("map", m) for m in maps),
        )

    def _map_count(self, name: str) -> int:
        return {"map_x": self.x.map_count, "map_y": self.y.map_count}.get(name, 1)

    def _tensor_maps(self, p: KernelProblem, run: BatchRange, name: str, buffers: Buffers) -> list[TensorMap]:
        if name in ("map_c", *(f"map_{operand}" for operand in ELEMENTWISE_OPERANDS)):
            s, matrix, size = self.epilogue.staging, p.operand("C").access.tensor(p.output.bytes), p.output.bytes
            operand = "C" if name == "map_c" else name.removeprefix("map_")
            if grouped_rows.ranges(p, "c"):
                return [grouped_rows.item_rows_map(operand, p.out, matrix, size, s.box, s.span)]
            return [matrix_map(p, operand, p.out, matrix, size, s.box, s.span, self.batch.active or grouped(p))]
        x = self.x if name == "map_x" else self.y
        if isinstance(x, RealignedOperand):
            return x.residue_maps(p, p.dtype, stored(p, x.name))
        kind = "tf32" if p.compute == "tf32" else p.element.tma
        return [self.packing.tensor_map(p, run, x, kind, self.loads.tensor_map(p, x, kind), buffers)]
