"""The product of complex numbers: four real multiply-adds of the parts of two elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ptxgen.lowering.algebra import Algebra

REAL, IMAGINARY = range(2)  #: indices of the parts of an element, in their order in memory


class PartProduct(NamedTuple):
    """One real multiply-add of a complex one: part ``a`` of the element of A times part ``b`` of the element of B is
    added to part ``sum`` of the accumulator. ``negated``: True if part ``a`` is negated first."""

    sum: int
    a: int
    b: int
    negated: bool


@dataclass(frozen=True, kw_only=True)
class ComplexProduct(Algebra):
    """The algebra of complex products and sums. ``conjugates``: True for A, and for B, if its elements are
    conjugated."""

    conjugates: tuple[bool, bool] = (False, False)

    name: str = "complex_plus_times"
    reduce: str = "+"
    identity: float = 0.0
    pads_with_zero: bool = True
    atomic: bool = True

    fmas: ClassVar[int] = 4

    @property
    def products(self) -> tuple[PartProduct, ...]:
        """The real multiply-adds of a step. Conjugation changes the sign of those with an imaginary part."""
        a, b = self.conjugates
        return (
            PartProduct(REAL, REAL, REAL, False),
            PartProduct(IMAGINARY, REAL, IMAGINARY, b),
            PartProduct(REAL, IMAGINARY, IMAGINARY, a == b),
            PartProduct(IMAGINARY, IMAGINARY, REAL, a),
        )

    @property
    def negated(self) -> tuple[int, ...]:
        """The parts of an element of A of which some multiply-adds take the negative."""
        return tuple(sorted({x.a for x in self.products if x.negated}))
