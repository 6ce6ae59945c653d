## Packs images, filters or both to rows of channels: a block copies some channels at some positions (pixels, or taps of a filter), and
## transposes them in shared memory.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
<% t = plan.packing.operands[0] %>\

// im2col maps need pixels with contiguous channels: a copy of ${" and ".join(x.name.upper() for x in plan.packing.operands)}
.visible .entry ${plan.entry}_pack_channels(
% for line in plan.packing.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %base, %workspace, %global_addr, %channel_step, %round_step, %row_bytes64, %tmp64;
    .reg .b32 %block, %thread, %smem, %smem_addr, ${", ".join(f"%{name}" for name in t.NAMES)};
    .reg .b32 %first_position, %first_word, %position_thread, %channel_thread, %position, %offset, %middle_digit, %inner_digit, %channel, %tmp0, %word<4>;
    .reg .pred %p, %in_positions;
% for x in plan.packing.operands:
    ${x.loaded.declaration}
% endfor
    ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %workspace, %workspace;
${pdl.trigger_and_wait()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    mov.u32 %block, %ctaid.x;
% if len(plan.packing.operands) > 1:
    // the first blocks copy A, the others B
    ld.param.u32 %tmp0, [blocks_a];
    setp.lt.u32 %p, %block, %tmp0;
    @%p bra.uni OPERAND_A;
    sub.u32 %block, %block, %tmp0;
${operand(plan.packing.operands[1])}\
    bra.uni DONE;
OPERAND_A:
% endif
${operand(plan.packing.operands[0])}\
DONE:
    ret;
}
</%def>

<%def name="operand(x)">
    ld.param.u64 %base, [${x.name.upper()}];
    cvta.to.global.u64 %base, %base;
% for name in x.NAMES:
    ld.param.u32 %${name}, [${name}_${x.name}];
% endfor
    // ---- ${x.name.upper()}: the block's first position and first word of channels
    div.u32 %tmp0, %block, %channel_tiles;
    mul.lo.u32 %first_position, %tmp0, %channel_tiles;
    sub.u32 %first_word, %block, %first_position;
    mul.lo.u32 %first_word, %first_word, ${x.words};
    mul.lo.u32 %first_position, %tmp0, ${x.columns};
% if x.contiguous_channels:
    and.b32 %channel_thread, %thread, ${x.threads_across - 1};
    div.u32 %position_thread, %thread, ${x.threads_across};
% else:
    and.b32 %position_thread, %thread, ${x.threads_across - 1};
    div.u32 %channel_thread, %thread, ${x.threads_across};
% endif
    // load channel %channel at position %position: channels are %channel_step bytes apart; %round_step bytes from the last one of a word to the next round
    add.u32 %channel, %first_word, %channel_thread;
    mul.lo.u32 %channel, %channel, ${x.word_elements};
    mul.wide.u32 %channel_step, %channel_stride, ${x.size};
    mul.lo.u64 %round_step, %channel_step, ${x.threads_down * x.word_elements - (x.word_elements - 1)};
${constants.mad("%position", "%position_thread", x.vec, "%first_position")}\
% if not x.contiguous_channels:
${position_address("%position")}\
    setp.lt.u32 %in_positions, %position, %positions;
% endif
% for r in range(x.rounds):
% if x.contiguous_channels:
${position_address("%position")}\
    setp.lt.u32 %in_positions, %position, %positions;
% endif
% for e in range(x.word_elements):
% for q in range(x.loaded.shape[2]):
    mov.${x.loaded.kind} ${x.loaded[r, e, q]}, 0;
% endfor
${constants.add("%tmp0", "%channel", e if x.contiguous_channels else r * x.threads_down * x.word_elements + e)}\
    setp.lt.and.u32 %p, %tmp0, %channels, %in_positions;
    @%p ld.global.nc.${x.load} ${x.loaded.vector(r, e, 0, n=x.loaded.shape[2])}, [%global_addr];
    add.u64 %global_addr, %global_addr, ${"%round_step" if e + 1 == x.word_elements else "%channel_step"};
% endfor
% if x.contiguous_channels:
    add.u32 %position, %position, ${x.threads_down};
% endif
% endfor
    // write words of channels to shared memory: one row per position
    mul.lo.u32 %smem_addr, %position_thread, ${x.vec * x.pitch};
    add.u32 %smem_addr, %smem_addr, %channel_thread;
    mad.lo.u32 %smem_addr, %smem_addr, ${x.WORD}, %smem;
% for r in range(x.rounds):
% for source, how, q in x.words_of(r):
    ${f"prmt.b32 %word0, {source}, {how}" if how else f"mov.b32 %word0, {source}"};
    st.shared.b32 [%smem_addr+${x.WORD * (q * x.pitch + r * x.threads_down * (x.pitch if x.contiguous_channels else 1))}], %word0;
% endfor
% endfor
    // ---- wait: the block's words are in shared memory; each thread stores 16 bytes of channels
    bar.sync 0;
    and.b32 %channel_thread, %thread, ${x.chunks - 1};
    div.u32 %position_thread, %thread, ${x.chunks};
    mul.lo.u32 %smem_addr, %position_thread, ${x.pitch};
    mad.lo.u32 %smem_addr, %channel_thread, ${x.CHUNK // x.WORD}, %smem_addr;
    mad.lo.u32 %smem_addr, %smem_addr, ${x.WORD}, %smem;
    mul.lo.u32 %channel_thread, %channel_thread, ${x.CHUNK};
    mad.lo.u32 %channel_thread, %first_word, ${x.WORD}, %channel_thread;
    add.u32 %position, %first_position, %position_thread;
    mad.wide.u32 %base, %copy_offset128, ${x.ROW}, %workspace;
    cvt.u64.u32 %tmp64, %channel_thread;
    add.u64 %base, %base, %tmp64;
    cvt.u64.u32 %row_bytes64, %row_bytes;
% for n in range(x.columns // x.positions_at_once):
${digits("%position", "outer_rows", "middle_rows", "inner_rows")}\
    cvt.u64.u32 %tmp64, %offset;
    mad.lo.u64 %global_addr, %tmp64, %row_bytes64, %base;
    setp.lt.u32 %in_positions, %channel_thread, %row_bytes;
    setp.lt.and.u32 %in_positions, %position, %positions, %in_positions;
% for k in range(4):
    ld.shared.b32 %word${k}, [%smem_addr+${x.WORD * (n * x.positions_at_once * x.pitch + k)}];
% endfor
    @%in_positions st.global.v4.b32 [%global_addr], {%word0, %word1, %word2, %word3};
    add.u32 %position, %position, ${x.positions_at_once};
% endfor
</%def>

## The address of channel %channel of a position.
<%def name="position_address(j)">
${digits(j, "outer_stride", "middle_stride", "inner_stride")}\
    mad.lo.u32 %offset, %channel, %channel_stride, %offset;
    mad.wide.u32 %global_addr, %offset, ${plan.packing.operands[0].size}, %base;
</%def>

## %offset: the offset of a position, from its three digits.
<%def name="digits(j, outer, middle, inner)">
    div.u32 %middle_digit, ${j}, %inner_extent;
    mul.lo.u32 %inner_digit, %middle_digit, %inner_extent;
    sub.u32 %inner_digit, ${j}, %inner_digit;
    div.u32 %offset, %middle_digit, %middle_extent;
    mul.lo.u32 %tmp0, %offset, %middle_extent;
    sub.u32 %middle_digit, %middle_digit, %tmp0;
    mul.lo.u32 %offset, %offset, %${outer};
    mad.lo.u32 %offset, %middle_digit, %${middle}, %offset;
    mad.lo.u32 %offset, %inner_digit, %${inner}, %offset;
</%def>
