"""The arithmetic of the epilogue: its type and its instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.parts.part import Part
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import part_names
from ptxgen.problem.dtypes import bits_of, dtype

#: a factor: the registers of a vector of numbers, or the name of a scalar parameter, which multiplies each number
Factor = Sequence[str] | str


@dataclass(frozen=True)
class Arithmetic(Part):
    """The arithmetic of sums and of the epilogue, in PTX. ``type``: the PTX type of alpha, beta and the epilogue;
    ``bytes``: the size of a number; ``add``, ``mul``, ``fma``, ``setp_ne``: instructions; ``zero``: a PTX literal;
    ``s32_to_f32``: True if s32 accumulators are converted to f32 first; ``parts``: registers of a number."""

    type: str
    bytes: int
    add: str
    mul: str
    fma: str
    setp_ne: str
    zero: str
    s32_to_f32: bool

    parts: ClassVar[int] = 1

    @classmethod
    def of(cls, p: KernelProblem) -> Arithmetic:
        """The arithmetic that ``p`` asks for."""
        arithmetic = dtype(p.sink.arithmetic)
        name = arithmetic.real
        instructions = (
            ("add.s32", "mul.lo.s32", "mad.lo.s32", "setp.ne.s32")
            if arithmetic.integer
            else (f"add.rn.{name}", f"mul.rn.{name}", f"fma.rn.{name}", f"setp.neu.{name}")
        )
        convert = p.accumulator.integer and not arithmetic.integer
        made = ComplexArithmetic if arithmetic.part else cls
        return made(name, arithmetic.bytes, *instructions, bits_of(0.0, dtype(name)), convert)

    def multiply(self, to: Sequence[str], x: Factor, y: Factor, guard: str = "") -> list[str]:
        """The instructions that compute to = x · y, number by number. ``to`` may be the registers of ``x``."""
        return [f"{guard}{self.mul} {r}, {a}, {b};" for r, a, b in self._numbers(to, x, y)]

    def multiply_add(self, to: Sequence[str], x: Factor, y: Factor, guard: str = "") -> list[str]:
        """The instructions that compute to = to + x · y, number by number."""
        return [f"{guard}{self.fma} {r}, {a}, {b}, {r};" for r, a, b in self._numbers(to, x, y)]

    def test_nonzero(self, predicate: str, name: str) -> list[str]:
        """The instructions that set ``predicate`` if the scalar parameter ``name`` is not zero."""
        return [f"{self.setp_ne} {predicate}, %{name}, {self.zero};"]

    @property
    def set_has_beta(self) -> list[str]:
        """The instructions that set %has_beta if beta is not zero."""
        return self.test_nonzero("%has_beta", "beta")

    @property
    def set_p_if_beta(self) -> list[str]:
        """The instructions that set %p if beta is not zero."""
        return self.test_nonzero("%p", "beta")

    def _numbers(self, to: Sequence[str], x: Factor, y: Factor) -> list[tuple[str, str, str]]:
        each = ([f"%{v}"] * len(to) if isinstance(v, str) else v for v in (x, y))
        return list(zip(to, *each, strict=True))


@dataclass(frozen=True)
class ComplexArithmetic(Arithmetic):
    """The arithmetic of complex numbers. Instructions, ``zero`` and ``type`` are those of a real or imaginary part;
    ``bytes``: the size of a complex number. Each part has a register; vectors of registers alternate real and imaginary
    parts."""

    parts: ClassVar[int] = 2

    def multiply(self, to: Sequence[str], x: Factor, y: Factor, guard: str = "") -> list[str]:
        lines = []
        for (re, im), (a, b), (c, d) in self._pairs(to, x, y):
            lines += [
                f"{guard}{self.mul} %product_re, {b}, {d};",
                f"{guard}neg.{self.type} %product_re, %product_re;",
                f"{guard}{self.fma} %product_re, {a}, {c}, %product_re;",
                f"{guard}{self.mul} %product_im, {a}, {d};",
                f"{guard}{self.fma} {im}, {b}, {c}, %product_im;",
                f"{guard}mov.{self.type} {re}, %product_re;",
            ]
        return ["{", f".reg .{self.type} %product_re, %product_im;", *lines, "}"]

    def multiply_add(self, to: Sequence[str], x: Factor, y: Factor, guard: str = "") -> list[str]:
        lines = []
        for (re, im), (a, b), (c, d) in self._pairs(to, x, y):
            lines += [
                f"{guard}{self.fma} {re}, {a}, {c}, {re};",
                f"{guard}neg.{self.type} %negated, {b};",
                f"{guard}{self.fma} {re}, %negated, {d}, {re};",
                f"{guard}{self.fma} {im}, {a}, {d}, {im};",
                f"{guard}{self.fma} {im}, {b}, {c}, {im};",
            ]
        return ["{", f".reg .{self.type} %negated;", *lines, "}"]

    def test_nonzero(self, predicate: str, name: str) -> list[str]:
        re, im = part_names(name)
        combined = self.setp_ne.replace("setp.neu", "setp.neu.or")
        return [
            f"{self.setp_ne} {predicate}, %{im}, {self.zero};",
            f"{combined} {predicate}, %{re}, {self.zero}, {predicate};",
        ]

    def _pairs(self, to: Sequence[str], x: Factor, y: Factor) -> list[tuple[tuple[str, str], ...]]:
        """For each number: the registers of its real and imaginary part in ``to``, ``x`` and ``y``."""
        vectors = []
        for v in (to, x, y):
            if isinstance(v, str):
                re, im = part_names(v)
                vectors.append([(f"%{re}", f"%{im}")] * (len(to) // 2))
            else:
                vectors.append(list(zip(v[::2], v[1::2], strict=True)))
        return list(zip(*vectors, strict=True))
