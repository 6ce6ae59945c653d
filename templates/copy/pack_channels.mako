## Packs images, filters or both to rows of channels: a block takes some channels of some places, and transposes them in
## shared memory.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
<% t = plan.packing.operands[0] %>\

// im2col maps need pixels with contiguous channels: a copy of ${" and ".join(x.name.upper() for x in plan.packing.operands)}
.visible .entry ${plan.entry}_pack_channels(
    .param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,
% for line in plan.fused_ops.parameters:
    ${line}
% endfor
% for line in plan.packing.parameters:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %base, %W, %from, %hop, %leap, %row64, %t64;
    .reg .b32 %block, %thread, %smem, %to, ${", ".join(f"%{name}" for name in t.NAMES)};
    .reg .b32 %first, %word, %g, %w, %j, %o, %m, %i, %d, %t0, %word<4>;
    .reg .pred %p, %in;
% for x in plan.packing.operands:
    ${x.loaded.declaration}
% endfor
    ld.param.u64 %W, [W];
    cvta.to.global.u64 %W, %W;
${pdl.trigger_and_wait()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    mov.u32 %block, %ctaid.x;
% if len(plan.packing.operands) > 1:
    // the first blocks copy A, the others B
    ld.param.u32 %t0, [blocks_a];
    setp.lt.u32 %p, %block, %t0;
    @%p bra.uni OPERAND_A;
    sub.u32 %block, %block, %t0;
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
    // ---- ${x.name.upper()}: the block's first place and first word of channels
    div.u32 %t0, %block, %tiles;
    mul.lo.u32 %first, %t0, %tiles;
    sub.u32 %word, %block, %first;
    mul.lo.u32 %word, %word, ${x.words};
    mul.lo.u32 %first, %t0, ${x.columns};
% if x.contiguous_channels:
    and.b32 %w, %thread, ${x.threads_across - 1};
    div.u32 %g, %thread, ${x.threads_across};
% else:
    and.b32 %g, %thread, ${x.threads_across - 1};
    div.u32 %w, %thread, ${x.threads_across};
% endif
    // load channel %d of place %j: channels are %hop bytes apart; %leap bytes from the last one of a word to the next round
    add.u32 %d, %word, %w;
    mul.lo.u32 %d, %d, ${x.word_elements};
    mul.wide.u32 %hop, %step, ${x.size};
    mul.lo.u64 %leap, %hop, ${x.threads_down * x.word_elements - (x.word_elements - 1)};
${constants.mad("%j", "%g", x.vec, "%first")}\
% if not x.contiguous_channels:
${place("%j")}\
    setp.lt.u32 %in, %j, %places;
% endif
% for r in range(x.rounds):
% if x.contiguous_channels:
${place("%j")}\
    setp.lt.u32 %in, %j, %places;
% endif
% for e in range(x.word_elements):
% for q in range(x.loaded.shape[2]):
    mov.${x.loaded.kind} ${x.loaded[r, e, q]}, 0;
% endfor
${constants.add("%t0", "%d", e if x.contiguous_channels else r * x.threads_down * x.word_elements + e)}\
    setp.lt.and.u32 %p, %t0, %depth, %in;
    @%p ld.global.nc.${x.load} ${x.loaded.vector(r, e, 0, n=x.loaded.shape[2])}, [%from];
    add.u64 %from, %from, ${"%leap" if e + 1 == x.word_elements else "%hop"};
% endfor
% if x.contiguous_channels:
    add.u32 %j, %j, ${x.threads_down};
% endif
% endfor
    // write words of channels to shared memory, a place a row
    mul.lo.u32 %to, %g, ${x.vec * x.pitch};
    add.u32 %to, %to, %w;
    mad.lo.u32 %to, %to, ${x.WORD}, %smem;
% for r in range(x.rounds):
% for source, how, q in x.words_of(r):
    ${f"prmt.b32 %word0, {source}, {how}" if how else f"mov.b32 %word0, {source}"};
    st.shared.b32 [%to+${x.WORD * (q * x.pitch + r * x.threads_down * (x.pitch if x.contiguous_channels else 1))}], %word0;
% endfor
% endfor
    bar.sync 0;
    // store 16 bytes of channels a thread
    and.b32 %w, %thread, ${x.chunks - 1};
    div.u32 %g, %thread, ${x.chunks};
    mul.lo.u32 %to, %g, ${x.pitch};
    mad.lo.u32 %to, %w, ${x.CHUNK // x.WORD}, %to;
    mad.lo.u32 %to, %to, ${x.WORD}, %smem;
    mul.lo.u32 %w, %w, ${x.CHUNK};
    mad.lo.u32 %w, %word, ${x.WORD}, %w;
    add.u32 %j, %first, %g;
    mad.wide.u32 %base, %at, ${x.ROW}, %W;
    cvt.u64.u32 %t64, %w;
    add.u64 %base, %base, %t64;
    cvt.u64.u32 %row64, %row;
% for n in range(x.columns // x.places_at_once):
${digits("%j", "over", "between", "next")}\
    cvt.u64.u32 %t64, %o;
    mad.lo.u64 %from, %t64, %row64, %base;
    setp.lt.u32 %in, %w, %row;
    setp.lt.and.u32 %in, %j, %places, %in;
% for k in range(4):
    ld.shared.b32 %word${k}, [%to+${x.WORD * (n * x.places_at_once * x.pitch + k)}];
% endfor
    @%in st.global.v4.b32 [%from], {%word0, %word1, %word2, %word3};
    add.u32 %j, %j, ${x.places_at_once};
% endfor
</%def>

## The address of channel %d of a place.
<%def name="place(j)">
${digits(j, "far", "mid", "near")}\
    mad.lo.u32 %o, %d, %step, %o;
    mad.wide.u32 %from, %o, ${plan.packing.operands[0].size}, %base;
</%def>

## %o: the offset of a place, from its three digits.
<%def name="digits(j, far, mid, near)">
    div.u32 %m, ${j}, %inner;
    mul.lo.u32 %i, %m, %inner;
    sub.u32 %i, ${j}, %i;
    div.u32 %o, %m, %middle;
    mul.lo.u32 %t0, %o, %middle;
    sub.u32 %m, %m, %t0;
    mul.lo.u32 %o, %o, %${far};
    mad.lo.u32 %o, %m, %${mid}, %o;
    mad.lo.u32 %o, %i, %${near}, %o;
</%def>
