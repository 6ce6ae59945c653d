<%page args="form, arguments"/>\
<% task = form.values["task"] %>\
/* Leading dimensions of contiguous arrays get one value, as in ptxgen. */
static void normalize_${form.name}(ptxgen_${form.name}_problem *p)
{
    (void)p;
% for name, (rows, columns) in task.rows.items():
    if (!p->ld_${name})
        p->ld_${name} = ${columns} ? ${columns} : 1;
% endfor
}

/* Sets the shape of a task that kernels for other shapes may compute: extents that arrays have, nothing empty, and sizes
 * whose products do not overflow. */
static void set_shape_${form.name}(const ptxgen_${form.name}_problem *p, struct call *x)
{
    const int64_t most = INT64_C(1) << 43; /* elements of an array */
% for name, (rows, columns) in task.rows.items():
    if (p->ld_${name} < ${columns} || ${rows} * p->ld_${name} > most)
        return;
% endfor
% for a, b in task.equal_fields:
    if (${a} != ${b})
        return;
% endfor
% if task.grouped:
    if (p->group_rows * p->group_columns > most)
        return;
% endif
    if (p->m && p->n && p->k && (double)p->m * (double)p->n * (double)p->k < 0x1p59)
        x->shape = (struct shape){${", ".join(task.shape.values())}, alignment_of(address(x->common.a)),
                                  alignment_of(address(x->common.b)), alignment_of(address(x->common.c)), ${task.groups}};
}

/* The operands as kernels name them. */
static ptxgen_status bind_${form.name}(const ptxgen_${form.name}_operands *o, struct call *x)
{
    x->common.alpha = 1;
% for argument in arguments:
    % for place in argument.places:
    ${place} = o->${argument.name};
    % endfor
% endfor
    const int valid = x->size != NULL || ${"(x->count && x->capacity >= 0)" if task.counts else "1"}; /* a query needs none */
    return valid ? PTXGEN_SUCCESS : PTXGEN_INVALID_ARGUMENT;
}

