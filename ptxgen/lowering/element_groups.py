"""The sink that reduces the elements of one array in groups of rows or of columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from ptxgen.expr.node import variable, variables
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.aggregate import Aggregate
from ptxgen.lowering.algebra import Vector
from ptxgen.lowering.sink import Elements, Reset


@dataclass(frozen=True, kw_only=True)
class ElementGroups(Aggregate):
    """The sink C[key,j] op= value or C[i,key] op= value, where the value is an expression of an element of one array of
    M rows and N columns. There is no reduction over k; each element is read once. An element with a key out of range is
    not reduced but counted. The order of additions does not depend on timing."""

    needs: ClassVar[frozenset[str]] = frozenset(("element_groups",))
    resets: ClassVar[tuple[Reset, ...]] = ()

    @classmethod
    def of(cls, sink: Aggregate, m: int, n: int) -> ElementGroups | None:
        """The same reduction as ``sink`` as an ``ElementGroups``, for an array of ``m`` rows and ``n`` columns. None:
        the sink reads other values, or has two computed keys."""
        given = {f.name: getattr(sink, f.name) for f in fields(sink)}
        groups = cls(**{**given, "ordered": False})
        extents = (m, n)[groups.by_rows]
        whole = groups.groups[groups.by_rows] == extents
        return groups if whole and sink.when is None and not sink.mirrored and groups._is_one_array else None

    has_workspace = False

    @property
    def by_rows(self) -> bool:
        """True if the key depends on the row of the array."""
        return self.column is variable("j", "s32")

    @property
    def count(self) -> int:
        """The number of groups."""
        return self.groups[not self.by_rows]

    @property
    def array(self) -> Elements:
        """The array whose elements are reduced."""
        return self.elements[0]

    @property
    def keys_read(self) -> Vector:
        """The array that holds the keys."""
        return self.vectors[0]

    @property
    def value_bytes(self) -> int:
        return type_of(self.value.type).bits // 8

    @property
    def _is_one_array(self) -> bool:
        if len(self.elements) != 1 or len(self.vectors) != 1 or self.scalars or self.array.axes != "ij":
            return False
        indices = (self.row is variable("i", "s32"), self.column is variable("j", "s32"))
        key, axis = (self.row, "i") if self.by_rows else (self.column, "j")
        one = variables(self.value) == variables(self.array.element) and self.keys_read.axis == axis
        return one and sum(indices) == 1 and variables(key) == variables(self.keys_read.element)
