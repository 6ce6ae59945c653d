"""The problem type of products with quantized weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ptxgen.arguments import word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.base import described
from ptxgen.problem.dtypes import Dtype, canonical, dtype
from ptxgen.problem.weight_formats import GROUPS, WEIGHT_FORMATS, WeightFormat

ACTIVATIONS = ("f16", "bf16")  #: the types of A
SCALES = ("f16", "bf16", "f32")  #: the types of scales
EXACT, FAST = PRECISIONS = ("exact", "fast")  #: the values of ``precision``


@dataclass(frozen=True)
class WeightFields:
    """The fields that problems with quantized weights add to those of their other base class; ``QuantizedGemm``
    describes them."""

    layout: str = field(default="NT", metadata=described("NT: weights are stored in rows along K", words=("NT",)))
    dtype: str = "f16"
    weights: str = field(
        default="s8", metadata=described("Format of the weights: s8, u8, s4 or u4.", words=tuple(WEIGHT_FORMATS))
    )
    group: int = field(
        default=0, metadata=described("Weights along K that share a scale: 32, 64 or 128. [default: the whole row]")
    )
    zeros: bool = field(default=False, metadata=described("A group has a zero point."))
    scales: str = field(default="", metadata=described("Type of the scales: f16, bf16 or f32. [default: that of A]"))
    precision: str = field(
        default=EXACT,
        metadata=described(
            "exact, or fast: weights times their scales may be rounded to the type of A.", words=PRECISIONS
        ),
    )

    WRITES: ClassVar[tuple[str, ...]] = ()
    CODE_OPTIONS: ClassVar[tuple[str, ...]] = (
        "compute",
        "out",
        "epilogue",
        "weights",
        "group",
        "zeros",
        "scales",
        "precision",
    )

    @property
    def has_group_scales(self) -> bool:
        return True

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weights that are read, and of their scales and zero points. Reading them takes most of the
        time if A has few rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class QuantizedGemm(WeightFields, Gemm):
    """C[m,n] = alpha · Σ_g s[n,g] · (Σ_{k in g} A[m,k] · (B[n,k] − z[n,g])) + beta · C[m,n], where g are the scale
    groups along K.

    B has the weights: integers in N rows along K, in the format ``weights``: s8, u8, s4 or u4. A byte has two weights
    of 4 bits, that of the even k in the low bits. s[n,g] is a scale, z[n,g] a zero point, or 0. ``group``: the number
    of weights of a scale group: 32, 64 or 128; 0: the whole row. ``scales``: the type of the scales, f16, bf16 or f32,
    by default that of A; they are stored as N rows with one scale for each group. ``zeros``: True if there are zero
    points, bytes stored in the same order. ``precision``: exact, or fast: kernels may round each weight, times its
    scale, to the type of A, as products with dequantized weights do; scales have that type. With one scale for all of a
    row, it is exact. ``ldb``: bytes from one row of B to the next. A is f16 or bf16. ``layout`` is NT, and there is no
    batch. The other fields are those of ``Gemm``.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """

    operation = "quantized_gemm"

    def __post_init__(self) -> None:
        self._normalize_integers(("group", "k"))
        word("weights", self.weights, tuple(WEIGHT_FORMATS), DtypeError)
        if self.group == self.k:
            object.__setattr__(self, "group", 0)
        if self.group not in GROUPS:
            known = ", ".join(map(str, GROUPS[1:]))
            raise ShapeError(f"group is {self.group}; it must be {known}, or 0, the whole K")
        if self.group and self.k % self.group:
            raise ShapeError(f"group is {self.group}; it must divide K, {self.k}")
        if self.k % self.format.per_byte:
            raise ShapeError(f"k is {self.k}; with weights of 4 bits, two in a byte, it must be even")
        if self.zeros and self.format.signed:
            raise InputError(
                f"zeros is {self.zeros}; weights of format {self.weights} have no zero points, u8 and u4 do"
            )
        super().__post_init__()
        if self.dtype not in ACTIVATIONS or self.compute != "f32":
            raise DtypeError(
                f"dtype is {self.dtype} and compute is {self.compute}; with quantized weights A must be"
                f" {' or '.join(ACTIVATIONS)}, summed in f32"
            )
        object.__setattr__(self, "scales", canonical(self.scales) or self.dtype)
        word("scales", self.scales, SCALES, DtypeError)
        word("precision", self.precision, PRECISIONS)
        if self.precision == FAST and self.scales != self.dtype:
            raise DtypeError(
                f"precision is {FAST} and scales is {self.scales}; scales must then have the type of A, {self.dtype}"
            )
        if not self.group:  # sums of whole rows are scaled
            object.__setattr__(self, "precision", EXACT)
        if self.layout != "NT" or self.batch != 1:
            raise ShapeError(
                f"layout is {self.layout} and batch is {self.batch}; with quantized weights they must be NT and 1"
            )

    @property
    def format(self) -> WeightFormat:
        return WEIGHT_FORMATS[self.weights]

    @property
    def scale_type(self) -> Dtype:
        return dtype(self.scales)

    @property
    def weight_fields(self) -> tuple[str, int, str, bool, bool]:
        """The fields of ``QuantizedRows`` that describe the weights, in their order."""
        return self.weights, self.group, self.scales, self.zeros, self.precision == FAST

    @property
    def groups(self) -> int:
        """The number of scale groups of a row."""
        return self.k // self.group if self.group else 1

    @property
    def product_roundoff(self) -> float:
        return self.element.roundoff if self.precision == FAST else 0.0

    @property
    def types(self) -> tuple[Dtype, Dtype, Dtype]:
        return self.element, dtype(self.format.storage), self.output

    @property
    def columns_b(self) -> int:
        """The number of bytes of a row of weights."""
        return self.k // self.format.per_byte

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*super().arrays, "scales", *(["zeros"] if self.zeros else []))

    def _given_and_defaults(self) -> tuple[dict[str, Any], QuantizedGemm]:
        """The fields of the text form and a problem with defaults for all others, as for other problems; the default of
        ``ldb`` is the number of bytes of a row in this format."""
        given = {name: getattr(self, name) for name in (*self.SHAPE, "layout", "dtype")}
        defaults = type(self)(**given)
        object.__setattr__(defaults, "ldb", max(self.columns_b, 1))
        return given, defaults

    @property
    def description(self) -> list[str]:
        scaled = f"one scale for {self.group or 'all'} along K" + (", with zero points" if self.zeros else "")
        scaled += f", precision {FAST}" * (self.precision == FAST)
        types = f"{self.dtype} by {self.weights}, {scaled}, summed in {self.compute}"
        return [f"{self.operation}: C = alpha A dequantized(B) + beta C, B in N rows along K, {types}"]

    @property
    def problem_class(self) -> str:
        return self.operation

    @property
    def weight_bytes(self) -> int:
        return self.n * (self.columns_b + self.groups * (self.scale_type.bytes + self.zeros))

    @property
    def bytes(self) -> int:
        c = self.output.bytes * self.m * self.columns_c
        return self.element.bytes * self.m * self.k + self.weight_bytes + c
