"""What problems of every operation have: types, an epilogue, a line that names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import Field, asdict, fields
from typing import Any, ClassVar

from ptxgen.arguments import flag, integer, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.dtypes import DTYPES, Dtype, dtype

EXTENT_LIMIT = 1 << 31
MEMORY_LIMIT = 1 << 47  #: bytes of an operand: what a process addresses on a GPU

#: dtype of A and B -> the values of ``compute``, the default first. ``tf32``: f32 inputs are rounded to 11 bits;
#: ``f32_bf16x6``: each f32 input is the sum of three bf16; as exact as f32, but infinities give NaN
COMPUTE = {d.name: d.compute for d in DTYPES.values() if d.compute}
#: the accumulator type, where ``compute`` is not its name
SUMS = {"tf32": "f32", "f32_bf16x6": "f32"}
#: dtype of A and B -> the dtypes that C may have, the default first
OUT = {d.name: d.outputs for d in DTYPES.values() if d.outputs}

#: what may follow the product, in the order in which it is done; one of each row at the most
EPILOGUE = (("scale", "scale_rows"), ("bias_row", "bias_column"), ("residual",), ("relu", "gelu", "silu"))
#: the arrays that it reads
READS = {
    "scale": ("scale_a", "scale_b"),
    "scale_rows": ("scale_a", "scale_b"),
    "bias_row": ("bias",),
    "bias_column": ("bias",),
    "bias": ("bias",),
    "residual": ("residual",),
}
#: type of a field of a problem -> what checks a value of it
CHECKS: dict[str, Callable[[str, Any], Any]] = {"str": word, "bool": flag}


class ProblemBase:
    """What problems of every operation have: types, an epilogue, and one line that names them.

    ``SHAPE``: the fields that the line's second word holds; layout and dtype follow, then what is not the default.
    ``STAGES``: what the epilogue may have.
    """

    operation: ClassVar[str]
    SHAPE: ClassVar[tuple[str, ...]]
    SHAPED: ClassVar[str]  #: how a shape reads
    STAGES: ClassVar[tuple[tuple[str, ...], ...]] = EPILOGUE
    TOLD: ClassVar[tuple[str, ...]] = ("compute", "out", "epilogue", "batch")  #: options that kernels differ by
    PARAMETERS: ClassVar[str]  #: what of a shape kernels are told at run time
    COUNTS_PADDING: ClassVar[bool] = False  #: whether ``flops`` and ``bytes`` count work that a kernel may skip
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    layout: str
    dtype: str
    compute: str
    out: str
    epilogue: str
    deterministic: bool

    def shape(self) -> str:
        """The extents as one word, which ``read_shape`` reads back."""
        raise NotImplementedError

    @classmethod
    def read_shape(cls, text: str) -> dict[str, Any]:
        """The fields that a shape's word says. ShapeError: it is none."""
        raise NotImplementedError

    @classmethod
    def written(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The fields that somebody wrote. ShapeError: what they leave out makes one of them a mistake."""
        return values

    def key(self) -> str:
        """One line that names the problem, the same for equal problems; ``registry.parse`` reads it back."""
        said = {name: getattr(self, name) for name in (*self.SHAPE, "layout", "dtype")}
        plain = type(self)(**said)
        parts = [self.operation, self.shape(), self.layout, self.dtype]
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name not in said and value != getattr(plain, f.name):
                parts.append(f"{f.name}={value if isinstance(value, str) else int(value)}")
        return " ".join(parts)

    @property
    def words(self) -> str:
        """What a command takes to mean problems that one kernel computes: the operation and its options."""
        plain = type(self)(**{name: getattr(self, name) for name in (*self.SHAPE, "layout", "dtype")})
        told = [self.operation, f"--shape {self.shape()}", f"--layout {self.layout}", f"--dtype {self.dtype}"]
        told += [f"--{n} {getattr(self, n)}" for n in self.TOLD if getattr(self, n) != getattr(plain, n)]
        return " ".join(told)

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of A, B and C as stored."""
        raise NotImplementedError

    @property
    def reduction(self) -> int:
        """The most products that are summed for one element of C."""
        raise NotImplementedError

    @property
    def flops(self) -> int:
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """The fewest bytes that must move."""
        raise NotImplementedError

    @property
    def spread(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each array that the epilogue reads: its shape as stored, and the shape that broadcasts against C."""
        raise NotImplementedError

    @property
    def computes(self) -> list[str]:
        """What a kernel of it computes, in lines for who reads its text."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        return {"operation": self.operation, **asdict(self)}

    def _settle_integers(self, names: Iterable[str]) -> None:
        """NumPy's integers are taken, and not kept. ShapeError: one is no integer, or too large."""
        for name in names:
            object.__setattr__(self, name, integer(name, getattr(self, name), 0, EXTENT_LIMIT - 1))

    def _settle_words(self) -> None:
        """Checks the types of the fields that are strings or Booleans. InputError: one is of another type."""
        for f in fields(self):
            check = CHECKS.get(str(f.type))
            if check is not None:
                object.__setattr__(self, f.name, check(f.name, getattr(self, f.name)))

    def _settle_types(self) -> None:
        """Fills in what the dtype decides. DtypeError: a type is not to be had."""
        word("dtype", self.dtype, COMPUTE, DtypeError)
        for name, table in (("compute", COMPUTE), ("out", OUT)):
            allowed = table[self.dtype]
            if not getattr(self, name):
                object.__setattr__(self, name, allowed[0])
            value = getattr(self, name)
            if value not in allowed:
                known = ", ".join(allowed)
                raise DtypeError(f"{name} is {shown(value)}; with dtype {self.dtype} it must be one of {known}")

    def _settle_alignment(self, name: str, kind: Dtype) -> None:
        """ShapeError: an operand's start cannot be so."""
        value = getattr(self, name)
        if value not in (1, 2, 4, 8, 16) or value < kind.bytes:
            raise ShapeError(f"{name} is {value} bytes; it must be a power of two from {kind.bytes} to 16")

    def _settle_epilogue(self) -> None:
        """Puts the stages in order; refuses what is unknown, or cannot be done on sums of this type."""
        given = [word for word in self.epilogue.split(",") if word]
        stages = tuple(word for row in self.STAGES for word in row if word in given)
        if sorted(stages) != sorted(given):
            known = ", ".join(word for row in self.STAGES for word in row)
            raise InputError(f"epilogue is {shown(self.epilogue)}; its stages must be of {known}, each once")
        for row in self.STAGES:
            if sum(word in given for word in row) > 1:
                raise InputError(f"epilogue is {self.epilogue!r}; it may have only one of {', '.join(row)}")
        sums = self.linear.name
        if given and (self.linear.integer or (sums == "f64" and {"gelu", "silu"} & set(given))):
            raise DtypeError(f"epilogue is {self.epilogue!r}; sums of {sums} cannot be followed by that")
        object.__setattr__(self, "epilogue", ",".join(stages))

    @property
    def stages(self) -> tuple[str, ...]:
        """The epilogue's stages, in order."""
        return tuple(self.epilogue.split(",")) if self.epilogue else ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The arrays that the epilogue reads, in the order of the kernel's parameters."""
        return tuple(name for stage in self.stages for name in READS.get(stage, ()))

    @property
    def element(self) -> Dtype:
        return dtype(self.dtype)

    @property
    def output(self) -> Dtype:
        return dtype(self.out)

    @property
    def accumulator(self) -> Dtype:
        """The type of sums."""
        return dtype(SUMS.get(self.compute, self.compute))

    @property
    def linear(self) -> Dtype:
        """The type of what follows a sum: of alpha and beta, and of what the epilogue computes."""
        sums = self.accumulator
        return dtype("f32") if sums.bytes < 4 or (sums.integer and self.output is not sums) else sums

    def read_type(self, name: str) -> Dtype:
        """The type of an array that the epilogue reads: of C, but for scales, and for a bias to 8 bits."""
        wide = name.startswith("scale") or (name == "bias" and self.output.bytes == 1)
        return dtype("f32") if wide else self.output
