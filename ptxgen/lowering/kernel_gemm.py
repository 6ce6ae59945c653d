"""The GEMM that kernels compute: a ``Gemm`` with an address mode for each operand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ptxgen.lowering.im2col_descriptor import Im2colDescriptor
from ptxgen.problem.gemm import Gemm

STRIDED = "strided"  #: the address mode of an operand that is a matrix with a leading dimension


@dataclass(frozen=True)
class KernelGemm(Gemm):
    """A lowered problem. Rules and plans are defined on lowered problems.

    The defaults describe a plain GEMM, whose operands are matrices with leading dimensions. ``addr_a`` (b, c): how
    kernels address the operand: STRIDED, or through offset tables (``ImplicitGemm``). ``im2col``: the im2col
    descriptor, if TMA can load an operand as im2col; ``strip``: the depthwise strips, if a depthwise kernel can compute
    it; ``strip_kind``: the numbers of the strips that are constants of the kernel, the vector width last.
    ``scalar_bias``: all rows and columns of C add the same bias. ``swapped``: A is the user's second operand.
    ``winograd``: the GEMMs of Winograd's algorithm over tiles of 2x2 results (``WinogradGemm``), if it can compute the
    convolution; ``winograd_4x4``: those over tiles of 4x4.
    """

    addr_a: str = STRIDED
    addr_b: str = STRIDED
    addr_c: str = STRIDED
    im2col: Im2colDescriptor | None = None
    strip: Any = field(default=None, compare=False)
    strip_kind: tuple[int, ...] = ()
    scalar_bias: bool = False
    swapped: bool = field(default=False, compare=False)
    winograd: KernelGemm | None = None
    winograd_4x4: KernelGemm | None = None

    batched_bias: ClassVar[bool] = False  #: whether each product of a batch has its own bias
    grouped: ClassVar[bool] = False  #: whether items have shapes of their own, which a descriptor table holds

    @classmethod
    def of(cls, problem: Gemm, swapped: bool = False) -> KernelGemm:
        """A plain GEMM as a kernel problem. Its fields are valid already: they are copied, not checked again."""
        lowered = object.__new__(cls)
        lowered.__dict__.update(problem.__dict__)  # the other fields take their defaults from the class
        if swapped:
            lowered.__dict__["swapped"] = True
        return lowered

    @property
    def bindings(self) -> dict[str, str]:
        """Operand of the kernel -> array of the user's problem, where the names differ."""
        return {"A": "B", "B": "A"} if self.swapped else {}

    @property
    def shape_class(self) -> KernelGemm:
        """The problem without fields that depend on extents. Problems with the same shape class share cached
        candidates."""
        return self

    @property
    def extent_gcd(self) -> tuple[int, int, int]:
        """The greatest common divisors of M, of N and of K over all ``gemms``."""
        return self.m, self.n, self.k

    @property
    def tensor_items(self) -> int:
        """Items of the tensors that TMA loads."""
        return self.batch

    def tensor(self, name: str) -> tuple[int, int, int, int]:
        """A, B or C in memory: columns, rows, leading dimension in elements, bytes from one item to the next (0: all
        items have one matrix)."""
        if name == "a":
            return self.columns_a, self.rows_a, self.lda, self.offsets[0]
        if name == "b":
            return self.columns_b, self.rows_b, self.ldb, self.offsets[1]
        return self.n, self.m, self.ldc, self.offsets[2]

    def tiles_of(self, ml: Any, nl: Any, u: Any = 1, kg: Any = 1) -> Any:
        """Tiles of ``ml`` by ``nl`` of all items: integers, or NumPy columns. ``u``, ``kg``: see
        ``tile_iterations``."""
        return -(-self.m // ml) * -(-self.n // nl) * self.batch

    def tile_iterations(self, ml: Any, nl: Any, u: Any, kg: Any = 1) -> tuple[Any, Any]:
        """K iterations of a tile on average, and of the longest one. ``kg``: slices of the longest K of a group, whose
        length others have, too; each slice of a tile counts as a tile."""
        raise NotImplementedError

    @property
    def gemms(self) -> tuple[KernelGemm, ...]:
        """The GEMMs of the problem. The same kernel computes each of them, in a launch of its own."""
        return (self,)

    @property
    def tma_n(self) -> int:
        """Columns of C of a kernel that loads by TMA: phases of a strided input gradient may be columns."""
        return self.n * (self.im2col.merged_phases if self.im2col is not None else 1)


def lower_gemm(problem: Gemm) -> KernelGemm:
    """A GEMM as a kernel problem."""
    return KernelGemm.of(problem)
