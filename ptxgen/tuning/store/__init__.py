"""Measurements and winners: the records, the SQLite database, and the files that ship or are exchanged."""
