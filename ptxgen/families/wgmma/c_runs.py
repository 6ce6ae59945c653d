"""The addressing of C of convolutions, whose rows and columns are in runs of constant stride."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ptxgen.codegen.parts.addressing import CAddressing, multiplier
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.lowering import implicit_gemm
from ptxgen.lowering.im2col_descriptor import Digits, im2col
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem


class RunLayout:
    """The offsets of rows (or columns) of C in runs of constant stride. A kernel computes them from ``parameters``."""

    def __init__(self, name: str, digits: Digits) -> None:
        self.name = name
        #: axes of an image along which a number has a position; none: a number consists of a run and a position in it
        self.axes = range(0)
        #: True if there are several runs, with gaps between them
        self.has_gaps = len(digits) > 1
        self.parameters = (
            f"step_{name}",
            *([f"magic_{name}", f"shift_{name}", f"run_gap_{name}"] if self.has_gaps else []),
        )

    @property
    def registers(self) -> tuple[str, ...]:
        """The registers of kernel parameters from which the offsets are computed."""
        return self.parameters

    @property
    def operand(self) -> str:
        """The names in ``registers``, separated by commas."""
        return ", ".join(f"%{name}" for name in self.registers)

    @property
    def parameter_operand(self) -> str:
        """The registers of ``parameters``, separated by commas."""
        return ", ".join(f"%{name}" for name in self.parameters)

    def values(self, digits: Digits) -> tuple[int, ...]:
        """The values of ``parameters``. Row (or column) n is at offset n · step + n // extent · run_gap."""
        extent, step = digits[-1]
        if len(digits) == 1:
            return (step,)
        return step, *multiplier(extent), (digits[0][1] - extent * step) & 0xFFFFFFFF


class PhasePixels(RunLayout):
    """The offsets of rows (or columns) of C that are pixels of a phase of a strided input gradient. The number of a row
    consists of an image and a position along each axis. Positions past the last pixel of the phase are out of
    bounds."""

    def __init__(self, name: str, digits: Digits) -> None:
        self.name, self.axes, self.has_gaps = name, range(len(digits) - 1), True
        self.parameters = (f"image_step_{name}", *(f"step_{name}{a}" for a in self.axes))

    @property
    def registers(self) -> tuple[str, ...]:
        dividers = ((f"positions{a}", f"magic_positions{a}", f"shift_positions{a}") for a in self.axes)
        return (*self.parameters, *(name for names in dividers for name in names))

    def values(self, digits: Digits) -> tuple[int, ...]:
        (_, image), *axes = digits
        return image, *(step for _, step in reversed(axes))


def run_layouts(p: KernelProblem) -> list[RunLayout]:
    """The run layouts of the rows and of the columns of C; empty if C is a matrix."""
    if im2col(p) is None or not im2col(p).result:
        return []
    strided = im2col(p).phases and not im2col(p).by_phase
    pixels = ("rows" if im2col(p).side == "a" else "columns") if strided else ""
    named = zip(("rows", "columns"), im2col(p).result, strict=True)
    return [(PhasePixels if name == pixels else RunLayout)(name, digits) for name, digits in named]


@dataclass(frozen=True)
class RunAddressing(CAddressing):
    """The addressing of C if rows and columns may be in runs of constant stride. Auxiliary kernels address C through
    offset tables."""

    runs: bool

    @classmethod
    def of(cls, p: KernelProblem) -> RunAddressing:
        tables = p.operand("C").access.mode != STRIDED or (im2col(p) is not None and im2col(p).result is not None)
        phased = im2col(p) is not None and bool(im2col(p).phases)  # no auxiliary kernel reads C
        return cls(tables, bool(run_layouts(p)) and not phased)

    @property
    def parameters(self) -> list[Parameters]:
        if not self.runs:
            return []
        return [Parameters("u64", ("rows_c", "columns_c"), lambda x: c_tables(*im2col(x.p).result))]


@lru_cache(maxsize=64)
def c_tables(rows: Digits, columns: Digits) -> tuple[implicit_gemm.OffsetTable, implicit_gemm.OffsetTable]:
    """The offset tables of C for auxiliary kernels that scale or reduce C."""
    maps = [implicit_gemm.IndexMap(tuple(n for n, _ in x), tuple(step for _, step in x)) for x in (rows, columns)]
    return implicit_gemm.ImplicitOperand(maps[0], maps[1]).tables
