## A pass that copies operands as they are, to rows of whole 128 bytes: each thread puts 16 bytes together from the two
## aligned 16 that they lie in, of large ones several times. What it brings from behind a row nobody reads.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
<% t = plan.pitch %>\

// C = A B needs ${" and ".join(name.upper() for name in plan.pitched)} in rows of whole 128 bytes: each thread copies 16 bytes
.visible .entry ${plan.entry}_pitch(
    .param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,
% for line in plan.epilogue_parameters:
    ${line}
% endfor
% for line in plan.pitch_parameters:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %base, %bytes, %end, %ld, %to, %from<${t.ROUNDS}>, %to<${t.ROUNDS}>, %low, %high, %pitch, %t64;
    .reg .b32 %rows, %columns, %at, %i, %r, %q, %across, %stride, %left<${t.ROUNDS}>, %shift, %t0;
    .reg .b${max(t.bits, 16)} %element;
    .reg .pred %p, %mine<${t.ROUNDS}>, %whole<${t.ROUNDS}>;
% if len(plan.pitched) > 1:
    .reg .pred %first, %second;
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
${pdl.trigger_and_wait()}\
% if len(plan.pitched) > 1:
    // blocks of A, then of B
    ld.param.u32 %t0, [blocks_a];
    setp.lt.u32 %first, %i, %t0;
    not.pred %second, %first;
    @%second sub.u32 %i, %i, %t0;
% endif
% for guard, x in zip(["@%first ", "@%second "] if len(plan.pitched) > 1 else [""], plan.pitched):
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
    add.u32 %across, %columns, ${t.count - 1};
    div.u32 %across, %across, ${t.count};
    mul.wide.u32 %pitch, %across, ${t.CHUNK};
    add.u64 %pitch, %pitch, ${t.ROW - 1};
    and.b64 %pitch, %pitch, ${-t.ROW};
    add.u64 %end, %base, %bytes;
    mov.u32 %t0, %tid.x;
    mad.lo.u32 %i, %i, ${t.THREADS}, %t0;
% for j in range(t.ROUNDS):
    // 16 bytes %i of the copy: ${t.count} columns from %q on of row %r
    div.u32 %r, %i, %across;
    mul.lo.u32 %t0, %r, %across;
    sub.u32 %q, %i, %t0;
    setp.lt.u32 %mine${j}, %r, %rows;
    cvt.u64.u32 %t64, %r;
    mad.lo.u64 %from${j}, %t64, %ld, %base;
    mad.wide.u32 %from${j}, %q, ${t.CHUNK}, %from${j};
    mad.lo.u64 %to${j}, %t64, %pitch, %to;
    mad.wide.u32 %to${j}, %q, ${t.CHUNK}, %to${j};
    mul.lo.u32 %q, %q, ${t.count};
    sub.u32 %left${j}, %columns, %q;
    // the chunks that hold their first byte and their last, if both are the operand's
    and.b64 %low, %from${j}, ${-t.CHUNK};
    add.u64 %high, %from${j}, ${t.CHUNK - 1};
    and.b64 %high, %high, ${-t.CHUNK};
    setp.ge.and.u64 %whole${j}, %low, %base, %mine${j};
    add.u64 %t64, %high, ${t.CHUNK};
    setp.le.and.u64 %whole${j}, %t64, %end, %whole${j};
    @%whole${j} ld.global.nc.v4.b32 ${t.got.vector(j, 0, n=4)}, [%low];
    @%whole${j} ld.global.nc.v4.b32 ${t.got.vector(j, 4, n=4)}, [%high];
    add.u32 %i, %i, %stride;
% endfor
% for j in range(t.ROUNDS):
    @!%whole${j} bra PUT${j};
    cvt.u32.u64 %shift, %from${j};
    and.b32 %t0, %shift, 8;
    setp.ne.u32 %p, %t0, 0;
% for n in range(6):
    selp.b32 ${t.halved[n]}, ${t.got[j, n + 2]}, ${t.got[j, n]}, %p;
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
    st.global.v4.b32 [%to${j}], ${t.put.vector(0, n=4)};
PUT${j}:
% endfor
% for j in range(t.ROUNDS):
    // at the edge element by element, up to the row's end
    xor.pred %p, %mine${j}, %whole${j};
    @!%p bra NEXT${j};
    min.u32 %left${j}, %left${j}, ${t.count};
    .pragma "nounroll";
EDGE${j}:
    ld.global.nc.b${t.bits} %element, [%from${j}];
    st.global.b${t.bits} [%to${j}], %element;
    add.u64 %from${j}, %from${j}, ${t.size};
    add.u64 %to${j}, %to${j}, ${t.size};
    sub.u32 %left${j}, %left${j}, 1;
    setp.ne.u32 %p, %left${j}, 0;
    @%p bra EDGE${j};
NEXT${j}:
% endfor
DONE:
    ret;
}
</%def>
