## Sums of tiles that began early move to their places, through the shared memory that the operands came through.
<%def name="registers()">
% if plan.eighths:
    .reg .b32 %residue, %x_end, %y_end;
% endif
</%def>

<%def name="settle(ptx)">
% if plan.eighths:
${ptx.banner("sums of every eighth k move to their places")}\
    {
    .reg .b32 %at, %x_early, %y_early;
    .reg .pred %own;
% for x in (plan.x, plan.y):
    add.u32 %${x.role}_end, %${x.role}0, ${plan.x_step if x is plan.x else plan.y_step};
    min.u32 %${x.role}_end, %${x.role}_end, ${plan.x_extent if x is plan.x else plan.y_extent};
% endfor
    // ${" and ".join(x.name.upper() for x in plan.early)}: elements from where 16 bytes begin to the slice's rows
% for x in plan.early:
    ld.param.u64 %t64, [${x.name.upper()}];
    cvt.u32.u64 %${x.role}_early, %t64;
    shr.u32 %${x.role}_early, %${x.role}_early, 1;
    ld.param.u32 %t1, [ld${x.name}];
    mad.lo.u32 %${x.role}_early, %residue, %t1, %${x.role}_early;
    and.b32 %${x.role}_early, %${x.role}_early, 7;
% endfor
    mul.lo.u32 %t0, %wg, ${plan.mi * 64};
    shr.u32 %t1, %lane, 2;
    mad.lo.u32 %t1, %quarter, 16, %t1;
    add.u32 %t0, %t0, %t1;
    and.b32 %t1, %lane, 3;
    shl.b32 %t1, %t1, 3;
    mad.lo.u32 %at, %t0, ${plan.line}, %t1;
    add.u32 %at, %at, %smem;
    // nobody multiplies from it any more
    bar.sync 1, ${128 * plan.wg};
% for put in plan.early_places:
    st.shared.v2.b32 [%at+${put.offset}], {${put.first}, ${put.second}};
% endfor
    bar.sync 1, ${128 * plan.wg};
% for x in plan.early:
    mad.lo.u32 %at, %${x.role}_early, ${plan.line if x is plan.x else 4}, %at;
% endfor
% if plan.x in plan.early:
    // the last eight rows of the tile are the next tile's
    mad.lo.u32 %t0, %wg, 4, %quarter;
    setp.ne.u32 %own, %t0, ${4 * plan.wg - 1};
% endif
% for put in plan.early_places:
% if put.last_row or put.last_column:
    mov.b32 ${put.first}, 0;
    mov.b32 ${put.second}, 0;
% endif
% if not put.last_column:
    ${"@%own " if put.last_row else ""}ld.shared.b32 ${put.first}, [%at+${put.offset}];
    ${"@%own " if put.last_row else ""}ld.shared.b32 ${put.second}, [%at+${put.offset + 4}];
% endif
% endfor
    }
% endif
</%def>
