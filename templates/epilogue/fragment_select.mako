## Lists of the values of selected results in wgmma's fragments. First each thread computes a bit for each of its results; then
## a warp reserves adjacent elements of the lists by one atomic addition. For groups of 8 columns with a selected result, one
## piece of code takes their sums from the fragments and stores them.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="fragments" file="/epilogue/fragment_values.mako"/>
<%namespace name="select" file="/epilogue/select_values.mako"/>
<%def name="store_tiles(store_c, math, store_op)">
    {
    .reg .b32 %c_x, %c_y;
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
${fragments.bounds()}\
${select_tile(plan.values)}\
% if plan.values.mirror is not None:
    // ---- (j, i), from the sums of (i, j)
${select_tile(plan.values.mirror)}\
% endif
    }
</%def>

<%def name="select_tile(of)">
<% s = plan.selected %>\
    {
    .reg .b64 %count, %position, ${s.operand};
    .reg .b32 %selected, %lanes_below, %groups, %group, %bits, %pick_y, %pick_rem;
    .reg .pred %any;
    ${s.bits.declaration}
    ${s.picked.declaration}
${mark(of.condition)}\
    // ---- %selected: results of this thread that are selected
    popc.b32 %selected, ${s.bits[0]};
% for word in s.bits.all[1:]:
    popc.b32 %bits, ${word};
    add.u32 %selected, %selected, %bits;
% endfor
    setp.ne.u32 %any, %selected, 0;
    vote.sync.any.pred %any, %any, 0xffffffff;
    @!%any bra.uni SELECTED;
${select.reserve()}\
${find_groups()}\
${fragments.load_rows(of.taken)}\
    .pragma "nounroll";
NEXT_GROUP:
    // ---- the lowest group with a selected result: %group, %bits of this thread's results, %picked: their sums
    sub.u32 %pick_y, %groups, 1;
    not.b32 %group, %groups;
    and.b32 %group, %group, %pick_y;
    popc.b32 %group, %group;
    and.b32 %groups, %groups, %pick_y;
    mad.lo.u32 %pick_y, %group, 8, %first_y;
    mul.lo.u32 %pick_rem, %group, 8;
    sub.s32 %pick_rem, %y_rem, %pick_rem;
${pick(0, s.groups)}\
PICKED:
${store_group(of.taken)}\
    setp.ne.u32 %p, %groups, 0;
    @%p bra.uni NEXT_GROUP;
SELECTED:
    }
</%def>

## The bits of this thread's results that are selected.
<%def name="mark(of)">
<% s = plan.selected %>\
% for word in s.bits.all:
    mov.b32 ${word}, 0;
% endfor
    {
${fragments.load_rows(of)}\
% for batch in of.batches(range(s.groups)):
    {
${fragments.begin_batch(batch, of)}\
  % for n, j in enumerate(batch):
    % if of.long:
    // columns past the end of C are skipped: without a branch, ptxas would load elements of all columns at once
    sub.s32 %pick_rem, ${plan.scheduler.y_extent}, %c_y;
    setp.le.s32 %p, %pick_rem, ${plan.epilogue.column_groups[j][0]};
    @%p bra.uni MARKED;
    % endif
    % for m in range(s.mi):
    {
${fragments.declare(of)}\
${fragments.compute(m, j, n, plan.epilogue.fragments[m, j], of)}\
      % for selected, (word, bit) in zip(of.tiles[0].all, s.result_bits[m, j]):
    @${selected} or.b32 ${word}, ${word}, ${bit};
      % endfor
    }
    % endfor
  % endfor
    }
% endfor
MARKED:
    }
    // ---- without those past the end of C
% for n, mask in enumerate(s.masks_of_rows):
  % for word in s.bits.all:
    @!%in_x${n} and.b32 ${word}, ${word}, ${mask};
  % endfor
% endfor
    sub.s32 %pick_rem, ${plan.scheduler.y_extent}, %c_y;
    setp.ge.s32 %p, %pick_rem, ${s.columns};
    @%p bra.uni INSIDE;
% for columns, masks in zip(plan.epilogue.column_groups, s.masks_of_columns):
  % for column, (word, mask) in zip(columns, masks):
    setp.le.s32 %p, %y_rem, ${column};
    @%p and.b32 ${word}, ${word}, ${mask};
  % endfor
% endfor
INSIDE:
</%def>

## %groups: a bit of each group of 8 columns in which a lane of the warp has a selected result.
<%def name="find_groups()">
<% s = plan.selected %>\
    {
    .reg .b32 %lanes_bits<${s.words}>;
    mov.b32 %groups, 0;
% for n, word in enumerate(s.bits.all):
    redux.sync.or.b32 %lanes_bits${n}, ${word}, 0xffffffff;
% endfor
% for group, (word, bits) in zip(s.group_bits, s.bits_of_groups):
    and.b32 %bits, %lanes_bits${word}, ${bits};
    setp.ne.u32 %p, %bits, 0;
    @%p or.b32 %groups, %groups, ${group};
% endfor
    }
</%def>

## Branches to the code of group %group, one of ``first`` to ``end`` − 1.
<%def name="pick(first, end)">
<% s = plan.selected %>\
% if (first, end) not in s.halves:
<% word, bit = s.places[first] %>\
  % for m in range(s.mi):
    % for picked, r in zip(s.picked_sums[m], plan.epilogue.fragments[m, first]):
    mov.${s.ptx_type} ${picked}, ${r};
    % endfor
  % endfor
${constants.shr("%bits", word, bit)}\
    bra.uni PICKED;
% else:
<% middle = s.halves[first, end] %>\
    {
    setp.ge.u32 %p, %group, ${middle};
    @%p bra.uni UPPER;
${pick(first, middle)}\
UPPER:
${pick(middle, end)}\
    }
% endif
</%def>

<%def name="store_group(taken)">
<% s = plan.selected %>\
    {
${fragments.begin_batch([0], taken, "%pick_y", "%pick_rem")}\
% for m in range(s.mi):
    {
${fragments.declare(taken)}\
${fragments.compute(m, 0, 0, s.picked_sums[m], taken, "%pick_y", "%pick_rem")}\
  % for r in taken.results[m]:
    {
    .reg .pred %holds;
    .reg .b32 %ballot;
    and.b32 %ballot, %bits, ${r.bit};
    setp.ne.u32 %holds, %ballot, 0;
    vote.sync.ballot.b32 %ballot, %holds, 0xffffffff;
    setp.eq.u32 %p, %ballot, 0;
    @%p bra.uni NONE_SELECTED;
${select.place()}\
${select.store_at_place(taken, r.q)}\
NONE_SELECTED:
    }
  % endfor
    }
% endfor
    }
</%def>
