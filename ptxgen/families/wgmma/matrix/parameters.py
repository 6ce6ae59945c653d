"""The parameters of a wgmma kernel, which has tensor maps in place of the addresses of A and B."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.parameters import (
    KernelParameters,
    Parameters,
    TensorMaps,
    given,
    operand_names,
    other_addresses,
    output_names,
    scalar_parameters,
    sink_parameters,
)
from ptxgen.codegen.source import TensorMap
from ptxgen.families.wgmma import grouped_rows
from ptxgen.families.wgmma.layout import OperandPath
from ptxgen.families.wgmma.matrix.block_scales import BlockScales, NoScales
from ptxgen.families.wgmma.matrix.epilogue import Epilogue
from ptxgen.families.wgmma.matrix.loads import MatrixLoads
from ptxgen.families.wgmma.matrix.quantized_weights import GroupScales
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.families.wgmma.matrix.tensor_batch import TensorBatch
from ptxgen.families.wgmma.packing.smem_realign import RealignedOperand
from ptxgen.families.wgmma.tensor_maps import matrix_map, stored
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.im2col_descriptor import tma_n
from ptxgen.lowering.kernel_problem import KernelProblem

#: pattern of parameter names -> meaning, for the header of a module
MEANINGS = {
    "k_iters": "iterations of the K loop of each slice of K",
    "extra_iters": "number of slices that have one more, the first ones",
    "full_tiles": "tiles that blocks compute whole",
    "tail_iters": "iterations of the K loop of the clusters of the other tiles, which blocks share",
    "share_iters": "those of the share of a cluster of blocks",
    "map_[xyc]|map_residual|map_aux": "tensor maps of X, of Y (operands of wgmma), of C and of epilogue operands",
    "map_sums": "tensor map of the array of sums",
    "last_[ab]": "last batch item of the tensors of A and B",
    "channels|taps|units_per_tap": "channels, taps of a filter, boxes of channels of a tap",
    "(positions|lower_corner|stride|taps|filter_extent|dilation)[0-2]": "along an axis, 0 the innermost: results, first"
    " coordinate, stride, taps, extent of the dilated filter, dilation",
    "stages_per_(image|row)|image_pixels": "iterations of the K loop along an image or a row, pixels of an image",
    "(image_)?step_(rows|columns)[0-2]?": "elements from one row or column of C to the next, along an axis or in a run",
    "(magic|shift)_(group_rows|group_columns|item_columns)": "divide by the filters or channels of a group, by those of"
    " an item",
    "groups_of_item": "groups that share an item of the batch",
    "run_gap_(rows|columns)": "elements between runs of rows or columns of C",
    "scales|zeros": "address of the scales, or the zero points, of the weights: row, group",
    "phase_table|phases": "address of the table of phases, their number",
    "tap_step[0-2]": "coordinates from one tap of a phase to the next, along an axis",
}


@dataclass(frozen=True)
class TmaParameters(KernelParameters):
    """The parameters of kernels that load A and B by TMA."""

    problem: KernelProblem
    batch: TensorBatch
    loads: MatrixLoads
    x: OperandPath
    y: OperandPath
    epilogue: Epilogue
    scheduler: TileScheduler
    packing: Packing
    scales: BlockScales | GroupScales | NoScales

    @property
    def maps(self) -> list[str]:
        """The names of the tensor maps, in the order of the parameters."""
        return ["map_x", "map_y", *self.epilogue.maps]

    @property
    def realigns(self) -> bool:
        """True if the kernel gets the addresses of A and B, which it needs to realign rows."""
        return self.x.realigned or self.y.realigned

    @property
    def declared(self) -> list[Parameters]:
        pitches = Parameters("u32", ("lda", "ldb"), lambda x: (x.p.operand(name).access.ld for name in "AB"))
        sizes = Parameters(
            "u32", ("M", "N", "K", "ldc"), lambda x: (x.p.m, tma_n(x.p), x.p.k, x.p.operand("C").access.ld)
        )
        return [
            *([given("u64", *operand_names(self.problem))] if self.realigns else []),
            given("u64", *output_names(self.problem), "W"),
            *other_addresses(self.problem),
            *self.batch.parameters,
            *([pitches] if self.realigns else []),
            sizes,
            Parameters("u32", ("k_iters", "extra_iters"), lambda x: self.scheduler.k_iters(x.p)),
            *self.scheduler.parameters,
            *scalar_parameters(self.problem.scalars),
            *sink_parameters(self.problem),
            *self.loads.parameters,
            *self.scales.parameters,
            *(self._maps(name, same_line=n > 0) for n, name in enumerate(self.maps)),
        ]

    def _maps(self, name: str, same_line: bool) -> TensorMaps:
        count = {"map_x": self.x.map_count, "map_y": self.y.map_count}.get(name, 1)
        return TensorMaps("map", (name,), lambda x: self._tensor_maps(x, name), same_line, count)

    def _tensor_maps(self, launched: Launched, name: str) -> list[TensorMap]:
        p = launched.p
        if name in self.epilogue.maps:
            s, matrix, size = self.epilogue.staging, p.operand("C").access.tensor(p.output.bytes), p.output.bytes
            element_type = p.output.tma
            operand = "C" if name == "map_c" else name.removeprefix("map_")
            if grouped_rows.ranges(p, "c"):
                return [grouped_rows.item_rows_map(operand, element_type, matrix, size, s.box, s.span)]
            return [matrix_map(p, operand, element_type, matrix, size, s.box, s.span, self.batch.active or grouped(p))]
        x = self.x if name == "map_x" else self.y
        if isinstance(x, RealignedOperand):
            return x.residue_maps(p, p.dtype, stored(p, x.name))
        element_type = "tf32" if p.compute == "tf32" else p.element.tma
        return [self.packing.tensor_map(launched, x, element_type, self.loads.tensor_map(p, x, element_type))]

    @property
    def map_registers(self) -> str:
        """The registers with the addresses of the tensor maps."""
        return ", ".join(f"%{name}" for name in self.maps)
