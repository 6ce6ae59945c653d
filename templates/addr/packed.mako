## Operands whose rows fit no wide access, copied first to rows of whole 128 bytes in the workspace, zeros behind them.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="places()">
% for x in plan.packed_operands:
    // ${x.name.upper()}: where its copy lies
    ld.param.u32 %t0, [at_${x.name}];
    mad.wide.u32 %${x.name.upper()}, %t0, 128, %W;
% endfor
</%def>

<%def name="entries()">
% if plan.packed_operands:

// C = A B needs ${" and ".join(x.name.upper() for x in plan.packed_operands)} in rows of whole 128 bytes: each thread copies 16 bytes
.visible .entry ${plan.entry}_repack(
    .param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,
% for line in plan.epilogue_parameters:
    ${line}
% endfor
% for line in plan.repack_parameters:
    ${line}
% endfor
)
.maxntid ${plan.AUX_KERNEL_THREADS}, 1, 1
{
    .reg .b64 %from, %to, %W, %t64, %u64;
    .reg .b32 %rows, %columns, %ld, %pitch, %filled, %at, %y, %i, %r, %q, %t0, %t1;
    .reg .pred %mine, %here, %in;
% if plan.batched:
    .reg .b64 %by;
    .reg .b32 %each, %items;
% endif
    ${plan.moved.declaration}
    ${plan.packed_words.declaration}
    ld.param.u64 %W, [W];
    cvta.to.global.u64 %W, %W;
${pdl.trigger_and_wait()}\
    mov.u32 %y, %ctaid.y;
% for n, x in enumerate(plan.packed_operands):
    setp.eq.u32 %mine, %y, ${n};
    @%mine ld.param.u64 %from, [${x.name.upper()}];
    @%mine ld.param.u32 %rows, [rows_${x.name}];
    @%mine ld.param.u32 %columns, [columns_${x.name}];
    @%mine ld.param.u32 %ld, [ld_${x.name}];
    @%mine ld.param.u32 %pitch, [pitch_${x.name}];
    @%mine ld.param.u32 %filled, [filled_${x.name}];
    @%mine ld.param.u32 %at, [at_${x.name}];
% if plan.batched:
    @%mine ld.param.u64 %by, [by_${x.name}];
    @%mine ld.param.u32 %each, [each_${x.name}];
    @%mine ld.param.u32 %items, [items_${x.name}];
% endif
% endfor
    cvta.to.global.u64 %from, %from;
% if plan.batched:
    // an item of the launch, if it has an operand of its own
    mov.u32 %t0, %ctaid.z;
    setp.ge.u32 %in, %t0, %items;
    @%in bra DONE;
    mul.wide.u32 %t64, %each, %t0;
    mad.lo.u64 %W, %t64, 128, %W;
    ld.param.u32 %t1, [first_item];
    add.u32 %t0, %t0, %t1;
    cvt.u64.u32 %t64, %t0;
    mad.lo.u64 %from, %t64, %by, %from;
% endif
    // 16 bytes %i of the copy: its row, its column
    mov.u32 %i, %ctaid.x;
    mov.u32 %t0, %tid.x;
    mad.lo.u32 %i, %i, ${plan.AUX_KERNEL_THREADS}, %t0;
    div.u32 %t1, %pitch, ${plan.chunk};
    div.u32 %r, %i, %t1;
    mul.lo.u32 %t0, %r, %t1;
    sub.u32 %q, %i, %t0;
    mul.lo.u32 %q, %q, ${plan.chunk};
    setp.ge.u32 %in, %r, %filled;
    @%in bra DONE;
    mul.wide.u32 %t64, %r, %ld;
    cvt.u64.u32 %u64, %q;
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %from, %t64, ${plan.element_in}, %from;
    setp.lt.u32 %here, %r, %rows;
% for j in range(plan.chunk):
    mov.${plan.moved.kind} ${plan.moved[j]}, 0;
    add.u32 %t0, %q, ${j};
    setp.lt.and.u32 %in, %t0, %columns, %here;
    @%in ld.global.nc.b${8 * plan.element_in} ${plan.moved[j]}, [%from+${j * plan.element_in}];
% endfor
% if plan.element_in == 1:
% for j in range(0, plan.chunk, 2):
    shl.b16 ${plan.moved[j + 1]}, ${plan.moved[j + 1]}, 8;
    or.b16 ${plan.moved[j]}, ${plan.moved[j]}, ${plan.moved[j + 1]};
% endfor
% endif
% for word, pair in plan.joined:
    mov.b32 ${word}, ${pair};
% endfor
    mul.wide.u32 %t64, %r, %pitch;
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %to, %t64, ${plan.element_in}, %W;
    mad.wide.u32 %to, %at, 128, %to;
    st.global.${plan.copied_kind} [%to], ${plan.copied};
DONE:
    ret;
}
% endif
</%def>
