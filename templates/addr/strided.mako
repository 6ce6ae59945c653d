## Global addresses of an operand that is stored by rows at a leading dimension.
<%def name="setup(x)">
    .reg .b32 %mn_${x.name}, %k_${x.name}, %s_${x.name};
    .reg .b64 %step_${x.name};
% if x.swizzled:
${swizzled(x, *(("mn", "k") if x.kmajor else ("k", "mn")))}\
% elif x.kept:
    // lanes along K; the 16-byte chunk q of row mn lies at q ^ (mn >> ${x.swizzle_shift})
    shr.u32 %mn_${x.name}, %thread, ${x.log2_across};
    and.b32 %k_${x.name}, %thread, ${x.across - 1};
    mul.lo.u32 %k_${x.name}, %k_${x.name}, ${x.vec};
    shr.u32 %t0, %mn_${x.name}, ${x.swizzle_shift};
    shr.u32 %t1, %k_${x.name}, ${x.log2_chunk};
    xor.b32 %t0, %t0, %t1;
    and.b32 %t0, %t0, ${x.swizzle_q - 1};
    mad.lo.u32 %t0, %mn_${x.name}, ${x.swizzle_q}, %t0;
    and.b32 %t1, %k_${x.name}, ${x.chunk - 1};
    mad.lo.u32 %s_${x.name}, %t0, ${x.chunk}, %t1;
% elif x.transposed:
    // lanes along K fill whole sectors; their stores go down a column
    and.b32 %k_${x.name}, %thread, ${x.across - 1};
    shr.u32 %t0, %thread, ${x.log2_across};
    and.b32 %mn_${x.name}, %t0, ${x.tile - 1};
    shr.u32 %t0, %t0, ${x.log2_tile};
    mad.lo.u32 %k_${x.name}, %t0, ${x.across}, %k_${x.name};
    mul.lo.u32 %k_${x.name}, %k_${x.name}, ${x.vec};
    mad.lo.u32 %s_${x.name}, %k_${x.name}, ${x.row}, %mn_${x.name};
% else:
    // lanes along ${x.extent}
    and.b32 %mn_${x.name}, %thread, ${x.across - 1};
    mul.lo.u32 %mn_${x.name}, %mn_${x.name}, ${x.vec};
    shr.u32 %k_${x.name}, %thread, ${x.log2_across};
    mad.lo.u32 %s_${x.name}, %k_${x.name}, ${x.row}, %mn_${x.name};
% endif
    mad.lo.u32 %s_${x.name}, %s_${x.name}, ${x.bytes}, ${x.base};
% for n, (_, place) in enumerate(x.places[1:], 1):
    .reg .b32 ${place};
    xor.b32 ${place}, %s_${x.name}, ${x.turns[n] ^ x.turns[0]};
% endfor
% if x.partial:
    .reg .pred %part_${x.name}, %go_${x.name};
    setp.lt.u32 %part_${x.name}, %thread, ${x.loads};
% endif
% for out in x.rows_out if plan.predicated else ():
    .reg .pred ${out};
% endfor
${(walking if x.many else pointers)(x)}\
% if not x.kmajor:
    mul.wide.u32 %step_${x.name}, %ld${x.name}, ${x.global_bytes * x.depth};
% endif
</%def>

## Lanes along a row; its 16-byte chunks change places by the bits of the row.
<%def name="swizzled(x, row, column)">
    // lanes along ${"K" if x.kmajor else x.extent}; the 16-byte chunks of a row change places by its bits
    shr.u32 %${row}_${x.name}, %thread, ${x.log2_across};
    and.b32 %${column}_${x.name}, %thread, ${x.across - 1};
    mul.lo.u32 %${column}_${x.name}, %${column}_${x.name}, ${x.vec};
    mov.b32 %t1, %${column}_${x.name};
% for shift, mask in x.keys:
    ${"shl.b32" if shift < 0 else "shr.u32"} %t0, %${row}_${x.name}, ${abs(shift)};
    and.b32 %t0, %t0, ${mask};
    shl.b32 %t0, %t0, ${x.log2_chunk};
    xor.b32 %t1, %t1, %t0;
% endfor
    mad.lo.u32 %s_${x.name}, %${row}_${x.name}, ${x.row}, %t1;
</%def>

<%def name="row_of(x, p)">
    // load ${p.index}: ${x.extent.lower()} + ${p.mn}, k + ${p.k}
    add.u32 %t0, %${x.extent.lower()}0, %mn_${x.name};
    add.u32 %t0, %t0, ${p.mn};
    add.u32 %t1, %k_${x.name}, ${p.k};
% if plan.predicated:
    setp.ge.u32 ${p.out}, %t0, %${x.extent};
% elif plan.checked:
    sub.u32 %t2, ${x.limit}, ${x.edge};
    min.u32 %t0, %t0, %t2;
% endif
</%def>

<%def name="pointers(x)">
    .reg .b64 %ptr_${x.name}<${len(x.pieces)}>;
% for p in x.pieces:
${row_of(x, p)}\
    add.u32 %t1, %t1, %k0;
% if x.kmajor:
    mul.wide.u32 %t64, %t0, %ld${x.name};
    cvt.u64.u32 %u64, %t1;
% else:
    mul.wide.u32 %t64, %t1, %ld${x.name};
    cvt.u64.u32 %u64, %t0;
% endif
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %ptr_${x.name}${p.index}, %t64, ${x.global_bytes}, %${x.name.upper()};
% endfor
</%def>

<%def name="walking(x)">
    // one pointer walks along K; each load keeps its offset from it
    .reg .b64 %ptr_${x.name};
    .reg .b32 %off_${x.name}<${len(x.pieces)}>;
% if x.kmajor:
    mul.wide.u32 %t64, %${x.extent.lower()}0, %ld${x.name};
    cvt.u64.u32 %u64, %k0;
% else:
    mul.wide.u32 %t64, %k0, %ld${x.name};
    cvt.u64.u32 %u64, %${x.extent.lower()}0;
% endif
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %ptr_${x.name}, %t64, ${x.global_bytes}, %${x.name.upper()};
% for p in x.pieces:
${row_of(x, p)}\
    sub.u32 %t0, %t0, %${x.extent.lower()}0;
% if x.kmajor:
    mad.lo.u32 %t0, %t0, %ld${x.name}, %t1;
% else:
    mad.lo.u32 %t0, %t1, %ld${x.name}, %t0;
% endif
    mul.lo.u32 %off_${x.name}${p.index}, %t0, ${x.global_bytes};
% endfor
</%def>

## Puts the address of piece p into a register and returns the register's name.
<%def name="address(x, p)">
% if x.many:
    cvt.u64.u32 %t64, %off_${x.name}${p.index};
    add.u64 %t64, %ptr_${x.name}, %t64;
% endif
</%def>

<%def name="advance(x, first)">
<% pointers = [f"%ptr_{x.name}"] if x.many else [f"%ptr_{x.name}{p.index}" for p in x.pieces] %>\
% if first and plan.checked and not x.kmajor:
    mul.wide.u32 %u64, %ld${x.name}, %first;
    mul.lo.u64 %u64, %u64, ${x.global_bytes};
% endif
% for pointer in pointers:
% if first and plan.checked and x.kmajor:
    mad.wide.u32 ${pointer}, %first, ${x.global_bytes}, ${pointer};
% elif first and plan.checked:
    add.u64 ${pointer}, ${pointer}, %u64;
% elif x.kmajor:
    add.u64 ${pointer}, ${pointer}, ${x.global_bytes * x.depth};
% else:
    add.u64 ${pointer}, ${pointer}, %step_${x.name};
% endif
% endfor
</%def>

## Sets %skip where piece p of the first stage lies past what that stage takes of K, or outside M or N.
<%def name="skip(x, p)">
    add.u32 %t0, %k_${x.name}, ${p.k};
    setp.ge.u32 %skip, %t0, %first;
% if plan.predicated:
    or.pred %skip, %skip, ${p.out};
% endif
</%def>

## Narrows a predicate to the threads that have a load at all.
<%def name="narrow(x, go)">
% if x.partial:
    and.pred %go_${x.name}, ${go}, %part_${x.name};
% endif
</%def>
