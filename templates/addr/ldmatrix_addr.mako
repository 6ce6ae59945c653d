## Which tile of C a warp multiplies, and where its lanes read the fragments of both operands in shared memory.
<%namespace name="ring" file="/addr/simt_fragment_addr.mako"/>
<%def name="setup()">
    {
    .reg .b32 %lane, %warp, %k_group, %mn, %k, %addr;
    and.b32 %lane, %thread, 31;
    and.b32 %warp, %thread, ${plan.group - 1};
    shr.u32 %warp, %warp, 5;
    shr.u32 %k_group, %thread, ${plan.log2_group};
    // the warp's tile
    shr.u32 %row, %warp, ${plan.log2_across};
    and.b32 %col, %warp, ${plan.b.warps - 1};
    mul.lo.u32 %row, %row, ${plan.a.thread};
    mul.lo.u32 %col, %col, ${plan.b.thread};
% for x, first in ((plan.a, "%row"), (plan.b, "%col")):
    // ${x.name.upper()}: this lane's first ${"16 bytes" if x.raw or x.way == 0 else "vector"}
    mov.b32 %mn, ${first};
    mul.lo.u32 %k, %k_group, ${plan.steps * plan.instruction.depth};
${lane("%mn", x.lane_mn)}\
${lane("%k", x.lane_k)}\
${place(x)}\
% endfor
    // this lane's first row and column of C
${lane("%row", [plan.a.lane_of_c])}\
${lane("%col", [plan.b.lane_of_c])}\
% if plan.geometry.gathers:
    // where its share of the tile lies when it leaves through shared memory
    mad.lo.u32 %addr, %k_group, ${plan.config.ml}, %row;
    mad.lo.u32 %addr, %addr, ${plan.c_row_pitch}, %col;
    mad.lo.u32 %smem_c, %addr, ${plan.epilogue_bytes}, %smem;
% endif
    }
</%def>

## Adds what depends on the lane.
<%def name="lane(to, terms)">
% for t in terms:
    shr.u32 %t0, %lane, ${t.shift};
    and.b32 %t0, %t0, ${t.mask};
    mad.lo.u32 ${to}, %t0, ${t.weight}, ${to};
% endfor
</%def>

## Where element (mn, k) of a stage lies.
<%def name="place(x)">
<% row, column = ("%mn", "%k") if x.kmajor else ("%k", "%mn") %>\
    mul.lo.u32 %addr, ${column}, ${x.bytes};
% for shift, mask in x.keys:
    ${"shl.b32" if shift < 0 else "shr.u32"} %t0, ${row}, ${abs(shift)};
    and.b32 %t0, %t0, ${mask};
    shl.b32 %t0, %t0, 4;
    xor.b32 %addr, %addr, %t0;
% endfor
    mad.lo.u32 %addr, ${row}, ${x.row * x.bytes}, %addr;
    add.u32 %addr, %addr, ${x.base};
    add.u32 ${x.readers[0]}, %smem, %addr;
</%def>

<%def name="advance()">
${ring.advance()}\
</%def>
