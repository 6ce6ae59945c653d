## Each thread writes its sums from registers, where wgmma left them: pairs of columns in rows 8 apart (or next to each
## other, where X was read as pairs of rows).
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="quads" file="/epilogue/pack_8bit.mako"/>
<%def name="registers()"></%def>
<%def name="setup()"></%def>
<%def name="early()"></%def>
<%def name="finish()"></%def>

<%def name="store_tile(math, store_op, add)">
    {
% if plan.beside:
    ${plan.row.declaration}
% endif
    .reg .b64 %at<${len(plan.lines)}>;
    .reg .b32 %x, %y, %row, %left_x, %left_y;
    .reg .pred %in, %in_x<${plan.rows}>, %in_y<2>;
    mad.lo.u32 %x, %wg, ${plan.x_own}, %x0;
${convert.add_thread_terms("%x", "%member", plan.row_terms)}\
    and.b32 %y, %lane, 3;
    mad.lo.u32 %y, %y, 2, %y0;
    // how much of C is left from there
    sub.s32 %left_x, ${plan.x_extent}, %x;
    sub.s32 %left_y, ${plan.y_extent}, %y;
% for n in range(plan.rows):
    setp.gt.s32 %in_x${n}, %left_x, ${plan.row_offset(n)};
% endfor
% for n, line in enumerate(plan.lines):
    add.u32 %row, ${"%y" if plan.swapped else "%x"}, ${line};
    mul.wide.u32 %t64, %row, %ldo;
    cvt.u64.u32 %u64, ${"%x" if plan.swapped else "%y"};
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %at${n}, %t64, ${plan.out_bytes}, %out;
% endfor
% if plan.pack_8bit:
${quads.setup()}\
% endif
% for j in range(plan.finish // 8):
% for e in range(2):
    setp.gt.s32 %in_y${e}, %left_y, ${8 * j + e};
% endfor
% for n in range(plan.rows):
% for w in plan.writes(j, n):
<% out = plan.leaves(w) %>\
% for r, to in zip(w.registers, out):
    ${plan.mul} ${to}, ${r}, %alpha;
% endfor
    and.pred %in, %in_x${n}, %in_y${w.second};
${store_op.store_vector(out, f"%at{w.line}", w.offset, "@%in ", add, w.row, w.column)}\
% endfor
${quads.send(j, n)}\
% endfor
% if plan.swapped:
% for n in range(len(plan.lines)):
    mad.wide.u32 %at${n}, %ldo, ${8 * plan.out_bytes}, %at${n};
% endfor
% endif
% endfor
    }
</%def>
