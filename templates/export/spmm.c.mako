<%page args="form, arguments"/>\
/* Sparse products have kernels for exported problems only; they serve all matrices of these extents. */
static void set_shape_spmm(const ptxgen_spmm_problem *p, struct call *x)
{
    (void)p;
    (void)x;
}

/* Leading dimensions of contiguous matrices get one value, as in ptxgen. */
static void normalize_spmm(ptxgen_spmm_problem *p)
{
    int64_t columns_b = p->layout == PTXGEN_NT ? p->k : p->n, columns_c = p->layout_c == PTXGEN_T ? p->m : p->n;
    if (!p->ldb)
        p->ldb = columns_b ? columns_b : 1;
    if (!p->ldc)
        p->ldc = columns_c ? columns_c : 1;
}

