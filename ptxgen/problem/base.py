"""The base class of problem types: element types, epilogue, text form."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import Field, asdict, dataclass, fields
from typing import Any, ClassVar

from ptxgen.arguments import flag, integer, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.dtypes import DTYPES, FAST_ACCUM, FLOATS_8, HALVES, Dtype, canonical, dtype
from ptxgen.problem.epilogue_ops import (
    ACTIVATION,
    NUMBERED_OPS,
    arrays_of,
    epilogue_op,
    epilogue_op_names,
    epilogue_rows,
    is_name,
    split_epilogue,
)

EXTENT_LIMIT = 1 << 31
MEMORY_LIMIT = 1 << 47  #: upper limit of an operand in bytes: the virtual address space of a GPU

#: dtype of A and B -> the values of ``compute``, the default first. ``tf32`` rounds f32 inputs to 11 bits.
#: ``f32_bf16x6`` splits each f32 input into a sum of three bf16 planes: results are as exact as in f32, but infinities
#: give NaN. ``f32_fast_accum`` sums fp8 products in the accumulators of tensor cores, which keep 13 bits on Hopper
COMPUTE_MODES = {d.name: d.compute for d in DTYPES.values() if d.compute}
#: value of ``compute`` -> accumulator type, where the names differ. ``b1`` counts common bits of words; only programs
#: of tasks use it, no problem has it
SUMS = {"tf32": "f32", "f32_bf16x6": "f32", FAST_ACCUM: "f32", "b1": "s32"}
#: dtype of A and B -> the dtypes that C may have, the default first
OUT_DTYPES = {d.name: d.outputs for d in DTYPES.values() if d.outputs}

#: the epilogue operands that have the shape, strides, alignment and type of C
ELEMENTWISE_OPERANDS = ("residual", "aux")
#: the arrays of an epilogue that kernels access with the vector width of C: these operands, and the stored sums
ARRAYS_LIKE_C = (*ELEMENTWISE_OPERANDS, "sums")
#: type of a dataclass field -> the function that checks the values of such a field
CHECKS: dict[str, Callable[[str, Any], Any]] = {"str": word, "bool": flag}


@dataclass(frozen=True)
class FieldText:
    """The texts about a field of a problem in commands and exported libraries.

    ``option``: the help of the command-line option; ``flag``: the option, if it is not the name of the field;
    ``metavar``: the placeholder of the value in help; ``c``: (name, meaning) of each field of the C structure that
    holds the field (if the field is a tuple, these hold its last elements); ``words``: the values that a text field may
    have.
    """

    option: str = ""
    metavar: str = ""
    c: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()
    flag: str = ""


NO_TEXT = FieldText()


def described(
    option: str = "", metavar: str = "", c: Any = (), words: Iterable[str] = (), flag: str = ""
) -> dict[str, FieldText]:
    """The metadata of a dataclass field of a problem. ``c``: as in ``FieldText``, or the meaning of one C field of the
    same name."""
    pairs = (("", c),) if isinstance(c, str) else c
    return {"text": FieldText(option, metavar, pairs, tuple(words), flag)}


#: the metadata of the field ``exact_nonfinite``
EXACT_NONFINITE = described(
    "Exclude kernels in which infinities and NaN reach results that do not depend on them: conv, Winograd's algorithm"
    " and kernels that fold few filters; spmm, kernels that multiply absent nonzeros."
)


def text_of(f: Field[Any]) -> FieldText:
    text: FieldText = f.metadata.get("text", NO_TEXT)
    return text


def accumulator_dtype(compute: str, element: Dtype) -> Dtype:
    """The accumulator type of ``compute`` if A and B have type ``element``: complex if ``element`` is complex."""
    return element if element.part else dtype(SUMS.get(compute, compute))


def arithmetic_dtype(compute: str, out: str) -> Dtype:
    """The type of alpha, beta and the epilogue's arithmetic if sums have the type of ``compute`` and C has type
    ``out``."""
    if dtype(out).part:
        return dtype(out)
    sums = dtype(SUMS.get(compute, compute))
    return dtype("f32") if sums.bytes < 4 or (sums.integer and out != sums.name) else sums


class ProblemBase:
    """The base class of problem types, which are frozen dataclasses: element types, epilogue, text form.

    The text form (``key``) is ``operation shape layout dtype [name=value ...]``.
    """

    operation: ClassVar[str]
    SHAPE: ClassVar[tuple[str, ...]]  #: the fields that the shape word of the text form contains
    SHAPE_FORM: ClassVar[str]  #: the syntax of the shape word, for error messages
    SHAPE_EXAMPLE: ClassVar[str] = ""  #: the beginning of a shape word, for help; empty if ``SHAPE_FORM`` is short
    #: the fields, besides shape, layout and dtype, on which generated code depends and for which commands have options
    CODE_OPTIONS: ClassVar[tuple[str, ...]] = ("compute", "out", "epilogue", "batch")
    RUNTIME_PARAMETERS: ClassVar[str]  #: the extents that are kernel parameters, in words, for headers of PTX
    STEPS: ClassVar[str]  #: the numbers that are multiples of an operand's alignment, in words, for headers of PTX
    #: the numbers that are multiples of a vector access, in words; empty: ``STEPS`` names them
    ROWS: ClassVar[str] = "lengths of rows"
    GATED: ClassVar[bool] = False  #: True if the epilogue may have a gated activation
    WRITES: ClassVar[tuple[str, ...]] = ()  #: the places of operations that also write another array than C
    COMPLEX: ClassVar[bool] = False  #: True if A, B and C may be complex
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    layout: str
    dtype: str
    dtype_b: str = ""
    compute: str
    out: str
    epilogue: str
    deterministic: bool

    def shape(self) -> str:
        """The extents as one word, which ``read_shape`` parses."""
        raise NotImplementedError

    @classmethod
    def read_shape(cls, text: str) -> dict[str, Any]:
        """Parses the shape word and returns the fields. ShapeError: the word is not a shape."""
        raise NotImplementedError

    @classmethod
    def checked_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Checks fields from user input and returns them. ShapeError: a field is ambiguous because another one is
        missing."""
        return values

    def key(self) -> str:
        """The text form: one line, the same for equal problems; ``registry.parse`` parses it."""
        given, defaults = self._given_and_defaults()
        parts = [self.operation, self.shape(), self.layout, self.dtype]
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name not in given and value != getattr(defaults, f.name):
                parts.append(f"{f.name}={value if isinstance(value, str) else int(value)}")
        return " ".join(parts)

    def _given_and_defaults(self) -> tuple[dict[str, Any], ProblemBase]:
        """Returns two values: the fields of shape, layout and dtype; and a problem that has these fields and defaults
        for all others."""
        given = {name: getattr(self, name) for name in (*self.SHAPE, "layout", "dtype")}
        return given, type(self)(**given)

    @property
    def skipped(self) -> str:
        """What kernels may skip of the work that ``flops`` and ``bytes`` count: terms, results, or empty: nothing."""
        return ""

    @property
    def product_roundoff(self) -> float:
        """The rounding error of a product of elements of A and B, relative to its magnitude."""
        return 0.0

    @property
    def problem_class(self) -> str:
        """The name of the problem's class in reports of accuracy: the operation, or a subclass of it."""
        raise NotImplementedError

    @property
    def command_options(self) -> str:
        """The operation and the command-line options that select the kernel of this problem."""
        _, defaults = self._given_and_defaults()
        words = [self.operation, f"--shape {self.shape()}", f"--layout {self.layout}", f"--dtype {self.dtype}"]
        for name in self.CODE_OPTIONS:
            value = getattr(self, name)
            if value == getattr(defaults, name):
                continue
            if isinstance(value, bool):
                words.append(self._flag(name) if value else f"--no-{name.replace('_', '-')}")
            else:
                words.append(f"{self._flag(name)} {shlex.quote(str(value))}")
        return " ".join(words)

    @classmethod
    def _flag(cls, name: str) -> str:
        """The command-line option of the field ``name``."""
        return text_of(cls.__dataclass_fields__[name]).flag or f"--{name.replace('_', '-')}"

    @property
    def typical_scalars(self) -> dict[str, float]:
        """The numbers that a call passes besides alpha and beta, by name, with the values used for timing."""
        return {}

    @property
    def measurable(self) -> bool:
        """True if ptxgen can make operands of the problem, so that its kernels can be timed."""
        return True

    def typical(self) -> ProblemBase:
        """The problem whose configuration this problem uses while it has no winner of its own."""
        return self

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of A, B and C as stored."""
        raise NotImplementedError

    @property
    def reduction(self) -> int:
        """The largest number of products in the sum of one element of C."""
        raise NotImplementedError

    @property
    def flops(self) -> int:
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """Lower bound of the bytes that a kernel moves to and from device memory."""
        raise NotImplementedError

    @property
    def broadcast_shapes(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each epilogue operand: its stored shape, and the shape that broadcasts to C."""
        raise NotImplementedError

    @property
    def description(self) -> list[str]:
        """Lines of the PTX header that describe the problem."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        return {"operation": self.operation, **asdict(self)}

    def _normalize_integers(self, names: Iterable[str]) -> None:
        """Converts NumPy integers to Python's. ShapeError: a value is not an integer, or is too large."""
        for name in names:
            object.__setattr__(self, name, integer(name, getattr(self, name), 0, EXTENT_LIMIT - 1))

    def _check_words_and_flags(self) -> None:
        """Checks the fields of type str and bool. InputError: a value has another type."""
        for f in fields(self):
            check = CHECKS.get(str(f.type))
            if check is not None:
                object.__setattr__(self, f.name, check(f.name, getattr(self, f.name)))

    def _normalize_dtypes(self) -> None:
        """Fills in ``compute`` and ``out`` if they are empty, and converts alternative names of types to PTX names.
        DtypeError: a type is not supported."""
        for name in ("dtype", "compute", "out"):
            value = getattr(self, name)
            if value not in DTYPES:
                object.__setattr__(self, name, canonical(value))
        types = [name for name, modes in COMPUTE_MODES.items() if self.dtype in modes]
        if types and self.dtype not in COMPUTE_MODES:
            known = " or ".join(types)
            raise DtypeError(f"dtype is {shown(self.dtype)}; this is a value of compute, with dtype {known}")
        word("dtype", self.dtype, COMPUTE_MODES, DtypeError)
        if dtype(self.dtype).part and not self.COMPLEX:
            raise DtypeError(f"dtype is {self.dtype}; {self.operation} has no complex types, only gemm has")
        for name, table in (("compute", COMPUTE_MODES), ("out", OUT_DTYPES)):
            allowed = table[self.dtype]
            if not getattr(self, name):
                object.__setattr__(self, name, allowed[0])
            value = getattr(self, name)
            if value not in allowed:
                known = ", ".join(allowed)
                raise DtypeError(f"{name} is {shown(value)}; with dtype {self.dtype} it must be one of {known}")

    def _normalize_second_dtype(self) -> None:
        """Sets ``dtype_b`` to its PTX name, or to an empty text if B has the type of A. DtypeError: B has another type
        than A, and one of them is no 8-bit float."""
        name = self.dtype_b if self.dtype_b in DTYPES else canonical(self.dtype_b)
        object.__setattr__(self, "dtype_b", "" if name == self.dtype else name)
        if self.dtype_b and not {self.dtype, self.dtype_b} <= set(FLOATS_8):
            raise DtypeError(
                f"dtype_b is {shown(self.dtype_b)} and dtype is {self.dtype}; they must be the same, or"
                f" {' and '.join(FLOATS_8)}"
            )

    def _normalize_layout(self, name: str, known: tuple[str, ...]) -> None:
        """Converts the value of the field ``name`` to capitals. ShapeError: the value is not in ``known``."""
        value = getattr(self, name)
        if value not in known:
            object.__setattr__(self, name, value.upper() if value.upper() in known else value)
            word(name, getattr(self, name), known, ShapeError)

    def _check_alignment(self, name: str, element: Dtype) -> None:
        """Checks the alignment of an operand. ShapeError: it is not a power of two from the element size to 16
        bytes."""
        value = getattr(self, name)
        if value not in (1, 2, 4, 8, 16) or value < element.bytes:
            raise ShapeError(f"{name} is {value} bytes; it must be a power of two from {element.bytes} to 16")

    @classmethod
    def epilogue_rows(cls) -> tuple[tuple[str, ...], ...]:
        """The epilogue operations in rows, in the order of execution; an epilogue has at most one operation of each
        row."""
        return epilogue_rows(cls.GATED, cls.WRITES)

    def _normalize_epilogue(self) -> None:
        """Converts the epilogue to canonical names. InputError, DtypeError: an operation is unknown, out of order, or
        not supported for this type."""
        given = [self._canonical_op(name) for name in split_epilogue(self.epilogue)]
        rows = self.epilogue_rows() if given else ()
        texts = tuple(name for name in given if not is_name(name))
        named = set(epilogue_op_names(ACTIVATION))
        rows = tuple((*row, *texts) if named & set(row) else row for row in rows)
        ordered = tuple(name for row in rows for name in row if name in given)
        if sorted(ordered) != sorted(given):
            forms = [x.form for x in NUMBERED_OPS.values()] if rows else []
            known = ", ".join([*(name for row in rows for name in row if name not in texts), *forms])
            raise InputError(
                f"epilogue is {shown(self.epilogue)}; its operations must be among {known}, each at most once"
            )
        for row in rows:
            if sum(name in given for name in row) > 1:
                raise InputError(f"epilogue is {self.epilogue!r}; it may have only one of {', '.join(row)}")
        if tuple(given) != ordered:
            raise InputError(
                f"epilogue is {self.epilogue!r}; its operations must be in the order of execution: {','.join(ordered)}"
            )
        epilogue_dtype = self.epilogue_dtype
        if given and epilogue_dtype.part:
            raise DtypeError(f"epilogue is {self.epilogue!r}; products of {self.dtype} have none")
        if given and epilogue_dtype.integer:
            raise DtypeError(
                f"epilogue is {self.epilogue!r} and sums are {epilogue_dtype.name}; C must then be of floats"
            )
        for op in map(epilogue_op, given):
            if not op.computes(epilogue_dtype.name):
                raise DtypeError(
                    f"{op.place} is {op.name!r} and sums are {epilogue_dtype.name}; {op.refusal(epilogue_dtype.name)}"
                )
            if op.writes and self.output.bytes == 1:
                raise InputError(f"epilogue is {self.epilogue!r}; with {op.name} out must be 16 or more bits wide")
        if any(epilogue_op(name).gated for name in given):
            self._check_gated(given)
        object.__setattr__(self, "epilogue", ",".join(ordered))

    def _check_gated(self, given: list[str]) -> None:
        """Checks an epilogue with a gated activation. InputError, DtypeError: this problem cannot have it."""
        if not self.GATED:
            raise InputError(f"epilogue is {self.epilogue!r}; {self.operation} has no gated activation")
        if "residual" in given:
            raise InputError(f"epilogue is {self.epilogue!r}; with a gated activation there may be no residual")
        if "sum_columns" in given:
            raise InputError(f"epilogue is {self.epilogue!r}; with a gated activation there may be no sum_columns")
        if self.out not in HALVES:
            raise DtypeError(f"out is {self.out}; with a gated activation it must be one of {', '.join(HALVES)}")

    def _canonical_op(self, name: str) -> str:
        """The canonical name of an epilogue operation; an activation given as text has its canonical text. InputError:
        the text is not an activation."""
        if is_name(name):
            return name
        try:
            return epilogue_op(name).name
        except InputError as error:
            raise type(error)(f"epilogue is {shown(self.epilogue)}; {error}") from None

    @property
    def gated(self) -> bool:
        """True if the epilogue makes each element of C from two adjacent sums."""
        return any(epilogue_op(name).gated for name in self.epilogue_ops)

    @property
    def pair_axis(self) -> int:
        """The axis of C along which a gated activation takes pairs of sums."""
        return -1

    @property
    def epilogue_ops(self) -> tuple[str, ...]:
        """The names of the epilogue operations, in order."""
        return split_epilogue(self.epilogue)

    @property
    def epilogue_operands(self) -> tuple[str, ...]:
        """The names of the epilogue operands, in the order of the kernel parameters."""
        return tuple(name for op in self.epilogue_ops for name in arrays_of(op))

    @property
    def elementwise_operands(self) -> tuple[str, ...]:
        """The names of the epilogue operands that have the shape of C."""
        return tuple(name for name in self.epilogue_operands if name in ELEMENTWISE_OPERANDS)

    @property
    def operands_digest(self) -> str:
        """Digest of the operands that the text form names, such as the pattern of a sparse matrix; empty if it names
        none."""
        return ""

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that a call binds, in the order in which calls pass their addresses."""
        return ("A", "B", "C", *self.scale_shapes, *self.epilogue_operands)

    @property
    def scale_shapes(self) -> dict[str, tuple[int, ...]]:
        """The stored shapes of the f32 block scales of A and of B, by array name; empty if there are no block
        scales."""
        return {}

    @property
    def has_group_scales(self) -> bool:
        """True if sums of ranges of K have scales of their own."""
        return bool(self.scale_shapes)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the arrays that a call writes."""
        operations = map(epilogue_op, self.epilogue_ops)
        return ("C", *(name for op in operations if op.writes for name in op.arrays))

    @property
    def element(self) -> Dtype:
        """The type of A, and of B unless ``types`` says otherwise."""
        return dtype(self.dtype)

    @property
    def types(self) -> tuple[Dtype, Dtype, Dtype]:
        """The types of A, B and C."""
        return self.element, dtype(self.dtype_b or self.dtype), self.output

    @property
    def output(self) -> Dtype:
        """The type of C."""
        return dtype(self.out)

    @property
    def accumulator(self) -> Dtype:
        return accumulator_dtype(self.compute, self.element)

    @property
    def epilogue_dtype(self) -> Dtype:
        """The type of alpha, beta and the epilogue's arithmetic."""
        return arithmetic_dtype(self.compute, self.out)

    def epilogue_operand_dtype(self, name: str) -> Dtype:
        """The type of an epilogue operand: f32 for scales and for the bias of an 8-bit C, that of the epilogue's
        arithmetic for sums of columns and of A, else the type of C."""
        if name in ("column_sums", "a_sums"):
            return self.epilogue_dtype
        wide = name.startswith("scale") or (name == "bias" and self.output.bytes == 1)
        return dtype("f32") if wide else self.output
