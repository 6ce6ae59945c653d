## No tile is skipped: every tile has results that are taken.
<%def name="registers()"></%def>
<%def name="skip(who)"></%def>
<%def name="skipped(who)"></%def>
