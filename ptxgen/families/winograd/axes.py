"""The axes of the family winograd: those of SIMT kernels. Its products are not split along K, and it computes no lists.

Axes that keep their defaults remain axes, because stored configurations name every axis of their family.
"""

from __future__ import annotations

from dataclasses import replace

from ptxgen.families.simt.axes import AXES as SIMT_AXES

FIXED = ("kg", "splitk", "stream_k")  #: axes that keep their defaults in the search

AXES = tuple(replace(a, values=(a.default,)) if a.name in FIXED else a for a in SIMT_AXES)
