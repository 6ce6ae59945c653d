## Offsets of rows and columns of C, of which only the blocks on the diagonal are stored. A row and a column are in such a block
## if they belong to the same group.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="runs" file="/epilogue/run_offsets.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="registers()">
    .reg .b32 %block_x<${plan.epilogue.rows}>, %block_y<2>;
% for name in plan.loads.block_parameters:
    .reg .b32 %${name};
    ld.param.u32 %${name}, [${name}];
% endfor
</%def>

## Where a row or a column is in C, and its group in the item.
<%def name="locate(run, to, inside, rem, first, plus, block='')">
${runs.locate(run, to, inside, rem, first, plus)}\
${constants.add("%tmp0", first, plus)}\
${radix.divide(block, "%tmp0", f"group_{run.name}")}\
% if run.name == "columns":
    // columns are channels of one tap after the other
${radix.divide("%tmp0", "%tmp0", "item_columns")}\
    mul.lo.u32 %tmp0, %tmp0, %groups_of_item;
    sub.u32 ${block}, ${block}, %tmp0;
% endif
</%def>

<%def name="same_block(row, column)">
    setp.eq.and.u32 %in_bounds, %block_x${row}, %block_y${column}, %in_bounds;
</%def>
