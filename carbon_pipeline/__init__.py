"""PostgreSQL into Apache Iceberg, through a ledger that can be asked what landed.

The path of the data, one folder a stage:

    source/             what is there, and its rows as of one moment
    schema/             what each column becomes
    destination/        where a relation's rows go, and what it is called there
    gate/               who may write there
    ledger/             the intended write, on record before it happens and settled after
    lake/               the write itself, and its three outcomes
    ratify/             settling a write whose outcome nobody knows
    verify/             whether source and lake hold the same rows
    proof/              what is held and how it came there, as a document that a stranger can check
    query/              SQL over what is published
    control_plane/      workspaces, credentials and datasets, and the database that keeps them
    vault/              sealed secrets
    embedded_postgres/  the server that everything stands on when nothing else is configured
    orchestration/      Dagster: assets, IO manager, jobs, sensors
    terminal/           what the `carbon` command prints
    demo/               the demo's source database

`sync.py` is the path itself, `sync_all.py` many tables at once, `deployment.py` the library's front. On top of it are
the programs: `cli.py`, whose commands do their work in `session.py`, `evidence.py` and `demonstration.py`, and for
Dagster `definitions.py` and `dagster_storage.py`.
"""
