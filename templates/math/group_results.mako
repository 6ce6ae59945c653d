## A block stores its results of the groups to C.
## %count: the number of rejected pairs; %count_addr: the address at which they are counted.
<%def name="rejected(pairs)">
    ld.param.u64 %count_addr, [rejected];
    cvta.to.global.u64 %count_addr, %count_addr;
    mul.wide.u32 %count, %rejected_keys, ${pairs};
</%def>

## %out: the result.
<%def name="find_result()">
    ld.param.u64 %out, [C];
    cvta.to.global.u64 %out, %out;
</%def>
<%def name="join_kernel()"></%def>
