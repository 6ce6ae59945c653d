"""The axes of the family tca."""

from __future__ import annotations

from ptxgen.codegen.config.axes import common

AXES = (common("vec_b", (1, 2, 4, 8), "elements per access to B and C"),)
