## Packs the filters of a strided input gradient whose phases are columns of C: a row of channels for each phase, channel of C and
## tap, zeros where the phase lacks the tap.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
<% x = plan.packing %>\

// the phases of the stride are columns of C: a copy of ${x.name.upper()}, each thread copies 16 bytes
.visible .entry ${plan.entry}_pack_filters(
% for line in x.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${x.THREADS}, 1, 1
{
    .reg .b64 %base, %workspace, %global_addr, %channel_bytes;
    .reg .b32 ${", ".join(f"%{name}" for name in x.NAMES)};
    .reg .b32 %chunk, %row, %flat_index, %digit, %offset, %channel, %tap<2>, %tmp0, %word<4>;
    .reg .pred %p, %in_filter;
    ${x.loaded.declaration}
% for name in x.NAMES:
    ld.param.u32 %${name}, [${name}];
% endfor
    ld.param.u64 %workspace, [W];
    ld.param.u64 %base, [${x.name.upper()}];
    cvta.to.global.u64 %workspace, %workspace;
    cvta.to.global.u64 %base, %base;
${pdl.trigger_and_wait()}\
    // chunk %chunk of the copy: row %row, from channel %channel
    mov.u32 %chunk, %ctaid.x;
    mov.u32 %tmp0, %tid.x;
    mad.lo.u32 %chunk, %chunk, ${x.THREADS}, %tmp0;
    div.u32 %row, %chunk, %row_chunks;
    setp.ge.u32 %p, %row, %rows;
    @%p bra DONE;
    mul.lo.u32 %tmp0, %row, %row_chunks;
    sub.u32 %channel, %chunk, %tmp0;
    mul.lo.u32 %channel, %channel, ${x.loaded.size};
    // the digits of the row: tap along each axis, channel of C, remainder along each axis
    mov.u32 %flat_index, %row;
${digit("taps0")}\
    mul.lo.u32 %tap0, %digit, %stride0;
    sub.u32 %tap0, %first0, %tap0;
${digit("taps1")}\
    mul.lo.u32 %tap1, %digit, %stride1;
    sub.u32 %tap1, %first1, %tap1;
${digit("columns")}\
    mul.lo.u32 %offset, %digit, %column_step;
${digit("stride0")}\
    add.u32 %tap0, %tap0, %digit;
    add.u32 %tap1, %tap1, %flat_index;
    // the tap of the filter, if the phase has it
    setp.lt.u32 %in_filter, %tap0, %extent0;
    setp.lt.and.u32 %in_filter, %tap1, %extent1, %in_filter;
    mad.lo.u32 %offset, %tap0, %tap_step0, %offset;
    mad.lo.u32 %offset, %tap1, %tap_step1, %offset;
    mad.lo.u32 %offset, %channel, %channel_step, %offset;
    mad.wide.u32 %global_addr, %offset, ${x.size}, %base;
    mul.wide.u32 %channel_bytes, %channel_step, ${x.size};
% for e, element in enumerate(x.loaded.all):
    mov.${x.loaded.kind} ${element}, 0;
    add.u32 %tmp0, %channel, ${e};
    setp.lt.and.u32 %p, %tmp0, %channels, %in_filter;
    @%p ld.global.nc.${x.loaded.kind} ${element}, [%global_addr];
    add.u64 %global_addr, %global_addr, %channel_bytes;
% endfor
% for n, word in enumerate(x.words):
    mov.b32 %word${n}, ${word};
% endfor
    mad.wide.u32 %global_addr, %chunk, 16, %workspace;
    mad.wide.u32 %global_addr, %copy_offset128, ${x.ROW}, %global_addr;
    st.global.v4.b32 [%global_addr], {%word0, %word1, %word2, %word3};
DONE:
    ret;
}
</%def>

## %digit: the last digit of %flat_index; %flat_index: the others.
<%def name="digit(extent)">
    div.u32 %tmp0, %flat_index, %${extent};
    mul.lo.u32 %digit, %tmp0, %${extent};
    sub.u32 %digit, %flat_index, %digit;
    mov.u32 %flat_index, %tmp0;
</%def>
