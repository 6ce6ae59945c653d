## Global addresses of an operand whose elements are found by two offsets, of a row and of a column, each looked up in a
## table. Windows over images: beside each offset a word of coordinates, which tell whether the element is inside.
<%namespace name="lanes" file="/addr/copy_thread_map.mako"/>
<%def name="setup(x)">
${lanes.own(x, f"%k_table_{x.name}")}\
    .reg .b32 %mn_off_${x.name}<${len(x.mns)}>, %k_off_${x.name}<${len(x.ks)}>;
% if x.windowed:
    .reg .b32 %mn_coord_${x.name}<${len(x.mns)}>, %k_coord_${x.name}<${len(x.ks)}>, %guard_${x.name}, %high_${x.name};
    ld.param.u32 %guard_${x.name}, [guard_${x.name}];
    ld.param.u32 %high_${x.name}, [high_${x.name}];
% endif
    // ${x.extent.lower()} stays: its offsets are looked up once
    ld.param.u64 %t64, [along_${x.name}];
    cvta.to.global.u64 %t64, %t64;
% for n, (mn, out) in enumerate(zip(x.mns, x.rows_out)):
    add.u32 %t0, %${x.extent.lower()}0, %mn_${x.name};
    add.u32 %t0, %t0, ${mn};
% if plan.predicated:
    setp.ge.u32 ${out}, %t0, %${x.extent};
% endif
% if plan.checks_bounds:
    sub.u32 %t2, ${x.limit}, ${x.edge};
    min.u32 %t0, %t0, %t2;
% endif
    mad.wide.u32 %u64, %t0, ${x.entry}, %t64;
    ${looked(x, "mn_off", "mn_coord", n)}, [%u64];
% endfor
    ld.param.u64 %t64, [down_${x.name}];
    cvta.to.global.u64 %t64, %t64;
    add.u32 %t0, %k0, %k_${x.name};
    mad.wide.u32 %k_table_${x.name}, %t0, ${x.entry}, %t64;
${look(x)}\
</%def>

<%def name="looked(x, offset, word, n)"><% return f"ld.global.nc.v2.b32 {{%{offset}_{x.name}{n}, %{word}_{x.name}{n}}}" if x.windowed else f"ld.global.nc.b32 %{offset}_{x.name}{n}" %></%def>

## What this thread's next loads need to know of k.
<%def name="look(x)">
% for n, k in enumerate(x.ks):
    ${looked(x, "k_off", "k_coord", n)}, [%k_table_${x.name}+${k * x.entry}];
% endfor
</%def>

<%def name="address(x, p)">
    add.s32 %t0, %mn_off_${x.name}${x.mns.index(p.mn)}, %k_off_${x.name}${x.ks.index(p.k)};
    mad.wide.s32 %t64, %t0, ${x.global_bytes}, %${x.name.upper()};
</%def>

<%def name="advance(x, first)">
% if first and plan.checks_bounds:
    mad.wide.u32 %k_table_${x.name}, %k_rem, ${x.entry}, %k_table_${x.name};
% else:
    add.u64 %k_table_${x.name}, %k_table_${x.name}, ${x.entry * x.depth};
% endif
${look(x)}\
</%def>

## Sets %skip where piece p must not be loaded: outside the image, or past what the first stage takes of K, or outside M
## or N.
<%def name="skip(x, p, first)">
% if x.windowed:
    add.u32 %t1, %mn_coord_${x.name}${x.mns.index(p.mn)}, %k_coord_${x.name}${x.ks.index(p.k)};
    sub.u32 %t2, %high_${x.name}, %t1;
    lop3.b32 %t1, %t1, %t2, %guard_${x.name}, ${plan.OUT_OF_IMAGE_LUT};
    setp.ne.u32 %skip, %t1, 0;
% endif
% if first and plan.checks_bounds:
    add.u32 %t0, %k_${x.name}, ${p.k};
    setp.ge${".or" if x.windowed else ""}.u32 %skip, %t0, %k_rem${", %skip" if x.windowed else ""};
% endif
% if plan.predicated and (x.windowed or first):
    or.pred %skip, %skip, ${p.out};
% endif
</%def>

<%def name="narrow(x, go)">${lanes.narrow(x, go)}</%def>
