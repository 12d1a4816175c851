"""What Alembic runs: the migrations, on the connection and inside the transaction that `migrate` hands it."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
    version_table_schema=context.config.attributes["schema"],
)
context.run_migrations()
