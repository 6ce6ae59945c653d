## The nonzeros of a row in a batch of graphs. The pointer to B is moved to the first row of the graph. Rows after the last
## graph are not computed.
<%def name="load()">
<% rows = plan.mainloop %>\
    .reg .b64 %ptr_offset, %first_row;
    .reg .b32 %groups, %graph, %step, %graph_end;
    .reg .pred %before;
    ld.param.u32 %groups, [groups];
    // the graphs that end before the row
    mov.b32 %graph, 0;
    bfind.u32 %step, %groups;
    shl.b32 %step, 1, %step;
    .pragma "nounroll";
GRAPH_LOOP:
    add.u32 %tmp0, %graph, %step;
    setp.le.and.u32 %before, %tmp0, %groups, %exists;
    mad.wide.u32 %ptr_offset, %tmp0, 4, %offsets;
    mov.b32 %graph_end, -1;
    @%before ld.global.nc.u32 %graph_end, [%ptr_offset+-4];
    setp.le.u32 %before, %graph_end, %row;
    @%before add.u32 %graph, %graph, %step;
    shr.u32 %step, %step, 1;
    setp.ne.u32 %p, %step, 0;
    @%p bra.uni GRAPH_LOOP;
    setp.lt.and.u32 %exists, %graph, %groups, %exists;
    mov.b32 %tmp0, 0;
    setp.ne.and.u32 %before, %graph, 0, %exists;
    mad.wide.u32 %ptr_offset, %graph, 4, %offsets;
    @%before ld.global.nc.u32 %tmp0, [%ptr_offset+-4];
    mul.wide.u32 %first_row, %tmp0, %pitch;
% for name in rows.from_b.all:
    add.u64 ${name}, ${name}, %first_row;
% endfor
    mad.wide.u32 %ptr_index, %row, 4, %indptr;
    @%exists ld.global.nc.u32 %begin, [%ptr_index];
    @%exists ld.global.nc.u32 %end, [%ptr_index+4];
</%def>
