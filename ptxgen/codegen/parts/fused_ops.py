"""The fused operations of the epilogue and their operands in global memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxgen.codegen.parts.part import Part
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import bits_of, dtype


@dataclass(frozen=True)
class FusedOps(Part):
    """``template``: their slot; ``operands``: by name, the PTX type of a load and the bytes of an element;
    ``scalar_bias``: all elements of C add the same bias; ``batched_bias``: each batch item has a bias of its own,
    stored consecutively; ``grouped``: an item's operands begin at offsets that its descriptor holds."""

    template: str
    operands: dict[str, tuple[str, int]]
    scalar_bias: bool
    batched_bias: bool
    grouped: bool = False

    #: constants of the activations, as PTX writes them: x·σ(x) and x·σ(√(8/π)(x + 0.044715x³)) by powers of two
    MINUS_LOG2E = bits_of(-math.log2(math.e), dtype("f32"))
    GELU_LINEAR = bits_of(-math.sqrt(8 / math.pi) * math.log2(math.e), dtype("f32"))
    GELU_CUBIC = bits_of(-math.sqrt(8 / math.pi) * math.log2(math.e) * 0.044715, dtype("f32"))

    @classmethod
    def of(cls, p: KernelProblem, batched: bool, template: str = "epilogue/fused_ops.mako") -> FusedOps:
        """The fused operations of ``p``. ``template``: the slot, if there are any."""
        types = {name: p.sink.array_dtype(name) for name in p.sink.arrays}
        operands = {name: ("b16" if kind.bytes == 2 else kind.name, kind.bytes) for name, kind in types.items()}
        return cls(
            template if p.sink.epilogue else "epilogue/identity.mako",
            operands,
            p.sink.scalar_bias and "bias" in operands,
            batched and p.sink.batched_bias and "bias" in operands,
            grouped(p),
        )
