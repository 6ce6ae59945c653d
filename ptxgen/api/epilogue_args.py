"""The arguments of ``gemm`` that follow the product, as a problem's epilogue and the arrays that it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxgen.api.arrays import View, view
from ptxgen.arguments import word
from ptxgen.errors import InputError, ShapeError
from ptxgen.problem.base import EPILOGUE_OPS
from ptxgen.problem.dtypes import DTYPES

ACTIVATIONS = EPILOGUE_OPS[-1]
#: what changes its name when Cᵀ = BᵀAᵀ is computed instead of C = AB
TURNED = {"bias_row": "bias_column", "bias_column": "bias_row", "scale_a": "scale_b", "scale_b": "scale_a"}


@dataclass(frozen=True)
class After:
    """``stages``: as ``Gemm.epilogue`` has them; ``arrays``: what they read, by the kernel's names."""

    stages: tuple[str, ...] = ()
    arrays: tuple[tuple[str, View], ...] = ()

    def turned(self) -> After:
        """The same for the transposed product."""
        stages = tuple(TURNED.get(s, s) for s in self.stages)
        return After(stages, tuple((TURNED.get(n, n), v) for n, v in self.arrays))

    def ordered(self, names: tuple[str, ...]) -> list[View]:
        found = dict(self.arrays)
        return [found[n] for n in names]


def after(
    shape: tuple[int, ...], out: View, scale_a: Any, scale_b: Any, bias: Any, residual: Any, activation: str | None
) -> After:
    """Checks the arguments against a C of ``shape``, which may have items first, that is ``out``. ShapeError,
    InputError: one breaks a rule."""
    m, n = shape[-2:]
    stages: list[str] = []
    arrays: list[tuple[str, View]] = []
    if (scale_a is None) != (scale_b is None):
        raise InputError("scale_a and scale_b go together; give both or neither")
    if scale_a is not None:
        pair = [_vector(x, name, out, "f32") for x, name in ((scale_a, "scale_a"), (scale_b, "scale_b"))]
        sizes = [v.shape[0] for v in pair]
        if sizes not in ([1, 1], [m, n]):
            raise ShapeError(
                f"scale_a and scale_b have {sizes[0]} and {sizes[1]} elements; they must have 1 and 1, or"
                f" {m} and {n}: one a row of a and one a column of b"
            )
        stages.append("scale" if sizes == [1, 1] and (m, n) != (1, 1) else "scale_rows")
        arrays += [("scale_a", pair[0]), ("scale_b", pair[1])]
    if bias is not None:
        rows = len(getattr(bias, "shape", ())) == 2
        v = _vector(bias, "bias", out, "f32" if out.dtype.bytes == 1 else out.dtype.name, m if rows else n, rows)
        stages.append("bias_row" if rows else "bias_column")
        arrays.append(("bias", v))
    if residual is not None:
        v = view(residual, "residual", items=len(shape) == 3)
        if v.shape != shape or v.dtype is not out.dtype or v.host != out.host:
            found, wanted = ("x".join(map(str, x)) for x in (v.shape, shape))
            rule = f"it must be {out.dtype} of {wanted}, in the same memory as out"
            raise ShapeError(f"residual is {v.dtype} of {found}; {rule}")
        stages.append("residual")
        arrays.append(("residual", v))
    if activation is not None:
        stages.append(word("activation", activation, ACTIVATIONS))
    return After(tuple(stages), tuple(arrays))


def _vector(x: Any, argument: str, out: View, kind: str, length: int | None = None, column: bool = False) -> View:
    """``x`` as a row of consecutive elements, in out's memory. ``column``: it is N×1."""
    reshape: Callable[..., Any] | None = getattr(x, "reshape", None)
    if reshape is None:
        raise InputError(f"{argument} is {type(x).__name__}; it must be an array like a")
    v = view(reshape(1, -1), argument)
    size = v.shape[1]
    if length is not None and size != length:
        what = "Mx1, one a row" if column else "one a column"
        raise ShapeError(f"{argument} has {size} elements; it must have {length}: {what} of out")
    if v.dtype is not DTYPES[kind]:
        raise InputError(f"{argument} is {v.dtype}; it must be {kind}")
    if v.host != out.host:
        raise InputError(f"{argument} must be in the same memory as a and b")
    if size > 1 and v.strides[1] != 1:
        raise ShapeError(f"{argument} has a stride of {v.strides[1]} elements; they must lie side by side")
    return View(v.origin, v.address, (size,), (1,), v.dtype, v.host)
