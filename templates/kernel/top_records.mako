## Finds the best records of rows in four steps: records of lists, sorted runs, joined runs, results.
<%inherit file="/prepare/module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="records" file="/${context['plan'].records}"/>\
<% record, key, bits = plan.record_type, plan.key_type, plan.key_bits %>\
<%def name="entry(name, parameters)">\
.visible .entry ${name}(
% for line in parameters.declarations:
    ${line}
% endfor
)
.maxntid ${plan.threads}, 1, 1
{
</%def>\
<%def name="addresses(*names)">\
% for name in names:
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
</%def>\
<%def name="record_of_thread()">\
## %place: the record of this thread; %inside: it exists
    ld.param.u64 %total, [capacity];
    ld.global.u64 %tmp64, [%count];
    min.u64 %total, %total, %tmp64;
    mov.u32 %place, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %place, %tmp0, ${plan.threads}, %place;
    cvt.u64.u32 %tmp64, %place;
    setp.lt.u64 %inside, %tmp64, %total;
</%def>\
<%def name="record_registers(*names)">\
    .reg .b64 ${plan.declared[names]};
${records.registers()}\
</%def>\
## %key: of the value at %tmp64
<%def name="load_key()">\
${ptx.banner("%key: the value as an unsigned integer that orders as values do; zeros are equal, NaN is above all numbers")}\
% if plan.dtype == "f16":
    ld.global.b16 %half, [%tmp64];
    cvt.f32.f16 %key, %half;
% elif plan.dtype == "bf16":
    ld.global.u16 %key, [%tmp64];
    shl.b32 %key, %key, 16;
% elif plan.value_bytes < 4:
    ld.global.${plan.dtype} %key, [%tmp64];
% else:
    ld.global.${key} %key, [%tmp64];
% endif
% if plan.group == "float":
    setp.nan.f${plan.key_bits} %nan, %key, %key;
    add.rn.f${plan.key_bits} %key, %key, ${plan.zero};
    shr.s${plan.key_bits} %sign, %key, ${plan.sign_shift};
    or.${key} %sign, %sign, ${plan.sign_bit};
    xor.${key} %key, %key, %sign;
    @%nan mov.${key} %key, ${plan.all_bits};
% elif plan.group == "signed":
    xor.b32 %key, %key, 0x80000000;
% endif
% if plan.greatest:
    not.${key} %key, %key;
% endif
</%def>\
% if plan.axis:
${entry("count_rows", plan.count_rows)}\
    .reg .b64 %${plan.row_list}, %count, %row_counts, %row_slots, %total, %tmp64;
    .reg .b32 %place, %row, %first_row, %tmp0;
    .reg .pred %inside;
${addresses(plan.row_list, "count", "row_counts", "row_slots")}\
${record_of_thread()}\
    @!%inside bra DONE;
    mad.wide.u32 %tmp64, %place, 4, %${plan.row_list};
    ld.global.u32 %row, [%tmp64];
    ld.param.u32 %first_row, [first_row];
    sub.u32 %row, %row, %first_row;
    mad.wide.u32 %tmp64, %row, 4, %row_counts;
    atom.global.add.u32 %tmp0, [%tmp64], 1;
    mad.wide.u32 %tmp64, %place, 4, %row_slots;
    st.global.u32 [%tmp64], %tmp0;
DONE:
    ret;
}

${entry("place_rows", plan.place_rows)}\
    .reg .b64 %row_counts, %row_offsets, %row_total, %sample_counts, %offset, %tmp64;
    .reg .b32 %row, %rows, %lane, %number, %sampled, %least, %sum, %left, %low, %high, %tmp0;
    .reg .pred %p, %inside, %short;
${addresses("row_counts", "row_offsets", "row_total", "sample_counts")}\
    ld.param.u32 %rows, [rows];
    ld.param.u32 %least, [n];
    mov.u32 %row, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    and.b32 %lane, %row, 31;
    mad.lo.u32 %row, %tmp0, ${plan.threads}, %row;
    setp.lt.u32 %inside, %row, %rows;
    mov.b32 %number, 0;
    mad.wide.u32 %tmp64, %row, 4, %row_counts;
    @%inside ld.global.u32 %number, [%tmp64];
${ptx.banner("rows with less records than a part of their pairs has")}\
    mov.b32 %sampled, 0;
    mad.wide.u32 %tmp64, %row, 4, %sample_counts;
    @%inside ld.global.u32 %sampled, [%tmp64];
    setp.lt.u32 %short, %number, %least;
    setp.ge.and.u32 %short, %sampled, %least, %short;
    setp.ne.and.u32 %short, %sampled, 0, %short;
    @%short red.global.add.u32 [%row_total+12], 1;
${ptx.banner("the most records of a row")}\
    mov.b32 %high, %number;
  % for distance in (16, 8, 4, 2, 1):
    shfl.sync.bfly.b32 %left, %high, ${distance}, 31, 0xffffffff;
    max.u32 %high, %high, %left;
  % endfor
    setp.eq.u32 %p, %lane, 0;
    @%p red.global.max.u32 [%row_total+8], %high;
${ptx.banner("%sum: records of the rows of the lanes up to this one; the last lane reserves those of the warp")}\
    mov.b32 %sum, %number;
  % for distance in (1, 2, 4, 8, 16):
    shfl.sync.up.b32 %left|%p, %sum, ${distance}, 0, 0xffffffff;
    @%p add.u32 %sum, %sum, %left;
  % endfor
    setp.eq.u32 %p, %lane, 31;
    cvt.u64.u32 %offset, %sum;
    @%p atom.global.add.u64 %offset, [%row_total], %offset;
    mov.b64 {%low, %high}, %offset;
    shfl.sync.idx.b32 %low, %low, 31, 31, 0xffffffff;
    shfl.sync.idx.b32 %high, %high, 31, 31, 0xffffffff;
    mov.b64 %offset, {%low, %high};
    sub.u32 %sum, %sum, %number;
    cvt.u64.u32 %tmp64, %sum;
    add.u64 %offset, %offset, %tmp64;
    mad.wide.u32 %tmp64, %row, 8, %row_offsets;
    @%inside st.global.u64 [%tmp64], %offset;
    ret;
}

% endif
${entry("make_records", plan.make_records)}\
<% arrays, number = plan.make_records.names[:7], plan.make_records.names[-1] %>\
    .reg .b64 ${plan.made_arrays}, %total, %ptr, %tmp64;
    .reg .b32 %place, %row, %index_i, %index_j, %${number}, %tmp0;
    .reg .${key} %key, %sign;
    .reg .b16 %half;
    .reg .pred %p, %inside, %nan;
${record_registers("own")}\
${addresses(*arrays)}\
    ld.param.u32 %${number}, [${number}];
${record_of_thread()}\
% if not plan.axis:
    // the only row begins at 0, and has all records
    setp.eq.u32 %p, %place, 0;
    mov.b64 %tmp64, 0;
    cvt.u32.u64 %tmp0, %total;
    @%p st.global.u64 [%row_offsets], %tmp64;
    @%p st.global.u32 [%row_counts], %tmp0;
% endif
    @!%inside bra DONE;
    mad.wide.u32 %tmp64, %place, 4, %list_i;
    ld.global.u32 %index_i, [%tmp64];
    mad.wide.u32 %tmp64, %place, 4, %list_j;
    ld.global.u32 %index_j, [%tmp64];
    mad.wide.u32 %tmp64, %place, ${plan.value_bytes}, %values;
${load_key()}\
% if plan.axis:
${ptx.banner("the record of the row")}\
    sub.u32 %row, ${plan.row_index}, %first_row;
    mov.b32 %index_i, ${plan.other_index};
    mad.wide.u32 %tmp64, %place, 4, %row_slots;
    ld.global.u32 %tmp0, [%tmp64];
    mad.wide.u32 %tmp64, %row, 8, %row_offsets;
    ld.global.u64 %tmp64, [%tmp64];
    cvt.u64.u32 %ptr, %tmp0;
    add.u64 %ptr, %ptr, %tmp64;
    mad.lo.u64 %ptr, %ptr, ${plan.bytes}, %records;
${records.of_index("index_i")}\
% else:
${ptx.banner("the record of all pairs")}\
    cvt.u64.u32 %ptr, %place;
${records.of_pair()}\
% endif
    st.global.${record} [%ptr], ${plan.operands["own"]};
DONE:
    ret;
}

% if plan.axis:
${entry("make_sample", plan.make_sample)}\
    .reg .b64 %values, %records, %row_offsets, %row_counts, %ptr, %tmp64;
    .reg .b32 %place, %places, %row, %rows, %index, %target, %tmp0;
    .reg .${key} %key, %sign;
    .reg .b16 %half;
    .reg .pred %p, %nan;
${record_registers("own")}\
${addresses("values", "records", "row_offsets", "row_counts")}\
    ld.param.u32 %rows, [rows];
    ld.param.u32 %places, [places];
    mov.u32 %target, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %target, %tmp0, ${plan.threads}, %target;
    div.u32 %row, %target, %places;
    setp.ge.u32 %p, %row, %rows;
    @%p bra DONE;
    mul.lo.u32 %tmp0, %row, %places;
    sub.u32 %place, %target, %tmp0;
    // the first thread of a row writes its place and its records
    setp.eq.u32 %p, %place, 0;
    cvt.u64.u32 %ptr, %target;
    mad.wide.u32 %tmp64, %row, 8, %row_offsets;
    @%p st.global.u64 [%tmp64], %ptr;
    mad.wide.u32 %tmp64, %row, 4, %row_counts;
    @%p st.global.u32 [%tmp64], %places;
    ${plan.sample_place}
    mad.wide.u32 %tmp64, %tmp0, ${plan.value_bytes}, %values;
${load_key()}\
    ld.param.u32 %index, [first_index];
    ld.param.u32 %tmp0, [step];
    mad.lo.u32 %index, %place, %tmp0, %index;
    mad.wide.u32 %ptr, %target, ${plan.bytes}, %records;
${records.of_index("index")}\
    st.global.${record} [%ptr], ${plan.operands["own"]};
DONE:
    ret;
}

% endif
${entry("sort_runs", plan.sort_runs)}\
    .reg .b64 %records, %row_counts, %row_offsets, %ptr, %tmp64;
    .reg .b32 %thread, %row, %run, %runs, %first, %number, %run_number, %leading, %kept_best, %size, %half, %span, %distance;
    .reg .b32 %place, %low, %smem, %one, %two, %tmp0;
    .reg .pred %p, %bounded, %before, %down;
${record_registers("lower", "upper")}\
    .shared .align 16 .b8 run[${plan.run_bytes}];
    .shared .align 4 .b32 more;
${addresses("records", "row_counts", "row_offsets")}\
    ld.param.u32 %runs, [runs];
    mov.u32 %thread, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    div.u32 %row, %tmp0, %runs;
    mul.lo.u32 %run, %row, %runs;
    sub.u32 %run, %tmp0, %run;
    mul.lo.u32 %first, %run, ${plan.RUN};
    mad.wide.u32 %tmp64, %row, 4, %row_counts;
    ld.global.u32 %number, [%tmp64];
    setp.le.u32 %p, %number, %first;
    @%p bra.uni DONE;
    sub.u32 %number, %number, %first;
    min.u32 %number, %number, ${plan.RUN};
    mad.wide.u32 %tmp64, %row, 8, %row_offsets;
    ld.global.u64 %ptr, [%tmp64];
    cvt.u64.u32 %tmp64, %first;
    add.u64 %ptr, %ptr, %tmp64;
    mad.lo.u64 %ptr, %ptr, ${plan.bytes}, %records;
    mov.u32 %smem, run;
${ptx.banner("the best ones of the first %leading records give a bound of the others, if these are more")}\
    ld.param.u32 %kept_best, [n];
    ld.param.u32 %leading, [part];
    mov.b32 %run_number, %number;
    setp.ge.u32 %bounded, %leading, %number;
    not.pred %bounded, %bounded;
    @%bounded mov.b32 %number, %leading;
    mov.b32 %place, %thread;
LOAD:
    setp.ge.u32 %p, %place, %number;
    @%p bra LOADED;
    mad.wide.u32 %tmp64, %place, ${plan.bytes}, %ptr;
    ld.global.${record} ${plan.operands["lower"]}, [%tmp64];
    mad.lo.u32 %one, %place, ${plan.bytes}, %smem;
    st.shared.${record} [%one], ${plan.operands["lower"]};
    add.u32 %place, %place, ${plan.threads};
    bra LOAD;
LOADED:
SORT:
${ptx.banner("%size: the power of two from %number on; the records after %number are the last ones")}\
    sub.u32 %tmp0, %number, 1;
    clz.b32 %tmp0, %tmp0;
    sub.u32 %tmp0, 32, %tmp0;
    mov.b32 %size, 1;
    shl.b32 %size, %size, %tmp0;
    shr.u32 %half, %size, 1;
    add.u32 %place, %number, %thread;
${records.last("lower")}\
FILL:
    setp.ge.u32 %p, %place, %size;
    @%p bra FILLED;
    mad.lo.u32 %one, %place, ${plan.bytes}, %smem;
    st.shared.${record} [%one], ${plan.operands["lower"]};
    add.u32 %place, %place, ${plan.threads};
    bra FILL;
FILLED:
    // ---- wait: the records are in shared memory
    bar.sync 0;
${ptx.banner("bitonic sort: runs of %span records have alternating directions; %distance: between the two of an exchange")}\
    mov.b32 %span, 2;
SPAN:
    setp.gt.u32 %p, %span, %size;
    @%p bra.uni SORTED;
    shr.u32 %distance, %span, 1;
DISTANCE:
    mov.b32 %place, %thread;
EXCHANGE:
    setp.ge.u32 %p, %place, %half;
    @%p bra EXCHANGED;
    sub.u32 %tmp0, %distance, 1;
    and.b32 %low, %place, %tmp0;
    sub.u32 %one, %place, %low;
    mad.lo.u32 %one, %one, 2, %low;
    add.u32 %two, %one, %distance;
    and.b32 %tmp0, %one, %span;
    setp.ne.u32 %down, %tmp0, 0;
    mad.lo.u32 %one, %one, ${plan.bytes}, %smem;
    mad.lo.u32 %two, %two, ${plan.bytes}, %smem;
    ld.shared.${record} ${plan.operands["lower"]}, [%one];
    ld.shared.${record} ${plan.operands["upper"]}, [%two];
${records.less("before", "upper", "lower")}\
    xor.pred %before, %before, %down;
    @%before st.shared.${record} [%one], ${plan.operands["upper"]};
    @%before st.shared.${record} [%two], ${plan.operands["lower"]};
    add.u32 %place, %place, ${plan.threads};
    bra EXCHANGE;
EXCHANGED:
    // ---- wait: the exchanges of all threads are done
    bar.sync 0;
    shr.u32 %distance, %distance, 1;
    setp.ne.u32 %p, %distance, 0;
    @%p bra.uni DISTANCE;
    shl.b32 %span, %span, 1;
    bra.uni SPAN;
SORTED:
    @!%bounded bra.uni STORE_ALL;
${ptx.banner("the other records that are before the bound follow the best ones")}\
    mov.pred %bounded, 0;
    sub.u32 %tmp0, %kept_best, 1;
    mad.lo.u32 %one, %tmp0, ${plan.bytes}, %smem;
    ld.shared.${record} ${plan.operands["upper"]}, [%one];
    mov.u32 %two, more;
    setp.eq.u32 %p, %thread, 0;
    @%p st.shared.u32 [%two], %kept_best;
    // ---- wait: all threads have the bound, and the counter its first value
    bar.sync 0;
    add.u32 %place, %leading, %thread;
OTHERS:
    setp.ge.u32 %p, %place, %run_number;
    @%p bra LISTED;
    mad.wide.u32 %tmp64, %place, ${plan.bytes}, %ptr;
    ld.global.${record} ${plan.operands["lower"]}, [%tmp64];
${records.less("before", "lower", "upper")}\
    @%before atom.shared.add.u32 %tmp0, [%two], 1;
    mad.lo.u32 %one, %tmp0, ${plan.bytes}, %smem;
    @%before st.shared.${record} [%one], ${plan.operands["lower"]};
    add.u32 %place, %place, ${plan.threads};
    bra OTHERS;
LISTED:
    // ---- wait: all other records are listed
    bar.sync 0;
    ld.shared.u32 %number, [%two];
    bra.uni SORT;
STORE_ALL:
    min.u32 %number, %number, %kept_best;
    mov.b32 %place, %thread;
STORE:
    setp.ge.u32 %p, %place, %number;
    @%p bra DONE;
    mad.lo.u32 %one, %place, ${plan.bytes}, %smem;
    ld.shared.${record} ${plan.operands["lower"]}, [%one];
    mad.wide.u32 %tmp64, %place, ${plan.bytes}, %ptr;
    st.global.${record} [%tmp64], ${plan.operands["lower"]};
    add.u32 %place, %place, ${plan.threads};
    bra STORE;
DONE:
    ret;
}

${entry("join_runs", plan.join_runs())}\
    .reg .b64 %records, %joined_records, %row_counts, %row_offsets, %offset, %from, %ptr, %tmp64;
    .reg .b32 %row, %chunk, %chunks, %length, %kept, %kept_best, %number, %run, %place, %first, %last, %rank, %other_run, %start, %low, %high, %middle, %tmp0;
    .reg .pred %p, %before;
${record_registers("own", "compared")}\
${addresses("records", "joined_records", "row_counts", "row_offsets")}\
    ld.param.u32 %length, [length];
    ld.param.u32 %kept, [kept];
    ld.param.u32 %kept_best, [n];
    ld.param.u32 %chunks, [chunks];
${ptx.banner("the record at %place of %run, which has %kept records that may be among the best")}\
    mov.u32 %tmp0, %ctaid.x;
    div.u32 %row, %tmp0, %chunks;
    mul.lo.u32 %chunk, %row, %chunks;
    sub.u32 %chunk, %tmp0, %chunk;
    mov.u32 %place, %tid.x;
    mad.lo.u32 %place, %chunk, ${plan.threads}, %place;
    div.u32 %run, %place, %kept;
    mul.lo.u32 %tmp0, %run, %kept;
    sub.u32 %place, %place, %tmp0;
    mad.wide.u32 %tmp64, %row, 4, %row_counts;
    ld.global.u32 %number, [%tmp64];
    mad.lo.u32 %tmp0, %run, %length, %place;
    setp.ge.u32 %p, %tmp0, %number;
    @%p bra DONE;
    mad.wide.u32 %tmp64, %row, 8, %row_offsets;
    ld.global.u64 %offset, [%tmp64];
    mad.lo.u64 %from, %offset, ${plan.bytes}, %records;
    mad.wide.u32 %ptr, %tmp0, ${plan.bytes}, %from;
    ld.global.${record} ${plan.operands["own"]}, [%ptr];
${ptx.banner(f"%rank: the records of {plan.JOINED} adjacent runs that are before it")}\
    and.b32 %first, %run, ${-plan.JOINED};
    add.u32 %last, %first, ${plan.JOINED};
    mov.b32 %rank, %place;
    mov.b32 %other_run, %first;
RUNS:
    setp.ge.u32 %p, %other_run, %last;
    @%p bra RANKED;
    mul.lo.u32 %start, %other_run, %length;
    setp.ge.u32 %p, %start, %number;
    @%p bra RANKED;
    setp.eq.u32 %p, %other_run, %run;
    @%p bra NEXT_RUN;
    sub.u32 %high, %number, %start;
    min.u32 %high, %high, %kept;
    mov.b32 %low, 0;
SEARCH:
    setp.ge.u32 %p, %low, %high;
    @%p bra FOUND;
    add.u32 %middle, %low, %high;
    shr.u32 %middle, %middle, 1;
    add.u32 %tmp0, %start, %middle;
    mad.wide.u32 %ptr, %tmp0, ${plan.bytes}, %from;
    ld.global.${record} ${plan.operands["compared"]}, [%ptr];
${records.less("before", "compared", "own")}\
    @%before add.u32 %low, %middle, 1;
    @!%before mov.b32 %high, %middle;
    bra SEARCH;
FOUND:
    add.u32 %rank, %rank, %low;
NEXT_RUN:
    add.u32 %other_run, %other_run, 1;
    bra RUNS;
RANKED:
    setp.ge.u32 %p, %rank, %kept_best;
    @%p bra DONE;
    mad.lo.u32 %rank, %first, %length, %rank;
    cvt.u64.u32 %tmp64, %rank;
    add.u64 %offset, %offset, %tmp64;
    mad.lo.u64 %ptr, %offset, ${plan.bytes}, %joined_records;
    st.global.${record} [%ptr], ${plan.operands["own"]};
DONE:
    ret;
}

${entry("write_best", plan.write_best())}\
    .reg .b64 ${plan.written_registers}, %ptr, %tmp64;
    .reg .b32 %rows, %columns, %width, %place, %row, %target, %number, %index_i, %index_j, %tmp0;
    .reg .${key} %key, %sign;
    .reg .b16 %half;
    .reg .pred %p;
% for line in plan.slack_registers:
    ${line}
% endfor
${record_registers("own")}\
${addresses(*plan.written_arrays)}\
    ld.param.u32 %rows, [rows];
    ld.param.u32 %columns, [columns];
    ld.param.u32 %width, [width];
    mov.u32 %target, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %target, %tmp0, ${plan.threads}, %target;
    div.u32 %row, %target, %width;
    setp.ge.u32 %p, %row, %rows;
    @%p bra DONE;
    mul.lo.u32 %tmp0, %row, %width;
    sub.u32 %place, %target, %tmp0;
    ld.param.u32 %tmp0, [first];
    add.u32 %place, %place, %tmp0;
    ld.param.u${plan.key_bits} %key, [missing];
    ld.param.u32 %index_i, [missing_index];
    mov.b32 %index_j, %index_i;
    mad.wide.u32 %tmp64, %row, 4, %row_counts;
    ld.global.u32 %number, [%tmp64];
    setp.ge.u32 %p, %place, %number;
    @%p bra WRITE;
    mad.wide.u32 %tmp64, %row, 8, %row_offsets;
    ld.global.u64 %ptr, [%tmp64];
    cvt.u64.u32 %tmp64, %place;
    add.u64 %ptr, %ptr, %tmp64;
    mad.lo.u64 %ptr, %ptr, ${plan.bytes}, %records;
    ld.global.${record} ${plan.operands["own"]}, [%ptr];
${ptx.banner("the value and the indices of the record")}\
${records.unpack()}\
% if plan.greatest:
    not.${key} %key, %key;
% endif
% if plan.group == "float":
    shr.s${plan.key_bits} %sign, %key, ${plan.sign_shift};
    not.${key} %sign, %sign;
    or.${key} %sign, %sign, ${plan.sign_bit};
    xor.${key} %key, %key, %sign;
    // worse by the slack, if it is finite
    ld.param.f32 %slack, [slack];
    abs.f${plan.key_bits} %sign, %key;
    setp.lt.f${plan.key_bits} %p, %sign, ${plan.infinity};
  % if plan.key_bits == 64:
    cvt.f64.f32 %wide_slack, %slack;
    @%p fma.rn.f64 %key, %sign, %wide_slack, %key;
  % else:
    @%p fma.rn.f32 %key, %sign, %slack, %key;
  % endif
% elif plan.group == "signed":
    xor.b32 %key, %key, 0x80000000;
% endif
% if not plan.axis:
${records.unpack_pair()}\
% endif
WRITE:
    mad.wide.u32 %tmp64, %target, ${plan.value_bytes}, %best;
% if plan.dtype == "f16":
    cvt.rn.f16.f32 %half, %key;
    st.global.b16 [%tmp64], %half;
% elif plan.dtype == "bf16":
    shr.u32 %key, %key, 16;
    st.global.u16 [%tmp64], %key;
% else:
    st.global.b${plan.value_bits} [%tmp64], %key;
% endif
% for name, index in zip(plan.written_arrays[4:], ("%index_i", "%index_j")):
    mad.wide.u32 %tmp64, %target, 4, %${name};
    st.global.u32 [%tmp64], ${index};
% endfor
DONE:
    ret;
}
