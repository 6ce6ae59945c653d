## Operands of which a stage has lines as they lie in memory, from 16 bytes to 16 bytes: warpgroups write them to their
## places in the tile, each nearer to its start by the elements that came before its first.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%def name="setup()">
% for x in plan.lying:
    // of ${x.name.upper()}: this thread's first 16 bytes in stage 0 as they come, and in the tile
    .reg .b32 %got_${x.role}, %put_${x.role}, %select_${x.role};
    .reg .pred %fours_${x.role}, %twos_${x.role}, %mine_${x.role};
    {
    .reg .b32 %q, %line;
    shr.u32 %line, ${plan.mover}, ${x.shift};
    and.b32 %q, ${plan.mover}, ${x.threads - 1};
    setp.lt.u32 %mine_${x.role}, %line, ${x.lines - (x.rounds - 1) * x.across};
    and.b32 %t0, %line, 7;
    shr.u32 %t1, %line, 3;
    mad.lo.u32 %got_${x.role}, %t0, ${x.residue}, %smem;
    mad.lo.u32 %got_${x.role}, %t1, ${x.line}, %got_${x.role};
    mad.lo.u32 %got_${x.role}, %q, 16, %got_${x.role};
    mad.lo.u32 %put_${x.role}, %line, ${x.span}, %smem;
    shr.u32 %t1, %line, ${x.turn};
    and.b32 %t1, %t1, ${x.mask};
    xor.b32 %q, %q, %t1;
    mad.lo.u32 %put_${x.role}, %q, 16, %put_${x.role};
    // elements from where 16 bytes begin to a line's first: the same of all this thread's lines
    ld.param.u64 %t64, [${x.name.upper()}];
    cvt.u32.u64 %t2, %t64;
    shr.u32 %t2, %t2, 1;
    ld.param.u32 %t1, [ld${x.name}];
    mad.lo.u32 %t2, %t0, %t1, %t2;
    and.b32 %t0, %t2, 4;
    setp.ne.u32 %fours_${x.role}, %t0, 0;
    and.b32 %t0, %t2, 2;
    setp.ne.u32 %twos_${x.role}, %t0, 0;
    and.b32 %t0, %t2, 1;
    setp.ne.u32 %p, %t0, 0;
    selp.b32 %select_${x.role}, 0x5432, 0x3210, %p;
    }
% endfor
</%def>

<%def name="settle()">
<% moves = [(x, m) for x in plan.lying for m in x.moves] %>\
    {
    .reg .b32 %at, %low, %w<8>, %a<6>, %b<5>;
    ${plan.moved.declaration}
    mul.lo.u32 %low, %stage, ${plan.stage_bytes};
% for n, (x, m) in enumerate(moves):
% if m.partly:
    @!%mine_${x.role} bra GOT${n};
% endif
    add.u32 %at, %got_${x.role}, %low;
    ld.shared.v4.b32 {%w0, %w1, %w2, %w3}, [%at+${x.base + m.got}];
    ld.shared.v4.b32 {%w4, %w5, %w6, %w7}, [%at+${x.base + m.got + 16}];
% for i in range(6):
    selp.b32 %a${i}, %w${i + 2}, %w${i}, %fours_${x.role};
% endfor
% for i in range(5):
    selp.b32 %b${i}, %a${i + 1}, %a${i}, %twos_${x.role};
% endfor
% for i in range(4):
    prmt.b32 ${plan.moved[n, i]}, %b${i}, %b${i + 1}, %select_${x.role};
% endfor
% if m.partly:
GOT${n}:
% endif
% endfor
    // all have read what each of them writes over
${together()}\
% for n, (x, m) in enumerate(moves):
    add.u32 %at, %put_${x.role}, %low;
    ${f"@%mine_{x.role} " if m.partly else ""}st.shared.v4.b32 [%at+${x.base + m.put}], ${plan.moved.vector(n, 0, n=4)};
% endfor
    fence.proxy.async.shared::cta;
${together()}\
    }
</%def>

<%def name="together()">
% if plan.movers > 1:
    bar.sync 1, ${128 * plan.movers};
% else:
${sync.warpgroup(plan.wg)}\
% endif
</%def>
