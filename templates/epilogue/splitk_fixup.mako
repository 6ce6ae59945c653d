## Slices of K leave their sums in the workspace, where the block that finishes them waits for each: a word is zero until
## it is written, because sums are stored with bits inverted, and set back to zero by who reads it. No sum is the pattern
## that becomes zero: of floats it is a NaN that no arithmetic makes, of integers one past what K allows.
<%namespace name="batch" file="/sched/batch.mako"/>
<%def name="sum()">
    {
    .reg .b64 %home, %at;
    .reg .b32 %word<4>, %zero;
    .reg .b32 %got<${4 * plan.batch}>;
    .reg .${plan.held} %value;
    .reg .pred %some;
    // 16 bytes a thread and group of columns, at [tile][owner][slice][warpgroup][instruction][group][thread]
    mov.u32 %t0, %ctaid.x;
    mov.u32 %t1, %ctaid.y;
    mov.u32 %t2, %nctaid.x;
    mad.lo.u32 %t0, %t1, %t2, %t0;
${batch.tile_index("%t0")}\
    mul.wide.u32 %t64, %t0, ${plan.meet_bytes};
    add.u64 %home, %W, %t64;
    mul.lo.u32 %t0, %wg, ${plan.part_wg};
    mad.lo.u32 %t0, %member, 16, %t0;
    cvt.u64.u32 %t64, %t0;
    add.u64 %home, %home, %t64;
% if not plan.shares:
    // the last slice keeps its own, and finishes
    setp.eq.u32 %p, %z, ${plan.config.kg - 1};
    @%p bra.uni FINISH;
% endif
    mul.wide.u32 %t64, %z, ${plan.part};
    add.u64 %at, %home, %t64;
% for slot in plan.left:
% for n, r in enumerate(slot.into):
    xor.b32 %word${n}, ${r}, ${plan.inverted};
% endfor
    st.relaxed.gpu.global.v4.b32 [%at+${slot.offset}], {%word0, %word1, %word2, %word3};
% endfor
% if plan.shares:
% if plan.owners < plan.config.kg:
    setp.ge.u32 %p, %z, ${plan.owners};
    @%p bra.uni END;
% endif
    mul.wide.u32 %t64, %z, ${plan.part * plan.config.kg};
    add.u64 %home, %home, %t64;
    mad.lo.u32 %y0, %z, ${plan.finish}, %y0;
% else:
    bra.uni END;
FINISH:
% endif
    mov.b32 %zero, 0;
% for b, slots in enumerate(plan.batches):
READ${b}:
% for n, slot in enumerate(slots):
    ld.relaxed.gpu.global.v4.b32 ${plan.operand_list([f"%got{4 * n + i}" for i in range(4)])}, [%home+${slot.offset}];
% endfor
    setp.eq.u32 %some, %got0, 0;
% for n in range(1, 4 * len(slots)):
    setp.eq.or.u32 %some, %got${n}, 0, %some;
% endfor
    @%some bra READ${b};
% for n, slot in enumerate(slots):
    st.relaxed.gpu.global.v4.b32 [%home+${slot.offset}], {%zero, %zero, %zero, %zero};
% for i, r in enumerate(slot.into):
    xor.b32 ${r if slot.first else "%value"}, %got${4 * n + i}, ${plan.inverted};
% if not slot.first:
    ${plan.join} ${r}, ${r}, %value;
% endif
% endfor
% endfor
% endfor
    bar.warp.sync 0xffffffff;
    }
</%def>
