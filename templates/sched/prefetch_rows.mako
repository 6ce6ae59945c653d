## Prefetches the part of an operand that a tile reads to L2. All loads of the K loop then hit L2, whatever the number of
## stages.
<%def name="rows(x)">
    { // prefetch the lines of the rows of ${x.name} that the tile reads; a thread has every ${x.threads}th row
    .reg .b64 %row_addr, %row_step, %line_addr, %line_end, %inner64;
    .reg .b32 %outer, %outers, %inner, %inner_start;
% if x.kmajor:
    add.u32 %outer, ${x.start}, %thread;
    add.u32 %outers, ${x.start}, ${x.tile};
    min.u32 %outers, %outers, ${x.extent};
    mov.u32 %inner, %K;
    mov.u32 %inner_start, 0;
% else:
    mov.u32 %outer, %thread;
    mov.u32 %outers, %K;
    sub.u32 %inner, ${x.extent}, ${x.start};
    min.u32 %inner, %inner, ${x.tile};
    mov.u32 %inner_start, ${x.start};
% endif
    mul.wide.u32 %row_addr, %outer, %ld${x.name.lower()};
    cvt.u64.u32 %inner64, %inner_start;
    add.u64 %row_addr, %row_addr, %inner64;
    mad.lo.u64 %row_addr, %row_addr, ${x.bytes}, %${x.name};
    mul.wide.u32 %row_step, %ld${x.name.lower()}, ${x.row_step};
    mul.wide.u32 %inner64, %inner, ${x.bytes};
    setp.gt.u32 %p, %inner, 0;
    setp.lt.and.u32 %p, %outer, %outers, %p;
    @!%p bra PREFETCHED_${x.name};
    .pragma "nounroll";
PREFETCH_ROW_${x.name}:
    // from the line of the first element to that of the last
    add.u64 %line_end, %row_addr, %inner64;
    and.b64 %line_addr, %row_addr, ${x.BEFORE};
    .pragma "nounroll";
PREFETCH_LINE_${x.name}:
    prefetch.global.L2 [%line_addr];
    add.u64 %line_addr, %line_addr, ${x.LINE};
    setp.lt.u64 %p, %line_addr, %line_end;
    @%p bra PREFETCH_LINE_${x.name};
    add.u64 %row_addr, %row_addr, %row_step;
    add.u32 %outer, %outer, ${x.threads};
    setp.lt.u32 %p, %outer, %outers;
    @%p bra PREFETCH_ROW_${x.name};
PREFETCHED_${x.name}:
    }
</%def>
