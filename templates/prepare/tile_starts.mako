## A warp finds the first nonzero of a row of A in each tile of columns. The columns of a row must not decrease.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<% starts = plan.preparation %>\
.visible .entry find_tile_starts(
% for line in starts.parameters.declarations:
    ${line}
% endfor
)
.maxntid ${starts.threads}, 1, 1
{
    .reg .b64 %tile_starts, %indptr, %indices, %ptr_row, %ptr_index, %ptr_start;
    .reg .b32 %M, %tiles, %row, %lane, %nonzero, %begin, %end, %tile, %last_tile, %pitch, %tmp0;
    .reg .pred %p, %first;

% for name in ("tile_starts", "indptr", "indices"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %tiles, [tiles];
${ptx.banner("warp to row")}\
    mov.u32 %lane, %tid.x;
    mov.u32 %row, %ctaid.x;
    mad.lo.u32 %row, %row, ${starts.threads}, %lane;
    shr.u32 %row, %row, 5;
    setp.ge.u32 %p, %row, %M;
    @%p bra DONE;
    and.b32 %lane, %lane, 31;
    mad.wide.u32 %ptr_row, %row, 4, %indptr;
    ld.global.nc.u32 %begin, [%ptr_row];
    ld.global.nc.u32 %end, [%ptr_row+4];
    add.u32 %pitch, %tiles, 1;
    mul.wide.u32 %ptr_row, %row, %pitch;
    shl.b64 %ptr_row, %ptr_row, 2;
    add.u64 %ptr_row, %ptr_row, %tile_starts;
${ptx.banner("a lane stores its nonzero as the start of the tiles after that of the nonzero before it, up to its own")}\
    add.u32 %nonzero, %begin, %lane;
NONZERO_LOOP:
    setp.gt.u32 %p, %nonzero, %end;
    @%p bra DONE;
    mad.wide.u32 %ptr_index, %nonzero, 4, %indices;
    mov.b32 %last_tile, %tiles; // the end of the row
    setp.lt.u32 %p, %nonzero, %end;
    @%p ld.global.nc.u32 %tmp0, [%ptr_index];
    @%p div.u32 %last_tile, %tmp0, ${starts.tile_k};
    mov.b32 %tile, 0;
    setp.ne.u32 %p, %nonzero, %begin;
    @%p ld.global.nc.u32 %tmp0, [%ptr_index+-4];
    @%p div.u32 %tile, %tmp0, ${starts.tile_k};
    @%p add.u32 %tile, %tile, 1;
TILE_LOOP:
    setp.gt.u32 %p, %tile, %last_tile;
    @%p bra NEXT;
    mad.wide.u32 %ptr_start, %tile, 4, %ptr_row;
    st.global.u32 [%ptr_start], %nonzero;
    add.u32 %tile, %tile, 1;
    bra TILE_LOOP;
NEXT:
    add.u32 %nonzero, %nonzero, 32;
    bra NONZERO_LOOP;
DONE:
    ret;
}
