## Reads the sums of a vector of the block's tile in shared memory, at %tile_row and column %c_col of the tile, into
## plan.epilogue.vector, and adds those of thread groups that split K. %in_bounds: the vector is in the tile and in the matrix.
<%def name="read_sums()">
    setp.lt.u32 %in_bounds, %c_row, %M;
    setp.lt.and.u32 %in_bounds, %tile_row, ${plan.config.ml}, %in_bounds;
    add.u32 %tmp0, %c_col, %n0;
    setp.lt.and.u32 %in_bounds, %tmp0, %N, %in_bounds;
    mad.lo.u32 %sums_addr, %tile_row, ${plan.epilogue.row_pitch}, %c_col;
    mad.lo.u32 %sums_addr, %sums_addr, ${plan.arithmetic.bytes}, %smem;
% for g, (registers, operand, offset) in enumerate(plan.epilogue.group_sum_loads):
    @%in_bounds ld.shared.${plan.c.sums_type} ${operand}, [%sums_addr+${offset}];
  % if g:
    % for sum, other in zip(plan.epilogue.stored, registers):
      % for line in plan.reducer.join(sum, other, "@%in_bounds "):
    ${line}
      % endfor
    % endfor
  % endif
% endfor
</%def>
