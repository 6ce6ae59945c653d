"""Arithmetic without effect is removed from emitted text; everything else stays."""

from __future__ import annotations

import pytest

from ptxgen.codegen.simplify import simplified


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    add.u32 %t0, %t0, 0;\n", ""),
        ("    @%p add.u64 %a, %b, 0;\n", "    @%p mov.b64 %a, %b;\n"),
        ("    shr.u32 %row, %warp, 0;\n", "    mov.b32 %row, %warp;\n"),
        ("    mad.lo.u32 %s, %k, 4, 0;\n", "    mul.lo.u32 %s, %k, 4;\n"),
        ("    ld.shared.f32 %a, [%p+0];\n", "    ld.shared.f32 %a, [%p];\n"),
        ("    add.u32 %t0, %t0, 10;\n", None),
        ("    mul.lo.u32 %t0, %t0, 1;\n", None),
        ("    and.b32 %t0, %t0, 0;\n", None),
        ("    add.f32 %t0, %t0, 0;\n", None),
        ("    setp.eq.u32 %p, %t0, 0;\n", None),
        ("    ld.shared.f32 %a, [%p+04];\n", None),
    ],
)
def test_simplification(before, after):
    assert simplified(before) == (before if after is None else after)
