## A pass that copies operands as they are, to rows of whole 128 bytes: each thread puts 16 bytes together from the two
## aligned 16 that they lie in. What it brings from behind a row nobody reads.
<%namespace name="dependent" file="/ptx/dependent.mako"/>
<%def name="entries()">
<% t = plan.pitch %>\

// C = A B needs ${" and ".join(name.upper() for name in plan.pitched)} in rows of whole 128 bytes: each thread copies 16 bytes
.visible .entry ${plan.entry}_pitch(
    .param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,
% for line in plan.array_parameters:
    ${line}
% endfor
% for line in plan.pitch_parameters:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %base, %bytes, %ld, %from, %to, %low, %high, %pitch, %t64;
    .reg .b32 %rows, %columns, %at, %i, %r, %q, %across, %shift, %t0;
    .reg .b${max(t.bits, 16)} %element;
    .reg .pred %p;
% if len(plan.pitched) > 1:
    .reg .pred %mine, %other;
% endif
% if plan.batched:
    .reg .b64 %by, %each;
    .reg .b32 %item, %items;
% endif
    ${t.got.declaration}
    ${t.halved.declaration}
    ${t.quartered.declaration}
% if t.put is not t.quartered:
    ${t.put.declaration}
% endif
    ld.param.u64 %to, [W];
    cvta.to.global.u64 %to, %to;
    mov.u32 %i, %ctaid.x;
${dependent.at_once()}\
% if len(plan.pitched) > 1:
    // blocks of A, then of B
    ld.param.u32 %t0, [blocks_a];
    setp.lt.u32 %mine, %i, %t0;
    not.pred %other, %mine;
    @%other sub.u32 %i, %i, %t0;
% endif
% for guard, x in zip(["@%mine ", "@%other "] if len(plan.pitched) > 1 else [""], plan.pitched):
    ${guard}ld.param.u64 %base, [${x.upper()}];
% for kind, register in plan.pitch_loads:
    ${guard}ld.param.${kind} %${register}, [${register}_${x}];
% endfor
% endfor
    cvta.to.global.u64 %base, %base;
    mad.wide.u32 %to, %at, ${t.ROW}, %to;
% if plan.batched:
    // an item of the launch, if it has an operand of its own
    mov.u32 %item, %ctaid.z;
    setp.ge.u32 %p, %item, %items;
    @%p bra DONE;
    ld.param.u32 %t0, [first_item];
    add.u32 %item, %item, %t0;
    cvt.u64.u32 %t64, %item;
    mad.lo.u64 %base, %t64, %by, %base;
    mad.lo.u64 %to, %t64, %each, %to;
% endif
    // 16 bytes %i of the copy: ${t.count} columns from %q on of row %r
    mov.u32 %t0, %tid.x;
    mad.lo.u32 %i, %i, ${t.THREADS}, %t0;
    add.u32 %across, %columns, ${t.count - 1};
    div.u32 %across, %across, ${t.count};
    div.u32 %r, %i, %across;
    mul.lo.u32 %t0, %r, %across;
    sub.u32 %q, %i, %t0;
    setp.ge.u32 %p, %r, %rows;
    @%p bra DONE;
    cvt.u64.u32 %t64, %r;
    mad.lo.u64 %from, %t64, %ld, %base;
    mad.wide.u32 %from, %q, ${t.CHUNK}, %from;
    mul.wide.u32 %pitch, %across, ${t.CHUNK};
    add.u64 %pitch, %pitch, ${t.ROW - 1};
    and.b64 %pitch, %pitch, ${-t.ROW};
    mad.lo.u64 %to, %t64, %pitch, %to;
    mad.wide.u32 %to, %q, ${t.CHUNK}, %to;
    // the chunks that hold their first byte and their last, if both are the operand's
    and.b64 %low, %from, ${-t.CHUNK};
    add.u64 %high, %from, ${t.CHUNK - 1};
    and.b64 %high, %high, ${-t.CHUNK};
    setp.lt.u64 %p, %low, %base;
    add.u64 %bytes, %base, %bytes;
    add.u64 %t64, %high, ${t.CHUNK};
    setp.gt.or.u64 %p, %t64, %bytes, %p;
    @%p bra EDGE;
    ld.global.nc.v4.b32 ${t.got.vector(0, n=4)}, [%low];
    ld.global.nc.v4.b32 ${t.got.vector(4, n=4)}, [%high];
    cvt.u32.u64 %shift, %from;
    and.b32 %t0, %shift, 8;
    setp.ne.u32 %p, %t0, 0;
% for n in range(6):
    selp.b32 ${t.halved[n]}, ${t.got[n + 2]}, ${t.got[n]}, %p;
% endfor
    and.b32 %t0, %shift, 4;
    setp.ne.u32 %p, %t0, 0;
% for n in range(5):
    selp.b32 ${t.quartered[n]}, ${t.halved[n + 1]}, ${t.halved[n]}, %p;
% endfor
% if t.size < 4:
    shl.b32 %shift, %shift, 3;
% for n in range(4):
    shf.r.wrap.b32 ${t.put[n]}, ${t.quartered[n]}, ${t.quartered[n + 1]}, %shift;
% endfor
% endif
    st.global.v4.b32 [%to], ${t.put.vector(0, n=4)};
    bra DONE;
EDGE:
    // element by element, up to the row's end
    mul.lo.u32 %t0, %q, ${t.count};
    sub.u32 %columns, %columns, %t0;
    min.u32 %columns, %columns, ${t.count};
    .pragma "nounroll";
NEXT:
    ld.global.nc.b${t.bits} %element, [%from];
    st.global.b${t.bits} [%to], %element;
    add.u64 %from, %from, ${t.size};
    add.u64 %to, %to, ${t.size};
    sub.u32 %columns, %columns, 1;
    setp.ne.u32 %p, %columns, 0;
    @%p bra NEXT;
DONE:
    ret;
}
</%def>
