## Records of 64 bits: a key above an index, of 32 bits each.
<%def name="registers()"></%def>
## The predicate: record a is before record b.
<%def name="less(result, a, b)">
    setp.lt.u64 %${result}, %${a}, %${b};
</%def>

## The record after all others.
<%def name="last(record)">
    mov.b64 %${record}, -1;
</%def>

## %own: the record of %key and a 32-bit index.
<%def name="of_index(index)">
    mov.b64 %own, {%${index}, %key};
</%def>

## %own: the record of %key and the pair %index_i, %index_j; %ptr: its address, from its number.
<%def name="of_pair()">
    mad.lo.u32 %index_i, %index_i, %columns, %index_j;
    mad.lo.u64 %ptr, %ptr, ${plan.bytes}, %records;
    mov.b64 %own, {%index_i, %key};
</%def>

## %key and the 32-bit index %index_i of the record %own.
<%def name="unpack()">
    mov.b64 {%index_i, %key}, %own;
</%def>

## The pair %index_i, %index_j of the index %index_i.
<%def name="unpack_pair()">
    mov.b32 %index_j, %index_i;
    div.u32 %index_i, %index_i, %columns;
    mul.lo.u32 %tmp0, %index_i, %columns;
    sub.u32 %index_j, %index_j, %tmp0;
</%def>
