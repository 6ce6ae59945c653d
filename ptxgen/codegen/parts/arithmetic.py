"""The arithmetic of the epilogue: its type and its instructions."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.parts.part import Part
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import bits_of, dtype


@dataclass(frozen=True)
class Arithmetic(Part):
    """``type``: of alpha, beta and the epilogue; ``bytes`` of it; ``add``, ``mul``, ``fma``, ``setp_ne``: its
    instructions; ``zero`` as PTX writes it; ``s32_to_f32``: whether s32 accumulators are converted first."""

    type: str
    bytes: int
    add: str
    mul: str
    fma: str
    setp_ne: str
    zero: str
    s32_to_f32: bool

    @classmethod
    def of(cls, p: KernelProblem) -> Arithmetic:
        """The arithmetic that ``p`` asks for."""
        kind = dtype(p.sink.arithmetic)
        name = kind.name
        instructions = (
            ("add.s32", "mul.lo.s32", "mad.lo.s32", "setp.ne.s32")
            if kind.integer
            else (f"add.rn.{name}", f"mul.rn.{name}", f"fma.rn.{name}", f"setp.neu.{name}")
        )
        convert = p.accumulator.integer and not kind.integer
        return cls(name, kind.bytes, *instructions, bits_of(0.0, kind), convert)
