## Stores the nonzeros of a tile into a tile of zeros in shared memory, at their offsets.
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%def name="expand()">
<% x = plan.mainloop %>\
${ptx.banner("zeros, then the nonzeros; values are in the order of offsets, from the end of the tile backwards")}\
    {
    .reg .b32 %nonzeros, %nonzero, %offset_at, %value_at, %element_at, %zero;
    .reg .b16 %offset;
    mov.b32 %zero, 0;
    mad.lo.u32 %element_at, %lane, ${x.piece}, %decoded;
% for offset in x.cleared_offsets:
    st.shared.v4.b32 [%element_at+${offset}], {%zero, %zero, %zero, %zero};
% endfor
    ld.shared.b32 %nonzeros, [%slot];
    mad.lo.u32 %offset_at, %nonzeros, ${x.offset_bytes}, ${x.offsets_end};
    and.b32 %offset_at, %offset_at, ${-x.piece};
    mad.lo.u32 %value_at, %nonzeros, ${x.size}, ${x.piece_mask};
    and.b32 %value_at, %value_at, ${-x.piece};
    add.u32 %value_at, %value_at, %offset_at;
    add.u32 %value_at, %value_at, %slot;
    mul.lo.u32 %tmp0, %lane, ${x.size};
    sub.u32 %value_at, %value_at, %tmp0;
    mad.lo.u32 %offset_at, %lane, ${x.offset_bytes}, %slot;
    mov.b32 %nonzero, %lane;
    bar.warp.sync 0xffffffff;
SCATTER_LOOP:
    setp.lt.u32 %some, %nonzero, %nonzeros;
    @%some ld.shared.b16 %offset, [%offset_at+${x.count_bytes}];
    @%some ld.shared.b${x.bits} ${x.element[0]}, [%value_at+${-x.size}];
    @%some cvt.u32.u16 %element_at, %offset;
    @%some mad.lo.u32 %element_at, %element_at, ${x.size}, %decoded;
    @%some st.shared.b${x.bits} [%element_at], ${x.element[0]};
    add.u32 %nonzero, %nonzero, 32;
    add.u32 %offset_at, %offset_at, ${x.warp_offset_bytes};
    sub.u32 %value_at, %value_at, ${x.warp_value_bytes};
    sub.u32 %tmp0, %nonzero, %lane;
    setp.lt.u32 %p, %tmp0, %nonzeros;
    @%p bra.uni SCATTER_LOOP;
    bar.warp.sync 0xffffffff;
    }
</%def>
