"""Arithmetic without effect is removed from emitted text; everything else stays."""

from __future__ import annotations

import pytest

from ptxgen.codegen.simplify import simplified


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    add.u32 %t0, %t0, 0;", ""),
        ("    @%p add.u64 %a, %b, 0;", "    @%p mov.b64 %a, %b;"),
        ("    shr.u32 %row, %warp, 0;", "    mov.b32 %row, %warp;"),
        ("    mad.lo.u32 %s, %k, 4, 0;", "    mul.lo.u32 %s, %k, 4;"),
        ("    ld.shared.f32 %a, [%p+0];", "    ld.shared.f32 %a, [%p];"),
        ("    add.u32 %t0, %t0, 10;", None),
        ("    mul.lo.u32 %t0, %t0, 1;", None),
        ("    and.b32 %t0, %t0, 0;", None),
        ("    add.f32 %t0, %t0, 0;", None),
        ("    setp.eq.u32 %p, %t0, 0;", None),
        ("    ld.shared.f32 %a, [%p+04];", None),
    ],
)
def test_simplification(before, after):
    expected = before if after is None else after
    assert simplified([before]) == ([expected] if expected else [])
