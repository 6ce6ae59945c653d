## Records of 128 bits: a key and an index of 64 bits each.
<%def name="registers()">
    .reg .pred %equal;
</%def>

## The predicate: record a is before record b.
<%def name="less(result, a, b)">
    setp.eq.u64 %equal, %${a}, %${b};
    setp.lt.and.u64 %equal, %${a}_index, %${b}_index, %equal;
    setp.lt.or.u64 %${result}, %${a}, %${b}, %equal;
</%def>

## The record after all others.
<%def name="last(record)">
    mov.b64 %${record}, -1;
    mov.b64 %${record}_index, -1;
</%def>

## %own: the record of %key and a 32-bit index.
<%def name="of_index(index)">
    ${plan.widen_key}
    cvt.u64.u32 %own_index, %${index};
</%def>

## %own: the record of %key and the pair %index_i, %index_j; %ptr: its address, from its number.
<%def name="of_pair()">
    mad.lo.u64 %ptr, %ptr, ${plan.bytes}, %records;
    ${plan.widen_key}
    mul.wide.u32 %own_index, %index_i, %columns;
    cvt.u64.u32 %tmp64, %index_j;
    add.u64 %own_index, %own_index, %tmp64;
</%def>

## %key and the 32-bit index %index_i of the record %own.
<%def name="unpack()">
    ${plan.narrow_key}
    cvt.u32.u64 %index_i, %own_index;
</%def>

## The pair %index_i, %index_j of the record %own.
<%def name="unpack_pair()">
    cvt.u64.u32 %tmp64, %columns;
    div.u64 %ptr, %own_index, %tmp64;
    cvt.u32.u64 %index_i, %ptr;
    mul.lo.u64 %ptr, %ptr, %tmp64;
    sub.u64 %ptr, %own_index, %ptr;
    cvt.u32.u64 %index_j, %ptr;
</%def>
