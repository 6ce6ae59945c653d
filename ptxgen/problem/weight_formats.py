"""The formats of quantized weights, one row each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WeightFormat:
    """Integers of ``bits`` bits in rows along K. Of 4 bits two are in a byte, the one of the even k in the low bits.
    Only formats without sign have zero points."""

    name: str
    bits: int
    signed: bool

    @property
    def per_byte(self) -> int:
        """Weights of a byte."""
        return 8 // self.bits

    @property
    def least(self) -> int:
        """The lowest value."""
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def largest(self) -> int:
        return self.least + (1 << self.bits) - 1

    @property
    def storage(self) -> str:
        """The type of the array that stores them."""
        return "s8" if self.name == "s8" else "u8"


WEIGHT_FORMATS = {f.name: f for f in (WeightFormat(f"{s}{n}", n, s == "s") for n in (8, 4) for s in "su")}
GROUPS = (0, 32, 64, 128)  #: weights along K that share a scale; 0: all of a row
