## The best values of rows: families/resident_rows/best_values.py describes the records. A warp changes the records of a row
## if a lane has a value that precedes the last of the best ones.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="rows" file="/ptx/any_row.mako"/>
<%def name="declare()">
    .reg .b32 %lane, %lane_columns, %last_place;
    ${plan.taken.bound.declaration}
% if plan.taken.best.size:
    ${plan.taken.best.declaration}
% endif
</%def>

<%def name="begin()">
    and.b32 %lane, %thread, 31;
    mul.lo.u32 %lane_columns, %lane, ${plan.taken.vec};
    ld.param.u32 %last_place, [${plan.taken.count}];
    sub.u32 %last_place, %last_place, 1;
% for record, bound in zip(plan.taken.record.all, plan.taken.bound.all):
    mov.b64 ${record}, ${plan.taken.no_record};
    mov.f32 ${bound}, ${plan.taken.no_bound};
% endfor
</%def>

## %own_column: the first column of this lane
<%def name="declare_group()">
    .reg .b32 %own_column;
    add.u32 %own_column, %column, %lane_columns;
</%def>

<%def name="take_row(group, row)">
<% best, bound = plan.taken.best[row.row], plan.taken.bound[row.row] %>\
    {
${values.declare(row.values.taken)}\
${values.compute(row.sums, "", (row.index, 0), ("%own_column", 0), row.values.taken)}\
    mov.f32 ${best}, ${plan.taken.first_value};
% for value in plan.taken.later_values:
    ${plan.taken.best_operation} ${best}, ${best}, ${value};
% endfor
    }
${rows.any_row(row.row, plan.taken.precedes, "f32", best, bound)}\
</%def>

<%def name="take(group)">
    vote.sync.any.pred %p, %p, 0xffffffff;
    @!%p bra.uni ${group.prefix}KEPT;
% for row in group.rows:
    setp.${plan.taken.precedes}.f32 %p, ${plan.taken.best[row.row]}, ${plan.taken.bound[row.row]};
    vote.sync.any.pred %p, %p, 0xffffffff;
    @!%p bra.uni ${group.prefix}KEPT${row.row};
${keep(row)}\
${group.prefix}KEPT${row.row}:
% endfor
${group.prefix}KEPT:
</%def>

## Adds the pairs of a row to its records.
<%def name="keep(row)">
    {
    .reg .b64 %last, %added, %before;
    .reg .b32 %key, %sign, %pair_column, %low, %high, %ballot, %chosen, %bit;
    .reg .pred %counts, %precedes, %inside;
    ${plan.taken.candidate.declaration}
${values.compute(row.sums, "", (row.index, 0), ("%own_column", 0), row.values)}\
% for q, (candidate, value) in enumerate(zip(plan.taken.candidate.all, row.values.tiles[0].all)):
    add.f32 ${value}, ${value}, 0f00000000; // -0 becomes 0
    mov.b32 %key, ${value};
    shr.s32 %sign, %key, 31;
    or.b32 %sign, %sign, 0x80000000;
    xor.b32 %key, %key, %sign;
    setp.nan.f32 %p, ${value}, ${value};
    @%p mov.b32 %key, 0xffffffff;
  % if plan.taken.greatest:
    not.b32 %key, %key;
  % endif
    add.u32 %pair_column, %own_column, ${q};
    setp.lt.u32 %counts, %pair_column, %end;
  % if row.values.guard is not None:
    and.pred %counts, %counts, ${row.values.tiles[1][q]};
  % endif
    mov.b64 ${candidate}, {%pair_column, %key};
    selp.b64 ${candidate}, ${candidate}, ${plan.taken.no_record}, %counts;
% endfor
${last(row)}\
% for q, candidate in enumerate(plan.taken.candidate.all):
    {
    setp.lt.u64 %precedes, ${candidate}, %last;
    vote.sync.ballot.b32 %ballot, %precedes, 0xffffffff;
    setp.eq.u32 %p, %ballot, 0;
    @%p bra.uni NONE_LEFT;
    .pragma "nounroll";
NEXT_CANDIDATE:
    bfind.u32 %chosen, %ballot;
    shl.b32 %bit, 1, %chosen;
    xor.b32 %ballot, %ballot, %bit;
    mov.b64 {%low, %high}, ${candidate};
    shfl.sync.idx.b32 %low, %low, %chosen, 31, 0xffffffff;
    shfl.sync.idx.b32 %high, %high, %chosen, 31, 0xffffffff;
    mov.b64 %added, {%low, %high};
    mov.b64 {%low, %high}, ${plan.taken.record[row.row]};
    shfl.sync.up.b32 %low|%inside, %low, 1, 0, 0xffffffff;
    shfl.sync.up.b32 %high, %high, 1, 0, 0xffffffff;
    mov.b64 %before, {%low, %high};
    selp.b64 %before, %before, 0, %inside;
    // the greater one of the record before and the new one, if this lane's record follows the new one
    max.u64 %before, %before, %added;
    min.u64 ${plan.taken.record[row.row]}, ${plan.taken.record[row.row]}, %before;
    setp.ne.u32 %p, %ballot, 0;
    @%p bra.uni NEXT_CANDIDATE;
${last(row)}\
NONE_LEFT:
    }
% endfor
    mov.b64 {%low, %key}, %last;
${decode(plan.taken.bound[row.row])}\
    }
</%def>

## %last: the last of the best records
<%def name="last(row)">
    mov.b64 {%low, %high}, ${plan.taken.record[row.row]};
    shfl.sync.idx.b32 %low, %low, %last_place, 31, 0xffffffff;
    shfl.sync.idx.b32 %high, %high, %last_place, 31, 0xffffffff;
    mov.b64 %last, {%low, %high};
</%def>

## The value of %key; NaN for that of no record
<%def name="decode(value)">
% if plan.taken.greatest:
    not.b32 %key, %key;
% endif
    shr.s32 %sign, %key, 31;
    not.b32 %sign, %sign;
    or.b32 %sign, %sign, 0x80000000;
    xor.b32 %key, %key, %sign;
    mov.b32 ${value}, %key;
</%def>

<%def name="finish()">
${ptx.banner("each lane stores one of the best values of each row, and its column")}\
    {
    .reg .b64 %values, %columns, %place;
    .reg .b32 %count, %key, %sign, %pair_column;
    .reg .f32 %value;
    ld.param.u64 %values, [C];  ld.param.u64 %columns, [${plan.taken.columns}];
    cvta.to.global.u64 %values, %values;  cvta.to.global.u64 %columns, %columns;
    add.u32 %count, %last_place, 1;
% for row in plan.group.rows:
    setp.lt.u32 %in_bounds, ${row.index}, %M;
    setp.le.and.u32 %in_bounds, %lane, %last_place, %in_bounds;
    mov.b64 {%pair_column, %key}, ${plan.taken.record[row.row]};
${decode("%value")}\
    setp.eq.u32 %p, %pair_column, 0xffffffff;
    selp.f32 %value, ${plan.taken.missing}, %value, %p;
    mul.wide.u32 %tmp64, ${row.index}, %count;
    cvt.u64.u32 %place, %lane;
    add.u64 %place, %place, %tmp64;
    shl.b64 %place, %place, 2;
    add.u64 %tmp64, %values, %place;
    @%in_bounds st.global.f32 [%tmp64], %value;
    add.u64 %tmp64, %columns, %place;
    @%in_bounds st.global.u32 [%tmp64], %pair_column;
% endfor
    }
</%def>
