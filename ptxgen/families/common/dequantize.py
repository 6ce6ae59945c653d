"""Conversion of words of quantized weights to pairs of 16-bit floats by logic instructions, without conversions.

A small integer in the low bits of the significand of 2^n, n chosen so that these bits count in ones, is 2^n plus it. A
subtraction of 2^n plus a zero point, which is exact, leaves the integer less the zero point. With 10 bits of
significand f16 takes a byte (2^10). bf16, with 7 bits, takes 4 bits (2^7); of a byte the upper bit is then bit 0 of the
exponent, so that the byte without that bit and that bit alone are both 2^7 plus a part. Signs are removed by inverting
the sign bit, which adds 2^(bits - 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.problem.weight_formats import WeightFormat

WORD = 4  #: bytes
#: type -> bits of the power of two whose significand counts in ones
MAGIC = {"f16": 0x6400, "bf16": 0x4300}
ONE = {"f16": 0x3C00, "bf16": 0x3F80}
NEGATIVE = 0x8000
UPPER = 0x5400  #: 64 in f16, whose significand counts in sixteenths


def _pair(half: int) -> str:
    """A half in both halves of a word."""
    return f"0x{half | half << 16:08X}"


@dataclass(frozen=True)
class Dequantizer:
    """The numbers of the templates ``ptx/dequantize_*.mako``. ``format``: of the weights; ``dtype``: the type of
    the elements, f16 or bf16; ``strided``: pairs of 4-bit weights are four apart, which no bytes are selected for."""

    format: WeightFormat
    dtype: str
    strided: bool = False

    nibble_bits: ClassVar[str] = "0x000F000F"
    lut_and_xor: ClassVar[str] = "0x6A"  #: lop3 of (a and b) xor c

    @property
    def template(self) -> str:
        """The slot that makes pairs of a word."""
        if self.format.bits == 4:
            return f"ptx/dequantize_{'strided_' * self.strided}nibbles.mako"
        return "ptx/dequantize_bytes.mako" if self.dtype == "f16" else "ptx/dequantize_bytes_bf16.mako"

    @property
    def elements(self) -> int:
        """Weights of a word."""
        return WORD * self.format.per_byte

    @property
    def one(self) -> str:
        return _pair(ONE[self.dtype])

    @property
    def minus_one(self) -> str:
        return _pair(ONE[self.dtype] | NEGATIVE)

    @property
    def _sign(self) -> int:
        """The sign bit of a weight with sign, which is inverted."""
        return 1 << self.format.bits - 1 if self.format.signed else 0

    @property
    def magic(self) -> str:
        """What the bits of a nibble are combined with: the power of two, and a sign bit that is inverted."""
        return _pair(MAGIC[self.dtype] | self._sign)

    @property
    def offset(self) -> str:
        """Minus the power of two, and the value of an inverted sign bit."""
        return _pair(MAGIC[self.dtype] | self._sign | NEGATIVE)

    # ---- pairs that are four apart: nibbles of both halves of a word at the same place

    @property
    def upper(self) -> bool:
        """True if the upper nibble of a byte is converted where it is, as 16 times its value: f16 has bits for it."""
        return self.dtype == "f16"

    @property
    def shifts(self) -> list[tuple[str, int]]:
        """Pairs (register, bits by which the word is shifted)."""
        return [(f"%shifted{n}", 4 * n) for n in range(1, 4) if not self.upper or n == 2]

    @property
    def strided_pairs(self) -> list[tuple[int, str, str, str, str, int]]:
        """The tuples (number of the pair, register of the shifted word, empty: of the word, mask, magic, factor, number
        of the offset)."""
        shifted = {0: "", **{bits // 4: register for register, bits in self.shifts}}
        lower = (self.nibble_bits, self.magic, "%one_pair", 0)
        raised = ("0x00F000F0", _pair(MAGIC[self.dtype] | self._sign << 4), "%sixteenth_pair", 1)
        return [(n, shifted[n], *lower) if n in shifted else (n, shifted[n - 1], *raised) for n in range(4)]

    sixteenth: ClassVar[str] = "0x2C002C00"  #: 1/16 in f16
    upper_zero: ClassVar[str] = "0x100010"  #: a zero point's factor in the significand of 64

    @property
    def upper_offset(self) -> str:
        """``offset`` over 16, with the same sign: minus 64, and the value of an inverted sign bit."""
        return _pair(UPPER | self._sign << 4 | NEGATIVE)

    @property
    def magic_bytes(self) -> str:
        """The upper byte of the power of two, in all bytes."""
        return f"0x{(MAGIC[self.dtype] >> 8) * 0x01010101:08X}"

    @property
    def inverted(self) -> str:
        """The bits of a word of bytes that are inverted so that it is one of u8 (f16) or s8 (bf16)."""
        return "0" if self.format.signed == (self.dtype == "bf16") else "0x80808080"

    @property
    def inverted_zero(self) -> str:
        """The bf16 that a byte 0 becomes once its sign bit is inverted: -128."""
        return _pair(MAGIC["bf16"] | NEGATIVE)

    @property
    def pairs(self) -> list[tuple[int, str]]:
        """Pairs (number of the pair of elements, bytes that prmt selects)."""
        if self.format.bits == 4:  # a byte, and the same byte shifted by 4 bits
            return [(i, f"0x{i * 0x1111 + 0x4400:04X}") for i in range(WORD)]
        return [(i, f"0x4{2 * i + 1}4{2 * i}") for i in range(WORD // 2)]
