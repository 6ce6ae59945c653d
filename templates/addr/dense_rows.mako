## Addresses of a row-major B, whose rows are selected by column indices, and of a row-major C.
<%def name="row_pitch()">
    mul.lo.u32 %pitch, %pitch, ${plan.mainloop.size};
</%def>

<%def name="first_row(into, v)">
    mad.wide.u32 ${into}, %col${v}, ${plan.mainloop.size}, %B;
</%def>

<%def name="step()"></%def>

<%def name="row()">
    mul.wide.u32 %pitch64, %row, %ldc;
    mad.lo.u64 %ptr_row, %pitch64, ${plan.mainloop.size}, %C;
</%def>

<%def name="vector(v)">
    mad.wide.u32 %ptr_c, %col${v}, ${plan.mainloop.size}, %ptr_row;
</%def>
