## One kernel with several tiles: a block finds its item, and executes the body of the item's tile.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="blocks" file="/${context['plan'].scheduler.template}"/>\
    .reg .b64 %table, %descriptors, %descriptor;
    .reg .b32 %items, %tile, %thread, %tile_number, %tmp0;
    .reg .pred %p;
    ld.param.u64 %table, [table];  ld.param.u32 %items, [items];
    cvta.to.global.u64 %table, %table;
    mov.u32 %thread, %tid.x;
${ptx.banner("block to item, and to the body of its tile")}\
${blocks.find()}\
    ld.global.u32 %tile_number, [%descriptor+${plan.scheduler.table.offsets["tile"]}];
% for n, body in enumerate(plan.bodies):
    setp.eq.u32 %p, %tile_number, ${n};
    @%p bra.uni TILE_${n};
% endfor
    ret;
% for n, (body, text) in enumerate(zip(plan.bodies, bodies)):
${ptx.banner(f"tile {n}: {body.block_tile} by {body.threads} threads")}\
TILE_${n}:
  % if body.threads < plan.threads:
    // the surplus threads exit; barriers do not wait for them
    setp.ge.u32 %p, %thread, ${body.threads};
    @%p ret;
  % endif
    {
${text}\
    }
% endfor
<%def name="after_entry()"></%def>\
