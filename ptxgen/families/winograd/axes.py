"""The axes of the family winograd: those of SIMT kernels; the products are not split along K."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.families.simt.axes import AXES as SIMT_AXES

UNSPLIT = ("kg", "splitk")  #: axes that keep their defaults in the search

AXES = tuple(replace(a, values=(a.default,)) if a.name in UNSPLIT else a for a in SIMT_AXES)
