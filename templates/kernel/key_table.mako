## Finds distinct keys by a hash table, and the number of each key among the sorted keys.
<%inherit file="/prepare/module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%def name="entry(name, parameters)">\
.visible .entry ${name}(
% for line in parameters.declarations:
    ${line}
% endfor
)
.maxntid ${plan.threads}, 1, 1
{
</%def>\
<%def name="addresses(*names)">\
    .reg .b64 ${", ".join(f"%{name}" for name in names)};
% for name in names:
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
</%def>\
${entry("insert_keys", plan.insert_keys)}\
    .shared .align 8 .b8 block_table[${plan.block_table_bytes}];
    .reg .b64 %key, %hash, %old, %slot_addr, %zero;
    .reg .b32 %count, %slot_mask, %place, %end, %first_slot, %slot, %probes, %block_table, %block_slot, %tmp0;
    .reg .pred %p;
${addresses("keys", "table", "distinct", "counts")}\
    ld.param.u32 %count, [count];  ld.param.u32 %slot_mask, [slot_mask];
    mov.b64 %zero, 0;
    mov.u32 %block_table, block_table;
    mov.u32 %tmp0, %tid.x;
${ptx.banner(f"the block's table: {plan.BLOCK_SLOTS} empty slots")}\
    mad.lo.u32 %block_slot, %tmp0, 8, %block_table;
% for offset in plan.cleared_slots:
    st.shared.u64 [%block_slot+${offset}], %zero;
% endfor
    mov.u32 %place, %ctaid.x;
    mad.lo.u32 %end, %place, ${plan.BLOCK_KEYS}, ${plan.BLOCK_KEYS};
    min.u32 %end, %end, %count;
    mad.lo.u32 %place, %place, ${plan.BLOCK_KEYS}, %tmp0;
    // ---- wait: all slots of the block are empty
    bar.sync 0;
${ptx.banner(f"each thread inserts a key of {plan.threads}: in the block's table, and if it is new there, in that of all blocks")}\
    .pragma "nounroll";
NEXT_KEY:
    setp.ge.u32 %p, %place, %end;
    @%p bra DONE;
    mad.wide.u32 %slot_addr, %place, ${plan.key_bytes}, %keys;
    ld.global.nc.${plan.type} %key, [%slot_addr];
    xor.b64 %key, %key, 0x8000000000000000;
    setp.ne.u64 %p, %key, 0;
    @%p bra HASH;
    // the key whose slot would be empty
    red.relaxed.gpu.global.or.b32 [%counts+4], 1;
    bra.uni INSERTED;
HASH:
    mul.lo.u64 %hash, %key, 0x9e3779b97f4a7c15;
    shr.u64 %hash, %hash, 32;
    cvt.u32.u64 %first_slot, %hash;
    and.b32 %slot, %first_slot, ${plan.block_slot_mask};
    mov.b32 %probes, ${plan.PROBES};
    .pragma "nounroll";
BLOCK_PROBE:
    mad.lo.u32 %block_slot, %slot, 8, %block_table;
    atom.relaxed.cta.shared.cas.b64 %old, [%block_slot], 0, %key;
    setp.eq.u64 %p, %old, %key;
    @%p bra INSERTED;
    setp.eq.u64 %p, %old, 0;
    @%p bra NEW_IN_BLOCK;
    add.u32 %slot, %slot, 1;
    and.b32 %slot, %slot, ${plan.block_slot_mask};
    sub.u32 %probes, %probes, 1;
    setp.ne.u32 %p, %probes, 0;
    @%p bra BLOCK_PROBE;
NEW_IN_BLOCK:
    and.b32 %slot, %first_slot, %slot_mask;
    .pragma "nounroll";
PROBE:
    mad.wide.u32 %slot_addr, %slot, 8, %table;
    atom.relaxed.gpu.global.cas.b64 %old, [%slot_addr], 0, %key;
    setp.eq.u64 %p, %old, %key;
    @%p bra INSERTED;
    setp.eq.u64 %p, %old, 0;
    @%p bra NEW;
    add.u32 %slot, %slot, 1;
    and.b32 %slot, %slot, %slot_mask;
    bra PROBE;
NEW:
    atom.relaxed.gpu.global.add.u32 %slot, [%counts], 1;
    mad.wide.u32 %slot_addr, %slot, 8, %distinct;
    xor.b64 %key, %key, 0x8000000000000000;
    st.global.u64 [%slot_addr], %key;
INSERTED:
    add.u32 %place, %place, ${plan.threads};
    bra NEXT_KEY;
DONE:
    ret;
}

${entry("number_keys", plan.number_keys)}\
    .reg .b64 %key, %middle_key, %ptr;
    .reg .b32 %count, %distinct_count, %place, %first, %last, %middle, %tmp0;
    .reg .pred %p;
${addresses("keys", "distinct", "numbers")}\
    ld.param.u32 %count, [count];  ld.param.u32 %last, [distinct_count];
    mov.u32 %place, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %place, %tmp0, ${plan.threads}, %place;
    setp.ge.u32 %p, %place, %count;
    @%p bra DONE;
    mad.wide.u32 %ptr, %place, ${plan.key_bytes}, %keys;
    ld.global.nc.${plan.type} %key, [%ptr];
    mov.b32 %first, 0;
${ptx.banner("the key is one of %first to %last - 1 of the distinct keys, which ascend")}\
    .pragma "nounroll";
SEARCH:
    setp.ge.u32 %p, %first, %last;
    @%p bra FOUND;
    add.u32 %middle, %first, %last;
    shr.u32 %middle, %middle, 1;
    mad.wide.u32 %ptr, %middle, 8, %distinct;
    ld.global.nc.u64 %middle_key, [%ptr];
    setp.lt.${plan.compared_type} %p, %middle_key, %key;
    @!%p mov.b32 %last, %middle;
    @%p add.u32 %first, %middle, 1;
    bra SEARCH;
FOUND:
    mad.wide.u32 %ptr, %place, 4, %numbers;
    st.global.u32 [%ptr], %first;
DONE:
    ret;
}
