## There are no block scales: sums are not scaled.
<%def name="setup()"></%def>
