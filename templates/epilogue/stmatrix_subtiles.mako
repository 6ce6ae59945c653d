## The tile leaves through shared memory: packed, stored by stmatrix into swizzled boxes, which are sent to C. What C holds
## comes the same way, where beta is not zero.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="boxes" file="/${context['plan'].boxes}"/>
<%namespace name="fused_ops" file="/${context['plan'].fused_ops}"/>
<%def name="setup()">
<% s = plan.staging %>\
    // where this thread hands matrix rows of 16 bytes to stmatrix
    .reg .b32 %staging, %got, %got_phase, %put<${s.variants}>;
    .reg .pred %old, %scaled;
    mad.lo.u32 %got, %wg, ${8 * plan.got_barriers}, %bars;
    add.u32 %got, %got, ${plan.got_at};
    mov.u32 %got_phase, 0;
    mad.lo.u32 %staging, %wg, ${s.bytes}, %smem;
    add.u32 %staging, %staging, ${plan.staging_at};
    {
    .reg .b32 %r, %q;
% if s.transposed:
    // columns along memory rows: pairs of matrices lie side by side along X, then along Y
    shr.u32 %q, %lane, 3;
    and.b32 %q, %q, 1;
    mad.lo.u32 %q, %quarter, 2, %q;
    and.b32 %t0, %lane, 7;
    xor.b32 %q, %q, %t0;
    shr.u32 %r, %lane, 4;
    mad.lo.u32 %r, %r, 8, %t0;
% else:
    and.b32 %r, %lane, 15;
    mad.lo.u32 %r, %quarter, 16, %r;
    shr.u32 %q, %r, ${s.shift};
    shr.u32 %t0, %lane, 4;
    xor.b32 %q, %q, %t0;
    and.b32 %q, %q, ${s.mask};
% endif
    mad.lo.u32 %r, %r, ${s.span}, %staging;
% for v in range(s.variants):
    xor.b32 %t0, %q, ${2 * v};
    mad.lo.u32 %put${v}, %t0, 16, %r;
% endfor
    }
${fused_ops.setup()}\
% if plan.brings:
    .reg .b32 %brought_phase;
    mov.u32 %brought_phase, 0;
% endif
</%def>

<%def name="registers()">
% if plan.brings:
    .reg .b64 %map_residual;
% endif
</%def>

<%def name="early()">${boxes.early()}</%def>

<%def name="store_tiles(store_c, math, store_op)">
<% s = plan.staging %>\
    {
    .reg .b32 %x, %y, %at, %x_at, %y_at, %word<4>;
    .reg .b16 %half<2>;
    .reg .f32 %wide<${8 if plan.curved else 2}>;
    mad.lo.u32 %x, %wg, ${plan.x_own}, %x0;
    mov.b32 %y, %y0;
    setp.neu.f32 %old, %beta, 0f00000000;
    setp.neu.f32 %scaled, %alpha, 0f3F800000;
    or.pred %scaled, %scaled, %old;
${fused_ops.registers()}\
% if plan.config.epilogue_aliases_ab and plan.wg > 1:
    // the operands' memory is free once every warpgroup is through
    bar.sync 1, ${128 * plan.wg};
% endif
% if plan.brings and not plan.brings_early:
${boxes.bring_first()}\
% endif
% for c in s.chunks:
    // columns ${c.index * s.columns} to ${(c.index + 1) * s.columns - 1}
<% brought = plan.brings and c.index < s.buffers %>\
% if c.waits and not brought:
${boxes.free(s)}\
% endif
% if plan.brings and not brought:
${boxes.bring(s, c)}\
% endif
    @!%scaled bra.uni ${"SCALED" if plan.scales or plan.brings else "PACK"}${c.index};
% for put in c.puts:
% for low, high in put.registers:
    mul.rn.f32 ${low}, ${low}, %alpha;
    mul.rn.f32 ${high}, ${high}, %alpha;
% endfor
% endfor
% if plan.scales or plan.brings:
SCALED${c.index}:
${fused_ops.scale_subtile(c)}\
% endif
% if plan.brings:
${sync.wait(f"%got+{s.brought(c)}", "%brought_phase")}\
% if c.index % s.buffers == s.buffers - 1:
    xor.b32 %brought_phase, %brought_phase, 1;
% endif
${boxes.merge(c, s, boxes.added)}\
% endif
    @!%old bra.uni PACK${c.index};
% if plan.brings:
${sync.warpgroup(plan.wg)}\
% endif
${boxes.fetch(s, c)}\
PACK${c.index}:
${fused_ops.finish_subtile(c)}\
% for p, put in enumerate(c.puts):
${fused_ops.activate(put, f"PACK{c.index}_{p}")}\
% for n, (low, high) in enumerate(plan.results(put)):
    cvt.rn.${plan.problem.out}x2.f32 %word${n}, ${high}, ${low};
% endfor
    stmatrix.sync.aligned.m8n8.x${len(put.registers)}${s.trans}.shared.b16 [%put${put.variant}+${put.offset}], ${s.words(put)};
% endfor
${boxes.send(s, c)}\
% endfor
    }
</%def>

<%def name="finish()">${boxes.finish()}</%def>
