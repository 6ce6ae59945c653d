"""The epilogue arguments of ``gemm``: bias, residual, scales, activation and its auxiliary operand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ptxgen.api.arrays import View, alignment_of, require_same_memory, tensor, view
from ptxgen.api.block_scales import block_scales, scales_in_f32
from ptxgen.arguments import shown, word
from ptxgen.errors import InputError, ShapeError, TaskError
from ptxgen.problem.base import ARRAYS_LIKE_C, ELEMENTWISE_OPERANDS
from ptxgen.problem.dtypes import DTYPES
from ptxgen.problem.epilogue_ops import ACTIVATION, NUMBERED_OPS, arrays_of, epilogue_op, epilogue_op_names, is_name

#: an activation: a name or a text of ``problem.epilogue_ops``, or a Python function of x, or of x and aux
Activation = str | Callable[..., Any]
#: name of an operation or operand in C = AB -> its name in Cᵀ = BᵀAᵀ
TRANSPOSED_NAMES = {"bias_row": "bias_column", "bias_column": "bias_row", "scale_a": "scale_b", "scale_b": "scale_a"}


@dataclass(frozen=True)
class EpilogueArgs:
    """The epilogue of a call. ``ops``: the operations of ``Gemm.epilogue``; ``arrays``: their operands and the block
    scales, with the names of kernel parameters; ``blocks``: the fields ``block_a`` and ``block_b`` of the problem."""

    ops: tuple[str, ...] = ()
    arrays: tuple[tuple[str, View], ...] = ()
    blocks: tuple[str, str] = ("", "")

    def transposed(self) -> EpilogueArgs:
        """The epilogue of the transposed product."""
        ops = tuple(TRANSPOSED_NAMES.get(s, s) for s in self.ops)
        arrays = tuple((TRANSPOSED_NAMES.get(n, n), v) for n, v in self.arrays)
        return EpilogueArgs(ops, arrays, (self.blocks[1], self.blocks[0]))

    def check_strides(self, out: View) -> None:
        """ShapeError: an elementwise operand has other strides than ``out``."""
        for name, v in self.arrays:
            if name in ELEMENTWISE_OPERANDS and v.strides != out.strides:
                raise ShapeError(f"{name} has strides {v.strides}; they must be those of out, {out.strides}")


def alignment_like_c(arrays: Iterable[tuple[str, View]]) -> int:
    """The alignment in bytes that the arrays of an epilogue require of accesses to C; 16: they require none."""
    return min((alignment_of(v.address) for name, v in arrays if name in ARRAYS_LIKE_C), default=16)


def epilogue_arguments(
    shape: tuple[int, ...],
    out: View,
    scale_a: Any,
    scale_b: Any,
    bias: Any,
    residual: Any,
    activation: Any,
    aux: Any,
    *,
    operands: tuple[View, View] | None = None,
    sums: Any = None,
    column_sums: Any = None,
    a_sums: Any = None,
) -> EpilogueArgs:
    """Converts the arguments of ``gemm``. ``shape``: the shape of ``out``, with an optional leading batch axis;
    ``operands``: a and b, for which block scales are allowed; None: block scales are not allowed; ``sums``: the array
    to which the sums are stored; None: they are not; ``column_sums``: the same for the sums of the columns of C, f32
    (f64 for f64); ``a_sums``: the same for the sums of the rows of A.

    ShapeError, InputError: an argument breaks a rule.
    """
    activation = checked_activation(activation, aux)
    m, n = shape[-2], columns_of_sums(shape[-1], activation)
    ops: list[str] = []
    arrays: list[tuple[str, View]] = []
    if (scale_a is None) != (scale_b is None):
        raise InputError("one of scale_a and scale_b is None; pass both or neither")
    scale_a, scale_b = scales_in_f32(scale_a, "scale_a"), scales_in_f32(scale_b, "scale_b")
    blocks = ("", "")
    scaled = block_scales(*operands, scale_a, scale_b) if operands is not None and scale_a is not None else None
    if scaled is not None:
        blocks = (scaled[0][0], scaled[1][0])
        arrays += [("scale_a", scaled[0][1]), ("scale_b", scaled[1][1])]
    elif scale_a is not None:
        pair = [_vector(x, name, out, "f32") for x, name in ((scale_a, "scale_a"), (scale_b, "scale_b"))]
        sizes = [v.shape[0] for v in pair]
        if sizes not in ([1, 1], [m, n]):
            raise ShapeError(
                f"scale_a and scale_b have {sizes[0]} and {sizes[1]} elements; they must have 1 and 1, or"
                f" {m} and {n}: one per row of a and one per column of b"
            )
        ops.append("scale" if sizes == [1, 1] and (m, n) != (1, 1) else "scale_rows")
        arrays += [("scale_a", pair[0]), ("scale_b", pair[1])]
    if bias is not None:
        rows = len(tensor(bias, "bias").shape) == 2
        v = _vector(bias, "bias", out, "f32" if out.dtype.bytes == 1 else out.dtype.name, m if rows else n, rows)
        ops.append("bias_row" if rows else "bias_column")
        arrays.append(("bias", v))
    for name, x in (("residual", residual), ("aux", aux)):
        if x is not None:
            v = view(x, name, batched=len(shape) == 3)
            if v.shape != shape or v.dtype is not out.dtype or v.host != out.host:
                given, wanted = ("x".join(map(str, s)) for s in (v.shape, shape))
                memory, needed = ("host" if host else "GPU" for host in (v.host, out.host))
                given_operand = f"{name} is {v.dtype} of {given} in {memory} memory"
                raise ShapeError(f"{given_operand}; it must be {out.dtype} of {wanted} in {needed} memory, as out")
            arrays.append((name, v))
    if residual is not None:
        ops.append("residual")
    if sums is not None:
        arrays.append(("sums", checked_sums(sums, out, (*shape[:-1], n), activation)))
        ops.append("store_sums")
    if activation is not None:
        ops.append(activation)
    for name, x, length, op in (("column_sums", column_sums, n, "sum_columns"), ("a_sums", a_sums, m, "sum_a")):
        if x is not None:
            arrays.append((name, _vector(x, name, out, "f64" if out.dtype.name == "f64" else "f32", length)))
            ops.append(op)
    return EpilogueArgs(tuple(ops), tuple(arrays), blocks)


def checked_sums(sums: Any, out: View, shape: tuple[int, ...], activation: str | None) -> View:
    """The array for the sums, of shape ``shape``. InputError, ShapeError: it breaks a rule."""
    if activation is None:
        raise InputError("sums is an array; activation must then be given, because out has the sums")
    v = view(sums, "sums", batched=len(shape) == 3)
    if v.shape != shape or v.dtype is not out.dtype or v.host != out.host:
        wanted = f"{out.dtype} of {'x'.join(map(str, shape))}"
        raise ShapeError(
            f"sums is {v.dtype} of {'x'.join(map(str, v.shape))}; it must be {wanted}, in the memory of out"
        )
    each = columns_of_sums(1, activation)
    # rows of a gated activation are contiguous; a single column of out has the stride 0
    strides = *(stride * each for stride in out.strides[:-1]), 1 if each > 1 else out.strides[-1]
    if not out.host and v.strides != strides and 0 not in shape:
        raise ShapeError(f"sums has strides {v.strides}; they must be {strides}, for out with strides {out.strides}")
    if v.address % (each * out.dtype.bytes):
        least = each * out.dtype.bytes
        raise ShapeError(
            f"sums starts at {v.address:#x}; with a gated activation it must be a multiple of {least} bytes"
        )
    return v


def text_of(activation: Any) -> Any:
    """The text of an activation that is a Python function; any other activation as it is. InputError: the function
    breaks a rule."""
    if not callable(activation):
        return activation
    from ptxgen.operations.task import activations

    return activations.traced(activation)


def activation_name(activation: Any, aux: bool = True) -> str | None:
    """The name or the canonical text of an activation; None: there is no activation. ``aux``: True if the call takes an
    array ``aux``; else errors name no activation that reads one. InputError: it is unknown, or breaks a rule."""
    text, known = text_of(activation), epilogue_op_names(ACTIVATION)
    if text is None:
        return None
    if not isinstance(text, str) or (is_name(text) and text not in known):
        forms = tuple(x.form for x in NUMBERED_OPS.values())
        known = known if aux else tuple(x for x in known if not arrays_of(x))
        word("activation", text, (*known, *forms, "an expression of x"))
    try:
        return epilogue_op(text).name
    except TaskError as error:
        raise TaskError(f"activation is {shown(text)}; {error}", error.line, error.column) from error


@functools.lru_cache(maxsize=256)
def gradient_name(activation: str) -> str | None:
    """The activation that multiplies a sum by the slope of ``activation`` at ``aux``; None: ``activation`` is gated.
    TaskError: an operator has no derivative."""
    from ptxgen.operations.task import activations

    if (name := f"{activation}_grad") in epilogue_op_names(ACTIVATION):
        return name
    op = epilogue_op(activation)
    return None if op.gated else epilogue_op(activations.gradient(op)).name


def columns_of_c(columns: int, activation: str | None, name: str = "b") -> int:
    """The number of columns of C for a B with ``columns`` columns: half of them for a gated activation, which takes two
    columns of B for each of C. ``name``: the argument B. ShapeError: ``activation`` is gated and ``columns`` is
    odd."""
    if activation is None or not epilogue_op(activation).gated:
        return columns
    if columns % 2:
        raise ShapeError(
            f"{name} has {columns} columns; a gated activation takes an even number, a gate and a value in turn"
        )
    return columns // 2


def columns_of_sums(columns: int, activation: str | None) -> int:
    """The number of columns of the sums for a C with ``columns`` columns: as many, or twice as many for a gated
    activation."""
    return columns * (2 if activation is not None and epilogue_op(activation).gated else 1)


def checked_activation(activation: Any, aux: Any) -> str | None:
    """The name of the activation. InputError: it is unknown or breaks a rule, it reads ``aux`` and ``aux`` is None, or
    it does not read the ``aux`` that is given."""
    name, known = activation_name(activation), epilogue_op_names(ACTIVATION)
    reads_aux = name is not None and "aux" in arrays_of(name)
    if reads_aux != (aux is not None):
        given = "None" if aux is None else "an array"
        readers = [op for op in known if "aux" in arrays_of(op)]
        takes = f"{', '.join(readers)} {'takes' if len(readers) == 1 else 'take'} aux, others do not"
        takes = (
            takes if name is None or name in known else f"the expression {'reads' if reads_aux else 'does not read'} it"
        )
        raise InputError(f"activation is {shown(name)} and aux is {given}; {takes}")
    return name


def _vector(
    x: Any, argument: str, out: View, element_type: str, length: int | None = None, column: bool = False
) -> View:
    """``x`` as a vector of consecutive elements in the memory of ``out``. ``column``: its shape is M×1."""
    v = tensor(x, argument)
    if sum(n != 1 for n in v.shape) > 1:
        if not hasattr(x, "reshape"):
            raise ShapeError(f"{argument} has shape {v.shape}; it must have one axis of more than one element")
        v = tensor(x.reshape(-1), argument)
    size, stride = next(((n, s) for n, s in zip(v.shape, v.strides, strict=True) if n != 1), (1, 1))
    if length is not None and size != length:
        rule = "Mx1, one per row of out" if column else "one per column of b"
        raise ShapeError(f"{argument} has {size} elements; it must have {length}: {rule}")
    if v.dtype is not DTYPES[element_type]:
        raise InputError(f"{argument} is {v.dtype}; it must be {element_type}")
    require_same_memory(argument, v, "out", out)
    if size > 1 and stride != 1:
        raise ShapeError(f"{argument} has a stride of {stride} elements; they must be contiguous")
    return replace(v, shape=(size,), strides=(1,))
