<%page args="form, arguments"/>\
/* Convolutions have kernels for exported problems only. */
static void set_shape_conv2d(const ptxgen_conv2d_problem *p, struct call *x)
{
    (void)p;
    (void)x;
}

/* The axes of filters that have several elements, from the slowest in memory to the fastest: a byte for each.
 * UINT32_MAX: not a layout of filters. */
static uint32_t filter_order(const ptxgen_conv2d_problem *p, ptxgen_word filters)
{
    const char *axes = "";
% for name in dict.fromkeys(form.values["filters"].values()):
    if (filters == ${enumerator(name)})
        axes = "${name}";
% endfor
    uint32_t order = 0;
    const int known = *axes != 0;
    for (; *axes; axes++) {
        int64_t extent = *axes == 'K' ? p->k : *axes == 'R' ? p->r : *axes == 'S' ? p->s
                                                              : p->c / (p->groups ? p->groups : 1);
        if (extent > 1)
            order = order << 8 | (unsigned char)*axes;
    }
    return known ? order : UINT32_MAX;
}

/* Fields without effect get one value, as in ptxgen. Of layouts of filters that describe the same memory, the one that
 * corresponds to the layout of the images is chosen, else the first one. */
static void normalize_conv2d(ptxgen_conv2d_problem *p)
{
    static const ptxgen_word corresponding[][2] = { /* layout of images, layout of filters */
% for images, name in form.values["filters"].items():
        {${enumerator(images)}, ${enumerator(name)}},
% endfor
    };
    const int count = sizeof corresponding / sizeof *corresponding;
    const uint32_t order = filter_order(p, p->filters);
    int found = 0;
    for (int i = 0; i < 2 * count && !found; i++) {
        const ptxgen_word *row = corresponding[i % count];
        found = (i >= count || row[0] == p->layout) && filter_order(p, row[1]) == order;
        if (found)
            p->filters = row[1];
    }
    p->dilation_h = p->r == 1 ? 1 : p->dilation_h;
    p->dilation_w = p->s == 1 ? 1 : p->dilation_w;
    if (p->h + p->pad_top + p->pad_bottom == p->dilation_h * (p->r - 1) + 1)
        p->stride_h = 1;
    if (p->w + p->pad_left + p->pad_right == p->dilation_w * (p->s - 1) + 1)
        p->stride_w = 1;
}

