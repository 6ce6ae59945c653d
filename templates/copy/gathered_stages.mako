## A warpgroup gathers the pixels of whole stages; one of its threads loads the filters by TMA. All threads arrive at the full
## barrier of the stage. Each thread has two batches of elements: it loads one, then stores the other, which it has loaded before.
<%namespace name="tma" file="/copy/tma.mako"/>
<%namespace name="addr" file="/${context['plan'].loads.template}"/>
<%def name="threads()"></%def>
<%def name="setup()">
${tma.setup()}\
    .reg .b32 %channels_left;
    .reg .b64 %element_addr, %channel_addr<${len(plan.images.boxes)}>;
    ${plan.images.loaded.declaration}
</%def>

## The coordinates of a tile's first stage, whose first batch is loaded before the stage is free.
<%def name="begin()">
${tma.begin()}\
${channel()}\
${load(plan.images.first_batch)}\
</%def>
## The coordinates are those of the next stage already.
<%def name="step()"></%def>
<%def name="parity()">${tma.parity()}</%def>

## Fills stage %stage, whose full barrier is %full_bar.
<%def name="fill()">
<% images, filters, base = plan.images, plan.filters, plan.filter_base %>\
    {
    .reg .b32 ${plan.fill_registers}, %gather_to<${len(images.inverted)}>;
    mad.lo.u32 %stage_base, %stage, ${plan.mainloop.stage_bytes}, %smem;
% for v, _ in enumerate(images.inverted):
    mad.lo.u32 %gather_to${v}, %stage, ${plan.mainloop.stage_bytes}, %gather_place${v};
% endfor
    @!%elected bra EXPECTED;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full_bar], ${plan.mainloop.tx_bytes};
EXPECTED:
% for unit in range(plan.loads.units):
    @!%elected bra FILTERS${unit};
  % if filters.multicast and unit == 0:
${tma.slice(filters, base)}\
  % endif
${tma.load(filters, unit, base, filters.first)}\
FILTERS${unit}:
    // ${images.name.upper()}: this thread's pixel of each box, channels ${images.round_rows} apart
  % for following, batch in images.turns[unit]:
    % if loop.last:
${addr.step()}\
${channel()}\
    % endif
${load(following)}\
    % for x in batch:
    st.shared.b16 [${x.address}], ${x.register};
    % endfor
  % endfor
% endfor
    // tensor cores read what threads have written
    fence.proxy.async.shared::cta;
    mbarrier.arrive.shared::cta.b64 _, [%full_bar];
    }
</%def>

## The addresses of this thread's first channel of a unit of K.
<%def name="channel()">
    sub.s32 %channels_left, %image_channels, %channel;
    sub.s32 %channels_left, %channels_left, %gather_channel;
% for n, _ in enumerate(plan.images.boxes):
    mad.wide.u32 %channel_addr${n}, %channel, %channel_bytes, %pixel_addr${n};
% endfor
</%def>

## Loads a batch: zeros for pixels outside the image, and after the last channel.
<%def name="load(batch)">
% for x in batch:
    mov.b16 ${x.register}, 0;
    setp.gt.and.s32 %p, %channels_left, ${x.row}, %in_image${x.box};
  % if x.round:
    mad.wide.u32 %element_addr, %round_bytes, ${x.round}, %channel_addr${x.box};
  % endif
    @%p ld.global.nc.b16 ${x.register}, [${x.source}];
% endfor
</%def>
