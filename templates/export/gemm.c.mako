<%page args="form, arguments"/>\
/* Leading dimensions and strides of contiguous operands get one value, as in ptxgen. */
static void normalize_gemm(ptxgen_gemm_problem *p)
{
    int transposed_a = p->layout == PTXGEN_TN || p->layout == PTXGEN_TT;
    int transposed_b = p->layout == PTXGEN_NT || p->layout == PTXGEN_TT;
    const int64_t rows[] = {transposed_a ? p->k : p->m, transposed_b ? p->n : p->k, p->m};
    const int64_t columns[] = {transposed_a ? p->m : p->k, transposed_b ? p->k : p->n, p->n};
    int64_t *const leading[] = {&p->lda, &p->ldb, &p->ldc};
    int64_t *const strides[] = {&p->stride_a, &p->stride_b, &p->stride_c};
    p->batch = p->batch ? p->batch : 1;
    for (int i = 0; i < 3; i++) {
        if (!*leading[i])
            *leading[i] = columns[i] ? columns[i] : 1;
        if (p->batch == 1 || *strides[i] == rows[i] * *leading[i])
            *strides[i] = -1;
    }
}

/* Sets the shape of a GEMM that kernels for other shapes may compute: no batch, nothing empty, and sizes whose products
 * do not overflow. */
static void set_shape_gemm(const ptxgen_gemm_problem *p, struct call *x)
{
    const ptxgen_operands *o = x->operands;
    int transposed_a = p->layout == PTXGEN_TN || p->layout == PTXGEN_TT;
    int transposed_b = p->layout == PTXGEN_NT || p->layout == PTXGEN_TT;
    int64_t rows_a = transposed_a ? p->k : p->m, rows_b = transposed_b ? p->n : p->k;
    const int64_t most = INT64_C(1) << 43; /* elements of an operand */
    if (p->lda >= (transposed_a ? p->m : p->k) && p->ldb >= (transposed_b ? p->k : p->n) && p->ldc >= p->n &&
        p->batch == 1 && p->n && p->k && rows_a * p->lda <= most && rows_b * p->ldb <= most && p->m * p->ldc <= most &&
        (double)p->m * (double)p->n * (double)p->k < 0x1p59)
        x->shape = (struct shape){p->m, p->n, p->k, p->lda, p->ldb, p->ldc, alignment_of(address(o->a)),
                                  alignment_of(address(o->b)),
                                  alignment_of(address(o->c) | address(o->residual) | address(o->aux)), 1, 1};
}

