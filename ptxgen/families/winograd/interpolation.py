"""The interpolation points of F(4x4, 3x3) and F(3x3, 4x4) as PTX constants: 0, infinity and two pairs.

In exact arithmetic, any points give the same results; rounding errors depend on the points. ±5/8 and ±3/2, whose powers
are exact in f32, have half of the errors of ±1 and ±2. The transform of a patch evaluates, for each point, the
polynomial whose zeros are the other points. The transform of filters or gradients evaluates them as polynomials at each
point, divided by the derivative of the polynomial whose zeros are all points. Results are sums of products times powers
of the points.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.problem.dtypes import bits_of, dtype


def _f32(value: float) -> str:
    return bits_of(value, dtype("f32"))


@dataclass(frozen=True)
class PointPair:
    """The points ±``value``. They have the places ``first`` and ``first`` + 1 in a transformed row. ``other``: the
    value of the other pair."""

    first: int
    value: float
    other: float

    @property
    def derivative(self) -> float:
        """The derivative of x(x² - value²)(x² - other²) at both points."""
        return 2 * self.value**2 * (self.value**2 - self.other**2)

    @property
    def plus(self) -> str:
        return _f32(self.value)

    @property
    def minus(self) -> str:
        return _f32(-self.value)

    @property
    def square(self) -> str:
        return _f32(self.value**2)

    @property
    def minus_square(self) -> str:
        return _f32(-(self.value**2))

    @property
    def minus_other_square(self) -> str:
        return _f32(-(self.other**2))

    @property
    def cube(self) -> str:
        return _f32(self.value**3)

    @property
    def even(self) -> str:
        """The factor of the terms with even powers of the point."""
        return _f32(1 / self.derivative)

    @property
    def odd(self) -> str:
        """The factor of the terms with odd powers of the point; these terms are written as the point times powers of
        its square."""
        return _f32(self.value / self.derivative)

    @property
    def minus_odd(self) -> str:
        return _f32(-self.value / self.derivative)

    @property
    def second(self) -> int:
        return self.first + 1


@dataclass(frozen=True)
class Interpolation:
    """The points in the order of a transformed row: 0, both pairs, infinity."""

    near: float = 5 / 8
    far: float = 3 / 2

    @property
    def pairs(self) -> tuple[PointPair, PointPair]:
        return PointPair(1, self.near, self.far), PointPair(3, self.far, self.near)

    @property
    def at_zero(self) -> str:
        """The derivative of x(x² - near²)(x² - far²) at 0."""
        return _f32((self.near * self.far) ** 2)

    @property
    def inverse_at_zero(self) -> str:
        return _f32((self.near * self.far) ** -2)
