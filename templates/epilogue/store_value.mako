## C = the value of an expression of the sum, of array elements with the same row and column, and of scalars.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="c_strided" file="/epilogue/c_strided.mako"/>
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%def name="prepare()"></%def>
<%def name="skip_tile()">${values.skip_tile()}</%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out;
    .reg .b32 %ld_out;
    mov.b64 %out, ${plan.batch.c_base};
    mov.b32 %ld_out, %ldc;
${values.setup()}\
${store_c.store_tile(math, store_op, False)}\
</%def>

<%def name="store_vector(registers, at, offset, guard, add_c, row, column)">
${store_values(plan.values, registers, at, offset, guard, row, column)}\
% if plan.values.mirror is not None:
${store_mirrored(registers, guard, row, column, "%out", "%ld_out")}\
% endif
</%def>

<%def name="store_values(of, registers, at, offset, guard, row, column)">
    {
    ${plan.c.declaration}
% for ptx_type, r, zero in plan.c.preinitialised:
    mov.${ptx_type} ${r}, ${zero};
% endfor
${values.declare(of)}\
${values.compute(registers, guard, row, column, of)}\
% if of.guard is not None:
    .reg .pred %holds;
    ${of.holds(0, guard)}
${c_elements.store(of.tiles[0].all, at, offset, "@%holds ")}\
% else:
${c_elements.store(of.tiles[0].all, at, offset, guard)}\
% endif
    }
</%def>

## The value of (j, i), from the sum of (i, j). base, ld: the address of C and its leading dimension.
<%def name="store_mirrored(registers, guard, row, column, base, ld)">
    {
    .reg .b64 %mirror_addr;
    .reg .b32 %mirror_row, %mirror_col;
    add.u32 %mirror_row, ${column[0]}, ${column[1]};
    add.u32 %mirror_col, ${row[0]}, ${row[1]};
${c_strided.element("%mirror_addr", "%mirror_row", "%mirror_col", base, ld, plan.c.bytes)}\
${store_values(plan.values.mirror, registers, "%mirror_addr", 0, guard, ("%mirror_row", 0), ("%mirror_col", 0))}\
    }
</%def>

## Defs of an auxiliary kernel over C: see splitk_kernels.mako.
<%def name="declare_scalars()">${values.declare_scalars()}</%def>
<%def name="load_scalars()">${values.load_scalars()}</%def>
<%def name="setup_slices()">${values.setup()}</%def>
<%def name="begin_slices()"></%def>
<%def name="store_slices()">
<% registers = plan.epilogue.stored %>\
${store_values(plan.values, registers, "%c_addr", 0, "", ("%c_row", 0), ("%c_col", 0))}\
% if plan.values.mirror is not None:
${store_mirrored(registers, "", ("%c_row", 0), ("%c_col", 0), plan.batch.c_base, "%ldc")}\
% endif
</%def>
