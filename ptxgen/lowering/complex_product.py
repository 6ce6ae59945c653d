"""Products of complex numbers: each is four real multiply-adds on the parts of two elements and of a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ptxgen.lowering.algebra import Algebra

REAL, IMAGINARY = range(2)  #: the parts of an element, in their order in memory


class PartProduct(NamedTuple):
    """A real multiply-add of a complex one: part ``a`` of the element of A, negated if ``negated``, times part ``b`` of
    that of B is added to part ``sum`` of the sum."""

    sum: int
    a: int
    b: int
    negated: bool


@dataclass(frozen=True, kw_only=True)
class ComplexProduct(Algebra):
    """Sums of products of complex numbers. ``conjugates``: whether the elements of A, and of B, are conjugated."""

    conjugates: tuple[bool, bool] = (False, False)

    name: str = "complex_plus_times"
    reduce: str = "+"
    identity: float = 0.0
    pads_with_zero: bool = True
    atomic: bool = True

    fmas: ClassVar[int] = 4

    @property
    def products(self) -> tuple[PartProduct, ...]:
        """The real multiply-adds of a step. Conjugation is a sign of terms with an imaginary part."""
        a, b = self.conjugates
        return (
            PartProduct(REAL, REAL, REAL, False),
            PartProduct(IMAGINARY, REAL, IMAGINARY, b),
            PartProduct(REAL, IMAGINARY, IMAGINARY, a == b),
            PartProduct(IMAGINARY, IMAGINARY, REAL, a),
        )

    @property
    def negated(self) -> tuple[int, ...]:
        """The parts of elements of A that some multiply-adds take negated."""
        return tuple(sorted({x.a for x in self.products if x.negated}))
