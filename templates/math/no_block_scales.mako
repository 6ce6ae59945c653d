## Sums are not scaled.
<%def name="setup()"></%def>
