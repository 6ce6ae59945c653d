## Products without block scales.
<%namespace name="matrix" file="/math/matrix_product.mako"/>
<%def name="setup()"></%def>
<%def name="begin_step(k)"></%def>

<%def name="product(instruction, sums, a, b)">
${matrix.product(instruction, sums, a, b)}\
</%def>
