## Arithmetic with constants that the generator knows: no instruction adds zero or multiplies by one.
<%def name="add(to, a, n)">${unless_zero("add.u32", to, a, n)}</%def>
<%def name="xor(to, a, n)">${unless_zero("xor.b32", to, a, n)}</%def>
<%def name="shr(to, a, n)">${unless_zero("shr.u32", to, a, n)}</%def>

## An instruction whose result is ``a`` if ``n`` is 0.
<%def name="unless_zero(instruction, to, a, n)">
% if n:
    ${instruction} ${to}, ${a}, ${n};
% elif to != a:
    mov.b32 ${to}, ${a};
% endif
</%def>

## a · n + b
<%def name="mad(to, a, n, b)">
% if n == 0:
    mov.b32 ${to}, ${b};
% elif n == 1:
    add.u32 ${to}, ${a}, ${b};
% else:
    mad.lo.u32 ${to}, ${a}, ${n}, ${b};
% endif
</%def>
