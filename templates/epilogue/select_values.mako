## Lists of the values of selected results: each warp counts its selected results, reserves adjacent elements of the lists by
## one atomic addition, and stores the values there. The count is exact even if it exceeds the capacity of the lists.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%def name="prepare()"></%def>
<%def name="skip_tile()">${values.skip_tile()}</%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out, %count, %position, ${plan.selected.operand};
    .reg .b32 %ld_out, %selected, %lanes_below;
    .reg .pred %any;
    mov.b64 %out, %C;
    mov.b32 %ld_out, %ldc;
${values.setup()}\
    // ---- first pass: %selected: results of this thread that are selected
    mov.u32 %selected, 0;
${store_c.store_tile(math, store_op, False)}\
    setp.ne.u32 %any, %selected, 0;
    vote.sync.any.pred %any, %any, 0xffffffff;
    @!%any bra.uni SELECTED;
    // ---- %position: the first of the elements of the lists that this warp reserves
${reserve()}\
    // ---- second pass: the lanes whose result is selected store it
${store_c.store_tile(math, store_op, True, again=True)}\
SELECTED:
</%def>

## The lanes of a warp reserve %selected elements of each.
<%def name="reserve()">
${load_lists()}\
    {
    .reg .b32 %partner, %low, %high, %lane;
% for distance in (16, 8, 4, 2, 1):
    shfl.sync.bfly.b32 %partner, %selected, ${distance}, 31, 0xffffffff;
    add.u32 %selected, %selected, %partner;
% endfor
    and.b32 %lane, %thread, 31;
    setp.eq.u32 %p, %lane, 0;
    cvt.u64.u32 %position, %selected;
    @%p atom.global.add.u64 %position, [%count], %position;
    mov.b64 {%low, %high}, %position;
    shfl.sync.idx.b32 %low, %low, 0, 31, 0xffffffff;
    shfl.sync.idx.b32 %high, %high, 0, 31, 0xffffffff;
    mov.b64 %position, {%low, %high};
    }
</%def>

<%def name="store_vector(registers, at, offset, guard, stores, row, column)">
${select_vector(plan.values, registers, guard, stores, row, column)}\
% if plan.values.mirror is not None:
    // ---- (j, i), from the sum of (i, j)
${select_vector(plan.values.mirror, registers, guard, stores, column, row)}\
% endif
</%def>

<%def name="select_vector(of, registers, guard, stores, row, column)">
    {
    .reg .pred %holds;
${values.declare(of.condition)}\
${values.compute(registers, guard, row, column, of.condition)}\
    ${of.condition.holds(0, guard)}
% if stores:
    .reg .b32 %ballot;
    vote.sync.ballot.b32 %ballot, %holds, 0xffffffff;
    setp.eq.u32 %p, %ballot, 0;
    @%p bra.uni NONE_SELECTED;
${append(of, registers, "@%holds ", row, column)}\
NONE_SELECTED:
% else:
    @%holds add.u32 %selected, %selected, 1;
% endif
    }
</%def>

## The lanes in %ballot, for which %holds, store the values of their results from %position on, while the lists have room.
<%def name="append(of, registers, guard, row, column)">
    {
${place()}\
${values.declare(of.taken)}\
${values.compute(registers, guard, row, column, of.taken)}\
${store_at_place(of.taken, 0)}\
    }
</%def>

## %element: the place of this lane's result, if it %holds; %position moves on past those of all lanes in %ballot.
<%def name="place()">
    .reg .b32 %rank;
    .reg .b64 %element, %element_at;
    and.b32 %rank, %ballot, %lanes_below;
    popc.b32 %rank, %rank;
    cvt.u64.u32 %element, %rank;
    add.u64 %element, %element, %position;
    popc.b32 %rank, %ballot;
    cvt.u64.u32 %element_at, %rank;
    add.u64 %position, %position, %element_at;
    setp.lt.and.u64 %holds, %element, %capacity, %holds;
</%def>

## The values of result q of a vector.
<%def name="store_at_place(taken, q)">
% for n, (size, ptx_type, pointer) in enumerate(plan.selected.stores):
    mad.lo.u64 %element_at, %element, ${size}, ${pointer};
    @%holds st.global.${ptx_type} [%element_at], ${taken.tiles[n][q]};
% endfor
</%def>

## The addresses of the lists and of the count.
<%def name="load_lists()">
    ld.param.u64 %count, [${plan.selected.count}];
    cvta.to.global.u64 %count, %count;
% for name, pointer in plan.selected.lists:
    ld.param.u64 ${pointer}, [${name}];
    cvta.to.global.u64 ${pointer}, ${pointer};
% endfor
    mov.u32 %lanes_below, %lanemask_lt;
</%def>

## Defs of an auxiliary kernel over C: see splitk_kernels.mako. The executing lanes of a warp reserve elements together.
<%def name="declare_scalars()">${values.declare_scalars()}</%def>
<%def name="load_scalars()">${values.load_scalars()}</%def>
<%def name="setup_slices()">
    .reg .b64 %count, %position, ${plan.selected.operand};
    .reg .b32 %lanes_below;
${values.setup()}\
${load_lists()}\
</%def>
<%def name="begin_slices()"></%def>
<%def name="store_slices()">
${select_sum(plan.values, ("%c_row", 0), ("%c_col", 0))}\
% if plan.values.mirror is not None:
    // ---- (j, i), from the sum of (i, j)
${select_sum(plan.values.mirror, ("%c_col", 0), ("%c_row", 0))}\
% endif
</%def>

<%def name="select_sum(of, row, column)">
    {
    .reg .pred %holds, %leads;
    .reg .b32 %ballot, %lanes, %leader, %low, %high;
${values.declare(of.condition)}\
${values.compute([plan.epilogue.vector[0]], "", row, column, of.condition)}\
    ${of.condition.holds(0, "")}
    activemask.b32 %lanes;
    vote.sync.ballot.b32 %ballot, %holds, %lanes;
    setp.eq.u32 %p, %ballot, 0;
    @%p bra NONE_SELECTED;
    // the first lane whose result is selected reserves the elements of all
    sub.u32 %low, %ballot, 1;
    not.b32 %leader, %ballot;
    and.b32 %leader, %leader, %low;
    popc.b32 %leader, %leader;
    mov.u32 %low, %laneid;
    setp.eq.u32 %leads, %low, %leader;
    popc.b32 %low, %ballot;
    cvt.u64.u32 %position, %low;
    @%leads atom.global.add.u64 %position, [%count], %position;
    mov.b64 {%low, %high}, %position;
    shfl.sync.idx.b32 %low, %low, %leader, 31, %lanes;
    shfl.sync.idx.b32 %high, %high, %leader, 31, %lanes;
    mov.b64 %position, {%low, %high};
${append(of, [plan.epilogue.vector[0]], "@%holds ", row, column)}\
NONE_SELECTED:
    }
</%def>
