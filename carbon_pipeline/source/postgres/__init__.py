"""PostgreSQL as a source: what is there, its rows as of one moment, and proof of what was read.

`session.py` opens every connection, `failures.py` explains every error, `introspect.py` reads the catalogue,
`snapshot.py` pins one relation at one moment, `wire.py` says how each type travels, `extract.py` streams rows as Arrow,
`digest.py` computes the checksum there, `probe.py` looks around for `carbon connect`, and `source.py` puts it together.
"""
