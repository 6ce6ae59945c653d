"""The operand sets that products with quantized weights are timed on."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.operations.gemm.operand_sets import GemmOperandSets
from ptxgen.operations.gemm.strided_arrays import A, B, C, elements, span, store_operand, stored_epilogue_operands
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.quantized.reference import quantized_arrays
from ptxgen.problem.reference import Array, Reference, epilogue_arrays, random_operands, reference
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets


class QuantizedOperandSets(GemmOperandSets):
    """``OperandSets`` of a product with quantized weights. Each set has its own scales and zero points."""

    problem: QuantizedGemm

    def __init__(self, driver: Driver, problem: QuantizedGemm, timing: Timing, seed: int = 0) -> None:
        self.problem = p = problem
        drawn = dict([next(random_operands(p, seed))]) | quantized_arrays(p, seed)
        inputs = drawn | {name: store_operand(p, i, drawn[name]) for i, name in ((A, "A"), (B, "B"))}
        self.arrays = drawn | epilogue_arrays(p, seed)
        epilogue = stored_epilogue_operands(p, self.arrays)
        self.arrays |= {name: elements(p, i, inputs[name]) for i, name in ((A, "A"), (B, "B"))}
        self._references: dict[tuple[int, int, bytes], Reference] = {}
        OperandSets.__init__(self, driver, timing, inputs, {"C": span(p, C) * p.output.bytes}, epilogue)

    def _reference(self, items: slice, rows: Array) -> Reference:
        """The reference of the rows ``rows``, cached."""
        p, key = self.problem, (0, 1, rows.tobytes())
        if key not in self._references:
            along = {"A", *p.elementwise_operands}
            along |= {"scale_a"} if "scale_rows" in p.epilogue_ops else set()
            along |= {"bias"} if "bias_row" in p.epilogue_ops else set()
            arrays = {name: x[rows] if name in along else x for name, x in self.arrays.items()}
            self._references[key] = reference(replace(p, m=len(rows), lda=0), arrays)
        return self._references[key]
