## What a thread of the splitting kernel does: finds its batch item, transposes rows, stores planes.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
## A batch item of the launch, if it has an operand of its own.
<%def name="item(x, p)">
    mov.u32 %t0, %ctaid.z;
    ld.param.u32 %t1, [items_${x.name}];
    setp.ge.u32 %in, %t0, %t1;
    @%in bra.uni SPLIT_DONE_${x.name.upper()};
    ld.param.u32 %t1, [each_${x.name}];
    mul.wide.u32 %t64, %t0, %t1;
    mad.lo.u64 %to, %t64, ${plan.packing.ROW}, %to;
    ld.param.u32 %t1, [first_item];
    add.u32 %t0, %t0, %t1;
    cvt.u64.u32 %t64, %t0;
    ld.param.u64 %at, [by_${x.name}];
    mad.lo.u64 %from, %t64, %at, %from;
</%def>

## Stores a plane of four elements from ``n`` on; with ``more`` planes to come the elements keep the rest.
<%def name="store_plane(n, more)">
% for w in range(2):
    cvt.rn.bf16x2.f32 %word${w}, %value${n + 2 * w + 1}, %value${n + 2 * w};
% if more:
${convert.widen_pair("bf16", "%wide0", "%wide1", f"%word{w}", ())}\
    sub.rn.f32 %value${n + 2 * w}, %value${n + 2 * w}, %wide0;
    sub.rn.f32 %value${n + 2 * w + 1}, %value${n + 2 * w + 1}, %wide1;
% endif
% endfor
    @%in st.global.v2.b32 [%at], {%word0, %word1};
% if more:
    add.u64 %at, %at, %next;
% endif
</%def>

## Where rows are contiguous in memory: transposes them through shared memory.
<%def name="transposed(x, p)">
    rem.u32 %row, %thread, ${p.BLOCK_ROWS};
    div.u32 %q, %thread, ${p.BLOCK_ROWS};
    mad.lo.u32 %t1, %row, ${p.BLOCK_PITCH}, %q;
    mad.lo.u32 %t1, %t1, 4, %smem;
    add.u32 %row, %row, %r;
    add.u32 %q, %q, %k;
    setp.lt.u32 %in, %row, %rows;
    mul.wide.u32 %t64, %q, %ld;
    cvt.u64.u32 %at, %row;
    add.u64 %t64, %t64, %at;
    mad.lo.u64 %at, %t64, 4, %from;
    mul.wide.u32 %next, %ld, ${4 * p.LOADED};
% for i in range(p.HELD):
${constants.add("%t0", "%q", i * p.LOADED)}\
    setp.lt.and.u32 %here, %t0, %K, %in;
    @%here ld.global.nc.f32 %value${i}, [%at];
    add.u64 %at, %at, %next;
% endfor
% for i in range(p.HELD):
    st.shared.f32 [%t1+${4 * i * p.LOADED}], %value${i};
% endfor
    bar.sync 0;
</%def>
