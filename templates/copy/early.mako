## While the producer sets up, idle warps ask the L2 cache for the lines that its first copies want.
<%def name="fetch()">
    {
    .reg .b64 %at, %from;
    .reg .b32 %line, %r, %q, %rows, %bytes;
    .reg .pred %in;
% for e in plan.early:
    // ${e.name.upper()}: ${e.rows} rows of ${e.lines} lines, from where this block begins
    ld.param.u64 %from, [${e.name.upper()}];
    cvta.to.global.u64 %from, %from;
    ld.param.u32 %t0, [ld${e.name}];
    mul.wide.u32 %t64, ${e.row}, %t0;
    cvt.u64.u32 %u64, ${e.column};
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %from, %t64, ${e.size}, %from;
    mul.wide.u32 %u64, %t0, ${e.size};
    // what is left of the matrix: rows, and bytes of a row
    sub.u32 %rows, ${e.rows_of}, ${e.row};
    sub.u32 %bytes, ${e.columns_of}, ${e.column};
    mul.lo.u32 %bytes, %bytes, ${e.size};
    mov.u32 %line, %thread;
% for n in range(e.rounds):
    div.u32 %r, %line, ${e.lines};
    mul.lo.u32 %q, %r, ${e.lines};
    sub.u32 %q, %line, %q;
    shl.b32 %q, %q, 7;
    setp.lt.s32 %in, %r, %rows;
    setp.lt.and.s32 %in, %q, %bytes, %in;
    setp.lt.and.u32 %in, %line, ${e.rows * e.lines}, %in;
    cvt.u64.u32 %t64, %r;
    mad.lo.u64 %at, %t64, %u64, %from;
    cvt.u64.u32 %t64, %q;
    add.u64 %at, %at, %t64;
    @%in prefetch.global.L2 [%at];
    add.u32 %line, %line, ${e.threads};
% endfor
% endfor
    }
</%def>
