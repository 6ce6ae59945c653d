"""The types of values of expressions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxgen.errors import DtypeError


@dataclass(frozen=True)
class ValueType:
    """The type of a value. ``group``: float, signed, unsigned or predicate; ``values``: the number of values in a
    register; 2 for pairs of 16-bit values, which one instruction computes together."""

    name: str
    bits: int
    group: str
    values: int = 1

    @property
    def floating(self) -> bool:
        return self.group == "float"

    @property
    def integer(self) -> bool:
        return self.group in ("signed", "unsigned")

    @property
    def least(self) -> float | int:
        """The lowest value: minus infinity, or the lowest integer."""
        return -math.inf if self.floating else -(1 << (self.bits // self.values - 1)) if self.group == "signed" else 0

    @property
    def greatest(self) -> float | int:
        """The highest value: infinity, or the highest integer."""
        return math.inf if self.floating else (1 << (self.bits // self.values - (self.group == "signed"))) - 1


VALUE_TYPES = {
    t.name: t
    for t in (
        *(ValueType(name, bits, "float") for name, bits in (("f64", 64), ("f32", 32), ("f16", 16), ("bf16", 16))),
        *(ValueType(f"s{bits}", bits, "signed") for bits in (64, 32, 16, 8)),
        *(ValueType(f"u{bits}", bits, "unsigned") for bits in (64, 32, 16, 8)),
        ValueType("pred", 1, "predicate"),
    )
}
#: type of 16 bits -> the type of two such values in a register, which arrays and programs do not have
PAIRS = {t.name: f"{t.name}x2" for t in VALUE_TYPES.values() if t.bits == 16}
_PAIR_TYPES = {pair: ValueType(pair, 32, VALUE_TYPES[name].group, 2) for name, pair in PAIRS.items()}
PRED = "pred"  #: the type of the results of comparisons and of and, or, not


def type_of(name: str) -> ValueType:
    """The type with this name. DtypeError: there is none."""
    try:
        return VALUE_TYPES.get(name) or _PAIR_TYPES[name]
    except KeyError:
        raise DtypeError(f"type is {name!r}; it must be one of {', '.join(VALUE_TYPES)}") from None
