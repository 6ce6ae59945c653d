"""The problem type of jagged products with quantized weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ptxgen.errors import InputError, ShapeError
from ptxgen.operations.grouped.problem import GroupedGemm, Ints, as_items
from ptxgen.operations.quantized.problem import QuantizedGemm, WeightFields
from ptxgen.problem.base import described
from ptxgen.problem.dtypes import Dtype, dtype
from ptxgen.problem.weight_formats import WEIGHT_FORMATS


@dataclass(frozen=True)
class QuantizedJagged(WeightFields, GroupedGemm):
    """C_i[m,n] = alpha · Σ_g s_i[n,g] · (Σ_{k in g} A_i[m,k] · (B_i[n,k] − z_i[n,g])) + beta · C_i[m,n] for every item
    i, where g are the scale groups along K.

    ``items``: (M, N, K) of each item, of which M alone differs: A and C are arrays with the rows of all items, and
    ``jagged`` is m. ``layout`` is NT: B has E×N rows of weights along K for E items. ``weights``, ``group``, ``zeros``,
    ``scales``, ``precision``: the format of the weights, as in ``QuantizedGemm``; scales and zero points are stored as
    E×N rows with one number for each group. The leading dimension of B, in ``ld``, is in bytes. The other fields are
    those of ``GroupedGemm``.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """

    jagged: str = field(default="m", metadata=described("m: items are ranges of rows of A and C", words=("m",)))

    operation = "quantized_jagged"

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", as_items(self.items))
        if self.jagged != "m":
            raise InputError(f"jagged is {self.jagged!r}; with quantized weights it must be 'm': items are rows of A")
        if self.layout != "NT":
            raise ShapeError(f"layout is {self.layout}; with quantized weights it must be NT")
        one = self.weight_matrix
        object.__setattr__(self, "group", one.group)
        object.__setattr__(self, "scales", one.scales)
        object.__setattr__(self, "precision", one.precision)
        super().__post_init__()

    def _matrix(self, m: int, n: int, k: int, lda: int = 0, ldb: int = 0, ldc: int = 0) -> QuantizedGemm:
        """The product of ``m`` rows of A and the weights of one item."""
        return QuantizedGemm(
            m,
            n,
            k,
            self.layout,
            self.dtype,
            self.compute,
            lda,
            ldb,
            ldc,
            self.aligned_a,
            self.aligned_b,
            self.aligned_c,
            self.deterministic,
            self.out,
            self.epilogue,
            weights=self.weights,
            group=self.group,
            zeros=self.zeros,
            scales=self.scales,
            precision=self.precision,
        )

    @property
    def weight_matrix(self) -> QuantizedGemm:
        """The product of no rows and the weights of one item."""
        return self._matrix(0, *(self.items[0][1:] if self.items else (0, 0)))

    def item(self, i: int) -> QuantizedGemm:
        """Item ``i`` as a product with quantized weights."""
        return self._matrix(*self.items[i], *(int(ld) for ld in self.lds[i]))

    @property
    def product_roundoff(self) -> float:
        return self.weight_matrix.product_roundoff

    @property
    def types(self) -> tuple[Dtype, Dtype, Dtype]:
        return self.element, dtype(WEIGHT_FORMATS[self.weights].storage), self.output

    @property
    def item_arrays(self) -> tuple[str, ...]:
        return ("scales", "zeros") if self.zeros else ("scales",)

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, *self.item_arrays)

    @cached_property
    def columns(self) -> Ints:
        """As for other groups; the rows of B are in bytes."""
        columns = super().columns
        columns[:, 1] //= WEIGHT_FORMATS[self.weights].per_byte
        return columns

    @property
    def description(self) -> list[str]:
        [line] = self.weight_matrix.description
        return [line.replace("quantized_gemm", self.operation).replace("beta C,", "beta C per item,")]

    @property
    def weight_bytes(self) -> int:
        """The bytes for the items that have rows."""
        return sum(self.item(i).weight_bytes for i, (m, _, _) in enumerate(self.items) if m)

    @property
    def bytes(self) -> int:
        read = self.element.bytes * int((self.extents[:, 0] * self.extents[:, 2]).sum()) + self.weight_bytes
        return read + self.output.bytes * self.results // (2 if self.gated else 1)
