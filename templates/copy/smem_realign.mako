## Operands of which a stage has lines as they lie in memory, from 16 bytes to 16 bytes: warpgroups write them to their
## places in the tile, each nearer to its start by the elements that came before its first. The tile is in the stage
## before, of which no more than that is left: this one is multiplied while that of the next is written here.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%def name="setup()">
    // the stage before, in 16 bytes, and its barriers
    .reg .b32 %beneath, %beneath_slot;
% for x in plan.lying:
    // of ${x.name.upper()}: this thread's first word in stage 0 as it comes, and in the tile
    .reg .b32 %got_${x.role}<${x.ways}>, %put_${x.role}<${x.ways}>;
    .reg .pred %odd_${x.role}<${x.ways}>, %mine_${x.role}, %both_${x.role};
    {
    .reg .b32 %at, %line, %further, %before, %turned, %start, %ld;
    ld.param.u64 %t64, [${x.name.upper()}];
    cvt.u32.u64 %start, %t64;
    shr.u32 %start, %start, 1;
    ld.param.u32 %ld, [ld${x.name}];
    and.b32 %at, ${plan.mover}, ${x.threads - 1};
    shr.u32 %line, ${plan.mover}, ${x.shift};
    div.u32 %further, %line, ${x.together};
    rem.u32 %line, %line, ${x.together};
    setp.lt.u32 %mine_${x.role}, %further, ${x.lines - (x.rounds - 1) * x.across};
% for w in range(x.ways):
% if w:
    add.u32 %line, %line, ${x.together};
% endif
    // elements from where 16 bytes begin to a line's first: the same of all lines of a residue
    mad.lo.u32 %before, %line, %ld, %start;
    and.b32 %t0, %before, 1;
    setp.ne.u32 %odd_${x.role}${w}, %t0, 0;
    and.b32 %before, %before, 6;
    mad.lo.u32 %got_${x.role}${w}, %before, 2, %smem;
    mad.lo.u32 %got_${x.role}${w}, %at, 4, %got_${x.role}${w};
    mad.lo.u32 %got_${x.role}${w}, %line, ${x.residue}, %got_${x.role}${w};
    mad.lo.u32 %got_${x.role}${w}, %further, ${x.line}, %got_${x.role}${w};
    shr.u32 %turned, %line, ${x.turn};
    and.b32 %turned, %turned, ${x.mask};
    shl.b32 %turned, %turned, 2;
    xor.b32 %turned, %turned, %at;
    mad.lo.u32 %put_${x.role}${w}, %turned, 4, %smem;
    mad.lo.u32 %t0, %further, 8, %line;
    mad.lo.u32 %put_${x.role}${w}, %t0, ${x.span}, %put_${x.role}${w};
% endfor
    and.pred %both_${x.role}, %mine_${x.role}, %odd_${x.role}0;
    }
% endfor
</%def>

<%def name="settle()">
    {
    .reg .b32 %at, %to, %low;
    .reg .b32 ${", ".join(f"%got_{x.role}_at<{x.ways}>, %put_{x.role}_at<{x.ways}>" for x in plan.lying)};
    ${plan.moved.declaration}
    setp.eq.u32 %p, %stage, 0;
    selp.b32 %beneath, ${plan.stages}, %stage, %p;
    sub.u32 %beneath, %beneath, 1;
    shl.b32 %beneath_slot, %beneath, 3;
    mul.lo.u32 %beneath, %beneath, ${plan.stage_bytes // 16};
    mul.lo.u32 %low, %stage, ${plan.stage_bytes};
% for x in plan.lying:
% for w in range(x.ways):
    add.u32 %got_${x.role}_at${w}, %got_${x.role}${w}, %low;
    mad.lo.u32 %put_${x.role}_at${w}, %beneath, 16, %put_${x.role}${w};
% endfor
% endfor
% for n in range(len(plan.batches_moved) + 1):
% if n < len(plan.batches_moved):
${read(n)}\
% endif
% if n:
${write(n - 1)}\
% endif
% endfor
    fence.proxy.async.shared::cta;
${together()}\
    }
</%def>

<%def name="twice(x, m)"><% return f"%both_{x.role}" if m.partly else f"%odd_{x.role}{m.way}" %></%def>

## Words of a batch, and those behind them where the first is half of what goes to its place.
<%def name="read(n)">
% for i, (x, m) in enumerate(plan.batches_moved[n]):
    ${f"@%mine_{x.role} " if m.partly else ""}ld.shared.b32 ${plan.moved[n % 2, 0, i]}, [%got_${x.role}_at${m.way}+${x.base + m.got}];
    @${twice(x, m)} ld.shared.b32 ${plan.moved[n % 2, 1, i]}, [%got_${x.role}_at${m.way}+${x.base + m.got + 4}];
% endfor
</%def>

<%def name="write(n)">
% for i, (x, m) in enumerate(plan.batches_moved[n]):
<% low, high = (plan.moved[n % 2, half, i] for half in range(2)) %>\
    @${twice(x, m)} prmt.b32 ${low}, ${low}, ${high}, 0x5432;
    ${f"@%mine_{x.role} " if m.partly else ""}st.shared.b32 [%put_${x.role}_at${m.way}+${x.base + m.put}], ${low};
% endfor
</%def>

<%def name="together()">
% if plan.movers > 1:
    bar.sync 1, ${128 * plan.movers};
% else:
${sync.warpgroup(plan.wg)}\
% endif
</%def>
