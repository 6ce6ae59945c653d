## Products of a stage by wgmma, X from registers: a step's fragments are read while the step before is multiplied.
<%namespace name="smem" file="/math/wgmma.mako"/>
<%namespace name="bits" file="/ptx/convert.mako"/>
<%def name="setup()">
<% f = plan.fragments %>\
${smem.y_setup()}\
    // where this thread reads X in stage 0
    .reg .b32 %from<${f.readers}>;
    ${f.tile.declaration}
% if f.raw:
    ${f.raw.declaration}
    .reg .b32 %first, %second;
% endif
    {
    .reg .b32 %row, %k;
    mad.lo.u32 %from0, %wg, ${plan.x_part}, %smem;
% if f.words:
    // a pair of neighbours along X, at K = lane mod 4 and four further on
    mov.u32 %row, 0;
${bits.add_thread_terms("%row", "%member", plan.row_terms)}\
    shr.u32 %t0, %row, 5;
    mad.lo.u32 %from0, %t0, ${f.box}, %from0;
    and.b32 %k, %member, 3;
    mad.lo.u32 %from0, %k, ${f.span}, %from0;
    and.b32 %row, %row, 31;
    shl.b32 %row, %row, 2;
    shl.b32 %k, %k, 4;
    xor.b32 %row, %row, %k;
    add.u32 %from0, %from0, %row;
    xor.b32 %from1, %from0, 64;
    add.u32 %from1, %from1, ${4 * f.span};
% else:
    // ldmatrix brings pairs of neighbours along X, of two K a register; lanes of the same banks begin with others
    shr.u32 %t0, %lane, 1;
    xor.b32 %t0, %t0, %lane;
    shr.u32 %t0, %t0, 2;
    and.b32 %t0, %t0, 1;
    shl.b32 %k, %t0, 1;
    and.b32 %t0, %lane, 1;
    add.u32 %k, %k, %t0;
    and.b32 %t0, %lane, 6;
    mad.lo.u32 %k, %t0, 2, %k;
    and.b32 %t0, %lane, 16;
    add.u32 %k, %k, %t0;
    mad.lo.u32 %from0, %k, ${f.span}, %from0;
    shr.u32 %k, %k, 1;
    and.b32 %k, %k, 3;
    xor.b32 %k, %k, %quarter;
    mad.lo.u32 %from0, %k, 16, %from0;
    and.b32 %t0, %lane, 2;
    setp.eq.u32 %p, %t0, 0;
    selp.b32 %first, 0x6420, 0x2064, %p;
    add.u32 %second, %first, 0x1111;
% endif
    }
</%def>

<%def name="multiply(ring)">
<% f = plan.fragments %>\
    {
    .reg .b32 %at<${f.readers}>, %y_at, %low;
    .reg .b64 %y_desc;
% for n in range(f.readers):
    mad.lo.u32 %at${n}, %stage, ${plan.stage_bytes}, %from${n};
% endfor
    mul.lo.u32 %low, %stage, ${plan.stage_bytes // 16};
    add.u32 %y_at, %y_low, %low;
% for k in range(f.steps):
    // step ${k}: its fragments' registers are free once the step before the last is multiplied
    wgmma.wait_group.sync.aligned 1;
% if k == 1:
${ring.free_before()}\
% endif
% for x in f.loads(k):
% if f.words:
    ld.shared.v2.b32 ${x.into}, [%at${x.reader}+${x.offset}];
% else:
    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 ${x.into}, [%at${x.reader}+${x.offset}];
% endif
% endfor
% for to, low, high, row in f.sorted(k):
    prmt.b32 ${to}, ${low}, ${high}, ${"%second" if row else "%first"};
% endfor
    wgmma.fence.sync.aligned;
% for s in plan.products[k * plan.mi : (k + 1) * plan.mi]:
    add.u32 %low, %y_at, ${s.y};
    mov.b64 %y_desc, {%low, ${plan.y.high}};
    wgmma.mma_async.sync.aligned.${plan.instruction} ${plan.into.vector(s.mi, 0, n=plan.into.shape[1])}, ${f.operand(k, s.mi)}, %y_desc, ${s.adds}${plan.modes};
% endfor
    wgmma.commit_group.sync.aligned;
% endfor
    }
</%def>

## Stages have been freed on the way.
<%def name="settle(ring)">
    mov.b32 %before, %slot;
</%def>
<%def name="begin()"></%def>

<%def name="widen()">
${smem.widen()}\
</%def>
<%def name="convert()">
${smem.convert()}\
</%def>
