"""The access to rows of quantized weights, with scales and zero points for groups along K."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import KernelProblem, MatrixAccess, at_least_one
from ptxgen.problem.dtypes import Dtype, dtype
from ptxgen.problem.weight_formats import WEIGHT_FORMATS, WeightFormat

SCALES, ZEROS = "scales", "zeros"  #: names of the arrays that belong to the weights


@dataclass(frozen=True)
class QuantizedRows(MatrixAccess):
    """The access to quantized weights: N rows along K. ``columns``, ``ld``, ``vec``: in bytes; ``weights``: the format;
    ``group``: adjacent weights along K with one scale, 0: all of a row; ``scale``: the type of scales; ``zeros``: True
    if each group has an 8-bit zero point, which is subtracted from a weight before the product with the scale;
    ``rounded``: True if a weight times its scale may be rounded to the type of A."""

    weights: str = "s8"
    group: int = 0
    scale: str = "f16"
    zeros: bool = False
    rounded: bool = False

    capability: ClassVar[str] = "quantized_rows"

    @property
    def arrays(self) -> tuple[str, ...]:
        return (SCALES, ZEROS) if self.zeros else (SCALES,)

    @property
    def format(self) -> WeightFormat:
        return WEIGHT_FORMATS[self.weights]

    @property
    def scale_type(self) -> Dtype:
        return dtype(self.scale)

    def groups(self, k: Any) -> Any:
        """The number of scale groups in a row of ``k`` weights."""
        return k // self.group if self.group else 1

    def resized(self, mn: Any, k: Any, packed: bool) -> QuantizedRows:
        columns = -(-k // self.format.per_byte)
        return replace(self, rows=mn, columns=columns, ld=at_least_one(columns) if packed else self.ld)


def quantized_rows(p: KernelProblem) -> QuantizedRows | None:
    """The access to the quantized weights of a product. None: the product has no quantized weights."""
    access = p.operands[1].access if len(p.operands) > 1 else None
    return access if isinstance(access, QuantizedRows) else None
