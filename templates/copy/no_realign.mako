## Rows are aligned: wgmma reads a stage as TMA loaded it.
<%def name="setup()"></%def>
<%def name="realign()"></%def>
