## The tile leaves through shared memory: the groups of threads that shared K meet there, and rows leave whole.
<%namespace name="ptx" file="/ptx/vector.mako"/>
<%namespace name="place" file="/${context['plan'].at_out}"/>
<%def name="leave(math, put, add)">
    {
    .reg .b64 %at;
    .reg .b32 %r, %q, %i;
    .reg .pred %in;
    ${plan.row.declaration}
    ${plan.other.declaration}
% for i in range(plan.ms):
${math.row(i)}\
% for j in range(0, plan.ns, plan.share):
    ${plan.share_guard}st.shared.${ptx.kind(plan.share, plan.sum)} [%share+${(plan.a.offset(i) * plan.row_c + plan.b.offset(j)) * plan.sum_bytes}], ${plan.row.vector(j, n=plan.share)};
% endfor
% endfor
    bar.sync 0;
    mov.u32 %i, %thread;
% if plan.gather_rounds > plan.UNROLLED:
    .pragma "nounroll";
GATHER${int(add)}:
% endif
% for n in range(min(plan.gather_rounds, plan.UNROLLED) if plan.gather_rounds <= plan.UNROLLED else 1):
    // vector %i of the tile: its row, its column
    shr.u32 %r, %i, ${plan.log2_row_vectors};
    and.b32 %q, %i, ${plan.row_vectors - 1};
    mul.lo.u32 %q, %q, ${plan.vec_c};
    mad.lo.u32 %t0, %r, ${plan.row_c}, %q;
    mad.lo.u32 %t0, %t0, ${plan.sum_bytes}, %smem;
    add.u32 %r, %r, %m0;
    add.u32 %q, %q, %n0;
% if plan.checked:
    setp.lt.u32 %in, %r, %M;
    setp.lt.and.u32 %in, %q, %N, %in;
% endif
% if plan.gather_loads < plan.threads:
    setp.lt${".and" if plan.checked else ""}.u32 %in, %i, ${plan.gather_loads}${", %in" if plan.checked else ""};
% endif
${place.one("%at", "%r", "%q", "%out", "%ldo", plan.out_bytes)}\
% for g in range(plan.kl):
<% into = plan.other if g else plan.row %>\
    ${plan.gather_guard}ld.shared.${plan.vector} ${into.vector(0, n=plan.vec_c)}, [%t0+${g * plan.config.ml * plan.row_c * plan.sum_bytes}];
% if g:
% for q in range(plan.vec_c):
    ${plan.gather_guard}${plan.add} ${plan.row[q]}, ${plan.row[q]}, ${plan.other[q]};
% endfor
% endif
% endfor
${put.vector([plan.row[q] for q in range(plan.vec_c)], "%at", 0, plan.gather_guard, add, ("%r", 0), ("%q", 0))}\
    add.u32 %i, %i, ${plan.threads};
% endfor
% if plan.gather_rounds > plan.UNROLLED:
    setp.lt.u32 %p, %i, ${plan.gather_loads};
    @%p bra GATHER${int(add)};
% endif
    }
</%def>
