## For all lanes of the warp: the words of a bitmap, each with the address of its first nonzero.
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="lanes" file="/ptx/shuffle.mako"/>\
<%def name="expand()">
<% x = plan.mainloop %>\
${ptx.banner("lane to word of the bitmap: the address of its first nonzero")}\
    .reg .b32 %word, %value_at;
    mad.lo.u32 %tmp0, %lane, 4, %slot;
    ld.shared.b32 %word, [%tmp0];
    popc.b32 %tmp0, %word;
    mov.b32 %value_at, %tmp0;
    {
    .reg .b32 %lower;
${lanes.add_lower("%value_at", "%lower")}\
    }
    sub.u32 %value_at, %value_at, %tmp0;
    mad.lo.u32 %value_at, %value_at, ${x.size}, %slot;
    add.u32 %value_at, %value_at, ${x.values_at};
    mad.lo.u32 %tmp0, %lane, 8, %decoded;
    st.shared.v2.b32 [%tmp0], {%word, %value_at};
    bar.warp.sync 0xffffffff;
</%def>
