"""The algebra of a product: what combines two elements, and what reduces the combined ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Algebra:
    """``combine``, ``reduce``: the operations, as PTX names them without types; ``identity``: of ``reduce``;
    ``pads_with_zero``: True if zeros that pad operands do not change results; ``atomic``: True if red.global can
    reduce."""

    name: str
    combine: str
    reduce: str
    identity: float
    pads_with_zero: bool
    atomic: bool

    @property
    def needs(self) -> frozenset[str]:
        """What a family must provide: instructions that compute it."""
        return frozenset((self.name,))


PLUS_TIMES = Algebra("plus_times", "mul", "add", 0.0, pads_with_zero=True, atomic=True)
