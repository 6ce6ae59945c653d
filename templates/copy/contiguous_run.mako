## Copies of a contiguous run of bytes between global and shared memory, by all threads of a block: 16 bytes at once between
## the first and the last multiple of 16 in the run, element by element before and after. In shared memory, the run has the
## same offset from a multiple of 16 as in global memory. %run: its address, %run_bytes: its length.
<%def name="setup()">
    .reg .b64 %run, %run_addr;
    .reg .b32 %run_smem, %run_bytes, %head, %body, %tail, %run_offset, %run_at;
    .reg .b32 %run_word<4>;
    .reg .pred %in_run;
</%def>

## %run_smem: the run in shared memory; %head, %body, %tail: bytes before the first multiple of 16, from there to the last one,
## and after that.
<%def name="split(region)">
    cvt.u32.u64 %head, %run;
    and.b32 %run_smem, %head, 15;
    add.u32 %run_smem, %run_smem, ${region};
    neg.s32 %head, %head;
    and.b32 %head, %head, 15;
    min.u32 %head, %head, %run_bytes;
    sub.u32 %body, %run_bytes, %head;
    and.b32 %tail, %body, 15;
    sub.u32 %body, %body, %tail;
</%def>

<%def name="load(word, label='LOAD_RUN')">${copy(word, label, load_vector, load_element)}</%def>
<%def name="store(word)">${copy(word, "STORE_RUN", store_vector, store_element)}</%def>

## word: an element, its type and bytes.
<%def name="copy(word, label, copy_vector, copy_element)">
    shl.b32 %run_offset, %thread, 4;
    setp.ge.u32 %in_run, %run_offset, %body;
    @%in_run bra ${label}_ENDS;
    add.u32 %run_at, %run_offset, %head;
    cvt.u64.u32 %run_addr, %run_at;
    add.u64 %run_addr, %run_addr, %run;
    add.u32 %run_at, %run_at, %run_smem;
${label}:
${copy_vector()}\
    add.u32 %run_at, %run_at, ${plan.mainloop.run_step};
    add.u64 %run_addr, %run_addr, ${plan.mainloop.run_step};
    add.u32 %run_offset, %run_offset, ${plan.mainloop.run_step};
    setp.lt.u32 %in_run, %run_offset, %body;
    @%in_run bra ${label};
${label}_ENDS:
    { // elements before the first multiple of 16 bytes
    .reg .${word.ptx_type} %run_elem;
    mul.lo.u32 %run_offset, %thread, ${word.bytes};
    setp.lt.u32 %in_run, %run_offset, %head;
${element_addresses()}\
${copy_element("@%in_run ", word)}\
    // elements after the last one
    setp.lt.u32 %in_run, %run_offset, %tail;
    add.u32 %run_offset, %run_offset, %head;
    add.u32 %run_offset, %run_offset, %body;
${element_addresses()}\
${copy_element("@%in_run ", word)}\
    }
</%def>

<%def name="element_addresses()">
    add.u32 %run_at, %run_smem, %run_offset;
    cvt.u64.u32 %run_addr, %run_offset;
    add.u64 %run_addr, %run_addr, %run;
</%def>

<%def name="load_vector()">
% if plan.mainloop.cp_async:
    cp.async.cg.shared.global [%run_at], [%run_addr], 16;
% else:
    ld.global.nc.v4.b32 {%run_word0, %run_word1, %run_word2, %run_word3}, [%run_addr];
    st.shared.v4.b32 [%run_at], {%run_word0, %run_word1, %run_word2, %run_word3};
% endif
</%def>
<%def name="load_element(guard, word)">
    ${guard}ld.global.nc.${word.ptx_type} %run_elem, [%run_addr];
    ${guard}st.shared.${word.ptx_type} [%run_at], %run_elem;
</%def>

<%def name="store_vector()">
    ld.shared.v4.b32 {%run_word0, %run_word1, %run_word2, %run_word3}, [%run_at];
    st.global${plan.c.store_cache_op}.v4.b32 [%run_addr], {%run_word0, %run_word1, %run_word2, %run_word3};
</%def>
<%def name="store_element(guard, word)">
    ${guard}ld.shared.${word.ptx_type} %run_elem, [%run_at];
    ${guard}st.global${plan.c.store_cache_op}.${word.ptx_type} [%run_addr], %run_elem;
</%def>
