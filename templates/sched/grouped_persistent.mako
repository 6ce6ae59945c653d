## The grid has as many blocks as multiprocessors; each block loops over the tiles of all items of a jagged group.
<%namespace name="coords" file="/sched/tile_coords.mako"/>
<%namespace name="turns" file="/sched/pingpong_turns.mako"/>
<%def name="registers()">
    .reg .b64 %table, %descriptor, %c_base;
    .reg .b32 %items, %item, %item_tile, %lower_bound, %count, %rows_end, %far, %row_shift;
    .reg .pred %starts_before;
    ld.param.u64 %table, [table];  ld.param.u32 %items, [items];
% if plan.scheduler.jagged:
    add.u64 %table, %table, %workspace;
% else:
    .reg .${plan.arithmetic.type} %item_scale;
% endif
    cvta.to.global.u64 %table, %table;
    mov.b64 %c_base, %C;
    mov.u32 %far, ${plan.scheduler.FAR};
</%def>

<%def name="open(who)">
<% s, ctas = plan.scheduler, plan.pipeline.multicast_ctas %>\
    // ---- tile loop: a block starts at the tile of its index and advances by the size of the grid
    mov.u32 %tile, %ctaid.x;
    mov.u32 %tile_step, %nctaid.x;
    ld.global.u32 %tiles, [%table+4];
% if ctas > 1:
    // the table counts tiles of a cluster
    mul.lo.u32 %tiles, %tiles, ${ctas};
% endif
% if plan.config.pingpong and who == "CONSUMER":
${turns.first()}\
% endif
    .pragma "nounroll";
${who}_TILE:
    setp.ge.u32 %p, %tile, %tiles;
    @%p ${plan.scheduler.bra[who]} ${who}_END;
    ${s.counted_tile}
% if who == "CONSUMER":
${find_by_warp()}\
% else:
${find_by_thread()}\
% endif
    add.u32 %tmp0, %items, 3;
    shr.u32 %tmp0, %tmp0, 2;
    mad.wide.u32 %descriptor, %tmp0, 16, %table;
    mad.wide.u32 %descriptor, %lower_bound, ${s.table.descriptor_bytes}, %descriptor;
    add.u64 %descriptor, %descriptor, ${s.HEADER};
    ld.global.u32 %M, [%descriptor+${s.table.offsets["m"]}];
% if not s.jagged:
    ld.global.u32 %N, [%descriptor+${s.table.offsets["n"]}];
% endif
    ld.global.v2.u32 {%tmp0, %item}, [%descriptor+${s.table.offsets["first"]}];
    ld.global.u32 %rows_end, [%descriptor+${s.table.offsets["start"]}];
% if ctas > 1:
    mul.lo.u32 %tmp0, %tmp0, ${ctas};
% endif
    sub.u32 %item_tile, %tile, %tmp0;
${coords.tile_counts()}\
${coords.from_number()}\
% if s.jagged == "m":
${coords.k_slice()}\
    // the rows of the item are the last of those that the tensor maps of A and C count
    add.u32 %rows_end, %rows_end, %M;
    sub.u32 %row_shift, %far, %M;
% else:
  % if s.packed:
    // an item has at least one iteration, of zeros
    ld.global.u32 %K, [%descriptor+${s.table.offsets["k"]}];
    mov.u32 %k0, 0;
    max.u32 %tmp0, %K, 1;
  % else:
    // an item has at least one iteration, of zeros; its rows are the last of those that the tensor maps of A and B count
    ld.global.u32 %tmp0, [%descriptor+${s.table.offsets["k"]}];
    add.u32 %rows_end, %rows_end, %tmp0;
    sub.u32 %k0, %far, %tmp0;
    max.u32 %tmp0, %tmp0, 1;
  % endif
    add.u32 %tmp0, %tmp0, ${s.last_k};
    div.u32 %k_iters, %tmp0, ${plan.config.u};
% endif
% if who == "PRODUCER":
  % if s.jagged == "m":
    add.u32 %${s.row_side}0, %${s.row_side}0, %row_shift;
  % endif
  % for side, at in s.first_packed_rows:
    // from rows of the item to packed rows
    ld.global.u32 %tmp0, [%descriptor+${at}];
    add.u32 %${side}0, %${side}0, %tmp0;
  % endfor
  % if s.rows_read_once:
    // L2 keeps B for the other tiles along M of an item that has several
    setp.le.u32 %p, %M, ${s.rows_read_once};
    @!%p createpolicy.fractional.L2::evict_normal.b64 %policy, 1.0;
    @%p createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
  % endif
% elif not plan.epilogue.via_tma:
    ld.global.u64 %tmp64, [%descriptor+${s.table.offsets["c"]}];
    add.u64 %C, %c_base, %tmp64;
    ld.global.u32 %ldc, [%descriptor+${s.table.offsets["ldc"]}];
  % for name in s.item_scalars:
    ld.param.${plan.arithmetic.type} %${name}, [${name}];
    ld.global.${plan.arithmetic.type} %item_scale, [%descriptor+${s.table.offsets[name]}];
    ${plan.arithmetic.mul} %${name}, %${name}, %item_scale;
  % endfor
% endif
</%def>

## %lower_bound, the item of tile %item_tile: the last one whose first tile is not above it.
<%def name="find_by_thread()">
    mov.u32 %lower_bound, 0;
    mov.u32 %count, %items;
    .pragma "nounroll";
FIND_BY_THREAD:
    shr.u32 %tmp0, %count, 1;
    add.u32 %tmp1, %lower_bound, %tmp0;
    mad.wide.u32 %tmp64, %tmp1, 4, %table;
    ld.global.u32 %tmp2, [%tmp64+${plan.scheduler.HEADER}];
    setp.le.u32 %starts_before, %tmp2, %item_tile;
    selp.b32 %lower_bound, %tmp1, %lower_bound, %starts_before;
    @%starts_before sub.u32 %tmp0, %count, %tmp0;
    mov.u32 %count, %tmp0;
    setp.gt.u32 %p, %count, 1;
    @%p bra FIND_BY_THREAD;
</%def>

## The same by all lanes of a warp, which compare 32 items in each round.
<%def name="find_by_warp()">
    mov.u32 %lower_bound, 0;
    mov.u32 %count, %items;
    .pragma "nounroll";
FIND_BY_WARP:
    { // lanes compare the first tiles of every %stride-th item
    .reg .b32 %stride, %pivot, %first_tile;
    add.u32 %stride, %count, 31;
    shr.u32 %stride, %stride, 5;
    mul.lo.u32 %pivot, %lane, %stride;
    setp.lt.u32 %starts_before, %pivot, %count;
    add.u32 %tmp0, %lower_bound, %pivot;
    mad.wide.u32 %tmp64, %tmp0, 4, %table;
    mov.u32 %first_tile, -1;
    @%starts_before ld.global.u32 %first_tile, [%tmp64+${plan.scheduler.HEADER}];
    setp.le.u32 %starts_before, %first_tile, %item_tile;
    vote.sync.ballot.b32 %tmp0, %starts_before, -1;
    popc.b32 %tmp0, %tmp0;
    sub.u32 %tmp0, %tmp0, 1;
    mul.lo.u32 %tmp0, %tmp0, %stride;
    add.u32 %lower_bound, %lower_bound, %tmp0;
    sub.u32 %count, %count, %tmp0;
    min.u32 %count, %count, %stride;
    }
    setp.gt.u32 %p, %count, 1;
    @%p bra.uni FIND_BY_WARP;
</%def>

<%def name="close(who)">
% if plan.config.pingpong and who == "CONSUMER":
${turns.next()}\
% endif
    add.u32 %tile, %tile, %tile_step;
    ${plan.scheduler.bra[who]} ${who}_TILE;
${who}_END:
</%def>
