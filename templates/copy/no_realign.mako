## A stage is what wgmma reads once it has come.
<%def name="setup()"></%def>
<%def name="settle()"></%def>
