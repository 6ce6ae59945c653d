## Conversions from 16-bit and 8-bit types to f32.
## Adds weighted bit fields of a thread's number: to += ((thread >> shift) & mask) * weight for each term.
<%def name="add_thread_terms(to, thread, terms)">
% for t in terms:
    shr.u32 %tmp0, ${thread}, ${t.shift};
    and.b32 %tmp0, %tmp0, ${t.mask};
    mad.lo.u32 ${to}, %tmp0, ${t.weight}, ${to};
% endfor
</%def>

<%def name="widen(ptx_type, wide, half, guard='')">
% if ptx_type == "bf16":
    { // the upper half of an f32
    .reg .b16 %zero16;
    mov.b16 %zero16, 0;
    ${guard}mov.b32 ${wide}, {%zero16, ${half}};
    }
% else:
    ${guard}cvt.f32.${ptx_type} ${wide}, ${half};
% endif
</%def>

## %elem, an element as loaded, in the type of the arithmetic.
<%def name="widen_element(into)">
% if plan.mainloop.size == 2:
${widen(plan.problem.dtype, into, "%elem")}\
% else:
    mov.${plan.mainloop.word.ptx_type} ${into}, %elem;
% endif
</%def>

## One or both elements of a pair of 8-bit floats.
<%def name="widen_fp8(ptx_type, wide, packed, pair, halves, guard='')">
    ${guard}cvt.rn.f16x2.${ptx_type}x2 ${pair}, ${packed};
    ${guard}mov.b32 {${halves[0]}, ${halves[1]}}, ${pair};
% for n, r in enumerate(wide):
    ${guard}cvt.f32.f16 ${r}, ${halves[n]};
% endfor
</%def>

## Both halves of a 32-bit word, extended to 32 bits.
<%def name="widen_pair(ptx_type, low, high, word, halves, guard='')">
% if ptx_type == "bf16":
    ${guard}shl.b32 ${low}, ${word}, 16;
    ${guard}and.b32 ${high}, ${word}, 0xFFFF0000;
% elif ptx_type in ("s16", "u16"):
    ${guard}bfe.${ptx_type[0]}32 ${low}, ${word}, 0, 16;
    ${guard}bfe.${ptx_type[0]}32 ${high}, ${word}, 16, 16;
% else:
    ${guard}mov.b32 {${halves[0]}, ${halves[1]}}, ${word};
    ${guard}cvt.f32.${ptx_type} ${low}, ${halves[0]};
    ${guard}cvt.f32.${ptx_type} ${high}, ${halves[1]};
% endif
</%def>
