## Each thread writes its sums from registers, into a C whose rows (and columns) lie in runs, which a multiplication
## tells apart.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="registers()"></%def>
<%def name="setup()"></%def>
<%def name="early()"></%def>
<%def name="finish()"></%def>

<%def name="store_tile(math, store_op, add)">
<% of_x, of_y = reversed(plan.sides) if plan.swapped else plan.sides %>\
    {
% if plan.beside:
    ${plan.row.declaration}
% endif
    .reg .b64 %at, %high;
    .reg .b32 %x, %y, %left_x, %left_y, %of_x<${plan.rows}>, %of_y<2>, ${", ".join(f"%{n}" for side in plan.sides for n in side.parameters)};
    .reg .pred %in, %in_x<${plan.rows}>, %in_y<2>;
% for side in plan.sides:
% for name in side.parameters:
    ld.param.u32 %${name}, [${name}];
% endfor
% endfor
    mad.lo.u32 %x, %wg, ${plan.x_own}, %x0;
${convert.add_thread_terms("%x", "%member", plan.row_terms)}\
    and.b32 %y, %lane, 3;
    mad.lo.u32 %y, %y, 2, %y0;
    // how much of C is left from there
    sub.s32 %left_x, ${plan.x_extent}, %x;
    sub.s32 %left_y, ${plan.y_extent}, %y;
% for n in range(plan.rows):
    setp.gt.s32 %in_x${n}, %left_x, ${plan.row_offset(n)};
${lies(of_x, f"%of_x{n}", "%x", plan.row_offset(n))}\
% endfor
% for j in range(plan.finish // 8):
% for e in range(2):
    setp.gt.s32 %in_y${e}, %left_y, ${8 * j + e};
${lies(of_y, f"%of_y{e}", "%y", 8 * j + e)}\
% endfor
% for n in range(plan.rows):
% for w in plan.writes(j, n):
<% out = plan.leaves(w) %>\
% for r, to in zip(w.registers, out):
    ${plan.mul} ${to}, ${r}, %alpha;
% endfor
    and.pred %in, %in_x${n}, %in_y${w.second};
    add.s32 %t0, %of_x${n}, %of_y${w.second};
    mad.wide.s32 %at, %t0, ${plan.out_bytes}, %out;
${store_op.store_vector(out, "%at", 0, "@%in ", add, w.row, w.column)}\
% endfor
% endfor
% endfor
    }
</%def>

## Elements to a row, or a column, of C.
<%def name="lies(side, to, first, ahead)">
    add.u32 %t0, ${first}, ${ahead};
    mul.lo.u32 ${to}, %t0, %step_${side.name};
% if side.apart:
    mul.wide.u32 %high, %t0, %by_${side.name};
    shr.u64 %high, %high, %shift_${side.name};
    cvt.u32.u64 %t0, %high;
    mad.lo.u32 ${to}, %t0, %hop_${side.name}, ${to};
% endif
</%def>
