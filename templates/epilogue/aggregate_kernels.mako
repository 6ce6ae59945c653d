## Fills C with the identity. If the order of reduction matters, reduces the values [M][N] of the workspace in the order of i,
## then of j: each thread has a column of values, then a group of the key that depends on i.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
${fill()}\
% if plan.groups.sink.ordered:
${add_rows()}\
${add_columns()}\
% endif
</%def>

<%def name="open(name)">
.visible .entry ${plan.entry}_${name}(
% for line in plan.sink_kernels.declarations:
    ${line}
% endfor
)
.maxntid ${plan.sink_kernels.THREADS}, 1, 1
{
    .reg .b64 %C, %workspace, %group_addr, %group_index;
    .reg .b32 %M, %N, %group_rows, %group_columns, %thread, %tmp0;
    .reg .pred %p;
    ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];
    ld.param.u32 %group_rows, [group_rows];  ld.param.u32 %group_columns, [group_columns];
${pdl.trigger_and_wait()}\
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %tmp0, ${plan.sink_kernels.THREADS}, %thread;
</%def>

<%def name="fill()">

// C = the identity of the reduction
${open("fill")}\
    .reg .b64 %elements, %step;
    mul.wide.u32 %elements, %group_rows, %group_columns;
    mul.lo.u64 %elements, %elements, ${plan.groups.bytes};
    add.u64 %elements, %elements, %C;
    mov.u32 %tmp0, %nctaid.x;
    mul.wide.u32 %step, %tmp0, ${plan.sink_kernels.block_bytes};
    mad.wide.u32 %group_addr, %thread, ${plan.groups.bytes}, %C;
    .reg .${plan.groups.ptx_type} %identity;
    mov.${plan.groups.ptx_type} %identity, ${plan.groups.identity};
FILL:
    setp.ge.u64 %p, %group_addr, %elements;
    @%p bra DONE;
    st.global.${plan.groups.type} [%group_addr], %identity;
    add.u64 %group_addr, %group_addr, %step;
    bra FILL;
DONE:
    ret;
}
</%def>

## The registers and addresses of both kernels that add. %values: [M][N], %sums: [group][N].
<%def name="open_ordered(name, axis)">
${open(name)}\
    .reg .b64 %values, %sums, %key_addr, %row_bytes;
    .reg .b32 %index, %key, %groups;
    .reg .${plan.groups.ptx_type} %sum, %addend;
% for line in (*plan.groups.declarations, *plan.groups.key_temporaries(axis)):
    ${line}
% endfor
% for v in plan.groups.key_vectors(axis):
    .reg .b64 %${v.name};
    .reg .${v.ptx_type} %${v.name}_at;
    ld.param.u64 %${v.name}, [${v.name}];
    cvta.to.global.u64 %${v.name}, %${v.name};
% endfor
    ld.param.u64 %values, [sink_offset];
    add.u64 %values, %values, %workspace;
    mul.wide.u32 %sums, %M, %N;
    mad.lo.u64 %sums, %sums, ${plan.groups.bytes}, %values;
    ld.param.u32 %groups, [${plan.groups.extent_of["i"]}];
    mul.wide.u32 %row_bytes, %N, ${plan.groups.bytes};
</%def>

## The key of an axis at %index.
<%def name="read_key(axis)">
% for v in plan.groups.key_vectors(axis):
    mad.wide.u32 %key_addr, %index, ${v.bytes}, %${v.name};
    ld.global.nc.${v.access} %${v.name}_at, [%key_addr];
% endfor
% for line in plan.groups.key_lines(axis):
    ${line}
% endfor
</%def>

<%def name="add_rows()">

// sums[group][column] = the values of a column of results, reduced in the order of rows
${open_ordered("add_rows", "i")}\
    setp.ge.u32 %p, %thread, %N;
    @%p bra DONE;
    mad.wide.u32 %values, %thread, ${plan.groups.bytes}, %values;
    mad.wide.u32 %sums, %thread, ${plan.groups.bytes}, %sums;
    mov.u64 %group_addr, %sums;
    mov.u32 %index, 0;
    mov.${plan.groups.ptx_type} %sum, ${plan.groups.identity};
CLEAR:
    setp.ge.u32 %p, %index, %groups;
    @%p bra CLEARED;
    st.global.${plan.groups.type} [%group_addr], %sum;
    add.u64 %group_addr, %group_addr, %row_bytes;
    add.u32 %index, %index, 1;
    bra CLEAR;
CLEARED:
    mov.u32 %index, 0;
ADD:
${read_key("i")}\
    setp.ge.u32 %p, %key, %groups;
    @%p bra NEXT;
    mul.wide.u32 %group_index, %key, %N;
    mad.lo.u64 %group_addr, %group_index, ${plan.groups.bytes}, %sums;
    ld.global.${plan.groups.type} %sum, [%group_addr];
    ld.global.${plan.groups.type} %addend, [%values];
% for line in plan.groups.join("%sum", "%addend"):
    ${line}
% endfor
    st.global.${plan.groups.type} [%group_addr], %sum;
NEXT:
    add.u64 %values, %values, %row_bytes;
    add.u32 %index, %index, 1;
    setp.lt.u32 %p, %index, %M;
    @%p bra ADD;
DONE:
    ret;
}
</%def>

<%def name="add_columns()">

// C = the sums of a group of rows, reduced in the order of columns
${open_ordered("add_columns", "j")}\
    setp.ge.u32 %p, %thread, %groups;
    @%p bra DONE;
    mul.wide.u32 %group_index, %thread, %N;
    mad.lo.u64 %sums, %group_index, ${plan.groups.bytes}, %sums;
    ld.param.u32 %groups, [${plan.groups.extent_of["j"]}];
    mov.u32 %index, 0;
ADD:
${read_key("j")}\
    setp.ge.u32 %p, %key, %groups;
    @%p bra NEXT;
% if plan.groups.sink.transposed:
    mul.wide.u32 %group_index, %key, %group_columns;
    cvt.u64.u32 %group_addr, %thread;
% else:
    mul.wide.u32 %group_index, %thread, %group_columns;
    cvt.u64.u32 %group_addr, %key;
% endif
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${plan.groups.bytes}, %C;
    ld.global.${plan.groups.type} %sum, [%group_addr];
    ld.global.${plan.groups.type} %addend, [%sums];
% for line in plan.groups.join("%sum", "%addend"):
    ${line}
% endfor
    st.global.${plan.groups.type} [%group_addr], %sum;
NEXT:
    add.u64 %sums, %sums, ${plan.groups.bytes};
    add.u32 %index, %index, 1;
    setp.lt.u32 %p, %index, %N;
    @%p bra ADD;
DONE:
    ret;
}
</%def>
