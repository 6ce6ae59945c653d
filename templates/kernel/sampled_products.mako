## The elements of x·yᵀ at the nonzeros of a sparse matrix in CSR. A warp has a segment of nonzeros, of which each group of
## lanes computes some at once.
<%inherit file="/prepare/module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="shuffle" file="/ptx/shuffle.mako"/>\
<% s = plan.preparation %>\
.visible .entry ${s.entry}(
% for line in s.parameters.declarations:
    ${line}
% endfor
)
.maxntid ${s.threads}, 1, 1
.minnctapersm ${s.resident_blocks}
{
    .reg .b64 %indptr, %indices, %values, %from_x, %from_y, %out, %tmp64, %lane_bytes, %ptr_x, %ptr;
    .reg .b32 %M, %N, %nnz, %ldx, %ldy, %chunk, %lane, %sub, %group, %row, %begin, %end, %segment_end, %last, %place;
    .reg .b32 %own, %step, %rows_left, %probe, %found, %bound, %tmp0;
    .reg .${s.arithmetic} %kept, %given, %scale;
    .reg .b16 %stored;
    .reg .pred %p, %inside, %stores;
    .reg .pred %has<${s.vectors}>, %upper<5>;
% for tile in s.tiles:
    ${tile.declaration}
% endfor
% for name in ("indptr", "indices", "out"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u64 %from_x, [X];  cvta.to.global.u64 %from_x, %from_x;
    ld.param.u64 %from_y, [Y];  cvta.to.global.u64 %from_y, %from_y;
% if s.scaled:
    ld.param.u64 %values, [values];  cvta.to.global.u64 %values, %values;
% endif
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %nnz, [nnz];
    ld.param.u32 %ldx, [ldx];  ld.param.u32 %ldy, [ldy];  ld.param.u32 %chunk, [chunk];
    mov.u32 %tmp0, %tid.x;
    and.b32 %lane, %tmp0, 31;
    and.b32 %sub, %tmp0, ${s.lane_mask};
    shr.u32 %group, %lane, ${s.log2_lanes};
    shr.u32 %tmp0, %tmp0, 5;
    mov.u32 %begin, %ctaid.x;
    mad.lo.u32 %begin, %begin, ${s.warps}, %tmp0; // the warp
% if s.rows:
${ptx.banner("the segment of the warp: a row")}\
    mov.u32 %row, %begin;
    setp.ge.u32 %p, %row, %M;
  % if s.synced:
    sub.u32 %tmp0, %M, 1;
    min.u32 %row, %row, %tmp0;
  % else:
    @%p bra DONE;
  % endif
    mad.wide.u32 %ptr, %row, 4, %indptr;
    ld.global.nc.u32 %begin, [%ptr];
    ld.global.nc.u32 %end, [%ptr+4];
  % if s.synced:
    @%p mov.u32 %begin, %end; // a warp without a row waits for the others
    mov.b32 %bound, 0;
  % else:
    setp.ge.u32 %p, %begin, %end;
    @%p bra DONE;
  % endif
% else:
${ptx.banner("the segment of the warp: a chunk of nonzeros")}\
    mul.lo.u32 %begin, %begin, %chunk;
    setp.ge.u32 %p, %begin, %nnz;
    @%p bra DONE;
    add.u32 %end, %begin, %chunk;
    min.u32 %end, %end, %nnz;
    mov.b32 %row, 0;
% endif
${ptx.banner("the columns of a lane, and the nonzero whose sum it has in the end")}\
    mul.wide.u32 %lane_bytes, %sub, ${s.lane_bytes};
    add.u64 %from_x, %from_x, %lane_bytes;
    add.u64 %from_y, %from_y, %lane_bytes;
% if not s.whole and not s.wide:
  % for v, column in enumerate(s.vector_columns):
    mad.lo.u32 %tmp0, %sub, ${s.vec}, ${column};
    setp.lt.u32 %has${v}, %tmp0, %N;
  % endfor
% endif
    mov.b32 %own, 0;
% for i, (bit, kept) in enumerate(s.own_bits):
    and.b32 %tmp0, %sub, ${bit};
    setp.ne.u32 %upper${i}, %tmp0, 0;
    @%upper${i} add.u32 %own, %own, ${kept};
% endfor
% if not s.rows:
SEARCH_ALL:
${ptx.banner("%row: the last one, from %row on, that begins no later than the nonzero; each lane probes one of 32 parts")}\
    sub.u32 %rows_left, %M, %row;
SEARCH:
    add.u32 %step, %rows_left, 31;
    shr.u32 %step, %step, 5;
    mul.lo.u32 %probe, %lane, %step;
    setp.lt.u32 %inside, %probe, %rows_left;
    add.u32 %tmp0, %row, %probe;
    mad.wide.u32 %ptr, %tmp0, 4, %indptr;
    mov.b32 %found, 0xffffffff;
    @%inside ld.global.nc.u32 %found, [%ptr];
    setp.le.u32 %inside, %found, %begin;
    vote.sync.ballot.b32 %tmp0, %inside, 0xffffffff;
    popc.b32 %tmp0, %tmp0;
    max.u32 %tmp0, %tmp0, 1;
    sub.u32 %tmp0, %tmp0, 1;
    mul.lo.u32 %tmp0, %tmp0, %step;
    add.u32 %row, %row, %tmp0;
    sub.u32 %rows_left, %rows_left, %tmp0;
    min.u32 %rows_left, %rows_left, %step;
    setp.gt.u32 %p, %step, 1;
    @%p bra.uni SEARCH;
% endif
SEGMENT:
% if s.rows:
    mov.u32 %segment_end, %end;
% else:
    mad.wide.u32 %ptr, %row, 4, %indptr;
    ld.global.nc.u32 %segment_end, [%ptr+4];
    min.u32 %segment_end, %segment_end, %end;
    add.u32 %tmp0, %begin, 1;
    max.u32 %segment_end, %segment_end, %tmp0;
% endif
    sub.u32 %last, %segment_end, 1;
    mul.wide.u32 %tmp64, %row, %ldx;
    mad.lo.u64 %ptr_x, %tmp64, ${s.size}, %from_x;
% if not s.wide:
${ptx.banner("the row of x")}\
${load_x()}\
% endif
% if s.synced:
TILE:
    add.u32 %bound, %bound, ${s.synced};
% endif
    .pragma "nounroll";
NONZEROS:
% if s.synced:
${ptx.banner("nonzeros up to a column at which the warps of the block wait for each other")}\
    setp.ge.u32 %p, %begin, %segment_end;
    @%p bra.uni WAIT;
    mad.wide.u32 %ptr, %begin, 4, %indices;
    ld.global.nc.u32 %tmp0, [%ptr];
    setp.ge.u32 %p, %tmp0, %bound;
    @%p bra.uni WAIT;
% endif
${ptx.banner(f"{s.unrolled} nonzeros of each group: their columns, then rows of y; those after the segment are its last one")}\
    mad.lo.u32 %place, %group, ${s.unrolled}, %begin;
% for u in range(s.unrolled):
    add.u32 %tmp0, %place, ${u};
    min.u32 %tmp0, %tmp0, %last;
    mad.wide.u32 %ptr, %tmp0, 4, %indices;
    ld.global.nc.u32 ${s.column[u]}, [%ptr];
% endfor
% for u in range(s.unrolled):
    mul.wide.u32 %tmp64, ${s.column[u]}, %ldy;
    mad.lo.u64 ${s.ptr_y[u]}, %tmp64, ${s.size}, %from_y;
    mov.${s.arithmetic} ${s.sums[u]}, ${s.zero};
% endfor
% if s.wide:
    mul.wide.u32 %tmp64, %row, %ldx;
    mad.lo.u64 %ptr_x, %tmp64, ${s.size}, %from_x;
    mov.b32 %probe, 0;
    .pragma "nounroll";
COLUMNS:
  % for v, column in enumerate(s.vector_columns):
    mad.lo.u32 %tmp0, %sub, ${s.vec}, ${column};
    add.u32 %tmp0, %tmp0, %probe;
    setp.lt.u32 %has${v}, %tmp0, %N;
  % endfor
${load_x()}\
% endif
% for u in range(s.unrolled):
  % for v in range(s.vectors):
${load(s.y_stored[u, v], s.ptr_y[u], v)}\
  % endfor
% endfor
% for u in range(s.unrolled):
  % for v in range(s.vectors):
    % for word, low, high in s.y_pairs[u, v]:
${convert.widen_pair(s.dtype, low, high, word, s.half.all)}\
    % endfor
    % if s.converts and s.vec == 1:
${convert.widen(s.dtype, s.widened[0], s.y[u, v, 0])}\
    % endif
    % for x, y in s.factors[u, v]:
    fma.rn.${s.arithmetic} ${s.sums[u]}, ${x}, ${y}, ${s.sums[u]};
    % endfor
  % endfor
% endfor
% if s.wide:
    add.u64 %ptr_x, %ptr_x, ${s.columns_bytes};
  % for u in range(s.unrolled):
    add.u64 ${s.ptr_y[u]}, ${s.ptr_y[u]}, ${s.columns_bytes};
  % endfor
    add.u32 %probe, %probe, ${s.columns};
    setp.lt.u32 %p, %probe, %N;
    @%p bra.uni COLUMNS;
% endif
% if s.lanes > 1:
${ptx.banner("the sums of the lanes of a group; while a lane has several, it gives one half and keeps the other")}\
% endif
% for i, (distance, kept) in enumerate(s.sum_steps):
  % for low, high in zip(s.sums.all[:kept], s.sums.all[kept:]):
    selp.${s.arithmetic} %given, ${low}, ${high}, %upper${i};
    selp.${s.arithmetic} %kept, ${high}, ${low}, %upper${i};
${far("%given", distance)}\
    add.rn.${s.arithmetic} ${low}, %kept, %given;
  % endfor
  % if kept == 0:
${shuffle.add_butterfly(s.arithmetic, s.sums[0], distance)}\
  % endif
% endfor
${ptx.banner("a lane stores its sum")}\
    add.u32 %place, %place, %own;
    setp.lt.u32 %stores, %place, %segment_end;
    setp.lt.u32.and %stores, %sub, ${s.unrolled}, %stores;
% if s.scaled:
    mad.wide.u32 %ptr, %place, ${s.size}, %values;
    mov.${s.arithmetic} %scale, ${s.zero};
  % if s.converts:
    mov.b16 %stored, 0;
    @%stores ld.global.nc.b16 %stored, [%ptr];
${convert.widen(s.dtype, "%scale", "%stored")}\
  % else:
    @%stores ld.global.nc.${s.arithmetic} %scale, [%ptr];
  % endif
    mul.rn.${s.arithmetic} ${s.sums[0]}, ${s.sums[0]}, %scale;
% endif
    mad.wide.u32 %ptr, %place, ${s.size}, %out;
% if s.converts:
    cvt.rn.${s.dtype}.f32 %stored, ${s.sums[0]};
    @%stores st.global.b16 [%ptr], %stored;
% else:
    @%stores st.global.${s.arithmetic} [%ptr], ${s.sums[0]};
% endif
    add.u32 %begin, %begin, ${s.at_once};
% if s.synced:
    bra.uni NONZEROS;
WAIT:
${ptx.banner("wait for the other warps, unless all nonzeros of the block are computed")}\
    setp.lt.u32 %p, %begin, %segment_end;
    bar.red.or.pred %p, 0, %p;
    @%p bra.uni TILE;
% else:
    setp.lt.u32 %p, %begin, %segment_end;
    @%p bra.uni NONZEROS;
% endif
% if not s.rows:
${ptx.banner("the next row that has a nonzero is among the next 32, or it is searched for")}\
    mov.u32 %begin, %segment_end;
    setp.ge.u32 %p, %begin, %end;
    @%p bra.uni DONE;
    add.u32 %row, %row, 1;
    add.u32 %tmp0, %row, %lane;
    setp.lt.u32 %inside, %tmp0, %M;
    mad.wide.u32 %ptr, %tmp0, 4, %indptr;
    mov.b32 %found, 0;
    @%inside ld.global.nc.u32 %found, [%ptr+4];
    setp.gt.u32 %inside, %found, %begin;
    vote.sync.ballot.b32 %tmp0, %inside, 0xffffffff;
    setp.eq.u32 %p, %tmp0, 0;
    @%p bra.uni SEARCH_ALL;
    brev.b32 %tmp0, %tmp0;
    clz.b32 %tmp0, %tmp0;
    add.u32 %row, %row, %tmp0;
    bra.uni SEGMENT;
% endif
DONE:
    ret;
}

## The vectors of this lane of a row of x, in the type of sums.
<%def name="load_x()">
<% s = plan.preparation %>\
% for v in range(s.vectors):
${load(s.x_stored[v], "%ptr_x", v)}\
% endfor
% for v in range(s.vectors):
  % for word, low, high in s.x_pairs[v]:
${convert.widen_pair(s.dtype, low, high, word, s.half.all)}\
  % endfor
  % if s.converts and s.vec == 1:
${convert.widen(s.dtype, s.x[v, 0], s.x_loaded[v, 0])}\
  % endif
% endfor
</%def>

## Vector v of a row; zeros after its end.
<%def name="load(registers, pointer, v)">
<% s = plan.preparation %>\
% if s.whole:
    ld.global.nc.${s.access} ${operand_list(registers)}, [${pointer}+${s.vector_offsets[v]}];
% else:
  % for register in registers:
    mov.b${s.register_bits} ${register}, 0;
  % endfor
    @%has${v} ld.global.nc.${s.access} ${operand_list(registers)}, [${pointer}+${s.vector_offsets[v]}];
% endif
</%def>

## The register of the lane whose number differs by ``distance``.
<%def name="far(register, distance)">
% if plan.preparation.arithmetic == "f64":
    {
    .reg .b32 %low, %high;
    mov.b64 {%low, %high}, ${register};
    shfl.sync.bfly.b32 %low, %low, ${distance}, 31, 0xffffffff;
    shfl.sync.bfly.b32 %high, %high, ${distance}, 31, 0xffffffff;
    mov.b64 ${register}, {%low, %high};
    }
% else:
    shfl.sync.bfly.b32 ${register}, ${register}, ${distance}, 31, 0xffffffff;
% endif
</%def>
