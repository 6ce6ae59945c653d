"""The conversion of words of quantized weights to pairs of 16-bit floats by logic instructions, without cvt.

Let 2^n be the power of two whose lowest significand bit has the value 1. If a small integer is put into the low
significand bits of 2^n, the float is 2^n plus the integer. A subtraction of (2^n + zero point), which is exact, leaves
the integer minus the zero point. The 10 significand bits of f16 hold a byte (2^10). The 7 bits of bf16 hold 4 bits
(2^7). In bf16 the upper bit of a byte is bit 0 of the exponent; the byte without that bit, and that bit alone, are
therefore each 2^7 plus a part of the value. The sign bit of a signed weight is inverted, which adds 2^(bits - 1) to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.problem.weight_formats import WeightFormat

WORD = 4  #: bytes
#: type -> the bits of the power of two whose lowest significand bit has the value 1
MAGIC = {"f16": 0x6400, "bf16": 0x4300}
ONE = {"f16": 0x3C00, "bf16": 0x3F80}
NEGATIVE = 0x8000
UPPER = 0x5400  #: 64 in f16, whose lowest significand bit has the value 1/16


def _pair(half: int) -> str:
    """A word that has ``half`` in both 16-bit halves."""
    return f"0x{half | half << 16:08X}"


@dataclass(frozen=True)
class Dequantizer:
    """The numbers of the templates ``ptx/dequantize_*.mako``. ``format``: the format of the weights; ``dtype``: the
    type of the elements, f16 or bf16; ``strided``: True if 4-bit weights are converted in pairs four places apart,
    which needs no selection of bytes; ``selector``: the register
    with the bytes that prmt selects, if a lane takes one pair of each word; otherwise empty."""

    format: WeightFormat
    dtype: str
    strided: bool = False
    selector: str = ""

    nibble_bits: ClassVar[str] = "0x000F000F"
    lut_and_xor: ClassVar[str] = "0x6A"  #: lookup table of lop3 for (a and b) xor c

    @property
    def template(self) -> str:
        """The template file that converts a word to pairs."""
        if self.format.bits == 4:
            placed = "lane_" if self.takes_bytes else "strided_" * self.strided
            return f"ptx/dequantize_{placed}nibbles.mako"
        return "ptx/dequantize_bytes.mako" if self.dtype == "f16" else "ptx/dequantize_bytes_bf16.mako"

    @property
    def elements(self) -> int:
        """The number of weights per word."""
        return WORD * self.format.per_byte

    @property
    def zero_bits(self) -> int:
        """The bits of a zero point that count."""
        return self.format.largest_zero

    @property
    def one(self) -> str:
        return _pair(ONE[self.dtype])

    @property
    def minus_one(self) -> str:
        return _pair(ONE[self.dtype] | NEGATIVE)

    @property
    def _sign(self) -> int:
        """The sign bit of a signed weight, which is inverted; 0 for unsigned weights."""
        return 1 << self.format.bits - 1 if self.format.signed else 0

    @property
    def magic(self) -> str:
        """The bits with which a pair of nibbles is combined: the power of two, and the sign bit to invert."""
        return _pair(MAGIC[self.dtype] | self._sign)

    @property
    def offset(self) -> str:
        """The addend after the conversion: minus the power of two, minus the value of the inverted sign bit."""
        return _pair(MAGIC[self.dtype] | self._sign | NEGATIVE)

    # ---- pairs that are four apart: nibbles of both halves of a word at the same place

    @property
    def upper(self) -> bool:
        """True if the upper nibble of a byte is converted in place, as 16 times its value; f16 has enough significand
        bits."""
        return self.dtype == "f16"

    @property
    def shifts(self) -> list[tuple[str, int]]:
        """The shifted copies of a word: (register, number of bits)."""
        return [(f"%shifted{n}", 4 * n) for n in range(1, 4) if not self.upper or n == 2]

    @property
    def strided_pairs(self) -> list[tuple[int, str, str, str, str, int]]:
        """For each pair: its number, the register of the shifted word (empty: the word itself), the mask, the magic
        bits, the factor, and the number of the offset."""
        shifted = {0: "", **{bits // 4: register for register, bits in self.shifts}}
        lower = (self.nibble_bits, self.magic, "%one_pair", 0)
        raised = ("0x00F000F0", _pair(MAGIC[self.dtype] | self._sign << 4), "%sixteenth_pair", 1)
        return [(n, shifted[n], *lower) if n in shifted else (n, shifted[n - 1], *raised) for n in range(4)]

    sixteenth: ClassVar[str] = "0x2C002C00"  #: 1/16 in f16
    upper_zero: ClassVar[str] = "0x100010"  #: the factor that moves a zero point to the significand bits of 64

    @property
    def upper_offset(self) -> str:
        """A sixteenth of the addend for nibbles converted in place: minus 64, minus the value of the inverted sign
        bit."""
        return _pair(UPPER | self._sign << 4 | NEGATIVE)

    @property
    def magic_bytes(self) -> str:
        """A word with the upper byte of the power of two in all four bytes."""
        return f"0x{(MAGIC[self.dtype] >> 8) * 0x01010101:08X}"

    @property
    def inverted(self) -> str:
        """The mask that converts a word of bytes to u8 (for f16) or s8 (for bf16) by xor."""
        return "0" if self.format.signed == (self.dtype == "bf16") else "0x80808080"

    @property
    def inverted_zero(self) -> str:
        """The bf16 value of a byte 0 whose sign bit has been inverted: -128, in both halves of a word."""
        return _pair(MAGIC["bf16"] | NEGATIVE)

    @property
    def pairs(self) -> list[tuple[int, str]]:
        """For each pair of elements: its number, and the prmt selector of its bytes."""
        if self.selector:
            return [(0, self.selector)]
        return [(i, _selector(self._first_selector + i * self._selector_step)) for i in range(self.pairs_of_word)]

    # ---- one pair of a word, the lane's

    @property
    def pairs_of_word(self) -> int:
        """The number of pairs of adjacent weights in a word."""
        return self.elements // 2

    @property
    def takes_bytes(self) -> bool:
        """True if the lane's byte gives both elements of its pair, the upper one as 16 times its value."""
        return bool(self.selector) and self.format.bits == 4 and self.upper

    byte_mask: ClassVar[str] = "0x00F0000F"
    byte_factor: ClassVar[str] = "0x2C003C00"  #: 1, and 1/16, in f16
    byte_zero: ClassVar[str] = "0x100001"  #: a zero point's factors in the significands of 1024 and 64

    @property
    def byte_magic(self) -> str:
        """``magic`` for a pair of which the lower half comes from a lower nibble and the upper half from an upper
        nibble."""
        return f"0x{MAGIC[self.dtype] * 0x10001 | self._sign | self._sign << 20:08X}"

    @property
    def byte_offset(self) -> str:
        """The addend for such a pair: ``offset`` in the lower half, ``upper_offset`` in the upper half."""
        lower, upper = (x | NEGATIVE for x in (MAGIC[self.dtype] | self._sign, UPPER | self._sign << 4))
        return f"0x{lower | upper << 16:08X}"

    @property
    def first_selector(self) -> str:
        """The prmt selector of the first pair of a word. With 4 bits it selects a byte, and the same byte of the word
        that is shifted by 4 bits; with 8 bits, bytes between the bytes of the power of two."""
        return _selector(self._first_selector)

    @property
    def selector_step(self) -> str:
        """The difference between the selectors of a pair and of the next pair."""
        return _selector(self._selector_step)

    @property
    def _first_selector(self) -> int:
        if self.takes_bytes:
            return 0
        return 0x4400 if self.format.bits == 4 else 0x4140

    @property
    def _selector_step(self) -> int:
        return 0x1111 if self.format.bits == 4 else 0x0202


def _selector(bytes_: int) -> str:
    """The operand of prmt that selects four bytes by four bits each."""
    return f"0x{bytes_:04X}"


def widened(dtype: str, to: str, raw: str) -> str:
    """The instruction that converts a scale of type ``dtype`` to f32. ``%zero_half``: a half that is zero."""
    if dtype == "bf16":
        return f"mov.b32 {to}, {{%zero_half, {raw}}};"
    return f"mov.f32 {to}, {raw};" if dtype == "f32" else f"cvt.f32.f16 {to}, {raw};"
