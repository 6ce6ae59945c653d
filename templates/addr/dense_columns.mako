## Addresses of a column-major B, whose rows are selected by column indices, and of a column-major C. Accesses are to single
## elements.
<%def name="row_pitch()"></%def>

<%def name="first_row(into, v)">
    mul.wide.u32 ${into}, %col${v}, %pitch;
    mad.lo.u64 ${into}, ${into}, ${plan.mainloop.size}, %B;
</%def>

<%def name="step()">
    mov.b32 %pitch, ${plan.mainloop.size}; // from one row of B to the next
</%def>

<%def name="row()">
    mad.wide.u32 %ptr_row, %row, ${plan.mainloop.size}, %C;
</%def>

<%def name="vector(v)">
    mul.wide.u32 %pitch64, %col${v}, %ldc;
    mad.lo.u64 %ptr_c, %pitch64, ${plan.mainloop.size}, %ptr_row;
</%def>
