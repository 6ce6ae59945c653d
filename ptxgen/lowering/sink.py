"""Where the results of a kernel go: a tile is stored to C, with an epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from ptxgen.problem.base import ELEMENTWISE_OPERANDS, EPILOGUE_OPERANDS
from ptxgen.problem.dtypes import Dtype, dtype


class Sink(Protocol):
    """Where the results of a kernel go. ``needs``: what a family must provide."""

    needs: ClassVar[frozenset[str]]

    @property
    def arithmetic(self) -> str:
        """The type of alpha and beta, and of what is computed of the results."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that it reads, in the order of the kernel parameters."""


@dataclass(frozen=True)
class StoreTile:
    """C = epilogue(alpha · sums + beta · C).

    ``out``: the type of C; ``arithmetic``: that of alpha, beta and the epilogue; ``epilogue``: operations of
    EPILOGUE_OPS, separated by commas. ``scalar_bias``: all rows and columns of C add the same bias; ``batched_bias``:
    each product of a batch has a bias of its own.
    """

    out: str
    arithmetic: str
    epilogue: str = ""
    scalar_bias: bool = False
    batched_bias: bool = False

    needs: ClassVar[frozenset[str]] = frozenset(("store_tile",))

    @property
    def ops(self) -> tuple[str, ...]:
        """The operations of the epilogue, in order."""
        return tuple(self.epilogue.split(",")) if self.epilogue else ()

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the epilogue operands, in the order of the kernel parameters."""
        return tuple(name for op in self.ops for name in EPILOGUE_OPERANDS.get(op, ()))

    @property
    def elementwise(self) -> tuple[str, ...]:
        """The epilogue operands with the shape of C."""
        return tuple(name for name in self.arrays if name in ELEMENTWISE_OPERANDS)

    def array_dtype(self, name: str) -> Dtype:
        """The type of an epilogue operand: f32 for scales and for the bias of an 8-bit C, else the type of C."""
        wide = name.startswith("scale") or (name == "bias" and dtype(self.out).bytes == 1)
        return dtype("f32" if wide else self.out)
