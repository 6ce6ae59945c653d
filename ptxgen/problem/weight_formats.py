"""The formats of quantized weights, one row each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WeightFormat:
    """A format of quantized weights: integers of ``bits`` bits in rows along K. Two 4-bit integers share a byte; the
    low bits have the one with even k. Only unsigned formats have zero points."""

    name: str
    bits: int
    signed: bool

    @property
    def per_byte(self) -> int:
        """The number of weights per byte."""
        return 8 // self.bits

    @property
    def least(self) -> int:
        """The lowest value."""
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def largest(self) -> int:
        return self.least + (1 << self.bits) - 1

    @property
    def largest_zero(self) -> int:
        """The largest zero point. One of 4-bit weights may be greater than the weights, as 16 in formats that store it
        less 1; kernels read its low 6 bits, of which they make significand bits."""
        return 255 if self.bits == 8 else 63

    @property
    def storage(self) -> str:
        """The element type of the array that stores the weights."""
        return "s8" if self.name == "s8" else "u8"


WEIGHT_FORMATS = {f.name: f for f in (WeightFormat(f"{s}{n}", n, s == "s") for n in (8, 4) for s in "su")}
GROUPS = (0, 32, 64, 128)  #: allowed numbers of adjacent weights along K with one scale; 0: all weights of a row
